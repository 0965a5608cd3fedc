import { type Hints, NO_HINTS, readHints } from "../catalog/item.ts";
import type { Route } from "../catalog/section.ts";
import { HubError } from "../errors.ts";
import { TicketMethod } from "../protocol/extension.ts";
import { Method } from "../protocol/legacy.ts";
import { ModernError } from "../protocol/modern.ts";
import type { Connection } from "../upstream/connection.ts";
import { codeOf, type Response } from "../wire/jsonrpc.ts";
import type { Deadlines } from "./deadline.ts";

export interface ReplayParts {
  readonly deadlines: Deadlines;
  readonly connection: Connection;
  readonly route: Route;
  readonly method: string;
  /** Sends the request once more, to whatever session there is then. */
  again(): void;
}

/** How long a request waits before it is sent again, ever longer, in ms; so many times. */
const PAUSES = [20, 50, 100, 250, 500, 1000, 2000];

/** What does no harm by its nature if it is done twice. */
const HARMLESS: ReadonlySet<string> = new Set([
  Method.promptsGet,
  Method.resourcesRead,
  Method.complete,
  Method.subscribe,
  TicketMethod.get,
  TicketMethod.cancel,
]);

/**
 * One request's second tries, over a link that may lose it and live: it is sent again only if that can do no harm. All of
 * them are within its own deadline.
 */
export class Replay {
  readonly #parts: ReplayParts;
  #count = 0;
  /** So often it may have run without an answer. */
  #lost = 0;
  #isCorrected = false;
  #disarm: () => void = () => {};

  constructor(parts: ReplayParts) {
    this.#parts = parts;
  }

  /** @returns undefined if the request is to be sent again; else what it fails with */
  refuse(error: HubError): HubError | undefined {
    const { code } = error;
    const pause = PAUSES[this.#count];
    if (!UNANSWERED.has(code)) return error;
    if (code === "answerLost" && !this.#mayRepeat()) return this.#explain(error);
    // Who is not let in comes back once: by then there is an authorization, or there is none.
    if (pause === undefined || (code === "unauthorized" && this.#count > 0)) return error;
    this.#count++;
    if (code === "answerLost") this.#lost++;
    // Where an authorization is being got it waits for that instead.
    this.#wait(code === "unauthorized" ? 0 : pause);
    return undefined;
  }

  /** Looks whether headers did not repeat what they should. @returns whether the request is sent again, when the tool is known as it is now */
  corrects(response: Response): boolean {
    if (this.#isCorrected || !isMismatch(response)) return false;
    this.#isCorrected = true;
    const { connection } = this.#parts;
    let isOver = false;
    this.#disarm = () => (isOver = true);
    void connection.refresh().then(() => {
      if (!isOver) this.#parts.again();
    });
    return true;
  }

  /** The call is over. */
  end(): void {
    this.#disarm();
  }

  #wait(ms: number): void {
    if (ms > 0) {
      this.#disarm = this.#parts.deadlines.after(ms, () => this.#parts.again());
      return;
    }
    let isOver = false;
    this.#disarm = () => (isOver = true);
    queueMicrotask(() => {
      if (!isOver) this.#parts.again();
    });
  }

  #mayRepeat(): boolean {
    if (this.#lost > 0) return false;
    if (HARMLESS.has(this.#parts.method)) return true;
    const { readOnly, idempotent } = this.#hints;
    return readOnly || idempotent;
  }

  #explain(error: HubError): HubError {
    const { route, method } = this.#parts;
    if (method !== Method.toolsCall || this.#lost > 0) return error;
    const text = `The connection to server "${route.server}" broke before tool "${route.remoteName}" answered. It may have run: it was not called again, because it does not say that it only reads, or that repeating it does no harm. Check what took effect before it is repeated.`;
    return new HubError("answerLost", `${text} (${error.message})`, {
      server: route.server,
      cause: error,
    });
  }

  get #hints(): Hints {
    const { item } = this.#parts.route;
    return item === undefined ? NO_HINTS : readHints(item);
  }
}

const UNANSWERED: ReadonlySet<string> = new Set(["notDelivered", "answerLost", "unauthorized"]);

function isMismatch(response: Response): boolean {
  return response.outcome === "error" && codeOf(response) === ModernError.headerMismatch;
}

/** Whether a request may be sent again. */
export function isUnanswered({ code }: HubError): boolean {
  return UNANSWERED.has(code);
}
