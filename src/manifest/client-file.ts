import {
  type ClientEntry,
  normalizeClientEntry,
  type ProcessTarget,
  type RemoteTarget,
  scalarToText,
} from "./client-entry.ts";
import { readHubSettings } from "./read.ts";
import { describeValue, formatPath, type KeyPath, printPathKey, type Problem } from "./problems.ts";
import { defaultsSchema, LIMIT_KEYS, serverSchema } from "./schema.ts";
import type { FileConfig, ServerConfig, SourceFile } from "./file-config.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/**
 * Reads a file written for an MCP client: `mcpServers`, or `servers` as in VS Code. Unknown keys and invalid limits are
 * ignored, and an entry that cannot be run affects only itself. `hub` and `defaults` are toolmux's own keys here, too.
 */
export function readClientFile(root: Table, source: SourceFile): FileConfig {
  const { file, baseDir } = source;
  const servers = new Map<string, ServerConfig>();
  const settings = readHubSettings(root, source);
  const problems: Problem[] = [...settings.problems];
  const notes: string[] = [];
  const ignored = new Set<string>();
  // A client's file must not make toolmux load plugin code.
  if ("plugins" in root) ignored.add("plugins");
  // A client's file must not allow `${cmd:…}` (`secrets.commands`), which runs commands.
  if ("secrets" in root) ignored.add("secrets");
  const groups = ["servers", "mcpServers"].filter((key) => key in root);
  if (groups.length === 0) notes.push("has neither mcpServers nor servers");
  for (const group of groups) {
    const table = root[group];
    if (!isTable(table)) {
      const message = `expected a table of servers, found ${describeValue(table, false)}`;
      problems.push({ file, path: [group], at: "value", message });
      continue;
    }
    for (const [name, entry] of Object.entries(table)) {
      const common = { name, file, baseDir, path: [group, name] };
      const server = readClientEntry(common, entry, ignored, notes);
      servers.set(name, server);
      if (server.kind === "unsupported" && server.enabled) {
        notes.push(`server ${JSON.stringify(name)} is ignored: ${server.reason}`);
      }
    }
  }
  if (ignored.size > 0) {
    notes.push(`toolmux does not know these keys and ignores them: ${[...ignored].join(", ")}`);
  }
  return { file, baseDir, ...settings, servers, plugins: [], problems, schemeProblems: [], notes };
}

function readClientEntry(
  common: Pick<ServerConfig, "name" | "file" | "baseDir" | "path">,
  raw: unknown,
  ignored: Set<string>,
  notes: string[],
): ServerConfig {
  const normalized = normalizeClientEntry(raw, common.name);
  if (!normalized.ok) {
    const { isDisabled, reason, rest } = normalized;
    addIgnoredKeys(rest, ignored);
    return { kind: "unsupported", ...common, enabled: !isDisabled, reason };
  }
  const { entry } = normalized;
  const enabled = !entry.isDisabled;
  const server = dropInvalidLimits(manifestEntryOf(entry, ignored), common, enabled ? notes : []);
  const checked = validate(serverSchema, { ...server, enabled }, common);
  if (!checked.ok) {
    const reason = formatProblems(checked.problems, common.path);
    return { kind: "unsupported", ...common, enabled, reason };
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

/** Drops limits that toolmux's schema rejects: the MCP client may use the same key with another meaning. */
function dropInvalidLimits(
  server: Table,
  { name, file, path }: Pick<ServerConfig, "name" | "file" | "path">,
  notes: string[],
): Table {
  const kept = createTable<unknown>();
  for (const [key, value] of Object.entries(server)) {
    const checked = LIMIT_KEYS.some((it) => it === key)
      ? validate(defaultsSchema, { [key]: value }, { file, path })
      : undefined;
    if (checked?.ok !== false) kept[key] = value;
    else {
      const problemText = formatProblems(checked.problems, [...path, key]);
      notes.push(`server ${JSON.stringify(name)}: ${key} is ignored: ${problemText}`);
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
const EXCLUDED_KEYS = new Set("plugin package runner auth oauth ca keyFile approval".split(" "));
const ACCEPTED_KEYS = new Set(
  Object.keys(serverSchema.entries).filter((key) => !EXCLUDED_KEYS.has(key)),
);

/**
 * Converts an entry to the manifest's keys. Remaining keys are copied if they have the same meaning for clients and
 * in manifests.
 */
function manifestEntryOf(
  { target, title, description, tools, rest }: ClientEntry,
  ignored: Set<string>,
): Table {
  addIgnoredKeys(rest, ignored);
  // A file of environment variables is read only when servers are imported, so `envFile` has no effect here.
  if (target.kind === "process" && target.envFile !== undefined) ignored.add("envFile");
  const server = createTable<unknown>();
  for (const [key, value] of rest) {
    if (ACCEPTED_KEYS.has(key) && value !== null) server[key] = value;
  }
  if (title !== undefined) server["title"] = title;
  if (description !== undefined) server["description"] = description;
  if (tools !== undefined) server["tools"] = tools;
  return Object.assign(server, target.kind === "process" ? processOf(target) : remoteOf(target));
}

function addIgnoredKeys(rest: ReadonlyMap<string, unknown>, ignored: Set<string>): void {
  for (const key of rest.keys()) if (!ACCEPTED_KEYS.has(key)) ignored.add(printPathKey(key));
}

function processOf({ command, args, env, inheritEnv, cwd }: ProcessTarget): Table {
  return {
    command,
    args: args.map(scalarToText),
    env: textsOf(env),
    ...(inheritEnv.length > 0 && { inheritEnv }),
    ...(cwd !== undefined && { cwd }),
  };
}

function remoteOf(target: RemoteTarget): Table {
  const { url, isSse, envHeaders, bearerVariable, oauth } = target;
  const headers = textsOf(target.headers);
  for (const [name, variable] of envHeaders) headers[name] = `\${env:${variable}}`;
  if (bearerVariable !== undefined) headers["Authorization"] = `Bearer \${env:${bearerVariable}}`;
  return {
    url,
    headers,
    ...(isSse && { transport: "sse" }),
    ...(Object.keys(oauth).length > 0 && { auth: "auto", oauth }),
  };
}

function textsOf(table: Table): Record<string, unknown> {
  const texts = createTable<unknown>();
  for (const [key, value] of Object.entries(table)) texts[key] = scalarToText(value);
  return texts;
}
