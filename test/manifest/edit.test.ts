import assert from "node:assert/strict";
import { chmod, lstat, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import {
  applyChange,
  type ManifestChange,
  type ServerChange,
} from "../../src/manifest/edit/change.ts";
import { editManifest } from "../../src/manifest/edit/edit.ts";
import { findUserFile, prepareEdit } from "../../src/manifest/edit/write.ts";
import { detectFormat, parseText } from "../../src/manifest/parse.ts";
import { isDeepEqual, isTable, type Table } from "../../src/manifest/table.ts";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

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
const set = (name: string, key: string, value: unknown): ServerChange => ({
  kind: "set",
  name,
  key,
  value,
});
const rename = (name: string, to: string): ServerChange => ({ kind: "rename", name, to });

/** What the text of a manifest is before and after, by what is changed in it. */
type Cases = readonly (readonly [
  what: string,
  before: string,
  change: ManifestChange,
  after: string,
])[];

const TOML: Cases = [
  ["nothing", "", ADD, ADDED],
  ["a blank line", "\n", ADD, `\n${ADDED}`],
  ["a comment", "#:schema ./x.json\n", ADD, `#:schema ./x.json\n\n${ADDED}`],
  [
    "no line end",
    '[servers.a]\ncommand = "x"',
    ADD,
    `[servers.a]\ncommand = "x"\n\n${ADDED.trimEnd()}`,
  ],
  [
    "another server, with what belongs to it",
    '[servers.a]\ncommand = "x" # why\n# args = []\n\n# later\n',
    ADD,
    `[servers.a]\ncommand = "x" # why\n# args = []\n\n${ADDED}\n# later\n`,
  ],
  [
    "other tables behind its servers",
    '[hub]\nname = "h"\n[servers.a]\ncommand = "x"\n[servers.a.tools]\ndeny = ["x"]\n# about it\n[[plugins]]\nuse = "p"\n',
    ADD,
    `[hub]\nname = "h"\n[servers.a]\ncommand = "x"\n[servers.a.tools]\ndeny = ["x"]\n\n${ADDED}\n# about it\n[[plugins]]\nuse = "p"\n`,
  ],
  [
    "servers in one table",
    '[servers]\na = { command = "x" }\n\n[defaults]\nidleStop = 0\n',
    ADD,
    `[servers]\na = { command = "x" }\n\n${ADDED}\n[defaults]\nidleStop = 0\n`,
  ],
  ["servers with dots", 'servers.a.command = "x"\n', ADD, `servers.a.command = "x"\n\n${ADDED}`],
  [
    "ends of lines of two characters",
    '[servers.a]\r\ncommand = "x"\r\n',
    ADD,
    `[servers.a]\r\ncommand = "x"\r\n\r\n${ADDED.replaceAll("\n", "\r\n")}`,
  ],
  [
    "a byte order mark",
    '\uFEFF[servers.a]\ncommand = "x"\n',
    ADD,
    `\uFEFF[servers.a]\ncommand = "x"\n\n${ADDED}`,
  ],
  [
    "a server of that name",
    '# one\n[servers.new]\ncommand = "y"\n\n[servers.new.tools]\ndeny = []\n\n# two\n[servers.b]\ncommand = "z"\n',
    ADD,
    `${ADDED}\n# two\n[servers.b]\ncommand = "z"\n`,
  ],
  [
    "a server of that name with dots",
    'servers.new.command = "y"\n[servers.b]\ncommand = "z"\n',
    ADD,
    `[servers.b]\ncommand = "z"\n\n${ADDED}`,
  ],
  [
    "a name that wants quotes",
    "",
    {
      kind: "add",
      name: "my server",
      entry: {
        prefix: "my",
        command: 'say "\\\n\u007f"',
        env: { "A.B": "${env:X}", C: "" },
        lazy: true,
        tools: { deny: [] },
      },
    },
    `[servers."my server"]\nprefix = "my"\ncommand = "say \\"\\\\\\n\\u007f\\""\nenv = { "A.B" = "\${env:X}", C = "" }\nlazy = true\ntools = { deny = [] }\n`,
  ],
  [
    "a server between others",
    '# top\n\n[servers.a]\ncommand = "x"\n\n# about b\n# more\n[servers.b] # here\ncommand = "y"\nenv.A = "1"\n\n  [servers.b.tools]\n  deny = [\n    "x", # one\n  ]\n\n# about c\n[servers.c]\ncommand = "z"\n',
    remove("b"),
    '# top\n\n[servers.a]\ncommand = "x"\n\n# about c\n[servers.c]\ncommand = "z"\n',
  ],
  [
    "its last server",
    '[hub]\nname = "h"\n\n[servers.a]\ncommand = "x"\n',
    remove("a"),
    '[hub]\nname = "h"\n',
  ],
  [
    "its last server, without a line end",
    '[hub]\nname = "h"\n\n[servers.a]\ncommand = "x"',
    remove("a"),
    '[hub]\nname = "h"',
  ],
  [
    "its first server",
    '[servers.a]\ncommand = "x"\n\n[servers.b]\ncommand = "y"\n',
    remove("a"),
    '[servers.b]\ncommand = "y"\n',
  ],
  [
    "its only server",
    '#:schema ./x.json\n[servers.a]\ncommand = "x"\n',
    remove("a"),
    "#:schema ./x.json\n",
  ],
  [
    "a server without a gap",
    '[servers.a]\ncommand = "x"\n[servers.b]\ncommand = "y"\n[servers.c]\ncommand = "z"\n',
    remove("b"),
    '[servers.a]\ncommand = "x"\n[servers.c]\ncommand = "z"\n',
  ],
  [
    "a server whose tables are apart",
    '[servers.a]\ncommand = "x"\n\n[servers.b]\ncommand = "y"\n\n[servers.a.tools]\ndeny = ["x"]\n',
    remove("a"),
    '[servers.b]\ncommand = "y"\n',
  ],
  [
    "a server with quotes, and one of a name that begins alike",
    `[servers."a"]\ncommand = "x"\n\n[servers.ab]\ncommand = "y"\n`,
    remove("a"),
    '[servers.ab]\ncommand = "y"\n',
  ],
  [
    "a server within braces",
    '[servers]\n# about a\na = { command = "x" }\nb = { command = "y" }\n',
    remove("a"),
    '[servers]\nb = { command = "y" }\n',
  ],
  [
    "a server with dots",
    'servers.a.command = "x"\nservers.b.command = "y"\nservers.a.args = ["z"]\n',
    remove("a"),
    'servers.b.command = "y"\n',
  ],
  [
    "a key",
    '[servers.a]\ncommand = "x" # why\n',
    set("a", "command", "y"),
    '[servers.a]\ncommand = "y" # why\n',
  ],
  [
    "no such key",
    '[servers.a]\n  command = "x" # why\n\n[servers.b]\ncommand = "y"\n',
    set("a", "enabled", false),
    '[servers.a]\n  command = "x" # why\n  enabled = false\n\n[servers.b]\ncommand = "y"\n',
  ],
  [
    "no such key and no line end",
    '[servers.a]\ncommand = "x"',
    set("a", "lazy", true),
    '[servers.a]\ncommand = "x"\nlazy = true',
  ],
  [
    "a key within braces",
    'servers.a = { command = "x", lazy = true }\n',
    set("a", "lazy", false),
    'servers.a = { command = "x", lazy = false }\n',
  ],
  [
    "no such key within braces",
    '[servers]\na = { command = "x" }\n',
    set("a", "lazy", true),
    '[servers]\na = { command = "x", lazy = true }\n',
  ],
  [
    "no such key with dots",
    '[servers]\n a.command = "x"\n',
    set("a", "lazy", true),
    '[servers]\n a.command = "x"\n a.lazy = true\n',
  ],
  [
    "a name",
    '# a\n[servers.a] # a\nprefix = "a"\ncommand = "a"\n[servers."a".tools]\ndeny = ["a"]\n',
    rename("a", "b c"),
    '# a\n[servers."b c"] # a\nprefix = "a"\ncommand = "a"\n[servers."b c".tools]\ndeny = ["a"]\n',
  ],
  ["a name with dots", 'servers.a.command = "a"\n', rename("a", "b"), 'servers.b.command = "a"\n'],
];

const JSONC: Cases = [
  [
    "nothing",
    "",
    { ...ADD },
    `{\n  "servers": {\n    "new": {\n      "command": "x",\n      "args": ["-y", "a"]\n    }\n  }\n}\n`,
  ],
  [
    "no servers",
    "{}\n",
    ADD,
    `{\n  "servers": {\n    "new": {\n      "command": "x",\n      "args": ["-y", "a"]\n    }\n  }\n}\n`,
  ],
  [
    "servers of its own width, a comment behind the last",
    `{\n\t"hub": {"name": "h"}, // h\n\t"servers": {\n\t\t"a": {"command": "x"} // about a\n\t\t// end\n\t}\n}`,
    ADD,
    `{\n\t"hub": {"name": "h"}, // h\n\t"servers": {\n\t\t"a": {"command": "x"}, // about a\n\t\t"new": {\n\t\t\t"command": "x",\n\t\t\t"args": ["-y", "a"]\n\t\t}\n\t\t// end\n\t}\n}`,
  ],
  [
    "a comma at the end",
    `{\n  "servers": {\n    "a": {"command": "x"},\n  },\n}\n`,
    ADD,
    `{\n  "servers": {\n    "a": {"command": "x"},\n    "new": {\n      "command": "x",\n      "args": ["-y", "a"]\n    },\n  },\n}\n`,
  ],
  [
    "all in one line",
    `{"servers": {"a": {"command": "x"}}}`,
    ADD,
    `{"servers": {"a": {"command": "x"}, "new": { "command": "x", "args": [ "-y", "a" ] }}}`,
  ],
  [
    "ends of lines of two characters",
    `{\r\n  "servers": {\r\n    "a": {"command": "x"}\r\n  }\r\n}\r\n`,
    ADD,
    `{\r\n  "servers": {\r\n    "a": {"command": "x"},\r\n    "new": {\r\n      "command": "x",\r\n      "args": ["-y", "a"]\r\n    }\r\n  }\r\n}\r\n`,
  ],
  [
    "a server of that name",
    `{\n  "servers": {\n    // one\n    "new": {"command": "y"}, // two\n    "b": {"command": "z"}\n  }\n}\n`,
    ADD,
    `{\n  "servers": {\n    // one\n    "new": {\n      "command": "x",\n      "args": ["-y", "a"]\n    }, // two\n    "b": {"command": "z"}\n  }\n}\n`,
  ],
  [
    "a server between others",
    `{\n  "servers": {\n    "a": {"command": "x"}, // a\n    // about b\n    "b": {\n      "command": "y"\n    }, // b\n    // about c\n    "c": {"command": "z"}\n  }\n}\n`,
    remove("b"),
    `{\n  "servers": {\n    "a": {"command": "x"}, // a\n    // about c\n    "c": {"command": "z"}\n  }\n}\n`,
  ],
  [
    "its last server",
    `{\n  "servers": {\n    "a": {"command": "x"}, // a\n    // about b\n    "b": {"command": "y"}\n  }\n}\n`,
    remove("b"),
    `{\n  "servers": {\n    "a": {"command": "x"} // a\n  }\n}\n`,
  ],
  [
    "its last server, and a comma",
    `{\n  "servers": {\n    "a": {"command": "x"},\n    "b": {"command": "y"},\n  }\n}\n`,
    remove("b"),
    `{\n  "servers": {\n    "a": {"command": "x"},\n  }\n}\n`,
  ],
  [
    "its only server",
    `{\n  "servers": {\n    "a": {"command": "x"}\n  }\n}\n`,
    remove("a"),
    `{\n  "servers": {\n  }\n}\n`,
  ],
  [
    "a server in a line of several",
    `{"servers": {"a": {"command": "x"}, "b": {"command": "y"}, "c": {"command": "z"}}}`,
    remove("b"),
    `{"servers": {"a": {"command": "x"}, "c": {"command": "z"}}}`,
  ],
  [
    "the last server in a line of several",
    `{"servers": {"a": {"command": "x"}, "b": {"command": "y"}}}`,
    remove("b"),
    `{"servers": {"a": {"command": "x"}}}`,
  ],
  [
    "a key",
    `{"servers": {"a": {"command": "x" /* why */}}}`,
    set("a", "command", "y"),
    `{"servers": {"a": {"command": "y" /* why */}}}`,
  ],
  [
    "no such key",
    `{\n  "servers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}\n`,
    set("a", "lazy", true),
    `{\n  "servers": {\n    "a": {\n      "command": "x",\n      "lazy": true\n    }\n  }\n}\n`,
  ],
  [
    "a name",
    `{"servers": {"a": {"command": "a"}}}`,
    rename("a", "b"),
    `{"servers": {"b": {"command": "a"}}}`,
  ],
  [
    "a client's servers",
    `{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}, "more": 1}`,
    remove("a"),
    `{"mcpServers": {"b": {"command": "y"}}, "more": 1}`,
  ],
];

describe("a manifest that is edited", () => {
  for (const [name, cases] of [
    ["toolmux.toml", TOML],
    ["toolmux.jsonc", JSONC],
  ] as const) {
    for (const [what, before, change, after] of cases) {
      it(`as ${name} has nothing else changed: ${change.kind}, where there is ${what}`, async () => {
        assert.equal(await edit(before, change, name), after);
      });
    }
  }

  for (const [name, text, change, message] of [
    [
      "t.toml",
      'servers = { a = { command = "x" } }',
      ADD,
      /^\/x\/t\.toml has its servers within braces \(line 1\)\. Nothing was changed; by hand: add\n\[servers\.new\]\ncommand = "x"\nargs = \["-y", "a"\]$/,
    ],
    [
      "t.toml",
      'servers.a = { command = "x" }\n',
      set("a", "env", { A: "sk-secret", B: "${env:B}" }),
      undefined,
    ],
    [
      "t.toml",
      "[servers.a]\ncommand = 'x'\nenv.A = 'y'\n",
      set("a", "env", { A: "sk-secret", B: "${env:B}" }),
      /is written in a way that toolmux cannot change\. Nothing was changed; by hand: write env = \{ A = "…", B = "\$\{env:B\}" \} in \[servers\.a\]$/,
    ],
    [
      "t.toml",
      "[servers.a]\ncommand = 'x'\n",
      remove("b"),
      /^There is no server b in \/x\/t\.toml; there are a\.$/,
    ],
    [
      "t.toml",
      "[servers.new]\ncommand = 'y'\n",
      { ...ADD, isNew: true },
      /^There is a server new in \/x\/t\.toml already; take another name, or replace it \(--replace\)\.$/,
    ],
    ["t.toml", "", remove("b"), /^There is no server b in \/x\/t\.toml; it holds none\.$/],
    [
      "t.toml",
      "[servers.a]\ncommand = 'x'\n[servers.b]\ncommand = 'y'\n",
      rename("a", "b"),
      /cannot change/,
    ],
    [
      "t.json",
      `{"servers": {"a": {"command": "x"}, "a": {"command": "y"}}}`,
      remove("a"),
      /is set twice; remove one of the two/,
    ],
  ] as const) {
    it(`is left alone if that would spoil it: ${change.kind} in ${JSON.stringify(text)}`, async () => {
      if (message === undefined) return void (await edit(text, change, name));
      await assert.rejects(edit(text, change, name), (error) => {
        assert.ok(error instanceof HubError);
        assert.match(error.message, message);
        assert.ok(!error.message.includes("sk-secret"));
        return true;
      });
    });
  }

  for (const [text, change] of [
    ["[servers.a]\nnonsense = 1\n", ADD],
    ["[servers.a\n", ADD],
    ["", { kind: "add", name: "a", entry: { command: 5 } }],
    ["", { kind: "add", name: "a__b", entry: { command: "x" } }],
    [
      "[servers.a]\ncommand = 'x'\n",
      { kind: "add", name: "b", entry: { command: "x", prefix: "a" } },
    ],
  ] as const) {
    it(`has to be right before and after: ${JSON.stringify(text)} ${JSON.stringify(change)}`, async () => {
      await assert.rejects(edit(text, change), { code: "manifestInvalid" });
    });
  }
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
    lines.push(
      ...noise(),
      `servers.${key(name)}.command = "x" ${pick(2) === 0 ? some(COMMENTS) : ""}`,
    );
    lines.push(`servers.${key(name)}.prefix = "p${names.indexOf(name)}"`);
  }
  if (dotted.length === 0 && inner.length > 0) {
    lines.push(...noise(), "[servers]");
    for (const name of inner)
      lines.push(
        ...noise(),
        `${key(name)} = { command = 'y', prefix = "p${names.indexOf(name)}" }`,
      );
  }
  if (pick(3) === 0) lines.push(...noise(), "[hub]", 'name = "h" # name');
  for (const name of tables) {
    const indent = some(["", "  ", "\t"]);
    lines.push(...noise(), `${indent}[servers.${key(name)}]`, ...noise());
    lines.push(
      `${indent}command = """\n# no comment\nx"""`,
      `${indent}prefix = "p${names.indexOf(name)}"`,
      ...noise(),
    );
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
  const some = <T>(list: readonly T[]): T => list[pick(list.length)] as T;
  const gap = some(["", " ", "\n  "]);
  const note = (): string => (pick(3) === 0 ? some(["// one\n", "/* two */ ", "\n"]) : "");
  const names = NAMES.filter(() => pick(2) === 0);
  const members = names.map(
    (name, i) =>
      `${gap}${note()}${JSON.stringify(name)}:${gap}{"command":${gap}"x", "prefix": "p${i}"}`,
  );
  const comma = members.length > 0 && pick(3) === 0 ? "," : "";
  const group = `"servers": {${members.join(`,${pick(3) === 0 ? " // behind\n" : ""}`)}${comma}${note()}${gap}}`;
  return `{${gap}${pick(2) === 0 ? `"hub": {"name": "h"},${gap}` : ""}${group}${gap}${note()}}${some(["", "\n"])}`;
}

function makeChange(pick: (below: number) => number): ServerChange {
  const name = NAMES[pick(NAMES.length)] as string;
  const entry = { command: "new", args: ["-y", 'q"'], env: { A: "${env:A}" }, prefix: "fresh" };
  switch (pick(4)) {
    case 0:
      return { kind: "add", name, entry };
    case 1:
      return remove(name);
    case 2:
      return set(name, pick(2) === 0 ? "lazy" : "command", pick(2) === 0 ? true : "z");
    default:
      return rename(name, NAMES[pick(NAMES.length)] as string);
  }
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
      for (let round = 0; round < 600; round++) {
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
        assert.ok(
          isDeepEqual({ servers: {}, ...now }, { servers: {}, ...wanted }),
          `${before}\n---\n${after}`,
        );
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
      assert.ok(counts.done > 200, JSON.stringify(counts));
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
      for (let round = 0; round < 200; round++) {
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
      assert.ok(done > 100, String(done));
    });

    it(`as ${name}, nothing of it is changed if one of several is there already`, async () => {
      const text =
        name === "t.toml" ? '[servers.b]\ncommand = "x"\n' : '{"servers":{"b":{"command":"x"}}}';
      const servers = new Map([
        ["a", { command: "x" }],
        ["b", { command: "y" }],
      ]);
      await assert.rejects(edit(text, { kind: "addAll", servers }, name), {
        code: "usage",
        message: /has these servers already: b/,
      });
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
  it("keeps its permissions, and stays behind its link", () =>
    withManifestFolder(async (folder) => {
      const real = await folder.write("dotfiles/real.toml", '[servers.a]\ncommand = "x"\n');
      await chmod(real, 0o640);
      const link = join(folder.root, "toolmux.toml");
      await symlink("dotfiles/real.toml", link);
      const prepared = await prepareEdit(link, ADD);
      assert.equal(await readFile(real, "utf8"), '[servers.a]\ncommand = "x"\n');
      await prepared.write();
      assert.ok((await lstat(link)).isSymbolicLink());
      assert.equal((await stat(real)).mode & 0o777, 0o640);
      assert.equal(await readFile(real, "utf8"), `[servers.a]\ncommand = "x"\n\n${ADDED}`);
    }));

  it("is not written if somebody else has changed it meanwhile", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("toolmux.toml", '[servers.a]\ncommand = "x"\n');
      const prepared = await prepareEdit(file, ADD);
      await writeFile(file, '[servers.b]\ncommand = "x"\n');
      await assert.rejects(prepared.write(), { code: "usage", message: /was changed meanwhile/ });
      assert.equal(await readFile(file, "utf8"), '[servers.b]\ncommand = "x"\n');
      assert.deepEqual(await readdir(folder.root), ["toolmux.toml"]);
    }));

  it("is left alone if it is read-only", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("toolmux.toml", "");
      await chmod(file, 0o444);
      const prepared = await prepareEdit(file, ADD);
      await assert.rejects(prepared.write(), { code: "usage", message: /is read-only/ });
      assert.equal(await readFile(file, "utf8"), "");
    }));

  it("that is not there is made in the user's folder, for its owner alone", () =>
    withManifestFolder(async (folder) => {
      const surroundings = { env: { HOME: folder.home }, cwd: folder.cwd, platform: "linux" };
      const file = await findUserFile(surroundings);
      assert.equal(file, join(folder.home, ".config/toolmux/toolmux.toml"));
      const prepared = await prepareEdit(file, ADD);
      assert.equal(prepared.before, undefined);
      await prepared.write();
      assert.equal(await readFile(file, "utf8"), ADDED);
      assert.equal((await stat(file)).mode & 0o777, 0o600);
      assert.equal((await stat(join(folder.home, ".config/toolmux"))).mode & 0o777, 0o700);
      await assert.rejects(prepared.write(), { message: /was changed meanwhile/ });
      await folder.write("home/.config/toolmux/toolmux.json", "{}");
      assert.equal(await findUserFile(surroundings), file);
    }));

  it("is the one that the user has, whatever it is written in", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("home/.config/toolmux/toolmux.jsonc", "{}");
      const env = { HOME: folder.home };
      assert.equal(await findUserFile({ env, cwd: folder.cwd, platform: "linux" }), file);
    }));

  it("is not said to hold on some line what was to be written into it", async () => {
    const bad: ManifestChange = { kind: "add", name: "x", entry: { command: "c", prefix: "a__b" } };
    await assert.rejects(edit('[servers.a]\ncommand = "b"\n', bad), {
      code: "manifestInvalid",
      message: /^\/x\/toolmux\.toml: servers\.x\.prefix: /,
    });
    await assert.rejects(edit('[servers.a]\ncomand = "b"\n', ADD), {
      message: /^\/x\/toolmux\.toml:2:1: servers\.a\.comand: /m,
    });
  });

  it("is not made where a link leads nowhere, which stays", () =>
    withManifestFolder(async (folder) => {
      const link = join(folder.root, "toolmux.toml");
      await symlink("nowhere.toml", link);
      const prepared = await prepareEdit(link, ADD);
      await assert.rejects(prepared.write(), {
        code: "usage",
        message: /is a link that leads nowhere/,
      });
      assert.deepEqual(await readdir(folder.root), ["toolmux.toml"]);
    }));

  it("has to be a text that can be read", () =>
    withManifestFolder(async (folder) => {
      const binary = await folder.write("a.toml", new Uint8Array([0xff]));
      await assert.rejects(prepareEdit(binary, ADD), {
        code: "usage",
        message: /is not UTF-8 text/,
      });
      await assert.rejects(prepareEdit(folder.root, ADD), { message: /is a folder, not a file/ });
    }));
});
