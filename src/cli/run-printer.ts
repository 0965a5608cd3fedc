import { Buffer } from "node:buffer";
import type { AgentEvent } from "../agent/events.ts";
import type { ModelContent, ModelToolCall } from "../agent/model.ts";
import type { ToolResult } from "../agent/toolbox.ts";
import { HubError } from "../base/errors.ts";
import { count, formatDuration, formatSize } from "../base/format.ts";
import { errorOf, isDown } from "../control/hub-reader.ts";
import type { ServerDocument } from "../control/schemas.ts";
import { escapeLines, sanitizeLine, sanitizeLines } from "../terminal/log.ts";
import { type StatusLine, type Terminal, truncate } from "../terminal/terminal.ts";

/** A thought that took less time than this, in ms, is told without its time. */
const MIN_THOUGHT = 100;

/** Width of the lines about tool calls if the terminal's width is unknown, in columns. */
const DEFAULT_WIDTH = 100;

function finiteWidth(width: number): number {
  return Number.isFinite(width) ? width : DEFAULT_WIDTH;
}

/** Maximum size of a result that is kept to be shown, in bytes, and of all that are kept. */
const MAX_RESULT = 1024 * 1024;
const MAX_RESULTS = 32 * MAX_RESULT;
/** Number of lines of a result that are shown below its call. */
const SHOWN_LINES = 3;

/** The text of content, for a person: a picture is its type and size. */
export function describeContent(content: readonly ModelContent[]): string {
  return content
    .map((part) => {
      if (part.type === "text") return part.text;
      return `[picture, ${part.mimeType}, ${formatSize(Math.floor((part.data.length * 3) / 4))}]`;
    })
    .join("\n");
}

/** A result of a tool, as a person sees it. */
export interface KeptResult {
  /** From 1, in the order in which the calls ended. */
  readonly number: number;
  readonly toolCallId: string;
  readonly toolName: string;
  /** Undefined if it is not kept any more. */
  text: string | undefined;
}

/** The results of a conversation's tool calls. Large ones are cut, and the oldest are dropped above a total size. */
export class ToolResults {
  #kept: KeptResult[] = [];
  #size = 0;

  add({ id: toolCallId, name: toolName }: ModelToolCall, { content, size }: ToolResult): void {
    const whole = describeContent(content);
    const bytes = Buffer.from(whole);
    const isCut = bytes.length > MAX_RESULT;
    const note = `\n[cut: the result has ${formatSize(size)}, of which ${formatSize(MAX_RESULT)} are shown]`;
    // A character that is cut in the middle is left out.
    const start = isCut
      ? bytes
          .subarray(0, MAX_RESULT)
          .toString()
          .replace(/\uFFFD$/, "")
      : whole;
    const text = isCut ? `${start}${note}` : whole;
    this.#kept.push({ number: this.#kept.length + 1, toolCallId, toolName, text });
    this.#size += text.length;
    for (const kept of this.#kept) {
      if (this.#size <= MAX_RESULTS) break;
      this.#size -= kept.text?.length ?? 0;
      kept.text = undefined;
    }
  }

  /**
   * Finds the result of a call. Ids may occur again in later runs: the first result is found that is not among those
   * that were found before.
   * @param taken those, to which the result is added
   */
  take(toolCallId: string, toolName: string, taken: Set<KeptResult>): KeptResult | undefined {
    const result = this.#kept.find(
      (kept) => kept.toolCallId === toolCallId && kept.toolName === toolName && !taken.has(kept),
    );
    if (result !== undefined) taken.add(result);
    return result;
  }

  get all(): readonly KeptResult[] {
    return this.#kept;
  }

  clear(): void {
    this.#kept = [];
    this.#size = 0;
  }
}

/**
 * One line about a server whose tools an agent may use: name, command, cause, remedy. Undefined if it is up, waits for
 * a call, is switched off by the manifest, or is starting while its tools are known.
 */
export function describeUnavailable(server: ServerDocument): string | undefined {
  const { name, state, endpoint, tools } = server;
  const isFine =
    state === "idle" ||
    state === "disabled" ||
    (state === "connected" && server.responsive !== false) ||
    // Its tools are known, and a call waits for its start.
    ((state === "connecting" || state === "notStarted") &&
      tools !== undefined &&
      server.lastError === undefined);
  if (isFine) return undefined;
  const command = endpoint === undefined ? "" : ` (${endpoint})`;
  return sanitizeLine(`server ${name}${command} is not up: ${describeCause(server)}`);
}

