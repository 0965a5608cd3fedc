import type { Agent } from "../agent/agent.ts";
import { ownServerName } from "../agent/agent-file-toolbox.ts";
import type { ConversationFile, ConversationHeader } from "../agent/conversation-file.ts";
import { USER } from "../agent/conversation-store.ts";
import { OpenQuestions } from "../agent/question-pauses.ts";
import type { AgentFile } from "../agent-files/agent-file.ts";
import type { Toolbox } from "../agent/toolbox.ts";
import { abortable, pause, systemClock } from "../base/clock.ts";
import { findHubAbove, type RunningHub } from "../control/running-hubs.ts";
import type { ServerDocument } from "../control/schemas.ts";
import type { AnswerElicitation } from "../frontend/hub-client.ts";
import { AgentRedactor } from "./agent-models.ts";
import { isEmptyManifest, openAgents, type OpenAgentsOptions, originOf } from "./agents.ts";
import { openConversations } from "./conversations.ts";
import {
  type AskedPerson,
  countQuestions,
  type OpenedTools,
  openOwnHub,
  openRunningHub,
} from "./hub-toolbox.ts";
import { IN_A_TERMINAL, openMentionedTelemetry } from "./open-hub.ts";

/**
 * How long the start of a server whose tools are known from an earlier run may take until it is told as it is, in ms,
 * and how often its state is read meanwhile.
 */
const START_WAIT = 1500;
const START_POLL = 40;

/** Whether a server whose tools are known is starting, or ends a start of which no reason is known yet. */
function isUndecided({ state, tools, lastError }: ServerDocument): boolean {
  const isBetween = state === "connecting" || state === "stopping";
  return isBetween && tools !== undefined && lastError === undefined;
}

export interface CommandAgentsOptions extends Pick<
  OpenAgentsOptions,
  "manifest" | "file" | "context" | "log" | "approval"
> {
  /** Answers elicitations by asking the person at the terminal; undefined if nobody can be asked. */
  readonly elicit: AnswerElicitation | undefined;
  /**
   * Finds the running hub whose servers the agents use; undefined: the servers run in this process. It is called again
   * when that hub has ended.
   */
  findHub(): Promise<RunningHub | undefined>;
  /** Whether the person has named a running hub. If not, an empty manifest needs none. */
  readonly isHubNamed: boolean;
  /** The model to use instead of the agents' own. */
  readonly model: string | undefined;
  /** The mode that limits the agents' tools. */
  readonly mode: string | undefined;
}

/** The conversations of this user. */
export interface UserConversations {
  /** A new one, whose file is made by its first entry. */
  begin(header: Pick<ConversationHeader, "id" | "agent">): Promise<ConversationFile>;
  /** @returns undefined if there is none with this id */
  find(id: string): Promise<ConversationFile | undefined>;
}

/** The agents that a command runs for a person. */
export interface CommandAgents {
  /** The running hub whose servers the agents use; undefined if the servers run in this process. */
  readonly hub: RunningHub | undefined;
  /** The file of the agents; undefined: they are those of the manifest. */
  readonly file: AgentFile | undefined;
  /** Prepares an agent; see `OpenedAgents`. */
  agent(name: string | undefined): Promise<Agent>;
  /** The servers of the hub whose tools the agents use, and those of the agents' file. Opens the hub. */
  servers(): Promise<readonly ServerDocument[]>;
  /**
   * The servers that an agent may use, once their tools were listed; none if they cannot be listed: the run says why.
   * Waits as long as the first list waits for slow servers, and 1.5 s for the start of those whose tools are known.
   * @throws the reason of the command's signal
   */
  serversOf(agent: Agent): Promise<readonly ServerDocument[]>;
  /** Narrows the tools of all agents to those of a mode. @throws {HubError} usage if there is no such mode */
  setMode(name: string): void;
  /** The manifest or the file of the agents; see `ConversationHeader`. */
  readonly from: string;
  /**
   * The conversations of this user. Secrets of the manifest, of the store and of the servers that run in this process
   * are removed from what is written.
   */
  conversations(warn: (text: string) => void): Promise<UserConversations>;
}

/**
 * Opens the agents of a manifest or of an agent file for a command and passes them to `use`. The connection to a running
 * hub is opened, or the servers are started, only when an agent first needs its tools.
 */
