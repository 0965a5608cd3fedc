/** Measures a program, as a job in a process of its own (bench/client.ts). */
import { Buffer } from "node:buffer";
import { existsSync, readlinkSync } from "node:fs";
import process from "node:process";
import { carriersOf } from "../../test/soak/processes.ts";
import { Caller, type Pace, type Racer } from "../contest.ts";
import { HttpCallers } from "../http/callers.ts";
import { HttpClient, type Message } from "../http/client.ts";
import { Host } from "../http/host.ts";
import type { Command } from "../peer.ts";
import { runJob } from "../runner.ts";
import { quantile } from "../stats.ts";
import { readUsage } from "../usage.ts";

/**
 * How a client reaches a program. Without `url`, the program prints its URL on stderr. `sse`: HTTP+SSE (2024-11-05).
 */
export type Endpoint =
  { readonly kind: "stdio" } | { readonly kind: "http" | "sse"; readonly url: string | undefined };

/**
 * The scenarios of every program. `flight`: calls in flight; `lines`: lines of text in an answer.
 */
export const SCENARIOS = [
  { name: "one", flight: 1, lines: 1 },
  { name: "many", flight: 64, lines: 1 },
  { name: "medium", flight: 16, lines: 312 },
  { name: "large", flight: 4, lines: 31_250 },
] as const satisfies readonly Scenario[];

export interface Scenario {
  readonly name: string;
  readonly flight: number;
  readonly lines: number;
}

/** Times are in ms. `warmUp`: one step of the warm-up. `duration`: the measurement. */
export interface Job extends Omit<Pace, "rounds"> {
  readonly command: Command;
  readonly endpoint: Endpoint;
  readonly tool: string;
  readonly scenario: Scenario;
  /** A text that is in the environment of all processes of the program, by which they are found. */
  readonly tag: string;
  /** The executable of the server behind the program. Its processes are not counted. */
  readonly server: string;
}

/**
 * The figures of one scenario. Latencies are in µs. `cpu` (µs per call) and `rss` (bytes) include all processes of
 * the program; null if unknown.
 */
export interface Figures {
  readonly calls: number;
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  readonly cpu: number | null;
  readonly rss: number | null;
}

/**
 * Maximum time that a job may take in addition to its scenario, in ms. On a busy machine, starting Python alone
 * takes up to ten seconds.
 */
const EXTRA_TIME = 25_000;
/** Some runtimes compile code only after many calls, so the warm-up is repeated while a step is faster by this factor. */
const GAIN = 1.05;
/** The warm-up ends after `LEVEL` steps in a row that were not faster, and after `MOST_STEPS` at the latest. */
const LEVEL = 3;
const MOST_STEPS = 10;
const READY_LIMIT = 15_000;
const POLL_INTERVAL = 50;

/**
 * Starts a program and measures one scenario. Afterwards none of its processes is left, not even one that has left its
 * process group.
 * @param patience maximum time that the job may take in addition to its scenario, in ms
 * @throws {Error} if the program gives a wrong answer, fails, or takes too long
 */
export async function measure(job: Job, patience = EXTRA_TIME): Promise<Figures> {
  const duration = MOST_STEPS * job.warmUp + job.duration;
  try {
    return await runJob("program", job, { duration, patience, onEnd: () => killTagged(job.tag) });
  } catch (error) {
    throw reasonFrom(error);
  }
}

function reasonFrom(error: unknown): Error {
  // Before its own error there is what the program has written to stderr.
  const line = String(error).split("\n").at(-1) ?? "";
  return new Error(line.replace(/^(?:Error: |programs?: )+/, ""), { cause: error });
}

/** Kills all processes that have the given text in their environment. */
export function killTagged(tag: string): void {
  for (const pid of tagged(tag)) kill(pid);
}

function tagged(tag: string): readonly number[] {
  return existsSync("/proc/self/environ") ? carriersOf(tag) : [];
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // The process has already ended.
  }
}

