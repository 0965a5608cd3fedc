import type { Alert, AlertKind, EventBus } from "./hub-events.ts";

/** The properties that a caller passes to raise an alert about a server. `Alerts` adds the id and the time. */
export interface AlertReason extends Pick<Alert, "kind" | "text" | "repeated"> {
  readonly server: string;
}

/** A client of `[[clients]]` whose token is refused. */
export interface RefusedClient {
  /** Its name; empty if it has no valid one. */
  readonly client: string;
  /** A full sentence that says why. */
  readonly text: string;
}

/**
 * Keeps the current alerts: at most one per kind and server. An alert lasts until no connection of the server has a
 * reason for it. Raising and clearing an alert emit events.
 */
export class Alerts {
  readonly #bus: EventBus;
  /** Alerts by the key of `alertKeyOf`. `reasons`: what each connection reported, by connection key, newest last. */
  readonly #raised = new Map<
    string,
    { readonly alert: Alert; readonly reasons: Map<ConnectionKey, AlertReason> }
  >();
  #lastId = 0;
  readonly #servers = new Set<string>();

  constructor(bus: EventBus) {
    this.#bus = bus;
  }

  /** The current alerts, in the order in which they were first raised. */
  get all(): readonly Alert[] {
    return [...this.#raised.values()].map(({ alert }) => alert);
  }

  /** Starts to accept alerts for the server. */
  addServer(server: string): void {
    this.#servers.add(server);
  }

  /** Clears the server's alerts, and ignores later ones. */
  removeServer(server: string): void {
    this.#servers.delete(server);
    for (const [key, { alert }] of this.#raised)
      if (alert.server === server) this.#retract(key, alert);
  }

  /**
   * Raises an alert. If the server already has an alert of this kind with another text, that alert gets the new text
   * and time; with the same text, nothing changes.
   * @param connection the key of the connection concerned; undefined: the whole server
   */
  raise(alert: AlertReason, connection?: ConnectionKey): void {
    if (!this.#servers.has(alert.server)) return;
    const key = alertKeyOf(alert.server, alert.kind);
    const current = this.#raised.get(key);
    const reasons = current?.reasons ?? new Map<ConnectionKey, AlertReason>();
    const previous = reasons.get(connection);
    // If a connection repeats its own text, the alert stays unchanged. Otherwise, two connections that fail in turn,
    // with different texts, would replace the alert's text at every attempt.
    if (previous?.text === alert.text) return;
    reasons.delete(connection);
    reasons.set(connection, alert);
    if (current?.alert.text !== alert.text) this.#publish(key, alert, connection, reasons);
  }

  /** Raises an alert for each client that is refused, and clears those about other clients. */
  setRefusedClients(refused: readonly RefusedClient[]): void {
    this.setAll(
      "clientRefused",
      refused.map(({ client, text }) => ({ key: JSON.stringify(client), client, text })),
    );
  }

  /**
   * Raises these alerts of a kind that no connection has a reason for, and clears the others of the kind. `key`: unique
   * among them; an alert with the same text stays as it is.
   */
  setAll(
    kind: AlertKind,
    present: readonly (Pick<Alert, "client" | "server" | "text"> & { readonly key: string })[],
  ): void {
    const keyOf = (key: string): string => `${kind} ${key}`;
    const keys = new Set(present.map(({ key }) => keyOf(key)));
    for (const [key, { alert }] of this.#raised)
      if (alert.kind === kind && !keys.has(key)) this.#retract(key, alert);
    for (const { key: name, client, server, text } of present) {
      const key = keyOf(name);
      const current = this.#raised.get(key)?.alert;
      if (current?.text === text) continue;
      const id = current?.id ?? String(++this.#lastId);
      const about = {
        ...(client !== undefined && { client }),
        ...(server !== undefined && { server }),
      };
      const alert: Alert = { id, kind, ...about, text, at: Date.now() };
      this.#raised.set(key, { alert, reasons: new Map() });
      this.#bus.emit({ kind: "alert", raised: true, alert });
    }
  }

  /**
   * Clears the alerts of these kinds that one connection has raised (undefined: the server as a whole). If another
   * connection has raised the same alert, too, the alert remains.
   */
  clear(server: string, kinds: readonly AlertKind[], connection?: ConnectionKey): void {
    for (const key of kinds.map((kind) => alertKeyOf(server, kind))) {
      const current = this.#raised.get(key);
      if (current?.reasons.delete(connection) !== true) continue;
      const remaining = [...current.reasons];
      const newest = remaining.at(-1);
      if (newest === undefined) this.#retract(key, current.alert);
      else if (!remaining.some(([, { text }]) => text === current.alert.text)) {
        const [newestConnection, reason] = newest;
        this.#publish(key, reason, newestConnection, current.reasons);
      }
    }
  }

  /**
   * Dismisses an alert, until its text changes or it is cleared and raised again.
   * @returns whether there is an alert with this id
   */
  dismiss(id: string): boolean {
    const found = [...this.#raised].find(([, { alert }]) => alert.id === id);
    if (found === undefined) return false;
    const [key, { alert, reasons }] = found;
    if (alert.dismissed === true) return true;
    const dismissed: Alert = { ...alert, dismissed: true };
    this.#raised.set(key, { alert: dismissed, reasons });
    this.#bus.emit({ kind: "alert", raised: true, alert: dismissed });
    return true;
  }

  #publish(
    key: string,
    reason: AlertReason,
    connection: ConnectionKey,
    reasons: Map<ConnectionKey, AlertReason>,
  ): void {
    const { kind, server, text, repeated } = reason;
    const id = this.#raised.get(key)?.alert.id ?? String(++this.#lastId);
    const named = connection === undefined || connection === "" ? {} : { connection };
    const again = repeated === true ? { repeated } : {};
    const alert: Alert = { id, kind, server, ...named, text, at: Date.now(), ...again };
    this.#raised.set(key, { alert, reasons });
    this.#bus.emit({ kind: "alert", raised: true, alert });
  }

  #retract(key: string, alert: Alert): void {
    this.#raised.delete(key);
    this.#bus.emit({ kind: "alert", raised: false, alert });
  }
}

type ConnectionKey = string | undefined;

function alertKeyOf(server: string, kind: AlertKind): string {
  return `${kind} ${server}`;
}
