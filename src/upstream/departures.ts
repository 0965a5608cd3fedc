import type { Connection } from "./connection.ts";

/** Connections that make place, by their server and the key that they had there, until nothing of them is left. */
export class Departures {
  readonly #gone = new Map<string, Promise<unknown>>();
  readonly #connections = new Set<Connection>();

  get connections(): readonly Connection[] {
    return [...this.#connections];
  }

  /** When nothing is left of whoever had that key. */
  gone(server: string, key: string): Promise<unknown> {
    return this.#gone.get(`${server}\0${key}`) ?? Promise.resolve();
  }

  /** When nothing is left of anybody. */
  all(): Promise<unknown> {
    return Promise.all(this.#gone.values());
  }

  add(server: string, own: string, connection: Connection, gone: Promise<unknown>): void {
    const key = `${server}\0${own}`;
    this.#connections.add(connection);
    const all: Promise<unknown> = Promise.all([this.#gone.get(key), gone]).then(() => {
      this.#connections.delete(connection);
      if (this.#gone.get(key) === all) this.#gone.delete(key);
    });
    this.#gone.set(key, all);
  }
}
