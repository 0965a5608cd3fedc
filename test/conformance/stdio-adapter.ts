// oxlint-disable unicorn/prefer-add-event-listener -- the SDK's transports have no other way to listen
import { randomUUID } from "node:crypto";
import process from "node:process";
import {
  StdioClientTransport,
  type StdioServerParameters,
} from "@modelcontextprotocol/client/stdio";
import {
  hostHeaderValidationResponse,
  isJSONRPCErrorResponse,
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResultResponse,
  isLegacyRequest,
  type JSONRPCMessage,
  type JSONRPCNotification,
  type JSONRPCRequest,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
  type RequestId,
  WebStandardStreamableHTTPServerTransport as HttpTransport,
} from "@modelcontextprotocol/server";
import { MetaKey, ModernMethod } from "../../src/protocol/modern.ts";
import { SessionEventStore, RETRY_DELAY } from "./everything-http.ts";

type Members = Readonly<Record<string, unknown>>;

/**
 * Serves an MCP server over stdio as Streamable HTTP, in both eras. Each legacy session has a process of its own; all
 * modern requests share one. Sessions, streams, headers and status codes are handled here; messages are passed on.
 */
export class StdioAdapter {
  readonly #command: StdioServerParameters;
  readonly #sessions = new Map<string, LegacySession>();
  /** All started processes. */
  readonly #processes: StdioClientTransport[] = [];
  #modern: Promise<ModernConnection> | undefined;
  /** A process started ahead for the next legacy session, so that it does not wait for the start. */
  #nextProcess: Promise<StdioClientTransport> | undefined;

  constructor(command: StdioServerParameters) {
    this.#command = command;
  }

  /** Answers one request. */
  readonly fetch = async (request: Request): Promise<Response> =>
    hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
    originValidationResponse(request, localhostAllowedOrigins()) ??
    (await this.#dispatch(request));

  /** Stops all processes. */
  async close(): Promise<void> {
    await Promise.all(this.#processes.map((child) => child.close()));
  }

  async #dispatch(request: Request): Promise<Response> {
    if (await isLegacyRequest(request)) {
      const id = request.headers.get("Mcp-Session-Id");
      const session = id === null ? await this.#beginSession() : this.#sessions.get(id);
      return session?.http.handleRequest(request) ?? new Response(null, { status: 404 });
    }
    const message: unknown = await request.json();
    this.#modern ??= this.#connect();
    return (await this.#modern).handle(request, message as JSONRPCMessage);
  }

  async #connect(): Promise<ModernConnection> {
    return new ModernConnection(await this.#start());
  }

  async #beginSession(): Promise<LegacySession> {
    const http = new HttpTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.#sessions.set(id, session),
      onsessionclosed: (id) => {
        this.#sessions.delete(id);
        session.stdio.close().catch(reportError);
      },
      eventStore: new SessionEventStore(),
      retryInterval: RETRY_DELAY,
    });
    const starting = this.#nextProcess ?? this.#start();
    this.#nextProcess = this.#start();
    const session = new LegacySession(http, await starting);
    await http.start();
    return session;
  }

  async #start(): Promise<StdioClientTransport> {
    const child = new StdioClientTransport(this.#command);
    this.#processes.push(child);
    await child.start();
    return child;
  }
}

/** A legacy session: messages pass unchanged; it finds the HTTP stream for each message from the pipe. */
class LegacySession {
  readonly http: HttpTransport;
  readonly stdio: StdioClientTransport;
  /** Open client requests: id → progress token. */
  readonly #open = new Map<RequestId, unknown>();
  /** Streams of server requests: id → client request; undefined: the session's GET stream. */
  readonly #serverRequestStreams = new Map<unknown, RequestId | undefined>();

  constructor(http: HttpTransport, stdio: StdioClientTransport) {
    this.http = http;
    this.stdio = stdio;
    http.onmessage = (message) => {
      if (isJSONRPCRequest(message)) this.#open.set(message.id, tokenOf(message));
      stdio.send(message).catch(reportError);
    };
    stdio.onmessage = (message) => void this.#send(message).catch(reportError);
    stdio.onclose = () => void http.close().catch(reportError);
  }

