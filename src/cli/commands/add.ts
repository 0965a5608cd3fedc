import { openLog } from "../command-log.ts";
import { count } from "../../base/format.ts";
import { systemClock } from "../../base/clock.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { findPlaintextSecrets } from "../../client-configs/import-plan.ts";
import { prepareEdit } from "../../manifest/edit/write.ts";
import { splitCommand } from "../../manifest/interpolate.ts";
import { isPrefix, sanitizePrefix } from "../../manifest/merge.ts";
import { parsePackage, runnersOf } from "../../manifest/package.ts";
import {
  isRunnable,
  type Manifest,
  type RunnableServer,
  type ServerSpec,
} from "../../manifest/manifest.ts";
import { createTable, isTable, type Table } from "../../manifest/table.ts";
import {
  makeManifestEntry,
  type ManifestEntry,
  type RequiredValue,
  serverKeyOf,
} from "../../registry/manifest-entry.ts";
import type { RegistryEntry } from "../../registry/registry.ts";
import { findServer } from "../../registry/search.ts";
import { formatFailureLine, sanitizeLine } from "../../terminal/log.ts";
import type { ServerDocument } from "../../control/schemas.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { applyToHubs, ask, describeInHub, onlyHub, serverPath } from "../running-hub.ts";
import type { CommandLog } from "../../operations/load-manifest.ts";
import {
  editManifestFile,
  manifestToEdit,
  type ExistingServers,
  readExistingServers,
} from "../../operations/manifest-file.ts";
import { type TrialHub, type TrialResult, tryServer } from "../../operations/try-server.ts";
import { openTrialHub } from "../open-hub.ts";
import {
  logRegistryFailures,
  openRegistries,
  unreachableRegistriesError,
} from "../../operations/registries.ts";
import {
  describeServer,
  findInstalledRunner,
  withInstalledRunner,
} from "../../operations/server-description.ts";
import { openStartProgress } from "./status.ts";

/** The server that the command line describes. */
export type ServerArguments =
  | { readonly kind: "entry"; readonly entry: Table }
  /** Only a name is given; it is looked up in registries. */
  | { readonly kind: "name" };

const MAIN_OPTIONS = ["url", "package", "command"] as const;

export interface AddOptions {
  readonly url: string | undefined;
  readonly header: readonly string[];
  readonly transport: string | undefined;
  readonly package: string | undefined;
  readonly runner: string | undefined;
  readonly command: string | undefined;
  readonly env: readonly string[];
  readonly prefix: string | undefined;
  readonly as: string | undefined;
  readonly from: readonly string[];
  readonly file: string | undefined;
  readonly replace: boolean;
  readonly "no-try": boolean;
  readonly force: boolean;
  readonly live: boolean;
  readonly hub: string | undefined;
  readonly json: boolean;
}

/** Reads from the command line which server to add. @throws {HubError} usage */
export function readServerArguments({
  args: words,
  options,
}: Invocation<AddOptions>): ServerArguments {
  const [, ...rest] = words;
  const { url, transport, package: named, runner, command: line, header } = options;
  const given = MAIN_OPTIONS.filter((name) => options[name] !== undefined).map(
    (name) => `--${name}`,
  );
  const sources = rest.length > 0 && named === undefined ? [...given, "a command"] : given;
  if (sources.length > 1) throw usageError(`Choose one of ${sources.join(" and ")}.`);
  if (url === undefined && header.length > 0) throw orphanError("header", "url");
  if (url === undefined && transport !== undefined) throw orphanError("transport", "url");
  if (named === undefined && runner !== undefined) throw orphanError("runner", "package");
  if (url !== undefined) {
    if (options.env.length > 0)
      throw usageError(
        "--env is for servers that are started as a process. With --url, use --header.",
      );
    return { kind: "entry", entry: withoutEmpty({ url, transport, headers: readHeaders(header) }) };
  }
  const env = readEnv(options.env);
  if (named !== undefined) {
    if (parsePackage(named) === undefined) {
      throw usageError(
        `"${named}" is not a package. Write npm:@scope/name@1.2.3, pypi:name==1.2 or docker:image:tag.`,
      );
    }
    return { kind: "entry", entry: withoutEmpty({ package: named, runner, args: rest, env }) };
  }
  const [command, ...args] = line === undefined ? rest : (splitCommand(line) ?? []);
  if (command !== undefined) return { kind: "entry", entry: withoutEmpty({ command, args, env }) };
  if (line !== undefined)
    throw usageError("--command is empty, or has a quote that is not closed.");
  return { kind: "name" };
}

