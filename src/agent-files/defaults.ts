import type { AgentSpec, ModelSpec } from "../manifest/agents.ts";

/** What an agent has that its file does not set. */
export const AGENT_DEFAULTS = {
  respectMode: false,
  allowAgents: false,
  maxTurns: 50,
  maxToolCalls: 200,
  parallelToolCalls: 8,
  retries: 1,
  resultLimit: 64_000,
  timeout: 600_000,
} as const satisfies Partial<AgentSpec>;

/** What a model has that its file does not set. */
export const MODEL_DEFAULTS = {
  contextTokens: 200_000,
  timeout: 120_000,
} as const satisfies Partial<ModelSpec>;
