import { Buffer } from "node:buffer";
import type { HttpToken } from "../manifest/schema.ts";
import { resolveHttpToken, type SchemeResolvers } from "../manifest/resolve.ts";
import { isLoopback } from "../base/loopback.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { usageError } from "./args.ts";

/** Where the HTTP face is to be, and what its clients have to know. */
export interface HttpAddress {
  /** As URLs spell it: IPv6 addresses have brackets. */
  readonly hostname: string;
  readonly port: number;
  readonly token: string | undefined;
  /** The token is that of the secret store, which is made if there is none (`--token auto`). */
  readonly isAuto?: true;
  /** Where that one is kept, for people. */
  readonly kept?: string;
}

/** The name in the secret store of the token that `--token auto` makes. */
export const TOKEN_NAME = "toolmux/http-token";

/** The length of that token, in bytes. */
const TOKEN_LENGTH = 32;

/** Only this machine reaches it there. */
const DEFAULT_HOST = "127.0.0.1";

/** What the command line asks for; undefined: no HTTP. @throws {HubError} usage */
export function readHttpAddress(
  { http, httpTokenEnv, values }: Invocation,
  { env }: Pick<CommandContext, "env">,
): HttpAddress | undefined {
  const isAuto = values.has("token");
  if (http === undefined) {
    if (httpTokenEnv === undefined && !isAuto) return undefined;
    const option = isAuto ? "--token" : "--http-token-env";
    throw usageError(`${option} says who may come over HTTP: it needs --http.`);
  }
  if (isAuto && values.get("token")?.at(-1) !== "auto") {
    throw usageError("--token is auto: a token itself does not belong on the command line.");
  }
  if (isAuto && httpTokenEnv !== undefined) {
    throw usageError(
      "--token and --http-token-env both say which token clients bear: leave out one.",
    );
  }
  const [, host = DEFAULT_HOST, digits = ""] = /^(?:(.+):)?(\d{1,5})$/.exec(http) ?? [];
  const port = Number(digits);
  const url = `http://${host}`;
  const hostname =
    /^[\w.-]+$|^\[[\da-f:.]+\]$/i.test(host) && URL.canParse(url) && new URL(url).hostname;
  if (digits === "" || port > 65_535 || !hostname) {
    throw usageError(`--http is HOST:PORT, as in 127.0.0.1:8700, not "${http}".`);
  }
  const token = httpTokenEnv === undefined ? undefined : env[httpTokenEnv];
  if (httpTokenEnv !== undefined && !token) {
    throw usageError(`The variable ${httpTokenEnv} that --http-token-env names is empty.`);
  }
  return { hostname, port, token, ...(isAuto && { isAuto }) };
}

/** The same with the manifest's token, if the command line has named none. @throws {HubError} usage if others could come without */
export async function withManifestToken(
  { hostname, port, token: named, isAuto }: HttpAddress,
  httpToken: HttpToken | undefined,
  { env, platform }: Pick<CommandContext, "env" | "platform">,
): Promise<HttpAddress> {
  if (isAuto) {
    const { token, kept } = await obtainToken({ env, platform });
    if (BEARABLE.test(token)) return { hostname, port, token, kept };
    throw usageError(
      `The secret ${TOKEN_NAME} cannot be borne by clients: remove it (toolmux secret remove ${TOKEN_NAME}), and another is made.`,
    );
  }
  const schemes: SchemeResolvers = new Map([
    [
      "secret",
      async (name) =>
        (await import("../secrets/secrets.ts")).openSecrets({ env, platform }).require(name),
    ],
  ]);
  const token = named ?? (httpToken && (await resolveHttpToken(httpToken, env, schemes)));
  if (token === undefined && !isLoopback(hostname)) {
    throw usageError(
      `Other machines can reach ${hostname}: have a token made (--token auto), name a variable with one (--http-token-env NAME, or hub.httpToken = "\${env:NAME}"), or listen on ${DEFAULT_HOST}.`,
    );
  }
  if (token !== undefined && !BEARABLE.test(token)) {
    const place = named === undefined ? "hub.httpToken" : "--http-token-env";
    throw usageError(
      `The token of ${place} cannot be borne: it is empty, or has spaces, line ends or characters that are not ASCII.`,
    );
  }
  return { hostname, port, token };
}

/** The token of the secret store; it is made if there is none. @throws {HubError} storeBroken, storeBusy */
async function obtainToken(
  world: Pick<CommandContext, "env" | "platform">,
): Promise<{ readonly token: string; readonly kept: string }> {
  const { openSecrets } = await import("../secrets/secrets.ts");
  const { withFileLock } = await import("../process/file-lock.ts");
  const secrets = openSecrets(world);
  const places = {
    environment: "the environment",
    file: `${secrets.file.place} (${secrets.folder})`,
    keychain: secrets.keychain.place,
  };
  const find = async () => {
    const found = await secrets.find(TOKEN_NAME);
    return found && { token: found.value, kept: places[found.source] };
  };
  const make = async () => {
    const bytes = crypto.getRandomValues(new Uint8Array(TOKEN_LENGTH));
    const token = Buffer.from(bytes).toString("base64url");
    await secrets.file.set(TOKEN_NAME, token);
    return { token, kept: places.file };
  };
  const found = await find();
  if (found !== undefined) return found;
  // Two that are started at once have to come to the same one.
  const lock = `${secrets.folder}/http-token.lock`;
  return withFileLock(lock, new AbortController().signal, async () => (await find()) ?? make());
}

/** What a header can hold, and the face takes from it. */
const BEARABLE = /^[\x21-\x7e]+$/;
