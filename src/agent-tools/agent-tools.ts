import { Buffer } from "node:buffer";
import { basename } from "node:path";
import * as v from "valibot";
import { agentNotFound } from "../agent/agent.ts";
import { costMeta, readBudget } from "../agent/agent-calls.ts";
import type { ConversationFile } from "../agent/conversation-file.ts";
import type { ConversationStore, Principal } from "../agent/conversation-store.ts";
import type { SamplingClient } from "../agent/model.ts";
import { tokensText } from "../agent/run.ts";
import { AgentSession } from "../agent/session.ts";
import { type AgentTool, HubTools } from "../agent/toolbox.ts";
import { describeWindow, type TranscriptMessage } from "../agent/transcript.ts";
import type { ListedAgent } from "../agent-files/agent-library.ts";
import type { Clock } from "../base/clock.ts";
import { ERROR_META_KEY, HubError, toHubError } from "../base/errors.ts";
import type { Answer, Host, ToolCall } from "../plugin/plugin.ts";
import {
  HISTORY_LIMIT,
  MAX_HISTORY_LIMIT,
  MAX_MESSAGE,
  MAX_SESSION_NAME,
  MAX_SPEC,
  isToolOffered,
} from "./definitions.ts";
import type { AgentsOptions } from "./plugin.ts";
import { RunProgress } from "./run-progress.ts";
import { RunReport } from "./run-report.ts";
import { RunSlots } from "./run-slots.ts";
import {
  type ClientAgent,
  type ClientSession,
  ClientSessions,
  newSessionId,
  sessionNotFound,
} from "./sessions.ts";

/** The conversations of one principal. */
export interface KeptConversations {
  readonly store: ConversationStore;
  readonly principal: Principal;
}

/** The agents that clients of a hub can use. Texts of errors are redacted. */
export interface ClientAgents {
  /**
   * Makes an agent ready.
   * @param agent a name, a path or a reference
   * @throws {HubError} agentNotFound, agentInvalid, notTrusted, valueMissing, storeBroken
   */
  open(agent: string, signal: AbortSignal): Promise<ClientAgent>;
  /** Like `open`, for an agent that a client describes in a call. @throws {HubError} agentInvalid, valueMissing */
  openInline(config: unknown, signal: AbortSignal): Promise<ClientAgent>;
  list(sources: readonly ListedAgent["source"][]): Promise<readonly ListedAgent[]>;
  /** Gets an agent from a registry. @throws {HubError} see `AgentLibrary.pull` */
  pull(reference: string, signal: AbortSignal): Promise<{ digest: string; reference: string }>;
  /** Removes secrets from a text. */
  redact(text: string): string;
  /**
   * The conversations that are kept of a client with this name. @returns undefined if the client has no token, or if
   * nothing can be kept
   */
  conversations(principal: string): Promise<KeptConversations | undefined>;
}

export interface AgentToolsContext {
  readonly options: AgentsOptions;
  readonly host: Host;
  readonly agents: ClientAgents;
  readonly clock: Clock;
}

/** How much longer than its run a call may take, in ms, so that the run itself can report its timeout. */
const MARGIN = 10_000;
/** Time after which the call of an unfinished run becomes a task, for clients that support tasks, in ms. */
const TASK_AFTER = 5000;
/** The tools that run an agent, besides exposed agents. */
const RUN_TOOLS: ReadonlySet<string> = new Set([
  "send_message",
  "invoke_agent",
  "invoke_with_config",
]);
/** The owner of the sessions of clients that cannot be told apart. */
const ANONYMOUS_CLIENTS = "anybody";

/** Answers the calls of the tools of the server `agents`. */
export class AgentTools {
  readonly #context: AgentToolsContext;
  readonly #hubTools: HubTools;
  readonly #slots = new RunSlots();
  readonly #sessions: ClientSessions;
  #unsubscribe: (() => void) | undefined;

