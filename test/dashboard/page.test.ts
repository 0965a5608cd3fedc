import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import { bundlePage } from "../../scripts/page.ts";

/** Sizes of what every visit loads, and of each module that is loaded later, compressed, in bytes. */
const MAX_LOADED = 60 * 1000;
const MAX_MODULE = 40 * 1000;

describe("the page of the dashboard", async () => {
  const page = await bundlePage();
  const scripts = Object.entries(page).filter(([name]) => name.endsWith(".js"));
  const sizeOf = (names: Iterable<string>): number =>
    [...names].reduce((sum, name) => sum + gzipSync(page[name] ?? "").length, 0);

  /** A module and all modules that are loaded with it. */
  const withImports = (name: string, found = new Set<string>()): ReadonlySet<string> => {
    if (found.has(name)) return found;
    found.add(name);
    for (const [, imported = ""] of page[name]?.matchAll(/\bfrom"\.\/([^"]+)"/g) ?? [])
      if (imported in page) withImports(imported, found);
    return found;
  };
  const opened = [...(page["page.js"] ?? "").matchAll(/\bimport\("\.\/([^"]+)"\)/g)].map(
    ([, name = ""]) => name,
  );
  const loaded = new Set(["index.html", "page.css", ...withImports("page.js")]);

  it("loads at most 60 kB, compressed, before a view is opened", () => {
    const size = sizeOf(loaded);
    assert.ok(loaded.size >= 3 && size <= MAX_LOADED, `${size} bytes are always loaded`);
  });

  it("loads at most 40 kB, compressed, with each module that is loaded later", () => {
    assert.ok(opened.length > 10);
    for (const name of opened) {
      const size = sizeOf([...withImports(name)].filter((one) => !loaded.has(one)));
      assert.ok(size <= MAX_MODULE, `${size} bytes are loaded with ${name}`);
    }
  });

  it("consists of files that are loaded", () => {
    const all = new Set([...loaded, ...opened.flatMap((name) => [...withImports(name)])]);
    assert.deepEqual(Object.keys(page).toSorted(), [...all].toSorted());
  });

  it("loads nothing from elsewhere, and has no script or style in its HTML", () => {
    assert.doesNotMatch(
      page["index.html"] ?? "",
      /https?:|<style|style=|<script(?![^>]*src=)| on\w+=/i,
    );
    assert.doesNotMatch(page["page.css"] ?? "", /@import|url\((?!["']?data:)/);
    for (const [, script] of scripts) {
      const rest = script.replaceAll(/\bimport\("\.\/[\w-]+\.js"\)/g, "");
      assert.doesNotMatch(rest, /\bimport\s*\(|^import\b[^;]*from"(?!\.\/)|\beval\(/m);
    }
  });
});
