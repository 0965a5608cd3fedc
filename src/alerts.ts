import type { Alert, AlertKind, Bus } from "./events.ts";

/** The alerts that are up: at most one of a kind for each server; raising and clearing are told on the bus. */
export class Alerts {
  readonly #bus: Bus;
  readonly #raised = new Map<string, Alert>();
  readonly #servers = new Set<string>();

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  /** Oldest first. */
  get all(): readonly Alert[] {
    return [...this.#raised.values()];
  }

  /** From now on the server may have alerts. */
  admit(server: string): void {
    this.#servers.add(server);
  }

  /** The server is no more: its alerts are cleared, and what is only now found out about it is none. */
  dismiss(server: string): void {
    this.#servers.delete(server);
    this.clear(server);
  }

  /** An alert that says the same already is left as it is; one that says something else is replaced. */
  raise(alert: Alert): void {
    if (!this.#servers.has(alert.server)) return;
    const key = keyOf(alert.server, alert.kind);
    if (this.#raised.get(key)?.text === alert.text) return;
    this.#raised.set(key, alert);
    this.#bus.emit({ kind: "alert", raised: true, alert });
  }

  /** Clears a server's alerts of these kinds; without any, all of them. */
  clear(server: string, ...kinds: readonly AlertKind[]): void {
    for (const [key, alert] of this.#raised) {
      if (alert.server !== server) continue;
      if (kinds.length > 0 && !kinds.includes(alert.kind)) continue;
      this.#raised.delete(key);
      this.#bus.emit({ kind: "alert", raised: false, alert });
    }
  }
}

function keyOf(server: string, kind: AlertKind): string {
  return `${kind} ${server}`;
}
