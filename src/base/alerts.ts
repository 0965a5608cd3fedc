import type { Alert, AlertKind, Bus } from "./events.ts";

/**
 * The current alerts: at most one per kind and server. An alert lasts until no connection of the server has a reason
 * for it; raising and clearing are emitted as events.
 */
export class Alerts {
  readonly #bus: Bus;
  /** `reasons`: the alert of each connection, by connection key, the newest last. */
  readonly #raised = new Map<
    string,
    { readonly alert: Alert; readonly reasons: Map<Connection, Alert> }
  >();
  readonly #servers = new Set<string>();

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  /** Oldest first. */
  get all(): readonly Alert[] {
    return [...this.#raised.values()].map(({ alert }) => alert);
  }

  /** Accepts alerts for the server from now on. */
  admit(server: string): void {
    this.#servers.add(server);
  }

  /** Clears the server's alerts, and ignores later ones. */
  dismiss(server: string): void {
    this.#servers.delete(server);
    for (const [key, { alert }] of this.#raised)
      if (alert.server === server) this.#drop(key, alert);
  }

  /**
   * Raises an alert. One with the same text is kept as it is; one with another text is replaced.
   * @param connection the key of the connection that it is about; undefined: the whole server
   */
  raise(alert: Alert, connection?: Connection): void {
    if (!this.#servers.has(alert.server)) return;
    const key = keyOf(alert.server, alert.kind);
    const known = this.#raised.get(key);
    const reasons = known?.reasons ?? new Map<Connection, Alert>();
    const before = reasons.get(connection);
    // Connections that fail in turn must not replace each other's text at every attempt.
    if (before?.text === alert.text) return;
    reasons.delete(connection);
    reasons.set(connection, alert);
    if (known?.alert.text !== alert.text) this.#show(key, alert, reasons);
  }

  /** Clears the reason of one connection, or of the server as a whole, for alerts of these kinds; other reasons remain. */
  clear(server: string, kinds: readonly AlertKind[], connection?: Connection): void {
    for (const key of kinds.map((kind) => keyOf(server, kind))) {
      const known = this.#raised.get(key);
      if (known?.reasons.delete(connection) !== true) continue;
      const left = [...known.reasons.values()];
      const newest = left.at(-1);
      if (newest === undefined) this.#drop(key, known.alert);
      else if (!left.some(({ text }) => text === known.alert.text))
        this.#show(key, newest, known.reasons);
    }
  }

  #show(key: string, alert: Alert, reasons: Map<Connection, Alert>): void {
    this.#raised.set(key, { alert, reasons });
    this.#bus.emit({ kind: "alert", raised: true, alert });
  }

  #drop(key: string, alert: Alert): void {
    this.#raised.delete(key);
    this.#bus.emit({ kind: "alert", raised: false, alert });
  }
}

type Connection = string | undefined;

function keyOf(server: string, kind: AlertKind): string {
  return `${kind} ${server}`;
}
