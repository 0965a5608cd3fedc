import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { textOf, utf8 } from "../../src/base/bytes.ts";
import type { ExposureRules } from "../../src/catalog/exposure.ts";
import { buildCatalog, type CatalogSource, type Catalog } from "../../src/catalog/catalog.ts";
import { EMPTY_LISTING, readAnnotations, readPage } from "../../src/catalog/listing.ts";

const digest = (data: string | Uint8Array): Uint8Array =>
  createHash("sha256").update(data).digest();
const naming = { separator: "__", maxLength: 50 };

function source(
  server: string,
  tools: string[],
  rules: Partial<ExposureRules> = {},
): CatalogSource {
  const bytes = utf8(`{"tools":[${tools.join(",")}]}`);
  const page = readPage(bytes, { start: 0, end: bytes.length }, "tools");
  assert.ok(page);
  const all = { prefix: server, allow: undefined, deny: [], rename: {}, ...rules };
  const limits = { timeout: 1, maxTimeout: 2 };
  const offer = { ...EMPTY_LISTING, tools: page.items };
  return { server, listing: offer, rules: { tools: all, prompts: all }, limits: () => limits };
}

const INPUT = '"inputSchema":{"type":"object"}';
const tool = (name: string, rest = ""): string =>
  `{"name":${JSON.stringify(name)}${rest},${INPUT}}`;
const build = (...sources: CatalogSource[]): Catalog => buildCatalog(sources, naming, digest);
const exposed = (catalog: Catalog): string[] => catalog.tools.routes.map((route) => route.name);
const list = (catalog: Catalog): string => textOf(catalog.tools.result);
const toolNotes = (catalog: Catalog) => catalog.notes.filter((note) => note.list === "tools");

