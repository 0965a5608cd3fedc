/**
 * Sets of tools and questions, to measure how well tools are found. A folder has files of one JSON value a line, gzipped
 * if their names end with `.gz`: `NAME.tools.jsonl` with `{id, server, name, description, inputSchema}`, and
 * `NAME.dev.jsonl` or `NAME-PART.dev.jsonl` with `{id, text, right}`, where `right` has the ids of tools of NAME that
 * answer the question, each of them alone. Questions with `aligned: false` are left out.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { utf8 } from "../src/base/bytes.ts";
import { isJsonObject } from "../src/base/json.ts";
import { buildCatalog, type CatalogSource } from "../src/catalog/catalog.ts";
import type { ExposureRules } from "../src/catalog/exposure.ts";
import { EMPTY_LISTING, type ListedItem, readItem } from "../src/catalog/listing.ts";
import type { NameRules } from "../src/catalog/names.ts";
import type { Section } from "../src/catalog/section.ts";

export interface SetTool {
  readonly id: string;
  readonly server: string;
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: unknown;
}

export interface Question {
  readonly text: string;
  /** Ids of tools; any one of them is right. */
  readonly right: readonly string[];
  /** The task that the question is a step of; by default it is a task of its own. */
  readonly task: string;
}

/** Questions, and the tools among which the right ones are to be found. */
export interface QuestionSet {
  readonly name: string;
  readonly tools: readonly SetTool[];
  readonly questions: readonly Question[];
}

export interface ToolSets {
  readonly questionSets: readonly QuestionSet[];
  /** All tools of the folder. */
  readonly tools: readonly SetTool[];
}

/**
 * Reads all sets of a folder. Tools that no question is about are distractors: each set whose name has a part is there a
 * second time with them.
 * @throws {TypeError} if a file does not have that form
 */
export function readToolSets(folder: string): ToolSets {
  const tools = new Map<string, readonly SetTool[]>();
  const questions = new Map<string, readonly Question[]>();
  for (const file of readdirSync(folder).toSorted()) {
    const [, name = "", kind] = /^(.+)\.(tools|dev)\.jsonl(?:\.gz)?$/.exec(file) ?? [];
    if (kind === "tools") tools.set(name, readLines(join(folder, file), readTool));
    else if (kind === "dev") {
      const all = readLines(join(folder, file), readQuestion);
      questions.set(
        name,
        all.filter((each) => each !== undefined),
      );
    }
  }
  const toolsFor = (name: string): string | undefined =>
    tools.has(name) ? name : [...tools.keys()].find((each) => name.startsWith(`${each}-`));
  const used = new Set([...questions.keys()].map(toolsFor));
  const distractors = [...tools].flatMap(([name, own]) => (used.has(name) ? [] : own));
  const questionSets: QuestionSet[] = [];
  for (const [name, own] of questions) {
    const of = toolsFor(name);
    if (of === undefined) throw new TypeError(`There are no tools for ${name} in ${folder}.`);
    const among = tools.get(of) ?? [];
    questionSets.push({ name, tools: among, questions: own });
    if (of === name || distractors.length === 0) continue;
    const more = `${name} + ${distractors.length}`;
    questionSets.push({ name: more, tools: [...among, ...distractors], questions: own });
  }
  return { questionSets, tools: [...tools.values()].flat() };
}

function readLines<T>(file: string, read: (value: unknown, where: string) => T): readonly T[] {
  const bytes = readFileSync(file);
  const text = (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString();
  return text
    .split("\n")
    .flatMap((line, i) => (line === "" ? [] : [read(JSON.parse(line), `${file}, line ${i + 1}`)]));
}

function readTool(value: unknown, where: string): SetTool {
  if (!isJsonObject(value)) throw new TypeError(`${where}: no tool`);
  const { id, server, name, description, inputSchema } = value;
  if (typeof id !== "string" || typeof server !== "string" || typeof name !== "string")
    throw new TypeError(`${where}: a tool has id, server and name`);
  return { id, server, name, inputSchema, ...(typeof description === "string" && { description }) };
}

function readQuestion(value: unknown, where: string): Question | undefined {
  if (!isJsonObject(value)) throw new TypeError(`${where}: no question`);
  const { id, text, right, aligned, task = id } = value;
  if (typeof text !== "string" || !Array.isArray(right))
    throw new TypeError(`${where}: a question has text and right`);
  if (aligned === false) return undefined;
  return { text, right: right.map(String), task: String(task) };
}

const NAMES: NameRules = { separator: "__", maxLength: 64 };
const digest = (data: string | Uint8Array): Uint8Array =>
  createHash("sha256").update(data).digest();

/** The tools as a hub would list them, and their ids. */
export interface ToolCatalog {
  readonly tools: Section;
  /** The id of a tool, by its exposed name. */
  readonly idOf: (name: string) => string | undefined;
}

/**
 * Builds the catalog of these tools, each server under the prefix of its name. A tool whose server has another one of
 * that name is put behind a further server.
 */
export function catalogOfTools(tools: readonly SetTool[]): ToolCatalog {
  const listings = new Map<string, Map<string, { item: ListedItem; id: string }>>();
  for (const { id, server, name, description, inputSchema } of tools) {
    const item = readItem(utf8(JSON.stringify({ name, description, inputSchema })), "tools");
    if (item === undefined) continue;
    for (let i = 1; ; i++) {
      const named = server === "" ? "tools" : server;
      const holder = i === 1 ? named : `${named} ${i}`;
      const own = listings.get(holder) ?? new Map<string, { item: ListedItem; id: string }>();
      listings.set(holder, own);
      if (own.has(name)) continue;
      own.set(name, { item, id });
      break;
    }
  }
  const sources = Array.from(listings, ([server, own]): CatalogSource => {
    const items = Array.from(own.values(), ({ item }) => item);
    const rules: ExposureRules = {
      prefix: server.replaceAll(/[^A-Za-z0-9_-]/g, "_"),
      allow: undefined,
      deny: [],
      rename: {},
    };
    const listing = { ...EMPTY_LISTING, tools: items };
    const limits = { timeout: 60_000, maxTimeout: 900_000 };
    return { server, listing, rules: { tools: rules, prompts: rules }, limits: () => limits };
  });
  const section = buildCatalog(sources, NAMES, digest).tools;
  return {
    tools: section,
    idOf(name) {
      const entry = section.entry(name);
      return entry && listings.get(entry.server)?.get(entry.remoteName)?.id;
    },
  };
}
