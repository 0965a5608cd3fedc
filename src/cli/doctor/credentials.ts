import { HubError } from "../../base/errors.ts";
import type { Finding } from "./findings.ts";
import type { RemoteServer, ServerSpec } from "../../manifest/schema.ts";
import { resolveRemote } from "../../manifest/resolve.ts";
import type { Secrets } from "../../secrets/secrets.ts";
import { openUserAuthorizer } from "../authorizer.ts";
import type { CommandContext } from "../command.ts";
import { isResolvable, dryRunSchemes } from "./servers.ts";

/** Looks at the tokens that are kept for servers. Nobody is asked for another one. */
export async function checkTokens(
  servers: readonly ServerSpec[],
  secrets: Secrets,
  world: CommandContext,
): Promise<readonly Finding[]> {
  const remote = servers.filter((spec) => spec.kind === "remote");
  const found = await Promise.all(
    remote.map(async (spec): Promise<readonly Finding[]> => {
      if (!spec.enabled || !isResolvable(spec)) return [];
      try {
        return await examineToken(spec, secrets, world);
      } catch (error) {
        // What keeps it from being filled in, or from being kept, is said elsewhere.
        if (error instanceof HubError) return [];
        throw error;
      }
    }),
  );
  return found.flat();
}

async function examineToken(
  spec: RemoteServer,
  secrets: Secrets,
  world: CommandContext,
): Promise<readonly Finding[]> {
  const { name: subject, auth, oauth } = spec;
  const resolved = await resolveRemote(spec, world.env, world.cwd, dryRunSchemes(spec, secrets));
  const authorizer = await openUserAuthorizer(world, () => Promise.resolve());
  const standing = await authorizer.stand(spec, resolved);
  const advice = `toolmux auth login ${subject}`;
  if (standing.kind === "none") {
    if (auth !== "oauth" || oauth.grant === "clientCredentials") return [];
    return [{ code: "TM401", subject, text: "Nobody has logged in to it yet.", advice }];
  }
  if (standing.kind !== "expired") return [];
  if (standing.isRefreshable) {
    return [{ code: "TM403", subject, text: "Its token has expired; it is renewed by itself." }];
  }
  const text = "Its token has expired, and there is nothing to renew it with.";
  return [{ code: "TM402", subject, text, advice }];
}
