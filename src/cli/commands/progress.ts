import type { CallProgress } from "../../frontend/in-process-client.ts";
import { sanitizeLine } from "../../terminal/report.ts";

/** `3/10 (30%) copying`; what is not known is left out. */
export function describeProgress({ progress, total, message }: CallProgress): string {
  const isNumber = (value: unknown): value is number => typeof value === "number";
  const parts: string[] = [];
  if (isNumber(progress)) {
    const known = isNumber(total) && total > 0;
    const percent = known ? Math.floor((Math.min(progress, total) / total) * 100) : 0;
    parts.push(known ? `${progress}/${total} (${percent}%)` : String(progress));
  }
  if (typeof message === "string") parts.push(sanitizeLine(message));
  return parts.join(" ");
}