/** A server in one line, as `/servers` of a chat prints it; with its cause and remedy if it is not up. */
export function describeServerState(server: ServerDocument): string {
  const { name, shown, goal } = server;
  const isUsable = goal !== "down" && !isDown(server) && !isRetried(server);
  const tools = isUsable ? `, ${count(shown, "tool")}` : "";
  return sanitizeLine(`${name}: ${describeCause(server)}${tools}`);
}

/** Says what a server does or why it is down, and the first remedy, as sentences if there are several. */
function describeCause(server: ServerDocument): string {
  const { name, state, statusText, lastError, remedies = [] } = server;
  if (state === "stopped") return `stopped; to start it: toolmux start ${name}`;
  if (isDown(server)) return toSentences([errorOf(server).message, ...remedies.slice(0, 1)]);
  if (lastError === undefined || !isRetried(server)) return statusText;
  return toSentences([statusText, lastError.message, ...remedies.slice(0, 1)]);
}

/** Whether its start has failed before and it is started again. */
function isRetried({ state, goal, lastError }: ServerDocument): boolean {
  const isStarting = state === "connecting" || (state === "stopping" && goal !== "down");
  return isStarting && lastError !== undefined;
}

function toSentences(texts: readonly string[]): string {
  return texts.map((text) => (/[.!?]$/.test(text) ? text : `${text}.`)).join(" ");
}

/** Settings for the output of a printer of runs besides answers. */
export interface RunPrinterOptions {
  /** Only the answers, questions and errors are printed. */
  readonly quiet: boolean;
  /** Whether a person can ask for a result by its number. */
  readonly numbered: boolean;
}

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
 * Prints a run while it goes on: the agent's text on stdout; on stderr a line for each tool call, with its duration and
 * the first lines of its result, and a line for each period in which the model was thinking.
 */
export class RunPrinter {
  readonly results = new ToolResults();
  readonly #terminal: Terminal;
  readonly #options: RunPrinterOptions;
  /** The results that were printed with their calls. */
  readonly #printed = new Set<KeptResult>();
  readonly #status: StatusLine | undefined;
  /** Name of the agent whose text is printed. A transfer changes it. */
  #agent = "";
  /** Whether the last text of the agent did not end with a line break. */
  #isInLine = false;
  #thoughtSince: number | undefined;
  readonly #running = new Map<string, { readonly name: string; readonly args: string }>();
  /** How deeply runs are nested, by their ids. */
  readonly #depths = new Map<string, number>();
  /** Settles when all that uses the terminal so far is done. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(terminal: Terminal, options: RunPrinterOptions) {
    this.#terminal = terminal;
    this.#options = options;
    this.#status = options.quiet ? undefined : terminal.openStatusLine();
  }

  /** Settles when the text is written. */
  print(event: AgentEvent): Promise<void> {
    return this.#inTurn(() => this.#print(event));
  }

