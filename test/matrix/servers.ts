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
import { makeSdkTransportPair } from "../../src/plugin/sdk-transport.ts";
import type { Era } from "../../src/protocol/modern.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { createServer } from "../conformance/everything.ts";
import { textResult } from "../conformance/tools.ts";
import { ScriptedServer } from "../fixtures/memory-hub.ts";
import { ELICITING_URI, ServerBehaviour, type Params } from "./server-behaviour.ts";
import { connectRawServer } from "./raw-server.ts";

/** A server behind the hub. */
export abstract class MatrixServer extends ScriptedServer {
  /** The era it speaks, or is expected to be spoken to in if it speaks both. */
  abstract readonly era: Era;
  /** The manifest's `era` setting. */
  get eraSetting(): Era | "auto" {
    return this.era;
  }
  /** One entry for each cancelled call. */
  abstract readonly cancelled: readonly string[];
  /** The `_meta` of each call of `test_meta`. */
  abstract readonly metas: readonly Params[];
  /** Messages received that are not of its era, and its own errors. */
  readonly errors: string[] = [];

  readonly addError = (error: unknown): void => void this.errors.push(String(error));
}

export type ServerSdk = ClientSdk | "SDK v2 in both eras";
export type ClientSdk = "SDK v1" | "SDK v2" | "raw";

/** A server of this implementation. It speaks only this era, unless the implementation speaks both. */
export function makeMatrixServer(sdk: ServerSdk, era: Era): MatrixServer {
  switch (sdk) {
    case "SDK v1":
      return new MatrixServerV1();
    case "SDK v2":
      return new MatrixServerV2(era);
    case "SDK v2 in both eras":
      return new DualEraMatrixServer(era);
    case "raw":
      return new RawMatrixServer(era);
  }
}

/** A server without an SDK. */
class RawMatrixServer extends MatrixServer {
  readonly era: Era;
  readonly #behaviour: ServerBehaviour;

  constructor(era: Era) {
    super();
    this.era = era;
    this.#behaviour = new ServerBehaviour(era);
  }

  get cancelled(): readonly string[] {
    return this.#behaviour.cancelled;
  }

  get metas(): readonly Params[] {
    return this.#behaviour.metas;
  }

  override connect(): Transport {
    return connectRawServer(this.#behaviour, this.addError);
  }
}

type SdkNotification = Parameters<McpServerV1["server"]["notification"]>[0];
type SdkServerRequest = Parameters<McpServerV1["server"]["request"]>[0];

/** The same behaviour on SDK v1. */
class MatrixServerV1 extends MatrixServer {
  readonly era = "legacy";
  readonly #behaviour = new ServerBehaviour("legacy");

  get cancelled(): readonly string[] {
    return this.#behaviour.cancelled;
  }

  get metas(): readonly Params[] {
    return this.#behaviour.metas;
  }

  override connect(): Transport {
    const behaviour = this.#behaviour;
    const info = { name: "v1", version: "1.0.0" };
    const instructions = "Call whatever there is.";
    // oxlint-disable-next-line typescript/no-deprecated -- the other one would write again what is answered
    const server = new ServerV1(info, { capabilities: behaviour.capabilities, instructions });
    behaviour.notifyChange = (method, params) =>
      void server.notification({ method, params } as SdkNotification).catch(this.addError);
    server.fallbackRequestHandler = async ({ method, params = {} }, { signal, ...extra }) => {
      const notify = (name: string, what: object): void =>
        void extra
          .sendNotification({ method: name, params: what } as SdkNotification)
          .catch(this.addError);
      const call = {
        method,
        params,
        signal,
        notify,
        log: (level: string, data: unknown) =>
          notify("notifications/message", { level, logger: "tools", data }),
        requestInput: (_key: string, name: string, what: object): Promise<Params> =>
          extra.sendRequest({ method: name, params: what } as SdkServerRequest, ResultSchema),
      };
      return behaviour.answer(call);
    };
    const [ours, theirs] = makeSdkTransportPair(this.addError);
    // The SDK's type lacks `| undefined` on optional members.
    void server.connect(theirs as Parameters<typeof server.connect>[0]).catch(this.addError);
    return ours;
  }
}

type SdkTransport = Parameters<McpServer["connect"]>[0];

/** The everything server of the conformance suites with further tools, on SDK v2. */
class MatrixServerV2 extends MatrixServer {
  readonly era: Era;
  readonly cancelled: string[] = [];
  readonly metas: Params[] = [];

