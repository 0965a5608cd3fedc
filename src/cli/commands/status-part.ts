import type { OAuthAuthorizer, AuthorizationStatus } from "../../auth/oauth-authorizer.ts";
import { HubError } from "../../base/errors.ts";
import type { RemoteServer } from "../../manifest/schema.ts";
import { openUserAuthorizer } from "../authorizer.ts";
import { ownConsole } from "../../terminal/console.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { openLog, loadManifestOnly } from "../load-manifest.ts";
import { alignTable, terminalStyleOf, formatJson } from "../../terminal/terminal.ts";
import { describeAuthStatus, authStatusToJson } from "./standing.ts";
import { resolveRemoteSpec, pickRemoteServers } from "./subject.ts";

interface Row {
  readonly spec: RemoteServer;
  /** Or why that cannot be said. */
  readonly standing: AuthorizationStatus | HubError;
}

/** Says how it stands with the authorization of each server over HTTP, or of those that are named. Asks nobody, shows no value. */
export async function printAuthStatus(
  invocation: Invocation,
  world: CommandContext,
  names: readonly string[],
): Promise<number> {
  const manifest = await loadManifestOnly(invocation, world, openLog(invocation));
  const specs = pickRemoteServers(manifest, names);
  const authorizer = await openUserAuthorizer(world, () => Promise.resolve());
  const rows = await Promise.all(specs.map((spec) => look(spec, authorizer, world)));
  if (invocation.json !== false) ownConsole.log(formatJson({ servers: rows.map(toJson) }));
  else if (rows.length === 0) ownConsole.log("no server is reached over HTTP");
  else
    ownConsole.log(
      alignTable(
        ["SERVER", "AUTHORIZATION", "ISSUER"],
        rows.map(toCells),
        terminalStyleOf(world.env),
      ),
    );
  return 0;
}

async function look(
  spec: RemoteServer,
  authorizer: OAuthAuthorizer,
  world: CommandContext,
): Promise<Row> {
  try {
    return { spec, standing: await authorizer.stand(spec, await resolveRemoteSpec(spec, world)) };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return { spec, standing: error };
  }
}

function toCells({ spec, standing }: Row): readonly string[] {
  if (standing instanceof HubError) return [spec.name, `unknown: ${standing.message}`, ""];
  const issuer = "issuer" in standing ? standing.issuer : "";
  return [spec.name, describeAuthStatus(spec, standing, Date.now()), issuer];
}

function toJson({ spec, standing }: Row): object {
  if (!(standing instanceof HubError)) return authStatusToJson(spec, standing);
  const { code, message } = standing;
  return { server: spec.name, state: "unknown", error: { code, message } };
}
