import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { parse } from "smol-toml";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import {
  defaultsSchema,
  hubSchema,
  modeSchema,
  namedClientSchema,
  pluginSchema,
  serverSchema,
} from "../../src/manifest/schema.ts";
import { formatDuration, parseDuration, parseSize } from "../../src/manifest/fields.ts";
import { getServer, loadText, plainCopy } from "../fixtures/manifest/manifest-folder.ts";
import { itIn, loadFiles, serverTable } from "../harness/in-folder.ts";

const TOML = `#:schema ./toolmux.schema.json
"$schema" = "toolmux.schema.json"
[hub]
name = "mine"
separator = "--"
nameLimit = 128
clientPrefix = ""
listWait = 0
parallelStarts = 4
control = false
instructions = "Be kind."
evictSessions = true
shared = true
linger = 300000
conversationDays = 7
conversationSize = 50000000
expose = "auto"
exposeBudget = 4000
mode = "review"
[defaults]
connectTimeout = "1m"
callTimeout = 5000
maxCallTimeout = "1h"
maxMessage = "1MiB"
healthInterval = "10s"
reconnect = { policy = "immediate", max = "2m", maxAttempts = 3 }
idleStop = "10m"
[servers.files]
command = "npx"
args = ["-y", "server", "\${env:HOME}/work"]
env = { LOG_LEVEL = "warn", "odd.name" = "" }
inheritEnv = ["HTTPS_PROXY"]
cwd = "sub"
title = "My files"
description = "Files."
icon = "F"
enabled = false
prefix = "fs"
isolation = "perClient"
era = "modern"
lazy = true
callTimeout = "2s"
maxMessage = 99
healthInterval = 0
reconnect.base = "1500ms"
reconnect.jitter = 0
idleStop = "0s"
tools.allow = ["read_*"]
tools.deny = ["*_delete"]
tools.rename = { read_text_file = "cat" }
tools.timeout = { search_files = "5m" }
prompts = { allow = ["p*"], deny = ["*q"], rename = { p1 = "p2" } }
[servers.b]
command = "b"
[modes.review]
tools = { servers = ["b"] }
`;
const DATA = plainCopy(parse(TOML)) as Record<"hub" | "servers", Record<string, object>>;
const JSONC = `// our own schema\n${JSON.stringify(DATA, null, 1).replace(/\n\}$/, ", /* end */\n}")}`;
/** What is not as it is written there. */
const RESOLVED = {
  kind: "stdio",
  name: "files",
  syntax: "toolmux",
  connectTimeout: 60_000,
  callTimeout: 2000,
  maxCallTimeout: 3_600_000,
  reconnect: { policy: "immediate", base: 1500, max: 120_000, jitter: 0, maxAttempts: 3 },
  idleStop: 0,
  tools: {
    allow: ["read_*"],
    deny: ["*_delete"],
    rename: { read_text_file: "cat" },
    timeout: { search_files: 300_000 },
  },
};

/** The example in docs/manifest.md, as it is written. */
interface Shown {
  readonly hub: object;
  readonly defaults: Readonly<Record<string, unknown>>;
  readonly servers: Readonly<Record<"files" | "git" | "linear" | "notes", object>>;
  readonly plugins: readonly [object];
  readonly modes: { readonly review: object };
  readonly clients: readonly [object];
}

