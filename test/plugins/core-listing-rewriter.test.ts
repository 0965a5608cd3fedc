import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Tool } from "../../src/plugin/plugin.ts";
import { MAX_FAILURES, OPEN_TIME } from "../../src/plugin/instance.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  initialize,
  isResponseTo,
  listToolNames,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { logsOf, openPluginHub, openWithClock, pluginOf, throwing } from "./plugin-hub.ts";

const EXACT =
  '{"title":"\\u0041" ,"name":"exact","x":1.0,"big":12345678901234567890,"inputSchema":{"type":"object","minimum":1e2}}';

type List = (items: readonly Tool[], server: string) => unknown;

/** A plugin with this `list`, whose return value TypeScript does not check. */
function listing(name: string, list: List, more: Parameters<typeof pluginOf>[2] = {}) {
  return pluginOf(name, { list: (items, server) => list(items, server) as readonly Tool[] }, more);
}

const adding = (name: string) =>
  listing("adding", (items) => [...items, { name, inputSchema: { type: "object" } }]);

function exact(...names: string[]): ScriptedServer {
  const script = new ScriptedServer(...names);
  script.tools.push(EXACT);
  return script;
}

const namesOf = (items: readonly Tool[]): string[] => items.map(({ name }) => name);

/** The text of the last tools/list result that a client received. */
async function listText(client: Parameters<typeof sendRequest>[0]): Promise<string> {
  await sendRequest(client, "tools/list");
  return client.received.at(-1)?.replace(/"id":.*$/, "") ?? "";
}

