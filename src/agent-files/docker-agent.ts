import { resolve } from "node:path";
import * as v from "valibot";
import {
  makeAgentSpec,
  makeModelSpec,
  type ModelFallback,
  type ModelProvider,
  type ModelRoute,
  type ModelSpec,
  type StructuredOutput,
} from "../manifest/agents.ts";
import { nonEmptyText, flag, record, text, uncheckedTable } from "../manifest/fields.ts";
import { type Filter, filterWithoutPatternsSchema } from "../manifest/filter.ts";
import type { ExternalServer } from "../manifest/manifest.ts";
import { findNearest, type KeyPath, type Problem } from "../manifest/problems.ts";
import { createTable, isTable, type Table, withoutNulls } from "../manifest/table.ts";
import { validate } from "../manifest/validate.ts";
import {
  type AgentFile,
  type AgentFileResult,
  type BuiltInTool,
  FILE_LIMITS,
  type AgentDefinition,
  type ToolsetUse,
} from "./agent-file.ts";
import { type NamedPrompt, unsupportedPlaceholder } from "./named-prompts.ts";
import { readExternalServers, type Script } from "./toolsets.ts";
import { parsePermission, type Permissions } from "./permissions.ts";

/**
 * Reads a file in the format of docker-agent (cagent): `agents`, `models`, `providers`, `mcps`, `metadata`. Keys and
 * toolsets that toolmux does not support, and servers that cannot be read, are collected in `unsupported`; problems have
 * no positions yet.
 * @param readSibling reads a text file below the folder of the file
 */
export function readDockerAgentFile(
  root: unknown,
  source: { readonly file: string; readonly baseDir: string },
  readSibling: SiblingFileReader,
): AgentFileResult {
  return new DockerAgentReader(source, readSibling).read(root);
}

/**
 * Reads a text file below the folder of an agent's file; `problem` names the path, such as `"a.md" does not exist`.
 */
export type SiblingFileReader = (
  path: string,
) => { readonly text: string } | { readonly problem: string };

const tableSchema = uncheckedTable;
/** A text, or a number or a boolean that is meant as one. */
const scalarText = v.pipe(
  v.union([text, v.number(), v.boolean()], "a string"),
  v.transform(String),
);
const names = v.array(nonEmptyText, "an array of names");
const wholeNumber = v.pipe(
  v.number("a whole number"),
  v.integer("a whole number"),
  v.minValue(0, "a whole number, 0 or more"),
);

const fileEntries = {
  version: v.exactOptional(v.unknown()),
  agents: v.exactOptional(tableSchema),
  models: v.exactOptional(tableSchema),
  providers: v.exactOptional(tableSchema),
  mcps: v.exactOptional(tableSchema),
  metadata: v.exactOptional(tableSchema),
  permissions: v.exactOptional(tableSchema),
};

const permissionEntries = {
  allow: v.exactOptional(names),
  ask: v.exactOptional(names),
  deny: v.exactOptional(names),
};

const agentEntries = {
  model: v.exactOptional(nonEmptyText),
  description: v.exactOptional(text),
  instruction: v.exactOptional(text),
  instruction_file: v.exactOptional(nonEmptyText),
  sub_agents: v.exactOptional(names),
  handoffs: v.exactOptional(names),
  toolsets: v.exactOptional(v.array(tableSchema, "an array of tables")),
  max_iterations: v.exactOptional(wholeNumber),
  add_date: v.exactOptional(flag),
  add_environment_info: v.exactOptional(flag),
  add_prompt_files: v.exactOptional(names),
  welcome_message: v.exactOptional(text),
  commands: v.exactOptional(
    v.union([v.array(tableSchema), tableSchema], "a table of prompts, by name"),
  ),
  fallback: v.exactOptional(tableSchema),
  structured_output: v.exactOptional(tableSchema),
};

const commandEntries = {
  description: v.exactOptional(text),
  instruction: nonEmptyText,
};

const fallbackEntries = {
  models: v.exactOptional(names),
  retries: v.exactOptional(v.pipe(v.number("a whole number"), v.integer("a whole number"))),
  cooldown: v.exactOptional(text),
};

const structuredOutputEntries = {
  name: nonEmptyText,
  description: v.exactOptional(text),
  strict: v.exactOptional(flag),
  schema: tableSchema,
};

const modelEntries = {
  provider: v.exactOptional(nonEmptyText),
  model: v.exactOptional(nonEmptyText),
  max_tokens: v.exactOptional(wholeNumber),
  temperature: v.exactOptional(v.number("a number")),
  top_p: v.exactOptional(v.number("a number")),
  frequency_penalty: v.exactOptional(v.number("a number")),
  presence_penalty: v.exactOptional(v.number("a number")),
  base_url: v.exactOptional(nonEmptyText),
  token_key: v.exactOptional(nonEmptyText),
  provider_opts: v.exactOptional(tableSchema),
  routing: v.exactOptional(v.array(tableSchema, "an array of tables")),
  thinking_budget: v.exactOptional(v.union([text, v.number()], "a level or a number of tokens")),
};

