/**
 * agent-files/: agents in files and from registries. `AgentFile` is the content of a file: agents, models and
 * servers. `docker-agent.ts` reads YAML, `manifest-format.ts` TOML and JSON; `store.ts` keeps what `registry.ts`
 * pulls. Start here, then read `agent-library.ts`, which finds an agent by its name, path or reference.
 */
import { sanitizeLine } from "../terminal/log.ts";
import { HubError } from "../base/errors.ts";
import type { AgentSpec, ModelSpec } from "../manifest/agents.ts";
import type { Filter } from "../manifest/filter.ts";
import type { ExternalServer } from "../manifest/manifest.ts";
import { formatProblem, type Problem } from "../manifest/problems.ts";
import type { NamedPrompt } from "./named-prompts.ts";
import type { Permissions } from "./permissions.ts";
import type { Script } from "./toolsets.ts";

/** Maximum size of an agent's file, in bytes. */
export const MAX_AGENT_FILE = 1024 * 1024;

/** Maximum number of agents, of models, of servers, and of listed problems of a file. */
export const FILE_LIMITS = { agents: 256, models: 256, servers: 64, problems: 100 } as const;

/** Tools that toolmux itself has. */
export type BuiltInTool =
  "think" | "todo" | "memory" | "user_prompt" | "model_picker" | "transfer_task";

/** A toolset of an agent that a server has to provide, such as `filesystem`. */
export interface ToolsetUse {
  /** The name of the agent. */
  readonly agent: string;
  readonly type: string;
  /** The server's own names of the only tools that the agent gets; undefined: all. */
  readonly tools: readonly string[] | undefined;
  /** The model that reads the results of its tools; undefined: the agent's own. */
  readonly model?: string | undefined;
  /** The commands of a toolset `script`; absent: it is none. */
  readonly scripts?: readonly Script[] | undefined;
  /** Its place in the file; the message is replaced. */
  readonly place: Problem;
}

/** An agent of a file: its specification, and the settings that only files have. */
export interface AgentDefinition {
  readonly spec: AgentSpec;
  /**
   * The filter that selects the agent's tools from those of the file's own servers; undefined: the agent has none of
   * them. `names` in the filter are exposed names in the session that runs these servers.
   */
  readonly ownTools: Filter | undefined;
  readonly builtIns: readonly BuiltInTool[];
  /** Whether the instruction gets the present date. */
  readonly addDate: boolean;
  /** Whether the instruction gets the working directory and the operating system. */
  readonly addEnvironmentInfo: boolean;
  /** What the agent's memory is called; agents of a file with equal names share one. Absent: the agent's own name. */
  readonly memory?: string;
  /** Whether the agent shares its list of things to do with all agents of the file that do. */
  readonly sharesTodos?: boolean;
  /** What a person is told when a conversation begins. */
  readonly welcomeMessage?: string;
  /** Prompts that a person sends by their names. */
  readonly prompts?: ReadonlyMap<string, NamedPrompt>;
}

/** The content of a file of agents. Immutable. */
export interface AgentFile {
  /** The absolute path of the file, or the reference of an agent in a registry. */
  readonly source: string;
  /** The name of the agent that is used if none is named: `root`, or the first agent. */
  readonly entry: string;
  /** The agents by name, in the order of the file. */
  readonly agents: ReadonlyMap<string, AgentDefinition>;
  /** The models by name. If an agent's model is not here, it is one of the manifest, or `provider/model`. */
  readonly models: ReadonlyMap<string, ModelSpec>;
  /** The servers that the file defines. They run for one session only. */
  readonly servers: readonly ExternalServer[];
  /** The toolsets that servers of the manifest have to provide; absent: none. */
  readonly toolsets?: readonly ToolsetUse[];
  /** The types of the toolsets that a server provides, by the server's name in `Filter`s; absent: none. */
  readonly toolsetsByServer?: ReadonlyMap<string, readonly string[]>;
  /** What the file says about calls that are forbidden, asked for, or allowed; absent: nothing. */
  readonly permissions?: Permissions;
  /**
   * The tools for which `allow` of the permissions counts: `all` only after a person's trust, which has shown the rules;
   * absent: none, because the file is not trusted.
   */
  readonly allows?: "all" | "readOnly";
  /** Settings of the file that toolmux does not support, each with its place. */
  readonly unsupported: readonly Problem[];
  /**
   * Actions that are forbidden until the file is trusted. Each completes the sentence "It may not …". Empty if the file
   * is trusted.
   */
  readonly forbiddenActions: readonly string[];
  /** The names of the file's models that cannot be used until the file is trusted; absent: none. */
  readonly forbiddenModels?: readonly string[];
}

