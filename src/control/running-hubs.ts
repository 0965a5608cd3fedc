import { Buffer } from "node:buffer";
import process from "node:process";
import * as v from "valibot";
import { HubError } from "../base/errors.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import type { HubClient, HubClientOptions } from "../frontend/hub-client.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { HUBS_VARIABLE, parseOuterHubs } from "../process/outer-hubs.ts";
import { NO_CREDENTIALS } from "../transport/http/target.ts";
import { EventParser } from "../transport/http/event-parser.ts";
import { makeFetch } from "../transport/http-client/fetch.ts";
import { type ControlClient, controlClient } from "./client.ts";
import { readHubFile } from "./hub-file.ts";
import { faultOfFolder, probe, runFolders, socketsIn } from "./socket-files.ts";
import { API_PATH, MCP_PATH, errorSchema, type EventDocument, type HubFile } from "./schemas.ts";

/** Time limit of a request that does not wait for a server, in ms. */
const REQUEST_TIMEOUT = 10_000;
/** Maximum size of an MCP message, an event or an answer of a hub, in bytes. */
const MAX_MESSAGE = 256 * 1024 * 1024;

/** The origin of the URLs of a hub. The connection goes to its socket. */
const ORIGIN = "http://localhost";

/** A hub of this user that runs now. */
export interface RunningHub extends HubFile {
  /** The path of its socket. */
  readonly socket: string;
}

/** The hubs of this user that run now, the oldest first. */
export async function findRunningHubs(
  environment: Pick<SystemEnvironment, "env" | "platform">,
): Promise<readonly RunningHub[]> {
  const uid = process.getuid?.() ?? -1;
  const folders = runFolders(environment, uid).map(({ path }) => path);
  const found = await Promise.all(folders.map((folder) => findIn(folder, uid)));
  return found.flat().toSorted((a, b) => a.startedAt - b.startedAt);
}

async function findIn(folder: string, uid: number): Promise<readonly RunningHub[]> {
  const sockets = socketsIn(folder, uid);
  const hubs = await Promise.all(
    sockets.map(async (socket): Promise<readonly RunningHub[]> => {
      if ((await probe(socket)) !== "alive") return [];
      const file = await readHubFile(socket);
      return file === undefined ? [] : [{ ...file, socket }];
    }),
  );
  return hubs.flat();
}

/**
 * The hub that has started this process, directly or through other processes. It is known by TOOLMUX_HUBS, which its
 * processes inherit, and by the parents of this process, which a tool cannot unset.
 * @returns undefined if it is none of `hubs`
 */
export async function findHubAbove(
  hubs: readonly RunningHub[],
  env: Env,
): Promise<RunningHub | undefined> {
  const outer = parseOuterHubs(env[HUBS_VARIABLE]).map(({ pid }) => pid);
  const named = hubs.find(({ pid }) => outer.includes(pid));
  if (named !== undefined || hubs.length === 0) return named;
  const { ancestorsOfSelf } = await import("../process/process-table.ts");
  const above = await ancestorsOfSelf();
  return hubs.find(({ pid }) => above.includes(pid));
}

/** The folders for sockets that exist and that no hub is looked for in, with the reason. */
export function findIgnoredFolders(
  environment: Pick<SystemEnvironment, "env" | "platform">,
): readonly { readonly path: string; readonly fault: string }[] {
  const uid = process.getuid?.() ?? -1;
  return runFolders(environment, uid).flatMap(({ path }) => {
    try {
      const fault = faultOfFolder(path, uid);
      return fault === undefined ? [] : [{ path, fault }];
    } catch {
      // There is no such folder.
      return [];
    }
  });
}

export interface HubRequest {
  readonly method?: string;
  /** The path below `/v1`, with its query. */
  readonly path: string;
  /** An object, or JSON text. */
  readonly body?: object | string | undefined;
  readonly signal: AbortSignal;
  /** Time limit in ms. */
  readonly timeout?: number;
}

/** An answer of a hub: its status, and its JSON document (undefined for 204). */
export interface HubAnswer {
  readonly status: number;
  readonly document: unknown;
}

/**
 * Sends a request to a running hub.
 * @throws {HubError} the hub's own error with its code; `hubNotRunning` if the hub has ended; the signal's reason
 */
export async function askHub(hub: RunningHub, request: HubRequest): Promise<HubAnswer> {
  const { timeout = REQUEST_TIMEOUT, signal } = request;
  const limited = AbortSignal.any([signal, AbortSignal.timeout(timeout)]);
  try {
    const response = await send(hub, { ...request, signal: limited }, MAX_MESSAGE);
    return await readAnswer(response);
  } catch (error) {
    signal.throwIfAborted();
    throw isLost(error) ? notRunning(hub, error) : error;
  }
}

/**
 * A client of a running hub's control API, which throws what `askHub` throws.
 * @param options `timeout`: the time limit of a request, in ms
 */
export function clientOfHub(
  hub: RunningHub,
  options: Pick<HubRequest, "signal" | "timeout">,
): ControlClient<never> {
  return controlClient<never>(async (request) => {
    const { document } = await askHub(hub, { ...request, ...options });
    return { kind: "ok", value: document };
  });
}

/** @throws {HubError} the hub's own error */
async function readAnswer(response: Response): Promise<HubAnswer> {
  const text = await response.text();
  const document = text === "" ? undefined : (JSON.parse(text) as unknown);
  const { status } = response;
  if (status < 400) return { status, document };
  const result = v.safeParse(errorSchema, document);
  const { code, message } = result.success
    ? result.output.error
    : { code: "internal", message: `The hub answered with HTTP status ${status}.` };
  throw new HubError(HubError.isCode(code) ? code : "internal", message);
}