  constructor(context: AgentToolsContext) {
    this.#context = context;
    this.#hubTools = new HubTools(context.host);
    this.#sessions = new ClientSessions(context.options, context.clock);
  }

  /**
   * Answers a call. Errors are returned as results, so that models see them.
   * @param signal cancels the run; by default the call's own signal
   */
  async answer(tool: string, call: ToolCall, signal: AbortSignal = call.signal): Promise<Answer> {
    const { clock } = this.#context;
    const cancelTimer = this.#isRun(tool)
      ? clock.after(TASK_AFTER, () => call.becomeTask())
      : () => {};
    const reports: RunReport[] = [];
    const cost = (): object => (reports[0] === undefined ? {} : costMeta(reports[0].cost));
    try {
      const owner = this.#ownerOf(call);
      const kept = await this.#keptOf(call);
      const request = { owner, kept, call, signal, args: call.arguments, reports };
      const value = await this.#run(tool, request);
      // The model gets the answer of a run alone; what happened on the way is for the client.
      const text = "response" in value ? String(value.response) : JSON.stringify(value);
      const content = [{ type: "text", text }];
      const meta = cost();
      return call.answer({
        content,
        structuredContent: value,
        ...(reports.length > 0 && { _meta: meta }),
      });
    } catch (thrown) {
      const { message, hint, code, data } = toHubError(thrown);
      const full = hint === undefined ? message : `${message} ${hint}`;
      const text = this.#context.agents.redact(full);
      const limit = data?.["limit"];
      const meta = {
        [ERROR_META_KEY]: code,
        ...(limit !== undefined && { [LIMIT_META_KEY]: limit }),
        ...cost(),
      };
      return call.answer({ content: [{ type: "text", text }], isError: true, _meta: meta });
    } finally {
      cancelTimer();
    }
  }

