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
import { logsOf, openPluginHub, openWithClock, pluginOf } from "./plugin-hub.ts";

const EXACT =
  '{"title":"\\u0041" ,"name":"exact","x":1.0,"big":12345678901234567890,"inputSchema":{"type":"object","minimum":1e2}}';

type List = (items: readonly Tool[], server: string) => unknown;

/** A plugin with this `list`, whose return value TypeScript does not check. */
function listing(name: string, list: List, more: Parameters<typeof pluginOf>[2] = {}) {
  return pluginOf(name, { list: (items, server) => list(items, server) as readonly Tool[] }, more);
}

function exact(...names: string[]): ScriptedServer {
  const script = new ScriptedServer(...names);
  script.tools.push(EXACT);
  return script;
}

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
    const { client } = await openPluginHub([same, same], { s: exact("a", "b") });
    assert.equal(await listText(client), before);
    assert.ok(before.includes('"x":1.0,"big":12345678901234567890'));
  });

  it("may have a tool more than the entry's tools, and then its calls come to who has added it", async () => {
    const adding = pluginOf(
      "adding",
      {
        list: (items) => [...items, { name: "added", inputSchema: { type: "object" } }],
        call: (next, { name }) =>
          name === "added" ? async (call) => call.answer({ content: [], by: "adding" }) : next,
      },
      { tools: ["a"] },
    );
    const { client } = await openPluginHub([adding], { s: exact("a", "b") });
    assert.deepEqual(await listToolNames(client), ["s__a", "s__added", "s__b", "s__exact"]);
    const { result } = await callTool(client, "s__added");
    assert.equal(result?.["by"], "adding");
    assert.equal((await callTool(client, "s__b")).result?.["by"], undefined);
  });

  it("is filtered, described and added to, and the rest keeps its bytes", async () => {
    const changing = listing("changing", (items) => [
      ...items
        .filter(({ name }) => name !== "b")
        .map((tool) => (tool.name === "a" ? { ...tool, description: "new" } : tool)),
      { name: "added", inputSchema: { type: "object" } },
    ]);
    const { client, hub } = await openPluginHub([changing], { s: exact("a", "b") });
    const text = await listText(client);
    assert.deepEqual(await listToolNames(client), ["s__a", "s__added", "s__exact"]);
    assert.ok(text.includes('"inputSchema":{"type":"object"},"description":"new"'));
    assert.ok(text.includes(EXACT.replace('"exact"', '"s__exact"')));
    const hidden = hub.catalog.notes.filter(({ kind }) => kind === "hidden");
    assert.deepEqual(
      hidden.map(({ server, remoteName }) => `${server} ${remoteName}`),
      ["s b"],
    );
    assert.equal((await callTool(client, "s__b")).error?.code, -32602);
  });

  it("is handed from the last plugin to the first, as answers are, with the server's name", async () => {
    const seen: unknown[] = [];
    const adding = (name: string) =>
      listing(name, (items, server) => {
        seen.push([name, server, items.map((tool) => tool.name)]);
        return [...items, { name: `by_${name}` }];
      });
    const { client } = await openPluginHub([adding("x"), adding("y")], {
      s: new ScriptedServer("t"),
    });
    await listToolNames(client);
    assert.deepEqual(seen, [
      ["y", "s", ["t"]],
      ["x", "s", ["t", "by_y"]],
    ]);
  });

  it("has added tools that the plugin answers, and no server is asked", async () => {
    const adding = pluginOf("adding", {
      list: (items) => [...items, { name: "added", inputSchema: { type: "object" } }],
      call: (next, { name }) =>
        name === "added" ? (given) => Promise.resolve(given.answer({ mine: true })) : next,
    });
    const s = new ScriptedServer("t");
    const { client } = await openPluginHub([adding], { s });
    assert.deepEqual((await callTool(client, "s__added")).result, { mine: true });
    assert.deepEqual(s.messagesOf("tools/call"), []);
    assert.ok((await callTool(client, "s__t")).result);
  });

  it("has of tools with one name the first", async () => {
    const doubling = listing("doubling", (items) => [
      ...items,
      ...items.map((tool) => ({ ...tool, description: "second" })),
    ]);
    const { client } = await openPluginHub([doubling], { s: exact("t") });
    assert.deepEqual(await listToolNames(client), ["s__exact", "s__t"]);
    assert.ok(!(await listText(client)).includes("second"));
  });

  it("leaves alone what the manifest has filtered: they never see it", async () => {
    const seen: string[] = [];
    const looking = listing("looking", (items) => {
      seen.push(...items.map(({ name }) => name));
      return items;
    });
    const tools = { allow: undefined, deny: ["b"], rename: { a: "z" }, timeout: {} };
    const { client } = await openPluginHub(
      [looking],
      { s: new ScriptedServer("a", "b") },
      { servers: { s: { tools } } },
    );
    assert.deepEqual(await listToolNames(client), ["s__z"]);
    assert.deepEqual(seen, ["a"]);
  });

  it("leaves alone servers and tools that no plugin is for", async () => {
    const seen: string[] = [];
    const hiding = listing(
      "hiding",
      (items, server) => {
        seen.push(...items.map(({ name }) => `${server} ${name}`));
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
    assert.deepEqual(seen, ["ab read_x"]);
    assert.ok(!(await listText(client)).includes("not its own"));
  });

  it("is asked for once for one listing, however often it is shown", async () => {
    let asked = 0;
    const counting = listing("counting", (items) => {
      asked++;
      return items.map((tool) => ({ ...tool, description: "x" }));
    });
    const s = new ScriptedServer("t");
    const r = new ScriptedServer("u");
    const { client, connect, hub } = await openPluginHub([counting], { s, r });
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
    const thrown: unknown[] = [];
    const attempt = (work: () => unknown): void => {
      try {
        work();
        thrown.push("nothing");
      } catch (error) {
        thrown.push(error instanceof TypeError);
      }
    };
    const changing = listing("changing", (items) => {
      attempt(() => (items as Tool[]).push({ name: "x" }));
      for (const tool of items) {
        attempt(() => Object.assign(tool, { description: "changed" }));
        attempt(() => Object.assign(tool.inputSchema as object, { type: "changed" }));
      }
      return items;
    });
    const { client } = await openPluginHub([changing], { s: exact() });
    assert.ok(!(await listText(client)).includes("changed"));
    assert.deepEqual(thrown, [true, true, true]);
  });

  it("is not made of nothing: servers that show no tools get none", async () => {
    const adding = listing("adding", (items) => [...items, { name: "added" }]);
    const { client, hub } = await openPluginHub([adding], {
      s: new ScriptedServer("t"),
      r: new ScriptedServer("u"),
    });
    await hub.stop("s");
    assert.deepEqual(await listToolNames(client), ["r__added", "r__u"]);
  });

  it("may be nested as deeply as clients are shown it", async () => {
    const depth = 127;
    const s = new ScriptedServer("t");
    s.tools.push(`{"name":"deep","x":${"[".repeat(depth)}${"]".repeat(depth)}}`);
    const same = listing("same", (items) => items);
    const { client } = await openPluginHub([same], { s });
    assert.deepEqual(await listToolNames(client), ["s__deep", "s__t"]);
  });
});

