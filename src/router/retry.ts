import { type ToolAnnotations, NO_ANNOTATIONS, readAnnotations } from "../catalog/listing.ts";
import type { Route } from "../catalog/section.ts";
import { HubError } from "../base/errors.ts";
import { TicketMethod } from "../protocol/extension.ts";
import { Method } from "../protocol/legacy.ts";
import { ModernError } from "../protocol/modern.ts";
import type { Connection } from "../upstream/connection.ts";
import { errorCodeOf, type Response } from "../jsonrpc/message.ts";
import type { Deadlines } from "./deadlines.ts";

export interface ReplayParts {
  readonly deadlines: Deadlines;
  readonly connection: Connection;
  readonly route: Route;
  readonly method: string;
  /** Sends the request again, over the connection's current session. */
  again(): void;
}

/** Delays before each retry, in ms; their number is the maximum number of retries. */
const PAUSES = [20, 50, 100, 250, 500, 1000, 2000];

/** Methods that are safe to repeat. */
const HARMLESS: ReadonlySet<string> = new Set([
  Method.promptsGet,
  Method.resourcesRead,
  Method.complete,
  Method.subscribe,
  TicketMethod.get,
  TicketMethod.cancel,
]);

/**
 * Retries of one request, over a transport that can lose a request without closing. A request is repeated only if that
 * is safe, and within the request's own deadline.
 */
export class Replay {
  readonly #parts: ReplayParts;
  #count = 0;
  /** Number of sends after which the response was lost, so that the request may have been executed. */
  #lost = 0;
  #isCorrected = false;
  #disarm: () => void = () => {};

  constructor(parts: ReplayParts) {
    this.#parts = parts;
  }

  /** @returns undefined if the request will be sent again; else the error it fails with */
  refuse(error: HubError): HubError | undefined {
    const { code } = error;
    const pause = PAUSES[this.#count];
    if (!UNANSWERED.has(code)) return error;
    if (code === "answerLost" && !this.#mayRepeat()) return this.#explain(error);
    // A 401 is retried once: by then the authorization has either succeeded or failed.
    if (pause === undefined || (code === "unauthorized" && this.#count > 0)) return error;
    this.#count++;
    if (code === "answerLost") this.#lost++;
    // If an authorization is in progress, the connection makes the request wait for it.
    this.#wait(code === "unauthorized" ? 0 : pause);
    return undefined;
  }

  /**
   * Checks for a header mismatch (-32020).
   * @returns whether the request will be sent again, after the listing has been refreshed
   */
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

  /** The call is over: cancels a scheduled retry. */
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

  get #hints(): ToolAnnotations {
    const { item } = this.#parts.route;
    return item === undefined ? NO_ANNOTATIONS : readAnnotations(item);
  }
}

const UNANSWERED: ReadonlySet<string> = new Set(["notDelivered", "answerLost", "unauthorized"]);

function isMismatch(response: Response): boolean {
  return response.outcome === "error" && errorCodeOf(response) === ModernError.headerMismatch;
}

/** Whether the error allows a retry. */
export function isUnanswered({ code }: HubError): boolean {
  return UNANSWERED.has(code);
}