describe("what plugins make of a listing", () => {
  it("has the very bytes of every tool that they give back as it was", async () => {
    const plain = setUpHub({ s: exact("a", "b") });
    await initialize(plain.client);
    const before = await listText(plain.client);
    const same = listing("same", (items) => [...items].reverse());
    const { client } = await openPluginHub([same, same], exact("a", "b"));
    assert.equal(await listText(client), before);
    assert.ok(before.includes('"x":1.0,"big":12345678901234567890'));
  });

  it("may have a tool more than the entry's tools, which the plugin answers, and no server", async () => {
    const plugin = pluginOf(
      "adding",
      {
        list: (items) => [...items, { name: "added", inputSchema: { type: "object" } }],
        call: (next, { name }) =>
          name === "added" ? async (call) => call.answer({ content: [], by: "adding" }) : next,
      },
      { tools: ["a"] },
    );
    const { client, s } = await openPluginHub([plugin], exact("a", "b"));
    assert.deepEqual(await listToolNames(client), ["s__a", "s__added", "s__b", "s__exact"]);
    const { result } = await callTool(client, "s__added");
    assert.deepEqual(result, { content: [], by: "adding" });
    assert.deepEqual(s.messagesOf("tools/call"), []);
    assert.equal((await callTool(client, "s__b")).result?.["by"], undefined);
    assert.ok((await callTool(client, "s__a")).result);
  });

  it("is filtered, described and added to, and the rest keeps its bytes", async () => {
    const changing = listing("changing", (items) => [
      ...items
        .filter(({ name }) => name !== "b")
        .map((tool) => (tool.name === "a" ? { ...tool, description: "new" } : tool)),
      { name: "added", inputSchema: { type: "object" } },
    ]);
    const { client, hub } = await openPluginHub([changing], exact("a", "b"));
    const text = await listText(client);
    assert.deepEqual(await listToolNames(client), ["s__a", "s__added", "s__exact"]);
    assert.ok(text.includes('"inputSchema":{"type":"object"},"description":"new"'));
    assert.ok(text.includes(EXACT.replace('"exact"', '"s__exact"')));
    const hidden = hub.catalog.notes.filter(({ kind }) => kind === "hidden");
    const places = hidden.map(({ server, remoteName }) => `${server} ${remoteName}`);
    assert.deepEqual(places, ["s b"]);
    assert.equal((await callTool(client, "s__b")).error?.code, -32602);
  });

  it("is handed from the last plugin to the first, as answers are, with the server's name", async () => {
    const seen: unknown[] = [];
    const [x, y] = ["x", "y"].map((name) =>
      listing(name, (items, server) => {
        seen.push([name, server, ...namesOf(items)]);
        return [...items, { name: `by_${name}` }];
      }),
    );
    const { client } = await openPluginHub([x!, y!]);
    await listToolNames(client);
    assert.deepEqual(seen, [
      ["y", "s", "t"],
      ["x", "s", "t", "by_y"],
    ]);
  });

  it("has of tools with one name the first", async () => {
    const doubling = listing("doubling", (items) => [
      ...items,
      ...items.map((tool) => ({ ...tool, description: "second" })),
    ]);
    const { client } = await openPluginHub([doubling], exact("t"));
    assert.deepEqual(await listToolNames(client), ["s__exact", "s__t"]);
    assert.ok(!(await listText(client)).includes("second"));
  });

  it("leaves alone what the manifest has filtered: they never see it", async () => {
    const seen: string[] = [];
    const looking = listing("looking", (items) => (seen.push(...namesOf(items)), items));
    const tools = { allow: undefined, deny: ["b"], rename: { a: "z" }, timeout: {} };
    const settings = { servers: { s: { tools } } };
    const { client } = await openPluginHub([looking], new ScriptedServer("a", "b"), settings);
    assert.deepEqual(await listToolNames(client), ["s__z"]);
    assert.deepEqual(seen, ["a"]);
  });

  it("leaves alone servers and tools that no plugin is for", async () => {
    const seen: string[] = [];
    const hiding = listing(
      "hiding",
      (items, server) => {
        seen.push(server, ...namesOf(items));
        return [{ name: "write_x", description: "not its own" }];
      },
      { servers: ["a*"], tools: ["read_*"] },
    );
    const scripts = {
      ab: new ScriptedServer("read_x", "write_x"),
      b: new ScriptedServer("read_x"),
    };
    const { client } = await openPluginHub([hiding], scripts);
    assert.deepEqual(await listToolNames(client), ["ab__write_x", "b__read_x"]);
    assert.deepEqual(seen, ["ab", "read_x"]);
    assert.ok(!(await listText(client)).includes("not its own"));
  });

  it("is asked for once for one listing, however often it is shown", async () => {
    let asked = 0;
    const counting = listing("counting", (items) => {
      asked++;
      return items.map((tool) => ({ ...tool, description: "x" }));
    });
    const scripts = { s: new ScriptedServer("t"), r: new ScriptedServer("u") };
    const { client, connect, hub, s } = await openPluginHub([counting], scripts);
    await listToolNames(client);
    const before = asked;
    const other = connect();
    await initialize(other);
    await listToolNames(other);
    await hub.stop("r");
    await listToolNames(client);
    assert.equal(asked, before);
    s.tools.push('{"name":"v"}');
    await hub.refresh("s");
    await listToolNames(client);
    assert.equal(asked, before + 1);
  });

  it("is frozen all the way down", async () => {
    let refused = 0;
    const changing = listing("changing", (items) => {
      const [tool = assert.fail()] = items;
      for (const attempt of [
        () => (items as Tool[]).push({ name: "x" }),
        () => Object.assign(tool, { description: "changed" }),
        () => Object.assign(tool.inputSchema as object, { type: "changed" }),
      ]) {
        assert.throws(attempt, TypeError);
        refused++;
      }
      return items;
    });
    const { client } = await openPluginHub([changing], exact());
    assert.ok(!(await listText(client)).includes("changed"));
    assert.equal(refused, 3);
  });

  it("is not made of nothing: servers that show no tools get none", async () => {
    const scripts = { s: new ScriptedServer("t"), r: new ScriptedServer("u") };
    const { client, hub } = await openPluginHub([adding("added")], scripts);
    await hub.stop("s");
    assert.deepEqual(await listToolNames(client), ["r__added", "r__u"]);
  });

  it("may be nested as deeply as clients are shown it", async () => {
    const script = new ScriptedServer("t");
    script.tools.push(`{"name":"deep","x":${"[".repeat(127)}${"]".repeat(127)}}`);
    const { client } = await openPluginHub([listing("same", (items) => items)], script);
    assert.deepEqual(await listToolNames(client), ["s__deep", "s__t"]);
  });
});

const boom = (): never => throwing(new Error("boom"));

/** Faults of a `list` hook. */
const MISTAKES: Readonly<Record<string, List>> = {
  throws: boom,
  "throws what cannot be written": () => throwing(Object.create(null)),
  rejects: () => Promise.reject(new Error("boom")),
  "gives back nothing": () => undefined,
  "gives back no array": () => ({ length: 0 }),
  "gives back no tools": () => [1],
  "gives back nothing for a tool": () => [null],
  "gives back a tool without a name": () => [{ description: "x" }],
  "gives back a tool that cannot be written": (items) => [{ ...items[0], x: 1n }],
  "gives back a tool that writes as nothing": (items) => [{ ...items[0], toJSON: () => undefined }],
  "gives back a tool that throws": () => [{ name: "x", toJSON: boom }],
  "changes what it was given": (items) => {
    Object.assign(items[0] ?? {}, { name: "x" });
    return items;
  },
};

