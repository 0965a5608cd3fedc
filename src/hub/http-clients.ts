import { toHubError } from "../base/errors.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { TokenHolder } from "../frontend/http/principals.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { NamedClient } from "../manifest/named-clients.ts";
import { formatProblem } from "../manifest/problems.ts";
import { resolveHttpToken, type SchemeResolvers } from "../manifest/resolve.ts";
import { ALL_SERVERS, subsetOf } from "../upstream/profile.ts";

type ValidClient = Extract<NamedClient, { kind: "client" }>;

/**
 * Resolves the tokens of the clients over HTTP that the manifest names. Leaves out a client, so that its token is
 * refused, if its table has problems, or if its token is missing, not valid or also the token of another client.
 * @param warn receives the reason for each client that is left out, as a sentence without a full stop
 * @returns undefined if the manifest has no `[[clients]]`
 */
export async function resolveHttpClients(
  { clients = [] }: Pick<Manifest, "clients">,
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  warn: (text: string, client: string) => void,
): Promise<readonly TokenHolder[] | undefined> {
  if (clients.length === 0) return undefined;
  const schemes = secretSchemes({ env, platform });
  const resolved = await Promise.all(
    clients.map(async (client) => {
      const token = await tokenOf(client, env, schemes);
      if (typeof token === "string") return holderOf(client as ValidClient, token);
      const { name = "" } = client;
      warn(`client ${JSON.stringify(name)} over HTTP is refused: ${token.fault}`, name);
      return undefined;
    }),
  );
  const holders = resolved.filter((holder) => holder !== undefined);
  return holders.filter(({ name, token }) => {
    const other = holders.find((holder) => holder.name !== name && holder.token === token);
    if (other === undefined) return true;
    const text = `client "${name}" over HTTP is refused: it has the same token as client "${other.name}"`;
    warn(text, name);
    return false;
  });
}

/** Resolves the token of a client. @returns the token, or the reason why it cannot be used */
async function tokenOf(
  client: NamedClient,
  env: SystemEnvironment["env"],
  schemes: SchemeResolvers,
): Promise<string | { readonly fault: string }> {
  if (client.kind === "invalid") return { fault: client.problems.map(formatProblem).join("; ") };
  try {
    const token = await resolveHttpToken(client.token, env, schemes, "its token");
    if (isValidToken(token)) return token;
    return { fault: "its token must be printable ASCII text without spaces, and not empty" };
  } catch (error) {
    return { fault: toHubError(error).message };
  }
}

function holderOf(
  { name, servers, mode, expose, sessions }: ValidClient,
  token: string,
): TokenHolder {
  const subset = servers === undefined ? ALL_SERVERS : subsetOf(servers);
  return { name, subset, mode, expose, maxSessions: sessions, token };
}

/** Whether a text can be a bearer token: non-empty printable ASCII without spaces. */
export function isValidToken(token: string): boolean {
  return /^[\x21-\x7e]+$/.test(token);
}

/** Resolvers for the placeholders `${secret:…}` in tokens. */
export function secretSchemes(
  context: Pick<SystemEnvironment, "env" | "platform">,
): SchemeResolvers {
  const resolve = async (name: string): Promise<string> =>
    (await import("../secrets/secrets.ts")).openSecrets(context).require(name);
  return new Map([["secret", resolve]]);
}