describe("a catalog", () => {
  it("lists every server's tools under its prefix, sorted by exposed name", () => {
    const catalog = build(source("b", [tool("x"), tool("a")]), source("a", [tool("z")]));
    assert.deepEqual(exposed(catalog), ["a__z", "b__a", "b__x"]);
    const listed = ["a__z", "b__a", "b__x"].map((name) => tool(name));
    assert.equal(list(catalog), `{"tools":[${listed.join(",")}]}`);
  });

  it("has an empty list where there is nothing", () => {
    assert.equal(list(build()), '{"tools":[]}');
  });

  it("routes an exposed name to its server and remote name", () => {
    const { tools } = build(source("fs", [tool('od"d')]));
    assert.equal(tools.find(`fs__od_d_${"x".repeat(6)}`), undefined);
    const [found] = tools.routes;
    assert.equal(found?.remoteName, 'od"d');
    assert.equal(found && textOf(found.remoteNameJson), '"od\\"d"');
  });

  it("makes no route before one is asked for, and only that one", () => {
    const made: string[] = [];
    const limits: CatalogSource["limits"] = (_kind, name) => {
      made.push(name);
      return { timeout: 1, maxTimeout: 2 };
    };
    const base = source("s", [tool("x"), tool("y"), tool("z")]);
    const bytes = utf8('{"resources":[{"uri":"a://x","name":"r"},{"uri":"a://y","name":"r"}]}');
    const page = readPage(bytes, { start: 0, end: bytes.length }, "resources");
    const listing = { ...base.listing, resources: page?.items ?? [] };
    const { resources, tools } = build({ ...base, listing, limits });
    assert.deepEqual([resources.size, tools.size, made], [2, 3, []]);
    assert.deepEqual(
      tools.findRemote("y").map(({ name }) => name),
      ["s__y"],
    );
    assert.equal(resources.find("a://y")?.remoteName, "a://y");
    assert.deepEqual(made, ["y", "a://y"]);
  });

  it("shapes anew only what another server lists, or all if names are made in another way", () => {
    const [one, two] = [source("a", [tool("x")]), source("b", [tool("x")])];
    const before = build(one, two).tools;
    const after = build(one, source("b", [tool("x"), tool("y")])).tools;
    assert.equal(after.find("a__x"), before.find("a__x"));
    assert.notEqual(after.find("b__x"), before.find("b__x"));
    const dotted = buildCatalog([one, two], { separator: "-", maxLength: 50 }, digest);
    assert.deepEqual(exposed(dotted), ["a-x", "b-x"]);
  });

  it("finds the very same route each time, and the one that it lists", () => {
    const { tools } = build(source("a", [tool("x"), tool("y")]));
    assert.ok(tools.find("a__y"));
    assert.equal(tools.find("a__y"), tools.routes[1]);
    assert.equal(tools.find("a__y"), tools.find("a__y"));
  });

  it("has other bytes for those entries of which some are made, and stays what it is if none are", () => {
    const { tools } = build(source("a", [tool("x"), tool("y")]));
    const dressed = tools.withBytes(({ name }) => (name === "a__y" ? utf8("{}") : undefined));
    assert.equal(textOf(dressed.result), `{"tools":[${tool("a__x")},{}]}`);
    assert.equal(dressed.find("a__y"), tools.find("a__y"));
    assert.ok(!dressed.equals(tools));
    assert.equal(
      tools.withBytes(() => undefined),
      tools,
    );
  });

  it("writes an entry the same way whether its bytes were asked for before or not", () => {
    const tools = ['{"name":"x","title":"é"}', '{"name":"a","name":"y"}', tool("b.c"), tool("z")];
    const asked = build(source("s", tools)).tools;
    asked.withBytes(({ bytes }) => void bytes);
    assert.equal(textOf(asked.result), list(build(source("s", tools))));
  });

  it("is compared with each other one by what clients see, however often and with whichever", () => {
    const [one, same, other] = ["x", "x", "y"].map(
      (name) => build(source("s", [tool(name)])).tools,
    );
    assert.ok(one && same && other);
    const reported = [same, other, same, other, one, same].map((section) => one.equals(section));
    assert.deepEqual(reported, [true, false, true, false, true, true]);
  });

  const odd =
    '{ "z":1.0 ,"name" : "n", "inputSchema":{"name":"inner","type":"object","b":1234567890123456789,"a":"\\u00e9"}, "x-unknown":[ ] }';
  it("changes nothing in a tool but its name, wherever that is spelled", () => {
    const shown = (text: string, prefix = "s"): string =>
      list(build(source("s", [text], { prefix }))).slice('{"tools":['.length, -2);
    assert.equal(shown(odd), odd.replace('"n"', '"s__n"'));
    assert.equal(shown(odd, ""), odd, "nothing in front of its name is wanted");
    const twice = (one: string, last: string): string =>
      `{"name":"${one}","n\\u0061me":"${last}",${INPUT}}`;
    assert.equal(shown(twice("first", "last")), twice("s__last", "s__last"));
  });

  for (const [shape, rest, meta] of [
    ["no _meta", "", '"_meta":{"toolmux/fullName":"s__a.b"}'],
    ["an empty _meta", ',"_meta":{ }', '"_meta":{"toolmux/fullName":"s__a.b" }'],
    ["a _meta", ',"_meta":{"k":1.0}', '"_meta":{"toolmux/fullName":"s__a.b","k":1.0}'],
    ["a _meta of another type", ',"_meta":3', '"_meta":{"toolmux/fullName":"s__a.b"}'],
  ] as const) {
    it(`says the full name of a shortened tool that has ${shape}`, () => {
      const text = list(build(source("s", [tool("a.b", rest)])));
      assert.ok(text.includes(meta), text);
      const parsed = JSON.parse(text) as { tools: { _meta: Record<string, unknown> }[] };
      assert.equal(parsed.tools[0]?._meta["toolmux/fullName"], "s__a.b");
    });
  }

  const expose = (names: string[], rules: Partial<ExposureRules> = {}): string[] =>
    exposed(
      build(
        source(
          "s",
          names.map((name) => tool(name)),
          rules,
        ),
      ),
    );

  it("lets through only what tools.allow names and tools.deny does not, by remote names", () => {
    const rules = { allow: ["read_*"], deny: ["*_delete"] };
    const names = ["read_a", "read_b", "list", "read_delete"];
    assert.deepEqual(expose(names, rules), ["s__read_a", "s__read_b"]);
    assert.deepEqual(expose(["old"], { deny: ["new"], rename: { old: "new" } }), ["s__new"]);
  });

  it("does not take a tool called like a property of every object for a renamed one", () => {
    const expected = ["s____proto__", "s__constructor", "s__toString"];
    assert.deepEqual(expose(["constructor", "__proto__", "toString"]), expected);
  });

  it("leaves a tool that has no name out", () => {
    const tools = ['{"title":"x"}', "7", '{"name":3}', tool("a")];
    assert.deepEqual(exposed(build(source("s", tools))), ["s__a"]);
  });

  it("gives a renamed tool the name before an original of the same name, which is hidden and remarked on", () => {
    const catalog = build(source("s", [tool("cat"), tool("dog")], { rename: { dog: "cat" } }));
    assert.deepEqual(exposed(catalog), ["s__cat"]);
    assert.equal(catalog.tools.find("s__cat")?.remoteName, "dog");
    const notes = toolNotes(catalog).map(({ kind, remoteName }) => [kind, remoteName]);
    assert.deepEqual(notes, [["clash", "cat"]]);
  });

  it("keeps the first of two tools of one name from one server and remarks on the other", () => {
    const catalog = build(source("s", [tool("a", ',"first":true'), tool("a")]));
    assert.equal(list(catalog), `{"tools":[${tool("s__a", ',"first":true')}]}`);
    assert.equal(catalog.notes[0]?.kind, "duplicate");
  });

  it("hides the later server's tool in a clash, and nothing else", () => {
    const one = source("one", [tool("a"), tool("b")], { prefix: "" });
    const two = source("two", [tool("b"), tool("c")], { prefix: "" });
    const catalog = build(one, two);
    assert.deepEqual(exposed(catalog), ["a", "b", "c"]);
    assert.equal(catalog.tools.find("b")?.server, "one");
    assert.match(catalog.notes[0]?.text ?? "", /already b of server "one"/);
  });

  it("lets an unprefixed name lose to a prefixed one, also when its server comes first", () => {
    const bare = source("bare", [tool("fs__a")], { prefix: "" });
    assert.equal(build(bare, source("fs", [tool("a")])).tools.find("fs__a")?.server, "fs");
  });

  it("renames nothing when a server is added", () => {
    const fs = source("fs", [tool("a.b"), tool("c")]);
    const alone = exposed(build(fs));
    const together = exposed(build(source("aa", [tool("a.b"), tool("c")]), fs));
    const left = together.filter((name) => alone.includes(name));
    assert.deepEqual(left, alone);
  });
});