  /** Whether a tool runs an agent. */
  #isRun(tool: string): boolean {
    return RUN_TOOLS.has(tool) || this.#context.options.expose.includes(tool);
  }

  /** Ends all sessions. */
  close(): void {
    this.#unsubscribe?.();
    this.#sessions.closeAll();
  }

  /** @throws {HubError} notIdentified */
  #ownerOf({ client: { id, principal, isAnonymous = false } }: ToolCall): string {
    if (!isAnonymous) return ownerKey(id, principal);
    if (this.#context.options.anonymous) return ANONYMOUS_CLIENTS;
    const text =
      "This client cannot be told apart from others, so it cannot have agents. Give each client a token: [[clients]] in the manifest of toolmux, or set anonymous = true for the plugin agents.";
    throw new HubError("notIdentified", text);
  }

  #run(tool: string, request: Request): Promise<object> {
    const { options } = this.#context;
    if (!isToolOffered(tool, options)) throw unknownTool(tool);
    switch (tool) {
      case "create_agent_session":
        return this.#create(request);
      case "send_message":
        return this.#send(request);
      case "invoke_agent": {
        const { agent, message } = read(invokeSchema, request);
        const open = (signal: AbortSignal): Promise<ClientAgent> => this.#open(agent, signal);
        return this.#invoke(open, message, request);
      }
      case "invoke_with_config": {
        const { config, message } = read(configSchema, request);
        const open = (signal: AbortSignal): Promise<ClientAgent> =>
          this.#context.agents.openInline(config, signal);
        return this.#invoke(open, message, request);
      }
      case "list_agents":
        return this.#listAgents(request);
      case "list_agent_sessions":
        return this.#listSessions(request);
      case "get_agent_session_info":
        return this.#info(request);
      case "get_agent_session_history":
        return this.#history(request);
      case "transfer_agent_session":
        return this.#transfer(request);
      case "close_agent_session":
        return this.#close(request);
      case "pull_agent": {
        const { registry_ref: reference } = read(pullSchema, request);
        return this.#context.agents.pull(reference, request.signal);
      }
      default: {
        const { message } = read(exposedSchema, request);
        return this.#invoke((signal) => this.#context.agents.open(tool, signal), message, request);
      }
    }
  }

  async #create(request: Request): Promise<object> {
    const { kept, call, signal } = request;
    const { agent, session_name: name } = read(createSchema, request);
    this.#closeWhenClientsLeave();
    const opened = await this.#open(agent, signal);
    const id = newSessionId();
    const created = Date.now();
    let file: ConversationFile | undefined;
    if (kept !== undefined && opened.agent.spec.persist === true) {
      const header = { id, agent, from: opened.from, ...(name !== undefined && { name }), created };
      file = await kept.store.begin(kept.principal, header);
      await file.create();
    }
    try {
      // The client may have left while the agent was opened.
      call.signal.throwIfAborted();
      this.#add(request, { id, name, created, opened, file });
    } catch (error) {
      await opened.close();
      if (file !== undefined) await kept?.store.forget(kept.principal, id, signal).catch(() => {});
      throw error;
    }
    return {
      agent_session_id: id,
      agent_spec: agent,
      ...(name !== undefined && { session_name: name }),
      created: new Date(created).toISOString(),
      ...(opened.notes.length > 0 && { notes: opened.notes }),
      ...(file !== undefined && { kept: true }),
    };
  }

  /** Makes a session of an agent that was opened for it. @throws {HubError} sessionsFull */
  #add(
    { owner, kept, call }: Request,
    {
      id,
      name,
      created,
      opened,
      file,
    }: Pick<ClientSession, "id" | "name" | "created" | "opened"> & {
      readonly file: ConversationFile | undefined;
    },
  ): ClientSession {
    const session = this.#newSession(id, opened, file);
    const close = (): Promise<void> => {
      session.close();
      return opened.close();
    };
    // Whoever has the client's token has its kept sessions.
    const whose = file === undefined || kept === undefined ? owner : ownerOfKept(kept);
    const keptOf = file === undefined ? undefined : call.client.principal;
    const added = { id, owner: whose, keptOf, name, created, session, opened, close };
    this.#sessions.add(added);
    return added;
  }

  async #close(request: Request): Promise<object> {
    const { kept, signal } = request;
    const { agent_session_id: id } = read(sessionSchema, request);
    const open = await this.#findOpen(request, id);
    open?.session.discard();
    if (open !== undefined) this.#sessions.close(open);
    const isForgotten = (await kept?.store.forget(kept.principal, id, signal)) ?? false;
    if (open === undefined && !isForgotten) throw sessionNotFound();
    return { success: true };
  }

  async #send(request: Request): Promise<object> {
    const { message } = read(sendSchema, request);
    const { session, opened } = await this.#find(request);
    this.#checkBudget(session);
    return this.#runIn(session, opened, message, request);
  }

  /**
   * Opens an agent that a client has named. If `expose` names agents, clients can start no others of the manifest.
   * @throws {HubError} agentNotFound; see `ClientAgents.open`
   */
  async #open(agent: string, signal: AbortSignal): Promise<ClientAgent> {
    const { agents, options } = this.#context;
    const { expose } = options;
    if (expose.length > 0 && !expose.includes(agent)) {
      const ofManifest = await agents.list(["manifest"]);
      if (ofManifest.some(({ name }) => name === agent)) throw agentNotFound(agent, expose);
    }
    return agents.open(agent, signal);
  }

  /** Runs an agent in a session that ends with the run. */
  async #invoke(
    open: (signal: AbortSignal) => Promise<ClientAgent>,
    message: string,
    request: Request,
  ): Promise<object> {
    const opened = await open(request.signal);
    const session = this.#newSession(newSessionId(), opened, undefined);
    try {
      const { metadata, ...answer } = await this.#runIn(session, opened, message, request);
      const { notes } = opened;
      return { ...answer, metadata: { ...metadata, ...(notes.length > 0 && { notes }) } };
    } finally {
      session.close();
      await opened.close();
    }
  }

  async #runIn(
    session: AgentSession,
    opened: ClientAgent,
    message: string,
    { call, signal, reports }: Request,
  ): Promise<RunReport["answer"]> {
    if (Buffer.byteLength(message) > MAX_MESSAGE)
      throw new HubError("invalidParams", "message: at most 1 MiB of text");
    const { options, clock, agents } = this.#context;
    const { timeout } = session.agent.spec;
    // Each earlier message may take as long as a whole run.
    const runsBefore = session.state === "running" ? session.waiting + 1 : 0;
    call.setDeadline((runsBefore + 1) * timeout + MARGIN);
    const chain = this.#hubTools.chainOf(call);
    const report = new RunReport(options.events);
    reports.push(report);
    const progress = new RunProgress(call, clock);
    const begin = async (either: AbortSignal): Promise<() => void> => {
      // A nested run takes no slot: otherwise, runs that hold all slots could wait for nested runs that need slots.
      const free = chain.isInside
        ? () => {}
        : await this.#slots.take(either, () => progress.waits());
      progress.starts();
      call.setDeadline(session.agent.spec.timeout + MARGIN);
      return free;
    };
    const hub = this.#hubTools.for(call);
    const toolbox = opened.toolboxFor(call, hub);
    const isVisible = (tool: AgentTool): boolean => hub.isVisible(tool);
    const watchPauses = hub.watchPauses.bind(hub);
    const client = samplingClientOf(call);
    const budget = readBudget(call.meta);
    const sending = { signal, chain, toolbox, isVisible, begin, client, watchPauses, budget };
    try {
      if (session.state === "running") progress.waits();
      for await (const event of session.send(message, sending)) {
        const shown = report.add(event);
        if (shown !== undefined) progress.report(agents.redact(shown));
      }
    } finally {
      progress.end();
    }
    return report.answer;
  }

  #newSession(
    id: string,
    { agent }: ClientAgent,
    file: ConversationFile | undefined,
  ): AgentSession {
    const { clock, options } = this.#context;
    const { maxTokens, maxToolCalls } = options;
    return new AgentSession(agent, { id, clock, maxTokens, maxToolCalls, file });
  }

  /** @throws {HubError} limitReached */
  #checkBudget({ tokensUsed, areTokensEstimated }: AgentSession): void {
    const { maxTokens = Infinity } = this.#context.options;
    if (tokensUsed < maxTokens) return;
    const text = `The session has used ${tokensText(tokensUsed, areTokensEstimated)}, and may use ${maxTokens}. Begin another one.`;
    throw new HubError("limitReached", text, { data: { limit: "tokenLimit" } });
  }

  async #listAgents(request: Request): Promise<object> {
    const { source } = read(listSchema, request);
    const sources = source === "all" ? (["manifest", "files", "store"] as const) : [source];
    const { agents } = this.#context;
    const { expose } = this.#context.options;
    const listed = (await agents.list(sources)).filter(
      ({ name, source: from }) =>
        expose.length === 0 || from !== "manifest" || expose.includes(name),
    );
    return {
      agents: listed.map(({ name, spec, source: from, description, model, digest, problem }) => ({
        name,
        // A name finds the file in the folders for agents; clients are not told the folders.
        spec: from === "files" ? basename(spec) : spec,
        source: from,
        ...(description !== undefined && { description }),
        ...(model !== undefined && { model }),
        ...(digest !== undefined && { digest }),
        ...(problem !== undefined && { problem: agents.redact(problem) }),
      })),
    };
  }

  async #listSessions({ owner, kept, signal }: Request): Promise<object> {
    if (owner === ANONYMOUS_CLIENTS) {
      const note =
        "Clients that cannot be told apart get no list: anyone who knows a session's id can use it.";
      return { sessions: [], note };
    }
    const open = await this.#notForgotten([
      ...this.#sessions.of(owner),
      ...(kept === undefined ? [] : this.#sessions.of(ownerOfKept(kept))),
    ]);
    await Promise.all(open.map(({ session }) => session.refresh(signal)));
    const ids = new Set(open.map(({ id }) => id));
    const closed = (await kept?.store.list(kept.principal))?.filter(({ id }) => !ids.has(id)) ?? [];
    return {
      sessions: [
        ...open.map((session) => ({ agent_session_id: session.id, ...this.#describe(session) })),
        ...closed.map(({ id, agent, name, created, lastUsed }) => ({
          agent_session_id: id,
          agent,
          ...(name !== undefined && { session_name: name }),
          created: new Date(created).toISOString(),
          last_used: new Date(lastUsed).toISOString(),
          state: "closed",
        })),
      ],
    };
  }

  async #info(request: Request): Promise<object> {
    const session = await this.#find(request);
    await session.session.refresh(request.signal);
    const { tokensUsed, areTokensEstimated } = session.session;
    return {
      ...this.#describe(session),
      tokens_used: tokensUsed,
      ...(areTokensEstimated && { tokens_estimated: true }),
    };
  }

  #describe({ name, created, session }: ClientSession): object {
    const unusedFor = this.#context.clock.now() - session.lastUsed;
    return {
      agent: session.agent.spec.name,
      ...(name !== undefined && { session_name: name }),
      message_count: session.transcript.messages.length,
      created: new Date(created).toISOString(),
      last_used: new Date(Math.round(Date.now() - unusedFor)).toISOString(),
      state: session.state === "running" ? "running" : "idle",
      ...(session.isKept && { kept: true }),
    };
  }

  async #history(request: Request): Promise<object> {
    const { limit, before } = read(historySchema, request);
    const { session } = await this.#find(request);
    await session.refresh(request.signal);
    const { messages } = session.transcript;
    const { window } = session;
    const given = session.history.givenNumbers;
    const end = Math.min(messages.length, before === undefined ? Infinity : before - 1);
    const start = Math.max(0, end - limit);
    return {
      messages: messages.slice(start, end).map((message, at) => {
        const number = start + at;
        return {
          number: number + 1,
          ...toMessage(message),
          ...(!given.has(number) && { left_out: true }),
          ...(window?.number === number && { note: describeWindow(window) }),
        };
      }),
      total: messages.length,
      ...(window !== undefined && { window_start: window.number + 1 }),
    };
  }

  async #transfer(request: Request): Promise<object> {
    const { target_agent: target } = read(transferSchema, request);
    const { session } = await this.#find(request);
    const { agentSet, spec } = session.agent;
    const { transferTo } = this.#context.options;
    const allowed = new Set([...spec.subAgents, ...spec.handoffs, ...transferTo]);
    if (!allowed.has(target)) {
      if (allowed.size > 0) throw agentNotFound(target, [...allowed]);
      const alone = `Agent "${spec.name}" cannot give its conversation to another one: it has no subAgents or handoffs, and the plugin agents has no transferTo.`;
      throw new HubError("agentNotFound", alone);
    }
    await session.transfer(await agentSet.agent(target, request.signal), request.signal);
    return { success: true, agent: target };
  }

  /** What is kept of the client; undefined: nothing, because it is not named. */
  async #keptOf({
    client: { principal, isAnonymous = false },
  }: ToolCall): Promise<KeptConversations | undefined> {
    if (principal === undefined || isAnonymous) return undefined;
    return this.#context.agents.conversations(principal);
  }

  async #findOpen({ owner, kept }: Request, id: string): Promise<ClientSession | undefined> {
    const own = this.#sessions.find(owner, id);
    const found = own ?? (kept && this.#sessions.find(ownerOfKept(kept), id));
    return found && (await this.#notForgotten([found]))[0];
  }

  /** Closes the sessions that another process has forgotten. @returns the others */
  async #notForgotten(open: readonly ClientSession[]): Promise<readonly ClientSession[]> {
    const isForgotten = await Promise.all(open.map(({ session }) => session.isForgotten()));
    return open.filter((one, at) => {
      if (isForgotten[at] !== true) return true;
      one.session.discard();
      this.#sessions.close(one);
      return false;
    });
  }

  /** The session of this client; one that is kept is opened again. @throws {HubError} sessionNotFound */
  async #find(request: Request): Promise<ClientSession> {
    const { agent_session_id: id } = read(sessionSchema, request);
    const { kept } = request;
    const isResuming = kept !== undefined && this.#resuming.has(resumingKey(kept, id));
    const open = isResuming ? undefined : await this.#findOpen(request, id);
    if (open !== undefined) return open;
    if (kept === undefined) throw sessionNotFound();
    return this.#resume(id, kept, request);
  }

  /** The sessions that are being opened again, by `resumingKey`. */
  readonly #resuming = new Map<string, Promise<ClientSession>>();

  /** Opens a conversation that is kept. Calls that want the same one share it. */
  async #resume(id: string, kept: KeptConversations, request: Request): Promise<ClientSession> {
    const key = resumingKey(kept, id);
    const ofOther = this.#resuming.get(key);
    if (ofOther !== undefined) {
      try {
        return await ofOther;
      } catch {
        // The other call may have been cancelled.
        request.signal.throwIfAborted();
        return this.#resume(id, kept, request);
      }
    }
    const resuming = this.#openKept(id, kept, request);
    this.#resuming.set(key, resuming);
    try {
      return await resuming;
    } finally {
      this.#resuming.delete(key);
    }
  }

  /** The agent is found again as for a new conversation, with the trust that its file has now. */
  async #openKept(id: string, kept: KeptConversations, request: Request): Promise<ClientSession> {
    const { signal } = request;
    const file = await kept.store.find(kept.principal, id);
    if (file === undefined) throw sessionNotFound();
    const { agent, name, created, from } = file.header;
    const opened = await this.#open(agent, signal);
    let added: ClientSession | undefined;
    try {
      // Another manifest may have another agent of this name.
      if (opened.from !== from || opened.agent.spec.persist !== true) throw sessionNotFound();
      added = this.#add(request, { id, name, created, opened, file });
      await added.session.load(signal);
      return added;
    } catch (error) {
      if (added !== undefined) this.#sessions.close(added);
      else await opened.close();
      throw toHubError(error).code === "sessionNotFound" ? sessionNotFound() : error;
    }
  }

  /** Subscribes to events, to close the sessions of clients that leave. Called when a session is created. */
  #closeWhenClientsLeave(): void {
    this.#unsubscribe ??= this.#context.host.subscribe(
      (event) => {
        if (event.kind !== "client" || event.change !== "left") return;
        const { client, principal } = event;
        this.#sessions.closeAllOf(ownerKey(client, principal));
        // The client of a token leaves when the token is revoked.
        if (principal !== undefined && client === principal) this.#sessions.closeKeptOf(principal);
      },
      ["client"],
    );
  }
}

