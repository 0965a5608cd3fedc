import type { Era } from "../../src/protocol/modern.ts";
import { ask } from "../fixtures/web-adapter.ts";
import type { Hub } from "../../src/hub/hub.ts";
import type { HttpServer } from "../../src/frontend/http/server.ts";
import type { Params } from "./server-behaviour.ts";

/** The requests and notifications that a client received, in either era. */
export interface Heard {
  readonly asked: { readonly method: string; readonly params: Params }[];
  readonly logs: Params[];
  readonly updated: string[];
  /** Methods of received list_changed notifications. */
  readonly changed: string[];
}

export interface CallOptions {
  readonly onprogress?: (progress: number) => void;
  readonly signal?: AbortSignal;
  readonly meta?: Readonly<Record<string, unknown>>;
}

export const LISTED = {
  tools: "tools/list",
  prompts: "prompts/list",
  resources: "resources/list",
  resourceTemplates: "resources/templates/list",
} as const;
export type Listed = keyof typeof LISTED;

/** A client of the hub with one interface for both eras. */
export interface Guest {
  readonly era: Era;
  readonly heard: Heard;
  /** The content of its `initialize` or `server/discover` result. */
  readonly introduction: {
    readonly capabilities: object;
    readonly instructions: string | undefined;
  };
  /** Lists all pages. */
  list(what: Listed): Promise<readonly Params[]>;
  /** Sends a request. Rejects with an error that has a `code`. */
  request(method: string, params: object, options?: CallOptions): Promise<Params>;
  /** Subscribes to a resource, and in the modern era to changes of the tool list. */
  subscribe(uri: string): Promise<void>;
  /** Sets the minimum log level from now on. */
  setLevel(level: "debug" | "info" | "error"): Promise<void>;
  close(): Promise<void>;
}

export type Side = "stdio" | "HTTP";

/** How a client connects to the hub. */
export interface Entrance {
  readonly side: Side;
  readonly hub: Hub;
  readonly face: HttpServer;
}

/** The capabilities of all clients. */
export const CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} };
export const INFO = { name: "guest", version: "1.0.0" };

/** Records a server's request and returns the answer of all clients. */
export function answerTo(heard: Heard, method: string, params: Params): object {
  heard.asked.push({ method, params });
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
export function hear({ logs, updated, changed }: Heard, method: string, params: Params): void {
  if (method === "notifications/message") logs.push(params);
  else if (method === "notifications/resources/updated") updated.push(String(params["uri"]));
  else if (method.endsWith("list_changed")) changed.push(method);
}

export function hearNothing(): Heard {
  return { asked: [], logs: [], updated: [], changed: [] };
}

const URL = "http://127.0.0.1:8700/mcp";

/** A fetch function that passes requests to the HTTP server in process. */
export function fetchFrom(face: HttpServer) {
  return async (_url: string | globalThis.URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    headers.set("Host", "127.0.0.1:8700");
    const response = await ask(face, new Request(URL, { ...init, headers }));
    const { signal } = init;
    if (response.body === null || !signal) return response;
    // Aborting the request also cancels reading the response.
    return new Response(response.body.pipeThrough(new TransformStream(), { signal }), response);
  };
}

/** Collects all pages of a list. */
export async function listAll(
  what: Listed,
  request: (method: string, params: object) => Promise<Params>,
): Promise<readonly Params[]> {
  const items: Params[] = [];
  let cursor: unknown;
  do {
    const result = await request(LISTED[what], cursor === undefined ? {} : { cursor });
    items.push(...(result[what] as Params[]));
    cursor = result["nextCursor"];
  } while (cursor !== undefined);
  return items;
}
