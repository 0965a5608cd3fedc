/**
 * Measures the parts of the hot path separately; runs on Bun and on Deno.
 * With an argument, runs only the tasks whose names contain it.
 */
import { Buffer } from "node:buffer";
import process from "node:process";
import { Bench } from "tinybench";
import { utf8 } from "../src/base/bytes.ts";
import { scanObject } from "../src/base/json.ts";
import { parseMessage } from "../src/jsonrpc/parse.ts";
import { type Response, withResponseId } from "../src/jsonrpc/message.ts";
import { LineReader } from "../src/jsonrpc/line-reader.ts";
import { filterCatalog } from "../src/catalog/catalog.ts";
import { compileMode } from "../src/catalog/filter.ts";
import type { Filter } from "../src/manifest/filter.ts";
import { maskEntry, parseEntry, type TranscriptEntry } from "../src/agent/transcript.ts";
import { Redactor } from "../src/transport/redact.ts";
import { CallUsage } from "../src/router/call-usage.ts";
import { LINE } from "./answer.ts";
import { SHAPES, type Shape } from "./stage.ts";
import { build, catalogOf, sourcesOf } from "./catalogs.ts";
import { formatNumber, formatTable } from "./report.ts";

/**
 * `TIME`: duration of each task, in ms. `SAMPLE`: minimum duration of one sample, in ns, so that reading the clock
 * does not matter.
 */
const TIME = 300;
const SAMPLE = 20_000;
const SIZES = { "150 B": 150, "10 kB": 10_000, "1 MB": 1_000_000 } as const;

const ENVELOPES: Readonly<Record<Shape, readonly [string, string]>> = {
  head: ['{"jsonrpc":"2.0","id":1234,"result":', "}"],
  tail: ['{"result":', ',"jsonrpc":"2.0","id":1234}'],
  spaced: ['{"jsonrpc": "2.0", "id": 1234, "result": ', "}"],
};

/** An answer of about `size` bytes. */
function answerOf(shape: Shape, size: number): Buffer {
  const [before, after] = ENVELOPES[shape];
  const text = LINE.repeat(Math.max(1, Math.round((size - 100) / JSON.stringify(LINE).length)));
  const result = JSON.stringify({ content: [{ type: "text", text }] });
  return Buffer.from(before + result + after);
}

function responseOf(shape: Shape, size: number): Response {
  const frame = parseMessage(answerOf(shape, size));
  if (frame.kind !== "response") throw new Error(`read as ${frame.kind}`);
  return frame;
}

/** The entry of a tool's result in a conversation. */
function entryOf(size: number): TranscriptEntry {
  const text = LINE.repeat(Math.max(1, Math.round(size / LINE.length)));
  const call = { toolCallId: "call_1", toolName: "files__read_text_file", isError: false };
  return { role: "tool", at: 1, ...call, size, duration: 12, text };
}

