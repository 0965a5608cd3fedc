import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import committed from "../../toolmux.schema.json" with { type: "json" };
import { SCHEMA_ID } from "../../src/base/homepage.ts";
import { makeSchema } from "../../scripts/schema.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import { REMOTE_KEYS } from "../../src/manifest/schema.ts";
import { readManifestFile } from "../../src/manifest/files/manifest-file.ts";
import { parseToml } from "../../src/manifest/syntax/toml.ts";
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
  '[hub]\nmode = "review"\n[modes.review]\ntitle = "R"\nicon = "x"\ntools = "all"\nprompts = { servers = ["a"] }\nresources = { not = { pattern = "x" } }',
  '[modes.a]\ntools = { and = [{ or = [] }, { ids = ["a.b"] }, { names = ["a"] }, { tools = [] }, { readOnly = true }] }',
  '[[clients]]\nname = "laptop"\ntoken = "${secret:a}"\nmode = "full"\nservers = ["a"]\napproval = "auto"\nsessions = 2',
  '[fleet]\nurl = ["tls://a.example", "nats://127.0.0.1:4222"]\nnkey = "${secret:n}"\nexport = ["*"]\nimport = ["a/b"]\ntls = { ca = "c" }\n[[fleet.clients]]\nuser = "a/b"\naskCaller = true\n[servers.a]\nfleet = "m/s"\nspread = "call"',
  '[secrets]\nsources = ["file", "environment"]\ncommands = true',
  "[secrets]",
  '[models.m]\nprovider = "openai"\nmodel = "x"\nurl = "http://127.0.0.1:1/v1"\napiKey = "${secret:k}"\ntemperature = 0.2\nmaxTokens = 1\ncontextTokens = 5\nthinking = "low"\ntimeout = "2m"\n[models.s]\nprovider = "script"\nscript = "a.toml"',
  '[[plugins]]\nuse = "./x.ts"\noptions = { any = { thing = [1, "2"] } }\nservers = ["a*"]\ntools = []\n[[plugins]]\nuse = "@me/package"',
];

/** What is in front of the colon is in front of each text that follows, which is a manifest then. */
const BAD = `
  : colour = 1 | hub = 5 | secrets = true | servers.a = "npx" | plugins = { use = "x" } | plugins = ["x"]
  [hub]: name = "" | nameLimit = 64.5 | separator = "::" | listWait = "5" | listWait = -1 | parallelStarts = 0
  [defaults]: callTimeout = 0 | idleStop = -1 | healthInterval = "5" | healthInterval = 999 | healthInterval = 0.5
  [defaults]: lazy = true | reconnect = "none" | reconnect.policy = "linear" | reconnect.base = 0
  [defaults]: reconnect.jitter = 1.5 | reconnect.maxAttempts = 0.5 | reconnect.retries = 1
  [defaults]: maxMessage = "5 parsecs" | maxMessage = 2147483648
  [secrets]: sources = ["cloud"] | sources = [] | sources = "file" | commands = 1 | command = true
  [search]: directories = "official" | directories = ["other"] | directories = ["https://me:pw@x.example"]
  [search]: directory = []
  [servers.a]: | command = "" | plugin = "" | plugin = "./x.ts" | url = ""
  [servers.a]: package = "x" | package = "npm:-x" | package = "npm:x y"
  [servers.""]: command = "x"⏎prefix = "p"
  [servers.a]⏎command = "x": healthInterval = 1 | reconnect.max = "soon" | isolation = "perclient" | lazy = 1
  [servers.a]⏎command = "x": args = "a b" | args = [1] | env = { A = 5 } | inheritEnv = ["A=1"] | enabled = 1
  [servers.a]⏎command = "x": calTimeout = 5 | plugin = "p" | url = "u" | headers = {} | package = "npm:x" | runner = "npx"
  [servers.a]⏎command = "x": tools.alow = [] | tools.allow = [""] | tools.rename = { a = "" } | tools.timeout = { a = "soon" }
  [servers.a]⏎command = "x": tools.describe = { a = "" } | tools.describe = "x" | tools.meta = { a = 1 }
  [servers.a]⏎command = "x": tools.annotations = { a = { readOnlyHint = "yes" } } | tools.annotations = { a = { readonly = true } }
  [servers.a]⏎plugin = "p": args = [] | env = {} | inheritEnv = [] | cwd = "." | oauth = {}
  [servers.a]⏎url = "u": args = [] | plugin = "p" | transport = "ws" | headers = { A = 1 } | auth = true
  [servers.a]⏎url = "u": oauth = { clientID = "a" } | oauth.callbackPort = 65536
  [servers.a]⏎package = "npm:x": runner = "yarn" | url = "u"
  [modes.full]: tools = "all"
  [modes."a b"]: tools = "all"
  [modes.a]: | tools = "some" | tools = {} | tools = { server = ["a"] } | tools = { servers = ["a"], tools = ["b"] }
  [modes.a]: tools = { servers = [""] } | tools = { ids = ["a"] } | tools = { readOnly = false } | tools = { not = 1 }
  [modes.a]⏎tools = "all": title = "" | prompt = "all"
  [[clients]]: | name = "a" | token = "a"
  [[clients]]⏎name = "a"⏎token = "t": mode = "" | servers = "a" | sessions = 0 | approval = "ask" | tokens = []
  [[clients]]⏎token = "t": name = "" | name = "a b"
  [agents.a]⏎model = "m": tools = {} | maxTurns = 0 | subAgents = "b" | approval = "ask" | timeout = 0
  [agents."a b"]: model = "m"
  [fleet]: | url = "http://a" | url = [] | url = 1
  [fleet]⏎url = "tls://a": tenant = "a.b" | user = "" | export = "a" | insecure = 1 | clients = [{ user = "a" }]
  [servers.a]: fleet = "a/b/c" | fleet = ""
  [servers.a]⏎fleet = "a": command = "x" | spread = "random" | args = []
  [[plugins]]: | use = ""
  [[plugins]]⏎use = "x": option = {} | options = [] | servers = "a" | tools = [""]
`;