  /** Prints a line for each of these servers that is not up. */
  printUnavailable(servers: readonly ServerDocument[]): Promise<void> {
    return this.#inTurn(() => {
      if (this.#options.quiet) return Promise.resolve();
      this.#pause();
      for (const server of servers) {
        const text = describeUnavailable(server);
        if (text !== undefined) this.#terminal.note(text);
      }
      return Promise.resolve();
    });
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
      case "agentStarted": {
        const depth = this.#depthOf(event.run);
        this.#depths.set(event.runId, depth + 1);
        if (!this.#options.quiet) await this.#printStart(event, depth);
        return;
      }
      case "agentEnded":
        if (!this.#options.quiet) await this.#printEnd(event, this.#depthOf(event.run));
        return;
      case "textDelta":
        if (event.run === undefined) this.#write(event.text);
        return;
      case "thinkingDelta":
        this.#thoughtSince ??= performance.now();
        this.#status?.show("thinking …");
        return;
      case "toolCallStart": {
        const { toolCallId, toolName: name, arguments: args, run } = event;
        this.#running.set(`${run ?? ""} ${toolCallId}`, { name, args });
        this.#endLine();
        this.#showRunning();
        return;
      }
      case "toolProgress":
        this.#status?.show(sanitizeLine(`${event.toolName}: ${event.message}`));
        return;
      case "toolExecuted":
        await this.#printCall(event);
        return;
      case "transferred":
        if (event.run === undefined) this.#agent = event.to;
        if (!this.#options.quiet)
          await this.#printLine(`→ ${sanitizeLine(event.to)} goes on`, this.#depthOf(event.run));
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
    const { agent, toolCallId, toolName, success, error, duration, size, run } = event;
    const key = `${run ?? ""} ${toolCallId}`;
    const args = this.#running.get(key)?.args ?? "";
    this.#running.delete(key);
    const result = this.results.take(toolCallId, toolName, this.#printed);
    if (this.#options.quiet) return;
    const mark = success ? colors.green("✓") : colors.red("✗");
    const who = agent === this.#agent ? "" : `${agent}: `;
    const outcome = success ? formatSize(size) : (error ?? "error");
    const end = `${formatDuration(duration)}, ${outcome}`;
    const given = args === "" || args === "{}" ? "" : ` ${sanitizeLine(args)}`;
    const { width } = this.#terminal.stderr;
    const depth = this.#depthOf(run);
    const room = finiteWidth(width) - end.length - 6 - 2 * depth;
    const call = truncate(`${who}${sanitizeLine(toolName)}${given}`, Math.max(20, room));
    await this.#printLine(`${mark} ${call}  ${colors.dim(end)}`, depth);
    if (result?.text !== undefined) {
      for (const line of foldResult(result, width - 2 * depth, this.#options))
        this.#terminal.printStderr(`  ${this.#branch(depth)}  ${colors.dim(line)}`);
    }
    this.#showRunning();
  }

  async #printStart(
    { agent, task }: Extract<AgentEvent, { type: "agentStarted" }>,
    depth: number,
  ): Promise<void> {
    const room = finiteWidth(this.#terminal.stderr.width) - 6 - 2 * depth;
    const line = truncate(sanitizeLine(`${agent}: ${task}`), Math.max(20, room));
    await this.#printLine(`${this.#terminal.stderr.colors.dim("┌")} ${line}`, depth);
  }

  async #printEnd(
    event: Extract<AgentEvent, { type: "agentEnded" }>,
    depth: number,
  ): Promise<void> {
    const { agent, success, error, duration, usage, toolCalls } = event;
    const { colors } = this.#terminal.stderr;
    const outcome = success ? [] : [error ?? "error"];
    const tokens = usage.inputTokens + usage.outputTokens;
    const facts = [
      ...outcome,
      formatDuration(duration),
      count(toolCalls, "call"),
      `${usage.estimated === true ? "about " : ""}${count(tokens, "token")}`,
    ];
    const text = `${colors.dim("└")} ${sanitizeLine(agent)}  ${colors.dim(facts.join(", "))}`;
    await this.#printLine(text, depth);
  }

  #depthOf(run: string | undefined): number {
    return run === undefined ? 0 : (this.#depths.get(run) ?? 1);
  }

  /** The lines of the tree to the left of what a nested run does. */
  #branch(depth: number): string {
    return depth === 0 ? "" : this.#terminal.stderr.colors.dim("│ ".repeat(depth));
  }

  async #printLine(text: string, depth = 0): Promise<void> {
    this.#pause();
    this.#terminal.printStderr(`  ${this.#branch(depth)}${text}`);
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
    if (this.#options.quiet) return;
    const { colors } = this.#terminal.stderr;
    const time = duration < MIN_THOUGHT ? "" : ` for ${formatDuration(duration)}`;
    this.#terminal.printStderr(`  ${colors.dim(`(thought${time})`)}`);
  }
}

/** The first lines of a result, and how to see the rest. Control characters are escaped. @param width in columns */
export function foldResult(
  { number, text = "" }: KeptResult,
  width: number,
  { numbered }: Pick<RunPrinterOptions, "numbered">,
): readonly string[] {
  const lines = text.trimEnd().split("\n");
  if (text.trim() === "") return [];
  const shown = lines.slice(0, SHOWN_LINES).map((line) => escapeLines(line.trimEnd()));
  const room = Math.max(20, finiteWidth(width) - 6);
  const isCut = shown.some((line) => truncate(line, room) !== line);
  const more = lines.length - shown.length;
  const rest = more > 0 ? count(more, "more line") : "the line is cut";
  const how = numbered ? `: /result ${number}` : "";
  const isWhole = more === 0 && !isCut;
  return [
    ...shown.map((line) => truncate(line, room)),
    ...(isWhole || (more === 0 && !numbered) ? [] : [`… ${rest}${how}`]),
  ];
}