/** Tasks by name; each does its work once. */
function listTasks(): Map<string, () => unknown> {
  const tasks = new Map<string, () => unknown>();
  const secrets = Array.from({ length: 20 }, (_, at) => `secret-${at}-0123456789abcdef`);
  const redactor = new Redactor(secrets);
  for (const size of [1000, 64_000]) {
    const entry = entryOf(size);
    const json = JSON.stringify(entry);
    const mask = (text: string): string => redactor.apply(text);
    tasks.set(`mask entry ${size / 1000} kB`, () => JSON.stringify(maskEntry(entry, mask)));
    tasks.set(`read entry ${size / 1000} kB`, () => parseEntry(json));
  }
  for (const [label, size] of Object.entries(SIZES)) {
    for (const shape of SHAPES) {
      const line = answerOf(shape, size);
      tasks.set(`readFrame ${shape} ${label}`, () => parseMessage(line));
    }
    const line = answerOf("head", size);
    tasks.set(`scanObject ${label}`, () => scanObject(line, 0));
    tasks.set(`JSON.parse ${label}`, () => JSON.parse(line.toString()) as unknown);
    for (const shape of SHAPES) {
      const response = responseOf(shape, size);
      const id = utf8("98765");
      tasks.set(`readdress ${shape} ${label}`, () => withResponseId(response, id));
    }
  }

  const usage = new CallUsage();
  tasks.set("CallUsage.add", () => {
    const ended = usage.next();
    ended.call = 1;
    ended.parentCall = undefined;
    ended.client = "client-1";
    ended.clientName = "bench";
    ended.principal = undefined;
    ended.server = "echo";
    ended.tool = "echo";
    ended.name = "echo__echo";
    ended.startedAt = Date.now();
    ended.duration = 1.5;
    ended.personWait = 0;
    ended.queueWait = 0;
    ended.sent = true;
    ended.outcome = "answered";
    ended.code = undefined;
    ended.by = undefined;
    ended.requestSize = 150;
    ended.resultSize = 150;
    usage.add(ended);
  });

  const lines = Buffer.concat([answerOf("head", 150), Buffer.from("\n")]);
  const chunk = Buffer.alloc(64 * 1024, lines);
  const splitter = new LineReader(1 << 20, { line() {}, oversized() {} });
  tasks.set("Splitter 64 kB of lines", () => splitter.push(chunk));

  for (const [servers, tools] of [
    [10, 20],
    [100, 50],
  ] as const) {
    const sources = sourcesOf(servers, tools);
    const label = `${servers} × ${tools}`;
    const catalog = build(sources);
    const wanted = `server${servers >> 1}__tool_${tools >> 1}`;
    if (catalog.find(wanted) === undefined) throw new Error(`${wanted} is missing`);
    // Results may be cached by source, so each build gets copies of the sources.
    const fresh = () => sources.map((source) => ({ ...source }));
    tasks.set(`buildCatalog and list ${label}`, () => build(fresh()));
    tasks.set(`buildCatalog and list ${label}, one changed`, () => {
      return build(sources.map((source, at) => (at === 0 ? { ...source } : source)));
    });
    tasks.set(`catalog.find ${label}`, () => catalog.find(wanted));
  }

  // Measures a switch of the mode. The hub does this work once for all clients that are in the same modes.
  const sources = sourcesOf(100, 100);
  const catalog = catalogOf(sources);
  const before = filterCatalog(catalog, compileMode({ tools: OTHER_MODE }), sources);
  tasks.set("switch the mode 100 × 100", () => {
    const { tools } = filterCatalog(catalog, compileMode({ tools: MODE }), sources);
    if (tools.size === 0 || tools.equals(before.tools)) throw new Error("the mode shows nothing");
  });
  return tasks;
}

const OTHER_MODE: Filter = { servers: ["server1*"] };

/** A filter with 16 parts, of every kind. */
const MODE: Filter = {
  and: [
    { or: [{ servers: ["server1*", "server7"] }, { servers: ["*9"] }, { tools: ["tool_?1"] }] },
    { not: { pattern: "(write|delete|push)" } },
    { not: { names: ["server10__tool_1", "server10__tool_2"] } },
    { or: [{ readOnly: true }, { not: { readOnly: true } }, { ids: ["server1.tool_1"] }] },
    { not: { tools: ["*_x_*", "none*"] } },
  ],
};

/** The results of tasks are stored here, so that the compiler cannot drop the work. */
const sink: { last?: unknown } = {};

/**
 * Adds a task to the benchmark. The task is repeated within each sample until the sample is long enough to be timed.
 */
function addTask(bench: Bench, name: string, task: () => unknown): void {
  let count = 1;
  for (let took = 0; took < SAMPLE; count *= 2) took = time(task, count) * 1e6;
  bench.add(
    name,
    () => {
      const took = time(task, count);
      return { overriddenDuration: took / count, overriddenIterationCost: took };
    },
    { async: false },
  );
}

/** Time for running the task `count` times, in ms. */
function time(task: () => unknown, count: number): number {
  const start = performance.now();
  for (let i = 0; i < count; i++) sink.last = task();
  return performance.now() - start;
}

const part = process.argv[2] ?? "";
const bench = new Bench({ time: TIME, warmupTime: TIME / 3 });
for (const [name, task] of listTasks()) if (name.includes(part)) addTask(bench, name, task);
await bench.run();

const rows = bench.tasks.map(({ name, result }) => {
  if (result.state !== "completed") return [name, result.state];
  const { p50, p99 } = result.latency;
  return [name, formatNumber(p50 * 1e6), formatNumber(p99 * 1e6), formatNumber(1000 / p50)];
});
console.log(formatTable([["", "p50 ns", "p99 ns", "per second"], ...rows]));
if (bench.tasks.length === 0) process.exitCode = 1;
