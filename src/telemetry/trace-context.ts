import process from "node:process";

/** What identifies a span, also in another process (W3C Trace Context). */
export interface SpanContext {
  /** 32 lower-case hexadecimal digits. */
  readonly traceId: string;
  /** 16 lower-case hexadecimal digits. */
  readonly spanId: string;
  /** Whether the span is recorded. */
  readonly isSampled: boolean;
}

/** A span of a peer, with the state of its trace as the peer wrote it; undefined: it has sent none. */
export interface RemoteContext extends SpanContext {
  readonly traceState?: string | undefined;
}

/** Maximum length of a `tracestate` that is kept, in characters: what every participant must pass on (W3C, 3.3.1.5). */
export const MAX_TRACE_STATE = 512;

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_ID = /^0+$/;

/** Parses a `traceparent` (W3C Trace Context, 3.2). @returns undefined if it is not valid */
export function parseTraceparent(text: string | undefined): SpanContext | undefined {
  if (text === undefined || text.length < 55 || text.length > 256) return undefined;
  const [, version = "", traceId = "", spanId = "", flags = "", more] =
    TRACEPARENT.exec(text) ?? [];
  if (version === "" || version === "ff" || (version === "00" && more !== undefined))
    return undefined;
  if (NO_ID.test(traceId) || NO_ID.test(spanId)) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function formatTraceparent({ traceId, spanId, isSampled }: SpanContext): string {
  return `00-${traceId}-${spanId}-${isSampled ? "01" : "00"}`;
}

/** Random bytes are fetched for many ids at once: one call of the generator costs more than an id. */
const POOL_SIZE = 4096;
let pool = new Uint8Array(0);
let used = 0;

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

function randomHex(bytes: number): string {
  if (used + bytes > pool.length) {
    pool = crypto.getRandomValues(new Uint8Array(POOL_SIZE));
    used = 0;
  }
  let text = "";
  let bits = 0;
  for (const end = used + bytes; used < end; used++) {
    const byte = pool[used] ?? 0;
    bits |= byte;
    text += HEX[byte] ?? "";
  }
  // An id of zeros alone is not valid.
  return bits === 0 ? randomHex(bytes) : text;
}

export function newTraceId(): string {
  return randomHex(16);
}

export function newSpanId(): string {
  return randomHex(8);
}

/**
 * Whether a share of traces contains the trace. The same trace is in it or not for all who use this rule (OpenTelemetry,
 * TraceIdRatioBased).
 * @param share from 0 to 1
 */
export function isInShare(traceId: string, share: number): boolean {
  if (share >= 1) return true;
  return Number.parseInt(traceId.slice(18), 16) < share * 2 ** 56;
}

let lastDigest: { readonly text: string; readonly digest: string } | undefined;

/** A digest of a secret id, by which spans name it. */
export function digestOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  if (text === lastDigest?.text) return lastDigest.digest;
  const { createHash } = process.getBuiltinModule("node:crypto");
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 32);
  lastDigest = { text, digest };
  return digest;
}
