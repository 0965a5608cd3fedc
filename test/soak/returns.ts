import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { quantile } from "../../bench/stats.ts";
import { type Message, Wire } from "./wire.ts";

export interface ReturnsOptions {
  readonly executable: string;
  /** How long there is trouble, how often a server is killed, and for how long it is down, in ms. */
  readonly duration: number;
  readonly every: number;
  readonly down: number;
  /** Calls in flight to each server. */
  readonly flight: number;
  print(line: string): void;
}

export interface ReturnsReport {
  readonly calls: number;
  readonly kills: number;
  /** Calls that were answered with what the tool says, and those that were told that it may have run. */
  readonly done: number;
  readonly unsure: number;
  /** From a server's being ready to its next answer to a client, in ms. */
  readonly back: { readonly p50: number; readonly worst: number };
  /** How long calls took, in ms. */
  readonly latency: { readonly p50: number; readonly worst: number };
  /** The first that was wrong. */
  readonly faults: readonly string[];
}

const ERAS = ["legacy", "modern"] as const;
type Era = (typeof ERAS)[number];

interface Errand {
  readonly server: Era;
  readonly tool: "effect" | "look";
  readonly began: number;
}

const PEER = fileURLToPath(new URL("./returning-server.ts", import.meta.url));
const MOST_FAULTS = 10;
/** How long the last calls may take, in ms. */
const REST = 30_000;

