import { cpus, release, totalmem, type } from "node:os";
import process from "node:process";
import { runtimeName } from "../base/runtime.ts";
import { VERSION } from "../base/version.ts";
import { type ProcessEntry, type ProcessIdentity, processTable } from "../process/process-table.ts";
import type { CostResult, MachineResult } from "./result.ts";
import type { BenchTarget } from "./target.ts";

/** What one process has used: CPU in ms, memory in bytes. */
interface Account {
  readonly entry: ProcessEntry;
  readonly isHub: boolean;
  isLive: boolean;
  /** When the round began, and when it was last seen. */
  before: number;
  cpu: number;
  memory: number;
}

/** What some of the processes have used in all rounds. */
class Sum {
  readonly #isHub: boolean;
  #cpu = 0;
  #memory = 0;
  #peak = 0;
  #processes = 0;

  constructor(isHub: boolean) {
    this.#isHub = isHub;
  }

  /** Takes in what is held now, of all processes. */
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

  /** Adds what was used in a round. */
  add(accounts: Iterable<Account>): void {
    for (const { isHub, cpu, before } of accounts) {
      if (isHub === this.#isHub) this.#cpu += cpu - before;
    }
  }

  /** @param calls that were answered. @returns undefined if there was nothing to be seen */
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

/** How often is looked at those that are known, in ms; and how often at most for others, once one of them has gone. */
const LOOK = 200;
const SEARCH = 1000;

/**
 * What the processes of a subject use while it is measured. To list those of the system takes long, so that is done outside of
 * the rounds, and only if it is not known that they are the same; while a round runs, those that are known are looked at.
 */
export class ProcessUsageMeter {
  readonly #contact: BenchTarget;
  readonly #accounts = new Map<string, Account>();
  readonly #hub = new Sum(true);
  readonly #server = new Sum(false);
  #rounds = 0;
  /** When those of the system were last listed, in ms. */
  #listed = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(contact: BenchTarget) {
    this.#contact = contact;
  }

  /** A round begins as soon as this settles. */
  async begin(): Promise<void> {
    const isSame = this.#rounds++ > 0 && (await this.#look());
    if (!isSame) await this.#list();
    for (const account of this.#accounts.values()) account.before = account.cpu;
    this.#timer = setInterval(() => void this.#follow(), LOOK);
  }

  /** It has ended. */
  async end(): Promise<void> {
    clearInterval(this.#timer);
    const isSame = (await this.#look()) && this.#rounds > 1;
    if (!isSame) await this.#list();
    this.#hub.add(this.#accounts.values());
    this.#server.add(this.#accounts.values());
  }

  /** @param calls that were answered */
  results(calls: number): { readonly hub?: CostResult; readonly server?: CostResult } {
    const hub = this.#hub.result(calls);
    const server = this.#server.result(calls);
    return { ...(hub && { hub }), ...(server && { server }) };
  }

  /** Takes in all processes that there are now; one that was not seen before has begun in this round. */
  async #list(): Promise<void> {
    this.#listed = performance.now();
    const { subject } = this.#contact;
    const [vitals, taps] = await Promise.all([this.#contact.vitals(), subject.taps?.pids()]);
    for (const account of this.#accounts.values()) account.isLive = false;
    for (const entry of vitals?.entries ?? []) {
      // What stands between to measure is no part of what is measured.
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

  /** Looks at those that are known. @returns whether all of them still run */
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

/** What the measurement runs on. */
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
