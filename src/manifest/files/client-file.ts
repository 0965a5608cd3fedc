import { basename, dirname, join } from "node:path";
import type { Env } from "../../base/paths.ts";
import {
  type ClientEntry,
  normalizeClientEntry,
  type ProcessTarget,
  type RemoteTarget,
} from "./client-entry.ts";
import { timeoutsInFile, readClientTimeouts } from "./client-timeouts.ts";
import { makeServerSwitch } from "./guard-keys.ts";
import { readHubSettings } from "./manifest-file.ts";
import {
  describeValue,
  formatPath,
  type KeyPath,
  printPathKey,
  type Problem,
} from "../problems.ts";
import { defaultsSchema, LIMIT_KEYS, serverSchema } from "../schema.ts";
import type { FileConfig, FileNote, ServerConfig, SourceFile } from "./file-config.ts";
import { createTable, isTable, type Table } from "../table.ts";
import { validate } from "../validate.ts";

/** The files of clients that belong to a project, relative to the project's folder. */
export const PROJECT_FILES: readonly string[] = [
  ".amazonq/mcp.json",
  ".cursor/mcp.json",
  ".gemini/settings.json",
  ".kiro/settings/mcp.json",
  ".mcp.json",
  ".qwen/settings.json",
  ".roo/mcp.json",
  ".vscode/mcp.json",
];

/** The files, relative to the home folder, of clients that start a user's servers in the folder of their work. */
const USER_FILES = [
  ".aws/amazonq/mcp.json",
  ".claude.json",
  ".copilot/mcp-config.json",
  ".cursor/mcp.json",
  ".gemini/settings.json",
  ".kiro/settings/mcp.json",
  ".qwen/settings.json",
];

/** VS Code starts the servers of this file in the home folder. */
const CODE_USER_FILE = /\/Code(?: - Insiders)?\/User\/mcp\.json$/;

/** The folder of the project that a file of a client belongs to by its path; undefined if it is no such file. */
function projectFolderOf(file: string): string | undefined {
  const own = PROJECT_FILES.find((each) => file.endsWith(`/${each}`));
  return own === undefined ? undefined : file.slice(0, -own.length - 1) || "/";
}

/**
 * The folder, absolute, where the relative paths in a file start: for a file of a known client the folder where they
 * start in that client; for any other file its own folder.
 * @param file absolute
 * @param cwd the hub's working directory
 */
export function baseFolderOf(file: string, { env, cwd }: { env: Env; cwd: string }): string {
  const { HOME: home } = env;
  if (home !== undefined && USER_FILES.some((each) => join(home, each) === file)) return cwd;
  if (home !== undefined && CODE_USER_FILE.test(file)) return home;
  return projectFolderOf(file) ?? dirname(file);
}

/**
 * Reads a file written for an MCP client: `mcpServers`, or `servers` as in VS Code. Unknown keys and invalid limits are
 * ignored, and an entry that cannot be run affects only itself. `hub` and `defaults` are toolmux's own keys here, too.
 */
