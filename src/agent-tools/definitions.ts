/** A tool as `tools/list` lists it. */
export interface ToolDefinition {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly inputSchema: object;
  readonly outputSchema: object;
  readonly annotations: Readonly<Record<string, boolean>>;
  readonly execution?: { readonly taskSupport: "optional" };
}

/** Maximum length of the name, path or reference of an agent, in UTF-16 code units. */
export const MAX_SPEC = 2048;
export const MAX_SESSION_NAME = 200;
/** Maximum size of a message, in bytes. */
export const MAX_MESSAGE = 1024 * 1024;
export const MAX_HISTORY_LIMIT = 1000;
export const HISTORY_LIMIT = 50;

const text = (description: string, more: object = {}): object => ({
  type: "string",
  description,
  ...more,
});
const number = (description: string): object => ({ type: "integer", minimum: 0, description });

const ESTIMATED = {
  const: true,
  description: "The number is an estimate, because a model's API does not report all of them.",
};

/** The schema of an object; keys that end with `?` are optional. */
function objectOf(properties: Readonly<Record<string, object>>): object {
  const entries = Object.entries(properties);
  return {
    type: "object",
    properties: Object.fromEntries(entries.map(([key, it]) => [key.replace(/\?$/, ""), it])),
    required: entries.map(([key]) => key).filter((key) => !key.endsWith("?")),
  };
}

const arrayOf = (items: object, description: string): object => ({
  type: "array",
  items,
  description,
});

const AGENT = text("The agent, as list_agents names it in spec.", {
  minLength: 1,
  maxLength: MAX_SPEC,
});
const SESSION = text("The id of the session, as create_agent_session has returned it.");
const MESSAGE = text("What the agent is to do.", {
  minLength: 1,
  maxLength: MAX_MESSAGE,
});
const STATE = text("What the agent does in this session; a closed one is opened by its use.", {
  enum: ["idle", "running", "closed"],
});
const KEPT = {
  const: true,
  description: "The conversation is kept: it can be used again after sessionTimeout and a restart.",
};
const TIME = (description: string): object => text(description, { format: "date-time" });
const NOTES = arrayOf({ type: "string" }, "Parts of the agent's file that are left out.");

/** The structured content of a run's result; its text is the answer alone. */
const RUN_OUTPUT = objectOf({
  response: text("The agent's answer."),
  events: arrayOf({ type: "object" }, "What the agent did, in order; each has a type."),
  metadata: objectOf({
    duration_ms: { type: "integer" },
    tool_calls: { type: "integer" },
    tokens_used: { type: "integer" },
    "tokens_estimated?": { const: true },
    model: { type: "string" },
    stop_reason: { type: "string" },
    "notes?": NOTES,
  }),
});

const READS = { readOnlyHint: true, openWorldHint: false };
/** The annotations of tools that run agents: a run may call any tool of the hub, so it may destroy something. */
const RUNS = { readOnlyHint: false, destructiveHint: true, openWorldHint: true };
const CHANGES = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: false,
  openWorldHint: false,
};
const AS_TASK = { taskSupport: "optional" } as const;

const invokeWithConfig: ToolDefinition = {
  name: "invoke_with_config",
  title: "Run an agent that is described in the call",
  description:
    "Gives a task to an agent that config describes, and returns its answer. Nothing of it is kept.",
  inputSchema: objectOf({
    config: {
      type: "object",
      description:
        "The agent: model (a name of the manifest) and instruction; description, tools (a filter without patterns), expose, and lower limits are optional.",
    },
    message: MESSAGE,
  }),
  outputSchema: RUN_OUTPUT,
  annotations: RUNS,
  execution: AS_TASK,
};

