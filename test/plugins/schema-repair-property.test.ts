import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Ajv, type AnySchema, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { type Purpose, repair } from "../../plugins/schema-repair/repair.ts";

/** Number of runs; TOOLMUX_TEST_RUNS overrides it. */
const RUNS = Math.min(Number(process.env["TOOLMUX_TEST_RUNS"] ?? 120), 100_000);

// Without `allErrors`, the code that Ajv generates for some combinations of keywords skips keywords or refers to
// undeclared variables.
const LAX = { strict: false, validateFormats: false, unicodeRegExp: false } as const;
const OPTIONS = { ...LAX, allErrors: true, logger: false } as const;
const DRAFT_7 = "http://json-schema.org/draft-07/schema#";

const DIALECTS = { old: new Ajv(OPTIONS), present: new Ajv2020(OPTIONS) };

/** Compiles a schema in the dialect that it declares; undefined if it is invalid. */
function compile(schema: unknown): ValidateFunction | undefined {
  const isOld = (schema as { $schema?: unknown } | null)?.$schema === DRAFT_7;
  const ajv = isOld ? DIALECTS.old : DIALECTS.present;
  try {
    return ajv.compile(schema as AnySchema);
  } catch {
    return undefined;
  } finally {
    ajv.removeSchema(schema as AnySchema);
  }
}

const NAMES = fc.constantFrom("a", "b", "c", "x[y]");
const PLACES = ["#/$defs/a", "#/$defs/b", "#/definitions/a", "#/properties/a", "#/anyOf/0"];
const ODD_PLACES = ["#", "#/properties/b/items", "#/nowhere", "#anchor", "http://127.0.0.1/schema"];
const REFERENCES = fc.constantFrom(...PLACES, ...ODD_PLACES);
const COUNT = fc.integer({ min: 0, max: 3 });
const BOUND = fc.integer({ min: -2, max: 5 });
const TYPE = fc.constantFrom("object", "array", "string", "integer", "number", "null", "boolean");
const VALUE = fc.jsonValue({ maxDepth: 1 });

const GOOD = fc.letrec<{ schema: unknown }>((tie) => {
  const schema = tie("schema");
  const some = fc.array(schema, { minLength: 1, maxLength: 2 });
  const names = fc.uniqueArray(NAMES, { maxLength: 2 });
  const named = fc.dictionary(NAMES, schema, { maxKeys: 3 });
  const keywords = {
    type: fc.oneof(TYPE, fc.uniqueArray(TYPE, { minLength: 1, maxLength: 3 })),
    properties: named,
    patternProperties: fc.dictionary(fc.constantFrom("^a", "b|c"), schema, { maxKeys: 1 }),
    additionalProperties: fc.oneof(fc.constant(false), schema),
    unevaluatedProperties: fc.oneof(fc.constant(false), schema),
    unevaluatedItems: fc.constant(false),
    required: names,
    items: schema,
    prefixItems: some,
    contains: schema,
    minContains: COUNT,
    maxContains: COUNT,
    allOf: some,
    anyOf: some,
    oneOf: some,
    not: schema,
    if: schema,
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of schemas
    then: schema,
    else: schema,
    propertyNames: fc.constantFrom({ maxLength: 1 }, { pattern: "^[ab]" }),
    dependentRequired: fc.dictionary(NAMES, names, { maxKeys: 2 }),
    dependentSchemas: named,
    dependencies: named,
    enum: fc.array(VALUE, { minLength: 1, maxLength: 3 }),
    const: VALUE,
    minimum: BOUND,
    exclusiveMaximum: BOUND,
    minLength: COUNT,
    maxItems: COUNT,
    minProperties: COUNT,
    maxProperties: COUNT,
    $ref: REFERENCES,
    title: fc.constant("title"),
    description: fc.constant("words"),
  };
  const KEYS = Object.keys(keywords) as (keyof typeof keywords)[];
  const part = (size: number): fc.Arbitrary<object> =>
    fc
      .uniqueArray(fc.constantFrom(...KEYS), { maxLength: size })
      .chain((keys) => fc.record(Object.fromEntries(keys.map((key) => [key, keywords[key]]))));
  return {
    schema: fc.oneof({ maxDepth: 4, depthSize: "small" }, fc.boolean(), part(1), part(2), part(4)),
  };
}).schema;

/** Invalid values. */
const JUNK: readonly unknown[] = [null, true, false, "", "Object", "any", 0, -1, 1.5, []];
const INVALID_VALUES = fc.constantFrom(...JUNK, {}, [{}], ["a", 1]);

/** A schema in which some keywords have invalid values. */
const BAD = fc
  .tuple(GOOD, fc.array(fc.tuple(fc.nat(), INVALID_VALUES), { minLength: 1, maxLength: 3 }))
  .map(([schema, changes]) => {
    const copy = structuredClone(schema);
    for (const [at, junk] of changes) spoil(copy, at, junk);
    return copy;
  });

function spoil(schema: unknown, at: number, junk: unknown): void {
  const places: [Record<string, unknown>, string][] = [];
  const look = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    for (const [key, inner] of Object.entries(value)) {
      places.push([value as Record<string, unknown>, key]);
      look(inner);
    }
  };
  look(schema);
  const place = places[at % Math.max(places.length, 1)];
  if (place !== undefined) place[0][place[1]] = structuredClone(junk);
}

