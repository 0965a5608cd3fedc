import { count } from "../base/format.ts";
import { HubError } from "../base/errors.ts";
import { textOf } from "../base/bytes.ts";
import type { ServerListing } from "../catalog/listing.ts";
import { isIgnored, scanLevelOf } from "../hub/scanned-servers.ts";
import { type ExternalServer, isExternal, type Manifest } from "../manifest/manifest.ts";
import type { OperationContext } from "./context.ts";
import { reviewSavedListings } from "./pins.ts";
import { readSavedCatalog } from "./saved-catalog.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { templatePartsOf } from "../manifest/interpolate.ts";
import { isTable } from "../manifest/table.ts";
import { describePlace, type EntryFinding, type ScannedKind, scanEntry } from "../scan/scan.ts";

/** What the scan has found in a file. */
export interface ScannedFile {
  /** The number of tools, prompts and instructions that were scanned. */
  readonly entries: number;
  /** Hard ones first. */
  readonly findings: readonly EntryFinding[];
}

/** Maximum size of a file with definitions, in bytes. */
const MAX_FILE = 256 * 1024 * 1024;
/** Maximum depth at which a list of tools is looked for, and number of entries. */
const MAX_DEPTH = 4;
const MAX_ENTRIES = 1_000_000;

/**
 * Scans the definitions in a JSON file: the result of `tools/list`, `prompts/list` or `initialize`, the response that it is in, an
 * array of tools, one tool, or several of these, one a line.
 * @throws {HubError} usage if the file cannot be read, is too large, is no JSON or has no definitions
 */
export async function scanFile(file: string): Promise<ScannedFile> {
  const read = await readFileLimited(file, MAX_FILE);
  if (read.kind !== "read") {
    const reason = read.kind === "absent" ? "does not exist" : read.reason;
    throw new HubError("usage", `${file} ${reason}.`);
  }
  const text = decodeUtf8(read.bytes);
  if (text === undefined) throw new HubError("usage", `${file} is not text in UTF-8.`);
  const values = parseJson(text);
  if (values === undefined) throw new HubError("usage", `${file} is not JSON.`);
  const entries: FoundEntry[] = [];
  for (const value of values) findEntries(value, 0, entries);
  if (entries.length === 0) {
    const why = `${file} has no definitions. Give it the answer of tools/list: {"tools": [{"name": …}]}.`;
    throw new HubError("usage", why);
  }
  const findings = entries.flatMap(({ kind, name, value }) =>
    scanEntry(value).map((finding): EntryFinding => ({ kind, name, ...finding })),
  );
  return {
    entries: entries.length,
    findings: findings.sort((a, b) => Number(b.hard) - Number(a.hard)),
  };
}

/** The values of a text: of JSON, or of JSON in each line. */
function parseJson(text: string): readonly unknown[] | undefined {
  const body = text.replace(/^\ufeff/, "");
  try {
    return [JSON.parse(body) as unknown];
  } catch {
    // It may be one value a line.
  }
  try {
    return body
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => JSON.parse(line) as unknown);
  } catch {
    return undefined;
  }
}

interface FoundEntry {
  readonly kind: ScannedKind;
  readonly name: string;
  readonly value: unknown;
}

function findEntries(value: unknown, depth: number, entries: FoundEntry[]): void {
  if (depth > MAX_DEPTH) return;
  if (Array.isArray(value)) {
    for (const item of value) findEntries(item, depth + 1, entries);
    return;
  }
  if (!isTable(value) || entries.length >= MAX_ENTRIES) return;
  const { name, result, tools, prompts, instructions } = value;
  const isList =
    [result, tools, prompts].some((it) => typeof it === "object" && it !== null) ||
    (typeof instructions === "string" && typeof name !== "string");
  if (!isList) {
    if (typeof name === "string") entries.push({ kind: "tool", name, value });
    return;
  }
  if (typeof instructions === "string")
    entries.push({ kind: "instructions", name: "instructions", value: instructions });
  findEntries(result, depth + 1, entries);
  for (const [kind, list] of [
    ["tool", tools],
    ["prompt", prompts],
  ] as const) {
    if (typeof list !== "object" || list === null) continue;
    // Some files have the tools by their names.
    for (const [key, item] of Object.entries(list)) {
      if (isTable(item) && typeof item["tools"] === "object") {
        findEntries(item, depth + 1, entries);
        continue;
      }
      const own = isTable(item) ? item["name"] : undefined;
      entries.push({ kind, name: typeof own === "string" ? own : key, value: item });
    }
  }
}

