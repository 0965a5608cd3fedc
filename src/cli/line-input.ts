import process from "node:process";
import { HubError } from "../base/errors.ts";
import { sanitizeLine } from "../terminal/log.ts";

/** One input at the prompt: a line, or the end of the input. */
export type Input = { readonly kind: "line"; readonly text: string } | { readonly kind: "end" };

/** True if stdin and stdout are terminals, so that lines can be edited and questions are seen. */
export function canEdit(): boolean {
  return process.stdin.isTTY && process.stdout.isTTY;
}

/** Reads the lines that a person types. If stdin and stdout are terminals, lines can be edited and have a history. */
export class LineInput {
  /** Called when the person presses Ctrl-C. */
  onInterrupt: (() => void) | undefined;
  readonly #lines: string[] = [];
  readonly #setPrompt: (prompt: string) => void;
  readonly #restart: () => void;
  readonly #close: () => void;
  #isEnded = false;
  #changed = Promise.withResolvers<void>();
  /** Resolves the open question with the next line, or with undefined at the end of the input. */
  #question: ((line: string | undefined) => void) | undefined;

  private constructor(
    events: {
      on(event: "line", listener: (line: string) => void): unknown;
      on(event: "close" | "SIGINT", listener: () => void): unknown;
      close(): void;
    },
    setPrompt: (prompt: string) => void,
    restart: () => void,
  ) {
    this.#setPrompt = setPrompt;
    this.#restart = restart;
    this.#close = () => events.close();
    events.on("line", (line) => {
      const question = this.#question;
      this.#question = undefined;
      if (question !== undefined) question(line);
      else this.#lines.push(line);
      this.#notify();
    });
    events.on("SIGINT", () => this.onInterrupt?.());
    events.on("close", () => {
      this.#isEnded = true;
      this.#question?.(undefined);
      this.#notify();
    });
  }

  static async open(): Promise<LineInput> {
    const { createInterface } = await import("node:readline");
    const { stdin, stdout } = process;
    const terminal = canEdit();
    const lines = createInterface({ input: stdin, ...(terminal && { output: stdout }), terminal });
    const setPrompt = (prompt: string): void => {
      if (!terminal) return;
      lines.setPrompt(prompt);
      if (prompt !== "") lines.prompt();
    };
    const restart = (): void => {
      if (!terminal) return;
      // Ctrl-U deletes everything before the cursor, Ctrl-K everything after it.
      lines.write(null, { ctrl: true, name: "u" });
      lines.write(null, { ctrl: true, name: "k" });
      lines.prompt();
    };
    return new LineInput(lines, setPrompt, restart);
  }

  /** Number of lines that were typed and not used yet. */
  get waiting(): number {
    return this.#lines.length;
  }

  /** Waits for the next line. @throws the signal's reason */
  async next(prompt: string, signal: AbortSignal): Promise<Input> {
    if (this.#lines.length === 0) this.#setPrompt(prompt);
    while (this.#lines.length === 0 && !this.#isEnded) {
      signal.throwIfAborted();
      await this.#untilChanged(signal);
    }
    this.#setPrompt("");
    const text = this.#lines.shift();
    return text === undefined ? { kind: "end" } : { kind: "line", text };
  }

  /**
   * Asks a question. The next line that is typed answers it. Lines that were typed before do not, and the beginning of a
   * line is dropped.
   * @throws the signal's reason; {HubError} notAsked at the end of the input
   */
  async ask(question: string, signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    if (this.#isEnded) throw new HubError("notAsked", "The input has ended, so nobody can answer.");
    return new Promise((resolve, reject) => {
      const withdraw = (): void => {
        this.#question = undefined;
        this.#setPrompt("");
        process.stdout.write("\n");
        this.#restart();
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", withdraw, { once: true });
      this.#question = (line) => {
        signal.removeEventListener("abort", withdraw);
        this.#setPrompt("");
        if (line === undefined)
          reject(new HubError("notAsked", "The input has ended, so nobody can answer."));
        else resolve(line);
      };
      this.#restart();
      this.#setPrompt(`${sanitizeLine(question)} `);
    });
  }

  /** Drops the line that is being typed, and shows the prompt again. */
  restart(): void {
    this.#restart();
  }

  close(): void {
    this.#close();
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  async #untilChanged(signal: AbortSignal): Promise<void> {
    const { promise } = this.#changed;
    const onAbort = (): void => this.#notify();
    signal.addEventListener("abort", onAbort, { once: true });
    await promise;
    signal.removeEventListener("abort", onAbort);
  }
}
