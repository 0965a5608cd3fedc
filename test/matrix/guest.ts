import type { Era } from "../../src/protocol/modern.ts";
import { ask } from "../fixtures/web.ts";
import type { Hub } from "../../src/hub/hub.ts";
import type { HttpServer } from "../../src/frontend/http/server.ts";
import type { Params } from "./kit.ts";

/** Everything that a client was asked and told, whatever its era. */
export interface Heard {
  readonly asked: { readonly method: string; readonly params: Params }[];
  readonly logs: Params[];
  readonly updated: string[];
  /** Methods of what it was told of lists. */
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

/** A client before the hub, as the cells use it: what its era spells otherwise is its own business. */
export interface Guest {
  readonly era: Era;
  readonly heard: Heard;
  /** What it was told when it came. */
  readonly introduction: {
    readonly capabilities: object;
    readonly instructions: string | undefined;
  };
  /** All pages. */
  list(what: Listed): Promise<readonly Params[]>;
  /** Any request. Rejects with something that has a code. */
  request(method: string, params: object, options?: CallOptions): Promise<Params>;
  /** Listens to a resource, and to lists. */
  subscribe(uri: string): Promise<void>;
  /** From now on it wants to hear of such logs. */
  setLevel(level: "debug" | "info" | "error"): Promise<void>;
  close(): Promise<void>;
}

export type Side = "stdio" | "HTTP";

/** How a client comes to the hub. */
export interface Entrance {
  readonly side: Side;
  readonly hub: Hub;
  readonly face: HttpServer;
}

/** What it says that it can be asked for. */
export const CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} };
export const INFO = { name: "guest", version: "1.0.0" };

/** What any client answers to what it is asked; noted. */
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

/** Notes what a client is told of its own accord. */
export function hear({ logs, updated, changed }: Heard, method: string, params: Params): void {
  if (method === "notifications/message") logs.push(params);
  else if (method === "notifications/resources/updated") updated.push(String(params["uri"]));
  else if (method.endsWith("list_changed")) changed.push(method);
}

export function hearNothing(): Heard {
  return { asked: [], logs: [], updated: [], changed: [] };
}

const URL = "http://127.0.0.1:8700/mcp";

/** Gives a request to a face without a network. */
export function fetchFrom(face: HttpServer) {
  return async (_url: string | globalThis.URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    headers.set("Host", "127.0.0.1:8700");
    const response = await ask(face, new Request(URL, { ...init, headers }));
    const { signal } = init;
    if (response.body === null || !signal) return response;
    // Who does not want an answer any more stops reading it.
    return new Response(response.body.pipeThrough(new TransformStream(), { signal }), response);
  };
}

/** All pages of a list. */
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
