import type { EventBus, HubEvent, StateEvent } from "../base/hub-events.ts";
import type { HubError } from "../base/errors.ts";
import { attemptAttributes, PING, shownName } from "./request-attributes.ts";
import type { Attributes } from "./span.ts";
import type { LiveSpan, OwnRequest, Tracer } from "./tracer.ts";

/** The attempts of one connection until it is up, has failed or is given up. */
interface ConnectLoop {
  readonly span: LiveSpan;
  attempt: LiveSpan | undefined;
  /** Whether the server demands an authorization: the attempt goes on when there is one. */
  isAuthenticating: boolean;
}

/** How the keys of all connections to a server begin. */
function prefixOf(server: string): string {
  return `${JSON.stringify([server]).slice(0, -1)},`;
}

/** Maximum number of connections that are followed at a time. */
const MAX_LOOPS = 10_000;

/**
 * Makes the spans of servers from the events of the hub: `mcp.add` and `mcp.remove`, and `mcp.connect_loop` with an
 * `mcp.connect_attempt` for each attempt. They are few, so all are recorded, whatever share of requests is.
 */
export class Lifecycle {
  readonly #tracer: Tracer;
  /** By server, client and connection. */
  readonly #loops = new Map<string, ConnectLoop>();
  /** The span of the addition of each server that has not been connected yet. */
  readonly #added = new Map<string, LiveSpan>();
  /** The spans of removals whose servers have not ended. */
  readonly #removed = new Map<string, LiveSpan>();
  /** The servers with a connection that is up. */
  readonly #running = new Set<string>();
  readonly #unsubscribe: () => void;

  constructor(tracer: Tracer, bus: EventBus) {
    this.#tracer = tracer;
    tracer.onOwnRequest = (request) => this.#onOwnRequest(request);
    this.#unsubscribe = bus.subscribe((event) => this.#onEvent(event), ["server", "state"]);
  }

  /** Ends all spans that are open. */
  close(): void {
    this.#tracer.onOwnRequest = undefined;
    this.#unsubscribe();
    for (const key of this.#loops.keys()) this.#endLoop(key, undefined);
    for (const span of [...this.#added.values(), ...this.#removed.values()]) span.end();
    this.#added.clear();
    this.#removed.clear();
  }

  #onEvent(event: HubEvent): void {
    if (event.kind === "state") this.#onState(event);
    else if (event.kind === "server") this.#onServer(event.server, event.change);
  }

  #onServer(server: string, change: "added" | "changed" | "removed"): void {
    const attributes: Attributes = { "toolmux.server": server };
    if (change === "removed") {
      this.#added.get(server)?.end();
      this.#added.delete(server);
      const span = this.#tracer.start("mcp.remove", "internal", attributes, undefined);
      // A server that has no process is gone at once.
      if (this.#hasLoop(server) || this.#running.has(server)) this.#removed.set(server, span);
      else span.end();
      return;
    }
    if (change === "changed") return;
    const span = this.#tracer.start("mcp.add", "internal", attributes, undefined);
    this.#added.set(server, span);
    // The addition itself is done; that the server is connected afterwards is told by the loop below it.
    span.end();
  }

  #hasLoop(server: string): boolean {
    return [...this.#loops.keys()].some((key) => key.startsWith(prefixOf(server)));
  }

  /** Makes the span of one of the hub's own requests: below the running attempt of its server, if there is one. */
  #onOwnRequest(request: OwnRequest): void {
    const { server, method, name, id, failure, duration } = request;
    if (method === PING) return;
    const loops = [...this.#loops].filter(([key]) => key.startsWith(prefixOf(server)));
    const [attempt, ...others] = loops.flatMap(([, loop]) => loop.attempt ?? []);
    // A request does not tell to which of several connections it belongs.
    const parent = others.length === 0 ? attempt : undefined;
    const tracer = this.#tracer;
    const attributes = attemptAttributes(request, id, failure);
    const shown = shownName(method, name, (text) => tracer.redact(text));
    const startedAt = tracer.now() - duration;
    tracer.startBelow(shown, "client", attributes, parent, startedAt)?.end(failure);
  }

  #onState(event: StateEvent): void {
    const { server, to, cause } = event;
    const key = JSON.stringify([server, event.client, event.connection]);
    switch (to) {
      case "connecting":
        this.#beginAttempt(key, event);
        return;
      case "authenticating": {
        const loop = this.#loops.get(key);
        if (loop !== undefined) loop.isAuthenticating = true;
        return;
      }
      case "connected":
        this.#running.add(server);
        this.#loops.get(key)?.attempt?.set("toolmux.tools", event.tools);
        this.#endLoop(key, undefined);
        this.#added.delete(server);
        return;
      case "stopping":
        this.#endAttempt(key, cause);
        return;
      case "reconnecting":
        this.#running.delete(server);
        // A lost connection begins a loop, too: its first attempt follows.
        this.#endAttempt(key, cause);
        return;
      case "failed":
      case "idle":
      case "disconnected":
        this.#running.delete(server);
        this.#endLoop(key, cause);
        this.#removed.get(server)?.end();
        this.#removed.delete(server);
    }
  }

  #beginAttempt(key: string, { server, attempt = 1, endpoint = "" }: StateEvent): void {
    let loop = this.#loops.get(key);
    if (loop?.attempt !== undefined && loop.isAuthenticating) {
      // The same attempt goes on with the authorization.
      loop.isAuthenticating = false;
      return;
    }
    const attributes = { "toolmux.server": server, "toolmux.endpoint": endpoint };
    if (loop === undefined) {
      if (this.#loops.size >= MAX_LOOPS) return;
      const parent = this.#added.get(server);
      const span = this.#tracer.start("mcp.connect_loop", "internal", { ...attributes }, parent);
      loop = { span, attempt: undefined, isAuthenticating: false };
      this.#loops.set(key, loop);
    }
    loop.attempt?.end();
    loop.attempt = this.#tracer.start(
      "mcp.connect_attempt",
      "internal",
      { ...attributes, "toolmux.attempt": attempt },
      loop.span,
    );
    loop.span.set("toolmux.attempt", attempt);
  }

  #endAttempt(key: string, cause: HubError | undefined): void {
    const loop = this.#loops.get(key);
    if (loop === undefined) return;
    loop.attempt?.end(cause && { type: cause.code, message: cause.message });
    loop.attempt = undefined;
    loop.isAuthenticating = false;
  }

  #endLoop(key: string, cause: HubError | undefined): void {
    const loop = this.#loops.get(key);
    if (loop === undefined) return;
    this.#endAttempt(key, cause);
    this.#loops.delete(key);
    loop.span.end(cause && { type: cause.code, message: cause.message });
  }
}
