import { count } from "../../base/format.ts";
import { isAbsolute } from "node:path";
import { HubError } from "../../base/errors.ts";
import { decodeUtf8, readFileLimited } from "../../base/read-file.ts";
import type { Env } from "../../base/paths.ts";
import { type LoadedManifest, loadManifest } from "../../manifest/load.ts";
import { addPositionsLater } from "../../manifest/positions.ts";
import { formatPath, formatProblem, type Problem } from "../../manifest/problems.ts";
import type {
  ExternalServer,
  Manifest,
  PluginSpec,
  ServerSpec,
  StdioServer,
} from "../../manifest/manifest.ts";
import type { NamedClient } from "../../manifest/named-clients.ts";
import {
  resolveRemote,
  resolveServer,
  type SchemeResolvers,
  secretsOfModels,
} from "../../manifest/resolve.ts";
import {
  listSchemes,
  parseTemplate,
  secretsInCommandLine,
  secretsOf,
} from "../../manifest/interpolate.ts";
import { AGENTS_PLUGIN } from "../../agent-tools/plugin.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import type { FilterItem } from "../../catalog/filter.ts";
import { describeIdleRule, isIdleRule } from "../../catalog/idle-rules.ts";
import { MAX_MANIFEST_SIZE } from "../../manifest/trust.ts";
import { checkPlugin } from "../../plugin/load.ts";
import { pluginLoaders } from "../plugin-loaders.ts";
import { findUnknownServers } from "../../plugin/servers.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  describePlugin,
  describeServer,
  pluginKindOf,
  pluginToJson,
  withInstalledRunner,
} from "../server-description.ts";
import { openLog } from "../load-manifest.ts";
import { openSchemeResolvers } from "../transport-factory.ts";
import { formatCodeFrame } from "../code-frame.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { type Cell, wrapText } from "../../terminal/terminal.ts";
import { Redactor } from "../../transport/redact.ts";
import { resolvePrograms } from "../doctor/servers.ts";
import { hintsFor } from "../hints.ts";

/** A server as `check` prints it. */
interface Row {
  readonly name: string;
  /**
   * `unsupported`: an entry from a client's file that toolmux cannot use; `incomplete`: a value that the server needs
   * is missing; `fails`: the server's command or working directory is missing.
   */
  readonly state: "starts" | "disabled" | "unsupported" | "incomplete" | "fails";
  /** The command or URL, or why the server cannot start. Contains no secret. */
  readonly text: string;
  /**
   * The command or URL of a server that cannot start. Undefined for a server that can start (`text` has the command or
   * URL then), and for an unsupported entry.
   */
  readonly command?: string;
  readonly hint?: string | undefined;
}

function cannotStart({ state }: Row): boolean {
  return state !== "starts" && state !== "disabled";
}

/** A secret that servers or models use, without its value. */
interface SecretRow {
  readonly name: string;
  /** Where the secret was found; undefined if it was not found, or if its store cannot be read. */
  readonly place: string | undefined;
  readonly servers: readonly string[];
  readonly models: readonly string[];
}

/**
 * `toolmux check`: reads the manifest, prints its problems, and prints which servers would start. Starts no server, and
 * loads no external plugin.
 */
