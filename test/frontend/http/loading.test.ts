import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { posix } from "node:path";
import { describe, it } from "node:test";

const ROOT = new URL("../../../", import.meta.url);

/** Imports that are made whenever a file is loaded: neither types nor calls. */
const IMPORT = /^(?:import|export) (?!type\b)(?:[^;"']*? from )?"([^"]+)"/gm;

/** All files and packages that loading a file of src loads. */
function loadedBy(file: string, loaded = new Set<string>()): Set<string> {
  if (loaded.has(file)) return loaded;
  loaded.add(file);
  const text = readFileSync(new URL(file, ROOT), "utf8");
  for (const [, name = ""] of text.matchAll(IMPORT)) {
    if (!name.startsWith(".")) loaded.add(name);
    else if (name.endsWith(".ts")) loadedBy(posix.join(posix.dirname(file), name), loaded);
  }
  return loaded;
}

describe("serving on stdin and stdout", () => {
  it("loads nothing of HTTP but what reads its options", () => {
    const starts = ["src/main.ts", "src/cli/commands/serve.ts", "src/host/serve-hub.ts"];
    const loaded = [...new Set(starts.flatMap((path) => [...loadedBy(path)]))];
    assert.ok(loaded.includes("src/hub/hub.ts"));
    const ofHttp = loaded.filter((name) => /http|hono|dashboard/.test(name));
    assert.deepEqual(ofHttp.toSorted(), ["src/cli/http-options.ts", "src/host/http-address.ts"]);
    const wanted = [...loadedBy("src/frontend/http/server.ts")];
    assert.ok(wanted.includes("hono"), "what is looked for can be found");
    assert.ok(!wanted.includes("node:http"), "it is slower than plain sockets");
    assert.ok(!wanted.some((name) => name.includes("dashboard")), "only --dashboard needs it");
  });
});
