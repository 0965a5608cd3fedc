import { count } from "../base/format.ts";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { abortable } from "../base/clock.ts";
import { HubError, usageError } from "../base/errors.ts";
import type { Env } from "../base/paths.ts";
import { ownCommand } from "../base/runtime.ts";
import type { DifferenceKind } from "../bench/comparison.ts";
import type { FailRule } from "../bench/rules.ts";
import type { BenchPlan, DirectServer } from "../bench/run.ts";
import type { BenchSubject, ProxyFolder } from "../bench/target.ts";
import { HubClient } from "../frontend/hub-client.ts";
import { discoverManifests } from "../manifest/files/discover.ts";
import { loadManifest } from "../manifest/load.ts";
import { manifestError } from "../manifest/problems.ts";
import {
  type ExternalServer,
  isExternal,
  isRunnable,
  type Manifest,
  SERVERS_VARIABLE,
  serversVariableOf,
} from "../manifest/manifest.ts";
import { HUBS_VARIABLE, withoutManifests } from "../process/outer-hubs.ts";
import { errnoCodeOf } from "../process/process-table.ts";
import type { ManifestChoice } from "../operations/context.ts";
import type { HostContext } from "./context.ts";
import { type CommandLog, loadManifestOnly } from "../operations/load-manifest.ts";
import { openHub } from "./open-hub.ts";
import { describeServer } from "../operations/server-description.ts";
import {
  formatProxyVariable,
  openTransportFactory,
  PROXY_VARIABLE,
} from "../hub/transport-factory.ts";

/** The options of `bench`, parsed and checked. */
export type BenchOptions = Omit<BenchPlan, "subject" | "direct"> & {
  /** Whether to measure the same server without a hub, too. */
  readonly isCompared: boolean;
  readonly rules: readonly FailRule[];
  /** The differences to the earlier result (`--against`) that do not keep from comparing with it. */
  readonly accepted: readonly DifferenceKind[];
};

/**
 * Minimum age of a leftover folder before it is removed, in ms. A process in another container may use the same parent
 * folder; its process id is unknown here, so its folder looks like that of a dead process.
 */
const MIN_STALE_AGE = 3_600_000;

/** Creates a temporary folder for a measurement, and removes the folders that killed processes have left. */
export async function makeBenchFolder(parent: string): Promise<string> {
  await removeStaleFolders(parent);
  return mkdtemp(join(parent, `toolmux-bench-${process.pid}-`));
}

/** Removes the folders of dead processes. Ignores errors, because a folder may belong to another user. */
async function removeStaleFolders(parent: string): Promise<void> {
  for (const name of await readdir(parent).catch(() => [])) {
    const [, pid] = /^toolmux-bench-(\d+)-\w+$/.exec(name) ?? [];
    if (pid === undefined || isAlive(Number(pid))) continue;
    const path = join(parent, name);
    const age = Date.now() - ((await stat(path).catch(() => undefined))?.mtimeMs ?? Infinity);
    if (age > MIN_STALE_AGE) await rm(path, { recursive: true, force: true }).catch(() => {});
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return errnoCodeOf(error) !== "ESRCH";
  }
}

export type TargetSpec =
  | {
      readonly kind: "url";
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    }
  | { readonly kind: "command"; readonly command: string; readonly args: readonly string[] };

/** The server that bench measures if the command line names none and there is no manifest. */
const ECHO_SERVER: TargetSpec = (() => {
  const [command, ...before] = ownCommand();
  return { kind: "command", command, args: [...before, "internal", "echo-server"] };
})();

/** The server's key in the manifest that bench generates. */
const SERVER_KEY = "server";
/**
 * How long the hub with the generated manifest waits for its server before it lists tools. This is longer than
 * connecting may take, so that the first list contains all tools.
 */
const LIST_WAIT = "60s";
/**
 * Prefix of the environment variables that hold header values. The values may be secret, so the generated manifest
 * refers to the variables instead.
 */
const HEADER_VARIABLE = "TOOLMUX_BENCH_HEADER_";

/**
 * Generates the manifest for one server. Tool names get no prefix. The command inherits the environment, as from a
 * shell, but no variables of toolmux itself.
 */
export function formatManifest(target: TargetSpec, env: Env): string {
  return JSON.stringify({
    hub: { clientPrefix: "", nameLimit: 128, listWait: LIST_WAIT },
    servers: { [SERVER_KEY]: { ...makeEntry(target, env), prefix: "" } },
  });
}

function makeEntry(target: TargetSpec, env: Env): object {
  const literal = (text: string): string => text.replaceAll("${", () => "$${");
  if (target.kind === "url") {
    const names = Object.keys(target.headers);
    const headers = names.map((name, at): [string, string] => [
      name,
      `\${env:${HEADER_VARIABLE}${at}}`,
    ]);
    return { url: literal(target.url), headers: Object.fromEntries(headers) };
  }
  const inheritEnv = Object.keys(env).filter(
    (name) => /^[A-Za-z_]\w*$/.test(name) && !name.startsWith("TOOLMUX_"),
  );
  return { command: literal(target.command), args: target.args.map(literal), inheritEnv };
}

