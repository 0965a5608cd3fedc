import * as v from "valibot";
import { AGENT_DEFAULTS, type AgentSpec, makeAgentSpec, type Models } from "../manifest/agents.ts";
import { limit, nonEmptyText, size } from "../manifest/fields.ts";
import { filterWithoutPatternsSchema } from "../manifest/filter.ts";
import { findNearest, type Problem } from "../manifest/problems.ts";
import { isTable, type Table } from "../manifest/table.ts";
import { validate } from "../manifest/validate.ts";
import { agentInvalidError, MAX_AGENT_FILE } from "./agent-file.ts";

/** The limits of an agent that a client may lower, but not raise. */
const LIMITS = [
  "maxTurns",
  "maxToolCalls",
  "parallelToolCalls",
  "retries",
  "resultLimit",
  "timeout",
] as const;

export type AgentLimits = Pick<AgentSpec, (typeof LIMITS)[number]>;

const count = v.pipe(v.number("a whole number"), v.integer("a whole number"), v.minValue(0));

const entries = {
  model: nonEmptyText,
  instruction: v.pipe(nonEmptyText, v.maxLength(MAX_AGENT_FILE, "at most 1 MiB of text")),
  description: v.exactOptional(
    v.pipe(nonEmptyText, v.maxLength(10_000, "at most 10000 characters")),
  ),
  tools: v.exactOptional(filterWithoutPatternsSchema),
  maxTurns: v.exactOptional(count),
  maxToolCalls: v.exactOptional(count),
  parallelToolCalls: v.exactOptional(count),
  retries: v.exactOptional(count),
  resultLimit: v.exactOptional(size),
  timeout: v.exactOptional(limit),
};

/**
 * Reads an agent that a client describes in a call (`invoke_with_config`). It may name models and tools of the
 * manifest, and lower limits; it cannot name commands, URLs, files, keys or patterns, and `${…}` in it is not
 * resolved.
 * @param limits the highest values that the limits of the agent may have
 * @throws {HubError} agentInvalid
 */
export function readInlineAgent(
  config: unknown,
  { models, limits = AGENT_DEFAULTS }: { readonly models: Models; readonly limits?: AgentLimits },
): AgentSpec {
  const source = { file: "config", path: [] } as const;
  const problems: Problem[] = [];
  const problem = (key: string, at: "key" | "value", message: string): void => {
    problems.push({ file: source.file, path: [key], at, message });
  };
  const table: Table = isTable(config) ? config : {};
  for (const key of Object.keys(table)) {
    if (!Object.hasOwn(entries, key))
      problem(key, "key", "is not allowed for an agent of a client");
  }
  const checked = validate(v.object(entries, "a table"), isTable(config) ? table : null, source);
  if (!checked.ok) throw agentInvalidError([...problems, ...checked.problems]);
  const { model, instruction, ...others } = checked.value;
  if (!models.has(model)) {
    const nearest = findNearest(model, [...models.keys()]);
    const advice = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
    problem("model", "value", `the manifest has no model "${model}"${advice}`);
  }
  for (const key of LIMITS) {
    const value = others[key];
    if (value !== undefined && value > limits[key])
      problem(key, "value", `is above the limit of ${limits[key]}`);
  }
  if (problems.length > 0) throw agentInvalidError(problems);
  const { maxTurns, maxToolCalls, parallelToolCalls, retries, resultLimit, timeout } = limits;
  const highest = { maxTurns, maxToolCalls, parallelToolCalls, retries, resultLimit, timeout };
  // The client chooses the agent's tools, so the agent gets only tools that the client itself sees.
  const base = { ...highest, ...others, respectMode: true };
  return makeAgentSpec({ ...base, name: "inline", model, instruction });
}