  async #send(message: JSONRPCMessage): Promise<void> {
    const relatedRequestId = this.#streamOf(message);
    if (isAnswer(message) && message.id !== undefined) this.#open.delete(message.id);
    await this.http.send(message, relatedRequestId === undefined ? {} : { relatedRequestId });
  }

  /** The client request whose stream carries a message; undefined: the session's GET stream, or none is needed. */
  #streamOf(message: JSONRPCMessage): RequestId | undefined {
    if (isAnswer(message)) return undefined;
    const params: Members = message.params ?? {};
    const { method } = message;
    if (isJSONRPCRequest(message)) {
      this.#serverRequestStreams.set(message.id, this.#onlyOpen);
      return this.#onlyOpen;
    }
    if (method === "notifications/progress") {
      return [...this.#open].find(([, token]) => token === params["progressToken"])?.[0];
    }
    if (method === "notifications/cancelled")
      return this.#serverRequestStreams.get(params["requestId"]);
    // Notifications of changes belong to no request.
    return /\/(?:list_changed|updated)$/.test(method) ? undefined : this.#onlyOpen;
  }

  /** The only open client request; undefined if there are several. */
  get #onlyOpen(): RequestId | undefined {
    const [id, ...more] = this.#open.keys();
    return more.length === 0 ? id : undefined;
  }
}

/** A modern request in flight. */
interface PendingHttpRequest {
  readonly request: JSONRPCRequest;
  /** Sends the client a message that has the client's ids; the last one ends the response. */
  deliver(message: JSONRPCMessage, isLast: boolean): void;
}

/**
 * All modern requests over one pipe. Replaces ids and progress tokens, which may be equal in different HTTP requests.
 */
class ModernConnection {
  readonly #stdio: StdioClientTransport;
  /** By id on the pipe, which is also the progress token there. */
  readonly #pending = new Map<unknown, PendingHttpRequest>();
  #count = 0;

  constructor(stdio: StdioClientTransport) {
    this.#stdio = stdio;
    stdio.onmessage = (message) => this.#receive(message);
  }

  /** Answers one HTTP request. */
  async handle(http: Request, message: JSONRPCMessage): Promise<Response> {
    if (isJSONRPCNotification(message)) {
      await this.#stdio.send(message);
      return new Response(null, { status: 202 });
    }
    if (!isJSONRPCRequest(message)) return errorResponse(-32600, "This is no request.");
    const mismatch = findMismatch(message, http.headers);
    if (mismatch !== undefined) {
      return errorResponse(
        -32020,
        `The header ${mismatch} does not say what the body says.`,
        message.id,
      );
    }
    const id = ++this.#count;
    return new Promise((resolve) => {
      let stream: ReadableStreamDefaultController<string> | undefined;
      const onDisconnect = (): void => {
        if (!this.#pending.delete(id)) return;
        // The client closes the response; over stdio that is a notification.
        const params = { requestId: id };
        const cancelled = { jsonrpc: "2.0", method: "notifications/cancelled", params } as const;
        this.#stdio.send(cancelled).catch(reportError);
      };
      http.signal.addEventListener("abort", onDisconnect, { once: true });
      const open = (): void => {
        const body = new ReadableStream<string>({
          start: (controller) => void (stream = controller),
          cancel: onDisconnect,
        });
        const headers = { "Content-Type": "text/event-stream", "X-Accel-Buffering": "no" };
        resolve(new Response(body.pipeThrough(new TextEncoderStream()), { headers }));
      };
      const deliver = (answer: JSONRPCMessage, isLast: boolean): void => {
        if (isLast && stream === undefined) {
          resolve(Response.json(answer, { status: statusOf(answer) }));
          return;
        }
        if (stream === undefined) open();
        stream?.enqueue(`data: ${JSON.stringify(answer)}\n\n`);
        if (isLast) stream?.close();
      };
      this.#pending.set(id, { request: message, deliver });
      this.#stdio.send({ ...replaceToken(message, id), id }).catch(reportError);
    });
  }

  #receive(message: JSONRPCMessage): void {
    if (isAnswer(message)) {
      const exchange = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      exchange?.deliver(withClientIds(message, exchange.request), true);
    } else if (isJSONRPCNotification(message)) {
      const exchange = this.#requestOf(message);
      exchange?.deliver(withClientIds(message, exchange.request), false);
    }
  }

