import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import committed from "../../toolmux.schema.json" with { type: "json" };
import { makeSchema } from "../../scripts/schema.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import { REMOTE_KEYS } from "../../src/manifest/schema.ts";
import { readManifestFile } from "../../src/manifest/read.ts";
import { parseToml } from "../../src/manifest/toml.ts";
import { parseDuration } from "../../src/manifest/fields.ts";
import { plainCopy } from "../fixtures/manifest/manifest-folder.ts";

const isValid = new Ajv2020({ strict: true, allErrors: true }).compile(committed);

function read(toml: string): unknown {
  const parsed = parseToml(toml);
  assert.ok(parsed.ok, toml);
  return plainCopy(parsed.root);
}

/** Every schema of a key, with the key's path. */
function* walk(schema: object, path: string): Generator<[path: string, schema: Noted]> {
  const { properties = {}, additionalProperties, items } = schema as Noted;
  for (const [key, inner] of Object.entries(properties)) {
    yield [`${path}${key}`, inner];
    yield* walk(inner, `${path}${key}.`);
  }
  if (typeof additionalProperties === "object") yield* walk(additionalProperties, `${path}*.`);
  if (items !== undefined) yield* walk(items, `${path}0.`);
}

interface Noted {
  readonly title?: string;
  readonly description?: string;
  readonly type?: string;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Noted>>;
  readonly additionalProperties?: Noted | boolean;
  readonly items?: Noted;
}

const SERVER = '[servers.a]\ncommand = "x"\n';

const GOOD = [
  "",
  SERVER,
  '"$schema" = "./toolmux.schema.json"\n[servers]',
  '[hub]\nname = "h"\nseparator = "-"\nnameLimit = 128\nclientPrefix = ""\nlistWait = 0',
  "[hub]\nparallelStarts = 1",
  '[hub]\nhttpToken = "${env:TOKEN}"',
  '[defaults]\nhealthInterval = 0\nidleStop = "0s"\nreconnect = { policy = "none", base = 1, max = "1m", jitter = 0.5, maxAttempts = 0 }',
  `${SERVER}isolation = "perClient"\nlazy = true\nhealthInterval = "1s"\nidleStop = 5\nreconnect = {}`,
  '[defaults]\nconnectTimeout = "30s"\ncallTimeout = 500\nmaxCallTimeout = " 1.5 h "\nmaxMessage = "1kib"',
  `${SERVER}args = ["a"]\nenv = { A = "b" }\ninheritEnv = ["C"]\ncwd = "."\nenabled = false\nprefix = ""`,
  `${SERVER}tools = { allow = ["a*"], deny = [], rename = { a = "b" }, timeout = { a = "5m", b = 1 } }`,
  `${SERVER}tools.describe = { a = "Does a." }\ntools.meta = { a = { "x/y" = [1, { z = true }] } }\ntools.annotations = { a = { readOnlyHint = true, title = "A" } }`,
  `${SERVER}[servers."two words"]\ncommand = "y"\nprefix = "two"`,
  '[servers.a]\nplugin = "my-plugin_2"\nenabled = false\nprefix = "b"\nisolation = "perClient"\nlazy = true\ncallTimeout = 1\nmaxMessage = 1\ntools.deny = ["x"]\n[[plugins]]\nuse = "my-plugin_2"',
  '[servers.a]\nurl = "https://example.com/mcp"',
  '[servers.a]\nurl = "u"\ntransport = "sse"\nheaders = { A = "b" }\nkeyFile = "k"\nca = "c.pem"\nauth = "oauth"\noauth = { grant = "clientCredentials", clientId = "a", clientSecret = "b", privateKey = "c", keyAlgorithm = "RS256", clientMetadataUrl = "u", scopes = ["s"], issuer = "i", callbackPort = 1 }',
  '[servers.a]\npackage = "npm:@scope/name@1.2.3"\nrunner = "bunx"\nargs = ["x"]\nenv.A = "b"\ncwd = "."',
  '[servers.a]\npackage = "pypi:name==1.2"',
  '[servers.a]\npackage = "docker:ghcr.io/o/n:1.2"',
  '[search]\ndirectories = ["official", "smithery=https://x.example", "http://127.0.0.1:1/a"]',
  "plugins = []",
  '[secrets]\nsources = ["file", "environment"]\ncommands = true',
  "[secrets]",
  '[[plugins]]\nuse = "./x.ts"\noptions = { any = { thing = [1, "2"] } }\nservers = ["a*"]\ntools = []\n[[plugins]]\nuse = "@me/package"',
];