const routeEntries = { model: nonEmptyText, examples: names };
const optionEntries = { interleaved_thinking: v.exactOptional(v.unknown()) };

const providerEntries = {
  api_type: v.exactOptional(text),
  base_url: v.exactOptional(nonEmptyText),
  token_key: v.exactOptional(nonEmptyText),
};

const remoteEntries = {
  url: nonEmptyText,
  transport_type: v.exactOptional(text),
  headers: v.exactOptional(record(scalarText)),
};

/** Whether the tools, or some of them, are found by a search. */
const defer = v.exactOptional(v.union([flag, names], "a boolean or names of tools"));

const mcpEntries = {
  type: v.exactOptional(text),
  name: v.exactOptional(nonEmptyText),
  command: v.exactOptional(nonEmptyText),
  args: v.exactOptional(v.array(scalarText, "an array of strings")),
  env: v.exactOptional(record(scalarText)),
  remote: v.exactOptional(tableSchema),
  ref: v.exactOptional(nonEmptyText),
  tools: v.exactOptional(names),
  instruction: v.exactOptional(text),
  // The package from which docker-agent installs a command that is missing.
  version: v.exactOptional(text),
  defer,
};

const toolmuxEntries = {
  type: text,
  filter: v.exactOptional(filterWithoutPatternsSchema),
  instruction: v.exactOptional(text),
};

const builtInEntries = {
  type: text,
  instruction: v.exactOptional(text),
  path: v.exactOptional(nonEmptyText),
  shared: v.exactOptional(flag),
  models: v.exactOptional(names),
};

/** The keys of a toolset that a server of the manifest provides. */
const mappedEntries = {
  type: text,
  name: v.exactOptional(text),
  tools: v.exactOptional(names),
  instruction: v.exactOptional(text),
  model: v.exactOptional(nonEmptyText),
  defer,
};

/** The toolsets whose other keys have a meaning of their own; those of all others are settings of their servers. */
const KNOWN_TOOLSETS = ["filesystem", "fetch", "shell"];

const scriptEntries = {
  cmd: nonEmptyText,
  description: v.exactOptional(text),
  args: v.exactOptional(tableSchema),
  required: v.exactOptional(names),
  env: v.exactOptional(record(scalarText)),
  working_dir: v.exactOptional(nonEmptyText),
};

const BUILT_INS: readonly BuiltInTool[] = [
  "think",
  "todo",
  "memory",
  "user_prompt",
  "model_picker",
  "transfer_task",
];

/**
 * Keys of docker-agent that toolmux does not support. They are not misspelt, so no other key is suggested for them.
 */
const OTHER_KEYS = new Set(
  "rag code_mode_tools num_history_items hooks skills add_description_parameter parallel_tool_calls track_usage toon config shared path shell post_edit api_config ignore_vcs timeout url headers file_types models".split(
    " ",
  ),
);

type McpInput = v.InferOutput<v.ObjectSchema<typeof mcpEntries, undefined>>;

/** Providers whose API is compatible with OpenAI's: the base URL, and the environment variable with the key. */
const COMPATIBLE: Readonly<Record<string, { readonly url: string; readonly key?: string }>> = {
  xai: { url: "https://api.x.ai/v1", key: "XAI_API_KEY" },
  mistral: { url: "https://api.mistral.ai/v1", key: "MISTRAL_API_KEY" },
  nebius: { url: "https://api.studio.nebius.com/v1", key: "NEBIUS_API_KEY" },
  requesty: { url: "https://router.requesty.ai/v1", key: "REQUESTY_API_KEY" },
  minimax: { url: "https://api.minimax.io/v1", key: "MINIMAX_API_KEY" },
  ollama: { url: "http://localhost:11434/v1" },
  dmr: { url: "http://localhost:12434/engines/v1" },
};

const OWN_PROVIDERS: readonly ModelProvider[] = ["anthropic", "openai", "google"];

/** The server of a toolset: its settings as a table of a manifest, and those of its tools that the agent has. */
interface ToolsetServer {
  readonly name: string;
  readonly table: Table;
  readonly tools: readonly string[] | undefined;
  readonly path: KeyPath;
}

