import assert from "node:assert/strict";
import { MetaKey, ModernMethod } from "../../src/protocol/modern.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import { type Json, Peer } from "../fixtures/memory-hub.ts";
import { RpcError, type ServerBehaviour, type Params } from "./server-behaviour.ts";

const INFO = { name: "raw", version: "1.0.0" };
const INSTRUCTIONS = "Call whatever there is.";
const VERSION = "2026-07-28";
const LISTS = new Set(["tools/list", "prompts/list", "resources/list", "resources/templates/list"]);

/** Thrown to end a request with `input_required`. */
class InputNeeded extends Error {
  readonly inputRequests: object;

  constructor(inputRequests: object) {
    super("This takes another round.");
    this.inputRequests = inputRequests;
  }
}

/** Serves a `ServerBehaviour` without an SDK, in one era; `fault` gets violations of the era's rules by the hub. */
export function connectRawServer(
  behaviour: ServerBehaviour,
  onError: (error: unknown) => void,
): Transport {
  const [ours, theirs] = chunkedTransportPair();
  const peer = new Peer(theirs);
  const connection = new RawServerConnection(behaviour, peer);
  behaviour.notifyChange = (method, params) => connection.notifyChange(method, params);
  peer.onMessage = (message) => void connection.onMessage(message).catch(onError);
  return ours;
}

class RawServerConnection {
  readonly #behaviour: ServerBehaviour;
  readonly #peer: Peer;
  readonly #running = new Map<unknown, AbortController>();
  /** Its own requests, by id. */
  readonly #sentRequests = new Map<unknown, (message: Json) => void>();
  /** Subscription filters, by the id of the listen request. */
  readonly #subscriptions = new Map<unknown, Params>();
  #count = 0;

  constructor(behaviour: ServerBehaviour, peer: Peer) {
    this.#behaviour = behaviour;
    this.#peer = peer;
  }

