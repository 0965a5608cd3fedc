import { isAbsolute } from "node:path";
import type {
  ExternalServer,
  PluginServer,
  RemoteServer,
  RunnableServer,
  ServerSpec,
  StdioServer,
  UnsupportedServer,
} from "./manifest.ts";
import { LIMIT_KEYS } from "./schema.ts";
import { isDeepEqual } from "./table.ts";
import { listSecrets, templatePartsOf, type TemplatePart as TextPart } from "./interpolate.ts";

/**
 * The effect of a changed key. `process`: a new process or connection is needed. `settings`: the new settings only
 * need to be applied.
 */
type ChangeEffect = "process" | "settings";

/** The effect of a change of each key that every runnable server has. */
const RUNNABLE = {
  kind: "process",
  name: "process",
  isolation: "process",
  era: "process",
  enabled: "settings",
  prefix: "settings",
  title: "settings",
  description: "settings",
  icon: "settings",
  lazy: "settings",
  approval: "settings",
  tools: "settings",
  prompts: "settings",
  skills: "settings",
  ...(Object.fromEntries(LIMIT_KEYS.map((key) => [key, "settings"])) as Record<
    (typeof LIMIT_KEYS)[number],
    "settings"
  >),
  startLimit: "settings",
  // The message reader gets this limit when the process starts, so a new limit needs a new process.
  maxMessage: "process",
} as const satisfies Readonly<Record<keyof StdioServer & keyof PluginServer, ChangeEffect>>;

/** The effect of a change of each additional key of servers whose texts may contain `${…}`. */
const TEMPLATED = { baseDir: "process", syntax: "process", secretSources: "process" } as const;

const STDIO: Readonly<Record<keyof StdioServer, ChangeEffect>> = {
  ...RUNNABLE,
  command: "process",
  args: "process",
  package: "process",
  env: "process",
  inheritEnv: "process",
  cwd: "process",
  ...TEMPLATED,
};

const REMOTE: Readonly<Record<keyof RemoteServer, ChangeEffect>> = {
  ...RUNNABLE,
  url: "process",
  transport: "process",
  headers: "process",
  keyFile: "process",
  ca: "process",
  auth: "process",
  oauth: "process",
  ...TEMPLATED,
};

const PLUGIN: Readonly<Record<keyof PluginServer, ChangeEffect>> = {
  ...RUNNABLE,
  plugin: "process",
  set: "process",
  origin: "settings",
};

const UNSUPPORTED: Readonly<Record<keyof UnsupportedServer, ChangeEffect>> = {
  kind: "process",
  name: "process",
  enabled: "settings",
  prefix: "settings",
  reason: "settings",
};

/**
 * A change of `baseDir` or `secretSources` requires a new process only if the server uses that key.
 * @param servers the old and the new specification of the server
 */
function effectOfOrigin(
  ...servers: readonly ExternalServer[]
): Pick<typeof STDIO, "baseDir" | "secretSources"> {
  return {
    baseDir: servers.some(dependsOnFolder) ? "process" : "settings",
    secretSources: servers.some((server) => listSecrets(server).length > 0)
      ? "process"
      : "settings",
  };
}

/** The effect of the change of a server's specification; `same`: nothing has changed. */
export function diffServers(before: ServerSpec, after: ServerSpec): "same" | ChangeEffect {
  if (before.kind === "stdio" && after.kind === "stdio") {
    return effectOfChanges(before, after, { ...STDIO, ...effectOfOrigin(before, after) });
  }
  if (before.kind === "remote" && after.kind === "remote") {
    return effectOfChanges(before, after, { ...REMOTE, ...effectOfOrigin(before, after) });
  }
  if (before.kind === "plugin" && after.kind === "plugin")
    return effectOfChanges(before, after, PLUGIN);
  if (before.kind === "unsupported" && after.kind === "unsupported") {
    return effectOfChanges(before, after, UNSUPPORTED);
  }
  return "process";
}

/** Whether two specifications of a server differ in `connectTimeout`, `startLimit` or `reconnect`. */
export function changesStartLimits(before: RunnableServer, after: RunnableServer): boolean {
  return !(
    before.connectTimeout === after.connectTimeout &&
    before.startLimit === after.startLimit &&
    isDeepEqual(before.reconnect, after.reconnect)
  );
}

function effectOfChanges<T extends object>(
  before: T,
  after: T,
  effects: Readonly<Record<keyof T, ChangeEffect>>,
): "same" | ChangeEffect {
  let effect: "same" | ChangeEffect = "same";
  for (const key in effects) {
    if (isDeepEqual(before[key], after[key])) continue;
    if (effects[key] === "process") return "process";
    effect = "settings";
  }
  return effect;
}

/** Whether resolving the server uses a path relative to `baseDir`. */
function dependsOnFolder(server: ExternalServer): boolean {
  const paths = server.kind === "stdio" ? pathsOf(server) : [server.keyFile, server.ca];
  return (
    paths.some((path) => path !== undefined && isRelative(path)) ||
    templatePartsOf(server).some(usesFolder)
  );
}

/** Whether a placeholder uses `baseDir`: `${file:…}` with a relative path, or `${cmd:…}`, which runs in that folder. */
function usesFolder(part: TextPart): boolean {
  if (part.kind === "file") return isRelative(part.path);
  return part.kind === "scheme" && part.scheme === "cmd";
}

function pathsOf({ command, cwd }: StdioServer): readonly (string | undefined)[] {
  // A command with a placeholder counts as a path, because the placeholder may expand to one.
  return [cwd, command.includes("/") || command.includes("${") ? command : undefined];
}

function isRelative(path: string): boolean {
  return !(isAbsolute(path) || path === "~" || path.startsWith("~/"));
}
