import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { describe, it } from "node:test";
import { SCHEMA_URL } from "../../src/telemetry/otlp.ts";

const require = createRequire(import.meta.url);
// The package is one of those that encode spans need; it has all names of its version of the conventions.
const transformer = createRequire(require.resolve("@opentelemetry/otlp-transformer"));
const core = createRequire(transformer.resolve("@opentelemetry/core"));
const conventions = core("@opentelemetry/semantic-conventions/incubating") as Readonly<
  Record<string, unknown>
>;

const SOURCES = [
  "request-attributes.ts",
  "request-span.ts",
  "agent-spans.ts",
  "lifecycle.ts",
  "tracer.ts",
  "hub-telemetry.ts",
];
/** Names in the source that look like those of attributes. */
const NAME = /"((?:mcp|gen_ai|jsonrpc|network|server|client|error|rpc|service)\.[a-z_.]+)"/g;
/** Names of spans, which have the form of attributes. */
const SPANS = ["mcp.add", "mcp.remove", "mcp.connect_loop", "mcp.connect_attempt"];

describe("the names of attributes", () => {
  it("are those of the conventions, in the version that is sent with them", () => {
    const known = new Set(
      Object.entries(conventions).flatMap(([key, value]) =>
        key.startsWith("ATTR_") ? [value] : [],
      ),
    );
    const used = SOURCES.flatMap((file) => {
      const path = new URL(`../../src/telemetry/${file}`, import.meta.url);
      return [...readFileSync(path, "utf8").matchAll(NAME)].map(([, name = ""]) => name);
    }).filter((name) => !SPANS.includes(name));
    assert.ok(new Set(used).size >= 20, used.join(" "));
    assert.deepEqual(
      used.filter((name) => !known.has(name)),
      [],
    );
    const { version } = core("@opentelemetry/semantic-conventions/package.json") as {
      version: string;
    };
    assert.equal(SCHEMA_URL, `https://opentelemetry.io/schemas/${version}`);
  });
});
