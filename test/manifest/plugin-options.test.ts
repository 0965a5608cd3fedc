import assert from "node:assert/strict";
import { copyFile, mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import * as ours from "valibot";
import { formatPath } from "../../src/manifest/problems.ts";
import { type StandardSchema, validateOptions } from "../../src/manifest/plugin-options.ts";
import { delay, globs, limit, size } from "../../src/manifest/fields.ts";

const folder = await realpath(await mkdtemp(join(tmpdir(), "toolmux-valibot-")));
after(() => rm(folder, { recursive: true, force: true }));
const copy = join(folder, "valibot.mjs");
await copyFile(fileURLToPath(import.meta.resolve("valibot")), copy);
const theirs = (await import(pathToFileURL(copy).href)) as typeof ours;

const SOURCE = { file: "/t.toml", path: ["plugins", 0, "options"] };

/** What is told, each as `path: message` below the options; the value if nothing is wrong. */
async function check<T>(schema: StandardSchema<T>, input: unknown): Promise<unknown> {
  const checked = await validateOptions(schema, input, SOURCE);
  if (checked.ok) return checked.value;
  return checked.problems.map(({ path, message }) =>
    `${formatPath(path).replace(/^plugins\[0\]\.options\.?/, "")}: ${message}`.replace(/^: /, ""),
  );
}

it("the other copy of valibot is another", () => {
  assert.notEqual(theirs.string, ours.string);
});

for (const [whose, v] of [
  ["toolmux's own", ours],
  ["another", theirs],
] as const) {
  describe(`options with a schema of ${whose} copy of valibot`, () => {
    const schema = v.strictObject({
      file: v.string(),
      level: v.optional(v.picklist(["a", "b"]), "a"),
      deep: v.optional(
        v.pipe(
          v.strictObject({
            count: v.pipe(v.number(), v.minValue(1)),
            tags: v.optional(v.array(v.string())),
          }),
          v.transform(({ count }) => count * 2),
        ),
      ),
    });

    it("are what the schema makes of them if nothing is wrong", async () => {
      const value = await check(schema, { file: "x", deep: { count: 2 } });
      assert.deepEqual(value, { file: "x", level: "a", deep: 4 });
    });

    it("are told what is unknown, missing and wrong in them all at once, without a value", async () => {
      const input = {
        fil: "sk-secret",
        level: "sk-secret",
        deep: { count: 0, tag: [], tags: ["a", 5] },
      };
      assert.deepEqual(await check(schema, input), [
        `fil: unknown key; did you mean "file"?`,
        `deep.tag: unknown key; did you mean "tags"?`,
        "file: is missing",
        `level: expected ("a" | "b"), found a string`,
        "deep.count: expected >=1, found a number",
        "deep.tags[1]: expected string, found a number",
      ]);
    });

    it("that are no table are told so", async () => {
      assert.deepEqual(await check(schema, "x"), ["expected a table, found a string"]);
      const input = { file: "x", deep: [] };
      assert.deepEqual(await check(schema, input), ["deep: expected a table, found an array"]);
    });

    it("may be null where that is allowed", async () => {
      const inner = v.strictObject({ a: v.number() });
      const outer = v.strictObject({ one: v.nullable(inner), two: v.nullish(inner) });
      assert.deepEqual(await check(outer, { one: null, two: null }), { one: null, two: null });
      assert.deepEqual(await check(outer, { one: { b: 1 } }), [
        `one.b: unknown key; did you mean "a"?`,
        "one.a: is missing",
      ]);
    });

    it("may not be null elsewhere", async () => {
      const outer = v.strictObject({ one: v.optional(v.strictObject({ a: v.number() })) });
      assert.deepEqual(await check(outer, { one: null }), ["one: expected a table, found null"]);
    });

    it("have keys of a wrong form told", async () => {
      const outer = v.record(
        v.pipe(v.string(), v.regex(/^[a-z]+$/, "lower-case letters")),
        v.number(),
      );
      assert.deepEqual(await check(outer, { a: 1, B: 2 }), [
        "B: expected lower-case letters, found a string",
      ]);
      const table = v.record(v.picklist(["a"]), v.number());
      assert.deepEqual(await check(table, { b: 1 }), [`b: expected "a", found a string`]);
    });

    it("have no advice that is for servers", async () => {
      const outer = v.strictObject({ command: v.string() });
      assert.deepEqual(await check(outer, { command: "x", url: "u" }), [
        "url: unknown key; the known keys are command",
      ]);
    });

    it("have unknown keys in arrays and records told, each", async () => {
      const item = v.object({ a: v.optional(v.number()) });
      const outer = v.object({ list: v.array(item), table: v.record(v.string(), item) });
      assert.deepEqual(
        await check(outer, { list: [{ x: 1 }, { a: 1 }], table: { k: { y: 1, z: 2 } } }),
        [
          'list[0].x: unknown key; did you mean "a"?',
          'table.k.y: unknown key; did you mean "a"?',
          'table.k.z: unknown key; did you mean "a"?',
        ],
      );
    });

    it("may have other keys if the schema says so", async () => {
      const rest = v.objectWithRest({ a: v.number() }, v.string());
      assert.deepEqual(await check(v.looseObject({ a: v.number() }), { a: 1, b: 2 }), {
        a: 1,
        b: 2,
      });
      assert.deepEqual(await check(rest, { a: 1, b: "x" }), { a: 1, b: "x" });
      assert.deepEqual(await check(rest, { a: 1, b: 2 }), ["b: expected string, found a number"]);
      assert.deepEqual(await check(v.looseObject({ a: v.number() }), {}), ["a: is missing"]);
    });

    it("have what is wrong in unions told", async () => {
      const outer = v.strictObject({
        either: v.union([v.string(), v.number()]),
        kind: v.variant("type", [
          v.strictObject({ type: v.literal("a"), x: v.number() }),
          v.strictObject({ type: v.literal("b") }),
        ]),
      });
      assert.deepEqual(await check(outer, { either: true, kind: { type: "a", y: 1 } }), [
        "either: expected (string | number), found a boolean",
        "kind.x: is missing",
        "kind.y: unknown key",
      ]);
      assert.deepEqual(await check(outer, { either: 1, kind: { type: "c" } }), [
        `kind.type: expected ("a" | "b"), found a string`,
      ]);
    });

    it("have measures told, and checks that say nothing", async () => {
      const outer = v.strictObject({
        short: v.pipe(v.string(), v.maxLength(3)),
        odd: v.pipe(
          v.number(),
          v.check((value) => value % 2 === 1),
        ),
      });
      assert.deepEqual(await check(outer, { short: "sk-secret", odd: 2 }), [
        "short: expected length <=3, found 9",
        "odd: is not allowed",
      ]);
    });

    it("have the schema's own words told: what was expected, or a whole sentence", async () => {
      const outer = v.strictObject({
        a: v.string("a string"),
        b: v.string("This has to be a text."),
        c: v.pipe(
          v.string(),
          v.check(
            () => false,
            ({ input }) => `Not ${input}, please`,
          ),
        ),
      });
      const echo = v.pipe(
        v.string(),
        v.check(
          () => false,
          ({ input }) => `something else than ${input}`,
        ),
      );
      assert.deepEqual(await check(echo, "sk-secret"), [
        "expected something else than •••, found a string",
      ]);
      assert.deepEqual(await check(outer, { a: 1, b: 1, c: "sk-secret" }), [
        "a: expected a string, found a number",
        "b: This has to be a text.",
        "c: Not •••, please",
      ]);
    });

    it("may be checked asynchronously", async () => {
      const outer = v.strictObjectAsync({
        a: v.pipeAsync(
          v.string(),
          v.checkAsync((text) => Promise.resolve(text === "x"), "x"),
        ),
      });
      assert.deepEqual(await check(outer, { a: "x" }), { a: "x" });
      assert.deepEqual(await check(outer, { a: "y", b: 1 }), [
        'b: unknown key; did you mean "a"?',
        "a: expected x, found a string",
      ]);
    });

    it("may have what toolmux offers for them in it", async () => {
      const outer = v.strictObject({ delay, limit, size, globs });
      const good = { delay: "0s", limit: "1m", size: "1KB", globs: ["a*"] };
      const value = { delay: 0, limit: 60_000, size: 1000, globs: ["a*"] };
      assert.deepEqual(await check(outer, good), value);
      assert.deepEqual(await check(outer, { delay: "soon", limit: 0, size: "1MB", globs: "a" }), [
        `delay: expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds, found a string`,
        "limit: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found a number",
        "globs: expected an array of names or patterns, found a string",
      ]);
    });
  });
}

describe("options with a schema of another library", () => {
  const say = (
    ...issues: { message: string; path?: readonly (string | number | { key: string })[] }[]
  ): StandardSchema<never> => ({
    "~standard": { validate: () => ({ issues }) },
  });

  it("have what it says told as it is, at its place", async () => {
    const path = [{ key: "a" }, "b", 0];
    assert.deepEqual(await check(say({ message: "nope", path }, { message: "no" }), {}), [
      "a.b[0]: nope",
      "no",
    ]);
  });

  it("have no value told, though it is in what the library says", async () => {
    const input = { token: "sk-secret", deep: { list: ["sk-other", 5] } };
    const schema = say(
      { message: "sk-secret is not good", path: ["token"] },
      { message: "got sk-other in deep", path: ["deep"] },
    );
    assert.deepEqual(await check(schema, input), [
      "token: ••• is not good",
      "deep: got ••• in deep",
    ]);
  });

  it("are taken as its schema makes them", async () => {
    const schema: StandardSchema<number> = {
      "~standard": { validate: () => Promise.resolve({ value: 5 }) },
    };
    assert.equal(await check(schema, {}), 5);
  });
});
