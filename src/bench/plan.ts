import type { Era } from "../protocol/era.ts";
import type { ChaosResult } from "./result.ts";
import type { Extent, Loop } from "./schedule.ts";
import type { BenchSubject } from "./subject.ts";

/** What is to be measured, and how. Times are in ms. */
export interface BenchPlan {
  /** How many calls are in flight at most, level by level. */
  readonly levels: readonly number[];
  readonly loop: Loop;
  readonly extent: Extent;
  /** How much of the same is done before each level and not counted; undefined: nothing. */
  readonly warmUp: Extent | undefined;
  readonly chaos: ChaosResult;
  /** The tool to be called; undefined: one that does no harm. */
  readonly tool: string | undefined;
  /** A JSON object. */
  readonly args: string;
  /** How long a call may take. */
  readonly timeout: number;
  /** What a subject is spoken to in, if it speaks that. */
  readonly era: Era;
  /** What is measured. */
  readonly subject: BenchSubject;
  /** The same without a hub, and what it calls the tool of that name; absent: nothing is compared. */
  readonly direct?: ((tool: string) => Promise<DirectServer>) | undefined;
}

/** A server that a hub leads to. */
export interface DirectServer {
  readonly subject: BenchSubject;
  readonly tool: string;
}

/** In how many rounds a level is measured where two subjects take turns: the first begins and ends. */
export const ROUNDS = 4;

/** One part of an extent in as many that are as good as equal. */
export function divideExtent(extent: Extent, parts: number, part: number): Extent {
  if ("duration" in extent) return { duration: extent.duration / parts };
  const { calls } = extent;
  const upTo = (end: number): number => Math.floor((calls * end) / parts);
  return { calls: upTo(part + 1) - upTo(part) };
}