/** The environment variables with the header values, which the generated manifest refers to. */
export function headerVariables(target: TargetSpec): Env {
  if (target.kind !== "url") return {};
  const headerValues = Object.values(target.headers);
  return Object.fromEntries(headerValues.map((value, at) => [`${HEADER_VARIABLE}${at}`, value]));
}

/** The servers or hubs that `measure` measures. `close` removes their temporary files. */
export interface BenchSetup extends Pick<BenchPlan, "subject" | "direct"> {
  close(): Promise<void>;
}

/**
 * Prepares a server or a hub for measuring.
 * @param target undefined: the chosen manifest is measured, or the echo server if there is none
 * @throws {HubError} usage, manifestInvalid
 */
export async function openBenchSetup(
  target: TargetSpec | undefined,
  choice: ManifestChoice,
  options: BenchOptions,
  context: HostContext,
  log: CommandLog,
): Promise<BenchSetup> {
  if (target?.kind === "url") rejectChaosForUrl(options);
  const folder = await makeBenchFolder(tmpdir());
  const close = (): Promise<void> => rm(folder, { recursive: true, force: true });
  try {
    const { chaos } = options;
    const isProxied = target?.kind !== "url" && (chaos.delay !== null || chaos.cancelRate > 0);
    const proxy = isProxied ? formatProxyVariable(folder, chaos.delay ?? 0) : undefined;
    const resources: SubjectResources = {
      options,
      context: { ...context, env: { ...context.env, [PROXY_VARIABLE]: proxy } },
      proxies: isProxied ? openProxyFolder(folder) : undefined,
      log,
    };
    const usesManifest = target === undefined && (await hasManifest(choice, context));
    const subjects = usesManifest
      ? await openManifestHub(choice, resources)
      : await openSingleServer(target ?? ECHO_SERVER, join(folder, "toolmux.json"), resources);
    return { ...subjects, close };
  } catch (error) {
    await close();
    throw error;
  }
}

interface SubjectResources {
  readonly options: BenchOptions;
  readonly context: HostContext;
  readonly proxies: ProxyFolder | undefined;
  readonly log: CommandLog;
}

async function hasManifest({ config }: ManifestChoice, context: HostContext): Promise<boolean> {
  if (config.length > 0 || serversVariableOf(context.env) !== "") return true;
  const { files: found, problems } = await discoverManifests(context);
  return found.length + problems.length > 0;
}

/** Rejects --kill-every and --delay with --url, because bench does not start that server. @throws {HubError} usage */
function rejectChaosForUrl({ chaos }: BenchOptions): void {
  if (chaos.killEvery !== null)
    throw usageError("--kill-every works only with servers that bench starts, not with --url.");
  if (chaos.delay !== null)
    throw usageError("--delay works only with servers that bench starts, not with --url.");
}

/** A single server, either alone or behind a hub with a manifest generated for it. */
async function openSingleServer(
  target: TargetSpec,
  file: string,
  { options, context, proxies }: SubjectResources,
): Promise<Pick<BenchSetup, "subject" | "direct">> {
  await writeFile(file, formatManifest(target, context.env), { mode: 0o600 });
  const serverContext: HostContext = {
    ...context,
    env: { ...context.env, [SERVERS_VARIABLE]: undefined, ...headerVariables(target) },
  };
  const manifest = await readManifest(file, serverContext);
  const [spec] = manifest.servers;
  if (spec === undefined || !isExternal(spec)) {
    throw new HubError("internal", "The manifest that was written has no server.");
  }
  const server = makeDirectSubject(spec, serverContext, proxies);
  const displayName = target === ECHO_SERVER ? "the embedded echo server" : server.name;
  const directSubject: BenchSubject = { ...server, name: displayName };
  if (target !== ECHO_SERVER && !options.isCompared) return { subject: directSubject };
  const subject = makeHubSubject([file], `toolmux, with ${displayName}`, serverContext, proxies);
  if (!options.isCompared) return { subject };
  return { subject, direct: (tools) => Promise.resolve({ subject: directSubject, tools }) };
}

async function readManifest(file: string, context: HostContext): Promise<Manifest> {
  const loaded = await loadManifest({ files: [file], ...context });
  if (!loaded.ok || loaded.problems.length > 0) throw manifestError(loaded.problems);
  return loaded.manifest;
}