const OWN_TOOLS: readonly ToolDefinition[] = [
  {
    name: "create_agent_session",
    title: "Begin a conversation with an agent",
    description:
      "Begins a conversation with an agent and returns its id for send_message. The session ends when you close it, when the client leaves, or when it is not used for long.",
    inputSchema: objectOf({
      agent: AGENT,
      "session_name?": text("A name for people.", { maxLength: MAX_SESSION_NAME }),
    }),
    outputSchema: objectOf({
      agent_session_id: text("The id of the session."),
      agent_spec: text("The agent, as it was named."),
      "session_name?": text("The name for people."),
      created: TIME("When it was created."),
      "notes?": NOTES,
      "kept?": KEPT,
    }),
    annotations: CHANGES,
  },
  {
    name: "send_message",
    title: "Send a message to an agent",
    description:
      "Sends a message to the agent of a session, waits until the agent has finished, and returns its answer. The agent knows the conversation so far.",
    inputSchema: objectOf({ agent_session_id: SESSION, message: MESSAGE }),
    outputSchema: RUN_OUTPUT,
    annotations: RUNS,
    execution: AS_TASK,
  },
  {
    name: "invoke_agent",
    title: "Give an agent one task",
    description:
      "Gives a task to an agent, waits until it has finished, and returns its answer. Nothing is kept.",
    inputSchema: objectOf({ agent: AGENT, message: MESSAGE }),
    outputSchema: RUN_OUTPUT,
    annotations: RUNS,
    execution: AS_TASK,
  },
  {
    name: "list_agents",
    title: "List the agents",
    description: "Lists the agents: those of the manifest, in files, and pulled from registries.",
    inputSchema: objectOf({
      "source?": text("By default all.", { enum: ["files", "store", "all"] }),
    }),
    outputSchema: objectOf({
      agents: arrayOf(
        objectOf({
          name: { type: "string" },
          spec: text("The value for `agent` in other tools."),
          source: { type: "string" },
          "description?": { type: "string" },
          "model?": { type: "string" },
          "digest?": { type: "string" },
          "problem?": text("Why it cannot be used."),
        }),
        "The agents.",
      ),
    }),
    annotations: READS,
  },
  {
    name: "list_agent_sessions",
    title: "List your agent sessions",
    description: "Lists the sessions of this client.",
    inputSchema: objectOf({}),
    outputSchema: objectOf({
      sessions: arrayOf(
        objectOf({
          agent_session_id: text("The id of the session."),
          agent: text("The agent that has the conversation now."),
          "session_name?": text("The name for people."),
          created: TIME("When it was created."),
          last_used: TIME("When it was last used."),
          "message_count?": number("Number of messages of the conversation, if it is open."),
          state: STATE,
          "kept?": KEPT,
        }),
        "The sessions, oldest first.",
      ),
      "note?": text("Why the list is empty."),
    }),
    annotations: READS,
  },
  {
    name: "get_agent_session_info",
    title: "Show an agent session",
    description: "Shows the agent, the state and the use of one session.",
    inputSchema: objectOf({ agent_session_id: SESSION }),
    outputSchema: objectOf({
      agent: text("The agent that has the conversation now."),
      "session_name?": text("The name for people."),
      message_count: number("Number of messages of the conversation."),
      created: TIME("When it was created."),
      last_used: TIME("When it was last used."),
      state: STATE,
      tokens_used: number("Number of tokens of all its runs."),
      "tokens_estimated?": ESTIMATED,
      "kept?": KEPT,
    }),
    annotations: READS,
  },
  {
    name: "get_agent_session_history",
    title: "Show the messages of an agent session",
    description: "Returns the last messages of a session, the newest last.",
    inputSchema: objectOf({
      agent_session_id: SESSION,
      "limit?": {
        type: "integer",
        minimum: 1,
        maximum: MAX_HISTORY_LIMIT,
        description: `How many; ${HISTORY_LIMIT} by default.`,
      },
      "before?": {
        type: "integer",
        minimum: 1,
        description: "Only messages before this number, for earlier pages.",
      },
    }),
    outputSchema: objectOf({
      messages: arrayOf(
        objectOf({
          number: number("Its number, from 1."),
          role: text("Who said it.", { enum: ["user", "assistant", "tool"] }),
          content: text("The text; results are cut at the agent's resultLimit."),
          "agent?": text("The agent that has answered."),
          "tool_calls?": arrayOf(
            objectOf({ id: text("Its id."), name: text("The tool."), arguments: text("As JSON.") }),
            "The tools that the model wanted to call.",
          ),
          "tool_call_id?": text("The id of the call that this is the result of."),
          "tool?": text("The tool that was called."),
          "size?": number("Size of the whole result, in bytes."),
          "is_error?": { const: true },
          "run?": {
            type: "object",
            description: "What another agent did for it: agent, messages.",
          },
          "left_out?": { const: true, description: "The model does not get it any more." },
          "note?": text("Where the window of the model begins."),
          at: TIME("When it was said."),
        }),
        "The messages.",
      ),
      total: number("Number of all messages of the conversation."),
      "window_start?": number("The number of the message from which on the model gets all."),
    }),
    annotations: READS,
  },
  {
    name: "transfer_agent_session",
    title: "Give a conversation to another agent",
    description:
      "Another agent of the same team goes on with the conversation; it knows what was said. Not while an agent is at work.",
    inputSchema: objectOf({
      agent_session_id: SESSION,
      target_agent: text("The name of the other agent.", { minLength: 1, maxLength: MAX_SPEC }),
    }),
    outputSchema: objectOf({
      success: { type: "boolean" },
      agent: text("The agent that has the conversation now."),
    }),
    annotations: CHANGES,
  },
  {
    name: "close_agent_session",
    title: "End a conversation with an agent",
    description: "Ends a session, and the work of the agent in it. Its messages are gone.",
    inputSchema: objectOf({ agent_session_id: SESSION }),
    outputSchema: objectOf({ success: { type: "boolean" } }),
    annotations: { ...CHANGES, destructiveHint: true },
  },
  {
    name: "pull_agent",
    title: "Get an agent from a registry",
    description:
      "Gets an agent from a registry (OCI), and keeps it. A person has to allow it, unless the manifest says otherwise.",
    inputSchema: objectOf({
      registry_ref: text("[HOST/]REPOSITORY[:TAG][@DIGEST]", { minLength: 1, maxLength: MAX_SPEC }),
    }),
    outputSchema: objectOf({
      digest: text("The digest of what was pulled."),
      reference: text("The value for `agent` in the other tools."),
    }),
    annotations: { ...CHANGES, openWorldHint: true },
  },
];

