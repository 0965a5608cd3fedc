import { Buffer } from "node:buffer";
import { textOf, utf8 } from "../base/bytes.ts";
import { isJsonObject } from "../base/json.ts";
import { isTurnOver, nextTurn } from "../base/turns.ts";
import { PINNED_KINDS, type PinnedDigests } from "../manifest/pin-file.ts";
import { type Definition, type DefinitionParts, keyOf } from "./definitions.ts";

/** A definition that counts as accepted. */
export interface AcceptedDefinition extends Definition {
  /** When it was first seen or accepted, in ms since the epoch. */
  readonly at: number;
  /** The server's name and version at that time, if it told them. */
  readonly peer?: string | undefined;
  /** Its parts, for showing what has changed; absent if the server lists too much to keep them. */
  readonly parts?: DefinitionParts | undefined;
  /** Set if it was accepted when it was first seen, while the server's definitions were not scanned. */
  readonly isUnscanned?: true | undefined;
}

/** The accepted definitions of one server: of its identity under one name in the manifest. */
export interface Baseline {
  /** The server's name in the manifest. */
  readonly server: string;
  readonly accepted: readonly AcceptedDefinition[];
}

/**
 * Limits of what is kept of one server, in UTF-16 units: of names and digests, and of parts. A definition
 * beyond the first limit cannot be accepted; beyond the second one, only its digest is kept.
 */
const MAX_NAMES_SIZE = 6 * 1024 * 1024;
export const MAX_PARTS_SIZE = 8 * 1024 * 1024;
/** The size of an entry without its name and parts, at most. */
const ENTRY_SIZE = 250;

/**
 * The baseline with more accepted definitions. They replace those of the same kind and name, except for those that the
 * server also lists now: it may say different things to different kinds of clients. What is not listed any more stays
 * accepted: a server may list it again.
 * Lets calls go on meanwhile.
 * @param isListed whether some client gets this definition now
 */
export async function withAccepted(
  baseline: Baseline,
  added: readonly AcceptedDefinition[],
  isListed: (definition: Definition) => boolean,
): Promise<Baseline> {
  const digests = Map.groupBy(added, keyOf);
  const all: AcceptedDefinition[] = [];
  for (const each of baseline.accepted) {
    if (isTurnOver()) await nextTurn();
    const own = digests.get(keyOf(each));
    if (own === undefined || (own.every(({ digest }) => digest !== each.digest) && isListed(each)))
      all.push(each);
  }
  all.push(...added);
  const accepted: AcceptedDefinition[] = [];
  let [namesSize, partsSize] = [0, 0];
  for (const each of all) {
    if (isTurnOver()) await nextTurn();
    namesSize += JSON.stringify(each.name).length + ENTRY_SIZE;
    if (namesSize > MAX_NAMES_SIZE) break;
    const size = sizeOfParts(each.parts);
    const hasRoom = partsSize + size <= MAX_PARTS_SIZE;
    if (hasRoom) partsSize += size;
    accepted.push(hasRoom ? each : withoutParts(each));
  }
  return { server: baseline.server, accepted };
}

function sizeOfParts(parts: DefinitionParts = {}): number {
  let size = 0;
  for (const part of Object.keys(parts)) size += part.length + (parts[part]?.length ?? 0);
  return size;
}

function withoutParts(definition: AcceptedDefinition): AcceptedDefinition {
  const { parts: _, ...rest } = definition;
  return rest;
}

/** What stands between the entries of a file, and after the last one; no entry has a line break. */
const [BETWEEN, END] = [utf8(",\n"), utf8("\n]}\n")];

/** The baseline as a file: JSON, with one entry a line. Lets calls go on between the entries. */
export async function formatBaseline({ server, accepted }: Baseline): Promise<Uint8Array> {
  const head = { version: 1, server, accepted: [] };
  const chunks = [utf8(`${JSON.stringify(head).slice(0, -2)}\n`)];
  for (const [at, each] of accepted.entries()) {
    if (at > 0) chunks.push(BETWEEN);
    chunks.push(utf8(JSON.stringify(each)));
    if (isTurnOver()) await nextTurn();
  }
  return Buffer.concat([...chunks, END]);
}

/**
 * The accepted digests by `keyOf`, each with whether it was scanned, or accepted by a person. A definition may have several,
 * if clients get different ones.
 */
export type AcceptedDigests = ReadonlyMap<string, ReadonlyMap<string, boolean>>;

