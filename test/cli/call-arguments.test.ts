import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";
import { formatArguments, readArgumentSource } from "../../src/cli/call-arguments.ts";
import type { CommandContext } from "../../src/cli/command.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { HubError } from "../../src/base/errors.ts";

const NOWHERE: CommandContext = contextOf({}, "/nowhere");

/** What is sent for the words behind a tool's name. */
async function write(words: readonly string[], schema: unknown, world = NOWHERE): Promise<string> {
  const { invocation } = parseCommand<{ json: string | undefined }>(["call", "x", ...words]);
  return formatArguments(await readArgumentSource(invocation, world), schema);
}

function refuses(words: readonly string[], message: RegExp, schema: unknown, world = NOWHERE) {
  return assert.rejects(write(words, schema, world), { name: "HubError", code: "usage", message });
}

/** As servers write them: by hand, by pydantic, by zod. */
const SCHEMA = {
  type: "object",
  $defs: {
    Filter: {
      type: "object",
      properties: {
        name: { type: "string" },
        size: { type: "integer" },
        deeper: { $ref: "#/$defs/Filter" },
      },
      required: ["name"],
      additionalProperties: false,
    },
    Level: { enum: ["low", "high"] },
    Loop: { anyOf: [{ $ref: "#/$defs/Loop" }, { type: "integer" }] },
  },
  properties: {
    text: { type: "string" },
    count: { type: "integer" },
    ratio: { type: "number" },
    deep: { type: "boolean" },
    none: { type: "null" },
    level: { enum: ["low", "high", 3, null] },
    fixed: { const: "it" },
    maybe: { type: ["string", "null"] },
    either: { anyOf: [{ type: "string" }, { type: "integer" }, { type: "null" }] },
    byRef: { anyOf: [{ $ref: "#/$defs/Level" }, { type: "null" }] },
    wrapped: { allOf: [{ $ref: "#/$defs/Level" }], description: "pydantic writes this" },
    tags: { type: "array", items: { type: "string" } },
    numbers: { type: "array", items: { type: "number" } },
    rows: { type: "array", items: { type: "array", items: { type: "integer" } } },
    oneOrMore: { anyOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] },
    filter: { $ref: "#/$defs/Filter" },
    options: { type: "object" },
    labels: { type: "object", additionalProperties: { type: "string" } },
    "dotted.name": { type: "integer" },
    edits: { type: "array", items: { type: "object", required: ["old"], properties: { old: {} } } },
    free: {},
    picture: { type: "string", contentEncoding: "base64" },
    loop: { $ref: "#/$defs/Loop" },
    odd: { $ref: "https://example.com/elsewhere" },
  },
};

/** Words, and what is sent for them. */
const WRITTEN: readonly (readonly [...words: string[], sent: string])[] = [
  ["{}"],
  ["text=5", '{"text":"5"}'],
  ["text=true", '{"text":"true"}'],
  ["text=", '{"text":""}'],
  ["text=a=b", '{"text":"a=b"}'],
  ["text=ü \n\"'", '{"text":"ü \\n\\"\'"}'],
  ["count=5", "ratio=1.50", '{"count":5,"ratio":1.50}'],
  ["count=-1", "ratio=1e400", '{"count":-1,"ratio":1e400}'],
  ["count=1234567890123456789", '{"count":1234567890123456789}'],
  ["count=1.0", '{"count":1.0}'],
  ["deep=true", "none=null", '{"deep":true,"none":null}'],
  ["level=low", '{"level":"low"}'],
  ["level=3", "fixed=it", '{"level":3,"fixed":"it"}'],
  ["level=null", "maybe=null", "either=null", '{"level":null,"maybe":null,"either":null}'],
  ["maybe=nothing", "either=five", '{"maybe":"nothing","either":"five"}'],
  ["either=5", "byRef=low", "wrapped=high", '{"either":5,"byRef":"low","wrapped":"high"}'],
  ["tags=a", '{"tags":["a"]}'],
  ["tags=a", "tags=b c", '{"tags":["a","b c"]}'],
  ["tags=1", '{"tags":["1"]}'],
  ['tags=["a","b"]', '{"tags":["a","b"]}'],
  ["tags=[]", '{"tags":[]}'],
  ["tags=[a", '{"tags":["[a"]}'],
  ["numbers=1", "numbers=2.50", '{"numbers":[1,2.50]}'],
  ["numbers=[1]", "numbers=2", '{"numbers":[1,2]}'],
  ["rows=[1,2]", "rows=[3]", '{"rows":[[1,2],[3]]}'],
  ["oneOrMore=a", '{"oneOrMore":"a"}'],
  ["oneOrMore=a", "oneOrMore=b", '{"oneOrMore":["a","b"]}'],
  ["filter.name=x", "count=1", "filter.size=2", '{"filter":{"name":"x","size":2},"count":1}'],
  ["filter.name=5", "filter.deeper.name=y", '{"filter":{"name":"5","deeper":{"name":"y"}}}'],
  ['filter={"name": "x"}', '{"filter":{"name": "x"}}'],
  ["options.a.b=1", "options.a.c=x", '{"options":{"a":{"b":1,"c":"x"}}}'],
  ["labels.x=5", "dotted.name=5", '{"labels":{"x":"5"},"dotted.name":5}'],
  ['edits={"old":1}', 'edits={"old":2}', '{"edits":[{"old":1},{"old":2}]}'],
  ["free=[1, 1.0]", '{"free":[1, 1.0]}'],
  ["free=yes", '{"free":"yes"}'],
  ["free=1", "free=x", '{"free":[1,"x"]}'],
  ["other=true", "other2=x", '{"other":true,"other2":"x"}'],
  ["free:=1.0", 'text:="5"', 'either:="5"', '{"free":1.0,"text":"5","either":"5"}'],
  ["text=a:=b", '{"text":"a:=b"}'],
  ["text=@@me", '{"text":"@me"}'],
  ["text=me@home", '{"text":"me@home"}'],
  ['q"=1', '{"q\\"":1}'],
  ["toString=1", "__proto__=2", '{"toString":1,"__proto__":2}'],
  ["loop=5", "odd=5", "count.=5", '{"loop":5,"odd":5,"count.":5}'],
];