/** A request to the control API, with its headers and the bytes of its body. */
export interface RawHubRequest {
  readonly method: string;
  /** The path with `/v1`, and its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | undefined;
  readonly signal: AbortSignal;
}

/** The headers of a hub's response that are passed on. */
const PASSED_HEADERS = ["content-type", "cache-control"];

/**
 * Passes a request on to a running hub. The hub's response is streamed and not read, even if it is an error. If the hub
 * ends in the middle of the response, the stream ends with an error.
 * @throws {HubError} `hubNotRunning` if the hub has ended; the signal's reason
 */
export async function forwardToHub(hub: RunningHub, request: RawHubRequest): Promise<Response> {
  const { status, headers, body } = await sendRaw(hub, request, Infinity);
  const passed = PASSED_HEADERS.flatMap((name) => {
    const value = headers.get(name);
    return value === null ? [] : [[name, value] as const];
  });
  return new Response(body, { status, headers: Object.fromEntries(passed) });
}

/** Sends a request and returns the response, whose body is not read. @param maxBody see `FetchInit` */
function send(
  hub: RunningHub,
  { method = "GET", path, body, signal }: HubRequest,
  maxBody: number,
): Promise<Response> {
  const text = typeof body === "object" ? JSON.stringify(body) : body;
  const bytes = text === undefined ? undefined : Buffer.from(text);
  const headers: Record<string, string> =
    bytes === undefined ? {} : { "Content-Type": "application/json" };
  const request = { method, path: `${API_PATH}${path}`, headers, body: bytes, signal };
  return sendRaw(hub, request, maxBody);
}

async function sendRaw(
  hub: RunningHub,
  { method, path, headers, body, signal }: RawHubRequest,
  maxBody: number,
): Promise<Response> {
  const fetch = makeFetch({ socketPath: hub.socket, ca: undefined, env: {} });
  try {
    return await fetch(ORIGIN + path, { method, headers, body: body ?? null, signal, maxBody });
  } catch (error) {
    signal.throwIfAborted();
    throw notRunning(hub, error);
  }
}

/** Tells if an error means that the connection ended before the whole response arrived. */
function isLost(error: unknown): boolean {
  return error instanceof HubError && error.code === "answerLost";
}

function notRunning({ pid }: RunningHub, cause: unknown): HubError {
  const message = `The hub with process id ${pid} does not answer. It has probably ended.`;
  return new HubError("hubNotRunning", message, { cause });
}

/**
 * Connects an MCP client to a running hub. Most commands need none, so its code is loaded here.
 * @param info the name and version of the client
 * @param mode a mode that limits what the client sees; undefined: no limit
 */
export async function connectToHub(
  { socket }: RunningHub,
  info: Implementation,
  signal: AbortSignal,
  { mode, ...options }: HubClientOptions & { readonly mode?: string | undefined } = {},
): Promise<HubClient> {
  const query = mode === undefined ? "" : `?mode=${encodeURIComponent(mode)}`;
  const { HubClient: Client } = await import("../frontend/hub-client.ts");
  const { HttpTransport } = await import("../transport/http/transport.ts");
  const transport = new HttpTransport({
    server: "toolmux",
    url: new URL(MCP_PATH + query, ORIGIN),
    socketPath: socket,
    transport: "http",
    headers: {},
    ca: undefined,
    secrets: [],
    maxMessage: MAX_MESSAGE,
    credentials: NO_CREDENTIALS,
    knownTransport: { kind: "http", remember() {} },
    env: {},
  });
  return Client.open(transport, info, signal, options);
}

/** An event of a hub, or the notice that earlier ones are lost (`gap`; `first`: the first event that follows). */
export type HubStreamItem =
  | { readonly kind: "event"; readonly event: EventDocument }
  | { readonly kind: "gap"; readonly first: number };

/**
 * The events of a running hub, until the hub ends or the signal is aborted.
 * @param query such as `kinds=log&after=17`
 * @param path the path of the event stream; by default that of the hub's events
 * @throws {HubError} as `askHub`
 */
export async function* followEvents(
  hub: RunningHub,
  query: string,
  signal: AbortSignal,
  path?: string,
): AsyncGenerator<HubStreamItem> {
  yield* await openEvents(hub, query, signal, path);
}

/**
 * Like `followEvents`, but the promise resolves when the hub has opened the stream. From then on no event is missed
 * and, if the query has `watch=approvals`, the reader counts as a program that shows approvals to a person.
 */
export async function openEvents(
  hub: RunningHub,
  query: string,
  signal: AbortSignal,
  path = "/events",
): Promise<AsyncGenerator<HubStreamItem>> {
  const response = await send(hub, { path: `${path}?${query}`, signal }, Infinity);
  if (response.status >= 400) await readAnswer(response);
  return readEvents(response, signal);
}

async function* readEvents({ body }: Response, signal: AbortSignal): AsyncGenerator<HubStreamItem> {
  const reader = body?.getReader();
  const items: HubStreamItem[] = [];
  const parser = new EventParser(MAX_MESSAGE, {
    event(kind, data) {
      const document: unknown = JSON.parse(data.toString());
      if (kind === "gap") items.push({ kind, first: (document as { first: number }).first });
      else items.push({ kind: "event", event: document as EventDocument });
    },
    oversized() {
      throw new HubError("messageTooLarge", "An event of the hub is too large.");
    },
  });
  try {
    for (;;) {
      const { value } = (await reader?.read()) ?? {};
      if (value === undefined || signal.aborted) return;
      parser.push(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
      yield* items.splice(0);
    }
  } catch (error) {
    // A hub that ends closes the connection in the middle of the response. Then the events just end, without an error.
    if (!signal.aborted && !isLost(error)) throw error;
  } finally {
    await reader?.cancel().catch(() => {});
  }
}
