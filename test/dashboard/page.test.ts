import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import { bundlePage } from "../../scripts/page.ts";

/** Sizes of what every visit loads, and of all files, compressed, in bytes. */
const MAX_LOADED = 50 * 1000;
const MAX_SIZE = 67 * 1000;

describe("the page of the dashboard", async () => {
  const page = await bundlePage();

  it("has at most 67 kB, compressed, of which at most 50 kB are loaded before charts are shown", () => {
    const { charts, ...loaded } = page;
    const sizeOf = (...texts: readonly string[]): number =>
      texts.reduce((sum, text) => sum + gzipSync(text).length, 0);
    const size = sizeOf(...Object.values(loaded));
    assert.ok(size <= MAX_LOADED, `${size} bytes are always loaded`);
    assert.ok(size + sizeOf(charts) <= MAX_SIZE, `${size + sizeOf(charts)} bytes`);
  });

  it("loads nothing from elsewhere, and has no script or style in its HTML", () => {
    assert.doesNotMatch(page.html, /https?:|<style|style=|<script(?![^>]*src=)| on\w+=/i);
    assert.doesNotMatch(page.style, /@import|url\((?!["']?data:)/);
    for (const script of [page.script.replace('import("./charts.js")', ""), page.charts])
      assert.doesNotMatch(script, /\bimport\s*\(|^import\b|\beval\(/m);
  });
});
