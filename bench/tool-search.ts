/**
 * `bench search`: how well tools are found, and what that costs, in this process. The costs are measured first, while
 * nothing is compiled yet, as in a hub that has just started.
 */
import process from "node:process";
import type { Section, SectionEntry } from "../src/catalog/section.ts";
import { ToolIndex } from "../src/catalog/search/tool-index.ts";
import { squash } from "../src/catalog/search/words.ts";
import { describeMachine, formatFigures, type Table } from "./report.ts";
import { quantile } from "./stats.ts";
import { catalogOfTools, type QuestionSet, readToolSets, type SetTool } from "./tool-sets.ts";

/** Numbers of tools whose index is measured. */
const SIZES = [1_000, 10_000];
/** Maximum number of questions whose times are measured. */
const MAX_TIMED = 1_000;
/** Number of hits that are looked at. */
const LIMIT = 50;

/** Shares of questions whose right tool is among the first 1, 5 and 10, and the mean reciprocal rank. */
interface Recall {
  readonly "recall@1": number;
  readonly "recall@5": number;
  readonly "recall@10": number;
  readonly MRR: number;
  readonly questions: number;
}

/** An index of these tools that is complete. */
export function indexOf(tools: Section): ToolIndex {
  const index = new ToolIndex();
  index.update(tools);
  index.work(Number.POSITIVE_INFINITY);
  return index;
}

/** Measures how well the questions of a set find their tools. */
export function recallOf({ tools, questions }: QuestionSet): Recall {
  const catalog = catalogOfTools(tools);
  const index = indexOf(catalog.tools);
  return recallOfRanks(
    questions.map(({ text, right }) =>
      index
        .search(text, { limit: LIMIT })
        .hits.findIndex(({ entry }) => right.includes(catalog.idOf(entry.name) ?? "")),
    ),
  );
}

/** @param ranks the place of the first right tool of each question, from 0; negative: none was found */
function recallOfRanks(ranks: readonly number[]): Recall {
  const questions = ranks.length;
  const share = (count: number): number =>
    ranks.filter((rank) => rank >= 0 && rank < count).length / questions;
  const sum = ranks.reduce((total, rank) => total + (rank < 0 ? 0 : 1 / (rank + 1)), 0);
  const [first, five, ten] = [share(1), share(5), share(10)];
  return { "recall@1": first, "recall@5": five, "recall@10": ten, MRR: sum / questions, questions };
}

/** A generator of numbers from 0 to below 1, which are the same for the same seed (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The forms in which models write the name of a tool. */
const NAME_FORMS: Readonly<Record<string, (name: string, server: string, own: string) => string>> =
  {
    exposed: (name) => name,
    select: (name) => `select:${name}`,
    quoted: (name) => `\`${name}\``,
    capitals: (name) => name.toUpperCase(),
    dashes: (name) => name.replaceAll("_", "-"),
    spaces: (name) => name.replaceAll(/[_-]+/g, " "),
    "server:own": (_, server, own) => `${server}:${own}`,
    "server.own": (_, server, own) => `${server}.${own}`,
    "server/own": (_, server, own) => `${server}/${own}`,
    own: (_, __, own) => own,
  };

/** A name with one typing error: a letter left out, put in or exchanged, or two letters in the wrong order. */
function withTypingError(name: string, random: () => number): string {
  const at = 1 + Math.floor(random() * (name.length - 2));
  const letter = "abcdefghijklmnopqrstuvwxyz"[Math.floor(random() * 26)] ?? "";
  const [before, after] = [name.slice(0, at), name.slice(at + 1)];
  switch (Math.floor(random() * 4)) {
    case 0:
      return before + after;
    case 1:
      return before + letter + name.slice(at);
    case 2:
      return before + letter + after;
    default:
      return before + (after[0] ?? "") + (name[at] ?? "") + after.slice(1);
  }
}

/**
 * How well the names of tools find them: each form of them, and one typing error in each exposed and own name. A tool
 * whose name is the same apart from case and separators is as right, as is one with the same own name if only that is
 * asked for.
 */
export function recallOfNames(tools: Section, seed = 1): Readonly<Record<string, Recall>> {
  const index = indexOf(tools);
  const random = seeded(seed);
  const step = Math.ceil(tools.size / MAX_NAMED);
  const entries = tools.entries.filter((_, at) => at % step === 0);
  const ranksOf = (isOwn: boolean, write: (entry: SectionEntry) => string): readonly number[] =>
    entries.map((entry) => {
      const nameOf = ({ name, remoteName }: SectionEntry): string =>
        squash(isOwn ? remoteName : name);
      const right = nameOf(entry);
      const { hits } = index.search(write(entry), { limit: LIMIT });
      return hits.findIndex((hit) => nameOf(hit.entry) === right);
    });
  const rows: Record<string, Recall> = {};
  for (const [form, write] of Object.entries(NAME_FORMS)) {
    const ranks = ranksOf(form === "own", (entry) =>
      write(entry.name, entry.server, entry.remoteName),
    );
    rows[`names: ${form}`] = recallOfRanks(ranks);
  }
  for (const kind of ["exposed", "own"] as const) {
    const ranks = ranksOf(kind === "own", ({ name, remoteName }) => {
      const right = kind === "own" ? remoteName : name;
      return right.length < MIN_MISTYPED ? right : withTypingError(right, random);
    });
    rows[`names: ${kind}, a typing error`] = recallOfRanks(ranks);
  }
  return rows;
}

