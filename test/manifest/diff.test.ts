import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { diffServers } from "../../src/manifest/diff.ts";
import {
  LIMIT_DEFAULTS,
  type PluginServer,
  type RemoteServer,
  type ServerSpec,
  type StdioServer,
} from "../../src/manifest/manifest.ts";
import { plainCopy } from "../fixtures/manifest/manifest-folder.ts";
import { stdioSpecOf } from "../fixtures/memory-hub.ts";
import { remoteSpecOf } from "../fixtures/streamed-transport.ts";

const TOOLS = { allow: undefined, deny: [], rename: { a: "b" }, timeout: {} };

const SERVER: StdioServer = stdioSpecOf("a", {
  command: "npx",
  args: ["-y", "server"],
  env: { ONE: "1", TWO: "2" },
  inheritEnv: ["HTTPS_PROXY"],
  baseDir: "/one",
  era: "auto",
  tools: TOOLS,
});

const REMOTE: RemoteServer = remoteSpecOf("a", {
  url: "https://example.com/mcp",
  headers: { One: "1", Two: "2" },
  oauth: { clientId: "me", scopes: ["read"] },
  baseDir: "/one",
  era: "auto",
  tools: TOOLS,
});

const PLUGIN: PluginServer = {
  kind: "plugin",
  name: "a",
  enabled: true,
  prefix: "a",
  plugin: "notes",
  origin: { file: "/a.toml", path: ["servers", "a"] },
  set: 1,
  isolation: "shared",
  era: "auto",
  lazy: false,
  ...LIMIT_DEFAULTS,
  tools: TOOLS,
  prompts: SERVER.prompts,
};

const UNSUPPORTED: ServerSpec = {
  kind: "unsupported",
  name: "a",
  enabled: true,
  prefix: "a",
  reason: "it is remote",
};

/** Every key with another value: the compiler knows if one is missing here. */
const CONNECTION = { name: "b", isolation: "perClient", era: "modern", maxMessage: 1 } as const;
const PROCESS = {
  ...CONNECTION,
  command: "uvx",
  args: ["server", "-y"],
  package: { name: "npm:server", alternatives: [], leadingArgCount: 2 },
  env: { ONE: "1", TWO: "3" },
  inheritEnv: [],
  cwd: "/work",
  syntax: "client",
} as const satisfies Partial<StdioServer>;

const SETTINGS = {
  enabled: false,
  prefix: "",
  lazy: true,
  connectTimeout: 1,
  startLimit: 2,
  callTimeout: 1,
  maxCallTimeout: 1,
  healthInterval: 0,
  reconnect: { ...LIMIT_DEFAULTS.reconnect, jitter: 0 },
  idleStop: 1,
  tools: { ...SERVER.tools, deny: ["x"] },
  prompts: { ...SERVER.prompts, deny: ["x"] },
  skills: { deny: ["x"] },
  title: "x",
  description: "x",
  icon: "x",
  approval: "always",
  approvalWait: 1,
  limits: { maxConcurrent: 1 },
  pin: "block",
  scan: "block",
  scanIgnore: { a: ["imperative"] },
} as const satisfies Partial<StdioServer>;

const ALL: Record<Exclude<keyof StdioServer, "kind" | "baseDir" | "secretSources">, unknown> = {
  ...PROCESS,
  ...SETTINGS,
};

/** The same for a server over HTTP. */
const REMOTE_PROCESS = {
  ...CONNECTION,
  url: "https://example.com/other",
  transport: "sse",
  headers: { One: "1", Two: "3" },
  keyFile: "/key",
  ca: "/ca.pem",
  auth: "oauth",
  oauth: { clientId: "me", scopes: ["write"] },
  syntax: "client",
} as const satisfies Partial<RemoteServer>;

const REMOTE_ALL: Record<
  Exclude<keyof RemoteServer, "kind" | "baseDir" | "secretSources">,
  unknown
> = {
  ...REMOTE_PROCESS,
  ...SETTINGS,
};

/** The same for a server of a plugin. */
const PLUGIN_PROCESS = {
  ...CONNECTION,
  plugin: "other",
  set: 2,
} as const satisfies Partial<PluginServer>;

const PLUGIN_ALL: Record<Exclude<keyof PluginServer, "kind">, unknown> = {
  ...PLUGIN_PROCESS,
  ...SETTINGS,
  origin: { file: "/b.toml", path: ["servers", "a"] },
};

/** What two servers differ in, which is the same both ways. */
function compare(one: ServerSpec, other: ServerSpec) {
  const found = diffServers(one, other);
  assert.equal(diffServers(other, one), found);
  return found;
}

const compareBoth = (changes: Partial<StdioServer>, base: StdioServer = SERVER) =>
  compare(base, { ...base, ...changes });

