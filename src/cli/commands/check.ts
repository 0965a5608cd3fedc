import { count } from "../../base/format.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { PluginSpec } from "../../manifest/manifest.ts";
import { formatProblem, type Problem } from "../../manifest/problems.ts";
import {
  cannotStart,
  type CheckedSecret,
  type CheckedServer,
  checkManifest,
  readProblemSource,
} from "../../operations/check.ts";
import { describePlugin, pluginKindOf } from "../../operations/server-description.ts";
import { describeSecretUsers } from "../../manifest/secret-users.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import type { PinDifference } from "../../pins/pin-file.ts";
import { nameOf } from "../../pins/level.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { type Cell, wrapText } from "../../terminal/terminal.ts";
import { formatCodeFrame } from "../code-frame.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";

/**
 * `toolmux check`: prints the problems of the manifest, and which servers would start. Starts no server, and loads no
 * external plugin.
 */
export async function check(
  invocation: Invocation<{
    readonly json: boolean;
    readonly strict: boolean;
    readonly pins: boolean;
  }>,
  context: CommandContext,
): Promise<number> {
  if (invocation.options.pins) return checkPinFile(invocation, context);
  const { document, loaded, problems, starts, servers, secrets, plugins } = await checkManifest(
    invocation,
    context,
  );
  const { ok, notes, files } = document;
  const broken = servers.filter(cannotStart);
  // Servers that lack a value here, or cannot be used at all, may be meant for another machine or program.
  const failing = invocation.options.strict
    ? broken
    : servers.filter(({ state }) => state === "fails");
  const successCode = failing.length > 0 ? 3 : 0;
  if (invocation.options.json) {
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
    terminal.printWrapped(`${describeServers(servers, plugins)}${more}`);
    return 0;
  }
  const { colors } = terminal.stdout;
  const number = broken.length === servers.length ? "" : `${broken.length} of `;
  const headline = `${number}${count(servers.length, "server")} cannot start`;
  terminal.printWrapped(`${colors.red(headline)}; the manifest itself is well-formed${more}`);
  printReasons(broken, context);
  return successCode;
}

const DIFFERENCES: Readonly<Record<PinDifference["reason"], string>> = {
  changed: "is not as in the pin file",
  notInFile: "is not in the pin file",
  notListed: "is in the pin file, but is not listed",
  noServer: "is in the pin file, but not in the manifest",
};

/** `check --pins`: compares what servers list with the pin file. @returns 1 if there is a difference */
async function checkPinFile(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const log = openLog(invocation);
  const manifest = await loadManifestOnly(invocation, context, log);
  const { checkPins } = await import("../../host/pin-export.ts");
  const found = await checkPins(manifest, context, log);
  const { terminal } = context;
  if (invocation.options.json) terminal.printJson(found);
  else {
    for (const { server, kind, name = "", reason } of found.differences) {
      const what =
        kind === undefined
          ? "the server"
          : kind === "instructions"
            ? "the text of its instructions"
            : nameOf({ kind, name });
      terminal.printWrapped(
        `${sanitizeLine(server)}: ${sanitizeLine(what)} ${DIFFERENCES[reason]}`,
      );
    }
    const number = found.differences.length;
    terminal.printWrapped(
      number === 0
        ? `no difference; ${count(found.servers, "server")} compared with ${sanitizeLine(found.file)}`
        : `${count(number, "difference")}. To see what has changed: toolmux pins; then toolmux pins export`,
    );
  }
  return found.differences.length === 0 ? 0 : 1;
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
  if (names.length > 0)
    terminal.printWrapped(sanitizeLine(`clients over HTTP: ${names.join(", ")}`));
}

/** The summary if every enabled server would start. */
function describeServers(
  servers: readonly CheckedServer[],
  plugins: readonly PluginSpec[],
): string {
  const disabled = servers.filter(({ state }) => state === "disabled").length;
  // Plugins may provide servers that are not counted here, so something may start.
  if (disabled === servers.length && plugins.length === 0) {
    const reason = servers.length === 0 ? "has no servers" : "enables no server";
    return `the manifest is well-formed, but ${reason}: nothing would start`;
  }
  const more = disabled === 0 ? "" : `, ${disabled} disabled`;
  const next = servers.length === 0 ? "" : "; to see whether they start: toolmux status";
  return `no problems; ${count(servers.length, "server")}${more}${next}`;
}

/** Prints why servers cannot start, and what to do. */
function printReasons(broken: readonly CheckedServer[], { terminal }: CommandContext): void {
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

/** The findings of `check` about a server that may start, made without starting it. */
const FOUND = {
  command: "command found",
  url: "URL valid",
  plugin: "plugin",
  unknown: "not checked",
} as const satisfies Record<NonNullable<CheckedServer["found"]>, string>;

function printServers(servers: readonly CheckedServer[], { terminal }: CommandContext): void {
  const { colors } = terminal.stdout;
  const table = servers.map((row): readonly Cell[] => {
    const { name, state, text } = row;
    const { command: line = text } = row;
    const isText = row.command === undefined && cannotStart(row);
    const command: Cell = isText ? line : { text: line, isWhole: true };
    if (cannotStart(row)) return [name, { text: "cannot start", color: colors.red }, command];
    if (state === "disabled") return [name, { text: state, color: colors.dim }, command];
    return [name, { text: FOUND[row.found ?? "unknown"], color: colors.green }, command];
  });
  terminal.printTable(["SERVER", "STATE", "COMMAND"], table);
}

function printSecrets(secrets: readonly CheckedSecret[], { terminal }: CommandContext): void {
  if (secrets.length === 0) return;
  const table = secrets.map(({ name, place = "nowhere", ...users }) => [
    name,
    place,
    describeSecretUsers(users).join(", "),
  ]);
  terminal.printTable(["SECRET", "WHERE", "USED BY"], table);
}

/** Prints the plugins. Their paths are not masked, because the user decides by them whether to trust the code. */
function printPlugins(plugins: readonly PluginSpec[], { terminal }: CommandContext): void {
  for (const plugin of plugins)
    terminal.printWrapped(`plugin ${sanitizeLine(describePlugin(plugin))}`);
  if (plugins.every((plugin) => pluginKindOf(plugin) === "builtIn")) return;
  terminal.printWrapped(
    "check does not load the code of plugins, so it does not check their options.",
  );
}

/** Prints a problem to stderr, with the lines of its file that it is about. */
export async function printProblemWithFrame(
  problem: Problem,
  { env, terminal }: CommandContext,
): Promise<void> {
  const { width } = terminal.stderr;
  const text = formatProblem(problem).split("\n").map(sanitizeLine).join("\n");
  terminal.printStderr(wrapText(text, width, "  ", ""));
  const source = await readProblemSource(problem.file, env);
  const frame = source && formatCodeFrame(problem, source, terminal.stderr);
  if (frame) terminal.printStderr(frame);
}