describe("a manifest", () => {
  for (const [name, text] of [
    ["toolmux.toml", TOML],
    ["toolmux.json", JSONC],
    ["toolmux.jsonc", JSONC],
    ["settings", TOML],
    ["settings.txt", JSONC],
  ] as const) {
    itIn(`means the same whatever it is written in: ${name}`, async (folder) => {
      const file = await folder.write(`sub/${name}`, text);
      const { manifest, notes } = await folder.loadValid({ files: [file] });
      assert.deepEqual(plainCopy(manifest.hub), DATA.hub);
      const expected = { ...DATA.servers["files"], ...RESOLVED, baseDir: `${folder.root}/sub` };
      assert.deepEqual(plainCopy(getServer(manifest, "files")), plainCopy(expected));
      assert.deepEqual(manifest.sources, [file]);
      assert.deepEqual(notes, []);
    });
  }

  it("has the documented defaults", async () => {
    const { manifest } = await loadText(`[servers.a]\ncommand = "x"`);
    assert.deepEqual(plainCopy(manifest.hub), {
      name: "toolmux",
      separator: "__",
      nameLimit: 64,
      clientPrefix: "mcp__toolmux__",
      listWait: 4000,
      parallelStarts: 24,
      control: true,
      instructions: HUB_DEFAULTS.instructions,
      evictSessions: false,
      shared: false,
      linger: 600_000,
      conversationDays: 90,
      conversationSize: 268_435_456,
      expose: "direct",
      exposeBudget: 10_000,
      mode: "full",
    });
    const { baseDir: _, ...server } = getServer(manifest, "a");
    assert.deepEqual(plainCopy(server), {
      kind: "stdio",
      name: "a",
      enabled: true,
      prefix: "a",
      command: "x",
      args: [],
      env: {},
      inheritEnv: [],
      syntax: "toolmux",
      isolation: "auto",
      era: "auto",
      lazy: false,
      connectTimeout: 30_000,
      startLimit: 300_000,
      callTimeout: 60_000,
      maxCallTimeout: 900_000,
      maxMessage: 67_108_864,
      healthInterval: 30_000,
      reconnect: { policy: "exponential", base: 1000, max: 60_000, jitter: 0.2, maxAttempts: 0 },
      idleStop: 0,
      tools: { deny: [], rename: {}, timeout: {} },
      prompts: { deny: [], rename: {} },
    });
    assert.equal(server.cwd, undefined);
    assert.equal(server.tools.allow, undefined);
  });

  it("lets a server start for longer than connectTimeout only if it does not say that key itself", async () => {
    const ab = (more: string): string => serverTable("a") + serverTable("b", more);
    const { manifest } = await loadText(ab('connectTimeout = "30s"'));
    const limitOf = (name: string): unknown => getServer(manifest, name).startLimit;
    assert.deepEqual([limitOf("a"), limitOf("b")], [300_000, undefined]);
    assert.equal(manifest.defaults.startLimit, 300_000);
    const defaults = '[defaults]\nconnectTimeout = "30s"\n';
    const said = await loadText(defaults + ab('connectTimeout = "40s"'));
    for (const name of ["a", "b"])
      assert.equal(getServer(said.manifest, name).startLimit, undefined);
    assert.equal(said.manifest.defaults.startLimit, undefined);
  });

  it("is shown in docs/manifest.md with every key, and with the defaults as they are", async () => {
    const page = await readFile(new URL("../../docs/manifest.md", import.meta.url), "utf8");
    const [, text = ""] = /```toml\n(#:schema[\s\S]*?)```/.exec(page) ?? [];
    const { manifest } = await loadText(text);
    assert.deepEqual(plainCopy(manifest.hub), plainCopy(HUB_DEFAULTS));
    const server = getServer(manifest, "files");
    const limits = Object.keys(LIMIT_DEFAULTS).map((key) => [key, Reflect.get(server, key)]);
    assert.deepEqual(plainCopy(Object.fromEntries(limits)), plainCopy(LIMIT_DEFAULTS));
    const { hub, defaults, servers, plugins, modes, clients } = parse(text) as unknown as Shown;
    const assertKeys = (shown: object, known: object): void =>
      assert.deepEqual(Object.keys(shown).toSorted(), Object.keys(known).toSorted());
    assertKeys(hub, hubSchema().entries);
    assertKeys(defaults, defaultsSchema().entries);
    const { agentApproval: _, approvalTimeout: __, ...shared } = defaults;
    const all = Object.assign({}, shared, ...Object.values(servers)) as object;
    assertKeys(all, serverSchema.entries);
    assertKeys(plugins[0], pluginSchema().entries);
    assertKeys(modes.review, modeSchema().entries);
    assertKeys(clients[0], namedClientSchema().entries);
  });

  it("may have an empty prefix, also several times, and one of a server that is off", async () => {
    const [P, OFF] = ['prefix = "p"', 'prefix = "p"\nenabled = false'];
    for (const [a, b, ...wanted] of [
      ['prefix = ""', 'prefix = ""', " true", " true"],
      [P, OFF, "p true", "p false"],
      [OFF, P, "p false", "p true"],
    ] as const) {
      const { manifest } = await loadText(serverTable("a", a) + serverTable("b", b));
      const found = manifest.servers.map(({ prefix, enabled }) => `${prefix} ${enabled}`);
      assert.deepEqual(found, wanted);
    }
  });

  it("may hold no servers, which is noted", async () => {
    for (const [name, text] of [
      ["a.toml", ""],
      ["a.json", "{}"],
      ["b.toml", "[servers]"],
    ] as const) {
      const { manifest, notes } = await loadText(text, name);
      assert.deepEqual(manifest.servers, []);
      assert.deepEqual(notes, ["the manifest has no servers"]);
    }
  });

  it("may begin with a byte order mark and have CRLF line ends", async () => {
    const { manifest } = await loadText(`\uFEFF[servers.a]\r\ncommand = "x"\r\n`);
    assert.equal(getServer(manifest, "a").command, "x");
  });

  it("keeps its servers in the order of the file", async () => {
    const names = ["z", "a", "m", "b"];
    const { manifest } = await loadText(names.map((name) => serverTable(name)).join(""));
    const found = manifest.servers.map(({ name }) => name);
    assert.deepEqual(found, names);
  });

  const ODD = `{"__proto__": {"command": "x", "prefix": "p", "env": {"__proto__": "v"}, "tools": {"rename": {"__proto__": "r", "constructor": "c"}}},
    "constructor": {"command": "y", "env": {"__proto__": "w", "constructor": "1", "prototype": "2"}}}`;
  for (const [name, text] of [
    [
      "p.toml",
      `[servers.__proto__]\ncommand = "x"\nprefix = "p"\nenv.__proto__ = "v"\ntools.rename = { __proto__ = "r", constructor = "c" }
[servers.constructor]\ncommand = "y"\nenv = { __proto__ = "w", constructor = "1", prototype = "2" }`,
    ],
    ["p.json", `{"servers": ${ODD}}`],
    ["p.mcp.json", `{"mcpServers": ${ODD}}`],
  ] as const) {
    it(`takes __proto__ and constructor as names like any other: ${name}`, async () => {
      const { manifest } = await loadText(text, name);
      const pairsOf = (table: object): string => Object.entries(table).join(" ");
      const first = getServer(manifest, "__proto__");
      assert.equal(pairsOf(first.env), "__proto__,v");
      assert.equal(pairsOf(first.tools.rename), "__proto__,r constructor,c");
      const { env } = getServer(manifest, "constructor");
      assert.equal(pairsOf(env), "__proto__,w constructor,1 prototype,2");
      assert.equal(first.tools.timeout["constructor"], undefined);
      assert.equal(({} as Record<string, unknown>)["command"], undefined);
      assert.deepEqual(Object.keys(Object.prototype), []);
    });
  }
});