/** What the scan has found in the listing of a server. */
export interface ScannedListing {
  readonly server: string;
  /** Hard ones first. */
  readonly findings: readonly EntryFinding[];
}

/** Scans listings by the rules of a manifest. @param listings by the names of the servers */
export function scanListings(
  listings: ReadonlyMap<string, ServerListing>,
  { servers }: Pick<Manifest, "servers">,
): readonly ScannedListing[] {
  return servers.flatMap((spec): readonly ScannedListing[] => {
    const listing = listings.get(spec.name);
    if (listing === undefined || !isExternal(spec) || scanLevelOf(spec) === "off") return [];
    const has = (server: string, name: string): boolean =>
      listings.get(server)?.tools.some(({ key }) => key === name) === true;
    const context = {
      isForeignTool: (name: string) =>
        !has(spec.name, name) && [...listings.keys()].some((server) => has(server, name)),
    };
    const scanOne = (kind: ScannedKind, name: string, value: unknown): readonly EntryFinding[] =>
      scanEntry(value, context)
        .filter(({ check }) => !isIgnored(spec, name, check))
        .map((finding) => ({ kind, name, ...finding }));
    const { tools, prompts, instructions } = listing;
    const findings = [
      ...tools.flatMap(({ key, bytes }) => scanOne("tool", key, JSON.parse(textOf(bytes)))),
      ...prompts.flatMap(({ key, bytes }) => scanOne("prompt", key, JSON.parse(textOf(bytes)))),
      ...(instructions === undefined ? [] : scanOne("instructions", "instructions", instructions)),
    ];
    return [
      {
        server: spec.name,
        findings: findings.sort((a, b) => Number(b.hard) - Number(a.hard)),
      },
    ];
  });
}

/**
 * Scans what servers of a manifest listed in earlier runs, before a person allows them. What a person has accepted is
 * no reason to refuse. Starts nothing and runs no command: servers whose identity needs one are left out.
 * @throws {HubError} notTrusted if there is a hard finding
 */
export async function refuseSuspiciousListings(
  manifest: Manifest,
  context: OperationContext,
): Promise<void> {
  const runsNothing = (spec: ExternalServer): boolean =>
    templatePartsOf(spec).every((part) => part.kind !== "scheme" || part.scheme !== "cmd");
  const saved = await readSavedCatalog(manifest, context, undefined, runsNothing);
  const reviews = await reviewSavedListings(saved, manifest, context);
  const lines = scanListings(saved.listings, manifest).flatMap(({ server, findings }) => {
    const review = reviews.find((each) => each.server === server);
    const unaccepted = findings.filter(({ kind, name }) => review?.isAccepted(kind, name) !== true);
    return describeHardFindings(server, unaccepted);
  });
  if (lines.length === 0) return;
  const text = `Nothing was changed, because what these servers listed in earlier runs has suspicious text.\n${lines.join("\n")}\n--force goes on all the same.`;
  throw new HubError("notTrusted", text);
}

/** Maximum number of findings that are told of a server. */
const MAX_TOLD = 10;

/** The hard findings as lines for people. */
export function describeHardFindings(
  server: string,
  findings: readonly EntryFinding[],
): readonly string[] {
  const hard = findings.filter((finding) => finding.hard);
  const lines = hard
    .slice(0, MAX_TOLD)
    .map((finding) => `${server}: ${describePlace(finding)}: ${finding.check}: ${finding.excerpt}`);
  const more = hard.length - lines.length;
  return more > 0 ? [...lines, `${server}: … and ${count(more, "more finding")}`] : lines;
}