describe("a server that was specified anew", () => {
  it("is the same if it says the same in other objects, its tables in another order", () => {
    const copy = { ...SERVER, ...(plainCopy(SERVER) as StdioServer) };
    const tools = { ...copy.tools, allow: undefined };
    const prompts = { ...copy.prompts, allow: undefined };
    assert.equal(diffServers(SERVER, { ...copy, tools, prompts }), "same");
    assert.equal(compareBoth({ env: { TWO: "2", ONE: "1" } }), "same");
    const bare = Object.assign(Object.create(null) as Record<string, string>, SERVER.env);
    assert.equal(compareBoth({ env: bare }), "same");
  });

  for (const [what, base, all, process] of [
    ["in a process", SERVER, ALL, PROCESS],
    ["over HTTP", REMOTE, REMOTE_ALL, REMOTE_PROCESS],
    ["of a plugin", PLUGIN, PLUGIN_ALL, PLUGIN_PROCESS],
  ] as const) {
    for (const [key, value] of Object.entries(all)) {
      const expected = key in process ? "process" : "settings";
      it(`${what} is another ${expected} if its ${key} is another`, () => {
        assert.equal(compare(base, { ...base, [key]: value }), expected);
      });
    }
  }

  for (const [what, changes] of [
    ["one more argument", { args: [...SERVER.args, "x"] }],
    ["one variable less", { env: { ONE: "1" } }],
    ["a variable of another name", { env: { ONE: "1", TOO: "2" } }],
    ["a variable that every object has", { env: { ONE: "1", toString: "2" } }],
    ["both another command and another prefix", { prefix: "x", command: "y" }],
  ] as const) {
    it(`is another process with ${what}`, () => {
      assert.equal(compareBoth(changes), "process");
    });
  }

  for (const [what, tools] of [
    ["allow", { ...SERVER.tools, allow: [] }],
    ["rename", { ...SERVER.tools, rename: { a: "c" } }],
    ["timeout", { ...SERVER.tools, timeout: { a: 1 } }],
  ] as const) {
    it(`has other settings if its tools.${what} is another`, () => {
      assert.equal(compareBoth({ tools }), "settings");
    });
  }

  for (const [path, base] of [
    ["a relative command", { command: "./server" }],
    ["a relative command with a folder", { command: "bin/server" }],
    ["a command that may turn out to be a path", { command: "${env:SERVER}" }],
    ["a relative folder", { cwd: "." }],
    ["a folder that may turn out to be relative", { cwd: "${env:DIR}" }],
    ["a command that a plugin fills in", { command: "${vault:x}" }],
    ["a relative file in an argument", { args: ["${file:token}"] }],
    ["a relative file in a variable", { env: { A: "x${file:./token}" } }],
  ] as const) {
    it(`is another process in another folder if it has ${path}`, () => {
      assert.equal(compareBoth({ baseDir: "/two" }, { ...SERVER, ...base }), "process");
    });
  }

  for (const [path, base] of [
    ["a command in PATH", {}],
    ["an absolute command", { command: "/bin/server" }],
    ["paths in the home folder", { command: "~/server", cwd: "~", args: ["${file:~/token}"] }],
    ["absolute paths", { cwd: "/work", args: ["./not-ours"], env: { A: "${file:/token}" } }],
    ["a text that only looks like a file", { args: ["$${file:token}"] }],
    ["what a plugin fills in", { args: ["${vault:./x}"] }],
  ] as const) {
    it(`keeps its process in another folder if it has ${path}`, () => {
      assert.equal(compareBoth({ baseDir: "/two" }, { ...SERVER, ...base }), "settings");
    });
  }

  it("and is reached over HTTP is the same if it says the same, in another order", () => {
    const headers = { Two: "2", One: "1" };
    assert.equal(diffServers(REMOTE, { ...REMOTE, headers, oauth: { ...REMOTE.oauth } }), "same");
    assert.equal(compare(REMOTE, SERVER), "process");
  });

  for (const [what, changes, expected] of [
    ["no path", {}, "settings"],
    ["absolute paths", { keyFile: "/key", ca: "~/ca.pem" }, "settings"],
    ["a relative key", { keyFile: "key" }, "process"],
    ["relative certificates", { ca: "./ca.pem" }, "process"],
    ["a relative file in a header", { headers: { A: "Bearer ${file:token}" } }, "process"],
    ["a relative file in its url", { url: "https://${file:host}/mcp" }, "process"],
    ["a relative file in its oauth", { oauth: { clientSecret: "${file:x}" } }, "process"],
  ] as const) {
    it(`and is reached over HTTP, in another folder, is another ${expected} with ${what}`, () => {
      const before = { ...REMOTE, ...changes };
      assert.equal(diffServers(before, { ...before, baseDir: "/two" }), expected);
    });
  }

  it("and that a plugin has is the same if it says the same, and never what a process is", () => {
    assert.equal(diffServers(PLUGIN, { ...PLUGIN, tools: { ...PLUGIN.tools } }), "same");
    for (const other of [SERVER, UNSUPPORTED]) assert.equal(compare(PLUGIN, other), "process");
  });

  it("is another process if it can be run only before or only after", () => {
    assert.equal(compare(SERVER, UNSUPPORTED), "process");
  });

  it("that cannot be run is the same, or has other settings", () => {
    assert.equal(diffServers(UNSUPPORTED, { ...UNSUPPORTED }), "same");
    for (const changes of [{ reason: "other" }, { enabled: false }, { prefix: "b" }])
      assert.equal(diffServers(UNSUPPORTED, { ...UNSUPPORTED, ...changes }), "settings");
    assert.equal(diffServers(UNSUPPORTED, { ...UNSUPPORTED, name: "b" }), "process");
  });
});
