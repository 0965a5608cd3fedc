import { paramsOf } from "../jsonrpc/message.ts";
import type { Buffer } from "node:buffer";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import { shareTurns } from "../base/peer-reader.ts";
import { ownStdin, ownStdout } from "../base/own-streams.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { LineReader } from "../jsonrpc/line-reader.ts";
import { startProcess } from "../process/started-process.ts";
import { wallTime } from "./chaos.ts";
import { CALL_MARK } from "./load.ts";

export interface StdioProxyOptions {
  /**
   * The folder for the proxy's report: a file whose name is the proxy's pid, with a line `<CALL_MARK value> <time>` for
   * each cancellation.
   */
  readonly folder: string;
  /** Delay added to the server's output, in ms. */
  readonly delay: number;
  readonly command: string;
  readonly args: readonly string[];
}

/** Size in bytes above which a message is forwarded without parsing: no cancellation is that long. */
const MAX_MESSAGE = 64 * 1024 * 1024;
/** Maximum number of calls that are remembered to recognize their cancellations. */
const MAX_MARKS = 65_536;
const QUOTED_MARK = `"${CALL_MARK}"`;

/**
 * Starts a server and forwards bytes between it and its client. Delays the server's output, and reports each
 * cancellation that arrives. The proxy and the server are in one process group.
 * @returns the server's exit code
 */
export async function runStdioProxy({
  folder,
  delay,
  command,
  args,
}: StdioProxyOptions): Promise<number> {
  const file = join(folder, String(process.pid));
  writeFileSync(file, "", { mode: 0o600 });
  const options = { env: undefined, cwd: undefined, isDetached: false, stderr: "inherit" } as const;
  const child = await startProcess({ file: command, args, ...options }).catch(() => {
    throw new HubError("spawnFailed", `${command} cannot be run.`);
  });
  const observer = new CancelObserver((mark, time) => appendFileSync(file, `${mark} ${time}\n`));
  const reader = new LineReader(MAX_MESSAGE, {
    line: (line) => observer.onLine(line),
    longLine: () => {},
    oversized: () => {},
  });
  const input = ownStdin();
  const toServer = child.stdin;
  input.read(
    (chunk) => {
      // Parse the chunk before it is forwarded, so that the reported time of a cancellation is that of its arrival
      // here.
      reader.push(chunk);
      const drained = toServer.write(chunk);
      if (drained === undefined) return;
      input.pause();
      void drained.then(() => input.resume());
    },
    () => toServer.end(),
  );
  const output = ownStdout(() => child.stdin.destroy());
  const source = shareTurns(child.stdout);
  const write = (chunk: Buffer): void => {
    const drained = output.write(chunk);
    if (drained === undefined) return;
    source.pause();
    void drained.then(() => source.resume());
  };
  // Timers of equal length fire in order, so the chunks stay in order.
  source.read(
    (chunk) => void (delay > 0 ? setTimeout(write, delay, chunk) : write(chunk)),
    () => {},
  );
  const exit = await child.exited;
  await child.stdout.ended;
  if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay));
  return "code" in exit ? exit.code : 128;
}

/** Observes the client's messages: remembers calls with a `CALL_MARK`, and reports their cancellations. */
class CancelObserver {
  readonly #report: (mark: number, time: number) => void;
  readonly #marks = new Map<string | number, number>();

  constructor(report: (mark: number, time: number) => void) {
    this.#report = report;
  }

  onLine(line: Buffer): void {
    if (line.includes(QUOTED_MARK)) this.#rememberCall(line);
    else if (line.includes(Method.cancelled)) this.#reportCancel(line, wallTime());
  }

  #rememberCall(line: Buffer): void {
    const message = parseMessage(line);
    if (message.kind !== "request") return;
    const mark = paramsOf(message).object("_meta").value(CALL_MARK);
    if (mark === undefined) return;
    this.#marks.set(message.id.key, Number(mark));
    if (this.#marks.size <= MAX_MARKS) return;
    for (const oldest of this.#marks.keys()) {
      this.#marks.delete(oldest);
      break;
    }
  }

  #reportCancel(line: Buffer, time: number): void {
    const message = parseMessage(line);
    if (message.kind !== "notification" || message.method !== Method.cancelled) return;
    const id = paramsOf(message).value("requestId") as string | number | undefined;
    const mark = this.#marks.get(id ?? "");
    if (mark !== undefined) this.#report(mark, time);
  }
}