  /** The request that a notification belongs to: by progress token or subscription; or it is a log message. */
  #requestOf({ method, params = {} }: JSONRPCNotification): PendingHttpRequest | undefined {
    const meta: Members = params._meta ?? {};
    if (method === "notifications/progress") {
      return this.#pending.get((params as Members)["progressToken"]);
    }
    const subscription = meta[MetaKey.subscription];
    if (subscription !== undefined) return this.#pending.get(subscription);
    const open = [...this.#pending.values()].filter(
      ({ request }) => metaOf(request)[MetaKey.level] !== undefined,
    );
    // With several requests that have a log level the owner is unknown.
    return open.length === 1 ? open[0] : undefined;
  }
}

/** Reports a message that could not be passed on because a peer has disconnected. */
function reportError(error: unknown): void {
  process.stderr.write(`adapter: ${String(error)}\n`);
}

function isAnswer(message: JSONRPCMessage) {
  return isJSONRPCResultResponse(message) || isJSONRPCErrorResponse(message);
}

function metaOf({ params }: JSONRPCRequest): Members {
  return params?._meta ?? {};
}

function tokenOf(request: JSONRPCRequest): unknown {
  return metaOf(request)["progressToken"];
}

/** The request with its progress token replaced, if it has one. */
function replaceToken(request: JSONRPCRequest, progressToken: number): JSONRPCRequest {
  if (tokenOf(request) === undefined) return request;
  const _meta = { ...metaOf(request), progressToken };
  return { ...request, params: { ...request.params, _meta } };
}

/** A message from the pipe with the ids of the client's request. */
function withClientIds(message: JSONRPCMessage, request: JSONRPCRequest): JSONRPCMessage {
  if (isJSONRPCErrorResponse(message)) return { ...message, id: request.id };
  if (isJSONRPCResultResponse(message)) {
    return { ...message, id: request.id, result: withClientMeta(message.result, request) };
  }
  const params = withClientMeta(message.params ?? {}, request);
  const isProgress = message.method === "notifications/progress";
  const token = isProgress && { progressToken: tokenOf(request) };
  return { ...message, params: { ...params, ...token } };
}

function withClientMeta<T extends object>(container: T, request: JSONRPCRequest): T {
  const meta = (container as { readonly _meta?: Members })._meta;
  if (request.method !== ModernMethod.listen || meta?.[MetaKey.subscription] === undefined) {
    return container;
  }
  return { ...container, _meta: { ...meta, [MetaKey.subscription]: request.id } };
}

/** The param that the header `Mcp-Name` repeats, by method. */
const NAME_PARAMS: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
};

/** The name of a standard header that contradicts the body (Streamable HTTP, 2026-07-28). */
function findMismatch(request: JSONRPCRequest, headers: Headers): string | undefined {
  const { method, params = {} } = request;
  const key = NAME_PARAMS[method];
  const name = key === undefined ? undefined : (params as Members)[key];
  const version = metaOf(request)[MetaKey.version];
  const expected = { "Mcp-Method": method, "Mcp-Name": name, "MCP-Protocol-Version": version };
  return Object.entries(expected).find(
    ([header, value]) => typeof value === "string" && decode(headers.get(header)) !== value,
  )?.[0];
}

/** Decodes a header value, which may be Base64. */
function decode(value: string | null): string | null {
  const [, text] = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/.exec(value ?? "") ?? [];
  return text === undefined ? value : Buffer.from(text, "base64").toString();
}

function errorResponse(code: number, message: string, id?: RequestId): Response {
  const error = { jsonrpc: "2.0", id: id ?? null, error: { code, message } };
  return Response.json(error, { status: 400 });
}

/** The HTTP status of a response (Streamable HTTP, 2026-07-28). */
function statusOf(message: JSONRPCMessage): number {
  if (!isJSONRPCErrorResponse(message)) return 200;
  const { code } = message.error;
  if (code === -32601) return 404;
  return [-32700, -32600, -32602, -32020, -32021, -32022].includes(code) ? 400 : 200;
}
