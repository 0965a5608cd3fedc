import type { PlannedServer, SkippedServer } from "../../client-configs/import-plan.ts";
import type { ClientFile } from "../../client-configs/read.ts";
import { replacePlaintextSecrets } from "../../client-configs/clear.ts";
import { ownConsole } from "../../terminal/console.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { describeCommand, describeUrl } from "../server-description.ts";
import { openSecretStore } from "./keeping.ts";
import {
  alignTable,
  countNoun,
  terminalStyleOf,
  formatJson,
  type TerminalStyle,
} from "../../terminal/terminal.ts";
import { sanitizeLine, printLine } from "../../terminal/report.ts";
import { usageError } from "../args.ts";
import { askConsent } from "../consent.ts";
import { applyImport, readImportSources, type ImportSources, pickClients } from "./gathering.ts";

/** Shows which servers of other clients would be added to the manifest, and adds them if that is wanted. */
export async function importServers(
  invocation: Invocation,
  world: CommandContext,
): Promise<number> {
  const { switches, words, json } = invocation;
  const gathered = await readImportSources(pickClients(words), invocation, world);
  const { planned: additions, manifest } = gathered;
  const isForPeople = json === false;
  const moves = switches.has("secrets");
  if (isForPeople) ownConsole.log(describeImport(gathered, moves, terminalStyleOf(world.env)));
  const isWanted = additions.length > 0 && !switches.has("dry-run");
  const consent =
    isWanted && (switches.has("yes") || (isForPeople && (await ask(gathered, world))));
  if (consent === true) {
    const store = moves ? openSecretStore(world) : undefined;
    await applyImport(gathered, store, world);
    for (const name of new Set(additions.flatMap(({ requiredSecrets: wanted }) => wanted))) {
      printLine(`a value is needed: toolmux secret set ${name}`);
    }
    if (isForPeople)
      ownConsole.log(`added to ${manifest}: ${countNoun(additions.length, "server")}`);
  }
  if (!isForPeople) ownConsole.log(formatJson(toJson(gathered, consent === true, moves)));
  // Of all clients' files one may be odd; one that was asked for has to be readable.
  const isBroken = words.length > 0 && gathered.files.some(({ problem }) => problem !== undefined);
  if (!isWanted || consent === true) return isBroken ? 2 : 0;
  if (consent === undefined) {
    throw usageError(
      "Nothing was added: there is nobody to ask. Add --yes, or --dry-run to look only.",
    );
  }
  printLine("nothing was added");
  return 2;
}

function ask(
  { planned: additions, manifest }: ImportSources,
  { signal }: CommandContext,
): Promise<boolean | undefined> {
  return askConsent(`Add ${countNoun(additions.length, "server")} to ${manifest}?`, signal);
}

/** For people: what was found, what would be added, what would not, and which secrets stand there in the clear. */
export function describeImport(
  { files, planned: additions, skipped: omissions, manifest }: ImportSources,
  moves: boolean,
  paper: TerminalStyle,
): string {
  const parts = [describeFiles(files, paper)];
  if (additions.length > 0) {
    const rows = additions.map(({ name, source: origin, entry }) => [
      origin.client,
      name,
      show(entry),
    ]);
    parts.push(
      sanitizeLine(`would be added to ${manifest}:`),
      alignTable(["CLIENT", "SERVER", "STARTS"], rows, paper),
    );
  } else parts.push("nothing to add");
  const notes = additions.flatMap((addition) => noteAddition(addition, moves));
  if (notes.length > 0) parts.push(notes.join("\n"));
  if (omissions.length > 0) {
    const rows = omissions.map(({ source: origin, reason }) => [
      origin.client,
      origin.name,
      reason,
    ]);
    parts.push("left out:", alignTable(["CLIENT", "SERVER", "WHY"], rows, paper));
  }
  return parts.join("\n");
}

function describeFiles(files: readonly ClientFile[], paper: TerminalStyle): string {
  if (files.length === 0) return "no file of an MCP client was found";
  const rows = files.map(({ client, file, servers, problem }) => {
    const place = problem?.position && `${problem.position.line}:${problem.position.column}: `;
    const what = problem ? `${place ?? ""}${problem.message}` : countNoun(servers.length, "server");
    return [client.title, what, file];
  });
  return alignTable(["CLIENT", "FOUND", "FILE"], rows, paper);
}

function noteAddition(
  { name, notes, requiredSecrets: wanted, plaintextSecrets: clear }: PlannedServer,
  moves: boolean,
): readonly string[] {
  const labels = clear.map(({ label }) => label).join(", ");
  const fate = moves
    ? "moved into the secret store"
    : "stands there in the clear, and would in the manifest: --secrets moves it into the secret store";
  const told = [
    ...notes,
    ...(clear.length === 0 ? [] : [`${labels} ${fate}`]),
    ...wanted.map((secret) => `needs a value: toolmux secret set ${secret}`),
  ];
  // Names and keys in them are as they stand in the client's file.
  return told.map((text) => sanitizeLine(`  ${name}: ${text}`));
}

/** What an entry starts, without what looks like a secret. */
function show(entry: PlannedServer["entry"]): string {
  const { command, args = [], env = {}, url } = entry;
  if (typeof url === "string") return describeUrl(url);
  return describeCommand({
    command: String(command),
    args: args as readonly string[],
    env: env as Readonly<Record<string, string>>,
  });
}

/** For programs. Values that look like secrets are not in it: what stands there is the form that would take their place. */
function toJson(
  { files, planned: additions, skipped: omissions, manifest }: ImportSources,
  isDone: boolean,
  moves: boolean,
): object {
  return {
    manifest,
    written: isDone,
    files: files.map(({ client, file, servers, problem }) => ({
      client: client.name,
      file,
      servers: servers.length,
      ...(problem && { problem: problem.message, line: problem.position?.line ?? null }),
    })),
    additions: additions.map(
      ({
        name,
        entry,
        source: origin,
        notes,
        requiredSecrets: wanted,
        plaintextSecrets: clear,
      }) => ({
        name,
        origin,
        entry: replacePlaintextSecrets(entry, clear),
        notes,
        wanted,
        secrets: clear.map(({ label, secretName: secret }) => ({
          at: label,
          name: secret,
          moved: moves && isDone,
        })),
      }),
    ),
    omissions: omissions.map(
      ({ source: origin, reason, identicalServer: same }: SkippedServer) => ({
        origin,
        reason,
        same,
      }),
    ),
  };
}