/** A call, and the owner of its client's sessions (`ownerKey`). */
interface Request {
  readonly owner: string;
  /** What is kept of the client; undefined: nothing. */
  readonly kept: KeptConversations | undefined;
  /** Receives the report of the run, if the call runs an agent. */
  readonly reports: RunReport[];
  readonly call: ToolCall;
  readonly signal: AbortSignal;
  readonly args: unknown;
}

/**
 * A key in the `_meta` of answers with the error code `limitReached`. Its value names the limit, such as `turnLimit`.
 */
const LIMIT_META_KEY = "toolmux/limit";

/**
 * The owner of a client's sessions, as text. It contains both the id and the configured name of the client, because the
 * name of one client may be the id of another.
 */
function ownerKey(client: string, principal: string | undefined): string {
  return JSON.stringify([client, principal ?? null]);
}

/** The owner of the sessions that are kept of a principal: all that bear its token. */
/** Identifies a conversation that is kept, of all clients. */
function resumingKey({ principal }: KeptConversations, id: string): string {
  return `${principal} ${id}`;
}

function ownerOfKept({ principal }: KeptConversations): string {
  return `kept ${principal}`;
}

/** The client of a call, whose model an agent may use. */
function samplingClientOf(call: ToolCall): SamplingClient {
  return {
    takesTools: call.canSample === "tools",
    createMessage: (params, signal) => call.sample(params, signal),
  };
}

