import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  count,
  formatAge,
  formatDuration,
  formatElapsed,
  formatSize,
  formatWait,
} from "../../src/base/format.ts";

describe("what people read", () => {
  for (const [ms, text] of [
    [-5, "0 ms"],
    [0.4, "0 ms"],
    [999.4, "999 ms"],
    [999.5, "1 s"],
    [1849, "1.8 s"],
    [59_949, "59.9 s"],
    [59_950, "1 min"],
    [150_000, "2.5 min"],
    [3_596_999, "59.9 min"],
    [3_597_000, "1 h"],
    [21_600_000, "6 h"],
    [172_799_999, "48 h"],
    [172_800_000, "2 days"],
    [2_592_000_000, "30 days"],
  ] as const) {
    it(`has ${ms} ms as ${text}`, () => assert.equal(formatDuration(ms), text));
  }

  for (const [ms, text] of [
    [-5, "just now"],
    [4999, "just now"],
    [59_999, "59 s ago"],
    [119_999, "1 min ago"],
    [3_599_999, "59 min ago"],
    [172_799_999, "47 h ago"],
    [172_800_000, "2 days ago"],
  ] as const) {
    it(`has ${ms} ms before now as ${text}`, () => assert.equal(formatAge(ms), text));
  }

  for (const [ms, text] of [
    [-5, "0 s"],
    [999, "0 s"],
    [59_999, "59 s"],
    [119_999, "1 min"],
    [3_599_999, "59 min"],
    [172_799_999, "47 h"],
    [172_800_000, "2 days"],
  ] as const) {
    it(`has ${ms} ms that still grow as ${text}`, () => assert.equal(formatElapsed(ms), text));
  }

  for (const [ms, text] of [
    [40, "40 ms"],
    [2500, "2.5 s"],
    [14_700, "15 s"],
    [59_900, "1 min"],
    [90_000, "1.5 min"],
  ] as const) {
    it(`has ${ms} ms to wait as ${text}`, () => assert.equal(formatWait(ms), text));
  }

  for (const [bytes, text] of [
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1 KB"],
    [999_499, "999 KB"],
    [999_500, "1 MB"],
    [23_400_000, "23 MB"],
    [1_250_000_000, "1.3 GB"],
  ] as const) {
    it(`has ${bytes} bytes as ${text}`, () => assert.equal(formatSize(bytes), text));
  }

  it("has one of a thing, and several", () => {
    assert.equal(count(1, "process", "processes"), "1 process");
    assert.equal(count(2, "process", "processes"), "2 processes");
    assert.equal(count(0, "server"), "0 servers");
  });
});