/**
 * Adds the values of `--env` and `--prefix`, which apply to any kind of server. They override the values of a registry.
 */
export function addOptionSettings(
  entry: Table,
  { options }: Invocation<Pick<AddOptions, "env" | "prefix">>,
): Table {
  const { prefix } = options;
  const env =
    options.env.length > 0 ? mergeTables(entry["env"], readEnv(options.env)) : entry["env"];
  return withoutEmpty({ ...entry, env, prefix });
}

function mergeTables(before: unknown, more: Table): Table {
  return { ...(isTable(before) ? before : {}), ...more };
}

function orphanError(option: string, main: string): HubError {
  return usageError(`--${option} needs --${main}.`);
}

function readEnv(given: readonly string[]): Table {
  return readPairs(given, /^([^=\s]+)=(.*)$/s, "--env", "KEY=VALUE");
}

/**
 * HTTP headers from `--header`.
 * @throws {HubError} usage; the message does not contain the value, which may be secret
 */
export function readHeaders(given: readonly string[]): Readonly<Record<string, string>> {
  return readPairs(given, /^([^:\s]+):\s*(.*)$/s, "--header", "NAME: VALUE");
}

/** Reads pairs of a name and a value. @throws {HubError} usage; the message does not contain the value */
function readPairs(
  texts: readonly string[],
  pattern: RegExp,
  option: string,
  format: string,
): Record<string, string> {
  const pairs = createTable<string>();
  for (const text of texts) {
    const [, key, value = ""] = pattern.exec(text) ?? [];
    if (key === undefined) throw usageError(`Write ${option} as ${format}.`);
    pairs[key] = value;
  }
  return pairs;
}

function withoutEmpty(entry: Table): Table {
  const made = createTable<unknown>();
  for (const [key, value] of Object.entries(entry)) {
    const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
    if (value !== undefined && !isEmpty) made[key] = value;
  }
  return made;
}

/** Tries a server, with a line that shows how far its start is. */
async function tryInTerminal(
  spec: RunnableServer,
  context: CommandContext,
  print: CommandLog,
): Promise<TrialResult> {
  const line = context.terminal.openStatusLine();
  const log: CommandLog = (level, text) => {
    line?.clear();
    print(level, text);
  };
  const open = async (manifest: Manifest): Promise<TrialHub> => {
    const { hub, bus, close } = await openTrialHub(manifest, context, log);
    const endProgress = line && openStartProgress([spec.name], bus, line, systemClock);
    return {
      hub,
      close() {
        endProgress?.();
        return close();
      },
    };
  };
  return tryServer(spec, open, context);
}

/** How long `--live` waits for the server, in s. */
const LIVE_WAIT = 60;

interface ServerToAdd {
  readonly key: string;
  readonly entry: Table;
  /** Values that must be set before the server can start. */
  readonly requiredValues: readonly RequiredValue[];
  readonly optional: readonly string[];
}

/**
 * `toolmux add`: starts a server once and adds it to the manifest.
 * @returns the exit code: 3 if the server could not be started and nothing was written
 */
