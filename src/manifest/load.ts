import { Buffer } from "node:buffer";
import { dirname, resolve } from "node:path";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { expandHome, type SystemEnvironment } from "../base/paths.ts";
import { pickDirectories } from "./directories.ts";
import type { Locate } from "./document.ts";
import { interpretFile, interpretVariable } from "./interpret.ts";
import { mergeSources } from "./merge.ts";
import { detectFormat, parseText } from "./parse.ts";
import { place, placeProblems } from "./place.ts";
import { gatherPlugins, type Gathered, missPlugin } from "./plugins.ts";
import type { Problem } from "./problems.ts";
import type { Draft } from "./file-config.ts";
import type { Manifest, ServerSpec } from "./schema.ts";
import {
  describeAbsence,
  listCandidates,
  searchFiles,
  type Found,
  type Search,
} from "./discover.ts";
import type { Fault, Source } from "./source.ts";
import { noteExposure, pickToken } from "./token.ts";
import { MAX_MANIFEST } from "./trust.ts";

export { placeProblems };

const VARIABLE = "TOOLMUX_SERVERS";

export interface LoadOptions extends SystemEnvironment {
  /** Files named by the user, in order; empty: search for them. */
  readonly files: readonly string[];
  /**
   * The prefixes of running servers. Of two servers with the same prefix, the running one keeps it, whatever their
   * order.
   */
  readonly prefixesInForce?: (() => ReadonlyMap<string, string>) | undefined;
}

export type LoadResult = Outcome & Origin;

type Outcome =
  /** `problems` lie in the tables of servers that are `invalid` in the manifest, or that a later file replaces. */
  (
    | { readonly ok: true; readonly manifest: Manifest; readonly problems: readonly Problem[] }
    /** At least one problem makes the whole manifest invalid. */
    | { readonly ok: false; readonly problems: readonly Problem[] }
  ) & {
    /** Lines for people, without a line end: what was skipped, ignored or changed. */
    readonly notes: readonly string[];
  };

/** The files that a manifest was loaded from. */
interface Origin {
  /** The files with the bytes that were read, in the order of merging. */
  readonly found: readonly Found[];
  /** A fingerprint of everything loaded: it changes if and only if contents, files or trust change. */
  readonly edition: string;
  /** A fingerprint of the plugins: it changes if and only if their specifications or their own files change. */
  readonly pluginEdition: string;
  /**
   * Files of plugins, absolute, whether they exist or not: the manifest depends on them, as on those of
   * `listDependencies`.
   */
  readonly pluginFiles: readonly string[];
  /**
   * Existing files of the working directory, absolute, that were skipped because their current content is not trusted.
   * A file that was used before has been changed since, not removed.
   */
  readonly distrusted: readonly string[];
  /** Whether a file is empty, as one that is just being written. */
  readonly blank: boolean;
}

/**
 * Loads the manifest: the named files, or those found (see `discoverManifests`), then the servers in the environment
 * variable `TOOLMUX_SERVERS`; later ones win. All problems are found at once. A problem in a server's table makes that
 * server invalid, any other problem the whole manifest. Never throws because of a file's content.
 */
export async function loadManifest(options: LoadOptions): Promise<LoadResult> {
  const search = options.files.length > 0 ? await readNamed(options) : await searchFiles(options);
  const variable = options.env[VARIABLE]?.trim() ?? "";
  const documents = await readDocuments(options, search, variable);
  const sources = documents.flatMap((document) => (document.ok ? [document.source] : []));
  const plugins = await gatherPlugins(sources, options.env);
  const isNothing = documents.length === 0 && search.problems.length === 0;
  const outcome = isNothing
    ? { ok: false as const, problems: [describeAbsence(options)], notes: search.notes }
    : await combine(documents, sources, plugins, search, options.prefixesInForce?.());
  return {
    ...outcome,
    found: search.found,
    edition: spellAll(search, variable, plugins),
    pluginEdition: plugins.edition,
    pluginFiles: plugins.files,
    distrusted: search.distrusted,
    blank: plugins.blank || search.found.some(({ bytes }) => bytes.length === 0),
  };
}

/**
 * Every file that the result of `loadManifest` depends on, absolute, whether it exists or not, except files of plugins.
 */
export function listFiles(options: LoadOptions): readonly string[] {
  return options.files.length > 0 ? locateNamed(options) : listCandidates(options);
}

function readDocuments(
  { cwd }: LoadOptions,
  { found }: Search,
  variable: string,
): Promise<readonly Document[]> {
  return Promise.all([
    ...found.map(readDocument),
    ...(variable === "" ? [] : [readText(variable, VARIABLE, cwd)]),
  ]);
}

/** Not a hash: hashing would take longer than all other work on a manifest. */
function spellAll({ found, ...others }: Search, variable: string, { edition }: Gathered): string {
  const files = found.map(({ path, bytes }) => [path, Buffer.from(bytes).toString("latin1")]);
  return JSON.stringify([files, others, variable, edition]);
}

/** A parsed file with its positions, or why it could not be read. */
type Document =
  | { readonly ok: true; readonly source: Source; readonly locate: () => Promise<Locate> }
  | { readonly ok: false; readonly problem: Problem };

function locateNamed({ files, cwd, env }: LoadOptions): readonly string[] {
  return files.map((file) => resolve(cwd, expandHome(file, env)));
}

