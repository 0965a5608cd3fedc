import type { EventKind, LogLevel } from "../base/hub-events.ts";
import type { CallDetail, Document, DocumentName } from "./schemas.ts";

/**
 * The endpoints of the control API. From this table follow the routes and their validation (`routes.ts`), the JSON
 * Schema (`json-schema.ts`), the table in docs/control-api.md, and the typed client (`client.ts`). It is plain data,
 * which loads nothing.
 */

/** A parameter in the query of a request, as it is parsed. Durations are in ms; `wait`: at most 10 minutes. */
export interface QueryTypes {
  readonly text: string;
  /** The values of a parameter that may be given several times. */
  readonly texts: readonly string[];
  /** A whole number. */
  readonly number: number;
  readonly duration: number;
  readonly wait: number;
  /** Whether the value is `true`. */
  readonly flag: boolean;
  readonly level: LogLevel;
  /** Kinds of events, with commas between them; `call` stands for all events of calls. */
  readonly kinds: readonly EventKind[];
  readonly calls: CallDetail;
  /** The number of an event, also in the header Last-Event-ID. */
  readonly eventNumber: number;
}

/** The success statuses of answers. 204: without a body. */
export type EndpointStatus = 200 | 201 | 202 | 204;

/** What an endpoint takes, and what it answers with. Any of them may answer with `Error`. */
export interface Endpoint {
  /** What a request does, as a sentence without its subject. */
  readonly says: string;
  /** Whether the last parameter in the path may have slashes. */
  readonly hasSlashes?: true;
  readonly query?: Readonly<Record<string, keyof QueryTypes>>;
  readonly body?: DocumentName;
  /** A document, an object with a list of documents or of names, or any object; absent: nothing. */
  readonly answer?: DocumentName | "object" | Readonly<Record<string, DocumentName | "names">>;
  /** Whether the handler makes the JSON text of the answer, which is sent as it is. */
  readonly isVerbatim?: true;
  /** The documents that the answer streams as server-sent events. */
  readonly events?: DocumentName;
  /** Default: 200; 204 if nothing is answered. */
  readonly statuses?: readonly [EndpointStatus, ...EndpointStatus[]];
}

const LOG_QUERY = { after: "number", limit: "number", level: "level" } as const;

/**
 * The endpoints by method and path (below `API_PATH`). The first one that fits a request answers it, so a path with a
 * name stands before the one that has a parameter in its place.
 */
