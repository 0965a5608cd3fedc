import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { type Weight, weigh } from "../../bench/usage.ts";
import { quantile } from "../../bench/stats.ts";
import { Caller } from "./caller.ts";
import { Census } from "./census.ts";
import { Chance } from "./chance.ts";
import { Editor } from "./editor.ts";
import { Faults } from "./faults.ts";
import { Gauge } from "./gauge.ts";
import type { Tally } from "./ledger.ts";
import { Trouble } from "./trouble.ts";
import { carriersOf, childrenOf } from "./processes.ts";
import { residents } from "./roster.ts";
import { Wire } from "./wire.ts";

export interface SoakOptions {
  readonly executable: string;
  /** How long there is trouble, in ms. */
  readonly duration: number;
  readonly seed: number;
  /** Gets a line of figures every ten seconds. */
  print(line: string): void;
}

export interface SoakReport {
  readonly tally: Tally;
  readonly edits: number;
  readonly kills: number;
  readonly stops: number;
  readonly lists: number;
  /** How much later than they could have been calls of a calm server were answered, in ms. */
  readonly latency: { readonly p50: number; readonly p99: number; readonly worst: number };
  readonly thirds: readonly Weight[];
  /** From the client's leaving until nothing was left, in ms. */
  readonly end: number;
  /** The first that was found to be wrong, and how much in all. */
  readonly faults: readonly string[];
  readonly faultCount: number;
}

const FIGURES_EVERY = 10_000;
const LOOK_EVERY = 250;
const WEIGH_EVERY = 500;
/** How long the hub may take to end, and everything with it, in ms. */
const END_LIMIT = 5000;
const END_PAUSE = 20;

/** Runs the hub in front of moody servers, with a manifest and a client that do all they can, and watches what comes. */
export async function soak(options: SoakOptions): Promise<SoakReport> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-soak-"));
  try {
    return await new Soak(options, folder).run();
  } finally {
    for (const pid of carriersOf(folder)) kill(pid);
    rmSync(folder, { recursive: true, force: true });
  }
}

class Soak {
  readonly #options: SoakOptions;
  readonly #folder: string;
  readonly #began = performance.now();
  readonly #faults: Faults;
  readonly #end = new AbortController();
  readonly #wire: Wire;
  readonly #editor: Editor;
  readonly #caller: Caller;
  readonly #trouble: Trouble;
  readonly #gauge: Gauge;
  readonly #census: Census;
  /** How the hub ended. */
  readonly #ended: Promise<string>;
  #hasEnded = false;

  constructor(options: SoakOptions, folder: string) {
    const { seed, executable } = options;
    this.#options = options;
    this.#folder = folder;
    const chance = new Chance(seed);
    const all = residents(folder, seed);
    const manifest = join(folder, "toolmux.json");
    const faults = new Faults((text) => options.print(`FAULT at ${text}`));
    const editor = new Editor(manifest, all, chance.fork("editor"));
    let tellEnd: (how: string) => void = () => {};
    this.#ended = new Promise((resolve) => (tellEnd = resolve));
    this.#wire = new Wire(
      executable,
      ["serve", "--config", manifest],
      { cwd: folder, env: surroundings(folder) },
      {
        message: (message) => this.#caller.message(message),
        stray: (text) => faults.add(`stdout: ${text}`),
        ended: (code, signal) => {
          this.#hasEnded = true;
          tellEnd(code === null ? String(signal) : `code ${code}`);
          this.#end.abort();
        },
      },
    );
    this.#editor = editor;
    this.#faults = faults;
    const wire = this.#wire;
    const parts = { wire, faults, editor, residents: all, chance: chance.fork("caller") };
    this.#caller = new Caller(parts);
    const calm = new Set(all.flatMap(({ name, isCalm }) => (isCalm ? name : [])));
    this.#trouble = new Trouble(this.#wire.pid, calm, chance.fork("trouble"));
    this.#gauge = new Gauge(() => weigh(wire.pid));
    const children = () => childrenOf(wire.pid);
    const now = () => performance.now();
    this.#census = new Census({ faults, editor, residents: all, children, now });
  }

  async run(): Promise<SoakReport> {
    const { signal } = this.#end;
    const timers = [
      setInterval(() => this.#look(), LOOK_EVERY),
      setInterval(() => this.#gauge.look(this.#census.size), WEIGH_EVERY),
      setInterval(() => this.#options.print(this.#figures()), FIGURES_EVERY),
    ];
    const end = setTimeout(() => this.#end.abort(), this.#options.duration);
    const actors = [this.#caller, this.#editor, this.#trouble];
    try {
      await Promise.all(actors.map((actor) => actor.run(signal)));
    } finally {
      this.#end.abort();
      clearTimeout(end);
      for (const timer of timers) clearInterval(timer);
    }
    if (this.#hasEnded)
      this.#faults.add(`the hub ended (${await this.#ended}): ${this.#wire.stderr}`);
    for (const fault of this.#gauge.judge()) this.#faults.add(fault);
    return this.#report(await this.#leave());
  }

  #look(): void {
    this.#caller.ledger.look();
    this.#caller.lists.look();
    this.#census.look();
  }

  /** @returns how long it took until nothing was left, in ms. */
  async #leave(): Promise<number> {
    const began = performance.now();
    this.#caller.leave();
    const end = await Promise.race([this.#ended, pause(END_LIMIT, "no end")]);
    if (end !== "code 0") this.#faults.add(`the hub's end: ${end}: ${this.#wire.stderr}`);
    while (carriersOf(this.#folder).length > 0 && performance.now() < began + END_LIMIT)
      await pause(END_PAUSE);
    const left = carriersOf(this.#folder);
    if (left.length > 0) this.#faults.add(`left behind: ${left.join()}`);
    return performance.now() - began;
  }

  #figures(): string {
    const { tally } = this.#caller.ledger;
    const { kills, stops } = this.#trouble.counts;
    const { rss = 0, descriptors = 0, servers = 0 } = this.#gauge.last ?? {};
    const seconds = ((performance.now() - this.#began) / 1000).toFixed(0);
    const calls = Object.entries(tally).map(([how, count]) => `${count} ${how}`);
    const deeds = `${this.#editor.edits} edits, ${kills} kills, ${stops} stops`;
    const holds = `${(rss / 1e6).toFixed(0)} MB, ${descriptors} descriptors, ${servers} servers`;
    return `${seconds} s: ${calls.join(", ")}; ${deeds}; ${holds}; ${this.#faults.count} faults`;
  }

  #report(end: number): SoakReport {
    const latencies = Float64Array.from(this.#caller.ledger.latencies).sort();
    return {
      tally: this.#caller.ledger.tally,
      edits: this.#editor.edits,
      ...this.#trouble.counts,
      lists: this.#caller.lists.asked,
      latency: {
        p50: quantile(latencies, 0.5),
        p99: quantile(latencies, 0.99),
        worst: quantile(latencies, 1),
      },
      thirds: this.#gauge.thirds,
      end,
      faults: this.#faults.texts,
      faultCount: this.#faults.count,
    };
  }
}

/** Nothing of the user's own configuration has a say. */
export function surroundings(folder: string): Record<string, string> {
  const folders = ["CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR"];
  const xdg = folders.map((name) => [`XDG_${name}`, join(folder, name.toLowerCase())] as const);
  for (const [, path] of xdg) mkdirSync(path, { mode: 0o700 });
  return {
    PATH: process.env["PATH"] ?? "",
    HOME: folder,
    TMPDIR: folder,
    ...Object.fromEntries(xdg),
  };
}

/** Kills a process, if there still is one. */
export function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended by itself in the meantime.
  }
}
