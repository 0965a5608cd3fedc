import { type Era, LATEST_MODERN, MetaKey, ModernMethod } from "../../src/protocol/modern.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import { EventStreamReader } from "../fixtures/http-client.ts";
import { type Json, Peer } from "../fixtures/memory-hub.ts";
import {
  answerServerRequest,
  type CallOptions,
  CLIENT_CAPABILITIES,
  type HubAccess,
  inProcessFetch,
  type MatrixClient,
  noMessages,
  recordNotification,
  CLIENT_INFO,
  listAll,
  type ListName,
} from "./client.ts";
import { RpcError, type Params } from "./server-behaviour.ts";

/** Carries messages to the hub and back. */
interface Channel {
  send(message: Json, signal?: AbortSignal): void;
  /** Cancels the request with this id. */
  cancel(id: unknown): void;
  /** Opens the stream for messages that belong to no request, if the transport has one. */
  listen(): Promise<void>;
  close(): Promise<void>;
}

type MessageHandler = (message: Json) => void;

/** Connects a client without an SDK. */
export async function connectRawClient(era: Era, hub: HubAccess): Promise<MatrixClient> {
  const client = new RawMatrixClient(era, hub);
  await client.initialize();
  return client;
}

class RawMatrixClient implements MatrixClient {
  readonly era: Era;
  readonly received = noMessages();
  handshake: MatrixClient["handshake"] = { capabilities: {}, instructions: undefined };
  readonly #channel: Channel;
  readonly #pending = new Map<unknown, (message: Json) => void>();
  readonly #progress = new Map<unknown, (progress: number) => void>();
  /** Callbacks of `subscriptions/listen` requests that are not acknowledged yet. */
  readonly #unacknowledged = new Map<unknown, () => void>();
  #level: string | undefined;
  #count = 0;

  constructor(era: Era, access: HubAccess) {
    this.era = era;
    const onMessage = (message: Json): void => this.#onMessage(message);
    this.#channel =
      access.transport === "HTTP"
        ? new HttpChannel(access, era, onMessage)
        : memoryChannel(access, onMessage);
  }

  async initialize(): Promise<void> {
    if (this.era === "modern") {
      const { capabilities, instructions } = await this.request(ModernMethod.discover, {});
      this.handshake = handshakeOf(capabilities, instructions);
      return;
    }
    const params = {
      protocolVersion: "2025-11-25",
      capabilities: CLIENT_CAPABILITIES,
      clientInfo: CLIENT_INFO,
    };
    const { capabilities, instructions } = await this.request("initialize", params);
    this.handshake = handshakeOf(capabilities, instructions);
    this.#channel.send({ method: "notifications/initialized" });
    await this.#channel.listen();
  }

  list(what: ListName): Promise<readonly Params[]> {
    return listAll(what, (method, params) => this.request(method, params));
  }

  async request(method: string, params: object, options: CallOptions = {}): Promise<Params> {
    let inputMembers: object = {};
    for (;;) {
      const result = await this.#send(method, { ...params, ...inputMembers }, options);
      if (this.era === "legacy") return result;
      if (["complete", "task"].includes(String(result["resultType"]))) return result;
      if (result["resultType"] !== "input_required") throw new Error(JSON.stringify(result));
      const { inputRequests = {}, requestState } = result as {
        readonly inputRequests?: Readonly<Record<string, { method: string; params: Params }>>;
        readonly requestState?: string;
      };
      const inputResponses = Object.fromEntries(
        Object.entries(inputRequests).map(([key, { method: inputMethod, params: inputParams }]) => [
          key,
          answerServerRequest(this.received, inputMethod, inputParams),
        ]),
      );
      inputMembers = { inputResponses, ...(requestState !== undefined && { requestState }) };
    }
  }

  async subscribe(uri: string): Promise<void> {
    if (this.era === "legacy") {
      await this.request("resources/subscribe", { uri });
      return;
    }
    const id = this.#nextId();
    const opened = new Promise<void>((resolve) => this.#unacknowledged.set(id, resolve));
    const notifications = { toolsListChanged: true, resourceSubscriptions: [uri] };
    const params = { notifications, _meta: this.#envelope() };
    this.#channel.send({ id, method: ModernMethod.listen, params });
    await opened;
  }

  async setLevel(level: string): Promise<void> {
    if (this.era === "legacy") await this.request("logging/setLevel", { level });
    else this.#level = level;
  }

  close(): Promise<void> {
    return this.#channel.close();
  }

  #nextId(): number {
    return ++this.#count;
  }

  #envelope(): object {
    return {
      [MetaKey.version]: LATEST_MODERN,
      [MetaKey.client]: CLIENT_INFO,
      [MetaKey.capabilities]: CLIENT_CAPABILITIES,
      ...(this.#level !== undefined && { [MetaKey.level]: this.#level }),
    };
  }

  #send(
    method: string,
    params: object,
    { onprogress, signal, meta }: CallOptions,
  ): Promise<Params> {
    const id = this.#nextId();
    const _meta = {
      ...(onprogress !== undefined && { progressToken: id }),
      ...(this.era === "modern" && this.#envelope()),
      ...meta,
    };
    const isBare = Object.keys(_meta).length === 0;
    if (onprogress !== undefined) this.#progress.set(id, onprogress);
    signal?.addEventListener("abort", () => this.#channel.cancel(id));
    return new Promise((resolve, reject) => {
      this.#pending.set(id, ({ result = {}, error }) => {
        if (error === undefined) resolve(result);
        else reject(new RpcError(error.code, error.message, error.data));
      });
      signal?.addEventListener("abort", () => reject(new Error("aborted")));
      this.#channel.send({ id, method, params: isBare ? { ...params } : { ...params, _meta } });
    });
  }