async function readNamed(options: LoadOptions): Promise<Search> {
  const found: Found[] = [];
  const problems: Problem[] = [];
  for (const path of locateNamed(options)) {
    const read = await readFileLimited(path, MAX_MANIFEST);
    if (read.kind === "read") found.push({ path, bytes: read.bytes });
    else {
      const message = read.kind === "absent" ? "does not exist" : read.reason;
      problems.push({ file: path, path: "", message });
    }
  }
  return { found, problems, notes: [], distrusted: [] };
}

async function readDocument({ path, bytes }: Found): Promise<Document> {
  const text = decodeUtf8(bytes);
  if (text !== undefined) return readText(text, path, dirname(path));
  return { ok: false, problem: { file: path, path: "", message: "is not UTF-8 text" } };
}

async function readText(text: string, file: string, baseDir: string): Promise<Document> {
  const isVariable = file === VARIABLE;
  const parsed = await parseText(text, isVariable ? "json" : detectFormat(file, text));
  if (!parsed.ok) {
    const { position, message } = parsed;
    return { ok: false, problem: { file, position, path: "", message } };
  }
  const { root, doubled, locate } = parsed;
  const reading = isVariable
    ? interpretVariable(root, doubled)
    : interpretFile(root, file, doubled);
  return { ok: true, source: { file, baseDir, reading }, locate };
}

async function combine(
  documents: readonly Document[],
  sources: readonly Source[],
  plugins: Gathered,
  search: Search,
  prefixesInForce: ReadonlyMap<string, string> = new Map(),
): Promise<Outcome> {
  const broken = documents.flatMap((document) => (document.ok ? [] : [document.problem]));
  const problems = [...search.problems, ...broken];
  let isWhole = problems.length === 0;
  const isPlain =
    plugins.specs.length === 0 && !sources.some(({ reading }) => hasBad(reading, ["plugins"]));
  const complaints = sources.flatMap((source) => {
    const { reading } = source;
    const all = [...reading.complaints, ...(isPlain ? reading.unclaimed : [])];
    return all.map((complaint): Fault => ({ ...complaint, source }));
  });
  const wrong = new Set(complaints.flatMap((fault) => findServer(fault)?.draft ?? []));
  const merged = mergeSources(sources, { wrong, prefixesInForce });
  // With an invalid setting or an unreadable file, rules over several keys would report consequential problems.
  const isSettled = isWhole && !sources.some(({ reading }) => hasBad(reading, ["hub", "defaults"]));
  const strays = isPlain ? findStrays(merged.servers, sources) : [];
  const faults = [...complaints, ...(isSettled ? merged.faults : []), ...plugins.faults, ...strays];
  const byDraft = new Map<Draft, Problem[]>();
  for (const document of documents) {
    if (!document.ok) continue;
    const { source, locate } = document;
    const own = faults.filter((fault) => fault.source === source);
    for (const { fault, problem } of await place(source.file, locate, own)) {
      problems.push(problem);
      const server = findServer(fault);
      if (server === undefined) isWhole = false;
      else byDraft.set(server.draft, [...(byDraft.get(server.draft) ?? []), problem]);
    }
  }
  const notes = [
    ...search.notes,
    ...sources.flatMap(({ file, reading }) => reading.notes.map((note) => `${file}: ${note}`)),
    ...merged.notes,
  ];
  if (!isWhole) return { ok: false, problems, notes };
  // Plugins may provide servers.
  const isEmpty = merged.servers.length === 0 && plugins.specs.length === 0;
  if (isEmpty) notes.push("the manifest holds no servers");
  const files = sources.map(({ file }) => file).filter((file) => file !== VARIABLE);
  const { hub, defaults } = merged;
  const servers = merged.servers.map((spec): ServerSpec => {
    const draft = findLast(spec.name, sources);
    const own = draft && byDraft.get(draft);
    const { name, enabled, prefix } = spec;
    return own === undefined ? spec : { kind: "invalid", name, enabled, prefix, problems: own };
  });
  const httpToken = pickToken(sources);
  if (httpToken !== undefined) notes.push(...(await noteExposure(httpToken)));
  const manifest = {
    hub,
    httpToken,
    directories: pickDirectories(sources),
    servers,
    defaults,
    plugins: plugins.specs,
    sources: files,
  };
  return { ok: true, manifest, problems, notes };
}

/** The server's config in the last file that has it. */
function findLast(name: string, sources: readonly Source[]): Draft | undefined {
  return sources.findLast(({ reading }) => reading.servers.has(name))?.reading.servers.get(name);
}

/** The server whose table contains the problem; undefined if the problem lies elsewhere. */
function findServer({ source, path }: Fault): { readonly draft: Draft } | undefined {
  for (const draft of source.reading.servers.values()) {
    const isWithin = draft.path.every((key, i) => path[i] === key);
    if (isWithin && path.length >= draft.path.length) return { draft };
  }
  return undefined;
}

/** Problems of plugin servers in a manifest without plugins. */
function findStrays(servers: readonly ServerSpec[], sources: readonly Source[]): Fault[] {
  return servers.flatMap((spec) => {
    if (spec.kind !== "plugin") return [];
    const { file, path } = spec.origin;
    const source = sources.find((it) => it.file === file);
    return source === undefined ? [] : [{ source, ...missPlugin(spec.plugin, path, []) }];
  });
}

/** Whether there is a problem under one of these keys. */
function hasBad({ complaints }: Source["reading"], keys: readonly unknown[]): boolean {
  return complaints.some(({ path: [top] }) => keys.includes(top));
}
