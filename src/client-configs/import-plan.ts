import { sanitizePrefix } from "../manifest/prefix.ts";
import { ITSELF, OWN_NAME } from "../manifest/own-entry.ts";
import type { ServerSpec } from "../manifest/schema.ts";
import type { Home } from "./client.ts";
import { type Clear, findClear, hideClear } from "./clear.ts";
import { type OwnEntry, translate } from "./entry.ts";
import { WORKSPACE } from "./forms.ts";
import type { ClientFile, Listed } from "./read.ts";

/** A server that would be added to the manifest. */
export interface Addition {
  /** Its key in the manifest. */
  readonly name: string;
  readonly entry: OwnEntry;
  readonly origin: Origin;
  readonly notes: readonly string[];
  /** The secrets that must be set before it can be used. */
  readonly wanted: readonly string[];
  /** Its secrets in plain text. */
  readonly clear: readonly Clear[];
}

/** A server that would not be added; `reason` is the end of a sentence. */
export interface Omission {
  readonly origin: Origin;
  readonly reason: string;
  /** The name of an identical server in the manifest or of another client; undefined: skipped for another reason. */
  readonly same: string | undefined;
}

/** Where a server is configured. */
export interface Origin {
  readonly client: string;
  /** Absolute. */
  readonly file: string;
  /** Its name in that file. */
  readonly name: string;
}

export interface Plan {
  readonly additions: readonly Addition[];
  readonly omissions: readonly Omission[];
}

/** The servers whose names are taken, and the separator that new names must not contain. */
export interface Taken {
  readonly servers: readonly ServerSpec[];
  readonly separator: string;
}

/** Plans the import of servers from clients' files into a manifest. */
export async function planImport(
  files: readonly ClientFile[],
  { servers, separator }: Taken,
  home: Home,
): Promise<Plan> {
  const additions: Addition[] = [];
  const omissions: Omission[] = [];
  /** Names of servers in the manifest, by identity. */
  const known = new Map(servers.flatMap((spec) => identifySpec(spec).map((it) => [it, spec.name])));
  const names = new Set(servers.map(({ name }) => name));
  const add = async (file: ClientFile, listed: Listed): Promise<void> => {
    const origin = { client: file.client.name, file: file.file, name: listed.name };
    const base = sanitizePrefix(listed.name.replace(/[^\w-]+/g, "-"), separator);
    const name = chooseName(base, names);
    const { client, inputs } = file;
    const place = { client, home, file: file.file, server: name, project: listed.project, inputs };
    if (listed.name === OWN_NAME) {
      omissions.push({ origin, reason: ITSELF, same: undefined });
      return;
    }
    const translated = await translate(listed.entry, place);
    if (!translated.ok) {
      omissions.push({ origin, reason: translated.reason, same: undefined });
      return;
    }
    const { entry, notes, wanted } = translated;
    const identity = identifyEntry(entry);
    const same =
      known.get(identity) ?? known.get(spellOld(identity)) ?? findMoved(entry, base, known);
    if (same !== undefined) {
      omissions.push({ origin, reason: `it is the same as "${same}"`, same });
      return;
    }
    known.set(identity, name);
    names.add(name);
    const told = name === listed.name ? notes : [`called "${listed.name}" there`, ...notes];
    additions.push({ name, entry, origin, notes: told, wanted, clear: findClear(entry, name) });
  };
  for (const file of files) for (const listed of file.servers) await add(file, listed);
  return { additions, omissions };
}

/** The base name, or the first free one with a number. */
function chooseName(base: string, taken: ReadonlySet<string>): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? base : `${base}-${number}`;
    if (!taken.has(name)) return name;
  }
}

/** Finds the server that this entry became when it was imported and its secrets were moved into the secret store. */
function findMoved(
  entry: OwnEntry,
  base: string,
  known: ReadonlyMap<string, string>,
): string | undefined {
  const names = new Set(known.values());
  return [...names].find((name) => {
    if (name !== base && !(name.startsWith(`${base}-`) && /-\d+$/.test(name))) return false;
    const moved = hideClear(entry, findClear(entry, name));
    return known.get(identifyEntry(moved)) === name;
  });
}

/** The identity of a server as text: its command and arguments, or its URL. */
export function identifyEntry({ command, args = [], url }: OwnEntry): string {
  return JSON.stringify([command ?? null, args, url ?? null]);
}

/** The identity with the workspace as manifests wrote it before `${workspaceFolder}` existed. */
function spellOld(identity: string): string {
  return identity.replaceAll(WORKSPACE, ".");
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
