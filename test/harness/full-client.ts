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
import type { CallOptions, Program, ToolResult } from "./sdk-client.ts";

export const SDK_NAMES = ["SDK v1", "SDK v2"] as const;
export type SdkName = (typeof SDK_NAMES)[number];

/** A command to start, or the URL of a running server. */
export type Reach = Program | string;

type Params = Readonly<Record<string, unknown>>;

/** The requests and notifications that one client has received from servers. */
export interface Heard {
  readonly asked: { readonly method: string; readonly params: Params }[];
  readonly logs: { readonly level: string; readonly logger?: string; readonly data: unknown }[];
  readonly updated: string[];
  /** Ids of `notifications/elicitation/complete`. */
  readonly visited: string[];
  /** Methods of received requests that were cancelled. */
  readonly withdrawn: string[];
}

/** The methods of both SDKs' clients that `FullClient` uses; the SDKs type them differently. */
interface Methods {
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

/** An SDK client that declares sampling, elicitation and roots, and records what it receives. */
export interface FullClient extends Heard {
  readonly sdk: Methods;
  call(name: string, args?: Record<string, unknown>, options?: CallOptions): Promise<ToolResult>;
  /** Waits until `find` returns a value; it is polled. */
  until<Found>(what: string, look: () => Found | undefined): Promise<Found>;
  close(): Promise<void>;
}

/** Its capabilities, the same for both SDKs. */
const CAPABILITIES = {
  sampling: { tools: {}, context: {} },
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
};

/** Connects a client that puts `name` into all answers. With "pending" it answers no elicitation until cancelled. */
export async function connectFull(
  sdk: SdkName,
  reach: Reach,
  name = "full-client",
  mood: "prompt" | "pensive" = "prompt",
): Promise<FullClient> {
  const heard: Heard = { asked: [], logs: [], updated: [], visited: [], withdrawn: [] };
  const answers = answersOf(name, mood, heard);
  const info = { name, version: "1.0.0" };
  if (sdk === "SDK v1") {
    const client = new ClientV1(info, { capabilities: CAPABILITIES });
    client.setRequestHandler(CreateMessageRequestSchema, answers.sample);
    client.setRequestHandler(ElicitRequestSchema, answers.elicit);
    client.setRequestHandler(ListRootsRequestSchema, answers.roots);
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
      heard.logs.push(params as Heard["logs"][number]);
    });
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      heard.updated.push(params.uri);
    });
    client.setNotificationHandler(ElicitationCompleteNotificationSchema, ({ params }) => {
      heard.visited.push(params.elicitationId);
    });
    const link =
      typeof reach === "string"
        ? new HttpV1(new URL(reach))
        : new StdioV1({ ...reach, stderr: "ignore" });
    await client.connect(link);
    return full(client, heard, {
      call: async (tool, args, options) =>
        (await client.callTool({ name: tool, arguments: args }, undefined, options)) as ToolResult,
      close: async () => {
        if (link instanceof HttpV1) await link.terminateSession();
        await client.close();
      },
    });
  }
  const client = new ClientV2(info, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode: "legacy" },
  });
  client.setRequestHandler("sampling/createMessage", answers.sample);
  client.setRequestHandler("elicitation/create", (request, { mcpReq }) =>
    answers.elicit(request, mcpReq),
  );
  client.setRequestHandler("roots/list", answers.roots);
  client.setNotificationHandler("notifications/message", ({ params }) => {
    heard.logs.push(params as Heard["logs"][number]);
  });
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
    heard.updated.push(params.uri);
  });
  client.setNotificationHandler("notifications/elicitation/complete", ({ params }) => {
    heard.visited.push(params.elicitationId);
  });
  const link =
    typeof reach === "string"
      ? new HttpV2(new URL(reach))
      : new StdioV2({ ...reach, stderr: "ignore" });
  await client.connect(link);
  return full(client, heard, {
    call: async (tool, args, options) =>
      await client.callTool({ name: tool, arguments: args }, options),
    close: async () => {
      if (link instanceof HttpV2) await link.terminateSession();
      await client.close();
    },
  });
}

/** The request handlers of a client called `name`. */
function answersOf(name: string, mood: "prompt" | "pensive", { asked, withdrawn }: Heard) {
  const note = ({ method, params }: { method: string; params?: unknown }): void => {
    asked.push({ method, params: (params ?? {}) as Params });
  };
  return {
    sample: (request: { method: string; params?: unknown }) => {
      note(request);
      const content = { type: "text" as const, text: `sampled by ${name}` };
      return { model: "none", role: "assistant" as const, content, stopReason: "endTurn" as const };
    },
    elicit: async (
      request: { method: string; params: { mode?: string | undefined } },
      { signal }: { readonly signal: AbortSignal },
    ) => {
      note(request);
      if (mood === "pensive") {
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        withdrawn.push(request.method);
        return { action: "cancel" as const };
      }
      return request.params.mode === "url"
        ? { action: "accept" as const }
        : { action: "accept" as const, content: { name, check: true, value: true } };
    },
    roots: (request: { method: string; params?: unknown }) => {
      note(request);
      return { roots: [{ uri: `file:///${name}`, name }] };
    },
  };
}

function full(
  sdk: Methods,
  heard: Heard,
  own: { call: Required<FullClient>["call"]; close: FullClient["close"] },
): FullClient {
  const until: FullClient["until"] = (what, look) =>
    poll(10_000, () => `${what}; heard: ${JSON.stringify(heard)}`, look);
  return {
    ...heard,
    ...own,
    call: (name, args = {}, options) => own.call(name, args, options),
    sdk,
    until,
  };
}

/** The text content of a result, one block per line. */
export function textOf(result: ToolResult): string {
  return result.content.map(({ text = "" }) => text).join("\n");
}
