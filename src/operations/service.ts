import { lstat, mkdir, readFile, realpath, rm, rmdir } from "node:fs/promises";
import { dirname, isAbsolute, join, resolve } from "node:path";
import process from "node:process";
import { utf8 } from "../base/bytes.ts";
import { HubError, toHubError, usageError } from "../base/errors.ts";
import {
  configFolders,
  exists,
  expandHome,
  homeFolder,
  stateFolder,
  type SystemEnvironment,
} from "../base/paths.ts";
import { replacePrivate } from "../base/private-files.ts";
import { installedCommand, ownCommand } from "../base/runtime.ts";
import { isOlder, VERSION } from "../base/version.ts";
import { resolveCommand } from "../process/path-lookup.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import {
  type ServiceDocument,
  type ServiceStatusDocument,
  type WithUndefined,
  withoutUndefined,
} from "./documents.ts";

/** The service managers of operating systems that toolmux writes units for. */
type ServiceManager = "systemd" | "launchd";

/** The unit of toolmux: a file that tells a service manager what to run. */
interface ServiceUnit {
  readonly manager: ServiceManager;
  /** Absolute path. */
  readonly file: string;
  /** What the service manager calls it. */
  readonly name: string;
}

const SYSTEMD_NAME = "toolmux.service";
const LAUNCHD_LABEL = "io.toolmux.hub";

/** The sentence in a comment of each unit by which toolmux knows that it has written the unit. */
const MARKER = "Written by toolmux: service install writes this file, service remove deletes it.";

/** Time limit of a command of a service manager, in ms: a stop of the service takes up to `TimeoutStopSec`. */
const COMMAND_TIMEOUT = 30_000;
/** Maximum size of the output of such a command, in bytes. */
const MAX_OUTPUT = 4 * 1024 * 1024;
/** Number of lines of the log that are read. */
const LOG_LINES = 200;

/** @throws {HubError} notSupported, with the command to run by hand */
function unitOf({ env, platform }: SystemEnvironment): ServiceUnit {
  if (platform === "linux") {
    const [folder = ""] = configFolders(env, platform);
    const file = join(dirname(folder), "systemd", "user", SYSTEMD_NAME);
    return { manager: "systemd", file, name: SYSTEMD_NAME };
  }
  if (platform === "darwin") {
    const file = join(homeFolder(env), "Library", "LaunchAgents", `${LAUNCHD_LABEL}.plist`);
    return { manager: "launchd", file, name: LAUNCHD_LABEL };
  }
  const text = `toolmux knows no service manager of ${platform}.`;
  throw new HubError("notSupported", text, { hint: BY_HAND });
}

const BY_HAND = "To run the shared hub by hand: toolmux daemon run --no-linger";

/** What a service runs. */
export interface ServiceRequest {
  /** Serve over HTTP at this address (`HOST:PORT`); undefined: the shared hub of clients on stdio. */
  readonly http: string | undefined;
}

/** The command of the service, executable first. */
function commandOf(
  { http }: ServiceRequest,
  { config }: ManifestChoice,
  { env, cwd }: OperationContext,
): readonly string[] {
  const files = config.map((file) => resolve(cwd, expandHome(file, env)));
  return [
    ...installedCommand(env),
    ...(http === undefined
      ? ["daemon", "run", "--no-linger", "--wait"]
      : ["serve", "--http", http]),
    ...files.flatMap((file) => ["--config", file]),
  ];
}

/**
 * The text of a unit. It has no environment variables, so it has no secrets.
 * @param command executable first
 * @param log the file for the output; only launchd needs one
 * @throws {HubError} usage if the command cannot be written into a unit
 */
export function unitText(manager: ServiceManager, command: readonly string[], log: string): string {
  const bad = command.find((word) => /\p{Cc}/u.test(word));
  if (bad !== undefined)
    throw usageError(`${JSON.stringify(bad)} has a control character, which no unit may have.`);
  return manager === "systemd" ? systemdUnit(command) : launchdUnit(command, log);
}