export const ENDPOINTS = {
  "GET /hub": { answer: "Hub", says: "says which hub this is" },
  "GET /servers": { answer: { servers: "Server" }, says: "lists the servers" },
  "POST /servers": {
    body: "AddServer",
    answer: "Server",
    statuses: [200, 201],
    says: "adds a server, or replaces its entry",
  },
  "POST /servers/reconnect-failed": {
    answer: { servers: "names" },
    says: "reconnects all servers that failed or wait",
  },
  "GET /servers/:name": { query: { wait: "wait" }, answer: "Server", says: "describes a server" },
  "PATCH /servers/:name": {
    body: "PatchServer",
    answer: "Server",
    says: "switches a server on or off, or replaces its entry",
  },
  "DELETE /servers/:name": { query: { persist: "flag" }, says: "removes a server" },
  "POST /servers/:name/start": {
    query: { wait: "wait" },
    answer: "Server",
    statuses: [200, 202],
    says: "starts a server",
  },
  "POST /servers/:name/stop": {
    query: { wait: "wait" },
    answer: "Server",
    statuses: [200, 202],
    says: "stops a server until it is started again",
  },
  "POST /servers/:name/reconnect": {
    query: { wait: "wait" },
    answer: "Server",
    statuses: [200, 202],
    says: "starts a server anew at once",
  },
  "POST /servers/:name/cancel": {
    query: { wait: "wait" },
    answer: "Server",
    statuses: [200, 202],
    says: "cancels a server's attempt to connect, or its login",
  },
  "POST /servers/:name/refresh": {
    query: { wait: "wait" },
    answer: "Server",
    statuses: [200, 202],
    says: "lists a server's tools again",
  },
  "GET /servers/:name/entry": {
    answer: "ServerEntry",
    says: "has a server's entry in the manifest, to change it",
  },
  "POST /servers/:name/preview": {
    body: "EntryEdit",
    answer: "EntryPreview",
    says: "checks a changed entry of a server, and writes nothing",
  },
  "GET /servers/:name/log": { query: LOG_QUERY, answer: "Log", says: "has a server's log" },
  "POST /servers/:name/login": {
    query: { wait: "flag" },
    answer: "Login",
    statuses: [200, 202],
    says: "logs in to a server by OAuth",
  },
  "POST /servers/:name/logout": { answer: "Logout", says: "deletes and revokes a server's tokens" },
  "GET /log": {
    query: { server: "texts", ...LOG_QUERY },
    answer: "Log",
    says: "has the log of all servers and of the hub",
  },
  "GET /tools": {
    query: { client: "text", mode: "text" },
    answer: "Tools",
    says: "has the tools that clients see, and why others are hidden",
  },
  "GET /tools/:name": { answer: "Tool", says: "has the definition of a tool" },
  "POST /tools/:name/call": {
    body: "ToolCall",
    answer: "ToolCallAnswer",
    isVerbatim: true,
    says: "calls a tool",
  },
  "GET /find": {
    query: { query: "text", server: "text", limit: "number", mode: "text", explain: "flag" },
    answer: "FoundTools",
    says: "finds tools by what they do, as `search_tools` does",
  },
  "GET /exposures": {
    query: { mode: "text" },
    answer: "ExposureCosts",
    says: "counts the tokens of the tools of each server, and of what clients get with each exposure",
  },
  "GET /catalog": {
    query: { mode: "text" },
    answer: "Catalog",
    says: "has tools, prompts, resources, templates and skills",
  },
  "GET /activity": {
    query: {
      server: "text",
      tool: "text",
      client: "text",
      outcome: "text",
      limit: "number",
      before: "number",
    },
    answer: "Activity",
    says: "has the calls that have ended",
  },
  "GET /activity/:call": {
    answer: "KeptCall",
    says: "has what a plugin, such as `audit-log`, has kept of a call that has ended",
  },
  "GET /usage": {
    query: { window: "duration", points: "number" },
    answer: "Usage",
    says: "counts calls by tool",
  },
  "GET /calls": { answer: { calls: "Call" }, says: "lists the calls that run now" },
  "POST /calls/:call/cancel": { says: "cancels a call" },
  "GET /fleet": { answer: "Fleet", says: "describes the fleet of the hub" },
  "POST /fleet/ping": {
    answer: "Fleet",
    says: "pings all machines of the fleet, and describes it",
  },
  "GET /clients": { answer: { clients: "Client" }, says: "lists the clients" },
  "GET /limits": {
    answer: { limits: "Limit" },
    says: "lists the limits of calls, and what counts against them",
  },
  "POST /limits/:client/reset": {
    says: "forgets the calls that count against a client's rate and quota",
  },
  "GET /alerts": { answer: { alerts: "Alert" }, says: "lists the alerts" },
  "POST /alerts/dismiss": { says: "dismisses all alerts" },
  "POST /alerts/:id/dismiss": { says: "dismisses an alert" },
  "GET /scan": {
    query: { server: "text" },
    answer: { servers: "ServerFindings" },
    says: "has the suspicious texts that the scan found in the definitions of servers",
  },
  "GET /mode": { answer: "Modes", says: "lists the modes, and says which one is in use" },
  "PUT /mode": { body: "ModeChoice", answer: "Modes", says: "switches the mode of all clients" },
  "GET /mode/:name": { answer: "Mode", says: "says what a mode shows" },
  "PUT /clients/:client/mode": {
    body: "ModeChoice",
    answer: "Client",
    says: "switches the mode of one client",
  },
  "GET /approvals": {
    answer: { approvals: "Approval" },
    says: "lists the calls that wait until a person allows them",
  },
  "POST /approvals/accept": {
    body: "AcceptTools",
    says: "takes the tools of a server as they describe themselves now",
  },
  "POST /approvals/:id": { body: "ApprovalAnswer", says: "allows or denies a call that waits" },
  "GET /approvals/remembered": {
    answer: { remembered: "RememberedApproval" },
    says: "lists what was allowed for good or for sessions",
  },
  "DELETE /approvals/remembered": {
    answer: { forgotten: "names" },
    says: "forgets all remembered approvals",
  },
  "DELETE /approvals/remembered/:id": {
    answer: { forgotten: "names" },
    says: "forgets a remembered approval",
  },
  "GET /pins": {
    query: { server: "text" },
    answer: { servers: "Pins" },
    says: "lists what servers list that is not accepted (of one: `?server=`)",
  },
  "POST /pins/accept": {
    body: "PinAcceptance",
    answer: { accepted: "PinnedDefinition" },
    says: "accepts tools, prompts or instructions of a server as they are now",
  },
  "DELETE /pins/:server": {
    says: "forgets what was accepted of a server: what it lists now is accepted",
  },
  "GET /agents": {
    answer: { agents: "Agent" },
    says: "lists the agents of the manifest, and those in files",
  },
  "POST /agents/:name/runs": {
    body: "AgentRunRequest",
    answer: "AgentRun",
    statuses: [201],
    says: "begins a conversation with an agent",
  },
  "GET /runs": { answer: { runs: "AgentRun" }, says: "lists the conversations" },
  "GET /runs/:id": { answer: "AgentRun", says: "describes a conversation" },
  "GET /runs/:id/events": {
    query: { after: "eventNumber" },
    events: "AgentEvent",
    says: "streams what happens in a conversation",
  },
  "POST /runs/:id/message": {
    body: "AgentMessage",
    answer: "AgentRun",
    statuses: [202],
    says: "sends a message to a conversation's agent",
  },
  "POST /runs/:id/cancel": {
    answer: "AgentRun",
    statuses: [202],
    says: "cancels what runs and what waits in a conversation",
  },
  "DELETE /runs/:id": { says: "closes a conversation; it stays kept" },
  "GET /conversations": {
    answer: { conversations: "Conversation" },
    says: "lists the conversations of the user that are kept",
  },
  "POST /conversations/:id/open": {
    answer: "AgentRun",
    says: "opens a conversation that is kept, to go on with it",
  },
  "DELETE /conversations/:id": { says: "forgets a conversation" },
  "GET /events": {
    query: { kinds: "kinds", calls: "calls", after: "eventNumber", watch: "text" },
    events: "Event",
    says: "streams the events",
  },
  "POST /reload": { answer: "Hub", says: "reads the manifest again" },
  "POST /stop": {
    query: { drain: "duration" },
    statuses: [202],
    says: "ends the hub, with `drain` when no attached client has an open request, at the latest after that time",
  },
  "GET /schema": { answer: "object", isVerbatim: true, says: "has the JSON Schemas" },
  "GET /secrets": { answer: "Secrets", says: "has the names of secrets" },
  "PUT /secrets/:name": { hasSlashes: true, body: "SecretValue", says: "stores a secret" },
  "DELETE /secrets/:name": { hasSlashes: true, says: "removes a secret" },
  "GET /registry": {
    query: { query: "text", limit: "number" },
    answer: "Registry",
    says: "searches the registries",
  },
  "POST /trial": { body: "TrialRequest", answer: "Trial", says: "starts a server once" },
  "GET /client-apps": {
    answer: { clients: "ClientApp" },
    says: "lists the MCP clients whose files toolmux knows",
  },
  "GET /client-apps/:name/snippet": {
    query: { http: "text" },
    answer: "Snippet",
    says: "has the entry of toolmux for a client, to copy it",
  },
  "POST /client-apps/:name/install": {
    body: "ClientAppRequest",
    answer: "Installation",
    says: "installs toolmux in a client",
  },
  "POST /client-apps/:name/undo": {
    query: { dryRun: "flag" },
    answer: "Installation",
    says: "takes toolmux out of a client again",
  },
  "POST /check": { answer: "Check", says: "checks the manifest" },
} as const satisfies Readonly<Record<string, Endpoint>>;