function unknownTool(name: string): HubError {
  return new HubError("unknownTool", `There is no tool "${name}".`);
}

const text = (max: number) =>
  v.pipe(v.string("a text"), v.nonEmpty("a text"), v.maxLength(max, `at most ${max} characters`));
const message = text(MAX_MESSAGE);
const agent = text(MAX_SPEC);
const session = { agent_session_id: text(MAX_SESSION_NAME) };

const LIMIT = `a whole number from 1 to ${MAX_HISTORY_LIMIT}`;
const SOURCES = ["files", "store", "all"] as const;

const createSchema = v.object({
  agent,
  session_name: v.optional(text(MAX_SESSION_NAME)),
});
const sendSchema = v.object({ message });
const invokeSchema = v.object({ agent, message });
const configSchema = v.object({ config: v.record(v.string(), v.unknown(), "an object"), message });
const exposedSchema = v.object({ message });
const listSchema = v.object({ source: v.optional(v.picklist(SOURCES, SOURCES.join(", ")), "all") });
const sessionSchema = v.object(session);
const BEFORE = "the number of a message";
const historySchema = v.object({
  before: v.exactOptional(v.pipe(v.number(BEFORE), v.integer(BEFORE), v.minValue(1, BEFORE))),
  limit: v.optional(
    v.pipe(
      v.number(LIMIT),
      v.integer(LIMIT),
      v.minValue(1, LIMIT),
      v.maxValue(MAX_HISTORY_LIMIT, LIMIT),
    ),
    HISTORY_LIMIT,
  ),
});
const transferSchema = v.object({ target_agent: agent });
const pullSchema = v.object({ registry_ref: text(MAX_SPEC) });

