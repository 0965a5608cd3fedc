import { cpus, release, totalmem, type } from "node:os";
import process from "node:process";
import { runtimeName } from "../base/runtime.ts";
import { VERSION } from "../base/version.ts";
import { type ProcessEntry, type ProcessIdentity, processTable } from "../process/process-table.ts";
import type { CostResult, MachineResult } from "./result.ts";
import type { BenchTarget } from "./target.ts";

/** Usage of one process: CPU time in ms, memory in bytes. */
interface Account {
  readonly entry: ProcessEntry;
  readonly isHub: boolean;
  isLive: boolean;
  /** CPU time at the start of the round, and at the last sample. */
  before: number;
  cpu: number;
  memory: number;
}

/** Usage of the hub's own process, or of all others, over all rounds. */
class Sum {
  readonly #isHub: boolean;
  #cpu = 0;
  #memory = 0;
  #peak = 0;
  #processes = 0;

  constructor(isHub: boolean) {
    this.#isHub = isHub;
  }

  /** Sums the memory that all live processes use now. */
  note(accounts: Iterable<Account>): void {
    this.#memory = 0;
    this.#processes = 0;
    for (const { isHub, isLive, memory } of accounts) {
      if (isHub !== this.#isHub || !isLive) continue;
      this.#processes++;
      this.#memory += memory;
    }
    this.#peak = Math.max(this.#peak, this.#memory);
  }

  /** Adds the CPU time used during a round. */
  add(accounts: Iterable<Account>): void {
    for (const { isHub, cpu, before } of accounts) {
      if (isHub === this.#isHub) this.#cpu += cpu - before;
    }
  }

  /** @param calls answered calls. @returns undefined if nothing was measured */
  result(calls: number): CostResult | undefined {
    if (this.#peak === 0) return undefined;
    return {
      processes: this.#processes,
      cpu: this.#cpu,
      cpuPerCall: calls === 0 ? 0 : Math.round((this.#cpu * 10_000) / calls) / 10,
      memory: this.#memory,
      peak: this.#peak,
    };
  }
}

/**
 * Interval for sampling known processes, in ms, and the minimum interval for listing all processes after one
 * has gone, in ms.
 */
const LOOK = 200;
const SEARCH = 1000;

/**
 * CPU and memory of the subject's processes during a measurement. Listing the processes of the system is
 * slow, so it is done outside of rounds, and only if the set may have changed; during a round the known
 * processes are sampled.
 */
export class ProcessUsageMeter {
  readonly #contact: BenchTarget;
  readonly #accounts = new Map<string, Account>();
  readonly #hub = new Sum(true);
  readonly #server = new Sum(false);
  #rounds = 0;
  /** Time of the last listing of the system's processes, in ms. */
  #listed = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(contact: BenchTarget) {
    this.#contact = contact;
  }

  /** Starts a round; the round begins when this resolves. */
  async begin(): Promise<void> {
    const isSame = this.#rounds++ > 0 && (await this.#look());
    if (!isSame) await this.#list();
    for (const account of this.#accounts.values()) account.before = account.cpu;
    this.#timer = setInterval(() => void this.#follow(), LOOK);
  }

  /** Ends a round. */
  async end(): Promise<void> {
    clearInterval(this.#timer);
    const isSame = (await this.#look()) && this.#rounds > 1;
    if (!isSame) await this.#list();
    this.#hub.add(this.#accounts.values());
    this.#server.add(this.#accounts.values());
  }

  /** @param calls number of answered calls */
  results(calls: number): { readonly hub?: CostResult; readonly server?: CostResult } {
    const hub = this.#hub.result(calls);
    const server = this.#server.result(calls);
    return { ...(hub && { hub }), ...(server && { server }) };
  }

  /** Lists all processes. One that was not known before has started in this round, so its CPU time counts from 0. */
  async #list(): Promise<void> {
    this.#listed = performance.now();
    const { subject } = this.#contact;
    const [vitals, taps] = await Promise.all([this.#contact.vitals(), subject.taps?.pids()]);
    for (const account of this.#accounts.values()) account.isLive = false;
    for (const entry of vitals?.entries ?? []) {
      // The bench's own stdio proxies are not measured.
      if (taps?.has(entry.pid) === true) continue;
      const { cpu, memory } = entry;
      const before = this.#accounts.get(nameOf(entry))?.before ?? 0;
      const isHub = subject.kind === "hub" && entry.pid === vitals?.pid;
      const account = { entry, isHub, isLive: true, before, cpu, memory };
      this.#accounts.set(nameOf(entry), account);
    }
    this.#note();
  }

  async #follow(): Promise<void> {
    const isSame = await this.#look();
    if (!isSame && performance.now() - this.#listed > SEARCH) await this.#list();
  }

  /** Samples the known processes. @returns whether all of them still run */
  async #look(): Promise<boolean> {
    const live = [...this.#accounts.values()].filter(({ isLive }) => isLive);
    const usages = await processTable.usage(live.map(({ entry }) => entry)).catch(() => undefined);
    if (usages === undefined) return false;
    for (const account of live) account.isLive = false;
    for (const usage of usages) {
      const account = this.#accounts.get(nameOf(usage));
      if (account === undefined) continue;
      account.isLive = true;
      account.cpu = usage.cpu;
      account.memory = usage.memory;
    }
    this.#note();
    return usages.length === live.length && live.length > 0;
  }

  #note(): void {
    this.#hub.note(this.#accounts.values());
    this.#server.note(this.#accounts.values());
  }
}

function nameOf({ pid, started }: ProcessIdentity): string {
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
