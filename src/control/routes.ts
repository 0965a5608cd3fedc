import type { Context, Hono } from "hono";
import {
  type Answer,
  type Body,
  type Endpoint,
  ENDPOINTS,
  type EndpointStatus,
  type Params,
  type Query,
  type QueryTypes,
  type Route,
  type StreamRoute,
  type VerbatimRoute,
} from "./endpoints.ts";
import {
  parseCallDetail,
  parseDurationParam,
  parseKinds,
  parseLogLevel,
  parseNumberParam,
  parseWait,
  readBody,
} from "./requests.ts";
import { DOCUMENTS } from "./schemas.ts";

/** A request to an endpoint, after it was checked by the table of endpoints. */
export interface EndpointRequest<R extends Route> {
  readonly params: Params<R>;
  readonly query: Query<R>;
  readonly body: Body<R>;
  /** The text of the body. */
  readonly text: string;
  /** Aborted when the client has gone. */
  readonly signal: AbortSignal;
}

/** A document before it is serialized, in whose parts, too, members may be undefined: JSON leaves those out. */
export type Unsent<T> = T extends readonly (infer Item)[]
  ? readonly Unsent<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Unsent<T[Key]> | undefined }
    : T;

/** An answer with another status than the first one that its endpoint declares. */
export class Reply<Status extends number, Document> {
  readonly status: Status;
  readonly document: Document;

  constructor(status: Status, document: Document) {
    this.status = status;
    this.document = document;
  }
}

type StatusOf<R extends Route> = (typeof ENDPOINTS)[R] extends {
  readonly statuses: readonly (infer Status extends EndpointStatus)[];
}
  ? Status
  : never;

type HandlerAnswer<R extends Route> = R extends StreamRoute
  ? ReadableStream<Uint8Array>
  : R extends VerbatimRoute
    ? string
    : Answer<R> extends undefined
      ? void
      : | Unsent<Answer<R>>
        | Reply<StatusOf<R>, Unsent<Answer<R>> | undefined>
        // An error with more members than its code and message.
        | Reply<409, object>;

type Handler<R extends Route> = (
  request: EndpointRequest<R>,
) => HandlerAnswer<R> | Promise<HandlerAnswer<R>>;

/** One handler for each endpoint. @throws {HubError} with the code whose `http` is the status of the answer */
export type Handlers = { readonly [R in Route]: Handler<R> };

const EVENT_STREAM = {
  "Content-Type": "text/event-stream",
  "Cache-Control": "no-cache, no-transform",
};

/**
 * Adds the route of each endpoint.
 * @param clean removes secrets from the texts of a document
 */
export function addRoutes(
  api: Hono,
  handlers: Handlers,
  clean: (document: object) => object,
): void {
  for (const [route, endpoint] of Object.entries<Endpoint>(ENDPOINTS)) {
    const [method = "", path = ""] = route.split(" ");
    // The table and the handlers have the same keys, and the types of a handler follow from its row.
    const handle = handlers[route as Route] as (request: unknown) => unknown;
    api.on(method, endpoint.hasSlashes ? `${path}{.+}` : path, async (c) => {
      const { body: name } = endpoint;
      const answer = await handle({
        params: c.req.param(),
        query: parseQuery(c, endpoint.query ?? {}),
        body: name === undefined ? undefined : await readBody(c, DOCUMENTS[name]),
        text: name === undefined ? "" : await c.req.text(),
        signal: c.req.raw.signal,
      });
      return respond(c, endpoint, answer, clean);
    });
  }
}

function respond(
  c: Context,
  endpoint: Endpoint,
  answer: unknown,
  clean: (document: object) => object,
): Response {
  if (answer instanceof ReadableStream) return c.body(answer, 200, EVENT_STREAM);
  if (typeof answer === "string")
    return c.body(answer, 200, { "Content-Type": "application/json" });
  if (answer instanceof Reply) {
    const { status, document } = answer as Reply<200 | 409, object | undefined>;
    return c.json(clean(document ?? {}), status);
  }
  const { statuses: [status] = [endpoint.answer === undefined ? 204 : 200] } = endpoint;
  if (status === 204) return c.body(null, status);
  return c.json(clean((answer as object | undefined) ?? {}), status);
}

type Parsers = {
  readonly [Kind in Exclude<keyof QueryTypes, "texts">]: (
    text: string,
    name: string,
  ) => QueryTypes[Kind];
};

const PARSERS: Parsers = {
  text: (text) => text,
  number: parseNumberParam,
  duration: parseDurationParam,
  wait: parseWait,
  flag: (text) => text === "true",
  level: parseLogLevel,
  kinds: parseKinds,
  calls: parseCallDetail,
  eventNumber: parseNumberParam,
};

/** @throws {HubError} invalidParams */
function parseQuery(c: Context, declared: NonNullable<Endpoint["query"]>): object {
  const parsed = Object.entries(declared).map(([name, kind]) => {
    if (kind === "texts") return [name, c.req.queries(name)];
    const last = kind === "eventNumber" ? c.req.header("Last-Event-ID") : undefined;
    const text = c.req.query(name) ?? last;
    return [name, text === undefined ? undefined : PARSERS[kind](text, name)];
  });
  return Object.fromEntries(parsed) as object;
}
