/** Measures catalogs of many tools in this process, without a hub or servers. */
import { createHash } from "node:crypto";
import { utf8 } from "../src/base/bytes.ts";
import type { ExposureRules } from "../src/catalog/exposure.ts";
import { buildCatalog, type Catalog, type CatalogSource } from "../src/catalog/catalog.ts";
import { conforms } from "../src/catalog/conformance.ts";
import { EMPTY_LISTING, MAX_ITEMS, readPage } from "../src/catalog/listing.ts";
import type { NameRules, Sha256 } from "../src/catalog/names.ts";

const NAMES: NameRules = { separator: "__", maxLength: 50 };
const digest: Sha256 = (text) => createHash("sha256").update(text).digest();
/** Number of tools of each server. */
export const TOOLS = 50;
/** Time for which look-ups are repeated in one measurement, in ms. */
const LOOKING = 5;

/** Times of a catalog, in ms: its first build, a rebuild after one server has changed, and one look-up. */
interface CatalogTimes {
  readonly first: number;
  readonly rebuild: number;
  readonly find: number;
}

/**
 * Sources of a catalog: `servers` servers with `tools` tools each, as if they had just been listed. `more`: the end of
 * each tool's description.
 */
export function sourcesOf(servers: number, tools: number, more = ""): CatalogSource[] {
  const limits = { timeout: 60_000, maxTimeout: 900_000 };
  return Array.from({ length: servers }, (_, at) => ({
    server: `server${at}`,
    rules: { tools: rulesOf(at), prompts: rulesOf(at) },
    listing: { ...EMPTY_LISTING, tools: readListing(listingOf(tools, more)) },
    limits: () => limits,
  }));
}

function rulesOf(at: number): ExposureRules {
  return { prefix: `server${at}`, allow: undefined, deny: [], rename: {} };
}

/** The result of `tools/list` of a server with `tools` tools. */
function listingOf(tools: number, more = ""): Uint8Array {
  const inputSchema = { type: "object", properties: { path: { type: "string" } } };
  const description = `Reads a file and returns it as text.${more}`;
  const names = Array.from({ length: tools }, (_, at) => `tool_${at}`);
  return utf8(JSON.stringify({ tools: names.map((name) => ({ name, description, inputSchema })) }));
}

function readListing(bytes: Uint8Array): CatalogSource["listing"]["tools"] {
  const all = { start: 0, end: bytes.length };
  return readPage(bytes, all, "tools", MAX_ITEMS, conforms)?.items ?? [];
}

export function catalogOf(sources: readonly CatalogSource[]): Catalog {
  return buildCatalog(sources, NAMES, digest);
}

/** Builds a catalog and its result of `tools/list`. */
export function build(sources: readonly CatalogSource[]): {
  find(name: string): unknown;
  size: number;
} {
  const { tools } = catalogOf(sources);
  return { find: (name) => tools.find(name), size: tools.result.length };
}

/** Measures a catalog `rounds` times. The first result is that of a cold process if this is the first call in it. */
export function timeCatalogs(job: { readonly servers: number; readonly rounds: number }) {
  return Array.from({ length: job.rounds }, () => timeCatalog(job.servers));
}

export function timeCatalog(servers: number): CatalogTimes {
  const sources = sourcesOf(servers, TOOLS);
  const first = time(() => build(sources));
  const changed = sources.map((source, at) =>
    at === servers >> 1
      ? { ...source, listing: { ...source.listing, tools: readListing(listingOf(TOOLS)) } }
      : source,
  );
  const rebuild = time(() => build(changed));
  const catalog = build(changed);
  const name = `server${servers >> 1}__tool_${TOOLS >> 1}`;
  if (catalog.find(name) === undefined) throw new Error(`${name} is missing`);
  let calls = 0;
  const began = performance.now();
  while (performance.now() < began + LOOKING) {
    for (let at = 0; at < 100; at++) catalog.find(name);
    calls += 100;
  }
  return { first, rebuild, find: (performance.now() - began) / calls };
}

/** The time in which `JSON.parse` reads the tools of so many servers, in ms. */
export function timeParsing(servers: number): number {
  const text = new TextDecoder().decode(listingOf(servers * TOOLS));
  return time(() => JSON.parse(text) as unknown);
}

function time(task: () => unknown): number {
  const began = performance.now();
  task();
  return performance.now() - began;
}
