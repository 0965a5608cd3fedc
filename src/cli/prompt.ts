import process from "node:process";
import { abortable, sleep } from "../base/clock.ts";
import { HubError, usageError } from "../base/errors.ts";
import { sanitizeLine } from "../terminal/log.ts";
import { writeText } from "../terminal/stderr.ts";

/** Terminal escape sequences: keys other than characters, and bracketed paste. */
// oxlint-disable-next-line no-control-regex
const ESCAPE_SEQUENCES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?/g;
/** Time for which the remaining lines of a pasted text are read, in ms, so that the shell does not run them. */
const PASTE_TIME = 50;
/** A question that drops what was typed before it is shown when nothing has been typed for this time, in ms. */
const QUIET_TIME = 50;

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
  await writeText(question);
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
  /** Whether all that was typed before the question was asked is dropped, also the beginning of a line. */
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
  if (!hasTerminal()) return undefined;
  const input = new TypedLines();
  try {
    return await use((question, { signal: own, ...options } = {}) =>
      input.ask(question, {
        ...options,
        signal: own === undefined ? signal : AbortSignal.any([signal, own]),
      }),
    );
  } finally {
    input.close();
  }
}

/**
 * The lines that a person types. They are edited by the terminal itself: except for short moments it is not in raw mode,
 * so Ctrl-C sends SIGINT to the process as usual.
 */
class TypedLines {
  /** Lines that are not yet used as an answer; a person may type before a question is asked. */
  #lines: string[] = [];
  #isEnded = process.stdin.readableEnded;
  #changed = Promise.withResolvers<void>();
  /** Called with all that is typed while that is dropped; undefined at all other times. */
  #onDropped: ((text: string) => void) | undefined;
  readonly #onData = (chunk: string | Uint8Array): void => this.#read(String(chunk));
  readonly #onEnd = (): void => {
    this.#isEnded = true;
    this.#notify();
  };
  readonly #restoreMode = (): void => void process.stdin.setRawMode(false);

  constructor() {
    const { stdin } = process;
    stdin.setEncoding("utf8");
    stdin.on("data", this.#onData);
    stdin.once("end", this.#onEnd);
  }

  close(): void {
    const { stdin } = process;
    stdin.off("data", this.#onData);
    stdin.off("end", this.#onEnd);
    stdin.pause();
  }

  /** @throws the signal's reason; {HubError} cancelled, see `failsAtEnd` */
  async ask(
    question: string,
    {
      signal,
      dropsTyped = false,
      failsAtEnd = false,
    }: AskOptions & { readonly signal: AbortSignal },
  ): Promise<string> {
    const { stdin, stderr } = process;
    signal.throwIfAborted();
    if (dropsTyped && !this.#isEnded) await this.#dropTyped(signal);
    await writeText(`${sanitizeLine(question)} `);
    stdin.resume();
    try {
      while (this.#lines.length === 0 && !this.#isEnded)
        await abortable(this.#changed.promise, signal);
    } catch (error) {
      stderr.write("\n");
      throw error;
    }
    const answer = this.#lines.shift();
    if (answer === undefined) stderr.write("\n");
    if (answer === undefined && failsAtEnd) throw new HubError("cancelled", "The input has ended.");
    return answer?.trim() ?? "";
  }

  /**
   * Drops what was typed until now. The terminal keeps a line to itself until Enter is pressed; in raw mode it hands over
   * this part of a line, too.
   */
  async #dropTyped(signal: AbortSignal): Promise<void> {
    const { stdin } = process;
    process.once("exit", this.#restoreMode);
    stdin.setRawMode(true);
    let isTyping = true;
    this.#onDropped = (text) => {
      isTyping = true;
      // In raw mode, Ctrl-C is a character.
      if (text.includes("\u0003")) process.emit("SIGINT", "SIGINT");
    };
    stdin.resume();
    try {
      while (isTyping && !this.#isEnded) {
        isTyping = false;
        await abortable(sleep(QUIET_TIME), signal);
        // On a busy machine the time may be over before anything was read. An immediate runs after the next read.
        await new Promise(setImmediate);
      }
    } finally {
      this.#restoreMode();
      process.off("exit", this.#restoreMode);
      this.#onDropped = undefined;
      this.#lines = [];
    }
  }

  #read(text: string): void {
    if (this.#onDropped !== undefined) {
      this.#onDropped(text);
      return;
    }
    // The terminal hands over whole lines. A part of a line comes only from the moment at which raw mode ended, or with
    // Ctrl-D; it is no answer, and no beginning of one.
    const lines = text.split("\n");
    lines.pop();
    this.#lines.push(...lines);
    this.#notify();
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }
}

/** Whether an answer is "y" or "yes". Anything else is no. */
export function isYes(answer: string): boolean {
  return /^y(?:es)?$/i.test(answer);
}