/**
 * CPU time so far (µs) and memory (bytes) of all processes of the program, without its server and without this
 * process.
 */
function usageOf({ tag, server }: Job): { readonly cpu: number; readonly rss: number } {
  const sum = { cpu: 0, rss: 0 };
  for (const pid of tagged(tag)) {
    if (pid === process.pid || executableOf(pid) === server) continue;
    const usage = readUsage(pid);
    sum.cpu += usage?.cpu ?? 0;
    sum.rss += usage?.rss ?? 0;
  }
  return sum;
}

function executableOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/exe`);
  } catch {
    return undefined;
  }
}

/** Measures a program in this process. */
export async function measureProgram(job: Job): Promise<Figures> {
  const racer = await start(job);
  await warmUp(racer, job.warmUp);
  const figures = await takeTurn(racer, job);
  await racer.end();
  return figures;
}

/** The number of calls that a program has answered before it takes its first turn, if they do not take too long. */
const WARM_CALLS = 30_000;

/**
 * Starts programs and lets them take turns under the same load, while all of them run. Each has answered many calls
 * before, as a compiler that works while a program runs needs them.
 * @returns the CPU time per call in each round of each program, in µs; null if unknown
 * @throws {Error} as `measure`
 */
export async function measureTurns(
  jobs: readonly Job[],
  rounds: number,
): Promise<readonly (readonly (number | null)[])[]> {
  const duration = jobs.reduce(
    (sum, job) => sum + MOST_STEPS * job.warmUp + rounds * job.duration,
    0,
  );
  try {
    const onEnd = (): void => jobs.forEach(({ tag }) => killTagged(tag));
    return await runJob("programs", { jobs, rounds }, { duration, onEnd });
  } catch (error) {
    throw reasonFrom(error);
  }
}

/** Measures programs as `measureTurns` does, in this process. */
export async function measurePrograms({
  jobs,
  rounds,
}: {
  readonly jobs: readonly Job[];
  readonly rounds: number;
}): Promise<readonly (readonly (number | null)[])[]> {
  const all: { job: Job; racer: Racer; cpu: (number | null)[] }[] = [];
  for (const job of jobs) all.push({ job, racer: await start(job), cpu: [] });
  for (const { job, racer } of all) {
    let calls = 0;
    for (let step = 0; step < MOST_STEPS && calls < WARM_CALLS; step++)
      calls += (await racer.run(job.warmUp)).length;
  }
  for (let round = 0; round < rounds; round++) {
    for (const { job, racer, cpu } of round % 2 === 0 ? all : all.toReversed())
      cpu.push((await takeTurn(racer, job)).cpu);
  }
  for (const { racer } of all) await racer.end();
  return all.map(({ cpu }) => cpu);
}

async function start(job: Job): Promise<Racer> {
  const { endpoint, command, tool, scenario } = job;
  return endpoint.kind === "stdio"
    ? new Caller({ peer: command, tools: [tool] }, { ...scenario, pad: 0 })
    : openOverHttp(job, endpoint);
}

async function takeTurn(racer: Racer, job: Job): Promise<Figures> {
  const before = usageOf(job);
  const from = performance.now();
  const latencies = await racer.run(job.duration);
  const seconds = (performance.now() - from) / 1000;
  const after = usageOf(job);
  const calls = latencies.length;
  if (calls === 0) throw new Error(`no answer within ${seconds.toFixed(1)} s`);
  const isKnown = after.rss > 0;
  return {
    calls,
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    rate: calls / seconds,
    cpu: isKnown ? (after.cpu - before.cpu) / calls : null,
    rss: isKnown ? after.rss : null,
  };
}

async function warmUp(racer: Racer, step: number): Promise<void> {
  for (let made = 0, level = 0, best = 0; made < MOST_STEPS && level < LEVEL; made++) {
    const began = performance.now();
    const rate = (await racer.run(step)).length / (performance.now() - began);
    level = rate > best * GAIN ? 0 : level + 1;
    best = Math.max(best, rate);
  }
}

/** A client of a server over HTTP. */
interface RemoteClient {
  /** Sends a request. @returns the received data, which contains the answer */
  call(text: string, id: number): Promise<Buffer>;
  close(): void;
}

/** One session for all calls, with one connection for each call in flight. */
async function openOverHttp(
  { command, tool, scenario }: Job,
  { kind, url }: Exclude<Endpoint, { kind: "stdio" }>,
): Promise<HttpCallers> {
  const host = await Host.start(command, url === undefined ? undefined : new URL(url));
  const client = await connectWhenReady(kind, host.url, tool);
  const clients = Array.from({ length: scenario.flight }, () => client);
  return new HttpCallers(host, clients, [tool], { ...scenario, pad: 0 });
}

/** Connects a client, and waits until the server lists the tool: some servers listen before they accept clients. */
async function connectWhenReady(
  kind: "http" | "sse",
  url: URL,
  tool: string,
): Promise<RemoteClient> {
  const deadline = performance.now() + READY_LIMIT;
  for (;;) {
    let why: unknown;
    try {
      const client = await (kind === "sse" ? SseClient.open(url) : HttpClient.connect(url));
      const [message] = await client.ask("tools/list", {});
      const { tools = [] } = (message?.result ?? {}) as { readonly tools?: { name: string }[] };
      const names = tools.map(({ name }) => name);
      if (names.includes(tool)) return client;
      client.close();
      why = new Error(`there is no tool ${tool}, but ${names.join(" ") || "none"}`);
    } catch (error) {
      why = error;
    }
    if (performance.now() > deadline) throw why;
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL));
  }
}

/** HTTP+SSE (2024-11-05): requests are posted, and all answers come on one event stream. */
class SseClient implements RemoteClient {
  readonly #stream: HttpClient;
  readonly #waiting = new Map<number, (answer: Buffer) => void>();
  readonly #posts = Promise.withResolvers<HttpClient>();
  readonly #lost: Promise<never>;
  #id = 0;

  private constructor(url: URL) {
    this.#stream = new HttpClient(url);
    this.#lost = this.#stream
      .readEvents((data, name) => {
        if (name === "endpoint") this.#posts.resolve(new HttpClient(new URL(data, url)));
        else this.#settle(data);
      })
      .then(() => Promise.reject(new Error("the event stream has ended")));
    this.#lost.catch(() => {});
  }

  static async open(url: URL): Promise<SseClient> {
    const client = new SseClient(url);
    const clientInfo = { name: "bench", version: "1.0.0" };
    const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo };
    await client.ask("initialize", params);
    await client.#post('{"jsonrpc":"2.0","method":"notifications/initialized"}');
    return client;
  }

  async call(text: string, id: number): Promise<Buffer> {
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    this.#waiting.set(id, resolve);
    await this.#post(text);
    return Promise.race([promise, this.#lost]);
  }

  async ask(method: string, params: object): Promise<readonly Message[]> {
    const id = ++this.#id;
    const answer = await this.call(JSON.stringify({ jsonrpc: "2.0", id, method, params }), id);
    return [JSON.parse(answer.toString()) as Message];
  }

  close(): void {
    this.#stream.close();
    void this.#posts.promise.then((posts) => posts.close());
  }

  async #post(text: string): Promise<void> {
    const posts = await Promise.race([this.#posts.promise, this.#lost]);
    const { status, body } = await posts.post(text);
    if (status >= 300) throw new Error(`status ${status}: ${body.toString("utf8", 0, 300)}`);
  }

  #settle(data: string): void {
    // The id comes right after `jsonrpc`, or is the last member of an answer.
    const found = /^\{"jsonrpc":"2\.0","id":(\d+)|"id":(\d+)\}$/.exec(data);
    const id = Number(found?.[1] ?? found?.[2]);
    this.#waiting.get(id)?.(Buffer.from(data, "latin1"));
    this.#waiting.delete(id);
  }
}
