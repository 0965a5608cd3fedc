import assert from "node:assert/strict";
import { MetaKey, ModernMethod } from "../../src/protocol/modern.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { memoryTransportPair } from "../../src/transport/memory.ts";
import { type Json, Peer } from "../fixtures/memory-hub.ts";
import { Failure, type Kit, type Params } from "./server-behaviour.ts";

const INFO = { name: "raw", version: "1.0.0" };
const INSTRUCTIONS = "Call whatever there is.";
const VERSION = "2026-07-28";
const LISTS = new Set(["tools/list", "prompts/list", "resources/list", "resources/templates/list"]);

/** Thrown to end a request with `input_required`. */
class Needs extends Error {
  readonly inputRequests: object;

  constructor(inputRequests: object) {
    super("This takes another round.");
    this.inputRequests = inputRequests;
  }
}

/** Serves a `ServerBehaviour` without an SDK, in one era; `fault` gets violations of the era's rules by the hub. */
export function connectRaw(kit: Kit, fault: (error: unknown) => void): Transport {
  const [ours, theirs] = memoryTransportPair();
  const peer = new Peer(theirs);
  const connection = new Connection(kit, peer);
  kit.announce = (method, params) => connection.announce(method, params);
  peer.onMessage = (message) => void connection.take(message).catch(fault);
  return ours;
}

class Connection {
  readonly #kit: Kit;
  readonly #peer: Peer;
  readonly #running = new Map<unknown, AbortController>();
  /** Its own requests, by id. */
  readonly #asked = new Map<unknown, (message: Json) => void>();
  /** Subscription filters, by the id of the listen request. */
  readonly #listens = new Map<unknown, Params>();
  #count = 0;

  constructor(kit: Kit, peer: Peer) {
    this.#kit = kit;
    this.#peer = peer;
  }

  get #isModern(): boolean {
    return this.#kit.era === "modern";
  }

  announce(method: string, params: object): void {
    if (!this.#isModern) this.#send({ method, params });
    for (const [id, wanted] of this.#listens) {
      const { uri } = params as { readonly uri?: string };
      const uris = (wanted["resourceSubscriptions"] ?? []) as readonly string[];
      const isWanted = uri === undefined ? wanted["toolsListChanged"] === true : uris.includes(uri);
      const _meta = { [MetaKey.subscription]: id };
      if (isWanted) this.#send({ method, params: { ...params, _meta } });
    }
  }

  async take(message: Json): Promise<void> {
    const { id, method, params = {} } = message;
    if (method === undefined) this.#asked.get(id)?.(message);
    else if (id === undefined) this.#hear(method, params);
    else if (this.#isModern) await this.#answerModern(id, method, params);
    else await this.#answerLegacy(id, method, params);
  }

  #hear(method: string, params: Params): void {
    if (method === "notifications/cancelled") {
      this.#running.get(params["requestId"])?.abort();
      this.#listens.delete(params["requestId"]);
    } else {
      assert.ok(!this.#isModern, `${method} is not for servers of the modern era`);
    }
  }

  async #answerLegacy(id: unknown, method: string, params: Params): Promise<void> {
    assert.doesNotMatch(JSON.stringify(params), /io\.modelcontextprotocol\/(protocol|client|log)/);
    if (method === "initialize") {
      const { capabilities } = this.#kit;
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
      ask: (_key, name, what) => this.#ask(name, what),
      log: (level, data) => this.#log(level, data),
      dress: (result) => result,
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
      const { capabilities } = this.#kit;
      const cache = { ttlMs: 0, cacheScope: "private", resultType: "complete" };
      const says = { supportedVersions: [VERSION], capabilities, instructions: INSTRUCTIONS };
      this.#send({ id, result: { ...says, ...cache, _meta } });
      return;
    }
    if (method === ModernMethod.listen) {
      const wanted = params["notifications"] as Params;
      this.#listens.set(id, wanted);
      const what = { notifications: wanted, _meta: { [MetaKey.subscription]: id } };
      this.#send({ method: ModernMethod.acknowledged, params: what });
      return;
    }
    const given = (params["inputResponses"] ?? {}) as Readonly<Record<string, Params>>;
    const level = meta[MetaKey.level];
    await this.#run(id, method, params, {
      ask: async (key, name, what) => {
        const answer = given[key];
        if (answer === undefined) throw new Needs({ [key]: { method: name, params: what } });
        assert.equal(params["requestState"], "as it was", "the state comes back as it was");
        return answer;
      },
      log: (severity, data) => {
        if (level !== undefined) this.#log(severity, data);
      },
      dress: (result) => {
        const isCached = LISTS.has(method) || method === "resources/read";
        const cache = isCached ? { ttlMs: 0, cacheScope: "private" } : {};
        const own = (result as { readonly _meta?: object })._meta;
        const whole = { resultType: "complete", ...result };
        return { ...whole, ...cache, _meta: { ...own, ..._meta } };
      },
    });
  }

  async #run(
    id: unknown,
    method: string,
    params: Params,
    {
      ask,
      log,
      dress,
    }: {
      readonly ask: (key: string, method: string, params: object) => Promise<Params>;
      readonly log: (level: string, data: unknown) => void;
      readonly dress: (result: object) => object;
    },
  ): Promise<void> {
    const { signal, ...control } = this.#begin(id);
    try {
      const notify = (name: string, what: object): void =>
        this.#send({ method: name, params: what });
      const result = await this.#kit.answer({ method, params, signal, ask, log, notify });
      if (!signal.aborted) this.#send({ id, result: dress(result) });
    } catch (error) {
      if (error instanceof Needs) {
        const { inputRequests } = error;
        const requestState = "as it was";
        this.#send({ id, result: { resultType: "input_required", inputRequests, requestState } });
      } else if (error instanceof Failure) {
        const { code, message, data } = error;
        this.#send({ id, error: { code, message, ...(data !== undefined && { data }) } });
      } else {
        throw error;
      }
    } finally {
      control.end();
    }
  }

  #begin(id: unknown): { readonly signal: AbortSignal; end(): void } {
    const controller = new AbortController();
    this.#running.set(id, controller);
    return { signal: controller.signal, end: () => void this.#running.delete(id) };
  }

  /** Sends a server request (legacy era). */
  #ask(method: string, params: object): Promise<Params> {
    const id = `own-${++this.#count}`;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, ({ result, error }) => {
        this.#asked.delete(id);
        if (error === undefined) resolve(result ?? {});
        else reject(new Failure(error.code, error.message, error.data));
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
