import type { RunnableServer } from "../manifest/schema.ts";
import type { Connection } from "./connection.ts";

/** Connections that make place, until nothing of them is left. */
export class Departures {
  readonly #leaving = new Map<Connection, { readonly key: string; readonly gone: Promise<void> }>();

  get connections(): readonly Connection[] {
    return [...this.#leaving.keys()];
  }

  /**
   * When nothing is left of those that a new connection would be a second copy of: all that clients share, those of the
   * same key if they do not, and all of a server that was shared otherwise than it is now.
   */
  gone({ name, isolation }: RunnableServer, key: string): Promise<unknown> {
    const before = [...this.#leaving].filter(([{ spec }, leaving]) => {
      const isOfMany = isolation === "shared" || spec.isolation !== isolation;
      return spec.name === name && (isOfMany || leaving.key === key);
    });
    return Promise.all(before.map(([, { gone }]) => gone));
  }

  /** When nothing is left of anybody. */
  all(): Promise<unknown> {
    return Promise.all([...this.#leaving.values()].map(({ gone }) => gone));
  }

  /** Lets a connection make place for the one that `succeed` makes, or for none: what runs may finish, for up to `limit` ms. */
  add(connection: Connection, key: string, limit: number, succeed?: () => Connection): void {
    let tellGone = (): void => {};
    const gone = new Promise<void>((resolve) => (tellGone = resolve));
    this.#leaving.set(connection, { key, gone });
    void connection.retire(succeed?.(), limit).then(() => {
      this.#leaving.delete(connection);
      tellGone();
    });
  }
}
