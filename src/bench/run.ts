/**
 * bench/: measures servers and hubs for `toolmux bench`. `target.ts` connects to what is measured, `load.ts` sends the
 * calls, `chaos.ts` disturbs, `stats.ts` and `usage.ts` measure, `comparison.ts` compares two results, `rules.ts` has
 * the limits of `--fail-if`; `report/` shows a result. Main types: `BenchPlan`, below, what is measured; `BenchResult`
 * (`result.ts`), the outcome. Start here with `measure`, then read `load.ts`.
 */
import { createHash } from "node:crypto";
import { textOf } from "../base/bytes.ts";
import { systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { findNearest } from "../manifest/problems.ts";
import type { Era } from "../protocol/modern.ts";
import { membersOf } from "../upstream/handshake-result.ts";
import { findNoise } from "./noise.ts";
import { Chaos, preciseClock } from "./chaos.ts";
import {
  CallMix,
  type CallTemplate,
  type LevelLength,
  LoadGenerator,
  type Loop,
  makeCallTemplate,
  Schedule,
} from "./load.ts";
import type {
  BenchProgress,
  BenchResult,
  ChaosResult,
  LevelResult,
  OverheadResult,
  SubjectResult,
} from "./result.ts";
import { LevelStats } from "./stats.ts";
import { type BenchSubject, BenchConnection } from "./target.ts";
import { machineInfo, ProcessUsageMeter } from "./usage.ts";

/** Maximum number of tool names listed in a message. */
const MAX_NAMES = 20;

/**
 * Chooses the tool to call: the named tool, or else the first one that is marked `readOnlyHint` and has no required
 * arguments.
 * @throws {HubError} usage
 */
export function chooseTool(tools: readonly ListedItem[], toolName: string | undefined): ListedItem {
  if (toolName !== undefined) {
    const found = tools.find(({ key }) => key === toolName);
    if (found !== undefined) return found;
    const nearest = findNearest(
      toolName,
      tools.map(({ key }) => key),
    );
    const hint = nearest === undefined ? listNames(tools) : ` Did you mean "${nearest}"?`;
    throw new HubError("usage", `There is no tool "${toolName}".${hint}`);
  }
  const harmless = tools.find(isHarmless);
  if (harmless !== undefined) return harmless;
  if (tools.length === 0) throw new HubError("usage", "The server has no tools to call.");
  const text = "No tool is marked as read-only and has no required arguments.";
  throw new HubError("usage", `${text} Name one with --tool and --args.${listNames(tools)}`);
}

function isHarmless({ bytes }: ListedItem): boolean {
  const { annotations, inputSchema } = membersOf(JSON.parse(textOf(bytes)));
  const { required } = membersOf(inputSchema);
  const needs = Array.isArray(required) && required.length > 0;
  return !needs && membersOf(annotations)["readOnlyHint"] === true;
}

function listNames(tools: readonly ListedItem[]): string {
  if (tools.length === 0) return " The server has no tools.";
  const names = tools.slice(0, MAX_NAMES).map(({ key }) => key);
  const more = tools.length > MAX_NAMES ? ", …" : "";
  return ` The tools are ${names.join(", ")}${more}.`;
}

export interface LevelOptions {
  readonly plan: BenchPlan;
  readonly target: BenchConnection;
  readonly calls: CallTemplates;
  readonly concurrency: number;
  readonly onProgress: (event: BenchProgress) => void;
}

/** Intervals of the timeline: their maximum number, and their minimum length in ms. */
const TIMELINE_SPANS = { maxCount: 60, minLength: 250 };

/** Measures one subject (hub or server) with a fixed number of calls in flight, in one round or several. */
export class LevelRun {
  readonly #options: LevelOptions;
  readonly #stats: LevelStats;
  readonly #chaos: Chaos;
  readonly #usage: ProcessUsageMeter;
  #hasBegun = false;

  constructor(options: LevelOptions) {
    const { plan, target, concurrency, onProgress } = options;
    const { extent, loop } = plan;
    const duration = "duration" in extent ? extent.duration : 0;
    const span = Math.max(TIMELINE_SPANS.minLength, duration / TIMELINE_SPANS.maxCount);
    const subject = target.subject.name;
    this.#options = options;
    this.#stats = new LevelStats(
      loop.kind === "open",
      span,
      (text) => target.redact(text),
      (it) => onProgress({ kind: "span", subject, concurrency, done: this.#done(), span: it }),
      options.calls.length,
    );
    this.#chaos = new Chaos({ chaos: plan.chaos, target, stats: this.#stats, clock: systemClock });
    this.#usage = new ProcessUsageMeter(target);
  }

  /** Whether a round has started, so that there is a result. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Runs one round. @throws {HubError} what `LoadGenerator.run` throws; the results so far are kept */
  async run(
    extent: LevelLength,
    warmUp: LevelLength | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { target, concurrency, onProgress } = this.#options;
    if (warmUp !== undefined) {
      onProgress({ kind: "warmUp", subject: target.subject.name, concurrency });
      const discarded = new LevelStats(false, Number.POSITIVE_INFINITY, String, () => {});
      await this.#makeLoad(warmUp, discarded).run(signal);
    }
    await this.#usage.beginRound();
    this.#chaos.beginRound();
    this.#hasBegun = true;
    try {
      await this.#makeLoad(extent, this.#stats, this.#chaos).run(signal);
    } finally {
      this.#chaos.endRound();
      await this.#usage.endRound();
    }
  }

  async result(): Promise<LevelResult> {
    const { concurrency, calls } = this.#options;
    const tools = this.#stats.tools.map((tool, at) => ({ name: calls[at]?.tool ?? "", ...tool }));
    return {
      concurrency,
      ...this.#stats.result(),
      ...(tools.length > 0 && { tools }),
      ...(await this.#chaos.results()),
      ...this.#usage.results(this.#stats.calls),
    };
  }

  #makeLoad(extent: LevelLength, stats: LevelStats, chaos?: Chaos): LoadGenerator {
    const { plan, target, calls, concurrency } = this.#options;
    const { loop, timeout } = plan;
    const weights = plan.tools.map(({ weight }) => weight);
    return new LoadGenerator({
      target,
      calls: new CallMix(calls, weights),
      concurrency,
      schedule: new Schedule(loop, extent, systemClock.now()),
      stats,
      clock: systemClock,
      preciseClock,
      timeout,
      chaos,
    });
  }

  /** The completed part of the level, 0 to 1. */
  #done(): number {
    const { extent } = this.#options.plan;
    const part =
      "calls" in extent
        ? (this.#stats.calls + this.#stats.failed) / extent.calls
        : this.#stats.elapsed(systemClock.now()) / extent.duration;
    return Math.min(1, part);
  }
}

/** The plan of a measurement: its subject, its levels, and its load. Times are in ms. */
export interface BenchPlan {
  /** For each level, the maximum number of calls in flight. */
  readonly levels: readonly number[];
  readonly loop: Loop;
  readonly extent: LevelLength;
  /** The load before each level, which is not measured; undefined if there is none. */
  readonly warmUp: LevelLength | undefined;
  readonly chaos: ChaosResult;
  readonly tools: readonly [ToolChoice, ...ToolChoice[]];
  readonly timeout: number;
  /** Preferred protocol era, if the subject supports both: legacy (up to 2025-11-25) or modern (2026-07-28). */
  readonly era: Era;
  readonly subject: BenchSubject;
  /**
   * Only for a comparison of calls through the hub with direct calls: finds the server that provides tools of the hub,
   * and the server's own names for them.
   */
  readonly direct?: ((tools: readonly string[]) => Promise<DirectServer>) | undefined;
}

/** A tool to call. */
export interface ToolChoice {
  /** If undefined, `chooseTool` takes a read-only tool. */
  readonly name: string | undefined;
  /** Frequency of the tool's calls in proportion to the others; above 0. */
  readonly weight: number;
  /** Arguments of the calls, as the text of a JSON object. */
  readonly args: string;
}

/** A server that is behind a hub, reached without the hub. */
export interface DirectServer {
  readonly subject: BenchSubject;
  /** In the order in which they were asked for. */
  readonly tools: readonly string[];
}

type CallTemplates = readonly [CallTemplate, ...CallTemplate[]];

/**
 * Number of rounds per level if two subjects (a hub and its server) are compared. Every second round measures them in
 * reverse order. The number is even, so that each subject is first as often as second.
 */
export const ROUNDS = 4;

/** Divides a level into `parts` nearly equal parts. @returns the length of the part with the number `part`, from 0 */
export function divideLevelLength(extent: LevelLength, parts: number, part: number): LevelLength {
  if ("duration" in extent) return { duration: extent.duration / parts };
  const { calls } = extent;
  const upTo = (end: number): number => Math.floor((calls * end) / parts);
  return { calls: upTo(part + 1) - upTo(part) };
}

/**
 * The outcome of a run of `measure`, complete or not.
 *
 * This folder is the load generator behind `toolmux bench`. It measures a hub or a server (`BenchSubject`) under
 * concurrent tool calls. The entry point is `measure`. For each number of concurrent calls, a `LevelRun` lets a
 * `LoadGenerator` make calls over a `BenchConnection`. The result is a `BenchResult`.
 */
export interface BenchOutcome {
  /** The result; undefined if no call was measured. */
  readonly result: BenchResult | undefined;
  /** Why the run ended early: the signal's reason, or the failure of a subject; undefined if the run is complete. */
  readonly failure: HubError | undefined;
}

interface MeasuredTarget {
  readonly target: BenchConnection;
  readonly calls: CallTemplates;
  readonly levels: LevelResult[];
}

/** Maximum length of the arguments in the result, in UTF-16 code units; longer ones are truncated. */
const MAX_ARGUMENTS_LENGTH = 200;
/**
 * Error text for a hub without tools. A hub keeps running when its servers fail to start, so the message says where to
 * look.
 */
const NO_TOOLS_MESSAGE =
  "The hub has no tools. To see why, run toolmux doctor for a manifest, or bench without --compare for a command.";

/**
 * Measures all levels of a plan. Aborting the signal ends the run early, and the results so far are returned. If a
 * subject fails, the promise does not reject: the outcome contains the error.
 */
export async function measure(
  plan: BenchPlan,
  onProgress: (event: BenchProgress) => void,
  signal: AbortSignal,
): Promise<BenchOutcome> {
  const started = new Date().toISOString();
  const targets: MeasuredTarget[] = [];
  let failure: HubError | undefined;
  try {
    await openTargets(plan, targets, onProgress, signal);
    for (const concurrency of plan.levels) {
      await measureLevel(plan, targets, concurrency, onProgress, signal);
    }
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    failure = error;
  } finally {
    await Promise.all(targets.map(({ target }) => target.close()));
  }
  const [first] = targets;
  if (first === undefined || first.levels.length === 0) return { result: undefined, failure };
  const { loop, extent, chaos } = plan;
  const result: BenchResult = {
    version: 2,
    machine: machineInfo(),
    started,
    load: {
      tools: plan.tools.map(({ weight, args }, at) => ({
        name: first.calls[at]?.tool ?? "",
        weight,
        arguments: shortenArguments(args),
      })),
      era: first.target.era,
      loop,
      extent,
      chaos,
    },
    subjects: targets.map(subjectResultOf),
    ...(plan.direct && { overhead: overheadOf(targets) }),
  };
  return { result, failure };
}

/** Long arguments end with a digest, by which results with different arguments can be told apart. */
export function shortenArguments(args: string): string {
  if (args.length <= MAX_ARGUMENTS_LENGTH) return args;
  const digest = createHash("sha256").update(args).digest("hex").slice(0, 12);
  return `${args.slice(0, MAX_ARGUMENTS_LENGTH)}… (sha256 ${digest})`;
}

/** Connects to the subject and, for a comparison (`plan.direct`), also to the server without the hub. */
async function openTargets(
  plan: BenchPlan,
  targets: MeasuredTarget[],
  onProgress: (event: BenchProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const add = async (
    subject: BenchPlan["subject"],
    names: readonly (string | undefined)[],
  ): Promise<readonly string[]> => {
    onProgress({ kind: "starting", subject: subject.name });
    const target = await BenchConnection.open(subject, plan.era, signal);
    try {
      const chosen = await target.find((tools) => {
        if (subject.kind === "hub" && tools.length === 0)
          throw new HubError("serverFailed", NO_TOOLS_MESSAGE);
        return names.map((name) => chooseTool(tools, name));
      });
      const isMarked = plan.chaos.cancelRate > 0 && subject.proxies !== undefined;
      const [template, ...more] = chosen.map((tool, at) =>
        makeCallTemplate(tool, plan.tools[at]?.args ?? "{}", target.era, isMarked),
      );
      if (template === undefined) throw new HubError("internal", "There is no tool to call.");
      targets.push({ target, calls: [template, ...more], levels: [] });
      return chosen.map(({ key }) => key);
    } catch (error) {
      await target.close();
      throw error;
    }
  };
  const names = plan.tools.map(({ name }) => name);
  const tools = await add(plan.subject, names);
  const direct = await plan.direct?.(tools);
  if (direct !== undefined) await add(direct.subject, direct.tools);
}

/**
 * Measures the subjects (the hub, the server or both) at one level (number of calls in flight). They take turns in
 * rounds, so that other load on the machine affects them alike.
 */
async function measureLevel(
  plan: BenchPlan,
  targets: readonly MeasuredTarget[],
  concurrency: number,
  onProgress: (event: BenchProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const levels = targets.map((measured) => {
    const { target, calls } = measured;
    return {
      measured,
      level: new LevelRun({ plan, target, calls, concurrency, onProgress }),
    };
  });
  const rounds = levels.length > 1 ? ROUNDS : 1;
  try {
    for (let round = 0; round < rounds; round++) {
      const extent = divideLevelLength(plan.extent, rounds, round);
      const warmUp = plan.warmUp && divideLevelLength(plan.warmUp, rounds, round);
      const turns = round % 2 === 0 ? levels : levels.toReversed();
      for (const { level } of turns) await level.run(extent, warmUp, signal);
    }
  } finally {
    for (const { measured, level } of levels) {
      if (!level.hasBegun) continue;
      const result = await level.result();
      measured.levels.push(result);
      onProgress({ kind: "level", subject: measured.target.subject.name, level: result });
    }
  }
}

function subjectResultOf({ target, levels }: MeasuredTarget): SubjectResult {
  const { subject, ready, tools } = target;
  return { kind: subject.kind, name: subject.name, ready, tools: tools.length, levels };
}

/**
 * The differences in latency and rate of the first subject (the hub) from the second (the server alone),
 * level by level.
 */
function overheadOf([hub, server]: readonly MeasuredTarget[]): OverheadResult[] {
  return (hub?.levels ?? []).flatMap((level) => {
    const direct = server?.levels.find(({ concurrency }) => concurrency === level.concurrency);
    if (direct === undefined) return [];
    const overhead = {
      p50: level.latency.p50 - direct.latency.p50,
      p99: level.latency.p99 - direct.latency.p99,
      rate: direct.rate > 0 ? level.rate / direct.rate : 0,
    };
    const withinNoise = findNoise(level, direct, overhead);
    return [{ concurrency: level.concurrency, ...overhead, ...(withinNoise && { withinNoise }) }];
  });
}
