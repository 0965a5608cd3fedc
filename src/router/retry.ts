import { NO_ANNOTATIONS, readAnnotations, type ToolAnnotations } from "../catalog/listing.ts";
import type { Route } from "../catalog/section.ts";
import { HubError } from "../base/errors.ts";
import { ModernTaskMethod } from "../protocol/tasks.ts";
import { Method } from "../protocol/legacy.ts";
import { ModernErrorCode } from "../protocol/modern.ts";
import { errorCodeOf, type Response } from "../jsonrpc/message.ts";
import type { Deadlines } from "./deadlines.ts";

export interface RetryOptions {
  readonly deadlines: Deadlines;
  readonly route: Route;
  readonly method: string;
  /** Requests the server's listing again. */
  refresh(): Promise<void>;
  /** Sends the request again, over the connection's current session. */
  resend(): void;
}

/** The delays before the first, second, … retry, in ms. If the last retry fails, the request fails. */
const RETRY_DELAYS = [20, 50, 100, 250, 500, 1000, 2000];

/**
 * Maximum number of repeats of a request whose answer was lost. Two, because one killed server can lose a request
 * twice: on the request's connection, and on a pooled connection that the dying server still accepts. Not more, because
 * the request itself may crash the server.
 */
const MAX_REPEATS = 2;

/** Methods that are safe to repeat. */
const REPEATABLE_METHODS: ReadonlySet<string> = new Set([
  Method.promptsGet,
  Method.resourcesRead,
  Method.complete,
  Method.subscribe,
  ModernTaskMethod.get,
  ModernTaskMethod.cancel,
]);

/**
 * Retries one request over HTTP, where a request can be lost while the transport stays open. A request is repeated only
 * if that is safe, and within its deadline.
 */
export class Retry {
  readonly #options: RetryOptions;
  #retryCount = 0;
  /** Number of times that the answer was lost although the server may have executed the request. */
  #lostCount = 0;
  #hasRefreshed = false;
  #cancelPending: () => void = () => {};

  constructor(options: RetryOptions) {
    this.#options = options;
  }

  /**
   * Handles a failed send: schedules a retry if that is allowed.
   * @returns undefined if the request will be sent again; else the error to report
   */
  handleError(error: HubError): HubError | undefined {
    const { code } = error;
    const delay = RETRY_DELAYS[this.#retryCount];
    if (!RETRYABLE_CODES.has(code)) return error;
    if (code === "answerLost" && !this.#mayRepeat()) return this.#explainLoss(error);
    // A second 401 is final: the retry was sent after the authorization had ended, so another retry would not help.
    if (delay === undefined || (code === "unauthorized" && this.#retryCount > 0)) return error;
    this.#retryCount++;
    if (code === "answerLost") this.#lostCount++;
    // After a 401 no delay is needed: the connection holds the request until a running authorization has ended.
    this.#schedule(code === "unauthorized" ? 0 : delay);
    return undefined;
  }

  /**
   * Handles the error "header mismatch" (-32020): the hub's listing of the tool may be outdated.
   * @returns whether the hub lists the server again and then repeats the request
   */
  handleHeaderMismatch(response: Response): boolean {
    if (this.#hasRefreshed || !isHeaderMismatch(response)) return false;
    this.#hasRefreshed = true;
    let isOver = false;
    this.#cancelPending = () => (isOver = true);
    void this.#options.refresh().then(() => {
      if (!isOver) this.#options.resend();
    });
    return true;
  }

  cancel(): void {
    this.#cancelPending();
  }

  #schedule(ms: number): void {
    if (ms > 0) {
      this.#cancelPending = this.#options.deadlines.after(ms, () => this.#options.resend());
      return;
    }
    let isOver = false;
    this.#cancelPending = () => (isOver = true);
    queueMicrotask(() => {
      if (!isOver) this.#options.resend();
    });
  }

  #mayRepeat(): boolean {
    if (this.#lostCount >= MAX_REPEATS) return false;
    if (REPEATABLE_METHODS.has(this.#options.method)) return true;
    const { readOnly, idempotent } = this.#annotations;
    return readOnly || idempotent;
  }

  #explainLoss(error: HubError): HubError {
    const { route, method } = this.#options;
    if (method !== Method.toolsCall || this.#lostCount > 0) return error;
    const text = `The connection to server "${route.server}" broke before tool "${route.remoteName}" answered. The tool may have run. It was not called again, because it is not marked as read-only or idempotent. Check what it did before you call it again.`;
    return new HubError("answerLost", `${text} (${error.message})`, {
      server: route.server,
      cause: error,
    });
  }

  get #annotations(): ToolAnnotations {
    const { item } = this.#options.route;
    return item === undefined ? NO_ANNOTATIONS : readAnnotations(item);
  }
}

const RETRYABLE_CODES: ReadonlySet<string> = new Set([
  "notDelivered",
  "answerLost",
  "unauthorized",
]);

function isHeaderMismatch(response: Response): boolean {
  return response.outcome === "error" && errorCodeOf(response) === ModernErrorCode.headerMismatch;
}

/** Whether the error allows a retry. */
export function isRetryable({ code }: HubError): boolean {
  return RETRYABLE_CODES.has(code);
}
