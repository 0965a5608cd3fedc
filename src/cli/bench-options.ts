import { resolve } from "node:path";
import { type DifferenceKind, DIFFERENCES } from "../bench/comparison.ts";
import { readRule } from "../bench/rules.ts";
import type { BenchPlan } from "../bench/run.ts";
import type { LevelLength, Loop } from "../bench/load.ts";
import { MAX_DURATION, parseDuration } from "../manifest/fields.ts";
import type { BenchOptions, TargetSpec } from "../host/bench-targets.ts";
import { BENCH_DEFAULTS, type CommandContext, type Invocation } from "./command.ts";
import { readHeaders } from "./commands/add.ts";
import { usageError } from "../base/errors.ts";

/** The options of `bench` as the command line gives them, not parsed yet. */
export interface BenchCommandOptions {
  readonly url: string | undefined;
  readonly header: readonly string[];
  readonly tool: readonly string[];
  readonly args: readonly string[];
  readonly concurrency: string | undefined;
  readonly duration: string | undefined;
  readonly calls: string | undefined;
  readonly rate: string | undefined;
  readonly "warm-up": string | undefined;
  readonly timeout: string | undefined;
  readonly era: "legacy" | "modern" | undefined;
  readonly compare: "direct" | undefined;
  readonly "kill-every": string | undefined;
  readonly delay: string | undefined;
  readonly "cancel-rate": string | undefined;
  readonly save: string | undefined;
  readonly against: string | undefined;
  readonly despite: readonly string[];
  readonly "fail-if": readonly string[];
  readonly html: string | undefined;
  readonly json: boolean;
}

/**
 * Reads from the command line what to measure: a URL or a command.
 * @returns undefined if the command line names neither; in this case, a manifest or the echo server is measured
 * @throws {HubError} usage
 */
export function readTarget(
  {
    args: words,
    options: { url, header },
    config,
  }: Invocation<Pick<BenchCommandOptions, "url" | "header">>,
  { cwd }: CommandContext,
): TargetSpec | undefined {
  const [command, ...args] = words;
  const sources = [
    ...(config.length > 0 ? ["--config"] : []),
    ...(url === undefined ? [] : ["--url"]),
    ...(command === undefined ? [] : ["a command"]),
  ];
  if (sources.length > 1)
    throw usageError(`Choose one of ${sources.join(" and ")}: each of them names what to measure.`);
  if (url !== undefined) {
    const isHttp = URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
    if (!isHttp) throw usageError("--url must start with http:// or https://.");
    return { kind: "url", url, headers: readHeaders(header) };
  }
  if (header.length > 0) throw usageError("--header works only with --url.");
  if (command === undefined) return undefined;
  return {
    kind: "command",
    command: command.includes("/") ? resolve(cwd, command) : command,
    args,
  };
}

const MAX_IN_FLIGHT = 100_000;
/** Default warm-up: a tenth of a level's calls. If levels have a duration: a tenth of it, at most `max` ms. */
const WARM_UP = { divisor: 10, max: 2000 };

/** Parses the options. @throws {HubError} usage */
export function readBenchOptions(values: BenchCommandOptions): BenchOptions {
  const extent = readExtent(values);
  const rate = readNumber(values, "rate", isPositive, "a number of calls a second");
  const loop: Loop = rate === undefined ? { kind: "closed" } : { kind: "open", rate };
  const cancelRate = readNumber(values, "cancel-rate", isPart, "a number from 0 to 1") ?? 0;
  const killEvery = readDuration(values, "kill-every") ?? null;
  const delay = readDuration(values, "delay") ?? null;
  const levels = readLevels(values.concurrency ?? BENCH_DEFAULTS.concurrency);
  return {
    levels,
    loop,
    extent,
    warmUp: readWarmUp(values, extent),
    chaos: { killEvery, delay, cancelRate },
    tools: readTools(values),
    timeout: readDuration(values, "timeout") ?? toDuration("timeout", BENCH_DEFAULTS.timeout),
    era: values.era ?? "legacy",
    isCompared: values.compare === "direct",
    rules: values["fail-if"].map((text) => readRule(text, levels, values.against !== undefined)),
    accepted: readAccepted(values),
  };
}

