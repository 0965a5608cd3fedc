import {
  Client as ClientV2,
  StreamableHTTPClientTransport as HttpV2,
} from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitationCompleteNotificationSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { poll } from "./wait.ts";
import type { CallOptions, StdioCommand, ToolResult } from "./sdk-client.ts";

export const SDK_NAMES = ["SDK v1", "SDK v2"] as const;
export type SdkName = (typeof SDK_NAMES)[number];

/** A command to start, or the URL of a running server. */
export type ConnectTarget = StdioCommand | string;

type Params = Readonly<Record<string, unknown>>;

/** The requests and notifications that one client has received from servers. */
export interface ReceivedFromServers {
  readonly requests: { readonly method: string; readonly params: Params }[];
  readonly logs: { readonly level: string; readonly logger?: string; readonly data: unknown }[];
  readonly updatedUris: string[];
  /** Ids of `notifications/elicitation/complete`. */
  readonly completedElicitations: string[];
  /** Methods of received requests that were cancelled. */
  readonly cancelledMethods: string[];
}

/** The methods of both SDKs' clients that `FullClient` uses; the SDKs type them differently. */
interface SdkMethods {
  listTools(): Promise<{ tools: { name: string }[] }>;
  listPrompts(): Promise<{ prompts: { name: string }[] }>;
  getPrompt(params: { name: string; arguments?: Record<string, string> }): Promise<{
    messages: { content: unknown }[];
  }>;
  listResources(): Promise<{ resources: { uri: string }[] }>;
  listResourceTemplates(): Promise<{ resourceTemplates: { uriTemplate: string }[] }>;
  readResource(params: { uri: string }): Promise<{ contents: { uri: string; text?: string }[] }>;
  subscribeResource(params: { uri: string }): Promise<unknown>;
  unsubscribeResource(params: { uri: string }): Promise<unknown>;
  complete(params: {
    ref: { type: "ref/prompt"; name: string } | { type: "ref/resource"; uri: string };
    argument: { name: string; value: string };
    context?: { arguments: Record<string, string> };
  }): Promise<{ completion: { values: string[] } }>;
  setLoggingLevel(level: "debug" | "info" | "warning" | "emergency"): Promise<unknown>;
  sendRootsListChanged(): Promise<void>;
  getInstructions(): string | undefined;
}

interface Manner {
  /** It answers no elicitation until that is cancelled. */
  isPensive: boolean;
}

/** An SDK client that declares sampling, elicitation and roots, and records what it receives. */
export interface FullClient extends ReceivedFromServers {
  readonly sdk: SdkMethods;
  readonly manner: Manner;
  call(name: string, args?: Record<string, unknown>, options?: CallOptions): Promise<ToolResult>;
  /** Waits until `find` returns a value; it is polled. */
  until<Found>(what: string, find: () => Found | undefined): Promise<Found>;
  close(): Promise<void>;
}

/** Its capabilities, the same for both SDKs. */
const CAPABILITIES = {
  sampling: { tools: {}, context: {} },
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
};

/** Connects a client that puts `name` into all answers. */
export async function connectFullClient(
  sdk: SdkName,
  target: ConnectTarget,
  name = "full-client",
): Promise<FullClient> {
  const received: ReceivedFromServers = {
    requests: [],
    logs: [],
    updatedUris: [],
    completedElicitations: [],
    cancelledMethods: [],
  };
  const manner: Manner = { isPensive: false };
  const handlers = requestHandlersOf(name, manner, received);
  const info = { name, version: "1.0.0" };
  if (sdk === "SDK v1") {
    const client = new ClientV1(info, { capabilities: CAPABILITIES });
    client.setRequestHandler(CreateMessageRequestSchema, handlers.createMessage);
    client.setRequestHandler(ElicitRequestSchema, handlers.elicit);
    client.setRequestHandler(ListRootsRequestSchema, handlers.roots);
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
      received.logs.push(params as ReceivedFromServers["logs"][number]);
    });
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      received.updatedUris.push(params.uri);
    });
    client.setNotificationHandler(ElicitationCompleteNotificationSchema, ({ params }) => {
      received.completedElicitations.push(params.elicitationId);
    });
    const transport =
      typeof target === "string"
        ? new HttpV1(new URL(target))
        : new StdioV1({ ...target, stderr: "ignore" });
    await client.connect(transport);
    return makeFullClient(client, received, manner, {
      call: async (tool, args, options) =>
        (await client.callTool({ name: tool, arguments: args }, undefined, options)) as ToolResult,
      close: async () => {
        if (transport instanceof HttpV1) await transport.terminateSession();
        await client.close();
      },
    });
  }
  const client = new ClientV2(info, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode: "legacy" },
  });
  client.setRequestHandler("sampling/createMessage", handlers.createMessage);
  client.setRequestHandler("elicitation/create", (request, { mcpReq }) =>
    handlers.elicit(request, mcpReq),
  );
  client.setRequestHandler("roots/list", handlers.roots);
  client.setNotificationHandler("notifications/message", ({ params }) => {
    received.logs.push(params as ReceivedFromServers["logs"][number]);
  });
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
    received.updatedUris.push(params.uri);
  });
  client.setNotificationHandler("notifications/elicitation/complete", ({ params }) => {
    received.completedElicitations.push(params.elicitationId);
  });
  const transport =
    typeof target === "string"
      ? new HttpV2(new URL(target))
      : new StdioV2({ ...target, stderr: "ignore" });
  await client.connect(transport);
  return makeFullClient(client, received, manner, {
    call: async (tool, args, options) =>
      await client.callTool({ name: tool, arguments: args }, options),
    close: async () => {
      if (transport instanceof HttpV2) await transport.terminateSession();
      await client.close();
    },
  });
}

/** The request handlers of a client called `name`. */
function requestHandlersOf(
  name: string,
  manner: Manner,
  { requests, cancelledMethods }: ReceivedFromServers,
) {
  const record = ({ method, params }: { method: string; params?: unknown }): void => {
    requests.push({ method, params: (params ?? {}) as Params });
  };
  return {
    createMessage: (request: { method: string; params?: unknown }) => {
      record(request);
      const content = { type: "text" as const, text: `sampled by ${name}` };
      return { model: "none", role: "assistant" as const, content, stopReason: "endTurn" as const };
    },
    elicit: async (
      request: { method: string; params: { mode?: string | undefined } },
      { signal }: { readonly signal: AbortSignal },
    ) => {
      record(request);
      if (manner.isPensive) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        cancelledMethods.push(request.method);
        return { action: "cancel" as const };
      }
      return request.params.mode === "url"
        ? { action: "accept" as const }
        : { action: "accept" as const, content: { name, check: true, value: true } };
    },
    roots: (request: { method: string; params?: unknown }) => {
      record(request);
      return { roots: [{ uri: `file:///${name}`, name }] };
    },
  };
}

function makeFullClient(
  sdk: SdkMethods,
  received: ReceivedFromServers,
  manner: Manner,
  sdkCalls: { call: Required<FullClient>["call"]; close: FullClient["close"] },
): FullClient {
  const until: FullClient["until"] = (what, find) =>
    poll(10_000, () => `${what}; heard: ${JSON.stringify(received)}`, find);
  return {
    ...received,
    ...sdkCalls,
    call: (name, args = {}, options) => sdkCalls.call(name, args, options),
    sdk,
    manner,
    until,
  };
}

/** The text content of a result, one block per line. */
export function textOf(result: ToolResult): string {
  return result.content.map(({ text = "" }) => text).join("\n");
}
