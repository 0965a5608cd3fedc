/** Agents and the models that they use, as the manifest or an agent's file describes them. Immutable. */
import type { AgentExposure } from "./exposures.ts";
import type { Filter } from "./filter.ts";
import type { Problem } from "./problems.ts";
import type { SecretSource } from "./schema.ts";

export const MODEL_PROVIDERS = ["anthropic", "openai", "google", "sampling", "script"] as const;
export type ModelProvider = (typeof MODEL_PROVIDERS)[number];

/**
 * A model (`[models.NAME]`). `apiKey`, `url` and `script` are as written: their `${…}` are resolved when a run
 * starts.
 */
export interface ModelSpec {
  /** The model's key in the manifest, or `provider/model` if the manifest does not define the model. */
  readonly name: string;
  /** The provider of the model. `openai`: any API at `url` that is compatible with OpenAI's chat completions. */
  readonly provider: ModelProvider;
  /** The provider's name of the model. */
  readonly model: string;
  /** The base URL of the API; undefined: the provider's own. */
  readonly url?: string | undefined;
  /**
   * The API key; undefined: the secret with the provider's name is used, else the provider's environment variable.
   */
  readonly apiKey?: string | undefined;
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  readonly frequencyPenalty?: number | undefined;
  readonly presencePenalty?: number | undefined;
  /** Whether a model of Anthropic may think between calls of tools. */
  readonly interleavedThinking?: boolean | undefined;
  /** Maximum number of tokens of one answer. */
  readonly maxTokens?: number | undefined;
  /** Number of tokens of the model's context. */
  readonly contextTokens: number;
  readonly thinking?: "off" | "low" | "medium" | "high" | undefined;
  /** Whether the model accepts images; undefined: only with the provider's own URL. */
  readonly images?: boolean | undefined;
  /** Time limit of one request until its stream ends, in ms. */
  readonly timeout: number;
  /** The file with the answers of a model with provider `script`; relative to `baseDir`. */
  readonly script?: string | undefined;
  /** The folder of the file that describes the model. */
  readonly baseDir: string;
  /** The sources in which the model's secrets are looked up, in this order; absent: `SECRET_SOURCES`. */
  readonly secretSources?: readonly SecretSource[] | undefined;
}

/** A model whose table has problems. Only agents that use it are affected. */
export interface InvalidModel {
  readonly name: string;
  /** The problems of the table: at least one, in the order of the text. */
  readonly problems: readonly Problem[];
}

/** The models of a manifest, by name. */
export type Models = ReadonlyMap<string, ModelSpec | InvalidModel>;

/** Default time limit of a request to a model, in ms. */
const MODEL_TIMEOUT = 300_000;

/** Default size of the model's context by provider, in tokens. */
const CONTEXT_TOKENS: Readonly<Record<ModelProvider, number>> = {
  anthropic: 200_000,
  openai: 128_000,
  google: 1_000_000,
  sampling: 128_000,
  script: 128_000,
};

/** Makes a model from the given settings and the defaults. */
export function makeModelSpec(
  given: Pick<ModelSpec, "name" | "provider" | "model" | "baseDir"> & Partial<ModelSpec>,
): ModelSpec {
  return { contextTokens: CONTEXT_TOKENS[given.provider], timeout: MODEL_TIMEOUT, ...given };
}

/**
 * Finds the model that an agent names: a key of `[models]`, `provider/model` for a provider that has its own API, or
 * `sampling` for the model of the calling client.
 */
export function findModel(
  reference: string,
  { models, baseDir }: { readonly models?: Models | undefined; readonly baseDir: string },
): ModelSpec | InvalidModel | undefined {
  const known = models?.get(reference);
  if (known !== undefined) return known;
  if (reference === "sampling")
    return makeModelSpec({ name: reference, provider: "sampling", model: "", baseDir });
  const [, name, model = ""] = /^(anthropic|openai|google)\/(.+)$/.exec(reference) ?? [];
  const provider = MODEL_PROVIDERS.find((one) => one === name);
  return provider && makeModelSpec({ name: reference, provider, model, baseDir });
}

