import { Buffer } from "node:buffer";
import { type ChildProcess, spawn } from "node:child_process";
import type { Result } from "./errand.ts";

/** A message of the hub, as far as it is looked at. */
export interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Result & { readonly tools?: readonly { readonly name: string }[] };
  readonly error?: {
    readonly code: number;
    readonly message: string;
    readonly data?: { readonly code?: string; readonly server?: string };
  };
}

export interface WireEvents {
  message(message: Message): void;
  /** A line that is not one JSON-RPC message, or what came after the last line. */
  stray(text: string): void;
  /** Its output has ended as well. */
  ended(code: number | null, signal: string | null): void;
}

const LF = 10;
/** Characters of stderr that are kept. */
const TAIL = 3000;

/** The hub's process, and lines to and from it. */
export class Wire {
  stderr = "";
  readonly #child: ChildProcess;
  readonly #events: WireEvents;
  #pieces: Buffer[] = [];

  /** @throws if it cannot be started. */
  constructor(
    command: string,
    args: readonly string[],
    options: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
    events: WireEvents,
  ) {
    this.#events = events;
    this.#child = spawn(command, args, { ...options, stdio: ["pipe", "pipe", "pipe"] });
    this.#child.stdin?.on("error", () => {});
    this.#child.stdout?.on("data", (chunk: Buffer) => this.#read(chunk));
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.stderr = (this.stderr + text).slice(-TAIL);
    });
    this.#child.once("close", (code, signal) => {
      if (this.#pieces.length > 0) events.stray(Buffer.concat(this.#pieces).toString());
      events.ended(code, signal);
    });
    if (this.#child.pid === undefined) throw new Error(`${command} cannot be started`);
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  send(message: object | string): void {
    const text = typeof message === "string" ? message : JSON.stringify(message);
    this.#child.stdin?.write(`${text}\n`);
  }

  /** Stops reading, as a client that is busy does. */
  pause(): void {
    this.#child.stdout?.pause();
  }

  resume(): void {
    this.#child.stdout?.resume();
  }

  /** The client leaves. */
  end(): void {
    this.#child.stdin?.end();
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  #read(chunk: Buffer): void {
    let from = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
      this.#pieces.push(chunk.subarray(from, at));
      from = at + 1;
      const text = Buffer.concat(this.#pieces).toString();
      this.#pieces = [];
      const message = parse(text);
      if (message === undefined) this.#events.stray(text);
      else this.#events.message(message);
    }
    if (from < chunk.length) this.#pieces.push(chunk.subarray(from));
  }
}

/** undefined for what is not one JSON-RPC 2.0 message. */
function parse(text: string): Message | undefined {
  try {
    const json = JSON.parse(text) as (Message & { jsonrpc?: unknown }) | null;
    if (typeof json !== "object" || json === null || json.jsonrpc !== "2.0") return undefined;
    const isAnswer = "id" in json && "result" in json !== "error" in json;
    const isAsked = !("result" in json) && !("error" in json);
    return (typeof json.method === "string" ? isAsked : isAnswer) ? json : undefined;
  } catch {
    return undefined;
  }
}
