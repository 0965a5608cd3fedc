import type { HubError } from "./errors.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

/** What happens in a hub, as data. */
export type HubEvent =
  /** A connection moved; `cause` says why when the move is a failure. */
  | { kind: "state"; server: string; from: string; to: string; cause?: HubError }
  /** A line for people: from the hub itself, or from a server's stderr or stray stdout. */
  | { kind: "log"; level: LogLevel; source: LogSource; server?: string; text: string };

export type LogSource = "hub" | "stderr" | "stdout" | "server";

export type Listener = (event: HubEvent) => void;

/** A synchronous bus: listeners run in order of subscription, and one that throws does not stop the others. */
export class Bus {
  readonly #listeners = new Set<Listener>();

  /** Whether anybody listens; costly events are built only then. */
  get active(): boolean {
    return this.#listeners.size > 0;
  }

  emit(event: HubEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }

  /** @returns the undo; calling it twice is harmless. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