describe("a plugin that makes a mistake with a listing", () => {
  for (const [what, list] of Object.entries(MISTAKES)) {
    it(`hides what it is for, and nothing else: ${what}`, async () => {
      const wrong = listing("wrong", list, { tools: ["a*"], servers: ["s"] });
      const scripts = { s: new ScriptedServer("a1", "b1"), r: new ScriptedServer("a1") };
      const { client, events, plugins } = await openPluginHub([wrong], scripts);
      assert.deepEqual(await listToolNames(client), ["r__a1", "s__b1"]);
      assert.equal(plugins.status[0]?.lastError?.code, "pluginFailed");
      assert.ok(logsOf(events).some((text) => text.startsWith('plugin "wrong": failed: ')));
      assert.equal((await callTool(client, "s__a1")).error?.code, -32602);
      await turn();
    });

    it(`is passed by if it says so: ${what}`, async () => {
      const wrong = listing("wrong", list, { whenBroken: "pass" });
      const { client } = await openPluginHub([wrong], exact("a"));
      assert.deepEqual(await listToolNames(client), ["s__a", "s__exact"]);
      assert.ok((await listText(client)).includes(EXACT.replace('"exact"', '"s__exact"')));
    });
  }

  /** Does it at first, while `is`. */
  const passing = { is: false };
  const wrong = listing("wrong", (items) => (passing.is ? items : boom()));
  /** Lets a server list another tool, with a virtual clock. */
  async function addTool(
    { hub, clock, s }: Awaited<ReturnType<typeof openWithClock>>,
    name: string,
  ) {
    s.tools.push(`{"name":"${name}"}`);
    const refreshed = hub.refresh("s");
    await clock.advanceAsync(1000);
    await refreshed;
  }

  it("is asked again when a list is made anew", async () => {
    passing.is = false;
    const scripts = { s: new ScriptedServer("t"), r: new ScriptedServer("u") };
    const { client, hub } = await openPluginHub([wrong], scripts);
    assert.deepEqual(await listToolNames(client), []);
    passing.is = true;
    hub.remove("r");
    assert.deepEqual(await listToolNames(client), ["s__t"]);
  });

  it("is asked again after a while, and clients are told what came of that", async () => {
    passing.is = false;
    const setup = await openWithClock([wrong]);
    const { client, clock, hub } = setup;
    assert.deepEqual(await listToolNames(client), []);
    const reported = (): number =>
      client.messages.filter(({ method }) => method?.endsWith("list_changed")).length;
    const before = reported();
    await clock.advanceAsync(OPEN_TIME + 1000);
    assert.equal(reported(), before);
    passing.is = true;
    await clock.advanceAsync(OPEN_TIME + 1000);
    assert.equal(reported(), before + 1);
    assert.deepEqual(await listToolNames(client), ["s__t"]);
    passing.is = false;
    await addTool(setup, "u");
    assert.deepEqual(await listToolNames(client), []);
    await hub.close();
    assert.ok(clock.pendingDelays.every((ms) => ms > OPEN_TIME));
  });

  it("is left alone for a while when it keeps failing", async () => {
    let asked = 0;
    const failing = listing("wrong", () => throwing(new Error(`boom ${asked++}`)));
    const setup = await openWithClock([failing]);
    for (let i = 0; i < MAX_FAILURES + 3; i++) {
      await addTool(setup, `t${i}`);
      assert.deepEqual(await listToolNames(setup.client), []);
    }
    assert.equal(asked, MAX_FAILURES);
    assert.deepEqual(setup.plugins.status[0]?.broken, ["list"]);
    await setup.clock.advanceAsync(OPEN_TIME);
    await addTool(setup, "again");
    await listToolNames(setup.client);
    assert.equal(asked, MAX_FAILURES + 1);
  });

  it("is not left alone when it fails now and then", async () => {
    let asked = 0;
    const failing = listing("wrong", (items) => (asked++ % 2 === 0 ? boom() : items));
    const setup = await openWithClock([failing]);
    for (let i = 0; i < 3 * MAX_FAILURES; i++) {
      await addTool(setup, `t${i}`);
      await listToolNames(setup.client);
    }
    assert.ok(asked >= 3 * MAX_FAILURES);
    assert.deepEqual(setup.plugins.status[0]?.broken, []);
  });

  it("does not keep the next one from its part", async () => {
    const plugins = [adding("added"), listing("wrong", boom, { tools: ["a"] })];
    const { client } = await openPluginHub(plugins, new ScriptedServer("a", "b"));
    assert.deepEqual(await listToolNames(client), ["s__added", "s__b"]);
  });

  it("answers a list that a client waits for", async () => {
    const { client } = await openWithClock([listing("wrong", boom)]);
    client.send({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    assert.deepEqual((await client.find(isResponseTo(1))).result, { tools: [] });
  });
});
