import type { ProcessStats } from "../process/child-process.ts";
import { HubError } from "../base/errors.ts";
import type { ChildProcess, ExitStatus } from "../process/child-process.ts";
import { DRAIN_GRACE, settlesWithin } from "../base/grace.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import { startServerProcess, type StdioTarget } from "./launch.ts";
import type { ServerTransport, SentRequest, Transport, TransportEvents } from "./transport.ts";
import { NO_HANDLE } from "./memory.ts";
import { ServerLog } from "./server-log.ts";
import { Pipe } from "../jsonrpc/pipe.ts";
import { Redactor } from "./redact.ts";
import { streamEnd, outputOfChild, inputOfChild } from "../process/child-streams.ts";

export type { StdioTarget } from "./launch.ts";

/** How many of the last stderr lines an error includes. */
const STDERR_LINES_IN_ERROR = 10;

/** The stdio transport (MCP, Transports, stdio) to a child process: one message per line of its stdin and stdout. */
export function openStdioTransport(target: StdioTarget): ServerTransport {
  return new StdioTransport(target);
}

class StdioTransport implements Transport {
  readonly #target: StdioTarget;
  readonly #redactor: Redactor;
  /** Aborted by a `close` before `open` has finished. */
  readonly #openAborted = new AbortController();
  #opening: Promise<StdioChannel> | undefined;
  #channel: StdioChannel | undefined;
  #closing: Promise<void> | undefined;

  constructor(target: StdioTarget) {
    this.#target = target;
    this.#redactor = new Redactor(target.secrets);
  }

  redact(text: string): string {
    return this.#redactor.apply(text);
  }

  async open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (this.#opening !== undefined) throw new HubError("internal", "A link is opened only once.");
    this.#opening = this.#start(events, AbortSignal.any([signal, this.#openAborted.signal]));
    this.#channel = await this.#opening;
  }

  async #start(events: TransportEvents, signal: AbortSignal): Promise<StdioChannel> {
    const redactor = this.#redactor;
    const child = await startServerProcess(this.#target, redactor, signal);
    return new StdioChannel(this.#target, redactor, child, events);
  }

  get queued(): number {
    return this.#channel?.queued ?? 0;
  }

  send(message: EncodedMessage): SentRequest {
    this.#channel?.send(message);
    return NO_HANDLE;
  }

  pause(): void {
    this.#channel?.pause();
  }

  resume(): void {
    this.#channel?.resume();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#channel?.processStats() ?? Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#closing ??= this.#channel?.close() ?? this.#abortOpen();
    return this.#closing;
  }

  async #abortOpen(): Promise<void> {
    this.#openAborted.abort();
    const channel = await this.#opening?.catch(() => undefined);
    await channel?.close();
  }
}

/** The streams of a running child, until it exits or is stopped. */
class StdioChannel {
  readonly #server: string;
  readonly #child: ChildProcess;
  readonly #events: TransportEvents;
  readonly #serverLog: ServerLog;
  readonly #pipe: Pipe;
  /** Settles when stdout and stderr have ended. */
  readonly #outputsEnded: Promise<unknown>;
  #phase: "open" | "closing" | "closed" = "open";

  constructor(
    target: StdioTarget,
    redactor: Redactor,
    child: ChildProcess,
    events: TransportEvents,
  ) {
    this.#server = target.server;
    this.#child = child;
    this.#events = events;
    this.#serverLog = new ServerLog(redactor, (level, source, text) => {
      if (this.#phase !== "closed") events.log(level, source, text);
    });
    const stdoutEnded = streamEnd(child.stdout);
    let resolveStdinBroken = (): void => {};
    const stdinBroken = new Promise<void>((resolve) => (resolveStdinBroken = resolve));
    this.#outputsEnded = Promise.all([stdoutEnded, streamEnd(child.stderr)]);
    inputOfChild(child.stderr).read(
      (chunk) => this.#serverLog.stderr(chunk),
      () => {},
    );
    const output = outputOfChild(child.stdin, () => resolveStdinBroken());
    this.#pipe = new Pipe(inputOfChild(child.stdout), output, target.maxMessage, {
      message: (message) => {
        if (message.kind === "invalid") {
          const text = this.#serverLog.strayOutput(message);
          if (this.#phase !== "closed") events.flaw?.({ kind: "strayOutput", text });
        } else if (this.#phase === "open") {
          events.frame(message);
        }
      },
      repaired: () => {
        if (this.#phase === "open") events.flaw?.({ kind: "invalidText" });
      },
      oversized: (head, tail, size) => {
        if (this.#phase === "open") events.oversized(head, tail, size);
      },
      backpressure: (isFull) => {
        if (this.#phase === "open") events.pressure(isFull);
      },
      ended: () => {},
    });
    void this.#watchExit(stdoutEnded, stdinBroken);
  }

  get queued(): number {
    return this.#phase === "open" ? this.#pipe.queued : 0;
  }

  send(message: EncodedMessage): void {
    if (this.#phase === "open") this.#pipe.send(message);
  }

  pause(): void {
    if (this.#phase === "open") this.#pipe.pause();
  }

  resume(): void {
    this.#pipe.resume();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#child.processStats();
  }

  async close(): Promise<void> {
    if (this.#phase === "open") this.#phase = "closing";
    // The child may never read the rest of its input; the time until it is killed is bounded all the same.
    void this.#pipe.end();
    // A child that is blocked in a write cannot see the end of its input.
    this.#pipe.resume();
    await this.#child.stop();
    await settlesWithin(DRAIN_GRACE, this.#outputsEnded);
    this.#setClosed("was stopped");
  }

  /** Handles the exit of a child that was not told to stop. */
  async #watchExit(stdoutEnded: Promise<unknown>, stdinBroken: Promise<unknown>): Promise<void> {
    const { exited } = this.#child;
    const first = await Promise.race([
      exited.then(() => "exit"),
      stdoutEnded.then(() => "output"),
      stdinBroken.then(() => "input"),
    ]);
    // The pipes of a dying child close shortly before it exits.
    if (first !== "exit") await settlesWithin(DRAIN_GRACE, exited);
    if (this.#phase !== "open") return;
    const { exit } = this.#child;
    if (exit === undefined) {
      this.#setClosed(`closed its ${first}, but went on running`);
      await this.#child.stop();
      return;
    }
    const terminated = this.#child.terminate();
    // Resumed, so that nothing stays behind a pause: the owner learns of the exit after the last message.
    this.#pipe.resume();
    await settlesWithin(DRAIN_GRACE, this.#outputsEnded);
    this.#setClosed(describeExit(exit));
    await terminated;
  }

  #setClosed(what: string): void {
    if (this.#phase === "closed") return;
    this.#serverLog.end();
    this.#phase = "closed";
    const { stdin, stdout, stderr } = this.#child;
    for (const stream of [stdin, stdout, stderr]) stream.destroy();
    const details = { server: this.#server, stderr: this.#serverLog.tail(STDERR_LINES_IN_ERROR) };
    const text = `Server "${this.#server}" ${what}.`;
    this.#events.closed(new HubError("connectionLost", text, details));
  }
}

function describeExit(exit: ExitStatus): string {
  return "code" in exit ? `exited with code ${exit.code}` : `was killed by signal ${exit.signal}`;
}