class DockerAgentReader {
  readonly #file: string;
  readonly #baseDir: string;
  readonly #readSibling: SiblingFileReader;
  readonly #problems: Problem[] = [];
  readonly #unsupported: Problem[] = [];
  /** The models, by their name in `models`, or by `provider/model` for providers that toolmux does not have. */
  readonly #models = new Map<string, ModelSpec>();
  #providers: Table = {};
  #mcps: Table = {};
  /** Servers by their settings as JSON: agents with equal settings share one server. */
  readonly #servers = new Map<string, ToolsetServer>();
  readonly #toolsets: ToolsetUse[] = [];
  /** The routes of models, by the name of the model. */
  readonly #routes = new Map<string, readonly ModelRoute[]>();

  constructor(
    { file, baseDir }: { readonly file: string; readonly baseDir: string },
    readSibling: SiblingFileReader,
  ) {
    this.#file = file;
    this.#baseDir = baseDir;
    this.#readSibling = readSibling;
  }

  read(document: unknown): AgentFileResult {
    // A key without a value, which YAML reads as null, means the same as a missing key.
    const root = withoutNulls(document);
    const top = this.#check(fileEntries, root, []);
    const tables = top?.agents ?? {};
    this.#providers = top?.providers ?? {};
    this.#mcps = top?.mcps ?? {};
    for (const [name, entry] of Object.entries(this.#providers))
      this.#check(providerEntries, entry, ["providers", name]);
    for (const [name, entry] of Object.entries(this.#mcps))
      this.#leaveOut(() => this.#check(mcpEntries, entry, ["mcps", name]));
    for (const [name, entry] of Object.entries(top?.models ?? {})) this.#readModel(name, entry);
    if (top !== undefined && Object.keys(tables).length === 0)
      this.#problem(["agents"], "value", "a file of agents needs at least one agent");
    const agents = new Map<string, AgentDefinition>();
    if (Object.keys(tables).length > FILE_LIMITS.agents) {
      this.#problem(["agents"], "key", `a file has at most ${FILE_LIMITS.agents} agents`);
      return { ok: false, problems: this.#problems };
    }
    for (const [name, entry] of Object.entries(tables)) {
      const agent = this.#readAgent(name, entry, tables);
      if (agent !== undefined) agents.set(name, agent);
    }
    const servers = this.#readServers();
    const permissions = this.#readPermissions(top?.permissions);
    const entry = agents.has("root") ? "root" : [...agents.keys()][0];
    if (this.#problems.length > 0 || entry === undefined)
      return { ok: false, problems: this.#problems.slice(0, FILE_LIMITS.problems) };
    const file: AgentFile = {
      source: this.#file,
      entry,
      agents,
      models: this.#models,
      servers,
      ...(this.#toolsets.length > 0 && { toolsets: this.#toolsets }),
      ...(permissions !== undefined && { permissions }),
      unsupported: this.#unsupported,
      forbiddenActions: [],
    };
    return { ok: true, file };
  }

  #readAgent(name: string, entry: unknown, all: Table): AgentDefinition | undefined {
    const path = ["agents", name];
    const input = this.#check(agentEntries, entry, path);
    if (input === undefined) return undefined;
    const tools: Filter[] = [];
    const ownTools: Filter[] = [];
    const builtIns = new Set<BuiltInTool>();
    let memory: string | undefined;
    let sharesTodos = false;
    let isDeferred = false;
    const pickable: string[] = [];
    const instructions = [this.#renderInstruction(input, path)];
    for (const [index, toolset] of (input.toolsets ?? []).entries()) {
      const at = [...path, "toolsets", index];
      const type = toolset["type"];
      const builtIn = BUILT_INS.find((one) => one === type);
      if (typeof type !== "string") {
        this.#problem([...at, "type"], "value", "a toolset needs a type, such as mcp");
      } else if (type === "mcp") {
        const server = this.#leaveOut(() => this.#readMcp(toolset, at));
        if (server === undefined) continue;
        ownTools.push(
          server.tools === undefined
            ? { servers: [escapeGlob(server.name)] }
            : { ids: server.tools.map((tool) => `${server.name}.${tool}`) },
        );
        isDeferred ||= "defer" in toolset && toolset["defer"] !== false;
        instructions.push(toolsetInstruction(toolset));
      } else if (type === "toolmux") {
        const own = this.#check(toolmuxEntries, toolset, at);
        if (own !== undefined) tools.push(own.filter ?? "all");
        instructions.push(toolsetInstruction(toolset));
      } else if (builtIn !== undefined) {
        const own = this.#check(builtInEntries, toolset, at);
        builtIns.add(builtIn);
        if (builtIn === "memory") memory ??= own?.path;
        if (builtIn === "todo") sharesTodos ||= own?.shared === true;
        instructions.push(toolsetInstruction(toolset));
        if (builtIn === "model_picker") {
          const models = (own?.models ?? []).map((one, place) =>
            this.#modelOf(one, [...at, "models", place]),
          );
          if (models.length === 0)
            this.#notSupported([...at, "type"], "value", "the toolset model_picker needs models");
          pickable.push(...models);
          instructions.push(`Models for change_model: ${models.join(", ")}.`);
        }
      } else {
        const common = Object.fromEntries(
          Object.entries(toolset).filter(([key]) => Object.hasOwn(mappedEntries, key)),
        );
        const isKnown = KNOWN_TOOLSETS.includes(type);
        const own = this.#leaveOut(() =>
          this.#check(mappedEntries, isKnown ? toolset : common, at),
        );
        if (own === undefined) continue;
        const place: Problem = {
          file: this.#file,
          path: [...at, "type"],
          at: "value",
          message: "",
        };
        this.#toolsets.push({
          agent: name,
          type,
          tools: own.tools,
          scripts:
            type === "script" ? this.#readScripts(toolset["shell"], [...at, "shell"]) : undefined,
          model: this.#modelIn(own.model, at),
          place,
        });
        isDeferred ||= own.defer !== undefined && own.defer !== false;
        instructions.push(toolsetInstruction(toolset));
      }
    }
    const prompts = this.#readPrompts(input.commands, [...path, "commands"]);
    const fallback = this.#readFallback(input.fallback, [...path, "fallback"]);
    const output = this.#readStructuredOutput(input.structured_output, [
      ...path,
      "structured_output",
    ]);
    const [model = "auto", ...others] = this.#modelsOf(input.model, [...path, "model"]);
    const spec = makeAgentSpec({
      name,
      model,
      ...(others.length > 0 && { alternateModels: others }),
      ...this.#routesOf(model, path),
      ...(fallback !== undefined && { fallback }),
      ...(output !== undefined && { structuredOutput: output }),
      ...(isDeferred && { expose: "search" as const }),
      ...(pickable.length > 0 && { pickableModels: pickable }),
      description: input.description,
      instruction: instructions.filter((part) => part !== "").join("\n\n"),
      tools: anyOf(tools),
      subAgents: this.#agentsOf(input.sub_agents, [...path, "sub_agents"], all),
      handoffs: this.#agentsOf(input.handoffs, [...path, "handoffs"], all),
      // In docker-agent, 0 means no limit.
      ...(input.max_iterations && { maxTurns: input.max_iterations }),
    });
    return {
      spec,
      ownTools: anyOf(ownTools),
      builtIns: [...builtIns],
      addDate: input.add_date ?? false,
      addEnvironmentInfo: input.add_environment_info ?? false,
      ...(memory !== undefined && { memory }),
      ...(sharesTodos && { sharesTodos }),
      ...(input.welcome_message !== undefined && { welcomeMessage: input.welcome_message }),
      ...(prompts.size > 0 && { prompts }),
    };
  }

  #renderInstruction(
    input: v.InferOutput<v.ObjectSchema<typeof agentEntries, undefined>>,
    path: KeyPath,
  ): string {
    const parts = [input.instruction ?? ""];
    const { instruction_file: file, add_prompt_files: more = [] } = input;
    if (file !== undefined) {
      const read = this.#readSibling(file);
      if ("text" in read) parts.push(read.text);
      else this.#problem([...path, "instruction_file"], "value", read.problem);
    }
    // docker-agent searches the working directory and its parents for these files, and ignores missing ones. toolmux
    // reads them below the folder of the agent's file, and reports missing ones.
    for (const [index, prompt] of more.entries()) {
      const read = this.#readSibling(prompt);
      if ("text" in read) parts.push(read.text);
      else {
        const message = `${read.problem}; put it beside the file, or remove the line`;
        this.#notSupported([...path, "add_prompt_files", index], "value", message);
      }
    }
    return parts.filter((part) => part !== "").join("\n\n");
  }

  /**
   * Those names of a list that are agents of this file. All other names, such as agents of a registry, are reported as
   * not supported.
   */
  #agentsOf(list: readonly string[] = [], path: KeyPath, all: Table): readonly string[] {
    return list.filter((name, index) => {
      if (name in all) return true;
      const advice = this.#suggest(name, Object.keys(all));
      const message = `"${name}" is not an agent of this file${advice || `; describe it there: agents: {NAME: …}`}`;
      this.#notSupported([...path, index], "value", message);
      return false;
    });
  }

  /** The models of an agent, which answer in turn: keys of `models`, or `provider/model`, separated by commas. */
  #modelsOf(list: string | undefined, path: KeyPath): readonly string[] {
    if (list === undefined) return [];
    const all = list.split(",").map((part) => part.trim());
    return all.filter((name) => name !== "").map((name) => this.#modelOf(name, path));
  }

  #modelOf(name: string, path: KeyPath): string {
    if (this.#models.has(name)) return name;
    const [provider = "", ...rest] = name.split("/");
    const model = rest.join("/");
    if (model === "" || OWN_PROVIDERS.some((own) => own === provider)) return name;
    const spec = this.#makeModel(name, { provider, model }, path);
    if (spec !== undefined) this.#models.set(name, spec);
    return name;
  }

  /** The routes of an agent's model, whose models are opened by name. */
  #routesOf(model: string, path: KeyPath): { readonly routes?: readonly ModelRoute[] } {
    const routes = this.#routes.get(model);
    if (routes === undefined) return {};
    return {
      routes: routes.map((route) => {
        return { ...route, model: this.#modelOf(route.model, [...path, "model"]) };
      }),
    };
  }

  /** The commands of a toolset `script`; undefined if it has none. */
  #readScripts(input: unknown, path: KeyPath): readonly Script[] | undefined {
    const scripts = Object.entries(isTable(input) ? input : {}).flatMap(([name, entry]) => {
      const at = [...path, name];
      const read = this.#leaveOut(() => this.#check(scriptEntries, entry, at));
      if (read === undefined) return [];
      const { cmd, description, args = {}, required = [], env = {}, working_dir: folder } = read;
      if (!/^[\w-]{1,64}$/.test(name) || !Object.keys(args).every((key) => /^\w+$/.test(key))) {
        const message = "the names of a command and its arguments have letters, digits, _ and -";
        this.#notSupported(at, "key", message);
        return [];
      }
      const workingDir = folder === undefined ? undefined : resolve(this.#baseDir || "/", folder);
      return [{ name, cmd, description, args, required, env, workingDir }];
    });
    return scripts.length === 0 ? undefined : scripts.slice(0, MAX_SCRIPTS);
  }

  #modelIn(name: string | undefined, at: KeyPath): string | undefined {
    return name === undefined ? undefined : this.#modelOf(name, [...at, "model"]);
  }