/** Kills servers over HTTP under load, and starts them again at the same place: every call is to be answered, and none run twice. */
export async function returns(options: ReturnsOptions): Promise<ReturnsReport> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-returns-"));
  const run = new Returns(options, folder);
  try {
    return await run.play();
  } finally {
    run.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One server, whichever process it is. */
class Host {
  readonly era: Era;
  readonly port: number;
  readonly log: string;
  readyAt: number | undefined;
  #child: ChildProcess | undefined;

  constructor(era: Era, port: number, log: string) {
    this.era = era;
    this.port = port;
    this.log = log;
  }

  async start(): Promise<void> {
    const args = [PEER, this.era, String(this.port), this.log];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    await once(child.stdout, "data");
    this.readyAt = performance.now();
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}

class Returns {
  readonly #options: ReturnsOptions;
  readonly #folder: string;
  readonly #faults: string[] = [];
  readonly #open = new Map<number, Errand>();
  readonly #answers = new Map<number, "done" | "unsure">();
  readonly #tools = new Map<number, Errand["tool"]>();
  readonly #back: number[] = [];
  readonly #latencies: number[] = [];
  readonly #hosts: Host[] = [];
  #wire: Wire | undefined;
  #number = 1000;
  #kills = 0;
  #isOver = false;
  #listed: (() => void) | undefined;

  constructor(options: ReturnsOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
  }

  async play(): Promise<ReturnsReport> {
    const { duration, every, down, flight } = this.#options;
    for (const era of ERAS) {
      const host = new Host(era, await findPort(), join(this.#folder, `${era}.log`));
      await host.start();
      this.#hosts.push(host);
    }
    await this.#connect();
    const began = performance.now();
    for (const { era } of this.#hosts) for (let i = 0; i < flight; i++) this.#call(era);
    const figures = setInterval(() => this.#options.print(this.#figures(began)), 10_000);
    while (performance.now() - began < duration) {
      await pause(every - down);
      await Promise.all(this.#hosts.map((host) => host.kill()));
      this.#kills += this.#hosts.length;
      await pause(down);
      await Promise.all(this.#hosts.map((host) => host.start()));
    }
    clearInterval(figures);
    this.#isOver = true;
    const limit = performance.now() + REST;
    while (this.#open.size > 0 && performance.now() < limit) await pause(20);
    for (const [id, { server, tool }] of this.#open) {
      this.#fault(`${tool} ${id} of ${server} was never answered`);
    }
    this.#compare();
    return this.#report();
  }

  end(): void {
    this.#wire?.kill();
    for (const host of this.#hosts) void host.kill();
  }

  async #connect(): Promise<void> {
    const manifest = join(this.#folder, "toolmux.json");
    const servers: Record<string, object> = {};
    for (const { era, port } of this.#hosts) servers[era] = { url: `http://127.0.0.1:${port}/mcp` };
    writeFileSync(manifest, JSON.stringify({ servers }));
    const env = { HOME: this.#folder, PATH: process.env["PATH"] ?? "" };
    const listed = new Promise<void>((resolve) => (this.#listed = resolve));
    const wire = new Wire(
      this.#options.executable,
      ["serve", "--config", manifest],
      { cwd: this.#folder, env },
      {
        message: (message) => this.#take(message),
        stray: (text) => this.#fault(`stdout: ${text}`),
        ended: () => {
          if (!this.#isOver) this.#fault(`the hub has ended: ${wire.stderr}`);
        },
      },
    );
    this.#wire = wire;
    const clientInfo = { name: "returns", version: "1" };
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
    wire.send({ jsonrpc: "2.0", id: 1, method: "initialize", params });
    wire.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    wire.send({ jsonrpc: "2.0", id: 2, method: "tools/list" });
    await listed;
  }

  #call(server: Era): void {
    if (this.#isOver) return;
    const id = ++this.#number;
    const tool = id % 2 === 0 ? "effect" : "look";
    this.#open.set(id, { server, tool, began: performance.now() });
    this.#tools.set(id, tool);
    const params = { name: `${server}__${tool}`, arguments: { number: id } };
    this.#wire?.send({ jsonrpc: "2.0", id, method: "tools/call", params });
  }

  #take(message: Message): void {
    const { id, result, error } = message;
    if (id === 2) {
      if (result?.tools?.length !== 4) this.#fault(`${result?.tools?.length} tools are listed`);
      this.#listed?.();
    }
    if (typeof id !== "number" || id < 1000) return;
    const errand = this.#open.get(id);
    if (errand === undefined) {
      this.#fault(`call ${id} was answered twice`);
      return;
    }
    this.#open.delete(id);
    const text = result?.content?.[0]?.text ?? error?.message ?? "";
    const isDone = text === `${errand.tool} ${id}`;
    const isUnsure = errand.tool === "effect" && text.includes("may have run");
    if (!isDone && !isUnsure) this.#fault(`${errand.tool} of ${errand.server}: ${text}`);
    else this.#answers.set(id, isDone ? "done" : "unsure");
    const now = performance.now();
    this.#latencies.push(now - errand.began);
    const host = this.#hosts.find(({ era }) => era === errand.server);
    if (isDone && host?.readyAt !== undefined) {
      this.#back.push(now - host.readyAt);
      host.readyAt = undefined;
    }
    this.#call(errand.server);
  }

  /** What the servers have written down against what their clients were told. */
  #compare(): void {
    const runs = new Map<number, number>();
    for (const { log } of this.#hosts) {
      const lines = existsSync(log) ? readFileSync(log, "utf8").trimEnd().split("\n") : [];
      for (const line of lines) {
        const number = Number(line.split(" ")[1]);
        runs.set(number, (runs.get(number) ?? 0) + 1);
      }
    }
    for (const [id, tool] of this.#tools) {
      const times = runs.get(id) ?? 0;
      if (tool === "effect" && times > 1) this.#fault(`effect ${id} was run ${times} times`);
      if (this.#answers.get(id) === "done" && times === 0) this.#fault(`${tool} ${id} was not run`);
    }
  }

  #report(): ReturnsReport {
    const all = [...this.#answers.values()];
    const spread = (values: readonly number[]): { p50: number; worst: number } => {
      const sorted = Float64Array.from(values).toSorted();
      return { p50: quantile(sorted, 0.5), worst: sorted.at(-1) ?? Number.NaN };
    };
    return {
      calls: this.#tools.size,
      kills: this.#kills,
      done: all.filter((how) => how === "done").length,
      unsure: all.filter((how) => how === "unsure").length,
      // The first was ready before anybody called.
      back: spread(this.#back.slice(this.#hosts.length)),
      latency: spread(this.#latencies),
      faults: this.#faults,
    };
  }

  #figures(began: number): string {
    const seconds = ((performance.now() - began) / 1000).toFixed(0);
    return `${seconds} s: ${this.#tools.size} calls, ${this.#kills} kills, ${this.#faults.length} faults`;
  }

  #fault(text: string): void {
    if (this.#faults.length < MOST_FAULTS) this.#faults.push(text);
    this.#options.print(`FAULT: ${text}`);
  }
}

/** One that is free. */
async function findPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}
