import { join } from "node:path";
import process from "node:process";
import { attachKey, ownAttachName } from "../attach/attach-name.ts";
import { logOfSharedHub, startSharedHubProcess } from "../attach/shared-hub-process.ts";
import { abortable, lookFor, sleep } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { isSharedHub } from "../base/hub-endpoints.ts";
import { isOlder, VERSION } from "../base/version.ts";
import { clientOfHub, findRunningHubs, type RunningHub } from "../control/running-hubs.ts";
import { probe, runFolders } from "../control/socket-files.ts";
import type { ClientDocument, HubDocument } from "../control/schemas.ts";
import { manifestIdentity } from "../manifest/identity.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { runningService } from "../operations/service.ts";
import type { HostContext } from "./context.ts";

/** Time within which a started hub must have opened its control socket, and how often that is looked at, in ms. */
const START_LIMIT = 15_000;
const POLL_INTERVAL = 25;
/** Time after which a hub that has not answered counts as one that runs, such as a suspended one, in ms. */
const ANSWER_LIMIT = 1000;
/** Maximum time that a killed hub has to end, in ms. */
const EXIT_LIMIT = 5000;
/** Time within which a hub at which clients can attach has its control socket, in ms. */
const CONTROL_LIMIT = 1000;
/** How often a hub that takes another one's place looks whether that has ended, in ms. */
const PLACE_INTERVAL = 500;
/** Time that a hub has to end after it was told to, beside what it may wait for open requests, in ms. */
const STOP_LIMIT = 10_000;
/** For how long a hub that is restarted waits for the open requests of its clients, in ms. */
const DRAIN_LIMIT = 10_000;

/** A shared hub of a manifest. */
export interface SharedHubDocument extends HubDocument {
  readonly clients: readonly ClientDocument[];
  /** Present if the hub is older than this program. */
  readonly olderThan?: string;
}

/**
 * The running shared hubs of a manifest, the oldest first: one, or several of different versions. A hub at which clients
 * can attach already is waited for until it has its control socket, too.
 * @throws {HubError} usage if the manifest hides its hubs
 */
export async function findSharedHubs(
  manifest: Manifest,
  context: HostContext,
): Promise<readonly RunningHub[]> {
  if (!manifest.hub.control) {
    const text =
      "The manifest has control = false under [hub], so its shared hub can neither be shown nor controlled.";
    throw new HubError("usage", text, { hint: "Remove that line." });
  }
  const id = await manifestIdentity(manifest, context.env);
  const find = async (): Promise<readonly RunningHub[]> =>
    (await findRunningHubs(context)).filter((hub) => isSharedHub(hub) && hub.manifestId === id);
  const found = await find();
  if (found.length > 0 || !(await isAttachable(manifest.sources, context))) return found;
  const findAny = async (): Promise<readonly RunningHub[] | undefined> => {
    const hubs = await find();
    return hubs.length > 0 ? hubs : undefined;
  };
  const { signal } = context;
  return (await lookFor(findAny, { limit: CONTROL_LIMIT, interval: POLL_INTERVAL, signal })) ?? [];
}

/** What there is to know about the running shared hubs of a manifest. */
export async function describeSharedHubs(
  manifest: Manifest,
  context: HostContext,
): Promise<readonly SharedHubDocument[]> {
  const hubs = await findSharedHubs(manifest, context);
  const documents = await Promise.all(
    hubs.map((hub) => describeHub(hub, context).catch(undefinedIfEnded)),
  );
  return documents.filter((document) => document !== undefined);
}

/** Handles the error of a request to a hub that may have ended since it was found. @throws any other error */
function undefinedIfEnded(error: unknown): undefined {
  if (!hasHubEnded(error)) throw error;
}

function hasHubEnded(error: unknown): boolean {
  return error instanceof HubError && error.code === "hubNotRunning";
}

async function describeHub(hub: RunningHub, { signal }: HostContext): Promise<SharedHubDocument> {
  const ask = clientOfHub(hub, { signal });
  const { value: document } = await ask("GET /hub");
  const { clients } = (await ask("GET /clients")).value;
  return { ...document, clients, ...(isOlder(document.version) && { olderThan: VERSION }) };
}

/** The running shared hub of a manifest and this version. */
async function findOwnHub(
  manifest: Manifest,
  context: HostContext,
): Promise<RunningHub | undefined> {
  return (await findSharedHubs(manifest, context)).find(({ version }) => version === VERSION);
}

/**
 * The running shared hub of a manifest and this version. The system accepts connections for a process that was killed
 * until its last thread has ended, so only an answer shows that a hub runs.
 * @returns `none` if there is none; undefined if one was killed, and its sockets are still open
 */
async function findUnlessKilled(
  manifest: Manifest,
  context: HostContext,
): Promise<RunningHub | "none" | undefined> {
  const hub = await findOwnHub(manifest, context);
  if (hub === undefined) return "none";
  const { signal } = context;
  try {
    await clientOfHub(hub, { signal, timeout: ANSWER_LIMIT })("GET /hub");
  } catch (error) {
    signal.throwIfAborted();
    // Any other error shows that it runs: it is late, or refuses.
    if (hasHubEnded(error)) return undefined;
  }
  return hub;
}

/** What `startSharedHub` found or started. */
export interface StartedHub {
  readonly hub: RunningHub;
  /** Whether it was running before. */
  readonly wasRunning: boolean;
}

/**
 * Starts the shared hub of a manifest in the background, unless one of this version runs. It is detached from this
 * process, and gets no variables of the environment besides those that every server gets.
 * @param endsWithoutClients whether the hub ends when it has had no client for `hub.linger`
 * @param areNamed whether the user has named the files of the manifest; otherwise the hub finds them itself
 * @throws {HubError} spawnFailed with the end of its log
 */
