import assert from "node:assert/strict";
import { chmod, lstat, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { SCHEMA_ID } from "../../src/base/homepage.ts";
import { HubError } from "../../src/base/errors.ts";
import {
  applyChange,
  type ManifestChange,
  type ServerChange,
} from "../../src/manifest/edit/change.ts";
import { editManifest } from "../../src/manifest/edit/edit.ts";
import { findUserFile, prepareEdit } from "../../src/manifest/edit/write.ts";
import { detectFormat, parseText } from "../../src/manifest/syntax/parse.ts";
import { isDeepEqual, isTable, type Table } from "../../src/manifest/table.ts";
import { type ManifestFolder, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

const ONE = `[servers.a]\ncommand = "x"\n`;

function itIn(what: string, use: (folder: ManifestFolder) => Promise<void>): void {
  it(what, () => withManifestFolder(use));
}

async function edit(text: string, change: ManifestChange, name = "toolmux.toml"): Promise<string> {
  const draft = { file: `/x/${name}`, baseDir: "/x", text, format: detectFormat(name, text) };
  return (await editManifest(draft, change)).text;
}

const ADD: ManifestChange = {
  kind: "add",
  name: "new",
  entry: { command: "x", args: ["-y", "a"] },
};
const ADDED = `[servers.new]\ncommand = "x"\nargs = ["-y", "a"]\n`;
const remove = (name: string): ServerChange => ({ kind: "remove", name });
const rename = (name: string, to: string): ServerChange => ({ kind: "rename", name, to });
function set(name: string, key: string, value: unknown): ServerChange {
  return { kind: "set", name, key, value };
}

const NEW = ADDED.trimEnd().replaceAll("\n", "⏎");

/**
 * A change, and where it is made; below it a file, in which `«before→after»` is what is changed, and
 * `⏎`, `␍` and `⇥` are the ends of lines and tabs.
 */
const TOML = `
  add: nothing
    «→${NEW}⏎»
  add: a blank line
    ⏎«→${NEW}⏎»
  add: a comment
    #:schema ./x.json⏎«→⏎${NEW}⏎»
  add: no line end
    [servers.a]⏎command = "x"«→⏎⏎${NEW}»
  add: another server, with what belongs to it
    [servers.a]⏎command = "x" # why⏎# args = []⏎⏎«→${NEW}⏎⏎»# later⏎
  add: other tables behind its servers
    [hub]⏎name = "h"⏎[servers.a]⏎command = "x"⏎[servers.a.tools]⏎deny = ["x"]⏎«→⏎${NEW}⏎⏎»# about it⏎[[plugins]]⏎use = "p"⏎
  add: servers in one table
    [servers]⏎a = { command = "x" }⏎⏎«→${NEW}⏎⏎»[defaults]⏎idleStop = 0⏎
  add: servers with dots
    servers.a.command = "x"⏎«→⏎${NEW}⏎»
  add: ends of lines of two characters
    [servers.a]␍⏎command = "x"␍⏎«→␍⏎${NEW.replaceAll("⏎", "␍⏎")}␍⏎»
  add: a byte order mark
    \uFEFF[servers.a]⏎command = "x"⏎«→⏎${NEW}⏎»
  add: a server of that name
    «# one⏎[servers.new]⏎command = "y"⏎⏎[servers.new.tools]⏎deny = []→${NEW}»⏎⏎# two⏎[servers.b]⏎command = "z"⏎
  add: a server of that name with dots
    «servers.new.command = "y"⏎→»[servers.b]⏎command = "z"⏎«→⏎${NEW}⏎»
  remove b: a server between others
    # top⏎⏎[servers.a]⏎command = "x"⏎⏎«# about b⏎# more⏎[servers.b] # here⏎command = "y"⏎env.A = "1"⏎⏎  [servers.b.tools]⏎  deny = [⏎    "x", # one⏎  ]⏎⏎→»# about c⏎[servers.c]⏎command = "z"⏎
  remove a: its last server
    [hub]⏎name = "h"⏎«⏎[servers.a]⏎command = "x"⏎→»
  remove a: its last server, without a line end
    [hub]⏎name = "h"«⏎⏎[servers.a]⏎command = "x"→»
  remove a: its first server
    «[servers.a]⏎command = "x"⏎⏎→»[servers.b]⏎command = "y"⏎
  remove a: its only server
    #:schema ./x.json⏎«[servers.a]⏎command = "x"⏎→»
  remove b: a server without a gap
    [servers.a]⏎command = "x"⏎«[servers.b]⏎command = "y"⏎→»[servers.c]⏎command = "z"⏎
  remove a: a server whose tables are apart
    «[servers.a]⏎command = "x"⏎⏎→»[servers.b]⏎command = "y"⏎«⏎[servers.a.tools]⏎deny = ["x"]⏎→»
  remove a: a server with quotes, and one of a name that begins alike
    «[servers."a"]⏎command = "x"⏎⏎→»[servers.ab]⏎command = "y"⏎
  remove a: a server within braces
    [servers]⏎«# about a⏎a = { command = "x" }⏎→»b = { command = "y" }⏎
  remove a: a server with dots
    «servers.a.command = "x"⏎→»servers.b.command = "y"⏎«servers.a.args = ["z"]⏎→»
  set a command "y": a key
    [servers.a]⏎command = "«x→y»" # why⏎
  set a enabled false: no such key
    [servers.a]⏎  command = "x" # why⏎«→  enabled = false⏎»⏎[servers.b]⏎command = "y"⏎
  set a lazy true: no such key and no line end
    [servers.a]⏎command = "x"«→⏎lazy = true»
  set a lazy false: a key within braces
    servers.a = { command = "x", lazy = «true→false» }⏎
  set a lazy true: no such key within braces
    [servers]⏎a = { command = "x"«→, lazy = true» }⏎
  set a lazy true: no such key with dots
    [servers]⏎ a.command = "x"⏎«→ a.lazy = true⏎»
  hub shared true: nothing
    «→[hub]⏎shared = true⏎»
  hub shared true: servers, and a comment at the end
    # top⏎[servers.a]⏎command = "x"⏎# end⏎«→⏎[hub]⏎shared = true⏎»
  hub shared true: no line end
    [servers.a]⏎command = "x"«→⏎⏎[hub]⏎shared = true»
  hub shared true: a table with other keys
    [hub]⏎  name = "h" # why⏎«→  shared = true⏎»⏎[servers.a]⏎command = "x"⏎
  hub shared true: an empty table
    [hub]⏎«→shared = true⏎»[servers.a]⏎command = "x"⏎
  hub shared false: the key
    [hub]⏎shared = «true→false» # for all⏎
  hub shared true: the key with dots
    hub.shared = «false→true»⏎[servers.a]⏎command = "x"⏎
  hub shared true: other keys with dots
    hub.name = "h"⏎«→hub.shared = true⏎»[servers.a]⏎command = "x"⏎
  hub shared true: a table within braces
    hub = { name = "h"«→, shared = true» }⏎
  hub shared false: the key within braces
    hub = { shared = «true→false» }⏎
  hub shared true: servers within braces
    servers = { a = { command = "x" } }⏎«→⏎[hub]⏎shared = true⏎»
  rename a b c: a name
    # a⏎[servers.«a→"b c"»] # a⏎prefix = "a"⏎command = "a"⏎[servers.«"a"→"b c"».tools]⏎deny = ["a"]⏎
  rename a b: a name with dots
    servers.«a→b».command = "a"⏎
`;

const WITH_COMMENTS = `
  add: nothing
    «→{⏎  "servers": {⏎    "new": {⏎      "command": "x",⏎      "args": ["-y", "a"]⏎    }⏎  }⏎}⏎»
  add: no servers
    {«→⏎  "servers": {⏎    "new": {⏎      "command": "x",⏎      "args": ["-y", "a"]⏎    }⏎  }⏎»}⏎
  add: servers of its own width, a comment behind the last
    {⏎⇥"hub": {"name": "h"}, // h⏎⇥"servers": {⏎⇥⇥"a": {"command": "x"}«→,» // about a«→⏎⇥⇥"new": {⏎⇥⇥⇥"command": "x",⏎⇥⇥⇥"args": ["-y", "a"]⏎⇥⇥}»⏎⇥⇥// end⏎⇥}⏎}
  add: a comma at the end
    {⏎  "servers": {⏎    "a": {"command": "x"},⏎«→    "new": {⏎      "command": "x",⏎      "args": ["-y", "a"]⏎    },⏎»  },⏎}⏎
  add: all in one line
    {"servers": {"a": {"command": "x"}«→, "new": { "command": "x", "args": [ "-y", "a" ] }»}}
  add: ends of lines of two characters
    {␍⏎  "servers": {␍⏎    "a": {"command": "x"}«→,␍⏎    "new": {␍⏎      "command": "x",␍⏎      "args": ["-y", "a"]␍⏎    }»␍⏎  }␍⏎}␍⏎
  add: a server of that name
    {⏎  "servers": {⏎    // one⏎    "new": {«"command": "y"→⏎      "command": "x",⏎      "args": ["-y", "a"]⏎    »}, // two⏎    "b": {"command": "z"}⏎  }⏎}⏎
  remove b: a server between others
    {⏎  "servers": {⏎    "a": {"command": "x"}, // a⏎«    // about b⏎    "b": {⏎      "command": "y"⏎    }, // b⏎→»    // about c⏎    "c": {"command": "z"}⏎  }⏎}⏎
  remove b: its last server
    {⏎  "servers": {⏎    "a": {"command": "x"}«,→» // a⏎«    // about b⏎    "b": {"command": "y"}⏎→»  }⏎}⏎
  remove b: its last server, and a comma
    {⏎  "servers": {⏎    "a": {"command": "x"},⏎«    "b": {"command": "y"},⏎→»  }⏎}⏎
  remove a: its only server
    {⏎  "servers": {⏎«    "a": {"command": "x"}⏎→»  }⏎}⏎
  remove b: a server in a line of several
    {"servers": {"a": {"command": "x"}, «"b": {"command": "y"}, →»"c": {"command": "z"}}}
  remove b: the last server in a line of several
    {"servers": {"a": {"command": "x"}«, "b": {"command": "y"}→»}}
  set a command "y": a key
    {"servers": {"a": {"command": "«x→y»" /* why */}}}
  set a lazy true: no such key
    {⏎  "servers": {⏎    "a": {⏎      "command": "x"«→,⏎      "lazy": true»⏎    }⏎  }⏎}⏎
  hub shared true: nothing
    «→{⏎  "hub": {⏎    "shared": true⏎  }⏎}⏎»
  hub shared true: no such table
    {⏎  "servers": {"a": {"command": "x"}}«→,» // why«→⏎  "hub": {⏎    "shared": true⏎  }»⏎}⏎
  hub shared true: a table with other keys
    {"hub": {"name": "h"«→, "shared": true»}, "servers": {}}
  hub shared false: the key
    {"hub": {"shared": «true→false» /* for all */}}
  hub shared true: a client's servers
    {"mcpServers": {"a": {"command": "x"}}«→, "hub": { "shared": true }»}
  rename a b: a name
    {"servers": {"«a→b»": {"command": "a"}}}
  remove a: a client's servers
    {"mcpServers": {«"a": {"command": "x"}, →»"b": {"command": "y"}}, "more": 1}
`;

function changeOf(text: string): ManifestChange {
  const [kind, name = "", key = "", ...rest] = text.split(" ");
  if (kind === "add") return ADD;
  if (kind === "remove") return remove(name);
  if (kind === "hub") return { kind: "setHub", key: name, value: JSON.parse(key) as unknown };
  return kind === "set"
    ? set(name, key, JSON.parse(rest.join(" ")))
    : rename(name, [key, ...rest].join(" "));
}

describe("a manifest that is edited", () => {
  for (const [name, table] of [
    ["toolmux.toml", TOML],
    ["toolmux.jsonc", WITH_COMMENTS],
  ] as const) {
    for (const [, change = "", where, file = ""] of table.matchAll(
      /^ {2}(\S.*): (.*)\n {4}(.*)$/gm,
    )) {
      it(`as ${name} has nothing else changed: ${change}, where there is ${where}`, async () => {
        const text = file.replaceAll("⏎", "\n").replaceAll("␍", "\r").replaceAll("⇥", "\t");
        const [before, after] = ["$1", "$2"].map((part) =>
          text.replaceAll(/«(.*?)→(.*?)»/gs, part),
        );
        assert.equal(await edit(before ?? "", changeOf(change), name), after);
      });
    }
  }

  it("has quotes where a name or a value wants them", async () => {
    const env = { "A.B": "${env:X}", C: "" };
    const more = { env, lazy: true, tools: { deny: [] } };
    const entry = { prefix: "my", command: 'say "\\\n\u007f"', ...more };
    const lines = [
      '[servers."my server"]',
      'prefix = "my"',
      String.raw`command = "say \"\\\n\u007f\""`,
      'env = { "A.B" = "${env:X}", C = "" }',
      "lazy = true\ntools = { deny = [] }\n",
    ];
    assert.equal(await edit("", { kind: "add", name: "my server", entry }), lines.join("\n"));
    await edit('servers.a = { command = "x" }\n', set("a", "env", env));
  });

  const SECRET = set("a", "env", { A: "sk-secret", B: "${env:B}" });
  for (const [text, change, message] of [
    [
      'servers = { a = { command = "x" } }',
      ADD,
      /^\/x\/t\.toml has its servers in an inline table \(line 1\)\. Nothing was changed; by hand: add\n\[servers\.new\]\ncommand = "x"\nargs = \["-y", "a"\]$/,
    ],
    [
      `${ONE}env.A = 'y'\n`,
      SECRET,
      /is written in a way that toolmux cannot change\. Nothing was changed; by hand: write env = \{ A = "…", B = "\$\{env:B\}" \} in \[servers\.a\]$/,
    ],
    [ONE, remove("b"), /^There is no server b in \/x\/t\.toml; there are a\.$/],
    [
      "[servers.new]\ncommand = 'y'\n",
      { ...ADD, isNew: true },
      /^There is a server new in \/x\/t\.toml already; choose another name, or replace it \(--replace\)\.$/,
    ],
    ["", remove("b"), /^There is no server b in \/x\/t\.toml; it has no servers\.$/],
    [`${ONE}[servers.b]\ncommand = 'y'\n`, rename("a", "b"), /cannot change/],
    [
      `{"servers": {"a": {"command": "x"}, "a": {"command": "y"}}}`,
      remove("a"),
      /is set twice; remove one of the two/,
    ],
  ] as const) {
    it(`is left alone if that would spoil it: ${change.kind} in ${JSON.stringify(text)}`, async () => {
      const name = text.startsWith("{") ? "t.json" : "t.toml";
      await assert.rejects(edit(text, change, name), (error) => {
        assert.ok(error instanceof HubError);
        assert.match(error.message, message);
        assert.ok(!error.message.includes("sk-secret"));
        return true;
      });
    });
  }

  for (const [text, change] of [
    ["[hub]\nnonsense = 1\n", ADD],
    ["[servers.a\n", ADD],
    ["[servers.a]\nnonsense = 1\n", { kind: "add", name: "a", entry: { nonsense: 1 } }],
    ["[servers.a]\nnonsense = 1\n", { kind: "add", name: "b", entry: { nonsense: 1 } }],
    [ONE, set("a", "nonsense", 1)],
    ["[servers.a]\nnonsense = 1\n", set("a", "comand", "x")],
    ["", { kind: "add", name: "a", entry: { command: 5 } }],
    ["", { kind: "add", name: "a__b", entry: { command: "x" } }],
    [ONE, { kind: "add", name: "b", entry: { command: "x", prefix: "a" } }],
  ] as const) {
    it(`has to be right before and after: ${JSON.stringify(text)} ${JSON.stringify(change)}`, async () => {
      await assert.rejects(edit(text, change), { code: "manifestInvalid" });
    });
  }
});

describe("a manifest in which entries have problems", () => {
  const BROKEN = `[servers.a]
comand = "x"

[servers.b]
command = "y"
tools.approval = { t = "sometimes" }

[modes.m]
nonsense = 1
`;
  for (const [what, change, lines] of [
    ["gets another server", { kind: "add", name: "c", entry: { command: "z" } }, /\[servers\.c\]/],
    ["gets a right entry", { kind: "add", name: "a", entry: { command: "x" } }, /command = "x"/],
    ["has a broken server disabled", set("a", "enabled", false), /enabled = false/],
    ["has a broken server removed", remove("b"), /^(?!.*servers\.b)/s],
    ["has a whole server removed", remove("a"), /^(?!.*servers\.a)/s],
    ["gets a setting of the hub", { kind: "setHub", key: "shared", value: true }, /shared = true/],
  ] as const) {
    it(`${what} while the others keep theirs`, async () => {
      const edited = await edit(BROKEN, change);
      assert.match(edited, lines);
      assert.match(edited, /\[modes\.m\]\nnonsense = 1/);
    });
  }

  it("says of which server a table was removed, and what is wrong with those that stay", async () => {
    const manifest = {
      file: "/x/toolmux.toml",
      baseDir: "/x",
      text: BROKEN,
      format: "toml",
    } as const;
    const { server, others } = await editManifest(manifest, remove("a"));
    assert.equal(server?.kind, "invalid");
    assert.deepEqual(
      others.map(({ name, kind }) => [name, kind]),
      [["b", "invalid"]],
    );
  });
});

/** Whole numbers below a limit, the same every time. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const NAMES = ["a", "b", "my server", "x.y", "日本", "a-b", "toString", "1"];
const COMMENTS = ["# one", "#two", "# [servers.a]", '# a = "b"'];

/** A manifest as people write them, in every layout there is. */
function makeToml(pick: (below: number) => number): string {
  const some = <T>(list: readonly T[]): T => list[pick(list.length)] as T;
  const noise = (): string[] => [
    ...(pick(3) === 0 ? [""] : []),
    ...(pick(3) === 0 ? [some(COMMENTS)] : []),
    ...(pick(6) === 0 ? [""] : []),
  ];
  const key = (name: string): string =>
    /^[\w-]+$/.test(name) && pick(3) > 0 ? name : JSON.stringify(name);
  const names = NAMES.filter(() => pick(2) === 0);
  const dotted = names.filter(() => pick(5) === 0);
  const inner = names.filter((name) => !dotted.includes(name) && pick(5) === 0);
  const tables = names.filter((name) => !dotted.includes(name) && !inner.includes(name));
  const lines: string[] = [];
  for (const name of dotted) {
    lines.push(...noise());
    lines.push(`servers.${key(name)}.command = "x" ${pick(2) === 0 ? some(COMMENTS) : ""}`);
    lines.push(`servers.${key(name)}.prefix = "p${names.indexOf(name)}"`);
  }
  if (dotted.length === 0 && inner.length > 0) {
    lines.push(...noise(), "[servers]");
    for (const name of inner) {
      const prefix = `"p${names.indexOf(name)}"`;
      lines.push(...noise(), `${key(name)} = { command = 'y', prefix = ${prefix} }`);
    }
  }
  if (pick(3) === 0) lines.push(...noise(), "[hub]", 'name = "h" # name');
  for (const name of tables) {
    const indent = some(["", "  ", "\t"]);
    lines.push(...noise(), `${indent}[servers.${key(name)}]`, ...noise());
    lines.push(`${indent}command = """\n# no comment\nx"""`);
    lines.push(`${indent}prefix = "p${names.indexOf(name)}"`, ...noise());
    if (pick(2) === 0) lines.push(`${indent}args = [`, `  "a", # why`, "]");
    if (pick(2) === 0)
      lines.push(...noise(), `[servers.${key(name)}.tools]`, 'deny = ["x"]', ...noise());
  }
  if (pick(3) === 0) lines.push(...noise(), "[defaults]", "idleStop = 0");
  lines.push(...noise());
  const end = some(["\n", "\r\n"]);
  return some(["", "\uFEFF"]) + lines.join("\n").replaceAll("\n", end) + some(["", end]);
}

function makeJson(pick: (below: number) => number): string {
  const some = (list: readonly string[]): string => list[pick(list.length)] ?? "";
  const gap = some(["", " ", "\n  "]);
  const note = (): string => (pick(3) === 0 ? some(["// one\n", "/* two */ ", "\n"]) : "");
  const names = NAMES.filter(() => pick(2) === 0);
  const members = names.map((name, i) => {
    const entry = `{"command":${gap}"x", "prefix": "p${i}"}`;
    return `${gap}${note()}${JSON.stringify(name)}:${gap}${entry}`;
  });
  const comma = members.length > 0 && pick(3) === 0 ? "," : "";
  const all = members.join(`,${pick(3) === 0 ? " // behind\n" : ""}`);
  const group = `"servers": {${all}${comma}${note()}${gap}}`;
  const hub = pick(2) === 0 ? `"hub": {"name": "h"},${gap}` : "";
  return `{${gap}${hub}${group}${gap}${note()}}${some(["", "\n"])}`;
}

function makeChange(pick: (below: number) => number): ServerChange {
  const name = NAMES[pick(NAMES.length)] as string;
  const entry = { command: "new", args: ["-y", 'q"'], env: { A: "${env:A}" }, prefix: "fresh" };
  const kind = pick(4);
  if (kind === 0) return { kind: "add", name, entry };
  if (kind === 1) return remove(name);
  if (kind === 2) return set(name, pick(2) === 0 ? "lazy" : "command", pick(2) === 0 ? true : "z");
  return rename(name, NAMES[pick(NAMES.length)] as string);
}

/** The servers' names in their order. */
function orderOf(root: unknown): string[] {
  const servers = isTable(root) ? root["servers"] : {};
  return Object.keys(isTable(servers) ? servers : {});
}

async function parse(text: string, name: string): Promise<Table> {
  const parsed = await parseText(text.replace(/^\uFEFF/, ""), detectFormat(name, text));
  assert.ok(parsed.ok, text);
  assert.ok(isTable(parsed.root));
  return parsed.root;
}

describe("editing any manifest", () => {
  for (const [name, make] of [
    ["t.toml", makeToml],
    ["t.json", makeJson],
  ] as const) {
    it(`as ${name}, then reading it, is reading it, then editing that; what is not about the server stays`, async () => {
      const pick = random(7);
      const counts = { done: 0, refused: 0, senseless: 0 };
      for (let round = 0; round < 250; round++) {
        const before = make(pick);
        const change = makeChange(pick);
        const root = await parse(before, name);
        const wanted = applyChange(root, "servers", change);
        const after = await edit(before, change, name).catch((error: unknown) => {
          assert.ok(error instanceof HubError, String(error));
          return error;
        });
        if (typeof after !== "string") {
          if (wanted === undefined || after.code === "manifestInvalid") counts.senseless++;
          else counts.refused++;
          continue;
        }
        counts.done++;
        const now = await parse(after, name);
        const isSame = isDeepEqual({ servers: {}, ...now }, { servers: {}, ...wanted });
        assert.ok(isSame, `${before}\n---\n${after}`);
        const isKept = (key: string): boolean =>
          key !== change.name && !(change.kind === "rename" && key === change.to);
        assert.deepEqual(orderOf(now).filter(isKept), orderOf(root).filter(isKept));
        assert.equal(after.startsWith("\uFEFF"), before.startsWith("\uFEFF"));
        if (before.includes("\n")) {
          assert.equal(/(?<!\r)\n/.test(after), /(?<!\r)\n/.test(before), after);
        }
        const isNew = !orderOf(root).includes(change.name);
        if (name === "t.toml") checkLines(before, after, change, isNew);
      }
      assert.ok(counts.done > 80, JSON.stringify(counts));
      assert.ok(counts.refused < counts.done / 5, JSON.stringify(counts));
    });

    it(`as ${name}, all at once comes to the same as one after the other`, async () => {
      const pick = random(11);
      const servers = new Map<string, Table>([
        ["one", { command: "x", args: ["-y"], env: { A: "${env:A}" } }],
        ["__proto__", { url: "http://127.0.0.1/", prefix: "p" }],
        ["three.x y", { command: "z", prefix: "q" }],
      ]);
      let done = 0;
      for (let round = 0; round < 60; round++) {
        const before = make(pick);
        let wanted: string | undefined = before;
        for (const [key, entry] of servers) {
          const change: ManifestChange = { kind: "add", name: key, entry, isNew: true };
          wanted = wanted && (await edit(wanted, change, name).catch(() => undefined));
        }
        const after = edit(before, { kind: "addAll", servers }, name);
        assert.equal(await after.catch(() => undefined), wanted, before);
        if (wanted !== undefined) done++;
      }
      assert.ok(done > 30, String(done));
    });

    it(`as ${name}, nothing of it is changed if one of several is there already`, async () => {
      const isToml = name === "t.toml";
      const text = isToml ? '[servers.b]\ncommand = "x"\n' : '{"servers":{"b":{"command":"x"}}}';
      const servers = new Map(["a", "b"].map((key) => [key, { command: "y" }]));
      const message = /has these servers already: b/;
      const run = edit(text, { kind: "addAll", servers }, name);
      await assert.rejects(run, { code: "usage", message });
    });
  }
});

/** What is added leaves all lines there, and what is taken out adds none; blank ones do not count. */
function checkLines(before: string, after: string, change: ServerChange, isNew: boolean): void {
  const linesOf = (text: string): string[] =>
    text
      .replace(/^\uFEFF/, "")
      .split(/\r?\n/)
      .filter((line) => line.trim() !== "");
  const some = `${JSON.stringify(change)}\n${before}\n---\n${after}`;
  if (change.kind === "remove") assert.ok(isWithin(linesOf(after), linesOf(before)), some);
  if (change.kind === "add" && isNew) assert.ok(isWithin(linesOf(before), linesOf(after)), some);
  if (change.kind === "rename") assert.equal(linesOf(after).length, linesOf(before).length, some);
}

/** Whether all lines of a few are among others, in their order. */
function isWithin(few: readonly string[], many: readonly string[]): boolean {
  let at = 0;
  for (const line of many) if (line === few[at]) at++;
  return at === few.length;
}

describe("a manifest's file that is edited", () => {
  itIn("keeps its permissions, and stays behind its link", async (folder) => {
    const real = await folder.write("dotfiles/real.toml", ONE);
    await chmod(real, 0o640);
    const link = join(folder.root, "toolmux.toml");
    await symlink("dotfiles/real.toml", link);
    const prepared = await prepareEdit(link, ADD);
    assert.equal(await readFile(real, "utf8"), ONE);
    await prepared.write();
    assert.ok((await lstat(link)).isSymbolicLink());
    assert.equal((await stat(real)).mode & 0o777, 0o640);
    assert.equal(await readFile(real, "utf8"), `${ONE}\n${ADDED}`);
  });

  itIn("is not written if somebody else has changed it meanwhile", async (folder) => {
    const file = await folder.write("toolmux.toml", ONE);
    const prepared = await prepareEdit(file, ADD);
    await writeFile(file, '[servers.b]\ncommand = "x"\n');
    await assert.rejects(prepared.write(), { code: "usage", message: /was changed meanwhile/ });
    assert.equal(await readFile(file, "utf8"), '[servers.b]\ncommand = "x"\n');
    assert.deepEqual(await readdir(folder.root), ["toolmux.toml"]);
  });

  itIn("is left alone if it is read-only", async (folder) => {
    const file = await folder.write("toolmux.toml", "");
    await chmod(file, 0o444);
    const prepared = await prepareEdit(file, ADD);
    await assert.rejects(prepared.write(), { code: "usage", message: /is read-only/ });
    assert.equal(await readFile(file, "utf8"), "");
  });

  itIn("that is not there is made in the user's folder, for its owner alone", async (folder) => {
    const surroundings = { env: { HOME: folder.home }, cwd: folder.cwd, platform: "linux" };
    const file = await findUserFile(surroundings);
    assert.equal(file, join(folder.home, ".config/toolmux/toolmux.toml"));
    const prepared = await prepareEdit(file, ADD);
    assert.equal(prepared.before, undefined);
    await prepared.write();
    assert.equal(await readFile(file, "utf8"), `#:schema ${SCHEMA_ID}\n\n${ADDED}`);
    const json = join(folder.home, "new.json");
    await (await prepareEdit(json, ADD)).write();
    const written = JSON.parse(await readFile(json, "utf8")) as Record<string, unknown>;
    assert.deepEqual(Object.keys(written), ["$schema", "servers"]);
    assert.equal(written["$schema"], SCHEMA_ID);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    assert.equal((await stat(join(folder.home, ".config/toolmux"))).mode & 0o777, 0o700);
    await assert.rejects(prepared.write(), { message: /was changed meanwhile/ });
    await folder.write("home/.config/toolmux/toolmux.json", "{}");
    assert.equal(await findUserFile(surroundings), file);
  });

  itIn("is the one that the user has, whatever it is written in", async (folder) => {
    const file = await folder.write("home/.config/toolmux/toolmux.jsonc", "{}");
    const env = { HOME: folder.home };
    assert.equal(await findUserFile({ env, cwd: folder.cwd, platform: "linux" }), file);
  });

  it("is not said to hold on some line what was to be written into it", async () => {
    const bad: ManifestChange = { kind: "add", name: "x", entry: { command: "c", prefix: "a__b" } };
    const message = /^\/x\/toolmux\.toml: servers\.x\.prefix: /;
    await assert.rejects(edit(ONE, bad), { code: "manifestInvalid", message });
    await assert.rejects(edit("[hub]\nnonsense = 1\n", ADD), {
      message: /^\/x\/toolmux\.toml:2:1: hub\.nonsense: /m,
    });
  });

  itIn("is not made where a link leads nowhere, which stays", async (folder) => {
    const link = join(folder.root, "toolmux.toml");
    await symlink("nowhere.toml", link);
    const run = (await prepareEdit(link, ADD)).write();
    await assert.rejects(run, { code: "usage", message: /is a broken link/ });
    assert.deepEqual(await readdir(folder.root), ["toolmux.toml"]);
  });

  itIn("has to be a text that can be read", async (folder) => {
    const binary = prepareEdit(await folder.write("a.toml", new Uint8Array([0xff])), ADD);
    await assert.rejects(binary, { code: "usage", message: /is not UTF-8 text/ });
    await assert.rejects(prepareEdit(folder.root, ADD), { message: /is a folder, not a file/ });
  });
});
