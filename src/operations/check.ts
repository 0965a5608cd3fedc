import { stat } from "node:fs/promises";
import process from "node:process";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import { AGENTS_PLUGIN } from "../agent-tools/plugin.ts";
import { pluginLoaders } from "../agent-tools/built-in-plugins.ts";
import { HubError } from "../base/errors.ts";
import { count } from "../base/format.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { FilterItem } from "../catalog/filter.ts";
import { describeIdleRule, isIdleRule } from "../catalog/idle-rules.ts";
import { openSchemeResolvers } from "../hub/transport-factory.ts";
import { listSchemes, parseTemplate, secretsInCommandLine } from "../manifest/interpolate.ts";
import { type LoadedManifest, loadManifest } from "../manifest/load.ts";
import {
  type ExternalServer,
  isExternal,
  type Manifest,
  type PluginSpec,
  type ServerSpec,
  type StdioServer,
} from "../manifest/manifest.ts";
import { validAgents } from "../manifest/modes.ts";
import type { NamedClient } from "../manifest/named-clients.ts";
import { addPositionsLater } from "../manifest/syntax/positions.ts";
import { formatPath, type Problem } from "../manifest/problems.ts";
import { resolveRemote, resolveServer, type SchemeResolvers } from "../manifest/resolve.ts";
import { type ListedUsers, listedUsers } from "../manifest/secret-users.ts";
import { secretUsesOf } from "../manifest/secret-uses.ts";
import { MAX_MANIFEST_SIZE } from "../manifest/trust.ts";
import { checkPlugin } from "../plugin/load.ts";
import { findUnknownServers } from "../plugin/provided-servers.ts";
import { childEnvironment } from "../process/child-process.ts";
import { newOwnerTag } from "../process/orphans.ts";
import { loginShellPath } from "../process/path-lookup.ts";
import { Redactor } from "../transport/redact.ts";
import { resolveFirstCommand } from "../transport/stdio.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import type { CheckDocument } from "./documents.ts";
import { hintsFor } from "./hints.ts";
import {
  describeServer,
  pluginKindOf,
  pluginToJson,
  withInstalledRunner,
} from "./server-description.ts";

/** A server that was checked. */
export interface CheckedServer {
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
  /** Finding about a server that can start: its command, a valid URL, its plugin, or nothing that could be checked. */
  readonly found?: "command" | "url" | "plugin" | "unknown";
}

export function cannotStart({ state }: CheckedServer): boolean {
  return state !== "starts" && state !== "disabled";
}

/** The arguments of a runtime that names a script, and the options without a value that may stand before the script. */
interface ScriptRuntime {
  readonly program: RegExp;
  readonly options: RegExp;
  /** A word before the script, and whether the script may stand without it. */
  readonly verb?: string;
  readonly isVerbOptional?: boolean;
  /** Whether the runtime also runs folders that have an entry file, and finds scripts that are named without an ending. */
  readonly runsFolders?: boolean;
  readonly triesEndings?: boolean;
}

const SCRIPT_RUNTIMES: readonly ScriptRuntime[] = [
  {
    program: /^node(?:js)?[\d.]*$/,
    options:
      /^--(?:no-warnings|enable-source-maps|experimental-(?:strip-types|transform-types|vm-modules)|no-[\w-]+)$/,
    runsFolders: true,
    triesEndings: true,
  },
  {
    program: /^bun$/,
    options: /^--(?:bun|smol|silent)$/,
    verb: "run",
    isVerbOptional: true,
    runsFolders: true,
    triesEndings: true,
  },
  {
    program: /^deno$/,
    options: /^(?:-A|-q|--quiet|--allow-[\w-]+|--no-[\w-]+|--unstable[\w-]*|--cached-only)$/,
    verb: "run",
  },
  { program: /^python[\d.]*$/, options: /^-[uOBEsSIqvbdi]+$/, runsFolders: true },
  { program: /^ruby[\d.]*$/, options: /^-[wvW]$/ },
  { program: /^(?:ba)?sh$/, options: /^-[eux]+$/ },
];

/**
 * The script that a command runs: the first argument of a known runtime that is no option, if it is an absolute path and
 * no option before it may take a value. Undefined if that is not certain, as with runners and containers.
 */
export function scriptOf(command: string, args: readonly string[]): string | undefined {
  const runtime = runtimeOf(command);
  if (runtime === undefined) return undefined;
  const { options, verb, isVerbOptional = false } = runtime;
  const [first, ...others] = args;
  const hasVerb = verb !== undefined && first === verb;
  if (verb !== undefined && !hasVerb && !isVerbOptional) return undefined;
  for (const arg of hasVerb ? others : args) {
    if (arg.startsWith("-")) {
      if (!options.test(arg) && !/^--[\w-]+=/.test(arg)) return undefined;
    } else return isAbsolute(arg) ? arg : undefined;
  }
  return undefined;
}

function runtimeOf(command: string): ScriptRuntime | undefined {
  return SCRIPT_RUNTIMES.find(({ program }) => program.test(basename(command)));
}