/** Sets of tools for clients. `invoke`: `list_agents` and `invoke_agent`; `sessions`: conversations, too. */
export const OFFERS = ["invoke", "sessions", "all"] as const;

export type Offer = (typeof OFFERS)[number];

const INVOKE_TOOLS: ReadonlySet<string> = new Set(["list_agents", "invoke_agent"]);

function isOffered(tool: string, offer: Offer): boolean {
  if (offer === "all" || INVOKE_TOOLS.has(tool)) return true;
  return offer === "sessions" && tool !== "pull_agent";
}

/** The names of all tools but exposed agents. */
export const OWN_TOOL_NAMES: ReadonlySet<string> = new Set(
  [...OWN_TOOLS, invokeWithConfig].map(({ name }) => name),
);

interface OfferOptions {
  readonly offer: Offer;
  /** The agents that are tools themselves. */
  readonly expose: readonly string[];
  readonly inlineConfig: boolean;
}

/** Whether clients are offered a tool of this name. */
export function isToolOffered(
  name: string,
  { offer, expose, inlineConfig }: OfferOptions,
): boolean {
  if (name === invokeWithConfig.name) return inlineConfig;
  return OWN_TOOL_NAMES.has(name) ? isOffered(name, offer) : expose.includes(name);
}

/** The tools that clients are offered. @param describe returns the description of an agent for other models */
export function toolDefinitions(
  { offer, expose, inlineConfig }: OfferOptions,
  describe: (agent: string) => string | undefined,
): readonly ToolDefinition[] {
  const exposed = expose.map((name): ToolDefinition => ({
    name,
    title: `Agent ${name}`,
    description: describe(name) ?? `Gives a task to the agent "${name}" and returns its answer.`,
    inputSchema: objectOf({ message: MESSAGE }),
    outputSchema: RUN_OUTPUT,
    annotations: RUNS,
    execution: AS_TASK,
  }));
  const own = OWN_TOOLS.filter(({ name }) => isOffered(name, offer));
  return [...own, ...(inlineConfig ? [invokeWithConfig] : []), ...exposed];
}