const CLOSED = {
  type: "object",
  properties: { path: { type: "string" }, head: { type: "integer" } },
  required: ["path"],
  additionalProperties: false,
};

const REFUSED: readonly (readonly [message: RegExp, ...words: string[]])[] = [
  [/^"count": expected a whole number, found "five"\.$/, "count=five"],
  [/"count": expected a whole number, found "1\.5"/, "count=1.5"],
  [/"count": expected a whole number, found ""/, "count="],
  [/"ratio": expected a number, found "\.5"/, "ratio=.5"],
  [/"deep": expected true or false, found "yes"/, "deep=yes"],
  [/"level": expected one of "low", "high", 3, null, found "medium"/, "level=medium"],
  [/"fixed": expected "it", found "that"/, "fixed=that"],
  [/"byRef": expected one of "low", "high" or null, found "medium"/, "byRef=medium"],
  [/"numbers": expected a number, found "two"/, "numbers=1", "numbers=two"],
  [/"numbers\[1\]": expected a number, found a boolean/, "numbers=[1,true]"],
  [/"rows\[1\]": expected a whole number, found a boolean/, "rows=[1,true]"],
  [/"rows": expected an array, each element a whole number, found "x"/, "rows=x"],
  [/"count": expected a whole number, found 2 values/, "count=1", "count=2"],
  [/"filter": expected an object, found "x"/, "filter=x"],
  [/"filter\.name": expected a text, found 5/, 'filter={"name":5}'],
  [/"filter\.name": expected a text, found nothing/, 'filter={"size":5}'],
  [/"filter\.size": expected a whole number, found "big"/, "filter.name=x", "filter.size=big"],
  [/no argument "filter\.nmae"\. Did you mean "filter\.name"\?/, "filter.name=x", "filter.nmae=y"],
  [/The tool needs "filter\.name" \(a text\)\./, "filter.size=5"],
  [/"filter" .*choose one/, "filter.name=x", "filter={}"],
  [/"count": expected a whole number, found the key "count\.x"/, "count.x=5"],
  [/"edits\.old": expected anything, found nothing/, "edits={}"],
  [/"edits": expected an array.*, found the key "edits\.old"/, "edits.old=1"],
  [/"text": expected a text, found 5/, "text:=5"],
  [/"count": expected a whole number, found an array/, "count:=[]"],
  [/"free:=" is not valid JSON: /, "free:=x"],
  [/missing for "text" \(ENOENT\)/, "text=@missing"],
  [/"word" is not an argument.*word=VALUE/, "word"],
  [/KEY=VALUE.*--json '\{"a":1\}'/, '{"a":1}'],
  [/KEY=VALUE.*--json/, "[1]"],
  [/"=1" is not an argument/, "=1"],
  [/":=1" is not an argument/, ":=1"],
  [/--json must be a JSON object/, "--json", "[1]"],
  [/--json must be a JSON object/, "--json", "null"],
  [/--json is not valid JSON: /, "--json", "{a:1}"],
  [/Choose one/, "a=1", "--json", "{}"],
  [/Choose one/, "-", "--json", "{}"],
  [/Choose one/, "a=1", "-"],
];

