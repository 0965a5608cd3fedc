import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import plugin from "../../plugins/cache/index.ts";
import { normalize, withCachedTime } from "../../plugins/cache/json.ts";
import { ResultCache } from "../../plugins/cache/store.ts";
import { HubError } from "../../src/base/errors.ts";
import { OwnAnswer } from "../../src/plugin/answer.ts";
import type { CallSummary } from "../../src/router/call.ts";
import type { HubEvent, Next, ToolInfo } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  type HubSetupOptions,
  sendRequest,
  callTool,
  initialize,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";
import { BareHost, countingNext, errorAnswer, toolCall, toolInfo } from "./plugin-host.ts";

const READ_ONLY = { annotations: { readOnlyHint: true } };
const DEFAULTS = { ttl: 60_000, maxSize: 1 << 20, tools: [] as string[], readOnly: true };

async function setUp(options: Partial<typeof DEFAULTS> = {}) {
  const host = new BareHost();
  const parts = await plugin.setup({ ...DEFAULTS, ...options }, host);
  host.subscribe((event) => void parts.event?.(event), parts.events);
  host.subscriptions = 0;
  const wrap = (next: Next, tool: ToolInfo): Next => parts.call?.(next, tool) ?? next;
  /** Calls a tool through the plugin with these arguments. */
  const ask = (next: Next, tool: ToolInfo, args = "{}", client = "c1", signal?: AbortSignal) =>
    wrap(next, tool)(toolCall(tool, args, client, signal));
  return { host, parts, wrap, ask, tell: (event: HubEvent) => host.bus.emit(event) };
}

/** A tool that answers with the number of its calls. */
function counter(): Next & { count: number } {
  return countingNext((call, count) =>
    call.answer({ content: [{ type: "text", text: `${count}` }] }),
  );
}

function finished(server: string, tool: string): HubEvent {
  return { kind: "callFinished", outcome: "answered", failed: false, ...callOf(server, tool) };
}

function callOf(server: string, tool: string): CallSummary {
  return { call: 1, client: "c", server, tool, name: tool, startedAt: 0, duration: 1 };
}

const text = async (answer: Promise<{ value: unknown }>): Promise<string> =>
  ((await answer).value as { content: { text: string }[] }).content[0]!.text;