function systemdUnit([program = "", ...args]: readonly string[]): string {
  if (/["'\\]/.test(program))
    throw usageError(`systemd starts no program whose path has quotes or backslashes: ${program}`);
  // The path of the executable has no variables, so a dollar sign in it stands for itself.
  const words = [quoteForSystemd(program), ...args.map((arg) => quoteForSystemd(arg, "$$$$"))];
  return `# ${MARKER}
[Unit]
Description=toolmux, all MCP servers as one

[Service]
ExecStart=${words.join(" ")}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1
KillMode=mixed
TimeoutStopSec=5
UMask=0077

[Install]
WantedBy=default.target
`;
}

/** Quotes a word for ExecStart. @param dollar the replacement text for a dollar sign, as of `replaceAll` */
function quoteForSystemd(word: string, dollar = "$$"): string {
  const escaped = word
    .replaceAll("\\", "\\\\")
    .replaceAll('"', '\\"')
    .replaceAll("%", "%%")
    .replaceAll("$", dollar);
  return /^[\w@:/.,=+%-]+$/.test(escaped) ? escaped : `"${escaped}"`;
}

function launchdUnit(command: readonly string[], log: string): string {
  const words = command.map((word) => `    <string>${escapeXml(word)}</string>\n`).join("");
  return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- ${MARKER} -->
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>${LAUNCHD_LABEL}</string>
  <key>ProgramArguments</key>
  <array>
${words}  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ProcessType</key>
  <string>Background</string>
  <key>ExitTimeOut</key>
  <integer>5</integer>
  <key>Umask</key>
  <integer>63</integer>
  <key>StandardErrorPath</key>
  <string>${escapeXml(log)}</string>
</dict>
</plist>
`;
}

const XML_ESCAPES: readonly (readonly [string, string])[] = [
  ["&", "&amp;"],
  ["<", "&lt;"],
  [">", "&gt;"],
];

function escapeXml(text: string): string {
  return XML_ESCAPES.reduce((result, [from, to]) => result.replaceAll(from, to), text);
}

function unescapeXml(text: string): string {
  return XML_ESCAPES.toReversed().reduce((result, [to, from]) => result.replaceAll(from, to), text);
}

/** The command in a unit that toolmux has written, executable first; empty if it has none. */
export function commandInUnit(text: string): readonly string[] {
  const line = /^ExecStart=(.*)$/m.exec(text)?.[1];
  if (line !== undefined) {
    const words = line.match(/"(?:[^"\\]|\\.)*\\?(?:"|$)|[^\s"]+/g) ?? [];
    return words.map((word, index) => {
      const body = word
        .replace(/^"(.*)"$/, "$1")
        .replaceAll(/\\(.)/g, "$1")
        .replaceAll("%%", "%");
      return index === 0 ? body : body.replaceAll("$$", "$");
    });
  }
  const list = /<key>ProgramArguments<\/key>\s*<array>([\s\S]*?)<\/array>/.exec(text)?.[1] ?? "";
  return [...list.matchAll(/<string>([\s\S]*?)<\/string>/g)].map(([, word = ""]) =>
    unescapeXml(word),
  );
}

/** What is at the place of the unit. */
type FoundUnit =
  | { readonly kind: "absent" }
  /** Something that toolmux has not written. */
  | { readonly kind: "foreign" }
  | { readonly kind: "own"; readonly text: string };

async function readUnit({ file }: ServiceUnit): Promise<FoundUnit> {
  try {
    if (!(await lstat(file)).isFile()) return { kind: "foreign" };
    const text = await readFile(file, "utf8");
    return text.includes(MARKER) ? { kind: "own", text } : { kind: "foreign" };
  } catch (error) {
    const isAbsent = ["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "");
    return { kind: isAbsent ? "absent" : "foreign" };
  }
}

function foreignError(file: string, action: string): HubError {
  return usageError(
    `${file} was not written by toolmux, so it is not ${action}. Move it away to use toolmux service.`,
  );
}

/**
 * Writes the unit and starts the service. A unit that toolmux has written before is replaced, and the service restarted.
 * If the service manager fails, the file is again as it was before.
 * @throws {HubError} usage if the file is not toolmux's; notSupported if there is no service manager, or it fails
 */
export async function installService(
  request: ServiceRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<ServiceDocument> {
  const unit = unitOf(context);
  const log = logFileOf(context);
  const command = commandOf(request, choice, context);
  const text = unitText(unit.manager, command, log);
  const found = await readUnit(unit);
  if (found.kind === "foreign") throw foreignError(unit.file, "changed");
  // Nothing is written if there is no service manager.
  const run = await serviceCommand(unit, context);
  const isChanged = found.kind === "absent" || found.text !== text;
  if (unit.manager === "launchd") await mkdir(dirname(log), { recursive: true, mode: 0o700 });
  if (isChanged) {
    await mkdir(dirname(unit.file), { recursive: true });
    await replacePrivate(unit.file, utf8(text));
  }
  try {
    if (unit.manager === "systemd") {
      await run(["daemon-reload"]);
      await run(["enable", "--now", unit.name]);
      if (isChanged && found.kind === "own") await run(["restart", unit.name]);
    } else {
      if (found.kind === "own") await run(["bootout", targetOf(unit)]).catch(() => "");
      await run(["bootstrap", domain(), unit.file]);
    }
  } catch (error) {
    if (found.kind === "own") await replacePrivate(unit.file, utf8(found.text));
    else await removeFiles(unit);
    if (unit.manager === "systemd") await run(["daemon-reload"]).catch(() => "");
    throw error;
  }
  return withoutUndefined<ServiceDocument>({
    manager: unit.manager,
    file: unit.file,
    name: unit.name,
    changed: isChanged,
    command,
    http: request.http,
    hint: unit.manager === "systemd" ? await lingerHint() : undefined,
  });
}

/**
 * Stops the service and removes its unit, with all that belongs to it.
 * @throws {HubError} usage if the file is not toolmux's; notSupported on systems without service manager
 */
export async function removeService(context: OperationContext): Promise<ServiceDocument> {
  const unit = unitOf(context);
  const { manager, file, name } = unit;
  const found = await readUnit(unit);
  if (found.kind === "foreign") throw foreignError(file, "removed");
  if (found.kind === "absent") return { manager, file, name, changed: false };
  // Without a service manager nothing runs, and the files can be removed.
  const run = await serviceCommand(unit, context).catch(() => undefined);
  const stop = manager === "systemd" ? ["disable", "--now", name] : ["bootout", targetOf(unit)];
  const fault = await run?.(stop).then(
    () => undefined,
    (error: unknown) => toHubError(error).message,
  );
  await removeFiles(unit);
  if (manager === "systemd") {
    await run?.(["daemon-reload"]).catch(() => "");
    await run?.(["reset-failed", name]).catch(() => "");
  } else {
    await rm(logFileOf(context), { force: true });
  }
  const hint = fault && `The service may still run until the logout, because ${fault}`;
  return { manager, file, name, changed: true, ...(hint !== undefined && { hint }) };
}

/** Removes the unit, the link by which systemd starts it at login, and the folders that are empty then. */
async function removeFiles({ manager, file, name }: ServiceUnit): Promise<void> {
  await rm(file, { force: true });
  if (manager !== "systemd") return;
  const folder = dirname(file);
  const wants = join(folder, "default.target.wants");
  await rm(join(wants, name), { force: true });
  for (const each of [wants, folder, dirname(folder)]) await rmdir(each).catch(() => undefined);
}

/** The unit, and whether its service runs. @throws {HubError} notSupported on systems without service manager */
export async function serviceStatus(context: OperationContext): Promise<ServiceStatusDocument> {
  const unit = unitOf(context);
  const { manager, file, name } = unit;
  const found = await readUnit(unit);
  if (found.kind !== "own") return { manager, file, name, unit: found.kind, state: "unknown" };
  const run = await serviceCommand(unit, context).catch(() => undefined);
  const state = run === undefined ? {} : await readState(unit, run);
  return withoutUndefined<ServiceStatusDocument>({
    manager,
    file,
    name,
    unit: "installed",
    state: "unknown",
    command: commandInUnit(found.text),
    fault: (await findServiceFault(found.text))?.text,
    ...state,
  });
}

/** The service while it runs. */
export interface RunningService {
  /** The id of its process. */
  readonly pid: number;
  /** Starts it anew. It may have ended. @throws {HubError} notSupported if the service manager fails */
  restart(): Promise<void>;
}

/** @returns undefined if no service of toolmux runs */
export async function runningService(
  context: OperationContext,
): Promise<RunningService | undefined> {
  if (context.platform !== "linux" && context.platform !== "darwin") return undefined;
  const unit = unitOf(context);
  if ((await readUnit(unit)).kind !== "own") return undefined;
  const run = await serviceCommand(unit, context).catch(() => undefined);
  if (run === undefined) return undefined;
  const { pid } = await readState(unit, run);
  if (pid === undefined) return undefined;
  const isSystemd = unit.manager === "systemd";
  const words = isSystemd ? ["restart", unit.name] : ["kickstart", "-k", targetOf(unit)];
  return { pid, restart: async () => void (await run(words)) };
}

type ReadState = Partial<WithUndefined<Pick<ServiceStatusDocument, "state" | "enabled" | "pid">>>;

async function readState({ manager, name }: ServiceUnit, run: RunCommand): Promise<ReadState> {
  if (manager === "systemd") {
    const shown = "--property=ActiveState,UnitFileState,MainPID";
    const output = await run(["show", name, shown]).catch(() => "");
    const values = new Map(
      output.split("\n").map((line) => {
        const at = line.indexOf("=");
        return [line.slice(0, at), line.slice(at + 1)] as const;
      }),
    );
    const pid = Number(values.get("MainPID") ?? 0);
    return {
      state: values.get("ActiveState") || "unknown",
      enabled: values.get("UnitFileState") === "enabled",
      pid: pid > 0 ? pid : undefined,
    };
  }
  const output = await run(["print", targetOf({ name })]).catch(() => undefined);
  if (output === undefined) return { state: "inactive", enabled: false };
  const pid = Number(/^[ \t]*pid = (\d+)/m.exec(output)?.[1] ?? 0);
  const state = /^[ \t]*state = (.+)$/m.exec(output)?.[1] ?? "unknown";
  return {
    state: state === "running" ? "active" : state,
    enabled: true,
    pid: pid > 0 ? pid : undefined,
  };
}

/** The last lines of the service's log, the oldest first. @throws {HubError} notSupported */
export async function readServiceLog(context: OperationContext): Promise<readonly string[]> {
  const unit = unitOf(context);
  if (unit.manager === "launchd") {
    const text = await readFile(logFileOf(context), "utf8").catch(() => "");
    return text.trimEnd().split("\n").slice(-LOG_LINES);
  }
  const run = await commandRunner("journalctl", ["--user"], context);
  const lines = ["--lines", String(LOG_LINES), "--output", "short-iso"];
  const output = await run(["--unit", unit.name, "--no-pager", "--quiet", ...lines]);
  return output === "" ? [] : output.trimEnd().split("\n");
}

/** The file that launchd writes the hub's stderr to. */
function logFileOf({ env, platform }: SystemEnvironment): string {
  return join(stateFolder(env, platform), "logs", "service.log");
}

/** Why the unit in use cannot start this toolmux. */
export interface ServiceFault {
  /** A full sentence. */
  readonly text: string;
  readonly file: string;
}

/**
 * Finds what is wrong with the installed service: its unit starts an executable that does not exist, cannot be run, or is
 * older than this one.
 * @returns undefined if nothing is wrong, or no service is installed
 */
export async function checkService(context: OperationContext): Promise<ServiceFault | undefined> {
  if (context.platform !== "linux" && context.platform !== "darwin") return undefined;
  const unit = unitOf(context);
  const found = await readUnit(unit);
  const fault = found.kind === "own" ? await findServiceFault(found.text) : undefined;
  return fault && { ...fault, file: unit.file };
}

async function findServiceFault(unit: string): Promise<{ readonly text: string } | undefined> {
  const words = commandInUnit(unit);
  const end = words.findIndex((word) => word === "daemon" || word === "serve");
  const [program, ...args] = words.slice(0, end < 0 ? 1 : end);
  if (program === undefined) return { text: "The service's unit has no command." };
  for (const path of [program, ...args].filter((word) => isAbsolute(word))) {
    if (!(await exists(path)))
      return { text: `The service starts ${path}, but that file does not exist.` };
  }
  const pathsOf = (command: readonly string[]): Promise<readonly string[]> =>
    Promise.all(command.map((word) => realpath(word).catch(() => word)));
  const [own, started] = await Promise.all([pathsOf(ownCommand()), pathsOf([program, ...args])]);
  if (own.join("\0") === started.join("\0")) return undefined;
  const version = await readVersion(program, args);
  if (version === undefined)
    return { text: `The service starts ${program}, which cannot be run as toolmux.` };
  if (!isOlder(version)) return undefined;
  return {
    text: `The service starts ${program}, which is toolmux ${version}; this is ${VERSION}.`,
  };
}

/** Time limit of `PROGRAM version`, in ms. */
const VERSION_TIMEOUT = 5000;

/** The version that `PROGRAM version` prints: `toolmux 1.2.3 (…)`. */
async function readVersion(program: string, args: readonly string[]): Promise<string | undefined> {
  const { execFile } = await import("node:child_process");
  const output = await new Promise<string>((done) => {
    execFile(program, [...args, "version"], { timeout: VERSION_TIMEOUT }, (_, stdout) =>
      done(stdout),
    );
  });
  return /^toolmux (\d+\.\d+\.\d+\S*)/.exec(output)?.[1];
}

type RunCommand = (args: readonly string[]) => Promise<string>;

/** Runs `systemctl --user` or `launchctl`. @throws {HubError} notSupported if the program is not there */
function serviceCommand({ manager }: ServiceUnit, context: OperationContext): Promise<RunCommand> {
  return manager === "systemd"
    ? commandRunner("systemctl", ["--user"], context)
    : commandRunner("launchctl", [], context);
}

/**
 * Finds a program in PATH. The result runs it without a shell, and returns its stdout.
 * @throws {HubError} notSupported if there is no such program or, later, if it fails
 */
async function commandRunner(
  program: string,
  firstArgs: readonly string[],
  { env, cwd, signal }: OperationContext,
): Promise<RunCommand> {
  const { execFile } = await import("node:child_process");
  const { file } = await resolveCommand({
    server: "",
    command: program,
    cwd,
    path: env["PATH"],
    extraPath: () => Promise.resolve(undefined),
  }).catch((error: unknown) => {
    const text = `${program} was not found in PATH, so toolmux cannot set up a service here.`;
    throw new HubError("notSupported", text, { cause: error, hint: BY_HAND });
  });
  return (args) =>
    new Promise((done, fail) => {
      const options = {
        env: commandEnvironment(env),
        timeout: COMMAND_TIMEOUT,
        maxBuffer: MAX_OUTPUT,
        signal,
      };
      execFile(file, [...firstArgs, ...args], options, (error, stdout, stderr) => {
        if (error === null) return done(stdout);
        const [said] = (stderr || stdout).trim().split("\n");
        const command = [program, ...firstArgs, ...args].join(" ");
        const text = `${command} failed: ${said || error.message}`;
        return fail(new HubError("notSupported", text, { cause: error, hint: BY_HAND }));
      });
    });
}

/** The environment without toolmux's own variables, which may hold secrets. */
function commandEnvironment(env: OperationContext["env"]): Record<string, string> {
  const passed = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !entry[0].startsWith("TOOLMUX"),
  );
  const all = Object.fromEntries(passed);
  // `systemctl --user` finds the user's systemd by it. Shells that no login has started do not have it.
  const uid = process.getuid?.();
  return all["XDG_RUNTIME_DIR"] === undefined && uid !== undefined
    ? { ...all, XDG_RUNTIME_DIR: `/run/user/${uid}` }
    : all;
}

function domain(): string {
  return `gui/${process.getuid?.() ?? 0}`;
}

function targetOf({ name }: Pick<ServiceUnit, "name">): string {
  return `${domain()}/${name}`;
}

/** What to do so that the service runs without a login; undefined if it does already. */
async function lingerHint(): Promise<string | undefined> {
  const { userInfo } = process.getBuiltinModule("node:os");
  return (await exists(`/var/lib/systemd/linger/${userInfo().username}`))
    ? undefined
    : "It runs while you are logged in. To let it run from the start of the machine on: loginctl enable-linger";
}
