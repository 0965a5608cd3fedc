import { Buffer } from "node:buffer";
import { type ChildProcess, spawn } from "node:child_process";
import { withDeadline } from "./wait.ts";
import {
  isObject,
  type Line,
  parseLine,
  type Received,
  type Result,
  type RpcMessage,
  type Tool,
} from "./message.ts";

export interface ProcessExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/**
 * A stdio MCP client that sends exactly the given bytes and keeps every line that it receives.
 * Every wait has a deadline in ms and checks all lines since `from`, including those received before the call.
 */
export class RawClient {
  readonly lines: Line[] = [];
  /** Resolves when the process has exited and its output has been read. */
  readonly exit: Promise<ProcessExit>;
  stderr = "";
  readonly #child: ChildProcess;
  readonly #waiters = new Set<() => void>();
  #partialLine: Buffer[] = [];
  #nextId = 1;

  constructor(
    command: string,
    args: readonly string[],
    cwd: string,
    env: Readonly<Record<string, string>>,
  ) {
    this.#child = spawn(command, args, { cwd, env, stdio: ["pipe", "pipe", "pipe"] });
    this.#child.stdin?.on("error", () => undefined);
    this.#child.stdout?.on("data", (chunk: Buffer) => this.#read(chunk));
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.stderr += text;
      this.#checkWaiters();
    });
    this.exit = new Promise((resolve, reject) => {
      this.#child.once("error", reject);
      this.#child.once("close", (code, signal) => {
        resolve({ code, signal });
        this.#checkWaiters();
      });
    });
    this.exit.catch(() => undefined);
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  /** Writes bytes to stdin unchanged. */
  write(bytes: string | Uint8Array): void {
    this.#child.stdin?.write(bytes);
  }

  /** Writes one line: a string unchanged, an object as JSON. */
  send(message: string | object): void {
    this.write(`${typeof message === "string" ? message : JSON.stringify(message)}\n`);
  }

  /** Sends a request and returns its id, by default the next number; `params` may be JSON text. */
  sendRequest(
    method: string,
    params?: string | object,
    id: string | number = this.#nextId++,
  ): string | number {
    const text = typeof params === "string" ? params : JSON.stringify(params);
    const tail = text === undefined ? "" : `,"params":${text}`;
    this.send(
      `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"method":${JSON.stringify(method)}${tail}}`,
    );
    return id;
  }

  /** Sends a request and waits for its response, which may be an error. */
  request(method: string, params?: string | object, ms = 20_000): Promise<Received> {
    return this.response(this.sendRequest(method, params), ms);
  }

  /** Waits for the response with this id. */
  response(id: unknown, ms = 20_000): Promise<Received> {
    return this.find(
      (message) => message.id === id && message.method === undefined,
      `the answer to ${String(id)}`,
      { ms },
    );
  }

  call(name: string, args: string | object = {}, ms = 20_000): Promise<Received> {
    return this.response(this.sendCall(name, args), ms);
  }

  /** Sends a tools/call and returns its id; `args` may be JSON text. */
  sendCall(name: string, args: string | object = {}, id?: string | number): string | number {
    const text = typeof args === "string" ? args : JSON.stringify(args);
    return this.sendRequest(
      "tools/call",
      `{"name":${JSON.stringify(name)},"arguments":${text}}`,
      id,
    );
  }

  /** The legacy handshake; returns the result of `initialize`. */
  async initialize(protocolVersion = "2025-11-25", capabilities: object = {}): Promise<Result> {
    const clientInfo = { name: "raw", version: "1.0.0" };
    const { message } = await this.request("initialize", {
      protocolVersion,
      capabilities,
      clientInfo,
    });
    if (message.result === undefined)
      throw new Error(`initialize failed: ${JSON.stringify(message.error)}`);
    this.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    return message.result;
  }

  /** The handshake and the first listing; returns the tools. */
  async initializeAndList(protocolVersion?: string): Promise<readonly Tool[]> {
    await this.initialize(protocolVersion);
    const { message } = await this.request("tools/list");
    if (message.result?.tools === undefined) throw new Error(`no list: ${JSON.stringify(message)}`);
    return message.result.tools;
  }

  /** Sends one line and then a ping, which proves that the hub lives. @returns the lines before the ping's response */
  async sendAndCollect(line: string | Uint8Array, ms = 10_000): Promise<Line[]> {
    const from = this.lines.length;
    this.write(line);
    this.write("\n");
    const ping = this.sendRequest("ping");
    await this.response(ping, ms);
    return this.lines.slice(from).filter(({ json }) => !isObject(json) || json.id !== ping);
  }

  /** Sends one line and returns the single message that answers it; throws unless there is exactly one. */
  async sendAndReceive(line: string | Uint8Array, ms?: number): Promise<RpcMessage> {
    const lines = await this.sendAndCollect(line, ms);
    const texts = lines.map(({ text }) => text.slice(0, 300));
    if (lines.length !== 1 || !isObject(lines[0]?.json))
      throw new Error(`not one answer: ${JSON.stringify(texts)}`);
    return lines[0].json;
  }

  /** Waits for the first message that satisfies `test`. */
  async find(
    test: (message: RpcMessage) => boolean,
    what: string,
    { ms = 10_000, from = 0 }: { readonly ms?: number; readonly from?: number } = {},
  ): Promise<Received> {
    let at = from;
    return this.until(ms, what, () => {
      for (; at < this.lines.length; at += 1) {
        const line = this.lines[at];
        if (line !== undefined && isObject(line.json) && test(line.json))
          return { ...line, message: line.json };
      }
      return undefined;
    });
  }

  /** The messages received so far that satisfy `test`. */
  filter(test: (message: RpcMessage) => boolean): Received[] {
    return this.lines.flatMap((line) =>
      isObject(line.json) && test(line.json) ? [{ ...line, message: line.json }] : [],
    );
  }

  /** Waits until `find` returns a value; calls it again whenever output arrives. */
  until<Found>(ms: number, what: string, find: () => Found | undefined): Promise<Found> {
    return withDeadline(
      ms,
      () => `${what}; stdout so far: ${this.#lastLines()}; stderr: ${this.stderr.slice(-2000)}`,
      (resolve) => {
        const check = (): void => {
          const found = find();
          if (found === undefined) return;
          this.#waiters.delete(check);
          resolve(found);
        };
        this.#waiters.add(check);
        check();
        return () => this.#waiters.delete(check);
      },
    );
  }

  /** Stops reading stdout until `resume`. */
  pause(): void {
    this.#child.stdout?.pause();
  }

  resume(): void {
    this.#child.stdout?.resume();
  }

  /** Closes the server's stdin. */
  end(): void {
    this.#child.stdin?.end();
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Waits until the process has exited. */
  waitForExit(ms: number): Promise<ProcessExit> {
    return withDeadline(
      ms,
      () => `the end of process ${this.pid}; stderr: ${this.stderr.slice(-2000)}`,
      (resolve, reject) => {
        this.exit.then(resolve, reject);
      },
    );
  }

  #read(chunk: Buffer): void {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      this.#partialLine.push(chunk.subarray(from, at));
      from = at + 1;
      const bytes = Buffer.concat(this.#partialLine);
      this.#partialLine = [];
      this.lines.push(parseLine(bytes));
    }
    if (from < chunk.length) this.#partialLine.push(chunk.subarray(from));
    this.#checkWaiters();
  }

  /** Output after the last line end. */
  get unterminatedOutput(): string {
    return Buffer.concat(this.#partialLine).toString("utf8");
  }

  #checkWaiters(): void {
    for (const attempt of this.#waiters) attempt();
  }

  #lastLines(): string {
    return this.lines
      .slice(-5)
      .map((line) => line.text.slice(0, 400))
      .join(" | ");
  }
}
