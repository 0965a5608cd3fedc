import { HubError } from "../base/errors.ts";
import { mergeConfigs } from "../manifest/merge/merge.ts";
import { readManifestFile } from "../manifest/files/manifest-file.ts";
import { LIMIT_KEYS } from "../manifest/schema.ts";
import {
  isRunnable,
  type Manifest,
  type PromptRules,
  type RunnableServer,
} from "../manifest/manifest.ts";

/** Replaces the command or URL of a recorded server, which may contain secrets and is never started. */
const PLACEHOLDER_COMMAND = "recorded";

const RECORDED_SETTINGS = [
  "enabled",
  "prefix",
  "isolation",
  "lazy",
  "era",
  ...LIMIT_KEYS,
] as const satisfies readonly (keyof RunnableServer)[];

/**
 * The part of a manifest that affects recorded messages, as a manifest: names, limits and rules, but not how
 * servers are reached.
 */
export function recordableManifest({ hub, toolSearch, servers }: Manifest): object {
  const { name, separator, nameLimit, clientPrefix, listWait, parallelStarts } = hub;
  const { expose, exposeBudget } = hub;
  const runnable = servers.filter(isRunnable);
  return {
    hub: {
      name,
      separator,
      nameLimit,
      clientPrefix,
      listWait,
      parallelStarts,
      expose,
      exposeBudget,
    },
    ...(toolSearch && { toolSearch }),
    servers: Object.fromEntries(runnable.map((spec) => [spec.name, describeServer(spec)])),
  };
}

function describeServer(spec: RunnableServer): object {
  // Omit a default connectTimeout. If it were recorded, it would become explicit, and an explicit one aborts slow
  // starts, while the default only reports them as late.
  const isExplicit = spec.startLimit === undefined;
  const keys = RECORDED_SETTINGS.filter((key) => key !== "connectTimeout" || isExplicit);
  const settings = Object.fromEntries(keys.map((key) => [key, spec[key]]));
  const { tools, prompts } = spec;
  return {
    command: PLACEHOLDER_COMMAND,
    ...settings,
    tools: { ...describeRules(tools), timeout: tools.timeout },
    prompts: describeRules(prompts),
  };
}

function describeRules({ allow, deny, rename }: PromptRules): object {
  return { ...(allow && { allow }), deny, rename };
}

/**
 * The manifest of a recording. Those of `servers` that are missing in `document` get default settings.
 * @throws {HubError} usage if it is invalid
 */
export function readManifest(document: unknown, servers: readonly string[]): Manifest {
  const source = { file: "", baseDir: "/" };
  const recorded = document === undefined ? [] : [readManifestFile(document, source)];
  const missing = servers.filter((name) => !recorded.some((config) => config.servers.has(name)));
  const missingSpecs = Object.fromEntries(
    missing.map((name) => [name, { command: PLACEHOLDER_COMMAND }]),
  );
  const configs = [...recorded, readManifestFile({ servers: missingSpecs }, source)];
  const [problem] = configs.flatMap(({ problems }) => problems);
  const merged = mergeConfigs(configs);
  const [mergeProblem] = merged.problems;
  const firstProblem = problem ?? mergeProblem;
  if (firstProblem !== undefined) {
    const where = firstProblem.path.join(".");
    throw new HubError(
      "usage",
      `The manifest in the recording is not valid: ${where}: ${firstProblem.message}.`,
    );
  }
  const { hub, toolSearch, defaults } = merged;
  return { hub, toolSearch, defaults, servers: merged.servers, plugins: [], sources: [] };
}