export async function startSharedHub(
  manifest: Manifest,
  context: HostContext,
  endsWithoutClients: boolean,
  areNamed: boolean,
): Promise<StartedHub> {
  const find = (): Promise<RunningHub | undefined> => findOwnHub(manifest, context);
  const running = await lookFor(() => findUnlessKilled(manifest, context), {
    limit: EXIT_LIMIT,
    interval: POLL_INTERVAL,
    signal: context.signal,
  });
  if (running !== undefined && running !== "none") return { hub: running, wasRunning: true };
  const { env, cwd, platform } = context;
  const { sources } = manifest;
  const key = attachKey(sources, env);
  const started = await startSharedHubProcess({
    env,
    cwd,
    platform,
    key,
    sources,
    areNamed,
    endsWithoutClients,
  });
  const hub = await lookFor(find, {
    limit: START_LIMIT,
    interval: POLL_INTERVAL,
    signal: context.signal,
    hasEnded: () => started.hasEnded(),
  });
  if (hub !== undefined) return { hub, wasRunning: false };
  const text = started.hasEnded()
    ? "The shared hub has ended while it started."
    : `The shared hub is not ready after ${START_LIMIT / 1000} s.`;
  throw new HubError("spawnFailed", text, { hint: await started.readLog() });
}

/** The path of the log of a manifest's shared hub. @param sources the files of the manifest */
export async function sharedHubLog(
  sources: readonly string[],
  { env, platform }: Pick<HostContext, "env" | "platform">,
): Promise<string> {
  return logOfSharedHub(attachKey(sources, env), { env, platform });
}

/**
 * Ends the running shared hubs of a manifest, of all versions.
 * @param isPatient whether each first waits until its clients have no open request, for a limited time
 * @returns the hubs that have ended
 * @throws {HubError} notResponding if one does not end in time
 */
export async function stopSharedHubs(
  manifest: Manifest,
  context: HostContext,
  isPatient: boolean,
): Promise<readonly RunningHub[]> {
  const hubs = await findSharedHubs(manifest, context);
  await Promise.all(hubs.map((hub) => tellToEnd(hub, context, isPatient)));
  const limit = STOP_LIMIT + (isPatient ? DRAIN_LIMIT : 0);
  await Promise.all(hubs.map((hub) => untilEnded(hub, context, limit)));
  return hubs;
}

async function tellToEnd(
  hub: RunningHub,
  { signal }: HostContext,
  isPatient: boolean,
): Promise<void> {
  const query = isPatient ? { drain: `${DRAIN_LIMIT}ms` } : {};
  await clientOfHub(hub, { signal })("POST /stop", { query }).catch(undefinedIfEnded);
}

async function untilEnded(hub: RunningHub, context: HostContext, limit: number): Promise<void> {
  const hasEnded = async (): Promise<true | undefined> =>
    (await findRunningHubs(context)).every(({ socket }) => socket !== hub.socket) || undefined;
  const { signal } = context;
  if (await lookFor(hasEnded, { limit, interval: POLL_INTERVAL, signal })) return;
  const text = `The shared hub with process id ${hub.pid} was told to end, and has not ended after ${limit / 1000} s.`;
  throw new HubError("notResponding", text, { hint: `To end it: kill ${hub.pid}` });
}

/**
 * Starts the shared hub of a manifest anew; if the service has run it, as the service. The hubs that run let their clients go, each as soon as it has no open
 * request; the clients come to the new hub with their next message.
 */
export async function restartSharedHub(
  manifest: Manifest,
  context: HostContext,
  endsWithoutClients: boolean,
  areNamed: boolean,
): Promise<{ readonly stopped: readonly RunningHub[]; readonly hub: RunningHub }> {
  const service = await runningService(context);
  const running = await findRunningHubs(context);
  const stopped = await stopSharedHubs(manifest, context, true);
  /** Whether the hub with this process id is one that has ended, or its process waits until one has. */
  const isInTurn = (pid: number): boolean =>
    stopped.some((hub) => hub.pid === pid) || running.every((hub) => hub.pid !== pid);
  if (service !== undefined && isInTurn(service.pid)) {
    await service.restart();
    const { signal } = context;
    const find = (): Promise<RunningHub | undefined> => findOwnHub(manifest, context);
    const hub = await lookFor(find, { limit: START_LIMIT, interval: POLL_INTERVAL, signal });
    if (hub !== undefined) return { stopped, hub };
  }
  const { hub } = await startSharedHub(manifest, context, endsWithoutClients, areNamed);
  return { stopped, hub };
}

/**
 * Waits until no shared hub of this version serves a manifest. A service must not fail because a client has started one
 * before: it would be started again and again, given up, and not be there when that hub has ended.
 * @param sources the files of the manifest
 * @param onWait called once if there is one
 * @throws the signal's reason when the signal is aborted
 */
export async function untilNoSharedHub(
  sources: readonly string[],
  { env, platform, signal }: Pick<HostContext, "env" | "platform" | "signal">,
  onWait: () => void,
): Promise<void> {
  for (let isFirst = true; await isAttachable(sources, { env, platform }); isFirst = false) {
    if (isFirst) onWait();
    await abortable(sleep(PLACE_INTERVAL), signal);
  }
}

/** Tells if clients can attach to a shared hub of this version. @param sources the files of its manifest */
async function isAttachable(
  sources: readonly string[],
  { env, platform }: Pick<HostContext, "env" | "platform">,
): Promise<boolean> {
  const name = ownAttachName(attachKey(sources, env), VERSION);
  const paths = runFolders({ env, platform }, process.getuid?.() ?? -1).map(({ path }) =>
    join(path, name),
  );
  return (await Promise.all(paths.map(probe))).includes("alive");
}