/** A hub with the manifests that `--config` names, or else with the discovered ones. */
async function openManifestHub(
  choice: ManifestChoice,
  { options, context, proxies, log }: SubjectResources,
): Promise<Pick<BenchSetup, "subject" | "direct">> {
  const manifest = await loadManifestOnly(choice, context, log);
  const enabled = manifest.servers.filter((spec) => isRunnable(spec) && spec.enabled);
  const name = `toolmux, ${count(enabled.length, "server")}`;
  const { listWait } = manifest.hub;
  const subject = { ...makeHubSubject(choice.config, name, context, proxies), listWait };
  if (!options.isCompared) return { subject };
  const find = async (tools: readonly string[]): Promise<DirectServer> => {
    const { spec, remoteNames } = await findServer(tools, manifest, context, log);
    return { subject: makeDirectSubject(spec, context, proxies), tools: remoteNames };
  };
  return { subject, direct: find };
}

/**
 * Finds the server that provides tools of the hub, and the tools' names at that server. To find them, starts a hub
 * with all servers of the manifest.
 * @throws {HubError} usage if the tools are not of one server
 */
async function findServer(
  tools: readonly string[],
  manifest: Manifest,
  context: HostContext,
  log: CommandLog,
): Promise<{ readonly spec: ExternalServer; readonly remoteNames: readonly string[] }> {
  const { hub, manifest: prepared, close } = await openHub(manifest, context, log, { kinds: [] });
  try {
    await HubClient.connect(hub, context.signal);
    await abortable(hub.settled(), context.signal);
    const isListed = tools.every((tool) => hub.catalog.tools.find(tool) !== undefined);
    if (!isListed) await abortable(hub.settled("allStarted"), context.signal);
    const found = tools.map((tool) => {
      const route = hub.catalog.tools.find(tool);
      const spec = prepared.servers.find((one) => one.name === route?.server);
      if (route !== undefined && spec !== undefined && isExternal(spec))
        return { spec, remoteName: route.remoteName };
      throw usageError(
        `--compare direct needs a tool of a server that can be reached without a hub; "${tool}" is not one.`,
      );
    });
    const [first] = found;
    const specs = new Set(found.map(({ spec }) => spec));
    if (first === undefined || specs.size > 1) {
      const names = [...specs].map(({ name }) => `"${name}"`).join(" and ");
      throw usageError(
        `--compare direct needs tools of one server; those of --tool are of ${names}.`,
      );
    }
    return { spec: first.spec, remoteNames: found.map(({ remoteName }) => remoteName) };
  } finally {
    await close();
  }
}

/** Makes the subject for a hub. The hub is started as clients start it: as a child process that runs this program. */
function makeHubSubject(
  config: readonly string[],
  name: string,
  { env }: HostContext,
  proxies: ProxyFolder | undefined,
): BenchSubject {
  const [command, ...firstArgs] = ownCommand();
  const files = config.flatMap((file) => ["--config", file]);
  const args = [...firstArgs, "serve", ...files, "--log-level", "error"];
  return {
    kind: "hub",
    name,
    proxies,
    makeTransport: async () => {
      const { openStdioTransport } = await import("../transport/stdio.ts");
      const server = "toolmux";
      return openStdioTransport({
        server,
        command,
        args,
        env,
        // The list of outer hubs is passed on without their manifests. If this process runs inside a hub with the same
        // manifest, the measured hub would otherwise refuse to start, because it would take itself for part of an
        // endless loop.
        hubEnv: { ...env, [HUBS_VARIABLE]: withoutManifests(env[HUBS_VARIABLE]) },
        cwd: undefined,
        maxMessage: MAX_MESSAGE,
        secrets: [],
      });
    },
  };
}

/** Maximum message size of the connection to a measured hub, in bytes: higher than the hub's own limit. */
const MAX_MESSAGE = 512 * 1024 * 1024;

/**
 * Makes the subject for a server that is measured without a hub. The server is started or reached in the same way as by
 * a hub, but no login page is opened.
 */
function makeDirectSubject(
  spec: ExternalServer,
  context: HostContext,
  proxies: ProxyFolder | undefined,
): BenchSubject {
  const { openTransport } = openTransportFactory(context, async () => {
    const { openUserAuthorizer } = await import("../hub/transport-factory.ts");
    return openUserAuthorizer(context, () => Promise.resolve());
  });
  return {
    kind: "server",
    proxies,
    name: describeServer(spec.kind === "stdio" ? { ...spec, env: {} } : spec),
    makeTransport: () => openTransport(spec, new Map()),
  };
}

function openProxyFolder(folder: string): ProxyFolder {
  const files = async (): Promise<readonly string[]> =>
    (await readdir(folder)).filter((name) => /^\d+$/.test(name));
  return {
    pids: async () => new Set((await files()).map(Number)),
    cancels: async () => {
      const texts = (await files()).map((name) => readFile(join(folder, name), "utf8"));
      const lines = (await Promise.all(texts)).flatMap((text) => text.split("\n"));
      const fields = lines.filter((line) => line.includes(" ")).map((line) => line.split(" "));
      return new Map(fields.map(([mark, time]) => [Number(mark), Number(time)]));
    },
  };
}