/** A file that was read, or what is wrong with it. `isScript`: it has the answers of a model (`turns`), and no agent. */
export type AgentFileResult =
  | { readonly ok: true; readonly file: AgentFile }
  | { readonly ok: false; readonly problems: readonly Problem[]; readonly isScript?: boolean };

/** The error `agentInvalid`, with one problem per line. */
export function agentInvalidError(problems: readonly Problem[]): HubError {
  return new HubError("agentInvalid", problems.map(formatProblem).join("\n"));
}

/**
 * The file with the restrictions that apply until it is trusted: it runs no command, reaches no URL of its own, and
 * switches no approval off. Its agents keep their instructions, but of the tools of the hub only those that the caller
 * of the agent sees.
 */
export function restrictUntrusted(file: AgentFile): AgentFile {
  const forbiddenActions = [
    ...file.servers.map((spec) =>
      spec.kind === "stdio"
        ? `run ${sanitizeLine(spec.command)} (server "${sanitizeLine(spec.name)}")`
        : `reach ${hostOf(spec.url)} (server "${sanitizeLine(spec.name)}")`,
    ),
    ...file.forbiddenActions,
  ];
  const models = new Map<string, ModelSpec>();
  for (const [name, model] of file.models) {
    const { url, apiKey, ...rest } = model;
    if (url !== undefined)
      forbiddenActions.push(`reach ${hostOf(url)} (model "${sanitizeLine(name)}")`);
    else if (model.provider === "script")
      forbiddenActions.push(
        `read ${sanitizeLine(model.script ?? "a file")} (model "${sanitizeLine(name)}")`,
      );
    else models.set(name, rest);
    if (url === undefined && apiKey !== undefined)
      forbiddenActions.push(`choose a key (model "${sanitizeLine(name)}")`);
  }
  const agents = new Map<string, AgentDefinition>();
  for (const [name, { spec, ...agent }] of file.agents) {
    const { approval, ...others } = spec;
    const mayKeep = approval === undefined || approval === "always";
    if (!mayKeep)
      forbiddenActions.push(`use tools without approval (agent "${sanitizeLine(name)}")`);
    const allowed = mayKeep ? spec : others;
    agents.set(name, { ...agent, ownTools: undefined, spec: { ...allowed, respectMode: true } });
  }
  if (file.permissions !== undefined && file.permissions.allow.length > 0)
    forbiddenActions.push("allow its own calls");
  const forbiddenModels = [...file.models.keys()].filter((name) => !models.has(name));
  return { ...file, agents, models, servers: [], forbiddenActions, forbiddenModels };
}

/** What a file may not do that a person has not trusted, in sentences; undefined if it may do everything. */
export function describeRestrictions({
  source,
  servers,
  forbiddenActions,
}: AgentFile): string | undefined {
  if (forbiddenActions.length === 0) return undefined;
  const shown = forbiddenActions.slice(0, MAX_SHOWN);
  const more =
    forbiddenActions.length > MAX_SHOWN ? `, and ${forbiddenActions.length - MAX_SHOWN} more` : "";
  // A file in the configuration folder keeps its servers, and still needs trust for a shell.
  const rest = servers.length > 0 ? "" : " It works with the tools of the hub alone.";
  return `${sanitizeLine(source)} is not trusted, so it may not ${shown.join("; ")}${more}.${rest} To allow this: toolmux trust ${shellWord(source)}`;
}
const MAX_SHOWN = 5;

/** The host of a URL, for messages: the rest of the URL may contain a secret. */
function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : "a URL of its own";
}

/** Quotes a text, if necessary, so that a shell reads it as one word. */
export function shellWord(text: string): string {
  return /^[\w./@:+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The values that may be added to an instruction. */
export interface InstructionEnvironment {
  /** The present time, in ms since the epoch. */
  readonly now: number;
  readonly cwd: string;
  readonly platform: string;
}

/** The instruction of an agent with the date and the environment, if its file asks for them. */
export function renderInstruction(
  { spec, addDate, addEnvironmentInfo }: AgentDefinition,
  { now, cwd, platform }: InstructionEnvironment,
): string {
  const parts = [spec.instruction];
  if (addDate) parts.push(`Today's date: ${new Date(now).toISOString().slice(0, 10)}`);
  if (addEnvironmentInfo) parts.push(`Working directory: ${cwd}\nOperating system: ${platform}`);
  return parts.filter((part) => part !== "").join("\n\n");
}