  #readFallback(input: unknown, path: KeyPath): ModelFallback | undefined {
    const read = input === undefined ? undefined : this.#check(fallbackEntries, input, path);
    if (read?.models === undefined || read.models.length === 0) return undefined;
    const { models, retries = 2, cooldown = "1m" } = read;
    const ms = durationOf(cooldown);
    if (ms === undefined) {
      const message = "is no duration, such as 1m, so 1m is used";
      this.#notSupported([...path, "cooldown"], "value", message);
    }
    return {
      models: models.map((name, at) => this.#modelOf(name, [...path, "models", at])),
      retries: Math.max(0, retries),
      cooldown: ms ?? DEFAULT_COOLDOWN,
    };
  }

  #readStructuredOutput(input: unknown, path: KeyPath): StructuredOutput | undefined {
    if (input === undefined) return undefined;
    const read = this.#check(structuredOutputEntries, input, path);
    if (read === undefined) return undefined;
    const { name, description, strict = false, schema } = read;
    return { name, ...(description !== undefined && { description }), strict, schema };
  }

  /** The prompts by name; docker-agent also takes a list of tables. */
  #readPrompts(
    input: Table | readonly Table[] | undefined,
    path: KeyPath,
  ): ReadonlyMap<string, NamedPrompt> {
    const prompts = new Map<string, NamedPrompt>();
    const read = (table: Table, base: KeyPath): void => {
      for (const [name, entry] of Object.entries(table)) {
        const at = [...base, name];
        const prompt =
          typeof entry === "string"
            ? { instruction: entry }
            : this.#leaveOut(() => this.#check(commandEntries, entry, at));
        if (prompt === undefined) continue;
        const named = { description: undefined, ...prompt };
        const program = unsupportedPlaceholder(named);
        if (program !== undefined) {
          const shown = JSON.stringify(program.slice(0, 60));
          this.#notSupported(at, "value", `${shown} is a program, which is not run`);
        }
        prompts.set(name, named);
      }
    };
    if (isTable(input)) read(input, path);
    else for (const [at, table] of (input ?? []).entries()) read(table, [...path, at]);
    return prompts;
  }

  #readPermissions(input: unknown): Permissions | undefined {
    if (input === undefined) return undefined;
    const read = this.#check(permissionEntries, input, ["permissions"]);
    if (read === undefined) return undefined;
    const rulesOf = (key: keyof Permissions): Permissions["deny"] => {
      const patterns = read[key] ?? [];
      if (patterns.length > MAX_RULES || patterns.some((pattern) => pattern.length > MAX_PATTERN)) {
        const message = `a list has at most ${MAX_RULES} rules of ${MAX_PATTERN} characters`;
        this.#problem(["permissions", key], "value", message);
      }
      return patterns.map(parsePermission);
    };
    return { deny: rulesOf("deny"), ask: rulesOf("ask"), allow: rulesOf("allow") };
  }

  #readModel(name: string, entry: unknown): void {
    const path = ["models", name];
    const input = this.#check(modelEntries, entry, path);
    if (input === undefined) return;
    const routes = (input.routing ?? []).flatMap((route, at) => {
      const read = this.#check(routeEntries, route, [...path, "routing", at]);
      return read === undefined ? [] : [read];
    });
    if (routes.length > 0) this.#routes.set(name, routes);
    if (input.provider_opts !== undefined)
      this.#check(optionEntries, input.provider_opts, [...path, "provider_opts"]);
    const { provider, model } = input;
    if (provider === undefined || model === undefined) {
      this.#problem(path, "value", "a model needs provider and model");
      return;
    }
    const spec = this.#makeModel(name, { ...input, provider, model }, [...path, "provider"]);
    if (spec !== undefined) this.#models.set(name, spec);
  }

  #makeModel(
    name: string,
    input: v.InferOutput<v.ObjectSchema<typeof modelEntries, undefined>> & {
      readonly provider: string;
      readonly model: string;
    },
    path: KeyPath,
  ): ModelSpec | undefined {
    const { provider, model, max_tokens: maxTokens, temperature } = input;
    const { top_p: topP, frequency_penalty, presence_penalty } = input;
    const custom = this.#providers[provider];
    const table = isTable(custom) ? custom : {};
    const known = Object.hasOwn(COMPATIBLE, provider) ? COMPATIBLE[provider] : undefined;
    const textOf = (value: unknown): string | undefined =>
      typeof value === "string" ? value : undefined;
    const url = input.base_url ?? textOf(table["base_url"]) ?? known?.url;
    const key = input.token_key ?? textOf(table["token_key"]) ?? known?.key;
    const apiType = textOf(table["api_type"]);
    if (apiType !== undefined && apiType !== "openai_chatcompletions") {
      const message = `the API "${apiType}" is not supported; uses that of chat completions, as with api_type: openai_chatcompletions`;
      this.#notSupported(["providers", provider, "api_type"], "value", message);
    }
    const own = OWN_PROVIDERS.find((one) => one === provider);
    if (own === undefined && url === undefined) {
      const message = `the provider "${provider}" is not supported, so its model "${model}" is not; add the URL of an API that is compatible with OpenAI's: base_url: URL`;
      this.#notSupported(path, "value", message);
      return undefined;
    }
    return makeModelSpec({
      name,
      provider: own ?? "openai",
      model,
      baseDir: this.#baseDir,
      ...(url !== undefined && { url: toTemplate(url) }),
      ...(key !== undefined && { apiKey: `\${env:${key}}` }),
      ...(maxTokens && { maxTokens }),
      ...(temperature !== undefined && { temperature }),
      ...(topP !== undefined && { topP }),
      ...(frequency_penalty !== undefined && { frequencyPenalty: frequency_penalty }),
      ...(own === "anthropic" &&
        input.provider_opts?.["interleaved_thinking"] === true && { interleavedThinking: true }),
      ...(presence_penalty !== undefined && { presencePenalty: presence_penalty }),
      ...(input.thinking_budget !== undefined && { thinking: thinkingOf(input.thinking_budget) }),
    });
  }

  #readMcp(toolset: Table, path: KeyPath): ToolsetServer | undefined {
    const input = this.#check(mcpEntries, toolset, path);
    if (input === undefined) return undefined;
    const { ref, remote, command, tools } = input;
    const ways = [ref, remote, command].filter((way) => way !== undefined);
    if (ways.length !== 1) {
      const message = "a toolset of MCP needs exactly one of command, remote and ref";
      return this.#problem(path, "value", message);
    }
    if (ref !== undefined && !ref.includes(":")) {
      const definition = this.#mcps[ref];
      if (!isTable(definition)) {
        const advice = this.#suggest(ref, Object.keys(this.#mcps));
        return this.#problem([...path, "ref"], "value", `mcps has no "${ref}"${advice}`);
      }
      if (typeof definition["ref"] === "string" && !definition["ref"].includes(":")) {
        return this.#problem(["mcps", ref, "ref"], "value", "cannot name another one of mcps");
      }
      // The toolset's own settings override those of the entry in `mcps`.
      const { ref: _ref, type: _type, ...own } = toolset;
      return this.#readMcp({ name: ref, ...definition, ...own }, path);
    }
    const table = this.#serverTable(input, path);
    if (table === undefined) return undefined;
    if (this.#servers.size >= FILE_LIMITS.servers)
      return this.#problem(path, "value", `a file has at most ${FILE_LIMITS.servers} servers`);
    const launch = JSON.stringify(table);
    const known = this.#servers.get(launch);
    const name = known?.name ?? this.#freeName(input);
    const server = { name, table, tools, path };
    if (known === undefined) this.#servers.set(launch, server);
    return server;
  }

  /** The server as a table of a manifest; undefined if it is not supported, which is reported. */
  #serverTable(input: McpInput, path: KeyPath): Table | undefined {
    const table = createTable<unknown>();
    if (input.ref !== undefined) {
      const [, image] = /^docker:([\w./:@-]+)$/.exec(input.ref) ?? [];
      if (image === undefined) {
        const message = `the reference "${input.ref}" is not supported`;
        return this.#notSupported([...path, "ref"], "value", message);
      }
      table["package"] = `docker:mcp/${image}`;
      table["runner"] = "docker";
    } else if (input.remote !== undefined) {
      const remote = this.#check(remoteEntries, input.remote, [...path, "remote"]);
      if (remote === undefined) return undefined;
      const { url, transport_type: transport, headers } = remote;
      table["url"] = toTemplate(url);
      if (transport === "sse") table["transport"] = "sse";
      if (headers !== undefined) table["headers"] = mapTexts(headers, toTemplate);
      return table;
    } else table["command"] = toTemplate(input.command ?? "");
    if (input.args !== undefined) table["args"] = input.args.map(toTemplate);
    if (input.env !== undefined) table["env"] = mapTexts(input.env, toVariableTemplate);
    return table;
  }

  /** An unused name for a server: the name of the toolset, or one made from the server's settings. */
  #freeName({ name, ref, remote, command = "" }: McpInput): string {
    const url = isTable(remote) ? String(remote["url"]) : "";
    const host = URL.canParse(url) ? new URL(url).hostname : "";
    const wanted = name ?? ref?.replace(/^docker:/, "") ?? (host || command.split("/").at(-1));
    const base = (wanted ?? "").replaceAll(/[^A-Za-z0-9-]+/g, "-").replaceAll(/^-+|(?<!-)-+$/g, "");
    const taken = new Set([...this.#servers.values()].map((server) => server.name));
    let free = base || "server";
    for (let number = 2; taken.has(free); number++) free = `${base || "server"}-${number}`;
    return free;
  }

  #readServers(): readonly ExternalServer[] {
    const table = createTable<unknown>();
    const paths = new Map<string, KeyPath>();
    for (const server of this.#servers.values()) {
      table[server.name] = server.table;
      paths.set(server.name, server.path);
    }
    const source = { file: this.#file, baseDir: this.#baseDir };
    const { servers, problems } = readExternalServers(table, source);
    for (const { path, message } of problems) {
      const [name, ...rest] = path;
      this.#notSupported([...(paths.get(String(name)) ?? []), ...rest], "value", message);
    }
    return servers;
  }

  /**
   * Reads one server of the file. If it has problems, only this server is left out: its problems are collected as not
   * supported, and the file can be used without it.
   */
  #leaveOut<T>(read: () => T | undefined): T | undefined {
    const before = this.#problems.length;
    const result = read();
    const own = this.#problems.splice(before);
    for (const { path, at, message } of own) this.#notSupported(path, at, message);
    return own.length > 0 ? undefined : result;
  }

  /** Checks the types of known keys, and collects all other keys as not supported. */
  #check<const E extends v.ObjectEntries>(
    entries: E,
    input: unknown,
    path: KeyPath,
  ): v.InferOutput<v.ObjectSchema<E, "a table">> | undefined {
    if (isTable(input)) {
      for (const key of Object.keys(input)) {
        if (Object.hasOwn(entries, key)) continue;
        const advice = OTHER_KEYS.has(key) ? "" : this.#suggest(key, Object.keys(entries));
        const line = Object.hasOwn(ADVICE, key) ? `; ${ADVICE[key]}` : advice;
        this.#notSupported([...path, key], "key", `"${key}" is not supported${line}`);
      }
    }
    const schema = v.pipe(uncheckedTable, v.object(entries, "a table"));
    const checked = validate(schema, input, { file: this.#file, path });
    if (checked.ok) return checked.value;
    this.#problems.push(...checked.problems);
    return undefined;
  }

  /**
   * The nearest known name, as the end of a message about an unknown one. Empty if there are many problems already,
   * because the search takes time.
   */
  #suggest(name: string, known: readonly string[]): string {
    if (this.#problems.length + this.#unsupported.length >= MAX_SUGGESTIONS) return "";
    const nearest = findNearest(name, known);
    return nearest === undefined ? "" : `; did you mean "${nearest}"?`;
  }

  #problem(path: KeyPath, at: "key" | "value", message: string): undefined {
    this.#problems.push({ file: this.#file, path, at, message });
    return undefined;
  }

  #notSupported(path: KeyPath, at: "key" | "value", message: string): undefined {
    if (this.#unsupported.length >= FILE_LIMITS.problems) return undefined;
    this.#unsupported.push({ file: this.#file, path, at, message });
    return undefined;
  }
}

