import type { Era } from "../../src/protocol/modern.ts";
import { fetchInProcess } from "../fixtures/web-adapter.ts";
import type { Hub } from "../../src/hub/hub.ts";
import type { HttpServer } from "../../src/frontend/http/server.ts";
import type { Params } from "./server-behaviour.ts";

/** The requests and notifications that a client received, in either era. */
export interface ReceivedMessages {
  readonly requests: { readonly method: string; readonly params: Params }[];
  readonly logs: Params[];
  readonly updatedUris: string[];
  /** Methods of received list_changed notifications. */
  readonly listChanges: string[];
}

export interface CallOptions {
  readonly onprogress?: (progress: number) => void;
  readonly signal?: AbortSignal;
  readonly meta?: Readonly<Record<string, unknown>>;
}

export const LIST_METHODS = {
  tools: "tools/list",
  prompts: "prompts/list",
  resources: "resources/list",
  resourceTemplates: "resources/templates/list",
} as const;
export type ListName = keyof typeof LIST_METHODS;

/** A client of the hub with one interface for both eras. */
export interface MatrixClient {
  readonly era: Era;
  readonly received: ReceivedMessages;
  /** The content of its `initialize` or `server/discover` result. */
  readonly handshake: {
    readonly capabilities: object;
    readonly instructions: string | undefined;
  };
  /** Lists all pages. */
  list(what: ListName): Promise<readonly Params[]>;
  /** Sends a request. Rejects with an error that has a `code`. */
  request(method: string, params: object, options?: CallOptions): Promise<Params>;
  /** Subscribes to a resource, and in the modern era to changes of the tool list. */
  subscribe(uri: string): Promise<void>;
  /** Sets the minimum log level from now on. */
  setLevel(level: "debug" | "info" | "error"): Promise<void>;
  close(): Promise<void>;
}

export type ClientTransportName = "stdio" | "HTTP";

/** How a client connects to the hub. */
export interface HubAccess {
  readonly transport: ClientTransportName;
  readonly hub: Hub;
  readonly server: HttpServer;
}

/** The capabilities of all clients. */
export const CLIENT_CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} };
export const CLIENT_INFO = { name: "guest", version: "1.0.0" };

/** Records a server's request and returns the answer of all clients. */
export function answerServerRequest(
  received: ReceivedMessages,
  method: string,
  params: Params,
): object {
  received.requests.push({ method, params });
  switch (method) {
    case "sampling/createMessage": {
      const content = { type: "text" as const, text: "sampled by the guest" };
      return { model: "none", role: "assistant" as const, content, stopReason: "endTurn" };
    }
    case "elicitation/create":
      return params["mode"] === "url"
        ? { action: "accept" as const }
        : {
            action: "accept" as const,
            content: { name: "guest", username: "guest", email: "g@g" },
          };
    case "roots/list":
      return { roots: [{ uri: "file:///guest", name: "guest" }] };
    default:
      throw new Error(`The guest was asked for ${method}`);
  }
}

/** Records a notification. */
export function recordNotification(
  { logs, updatedUris, listChanges }: ReceivedMessages,
  method: string,
  params: Params,
): void {
  if (method === "notifications/message") logs.push(params);
  else if (method === "notifications/resources/updated") updatedUris.push(String(params["uri"]));
  else if (method.endsWith("list_changed")) listChanges.push(method);
}

export function noMessages(): ReceivedMessages {
  return { requests: [], logs: [], updatedUris: [], listChanges: [] };
}

const ENDPOINT = "http://127.0.0.1:8700/mcp";

/** A fetch function that passes requests to the HTTP server in process. */
export function inProcessFetch(server: HttpServer) {
  return async (_url: string | globalThis.URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    headers.set("Host", "127.0.0.1:8700");
    const response = await fetchInProcess(server, new Request(ENDPOINT, { ...init, headers }));
    const { signal } = init;
    if (response.body === null || !signal) return response;
    // Aborting the request also cancels reading the response.
    return new Response(response.body.pipeThrough(new TransformStream(), { signal }), response);
  };
}

/** Collects all pages of a list. */
export async function listAll(
  what: ListName,
  request: (method: string, params: object) => Promise<Params>,
): Promise<readonly Params[]> {
  const items: Params[] = [];
  let cursor: unknown;
  do {
    const result = await request(LIST_METHODS[what], cursor === undefined ? {} : { cursor });
    items.push(...(result[what] as Params[]));
    cursor = result["nextCursor"];
  } while (cursor !== undefined);
  return items;
}
