import { resolve } from "node:path";
import { writeFile } from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { systemClock } from "../../base/clock.ts";
import { type HubError, toHubError, usageError } from "../../base/errors.ts";
import { count, formatSize } from "../../base/format.ts";
import { expandHome } from "../../base/paths.ts";
import type { KeptConversation } from "../../agent/conversation-store.ts";
import { AgentSession, type SendOptions } from "../../agent/session.ts";
import { describeWindow, type NestedRun, type TranscriptMessage } from "../../agent/transcript.ts";
import type { AnswerElicitation } from "../../frontend/hub-client.ts";
import {
  describeError,
  escapeJsonForTerminal,
  escapeLines,
  sanitizeLine,
} from "../../terminal/log.ts";
import type { NamedPrompt } from "../../agent-files/named-prompts.ts";
import { expandForAgent, loadAgents, originOf } from "../../host/agents.ts";
import { type CommandAgents, withAgents } from "../../host/command-agents.ts";
import { type AgentOptions, readAgentOptions } from "./run.ts";
import { answerInTerminal } from "../answer-form.ts";
import { suggestName } from "../../manifest/problems.ts";
import { CHAT_VERBS, type CommandContext, type Invocation } from "../command.ts";
import { conversationToResume, shownId } from "../../operations/conversations.ts";
import { forgetConversations, printConversations } from "./conversations.ts";
import { canEdit, LineInput } from "../line-input.ts";
import { openLog } from "../command-log.ts";
import { describeHub } from "../running-hub.ts";
import { describeServerState, foldResult, type KeptResult, RunPrinter } from "../run-printer.ts";

const HELP: readonly (readonly [command: string, explanation: string])[] = [
  ["/tools", "the tools that the agent has"],
  ["/servers", "the servers, their states, and why one is not up"],
  ["/result N", "the result of a tool, whole; without a number the last one"],
  ["/mode NAME", "use only the tools of a mode; full for all"],
  ["/history", "the conversation so far, and where the window of the model begins"],
  ["/clear", "forget the conversation"],
  [
    "/save FILE",
    "write the conversation to a file (JSON if the name ends in .json, else Markdown)",
  ],
  ["/quit", "end; Ctrl-D does the same, and Ctrl-C twice"],
];

interface ChatOptions extends AgentOptions {
  readonly resume: boolean;
  readonly json: boolean;
}

/** `toolmux chat`: a conversation with an agent in the terminal, and the conversations that are kept. */
export async function chat(
  invocation: Invocation<ChatOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [word, ...more] = args;
  const verb = options.resume ? undefined : CHAT_VERBS.find((one) => one === word);
  if (verb === "forget") return forgetConversations(more, invocation, context);
  if (more.length > 0) throw usageError("toolmux chat takes one agent, or one conversation.");
  if (verb === "list") return printConversations(invocation, context);
  if (options.json) throw usageError("--json is for toolmux chat list.");
  const kept = options.resume ? await conversationToResume(word, invocation, context) : undefined;
  return talk(kept?.agent ?? word, kept, invocation, context);
}

/** @param kept the conversation to go on with; undefined: a new one */
async function talk(
  name: string | undefined,
  kept: KeptConversation | undefined,
  invocation: Invocation<ChatOptions>,
  context: CommandContext,
): Promise<number> {
  const log = openLog(invocation);
  const { manifest, file } = await loadAgents(name, invocation, context, log);
  const from = originOf(manifest, file);
  if (kept !== undefined && kept.from !== from) throw otherOriginError(kept);
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
      const agent = await opened.agent(name);
      const id = kept?.id ?? randomUUID();
      const conversations = await opened.conversations((text) => log("warn", text));
      const header = { id, agent: file?.source ?? agent.spec.name };
      const found = kept && (await conversations.find(id));
      if (kept !== undefined && found === undefined) throw forgottenError(kept);
      const isKept = agent.spec.persist !== false;
      const own = found ?? (isKept ? await conversations.begin(header) : undefined);
      const session = new AgentSession(agent, { id, clock: systemClock, file: own });
      if (found !== undefined) await session.load(context.signal);
      return new Chat(session, opened, input, printer, context, quiet).converse();
    });
  } finally {
    input.close();
  }
}

/** The agent of a conversation is looked for where it was; another manifest may have another one of its name. */
function otherOriginError(kept: KeptConversation): HubError {
  const { agent, from } = kept;
  const where = from.replace(/^manifest /, "").replace(/^file /, "");
  const place = where === "" ? "no manifest" : sanitizeLine(where);
  return usageError(
    `The conversation is with agent "${sanitizeLine(agent)}" of ${place}, which is not in use here. Go on there, or name it: toolmux chat --resume ${shownId(kept)} --config FILE`,
  );
}

