import { type Era, LATEST_MODERN, MetaKey, ModernMethod } from "../../src/protocol/modern.ts";
import { memoryTransportPair } from "../../src/transport/memory.ts";
import { Events } from "../fixtures/http-client.ts";
import { type Json, Peer } from "../fixtures/memory-hub.ts";
import {
  answerTo,
  type CallOptions,
  CAPABILITIES,
  type Entrance,
  fetchFrom,
  type Guest,
  hearNothing,
  hear,
  INFO,
  listAll,
  type Listed,
} from "./client.ts";
import { Failure, type Params } from "./server-behaviour.ts";

/** Carries messages to the hub and back. */
interface Channel {
  send(message: Json, signal?: AbortSignal): void;
  /** Cancels the request with this id. */
  cancel(id: unknown): void;
  /** Opens the stream for messages that belong to no request, if the transport has one. */
  listen(): Promise<void>;
  close(): Promise<void>;
}

type Take = (message: Json) => void;

/** Connects a client without an SDK. */
export async function connectRaw(era: Era, entrance: Entrance): Promise<Guest> {
  const guest = new RawGuest(era, entrance);
  await guest.begin();
  return guest;
}

class RawGuest implements Guest {
  readonly era: Era;
  readonly heard = hearNothing();
  introduction: Guest["introduction"] = { capabilities: {}, instructions: undefined };
  readonly #channel: Channel;
  readonly #waiting = new Map<unknown, (message: Json) => void>();
  readonly #progress = new Map<unknown, (progress: number) => void>();
  /** Callbacks of `subscriptions/listen` requests that are not acknowledged yet. */
  readonly #opening = new Map<unknown, () => void>();
  #level: string | undefined;
  #count = 0;

  constructor(era: Era, entrance: Entrance) {
    this.era = era;
    const take = (message: Json): void => this.#take(message);
    this.#channel =
      entrance.side === "HTTP" ? new HttpChannel(entrance, era, take) : pipe(entrance, take);
  }

  async begin(): Promise<void> {
    if (this.era === "modern") {
      const { capabilities, instructions } = await this.request(ModernMethod.discover, {});
      this.introduction = introductionOf(capabilities, instructions);
      return;
    }
    const params = { protocolVersion: "2025-11-25", capabilities: CAPABILITIES, clientInfo: INFO };
    const { capabilities, instructions } = await this.request("initialize", params);
    this.introduction = introductionOf(capabilities, instructions);
    this.#channel.send({ method: "notifications/initialized" });
    await this.#channel.listen();
  }

  list(what: Listed): Promise<readonly Params[]> {
    return listAll(what, (method, params) => this.request(method, params));
  }

  async request(method: string, params: object, options: CallOptions = {}): Promise<Params> {
    let more: object = {};
    for (;;) {
      const result = await this.#send(method, { ...params, ...more }, options);
      if (this.era === "legacy") return result;
      if (["complete", "task"].includes(String(result["resultType"]))) return result;
      if (result["resultType"] !== "input_required") throw new Error(JSON.stringify(result));
      const { inputRequests = {}, requestState } = result as {
        readonly inputRequests?: Readonly<Record<string, { method: string; params: Params }>>;
        readonly requestState?: string;
      };
      const inputResponses = Object.fromEntries(
        Object.entries(inputRequests).map(([key, { method: asked, params: what }]) => [
          key,
          answerTo(this.heard, asked, what),
        ]),
      );
      more = { inputResponses, ...(requestState !== undefined && { requestState }) };
    }
  }

