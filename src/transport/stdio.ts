import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { PIPE_DRAIN_GRACE } from "../base/grace-periods.ts";
import { settlesWithin } from "../base/clock.ts";
import { type ErrorCode, HubError, describeFault } from "../base/errors.ts";
import type { EncodedMessage, InvalidMessage } from "../jsonrpc/message.ts";
import { findResponseId } from "../jsonrpc/parse.ts";
import { Pipe } from "../jsonrpc/pipe.ts";
import {
  childEnvironment,
  type ChildProcess,
  type EnvironmentVariables,
  type ProcessStats,
  spawnChild,
} from "../process/child-process.ts";
import { ReadShare, shareTurns } from "../base/peer-reader.ts";
import { newOwnerTag, ownerVariableOf } from "../process/orphans.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import {
  type CommandQuery,
  extraPathOf,
  resolveCommand,
  type ResolvedCommand,
  searchedPathOf,
} from "../process/path-lookup.ts";
import { OWNER_VARIABLE } from "../process/process-table.ts";
import type { ExitStatus } from "../process/started-process.ts";
import { Redactor } from "./redact.ts";
import { ServerLog } from "./server-log.ts";
import { describeWithStderr, lastLinesWithError } from "./stderr-error.ts";
import {
  NO_OP_SENT_REQUEST,
  type SentRequest,
  type ServerTransport,
  type TransportEvents,
  type Transport,
} from "./transport.ts";

/** A server that is started as a child process: its command, environment and limits. */
export interface StdioTarget {
  readonly server: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Other commands, in order of preference. If `command` is not found, the first of them that is found is started. */
  readonly alternatives?: readonly Pick<StdioTarget, "command" | "args">[] | undefined;
  /** The variables from the manifest: those of `env` and `inheritEnv`. */
  readonly env: EnvironmentVariables;
  /** The hub's own environment. The server gets only those of its variables that are safe to pass on. */
  readonly hubEnv: EnvironmentVariables;
  /** The folders in which commands are looked up after those of the hub's PATH, joined as in PATH; undefined: none. */
  readonly morePath?: string | undefined;
  /** The working directory of the server; undefined: the hub's own. */
  readonly cwd: string | undefined;
  /** Maximum size of a message, in bytes. */
  readonly maxMessage: number;
  /** Values that no log line and no error may contain. */
  readonly secrets: readonly string[];
}

/**
 * Starts a server's process. If it throws, no process is left running.
 * @throws {HubError} commandNotFound, notExecutable, spawnFailed, cancelled, or the signal's reason if that is a
 * HubError
 */
export async function startServerProcess(
  target: StdioTarget,
  redactor: Redactor,
  signal: AbortSignal,
  onSearchedPath: (path: string) => void = () => {},
): Promise<ChildProcess> {
  try {
    signal.throwIfAborted();
    const child = await spawnServer(target, signal);
    if (!signal.aborted) return child;
    child.killNow();
    await child.terminate();
  } catch (error) {
    const path = searchedPathOf(error);
    if (path !== undefined) onSearchedPath(path);
    if (!signal.aborted) throw spawnErrorOf(error, target, redactor);
  }
  const reason: unknown = signal.reason;
  if (reason instanceof HubError) throw reason;
  const { server } = target;
  throw new HubError("cancelled", `The start of server "${server}" was cancelled.`, { server });
}

async function spawnServer(target: StdioTarget, signal: AbortSignal): Promise<ChildProcess> {
  const { server, hubEnv } = target;
  const tag = await newOwnerTag();
  const ownerTags = ownerVariableOf(tag, hubEnv[OWNER_VARIABLE]);
  const env = childEnvironment(hubEnv, target.env, {
    [OWNER_VARIABLE]: ownerTags,
    [HUBS_VARIABLE]: hubEnv[HUBS_VARIABLE],
  });
  const cwd = resolve(target.cwd ?? ".");
  if (target.cwd !== undefined) await checkWorkingDirectory(server, cwd);
  const query = {
    server,
    cwd,
    path: env.PATH,
    extraPath: () => Promise.race([extraPathOf(hubEnv, tag, target.morePath), whenAborted(signal)]),
  };
  const { args, ...resolved } = await resolveFirstCommand(target, query);
  signal.throwIfAborted();
  // If the hub has added folders to PATH to find the command, the programs that the command starts need them, too.
  if (env.PATH !== undefined) env.PATH = resolved.path;
  return spawnChild({ file: resolved.file, args, env, cwd, tag });
}