/** The thinking level for a `thinking_budget` of docker-agent, which is a level or a number of tokens. */
function thinkingOf(budget: string | number): ModelSpec["thinking"] {
  if (typeof budget === "string") {
    const levels = { none: "off", minimal: "low", low: "low", medium: "medium" } as const;
    return Object.hasOwn(levels, budget) ? levels[budget as keyof typeof levels] : "high";
  }
  if (budget === 0) return "off";
  if (budget < 0) return "medium";
  if (budget < 4096) return "low";
  return budget < 16_384 ? "medium" : "high";
}

const MAX_SUGGESTIONS = 20;

const SERVER_LINE = "add to the agent's toolsets: {type: toolmux, filter: {servers: [NAME]}}";

/** What to write instead of keys that are not supported. */
const ADVICE: Readonly<Record<string, string>> = {
  rag: `to search documents with a server of the manifest, ${SERVER_LINE}`,
  code_mode_tools:
    "to keep many tools out of the model's context, add to their toolset: defer: true",
  toon: "results are passed on as they are; to shorten them, add to the manifest, for the agent: resultLimit",
  hooks: 'to check calls, add to the file: permissions: {deny: ["TOOL:ARGUMENT=PATTERN"]}',
  skills: "add to the agent: add_prompt_files: [SKILL.md]",
  post_edit: `to run a command after an edit, let a server of the manifest do both; ${SERVER_LINE}`,
  speculative_draft_model: "set it up in the model runner itself",
  speculative_num_tokens: "set it up in the model runner itself",
  speculative_acceptance_rate: "set it up in the model runner itself",
  runtime_flags: "set it up in the model runner itself",
  region: "set it up at the API that base_url names",
  profile: "set it up at the API that base_url names",
  config: "add what it sets to the toolset: env: {NAME: VALUE}",
};

