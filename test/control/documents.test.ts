import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { EVENT_KINDS } from "../../src/base/events.ts";
import { makeControlSchema } from "../../src/control/json-schema.ts";

const text = readFileSync(new URL("../../docs/control-api.md", import.meta.url), "utf8");
const schema = makeControlSchema();
const { $defs } = schema as { readonly $defs: Record<string, object> };
const examples = [...text.matchAll(/^`(\w+)`:\n\n```json\n([^]*?)\n```/gm)].map(
  ([, name = "", json = ""]) => ({ name, document: JSON.parse(json) as { kind?: string } }),
);

describe("the page of the control API", () => {
  const ajv = new Ajv2020({ strict: false });
  for (const [at, { name, document }] of examples.entries()) {
    it(`has an example that fits its schema: ${name} (${at + 1})`, () => {
      const validate = ajv.compile($defs[name] ?? assert.fail("there is no such schema"));
      assert.ok(validate(document), JSON.stringify(validate.errors));
    });
  }

  it("has a row for each endpoint", () => {
    const rows = [...text.matchAll(/^\| `(\w+ \/v1\/\S+)`/gm)].map(([, route]) => route);
    const { endpoints } = schema as { readonly endpoints: object };
    const named = rows.map((route) => route?.replace(/NAME|ID|N(?=\/)/, ":"));
    const known = Object.keys(endpoints).map((route) => route.replace(/:\w+/, ":"));
    assert.deepEqual(new Set(named), new Set(known));
  });

  it("has an example of each document and of each kind of event", () => {
    const shown = new Set(examples.map(({ name }) => name));
    assert.deepEqual(shown, new Set(Object.keys($defs)));
    const events = examples.filter(({ name }) => name === "Event");
    assert.deepEqual(new Set(events.map(({ document }) => document.kind)), new Set(EVENT_KINDS));
  });
});