export async function check(
  invocation: Invocation<{ readonly json: boolean; readonly strict: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { env, cwd, platform } = context;
  const loaded = await loadManifest({ files: invocation.config, env, cwd, platform });
  const { problems, starts, files, servers, secrets, plugins, warnings } = await inspect(
    loaded,
    context,
  );
  const notes = [...loaded.notes, ...warnings];
  const modes = loaded.ok ? (loaded.manifest.modes ?? []) : [];
  const clients = loaded.ok ? (loaded.manifest.clients ?? []).map(clientToJson) : [];
  const ok = problems.length === 0;
  const broken = servers.filter(cannotStart);
  const successCode = invocation.options.strict && broken.length > 0 ? 3 : 0;
  if (invocation.options.json) {
    const document = {
      ok,
      problems: problems.map(toJson),
      notes,
      files,
      servers: servers.map(({ name, state, text }) => ({
        name,
        state,
        text,
        starts: state === "starts",
      })),
      secrets: secrets.map(({ place = null, ...row }) => ({ ...row, place })),
      plugins: plugins.map(pluginToJson),
      modes: modes.map(({ name, title, icon, problems: own }) => ({
        name,
        title,
        ...(icon !== undefined && { icon }),
        ok: own.length === 0,
      })),
      clients,
    };
    context.terminal.printJson(document);
    return ok ? successCode : 2;
  }
  const log = openLog(invocation);
  for (const note of notes) log("warn", note);
  for (const problem of problems) await printProblemWithFrame(problem, context);
  if (!ok) {
    const rest = starts
      ? problems.some(({ path: [table] }) => table === "modes" || table === "clients")
        ? "; a mode with a problem shows nothing, the token of a client with a problem is refused"
        : "; servers, models and agents with a problem are not used"
      : "; no server starts until this is corrected";
    context.terminal.note(`${count(problems.length, "problem")}${rest}`);
    printServers(servers, context);
    printReasons(broken, context);
    return 2;
  }
  for (const file of files) context.terminal.print(`manifest: ${file}`);
  printServers(servers, context);
  printSecrets(secrets, context);
  printPlugins(plugins, context);
  printModes(loaded, context);
  const { terminal } = context;
  const more = plugins.length > 0 ? `; ${count(plugins.length, "plugin")}` : "";
  if (broken.length === 0) {
    terminal.print(`${describeServers(servers, plugins)}${more}`);
    return 0;
  }
  const { colors } = terminal.stdout;
  const number = broken.length === servers.length ? "" : `${broken.length} of `;
  const headline = `${number}${count(servers.length, "server")} cannot start`;
  terminal.print(`${colors.red(headline)}; the manifest itself is well-formed${more}`);
  printReasons(broken, context);
  return successCode;
}

/** The JSON of a client that has its own token, without the token. */
function clientToJson(client: NamedClient): object {
  if (client.kind === "invalid") return { name: client.name ?? null, ok: false };
  const { name, mode, servers } = client;
  return { name, ok: true, ...(mode !== undefined && { mode }), ...(servers && { servers }) };
}

function printModes(loaded: LoadedManifest, { terminal }: CommandContext): void {
  if (!loaded.ok) return;
  const { modes = [], clients = [], hub } = loaded.manifest;
  const rows = modes.map(({ name, title, icon = "" }) => [
    name === hub.mode ? `${name} *` : name,
    `${icon} ${title}`.trim(),
    clients.flatMap((it) => (it.kind === "client" && it.mode === name ? [it.name] : [])).join(", "),
  ]);
  terminal.printTable(["MODE", "TITLE", "CLIENTS"], rows);
  const names = clients.flatMap(({ name }) => name ?? []);
  if (names.length > 0) terminal.print(sanitizeLine(`clients over HTTP: ${names.join(", ")}`));
}

/** The summary if every enabled server would start. */
function describeServers(servers: readonly Row[], plugins: readonly PluginSpec[]): string {
  const disabled = servers.filter(({ state }) => state === "disabled").length;
  // Plugins may provide servers that are not counted here, so something may start.
  if (disabled === servers.length && plugins.length === 0) {
    const reason = servers.length === 0 ? "has no servers" : "enables no server";
    return `the manifest is well-formed, but ${reason}: nothing would start`;
  }
  const more = disabled === 0 ? "" : `, ${disabled} disabled`;
  const next = servers.length === 0 ? "" : "; to start them: toolmux status";
  return `no problems; ${count(servers.length, "server")}${more}${next}`;
}

/** Prints why servers cannot start, and what to do. */
function printReasons(broken: readonly Row[], { terminal }: CommandContext): void {
  const { width } = terminal.stdout;
  for (const { name, text, hint } of broken) {
    for (const [at, line] of [
      `${name}: ${text}`,
      ...(hint === undefined ? [] : [hint]),
    ].entries()) {
      const indent = " ".repeat(at === 0 ? 2 : 4);
      terminal.print(wrapText(sanitizeLine(line), width, "    ", indent));
    }
  }
}

function printServers(servers: readonly Row[], { terminal }: CommandContext): void {
  const { colors } = terminal.stdout;
  const table = servers.map((row): readonly Cell[] => {
    const { name, state, text, command = text } = row;
    if (cannotStart(row)) return [name, { text: "cannot start", color: colors.red }, command];
    const color = state === "starts" ? colors.green : colors.dim;
    return [name, { text: state, color }, command];
  });
  terminal.printTable(["SERVER", "STATE", "COMMAND"], table);
}

interface CheckResult {
  /**
   * If there are problems, all other lists are empty, except `servers`, which may contain the servers without a
   * problem.
   */
  readonly problems: readonly Problem[];
  /** Whether the problems concern only single servers, so that a hub would start the other servers. */
  readonly starts: boolean;
  readonly files: readonly string[];
  readonly servers: readonly Row[];
  readonly secrets: readonly SecretRow[];
  readonly plugins: readonly PluginSpec[];
  readonly warnings: readonly string[];
}

async function inspect(loaded: LoadedManifest, context: CommandContext): Promise<CheckResult> {
  const nothing = { files: [], servers: [], secrets: [], plugins: [], warnings: [] };
  if (loaded.problems.length > 0 || !loaded.ok) {
    const starts =
      loaded.ok &&
      loaded.manifest.servers.some(({ kind, enabled }) => enabled && kind !== "invalid");
    const rows = starts ? await checkValidServers(loaded.manifest, context) : [];
    return { ...nothing, problems: loaded.problems, starts, servers: rows };
  }
  const { plugins, sources: files } = loaded.manifest;
  const pluginProblems = await findPluginProblems(loaded.manifest);
  if (pluginProblems.length > 0)
    return { ...nothing, problems: await addPositionsLater(pluginProblems), starts: false };
  const unknownServers = await addPositionsLater(findUnknownPluginServers(loaded.manifest));
  if (unknownServers.length > 0) return { ...nothing, problems: unknownServers, starts: true };
  const rows = await checkValidServers(loaded.manifest, context);
  const secrets = await findSecrets(loaded.manifest, context);
  const warnings = [
    ...(await findSavedFaults(loaded.manifest, context)),
    ...(await findTokenFaults(loaded.manifest, context)),
    ...loaded.manifest.servers.flatMap(describeCommandLineSecrets),
  ];
  return { problems: [], starts: true, files, servers: rows, secrets, plugins, warnings };
}

/** Says which secrets a server gets on its command line. */
function describeCommandLineSecrets(spec: ServerSpec): readonly string[] {
  const found = secretsInCommandLine(spec);
  if (found.length === 0) return [];
  return [
    `server ${JSON.stringify(spec.name)}: args have ${found.join(", ")}, so the value is on the command line, which other programs and users of this machine can read. If the server takes it from a variable, write it in env.`,
  ];
}

/** Says for each client over HTTP whose token cannot be used why that is so. */
async function findTokenFaults(
  manifest: Manifest,
  context: CommandContext,
): Promise<readonly string[]> {
  if ((manifest.clients ?? []).length === 0) return [];
  const { resolveHttpClients } = await import("../http-clients.ts");
  const faults: string[] = [];
  await resolveHttpClients(manifest, context, (text) => void faults.push(text));
  return faults;
}

/** Checks the servers whose tables in the manifest are valid. */
function checkValidServers(
  { servers }: Manifest,
  context: CommandContext,
): Promise<readonly Row[]> {
  const schemesFor = openSchemeResolvers(context);
  const valid = servers.filter(({ kind }) => kind !== "invalid");
  return Promise.all(valid.map((spec) => checkServer(spec, context, schemesFor)));
}

async function findSecrets(
  manifest: Manifest,
  context: CommandContext,
): Promise<readonly SecretRow[]> {
  const external = manifest.servers.filter(({ kind }) => kind === "stdio" || kind === "remote");
  const ofModels = secretsOfModels(manifest);
  const names = new Set([...external.flatMap(secretsOf), ...ofModels.map(({ name }) => name)]);
  if (names.size === 0) return [];
  const secrets = (await import("../../secrets/secrets.ts")).openSecrets(context);
  return Promise.all(
    [...names].toSorted().map(async (name) => {
      const servers = external.filter((spec) => secretsOf(spec).includes(name));
      const models = ofModels.filter((secret) => secret.name === name);
      const [server] = servers;
      const sources =
        server !== undefined && "secretSources" in server
          ? server.secretSources
          : models[0]?.sources;
      const found = await secrets.find(name, sources).catch(() => undefined);
      const variables = models.flatMap((model) => model.variables);
      const isSet = variables.some((variable) => context.env[variable]);
      return {
        name,
        place: found?.source ?? (isSet ? "environment" : undefined),
        servers: servers.map((spec) => spec.name),
        models: [...new Set(models.map(({ model }) => model))],
      };
    }),
  );
}

function printSecrets(secrets: readonly SecretRow[], { terminal }: CommandContext): void {
  if (secrets.length === 0) return;
  const table = secrets.map(({ name, place = "nowhere", servers, models }) => [
    name,
    place,
    [...servers, ...models.map((model) => `model ${model}`)].join(", "),
  ]);
  terminal.printTable(["SECRET", "WHERE", "USED BY"], table);
}

/** Finds problems in the options of plugins. */
async function findPluginProblems(manifest: Manifest): Promise<Problem[]> {
  const loaders = pluginLoaders(
    () => manifest,
    () => Promise.reject(new Error("A check opens no agents.")),
  );
  const { plugins } = manifest;
  return (await Promise.all(plugins.map((plugin) => checkPlugin(plugin, loaders)))).flat();
}

/** Whether a server has settings for single tools, prompts or skills. */
function hasRules(spec: ServerSpec): boolean {
  if (!spec.enabled || !(spec.kind === "stdio" || spec.kind === "remote")) return false;
  const { tools, prompts, skills = {} } = spec;
  return [tools, prompts, skills].some((rules) =>
    Object.values(rules as Readonly<Record<string, object | undefined>>).some(
      (setting) => Object.keys(setting ?? {}).length > 0,
    ),
  );
}

/**
 * Finds probable mistakes in the manifest's settings for single tools, prompts, skills and modes. Compares the
 * settings with the saved listings of servers (what they listed in earlier runs).
 */
async function findSavedFaults(
  manifest: Manifest,
  context: CommandContext,
): Promise<readonly string[]> {
  const { agents = new Map<string, never>(), modes = [], plugins } = manifest;
  const hasModes =
    modes.length > 0 && agents.size > 0 && plugins.some(({ use }) => use === AGENTS_PLUGIN);
  const isRuled = manifest.servers.some(hasRules);
  if (!hasModes && !isRuled) return [];
  const { readSavedCatalog } = await import("../saved-catalog.ts");
  const { catalog } = await readSavedCatalog(manifest, context);
  const idle = catalog.notes.flatMap((note) => (isIdleRule(note) ? [describeIdleRule(note)] : []));
  return hasModes ? [...idle, ...(await findHiddenTools(manifest, catalog))] : idle;
}

/** Maximum number of tools that a note names. */
const SHOWN_TOOLS = 5;

/** Makes notes about modes that show an agent to clients, but hide tools that the agent uses. */
async function findHiddenTools(manifest: Manifest, catalog: Catalog): Promise<readonly string[]> {
  const { validAgents } = await import("../open-agents.ts");
  const { chooseTools } = await import("../../agent/agent.ts");
  const { readCatalog } = await import("../../agent/toolbox.ts");
  const { hidingMode } = await import("../../upstream/modes.ts");
  const { hub, modes = [], plugins } = manifest;
  const { options } = plugins.find(({ use }) => use === AGENTS_PLUGIN) ?? {};
  const exposed = Array.isArray(options?.["expose"]) ? options["expose"] : [];
  const tools = readCatalog(catalog);
  const server = AGENTS_PLUGIN;
  return modes.flatMap((mode) => {
    const isShown = (item: FilterItem): boolean =>
      hidingMode({ modes: [mode] }, "tools", item) === undefined;
    const isOwnShown = (remoteName: string): boolean => {
      const name = `${server}${hub.separator}${remoteName}`;
      return isShown({ server, remoteName, name, isReadOnly: false });
    };
    const isAnyShown = ["invoke_agent", "create_agent_session"].some(isOwnShown);
    return [...validAgents(manifest).values()].flatMap((spec) => {
      const { name, respectMode } = spec;
      if (!isAnyShown && !(exposed.includes(name) && isOwnShown(name))) return [];
      const hidden = chooseTools(spec, tools).filter((tool) => !isShown(tool));
      if (hidden.length === 0) return [];
      const shown = hidden.slice(0, SHOWN_TOOLS).map((tool) => tool.name);
      const more = hidden.length > SHOWN_TOOLS ? ", …" : "";
      const effect = respectMode
        ? "the agent has respectMode, so it lacks them when a client in this mode calls it"
        : "a client in this mode can use them through the agent, because respectMode is not set";
      return `mode "${mode.name}" shows agent "${name}" but hides ${count(hidden.length, "tool")} of it (${shown.join(", ")}${more}): ${effect}`;
    });
  });
}

/** The problems of servers that name a plugin which the manifest does not have. */
function findUnknownPluginServers(manifest: Manifest): readonly Problem[] {
  const { plugins } = manifest;
  // The name of an external plugin is known only once its code is loaded, and `check` loads none. So nothing is
  // reported if the manifest has an external plugin.
  const isKnown = plugins.every((plugin) => pluginKindOf(plugin) === "builtIn");
  return isKnown
    ? findUnknownServers(
        manifest,
        plugins.map(({ use }) => use),
      )
    : [];
}

/** Prints the plugins. Their paths are not masked, because the user decides by them whether to trust the code. */
function printPlugins(plugins: readonly PluginSpec[], { terminal }: CommandContext): void {
  for (const plugin of plugins) terminal.print(`plugin ${sanitizeLine(describePlugin(plugin))}`);
  if (plugins.every((plugin) => pluginKindOf(plugin) === "builtIn")) return;
  terminal.print("check does not load the code of plugins, so it does not check their options.");
}

async function printProblemWithFrame(
  problem: Problem,
  { env, terminal }: CommandContext,
): Promise<void> {
  const { width } = terminal.stderr;
  const text = formatProblem(problem).split("\n").map(sanitizeLine).join("\n");
  terminal.printStderr(wrapText(text, width, "  ", ""));
  const source = await readSource(problem.file, env);
  const frame = source && formatCodeFrame(problem, source, terminal.stderr);
  if (frame) terminal.printStderr(frame);
}

/** The text of the file (or environment variable) that contains the problem; undefined if it cannot be read. */
async function readSource(file: string, env: Env): Promise<string | undefined> {
  const variable = isAbsolute(file) ? undefined : env[file];
  if (variable !== undefined) return variable.trim();
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  return read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
}

/** A problem as JSON. Line and column start at 1, the column in UTF-16 code units; both are null if unknown. */
function toJson({ file, position, path, message }: Problem): object {
  const { line = null, column = null } = position ?? {};
  return { file, line, column, path: formatPath(path), message };
}

async function checkServer(
  spec: ServerSpec,
  context: CommandContext,
  schemesFor: ReturnType<typeof openSchemeResolvers>,
): Promise<Row> {
  const { name } = spec;
  if (spec.kind === "unsupported") return { name, state: "unsupported", text: spec.reason };
  if (spec.kind === "invalid") throw new HubError("internal", `Server "${name}" has problems.`);
  const runnable = await withInstalledRunner(spec, context);
  const command = describeServer(runnable);
  if (!spec.enabled) return { name, state: "disabled", text: command };
  if (spec.kind === "plugin") return { name, state: "starts", text: command };
  const hidden = new Set<string>();
  try {
    const schemes = new Map([...schemesFor(spec, new Map()), ...makePlaceholderSchemes(spec)]);
    if (spec.kind === "remote") {
      await resolveRemote(spec, context.env, context.cwd, schemes, hidden);
    } else if (isProgramKnown(spec)) await resolvePrograms(spec, schemes, context, hidden);
    else await resolveServer(spec, context.env, context.cwd, schemes, hidden);
    return { name, state: "starts", text: command };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    const state = error.step === "resolve" ? "incomplete" : "fails";
    const [hint] = hintsFor(error, runnable, context.env);
    const text = new Redactor([...hidden]).apply(reasonOf(error, name));
    return { name, state, text, command, hint };
  }
}

/**
 * Whether `check` can look up the server's program. It cannot if the command, the working directory or PATH has a
 * placeholder that a command (`${cmd:…}`) or a plugin fills in, because `check` runs neither.
 */
function isProgramKnown({ command, cwd = "", env, syntax }: StdioServer): boolean {
  return [command, cwd, env["PATH"] ?? ""].every((text) =>
    parseTemplate(text, syntax).every((part) => part.kind !== "scheme" || part.scheme === "secret"),
  );
}

/** The message of an error without the name of its server. */
function reasonOf({ message }: HubError, server: string): string {
  const [started, reached] = ["started", "reached"].map(
    (verb) => `server "${server}" cannot be ${verb}: `,
  );
  const prefix = [started, reached].find((text = "") => message.startsWith(text)) ?? "";
  // The list of folders in PATH is removed, because it is so long that the reason would be hard to find.
  return message
    .slice(prefix.length)
    .replace(` of server "${server}"`, "")
    .replace(/ in PATH \(.*\)/, " in PATH");
}

/**
 * Makes resolvers that give an empty text for each placeholder of a plugin or a command (`${cmd:…}`), because `check`
 * loads no plugin and runs no command.
 */
function makePlaceholderSchemes(spec: ExternalServer): SchemeResolvers {
  const schemes = [...listSchemes(spec), "cmd"];
  return new Map(schemes.map((scheme) => [scheme, () => Promise.resolve("")]));
}
