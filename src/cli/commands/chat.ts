import { resolve } from "node:path";
import { writeFile } from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { systemClock } from "../../base/clock.ts";
import { toHubError } from "../../base/errors.ts";
import { count, formatSize } from "../../base/format.ts";
import { expandHome } from "../../base/paths.ts";
import type { HistoryEntry } from "../../agent/history.ts";
import { AgentSession, type SendOptions } from "../../agent/session.ts";
import type { AnswerElicitation } from "../../frontend/hub-client.ts";
import {
  describeError,
  escapeJsonForTerminal,
  escapeLines,
  sanitizeLine,
} from "../../terminal/log.ts";
import type { NamedPrompt } from "../../agent-files/named-prompts.ts";
import { expandForAgent, loadAgents } from "../../host/agents.ts";
import { type CommandAgents, withAgents } from "../../host/command-agents.ts";
import { type AgentOptions, readAgentOptions } from "./run.ts";
import { answerInTerminal } from "../answer-form.ts";
import { suggestName } from "../../manifest/problems.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { canEdit, LineInput } from "../line-input.ts";
import { openLog } from "../command-log.ts";
import { describeHub } from "../running-hub.ts";
import {
  describeContent,
  describeServerState,
  foldResult,
  type KeptResult,
  RunPrinter,
} from "../run-printer.ts";

const HELP: readonly (readonly [command: string, explanation: string])[] = [
  ["/tools", "the tools that the agent has"],
  ["/servers", "the servers, their states, and why one is not up"],
  ["/result N", "the result of a tool, whole; without a number the last one"],
  ["/mode NAME", "use only the tools of a mode; full for all"],
  ["/history", "the conversation so far"],
  ["/clear", "forget the conversation"],
  [
    "/save FILE",
    "write the conversation to a file (JSON if the name ends in .json, else Markdown)",
  ],
  ["/quit", "end; Ctrl-D does the same, and Ctrl-C twice"],
];

/** `toolmux chat`: a conversation with an agent in the terminal. */
export async function chat(
  invocation: Invocation<AgentOptions>,
  context: CommandContext,
): Promise<number> {
  const log = openLog(invocation);
  const { manifest, file } = await loadAgents(invocation.args[0], invocation, context, log);
  const input = await LineInput.open();
  const { quiet } = invocation.options;
  const printer = new RunPrinter(context.terminal, { quiet, numbered: true });
  const answer = answerInTerminal(
    (text) => context.terminal.write(`${text}\n`),
    (question, signal) => input.ask(question, signal),
  );
  // If stdin is a pipe, all of its lines are messages; if stdout is one, questions are not shown.
  const elicit: AnswerElicitation | undefined = canEdit()
    ? (form, withdrawn) => printer.ask(() => answer(form, withdrawn))
    : undefined;
  try {
    const request = { manifest, log, elicit, file, ...readAgentOptions(invocation, context) };
    return await withAgents(request, async (opened) => {
      const agent = await opened.agent(invocation.args[0]);
      const session = new AgentSession(agent, { id: randomUUID(), clock: systemClock });
      return new Chat(session, opened, input, printer, context, quiet).converse();
    });
  } finally {
    input.close();
  }
}

class Chat {
  readonly #session: AgentSession;
  readonly #opened: CommandAgents;
  readonly #input: LineInput;
  readonly #printer: RunPrinter;
  readonly #context: CommandContext;
  readonly #isQuiet: boolean;
  /** Aborted when the chat ends. */
  readonly #ended = new AbortController();
  /** Cancels the current run of the agent; undefined while none is running. */
  #running: AbortController | undefined;
  #isInterrupted = false;

  constructor(
    session: AgentSession,
    opened: CommandAgents,
    input: LineInput,
    printer: RunPrinter,
    context: CommandContext,
    isQuiet: boolean,
  ) {
    this.#isQuiet = isQuiet;
    this.#session = session;
    this.#opened = opened;
    this.#input = input;
    this.#printer = printer;
    this.#context = context;
    input.onInterrupt = () => this.#interrupt();
  }