describe("the arguments of a call", () => {
  for (const row of WRITTEN) {
    const [words, sent] = [row.slice(0, -1), row.at(-1) ?? ""];
    it(`are read as the tool's schema wants them: ${JSON.stringify(words)} → ${sent}`, async () => {
      assert.equal(await write(words, SCHEMA), sent);
      JSON.parse(sent);
    });
  }

  for (const [message, ...words] of REFUSED) {
    it(`that do not fit are refused: ${words.join(" ")}`, () => refuses(words, message, SCHEMA));
  }

  it("that the tool does not take are refused if it says so, with the nearest that it takes", async () => {
    await refuses(["pth=x"], /^The tool has no argument "pth"\. Did you mean "path"\?$/, CLOSED);
    await refuses(
      ["colour=x"],
      /The tool has no argument "colour"\. It takes path, head\.$/,
      CLOSED,
    );
    const none = { type: "object", additionalProperties: false };
    await refuses(["x=1"], /It takes no arguments/, none);
    assert.equal(await write(["path=x"], CLOSED), '{"path":"x"}');
    const patterned = { ...CLOSED, patternProperties: { "^x": {} } };
    assert.equal(await write(["path=a", "x1=1"], patterned), '{"path":"a","x1":1}');
  });

  it("that the tool needs are asked for, all at once", async () => {
    await refuses([], /^The tool needs "path" \(a text\)\.$/, CLOSED);
    const more = { ...CLOSED, required: ["head", "path"] };
    await refuses([], /needs "head" \(a whole number\) and "path" \(a text\)\.$/, more);
    const open = { properties: CLOSED.properties, required: ["path"] };
    await refuses(["pth=x"], /needs "path" \(a text\)\. Write "path" instead of "pth"\.$/, open);
    await refuses(["head=1", "other=1"], /needs "path" \(a text\)\.$/, open);
    await refuses([], /needs "x" \(anything\)/, { required: ["x"], properties: {} });
  });

  it("that do not fit the tool are answered with all that it takes, the required ones first", async () => {
    const properties = { level: { enum: ["low"] }, a: { type: "number" } };
    const schema = { properties, required: ["a"] };
    for (const words of [[], ["a=x"]])
      await assert.rejects(write(words, schema), (error) => {
        assert.ok(error instanceof HubError);
        const rows = (error.hint ?? "").split("\n").slice(1);
        const cells = rows.map((row) => row.trim().replaceAll(/ {2,}/g, " | "));
        assert.deepEqual(cells, ["a | a number", 'level | "low" (optional)']);
        return true;
      });
  });

  it("may be one of several sets: the one is taken that has the keys", async () => {
    const name = { properties: { name: { type: "string" } }, required: ["name"] };
    const byName = { ...name, additionalProperties: false };
    const byId = { properties: { id: { type: "integer" } }, required: ["id"] };
    for (const schema of [{ anyOf: [byName, byId] }, { type: "object", oneOf: [byName, byId] }]) {
      assert.equal(await write(["name=5"], schema), '{"name":"5"}');
      assert.equal(await write(["id=5"], schema), '{"id":5}');
      await refuses(["id=x"], /"id": expected a whole number/, schema);
    }
  });

  it("are JSON where they can be, and else strings, if the tool has no schema to speak of", async () => {
    const schemas = [undefined, null, {}, { properties: null }, { properties: { a: null } }, true];
    for (const schema of schemas)
      assert.equal(await write(["a=1", "b=c"], schema), '{"a":1,"b":"c"}');
  });

  it("are sent as they are written if they are given as JSON", async () => {
    const text = '{ "count": "not checked", "big": 1234567890123456789 }';
    assert.equal(await write(["--json", text], SCHEMA), text);
  });

  itIn("come from files, relative to where one stands or to the home folder", async (folder) => {
    const cwd = folder.root;
    const world = { ...NOWHERE, cwd, env: { HOME: cwd } };
    await writeFile(join(cwd, "text"), "two\nlines\n");
    await writeFile(join(cwd, "number"), "5\n");
    await writeFile(join(cwd, "filter.json"), '{ "name": "x",\n"size": 1.0 }\n');
    await writeFile(join(cwd, "picture"), new Uint8Array([0x89, 0x50, 0xff]));
    const filter = '{"filter":{ "name": "x",\n"size": 1.0 }';
    for (const [sent, ...words] of [
      ['{"text":"two\\nlines\\n"}', "text=@text"],
      ['{"text":"two\\nlines\\n"}', "text=@~/text"],
      ['{"text":"5\\n"}', `text=@${join(cwd, "number")}`],
      ['{"count":5,"tags":["two\\nlines\\n"]}', "count=@number", "tags=@text"],
      ['{"picture":"iVD/"}', "picture=@picture"],
      [`${filter}}`, "filter=@filter.json"],
      [`${filter}\n}`, "filter:=@filter.json"],
    ] as const) {
      assert.equal(await write(words, SCHEMA, world), sent);
    }
    for (const [word, message] of [
      ["text=@picture", /"text": expected a text, found the content of that file/],
      ["count=@text", /"count": expected a whole number, found the content of that file/],
      ["text=@.", /\(EISDIR\)/],
    ] as const) {
      await refuses([word], message, SCHEMA, world);
    }
  });
});