describe("the JSON Schema of the manifest", () => {
  it("is the one that the manifest's own schema makes: run `npm run docs` if not", () => {
    assert.deepEqual(plainCopy(committed), plainCopy(makeSchema()));
  });

  it("has the id that new manifests name", () => {
    assert.equal(committed.$id, SCHEMA_ID);
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

  const rows = [...BAD.matchAll(/^ {2}(.*?): (.*)$/gm)];
  for (const toml of rows.flatMap(([, start = "", ends = ""]) =>
    ends.split("|").map((end) => `${start}⏎${end.trim()}`.replaceAll("⏎", "\n")),
  )) {
    it(`refuses what toolmux refuses: ${JSON.stringify(toml)}`, () => {
      const root = read(toml);
      assert.notDeepEqual(readManifestFile(root, { file: "", baseDir: "/" }).problems, []);
      assert.ok(!isValid(root));
    });
  }
});

interface Whole {
  readonly models?: Record<string, object>;
  readonly agents?: Record<string, object>;
  readonly servers?: Record<string, object>;
  readonly plugins?: readonly object[];
  readonly modes?: Record<string, object>;
  readonly clients?: readonly object[];
  readonly fleet?: { url?: unknown; clients?: readonly { user?: unknown }[] };
}

/** Adds the keys that a fleet and its users need. */
function addFleetKeys(fleet: { url?: unknown; clients?: readonly { user?: unknown }[] }): void {
  fleet.url ??= "nats://127.0.0.1";
  for (const client of fleet.clients ?? []) client.user ??= "acme/u1";
}

/** The smallest manifest that has a value under a path. */
function wrap(path: string, value: unknown): unknown {
  const keys = path.split(".").map((key) => (key === "*" ? "any" : key));
  const whole = keys.reduceRight(
    (inner, key) => (key === "0" ? [inner] : { [key]: inner }),
    value,
  ) as Whole;
  const { servers, models, agents, plugins, modes, clients } = whole;
  if (whole.fleet !== undefined && keys[0] === "fleet" && keys.length > 1)
    addFleetKeys(whole.fleet);
  const agent = agents?.["any"];
  if (agents !== undefined && agent !== undefined) {
    const hasFile = "instructionFile" in agent;
    agents["any"] = { model: "m", ...(!hasFile && { instruction: "x" }), ...agent };
  }
  const model = models?.["any"];
  if (models !== undefined && model !== undefined)
    models["any"] = { provider: "anthropic", ...model };
  const server = servers?.["any"];
  if (servers !== undefined && server !== undefined && keys.length > 2) {
    const said = Object.keys(server);
    const isRemote = said.some((key) => REMOTE_KEYS.some((own) => own === key));
    const isMain = ["plugin", "package", "fleet"].some((key) => said.includes(key));
    const ofFleet = said.includes("spread") ? { fleet: "x" } : { command: "x" };
    const start = said.includes("runner") ? { package: "npm:x" } : ofFleet;
    const main = isMain ? {} : isRemote ? { url: "u" } : start;
    servers["any"] = { ...main, ...server };
  }
  if (modes !== undefined && keys.length > 2)
    return { modes: { any: { tools: "all", ...modes["any"] } } };
  if (clients !== undefined && keys.length > 2)
    return { clients: clients.map((client) => ({ name: "x", token: "x", ...client })) };
  if (plugins !== undefined && keys.length > 2)
    return { plugins: plugins.map((plugin) => ({ use: "x", ...plugin })) };
  return whole;
}