  /** Reads and handles lines until the chat ends. @returns the exit code */
  async converse(): Promise<number> {
    const { terminal, signal: stopped } = this.#context;
    const { hub } = this.#opened;
    const { spec, model } = this.#session.agent;
    const where = hub === undefined ? "" : `, in ${describeHub(hub)}`;
    if (!this.#isQuiet)
      terminal.note(`${spec.name} (${model.name})${where}. /help shows the commands.`);
    const { welcomeMessage } = this.#opened.file?.agents.get(spec.name) ?? {};
    if (!this.#isQuiet && welcomeMessage !== undefined)
      terminal.print(escapeLines(welcomeMessage.trim()));
    const signal = AbortSignal.any([stopped, this.#ended.signal]);
    if (!this.#isQuiet) await this.#printUnavailable();
    for (;;) {
      try {
        const line = await this.#input.next(`${this.#session.agent.spec.name}> `, signal);
        this.#isInterrupted = false;
        if (line.kind === "end") return 0;
        const text = line.text.trim();
        if (text === "/quit" || text === "/exit") return 0;
        if (text.startsWith("/")) await this.#command(text, signal);
        else if (text !== "") await this.#send(text, signal);
      } catch (error) {
        if (signal.aborted) return 130;
        const hubError = toHubError(error);
        // A usage error is about a command of the chat, which the help of toolmux does not explain.
        const isOwn = hubError.code === "usage";
        terminal.printStderr(isOwn ? sanitizeLine(hubError.message) : describeError(hubError));
      }
    }
  }

  /** Handles Ctrl-C: the first cancels the current run, the second ends the chat. */
  #interrupt(): void {
    if (this.#isInterrupted) this.#ended.abort(toHubError("Interrupted."));
    else if (this.#running === undefined) {
      this.#context.terminal.printStderr("\n(Ctrl-C again ends the chat)");
      this.#input.restart();
    } else this.#running.abort(toHubError("Interrupted."));
    this.#isInterrupted = true;
  }

  async #send(text: string, ended: AbortSignal): Promise<void> {
    const running = new AbortController();
    this.#running = running;
    try {
      const signal = AbortSignal.any([running.signal, ended]);
      const { results } = this.#printer;
      const onResult: SendOptions["onResult"] = (call, result) => results.add(call, result);
      for await (const event of this.#session.send(text, { signal, onResult }))
        await this.#printer.print(event);
    } finally {
      this.#running = undefined;
    }
    ended.throwIfAborted();
  }

  async #command(line: string, signal: AbortSignal): Promise<void> {
    const { terminal } = this.#context;
    const [command = "", ...words] = line.split(/\s+/);
    const argument = words.join(" ");
    switch (command) {
      case "/help":
        for (const [name, explanation] of HELP)
          terminal.print(`  ${name.padEnd(12)}${explanation}`);
        for (const [name, { description, instruction }] of this.#prompts())
          terminal.print(
            `  ${sanitizeLine(`/${name}`).padEnd(12)}${sanitizeLine(description ?? firstSentence(instruction))}`,
          );
        return;
      case "/tools": {
        const tools = await this.#session.agent.tools(signal);
        for (const { name, description } of tools)
          terminal.print(`  ${sanitizeLine(name)}  ${sanitizeLine(firstSentence(description))}`);
        const { form, tokens } = this.#session.agent.exposureOf(tools);
        const how = form === "search" ? "the model searches for them" : "the model gets all";
        terminal.print(`  ${count(tools.length, "tool")}, ${tokens} tokens: ${how}`);
        return;
      }
      case "/servers":
        for (const server of await this.#opened.servers())
          terminal.print(`  ${describeServerState(server)}`);
        return;
      case "/result":
        this.#printResult(argument);
        return;
      case "/mode":
        this.#opened.setMode(argument === "" ? "full" : argument);
        terminal.print(`  mode ${argument === "" ? "full" : argument}`);
        return;
      case "/history":
        if (this.#session.history.entries.length === 0) terminal.print("  There are no messages.");
        for (const text of this.#describeHistory("folded")) terminal.print(escapeLines(text));
        return;
      case "/clear":
        this.#session.history.clear();
        this.#printer.results.clear();
        terminal.print("  The conversation is forgotten.");
        return;
      case "/save":
        await this.#save(argument);
        return;
      default: {
        const agent = this.#session.agent.spec.name;
        const text = expandForAgent(line, agent, this.#opened.file, this.#context);
        if (text !== line) {
          await this.#send(text, signal);
          return;
        }
        const own = [...this.#prompts().keys()].map((name) => `/${name}`);
        const names = [...HELP.map(([name]) => name.split(" ")[0] ?? ""), ...own];
        terminal.printStderr(
          `There is no ${sanitizeLine(command)}.${suggestName(command, names)} /help shows the commands.`,
        );
      }
    }
  }

  /** The prompts of the agent's file, by name. */
  #prompts(): ReadonlyMap<string, NamedPrompt> {
    return this.#opened.file?.agents.get(this.#session.agent.spec.name)?.prompts ?? new Map();
  }

  /** Prints a line for each server of the agent that is not up. A failure to list them is told by the first message. */
  async #printUnavailable(): Promise<void> {
    const { agent } = this.#session;
    await this.#printer.printUnavailable(await this.#opened.serversOf(agent));
  }

  #printResult(argument: string): void {
    const { terminal } = this.#context;
    const { all } = this.#printer.results;
    const last = all.length;
    const number = argument === "" ? last : Number(argument);
    const result = all[number - 1];
    if (last === 0) terminal.printStderr("No tool has been called.");
    else if (result === undefined)
      terminal.printStderr(`There is no result ${sanitizeLine(argument)}: they are 1 to ${last}.`);
    else if (result.text === undefined)
      terminal.printStderr(`Result ${number} is not kept any more: later ones took its room.`);
    else terminal.print(escapeLines(result.text));
  }

  /** The messages of the conversation as Markdown, with the results of tools in their first lines or whole. */
  #describeHistory(how: "folded" | "whole"): readonly string[] {
    const { entries } = this.#session.history;
    const used = new Set<KeptResult>();
    return entries.map((entry) => {
      const { message } = entry;
      if (message.role !== "tool") return describeEntry(entry);
      const { toolCallId, toolName } = message;
      const result = this.#printer.results.take(toolCallId, toolName, used);
      const text = describeContent(message.content);
      if (how === "whole") return `${describeEntry(entry)}\n\n${fenced(text)}`;
      const kept = result ?? { number: 0, toolCallId: "", toolName: "", text };
      const { width } = this.#context.terminal.stdout;
      const lines = foldResult(kept, width, { numbered: result !== undefined });
      return [describeEntry(entry), ...lines.map((line) => `>   ${line}`)].join("\n");
    });
  }

  async #save(file: string): Promise<void> {
    const { terminal, cwd, env } = this.#context;
    if (file === "") {
      terminal.printStderr("Which file? /save FILE");
      return;
    }
    const path = resolve(cwd, expandHome(file, env));
    const { entries } = this.#session.history;
    const messages = entries.map(({ message, at }) => ({
      at: new Date(at).toISOString(),
      ...message,
    }));
    const text = path.endsWith(".json")
      ? `${escapeJsonForTerminal(JSON.stringify({ agent: this.#session.agent.spec.name, messages }, null, 2))}\n`
      : `${escapeLines(this.#describeHistory("whole").join("\n\n"))}\n`;
    try {
      await writeFile(path, text, { flag: "wx", mode: 0o600 });
      terminal.print(`  saved as ${sanitizeLine(path)}`);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const reason =
        code === "EEXIST" ? `${sanitizeLine(path)} exists. Choose another name.` : message;
      terminal.printStderr(`not saved: ${reason}`);
    }
  }
}

/** A text as a code block of Markdown, whatever is in it. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

function firstSentence(text: string): string {
  return /^[^\n]*?[.!?](?=\s|$)/.exec(text)?.[0] ?? text.split("\n")[0] ?? "";
}

/** Formats a message of the history as Markdown. */
function describeEntry({ message, bytes }: HistoryEntry): string {
  switch (message.role) {
    case "user":
    case "tool": {
      if (message.role === "user") return `**You:** ${describeContent(message.content)}`;
      const mark = message.isError ? "failed" : formatSize(bytes);
      return `> ${message.toolName}: ${mark}`;
    }
    case "assistant": {
      const calls = message.toolCalls.map(
        ({ name, argumentsJson }) => `> calls ${name} ${argumentsJson}`,
      );
      return [message.text, ...calls].filter((part) => part !== "").join("\n");
    }
  }
}
