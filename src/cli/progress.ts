import type { Progress } from "../frontend/local.ts";
import type { Env } from "../manifest/folders.ts";
import { openLine } from "./print.ts";
import { clean } from "./report.ts";

/** One line on a terminal that is written over and goes at the end. */
export interface ProgressLine {
  show(progress: Progress): void;
  clear(): void;
}

/** The line on stderr; undefined if that is no terminal which can have one. */
export function openProgress(env: Env): ProgressLine | undefined {
  const line = openLine(env);
  return line && { show: (it) => line.show(describeProgress(it)), clear: () => line.clear() };
}

/** `3/10 (30%) copying`; what is not known is left out. */
export function describeProgress({ progress, total, message }: Progress): string {
  const isNumber = (value: unknown): value is number => typeof value === "number";
  const parts: string[] = [];
  if (isNumber(progress)) {
    const known = isNumber(total) && total > 0;
    const percent = known ? Math.floor((Math.min(progress, total) / total) * 100) : 0;
    parts.push(known ? `${progress}/${total} (${percent}%)` : String(progress));
  }
  if (typeof message === "string") parts.push(clean(message));
  return parts.join(" ");
}
