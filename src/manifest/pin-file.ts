import { isJsonObject } from "../base/json.ts";
import { stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { decodeUtf8, type FileBytes, readFileLimited } from "../base/read-file.ts";
import { isTrusted, MAX_MANIFEST_SIZE } from "./trust.ts";

/** The kinds of what is pinned. A server has at most one text of instructions, whose name is "". */
export const PINNED_KINDS = ["tool", "prompt", "instructions"] as const;
export type PinnedKind = (typeof PINNED_KINDS)[number];

/** The key of a tool, a prompt or instructions in a map of digests. */
export function pinKeyOf(kind: PinnedKind, name: string): string {
  return `${kind} ${name}`;
}

/** The digests of one server, by `pinKeyOf`. */
export type PinnedDigests = ReadonlyMap<string, string>;

/** The digests that a pin file has, by server; `unusable`: a sentence that says why it cannot be used. */
export type PinFileContent =
  { readonly servers: ReadonlyMap<string, PinnedDigests> } | { readonly unusable: string };

/** The pin file of a manifest (`hub.pinFile`). */
export interface PinFile {
  /** Absolute. */
  readonly path: string;
  readonly content: PinFileContent;
}

/** A pin file that was read, with the bytes that were read. */
export interface ReadPinFile extends PinFile {
  readonly bytes: FileBytes | undefined;
}

/**
 * Reads a pin file.
 * @param folderManifest the manifest of the working directory that names it: then its content has to be trusted, too;
 * undefined: another manifest names it
 */
export async function readPinFile(
  path: string,
  folderManifest: string | undefined,
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
): Promise<ReadPinFile> {
  const read = await readFileLimited(path, MAX_MANIFEST_SIZE);
  if (read.kind !== "read") {
    const reason = read.kind === "absent" ? "does not exist" : read.reason;
    const unusable = `The pin file ${path} ${reason}. To write it: toolmux pins export`;
    return { path, content: { unusable }, bytes: undefined };
  }
  const { bytes } = read;
  if (folderManifest !== undefined) {
    if (!(await isTrusted(path, bytes, stateFolder(env, platform)))) {
      const unusable = `The pin file ${path} is not trusted as it is now. To trust it: toolmux trust ${folderManifest}`;
      return { path, content: { unusable }, bytes };
    }
  }
  const servers = parsePinFile(decodeUtf8(bytes) ?? "");
  const unusable = `The pin file ${path} is damaged. To write it anew: toolmux pins export`;
  return { path, content: servers === undefined ? { unusable } : { servers }, bytes };
}

/** The members of a server in a pin file that hold digests by name, and the kinds of what they are about. */
const MEMBERS = { tools: "tool", prompts: "prompt" } as const;

/** Reads the text of a pin file; undefined if it has another form. */
export function parsePinFile(text: string): ReadonlyMap<string, PinnedDigests> | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isJsonObject(value) || value["version"] !== 1) return undefined;
  const { servers } = value;
  if (!isJsonObject(servers)) return undefined;
  const read = new Map<string, PinnedDigests>();
  for (const [name, server] of Object.entries(servers)) {
    const digests = digestsOf(server);
    if (digests === undefined) return undefined;
    read.set(name, digests);
  }
  return read;
}

function digestsOf(server: unknown): PinnedDigests | undefined {
  if (!isJsonObject(server)) return undefined;
  const digests = new Map<string, string>();
  for (const [member, value] of Object.entries(server)) {
    if (member === "instructions" && typeof value === "string") {
      digests.set(pinKeyOf("instructions", ""), value);
      continue;
    }
    const kind = member === "tools" || member === "prompts" ? MEMBERS[member] : undefined;
    if (kind === undefined || !isJsonObject(value)) return undefined;
    for (const [name, digest] of Object.entries(value)) {
      if (typeof digest !== "string") return undefined;
      digests.set(pinKeyOf(kind, name), digest);
    }
  }
  return digests;
}

/** A definition of a server, with its digest. */
interface PinnedEntry {
  readonly kind: PinnedKind;
  readonly name: string;
  readonly digest: string;
}

/** The text of a pin file, with sorted names, so that a version control system shows what has changed. */
export function formatPinFile(servers: ReadonlyMap<string, readonly PinnedEntry[]>): string {
  const sorted = [...servers].sort(([a], [b]) => (a < b ? -1 : 1));
  const document = {
    version: 1,
    servers: Object.fromEntries(
      sorted.map(([name, entries]) => [
        name,
        {
          tools: namedOf(entries, "tool"),
          prompts: namedOf(entries, "prompt"),
          ...instructionsOf(entries),
        },
      ]),
    ),
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

function namedOf(
  entries: readonly PinnedEntry[],
  wanted: PinnedKind,
): Readonly<Record<string, string>> {
  const own = entries.filter(({ kind }) => kind === wanted);
  const sorted = own.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  return Object.fromEntries(sorted.map(({ name, digest }) => [name, digest]));
}

function instructionsOf(entries: readonly PinnedEntry[]): { instructions?: string } {
  const own = entries.find(({ kind }) => kind === "instructions");
  return own === undefined ? {} : { instructions: own.digest };
}
