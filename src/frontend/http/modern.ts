import { IdTable } from "../../base/id-table.ts";
import type { Clock } from "../../base/clock.ts";
import { type ErrorCode, toHubError } from "../../base/errors.ts";
import { ModernMethod } from "../../protocol/modern.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ServerSubset } from "../../upstream/scope.ts";
import type { Message } from "../../jsonrpc/message.ts";
import { Letters } from "../modern/request.ts";
import type { Taker } from "../modern/clients.ts";
import { buildRefusal } from "../modern/refusal.ts";
import { Counter } from "./counter.ts";
import { checkArguments, checkHeaders } from "./mirror.ts";
import { accepted, answer, type Answer } from "./http1/answer.ts";
import { refuse } from "./errors.ts";
import type { Query } from "./http1/messages.ts";
import type { Wants } from "./post-response.ts";

/** Maximum number of requests in flight. */
const MOST = 10_000;

export interface StatelessParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  gather(): Taker;
}

/** Requests of the modern era over HTTP: each carries its own envelope, there is no session. */
export class Stateless {
  readonly #parts: StatelessParts;
  readonly #letters = new Letters();
  readonly #counters = new IdTable<Counter>();
  /** Resolved when no request is in flight. */
  readonly #waiting = new Set<() => void>();
  #parties: Taker | undefined;

  constructor(parts: StatelessParts) {
    this.#parts = parts;
  }

  /** Handles the message of a POST. */
  take(frame: Message, query: Query, wants: Wants, scope: ServerSubset): Answer | Promise<Answer> {
    if (frame.kind === "notification") return accepted();
    if (frame.kind !== "request") return refuse(400, "A POST is one request here.");
    if (this.#counters.size >= MOST) {
      const headers = { "Retry-After": "1" };
      return refuse(503, "Too many requests run.", { id: frame.id, headers });
    }
    let counter: Counter | undefined;
    try {
      const { fields } = query.head;
      checkHeaders(frame, fields);
      const letter = this.#letters.open(frame);
      if (wants === "json" && frame.method === ModernMethod.listen) {
        return refuse(406, "What is listened to comes as text/event-stream.", {
          id: frame.id,
        });
      }
      counter = this.#open(query, wants);
      this.#parties ??= this.#parts.gather();
      this.#parties.take(letter, counter, scope, (catalog) =>
        checkArguments(letter, fields, catalog),
      );
      return counter.answer;
    } catch (thrown) {
      const error = toHubError(thrown);
      counter?.respond(undefined);
      return answer(buildRefusal(frame.id, error), STATUSES[error.code] ?? 200);
    }
  }

  /** Ends the subscriptions, which would last for ever. */
  stop(): void {
    this.#parties?.stop();
  }

  /** Settles when no request is in flight. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.add(resolve);
      this.#settle();
    });
  }

  close(): void {
    this.#parties?.close();
  }

  #open(query: Query, wants: Wants): Counter {
    const counter = new Counter(query, {
      wants,
      clock: this.#parts.clock,
      deadlines: this.#parts.deadlines,
      over: () => {
        this.#counters.remove(place);
        this.#settle();
      },
    });
    const place = this.#counters.add(counter);
    return counter;
  }

  #settle(): void {
    if (this.#counters.size > 0) return;
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

/** Statuses of errors found before a request is routed; the others are 200. */
const STATUSES: Partial<Record<ErrorCode, number>> = {
  methodNotFound: 404,
  invalidEnvelope: 400,
  headerMismatch: 400,
  missingCapability: 400,
  unsupportedVersion: 400,
};