/** Says of each file of the manifest that other users can change it. */
export async function findWritableFiles(files: readonly string[]): Promise<readonly string[]> {
  const group = process.getgid?.();
  const found = await Promise.all(
    files.map(async (file) => {
      const stats = await stat(file).catch(() => undefined);
      if (stats === undefined) return [];
      const isOthers = (stats.mode & 0o002) !== 0;
      // Many systems give each user a group of its own, and let this group write.
      const isGroups = (stats.mode & 0o020) !== 0 && stats.gid !== group;
      return isOthers || isGroups ? [file] : [];
    }),
  );
  return found.flat();
}

/** A secret that the manifest mentions, without its value. */
export interface CheckedSecret extends ListedUsers {
  readonly name: string;
  /** Where the secret was found; undefined if it was not found, or if its store cannot be read. */
  readonly place: string | undefined;
}

/** The JSON of a client that has its own token, without the token. */
function clientToJson(client: NamedClient): CheckDocument["clients"][number] {
  if (client.kind === "invalid") return { name: client.name ?? null, ok: false };
  const { name, mode, servers } = client;
  return { name, ok: true, ...(mode !== undefined && { mode }), ...(servers && { servers }) };
}

/** The outcome of a check: the document, and what people are told besides. */
export interface CheckResult {
  readonly document: CheckDocument;
  readonly loaded: LoadedManifest;
  /**
   * If there are problems, all other lists are empty, except `servers`, which may contain the servers without a
   * problem.
   */
  readonly problems: readonly Problem[];
  /** Whether the problems concern only single servers, so that a hub would start the other servers. */
  readonly starts: boolean;
  readonly servers: readonly CheckedServer[];
  readonly secrets: readonly CheckedSecret[];
  readonly plugins: readonly PluginSpec[];
}

/**
 * Reads the manifest, finds its problems, and finds out which servers would start. Starts no server, and loads no
 * external plugin.
 */
export async function checkManifest(
  { config }: ManifestChoice,
  context: OperationContext,
): Promise<CheckResult> {
  const { env, cwd, platform } = context;
  const loaded = await loadManifest({ files: config, env, cwd, platform });
  const { problems, starts, files, servers, secrets, plugins, warnings } = await inspect(
    loaded,
    context,
  );
  const modes = loaded.ok ? (loaded.manifest.modes ?? []) : [];
  const clients = loaded.ok ? (loaded.manifest.clients ?? []) : [];
  const document: CheckDocument = {
    ok: problems.length === 0,
    problems: problems.map(toJson),
    notes: [...loaded.notes, ...warnings],
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
    clients: clients.map(clientToJson),
  };
  return { document, loaded, problems, starts, servers, secrets, plugins };
}

/** What was found in the manifest. */
interface Inspection extends Pick<
  CheckResult,
  "problems" | "starts" | "servers" | "secrets" | "plugins"
> {
  readonly files: readonly string[];
  readonly warnings: readonly string[];
}