export async function add(
  invocation: Invocation<AddOptions>,
  context: CommandContext,
): Promise<number> {
  const { config, options } = invocation;
  const log = openLog(invocation);
  const print = (text: string): void => {
    if (!options.json) context.terminal.print(sanitizeLine(text));
  };
  const file = await manifestToEdit(options.file ?? config.at(-1), context);
  const existing = await readExistingServers(file, invocation, context);
  const toAdd = await readServerToAdd(invocation, existing, context, log);
  const { key, requiredValues: needs } = toAdd;
  const entry = withPrefix(addOptionSettings(toAdd.entry, invocation), key, existing);
  if (options.live) return addLive(key, entry, invocation, context);
  const isNew = !options.replace;
  const change = { kind: "add", name: key, entry, isNew } as const;
  const { server } = await prepareEdit(file, change);
  if (server === undefined || !isRunnable(server)) {
    throw usageError(
      `${file} is the configuration file of an MCP client. Name a manifest of toolmux with --file.`,
    );
  }
  print(`${key}: ${describeServer(await withInstalledRunner(server, context))}`);
  warnPlaintextSecrets(entry, key, log);
  const missing = needs.filter(({ name, kind }) => kind === "secret" || !context.env[name]);
  const isTried = !options["no-try"] && missing.length === 0;
  const result = isTried ? await tryInTerminal(server, context, log) : undefined;
  const isAdded = result?.kind !== "failed" || options.force;
  const edit = isAdded ? await editManifestFile(file, change, context) : undefined;
  if (options.json) context.terminal.printJson(toJson(toAdd, file, result, edit !== undefined));
  for (const line of describeTrialResult(result, key)) print(line);
  if (result?.kind === "failed") logTrialFailure(result, log);
  if (edit === undefined) {
    log(
      "error",
      "Nothing was written. --force adds the server anyway, --no-try adds it without a start.",
    );
    return result?.kind === "failed" ? result.cause.properties.exit : 3;
  }
  const replaced = existing.servers.find((spec) => spec.name === key);
  print(
    `${edit.before === undefined ? "created" : isNew || replaced === undefined ? "added to" : "replaced in"} ${file}`,
  );
  const lost = replaced === undefined || isNew ? [] : lostVariables(replaced, server);
  if (lost.length > 0)
    print(
      `no longer set, because the new settings do not have it: ${lost.join(", ")}. To keep it: --env NAME=VALUE`,
    );
  for (const need of needs) print(describeRequiredValue(need));
  if (toAdd.optional.length > 0) print(`optional settings: ${toAdd.optional.join(", ")}`);
  if (edit.before === undefined) print("Next, connect an MCP client: toolmux install CLIENT");
  if (!options.json) for (const line of await applyToHubs(key, invocation, context)) print(line);
  return 0;
}

/**
 * `toolmux add --live`: adds a server to a running hub, and does not change the manifest.
 * @returns the exit code: 3 if the server has failed
 */
async function addLive(
  name: string,
  entry: Table,
  invocation: Invocation<AddOptions>,
  context: CommandContext,
): Promise<number> {
  const hub = await onlyHub(invocation, context);
  await ask(hub, { method: "POST", path: "/servers", body: { name, entry } }, context);
  const path = serverPath(name, `/start?wait=${LIVE_WAIT}s`);
  const timeout = (LIVE_WAIT + 10) * 1000;
  const server = await ask<ServerDocument>(hub, { method: "POST", path, timeout }, context);
  const { terminal } = context;
  if (invocation.options.json) terminal.printJson({ hub: hub.pid, server });
  else {
    terminal.print(sanitizeLine(describeInHub(hub, server)));
    terminal.print("The manifest is unchanged: the server is gone when this hub ends.");
  }
  return server.state === "failed" || server.state === "reconnecting" ? 3 : 0;
}

/** Names of the environment variables that the replaced server sets and its replacement does not. */
function lostVariables(before: ServerSpec, after: RunnableServer): readonly string[] {
  if (before.kind !== "stdio") return [];
  const kept = after.kind === "stdio" ? after.env : {};
  return Object.keys(before.env).filter((name) => !(name in kept));
}

/**
 * If the server's key cannot be its prefix, sets a valid prefix in the entry.
 * @throws {HubError} usage if another server has the prefix, or if the prefix contains a separator (the text between
 * prefix and tool name)
 */
function withPrefix(entry: Table, key: string, { separators, servers }: ExistingServers): Table {
  const given = entry["prefix"];
  const isAllowed = (text: string): boolean => separators.every((it) => isPrefix(text, it));
  const sanitized = separators.reduce((text, it) => sanitizePrefix(text, it), key);
  const prefix = typeof given === "string" ? given : isAllowed(key) ? key : sanitized;
  if (!isAllowed(prefix)) {
    const separatorList = [...new Set(separators)].map((it) => `"${it}"`).join(" or ");
    throw usageError(
      `"${prefix}" cannot be a prefix with the separator ${separatorList}: choose another one with --prefix.`,
    );
  }
  // Servers from files of MCP clients are not counted as owners of a prefix. Such a server gets another prefix if a
  // server of a toolmux manifest takes its prefix.
  const owner = servers.find(
    (spec) =>
      spec.enabled &&
      spec.name !== key &&
      spec.prefix === prefix &&
      prefix !== "" &&
      (spec.kind === "plugin" || ("syntax" in spec && spec.syntax === "toolmux")),
  );
  if (owner !== undefined) {
    throw usageError(
      `The server "${owner.name}" already has the prefix "${prefix}": choose another one with --prefix.`,
    );
  }
  return prefix === key || given !== undefined ? entry : { ...entry, prefix };
}