  constructor(era: Era) {
    super();
    this.era = era;
  }

  override connect(): Transport {
    const [ours, theirs] = makeSdkTransportPair(this.addError);
    this.serve(theirs);
    return ours;
  }

  protected serve(transport: SdkTransport): void {
    const onerror = this.addError;
    if (this.era === "legacy") void this.makeServer("legacy").connect(transport).catch(onerror);
    else serveStdio(({ era }) => this.makeServer(era), { legacy: "reject", transport, onerror });
  }

  protected makeServer(era: Era): McpServer {
    const server = createServer({ era });
    const more = { description: "Is there for the matrix." };
    server.registerTool("test_url", more, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind === "elicit") return textResult(JSON.stringify(answer));
      const asked = { message: "Go there", url: "http://127.0.0.1/there" };
      return inputRequired({ inputRequests: { answer: inputRequired.elicitUrl(asked) } });
    });
    server.registerTool("test_roots", more, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind === "roots") return textResult(JSON.stringify(answer));
      return inputRequired({ inputRequests: { answer: inputRequired.listRoots() } });
    });
    server.registerTool("test_meta", more, ({ mcpReq: { _meta = {}, envelope = {} } }) => {
      this.metas.push({ ..._meta, ...envelope });
      return { ...textResult("seen"), _meta: { "example.org/own": 1.5 } };
    });
    server.registerTool("test_wait", more, async ({ mcpReq: { signal } }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      this.cancelled.push("test_wait");
      return textResult("It was cancelled.");
    });
    server.registerPrompt("test_asking", more, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, "answer");
      if (answer.kind !== "elicit")
        return inputRequired({ inputRequests: { answer: NAME_ELICITATION } });
      const content = { type: "text" as const, text: JSON.stringify(answer) };
      return { messages: [{ role: "user", content }] };
    });
    server.registerResource(
      "asking",
      ELICITING_URI,
      more,
      (_uri, { mcpReq: { inputResponses } }) => {
        const answer = inputResponse(inputResponses, "answer");
        if (answer.kind !== "elicit")
          return inputRequired({ inputRequests: { answer: NAME_ELICITATION } });
        return { contents: [{ uri: ELICITING_URI, text: JSON.stringify(answer) }] };
      },
    );
    server.registerPrompt("test_fail", { ...more, argsSchema: CODE_SCHEMA }, ({ code }) => {
      throw new ProtocolError(Number(code), "It failed.", { detail: 1.5 });
    });
    return server;
  }
}

/** The same in both eras, as most servers on SDK v2 are. */
class DualEraMatrixServer extends MatrixServerV2 {
  override get eraSetting(): "auto" {
    return "auto";
  }

  protected override serve(transport: SdkTransport): void {
    const make = ({ era }: { readonly era: Era }): McpServer => {
      if (era !== this.era) this.addError(`It was spoken to in the ${era} era`);
      return this.makeServer(era);
    };
    serveStdio(make, { transport, onerror: this.addError });
  }
}

const NAME_ELICITATION = inputRequired.elicit({
  message: "Who are you?",
  requestedSchema: { type: "object", properties: { name: { type: "string" } } },
});

const CODE_SCHEMA = fromJsonSchema<{ readonly code: string }>({
  type: "object",
  properties: { code: { type: "string" } },
  required: ["code"],
});