const BAD = [
  "colour = 1",
  "hub = 5",
  '[hub]\nname = ""',
  "[hub]\nnameLimit = 64.5",
  '[hub]\nseparator = "::"',
  '[hub]\nlistWait = "5"',
  "[hub]\nlistWait = -1",
  "[hub]\nparallelStarts = 0",
  "[defaults]\ncallTimeout = 0",
  "[defaults]\nidleStop = -1",
  '[defaults]\nhealthInterval = "5"',
  "[defaults]\nhealthInterval = 999",
  "[defaults]\nhealthInterval = 0.5",
  `${SERVER}healthInterval = 1`,
  "[defaults]\nlazy = true",
  '[defaults]\nreconnect = "none"',
  '[secrets]\nsources = ["cloud"]',
  "[secrets]\nsources = []",
  '[secrets]\nsources = "file"',
  "[secrets]\ncommands = 1",
  "[secrets]\ncommand = true",
  "secrets = true",
  '[defaults]\nreconnect.policy = "linear"',
  "[defaults]\nreconnect.base = 0",
  "[defaults]\nreconnect.jitter = 1.5",
  "[defaults]\nreconnect.maxAttempts = 0.5",
  "[defaults]\nreconnect.retries = 1",
  `${SERVER}reconnect.max = "soon"`,
  `${SERVER}isolation = "perclient"`,
  `${SERVER}lazy = 1`,
  '[defaults]\nmaxMessage = "5 parsecs"',
  "[defaults]\nmaxMessage = 2147483648",
  "[servers.a]",
  '[servers.a]\ncommand = ""',
  'servers.a = "npx"',
  `${SERVER}args = "a b"`,
  `${SERVER}args = [1]`,
  `${SERVER}env = { A = 5 }`,
  `${SERVER}inheritEnv = ["A=1"]`,
  `${SERVER}enabled = 1`,
  `${SERVER}calTimeout = 5`,
  `${SERVER}tools.alow = []`,
  `${SERVER}tools.allow = [""]`,
  `${SERVER}tools.rename = { a = "" }`,
  `${SERVER}tools.timeout = { a = "soon" }`,
  `${SERVER}tools.describe = { a = "" }`,
  `${SERVER}tools.describe = "x"`,
  `${SERVER}tools.meta = { a = 1 }`,
  `${SERVER}tools.annotations = { a = { readOnlyHint = "yes" } }`,
  `${SERVER}tools.annotations = { a = { readonly = true } }`,
  '[servers.""]\ncommand = "x"\nprefix = "p"',
  '[servers.a]\nplugin = ""',
  '[servers.a]\nplugin = "./x.ts"',
  `${SERVER}plugin = "p"`,
  '[servers.a]\nplugin = "p"\nargs = []',
  '[servers.a]\nplugin = "p"\nenv = {}',
  '[servers.a]\nplugin = "p"\ninheritEnv = []',
  '[servers.a]\nplugin = "p"\ncwd = "."',
  `${SERVER}url = "u"`,
  `${SERVER}headers = {}`,
  '[servers.a]\nurl = ""',
  '[servers.a]\nurl = "u"\nargs = []',
  '[servers.a]\nurl = "u"\nplugin = "p"',
  '[servers.a]\nplugin = "p"\noauth = {}',
  '[servers.a]\nurl = "u"\ntransport = "ws"',
  '[servers.a]\nurl = "u"\nheaders = { A = 1 }',
  '[servers.a]\nurl = "u"\nauth = true',
  '[servers.a]\nurl = "u"\noauth = { clientID = "a" }',
  '[servers.a]\nurl = "u"\noauth.callbackPort = 65536',
  `${SERVER}package = "npm:x"`,
  `${SERVER}runner = "npx"`,
  '[servers.a]\npackage = "x"',
  '[servers.a]\npackage = "npm:-x"',
  '[servers.a]\npackage = "npm:x y"',
  '[servers.a]\npackage = "npm:x"\nrunner = "yarn"',
  '[servers.a]\npackage = "npm:x"\nurl = "u"',
  '[search]\ndirectories = "official"',
  '[search]\ndirectories = ["other"]',
  '[search]\ndirectories = ["https://me:pw@x.example"]',
  "[search]\ndirectory = []",
  'plugins = { use = "x" }',
  'plugins = ["x"]',
  "[[plugins]]",
  '[[plugins]]\nuse = ""',
  '[[plugins]]\nuse = "x"\noption = {}',
  '[[plugins]]\nuse = "x"\noptions = []',
  '[[plugins]]\nuse = "x"\nservers = "a"',
  '[[plugins]]\nuse = "x"\ntools = [""]',
];