/** Reads the arguments of a call. @throws {HubError} invalidParams with what is expected */
function read<S extends v.GenericSchema>(schema: S, { args }: Request): v.InferOutput<S> {
  const result = v.safeParse(schema, args);
  if (result.success) return result.output;
  const problems = result.issues.map((issue) => {
    const path = v.getDotPath(issue) ?? "arguments";
    return issue.received === "undefined"
      ? `${path} is missing`
      : `${path}: expected ${issue.message}`;
  });
  throw new HubError("invalidParams", problems.join("; "));
}

/** A message of a conversation, as `get_agent_session_history` returns it. */
function toMessage(said: TranscriptMessage): object {
  const time = { at: new Date(said.at).toISOString() };
  switch (said.role) {
    case "user":
      return { role: said.role, content: said.text, ...time };
    case "assistant": {
      const calls = said.toolCalls.map(({ id, name, argumentsJson }) => ({
        id,
        name,
        arguments: argumentsJson,
      }));
      return {
        role: said.role,
        content: said.text,
        agent: said.agent,
        ...(calls.length > 0 && { tool_calls: calls }),
        ...time,
      };
    }
    case "tool": {
      const { role, text: content, toolCallId, toolName, isError, size, run } = said;
      return {
        role,
        content,
        tool_call_id: toolCallId,
        tool: toolName,
        size,
        ...(isError && { is_error: true }),
        ...(run !== undefined && {
          run: { agent: run.agent, messages: run.messages.map(toMessage) },
        }),
        ...time,
      };
    }
  }
}