  #onMessage(message: Json): void {
    const { id, method, params = {} } = message;
    if (method === undefined) {
      this.#pending.get(id)?.(message);
      this.#pending.delete(id);
    } else if (id !== undefined) {
      if (this.era === "modern") throw new Error(`A modern client was sent ${method}`);
      const result = answerServerRequest(this.received, method, params) as Record<string, unknown>;
      this.#channel.send({ id, result });
    } else if (method === "notifications/progress") {
      this.#progress.get(params["progressToken"])?.(Number(params["progress"]));
    } else if (method === ModernMethod.acknowledged) {
      const meta = params["_meta"] as Params;
      this.#unacknowledged.get(meta[MetaKey.subscription])?.();
    } else {
      recordNotification(this.received, method, params);
    }
  }
}

function handshakeOf(capabilities: unknown, instructions: unknown): MatrixClient["handshake"] {
  return {
    capabilities: capabilities as object,
    instructions: typeof instructions === "string" ? instructions : undefined,
  };
}

const NEVER_ABORTED = new AbortController().signal;

function memoryChannel({ hub }: HubAccess, onMessage: MessageHandler): Channel {
  const [ours, theirs] = chunkedTransportPair();
  void hub.accept(ours, NEVER_ABORTED, { kind: "stdio" });
  const peer = new Peer(theirs);
  peer.onMessage = onMessage;
  return {
    send: (message) => peer.send({ jsonrpc: "2.0", ...message }),
    cancel: (requestId) =>
      peer.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } }),
    listen: () => Promise.resolve(),
    close: () => theirs.close(),
  };
}

/** Streamable HTTP of either era. */
class HttpChannel implements Channel {
  readonly #fetch: ReturnType<typeof inProcessFetch>;
  readonly #era: Era;
  readonly #onMessage: MessageHandler;
  readonly #openRequests = new Map<unknown, AbortController>();
  #sessionId: string | undefined;

  constructor({ server: face }: HubAccess, era: Era, onMessage: MessageHandler) {
    this.#fetch = inProcessFetch(face);
    this.#era = era;
    this.#onMessage = onMessage;
  }

  send(message: Json): void {
    const { id, method } = message;
    const controller = new AbortController();
    if (id !== undefined && method !== undefined) this.#openRequests.set(id, controller);
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const headers = this.#headers(message);
    void this.#fetch("", { method: "POST", headers, body, signal: controller.signal })
      .then((response) => this.#read(response))
      .catch((error: unknown) => {
        if (!controller.signal.aborted) throw error;
      })
      .finally(() => this.#openRequests.delete(id));
  }

  cancel(id: unknown): void {
    if (this.#era === "modern") this.#openRequests.get(id)?.abort();
    else this.send({ method: "notifications/cancelled", params: { requestId: id } });
  }

  async listen(): Promise<void> {
    const controller = new AbortController();
    this.#openRequests.set("GET", controller);
    const { signal } = controller;
    const response = await this.#fetch("", { method: "GET", headers: this.#headers({}), signal });
    void this.#read(response).catch(() => {});
  }

  async close(): Promise<void> {
    for (const controller of this.#openRequests.values()) controller.abort();
    if (this.#sessionId !== undefined) {
      await this.#fetch("", { method: "DELETE", headers: this.#headers({}) });
    }
  }

  #headers({ method, params = {} }: Json): Record<string, string> {
    const name = params["name"] ?? params["uri"] ?? params["taskId"];
    const isModern = this.#era === "modern";
    return {
      "Content-Type": "application/json",
      Accept:
        method === undefined && !isModern ? "text/event-stream, application/json" : ACCEPT_BOTH,
      ...(this.#sessionId !== undefined && { "Mcp-Session-Id": this.#sessionId }),
      "MCP-Protocol-Version": isModern ? LATEST_MODERN : "2025-11-25",
      ...(isModern && method !== undefined && { "Mcp-Method": method }),
      ...(isModern && typeof name === "string" && { "Mcp-Name": name }),
    };
  }

  async #read(response: Response): Promise<void> {
    this.#sessionId ??= response.headers.get("Mcp-Session-Id") ?? undefined;
    const type = response.headers.get("Content-Type") ?? "";
    if (type.startsWith("application/json")) this.#onMessage((await response.json()) as Json);
    if (!type.startsWith("text/event-stream")) return;
    const events = new EventStreamReader(response);
    for (let event = await events.next(); event !== undefined; event = await events.next()) {
      if (event.message !== undefined) this.#onMessage(event.message);
    }
  }
}

const ACCEPT_BOTH = "application/json, text/event-stream";