describe("several sources", () => {
  itIn("merge hub and defaults by key, and servers as a whole, the later wins", async (folder) => {
    const top = `hub.name = "one"\nhub.nameLimit = 100\ndefaults.callTimeout = "10s"\n`;
    const one = await folder.write(
      "one/a.toml",
      top + serverTable("a", 'args = ["x"]', "a1") + serverTable("b", "", "b1"),
    );
    const two = await folder.write(
      "two/b.json",
      `{"hub": {"name": "two"}, "defaults": {"maxMessage": 5}, "servers": {"c": {"command": "c2"}, "a": {"command": "a2"}}}`,
    );
    const { manifest } = await folder.loadValid({ files: [one, two] });
    assert.deepEqual(manifest.hub, { ...HUB_DEFAULTS, name: "two", nameLimit: 100 });
    assert.equal(manifest.servers.map(({ name }) => name).join(), "a,b,c");
    const a = getServer(manifest, "a");
    assert.deepEqual([a.command, a.args, a.baseDir], ["a2", [], `${folder.root}/two`]);
    assert.deepEqual([a.callTimeout, a.maxMessage], [10_000, 5]);
    assert.equal(getServer(manifest, "b").maxMessage, 5);
    assert.deepEqual(manifest.sources, [one, two]);
  });

  itIn("merge what is said of reconnecting key by key, down to the server", async (folder) => {
    const manifest = await loadFiles(folder, [
      `[defaults]\nidleStop = "5m"\nreconnect = { policy = "immediate", maxAttempts = 5 }\n${serverTable("a")}`,
      `[defaults.reconnect]\nmaxAttempts = 6\nbase = "2s"\n${serverTable("b", 'idleStop = 0\nreconnect.policy = "none"\nreconnect.jitter = 1')}`,
    ]);
    const common = { policy: "immediate", base: 2000, max: 60_000, jitter: 0.2, maxAttempts: 6 };
    const [a, b] = [getServer(manifest, "a"), getServer(manifest, "b")];
    assert.deepEqual(a.reconnect, common);
    assert.deepEqual(b.reconnect, { ...common, policy: "none", jitter: 1 });
    assert.deepEqual([a.idleStop, b.idleStop], [300_000, 0]);
  });

  for (const [style, text] of [
    ["bare", `{"b": {"command": "y", "cwd": "sub"}}`],
    ["under servers", `{"servers": {"b": {"command": "y", "cwd": "sub"}}}`],
    ["under mcpServers", `{"mcpServers": {"b": {"command": "y", "cwd": "sub", "type": "stdio"}}}`],
  ] as const) {
    itIn(`end with the servers of TOOLMUX_SERVERS: ${style}`, async (folder) => {
      const env = { TOOLMUX_SERVERS: text };
      const manifest = await loadFiles(folder, [serverTable("a") + serverTable("b")], { env });
      assert.equal(manifest.servers.map(({ name }) => name).join(), "a,b");
      const b = getServer(manifest, "b");
      assert.deepEqual([b.command, b.baseDir], ["y", folder.cwd]);
      assert.deepEqual(manifest.sources, [`${folder.root}/a.toml`]);
    });
  }

  itIn("may be TOOLMUX_SERVERS alone, and an empty one is none", async (folder) => {
    const env = { TOOLMUX_SERVERS: `{"servers": {"command": "x"}}` };
    const { manifest } = await folder.loadValid({ env });
    assert.equal(getServer(manifest, "servers").command, "x");
    const [problem] = await folder.loadProblems({ env: { TOOLMUX_SERVERS: " " } });
    assert.match(problem ?? "", /there is no manifest yet/);
  });
});

describe("units", () => {
  it("are read in the units of durations", () => {
    const units = {
      "500ms": 500,
      "30s": 30_000,
      "5m": 300_000,
      "1h": 3_600_000,
      "2d": 172_800_000,
    };
    const all = { ...units, "1.5s": 1500, "0s": 0, "1 s": 1000 };
    for (const [text, ms] of Object.entries(all)) assert.equal(parseDuration(text), ms, text);
    for (const text of ["5", "", "s", "-1s", "1h30m", "1e3s", "5S", "1constructor"])
      assert.equal(parseDuration(text), undefined, text);
  });

  it("are read in the units of sizes", () => {
    const all = { "64MiB": 67_108_864, "512KB": 512_000, "1kib": 1024, "2 GB": 2e9, "7b": 7 };
    for (const [text, bytes] of Object.entries(all)) assert.equal(parseSize(text), bytes, text);
    for (const text of ["7", "1XB"]) assert.equal(parseSize(text), undefined, text);
  });

  it("print durations in the shortest exact form", () => {
    const printed = [900_000, 1500, 0, 86_400_000].map(formatDuration);
    assert.deepEqual(printed, ["15m", "1500ms", "0ms", "1d"]);
  });
});
