/** Measures what traces add to a call, in this process, without a hub or servers. */
import { Buffer } from "node:buffer";
import process from "node:process";
import { systemClock } from "../src/base/clock.ts";
import { TracedResponder } from "../src/frontend/traced-responder.ts";
import { withRequestId } from "../src/jsonrpc/message.ts";
import { parseMessage } from "../src/jsonrpc/parse.ts";
import type { OtlpProtocol } from "../src/manifest/telemetry.ts";
import { failureOfResponse } from "../src/router/error-type.ts";
import { encodeSpans } from "../src/telemetry/otlp.ts";
import { AttemptSpan, contextEdits, startRequestSpan } from "../src/telemetry/request-span.ts";
import type { EndedSpan } from "../src/telemetry/span.ts";
import { Tracer } from "../src/telemetry/tracer.ts";

/** Number of calls in one measurement. */
const CALLS = 20_000;
/** Number of spans in a post. */
const BATCH = 512;
const REQUEST =
  '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo__echo","arguments":{"text":"a line"},"_meta":{"progressToken":7}}}';
const ANSWER = '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a line"}]}}';
const ORIGIN = {
  network: { transport: "pipe" },
  protocolVersion: "2025-11-25",
  sessionId: undefined,
  client: "editor",
  http: undefined,
} as const;
const TARGET = {
  server: "echo",
  method: "tools/call",
  name: "echo",
  network: { transport: "pipe" },
  address: undefined,
  protocolVersion: "2025-11-25",
  sessionId: undefined,
} as const;
const SOURCE = { originOf: () => ORIGIN };
const RESPONDER = { notify() {}, respond() {} };
const RESOURCE = { "service.name": "toolmux", "service.version": "1" };

export interface TraceTiming {
  /** The share of calls that is sampled; undefined: nothing is traced. */
  readonly sample: number | undefined;
  readonly protocol: OtlpProtocol;
  /** Number of measurements. */
  readonly rounds: number;
}

/**
 * The CPU time of a call in its spans, in µs: both spans, the context in its bytes, and the encoding of what would be
 * posted.
 */
export function timeTraces({ sample, protocol, rounds }: TraceTiming): readonly number[] {
  let waiting: EndedSpan[] = [];
  let sent = 0;
  let bytes = 0;
  const send = (): void => {
    const spans = waiting.map((span) => span.toSpan());
    bytes += encodeSpans(spans, RESOURCE, Date.now(), protocol).length;
    sent += waiting.length;
    waiting = [];
  };
  const tracer =
    sample === undefined
      ? undefined
      : new Tracer({
          sample,
          isParentBased: true,
          propagate: "always",
          keepsContent: false,
          now: () => systemClock.now(),
          redact: (text) => text,
          record: (span) => void waiting.push(span),
        });
  const request = parseMessage(Buffer.from(REQUEST));
  const answer = parseMessage(Buffer.from(ANSWER));
  if (request.kind !== "request" || answer.kind !== "response") throw new Error("no messages");
  const run = (): void => {
    if (tracer === undefined) return;
    const span = startRequestSpan(tracer, request, undefined, SOURCE);
    if (span === undefined) return;
    const responder = new TracedResponder(RESPONDER, span);
    const attempt = new AttemptSpan(span, TARGET);
    const { sentContext } = attempt;
    if (sentContext !== undefined)
      withRequestId(request, 1, contextEdits(request, sentContext), []);
    attempt.end(failureOfResponse(answer, true));
    span.setServer("echo");
    span.setOutcome(failureOfResponse(answer, true));
    responder.respond([]);
    if (waiting.length >= BATCH) send();
  };
  const measure = (): number => {
    const before = process.cpuUsage();
    for (let at = 0; at < CALLS; at++) run();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / CALLS;
  };
  measure();
  const times = Array.from({ length: rounds }, measure);
  send();
  const expected = sample === 1 ? 2 * CALLS * (rounds + 1) : undefined;
  if (expected !== undefined && (sent !== expected || bytes === 0))
    throw new Error(`${sent} of ${expected} spans were sent`);
  return times;
}
