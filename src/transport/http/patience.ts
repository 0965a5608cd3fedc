import type { ResponseHead } from "../http-client/head.ts";

/** The longest that is waited for a server that asks for it, in ms, and how long where it does not say, at first. */
const WAIT = { longest: 30_000, first: 1000 };

/**
 * How long to wait before a request is sent again that a server has not dealt with: it is asked too much (429), or has no time
 * and says when it will (503).
 * @returns ms; undefined: it is not to be sent again
 */
export function retryDelayOf({ status, fields }: ResponseHead, waits: number): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  const asked = readRetryAfter(fields.get("retry-after"), Date.now());
  if (asked === undefined) return status === 429 ? WAIT.first * 2 ** waits : undefined;
  return asked <= WAIT.longest ? asked : undefined;
}

/** Reads `Retry-After`: seconds, or a date. @returns ms from now */
export function readRetryAfter(field: string | undefined, now: number): number | undefined {
  if (field === undefined) return undefined;
  if (/^\d{1,9}$/.test(field)) return Number(field) * 1000;
  const date = Date.parse(field);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
