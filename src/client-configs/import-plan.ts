import { sanitizePrefix } from "../manifest/prefix.ts";
import { SELF_REASON, TOOLMUX_KEY } from "../manifest/own-entry.ts";
import type { ServerSpec } from "../manifest/schema.ts";
import type { ClientFolders } from "./client.ts";
import { type PlaintextSecret, findPlaintextSecrets, replacePlaintextSecrets } from "./clear.ts";
import { type ServerEntry, translateEntry } from "./entry.ts";
import { WORKSPACE_PLACEHOLDER } from "./forms.ts";
import type { ClientFile, ClientServer } from "./read.ts";

/** A server that would be added to the manifest. */
export interface PlannedServer {
  /** Its key in the manifest. */
  readonly name: string;
  readonly entry: ServerEntry;
  readonly source: ServerSource;
  readonly notes: readonly string[];
  /** The secrets that must be set before it can be used. */
  readonly requiredSecrets: readonly string[];
  /** Its secrets in plain text. */
  readonly plaintextSecrets: readonly PlaintextSecret[];
}

/** A server that would not be added; `reason` is the end of a sentence. */
export interface SkippedServer {
  readonly source: ServerSource;
  readonly reason: string;
  /** The name of an identical server in the manifest or of another client; undefined: skipped for another reason. */
  readonly identicalServer: string | undefined;
}

/** Where a server is configured. */
export interface ServerSource {
  readonly client: string;
  /** Absolute. */
  readonly file: string;
  /** Its name in that file. */
  readonly name: string;
}

export interface ImportPlan {
  readonly planned: readonly PlannedServer[];
  readonly skipped: readonly SkippedServer[];
}

/** The servers whose names are taken, and the separator that new names must not contain. */
export interface TakenNames {
  readonly servers: readonly ServerSpec[];
  readonly separator: string;
}

/** Plans the import of servers from clients' files into a manifest. */
export async function planImport(
  files: readonly ClientFile[],
  { servers, separator }: TakenNames,
  home: ClientFolders,
): Promise<ImportPlan> {
  const planned: PlannedServer[] = [];
  const skipped: SkippedServer[] = [];
  /** Names of servers in the manifest, by identity. */
  const namesByIdentity = new Map(
    servers.flatMap((spec) => identifySpec(spec).map((it) => [it, spec.name])),
  );
  const names = new Set(servers.map(({ name }) => name));
  const add = async (file: ClientFile, clientServer: ClientServer): Promise<void> => {
    const source = { client: file.client.name, file: file.file, name: clientServer.name };
    const base = sanitizePrefix(clientServer.name.replace(/[^\w-]+/g, "-"), separator);
    const name = chooseName(base, names);
    const { client, inputs } = file;
    const place = {
      client,
      home,
      file: file.file,
      server: name,
      project: clientServer.project,
      inputs,
    };
    if (clientServer.name === TOOLMUX_KEY) {
      skipped.push({ source, reason: SELF_REASON, identicalServer: undefined });
      return;
    }
    const translated = await translateEntry(clientServer.entry, place);
    if (!translated.ok) {
      skipped.push({ source, reason: translated.reason, identicalServer: undefined });
      return;
    }
    const { entry, notes, requiredSecrets } = translated;
    const identity = identifyEntry(entry);
    const identicalServer =
      namesByIdentity.get(identity) ??
      namesByIdentity.get(withOldWorkspace(identity)) ??
      findWithStoredSecrets(entry, base, namesByIdentity);
    if (identicalServer !== undefined) {
      skipped.push({ source, reason: `it is the same as "${identicalServer}"`, identicalServer });
      return;
    }
    namesByIdentity.set(identity, name);
    names.add(name);
    const allNotes =
      name === clientServer.name ? notes : [`called "${clientServer.name}" there`, ...notes];
    planned.push({
      name,
      entry,
      source,
      notes: allNotes,
      requiredSecrets,
      plaintextSecrets: findPlaintextSecrets(entry, name),
    });
  };
  for (const file of files) for (const clientServer of file.servers) await add(file, clientServer);
  return { planned, skipped };
}

/** The base name, or the first free one with a number. */
function chooseName(base: string, taken: ReadonlySet<string>): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? base : `${base}-${number}`;
    if (!taken.has(name)) return name;
  }
}

/** Finds the server that this entry became when it was imported and its secrets were moved into the secret store. */
function findWithStoredSecrets(
  entry: ServerEntry,
  base: string,
  namesByIdentity: ReadonlyMap<string, string>,
): string | undefined {
  const names = new Set(namesByIdentity.values());
  return [...names].find((name) => {
    if (name !== base && !(name.startsWith(`${base}-`) && /-\d+$/.test(name))) return false;
    const withStoredSecrets = replacePlaintextSecrets(entry, findPlaintextSecrets(entry, name));
    return namesByIdentity.get(identifyEntry(withStoredSecrets)) === name;
  });
}

/** The identity of a server as text: its command and arguments, or its URL. */
export function identifyEntry({ command, args = [], url }: ServerEntry): string {
  return JSON.stringify([command ?? null, args, url ?? null]);
}

/** The identity with the workspace as manifests wrote it before `${workspaceFolder}` existed. */
function withOldWorkspace(identity: string): string {
  return identity.replaceAll(WORKSPACE_PLACEHOLDER, ".");
}

/**
 * All identities of a server in the manifest: placeholders of a client's file are also tried in the manifest's form.
 */
export function identifySpec(spec: ServerSpec): readonly string[] {
  if (spec.kind === "stdio") {
    const { command, args, syntax } = spec;
    const own = identifyEntry({ command, args });
    return syntax === "toolmux"
      ? [own]
      : [own, own.replaceAll(/\$\{(?!env:|workspaceFolder\})(\w+)/g, "${env:$1")];
  }
  return spec.kind === "remote" ? [identifyEntry({ url: spec.url })] : [];
}