/** Maximum number of rules of a list of permissions, and maximum length of one. */
const MAX_RULES = 500;
const MAX_PATTERN = 500;

/** Maximum number of commands of a toolset `script`. */
const MAX_SCRIPTS = 100;

/** How long a model rests after a rate limit if the file does not say it, in ms. */
const DEFAULT_COOLDOWN = 60_000;

/** A duration of Go, such as `1m30s`, in ms; undefined if the text is none. */
function durationOf(duration: string): number | undefined {
  if (duration === "0") return 0;
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(duration)) return undefined;
  const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;
  const parts = [...duration.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/gy)];
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit as "s"], 0);
}

/**
 * A toolset's instruction without its placeholder: toolmux has no original instructions that could replace the
 * placeholder.
 */
function toolsetInstruction({ instruction }: Table): string {
  return typeof instruction === "string"
    ? instruction.replaceAll("{ORIGINAL_INSTRUCTIONS}", "").trim()
    : "";
}

function anyOf(filters: readonly Filter[]): Filter | undefined {
  const [first, ...others] = filters;
  if (first === undefined || others.length === 0) return first;
  return filters.includes("all") ? "all" : { or: filters };
}

/** Makes a glob that matches only this server: removes `*` and `?`, which no valid server name contains. */
function escapeGlob(name: string): string {
  return name.replaceAll(/[*?]/g, "");
}

function mapTexts(
  texts: Readonly<Record<string, string>>,
  change: (text: string) => string,
): Record<string, string> {
  const changed = createTable<string>();
  for (const [key, value] of Object.entries(texts)) changed[key] = change(value);
  return changed;
}

/**
 * Converts a text of docker-agent to one of a manifest: `${NAME}` and `${env.NAME}` become `${env:NAME}`;
 * `${secret:NAME}` and `${env:NAME}` stay; every other `${` is escaped.
 */
function toTemplate(value: string): string {
  return value.replaceAll(/\$\{(?:env\.)?([A-Za-z_]\w*)\}|\$\{(?!secret:|env:)/g, (whole, name) =>
    typeof name === "string" ? `\${env:${name}}` : `$${whole}`,
  );
}

/** Like `toTemplate`, for the value of an environment variable, in which `$NAME` is replaced, too. */
function toVariableTemplate(value: string): string {
  return toTemplate(value.replaceAll(/\$([A-Za-z_]\w*)/g, (_whole, name) => `\${${String(name)}}`));
}
