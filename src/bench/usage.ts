import { cpus, release, totalmem, type } from "node:os";
import process from "node:process";
import { runtimeName } from "../base/runtime.ts";
import { VERSION } from "../base/version.ts";
import { type ProcessEntry, type ProcessIdentity, processTable } from "../process/process-table.ts";
import { QUARTERS } from "./noise.ts";
import type { CostResult, MachineResult } from "./result.ts";
import type { BenchConnection } from "./target.ts";

/** The last sample of one process: CPU time in ms, memory in bytes. */
interface ProcessSample {
  readonly entry: ProcessEntry;
  readonly isHub: boolean;
  isLive: boolean;
  /** `cpuBefore`: CPU time at the start of the round. `cpu`: CPU time at the last sample. Both in ms. */
  cpuBefore: number;
  cpu: number;
  memory: number;
}

/** Usage of the hub's own process (`isHub`), or of all other processes, over all rounds. */
class UsageSum {
  readonly #isHub: boolean;
  #cpu = 0;
  #memory = 0;
  #peak = 0;
  #processes = 0;
  readonly #marks: { readonly at: number; readonly cpu: number }[] = [];

  constructor(isHub: boolean) {
    this.#isHub = isHub;
  }

  /** Sums the memory that all live processes of `samples` use now, and counts the processes. */
  update(samples: Iterable<ProcessSample>): void {
    this.#memory = 0;
    this.#processes = 0;
    for (const { isHub, isLive, memory } of samples) {
      if (isHub !== this.#isHub || !isLive) continue;
      this.#processes++;
      this.#memory += memory;
    }
    this.#peak = Math.max(this.#peak, this.#memory);
  }

  add(samples: Iterable<ProcessSample>): void {
    for (const { isHub, cpu, cpuBefore } of samples) {
      if (isHub === this.#isHub) this.#cpu += cpu - cpuBefore;
    }
  }

  /** Notes the CPU time since the level began. @param at the time since then, in ms */
  mark(at: number, samples: Iterable<ProcessSample>): void {
    let cpu = this.#cpu;
    for (const sample of samples)
      if (sample.isHub === this.#isHub) cpu += sample.cpu - sample.cpuBefore;
    this.#marks.push({ at, cpu });
  }

  /** CPU time of each quarter of the level; undefined if there are too few marks. */
  #quarters(): readonly number[] | undefined {
    const end = this.#marks.at(-1)?.at ?? 0;
    if (this.#marks.length <= QUARTERS) return undefined;
    const ends = Array.from({ length: QUARTERS + 1 }, (_, at) =>
      this.#cpuAt((end * at) / QUARTERS),
    );
    return ends.slice(1).map((cpu, at) => cpu - (ends[at] ?? 0));
  }

  /** CPU time until a time of the level, interpolated between marks. */
  #cpuAt(time: number): number {
    const next = this.#marks.findIndex(({ at }) => at >= time);
    const [before, after] = [this.#marks[next - 1], this.#marks[next]];
    if (after === undefined) return this.#marks.at(-1)?.cpu ?? 0;
    const [from, cpu] = [before?.at ?? 0, before?.cpu ?? 0];
    const part = after.at > from ? (time - from) / (after.at - from) : 1;
    return cpu + (after.cpu - cpu) * part;
  }

  /** @param calls number of answered calls. @returns undefined if nothing was measured */
  result(calls: number): CostResult | undefined {
    if (this.#peak === 0) return undefined;
    const quarters = this.#quarters();
    return {
      ...(quarters && { quarters }),
      processes: this.#processes,
      cpu: this.#cpu,
      cpuPerCall: calls === 0 ? 0 : Math.round((this.#cpu * 10_000) / calls) / 10,
      memory: this.#memory,
      peak: this.#peak,
    };
  }
}

/**
 * `SAMPLE_INTERVAL`: interval for sampling the known processes, in ms. `LIST_INTERVAL`: minimum time between two
 * listings of all processes that are made because known processes have ended, in ms.
 */
const SAMPLE_INTERVAL = 200;
const LIST_INTERVAL = 1000;

/**
 * CPU and memory of the subject's processes during a measurement. Listing the processes of the system is slow, so it is
 * done only before the first round, after it, and when a known process has ended. Otherwise only the known processes
 * are sampled.
 */
export class ProcessUsageMeter {
  readonly #target: BenchConnection;
  readonly #samples = new Map<string, ProcessSample>();
  readonly #hub = new UsageSum(true);
  readonly #server = new UsageSum(false);
  #rounds = 0;
  /** Total duration of the rounds that have ended, and the start of the present one, in ms of `performance.now()`. */
  #elapsed = 0;
  #roundStart = 0;
  #isRunning = false;
  /** When the processes were last listed, in ms of `performance.now()`. */
  #listedAt = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(target: BenchConnection) {
    this.#target = target;
  }

  /** Starts a round. The measured time begins when the promise resolves. */
  async beginRound(): Promise<void> {
    const isSame = this.#rounds++ > 0 && (await this.#sample());
    if (!isSame) await this.#listProcesses();
    for (const sample of this.#samples.values()) sample.cpuBefore = sample.cpu;
    this.#roundStart = performance.now();
    this.#isRunning = true;
    this.#timer = setInterval(() => void this.#poll(), SAMPLE_INTERVAL);
  }

  async endRound(): Promise<void> {
    clearInterval(this.#timer);
    this.#isRunning = false;
    const isSame = (await this.#sample()) && this.#rounds > 1;
    if (!isSame) await this.#listProcesses();
    this.#mark();
    this.#hub.add(this.#samples.values());
    this.#server.add(this.#samples.values());
    this.#elapsed += performance.now() - this.#roundStart;
  }

  #mark(): void {
    const at = this.#elapsed + performance.now() - this.#roundStart;
    for (const sum of [this.#hub, this.#server]) sum.mark(at, this.#samples.values());
  }

  results(calls: number): { readonly hub?: CostResult; readonly server?: CostResult } {
    const hub = this.#hub.result(calls);
    const server = this.#server.result(calls);
    return { ...(hub && { hub }), ...(server && { server }) };
  }

  /**
   * Lists the subject's processes. The CPU time of a process that was not known before counts from 0, because it has
   * started in this round.
   */
  async #listProcesses(): Promise<void> {
    this.#listedAt = performance.now();
    const { subject } = this.#target;
    const [stats, proxyPids] = await Promise.all([
      this.#target.processStats(),
      subject.proxies?.pids(),
    ]);
    for (const sample of this.#samples.values()) sample.isLive = false;
    for (const entry of stats?.entries ?? []) {
      // The bench's own stdio proxies are not measured.
      if (proxyPids?.has(entry.pid) === true) continue;
      const { cpu, memory } = entry;
      const cpuBefore = this.#samples.get(processKey(entry))?.cpuBefore ?? 0;
      const isHub = subject.kind === "hub" && entry.pid === stats?.pid;
      const sample = { entry, isHub, isLive: true, cpuBefore, cpu, memory };
      this.#samples.set(processKey(entry), sample);
    }
    this.#updateSums();
  }

  async #poll(): Promise<void> {
    const isSame = await this.#sample();
    // The round may have ended meanwhile.
    if (!this.#isRunning) return;
    this.#mark();
    if (!isSame && performance.now() - this.#listedAt > LIST_INTERVAL) await this.#listProcesses();
  }

  /** Samples the known processes. @returns whether all of them still run */
  async #sample(): Promise<boolean> {
    const live = [...this.#samples.values()].filter(({ isLive }) => isLive);
    const usages = await processTable.usage(live.map(({ entry }) => entry)).catch(() => undefined);
    if (usages === undefined) return false;
    for (const sample of live) sample.isLive = false;
    for (const usage of usages) {
      const sample = this.#samples.get(processKey(usage));
      if (sample === undefined) continue;
      sample.isLive = true;
      sample.cpu = usage.cpu;
      sample.memory = usage.memory;
    }
    this.#updateSums();
    return usages.length === live.length && live.length > 0;
  }

  #updateSums(): void {
    this.#hub.update(this.#samples.values());
    this.#server.update(this.#samples.values());
  }
}

function processKey({ pid, started }: ProcessIdentity): string {
  return `${pid}/${started}`;
}

/** The machine, operating system and program of a measurement. */
export function machineInfo(): MachineResult {
  const cores = cpus();
  const runtime = process.versions[runtimeName] ?? "";
  return {
    cores: cores.length,
    cpu: cores[0]?.model.trim() ?? "",
    memory: totalmem(),
    system: `${type()} ${release()}`,
    program: `toolmux ${VERSION}, ${runtimeName} ${runtime}`,
  };
}
