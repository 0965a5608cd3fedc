import {
  fromJsonSchema,
  inputRequired,
  inputResponse,
  type McpServer,
  ProtocolError,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { Server as ServerV1 } from "@modelcontextprotocol/sdk/server/index.js";
import type { McpServer as McpServerV1 } from "@modelcontextprotocol/sdk/server/mcp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { makeSdkTransportPair } from "../../src/plugin/transport.ts";
import type { Era } from "../../src/protocol/modern.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { createServer } from "../conformance/everything.ts";
import { say } from "../conformance/tools.ts";
import { Script } from "../fixtures/memory-hub.ts";
import { ASKING, Kit, type Params } from "./server-behaviour.ts";
import { connectRaw } from "./raw-server.ts";

/** A server behind the hub. */
export abstract class Upstream extends Script {
  /** The era it speaks, or is expected to be spoken to in if it speaks both. */
  abstract readonly era: Era;
  /** The manifest's `era` setting. */
  get said(): Era | "auto" {
    return this.era;
  }
  /** One entry for each cancelled call. */
  abstract readonly cancelled: readonly string[];
  /** The `_meta` of each call of `test_meta`. */
  abstract readonly metas: readonly Params[];
  /** Messages received that are not of its era, and its own errors. */
  readonly faults: string[] = [];

  readonly fault = (error: unknown): void => void this.faults.push(String(error));
}

export type ServerFlavour = ClientFlavour | "SDK v2 in both eras";
export type ClientFlavour = "SDK v1" | "SDK v2" | "raw";

/** A server of this implementation. It speaks only this era, unless the implementation speaks both. */
export function serverOf(flavour: ServerFlavour, era: Era): Upstream {
  switch (flavour) {
    case "SDK v1":
      return new UpstreamV1();
    case "SDK v2":
      return new UpstreamV2(era);
    case "SDK v2 in both eras":
      return new UpstreamDual(era);
    case "raw":
      return new RawUpstream(era);
  }
}

/** A server without an SDK. */
class RawUpstream extends Upstream {
  readonly era: Era;
  readonly #kit: Kit;

  constructor(era: Era) {
    super();
    this.era = era;
    this.#kit = new Kit(era);
  }

  get cancelled(): readonly string[] {
    return this.#kit.cancelled;
  }

  get metas(): readonly Params[] {
    return this.#kit.metas;
  }

  override connect(): Transport {
    return connectRaw(this.#kit, this.fault);
  }
}

type Notification = Parameters<McpServerV1["server"]["notification"]>[0];
type Question = Parameters<McpServerV1["server"]["request"]>[0];

/** The same behaviour on SDK v1. */
class UpstreamV1 extends Upstream {
  readonly era = "legacy";
  readonly #kit = new Kit("legacy");

  get cancelled(): readonly string[] {
    return this.#kit.cancelled;
  }

  get metas(): readonly Params[] {
    return this.#kit.metas;
  }

  override connect(): Transport {
    const kit = this.#kit;
    const info = { name: "v1", version: "1.0.0" };
    const instructions = "Call whatever there is.";
    // oxlint-disable-next-line typescript/no-deprecated -- the other one would write again what is answered
    const server = new ServerV1(info, { capabilities: kit.capabilities, instructions });
    kit.announce = (method, params) =>
      void server.notification({ method, params } as Notification).catch(this.fault);
    server.fallbackRequestHandler = async ({ method, params = {} }, { signal, ...extra }) => {
      const notify = (name: string, what: object): void =>
        void extra
          .sendNotification({ method: name, params: what } as Notification)
          .catch(this.fault);
      const visit = {
        method,
        params,
        signal,
        notify,
        log: (level: string, data: unknown) =>
          notify("notifications/message", { level, logger: "tools", data }),
        ask: (_key: string, name: string, what: object): Promise<Params> =>
          extra.sendRequest({ method: name, params: what } as Question, ResultSchema),
      };
      return kit.answer(visit);
    };
    const [ours, theirs] = makeSdkTransportPair(this.fault);
    // The SDK's type lacks `| undefined` on optional members.
    void server.connect(theirs as Parameters<typeof server.connect>[0]).catch(this.fault);
    return ours;
  }
}

type SdkTransport = Parameters<McpServer["connect"]>[0];

/** The everything server of the conformance suites with further tools, on SDK v2. */
class UpstreamV2 extends Upstream {
  readonly era: Era;
  readonly cancelled: string[] = [];
  readonly metas: Params[] = [];

  constructor(era: Era) {
    super();
    this.era = era;
  }

  override connect(): Transport {
    const [ours, theirs] = makeSdkTransportPair(this.fault);
    this.serve(theirs);
    return ours;
  }

  protected serve(transport: SdkTransport): void {
    const onerror = this.fault;
    if (this.era === "legacy") void this.make("legacy").connect(transport).catch(onerror);
    else serveStdio(({ era }) => this.make(era), { legacy: "reject", transport, onerror });
  }

  protected make(era: Era): McpServer {
    const server = createServer({ era });
    const more = { description: "Is there for the matrix." };
    server.registerTool("test_url", more, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind === "elicit") return say(JSON.stringify(answer));
      const asked = { message: "Go there", url: "http://127.0.0.1/there" };
      return inputRequired({ inputRequests: { answer: inputRequired.elicitUrl(asked) } });
    });
    server.registerTool("test_roots", more, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind === "roots") return say(JSON.stringify(answer));
      return inputRequired({ inputRequests: { answer: inputRequired.listRoots() } });
    });
    server.registerTool("test_meta", more, ({ mcpReq: { _meta = {}, envelope = {} } }) => {
      this.metas.push({ ..._meta, ...envelope });
      return { ...say("seen"), _meta: { "example.org/own": 1.5 } };
    });
    server.registerTool("test_wait", more, async ({ mcpReq: { signal } }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      this.cancelled.push("test_wait");
      return say("It was cancelled.");
    });
    server.registerPrompt("test_asking", more, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind !== "elicit") return inputRequired({ inputRequests: { answer: WHO } });
      const content = { type: "text" as const, text: JSON.stringify(answer) };
      return { messages: [{ role: "user", content }] };
    });
    server.registerResource("asking", ASKING, more, (_uri, { mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind !== "elicit") return inputRequired({ inputRequests: { answer: WHO } });
      return { contents: [{ uri: ASKING, text: JSON.stringify(answer) }] };
    });
    server.registerPrompt("test_fail", { ...more, argsSchema: CODE }, ({ code }) => {
      throw new ProtocolError(Number(code), "It failed.", { detail: 1.5 });
    });
    return server;
  }
}

/** The same in both eras, as most servers on SDK v2 are. */
class UpstreamDual extends UpstreamV2 {
  override get said(): "auto" {
    return "auto";
  }

  protected override serve(transport: SdkTransport): void {
    const make = ({ era }: { readonly era: Era }): McpServer => {
      if (era !== this.era) this.fault(`It was spoken to in the ${era} era`);
      return this.make(era);
    };
    serveStdio(make, { transport, onerror: this.fault });
  }
}

const WHO = inputRequired.elicit({
  message: "Who are you?",
  requestedSchema: { type: "object", properties: { name: { type: "string" } } },
});

const CODE = fromJsonSchema<{ readonly code: string }>({
  type: "object",
  properties: { code: { type: "string" } },
  required: ["code"],
});
