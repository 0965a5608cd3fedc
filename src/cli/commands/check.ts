import { count } from "../../base/format.ts";
import { isAbsolute } from "node:path";
import { HubError } from "../../base/errors.ts";
import { decodeUtf8, readFileLimited } from "../../base/read-file.ts";
import type { Env } from "../../base/paths.ts";
import { type LoadedManifest, loadManifest } from "../../manifest/load.ts";
import { addPositionsLater } from "../../manifest/positions.ts";
import { formatPath, formatProblem, type Problem } from "../../manifest/problems.ts";
import type { ExternalServer, Manifest, PluginSpec, ServerSpec } from "../../manifest/manifest.ts";
import { resolveRemote, resolveServer, type SchemeResolvers } from "../../manifest/resolve.ts";
import { listSchemes, listSecrets } from "../../manifest/interpolate.ts";
import { MAX_MANIFEST_SIZE } from "../../manifest/trust.ts";
import { checkPlugin } from "../../plugin/load.ts";
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

/** A server as `check` prints it. */
interface Row {
  readonly name: string;
  readonly state: "starts" | "disabled" | "unsupported" | "incomplete";
  /** The command or URL, or why the server cannot be used. Contains no secret. */
  readonly text: string;
}

/** A secret that servers refer to, without its value. */
interface SecretRow {
  readonly name: string;
  /** Where the secret was found; undefined if it was not found, or if its store cannot be read. */
  readonly place: string | undefined;
  readonly servers: readonly string[];
}

/**
 * `toolmux check`: reads the manifest and prints its problems, or what it would start. Starts no server, and
 * loads no external plugin.
 */
export async function check(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { env, cwd, platform } = context;
  const loaded = await loadManifest({ files: invocation.config, env, cwd, platform });
  const { notes } = loaded;
  const { problems, starts, files, servers, secrets, plugins } = await inspect(loaded, context);
  const ok = problems.length === 0;
  if (invocation.options.json) {
    const document = {
      ok,
      problems: problems.map(toJson),
      notes,
      files,
      servers,
      secrets: secrets.map(({ place = null, ...row }) => ({ ...row, place })),
      plugins: plugins.map(pluginToJson),
    };
    context.terminal.printJson(document);
    return ok ? 0 : 2;
  }
  const log = openLog(invocation);
  for (const note of notes) log("warn", note);
  for (const problem of problems) await printProblemWithFrame(problem, context);
  if (!ok) {
    const rest = starts
      ? "; servers with a problem would not be started"
      : "; nothing would be started";
    context.terminal.note(`${count(problems.length, "problem")}${rest}`);
    return 2;
  }
  for (const file of files) context.terminal.print(`manifest: ${file}`);
  const table = servers.map(({ name, state, text }) => [name, state, text]);
  context.terminal.printTable(["SERVER", "STATE", "COMMAND"], table);
  printSecrets(secrets, context);
  printPlugins(plugins, context);
  const more = plugins.length > 0 ? `; ${count(plugins.length, "plugin")}` : "";
  context.terminal.print(`no problems; ${countServers(servers)}${more}`);
  return 0;
}

interface CheckResult {
  /** If there are any, all other lists are empty. */
  readonly problems: readonly Problem[];
  /** Whether the problems are limited to single servers, so that the others would be started. */
  readonly starts: boolean;
  readonly files: readonly string[];
  readonly servers: readonly Row[];
  readonly secrets: readonly SecretRow[];
  readonly plugins: readonly PluginSpec[];
}

async function inspect(loaded: LoadedManifest, context: CommandContext): Promise<CheckResult> {
  const nothing = { files: [], servers: [], secrets: [], plugins: [] };
  if (loaded.problems.length > 0 || !loaded.ok) {
    return { ...nothing, problems: loaded.problems, starts: loaded.ok };
  }
  const { servers, plugins, sources: files } = loaded.manifest;
  const pluginProblems = await findPluginProblems(plugins);
  if (pluginProblems.length > 0)
    return { ...nothing, problems: await addPositionsLater(pluginProblems), starts: false };
  const unknownServers = await addPositionsLater(findUnknownPluginServers(loaded.manifest));
  if (unknownServers.length > 0) return { ...nothing, problems: unknownServers, starts: true };
  const schemesFor = openSchemeResolvers(context);
  const rows = await Promise.all(servers.map((spec) => checkServer(spec, context, schemesFor)));
  const found = await findSecrets(servers, context);
  return { problems: [], starts: true, files, servers: rows, secrets: found, plugins };
}

