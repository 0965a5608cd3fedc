import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as v from "valibot";
import { systemClock } from "../../src/base/clock.ts";
import { formatProblem } from "../../src/manifest/problems.ts";
import type { Host, Link, Parts } from "../../src/plugin/plugin.ts";
import type { PluginSet } from "../../src/plugin/plugin-set.ts";
import { type PreparedManifest, reusePlugins, setUpPlugins } from "../../src/plugin/setup.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { Latch, recordEvents } from "../fixtures/memory-hub.ts";
import { logsOf, throwing } from "./plugin-hub.ts";

type Given = { readonly options?: unknown } | ((host: Host) => Parts | Promise<Parts>);
type AllGiven = Readonly<Record<string, Given>>;

/** Sets up those of these plugins that a manifest names. */
async function setUp(toml: string, given: AllGiven, setupTimeout = 30_000) {
  const { bus, events } = recordEvents();
  const loaders = Object.fromEntries(
    Object.entries(given).map(([name, one]) => {
      const plugin =
        typeof one === "function"
          ? { name, setup: (_: unknown, host: Host) => one(host) }
          : { name, setup: () => ({}), ...one };
      return [name, () => Promise.resolve({ default: plugin })];
    }),
  );
  return withManifestFolder(async (folder) => {
    const { manifest } = await folder.loadValid({ files: [await folder.write("t.toml", toml)] });
    const stateFolder = folder.home;
    const options = { bus, env: {}, stateFolder, clock: systemClock, loaders, setupTimeout };
    return { bus, events, manifest, prepared: await setUpPlugins(manifest, options) };
  });
}

