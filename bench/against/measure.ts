/**
 * Measures one program. `measure` runs this file in its own process, because a measurement may block its process, and
 * may have to be killed. The process receives a `Job` as JSON in its argument, and prints the `Figures` of each
 * scenario as one line of JSON.
 */
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readlinkSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { carriersOf } from "../../test/soak/processes.ts";
import { answerText } from "../answer.ts";
import { Flight } from "../flight.ts";
import { Host } from "../http/host.ts";
import { HttpClient, type Message } from "../http/client.ts";
import { HttpConnection } from "../http/connection.ts";
import { type Command, Peer } from "../peer.ts";
import { quantile } from "../stats.ts";
import { readUsage } from "../usage.ts";

/**
 * How a client reaches a program. Without `url`, the program prints its URL on stderr. `sse`: HTTP+SSE (2024-11-05).
 */
export type Endpoint =
  { readonly kind: "stdio" } | { readonly kind: "http" | "sse"; readonly url: string | undefined };

/**
 * The scenarios that every program runs, one after the other. `flight`: calls in flight; `lines`: lines of text in an
 * answer.
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

export interface Job {
  readonly command: Command;
  readonly endpoint: Endpoint;
  readonly tool: string;
  readonly scenarios: readonly Scenario[];
  /** Times for each scenario, in ms. `warmUp`: one step of the warm-up. `duration`: the measurement. */
  readonly warmUp: number;
  readonly duration: number;
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
 * Maximum time that a job may take in addition to its scenarios, in ms. On a busy machine, starting Python alone
 * takes up to ten seconds.
 */
const EXTRA_TIME = 25_000;
/** Some runtimes compile code only after many calls, so the warm-up is repeated while a step is faster by this factor. */
const GAIN = 1.05;
/** The warm-up ends after `LEVEL` steps in a row that were not faster, and after `MOST_STEPS` at the latest. */
const LEVEL = 2;
const MOST_STEPS = 10;
/** Number of characters that are kept from the end of stderr. */
const STDERR_KEPT = 4000;
const READY_LIMIT = 15_000;
const POLL_INTERVAL = 50;
/** The number before the first call's key. All keys have eight digits. */
const FIRST_KEY = 10_000_000;
/** One in this many answers over HTTP is checked completely. */
const SAMPLE_EVERY = 100;

/**
 * Runs a job. Afterwards none of its processes is left, not even one that has left its process group.
 * @param extraTime maximum time that the job may take in addition to its scenarios, in ms
 * @throws {Error} if the job fails, with the last line of its stderr, or if it takes too long
 */
export async function measure(
  job: Job,
  onFigures: (figures: Figures) => void,
  extraTime = EXTRA_TIME,
): Promise<void> {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), JSON.stringify(job)], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const end = (): void => {
    kill(-(child.pid ?? 0));
    killTagged(job.tag);
  };
  const limit = extraTime + job.scenarios.length * (MOST_STEPS * job.warmUp + job.duration);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    end();
  }, limit);
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => {
    stderr = (stderr + chunk.toString()).slice(-STDERR_KEPT);
  });
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => onFigures(JSON.parse(line) as Figures));
  // The pipes close only when every process that holds them has ended, so the remaining processes are killed.
  child.on("exit", end);
  await once(child, "close");
  clearTimeout(timer);
  if (isLate) throw new Error(`did not end within ${limit / 1000} s`);
  if (child.exitCode !== 0) throw new Error(stderr.trim().split("\n").at(-1) ?? "");
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
    if (pid !== 0) process.kill(pid, "SIGKILL");
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

/**
 * Runs one scenario after a warm-up.
 * @param run makes calls for the given number of ms, and returns their latencies in µs
 */