export function readClientFile(root: Table, source: SourceFile): FileConfig {
  const { file, baseDir } = source;
  const servers = new Map<string, ServerConfig>();
  const settings = readHubSettings(root, source);
  const problems: Problem[] = [...settings.problems];
  const notes: FileNote[] = [];
  const ignored = new Set<string>();
  // A client's file must not make toolmux load plugin code.
  if ("plugins" in root) ignored.add("plugins");
  // A client's file must not allow `${cmd:…}` (`secrets.commands`), which runs commands.
  if ("secrets" in root) ignored.add("secrets");
  const isSwitchedOff = makeServerSwitch(root);
  const groups = ["servers", "mcpServers"].filter((key) => key in root);
  if (groups.length === 0) notes.push({ path: [], text: "has neither mcpServers nor servers" });
  for (const group of groups) {
    const table = root[group];
    if (!isTable(table)) {
      const message = `expected a table of servers, found ${describeValue(table, false)}`;
      problems.push({ file, path: [group], at: "value", message });
      continue;
    }
    for (const [name, entry] of Object.entries(table)) {
      const path = [group, name];
      if (servers.has(name)) {
        const text = `server ${JSON.stringify(name)} is in both tables; that in ${group} counts`;
        notes.push({ path, text });
      }
      const own = isSwitchedOff(name) && isTable(entry) ? { ...entry, disabled: true } : entry;
      const server = readClientEntry({ name, file, baseDir, path }, own, ignored, notes);
      servers.set(name, server);
      if (server.kind === "unsupported" && server.enabled) {
        const text = `server ${JSON.stringify(name)} is ignored: ${server.reason}`;
        notes.push({ path: server.faultPath, text });
      }
    }
  }
  if (ignored.size > 0) {
    const text = `toolmux does not know these keys and ignores them: ${[...ignored].join(", ")}`;
    notes.push({ path: [], text });
  }
  return { file, baseDir, ...settings, servers, plugins: [], problems, schemeProblems: [], notes };
}

function readClientEntry(
  common: Pick<ServerConfig, "name" | "file" | "baseDir" | "path">,
  raw: unknown,
  ignored: Set<string>,
  notes: FileNote[],
): ServerConfig {
  const normalized = normalizeClientEntry(raw, common.name);
  if (!normalized.ok) {
    const { isDisabled, reason, rest } = normalized;
    addIgnoredKeys(rest, ignored);
    const faultPath = [...common.path, ...normalized.path];
    return { kind: "unsupported", ...common, enabled: !isDisabled, reason, faultPath };
  }
  const project = projectFolderOf(common.file);
  // The file of a project has this folder as its base. A user's file of the same name has another one.
  const entry =
    project === undefined || project !== common.baseDir
      ? normalized.entry
      : inProject(normalized.entry, project);
  const enabled = !entry.isDisabled;
  const shown = enabled ? notes : [];
  for (const text of entry.notes) {
    shown.push({ path: common.path, text: `server ${JSON.stringify(common.name)}: ${text}` });
  }
  const converted = readClientTimeouts(entry.rest, timeoutsInFile(common.file));
  const server = dropInvalidLimits(
    { ...converted.entry, ...manifestEntryOf(entry, converted.keys, ignored) },
    common,
    shown,
  );
  const checked = validate(serverSchema, { ...server, enabled }, common);
  if (!checked.ok) {
    const reason = formatProblems(checked.problems, common.path);
    const faultPath = checked.problems[0]?.path ?? common.path;
    return { kind: "unsupported", ...common, enabled, reason, faultPath };
  }
  const { target } = entry;
  return target.kind === "process"
    ? {
        kind: "stdio",
        syntax: "client",
        ...common,
        launch: { kind: "command", command: target.command },
        input: checked.value,
      }
    : { kind: "remote", syntax: "client", ...common, url: target.url, input: checked.value };
}

/**
 * An entry of a project's file as its client starts it: in the project's folder, which is also the value of its
 * placeholders.
 */
function inProject(entry: ClientEntry, project: string): ClientEntry {
  // A text of a client's file has no escape for a `${` in the folder's path.
  if (project.includes("${")) return entry;
  const fill = (text: string): string =>
    text
      .replaceAll("${workspaceFolder}", () => project)
      .replaceAll("${workspaceFolderBasename}", () => basename(project));
  const fillAll = (texts: Readonly<Record<string, string>>): Record<string, string> => {
    const filled = createTable<string>();
    for (const [key, text] of Object.entries(texts)) filled[key] = fill(text);
    return filled;
  };
  const { target } = entry;
  if (target.kind === "remote") {
    const { url, headers } = target;
    return { ...entry, target: { ...target, url: fill(url), headers: fillAll(headers) } };
  }
  const { command, args, env, cwd } = target;
  return {
    ...entry,
    target: {
      ...target,
      command: fill(command),
      args: args.map(fill),
      env: fillAll(env),
      cwd: cwd === undefined ? project : fill(cwd),
    },
  };
}