function forgottenError(kept: KeptConversation): HubError {
  return usageError(`Conversation ${shownId(kept)} was forgotten. Begin another one: toolmux chat`);
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
    const { messages, title } = this.#session.transcript;
    if (!this.#isQuiet && messages.length > 0)
      terminal.note(
        `goes on with "${sanitizeLine(title)}": ${count(messages.length, "message")}. /history shows them.`,
      );
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
        // Another process has forgotten the conversation.
        if (hubError.code === "sessionNotFound") throw hubError;
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
        await this.#session.refresh(signal);
        if (this.#session.transcript.messages.length === 0)
          terminal.print("  There are no messages.");
        for (const text of this.#describeHistory("folded")) terminal.print(escapeLines(text));
        return;
      case "/clear":
        await this.#session.clear(signal);
        this.#printer.results.clear();
        terminal.print("  The conversation is forgotten.");
        return;
      case "/save":
        await this.#session.refresh(signal);
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
    const { transcript, window } = this.#session;
    const used = new Set<KeptResult>();
    return transcript.messages.flatMap((message, number) => {
      const note = window?.number === number ? [`--- ${describeWindow(window)} ---`] : [];
      return [...note, this.#describeMessage(message, how, used)];
    });
  }

  #describeMessage(
    message: TranscriptMessage,
    how: "folded" | "whole",
    used: Set<KeptResult>,
  ): string {
    if (message.role !== "tool") return describeMessage(message);
    const { toolCallId, toolName, text, run } = message;
    const nested = run === undefined ? [] : describeRun(run);
    const result = this.#printer.results.take(toolCallId, toolName, used);
    if (how === "whole")
      return `${[describeMessage(message), ...nested].join("\n")}\n\n${fenced(text)}`;
    const kept = result ?? { number: 0, toolCallId: "", toolName: "", text };
    const { width } = this.#context.terminal.stdout;
    const lines = foldResult(kept, width, { numbered: result !== undefined });
    return [describeMessage(message), ...nested, ...lines.map((line) => `>   ${line}`)].join("\n");
  }

  async #save(file: string): Promise<void> {
    const { terminal, cwd, env } = this.#context;
    if (file === "") {
      terminal.printStderr("Which file? /save FILE");
      return;
    }
    const path = resolve(cwd, expandHome(file, env));
    const { transcript, window } = this.#session;
    const messages = transcript.messages.map(withTimes);
    const text = path.endsWith(".json")
      ? `${escapeJsonForTerminal(JSON.stringify({ agent: this.#session.agent.spec.name, ...(window && { windowStart: window.number }), messages }, null, 2))}\n`
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

/** A message with its time as text, for a file. */
function withTimes({ at, ...message }: TranscriptMessage): object {
  const time = { at: new Date(at).toISOString() };
  if (message.role !== "tool" || message.run === undefined) return { ...time, ...message };
  const { agent, messages } = message.run;
  return { ...time, ...message, run: { agent, messages: messages.map(withTimes) } };
}

/** Formats a message of the conversation as Markdown; of a result, its size. */
function describeMessage(message: TranscriptMessage): string {
  switch (message.role) {
    case "user":
      return `**You:** ${message.text}`;
    case "tool":
      return `> ${message.toolName}: ${message.isError ? "failed" : formatSize(message.size)}`;
    case "assistant": {
      const calls = message.toolCalls.map(
        ({ name, argumentsJson }) => `> calls ${name} ${argumentsJson}`,
      );
      return [message.text, ...calls].filter((part) => part !== "").join("\n");
    }
  }
}

/** What another agent did for a call, as lines of a tree. */
function describeRun({ agent, messages }: NestedRun, depth = 1): readonly string[] {
  const indent = `>${"   │".repeat(depth - 1)}   `;
  const [task, ...rest] = messages;
  const lines = rest.flatMap((message): readonly string[] => {
    if (message.role === "tool") {
      const state = message.isError ? "failed" : formatSize(message.size);
      const inner = message.run === undefined ? [] : describeRun(message.run, depth + 1);
      return [...inner, `${indent}│ ${message.toolName}: ${state}`];
    }
    return message.text === "" ? [] : message.text.split("\n").map((line) => `${indent}│ ${line}`);
  });
  return [`${indent}┌ ${agent}: ${task?.text.split("\n")[0] ?? ""}`, ...lines, `${indent}└`];
}