async function inspect(loaded: LoadedManifest, context: OperationContext): Promise<Inspection> {
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
    ...(await findWritableFiles(files)).map(
      (file) =>
        `${file}: other users can change this file, and so what toolmux starts: chmod go-w ${file}`,
    ),
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
export async function findTokenFaults(
  manifest: Manifest,
  context: OperationContext,
): Promise<readonly string[]> {
  if ((manifest.clients ?? []).length === 0) return [];
  const { resolveHttpClients } = await import("../hub/http-clients.ts");
  const faults: string[] = [];
  await resolveHttpClients(manifest, context, (text) => void faults.push(text));
  return faults;
}

/** Checks the servers whose tables in the manifest are valid. */
function checkValidServers(
  { servers }: Manifest,
  context: OperationContext,
): Promise<readonly CheckedServer[]> {
  const schemesFor = openSchemeResolvers(context);
  const valid = servers.filter(({ kind }) => kind !== "invalid");
  return Promise.all(valid.map((spec) => checkServer(spec, context, schemesFor)));
}

async function findSecrets(
  manifest: Manifest,
  context: OperationContext,
): Promise<readonly CheckedSecret[]> {
  const uses = secretUsesOf(manifest);
  if (uses.size === 0) return [];
  const secrets = (await import("../secrets/secrets.ts")).openSecrets(context);
  return Promise.all(
    [...uses]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(async ([name, used]) => {
        const found = await secrets.find(name, used.sources).catch(() => undefined);
        const isSet = used.variables.some((variable) => context.env[variable]);
        const place = found?.source ?? (isSet ? "environment" : undefined);
        return { name, place, ...listedUsers(used) };
      }),
  );
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
  if (!spec.enabled || !isExternal(spec)) return false;
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
  context: OperationContext,
): Promise<readonly string[]> {
  const { agents = new Map<string, never>(), modes = [], plugins } = manifest;
  const hasModes =
    modes.length > 0 && agents.size > 0 && plugins.some(({ use }) => use === AGENTS_PLUGIN);
  const isRuled = manifest.servers.some(hasRules);
  if (!hasModes && !isRuled) return [];
  const { readSavedCatalog } = await import("./saved-catalog.ts");
  const { catalog } = await readSavedCatalog(manifest, context);
  const idle = catalog.notes.flatMap((note) => (isIdleRule(note) ? [describeIdleRule(note)] : []));
  return hasModes ? [...idle, ...(await findHiddenTools(manifest, catalog))] : idle;
}

/** Maximum number of tools that a note names. */
const SHOWN_TOOLS = 5;

/** Makes notes about modes that show an agent to clients, but hide tools that the agent uses. */
async function findHiddenTools(manifest: Manifest, catalog: Catalog): Promise<readonly string[]> {
  const { chooseTools } = await import("../agent/agent.ts");
  const { readCatalog } = await import("../agent/toolbox.ts");
  const { hidingMode } = await import("../views/client-modes.ts");
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

/** A problem as JSON. Line and column start at 1, the column in UTF-16 code units; both are null if unknown. */
function toJson({ file, position, path, message }: Problem): CheckDocument["problems"][number] {
  const { line = null, column = null } = position ?? {};
  return { file, line, column, path: formatPath(path), message };
}

async function checkServer(
  spec: ServerSpec,
  context: OperationContext,
  schemesFor: ReturnType<typeof openSchemeResolvers>,
): Promise<CheckedServer> {
  const { name } = spec;
  if (spec.kind === "unsupported") return { name, state: "unsupported", text: spec.reason };
  if (spec.kind === "invalid") throw new HubError("internal", `Server "${name}" has problems.`);
  const runnable = await withInstalledRunner(spec, context);
  const command = describeServer(runnable);
  if (!spec.enabled) return { name, state: "disabled", text: command };
  if (spec.kind === "plugin") return { name, state: "starts", text: command, found: "plugin" };
  if (spec.kind === "fleet") return { name, state: "starts", text: command, found: "unknown" };
  const hidden = new Set<string>();
  try {
    const schemes = new Map([...schemesFor(spec, new Map()), ...makePlaceholderSchemes(spec)]);
    const isKnown = spec.kind === "stdio" && isProgramKnown(spec);
    if (spec.kind === "remote") {
      await resolveRemote(spec, context.env, context.cwd, schemes, hidden);
    } else if (isKnown) await resolvePrograms(spec, schemes, context, hidden);
    else await resolveServer(spec, context.env, context.cwd, schemes, hidden);
    const found = spec.kind === "remote" ? "url" : isKnown ? "command" : "unknown";
    return { name, state: "starts", text: command, found };
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

/**
 * Paths of the programs that a server needs: its command, or the runtime that executes the command.
 * @throws {HubError} why the server cannot be started
 */
export async function resolvePrograms(
  spec: StdioServer,
  schemes: SchemeResolvers,
  { env, cwd }: Pick<SystemEnvironment, "env" | "cwd">,
  hidden: Set<string>,
): Promise<readonly string[]> {
  const { name: server } = spec;
  const resolved = await resolveServer(spec, env, cwd, schemes, hidden);
  const folder = resolve(resolved.cwd ?? cwd);
  const isFolder = await stat(folder).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
  if (!isFolder) {
    const text = `Its working directory does not exist: ${folder}`;
    throw new HubError("spawnFailed", text, { server, step: "spawn" });
  }
  const { PATH: path } = childEnvironment(env, resolved.env, {});
  const query = {
    server,
    cwd: folder,
    path,
    extraPath: async () => loginShellPath(env, await newOwnerTag()),
  };
  const { file } = await resolveFirstCommand({ ...resolved, server }, query);
  const script = scriptOf(resolved.command, resolved.args);
  if (script !== undefined && !(await isScript(script, resolved.command))) {
    throw new HubError("spawnFailed", `Its script does not exist: ${script}`, {
      server,
      step: "spawn",
      data: { script },
      hint: "Correct the path in args of the server, or put the script there.",
    });
  }
  // npm and npx are scripts: they run on the `node` in their own folder, or else on the one in PATH.
  return /^np[mx]$/.test(basename(file)) ? [join(dirname(file), "node")] : [file];
}

/** The endings that Node and Bun try for a script that is named without one. */
const SCRIPT_ENDINGS = [".js", ".json", ".node", ".ts", ".mjs", ".tsx", ".jsx", ".mts", ".cjs"];

/** Whether the runtime of a command may find a script at this path. */
async function isScript(path: string, command: string): Promise<boolean> {
  const kindOf = (at: string): Promise<"file" | "folder" | undefined> =>
    stat(at).then(
      (stats) => (stats.isDirectory() ? "folder" : "file"),
      () => undefined,
    );
  const kind = await kindOf(path);
  const { runsFolders = false, triesEndings = false } = runtimeOf(command) ?? {};
  if (kind !== undefined) return kind === "file" || runsFolders;
  if (!triesEndings) return false;
  const found = await Promise.all(SCRIPT_ENDINGS.map((ending) => kindOf(`${path}${ending}`)));
  return found.includes("file");
}

/** The text of the file (or environment variable) that contains the problem; undefined if it cannot be read. */
export async function readProblemSource(file: string, env: Env): Promise<string | undefined> {
  const variable = isAbsolute(file) ? undefined : env[file];
  if (variable !== undefined) return variable.trim();
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  return read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
}