/** Method and path of an endpoint, such as `GET /servers/:name`. */
export type Route = keyof typeof ENDPOINTS;

/** The routes at and below a path. */
export type RoutesBelow<Path extends string> = Extract<
  Route,
  `${string} ${Path}` | `${string} ${Path}/${string}`
>;

/** The row of an endpoint. */
export type Declared<R extends Route> = (typeof ENDPOINTS)[R];

type NamesIn<Path extends string> = Path extends `${string}/:${infer Rest}`
  ? Rest extends `${infer Name}/${infer More}`
    ? Name | NamesIn<`/${More}`>
    : Rest
  : never;

/** The parameters in the path of a route. */
export type Params<R extends Route> = { readonly [Name in NamesIn<R>]: string };

/** The query of a request as it is parsed. A parameter that is not given is undefined. */
export type Query<R extends Route> =
  Declared<R> extends { readonly query: infer Q }
    ? { readonly [Name in keyof Q]: QueryTypes[Q[Name] & keyof QueryTypes] | undefined }
    : object;

/** The body of a request; undefined if the endpoint takes none. */
export type Body<R extends Route> =
  Declared<R> extends { readonly body: infer Name extends DocumentName }
    ? Document<Name>
    : undefined;

type ItemOf<Name> = Name extends DocumentName ? Document<Name> : string;

/** The document of an answer; undefined if there is none. */
export type Answer<R extends Route> =
  Declared<R> extends { readonly answer: infer Given }
    ? Given extends DocumentName
      ? Document<Given>
      : Given extends "object"
        ? object
        : { readonly [Member in keyof Given]: readonly ItemOf<Given[Member]>[] }
    : undefined;

/** The routes that answer with a stream of events. */
export type StreamRoute = {
  [R in Route]: Declared<R> extends { readonly events: DocumentName } ? R : never;
}[Route];

/** The routes whose handlers make the JSON text of the answer. */
export type VerbatimRoute = {
  [R in Route]: Declared<R> extends { readonly isVerbatim: true } ? R : never;
}[Route];
