import { isAbsolute } from "node:path";
import type {
  OuterServer,
  PluginServer,
  RemoteServer,
  RunnableServer,
  ServerSpec,
  StdioServer,
  UnsupportedServer,
} from "./schema.ts";
import { isEqual } from "./table.ts";
import { listSecrets, type Part as TextPart, partsOf } from "./interpolate.ts";

/** What a changed key requires: `process`: a new process or connection; `settings`: only new settings. */
type Part = "process" | "settings";

/** The keys of every runnable server. */
const RUNNABLE = {
  kind: "process",
  name: "process",
  isolation: "process",
  era: "process",
  maxMessage: "process",
  enabled: "settings",
  prefix: "settings",
  lazy: "settings",
  tools: "settings",
  prompts: "settings",
  skills: "settings",
  connectTimeout: "settings",
  startLimit: "settings",
  callTimeout: "settings",
  maxCallTimeout: "settings",
  healthInterval: "settings",
  reconnect: "settings",
  idleStop: "settings",
} as const satisfies Readonly<Record<keyof StdioServer & keyof PluginServer, Part>>;

/** The keys of every server whose texts may hold `${…}`. */
const TEMPLATED = { baseDir: "process", syntax: "process", secretSources: "process" } as const;

const STDIO: Readonly<Record<keyof StdioServer, Part>> = {
  ...RUNNABLE,
  command: "process",
  args: "process",
  package: "process",
  env: "process",
  inheritEnv: "process",
  cwd: "process",
  ...TEMPLATED,
};

const REMOTE: Readonly<Record<keyof RemoteServer, Part>> = {
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

const PLUGIN: Readonly<Record<keyof PluginServer, Part>> = {
  ...RUNNABLE,
  plugin: "process",
  set: "process",
  origin: "settings",
};

const UNSUPPORTED: Readonly<Record<keyof UnsupportedServer, Part>> = {
  kind: "process",
  name: "process",
  enabled: "settings",
  prefix: "settings",
  reason: "settings",
};

/** The effect of `baseDir` and `secretSources`, which matter only if the server uses them. */
function weigh(
  ...servers: readonly OuterServer[]
): Pick<typeof STDIO, "baseDir" | "secretSources"> {
  return {
    baseDir: servers.some(dependsOnFolder) ? "process" : "settings",
    secretSources: servers.some((server) => listSecrets(server).length > 0)
      ? "process"
      : "settings",
  };
}

/**
 * Compares two specifications of a server: unchanged, other settings, or another process. A changed `baseDir` that no
 * path depends on, and changed secret sources of a server without secrets, count as settings.
 */
export function compareServers(before: ServerSpec, after: ServerSpec): "same" | Part {
  if (before.kind === "stdio" && after.kind === "stdio") {
    return compare(before, after, { ...STDIO, ...weigh(before, after) });
  }
  if (before.kind === "remote" && after.kind === "remote") {
    return compare(before, after, { ...REMOTE, ...weigh(before, after) });
  }
  if (before.kind === "plugin" && after.kind === "plugin") return compare(before, after, PLUGIN);
  if (before.kind === "unsupported" && after.kind === "unsupported") {
    return compare(before, after, UNSUPPORTED);
  }
  return "process";
}

/** Whether the limits of a start, or the reconnect settings after a failed one, differ. */
export function changesStart(before: RunnableServer, after: RunnableServer): boolean {
  return !(
    before.connectTimeout === after.connectTimeout &&
    before.startLimit === after.startLimit &&
    isEqual(before.reconnect, after.reconnect)
  );
}

function compare<T extends object>(
  before: T,
  after: T,
  parts: Readonly<Record<keyof T, Part>>,
): "same" | Part {
  let worst: "same" | Part = "same";
  for (const key in parts) {
    if (isEqual(before[key], after[key])) continue;
    if (parts[key] === "process") return "process";
    worst = "settings";
  }
  return worst;
}

/** Whether resolving the server uses a path relative to `baseDir`. */
function dependsOnFolder(server: OuterServer): boolean {
  const paths = server.kind === "stdio" ? pathsOf(server) : [server.keyFile, server.ca];
  return (
    paths.some((path) => path !== undefined && isRelative(path)) || partsOf(server).some(isBound)
  );
}

/** `${cmd:…}` runs its command in that folder. */
function isBound(part: TextPart): boolean {
  if (part.kind === "file") return isRelative(part.path);
  return part.kind === "scheme" && part.scheme === "cmd";
}

function pathsOf({ command, cwd }: StdioServer): readonly (string | undefined)[] {
  // A placeholder may expand to a path.
  return [cwd, command.includes("/") || command.includes("${") ? command : undefined];
}

function isRelative(path: string): boolean {
  return !(isAbsolute(path) || path === "~" || path.startsWith("~/"));
}
