import type { RunnableServer } from "../manifest/schema.ts";
import type { Connection } from "./connection.ts";

/** Connections that are draining, until they are stopped. */
export class DrainingConnections {
  readonly #draining = new Map<
    Connection,
    { readonly key: string; readonly stopped: Promise<void> }
  >();

  get connections(): readonly Connection[] {
    return [...this.#draining.keys()];
  }

  /**
   * Settles when the draining connections that must not run beside a new one are gone: any of that server if it is or
   * was shared, else those of the same key.
   */
  conflictingStopped({ name, isolation }: RunnableServer, key: string): Promise<unknown> {
    const before = [...this.#draining].filter(([{ spec }, draining]) => {
      const isOrWasShared = isolation === "shared" || spec.isolation !== isolation;
      return spec.name === name && (isOrWasShared || draining.key === key);
    });
    return Promise.all(before.map(([, { stopped }]) => stopped));
  }

  /** Settles when all of them are gone. */
  allStopped(): Promise<unknown> {
    return Promise.all([...this.#draining.values()].map(({ stopped }) => stopped));
  }

  /**
   * Drains a connection for up to `limit` ms and stops it.
   * @param createSuccessor creates the connection that takes its place; absent: none does
   */
  add(
    connection: Connection,
    key: string,
    limit: number,
    createSuccessor?: () => Connection,
  ): void {
    let resolveStopped = (): void => {};
    const stopped = new Promise<void>((resolve) => (resolveStopped = resolve));
    this.#draining.set(connection, { key, stopped });
    void connection.drain(createSuccessor?.(), limit).then(() => {
      this.#draining.delete(connection);
      resolveStopped();
    });
  }
}