describe("a page of a listing", () => {
  const read = (text: string): ReturnType<typeof readPage> => {
    const bytes = utf8(text);
    return readPage(bytes, { start: 0, end: bytes.length }, "tools");
  };

  for (const [cursor, expected] of [
    ['"c\\u0031"', "c1"],
    ['""', ""],
    ["null", undefined],
  ] as const) {
    it(`has the cursor of the next one, ${expected ?? "none"}, where that is ${cursor}`, () => {
      assert.equal(read(`{"tools":[],"nextCursor":${cursor}}`)?.nextCursor, expected);
    });
  }
  it("counts entries without a usable name", () => {
    assert.equal(read('{"tools":[{"name":"a"},{},null]}')?.unnamedCount, 2);
  });
  for (const text of ["[]", "{}", '{"tools":{}}', '{"tools":[}', '{"tools":[]}x', "null"]) {
    it(`is not read from ${text}`, () => assert.equal(read(text), undefined));
  }
});

describe("hints", () => {
  const hints = (annotations: string): ReturnType<typeof readAnnotations> => {
    const [item] = source("s", [tool("a", annotations)]).listing.tools;
    assert.ok(item);
    return readAnnotations(item);
  };
  it("are read from the annotations, and false where these are silent, odd or missing", () => {
    const both = ',"annotations":{"readOnlyHint":true,"idempotentHint":true}';
    assert.deepEqual(hints(both), { readOnly: true, idempotent: true });
    const none = { readOnly: false, idempotent: false };
    for (const odd of ["", ',"annotations":null', ',"annotations":{"readOnlyHint":"true"}']) {
      assert.deepEqual(hints(odd), none);
    }
  });
});