function problemsOf(prepared: PreparedManifest): readonly string[] {
  const problems = prepared.ok
    ? prepared.manifest.servers.flatMap((spec) => (spec.kind === "invalid" ? spec.problems : []))
    : prepared.problems;
  return problems.map((problem) => formatProblem(problem).replace(/^\S*\//, ""));
}

/** What is made of a manifest without problems. */
function successOf(prepared: PreparedManifest) {
  if (!prepared.ok) return assert.fail(problemsOf(prepared).join("\n"));
  return { set: prepared.plugins, servers: prepared.manifest.servers };
}

async function setOf(toml: string, given: AllGiven): Promise<PluginSet> {
  return successOf((await setUp(toml, given)).prepared).set;
}

const uses = (...names: string[]): string =>
  names.map((name) => `[[plugins]]\nuse = "${name}"\n`).join("");

const nonsense = (value: unknown): Parts => value as Parts;
const boom = (): never => throwing(new Error("boom"));

describe("plugins that cannot be set up", () => {
  it("are all told at once if it is seen before any is set up, each with its place", async () => {
    let setUps = 0;
    const options = v.strictObject({ n: v.number("a number") });
    const given = { good: () => (setUps++, {}), picky: { options }, bare: {} };
    const toml = `${uses("good")}\n[[plugins]]\nuse = "picky"\noptions = { n = "x", m = 1 }\n[[plugins]]\nuse = "bare"\noptions.x = 1\n[[plugins]]\nuse = "goood"\n`;
    const lines = problemsOf((await setUp(toml, given)).prepared);
    assert.deepEqual(lines.slice(0, 3), [
      "t.toml:6:17: plugins[1].options.n: expected a number, found a string",
      't.toml:6:22: plugins[1].options.m: unknown key; did you mean "n"?',
      "t.toml:9:1: plugins[2].options: this plugin takes no options",
    ]);
    const unknown =
      /^t\.toml:11:7: plugins\[3\]\.use: there is no built-in plugin "goood", .* mean "good"\?$/;
    assert.match(lines[3] ?? "", unknown);
    assert.equal(setUps, 0);
  });

  const returns =
    (value: unknown): Given =>
    () =>
      nonsense(value);
  const FAULTS: Readonly<Record<string, readonly [Given, string]>> = {
    throws: [() => throwing(new Error("boom\nand more")), "boom and more"],
    rejects: [() => Promise.reject(new Error("boom")), "boom"],
    "throws what cannot be written": [
      () => throwing(Object.create(null)),
      "it threw something that cannot be described",
    ],
    "gives back nothing": [returns(undefined), "it returned no object of parts"],
    "gives back an array": [returns([]), "it returned no object of parts"],
    "gives back a function": [returns(() => {}), "it returned no object of parts"],
    "gives back an unknown part": [
      returns({ calls: () => {} }),
      'it returned "calls", which is no part of a plugin',
    ],
    "gives back a part that is no function": [returns({ call: 1 }), "its call is no function"],
    "gives back events that are no names": [
      returns({ events: "log" }),
      "its events are no array of names",
    ],
    "gives back secrets that are no functions": [
      returns({ secrets: { vault: "x" } }),
      "its secrets.vault is no function",
    ],
    "gives back servers that are no object": [
      returns({ servers: "x" }),
      "its servers are no object",
    ],
  };
  for (const [what, [wrong, fault]] of Object.entries(FAULTS)) {
    it(`are told, and those before them are ended: one ${what}`, async () => {
      const order: string[] = [];
      const before = (name: string) => (host: Host) => {
        host.signal.addEventListener("abort", () => order.push(`${name} aborted`));
        return { dispose: () => void order.push(`${name} disposed`) };
      };
      const after = () => (order.push("after"), {});
      const all = { one: before("one"), two: before("two"), wrong, after };
      const { prepared, bus } = await setUp(uses("one", "two", "wrong", "after"), all);
      assert.deepEqual(problemsOf(prepared), [
        `t.toml:5:3: plugins[2]: plugin "wrong" failed in its setup: ${fault}`,
      ]);
      assert.deepEqual(order, ["one aborted", "two aborted", "two disposed", "one disposed"]);
      assert.equal(bus.hasListeners("state"), true);
    });
  }

  it("are told if they take too long, and what they made too late is ended", async () => {
    const late = new Latch();
    const disposed = new Latch();
    let signal: AbortSignal | undefined;
    const slow = async (host: Host): Promise<Parts> => {
      ({ signal } = host);
      await late.wait();
      return { dispose: () => disposed.open() };
    };
    const { prepared } = await setUp(uses("slow"), { slow }, 20);
    assert.deepEqual(problemsOf(prepared), [
      't.toml:1:3: plugins[0]: plugin "slow" failed in its setup: did not end within 20 ms',
    ]);
    assert.equal(signal?.aborted, true);
    late.open();
    await disposed.wait();
  });
});

const link = (): Link => chunkedTransportPair()[0];
const server =
  (name: string): Given =>
  () => ({ servers: { [name]: link } });

describe("servers of plugins", () => {
  it("are servers like others, after them, with their own names as prefixes", async () => {
    const toml = `${uses("p")}[servers.s]\ncommand = "x"\n[defaults]\ncallTimeout = "7s"\n`;
    const { prepared } = await setUp(toml, { p: server("mine") });
    const { set, servers } = successOf(prepared);
    const [s, mine, ...more] = servers;
    assert.deepEqual([s?.name, more], ["s", []]);
    assert.ok(mine?.kind === "plugin");
    const { name, prefix, plugin, callTimeout } = mine;
    assert.deepEqual([name, prefix, plugin, callTimeout], ["mine", "mine", "p", 7000]);
    assert.equal(mine.set, set.number);
  });

  it("have the settings that the manifest has for them", async () => {
    const toml = `${uses("p")}[servers.mine]\nplugin = "p"\nprefix = "other"\nlazy = true\n`;
    const { prepared } = await setUp(toml, { p: server("mine") });
    const { set, servers } = successOf(prepared);
    const [mine, ...more] = servers;
    assert.ok(mine?.kind === "plugin" && more.length === 0);
    assert.deepEqual([mine.prefix, mine.lazy, mine.set], ["other", true, set.number]);
  });

  const ABSENT: Readonly<Record<string, readonly [toml: string, AllGiven, problem: string]>> = {
    "of a plugin that the manifest does not name": [
      `${uses("notes", "q")}[servers.x]\nplugin = "nots"\n`,
      { notes: server("x"), q: {} },
      't.toml:6:10: servers.x.plugin: there is no plugin "nots"; did you mean "notes"?',
    ],
    "of one that is called nothing like any": [
      `${uses("notes", "q")}[servers.x]\nplugin = "other"\n`,
      { notes: server("x"), q: {} },
      't.toml:6:10: servers.x.plugin: there is no plugin "other": [[plugins]] names "notes", "q"',
    ],
    "that its plugin does not have": [
      `${uses("p")}[servers.minne]\nplugin = "p"\n`,
      { p: server("mine") },
      't.toml:3:10: servers.minne: plugin "p" has no server "minne"; did you mean "mine"?',
    ],
    "of a plugin that has none": [
      `${uses("p")}[servers.x]\nplugin = "p"\nenabled = false\n`,
      { p: {} },
      't.toml:3:10: servers.x: plugin "p" has no server "x"',
    ],
  };
  for (const [what, [toml, given, problem]] of Object.entries(ABSENT)) {
    it(`have failed, with their own place, if the manifest has one ${what}, and the plugins are set up`, async () => {
      const { prepared } = await setUp(toml, given);
      assert.ok(prepared.ok);
      assert.deepEqual(problemsOf(prepared), [problem]);
    });
  }

  it("are looked for anew when the manifest has changed and its plugins have not", async () => {
    const { prepared, manifest } = await setUp(uses("p"), { p: server("mine") });
    const { set, servers } = successOf(prepared);
    const [origin] = manifest.plugins.map((plugin) => plugin.origin);
    const [made] = servers;
    assert.ok(origin && made?.kind === "plugin");
    const place = { file: origin.file, path: ["servers", "x"] };
    const stray = { ...made, name: "x", prefix: "x", origin: place };
    const kept = (spec: typeof made): Promise<PreparedManifest> =>
      reusePlugins({ ...manifest, servers: [spec] }, set);
    assert.deepEqual(problemsOf(await kept(stray)), [
      't.toml: servers.x: plugin "p" has no server "x"',
    ]);
    assert.deepEqual(problemsOf(await kept({ ...stray, plugin: "q" })), [
      't.toml: servers.x.plugin: there is no plugin "q"; did you mean "p"?',
    ]);
    assert.ok((await kept(made)).ok);
  });

  const another = /its server "x" has the name of another server of the manifest/;
  const CLASHES: Readonly<Record<string, readonly [toml: string, AllGiven, message: RegExp]>> = {
    "two plugins have one of that name": [
      uses("p", "q"),
      { p: server("x"), q: server("x") },
      /^t\.toml:3:3: plugins\[1\]: plugin "q": its server "x" is also one of plugin "p"$/,
    ],
    "the manifest has another one of that name": [
      `${uses("p")}[servers.x]\ncommand = "x"\n`,
      { p: server("x") },
      another,
    ],
    "the manifest says that it is another plugin's": [
      `${uses("p", "q")}[servers.x]\nplugin = "q"\n`,
      { p: server("x"), q: {} },
      another,
    ],
    "its name is another's prefix": [
      `${uses("p")}[servers.s]\ncommand = "x"\nprefix = "x"\n`,
      { p: server("x") },
      /its server "x" needs another prefix; .* \[servers\.x\] with plugin = "p"/,
    ],
    "its name is no prefix": [uses("p"), { p: server("a__b") }, /"a__b" needs another prefix/],
    "it has no name": [uses("p"), { p: server("") }, /one of its servers has no name/],
  };
  for (const [what, [toml, given, message]] of Object.entries(CLASHES)) {
    it(`are refused, with the plugin's place, if ${what}`, async () => {
      const [first = "", ...more] = problemsOf((await setUp(toml, given)).prepared);
      assert.match(first, message);
      assert.match(first, /^t\.toml:\d+:3: plugins\[\d\]: /);
      assert.deepEqual(more, []);
    });
  }

  it("may have the prefix of one that is switched off", async () => {
    const toml = `${uses("p")}[servers.s]\ncommand = "x"\nprefix = "x"\nenabled = false\n`;
    assert.ok(await setOf(toml, { p: server("x") }));
  });

  it("are made again for a manifest that keeps its plugins, with all its problems", async () => {
    const { prepared, manifest } = await setUp(uses("p"), { p: server("mine") });
    const { set, servers } = successOf(prepared);
    const kept = await reusePlugins(manifest, set);
    assert.ok(kept.ok && kept.plugins === set);
    assert.deepEqual(kept.manifest.servers, servers);
    assert.deepEqual(kept.manifest, prepared.ok && prepared.manifest);
    const [other] = servers;
    assert.ok(other);
    const refused = await reusePlugins({ ...manifest, servers: [{ ...other, name: "s" }] }, set);
    assert.match(problemsOf(refused).join("\n"), /"mine" needs another prefix/);
    assert.equal(set.plugins[0]?.status.broken.length, 0);
  });

  it("fail to start if what makes them does, and the plugin is blamed", async () => {
    const made: Record<string, () => unknown> = {
      throwing: boom,
      rejecting: () => Promise.reject(new Error("boom")),
      nothing: () => undefined,
      strange: () => ({ open: 1 }),
    };
    const { prepared } = await setUp(uses("p"), { p: () => nonsense({ servers: made }) });
    const { set, servers } = successOf(prepared);
    assert.equal(servers.length, 4);
    for (const spec of servers) {
      assert.ok(spec.kind === "plugin");
      const failed = { code: "pluginFailed", server: spec.name, message: /boom|not a link/ };
      await assert.rejects(set.openTransport(spec, undefined), failed);
      const unknown = set.openTransport({ ...spec, name: "toString" }, undefined);
      await assert.rejects(unknown, { code: "notSupported" });
    }
  });
});

describe("secrets of plugins", () => {
  it("are asked for with the path, the server and a signal", async () => {
    const seen: unknown[] = [];
    const vault = (path: string, context: { server: string; signal: AbortSignal }) => {
      seen.push(path, context.server, context.signal.aborted);
      return Promise.resolve("value");
    };
    const { schemes } = await setOf(uses("v"), { v: () => ({ secrets: { vault } }) });
    assert.equal(await schemes.get("vault")?.("a/b", "s"), "value");
    assert.deepEqual(seen, ["a/b", "s", false]);
    assert.deepEqual([...schemes.keys()], ["vault"]);
  });

  const own = ["env", "file", "input", "secret", "cmd"].map((scheme): [string, RegExp] => [
    scheme,
    new RegExp(`its scheme "${scheme}" is toolmux's own`),
  ]);
  for (const [scheme, message] of [
    ...own,
    ["Vault", /its scheme "Vault" is not a valid scheme: expected lower-case letters/],
    ["a:b", /its scheme "a:b" is not a valid scheme/],
    ["", /its scheme "" is not a valid scheme/],
  ] as const) {
    it(`cannot have the scheme ${JSON.stringify(scheme)}`, async () => {
      const wrong = () => ({ secrets: { [scheme]: () => "x" } });
      const { prepared } = await setUp(uses("wrong"), { wrong });
      assert.match(problemsOf(prepared).join("\n"), message);
    });
  }

  it("cannot have one scheme from two plugins, which is told with all else that clashes", async () => {
    const both = () => ({ secrets: { vault: () => "x" }, servers: { s: link } });
    const { prepared } = await setUp(uses("p", "q"), { p: both, q: both });
    assert.deepEqual(problemsOf(prepared), [
      't.toml:3:3: plugins[1]: plugin "q": its scheme "vault" is also one of plugin "p"',
      't.toml:3:3: plugins[1]: plugin "q": its server "s" is also one of plugin "p"',
    ]);
  });

  it("that there are not are told in the plugin's words, and those that are no text without their value", async () => {
    const secrets = {
      throwing: () => throwing(new Error("sealed\nfor now")),
      strange: () => throwing(Object.create(null)),
      number: () => 123_456_789 as unknown as string,
    };
    const { schemes } = await setOf(uses("v"), { v: () => ({ secrets }) });
    const messages: string[] = [];
    for (const ask of schemes.values()) {
      await ask("x", "s").catch((error: unknown) => messages.push((error as Error).message));
    }
    assert.deepEqual(messages, [
      "sealed for now",
      "it threw something that cannot be described",
      "the plugin returned a value that is not a string",
    ]);
  });

  it("are not waited for when the plugins end", async () => {
    const vault = () => ({ secrets: { vault: () => new Promise<string>(() => {}) } });
    const set = await setOf(uses("v"), { v: vault });
    const failed = assert.rejects(set.schemes.get("vault")?.("x", "s") ?? Promise.resolve());
    await set.dispose();
    await failed;
  });
});

describe("the end of plugins", () => {
  it("is once, from the last to the first, and one that hangs keeps no other from it", async () => {
    const HANGING = ["c", "d", "e", "f", "g", "h"];
    const order: string[] = [];
    const ending = (name: string, dispose: () => unknown) => () =>
      nonsense({ dispose: () => (order.push(name), dispose()) });
    const given = {
      a: ending("a", () => {}),
      b: ending("b", () => throwing(Object.create(null))),
      ...Object.fromEntries(
        HANGING.map((name) => [name, ending(name, () => new Promise(() => {}))]),
      ),
    };
    const { prepared, events } = await setUp(uses("a", "b", ...HANGING), given);
    const { set } = successOf(prepared);
    const began = performance.now();
    await Promise.all([set.dispose(), set.dispose(), set.disposeWhenIdle(10)]);
    // Each is given 1 s.
    assert.ok(performance.now() - began < 5000);
    assert.deepEqual(order, [...HANGING.toReversed(), "b", "a"]);
    const reported = logsOf(events).filter((text) => text.includes("dispose() did not finish"));
    assert.equal(reported.length, HANGING.length);
  });
});
