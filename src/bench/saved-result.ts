import { writeFile } from "node:fs/promises";
import * as v from "valibot";
import { usageError } from "../base/errors.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import type { BenchResult } from "./result.ts";

/** The largest file that is read, in bytes. A result of ten levels has about 100 KB. */
const MAX_SIZE = 64_000_000;

const figure = v.pipe(v.number(), v.minValue(0));
const text = v.string();
const latencySchema = v.object({
  count: figure,
  mean: figure,
  p50: figure,
  p90: figure,
  p99: figure,
  p999: figure,
  max: figure,
  curve: v.array(v.object({ percentile: figure, value: figure })),
});
const costSchema = v.object({
  processes: figure,
  cpu: figure,
  cpuPerCall: figure,
  quarters: v.optional(v.array(figure)),
  memory: figure,
  peak: figure,
});
const levelSchema = v.object({
  concurrency: figure,
  seconds: figure,
  calls: figure,
  rate: figure,
  latency: latencySchema,
  errors: v.record(text, v.object({ count: figure, example: text })),
  timeline: v.array(
    v.object({ at: figure, calls: figure, errors: figure, p50: figure, p99: figure }),
  ),
  hub: v.optional(costSchema),
  server: v.optional(costSchema),
});

/** The members of a `BenchResult` that are read again; others are ignored. */
const resultSchema: v.GenericSchema<unknown, BenchResult> = v.object({
  version: v.literal(2),
  machine: v.object({ cores: figure, cpu: text, memory: figure, system: text, program: text }),
  started: text,
  load: v.object({
    tools: v.array(v.object({ name: text, weight: figure, arguments: text })),
    era: v.picklist(["legacy", "modern"]),
    loop: v.variant("kind", [
      v.object({ kind: v.literal("closed") }),
      v.object({ kind: v.literal("open"), rate: figure }),
    ]),
    extent: v.union([v.object({ duration: figure }), v.object({ calls: figure })]),
    chaos: v.object({
      killEvery: v.nullable(figure),
      delay: v.nullable(figure),
      cancelRate: figure,
    }),
  }),
  subjects: v.array(
    v.object({
      kind: v.picklist(["hub", "server"]),
      name: text,
      ready: v.object({ handshake: figure, listed: figure }),
      tools: figure,
      levels: v.array(levelSchema),
    }),
  ),
});

/**
 * Reads a result that `bench --save` or `bench --json` has written.
 * @throws {HubError} usage with what is wrong with the file
 */
export async function readSavedResult(path: string): Promise<BenchResult> {
  const found = await readFileLimited(path, MAX_SIZE);
  if (found.kind === "absent") throw usageError(`There is no file ${path}.`);
  if (found.kind === "refused") throw usageError(`${path} ${found.reason}.`);
  let value: unknown;
  try {
    value = JSON.parse(decodeUtf8(found.bytes) ?? "");
  } catch {
    throw usageError(`${path} is not JSON.`, SAVE_HINT);
  }
  const version = v.safeParse(v.object({ version: v.number() }), value);
  if (version.success && version.output.version !== 2)
    throw usageError(
      `${path} has format ${version.output.version} of results; this version of toolmux reads format 2.`,
      SAVE_HINT,
    );
  const read = v.safeParse(resultSchema, value);
  if (read.success) return read.output;
  const [issue] = read.issues;
  const where = v.getDotPath(issue);
  throw usageError(
    `${path} is not a result of bench${where === null ? "" : `: ${where} is ${issue.received === "undefined" ? "missing" : `${issue.received}, not ${issue.expected ?? "valid"}`}`}.`,
    SAVE_HINT,
  );
}

const SAVE_HINT = "Write one with --save FILE.";

/**
 * Writes a result. A new file gets mode 0600, because names of tools and arguments are in it; an existing file keeps
 * its mode.
 */
export async function writeSavedResult(path: string, result: BenchResult): Promise<void> {
  await writeFile(path, `${JSON.stringify(result, undefined, 2)}\n`, { mode: 0o600 });
}