describe("what the manifest sets of a server's tools", () => {
  // Every tool has a schema; it is of no interest here.
  const SCHEMA = ',"inputSchema":{"type":"object"}';
  const only = (listed: string, rules: Partial<ExposureRules>): string => {
    const whole = listed.replace(/"name" ?:"x"/, `$&${SCHEMA}`);
    const shown = list(build(source("s", [whole], { prefix: "", ...rules })));
    return shown.slice('{"tools":['.length, -2).replace(SCHEMA, "");
  };

  it("replaces all descriptions, or adds one, and leaves every other byte", () => {
    const shown = (before: string): string => only(before, { describe: { x: 'Says "é".' } });
    const says = '"Says \\"é\\"."';
    const spaced = (text: string): string => `{ "name":"x" , "n":1.0, "description" : ${text} }`;
    assert.equal(shown(spaced('"old"')), spaced(says));
    assert.equal(shown('{"name":"x","n":1e2}'), `{"name":"x","n":1e2,"description":${says}}`);
    const twice = (one: string, other: string): string =>
      `{"description":${one},"name":"x","description":${other}}`;
    assert.equal(shown(twice('"a"', '"b"')), twice(says, says), "whichever a parser takes");
  });

  it("sets members of _meta one by one, and leaves the server's others as they are spelled", () => {
    const shown = (before: string): string =>
      only(`{"name":"x"${before}}`, { meta: { x: { "a/b": true, c: [1, { d: null }] } } });
    const added = '{"name":"x","_meta":{"a/b":true,"c":[1,{"d":null}]}}';
    assert.equal(shown(""), added);
    assert.equal(shown(',"_meta":null'), added);
    const merged = '{"name":"x","_meta":{"k":1.0,"c":[1,{"d":null}],"a/b":true}}';
    assert.equal(shown(',"_meta":{"k":1.0,"c":2}'), merged);
    assert.equal(only('{"name":"x","_meta":{}}', { meta: { x: {} } }), '{"name":"x","_meta":{}}');
  });

  it("changes nothing of tools that it does not name", () => {
    const rules = { describe: { y: "n" }, meta: {}, annotations: {} };
    assert.equal(only('{ "name" :"x","a":1.0}', rules), '{ "name" :"x","a":1.0}');
  });

  it("sets annotations, by which is also decided whether a call may be repeated", () => {
    const text = (readOnly: boolean): string =>
      `{"name":"x"${SCHEMA},"annotations":{"readOnlyHint":${readOnly},"title":"T"}}`;
    const rules = { annotations: { x: { readOnlyHint: true } } };
    const route = build(source("s", [text(false)], rules)).tools.find("s__x");
    assert.equal(route && textOf(route.item.bytes), text(true));
    assert.equal(route && readAnnotations(route.item).readOnly, true);
  });

  it("is set by the server's own name of a tool that is renamed, prefixed or shortened", () => {
    const rules = { rename: { x: "a.b" }, meta: { x: { k: 1 } } };
    const shown = list(build(source("s", [tool("x")], rules)));
    assert.match(shown, /"_meta":\{"toolmux\/fullName":"s__a\.b","k":1\}/);
  });

  const idle = (rules: Partial<ExposureRules>): string[] =>
    toolNotes(build(source("s", [tool("x"), tool("hidden")], rules)))
      .filter(({ kind }) => kind.startsWith("idle"))
      .map(({ kind, remoteName }) => `${kind} ${remoteName}`);

  it("is remarked on where it names a tool that is not listed or not shown", () => {
    const rules = { describe: { nobody: "n" }, meta: { hidden: { k: 1 } }, deny: ["hidden"] };
    assert.deepEqual(idle(rules), ["idleOverride nobody", "idleOverride hidden"]);
  });

  it("is remarked on only by its name if it names a tool that is not listed, in any setting", () => {
    const rules = {
      rename: { a: "b" },
      timeout: { c: 1000 },
      annotations: { d: { title: "D" } },
      allow: ["x*", "e?", "*"],
      deny: ["f*", "hidden"],
      approval: { g: "always", "k*": "always", "x*": "always" },
      limits: { i: {}, "j*": {}, x: {}, "*": {} },
    };
    const globs = ["e?", "f*", "k*", "j*"].map((glob) => `idleFilter ${glob}`);
    const overrides = ["d", "a", "c", "g", "i"].map((name) => `idleOverride ${name}`);
    assert.deepEqual(idle(rules), [...globs, ...overrides]);
  });

  it("is remarked on where the server says another value of an annotation or in _meta, and not where it says the same", () => {
    const text = `{"name":"x"${SCHEMA},"annotations":{"readOnlyHint":false},"_meta":{"k":[1],"l":2}}`;
    const rules = { annotations: { x: { readOnlyHint: true } }, meta: { x: { k: [1], l: 3 } } };
    const [note, ...more] = toolNotes(build(source("s", [text], rules)));
    assert.deepEqual([note?.kind, more], ["conflict", []]);
    assert.match(note?.text ?? "", /annotations\.readOnlyHint, _meta\.l/);
  });
});
