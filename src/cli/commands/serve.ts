import { openLog } from "../command-log.ts";
import type { MinimumApproval } from "../../approval/policy.ts";
import { count } from "../../base/format.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { settlesWithin } from "../../base/clock.ts";
import type { Env } from "../../base/paths.ts";
import { TOKEN_NAME } from "../../host/http-address.ts";
import type { RecordingRequest } from "../../host/recording.ts";
import type { HostNotices, ManifestChanges, ServeSharedOptions } from "../../host/serve-hub.ts";
import { parseSize } from "../../manifest/fields.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { HUBS_VARIABLE } from "../../process/outer-hubs.ts";
import { type CommandLog, loadManifestLogged } from "../../operations/load-manifest.ts";
import { formatLogRecord, type LogFormat, makeLogRecord } from "../../terminal/log.ts";
import { isTerminal, StderrWriter } from "../../terminal/stderr.ts";
import { type ServerSubset, subsetOf } from "../../upstream/profile.ts";
import { type HttpOptions, readHttpAddress } from "../http-options.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { ownOptionIn, serverNamesIn } from "../client-flags.ts";

/** Maximum wait for a slow reader of stderr at exit, in ms. */
const FLUSH_LIMIT = 250;
/** Minimum size limit of a recording, in bytes. */
const MIN_RECORDING_LIMIT = 4096;

export interface ServeCommandOptions extends HttpOptions {
  readonly stdio: boolean;
  readonly mode: string | undefined;
  readonly expose: Exposure | undefined;
  readonly servers: string | undefined;
  readonly dashboard: boolean;
  readonly record: string | undefined;
  readonly "record-limit": string | undefined;
  readonly approval: "auto" | "always" | undefined;
  readonly "approve-all": boolean;
  /** Whether the client shares a hub with others, or has one of its own, whatever the manifest says. */
  readonly shared: boolean;
  readonly private: boolean;
  /** Set by `toolmux daemon run`: the hub serves attached clients, and none on stdio. */
  readonly daemon?: ServeSharedOptions;
}

/**
 * `toolmux serve`: serves one client on stdin and stdout until the client disconnects, the parent process ends or a
 * signal arrives. With `--http` it serves any number of clients over HTTP, until a signal arrives.
 */
export async function serve(
  given: Invocation<ServeCommandOptions>,
  context: CommandContext,
  changes?: ManifestChanges,
): Promise<number> {
  const { logFormat } = given;
  // In a terminal, a person sees what happens: reloads, modes, and which clients come and go.
  const isForPerson =
    given.hasDefaultLogLevel === true && logFormat === "text" && (await isTerminal(2));
  const invocation = isForPerson ? { ...given, logLevel: "info" as const } : given;
  const stderrWriter = new StderrWriter((missing) => {
    const text = `${count(missing, "line")} of the log ${missing === 1 ? "is" : "are"} missing: stderr was not read`;
    return formatLogRecord(makeLogRecord("warn", text, { missing }), logFormat);
  });
  const log = openLog(invocation, (record) =>
    stderrWriter.print(formatLogRecord(record, logFormat)),
  );
  const print = (text: string): void => stderrWriter.print(text);
  try {
    return await serveWithLog(invocation, context, log, print, changes);
  } finally {
    await settlesWithin(FLUSH_LIMIT, stderrWriter.drained());
  }
}

type AttachCommandOptions = Pick<
  ServeCommandOptions,
  "mode" | "expose" | "servers" | "approval" | "approve-all"
>;

/** `toolmux attach`: the same as `toolmux serve --shared`. */
export function attach(
  invocation: Invocation<AttachCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const options: ServeCommandOptions = {
    http: undefined,
    "http-token-env": undefined,
    token: undefined,
    stdio: false,
    dashboard: false,
    record: undefined,
    "record-limit": undefined,
    shared: true,
    private: false,
    ...invocation.options,
  };
  return serve({ ...invocation, options }, context);
}

/** @param print prints lines on stderr at any log level */
async function serveWithLog(
  invocation: Invocation<ServeCommandOptions>,
  context: CommandContext,
  log: CommandLog,
  print: (text: string) => void,
  changes: ManifestChanges | undefined,
): Promise<number> {
  const { options, logLevel, logFormat, config } = invocation;
  const { stdio, mode, expose, dashboard, daemon } = options;
  const requestedAddress = readHttpAddress(options, context);
  const mayBeAbsent = changes?.mayBeAbsent === true;
  const loaded = await loadManifestLogged(invocation, context, log, mayBeAbsent);
  const isOnStdio = daemon === undefined && (requestedAddress === undefined || stdio);
  await rejectHubLoop(loaded.manifest, isOnStdio, context);
  const subset = readServerNames(options.servers);
  const recording = readRecording(options);
  const minimumApproval: MinimumApproval | undefined = options["approve-all"]
    ? "all"
    : options.approval;
  if (changes === undefined && isShared(options, loaded.manifest)) {
    const code = await serveAttached(invocation, context, log, loaded.manifest);
    if (code !== undefined) return code;
  }
  const { serveHub } = await import("../../host/serve-hub.ts");
  const isSound = await serveHub({
    context,
    log,
    logLevel,
    notices: printedNotices(logFormat, print, context.env),
    choice: { config },
    loaded,
    requestedAddress,
    stdio,
    mode,
    expose,
    subset,
    dashboard,
    recording,
    minimumApproval,
    shared: daemon,
    changes,
  });
  return isSound ? 0 : 1;
}