async function runScenario(
  job: Job,
  run: (ms: number) => Promise<Float64Array> | Float64Array,
): Promise<Figures> {
  for (let made = 0, level = 0, best = 0; made < MOST_STEPS && level < LEVEL; made++) {
    const began = performance.now();
    const rate = (await run(job.warmUp)).length / (performance.now() - began);
    level = rate > best * GAIN ? 0 : level + 1;
    best = Math.max(best, rate);
  }
  const before = usageOf(job);
  const from = performance.now();
  const latencies = (await run(job.duration)).sort();
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

/** Runs all scenarios over stdio. @throws {Error} at the first wrong answer */
async function runOverStdio(job: Job, report: (figures: Figures) => void): Promise<void> {
  const peer = new Peer(job.command);
  peer.awaitTools((names) => names.includes(job.tool));
  for (const { flight: width, lines } of job.scenarios) {
    const flight = new Flight([job.tool], lines, width);
    const figures = await runScenario(job, (ms) => {
      flight.record();
      const from = performance.now();
      for (let now = from; now < from + ms; now = flight.receive(peer)) flight.send(peer);
      return flight.latencies();
    });
    flight.finish(peer);
    flight.verify();
    report(figures);
  }
  await peer.end();
}

/** A client of a server over HTTP. */
interface RemoteClient {
  /** Sends a request. @returns the received data, which contains the answer */
  call(text: string, id: number): Promise<Buffer>;
  toolNames(): Promise<readonly string[]>;
  close(): void;
}

/**
 * Runs all scenarios over HTTP, with one client session and one connection for each call in flight.
 * @throws {Error} at the first wrong answer
 */
async function runOverHttp(
  job: Job,
  { kind, url }: Exclude<Endpoint, { kind: "stdio" }>,
  report: (figures: Figures) => void,
): Promise<void> {
  const host = await Host.start(job.command, url === undefined ? undefined : new URL(url));
  const client = await connectWhenReady(kind, host.url, job.tool);
  let key = FIRST_KEY;
  for (const { flight, lines } of job.scenarios) {
    report(
      await runScenario(job, async (ms) => {
        const latencies: number[] = [];
        const until = performance.now() + ms;
        const callInTurn = async (): Promise<void> => {
          do {
            const id = ++key;
            const params = `{"name":"${job.tool}","arguments":{"key":"${id}","lines":${lines}}}`;
            const text = `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`;
            const from = performance.now();
            const body = await client.call(text, id);
            latencies.push((performance.now() - from) * 1000);
            checkAnswer(body, id, lines);
          } while (performance.now() < until);
        };
        await Promise.all(Array.from({ length: flight }, callInTurn));
        return Float64Array.from(latencies);
      }),
    );
  }
  client.close();
  await host.end();
}

/**
 * Checks the answer to a call; one in `SAMPLE_EVERY` answers is checked completely. @throws {Error} if it is wrong
 */
function checkAnswer(body: Buffer, key: number, lines: number): void {
  const digits = String(key);
  const first = body.indexOf(digits);
  let isRight = first >= 0 && body.lastIndexOf(digits) > first;
  isRight &&= body.length > answerText(key, lines).length;
  if (isRight && key % SAMPLE_EVERY === 1) {
    const data = /^data: ?(\{.*"result".*)$/m.exec(body.toString())?.[1] ?? body.toString();
    const { id, result } = JSON.parse(data) as {
      readonly id?: unknown;
      readonly result?: { readonly content?: readonly { readonly text?: string }[] };
    };
    isRight = id === key && result?.content?.[0]?.text === answerText(key, lines);
  }
  if (!isRight) throw new Error(`not the answer to ${key}: ${body.toString("utf8", 0, 300)}`);
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
      const client = await (kind === "sse" ? SseClient.open(url) : openStreamableClient(url));
      const names = await client.toolNames();
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

async function openStreamableClient(url: URL): Promise<RemoteClient> {
  const client = await HttpClient.connect(url);
  return {
    async call(text) {
      const { status, body } = await client.post(text);
      if (status !== 200) throw new Error(`status ${status}: ${body.toString("utf8", 0, 300)}`);
      return body;
    },
    async toolNames() {
      const messages = await client.ask("tools/list", {});
      return namesIn(messages.find(({ result }) => result !== undefined));
    },
    close: () => client.close(),
  };
}

function namesIn(message: Message | undefined): readonly string[] {
  const { tools = [] } = (message?.result ?? {}) as { readonly tools?: { name: string }[] };
  return tools.map(({ name }) => name);
}

/** HTTP+SSE (2024-11-05): requests are posted, and all answers come on one event stream. */
class SseClient implements RemoteClient {
  readonly #url: URL;
  readonly #stream: HttpConnection;
  readonly #idle: HttpConnection[] = [];
  readonly #waiting = new Map<number, (answer: Buffer) => void>();
  readonly #endpoint = Promise.withResolvers<URL>();
  readonly #lost: Promise<never>;
  #text = "";

  private constructor(url: URL, stream: HttpConnection) {
    this.#url = url;
    this.#stream = stream;
    const head = `GET ${url.pathname} HTTP/1.1\r\nHost: ${url.host}\r\nAccept: text/event-stream`;
    this.#lost = stream
      .exchange(`${head}\r\n\r\n`, (piece) => this.#read(piece.toString("latin1")))
      .then(({ status }) => Promise.reject(new Error(`the event stream ended with ${status}`)));
    this.#lost.catch(() => {});
  }

  static async open(url: URL): Promise<SseClient> {
    const client = new SseClient(url, await HttpConnection.open(url));
    const clientInfo = { name: "bench", version: "1.0.0" };
    const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo };
    await client.#ask(0, "initialize", params);
    await client.#post('{"jsonrpc":"2.0","method":"notifications/initialized"}');
    return client;
  }

  async call(text: string, id: number): Promise<Buffer> {
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    this.#waiting.set(id, resolve);
    await this.#post(text);
    return Promise.race([promise, this.#lost]);
  }

  async toolNames(): Promise<readonly string[]> {
    return namesIn(await this.#ask(1, "tools/list", {}));
  }

  close(): void {
    for (const connection of [this.#stream, ...this.#idle]) connection.close();
  }

  async #ask(id: number, method: string, params: object): Promise<Message> {
    const answer = await this.call(JSON.stringify({ jsonrpc: "2.0", id, method, params }), id);
    return JSON.parse(answer.toString()) as Message;
  }

  async #post(text: string): Promise<void> {
    const { pathname, search } = await Promise.race([this.#endpoint.promise, this.#lost]);
    let connection = this.#idle.pop();
    while (connection?.isClosed === true) connection = this.#idle.pop();
    connection ??= await HttpConnection.open(this.#url);
    const type = `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}`;
    const head = `POST ${pathname}${search} HTTP/1.1\r\nHost: ${this.#url.host}\r\n${type}`;
    const { status, body } = await connection.exchange(`${head}\r\n\r\n${text}`);
    this.#idle.push(connection);
    if (status >= 300) throw new Error(`status ${status}: ${body.toString("utf8", 0, 300)}`);
  }

  #read(piece: string): void {
    const searchFrom = Math.max(0, this.#text.length - 1);
    this.#text += piece;
    for (
      let end = this.#text.indexOf("\n\n", searchFrom);
      end >= 0;
      end = this.#text.indexOf("\n\n")
    ) {
      const event = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + 2);
      const data = /^data: ?(.*)$/m.exec(event)?.[1] ?? "";
      if (/^event: ?endpoint$/m.test(event)) {
        this.#endpoint.resolve(new URL(data, this.#url));
        continue;
      }
      // The id comes right after `jsonrpc`, or is the last member of an answer.
      const found = /^\{"jsonrpc":"2\.0","id":(\d+)|"id":(\d+)\}$/.exec(data);
      const id = Number(found?.[1] ?? found?.[2]);
      this.#waiting.get(id)?.(Buffer.from(data, "latin1"));
      this.#waiting.delete(id);
    }
  }
}

if (import.meta.main) {
  const report = (figures: Figures): void => console.log(JSON.stringify(figures));
  try {
    const job = JSON.parse(process.argv[2] ?? "") as Job;
    const { endpoint } = job;
    await (endpoint.kind === "stdio"
      ? runOverStdio(job, report)
      : runOverHttp(job, endpoint, report));
    process.exit(0);
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    process.exit(1);
  }
}
