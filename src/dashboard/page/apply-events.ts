import type {
  CallDocument,
  ClientDocuments,
  Decision,
  EndedCall,
  HubEvent,
  LogEntryDocument,
  ServerDocument,
  ServerState,
  UpstreamState,
} from "./documents.ts";
import { type DashboardState, isShown, LOG_LINES } from "./state.ts";

/** The data that must be read again: a part of the state, or one server. */
export type Stale =
  | "hub"
  | "servers"
  | "clients"
  | "tools"
  | "modes"
  | "approvals"
  | "pins"
  | "activity"
  | "limits"
  | "fleet"
  | "calls"
  | "everything"
  | `server:${string}`;

const ENDED_CALLS = 200;

/**
 * Applies events to the state. Also returns the data that must be read again. A part that no event changes stays the
 * same object.
 * @param events in the order of their numbers
 */
export function applyEvents(
  state: DashboardState,
  events: readonly HubEvent[],
): { readonly state: DashboardState; readonly stale: ReadonlySet<Stale> } {
  const stale = new Set<Stale>();
  let servers: Map<string, ServerDocument> | undefined;
  let calls: Map<number, CallDocument> | undefined;
  let { clients } = state;
  let { alerts, approvals, refusal } = state;
  const ended: EndedCall[] = [];
  const decisions: Decision[] = [];
  const lines: LogEntryDocument[] = [];
  const changes: LogEntryDocument[] = [];

  const changeServer = (name: string, change: (server: ServerDocument) => object): void => {
    if (state.servers.kind !== "ready") return;
    const server = (servers ?? state.servers.value).get(name);
    if (server === undefined) return;
    servers ??= new Map(state.servers.value);
    servers.set(name, { ...server, ...change(server) });
  };

  for (const event of events) {
    const line = lineOf(event);
    if (line !== undefined && isShown(line, state.log.server)) lines.push(line);
    if (line !== undefined && isChange(line)) changes.push(line);
    switch (event.kind) {
      case "gap":
        stale.add("everything");
        break;
      case "log":
        break;
      case "server":
        if (event.change !== "removed") stale.add("servers");
        else if (state.servers.kind === "ready") {
          servers ??= new Map(state.servers.value);
          servers.delete(event.server);
        }
        break;
      case "state": {
        const { server: name, to, attempt, retryAt, progress, cause } = event;
        stale.add(`server:${name}`);
        changeServer(name, (server) =>
          server.connections.length > 1
            ? {}
            : {
                state: stateAfter(to, cause !== undefined),
                since: event.at,
                attempt,
                retryAt,
                progress,
                lastError: cause ?? server.lastError,
              },
        );
        break;
      }
      case "callStarted": {
        const client = clients.find(({ id }) => id === event.client);
        calls ??= new Map(state.calls);
        calls.set(event.call, {
          ...event,
          clientName: client?.name ?? "",
          ...(client?.principal !== undefined && { principal: client.principal }),
          clientVersion: client?.version ?? "",
          kind: "tools",
          duration: 0,
          waitingFor: "server",
        });
        changeServer(event.server, ({ inFlight, calls: total }) => ({
          inFlight: inFlight + 1,
          calls: total + 1,
          lastTool: event.tool,
        }));
        break;
      }
      case "callFinished":
      case "callCancelled": {
        const running = (calls ?? state.calls).get(event.call);
        calls ??= new Map(state.calls);
        calls.delete(event.call);
        ended.push(endedCall(event, running, clients));
        changeServer(event.server, ({ inFlight }) => ({ inFlight: Math.max(0, inFlight - 1) }));
        stale.add("activity");
        break;
      }
      // Calls are counted: what runs, and the numbers of each server, are not in the events.
      case "calls":
        for (const call of event.last)
          ended.push(
            endedCall({ ...call, kind: "callFinished", outcome: "answered" }, undefined, clients),
          );
        stale.add("calls").add("servers").add("activity");
        break;
      case "catalog":
        stale.add("tools").add("servers").add("modes");
        break;
      case "alert": {
        if (event.alert.kind === "suspiciousText") stale.add("tools");
        const others = alerts.filter(({ id }) => id !== event.alert.id);
        alerts = event.raised ? [...others, event.alert] : others;
        break;
      }
      case "client": {
        stale.add("clients").add("modes");
        // A call of the client may come before the page has read the clients again.
        const { client: id, name, version, principal } = event;
        if (event.change === "changed" && (name ?? principal) !== undefined)
          clients = clients.map((one) =>
            one.id === id
              ? { ...one, name, version, ...(principal !== undefined && { principal }) }
              : one,
          );
        break;
      }
      case "limit":
        stale.add("limits");
        break;
      case "manifest":
        refusal = event.outcome === "refused" ? event.problems : undefined;
        stale.add("hub").add("servers").add("modes").add("limits");
        break;
      case "fleet":
        stale.add("servers").add("fleet");
        break;
      case "mode":
        stale.add("modes").add("tools").add("clients").add("hub");
        break;
      case "pins":
        stale.add(`server:${event.server}`).add("pins");
        break;
      case "approval":
        stale.add("approvals");
        if (approvals.kind === "ready") {
          const others = approvals.value.filter(({ id }) => id !== event.id);
          const value = event.change === "asked" ? [...others, event] : others;
          approvals = { kind: "ready", value };
        }
        if (event.change === "decided") {
          const { at, server, tool, name, client, clientName, decision, by } = event;
          decisions.push({ at, server, tool, name, client, clientName, decision, by });
        }
        break;
    }
  }

  const { log } = state;
  return {
    stale,
    state: {
      ...state,
      clients,
      alerts,
      approvals,
      refusal,
      ...(changes.length > 0 && { changes: addChanges(state.changes, changes) }),
      ...(servers && { servers: { kind: "ready", value: servers } }),
      ...(calls && { calls }),
      ...(ended.length > 0 && {
        ended: [...ended.toReversed(), ...state.ended].slice(0, ENDED_CALLS),
      }),
      ...(decisions.length > 0 && {
        decisions: [...decisions.toReversed(), ...state.decisions].slice(0, ENDED_CALLS),
      }),
      ...(lines.length > 0 &&
        log.entries.kind === "ready" && {
          log: { ...log, entries: { kind: "ready", value: addLines(log.entries.value, lines) } },
        }),
    },
  };
}

