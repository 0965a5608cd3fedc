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

/** What is wrong is told so. */
async function isTold<T>(
  schema: StandardSchema<T>,
  input: unknown,
  ...problems: readonly string[]
): Promise<void> {
  assert.deepEqual(await check(schema, input), problems);
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
      const deep = { count: 0, tag: [], tags: ["a", 5] };
      await isTold(
        schema,
        { fil: "sk-secret", level: "sk-secret", deep },
        `fil: unknown key; did you mean "file"?`,
        `deep.tag: unknown key; did you mean "tags"?`,
        "file: is missing",
        `level: expected ("a" | "b"), found a string`,
        "deep.count: expected >=1, found a number",
        "deep.tags[1]: expected string, found a number",
      );
    });

    it("that are no table are told so", async () => {
      await isTold(schema, "x", "expected a table, found a string");
      await isTold(schema, { file: "x", deep: [] }, "deep: expected a table, found an array");
    });

    it("may be null where that is allowed", async () => {
      const inner = v.strictObject({ a: v.number() });
      const outer = v.strictObject({ one: v.nullable(inner), two: v.nullish(inner) });
      assert.deepEqual(await check(outer, { one: null, two: null }), { one: null, two: null });
      const told = [`one.b: unknown key; did you mean "a"?`, "one.a: is missing"];
      await isTold(outer, { one: { b: 1 } }, ...told);
    });

    it("may not be null elsewhere", async () => {
      const outer = v.strictObject({ one: v.optional(v.strictObject({ a: v.number() })) });
      await isTold(outer, { one: null }, "one: expected a table, found null");
    });

    it("have keys of a wrong form told", async () => {
      const name = v.pipe(v.string(), v.regex(/^[a-z]+$/, "lower-case letters"));
      const outer = v.record(name, v.number());
      await isTold(outer, { a: 1, B: 2 }, "B: expected lower-case letters, found a string");
      const table = v.record(v.picklist(["a"]), v.number());
      await isTold(table, { b: 1 }, `b: expected "a", found a string`);
    });

    it("have no advice that is for servers", async () => {
      const outer = v.strictObject({ command: v.string() });
      const told = "url: unknown key; the known keys are command";
      await isTold(outer, { command: "x", url: "u" }, told);
    });

    it("have unknown keys in arrays and records told, each", async () => {
      const item = v.object({ a: v.optional(v.number()) });
      const outer = v.object({ list: v.array(item), table: v.record(v.string(), item) });
      const input = { list: [{ x: 1 }, { a: 1 }], table: { k: { y: 1, z: 2 } } };
      const paths = ["list[0].x", "table.k.y", "table.k.z"];
      const told = paths.map((path) => `${path}: unknown key; did you mean "a"?`);
      await isTold(outer, input, ...told);
    });

    it("may have other keys if the schema says so", async () => {
      const loose = v.looseObject({ a: v.number() });
      const rest = v.objectWithRest({ a: v.number() }, v.string());
      assert.deepEqual(await check(loose, { a: 1, b: 2 }), { a: 1, b: 2 });
      assert.deepEqual(await check(rest, { a: 1, b: "x" }), { a: 1, b: "x" });
      await isTold(rest, { a: 1, b: 2 }, "b: expected string, found a number");
      await isTold(loose, {}, "a: is missing");
    });

    it("have what is wrong in unions told", async () => {
      const outer = v.strictObject({
        either: v.union([v.string(), v.number()]),
        kind: v.variant("type", [
          v.strictObject({ type: v.literal("a"), x: v.number() }),
          v.strictObject({ type: v.literal("b") }),
        ]),
      });
      const either = "either: expected (string | number), found a boolean";
      const input = { either: true, kind: { type: "a", y: 1 } };
      await isTold(outer, input, either, "kind.x: is missing", "kind.y: unknown key");
      const told = `kind.type: expected ("a" | "b"), found a string`;
      await isTold(outer, { either: 1, kind: { type: "c" } }, told);
    });

    it("have measures told, and checks that say nothing", async () => {
      const isOdd = v.check((value: number) => value % 2 === 1);
      const short = v.pipe(v.string(), v.maxLength(3));
      const outer = v.strictObject({ short, odd: v.pipe(v.number(), isOdd) });
      const told = ["short: expected length <=3, found 9", "odd: is not allowed"];
      await isTold(outer, { short: "sk-secret", odd: 2 }, ...told);
    });

    it("have the schema's own words told: what was expected, or a whole sentence", async () => {
      const refuse = (say: (input: string) => string) =>
        v.pipe(
          v.string(),
          v.check(
            () => false,
            ({ input }) => say(input),
          ),
        );
      const outer = v.strictObject({
        a: v.string("a string"),
        b: v.string("This has to be a text."),
        c: refuse((input) => `Not ${input}, please`),
      });
      const echo = refuse((input) => `something else than ${input}`);
      await isTold(echo, "sk-secret", "expected something else than •••, found a string");
      const told = ["b: This has to be a text.", "c: Not •••, please"];
      const input = { a: 1, b: 1, c: "sk-secret" };
      await isTold(outer, input, "a: expected a string, found a number", ...told);
    });

    it("may be checked asynchronously", async () => {
      const isX = v.checkAsync((text: string) => Promise.resolve(text === "x"), "x");
      const outer = v.strictObjectAsync({ a: v.pipeAsync(v.string(), isX) });
      assert.deepEqual(await check(outer, { a: "x" }), { a: "x" });
      const told = 'b: unknown key; did you mean "a"?';
      await isTold(outer, { a: "y", b: 1 }, told, "a: expected x, found a string");
    });

    it("may have what toolmux offers for them in it", async () => {
      const outer = v.strictObject({ delay, limit, size, globs });
      const good = { delay: "0s", limit: "1m", size: "1KB", globs: ["a*"] };
      const value = { delay: 0, limit: 60_000, size: 1000, globs: ["a*"] };
      assert.deepEqual(await check(outer, good), value);
      await isTold(
        outer,
        { delay: "soon", limit: 0, size: "1MB", globs: "a" },
        `delay: expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds, found a string`,
        "limit: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found a number",
        "globs: expected an array of names or patterns, found a string",
      );
    });
  });
}

describe("options with a schema of another library", () => {
  const say = (
    ...issues: { message: string; path?: readonly (string | number | { key: string })[] }[]
  ): StandardSchema<never> => ({ "~standard": { validate: () => ({ issues }) } });

  it("have what it says told as it is, at its place", () => {
    const path = [{ key: "a" }, "b", 0];
    return isTold(say({ message: "nope", path }, { message: "no" }), {}, "a.b[0]: nope", "no");
  });

  it("have no value told, though it is in what the library says", () => {
    const input = { token: "sk-secret", deep: { list: ["sk-other", 5] } };
    const schema = say(
      { message: "sk-secret is not good", path: ["token"] },
      { message: "got sk-other in deep", path: ["deep"] },
    );
    return isTold(schema, input, "token: ••• is not good", "deep: got ••• in deep");
  });

  it("are taken as its schema makes them", async () => {
    const schema: StandardSchema<number> = {
      "~standard": { validate: () => Promise.resolve({ value: 5 }) },
    };
    assert.equal(await check(schema, {}), 5);
  });
});
