import { makeAgentSpec, makeModelSpec, type ModelSpec } from "../manifest/agents.ts";
import type { AgentConfig, SourceFile } from "../manifest/files/file-config.ts";
import { filterWithoutPatternsSchema } from "../manifest/filter.ts";
import { isExternal } from "../manifest/manifest.ts";
import { mergeConfigs } from "../manifest/merge/merge.ts";
import { findNearest, type Problem } from "../manifest/problems.ts";
import { readManifestFile } from "../manifest/files/manifest-file.ts";
import { isTable } from "../manifest/table.ts";
import { validate } from "../manifest/validate.ts";
import { type AgentFileResult, FILE_LIMITS, type AgentDefinition } from "./agent-file.ts";
import type { SiblingFileReader } from "./docker-agent.ts";

/** The tables of a manifest that a file of agents may have. The servers of the file run for one session only. */
const TABLES = ["$schema", "agents", "models", "servers"];

/**
 * Reads a file of agents in TOML or JSON: the tables `agents`, `models` and `servers` as in a manifest. The
 * problems in the result have no positions.
 * @param readSibling reads a text file below the folder of the file
 */
export function readManifestFormat(
  root: unknown,
  source: SourceFile,
  readSibling: SiblingFileReader,
): AgentFileResult {
  const { file } = source;
  const excess = (["agents", "models", "servers"] as const).flatMap((key): Problem[] => {
    const table = isTable(root) ? root[key] : undefined;
    if (!isTable(table) || Object.keys(table).length <= FILE_LIMITS[key]) return [];
    const message = `a file has at most ${FILE_LIMITS[key]} ${key}`;
    return [{ file, path: [key], at: "key", message }];
  });
  if (excess.length > 0) return { ok: false, problems: excess };
  const config = readManifestFile(root, source);
  const problems: Problem[] = [...config.problems, ...config.schemeProblems];
  const reported = new Set(problems.map(({ path }) => path[0]));
  for (const key of Object.keys(isTable(root) ? root : {})) {
    if (TABLES.includes(key) || reported.has(key)) continue;
    const message = `belongs in the manifest; a file of agents has ${TABLES.slice(1).join(", ")}`;
    problems.push({ file, path: [key], at: "key", message });
  }
  const configs = config.agents ?? new Map<string, AgentConfig>();
  if (configs.size === 0 && problems.length === 0) {
    const message = "a file of agents needs at least one agent";
    problems.push({ file, path: ["agents"], at: "value", message });
  }
  const merged = mergeConfigs([config]);
  problems.push(...merged.problems);
  const servers = merged.servers.filter(isExternal);
  for (const { kind, name } of merged.servers) {
    if (kind !== "plugin") continue;
    const message = "plugins belong in the manifest";
    problems.push({ file, path: ["servers", name, "plugin"], at: "key", message });
  }
  const agents = new Map<string, AgentDefinition>();
  for (const agent of configs.values()) {
    const read = readAgent(agent, [...configs.keys()], servers.length > 0, readSibling);
    problems.push(...read.problems);
    if (read.agent !== undefined) agents.set(agent.name, read.agent);
  }
  const entry = agents.has("root") ? "root" : [...agents.keys()][0];
  if (problems.length > 0 || entry === undefined)
    return { ok: false, problems: problems.slice(0, FILE_LIMITS.problems) };
  const models = new Map<string, ModelSpec>();
  for (const { name, input, baseDir } of config.models?.values() ?? []) {
    if (input === undefined) continue;
    models.set(name, makeModelSpec({ name, baseDir, ...input, model: input.model ?? "" }));
  }
  return {
    ok: true,
    file: {
      source: file,
      entry,
      agents,
      models,
      servers,
      unsupported: [],
      forbiddenActions: [],
    },
  };
}

function readAgent(
  { name, file, path, input }: AgentConfig,
  names: readonly string[],
  hasServers: boolean,
  readSibling: SiblingFileReader,
): { readonly agent: AgentDefinition | undefined; readonly problems: readonly Problem[] } {
  // The problems of this agent have been reported already.
  if (input === undefined) return { agent: undefined, problems: [] };
  const problems: Problem[] = [];
  const { instruction, instructionFile, ...others } = input;
  let text = instruction ?? "";
  if (instructionFile !== undefined) {
    const read = readSibling(instructionFile);
    if ("text" in read) text = read.text.trim();
    else {
      const message = read.problem;
      problems.push({ file, path: [...path, "instructionFile"], at: "value", message });
    }
  }
  if (input.tools !== undefined) {
    const checked = validate(filterWithoutPatternsSchema, input.tools, {
      file,
      path: [...path, "tools"],
    });
    if (!checked.ok) problems.push(...checked.problems);
  }
  for (const key of ["subAgents", "handoffs"] as const) {
    for (const [at, other] of (input[key] ?? []).entries()) {
      if (names.includes(other) && other !== name) continue;
      if (problems.length >= FILE_LIMITS.problems) break;
      const nearest = findNearest(other, names);
      const advice = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
      const message = `"${other}" is not another agent of this file${advice}`;
      problems.push({ file, path: [...path, key, at], at: "value", message });
    }
  }
  const spec = makeAgentSpec({ name, ...others, instruction: text });
  const agent: AgentDefinition = {
    spec,
    ownTools: hasServers ? spec.tools : undefined,
    builtIns: [],
    addDate: false,
    addEnvironmentInfo: false,
  };
  return { agent, problems };
}
