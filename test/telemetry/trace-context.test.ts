import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  formatTraceparent,
  newSpanId,
  newTraceId,
  parseTraceparent,
} from "../../src/telemetry/trace-context.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

describe("a traceparent", () => {
  it("is read as W3C Trace Context says, also of later versions", () => {
    const context = { traceId: TRACE, spanId: SPAN, isSampled: true };
    assert.deepEqual(parseTraceparent(`00-${TRACE}-${SPAN}-01`), context);
    assert.deepEqual(parseTraceparent(`00-${TRACE}-${SPAN}-03`), context);
    assert.deepEqual(parseTraceparent(`cc-${TRACE}-${SPAN}-01-what-follows`), context);
    assert.deepEqual(parseTraceparent(`00-${TRACE}-${SPAN}-02`), { ...context, isSampled: false });
    assert.equal(formatTraceparent(context), `00-${TRACE}-${SPAN}-01`);
  });

  for (const [why, text] of [
    ["absent", undefined],
    ["empty", ""],
    ["of the version ff", `ff-${TRACE}-${SPAN}-01`],
    ["longer than its version allows", `00-${TRACE}-${SPAN}-01-more`],
    ["followed by more without a dash", `cc-${TRACE}-${SPAN}-01more`],
    ["without a trace", `00-${"0".repeat(32)}-${SPAN}-01`],
    ["without a span", `00-${TRACE}-${"0".repeat(16)}-01`],
    ["in upper case", `00-${TRACE.toUpperCase()}-${SPAN}-01`],
    ["of other characters", `00-${TRACE.replace("0", "g")}-${SPAN}-01`],
    ["short", `00-${TRACE}-${SPAN}`],
    ["endless", `cc-${TRACE}-${SPAN}-01-${"x".repeat(1000)}`],
  ] as const) {
    it(`is not read if it is ${why}`, () => {
      assert.equal(parseTraceparent(text), undefined);
    });
  }

  it("has random ids, each its own", () => {
    const ids = Array.from({ length: 2000 }, () => [newTraceId(), newSpanId()]).flat();
    assert.equal(new Set(ids).size, ids.length);
    for (const id of ids) assert.match(id, /^(?:[0-9a-f]{16}|[0-9a-f]{32})$/);
  });
});