/**
 * Returns the command if it exists, else the first of its alternatives that exists.
 * @throws {HubError} commandNotFound, notExecutable
 */
export async function resolveFirstCommand(
  {
    server,
    command,
    args,
    alternatives = [],
  }: Pick<StdioTarget, "server" | "command" | "args" | "alternatives">,
  query: Omit<CommandQuery, "command">,
): Promise<ResolvedCommand & Pick<StdioTarget, "args">> {
  const choices = [{ command, args }, ...alternatives];
  let cause: unknown;
  for (const choice of choices) {
    try {
      return {
        ...(await resolveCommand({ ...query, command: choice.command })),
        args: choice.args,
      };
    } catch (error) {
      const isNotFound = error instanceof HubError && error.code === "commandNotFound";
      if (!isNotFound || alternatives.length === 0) throw error;
      cause = error.cause;
    }
  }
  const names = new Intl.ListFormat("en", { type: "disjunction" }).format(
    choices.map((choice) => choice.command),
  );
  const text = `Server "${server}" needs ${names}: none of them is installed, or in PATH (--log-level debug shows PATH).`;
  throw new HubError("commandNotFound", text, { server, step: "spawn", cause });
}

/** Rejects a missing working directory before the spawn, which would report ENOENT, as for a missing command. */
async function checkWorkingDirectory(server: string, cwd: string): Promise<void> {
  const isDirectory = await stat(cwd).then(
    (stats) => stats.isDirectory(),
    () => undefined,
  );
  if (isDirectory === true) return;
  const problem = isDirectory === undefined ? "does not exist" : "is not a directory";
  throw new HubError(
    "spawnFailed",
    `The working directory of server "${server}" ${problem}: ${cwd}`,
  );
}

function whenAborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((settle) => {
    signal.addEventListener("abort", () => settle(undefined), { once: true });
  });
}

function spawnErrorOf(error: unknown, target: StdioTarget, redactor: Redactor): HubError {
  const [code, text, hint] =
    error instanceof HubError ? [error.code, error.message] : describeSystemError(error, target);
  const details = { server: target.server, step: "spawn", hint } as const;
  return new HubError(code, redactor.apply(text), details);
}

/** Describes why a spawn failed although the command is executable and the working directory exists. */
function describeSystemError(
  error: unknown,
  { server, command }: StdioTarget,
): [code: ErrorCode, text: string, hint?: string] {
  const code = (error as NodeJS.ErrnoException).code ?? String(error);
  const subject = `Command "${command}" of server "${server}" cannot be run:`;
  switch (code) {
    case "ENOENT":
      return [
        "notExecutable",
        `${subject} the interpreter in its first line does not exist.`,
        "Install the program that its first line (#!) names, or correct that line; a carriage return at its end counts as part of the name.",
      ];
    case "ENOEXEC":
      return [
        "notExecutable",
        `${subject} it is not a program for this system (ENOEXEC).`,
        "If it is a program, get the one for this operating system and processor; if it is a script, it must be UTF-8 text, and an interpreter line (#!) must be its first two bytes.",
      ];
    case "EACCES":
      return ["notExecutable", `${subject} permission denied (EACCES).`];
    case "E2BIG":
      return ["notExecutable", `${subject} its arguments and environment are too long (E2BIG).`];
    default:
      return ["spawnFailed", `${subject} ${code}.`];
  }
}

const STDERR_LINES_IN_ERROR = 10;
/** Number of the last lines of stderr among which the error is searched that the server names. */
const SEARCHED_STDERR_LINES = 60;

/** The stdio transport (MCP, Transports, stdio) to a child process: one message per line of its stdin and stdout. */
export function openStdioTransport(target: StdioTarget): ServerTransport {
  return new StdioTransport(target);
}

class StdioTransport implements Transport {
  readonly kind = "stdio";
  readonly #target: StdioTarget;
  readonly #redactor: Redactor;
  /** Aborted when `close` is called before `open` has completed. */
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
    if (this.#opening !== undefined)
      throw new HubError("internal", "A transport is opened only once.");
    this.#opening = this.#start(events, AbortSignal.any([signal, this.#openAborted.signal]));
    this.#channel = await this.#opening;
  }

  async #start(events: TransportEvents, signal: AbortSignal): Promise<StdioChannel> {
    const redactor = this.#redactor;
    const child = await startServerProcess(this.#target, redactor, signal, (path) =>
      events.log("debug", "hub", redactor.apply(`PATH is ${path}`)),
    );
    return new StdioChannel(this.#target, redactor, child, events);
  }