async function readServerToAdd(
  invocation: Invocation<AddOptions>,
  { separators }: ExistingServers,
  context: CommandContext,
  log: CommandLog,
): Promise<ServerToAdd> {
  const [name = ""] = invocation.args;
  const serverArguments = readServerArguments(invocation);
  const ownKey = invocation.options.as;
  if (serverArguments.kind === "entry") {
    return { key: ownKey ?? name, entry: serverArguments.entry, requiredValues: [], optional: [] };
  }
  const directories = await openRegistries(invocation.options.from, invocation, context);
  const { entry: registryEntry, failures } = await findServer(directories, name, context.signal);
  if (registryEntry === undefined && failures.length === directories.length)
    throw unreachableRegistriesError(
      failures,
      `To add a server without them: toolmux add ${name} -- COMMAND`,
    );
  logRegistryFailures(failures, log);
  if (registryEntry === undefined) {
    const hint = `To add it by its command: toolmux add ${name} -- COMMAND. To search: toolmux search ${name}`;
    throw usageError(`No directory has a server "${name}". ${hint}`);
  }
  const key = ownKey ?? serverKeyOf(registryEntry.name, separators[0]);
  const manifestEntry = await chooseOption(registryEntry, key, context);
  for (const note of registryEntry.omissions) log("info", note);
  return { key, ...manifestEntry };
}

/**
 * Chooses how to use the server of a registry entry: first a package that can be run here, then a remote server, then
 * any other package.
 * @throws {HubError} notSupported
 */
async function chooseOption(
  registryEntry: RegistryEntry,
  key: string,
  context: CommandContext,
): Promise<ManifestEntry> {
  const ranked = await Promise.all(
    registryEntry.options.map(async (option) => {
      if (option.kind === "remote") return { offer: option, rank: 1 };
      return { offer: option, rank: (await canRun(option.name, context)) ? 0 : 2 };
    }),
  );
  for (const { offer: option } of ranked.toSorted((a, b) => a.rank - b.rank)) {
    const manifestEntry = makeManifestEntry(option, key);
    if (manifestEntry !== undefined) return manifestEntry;
  }
  const reason =
    registryEntry.omissions.join(" ") || "Its directory does not describe how to start it.";
  throw new HubError(
    "notSupported",
    `${registryEntry.name} cannot be added by its name. ${reason}`,
  );
}

/** Whether PATH has a program that can run a package, such as npx, uvx or docker. */
async function canRun(name: string, context: CommandContext): Promise<boolean> {
  const runners = runnersOf(parsePackage(name)?.origin ?? "npm");
  return (await findInstalledRunner(runners, context)) !== undefined;
}

function describeTrialResult(result: TrialResult | undefined, key: string): readonly string[] {
  switch (result?.kind) {
    case "connected": {
      const implementation = [result.name, result.version]
        .filter((part) => part !== undefined)
        .join(" ");
      return [
        `${key} works: ${implementation === "" ? "" : `${implementation}, `}${count(result.tools, "tool")}`,
      ];
    }
    case "unauthorized":
      return [`${key} needs a login: toolmux auth login ${key}`];
    default:
      return [];
  }
}

function logTrialFailure(
  { cause, hints }: TrialResult & { readonly kind: "failed" },
  log: CommandLog,
): void {
  log("error", formatFailureLine(cause));
  for (const hint of hints) log("warn", hint);
}

function describeRequiredValue({ kind, name, description }: RequiredValue): string {
  const about = description === undefined ? "" : `   # ${description}`;
  const what = kind === "secret" ? `toolmux secret set ${name}` : `export ${name}=…`;
  return `Set this before the server can start: ${what}${about}`;
}

function warnPlaintextSecrets(entry: Table, key: string, log: CommandLog): void {
  for (const { label, secretName: secret } of findPlaintextSecrets(entry, key)) {
    const form = `\${secret:${secret}}`;
    log(
      "warn",
      `${label} looks like a secret, and anyone who can read the file can read it. Write ${form} instead and run toolmux secret set ${secret}, or write \${env:NAME}.`,
    );
  }
}

function toJson(
  { key, requiredValues: needs, optional }: ServerToAdd,
  file: string,
  result: TrialResult | undefined,
  added: boolean,
): object {
  const outcome =
    result?.kind === "failed"
      ? {
          kind: result.kind,
          code: result.cause.code,
          message: result.cause.message,
          remedies: result.hints,
        }
      : result;
  return { server: key, file, added, ...(outcome && { trial: outcome }), needs, optional };
}
