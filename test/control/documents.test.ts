import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { EVENT_KINDS } from "../../src/base/hub-events.ts";
import { ENDPOINTS } from "../../src/control/endpoints.ts";
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

  it("has a row for each endpoint, which says what the table of endpoints says", () => {
    const rows = new Map(
      [...text.matchAll(/^\| `(\w+) \/v1(\/\S+)`.* \| (.+?) *\|$/gm)].map(
        ([, method, path, says]) => [`${method} ${path}`, says],
      ),
    );
    const declared = Object.entries(ENDPOINTS).map(
      ([route, { says }]) =>
        [route.replaceAll(/:(\w+)/g, (_, name: string) => name.toUpperCase()), says] as const,
    );
    assert.deepEqual(rows, new Map(declared));
  });

  it("has an example of each document and of each kind of event", () => {
    const shown = new Set(examples.map(({ name }) => name));
    assert.deepEqual(shown, new Set(Object.keys($defs)));
    const events = examples.filter(({ name }) => name === "Event");
    assert.deepEqual(new Set(events.map(({ document }) => document.kind)), new Set(EVENT_KINDS));
  });
});
