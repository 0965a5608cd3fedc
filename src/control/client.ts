import type {
  Answer,
  Body,
  Declared,
  Params,
  QueryTypes,
  Route,
  StreamRoute,
  VerbatimRoute,
} from "./endpoints.ts";

/** A request to the control API as it is sent. */
export interface ApiRequest {
  readonly method: string;
  /** The path below `API_PATH`, with its query. */
  readonly path: string;
  /** JSON text. */
  readonly body: string | undefined;
}

/** The value of a parameter in a query as a caller gives it; a duration is a text such as `30s`. */
type QueryValue<Kind> = Kind extends "texts"
  ? readonly string[]
  : Kind extends "flag"
    ? boolean
    : Kind extends "number" | "eventNumber"
      ? number
      : Kind extends keyof QueryTypes
        ? string
        : never;

type ParamsInput<R extends Route> = keyof Params<R> extends never
  ? object
  : { readonly params: Params<R> };

type QueryInput<R extends Route> =
  Declared<R> extends { readonly query: infer Kinds }
    ? {
        readonly query?: { readonly [Name in keyof Kinds]?: QueryValue<Kinds[Name]> | undefined };
      }
    : object;

/** `json`: the body as JSON text, which is sent as it is, for endpoints that keep it as it is. */
type BodyInput<R extends Route> =
  Body<R> extends undefined
    ? object
    : R extends VerbatimRoute
      ? { readonly body: Body<R> } | { readonly json: string }
      : { readonly body: Body<R> };

/** What a request to an endpoint carries: the parameters of its path, its query, its body. */
export type Input<R extends Route> = ParamsInput<R> & QueryInput<R> & BodyInput<R>;

/** The input as the last arguments of a function; it can be left out if it has no member that is needed. */
export type InputArguments<R extends Route> =
  object extends Input<R> ? readonly [input?: Input<R>] : readonly [input: Input<R>];

/** The input of a request to any endpoint. */
interface AnyInput {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, Scalar | readonly string[] | undefined>>;
  readonly body?: unknown;
  readonly json?: string;
}

type Scalar = string | number | boolean;

/** Makes the request to an endpoint. */
function requestTo(route: Route, { params, query = {}, body, json }: AnyInput): ApiRequest {
  const [method = "", pattern = ""] = route.split(" ");
  const path = pattern.replaceAll(/:(\w+)/g, (_, name: string) =>
    encodeURIComponent(params?.[name] ?? ""),
  );
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const one of [value].flat()) if (one !== undefined) search.append(name, String(one));
  return {
    method,
    path: search.size === 0 ? path : `${path}?${search.toString()}`,
    body: json ?? (body === undefined ? undefined : JSON.stringify(body)),
  };
}

/** The answer to a request: its document, or what `send` makes of a failure. */
export type Sent<Document, Failure> = { readonly kind: "ok"; readonly value: Document } | Failure;

/** A client of the control API, whose inputs and answers have the types of the table of endpoints. */
export type ControlClient<Failure> = <R extends Exclude<Route, StreamRoute>>(
  route: R,
  ...input: InputArguments<R>
) => Promise<Sent<Answer<R>, Failure>>;

/**
 * Makes a client of the control API. It trusts a hub to answer as the table says.
 * @param send sends a request, and reads the JSON document of its answer
 */
export function controlClient<Failure>(
  send: (request: ApiRequest) => Promise<Sent<unknown, Failure>>,
): ControlClient<Failure> {
  return async (route, ...input) =>
    (await send(requestTo(route, input[0] ?? {}))) as Sent<Answer<typeof route>, Failure>;
}
