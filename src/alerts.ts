import type { Alert, AlertKind, Bus } from "./events.ts";

/** The alerts that are up: at most one of a kind for each server; raising and clearing are told on the bus. */
export class Alerts {
  readonly #bus: Bus;
  readonly #raised = new Map<string, { readonly alert: Alert; readonly clients: Set<Client> }>();
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
   * @param client whose connection it is about, if each client has its own.
   */
  raise(alert: Alert, client?: Client): void {
    if (!this.#servers.has(alert.server)) return;
    const key = keyOf(alert.server, alert.kind);
    const known = this.#raised.get(key);
    const clients = (known?.clients ?? new Set()).add(client);
    if (known?.alert.text === alert.text) return;
    this.#raised.set(key, { alert, clients });
    this.#bus.emit({ kind: "alert", raised: true, alert });
  }

  /** Clears a server's alerts of these kinds, or what this client has to do with them: they stay for the others. */
  clear(server: string, kinds: readonly AlertKind[], client?: Client): void {
    for (const key of kinds.map((kind) => keyOf(server, kind))) {
      const known = this.#raised.get(key);
      known?.clients.delete(client);
      if (known?.clients.size === 0) this.#drop(key, known.alert);
    }
  }

  #drop(key: string, alert: Alert): void {
    this.#raised.delete(key);
    this.#bus.emit({ kind: "alert", raised: false, alert });
  }
}

type Client = string | undefined;

function keyOf(server: string, kind: AlertKind): string {
  return `${kind} ${server}`;
}
