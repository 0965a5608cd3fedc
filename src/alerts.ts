import type { Alert, AlertKind, Bus } from "./events.ts";

/**
 * The alerts that are up: at most one of a kind for each server, which stays until none of the server's connections has
 * a reason for it; raising and clearing are told on the bus.
 */
export class Alerts {
  readonly #bus: Bus;
  /** `reasons`: what each connection has raised, by its key, the newest last. */
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

  /** From now on the server may have alerts. */
  admit(server: string): void {
    this.#servers.add(server);
  }

  /** The server is no more: its alerts are cleared, and what is only now found out about it is none. */
  dismiss(server: string): void {
    this.#servers.delete(server);
    for (const [key, { alert }] of this.#raised)
      if (alert.server === server) this.#drop(key, alert);
  }

  /**
   * An alert that says the same already is left as it is; one that says something else is replaced.
   * @param connection the key of the server's connection that it is about; undefined: the server as a whole
   */
  raise(alert: Alert, connection?: Connection): void {
    if (!this.#servers.has(alert.server)) return;
    const key = keyOf(alert.server, alert.kind);
    const known = this.#raised.get(key);
    const reasons = known?.reasons ?? new Map<Connection, Alert>();
    const before = reasons.get(connection);
    // Several connections that fail in turn do not replace each other's text at every attempt.
    if (before?.text === alert.text) return;
    reasons.delete(connection);
    reasons.set(connection, alert);
    if (known?.alert.text !== alert.text) this.#show(key, alert, reasons);
  }

  /** Clears a server's alerts of these kinds, or one connection's reasons for them: they stay for the others. */
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
