import type { OAuthAuthorizer, AuthorizationStatus } from "../../auth/oauth-authorizer.ts";
import { HubError } from "../../base/errors.ts";
import type { RemoteServer } from "../../manifest/schema.ts";
import { openOwnAuthorizer } from "../authorizer.ts";
import { ownConsole } from "../../terminal/console.ts";
import type { Invocation, World } from "../command.ts";
import { openLog, openManifest } from "../load-manifest.ts";
import { alignTable, terminalStyleOf, formatJson } from "../../terminal/terminal.ts";
import { describeStanding, standingToJson } from "./standing.ts";
import { fillIn, pickRemotes } from "./subject.ts";

interface Row {
  readonly spec: RemoteServer;
  /** Or why that cannot be said. */
  readonly standing: AuthorizationStatus | HubError;
}

/** Says how it stands with the authorization of each server over HTTP, or of those that are named. Asks nobody, shows no value. */
export async function tellStandings(
  invocation: Invocation,
  world: World,
  names: readonly string[],
): Promise<number> {
  const manifest = await openManifest(invocation, world, openLog(invocation));
  const specs = pickRemotes(manifest, names);
  const authorizer = await openOwnAuthorizer(world, () => Promise.resolve());
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

async function look(spec: RemoteServer, authorizer: OAuthAuthorizer, world: World): Promise<Row> {
  try {
    return { spec, standing: await authorizer.stand(spec, await fillIn(spec, world)) };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return { spec, standing: error };
  }
}

function toCells({ spec, standing }: Row): readonly string[] {
  if (standing instanceof HubError) return [spec.name, `unknown: ${standing.message}`, ""];
  const issuer = "issuer" in standing ? standing.issuer : "";
  return [spec.name, describeStanding(spec, standing, Date.now()), issuer];
}

function toJson({ spec, standing }: Row): object {
  if (!(standing instanceof HubError)) return standingToJson(spec, standing);
  const { code, message } = standing;
  return { server: spec.name, state: "unknown", error: { code, message } };
}
