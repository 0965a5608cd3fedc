import { HubError } from "../base/errors.ts";
import { mergeSources } from "../manifest/merge.ts";
import { readManifestFile } from "../manifest/read.ts";
import {
  isRunnable,
  type Manifest,
  type PromptRules,
  type RunnableServer,
} from "../manifest/schema.ts";

/** In the place of what a recorded server was started by, or reached at: that may hold secrets, and nothing is started. */
const COMMAND = "recorded";

const SETTINGS = [
  "enabled",
  "prefix",
  "isolation",
  "lazy",
  "era",
  "connectTimeout",
  "callTimeout",
  "maxCallTimeout",
  "maxMessage",
  "healthInterval",
  "reconnect",
  "idleStop",
] as const satisfies readonly (keyof RunnableServer)[];

/** What of a manifest matters for a recording, as a manifest of its own: names, limits and rules, and nothing of how servers are reached. */
export function describeManifest({ hub, servers }: Manifest): object {
  const { name, separator, nameLimit, clientPrefix, listWait, parallelStarts } = hub;
  const runnable = servers.filter(isRunnable);
  return {
    hub: { name, separator, nameLimit, clientPrefix, listWait, parallelStarts },
    servers: Object.fromEntries(runnable.map((spec) => [spec.name, describeServer(spec)])),
  };
}

function describeServer(spec: RunnableServer): object {
  // A connectTimeout that is said would end starts that the manifest only calls late.
  const isSaid = spec.startLimit === undefined;
  const keys = SETTINGS.filter((key) => key !== "connectTimeout" || isSaid);
  const settings = Object.fromEntries(keys.map((key) => [key, spec[key]]));
  const { tools, prompts } = spec;
  return {
    command: COMMAND,
    ...settings,
    tools: { ...describeRules(tools), timeout: tools.timeout },
    prompts: describeRules(prompts),
  };
}

function describeRules({ allow, deny, rename }: PromptRules): object {
  return { ...(allow && { allow }), deny, rename };
}

/**
 * A manifest as a recording has it. What it does not have of these servers is as it is by default.
 * @throws {HubError} usage if it is none
 */
export function readManifest(document: unknown, servers: readonly string[]): Manifest {
  const said = document === undefined ? [] : [readManifestFile(document)];
  const missing = servers.filter(
    (name) => !said.some((fileConfig) => fileConfig.servers.has(name)),
  );
  const bare = Object.fromEntries(missing.map((name) => [name, { command: COMMAND }]));
  const fileConfigs = [...said, readManifestFile({ servers: bare })];
  const [complaint] = fileConfigs.flatMap(({ problems: complaints }) => complaints);
  const merged = mergeSources(
    fileConfigs.map((fileConfig) => ({ file: "", baseDir: "/", fileConfig })),
  );
  const [fault] = merged.problems;
  const wrong = complaint ?? fault;
  if (wrong !== undefined) {
    const where = wrong.path.join(".");
    throw new HubError("usage", `The recording's manifest is none: ${where}: ${wrong.message}.`);
  }
  const { hub, defaults } = merged;
  return { hub, defaults, servers: merged.servers, plugins: [], sources: [] };
}
