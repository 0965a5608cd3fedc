import { HubError } from "../base/errors.ts";
import type { Child, Exit } from "../process/child-process.ts";
import { DRAIN_GRACE, within } from "../base/grace.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import { launch, type StdioTarget } from "./launch.ts";
import type { DiscreetLink, Exchange, Link, LinkEvents, Vitals } from "./transport.ts";
import { PIPE_EXCHANGE } from "./memory.ts";
import { Noise } from "./server-log.ts";
import { Pipe } from "../jsonrpc/pipe.ts";
import { Redactor } from "./redact.ts";
import { endOf, sinkOf, sourceOf } from "../process/child-streams.ts";

export type { StdioTarget } from "./launch.ts";

/** How many of the last stderr lines an error includes. */
const TAIL_LINES = 10;

/** The stdio transport (MCP, Transports, stdio) to a child process: one message per line of its stdin and stdout. */
export function stdioLink(target: StdioTarget): DiscreetLink {
  return new StdioLink(target);
}

class StdioLink implements Link {
  readonly #target: StdioTarget;
  readonly #redactor: Redactor;
  /** Aborted by a `close` before `open` has finished. */
  readonly #gaveUp = new AbortController();
  #opening: Promise<Conversation> | undefined;
  #conversation: Conversation | undefined;
  #closing: Promise<void> | undefined;

  constructor(target: StdioTarget) {
    this.#target = target;
    this.#redactor = new Redactor(target.secrets);
  }

  redact(text: string): string {
    return this.#redactor.apply(text);
  }

  async open(events: LinkEvents, signal: AbortSignal): Promise<void> {
    if (this.#opening !== undefined) throw new HubError("internal", "A link is opened only once.");
    this.#opening = this.#start(events, AbortSignal.any([signal, this.#gaveUp.signal]));
    this.#conversation = await this.#opening;
  }

  async #start(events: LinkEvents, signal: AbortSignal): Promise<Conversation> {
    const redactor = this.#redactor;
    const child = await launch(this.#target, redactor, signal);
    return new Conversation(this.#target, redactor, child, events);
  }

  get queued(): number {
    return this.#conversation?.queued ?? 0;
  }

  send(message: EncodedMessage): Exchange {
    this.#conversation?.send(message);
    return PIPE_EXCHANGE;
  }

  pause(): void {
    this.#conversation?.pause();
  }

  resume(): void {
    this.#conversation?.resume();
  }

  vitals(): Promise<Vitals | undefined> {
    return this.#conversation?.vitals() ?? Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#closing ??= this.#conversation?.close() ?? this.#giveUp();
    return this.#closing;
  }

  async #giveUp(): Promise<void> {
    this.#gaveUp.abort();
    const conversation = await this.#opening?.catch(() => undefined);
    await conversation?.close();
  }
}

/** The streams of a running child, until it exits or is stopped. */
class Conversation {
  readonly #server: string;
  readonly #child: Child;
  readonly #events: LinkEvents;
  readonly #noise: Noise;
  readonly #pipe: Pipe;
  /** Settles when stdout and stderr have ended. */
  readonly #silent: Promise<unknown>;
  #phase: "open" | "closing" | "closed" = "open";

  constructor(target: StdioTarget, redactor: Redactor, child: Child, events: LinkEvents) {
    this.#server = target.server;
    this.#child = child;
    this.#events = events;
    this.#noise = new Noise(redactor, (level, source, text) => {
      if (this.#phase !== "closed") events.log(level, source, text);
    });
    const mute = endOf(child.stdout);
    let tellDeaf = (): void => {};
    const deaf = new Promise<void>((resolve) => (tellDeaf = resolve));
    this.#silent = Promise.all([mute, endOf(child.stderr)]);
    sourceOf(child.stderr).read(
      (chunk) => this.#noise.stderr(chunk),
      () => {},
    );
    const sink = sinkOf(child.stdin, () => tellDeaf());
    this.#pipe = new Pipe(sourceOf(child.stdout), sink, target.maxMessage, {
      frame: (frame) => {
        if (frame.kind === "invalid") {
          const text = this.#noise.stray(frame);
          if (this.#phase !== "closed") events.flaw?.({ kind: "strayOutput", text });
        } else if (this.#phase === "open") {
          events.frame(frame);
        }
      },
      replaced: () => {
        if (this.#phase === "open") events.flaw?.({ kind: "invalidText" });
      },
      oversized: (head, tail, size) => {
        if (this.#phase === "open") events.oversized(head, tail, size);
      },
      pressure: (full) => {
        if (this.#phase === "open") events.pressure(full);
      },
      ended: () => {},
    });
    void this.#follow(mute, deaf);
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

  vitals(): Promise<Vitals | undefined> {
    return this.#child.vitals();
  }

  async close(): Promise<void> {
    if (this.#phase === "open") this.#phase = "closing";
    // The child may never read the rest of its input; the time until it is killed is bounded all the same.
    void this.#pipe.end();
    // A child that is blocked in a write cannot see the end of its input.
    this.#pipe.resume();
    await this.#child.stop();
    await within(DRAIN_GRACE, this.#silent);
    this.#finish("was stopped");
  }

  /** Handles the exit of a child that was not told to stop. */
  async #follow(mute: Promise<unknown>, deaf: Promise<unknown>): Promise<void> {
    const { exited } = this.#child;
    const first = await Promise.race([
      exited.then(() => "exit"),
      mute.then(() => "output"),
      deaf.then(() => "input"),
    ]);
    // The pipes of a dying child close shortly before it exits.
    if (first !== "exit") await within(DRAIN_GRACE, exited);
    if (this.#phase !== "open") return;
    const { exit } = this.#child;
    if (exit === undefined) {
      this.#finish(`closed its ${first}, but went on running`);
      await this.#child.stop();
      return;
    }
    const swept = this.#child.sweep();
    // Resumed, so that nothing stays behind a pause: the owner learns of the exit after the last message.
    this.#pipe.resume();
    await within(DRAIN_GRACE, this.#silent);
    this.#finish(describe(exit));
    await swept;
  }

  #finish(what: string): void {
    if (this.#phase === "closed") return;
    this.#noise.end();
    this.#phase = "closed";
    const { stdin, stdout, stderr } = this.#child;
    for (const stream of [stdin, stdout, stderr]) stream.destroy();
    const details = { server: this.#server, stderr: this.#noise.tail(TAIL_LINES) };
    const text = `Server "${this.#server}" ${what}.`;
    this.#events.closed(new HubError("connectionLost", text, details));
  }
}

function describe(exit: Exit): string {
  return "code" in exit ? `exited with code ${exit.code}` : `was killed by signal ${exit.signal}`;
}
