import { Buffer } from "node:buffer";
import { request as httpRequest, type IncomingMessage } from "node:http";
import process from "node:process";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import * as v from "valibot";
import { HubError } from "../base/errors.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import { HubClient, type HubClientOptions } from "../frontend/hub-client.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { HUBS_VARIABLE, parseOuterHubs } from "../process/outer-hubs.ts";
import { NO_CREDENTIALS } from "../transport/http/target.ts";
import { HttpTransport } from "../transport/http/transport.ts";
import { type ControlClient, controlClient } from "./client.ts";
import { readHubFile } from "./hub-file.ts";
import { faultOfFolder, probe, runFolders, socketsIn } from "./socket-files.ts";
import { API_PATH, MCP_PATH, errorSchema, type EventDocument, type HubFile } from "./schemas.ts";

/** Time limit of a request that does not wait for a server, in ms. */
const REQUEST_TIMEOUT = 10_000;
/** Maximum size of an MCP message from a hub, in bytes. */
const MAX_MESSAGE = 256 * 1024 * 1024;

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
  const sockets = await socketsIn(folder, uid);
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
export async function findIgnoredFolders(
  environment: Pick<SystemEnvironment, "env" | "platform">,
): Promise<readonly { readonly path: string; readonly fault: string }[]> {
  const uid = process.getuid?.() ?? -1;
  const found = await Promise.all(
    runFolders(environment, uid).map(async ({ path }) => {
      const fault = await faultOfFolder(path, uid).catch(() => undefined);
      return fault === undefined ? [] : [{ path, fault }];
    }),
  );
  return found.flat();
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
  const response = await send(hub, { ...request, signal: limited }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw error;
  });
  return readAnswer(response);
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
async function readAnswer(response: IncomingMessage): Promise<HubAnswer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  const document = text === "" ? undefined : (JSON.parse(text) as unknown);
  const { statusCode: status = 0 } = response;
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
  const incoming = await sendRaw(hub, request);
  const headers = PASSED_HEADERS.flatMap((name) => {
    const value = incoming.headers[name];
    return typeof value === "string" ? [[name, value] as const] : [];
  });
  const { statusCode: status = 500 } = incoming;
  const hasBody = status !== 204 && status !== 304;
  if (!hasBody) incoming.resume();
  const body = hasBody ? (Readable.toWeb(incoming) as unknown as ReadableStream<Uint8Array>) : null;
  return new Response(body, { status, headers: Object.fromEntries(headers) });
}

/** Opens a request and returns the response, whose body is not read. */
function send(
  hub: RunningHub,
  { method = "GET", path, body, signal }: HubRequest,
): Promise<IncomingMessage> {
  const text = typeof body === "object" ? JSON.stringify(body) : body;
  const bytes = text === undefined ? undefined : Buffer.from(text);
  const headers: Record<string, string> =
    bytes === undefined ? {} : { "Content-Type": "application/json" };
  return sendRaw(hub, { method, path: `${API_PATH}${path}`, headers, body: bytes, signal });
}

function sendRaw(
  hub: RunningHub,
  { method, path, headers: given, body, signal }: RawHubRequest,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers = {
      ...given,
      Host: "localhost",
      ...(body !== undefined && { "Content-Length": body.length }),
    };
    const outgoing = httpRequest(
      { socketPath: hub.socket, method, path, headers, signal },
      (response) => {
        signal.removeEventListener("abort", onAbort);
        resolve(response);
      },
    );
    // Under Deno, a request that is aborted at the wrong moment gets neither an error nor a response.
    const onAbort = (): void => {
      reject(signal.reason as Error);
      outgoing.destroy();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    outgoing.once("error", (error) => {
      signal.removeEventListener("abort", onAbort);
      const message = `The hub with process id ${hub.pid} does not answer: ${error.message}`;
      reject(
        signal.aborted
          ? (signal.reason as Error)
          : new HubError("hubNotRunning", message, { cause: error }),
      );
    });
    outgoing.end(body);
  });
}

/**
 * Connects an MCP client to a running hub.
 * @param info the name and version of the client
 * @param mode a mode that limits what the client sees; undefined: no limit
 */
export function connectToHub(
  { socket }: RunningHub,
  info: Implementation,
  signal: AbortSignal,
  { mode, ...options }: HubClientOptions & { readonly mode?: string | undefined } = {},
): Promise<HubClient> {
  const query = mode === undefined ? "" : `?mode=${encodeURIComponent(mode)}`;
  const transport = new HttpTransport({
    server: "toolmux",
    url: new URL(MCP_PATH + query, "http://localhost"),
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
  return HubClient.open(transport, info, signal, options);
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
  const response = await send(hub, { path: `${path}?${query}`, signal });
  if ((response.statusCode ?? 0) >= 400) await readAnswer(response);
  return readEvents(response, signal);
}

async function* readEvents(
  response: IncomingMessage,
  signal: AbortSignal,
): AsyncGenerator<HubStreamItem> {
  const lines = createInterface({ input: response, crlfDelay: Infinity });
  // Not every runtime ends the response of an aborted request.
  const onAbort = (): void => lines.close();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    if (signal.aborted) return;
    let kind = "";
    for await (const line of lines) {
      if (line.startsWith("event: ")) kind = line.slice("event: ".length);
      if (!line.startsWith("data: ")) continue;
      const document = JSON.parse(line.slice("data: ".length)) as unknown;
      if (kind === "gap") yield { kind, first: (document as { first: number }).first };
      else yield { kind: "event", event: document as EventDocument };
    }
  } catch (error) {
    // A hub that ends closes the connection in the middle of the response. Then the events just end, without an error.
    if (!signal.aborted && (error as NodeJS.ErrnoException).code !== "ECONNRESET") throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
    response.destroy();
  }
}