export async function withAgents<T>(
  options: CommandAgentsOptions,
  use: (agents: CommandAgents) => Promise<T>,
): Promise<T> {
  const { manifest, log, file, context, approval, mode, model, isHubNamed } = options;
  const { signal } = context;
  const findHub = (): Promise<RunningHub | undefined> => options.findHub();
  const questions = new OpenQuestions();
  const elicit = options.elicit && countQuestions(options.elicit, questions);
  const person: AskedPerson = { elicit, questions, howToBeAsked: IN_A_TERMINAL };
  const isAlone = isEmptyManifest(manifest) && !isHubNamed;
  let hub = isAlone ? undefined : await findHub();
  let opened: Promise<OpenedTools> | undefined;
  let redactOwn = (text: string): string => text;
  // A tool of the hub that runs this command does not approve its calls.
  const openRunning = async (running: RunningHub): Promise<OpenedTools> => {
    const isInside = (await findHubAbove([running], context.env)) !== undefined;
    return openRunningHub(running, context, isInside ? undefined : elicit);
  };
  const redactor = new AgentRedactor();
  const redactAll = (text: string): string => agents.redact(redactOwn(text));
  const open = (): Promise<OpenedTools> => {
    if (opened !== undefined) return opened;
    const opening =
      hub === undefined
        ? openOwnHub(manifest, context, log, person, { ofAgents: telemetry })
        : openRunning(hub);
    opened = opening;
    void opening.then(
      (tools) => (redactOwn = (text) => tools.redact(text)),
      () => {},
    );
    // If opening fails, the next turn of the conversation tries again.
    opening.catch(() => {
      if (opened === opening) opened = undefined;
    });
    return opening;
  };
  const close = async (): Promise<void> => {
    const closing = opened;
    opened = undefined;
    await closing?.then(
      (tools) => tools.close(),
      () => {},
    );
  };
  const toolbox: Toolbox = {
    tools: async (run) => {
      try {
        return await (await abortable(open(), run)).toolbox.tools(run);
      } catch (error) {
        run.throwIfAborted();
        // No running hub was used, so the error comes from starting the servers in this process.
        if (hub === undefined) throw error;
        // The running hub has ended. Use another running hub if there is one, or else start the servers in this
        // process.
        void close();
        hub = await findHub().catch(() => undefined);
        return (await abortable(open(), run)).toolbox.tools(run);
      }
    },
    call: async (name, args, call) =>
      (await abortable(open(), call.signal)).toolbox.call(name, args, call),
  };
  const agents = openAgents({
    manifest,
    file,
    toolbox,
    person,
    redactor,
    clock: systemClock,
    context,
    log,
    approval,
    tracer: () => telemetry?.current.tracer,
  });
  const addSecrets = (values: readonly string[]): void => {
    for (const value of values) redactor.keys.add(value);
  };
  const warn = (text: string): void => log("warn", redactAll(text));
  const collected = { context, redact: redactAll, addSecrets, warn };
  const telemetry = await openMentionedTelemetry(manifest, collected, true);
  try {
    if (mode !== undefined) agents.setMode(mode);
    return await use({
      hub,
      file,
      setMode: (name) => agents.setMode(name),
      from: originOf(manifest, file),
      async conversations(tell) {
        const store = await openConversations(manifest, context, { mask: redactAll, warn: tell });
        const from = originOf(manifest, file);
        return {
          begin: (header) => store.begin(USER, { ...header, from, created: Date.now() }),
          find: (id) => store.find(USER, id),
        };
      },
      servers: async () => [...(await (await open()).servers()), ...(await agents.ownServers())],
      async serversOf(agent) {
        if (!agent.usesTools) return [];
        try {
          await agents.toolbox.tools(signal);
          const until = performance.now() + START_WAIT;
          for (;;) {
            const [ofHub, own] = [await (await open()).servers(), await agents.ownServers()];
            const used = [
              ...ofHub.filter(({ name }) => agent.mayUse(name)),
              ...own.filter(({ name }) => agent.mayUse(ownServerName(name))),
            ];
            if (!used.some(isUndecided) || performance.now() >= until) return used;
            await pause(systemClock, START_POLL, signal);
          }
        } catch {
          signal.throwIfAborted();
          return [];
        }
      },
      agent: (name) => agents.agent(name, signal, model),
    });
  } finally {
    await Promise.all([agents.close(), close()]);
    await telemetry?.close();
  }
}