/** Drops limits that toolmux's schema rejects: the MCP client may use the same key with another meaning. */
function dropInvalidLimits(
  server: Table,
  { name, file, path }: Pick<ServerConfig, "name" | "file" | "path">,
  notes: FileNote[],
): Table {
  const kept = createTable<unknown>();
  for (const [key, value] of Object.entries(server)) {
    const checked = LIMIT_KEYS.some((it) => it === key)
      ? validate(defaultsSchema(), { [key]: value }, { file, path })
      : undefined;
    if (checked?.ok !== false) kept[key] = value;
    else {
      const problemText = formatProblems(checked.problems, [...path, key]);
      const text = `server ${JSON.stringify(name)}: ${key} is ignored: ${problemText}`;
      notes.push({ path: [...path, key], text });
    }
  }
  return kept;
}

function formatProblems(problems: readonly Problem[], base: KeyPath): string {
  const problemText = problems.map(({ path, message }) =>
    `${formatPath(path.slice(base.length))} ${message}`.trim(),
  );
  return problemText.join("; ");
}

/** Manifest keys that MCP clients do not have, or use with another meaning. */
const EXCLUDED_KEYS = new Set(
  "plugin fleet spread package runner auth oauth ca keyFile limits scan scanIgnore".split(" "),
);
const ACCEPTED_KEYS = new Set(
  Object.keys(serverSchema.entries).filter((key) => !EXCLUDED_KEYS.has(key)),
);

/**
 * Converts an entry to the manifest's keys. `converted`: keys that are limits of the client. Remaining keys are copied if they have the same meaning for clients and
 * in manifests.
 */
function manifestEntryOf(
  { target, title, description, tools, approval, autoApprovalKeys, unused, rest }: ClientEntry,
  converted: ReadonlySet<string>,
  ignored: Set<string>,
): Table {
  addIgnoredKeys(new Map([...rest].filter(([key]) => !converted.has(key))), ignored);
  // That a client does not ask before a call is no permission for other clients of the hub.
  for (const key of [...unused, ...autoApprovalKeys]) ignored.add(key);
  // A file of environment variables is read only when servers are imported, so `envFile` has no effect here.
  if (target.kind === "process" && target.envFile !== undefined) ignored.add("envFile");
  const server = createTable<unknown>();
  for (const [key, value] of rest) {
    if (ACCEPTED_KEYS.has(key)) server[key] = value;
  }
  if (title !== undefined) server["title"] = title;
  if (description !== undefined) server["description"] = description;
  if (tools !== undefined) server["tools"] = tools;
  if (approval !== undefined) server["approval"] = approval;
  return Object.assign(server, target.kind === "process" ? processOf(target) : remoteOf(target));
}

function addIgnoredKeys(rest: ReadonlyMap<string, unknown>, ignored: Set<string>): void {
  for (const key of rest.keys()) if (!ACCEPTED_KEYS.has(key)) ignored.add(printPathKey(key));
}

function processOf({ command, args, env, inheritEnv, cwd }: ProcessTarget): Table {
  return {
    command,
    args,
    env,
    ...(inheritEnv.length > 0 && { inheritEnv }),
    ...(cwd !== undefined && { cwd }),
  };
}

function remoteOf(target: RemoteTarget): Table {
  const { url, isSse, envHeaders, bearerVariable, oauth } = target;
  const headers = Object.assign(createTable<string>(), target.headers);
  for (const [name, variable] of envHeaders) headers[name] = `\${env:${variable}}`;
  if (bearerVariable !== undefined) headers["Authorization"] = `Bearer \${env:${bearerVariable}}`;
  return {
    url,
    headers,
    ...(isSse && { transport: "sse" }),
    ...(Object.keys(oauth).length > 0 && { auth: "auto", oauth }),
  };
}