/** Number of changes that are kept. The overview shows the last one of each server. */
const MAX_CHANGES = 60;

/** Whether a line of the log tells a change of the hub: not what servers print, and no details. */
function isChange({ source, level }: LogEntryDocument): boolean {
  return source === "hub" && level !== "debug";
}

/** Adds lines to the last changes, which are newest first. @param lines oldest first */
export function addChanges(
  before: readonly LogEntryDocument[],
  lines: readonly LogEntryDocument[],
): readonly LogEntryDocument[] {
  const last = before[0]?.seq ?? 0;
  const newer = lines.filter((line) => line.seq > last && isChange(line));
  return [...newer.toReversed(), ...before].slice(0, MAX_CHANGES);
}

/** The log line of an event; undefined if it has no text. */
function lineOf(event: HubEvent): LogEntryDocument | undefined {
  const { seq, at, level, text } = event;
  if (level === undefined || text === undefined) return undefined;
  const server = "server" in event ? event.server : undefined;
  const source = event.kind === "log" ? event.source : "hub";
  return { seq, at, level, text, source, ...(server !== undefined && { server }) };
}

/** The events of the end of a call, without number and time. */
type CallEnd =
  | Omit<Extract<HubEvent, { readonly kind: "callFinished" }>, "seq" | "at">
  | Omit<Extract<HubEvent, { readonly kind: "callCancelled" }>, "seq" | "at">;

function endedCall(
  event: CallEnd,
  running: CallDocument | undefined,
  clients: ClientDocuments,
): EndedCall {
  const caller = clients.find(({ id }) => id === event.client);
  const principal = event.principal ?? running?.principal ?? caller?.principal;
  const { call, parentCall, client, server, tool, name, startedAt, duration } = event;
  const isFinished = event.kind === "callFinished";
  return {
    call,
    ...(parentCall !== undefined && { parentCall }),
    ...(client !== undefined && { client }),
    clientName: running?.clientName || (caller?.name ?? ""),
    ...(principal !== undefined && { principal }),
    server,
    tool,
    name,
    startedAt,
    duration,
    outcome: isFinished ? event.outcome : "cancelled",
    ...(isFinished && event.cause && { code: event.cause.code, reason: event.cause.message }),
    ...(isFinished && event.failed !== undefined && { isError: event.failed }),
    ...(!isFinished && { by: event.by }),
  };
}

/** Adds lines that are newer than the last one, and keeps the last 1,000. */
function addLines(
  entries: readonly LogEntryDocument[],
  lines: readonly LogEntryDocument[],
): readonly LogEntryDocument[] {
  const last = entries.at(-1)?.seq ?? 0;
  const newer = lines.filter(({ seq }) => seq > last);
  return [...entries, ...newer].slice(-LOG_LINES);
}

/** The state of a server after an event of its only connection, until the page has read the server again. */
function stateAfter(to: UpstreamState, hasFailed: boolean): ServerState {
  if (to === "disconnected") return "stopped";
  return to === "idle" && hasFailed ? "failed" : to;
}