/** Maximum number of tools that are looked for by their names. */
const MAX_NAMED = 1_000;
/** Length of the shortest names into which typing errors are put. */
const MIN_MISTYPED = 4;

/**
 * That many tools: those of the sets, then variants of them on other servers, with other words in their names and
 * descriptions.
 */
function toolsOfSize(tools: readonly SetTool[], size: number): readonly SetTool[] {
  const random = seeded(size);
  const words = [...new Set(tools.flatMap(({ name }) => name.split(/[^A-Za-z]+/)))].filter(
    (word) => word.length > 2,
  );
  const word = (): string => words[Math.floor(random() * words.length)] ?? "";
  return Array.from({ length: size }, (_, at) => {
    const tool = tools[at % tools.length] as SetTool;
    const round = Math.floor(at / tools.length);
    if (round === 0) return tool;
    return {
      ...tool,
      id: `${tool.id}#${round}`,
      server: `${tool.server}-${round}`,
      name: `${tool.name}_${word()}`,
      description: `${tool.description ?? ""} ${word()} ${word()} ${word()}${at % 50}.`,
    };
  });
}

/** CPU time of this process in ms. */
function cpuTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Measures an index of that many tools. Times are CPU times of this process, which other processes hardly change. */
async function costsOf(
  all: readonly SetTool[],
  size: number,
  questions: readonly string[],
): Promise<Readonly<Record<string, number>>> {
  const { tools } = catalogOfTools(toolsOfSize(all, size));
  const before = await memoryInUse();
  const index = new ToolIndex();
  const started = cpuTime();
  index.update(tools);
  let stall = 0;
  let isComplete = false;
  while (!isComplete) {
    const [begun, begunAt] = [cpuTime(), performance.now()];
    isComplete = index.work();
    // CPU time includes that of the compiler's and the collector's threads, the other what other processes took.
    stall = Math.max(stall, Math.min(cpuTime() - begun, performance.now() - begunAt));
  }
  const built = cpuTime() - started;
  const memory = (await memoryInUse()) - before;
  const times = new Float64Array(questions.length);
  for (const [at, question] of questions.entries()) {
    const begun = performance.now();
    index.search(question);
    times[at] = performance.now() - begun;
  }
  times.sort();
  return {
    "CPU, ms": built,
    "longest slice, ms": stall,
    "query p50, ms": quantile(times, 0.5),
    "query p99, ms": quantile(times, 0.99),
    "memory, MB": memory / 1e6,
  };
}

/** Memory of this process in use after a collection, in bytes. */
async function memoryInUse(): Promise<number> {
  const { fullGC, heapStats } = await import("bun:jsc");
  for (let i = 0; i < 3; i++) {
    fullGC();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapSize, extraMemorySize } = heapStats();
  return heapSize + extraMemorySize;
}

/** Whether a scripted agent does the tasks of a set: tools have servers, and those of no other set are left out. */
function isForAgents({ name, tools }: QuestionSet): boolean {
  return !name.includes(" + ") && tools.every(({ server }) => server !== "");
}

/** Measures the sets of a folder and prints the figures. */
export async function measureToolSearch(folder: string): Promise<void> {
  console.log(describeMachine());
  const { questionSets, tools } = readToolSets(folder);
  const texts = questionSets.flatMap(({ questions }) => questions.map(({ text }) => text));
  const step = Math.max(1, Math.floor(texts.length / MAX_TIMED));
  const timed = texts.filter((_, at) => at % step === 0);
  const costs: Record<string, Readonly<Record<string, number>>> = {};
  for (const size of SIZES) costs[`${size} tools`] = await costsOf(tools, size, timed);
  console.log(`\nindex\n${formatFigures(costs)}`);
  const recalls: Record<string, Recall> = {};
  for (const set of questionSets)
    recalls[`${set.name} (${set.tools.length} tools)`] = recallOf(set);
  const named = catalogOfTools(tools).tools;
  Object.assign(recalls, recallOfNames(named));
  console.log(`\nsearch\n${formatFigures(recalls as unknown as Table)}`);
  const { runScriptedAgent } = await import("./scripted-agent.ts");
  const agents: Record<string, Table[string]> = {};
  for (const set of questionSets.filter(isForAgents)) {
    for (const [exposure, row] of Object.entries(await runScriptedAgent(set)))
      agents[`${set.name}: ${exposure}`] = row;
  }
  console.log(`\nan agent that does each step of a task by one tool, in tokens (bytes / 4) a task`);
  console.log(formatFigures(agents));
}
