import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findNoise } from "../../src/bench/noise.ts";
import type { LevelResult } from "../../src/bench/result.ts";
import { levelResultOf } from "../fixtures/bench-results.ts";

/** A level of 10 s in which each of the four rounds has the next of these medians in µs, one caller calling. */
function levelOf(...medians: readonly number[]): LevelResult {
  const rates = medians.map((p50) => 1e6 / p50);
  const timeline = medians.map((p50, at) => ({
    at: (at * 10) / medians.length,
    calls: Math.round(((rates[at] ?? 0) * 10) / medians.length),
    errors: 0,
    p50,
    p99: p50 * 3,
  }));
  const calls = timeline.reduce((sum, span) => sum + span.calls, 0);
  const mean = medians.reduce((sum, p50) => sum + p50, 0) / medians.length;
  return levelResultOf(1, mean, { timeline, calls, rate: calls / 10 });
}

function noiseOf(hub: LevelResult, server: LevelResult) {
  return findNoise(hub, server, {
    p50: hub.latency.p50 - server.latency.p50,
    p99: hub.latency.p99 - server.latency.p99,
    rate: hub.rate / server.rate,
  });
}

describe("a difference between hub and server", () => {
  it("is no noise if both halves of the level show it", () => {
    const noise = noiseOf(levelOf(110, 111, 109, 110), levelOf(100, 99, 100, 101));
    assert.deepEqual(noise, { p50: false, p99: false, rate: false });
  });

  it("is noise if it changes more from one half to the other than it is large", () => {
    const noise = noiseOf(levelOf(150, 150, 70, 70), levelOf(100, 100, 100, 100));
    assert.deepEqual(noise, { p50: true, p99: true, rate: true });
  });

  it("is no noise if only the machine gets slower, for hub and server alike", () => {
    const noise = noiseOf(levelOf(110, 110, 160, 160), levelOf(100, 100, 150, 150));
    assert.deepEqual(noise, { p50: false, p99: false, rate: false });
  });

  it("is unknown if the level is too short, or a half of it has no answer", () => {
    const whole = levelOf(100, 100, 100, 100);
    assert.equal(noiseOf(levelOf(100), whole), undefined);
    assert.equal(noiseOf(whole, { ...whole, timeline: [] }), undefined);
    const silent = whole.timeline.map((span, at) => (at < 2 ? span : { ...span, calls: 0 }));
    assert.equal(noiseOf(whole, { ...whole, timeline: silent }), undefined);
  });
});
