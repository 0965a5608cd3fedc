import { resolve } from "node:path";
import { type Env, expandHome } from "../../base/paths.ts";
import { decodeUtf8, readFileLimited } from "../../base/read-file.ts";
import { type AgentSpec, findModel, type InvalidModel, makeAgentSpec } from "../agents.ts";
import type { AgentConfig, FileConfig } from "../files/file-config.ts";
import { FULL_MODE } from "../manifest.ts";
import { findNearest, type Problem } from "../problems.ts";

/** The maximum size of an agent's instruction file, in bytes. */
const MAX_INSTRUCTION = 1024 * 1024;

/** The agents of all files, merged. */
export interface AgentList {
  /** The agents by name; undefined if the agent's table has problems. */
  readonly specs: ReadonlyMap<string, AgentSpec | undefined>;
  /** The absolute paths of the agents' instruction files, whether the files exist or not. */
  readonly files: readonly string[];
  /** The content of each instruction file, or the reason why it cannot be read. */
  readonly instructions: readonly string[];
  /**
   * The problems of agents that name a model, mode or agent that does not exist, or an instruction file that cannot be
   * read.
   */
  readonly problems: readonly Problem[];
}

/**
 * Merges the agents of all files, and reads their `instructionFile`. An agent of a later file replaces one of the same
 * name as a whole.
 */
export async function mergeAgents(configs: readonly FileConfig[], env: Env): Promise<AgentList> {
  const listed = new Map(configs.flatMap(({ agents }) => [...(agents ?? [])]));
  const read = await Promise.all(
    [...listed.values()].map(
      async (config) => [config, await readInstruction(config, env)] as const,
    ),
  );
  const models = new Set(configs.flatMap((config) => [...(config.models?.keys() ?? [])]));
  const modes = [FULL_MODE, ...configs.flatMap((config) => [...(config.modes?.keys() ?? [])])];
  const problems: Problem[] = [];
  const specs = new Map<string, AgentSpec | undefined>();
  for (const [config, instruction] of read) {
    const { name, input } = config;
    if (input === undefined) {
      specs.set(name, undefined);
      continue;
    }
    problems.push(...checkNames(config, [...listed.keys()], models, modes));
    if (instruction.kind === "refused") {
      const { file, path } = config;
      const { message } = instruction;
      problems.push({ file, path: [...path, "instructionFile"], at: "value", message });
    }
    const { instruction: _, instructionFile: __, ...others } = input;
    const text = instruction.kind === "read" ? instruction.text : "";
    specs.set(name, makeAgentSpec({ name, ...others, instruction: text }));
  }
  const files = read.flatMap(([, { path }]) => path ?? []);
  const instructions = read.flatMap(([, one]) =>
    one.path === undefined ? [] : [one.kind === "read" ? one.text : one.message],
  );
  return { specs, files, instructions, problems };
}

type Instruction = { readonly path: string | undefined } & (
  | { readonly kind: "read"; readonly text: string }
  | { readonly kind: "refused"; readonly message: string }
);

async function readInstruction({ input, baseDir }: AgentConfig, env: Env): Promise<Instruction> {
  if (input?.instructionFile === undefined)
    return { kind: "read", text: input?.instruction ?? "", path: undefined };
  const path = resolve(baseDir, expandHome(input.instructionFile, env));
  const read = await readFileLimited(path, MAX_INSTRUCTION);
  if (read.kind === "absent") return { kind: "refused", message: `${path} does not exist`, path };
  if (read.kind === "refused") return { kind: "refused", message: `${path} ${read.reason}`, path };
  const text = decodeUtf8(read.bytes)?.trim();
  if (text === undefined) return { kind: "refused", message: `${path} is not UTF-8 text`, path };
  if (text === "") return { kind: "refused", message: `${path} is empty`, path };
  return { kind: "read", text, path };
}

/**
 * Returns a problem for each model, mode or agent that an agent's table names and that does not exist, and for each
 * place where the agent names itself.
 */
function checkNames(
  { name, file, path, baseDir, input }: AgentConfig,
  agents: readonly string[],
  models: ReadonlySet<string>,
  modes: readonly string[],
): readonly Problem[] {
  if (input === undefined) return [];
  const problems: Problem[] = [];
  const known: ReadonlyMap<string, InvalidModel> = new Map(
    [...models].map((model) => [model, { name: model, problems: [] }]),
  );
  if (findModel(input.model, { models: known, baseDir }) === undefined) {
    const nearest = findNearest(input.model, [...models]);
    const more =
      nearest === undefined
        ? "; write a key of [models], or PROVIDER/MODEL such as anthropic/claude-sonnet-4-5"
        : `; did you mean "${nearest}"?`;
    const message = `there is no model "${input.model}"${more}`;
    problems.push({ file, path: [...path, "model"], at: "value", message });
  }
  const { mode } = input;
  if (mode !== undefined && !modes.includes(mode)) {
    const nearest = findNearest(mode, modes);
    const more = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
    const message = `there is no mode "${mode}"${more}`;
    problems.push({ file, path: [...path, "mode"], at: "value", message });
  }
  for (const key of ["subAgents", "handoffs"] as const) {
    for (const [at, agent] of (input[key] ?? []).entries()) {
      if (agents.includes(agent) && agent !== name) continue;
      const nearest = findNearest(
        agent,
        agents.filter((one) => one !== name),
      );
      const more = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
      const message =
        agent === name ? "an agent cannot name itself" : `there is no agent "${agent}"${more}`;
      problems.push({ file, path: [...path, key, at], at: "value", message });
    }
  }
  return problems;
}
