import { isAbsolute } from "node:path";
import {
  type ExternalServer,
  isExternal,
  type FleetServer,
  type PluginServer,
  type RemoteServer,
  type RunnableServer,
  type ServerSpec,
  type StdioServer,
  type UnsupportedServer,
} from "./manifest.ts";
import { type ChangeEffect, notesOf } from "./fields.ts";
import { serverSchema } from "./schema.ts";
import { isDeepEqual } from "./table.ts";
import { listSecrets, templatePartsOf, type TemplatePart as TextPart } from "./interpolate.ts";

/**
 * The effect of a change of each member of a specification that is no key of the manifest, or that several keys make.
 * For all other members, the key of the same name says it (`Notes.change`).
 */
const MEMBERS: Readonly<Record<string, ChangeEffect>> = {
  kind: "process",
  name: "process",
  startLimit: "settings",
  baseDir: "process",
  syntax: "process",
  secretSources: "process",
  set: "process",
  machine: "process",
  tenant: "process",
  isFound: "settings",
  origin: "settings",
  reason: "settings",
} satisfies Partial<
  Record<
    | keyof StdioServer
    | keyof RemoteServer
    | keyof PluginServer
    | keyof FleetServer
    | keyof UnsupportedServer,
    ChangeEffect
  >
>;

function effectOf(member: string): ChangeEffect {
  const schema = Object.hasOwn(serverSchema.entries, member)
    ? serverSchema.entries[member as keyof typeof serverSchema.entries]
    : undefined;
  return MEMBERS[member] ?? (schema && notesOf(schema)?.change) ?? "process";
}

/**
 * A change of `baseDir` or `secretSources` requires a new process only if the server uses that key.
 * @param servers the old and the new specification of the server
 */
function effectOfOrigin(
  ...servers: readonly ExternalServer[]
): Readonly<Record<"baseDir" | "secretSources", ChangeEffect>> {
  return {
    baseDir: servers.some(dependsOnFolder) ? "process" : "settings",
    secretSources: servers.some((server) => listSecrets(server).length > 0)
      ? "process"
      : "settings",
  };
}

/** The effect of the change of a server's specification; `same`: nothing has changed. */
export function diffServers(before: ServerSpec, after: ServerSpec): "same" | ChangeEffect {
  if (before.kind !== after.kind) return "process";
  const origin = isExternal(before) && isExternal(after) ? effectOfOrigin(before, after) : {};
  const effects: Readonly<Record<string, ChangeEffect>> = origin;
  const members = new Set([...Object.keys(before), ...Object.keys(after)]);
  let effect: "same" | ChangeEffect = "same";
  for (const member of members) {
    const key = member as keyof ServerSpec;
    if (isDeepEqual(before[key], after[key])) continue;
    if ((effects[member] ?? effectOf(member)) === "process") return "process";
    effect = "settings";
  }
  return effect;
}

/** The members of a specification that say which program or remote server answers. */
const PROGRAM_MEMBERS = [
  "kind",
  "command",
  "args",
  "package",
  "cwd",
  "url",
  "plugin",
  "fleet",
  "machine",
] as const;

/** Whether both specifications start the same program, or reach the same remote server. */
export function hasSameProgram(before: RunnableServer, after: RunnableServer): boolean {
  const [one, other] = [before, after].map((spec) => new Map(Object.entries(spec)));
  return PROGRAM_MEMBERS.every((member) => isDeepEqual(one?.get(member), other?.get(member)));
}

/** Whether two specifications of a server differ in `connectTimeout`, `startLimit` or `reconnect`. */
export function changesStartLimits(before: RunnableServer, after: RunnableServer): boolean {
  return !(
    before.connectTimeout === after.connectTimeout &&
    before.startLimit === after.startLimit &&
    isDeepEqual(before.reconnect, after.reconnect)
  );
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
