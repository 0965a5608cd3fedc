import process from "node:process";
import { abortable } from "../../base/clock.ts";
import type { RunOptions } from "../../agent/agent.ts";
import { History } from "../../agent/history.ts";
import type { AnswerElicitation } from "../../frontend/hub-client.ts";
import { escapeJsonForTerminal } from "../../terminal/log.ts";
import { expandForAgent, loadAgents } from "../../host/agents.ts";
import { type CommandAgentsOptions, withAgents } from "../../host/command-agents.ts";
import type { AgentSpec } from "../../manifest/agents.ts";
import { answerInTerminal, askPersonWith } from "../answer-form.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import { type AskLine, withPrompt } from "../prompt.ts";
import { hubToUse } from "../running-hub.ts";
import { exitCodeOf, type RunOutcome, RunPrinter } from "../run-printer.ts";

/** Maximum size of the message on stdin, in bytes. */
const MAX_MESSAGE = 1024 * 1024;

/** The options of commands that run agents. */
export interface AgentOptions {
  /** Whether to start the servers in this process, even if a hub is running. */
  readonly fresh: boolean;
  readonly hub: string | undefined;
  readonly model: string | undefined;
  readonly mode: string | undefined;
  readonly approval: AgentSpec["approval"];
  readonly quiet: boolean;
}

interface RunCommandOptions extends AgentOptions {
  readonly json: boolean;
}

/** `toolmux run`: runs an agent on one message, and prints its answer while the model writes it. */
export async function run(
  invocation: Invocation<RunCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const [name = "", ...words] = invocation.args;
  const isPiped = words.length === 1 && words[0] === "-";
  const message = isPiped ? await abortable(readStdin(), context.signal) : words.join(" ");
  if (message.trim() === "") throw usageError("What should the agent do? The message is empty.");
  if (isPiped || invocation.options.json)
    return runAgent(name, message, undefined, invocation, context);
  return runMessage(name, message, invocation, context);
}

/**
 * Runs an agent on one message and prints what happens. Passes questions to the person at the terminal.
 * @param answer the answer to all questions if there is no terminal; if undefined, nobody answers them
 * @returns the exit code
 */
export async function runMessage(
  name: string,
  message: string,
  invocation: Invocation<RunCommandOptions>,
  context: CommandContext,
  answer?: string,
): Promise<number> {
  const { terminal, signal } = context;
  const runWith = (ask: AskLine | undefined): Promise<number> =>
    runAgent(name, message, ask, invocation, context);
  const answerAlone: AskLine | undefined =
    answer === undefined
      ? undefined
      : (question) => {
          terminal.printStderr(`${question} ${answer}`);
          return Promise.resolve(answer);
        };
  return (await withPrompt(signal, runWith)) ?? runWith(answerAlone);
}

async function runAgent(
  name: string,
  message: string,
  ask: AskLine | undefined,
  invocation: Invocation<RunCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal, signal } = context;
  const { json, quiet } = invocation.options;
  const printer = new RunPrinter(terminal, { quiet, numbered: false });
  const log = openLog(invocation);
  const answer = ask && answerInTerminal((text) => terminal.printStderr(text), askPersonWith(ask));
  const elicit: AnswerElicitation | undefined =
    answer && ((form, withdrawn) => printer.ask(() => answer(form, withdrawn)));
  const { manifest, file } = await loadAgents(name, invocation, context, log);
  const request = { manifest, log, elicit, file, ...readAgentOptions(invocation, context) };
  return withAgents(request, async (opened) => {
    const agent = await opened.agent(name);
    const text = expandForAgent(message, agent.spec.name, file, context);
    const history = new History([{ role: "user", content: [{ type: "text", text }] }]);
    let outcome: RunOutcome | undefined;
    if (!quiet) await printer.printUnavailable(await opened.serversOf(agent));
    const onResult: RunOptions["onResult"] = (call, result) => printer.results.add(call, result);
    for await (const event of agent.run(history, { signal, onResult })) {
      if (event.type === "runComplete" || event.type === "error") outcome = event;
      if (json) terminal.write(`${escapeJsonForTerminal(JSON.stringify(event))}\n`);
      else await printer.print(event);
    }
    return exitCodeOf(outcome);
  });
}

/** What the options of a command say about the agents that it runs. */
export function readAgentOptions(
  invocation: Invocation<AgentOptions>,
  context: CommandContext,
): Omit<CommandAgentsOptions, "manifest" | "log" | "elicit" | "file"> {
  const { hub, mode, model, approval } = invocation.options;
  const findHub = (): ReturnType<typeof hubToUse> => hubToUse(invocation, context);
  return { context, findHub, isHubNamed: hub !== undefined, mode, model, approval };
}

async function readStdin(): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of process.stdin) {
    chunks.push(chunk as Uint8Array);
    size += (chunk as Uint8Array).length;
    if (size > MAX_MESSAGE) throw usageError("The message on stdin is longer than 1 MiB.");
  }
  return new TextDecoder().decode(process.getBuiltinModule("node:buffer").Buffer.concat(chunks));
}