describe("the JSON Schema of the manifest", () => {
  it("is the one that the manifest's own schema makes: run `npm run docs` if not", () => {
    assert.deepEqual(plainCopy(committed), plainCopy(makeSchema()));
  });

  it("has a title and a description for every key, and examples that are allowed", () => {
    const keys = [...walk(committed, "")];
    assert.ok(keys.length > 25);
    for (const [path, { title, description, examples = [], default: usual }] of keys) {
      assert.ok(title && description, path);
      const values = [...examples, ...(usual === undefined ? [] : [usual])];
      for (const value of values)
        assert.ok(isValid(wrap(path, value)), `${path}: ${JSON.stringify(value)}`);
    }
  });

  it("has a default for all that has one, and an example for every duration and size", () => {
    const keys = new Map(walk(committed, ""));
    for (const key of Object.keys(HUB_DEFAULTS))
      assert.notEqual(keys.get(`hub.${key}`)?.default, undefined, key);
    for (const part of ["defaults", "servers.*"]) {
      for (const key of Object.keys(LIMIT_DEFAULTS))
        assert.notEqual(keys.get(`${part}.${key}`)?.default, undefined, `${part}.${key}`);
      for (const [key, usual] of Object.entries(LIMIT_DEFAULTS.reconnect)) {
        const said = keys.get(`${part}.reconnect.${key}`)?.default;
        assert.equal(typeof said === "string" ? (parseDuration(said) ?? said) : said, usual);
      }
    }
    for (const [path, schema] of keys) {
      if (!/(?:[tT]imeout|Wait|Message|Interval|Stop|base|max)$/.test(path)) continue;
      assert.ok((schema.examples?.length ?? 0) > 0, path);
    }
  });

  for (const toml of GOOD) {
    it(`allows what toolmux allows: ${JSON.stringify(toml)}`, () => {
      const root = read(toml);
      assert.deepEqual(readManifestFile(root, { file: "", baseDir: "/" }).problems, []);
      assert.ok(isValid(root), JSON.stringify(isValid.errors));
    });
  }

  for (const toml of BAD) {
    it(`refuses what toolmux refuses: ${JSON.stringify(toml)}`, () => {
      const root = read(toml);
      assert.notDeepEqual(readManifestFile(root, { file: "", baseDir: "/" }).problems, []);
      assert.ok(!isValid(root));
    });
  }
});

interface Whole {
  readonly servers?: Record<string, object>;
  readonly plugins?: readonly object[];
}

/** The smallest manifest that has a value under a path. */
function wrap(path: string, value: unknown): unknown {
  const keys = path.split(".").map((key) => (key === "*" ? "any" : key));
  const whole = keys.reduceRight(
    (inner, key) => (key === "0" ? [inner] : { [key]: inner }),
    value,
  ) as Whole;
  const { servers, plugins } = whole;
  const server = servers?.["any"];
  if (servers !== undefined && server !== undefined && keys.length > 2) {
    const said = Object.keys(server);
    const isRemote = said.some((key) => REMOTE_KEYS.some((own) => own === key));
    const isMain = said.includes("plugin") || said.includes("package");
    const start = said.includes("runner") ? { package: "npm:x" } : { command: "x" };
    const main = isMain ? {} : isRemote ? { url: "u" } : start;
    servers["any"] = { ...main, ...server };
  }
  if (plugins !== undefined && keys.length > 2)
    return { plugins: plugins.map((plugin) => ({ use: "x", ...plugin })) };
  return whole;
}