/** Whether the client shares a hub with others. @throws {HubError} usage */
function isShared(options: ServeCommandOptions, { hub }: Manifest): boolean {
  const { shared, private: isPrivate } = options;
  if (shared && isPrivate) throw usageError("Use --shared or --private, not both.");
  return shared || (hub.shared && !isPrivate);
}

/**
 * Attaches the client to the shared hub.
 * @returns the exit code; undefined if the client needs a hub of its own, for a reason that was logged
 * @throws {HubError} the error with which the hub has refused the client, after the client got it as the answer to its
 * requests; outputFailed
 */
async function serveAttached(
  invocation: Invocation<ServeCommandOptions>,
  context: CommandContext,
  log: CommandLog,
  { sources }: Manifest,
): Promise<number | undefined> {
  const stayPrivate = (reason: string): undefined => {
    log("warn", `this client gets a hub of its own, not the shared one: ${reason}`);
    return undefined;
  };
  const own = ownOptionIn(invocation.options);
  if (own !== undefined) return stayPrivate(`--${own} is for one hub alone`);
  if (context.platform === "win32") return stayPrivate("Windows has no shared hubs yet");
  const { attachCommand } = await import("../attach-command.ts");
  const ended = await attachCommand(invocation, context, { sources, mustRun: false, log });
  if (typeof ended === "number") return ended;
  if (ended.kind === "private") return stayPrivate(ended.reason);
  const { answerWithError } = await import("../../host/nesting.ts");
  await answerWithError(ended.error, context.signal);
  throw ended.error;
}

/** The servers that `--servers` names; undefined: all. @throws {HubError} usage */
function readServerNames(list: string | undefined): ServerSubset | undefined {
  return list === undefined ? undefined : subsetOf(serverNamesIn(list));
}

/** The recording that `--record` asks for. @throws {HubError} usage */
function readRecording({
  record: path,
  "record-limit": text,
}: ServeCommandOptions): RecordingRequest | undefined {
  if (path === undefined) {
    if (text === undefined) return undefined;
    throw usageError("--record-limit is the size limit of a recording: it needs --record.");
  }
  if (text === undefined) return { path, limit: undefined };
  const limit = parseSize(text);
  if (limit !== undefined && limit >= MIN_RECORDING_LIMIT) return { path, limit };
  throw usageError(`--record-limit must be a size of at least 4KiB, such as 64MiB, not "${text}".`);
}

/**
 * Prints the notices of a hub at any log level: only they tell its port, and that it is ready. Tokens, and links with
 * tokens, are printed on a terminal only.
 */
function printedNotices(
  logFormat: LogFormat,
  print: (text: string) => void,
  env: Env,
): HostNotices {
  const printRecord = (text: string, fields: Readonly<Record<string, string>>): void =>
    print(formatLogRecord(makeLogRecord("info", text, fields), logFormat));
  const isOnTerminal = async (descriptor: number): Promise<boolean> =>
    logFormat === "text" && (await isTerminal(descriptor));
  return {
    async onListening(url, { token, tokenPlace }, manifest) {
      const text = `serving ${countServers(manifest)} at ${url}`;
      printRecord(text, { url });
      if (tokenPlace === undefined || token === undefined) return;
      const place = `clients need the token ${TOKEN_NAME} from ${tokenPlace}`;
      if (await isOnTerminal(2)) {
        const { formatRemoteClientEntry } = await import("../../operations/server-description.ts");
        print(`${place}:\n\n${formatRemoteClientEntry(url, token)}\n`);
      } else {
        const how = `in a toolmux config it is \${secret:${TOKEN_NAME}}; run the same command in a terminal to see the settings for other clients`;
        printRecord(`${place}; ${how}`, { secret: TOKEN_NAME });
      }
    },
    async onDashboard({ href, port, makeLink }) {
      if (await isOnTerminal(2)) {
        print(`dashboard (this link works once, within 5 minutes): ${makeLink()}`);
        return;
      }
      const text = `the dashboard is served below ${href}, at a host that only its links name; for a link, run in a terminal: toolmux dashboard --port ${port}`;
      printRecord(text, { url: href });
    },
    onShared(path, manifest) {
      const text = `serving ${countServers(manifest)} to the clients of this machine at ${path}`;
      printRecord(text, { socket: path });
    },
    async onStdio(manifest) {
      if (await isOnTerminal(0)) print(await usageNote(manifest, env));
    },
  };
}

function countServers({ servers }: Manifest): string {
  return count(servers.filter(({ enabled }) => enabled).length, "server");
}

async function usageNote(manifest: Manifest, env: Env): Promise<string> {
  const { formatClientEntry } = await import("../../operations/server-description.ts");
  return [
    `toolmux serves ${countServers(manifest)} on stdin and stdout, and waits for an MCP client.`,
    "An MCP client starts this command. Put this into the config of the client:",
    "",
    formatClientEntry(manifest.sources, env),
    "",
    "To try the servers here: toolmux list, toolmux call TOOL. To stop: Ctrl-C.",
  ].join("\n");
}

/**
 * Refuses to start if hubs start each other in an endless loop.
 * @param isOnStdio whether a client on stdio gets this error as the answer to its requests
 * @throws {HubError} hubLoop
 */
async function rejectHubLoop(
  manifest: Manifest,
  isOnStdio: boolean,
  context: CommandContext,
): Promise<void> {
  if (!context.env[HUBS_VARIABLE]) return;
  const { answerWithError, checkHubLoop } = await import("../../host/nesting.ts");
  try {
    await checkHubLoop(manifest, context.env, 0);
  } catch (error) {
    if (error instanceof HubError && isOnStdio) {
      await answerWithError(error, context.signal);
    }
    throw error;
  }
}
