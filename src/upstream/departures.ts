import type { RunnableServer } from "../manifest/schema.ts";
import type { Connection } from "./connection.ts";

/** Connections that are draining, until they are stopped. */
export class Departures {
  readonly #leaving = new Map<Connection, { readonly key: string; readonly gone: Promise<void> }>();

  get connections(): readonly Connection[] {
    return [...this.#leaving.keys()];
  }

  /**
   * Settles when the draining connections that must not run beside a new one are gone: any of that server if it is or
   * was shared, else those of the same key.
   */
  gone({ name, isolation }: RunnableServer, key: string): Promise<unknown> {
    const before = [...this.#leaving].filter(([{ spec }, leaving]) => {
      const isOfMany = isolation === "shared" || spec.isolation !== isolation;
      return spec.name === name && (isOfMany || leaving.key === key);
    });
    return Promise.all(before.map(([, { gone }]) => gone));
  }

  /** Settles when all of them are gone. */
  all(): Promise<unknown> {
    return Promise.all([...this.#leaving.values()].map(({ gone }) => gone));
  }

  /**
   * Drains a connection for up to `limit` ms and stops it.
   * @param createSuccessor creates the connection that takes its place; absent: none does
   */
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
