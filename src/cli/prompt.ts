import process from "node:process";
import { abortable } from "../base/clock.ts";
import { deferred } from "../base/deferred.ts";
import { HubError } from "../base/errors.ts";
import { sanitizeLine } from "../terminal/log.ts";
import { usageError } from "./args.ts";

/** Terminal escape sequences: keys other than characters, and bracketed paste. */
// oxlint-disable-next-line no-control-regex
const ESCAPE_SEQUENCES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?/g;
/** Time for which the remaining lines of a pasted text are read, in ms, so that the shell does not run them. */
const PASTE_TIME = 50;

/** Whether the user can be asked: stdin is a terminal. */
export function canAsk(): boolean {
  return process.stdin.isTTY;
}

/**
 * Reads one line without echo. The terminal's mode is always restored.
 * @throws {HubError} cancelled by Ctrl-C, Ctrl-D or the signal; usage if several lines are pasted
 */
export async function askHidden(question: string, signal: AbortSignal): Promise<string> {
  const { stdin, stderr } = process;
  const restore = (): void => void stdin.setRawMode(false);
  let onChunk = (_chunk: string): void => {};
  const onData = (chunk: string | Uint8Array): void => onChunk(String(chunk));
  process.once("exit", restore);
  stdin.setRawMode(true);
  stdin.setEncoding("utf8");
  stdin.on("data", onData);
  stdin.resume();
  stderr.write(question);
  try {
    const { value, rest } = await readLine((next) => (onChunk = next), signal);
    let surplus = rest;
    onChunk = (chunk) => (surplus += chunk);
    await new Promise((resolve) => setTimeout(resolve, PASTE_TIME));
    if (surplus.trim() === "") return value;
    throw usageError(
      "A value of several lines cannot be typed: pipe it in, as in toolmux secret set NAME < FILE.",
    );
  } finally {
    stdin.off("data", onData);
    restore();
    process.off("exit", restore);
    stdin.pause();
    stderr.write("\n");
  }
}

/** Reads typed keys until the end of a line. @param setReceiver registers the function that gets the typed text */
function readLine(
  setReceiver: (onChunk: (chunk: string) => void) => void,
  signal: AbortSignal,
): Promise<{ readonly value: string; readonly rest: string }> {
  return new Promise((resolve, reject) => {
    let typed: string[] = [];
    const cancel = (): void => reject(new HubError("cancelled", "Interrupted."));
    signal.addEventListener("abort", cancel, { once: true });
    if (signal.aborted) cancel();
    setReceiver((chunk) => {
      const keys = Array.from(chunk.replace(ESCAPE_SEQUENCES, ""));
      for (const [at, key] of keys.entries()) {
        if (key === "\r" || key === "\n") {
          signal.removeEventListener("abort", cancel);
          resolve({ value: typed.join(""), rest: keys.slice(at + 1).join("") });
          return;
        }
        if (key === "\u0003" || (key === "\u0004" && typed.length === 0)) cancel();
        else if (key === "\u007f" || key === "\b") typed.pop();
        else if (key === "\u0015") typed = [];
        else if (key === "\t" || key >= " ") typed.push(key);
      }
    });
  });
}

/** Options of one question. */
export interface AskOptions {
  /** Withdraws the question when it is aborted. */
  readonly signal?: AbortSignal;
  /** Whether lines that were typed before the question was asked are dropped. */
  readonly dropsTyped?: boolean;
  /** Whether the end of the input is an error (`cancelled`) instead of an empty line. */
  readonly failsAtEnd?: boolean;
}

/**
 * Asks a question on the terminal.
 * @returns the line that the user typed; empty if the input has ended
 * @throws the reason of a signal; {HubError} cancelled, see `failsAtEnd`
 */
export type AskLine = (question: string, options?: AskOptions) => Promise<string>;

/** Whether questions can be asked on the terminal: it is stdin and stderr. */
export function hasTerminal(): boolean {
  return process.stdin.isTTY && process.stderr.isTTY;
}

/**
 * Passes `use` a function that asks questions on the terminal, one after the other. Returns undefined without a
 * terminal.
 * @throws the signal's reason
 */
export async function withPrompt<T>(
  signal: AbortSignal,
  use: (ask: AskLine) => Promise<T>,
): Promise<T | undefined> {
  const { stdin, stderr } = process;
  if (!hasTerminal()) return undefined;
  const { createInterface } = await import("node:readline");
  // The terminal is not in raw mode, so Ctrl-C sends SIGINT to the process as usual.
  const lines = createInterface({ input: stdin, output: stderr, terminal: false });
  // Lines that were typed and are not yet used as an answer; the user may type before a question is asked.
  const typed: string[] = [];
  let isEnded = false;
  let changed = deferred();
  const notify = (): void => {
    changed.resolve();
    changed = deferred();
  };
  lines.on("line", (line) => {
    typed.push(line);
    notify();
  });
  lines.once("close", () => {
    isEnded = true;
    notify();
  });
  try {
    return await use(
      async (question, { signal: own, dropsTyped = false, failsAtEnd = false } = {}) => {
        const either = own === undefined ? signal : AbortSignal.any([signal, own]);
        if (dropsTyped) typed.length = 0;
        stderr.write(`${sanitizeLine(question)} `);
        while (typed.length === 0 && !isEnded) await abortable(changed.promise, either);
        const answer = typed.shift();
        if (answer === undefined) stderr.write("\n");
        if (answer === undefined && failsAtEnd)
          throw new HubError("cancelled", "The input has ended.");
        return answer?.trim() ?? "";
      },
    );
  } finally {
    lines.close();
  }
}

/** Whether an answer is "y" or "yes". Anything else is no. */
export function isYes(answer: string): boolean {
  return /^y(?:es)?$/i.test(answer);
}