function readAccepted({ despite, against }: BenchCommandOptions): readonly DifferenceKind[] {
  if (despite.length > 0 && against === undefined) throw usageError("--despite needs --against.");
  return despite
    .flatMap((list) => list.split(","))
    .map((name) => {
      const kind = DIFFERENCES.find((one) => one === name.trim());
      if (kind !== undefined) return kind;
      throw usageError(`--despite must be of ${DIFFERENCES.join(", ")}, not "${name}".`);
    });
}

function readExtent(values: BenchCommandOptions): LevelLength {
  const calls = readNumber(values, "calls", isCount, "a number of calls");
  if (calls === undefined) {
    const duration = readDuration(values, "duration");
    return { duration: duration ?? toDuration("duration", BENCH_DEFAULTS.duration) };
  }
  if (values.duration !== undefined) throw usageError("Choose one of --duration and --calls.");
  return { calls };
}

function readWarmUp(values: BenchCommandOptions, extent: LevelLength): LevelLength | undefined {
  const text = values["warm-up"];
  if (text !== undefined) {
    return Number(text) === 0 ? undefined : { duration: toDuration("warm-up", text) };
  }
  if ("calls" in extent) return { calls: Math.ceil(extent.calls / WARM_UP.divisor) };
  return { duration: Math.min(extent.duration / WARM_UP.divisor, WARM_UP.max) };
}

function readLevels(text: string): readonly number[] {
  const levels = text.split(",").map((part) => Number(part.trim() || Number.NaN));
  if (levels.every((level) => isCount(level) && level <= MAX_IN_FLIGHT)) return levels;
  throw usageError(
    `--concurrency must be a list such as ${BENCH_DEFAULTS.concurrency}, not "${text}".`,
  );
}

/** Reads `--tool NAME=WEIGHT` and `--args`, which is given once for all tools, or once for each in their order. */
function readTools({ tool, args }: BenchCommandOptions): BenchPlan["tools"] {
  const texts = args.map(readArguments);
  const [choice, ...more] = tool.map(readWeight);
  if (choice === undefined) {
    if (texts.length > 1) throw usageError("--args several times needs as many --tool.");
    return [{ name: undefined, weight: 1, args: texts[0] ?? "{}" }];
  }
  const all = [choice, ...more];
  const twice = all.find(({ name }, at) => all.findIndex((one) => one.name === name) !== at);
  if (twice !== undefined) throw usageError(`--tool names "${twice.name}" twice.`);
  if (texts.length > 1 && texts.length !== all.length)
    throw usageError(
      `--args must be given once for all tools or once for each, in their order: there are ${all.length} --tool and ${texts.length} --args.`,
    );
  const argsAt = (at: number): string => texts[texts.length === 1 ? 0 : at] ?? "{}";
  return [
    { ...choice, args: argsAt(0) },
    ...more.map((one, at) => ({ ...one, args: argsAt(at + 1) })),
  ];
}

/** Reads `NAME` or `NAME=WEIGHT`. */
function readWeight(text: string): { readonly name: string; readonly weight: number } {
  const at = text.lastIndexOf("=");
  if (at < 0) return { name: text, weight: 1 };
  const weight = Number(text.slice(at + 1).trim() || Number.NaN);
  if (at > 0 && isPositive(weight)) return { name: text.slice(0, at), weight };
  throw usageError(`--tool must be NAME or NAME=WEIGHT with a weight above 0, not "${text}".`);
}

function readArguments(text: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw usageError("--args is not valid JSON.");
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return text;
  throw usageError("--args must be a JSON object.");
}

type DurationOption = "duration" | "timeout" | "kill-every" | "delay";

function readDuration(values: BenchCommandOptions, name: DurationOption): number | undefined {
  const text = values[name];
  return text === undefined ? undefined : toDuration(name, text);
}

function toDuration(name: string, text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms > 0 && ms <= MAX_DURATION) return ms;
  throw usageError(`--${name} must be a time such as 10s or 500ms, not "${text}".`);
}

function readNumber(
  values: BenchCommandOptions,
  name: "calls" | "rate" | "cancel-rate",
  isValid: (value: number) => boolean,
  what: string,
): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = Number(text.trim() || Number.NaN);
  if (isValid(value)) return value;
  throw usageError(`--${name} must be ${what}, not "${text}".`);
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value > 0;
}

function isPositive(value: number): boolean {
  return Number.isFinite(value) && value > 0;
}

function isPart(value: number): boolean {
  return value >= 0 && value <= 1;
}
