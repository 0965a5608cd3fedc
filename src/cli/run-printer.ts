import type { AgentEvent } from "../agent/events.ts";
import { HubError } from "../base/errors.ts";
import { formatDuration, formatSize } from "../base/format.ts";
import { sanitizeLine, sanitizeLines } from "../terminal/log.ts";
import { type StatusLine, type Terminal, truncate } from "../terminal/terminal.ts";

/** Width of the lines about tool calls if the terminal's width is unknown, in columns. */
const DEFAULT_WIDTH = 100;

/** The event that has ended a run; it determines the exit code. */
export type RunOutcome = Extract<AgentEvent, { type: "runComplete" | "error" }>;

/** The exit code of a command that ends with a run: 0, 1, 124 or 130. */
export function exitCodeOf(outcome: RunOutcome | undefined): number {
  if (outcome === undefined) return 1;
  if (outcome.type === "runComplete") {
    if (outcome.stopReason === "cancelled") return 130;
    return outcome.stopReason === "refused" ? 1 : 0;
  }
  const { exit } = new HubError(HubError.isCode(outcome.code) ? outcome.code : "internal", "")
    .properties;
  return exit === 124 || exit === 130 ? exit : 1;
}

/**
 * Prints a run while it goes on: the agent's text on stdout, and on stderr one line for each tool call, with its
 * duration, and one line for each period in which the model was thinking.
 */
export class RunPrinter {
  readonly #terminal: Terminal;
  readonly #status: StatusLine | undefined;
  /** Name of the agent whose text is printed. A transfer changes it. */
  #agent = "";
  /** Whether the last text of the agent did not end with a line break. */
  #isInLine = false;
  #thoughtSince: number | undefined;
  readonly #running = new Map<string, { readonly name: string; readonly args: string }>();
  /** Settles when all that uses the terminal so far is done. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#status = terminal.openStatusLine();
  }

  /** Settles when the text is written. */
  print(event: AgentEvent): Promise<void> {
    return this.#inTurn(() => this.#print(event));
  }

  /** Asks a person in the terminal. Until the question is answered or withdrawn, nothing else is printed. */
  ask<T>(question: () => Promise<T>): Promise<T> {
    return this.#inTurn(async () => {
      this.#pause();
      return question();
    });
  }

  #inTurn<T>(use: () => Promise<T>): Promise<T> {
    const done = this.#last.then(use, use);
    this.#last = done;
    return done;
  }

  async #print(event: AgentEvent): Promise<void> {
    if (event.type !== "thinkingDelta") this.#foldThought();
    switch (event.type) {
      case "runStarted":
        this.#agent = event.agent;
        this.#status?.show(`${event.agent} (${event.model}) …`);
        return;
      case "textDelta":
        if (event.agent === this.#agent) this.#write(event.text);
        return;
      case "thinkingDelta":
        this.#thoughtSince ??= performance.now();
        this.#status?.show("thinking …");
        return;
      case "toolCallStart": {
        const { toolCallId, toolName: name, arguments: args, agent } = event;
        this.#running.set(`${agent} ${toolCallId}`, { name, args });
        this.#endLine();
        this.#showRunning();
        return;
      }
      case "toolExecuted":
        await this.#printCall(event);
        return;
      case "transferred":
        this.#agent = event.to;
        await this.#printLine(`→ ${event.to} goes on`);
        return;
      case "usage":
        return;
      case "runComplete":
        this.#status?.clear();
        this.#endLine();
        if (event.stopReason === "length")
          this.#terminal.note("The answer was cut: the model may not write more (maxTokens).");
        if (event.stopReason === "refused") this.#terminal.note("The model refused to answer.");
        if (event.stopReason === "cancelled") this.#terminal.note("Cancelled.");
        return;
      case "error":
        this.#status?.clear();
        this.#endLine();
        this.#terminal.note(sanitizeLines(event.message));
    }
  }

  /** Clears the status line and ends the line of text, before something else is printed. */
  #pause(): void {
    this.#status?.clear();
    this.#endLine();
  }

  /** Ends the line of text that the agent has begun. */
  #endLine(): void {
    if (!this.#isInLine) return;
    this.#isInLine = false;
    this.#terminal.write("\n");
  }

  #write(text: string): void {
    if (text === "") return;
    this.#status?.clear();
    const shown = this.#terminal.stdout.isTerminal ? sanitizeLines(text) : text;
    this.#isInLine = !shown.endsWith("\n");
    this.#terminal.write(shown);
  }

  async #printCall(event: Extract<AgentEvent, { type: "toolExecuted" }>): Promise<void> {
    const { colors } = this.#terminal.stderr;
    const { agent, toolCallId, toolName, success, error, duration, size } = event;
    const key = `${agent} ${toolCallId}`;
    const args = this.#running.get(key)?.args ?? "";
    this.#running.delete(key);
    const mark = success ? colors.green("✓") : colors.red("✗");
    const who = agent === this.#agent ? "" : `${agent}: `;
    const outcome = success ? formatSize(size) : (error ?? "error");
    const end = `${formatDuration(duration)}, ${outcome}`;
    const given = args === "" || args === "{}" ? "" : ` ${sanitizeLine(args)}`;
    const { width } = this.#terminal.stderr;
    const room = (Number.isFinite(width) ? width : DEFAULT_WIDTH) - end.length - 6;
    const call = truncate(`${who}${sanitizeLine(toolName)}${given}`, Math.max(20, room));
    await this.#printLine(`${mark} ${call}  ${colors.dim(end)}`);
    this.#showRunning();
  }

  async #printLine(text: string): Promise<void> {
    this.#pause();
    this.#terminal.printStderr(`  ${text}`);
  }

  #showRunning(): void {
    const names = [...this.#running.values()].map(({ name }) => name);
    if (names.length > 0) this.#status?.show(`${names.join(", ")} …`);
  }

  #foldThought(): void {
    if (this.#thoughtSince === undefined) return;
    const duration = performance.now() - this.#thoughtSince;
    this.#thoughtSince = undefined;
    this.#status?.clear();
    const { colors } = this.#terminal.stderr;
    this.#terminal.printStderr(`  ${colors.dim(`(thought for ${formatDuration(duration)})`)}`);
  }
}
