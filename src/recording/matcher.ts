import { textOf } from "../base/bytes.ts";
import { Method } from "../protocol/legacy.ts";
import type { Request } from "../jsonrpc/message.ts";
import {
  compareRequestKeys,
  isInitialization,
  isPingOrDiscovery,
  type RecordedExchange,
  requestKeyOf,
  type ValueDifference,
} from "./exchanges.ts";

/** Maximum number of recorded requests compared with an unknown one. */
const MOST_COMPARED = 200;
/** Maximum number of cached request texts, and maximum length of one, in bytes. */
const MOST_SPELLINGS = 1000;
const LONGEST = 1024;

/** The match of a request. */
export type MatchedExchange =
  | {
      readonly kind: "scene";
      readonly scene: RecordedExchange;
      /** All recorded exchanges for it were already replayed. */
      readonly isRepeated: boolean;
      /** An exchange that was recorded before it and has not been requested; reported once. */
      readonly skipped: RecordedExchange | undefined;
    }
  /** Nothing was recorded for it; with the nearest recorded request. */
  | { readonly kind: "unknown"; readonly nearest: NearestMatch | undefined };

export interface NearestMatch {
  readonly scene: RecordedExchange;
  readonly differences: readonly ValueDifference[];
}

/** Exchanges with equal requests, in order. */
interface Queue {
  readonly scenes: RecordedExchange[];
  next: number;
}

/** Matches requests with the recorded exchanges of one server, and tracks which were replayed. */
export class ExchangeMatcher {
  readonly #queues = new Map<string, Queue>();
  /** Queues by the text of params: a load test repeats the same few requests. */
  readonly #spellings = new Map<string, Queue>();
  /** Exchanges whose order is relevant. */
  readonly #ordered: readonly RecordedExchange[];
  readonly #played = new Set<RecordedExchange>();
  readonly #skipped = new Set<RecordedExchange>();
  /** Index in `#ordered`; all before it were replayed. */
  #first = 0;

  /** Whether an initialization was recorded, in either era. */
  readonly isGreeted: boolean;

  constructor(scenes: readonly RecordedExchange[]) {
    this.isGreeted = scenes.some(({ method }) => isInitialization(method));
    for (const scene of scenes) {
      const key = keyOf(scene.method, scene.wish);
      const queue = this.#queues.get(key);
      if (queue === undefined) this.#queues.set(key, { scenes: [scene], next: 0 });
      else queue.scenes.push(scene);
    }
    this.#ordered = scenes.filter(({ method }) => isOrdered(method));
  }

  /** Number of recorded requests, of those whose order is relevant, that were never made. */
  get unplayed(): number {
    return this.#ordered.reduce((count, scene) => count + (this.#played.has(scene) ? 0 : 1), 0);
  }

  /** The exchange for a request; equal requests get theirs in recorded order. */
  take(request: Request): MatchedExchange {
    const { method, bytes, params } = request;
    const isShort = params !== undefined && params.end - params.start <= LONGEST;
    const spelling = isShort ? keyOf(method, textOf(bytes, params.start, params.end)) : undefined;
    const known = spelling === undefined ? undefined : this.#spellings.get(spelling);
    if (known !== undefined) return this.#play(known);
    const wish = requestKeyOf(request);
    const exact = this.#queues.get(keyOf(method, wish));
    const nearest = exact === undefined ? this.#findNearest(method, wish) : undefined;
    const isSame = nearest?.differences.length === 0;
    const queue = isSame ? this.#queues.get(keyOf(method, nearest.scene.wish)) : exact;
    if (queue === undefined) return { kind: "unknown", nearest };
    if (spelling !== undefined && this.#spellings.size < MOST_SPELLINGS) {
      this.#spellings.set(spelling, queue);
    }
    return this.#play(queue);
  }

  #play(queue: Queue): MatchedExchange {
    const isRepeated = queue.next >= queue.scenes.length;
    const scene = queue.scenes[Math.min(queue.next, queue.scenes.length - 1)];
    if (scene === undefined) return { kind: "unknown", nearest: undefined };
    if (isRepeated) return { kind: "scene", scene, isRepeated, skipped: undefined };
    queue.next++;
    this.#played.add(scene);
    return { kind: "scene", scene, isRepeated, skipped: this.#findSkipped(scene) };
  }

  /** Exchanges that overlapped in time may come in any order. */
  #findSkipped(scene: RecordedExchange): RecordedExchange | undefined {
    if (!isOrdered(scene.method)) return undefined;
    let first = this.#ordered[this.#first];
    while (first !== undefined && (this.#played.has(first) || this.#skipped.has(first))) {
      first = this.#ordered[++this.#first];
    }
    if (first === undefined || first.end >= scene.line) return undefined;
    this.#skipped.add(first);
    return first;
  }

  #findNearest(method: string, wish: string): NearestMatch | undefined {
    let nearest: NearestMatch | undefined;
    let compared = 0;
    for (const { scenes } of this.#queues.values()) {
      const [scene] = scenes;
      if (scene?.method !== method) continue;
      const differences = compareRequestKeys(scene.wish, wish);
      if (nearest === undefined || isLess(differences, nearest.differences)) {
        nearest = { scene, differences };
      }
      if (differences.length === 0 || ++compared === MOST_COMPARED) break;
    }
    return nearest;
  }
}

/** Another argument of the same tool is nearer than the same arguments of another tool. */
function isLess(a: readonly ValueDifference[], b: readonly ValueDifference[]): boolean {
  return weigh(a) < weigh(b);
}

function weigh(differences: readonly ValueDifference[]): number {
  const isOther = differences.some(({ path }) => path === "name" || path === "uri");
  return differences.length + (isOther ? 1000 : 0);
}

function isOrdered(method: string): boolean {
  return !isPingOrDiscovery(method) && !method.endsWith("/list") && method !== Method.setLevel;
}

function keyOf(method: string, wish: string): string {
  return `${method}\n${wish}`;
}
