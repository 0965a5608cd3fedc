import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import { bundlePage } from "../../scripts/page.ts";

/** Sizes of what every visit loads, and of a module that a view loads, compressed, in bytes. */
const MAX_LOADED = 60 * 1000;
const MAX_MODULE = 40 * 1000;

describe("the page of the dashboard", async () => {
  const page = await bundlePage();

  it("loads at most 60 kB, compressed, and at most 40 kB more when charts are shown", () => {
    const { charts, ...loaded } = page;
    const sizeOf = (...texts: readonly string[]): number =>
      texts.reduce((sum, text) => sum + gzipSync(text).length, 0);
    const size = sizeOf(...Object.values(loaded));
    assert.ok(size <= MAX_LOADED, `${size} bytes are always loaded`);
    assert.ok(sizeOf(charts) <= MAX_MODULE, `${sizeOf(charts)} bytes`);
  });

  it("loads nothing from elsewhere, and has no script or style in its HTML", () => {
    assert.doesNotMatch(page.html, /https?:|<style|style=|<script(?![^>]*src=)| on\w+=/i);
    assert.doesNotMatch(page.style, /@import|url\((?!["']?data:)/);
    for (const script of [page.script.replace('import("./charts.js")', ""), page.charts])
      assert.doesNotMatch(script, /\bimport\s*\(|^import\b|\beval\(/m);
  });
});