  get #isModern(): boolean {
    return this.#behaviour.era === "modern";
  }

  notifyChange(method: string, params: object): void {
    if (!this.#isModern) this.#send({ method, params });
    for (const [id, filter] of this.#subscriptions) {
      const { uri } = params as { readonly uri?: string };
      const uris = (filter["resourceSubscriptions"] ?? []) as readonly string[];
      const isWanted = uri === undefined ? filter["toolsListChanged"] === true : uris.includes(uri);
      const _meta = { [MetaKey.subscription]: id };
      if (isWanted) this.#send({ method, params: { ...params, _meta } });
    }
  }

  async onMessage(message: Json): Promise<void> {
    const { id, method, params = {} } = message;
    if (method === undefined) this.#sentRequests.get(id)?.(message);
    else if (id === undefined) this.#onNotification(method, params);
    else if (this.#isModern) await this.#answerModern(id, method, params);
    else await this.#answerLegacy(id, method, params);
  }

  #onNotification(method: string, params: Params): void {
    if (method === "notifications/cancelled") {
      this.#running.get(params["requestId"])?.abort();
      this.#subscriptions.delete(params["requestId"]);
    } else {
      assert.ok(!this.#isModern, `${method} is not for servers of the modern era`);
    }
  }

  async #answerLegacy(id: unknown, method: string, params: Params): Promise<void> {
    assert.doesNotMatch(JSON.stringify(params), /io\.modelcontextprotocol\/(protocol|client|log)/);
    if (method === "initialize") {
      const { capabilities } = this.#behaviour;
      const protocolVersion = "2025-11-25";
      const result = {
        protocolVersion,
        capabilities,
        serverInfo: INFO,
        instructions: INSTRUCTIONS,
      };
      this.#send({ id, result });
      return;
    }
    if (method === "server/discover") {
      this.#send({ id, error: { code: -32601, message: "Method not found" } });
      return;
    }
    await this.#run(id, method, params, {
      requestInput: (_key, name, what) => this.#sendRequest(name, what),
      log: (level, data) => this.#log(level, data),
      addEraMembers: (result) => result,
    });
  }

  async #answerModern(id: unknown, method: string, params: Params): Promise<void> {
    const meta = (params["_meta"] ?? {}) as Params;
    if (meta[MetaKey.version] !== VERSION || typeof meta[MetaKey.capabilities] !== "object") {
      const error = {
        code: -32602,
        message: "There is no envelope",
        data: { supported: [VERSION] },
      };
      this.#send({ id, error });
      assert.equal(method, "initialize", "every request has an envelope");
      return;
    }
    const _meta = { [MetaKey.server]: INFO };
    if (method === ModernMethod.discover) {
      const { capabilities } = this.#behaviour;
      const cache = { ttlMs: 0, cacheScope: "private", resultType: "complete" };
      const discovery = { supportedVersions: [VERSION], capabilities, instructions: INSTRUCTIONS };
      this.#send({ id, result: { ...discovery, ...cache, _meta } });
      return;
    }
    if (method === ModernMethod.listen) {
      const filter = params["notifications"] as Params;
      this.#subscriptions.set(id, filter);
      const what = { notifications: filter, _meta: { [MetaKey.subscription]: id } };
      this.#send({ method: ModernMethod.acknowledged, params: what });
      return;
    }
    const given = (params["inputResponses"] ?? {}) as Readonly<Record<string, Params>>;
    const level = meta[MetaKey.level];
    await this.#run(id, method, params, {
      requestInput: async (key, name, what) => {
        const answer = given[key];
        if (answer === undefined) throw new InputNeeded({ [key]: { method: name, params: what } });
        assert.equal(params["requestState"], "as it was", "the state comes back as it was");
        return answer;
      },
      log: (severity, data) => {
        if (level !== undefined) this.#log(severity, data);
      },
      addEraMembers: (result) => {
        const isCached = LISTS.has(method) || method === "resources/read";
        const cache = isCached ? { ttlMs: 0, cacheScope: "private" } : {};
        const own = (result as { readonly _meta?: object })._meta;
        const withResultType = { resultType: "complete", ...result };
        return { ...withResultType, ...cache, _meta: { ...own, ..._meta } };
      },
    });
  }

  async #run(
    id: unknown,
    method: string,
    params: Params,
    {
      requestInput,
      log,
      addEraMembers,
    }: {
      readonly requestInput: (key: string, method: string, params: object) => Promise<Params>;
      readonly log: (level: string, data: unknown) => void;
      readonly addEraMembers: (result: object) => object;
    },
  ): Promise<void> {
    const { signal, ...control } = this.#addRunning(id);
    try {
      const notify = (name: string, what: object): void =>
        this.#send({ method: name, params: what });
      const result = await this.#behaviour.answer({
        method,
        params,
        signal,
        requestInput,
        log,
        notify,
      });
      if (!signal.aborted) this.#send({ id, result: addEraMembers(result) });
    } catch (error) {
      if (error instanceof InputNeeded) {
        const { inputRequests } = error;
        const requestState = "as it was";
        this.#send({ id, result: { resultType: "input_required", inputRequests, requestState } });
      } else if (error instanceof RpcError) {
        const { code, message, data } = error;
        this.#send({ id, error: { code, message, ...(data !== undefined && { data }) } });
      } else {
        throw error;
      }
    } finally {
      control.end();
    }
  }

  #addRunning(id: unknown): { readonly signal: AbortSignal; end(): void } {
    const controller = new AbortController();
    this.#running.set(id, controller);
    return { signal: controller.signal, end: () => void this.#running.delete(id) };
  }

  /** Sends a server request (legacy era). */
  #sendRequest(method: string, params: object): Promise<Params> {
    const id = `own-${++this.#count}`;
    return new Promise((resolve, reject) => {
      this.#sentRequests.set(id, ({ result, error }) => {
        this.#sentRequests.delete(id);
        if (error === undefined) resolve(result ?? {});
        else reject(new RpcError(error.code, error.message, error.data));
      });
      this.#send({ id, method, params });
    });
  }

  #log(level: string, data: unknown): void {
    this.#send({ method: "notifications/message", params: { level, logger: "tools", data } });
  }

  #send(message: object): void {
    this.#peer.send({ jsonrpc: "2.0", ...message });
  }
}
