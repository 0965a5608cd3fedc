import { textOf } from "../base/bytes.ts";
import { Method } from "../protocol/legacy.ts";
import type { Request } from "../jsonrpc/message.ts";
import {
  compareRequestKeys,
  isInitialization,
  isHubRequest,
  type RecordedExchange,
  requestKeyOf,
  type ValueDifference,
} from "./exchanges.ts";

/** Maximum number of recorded requests that an unrecorded request is compared with, to find the most similar one. */
const MAX_COMPARED = 200;
/** Maximum number of cached request texts, and maximum length of one, in bytes. */
const MAX_CACHED_TEXTS = 1000;
const MAX_TEXT_LENGTH = 1024;

/** The recorded exchange that was found for a request. */
export type MatchedExchange =
  | {
      readonly kind: "exchange";
      readonly exchange: RecordedExchange;
      /** Whether all recorded exchanges for the request were already replayed. */
      readonly isRepeated: boolean;
    }
  /** No exchange was recorded for the request; `nearest` is the most similar recorded request. */
  | { readonly kind: "unknown"; readonly nearest: NearestMatch | undefined };

export interface NearestMatch {
  readonly exchange: RecordedExchange;
  readonly differences: readonly ValueDifference[];
}

/** Exchanges with equal requests, in order. */
interface ExchangeQueue {
  readonly exchanges: RecordedExchange[];
  next: number;
}

/**
 * Matches requests with the recorded exchanges of one server. An exchange matches if it has the same method and equal
 * params, where a masked value equals any value.
 */
export class ExchangeMatcher {
  readonly #queues = new Map<string, ExchangeQueue>();
  /**
   * A cache of the queues, by the text of the params: repeated requests, as in a load test, are found without
   * computing their key again.
   */
  readonly #queuesByText = new Map<string, ExchangeQueue>();
  /** Number of recorded requests of clients that no client has made during the replay. */
  #neverRequested: number;

  /** Whether an initialization was recorded, in either era. */
  readonly hasInitialization: boolean;

  constructor(exchanges: readonly RecordedExchange[]) {
    this.hasInitialization = exchanges.some(({ method }) => isInitialization(method));
    for (const exchange of exchanges) {
      const key = queueKeyOf(exchange.method, exchange.requestKey);
      const queue = this.#queues.get(key);
      if (queue === undefined) this.#queues.set(key, { exchanges: [exchange], next: 0 });
      else queue.exchanges.push(exchange);
    }
    this.#neverRequested = exchanges.filter(({ method }) => isMadeForClient(method)).length;
  }

  get neverRequested(): number {
    return this.#neverRequested;
  }

  /** Finds the exchange for a request; equal requests get their exchanges in recorded order. */
  match(request: Request): MatchedExchange {
    const { method, bytes, params } = request;
    const isShort = params !== undefined && params.end - params.start <= MAX_TEXT_LENGTH;
    const paramsText = isShort
      ? queueKeyOf(method, textOf(bytes, params.start, params.end))
      : undefined;
    const cachedQueue = paramsText === undefined ? undefined : this.#queuesByText.get(paramsText);
    if (cachedQueue !== undefined) return this.#takeNext(cachedQueue);
    const requestKey = requestKeyOf(request);
    const exact = this.#queues.get(queueKeyOf(method, requestKey));
    const nearest = exact === undefined ? this.#findNearest(method, requestKey) : undefined;
    const isSame = nearest?.differences.length === 0;
    const queue = isSame
      ? this.#queues.get(queueKeyOf(method, nearest.exchange.requestKey))
      : exact;
    if (queue === undefined) return { kind: "unknown", nearest };
    if (paramsText !== undefined && this.#queuesByText.size < MAX_CACHED_TEXTS) {
      this.#queuesByText.set(paramsText, queue);
    }
    return this.#takeNext(queue);
  }

  #takeNext(queue: ExchangeQueue): MatchedExchange {
    const isRepeated = queue.next >= queue.exchanges.length;
    const exchange = queue.exchanges[Math.min(queue.next, queue.exchanges.length - 1)];
    if (exchange === undefined) return { kind: "unknown", nearest: undefined };
    if (!isRepeated) {
      queue.next++;
      if (isMadeForClient(exchange.method)) this.#neverRequested--;
    }
    return { kind: "exchange", exchange, isRepeated };
  }

  #findNearest(method: string, requestKey: string): NearestMatch | undefined {
    let nearest: NearestMatch | undefined;
    let compared = 0;
    for (const { exchanges } of this.#queues.values()) {
      const [exchange] = exchanges;
      if (exchange?.method !== method) continue;
      const differences = compareRequestKeys(exchange.requestKey, requestKey);
      if (nearest === undefined || isNearer(differences, nearest.differences)) {
        nearest = { exchange, differences };
      }
      if (differences.length === 0 || ++compared === MAX_COMPARED) break;
    }
    return nearest;
  }
}

/**
 * Whether `a` is more similar than `b`. Other arguments for the same tool are more similar than the same arguments
 * for another tool.
 */
function isNearer(a: readonly ValueDifference[], b: readonly ValueDifference[]): boolean {
  return distanceOf(a) < distanceOf(b);
}

function distanceOf(differences: readonly ValueDifference[]): number {
  const isOther = differences.some(({ path }) => path === "name" || path === "uri");
  return differences.length + (isOther ? 1000 : 0);
}

/**
 * Whether the hub sends requests with this method only on behalf of clients. List requests and `logging/setLevel`, for
 * example, are also sent by the hub on its own.
 */
function isMadeForClient(method: string): boolean {
  return !isHubRequest(method) && !method.endsWith("/list") && method !== Method.setLevel;
}

function queueKeyOf(method: string, requestKey: string): string {
  return `${method}\n${requestKey}`;
}