/** A root schema of type object, with definitions. */
function rooted(part: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  const root = fc.record(
    {
      type: fc.constantFrom<unknown>("object", ["object", "null"]),
      properties: fc.dictionary(NAMES, part, { maxKeys: 3 }),
      $defs: fc.dictionary(NAMES, part, { maxKeys: 2 }),
      definitions: fc.dictionary(NAMES, part, { maxKeys: 2 }),
      $schema: fc.constantFrom(DRAFT_7, "https://json-schema.org/draft/2020-12/schema"),
    },
    { requiredKeys: [] },
  );
  return fc.tuple(root, part).map(([whole, more]) => {
    const isObject = typeof more === "object" && more !== null;
    return isObject ? { ...more, ...whole } : whole;
  });
}

/** Schemas and values for which Ajv without `allErrors` fails or is wrong, before or after the repair. */
const WRONG_WITHOUT_ALL_ERRORS: [unknown, Record<string, unknown>[]][] = [
  [{ dependentSchemas: { a: { not: true, oneOf: [{ enum: [[]] }], exclusiveMaximum: 0 } } }, [{}]],
  [{ properties: { a: { contains: {}, prefixItems: [{ dependencies: {} }] } } }, [{ a: [] }]],
];

const ARGUMENTS = fc.dictionary(
  NAMES,
  fc.oneof(
    fc.constantFrom<unknown>(null, true, "", "ab", 0, 1, 2.5, [], {}),
    fc.array(fc.constantFrom<unknown>(0, "a", null, {}, []), { maxLength: 3 }),
    fc.dictionary(NAMES, fc.constantFrom<unknown>(0, "a", null, {}, [1]), { maxKeys: 2 }),
  ),
  { maxKeys: 3 },
);

/** Problems of a repaired schema; empty if there are none. */
function problemsOf(schema: Record<string, unknown>, purpose: Purpose): string[] {
  const faults: string[] = [];
  if (schema["type"] !== "object") faults.push("the root is no object's");
  if (compile(schema) === undefined) faults.push("it cannot be compiled");
  if (/"\$ref":"(?!#["/])/.test(JSON.stringify(schema))) faults.push("a reference leads elsewhere");
  if (purpose === "results") return faults;
  for (const keyword of ["allOf", "anyOf", "oneOf", "not", "enum", "const", "$ref"]) {
    if (Object.hasOwn(schema, keyword)) faults.push(`${keyword} at the root`);
  }
  for (const name of Object.keys(schema["properties"] ?? { "?": 0 })) {
    if (!/^[\w.-]+$/.test(name)) faults.push(`an argument called ${name}`);
  }
  return faults;
}

/**
 * Repairs a schema and checks that the result is valid and needs no further repair. @returns undefined if not
 * repairable
 */
function repairAndCheck(given: unknown, purpose: Purpose): unknown {
  const before = JSON.stringify(given);
  const result = repair(given, purpose);
  assert.equal(JSON.stringify(given), before, "what was given was changed");
  if (result.kind === "unrepairable") return undefined;
  const schema = (result.kind === "unchanged" ? given : result.schema) as Record<string, unknown>;
  assert.deepEqual(problemsOf(schema, purpose), [], JSON.stringify(schema));
  assert.equal(repair(schema, purpose).kind, "unchanged", JSON.stringify(schema));
  if (result.kind === "repaired") assert.notEqual(result.done, "");
  return schema;
}

for (const purpose of ["arguments", "results"] as const) {
  describe(`any schema of ${purpose}`, () => {
    it("is one that can be read afterwards, and repairing it again changes nothing", () => {
      let repaired = 0;
      fc.assert(
        fc.property(fc.oneof(rooted(GOOD), rooted(BAD), BAD, INVALID_VALUES), (given) => {
          if (repairAndCheck(given, purpose) !== undefined) repaired++;
        }),
        { numRuns: RUNS },
      );
      assert.ok(repaired > RUNS / 4, `only ${repaired} of ${RUNS} could be repaired`);
    });

    it("accepts afterwards what it accepted before", () => {
      let accepted = 0;
      fc.assert(
        fc.property(rooted(GOOD), fc.array(ARGUMENTS, { maxLength: 10 }), (given, values) => {
          const result = repair(given, purpose);
          if (result.kind !== "repaired") return;
          const [before, after] = [compile(given), compile(result.schema)];
          if (before === undefined || after === undefined) return;
          for (const value of values) {
            if (!accepts(before, value)) continue;
            accepted++;
            assert.ok(accepts(after, value), JSON.stringify({ value, now: result.schema }));
          }
        }),
        { numRuns: RUNS, examples: WRONG_WITHOUT_ALL_ERRORS },
      );
      assert.ok(accepted > RUNS / 4, `only ${accepted} values were accepted`);
    });
  });
}

/** A schema that infinitely refers to itself accepts nothing. */
function accepts(validate: ValidateFunction, value: unknown): boolean {
  try {
    return validate(value);
  } catch {
    return false;
  }
}