export async function digestsOf({ accepted }: Baseline): Promise<AcceptedDigests> {
  const digests = new Map<string, Map<string, boolean>>();
  for (const each of accepted) {
    if (isTurnOver()) await nextTurn();
    const key = keyOf(each);
    const own = digests.get(key) ?? new Map<string, boolean>();
    digests.set(key, own.set(each.digest, each.isUnscanned !== true));
  }
  return digests;
}

/**
 * Reads a file as `formatBaseline` makes it; undefined if it is damaged. A part of a baseline is never used. Lets calls
 * go on between the entries.
 */
export async function parseBaseline(bytes: Uint8Array): Promise<Baseline | undefined> {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = file.length - END.length;
  const first = file.indexOf("\n");
  if (first === -1 || first > end || !file.subarray(end).equals(END)) return undefined;
  const head = parseJson(`${textOf(file.subarray(0, first))}]}`);
  if (!isJsonObject(head) || head["version"] !== 1) return undefined;
  const { server } = head;
  if (typeof server !== "string") return undefined;
  const accepted: AcceptedDefinition[] = [];
  for (let at = first + 1; at < end;) {
    const next = file.indexOf(BETWEEN, at);
    const stop = next === -1 ? end : next;
    const entry = parseJson(textOf(file.subarray(at, stop)));
    if (!isAccepted(entry)) return undefined;
    accepted.push(entry);
    at = stop + BETWEEN.length;
    if (isTurnOver()) await nextTurn();
  }
  return { server, accepted };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The kinds that a file may have. */
const KINDS: ReadonlySet<unknown> = new Set(PINNED_KINDS);

function isAccepted(value: unknown): value is AcceptedDefinition {
  if (!isJsonObject(value)) return false;
  const { kind, name, digest, at, peer, parts, isUnscanned } = value;
  return (
    KINDS.has(kind) &&
    typeof name === "string" &&
    typeof digest === "string" &&
    typeof at === "number" &&
    (peer === undefined || typeof peer === "string") &&
    (isUnscanned === undefined || isUnscanned === true) &&
    (parts === undefined ||
      (isJsonObject(parts) && Object.values(parts).every((part) => typeof part === "string")))
  );
}

/**
 * Why a definition is pending. `new`: first listed after the server's other definitions; `changed`: it differs from the
 * accepted one; `finding`: the scan has a hard finding in it; `pinFile`: the pin file has another digest, or none.
 */
export type PendingReason = "new" | "changed" | "finding" | "pinFile";

/** What is compared with the listing of a server. */
export interface ReviewRules {
  /** The digests that count as accepted; undefined if the server has no baseline yet. */
  readonly accepted: AcceptedDigests | undefined;
  /** What the pin file has for the server; undefined: there is no pin file, or it does not have the server. */
  readonly pinned: PinnedDigests | undefined;
  /** Whether names that are first listed later become a part of the baseline. */
  readonly acceptsNew: boolean;
  /** Whether the scan has a hard finding in a definition. Called for those that are not known yet, or were not scanned. */
  readonly hasHardFinding: (definition: Definition) => boolean;
}

export interface ReviewResult {
  /** The definitions that become a part of the baseline. */
  readonly added: readonly Definition[];
  readonly pending: readonly (Definition & { readonly reason: PendingReason })[];
}

/**
 * Compares the definitions of a listing with what was accepted. What is listed first is accepted, unless it has a hard
 * finding. A definition must also match the pin file, which can only refuse.
 */
export function reviewDefinitions(
  definitions: readonly Definition[],
  { accepted, pinned, acceptsNew, hasHardFinding }: ReviewRules,
): ReviewResult {
  const added: Definition[] = [];
  const pending: (Definition & { reason: PendingReason })[] = [];
  for (const definition of definitions) {
    const key = keyOf(definition);
    const known = accepted?.get(key);
    const isFirst = known === undefined && (accepted === undefined || acceptsNew);
    const reason =
      known === undefined
        ? hasHardFinding(definition)
          ? "finding"
          : isFirst
            ? undefined
            : "new"
        : !known.has(definition.digest)
          ? "changed"
          : known.get(definition.digest) === false && hasHardFinding(definition)
            ? "finding"
            : undefined;
    if (isFirst && reason === undefined) added.push(definition);
    const isInFile = pinned === undefined || pinned.get(key) === definition.digest;
    if (reason !== undefined) pending.push({ ...definition, reason });
    else if (!isInFile) pending.push({ ...definition, reason: "pinFile" });
  }
  return { added, pending };
}