/** An agent (`[agents.NAME]`): an instruction, a model, and the tools that it may call. */
export interface AgentSpec {
  readonly name: string;
  /** A key of `[models]`, or `provider/model`. */
  readonly model: string;
  /** Further models of the agent's file: the turns of a run go to `model` and to these one after the other. */
  readonly alternateModels?: readonly string[] | undefined;
  /** The models that are asked instead of `model` if a message is like their examples. */
  readonly routes?: readonly ModelRoute[] | undefined;
  /** The models that read the results of tools, by the server of the tool. */
  readonly toolModels?: ReadonlyMap<string, string> | undefined;
  /** The models to which the agent can change by a tool of its own (`model_picker`). */
  readonly pickableModels?: readonly string[] | undefined;
  /** The models that are asked if the agent's own fails. */
  readonly fallback?: ModelFallback | undefined;
  /** The form that the agent's answers must have; undefined: text. */
  readonly structuredOutput?: StructuredOutput | undefined;
  /** The description of the agent, which other models read. */
  readonly description?: string | undefined;
  /** The system prompt: the text in the agent's table, or the content of its `instructionFile`. */
  readonly instruction: string;
  /** Selects the tools of the hub that the agent has; undefined: none. */
  readonly tools?: Filter | undefined;
  /** The name of a mode whose tools the agent has, instead of `tools`. */
  readonly mode?: string | undefined;
  /** Whether the mode of the caller limits the agent's tools. */
  readonly respectMode: boolean;
  /** Whether the agent's tools include agents that are offered as tools (`agents__*`). */
  readonly allowAgents: boolean;
  /** The form in which the agent gets its tools; `auto`: `search` if their definitions are above `hub.exposeBudget`. */
  readonly expose: AgentExposure;
  /** Agents to which this agent can give a task (`transfer_task`). Their answer is the result of that tool. */
  readonly subAgents: readonly string[];
  /** Agents that can take over this agent's conversation (`handoff`). */
  readonly handoffs: readonly string[];
  /** Maximum number of requests to the model in a run. */
  readonly maxTurns: number;
  readonly maxToolCalls: number;
  readonly parallelToolCalls: number;
  /** Maximum number of retries of a call that failed for a transient reason, if a retry is safe. */
  readonly retries: number;
  /** Maximum size of a tool's result that the model gets, in bytes; longer results are cut. */
  readonly resultLimit: number;
  /** Time limit of a run, in ms. */
  readonly timeout: number;
  /** Which of the agent's calls need approval; undefined: as `[defaults] agentApproval` says. */
  readonly approval?: "auto" | "always" | "never" | undefined;
  /**
   * Whether conversations with the agent are kept; undefined: those of the user's terminal and page are, those of clients
   * are not.
   */
  readonly persist?: boolean | undefined;
}

/** A model, and messages for which it is asked. */
export interface ModelRoute {
  readonly model: string;
  readonly examples: readonly string[];
}

/** The models that are asked if another one fails. */
export interface ModelFallback {
  /** In this order. */
  readonly models: readonly string[];
  /** How often a model is asked again that is overloaded or cannot be reached, before the next one is. */
  readonly retries: number;
  /** How long a model is not asked after it has refused a request because of its rate limit, in ms. */
  readonly cooldown: number;
}

/** The JSON that the answers of an agent must be. */
export interface StructuredOutput {
  readonly name: string;
  readonly description?: string | undefined;
  /** Whether the provider is to let the model write nothing else. */
  readonly strict: boolean;
  /** A JSON Schema. */
  readonly schema: Readonly<Record<string, unknown>>;
}

/** An agent whose table has problems. Only this agent and agents that use it are affected. */
export interface InvalidAgent {
  readonly name: string;
  /** The problems of the table: at least one, in the order of the text. */
  readonly problems: readonly Problem[];
}

/** The agents of a manifest, by name. */
export type Agents = ReadonlyMap<string, AgentSpec | InvalidAgent>;

/** The default settings of agents. */
export const AGENT_DEFAULTS = {
  respectMode: false,
  allowAgents: false,
  expose: "auto",
  subAgents: [],
  handoffs: [],
  maxTurns: 50,
  maxToolCalls: 200,
  parallelToolCalls: 8,
  retries: 1,
  resultLimit: 64_000,
  timeout: 600_000,
} as const satisfies Partial<AgentSpec>;

/** Makes an agent from the given settings and the defaults. */
export function makeAgentSpec(
  given: Pick<AgentSpec, "name" | "model" | "instruction"> & Partial<AgentSpec>,
): AgentSpec {
  return { ...AGENT_DEFAULTS, ...given };
}
