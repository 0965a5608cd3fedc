import { isJsonObject } from "../base/json.ts";
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
}

/** The accepted definitions of one server: of its identity under one name in the manifest. */
export interface Baseline {
  /** The server's name in the manifest. */
  readonly server: string;
  readonly accepted: readonly AcceptedDefinition[];
}

/**
 * Limits of what is kept of one server, in UTF-16 units of JSON: of names and digests, and of parts. A definition
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
 * @param isListed whether some client gets this definition now
 */
export function withAccepted(
  baseline: Baseline,
  added: readonly AcceptedDefinition[],
  isListed: (definition: Definition) => boolean,
): Baseline {
  const digests = Map.groupBy(added, keyOf);
  const kept = baseline.accepted.filter((each) => {
    const own = digests.get(keyOf(each));
    if (own === undefined) return true;
    return own.every(({ digest }) => digest !== each.digest) && isListed(each);
  });
  const accepted: AcceptedDefinition[] = [];
  let [namesSize, partsSize] = [0, 0];
  for (const { parts, ...rest } of [...kept, ...added]) {
    namesSize += JSON.stringify(rest.name).length + ENTRY_SIZE;
    if (namesSize > MAX_NAMES_SIZE) break;
    const size = parts === undefined ? 0 : JSON.stringify(parts).length;
    const hasRoom = partsSize + size <= MAX_PARTS_SIZE;
    if (hasRoom) partsSize += size;
    accepted.push({ ...rest, ...(hasRoom && parts !== undefined && { parts }) });
  }
  return { server: baseline.server, accepted };
}

/** The baseline as the text of a file. */
export function formatBaseline({ server, accepted }: Baseline): string {
  return `${JSON.stringify({ version: 1, server, accepted })}\n`;
}

/** The accepted digests by `keyOf`. A definition may have several, if clients get different ones. */
export type AcceptedDigests = ReadonlyMap<string, ReadonlySet<string>>;

export function digestsOf({ accepted }: Baseline): AcceptedDigests {
  const digests = new Map<string, Set<string>>();
  for (const each of accepted) {
    const own = digests.get(keyOf(each)) ?? new Set();
    digests.set(keyOf(each), own.add(each.digest));
  }
  return digests;
}

/** Reads the text of a file; undefined if it is damaged. A part of a baseline is never used. */
export function parseBaseline(text: string): Baseline | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isJsonObject(value) || value["version"] !== 1) return undefined;
  const { server, accepted } = value;
  if (typeof server !== "string" || !Array.isArray(accepted)) return undefined;
  return accepted.every(isAccepted) ? { server, accepted } : undefined;
}

/** The kinds that a file may have. */
const KINDS: ReadonlySet<unknown> = new Set(PINNED_KINDS);

function isAccepted(value: unknown): value is AcceptedDefinition {
  if (!isJsonObject(value)) return false;
  const { kind, name, digest, at, peer, parts } = value;
  return (
    KINDS.has(kind) &&
    typeof name === "string" &&
    typeof digest === "string" &&
    typeof at === "number" &&
    (peer === undefined || typeof peer === "string") &&
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
  /** Whether the scan has a hard finding in a definition. Called for those that are not known yet. */
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
        : known.has(definition.digest)
          ? undefined
          : "changed";
    if (isFirst && reason === undefined) added.push(definition);
    const isInFile = pinned === undefined || pinned.get(key) === definition.digest;
    if (reason !== undefined) pending.push({ ...definition, reason });
    else if (!isInFile) pending.push({ ...definition, reason: "pinFile" });
  }
  return { added, pending };
}