  get queued(): number {
    return this.#channel?.queued ?? 0;
  }

  send(message: EncodedMessage): SentRequest {
    this.#channel?.send(message);
    return NO_OP_SENT_REQUEST;
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
    // Output that was read may still wait for its turn when the stream itself has ended.
    const stdoutHandled = Promise.withResolvers<void>();
    const stderrHandled = Promise.withResolvers<void>();
    this.#outputsEnded = Promise.all([stdoutHandled.promise, stderrHandled.promise]);
    const share = new ReadShare();
    shareTurns(child.stderr, share).read((chunk) => {
      try {
        this.#serverLog.stderr(chunk);
      } catch (error) {
        void this.#fail(error);
      }
    }, stderrHandled.resolve);
    this.#pipe = new Pipe(shareTurns(child.stdout, share), child.stdin, target.maxMessage, {
      message: (message) => {
        if (message.kind === "invalid") {
          this.#onStrayOutput(message);
          // A line that is meant to be a response ends its request: no other answer will come.
          if (this.#phase === "open" && findResponseId(message) !== undefined)
            events.message(message);
        } else if (this.#phase === "open") {
          events.message(message);
        }
      },
      // The process has ended, or ends: that is why what it has not answered fails.
      cutOff: (line) => this.#onStrayOutput(line),
      repaired: () => {
        if (this.#phase === "open") events.malformedOutput?.({ kind: "invalidText" });
      },
      oversized: (head, tail, size) => {
        if (this.#phase === "open") events.oversized(head, tail, size);
      },
      backpressure: (isFull) => {
        if (this.#phase === "open") events.pressure(isFull);
      },
      ended: stdoutHandled.resolve,
      failed: (error) => {
        stdoutHandled.resolve();
        void this.#fail(error);
      },
    });
    void this.#watchExit();
  }

  #onStrayOutput(line: InvalidMessage): void {
    const text = this.#serverLog.strayOutput(line);
    if (this.#phase !== "closed") this.#events.malformedOutput?.({ kind: "strayOutput", text });
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
    // Not awaited, because the child may never read the rest of its input. `stop` kills it after a limited time anyway.
    void this.#pipe.end();
    // Reading continues, because a child that is blocked in a write to stdout does not notice the end of its stdin.
    this.#pipe.resume();
    await this.#child.stop();
    await settlesWithin(PIPE_DRAIN_GRACE, this.#outputsEnded);
    this.#setClosed("was stopped");
  }

  /** Ends the connection after an exception in the handling of a message. */
  async #fail(error: unknown): Promise<void> {
    if (this.#phase !== "open") return;
    const fault = describeFault(error);
    this.#events.log("error", "hub", `A message of the server could not be handled: ${fault}`);
    this.#setClosed("sent a message that toolmux could not handle");
    await this.#child.stop();
  }

  /** Handles the exit of a child that was not told to stop. */
  async #watchExit(): Promise<void> {
    const { exited, stdin, stdout } = this.#child;
    const first = await Promise.race([
      exited.then(() => "exit"),
      stdout.ended.then(() => "output"),
      stdin.broken.then(() => "input"),
    ]);
    // When a child exits, its pipes close shortly before the exit is reported: wait for the exit status.
    if (first !== "exit") await settlesWithin(PIPE_DRAIN_GRACE, exited);
    if (this.#phase !== "open") return;
    const { exit } = this.#child;
    if (exit === undefined) {
      this.#setClosed(`closed its ${first === "input" ? "stdin" : "stdout"} but did not exit`);
      await this.#child.stop();
      return;
    }
    const terminated = this.#child.terminate();
    // The pipe is resumed, so that all messages of the child arrive before the transport's owner learns of the exit.
    this.#pipe.resume();
    await settlesWithin(PIPE_DRAIN_GRACE, this.#outputsEnded);
    this.#setClosed(describeExit(exit));
    await terminated;
  }

  #setClosed(what: string): void {
    if (this.#phase === "closed") return;
    this.#serverLog.end();
    this.#phase = "closed";
    this.#child.closePipes();
    const lines = this.#serverLog.tail(SEARCHED_STDERR_LINES);
    const stderr = lastLinesWithError(lines, STDERR_LINES_IN_ERROR);
    const text = describeWithStderr(`Server "${this.#server}" ${what}.`, lines);
    this.#events.closed(new HubError("connectionLost", text, { server: this.#server, stderr }));
  }
}

function describeExit(exit: ExitStatus): string {
  return "code" in exit ? `exited with code ${exit.code}` : `was killed by signal ${exit.signal}`;
}