describe("the cache", () => {
  const read = toolInfo("files", "read", READ_ONLY);

  it("leaves tools alone that are neither declared read-only nor named, and listens to no calls for them", async () => {
    const { wrap, host } = await setUp();
    const next = counter();
    for (const annotations of [{}, { readOnlyHint: false }, { readOnlyHint: "true" }]) {
      assert.equal(wrap(next, toolInfo("files", "write", { annotations })), next);
    }
    assert.equal(wrap(next, toolInfo("files", "bare")), next);
    assert.equal(host.subscriptions, 0);
  });

  it("leaves tools alone that only declare to be read-only if it is told so, but not named ones", async () => {
    const { wrap, ask } = await setUp({ readOnly: false, tools: ["get_*"] });
    const next = counter();
    assert.equal(wrap(next, read), next);
    for (const _ of [1, 2]) await ask(next, toolInfo("files", "get_x"));
    assert.equal(next.count, 1);
  });

  const apart: [string, string][] = [
    ['{"n":1234567890123456789}', '{"n":1234567890123456788}'],
    ['{"n":1.0}', '{"n":1}'],
    ['{"n":1}', '{"n":"1"}'],
    ['{"a":1,"a":2}', '{"a":2}'],
    ['{"a":1,"a":2}', '{"a":2,"a":1}'],
    ['{"a":[1,2]}', '{"a":[2,1]}'],
    ['{"a":{"b":1},"c":2}', '{"a":{"b":1,"c":2}}'],
    ['{"a":"b\\",\\"c"}', '{"a":"b","c":1}'],
    ['{"a":" "}', '{"a":""}'],
    ["{}", '{"":null}'],
  ];
  for (const [one, other] of apart) {
    it(`takes ${one} and ${other} for different arguments`, async () => {
      const { ask } = await setUp();
      const server = counter();
      await ask(server, read, one);
      assert.equal(await text(ask(server, read, other)), "2");
    });
  }

  it("keeps servers, tools, and the clients of a server that each have their own apart", async () => {
    const setup = await setUp();
    const server = counter();
    const ask = (tool: ToolInfo, client: string): Promise<string> =>
      text(setup.ask(server, tool, "{}", client));
    const own = toolInfo("own", "read", READ_ONLY, "perClient");
    await ask(read, "c1");
    await ask(toolInfo("files", "stat", READ_ONLY), "c1");
    await ask(toolInfo("files2", "read", READ_ONLY), "c1");
    assert.equal(server.count, 3);
    assert.equal(await ask(read, "c2"), "1");
    assert.equal(await ask(own, "c1"), "4");
    assert.equal(await ask(own, "c2"), "5");
    assert.equal(await ask(own, "c1"), "4");
  });

  const refused: [string, Parameters<typeof countingNext>[0]][] = [
    ["errors of the tool", (call) => call.answer('{"content":[],"isError":true}')],
    ["JSON-RPC errors", () => errorAnswer({ code: -32000, message: "no" })],
    [
      "results with links",
      (call) => call.answer('{"content":[{"type":"resource_link","uri":"x:y"}]}'),
    ],
    ["questions of the server", (call) => call.answer('{"resultType":"input_required"}')],
    ["tasks that have only begun", (call) => call.answer('{"task":{"taskId":"1"}}')],
    ["results that are too big", (call) => call.answer({ content: "x".repeat(300_000) })],
  ];
  for (const [what, answer] of refused) {
    it(`does not keep ${what}`, async () => {
      const { ask } = await setUp();
      const server = countingNext(answer);
      const first = await ask(server, read);
      assert.equal((await ask(server, read)).json, first.json);
      assert.equal(server.count, 2);
    });
  }

  for (const json of ['{"content":[1 2]}', '{"content":[}', '{"content":"', "null", "[]"]) {
    it(`passes on what makes no sense, and does not keep it: ${json}`, async () => {
      const { ask } = await setUp();
      const value = undefined;
      const answer = { kind: "result", size: json.length, json, value, isError: false } as const;
      const server = countingNext(() => answer);
      for (const _ of [1, 2]) assert.equal(await ask(server, read), answer);
      assert.equal(server.count, 2);
    });
  }

  it("passes on that there is no answer, and asks again the next time", async () => {
    const { ask } = await setUp();
    const lost = new HubError("connectionLost", "It is gone.");
    const server = countingNext((call, count) => {
      if (count === 1) throw lost;
      return call.answer({ content: [] });
    });
    await assert.rejects(ask(server, read), (error) => error === lost);
    assert.equal((await ask(server, read)).isError, false);
  });

  it("sends on arguments that are too big, too deep, or make no sense", async () => {
    const { ask } = await setUp();
    const server = counter();
    const deep = `{"a":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    const odd = ['{"a":', `{"a":"${"x".repeat(300_000)}"}`, deep, '{"a":1}}'];
    for (const args of [...odd, ...odd]) await ask(server, read, args);
    assert.equal(server.count, 8);
  });

  const catalog = (change: Partial<Record<"removed" | "altered", string[]>>): HubEvent => {
    const { removed = [], altered = [] } = change;
    return { kind: "catalog", added: [], removed, altered };
  };
  const changes: [string, HubEvent][] = [
    ["another of its tools may have changed something", finished("files", "write")],
    [
      "such a call was cancelled",
      { kind: "callCancelled", by: "client", ...callOf("files", "write") },
    ],
    ["it was given another specification", { kind: "server", server: "files", change: "changed" }],
    ["it was removed", { kind: "server", server: "files", change: "removed" }],
    [
      "it was started anew",
      { kind: "state", server: "files", from: "connecting", to: "connected" },
    ],
    ["one of its tools is described otherwise", catalog({ altered: ["files__read"] })],
    ["one of its tools is gone", catalog({ removed: ["files__read"] })],
  ];
  for (const [when, event] of changes) {
    it(`drops a server's results, and no other's, when ${when}`, async () => {
      const { ask, tell } = await setUp();
      const server = counter();
      const elsewhere = toolInfo("web", "read", READ_ONLY);
      assert.equal(await text(ask(server, read)), "1");
      assert.equal(await text(ask(server, elsewhere)), "2");
      tell(event);
      assert.equal(await text(ask(server, read)), "3");
      assert.equal(await text(ask(server, elsewhere)), "2");
    });

    it(`does not keep what was asked before and answered after ${when}`, async () => {
      const { wrap, tell } = await setUp();
      const reply = Promise.withResolvers<void>();
      let count = 0;
      const call = wrap(async (given) => {
        count++;
        await reply.promise;
        return given.answer({ content: [] });
      }, read);
      const first = call(toolCall(read, "{}"));
      tell(event);
      reply.resolve();
      await first;
      await call(toolCall(read, "{}"));
      assert.equal(count, 2);
    });
  }

  it("keeps a server's results when tools that change nothing are called, or other servers'", async () => {
    const { wrap, ask, tell } = await setUp({ tools: ["named"] });
    const server = counter();
    wrap(server, toolInfo("files", "named"));
    await ask(server, read);
    tell(finished("files", "read"));
    tell(finished("files", "named"));
    tell(finished("web", "write"));
    await ask(server, read);
    assert.equal(server.count, 1);
  });

  it("keeps a server's results when a tool is called that is read-only but not cached", async () => {
    const { wrap, ask, tell } = await setUp({ readOnly: false, tools: ["named"] });
    const server = counter();
    const named = toolInfo("files", "named");
    wrap(server, read);
    await ask(server, named);
    tell(finished("files", "read"));
    await ask(server, named);
    assert.equal(server.count, 1);
  });

  it("knows nothing of a tool that is gone: a call of it that ends may have changed something", async () => {
    const { wrap, ask, tell } = await setUp();
    const server = counter();
    wrap(server, toolInfo("files", "stat", READ_ONLY));
    tell(catalog({ removed: ["files__stat"] }));
    await ask(server, read);
    tell(finished("files", "stat"));
    await ask(server, read);
    assert.equal(server.count, 2);
  });

  it("listens to calls once, however many tools it caches", async () => {
    const { wrap, host } = await setUp();
    for (const name of ["a", "b", "c"]) wrap(counter(), toolInfo("files", name, READ_ONLY));
    assert.equal(host.subscriptions, 1);
  });

  it("lets a cancelled call take no other with it", async () => {
    const { ask } = await setUp();
    const next: Next = async (given) => {
      if (!given.signal.aborted) await turn();
      if (given.signal.aborted) throw new HubError("cancelled", "Cancelled.");
      return given.answer({ content: [] });
    };
    const cancel = new AbortController();
    const one = ask(next, read, "{}", "c1", cancel.signal);
    const other = ask(next, read, "{}", "c2");
    cancel.abort();
    await assert.rejects(one, { code: "cancelled" });
    assert.equal((await other).isError, false);
  });

  it("has nothing left, and listens to nothing, after it was disposed of", async () => {
    const { ask, host, parts } = await setUp();
    const server = counter();
    await ask(server, read);
    await parts.dispose?.();
    assert.equal(host.bus.hasListeners("callFinished"), false);
    await ask(server, read);
    assert.equal(server.count, 2);
  });
});

describe("the options of the cache", () => {
  const check = (options: object): unknown => plugin.options?.["~standard"].validate(options);

  it("are five minutes, 32 MiB, and all tools that declare to be read-only, unless told otherwise", () => {
    const value = { ttl: 300_000, maxSize: 32 * 1024 * 1024, tools: [], readOnly: true };
    assert.deepEqual(check({}), { typed: true, value });
  });

  it("say what was expected where one is wrong", () => {
    const issues = (options: object): string[] =>
      (check(options) as { issues: { message: string }[] }).issues.map(({ message }) => message);
    assert.match(issues({ ttl: 0 })[0]!, /^a duration of at least 1 ms/);
    assert.match(issues({ maxSize: "big" })[0]!, /^a size such as/);
    assert.deepEqual(issues({ readOnly: 1 }), ["true or false"]);
    assert.deepEqual(issues({ tools: "a" }), ["an array of names or patterns"]);
    assert.equal(issues({ more: 1 }).length, 1);
  });
});

describe("the store", () => {
  const answer = (bytes: number): OwnAnswer => new OwnAnswer({ x: "x".repeat(bytes - 8) });

  it("keeps an answer for its time and not longer, and not when the clock was set back", () => {
    let now = 1000;
    const store = new ResultCache({ ttl: 100, maxSize: 100_000 }, () => now);
    store.put(store.groupOf("s"), "a", answer(100));
    now = 1099;
    assert.ok(store.get("a"));
    now = 1100;
    assert.equal(store.get("a"), undefined);
    assert.equal(store.size, 0);
    store.put(store.groupOf("s"), "a", answer(100));
    now = 1099;
    assert.equal(store.get("a"), undefined);
  });

  it("lets go first what was used longest ago", () => {
    const store = new ResultCache({ ttl: 1000, maxSize: 5000 });
    const resultStore = store.groupOf("s");
    for (const key of ["a", "b", "c", "d"]) store.put(resultStore, key, answer(900));
    assert.ok(store.get("a"));
    store.put(resultStore, "e", answer(900));
    assert.equal(store.get("b"), undefined);
    for (const key of ["a", "c", "d", "e"]) assert.ok(store.get(key), key);
    assert.deepEqual([...resultStore.keys].sort(), ["a", "c", "d", "e"]);
  });

  it("counts keys: many small answers to long questions do not pass its size either", () => {
    const store = new ResultCache({ ttl: 1000, maxSize: 10_000 });
    for (let i = 0; i < 100; i++) store.put(store.groupOf("s"), `${i}`.padEnd(1000), answer(20));
    assert.ok(store.get("99".padEnd(1000)));
    assert.equal(store.get("0".padEnd(1000)), undefined);
    store.put(store.groupOf("s"), "k".repeat(2000), answer(20));
    assert.equal(store.get("k".repeat(2000)), undefined, "bigger than a quarter of all");
  });

  it("never holds more than its size, and counts what it holds rightly", () => {
    const steps = fc.array(
      fc.record({
        key: fc.integer({ min: 0, max: 20 }),
        server: fc.constantFrom("s", "t"),
        bytes: fc.integer({ min: 10, max: 3000 }),
        act: fc.constantFrom("put", "put", "put", "get", "drop", "wait"),
      }),
    );
    fc.assert(
      fc.property(steps, (list) => {
        let now = 0;
        const store = new ResultCache({ ttl: 5, maxSize: 8000 }, () => now);
        for (const { key, server, bytes, act } of list) {
          if (act === "put") store.put(store.groupOf(server), `${server}${key}`, answer(bytes));
          if (act === "get") store.get(`${server}${key}`);
          if (act === "drop") store.removeServer(server);
          if (act === "wait") now++;
          assert.ok(store.size >= 0 && store.size <= 8000);
        }
        store.clear();
        assert.equal(store.size, 0);
      }),
    );
  });
});

describe("the canonical text", () => {
  it("is equal for texts that differ in white space, escapes and the order of keys", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (json) => {
        const plain = normalize(JSON.stringify(json));
        assert.ok(plain !== undefined);
        assert.equal(normalize(JSON.stringify(reverse(json), null, "\t")), plain);
        assert.deepEqual(JSON.parse(plain), JSON.parse(JSON.stringify(json)));
      }),
    );
    assert.equal(normalize('{"\\u0061":"\\u0062"}'), normalize('{"a":"b"}'));
  });

  it("differs for values that differ", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (one, other) => {
        const texts = [one, other].map((json) => JSON.stringify(json));
        const same = normalize(texts[0]!) === normalize(texts[1]!);
        assert.equal(same, isDeepStrictEqual(JSON.parse(texts[0]!), JSON.parse(texts[1]!)));
      }),
    );
  });
});

function reverse(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reverse);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => [key, reverse(inner)]);
  return Object.fromEntries(entries.reverse());
}

describe("a mark", () => {
  const at = new Date(0);
  const member = '"toolmux/cached":"1970-01-01T00:00:00.000Z"';
  const table: [string, string | undefined][] = [
    ["{}", `{"_meta":{${member}}}`],
    ['{"a":[1,"]",{"b":"}"}],"_meta":{}}', `{"a":[1,"]",{"b":"}"}],"_meta":{${member}}}`],
    ['{"a":"\\\\","b":"\\"_meta\\":{}"}', `{"a":"\\\\","b":"\\"_meta\\":{}","_meta":{${member}}}`],
    ['{"a":1}', `{"a":1,"_meta":{${member}}}`],
    ['{"a":1 } ', `{"a":1 ,"_meta":{${member}}} `],
    ['{"_meta":{},"a":1}', `{"_meta":{${member}},"a":1}`],
    ['{"_meta":{ "x":1 },"a":1}', `{"_meta":{ "x":1 ,${member}},"a":1}`],
    ['{"_meta":{"x":1},"\\u005fmeta":{}}', `{"_meta":{"x":1},"\\u005fmeta":{${member}}}`],
    ['{"_meta":null}', '{"_meta":null}'],
    ['{"a":{"_meta":{}}}', `{"a":{"_meta":{}},"_meta":{${member}}}`],
    ['{"resultType":"complete"}', `{"resultType":"complete","_meta":{${member}}}`],
    ["[]", undefined],
    ["{", undefined],
  ];
  for (const [json, marked] of table) {
    it(`makes of ${json} ${marked ?? "nothing"}`, () => {
      assert.equal(withCachedTime(json, at), marked);
    });
  }
});

const READ = '{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}';
const WRITE = '{"name":"write","inputSchema":{"type":"object"}}';

/** A server with a read-only tool and a writing one, which answer with the number of calls. */
function counting(): ScriptedServer & { calls: number } {
  const script = Object.assign(new ScriptedServer(), { calls: 0, tools: [READ, WRITE] });
  script.onCall = () => `"result":{"n":1.0,"content":[],"count":${++script.calls}}`;
  return script;
}

async function ready(client: Peer): Promise<Peer> {
  await initialize(client);
  await sendRequest(client, "tools/list");
  return client;
}

/** A hub with the cache over two such servers, and a client that has listed their tools. */
async function open(entry: Partial<PluginUse> = {}, settings: HubSetupOptions = {}) {
  const [files, web] = [counting(), counting()];
  const setup = await setUpPluginHub([{ plugin, ...entry }], { files, web }, settings);
  await ready(setup.client);
  return { ...setup, files };
}

async function countOf(client: Peer, name: string, args = {}): Promise<unknown> {
  return (await callTool(client, name, args)).result?.["count"];
}

describe("in a hub, the cache", () => {
  it("answers equal calls of all clients itself, byte for byte but for its mark", async () => {
    const { client, hub, connect, files } = await open();
    const other = await ready(connect());
    assert.equal(await countOf(client, "files__read", { a: 1, b: 2 }), 1);
    assert.equal(await countOf(other, "files__read", { b: 2, a: 1 }), 1);
    assert.equal(files.calls, 1);
    const marked =
      /"result":\{"n":1\.0,"content":\[\],"count":1,"_meta":\{"toolmux\/cached":"[^"]+"\}\}/;
    assert.match(other.received.at(-1) ?? "", marked);
    assert.doesNotMatch(client.received.at(-1) ?? "", /cached/);
    await hub.close();
  });

  it("asks again after such a tool was called that the entry is not for", async () => {
    const { client, hub } = await open({ tools: ["read"] });
    assert.equal(await countOf(client, "files__read"), 1);
    assert.equal(await countOf(client, "files__write"), 2);
    assert.equal(await countOf(client, "files__read"), 3);
    await hub.close();
  });

  it("asks again after the server was started anew", async () => {
    const { client, hub, events, files } = await open();
    assert.equal(await countOf(client, "files__read"), 1);
    const before = events.length;
    files.disconnect();
    const isBack = (): boolean =>
      events.slice(before).some((event) => event.kind === "state" && event.to === "connected");
    // The uncached call, which changes nothing, restarts the server.
    while (!isBack()) await callTool(client, "files__read", { again: true });
    assert.notEqual(await countOf(client, "files__read"), 1);
    await hub.close();
  });

  it("keeps the clients of a server apart that has a process for each", async () => {
    const servers = { files: { isolation: "perClient" } } as const;
    const { client, hub, connect } = await open({}, { servers });
    const other = await ready(connect());
    const one = await countOf(client, "files__read");
    assert.notEqual(await countOf(other, "files__read"), one);
    await hub.close();
  });

  it("keeps the clients of a server apart that fill in its entry with their own values", async () => {
    const servers = { files: { env: { KEY: "${env:TOKEN}" } } } as const;
    const { hub, connect } = await open({}, { servers });
    const [one, two] = await Promise.all(
      ["one", "two"].map((TOKEN) =>
        ready(connect("stdio", undefined, { cwd: "/", env: { TOKEN } })),
      ),
    );
    assert.ok(one !== undefined && two !== undefined);
    const count = await countOf(one, "files__read");
    assert.notEqual(await countOf(two, "files__read"), count);
    assert.equal(await countOf(one, "files__read"), count);
    await hub.close();
  });

  it("stops caching a tool that is no longer read-only", async () => {
    const { client, hub, files } = await open();
    assert.equal(await countOf(client, "files__read"), 1);
    files.tools = [READ.replace("true", "false"), WRITE];
    files.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await client.find(({ method }) => method === "notifications/tools/list_changed");
    assert.equal(await countOf(client, "files__read"), 2);
    assert.equal(await countOf(client, "files__read"), 3);
    await hub.close();
  });
});