const throwing = (thrown: unknown): never => {
  throw thrown;
};

/** Faults of a `list` hook. */
const MISTAKES: Readonly<Record<string, List>> = {
  throws: () => throwing(new Error("boom")),
  "throws what cannot be written": () => throwing(Object.create(null)),
  rejects: () => Promise.reject(new Error("boom")),
  "gives back nothing": () => undefined,
  "gives back no array": () => ({ length: 0 }),
  "gives back no tools": () => [1],
  "gives back nothing for a tool": () => [null],
  "gives back a tool without a name": () => [{ description: "x" }],
  "gives back a tool that cannot be written": (items) => [{ ...items[0], x: 1n }],
  "gives back a tool that writes as nothing": (items) => [{ ...items[0], toJSON: () => undefined }],
  "gives back a tool that throws": () => [{ name: "x", toJSON: () => throwing(new Error("boom")) }],
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
      const { client } = await openPluginHub([wrong], { s: exact("a") });
      assert.deepEqual(await listToolNames(client), ["s__a", "s__exact"]);
      assert.ok((await listText(client)).includes(EXACT.replace('"exact"', '"s__exact"')));
    });
  }

  it("is asked again when a list is made anew", async () => {
    let isWrong = true;
    const wrong = listing("wrong", (items) => (isWrong ? throwing(new Error("boom")) : items));
    const { client, hub } = await openPluginHub([wrong], {
      s: new ScriptedServer("t"),
      r: new ScriptedServer("u"),
    });
    assert.deepEqual(await listToolNames(client), []);
    isWrong = false;
    hub.remove("r");
    assert.deepEqual(await listToolNames(client), ["s__t"]);
  });

  it("is asked again after a while, and clients are told what came of that", async () => {
    let isWrong = true;
    const wrong = listing("wrong", (items) => (isWrong ? throwing(new Error("boom")) : items));
    const s = new ScriptedServer("t");
    const { client, clock, hub } = await openWithClock([wrong], { s });
    assert.deepEqual(await listToolNames(client), []);
    const reported = (): number =>
      client.messages.filter(({ method }) => method?.endsWith("list_changed")).length;
    const before = reported();
    await clock.advanceAsync(OPEN_TIME + 1000);
    assert.equal(reported(), before);
    isWrong = false;
    await clock.advanceAsync(OPEN_TIME + 1000);
    assert.equal(reported(), before + 1);
    assert.deepEqual(await listToolNames(client), ["s__t"]);
    isWrong = true;
    s.tools.push('{"name":"u"}');
    const refreshed = hub.refresh("s");
    await clock.advanceAsync(1000);
    await refreshed;
    assert.deepEqual(await listToolNames(client), []);
    await hub.close();
    assert.deepEqual(
      clock.pendingDelays.filter((ms) => ms <= OPEN_TIME),
      [],
    );
  });

  it("is left alone for a while when it keeps failing", async () => {
    let asked = 0;
    const wrong = listing("wrong", () => throwing(new Error(`boom ${asked++}`)));
    const s = new ScriptedServer("t");
    const { client, hub, clock, plugins } = await openWithClock([wrong], { s });
    const refresh = async (): Promise<void> => {
      const done = hub.refresh("s");
      await clock.advanceAsync(1000);
      await done;
    };
    for (let i = 0; i < MAX_FAILURES + 3; i++) {
      s.tools.push(`{"name":"t${i}"}`);
      await refresh();
      assert.deepEqual(await listToolNames(client), []);
    }
    assert.equal(asked, MAX_FAILURES);
    assert.deepEqual(plugins.status[0]?.broken, ["list"]);
    await clock.advanceAsync(OPEN_TIME);
    s.tools.push('{"name":"again"}');
    await refresh();
    await listToolNames(client);
    assert.equal(asked, MAX_FAILURES + 1);
  });

  it("does not keep the next one from its part", async () => {
    const wrong = listing("wrong", () => throwing(new Error("boom")), { tools: ["a"] });
    const adding = listing("adding", (items) => [...items, { name: "added" }]);
    const { client } = await openPluginHub([adding, wrong], { s: new ScriptedServer("a", "b") });
    assert.deepEqual(await listToolNames(client), ["s__added", "s__b"]);
  });

  it("answers a list that a client waits for", async () => {
    const wrong = listing("wrong", () => throwing(new Error("boom")));
    const { client } = await openWithClock([wrong], { s: new ScriptedServer("t") });
    client.send({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    assert.deepEqual((await client.find(isResponseTo(1))).result, { tools: [] });
  });
});