  async subscribe(uri: string): Promise<void> {
    if (this.era === "legacy") {
      await this.request("resources/subscribe", { uri });
      return;
    }
    const id = this.#nextId();
    const opened = new Promise<void>((resolve) => this.#opening.set(id, resolve));
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
      [MetaKey.client]: INFO,
      [MetaKey.capabilities]: CAPABILITIES,
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
      this.#waiting.set(id, ({ result = {}, error }) => {
        if (error === undefined) resolve(result);
        else reject(new Failure(error.code, error.message, error.data));
      });
      signal?.addEventListener("abort", () => reject(new Error("aborted")));
      this.#channel.send({ id, method, params: isBare ? { ...params } : { ...params, _meta } });
    });
  }

  #take(message: Json): void {
    const { id, method, params = {} } = message;
    if (method === undefined) {
      this.#waiting.get(id)?.(message);
      this.#waiting.delete(id);
    } else if (id !== undefined) {
      if (this.era === "modern") throw new Error(`A modern client was sent ${method}`);
      const result = answerTo(this.heard, method, params) as Record<string, unknown>;
      this.#channel.send({ id, result });
    } else if (method === "notifications/progress") {
      this.#progress.get(params["progressToken"])?.(Number(params["progress"]));
    } else if (method === ModernMethod.acknowledged) {
      const meta = params["_meta"] as Params;
      this.#opening.get(meta[MetaKey.subscription])?.();
    } else {
      hear(this.heard, method, params);
    }
  }
}

function introductionOf(capabilities: unknown, instructions: unknown): Guest["introduction"] {
  return {
    capabilities: capabilities as object,
    instructions: typeof instructions === "string" ? instructions : undefined,
  };
}

const NEVER = new AbortController().signal;

function pipe({ hub }: Entrance, take: Take): Channel {
  const [ours, theirs] = memoryTransportPair();
  void hub.accept(ours, NEVER);
  const peer = new Peer(theirs);
  peer.onMessage = take;
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
  readonly #fetch: ReturnType<typeof fetchFrom>;
  readonly #era: Era;
  readonly #take: Take;
  readonly #running = new Map<unknown, AbortController>();
  #session: string | undefined;

  constructor({ face }: Entrance, era: Era, take: Take) {
    this.#fetch = fetchFrom(face);
    this.#era = era;
    this.#take = take;
  }

  send(message: Json): void {
    const { id, method } = message;
    const controller = new AbortController();
    if (id !== undefined && method !== undefined) this.#running.set(id, controller);
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const headers = this.#headers(message);
    void this.#fetch("", { method: "POST", headers, body, signal: controller.signal })
      .then((response) => this.#read(response))
      .catch((error: unknown) => {
        if (!controller.signal.aborted) throw error;
      })
      .finally(() => this.#running.delete(id));
  }

  cancel(id: unknown): void {
    if (this.#era === "modern") this.#running.get(id)?.abort();
    else this.send({ method: "notifications/cancelled", params: { requestId: id } });
  }

  async listen(): Promise<void> {
    const controller = new AbortController();
    this.#running.set("GET", controller);
    const { signal } = controller;
    const response = await this.#fetch("", { method: "GET", headers: this.#headers({}), signal });
    void this.#read(response).catch(() => {});
  }

  async close(): Promise<void> {
    for (const controller of this.#running.values()) controller.abort();
    if (this.#session !== undefined) {
      await this.#fetch("", { method: "DELETE", headers: this.#headers({}) });
    }
  }

  #headers({ method, params = {} }: Json): Record<string, string> {
    const name = params["name"] ?? params["uri"] ?? params["taskId"];
    const isModern = this.#era === "modern";
    return {
      "Content-Type": "application/json",
      Accept: method === undefined && !isModern ? "text/event-stream, application/json" : BOTH,
      ...(this.#session !== undefined && { "Mcp-Session-Id": this.#session }),
      "MCP-Protocol-Version": isModern ? LATEST_MODERN : "2025-11-25",
      ...(isModern && method !== undefined && { "Mcp-Method": method }),
      ...(isModern && typeof name === "string" && { "Mcp-Name": name }),
    };
  }

  async #read(response: Response): Promise<void> {
    this.#session ??= response.headers.get("Mcp-Session-Id") ?? undefined;
    const type = response.headers.get("Content-Type") ?? "";
    if (type.startsWith("application/json")) this.#take((await response.json()) as Json);
    if (!type.startsWith("text/event-stream")) return;
    const events = new Events(response);
    for (let event = await events.next(); event !== undefined; event = await events.next()) {
      if (event.message !== undefined) this.#take(event.message);
    }
  }
}

const BOTH = "application/json, text/event-stream";
