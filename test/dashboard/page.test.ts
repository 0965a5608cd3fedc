import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import { bundlePage } from "../../scripts/page.ts";

/** In bytes. */
const MAX_SIZE = 60 * 1000;

describe("the page of the dashboard", async () => {
  const page = await bundlePage();

  it("has at most 60 kB, compressed", () => {
    const sizes = Object.values(page).map((text: string) => gzipSync(text).length);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    assert.ok(total <= MAX_SIZE, `${total} bytes`);
  });

  it("loads nothing from elsewhere, and has no script or style in its HTML", () => {
    assert.doesNotMatch(page.html, /https?:|<style|style=|<script(?![^>]*src=)| on\w+=/i);
    assert.doesNotMatch(page.style, /@import|url\((?!["']?data:)/);
    assert.doesNotMatch(page.script, /\bimport\s*\(|^import\b|\beval\(/m);
  });
});
