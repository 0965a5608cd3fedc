import { systemClock } from "../../base/clock.ts";
import { type HubError, usageError } from "../../base/errors.ts";
import { count } from "../../base/format.ts";
import type { PlaintextSecret } from "../../client-configs/import-plan.ts";

import { splitCommand } from "../../manifest/interpolate.ts";
import type { Manifest, RunnableServer } from "../../manifest/manifest.ts";
import { parsePackage } from "../../manifest/package.ts";
import { createTable, type Table } from "../../manifest/table.ts";
import {
  additionDocument,
  type AddRequest,
  findServerToAdd,
  prepareAddition,
  withoutEmpty,
} from "../../operations/add.ts";
import { describeHardFindings } from "../../operations/scan.ts";
import type { CommandLog } from "../../operations/load-manifest.ts";
import { describeServer, withInstalledRunner } from "../../operations/server-description.ts";
import { type TrialHub, type TrialResult, tryServer } from "../../operations/try-server.ts";
import type { RequiredValue } from "../../registry/manifest-entry.ts";
import { makeLogRecord, sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import { openTrialHub } from "../../host/open-hub.ts";
import { applyToHubs, askFor, describeInHub, onlyHub } from "../running-hub.ts";
import { openStartProgress } from "../start-progress.ts";

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

const OUTCOME_TEXTS = { created: "created", added: "added to", replaced: "replaced in" } as const;

/** Reads from the command line what to add. @throws {HubError} usage */
export function readRequest(invocation: Invocation<AddOptions>): AddRequest {
  const { args, options } = invocation;
  const [name = ""] = args;
  const said = readServerArguments(invocation);
  return {
    name,
    entry: said.kind === "entry" ? said.entry : undefined,
    key: options.as,
    env: readEnv(options.env),
    prefix: options.prefix,
    from: options.from,
    file: options.file,
  };
}

/**
 * `toolmux add`: starts a server once and adds it to the manifest.
 * @returns the exit code: 1 if the server has suspicious definitions, 3 if it could not be started, and nothing was
 * written
 */
export async function add(
  invocation: Invocation<AddOptions>,
  context: CommandContext,
): Promise<number> {
  const { options } = invocation;
  const log = openLog(invocation);
  const print = (text: string): void => {
    if (!options.json) context.terminal.printWrapped(sanitizeLine(text));
  };
  const toAdd = await findServerToAdd(readRequest(invocation), invocation, context, log);
  const { key, entry, file, requiredValues: needs } = toAdd;
  if (options.live) return addLive(key, entry, invocation, context);
  const { server, plaintextSecrets, isIncomplete, apply } = await prepareAddition(
    toAdd,
    !options.replace,
    context,
  );
  // A command that people copy stays on one line.
  const what = describeServer(await withInstalledRunner(server, context));
  if (!options.json) context.terminal.print(sanitizeLine(`${key}: ${what}`));
  warnPlaintextSecrets(plaintextSecrets, log);
  const isTried = !options["no-try"] && !isIncomplete;
  const result = isTried ? await tryInTerminal(server, context, log) : undefined;
  const hard = result?.kind === "connected" ? describeHardFindings(key, result.findings) : [];
  const isAdded = (result?.kind !== "failed" && hard.length === 0) || options.force;
  const added = isAdded ? await apply() : undefined;
  if (options.json)
    context.terminal.printJson(additionDocument(toAdd, result, added !== undefined));
  for (const line of describeTrialResult(result, key)) print(line);
  if (result?.kind === "failed") logTrialFailure(result, log);
  for (const line of hard) log("warn", line);
  if (added === undefined && hard.length > 0) {
    log(
      "error",
      "Nothing was written, because the definitions of the server have text that no harmless server is known to have. --force adds it anyway.",
    );
    return 1;
  }
  if (added === undefined) {
    log(
      "error",
      "Nothing was written. --force adds the server anyway, --no-try adds it without a start.",
    );
    return result?.kind === "failed" ? result.cause.properties.exit : 3;
  }
  const { outcome, lostVariables: lost } = added;
  print(`${OUTCOME_TEXTS[outcome]} ${file}`);
  if (lost.length > 0)
    print(
      `no longer set, because the new settings do not have it: ${lost.join(", ")}. To keep it: --env NAME=VALUE`,
    );
  for (const need of needs) print(describeRequiredValue(need));
  if (toAdd.optional.length > 0) print(`optional settings: ${toAdd.optional.join(", ")}`);
  if (outcome === "created") print("Next, connect an MCP client: toolmux install CLIENT");
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
  await askFor(hub, "POST /servers", context, { body: { name, entry } });
  const options = { signal: context.signal, timeout: (LIVE_WAIT + 10) * 1000 };
  const server = await askFor(hub, "POST /servers/:name/start", options, {
    params: { name },
    query: { wait: `${LIVE_WAIT}s` },
  });
  const { terminal } = context;
  if (invocation.options.json) terminal.printJson({ hub: hub.pid, server });
  else {
    terminal.printWrapped(sanitizeLine(describeInHub(hub, server)));
    terminal.printWrapped("The manifest is unchanged: the server is gone when this hub ends.");
  }
  return server.state === "failed" || server.state === "reconnecting" ? 3 : 0;
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
  log("error", makeLogRecord("error", cause.message, { error: cause }));
  for (const hint of hints) log("warn", hint);
}

function describeRequiredValue({ kind, name, description }: RequiredValue): string {
  const about = description === undefined ? "" : `   # ${description}`;
  const what = kind === "secret" ? `toolmux secret set ${name}` : `export ${name}=…`;
  return `Set this before the server can start: ${what}${about}`;
}

function warnPlaintextSecrets(found: readonly PlaintextSecret[], log: CommandLog): void {
  for (const { label, secretName: secret } of found) {
    const form = `\${secret:${secret}}`;
    log(
      "warn",
      `${label} looks like a secret, and anyone who can read the file can read it. Write ${form} instead and run toolmux secret set ${secret}, or write \${env:NAME}.`,
    );
  }
}
