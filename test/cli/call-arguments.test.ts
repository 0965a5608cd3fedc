import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Terminal } from "../../src/terminal/terminal.ts";
import { formatArguments, readArgumentSource } from "../../src/cli/call-arguments.ts";
import type { CommandContext } from "../../src/cli/command.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { HubError } from "../../src/base/errors.ts";

const NOWHERE: CommandContext = {
  env: {},
  cwd: "/nowhere",
  platform: "linux",
  terminal: new Terminal({}),
  signal: new AbortController().signal,
  uncaughtErrorHandlers: new Set(),
  hangupHandlers: new Set(),
};

/** What is sent for the words behind a tool's name. */
async function write(words: readonly string[], schema: unknown, world = NOWHERE): Promise<string> {
  const { invocation } = parseCommand<{ json: string | undefined }>(["call", "x", ...words]);
  return formatArguments(await readArgumentSource(invocation, world), schema);
}

function refuses(words: readonly string[], message: RegExp, schema: unknown, world = NOWHERE) {
  return assert.rejects(write(words, schema, world), (error) => {
    assert.ok(error instanceof HubError);
    assert.equal(error.code, "usage");
    assert.match(error.message, message);
    return true;
  });
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

const WRITTEN: readonly (readonly [words: readonly string[], sent: string])[] = [
  [[], "{}"],
  [["text=5"], '{"text":"5"}'],
  [["text=true"], '{"text":"true"}'],
  [["text="], '{"text":""}'],
  [["text=a=b"], '{"text":"a=b"}'],
  [["text=ü \n\"'"], '{"text":"ü \\n\\"\'"}'],
  [["count=5", "ratio=1.50"], '{"count":5,"ratio":1.50}'],
  [["count=-1", "ratio=1e400"], '{"count":-1,"ratio":1e400}'],
  [["count=1234567890123456789"], '{"count":1234567890123456789}'],
  [["count=1.0"], '{"count":1.0}'],
  [["deep=true", "none=null"], '{"deep":true,"none":null}'],
  [["level=low"], '{"level":"low"}'],
  [["level=3"], '{"level":3}'],
  [["level=null"], '{"level":null}'],
  [["fixed=it"], '{"fixed":"it"}'],
  [["maybe=null"], '{"maybe":null}'],
  [["maybe=nothing"], '{"maybe":"nothing"}'],
  [["either=5"], '{"either":5}'],
  [["either=five"], '{"either":"five"}'],
  [["either=null"], '{"either":null}'],
  [["byRef=low"], '{"byRef":"low"}'],
  [["wrapped=high"], '{"wrapped":"high"}'],
  [["tags=a"], '{"tags":["a"]}'],
  [["tags=a", "tags=b c"], '{"tags":["a","b c"]}'],
  [["tags=1"], '{"tags":["1"]}'],
  [['tags=["a","b"]'], '{"tags":["a","b"]}'],
  [["tags=[]"], '{"tags":[]}'],
  [["tags=[a"], '{"tags":["[a"]}'],
  [["numbers=1", "numbers=2.50"], '{"numbers":[1,2.50]}'],
  [["numbers=[1]", "numbers=2"], '{"numbers":[1,2]}'],
  [["rows=[1,2]", "rows=[3]"], '{"rows":[[1,2],[3]]}'],
  [["oneOrMore=a"], '{"oneOrMore":"a"}'],
  [["oneOrMore=a", "oneOrMore=b"], '{"oneOrMore":["a","b"]}'],
  [["filter.name=x", "count=1", "filter.size=2"], '{"filter":{"name":"x","size":2},"count":1}'],
  [["filter.name=5", "filter.deeper.name=y"], '{"filter":{"name":"5","deeper":{"name":"y"}}}'],
  [['filter={"name": "x"}'], '{"filter":{"name": "x"}}'],
  [["options.a.b=1", "options.a.c=x"], '{"options":{"a":{"b":1,"c":"x"}}}'],
  [["labels.x=5"], '{"labels":{"x":"5"}}'],
  [["dotted.name=5"], '{"dotted.name":5}'],
  [['edits={"old":1}', 'edits={"old":2}'], '{"edits":[{"old":1},{"old":2}]}'],
  [["free=[1, 1.0]"], '{"free":[1, 1.0]}'],
  [["free=yes"], '{"free":"yes"}'],
  [["free=1", "free=x"], '{"free":[1,"x"]}'],
  [["other=true", "other2=x"], '{"other":true,"other2":"x"}'],
  [["free:=1.0"], '{"free":1.0}'],
  [['text:="5"'], '{"text":"5"}'],
  [['either:="5"'], '{"either":"5"}'],
  [["text=a:=b"], '{"text":"a:=b"}'],
  [["text=@@me"], '{"text":"@me"}'],
  [["text=me@home"], '{"text":"me@home"}'],
  [['q"=1'], '{"q\\"":1}'],
  [["toString=1", "__proto__=2"], '{"toString":1,"__proto__":2}'],
  [["loop=5"], '{"loop":5}'],
  [["odd=5"], '{"odd":5}'],
  [["count.=5"], '{"count.":5}'],
];

const CLOSED = {
  type: "object",
  properties: { path: { type: "string" }, head: { type: "integer" } },
  required: ["path"],
  additionalProperties: false,
};

const REFUSED: readonly (readonly [words: readonly string[], message: RegExp])[] = [
  [["count=five"], /^"count": expected a whole number, found "five"\.$/],
  [["count=1.5"], /"count": expected a whole number, found "1\.5"/],
  [["count="], /"count": expected a whole number, found ""/],
  [["ratio=.5"], /"ratio": expected a number, found "\.5"/],
  [["deep=yes"], /"deep": expected true or false, found "yes"/],
  [["level=medium"], /"level": expected one of "low", "high", 3, null, found "medium"/],
  [["fixed=that"], /"fixed": expected "it", found "that"/],
  [["byRef=medium"], /"byRef": expected one of "low", "high" or null, found "medium"/],
  [["numbers=1", "numbers=two"], /"numbers": expected a number, found "two"/],
  [["numbers=[1,true]"], /"numbers\[1\]": expected a number, found a boolean/],
  [["rows=[1,true]"], /"rows\[1\]": expected a whole number, found a boolean/],
  [["rows=x"], /"rows": expected an array, each element a whole number, found "x"/],
  [["count=1", "count=2"], /"count": expected a whole number, found 2 values/],
  [["filter=x"], /"filter": expected an object, found "x"/],
  [['filter={"name":5}'], /"filter\.name": expected a text, found 5/],
  [['filter={"size":5}'], /"filter\.name": expected a text, found nothing/],
  [["filter.name=x", "filter.size=big"], /"filter\.size": expected a whole number, found "big"/],
  [
    ["filter.name=x", "filter.nmae=y"],
    /no argument "filter\.nmae"\. Did you mean "filter\.name"\?/,
  ],
  [["filter.size=5"], /The tool needs "filter\.name" \(a text\)\./],
  [["filter.name=x", "filter={}"], /"filter" .*choose one/],
  [["count.x=5"], /"count": expected a whole number, found the key "count\.x"/],
  [["edits={}"], /"edits\.old": expected anything, found nothing/],
  [["edits.old=1"], /"edits": expected an array.*, found the key "edits\.old"/],
  [["text:=5"], /"text": expected a text, found 5/],
  [["count:=[]"], /"count": expected a whole number, found an array/],
  [["free:=x"], /"free:=" is not valid JSON: /],
  [["text=@missing"], /missing for "text" \(ENOENT\)/],
  [["word"], /"word" is not an argument.*word=VALUE/],
  [['{"a":1}'], /KEY=VALUE.*--json '\{"a":1\}'/],
  [["[1]"], /KEY=VALUE.*--json/],
  [["=1"], /"=1" is not an argument/],
  [[":=1"], /":=1" is not an argument/],
  [["--json", "[1]"], /--json must be a JSON object/],
  [["--json", "null"], /--json must be a JSON object/],
  [["--json", "{a:1}"], /--json is not valid JSON: /],
  [["a=1", "--json", "{}"], /Choose one/],
  [["-", "--json", "{}"], /Choose one/],
  [["a=1", "-"], /Choose one/],
];

describe("the arguments of a call", () => {
  for (const [words, sent] of WRITTEN) {
    it(`are read as the tool's schema wants them: ${JSON.stringify(words)} → ${sent}`, async () => {
      assert.equal(await write(words, SCHEMA), sent);
      JSON.parse(sent);
    });
  }

  for (const [words, message] of REFUSED) {
    it(`that do not fit are refused: ${words.join(" ")}`, () => refuses(words, message, SCHEMA));
  }

  it("that the tool does not take are refused if it says so, with the nearest that it takes", async () => {
    await refuses(["pth=x"], /^The tool has no argument "pth"\. Did you mean "path"\?$/, CLOSED);
    await refuses(
      ["colour=x"],
      /The tool has no argument "colour"\. It takes path, head\.$/,
      CLOSED,
    );
    await refuses(["x=1"], /It takes no arguments/, {
      type: "object",
      additionalProperties: false,
    });
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
    const schema = {
      properties: { level: { enum: ["low"] }, a: { type: "number" } },
      required: ["a"],
    };
    for (const words of [[], ["a=x"]])
      await assert.rejects(write(words, schema), (error) => {
        assert.ok(error instanceof HubError);
        const rows = (error.hint ?? "").split("\n").slice(1);
        assert.deepEqual(
          rows.map((row) => row.trim().split(/ {2,}/)),
          [
            ["a", "a number"],
            ["level", '"low" (optional)'],
          ],
        );
        return true;
      });
  });

  it("may be one of several sets: the one is taken that has the keys", async () => {
    const byName = {
      properties: { name: { type: "string" } },
      required: ["name"],
      additionalProperties: false,
    };
    const byId = { properties: { id: { type: "integer" } }, required: ["id"] };
    for (const schema of [{ anyOf: [byName, byId] }, { type: "object", oneOf: [byName, byId] }]) {
      assert.equal(await write(["name=5"], schema), '{"name":"5"}');
      assert.equal(await write(["id=5"], schema), '{"id":5}');
      await refuses(["id=x"], /"id": expected a whole number/, schema);
    }
  });

  it("are JSON where they can be, and else strings, if the tool has no schema to speak of", async () => {
    for (const schema of [
      undefined,
      null,
      {},
      { properties: null },
      { properties: { a: null } },
      true,
    ])
      assert.equal(await write(["a=1", "b=c"], schema), '{"a":1,"b":"c"}');
  });

  it("are sent as they are written if they are given as JSON", async () => {
    const text = '{ "count": "not checked", "big": 1234567890123456789 }';
    assert.equal(await write(["--json", text], SCHEMA), text);
  });

  it("come from files, relative to where one stands or to the home folder", async () => {
    const cwd = await mkdtemp(join(tmpdir(), "toolmux-arguments-"));
    try {
      const world = { ...NOWHERE, cwd, env: { HOME: cwd } };
      await writeFile(join(cwd, "text"), "two\nlines\n");
      await writeFile(join(cwd, "number"), "5\n");
      await writeFile(join(cwd, "filter.json"), '{ "name": "x",\n"size": 1.0 }\n');
      await writeFile(join(cwd, "picture"), new Uint8Array([0x89, 0x50, 0xff]));
      const sent = (...words: string[]) => write(words, SCHEMA, world);
      assert.equal(await sent("text=@text"), '{"text":"two\\nlines\\n"}');
      assert.equal(await sent("text=@~/text"), '{"text":"two\\nlines\\n"}');
      assert.equal(await sent(`text=@${join(cwd, "number")}`), '{"text":"5\\n"}');
      assert.equal(
        await sent("count=@number", "tags=@text"),
        '{"count":5,"tags":["two\\nlines\\n"]}',
      );
      assert.equal(await sent("picture=@picture"), '{"picture":"iVD/"}');
      const filter = '{"filter":{ "name": "x",\n"size": 1.0 }';
      assert.ok((await sent("filter=@filter.json")).startsWith(filter));
      assert.ok((await sent("filter:=@filter.json")).startsWith(filter));
      const refused = (words: string[], message: RegExp) => refuses(words, message, SCHEMA, world);
      await refused(["text=@picture"], /"text": expected a text, found the content of that file/);
      await refused(
        ["count=@text"],
        /"count": expected a whole number, found the content of that file/,
      );
      await refused(["text=@."], /\(EISDIR\)/);
    } finally {
      await rm(cwd, { recursive: true, force: true });
    }
  });
});