async function findSecrets(
  specs: readonly ServerSpec[],
  context: CommandContext,
): Promise<readonly SecretRow[]> {
  const external = specs.filter((spec) => spec.kind === "stdio" || spec.kind === "remote");
  const names = [...new Set(external.flatMap(listSecrets))].toSorted();
  if (names.length === 0) return [];
  const secrets = (await import("../../secrets/secrets.ts")).openSecrets(context);
  return Promise.all(
    names.map(async (name) => {
      const users = external.filter((spec) => listSecrets(spec).includes(name));
      const found = await secrets.find(name, users[0]?.secretSources).catch(() => undefined);
      return { name, place: found?.source, servers: users.map((spec) => spec.name) };
    }),
  );
}

function printSecrets(secrets: readonly SecretRow[], { terminal }: CommandContext): void {
  if (secrets.length === 0) return;
  const table = secrets.map(({ name, place = "nowhere", servers }) => [
    name,
    place,
    servers.join(", "),
  ]);
  terminal.printTable(["SECRET", "WHERE", "USED BY"], table);
}

/** Problems in the options of plugins. */
async function findPluginProblems(plugins: readonly PluginSpec[]): Promise<Problem[]> {
  return (await Promise.all(plugins.map(checkPlugin))).flat();
}

/** References to servers that no plugin provides. */
function findUnknownPluginServers(manifest: Manifest): readonly Problem[] {
  const { plugins } = manifest;
  // With an external plugin no reference is reported: which servers it provides is known only once it is loaded.
  const isKnown = plugins.every((plugin) => pluginKindOf(plugin) === "builtIn");
  return isKnown
    ? findUnknownServers(
        manifest,
        plugins.map(({ use }) => use),
      )
    : [];
}

/** Plugin paths are printed unmasked: the user decides by them whether to trust the code. */
function printPlugins(plugins: readonly PluginSpec[], { terminal }: CommandContext): void {
  for (const plugin of plugins) terminal.print(`plugin ${sanitizeLine(describePlugin(plugin))}`);
  if (plugins.every((plugin) => pluginKindOf(plugin) === "builtIn")) return;
  terminal.print("What is not built in was not loaded: its options are checked when it is.");
}

async function printProblemWithFrame(
  problem: Problem,
  { env, terminal }: CommandContext,
): Promise<void> {
  terminal.printStderr(sanitizeLine(formatProblem(problem)));
  const source = await readSource(problem.file, env);
  const frame = source && formatCodeFrame(problem, source, terminal.stderr);
  if (frame) terminal.printStderr(frame);
}

/** The text of the file (or variable) with the problem; undefined if it cannot be read. */
async function readSource(file: string, env: Env): Promise<string | undefined> {
  const variable = isAbsolute(file) ? undefined : env[file];
  if (variable !== undefined) return variable.trim();
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  return read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
}

/** Line and column start at 1, the column in UTF-16 code units; null if unknown. */
function toJson({ file, position, path, message }: Problem): object {
  const { line = null, column = null } = position ?? {};
  return { file, line, column, path: formatPath(path), message };
}

function countServers(rows: readonly Row[]): string {
  const started = rows.filter(({ state }) => state === "starts").length;
  const total = count(rows.length, "server");
  return started === rows.length ? total : `${total}, of which ${started} would start`;
}

async function checkServer(
  spec: ServerSpec,
  context: CommandContext,
  schemesFor: ReturnType<typeof openSchemeResolvers>,
): Promise<Row> {
  const { env, cwd } = context;
  const { name } = spec;
  if (spec.kind === "unsupported") return { name, state: "unsupported", text: spec.reason };
  if (spec.kind === "invalid") throw new HubError("internal", `Server "${name}" has problems.`);
  const text = describeServer(await withInstalledRunner(spec, context));
  if (!spec.enabled) return { name, state: "disabled", text };
  if (spec.kind === "plugin") return { name, state: "starts", text };
  try {
    const schemes = new Map([...schemesFor(spec, new Map()), ...makePlaceholderSchemes(spec)]);
    if (spec.kind === "remote") await resolveRemote(spec, env, cwd, schemes);
    else await resolveServer(spec, env, cwd, schemes);
    return { name, state: "starts", text };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return { name, state: "incomplete", text: error.message };
  }
}

/** Resolvers that treat every value as present, because a check loads no plugin and runs no command. */
function makePlaceholderSchemes(spec: ExternalServer): SchemeResolvers {
  const schemes = [...listSchemes(spec), "cmd"];
  return new Map(schemes.map((scheme) => [scheme, () => Promise.resolve("")]));
}
