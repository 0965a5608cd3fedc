import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HUB_DEFAULTS } from "../../src/manifest/manifest.ts";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  INITIALIZE_REQUEST,
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
  setUpHub,
} from "../fixtures/memory-hub.ts";

const LISTS = [
  ["tools/list", "tools"],
  ["prompts/list", "prompts"],
  ["resources/list", "resources"],
  ["resources/templates/list", "resourceTemplates"],
] as const;

type Entry = Readonly<Record<string, unknown>>;

async function list(client: Peer, method: string, cursor?: string) {
  const { result, error } = await sendRequest(
    client,
    method,
    cursor === undefined ? {} : { cursor },
  );
  assert.equal(error, undefined);
  const key = LISTS.find(([one]) => one === method)?.[1] ?? "";
  return { entries: result?.[key] as Entry[], next: result?.["nextCursor"] as string | undefined };
}

function offering(lists: ScriptedServer["listings"], ...tools: string[]): ScriptedServer {
  const script = new ScriptedServer(...tools);
  script.listings = lists;
  return script;
}

const changes = ({ messages }: Peer): Json[] => messages.filter((one) => one.method !== undefined);

describe("a list of any kind", () => {
  for (const [method, key] of LISTS) {
    it(`is empty where no server offers any: ${method}`, async () => {
      const { client } = setUpHubWithClock({ a: new ScriptedServer() });
      await initialize(client);
      assert.deepEqual((await sendRequest(client, method)).result, { [key]: [] });
    });

    it(`waits until the servers have listed: ${method}`, async () => {
      const a = offering({ prompts: [], resources: [], resourceTemplates: [] });
      a.onInitialize = () => undefined;
      const { client, clock } = setUpHubWithClock({ a }, { hub: { listWait: 5000 } });
      await initialize(client);
      client.send({ jsonrpc: "2.0", id: 1, method });
      await clock.advanceAsync(4999);
      assert.equal(client.messages.some(isResponseTo(1)), false);
      await clock.advanceAsync(1);
      assert.equal(client.messages.some(isResponseTo(1)), true);
    });
  }

  it("has prompts under prefixes, as its rules say, and otherwise as they are", async () => {
    const a = offering({
      prompts: [{ name: "b", x: 1 }, { name: "draft" }, { name: "old" }, { name: "od d" }],
    });
    const prompts = { allow: undefined, deny: ["d*"], rename: { old: "new" } };
    const { client } = setUpHubWithClock({ a }, { servers: { a: { prompts } } });
    await initialize(client);
    const { entries } = await list(client, "prompts/list");
    assert.deepEqual(entries.slice(0, 2), [{ name: "a__b", x: 1 }, { name: "a__new" }]);
    assert.match(String(entries[2]?.["name"]), /^a__od_d_[a-z2-7]{6}$/);
    assert.equal(entries.length, 3);
  });

  it("has tools with the description, annotations and _meta that the manifest sets for them", async () => {
    const a = new ScriptedServer();
    a.tools = ['{"name":"t","description":"old","inputSchema":{"type":"object"},"x":1.0}'];
    const tools = {
      allow: undefined,
      deny: [],
      rename: {},
      timeout: {},
      describe: { t: "new" },
      meta: { t: { "anthropic/searchHint": "find" } },
      annotations: { t: { readOnlyHint: true } },
    };
    const { client } = setUpHubWithClock({ a }, { servers: { a: { tools } } });
    await initialize(client);
    await list(client, "tools/list");
    const entry =
      '{"name":"a__t","description":"new","inputSchema":{"type":"object"},"x":1.0,"annotations":{"readOnlyHint":true},"_meta":{"anthropic/searchHint":"find"}}';
    assert.ok(client.received.at(-1)?.includes(entry), client.received.at(-1) ?? "");
  });

  it("has resources under their own URIs, and the second of one URI under one that names its server", async () => {
    const resources = [{ uri: "x://1", name: "n" }];
    const a = offering({ resources: [...resources, { uri: "x://1", name: "again" }] });
    const b = offering({ resources: [...resources, { uri: "x://2", name: "n" }] });
    const { client, events } = setUpHubWithClock({ a, b });
    await initialize(client);
    const { entries } = await list(client, "resources/list");
    assert.deepEqual(entries, [
      { uri: "toolmux://b/x%3A%2F%2F1", name: "n" },
      { uri: "x://1", name: "n" },
      { uri: "x://2", name: "n" },
    ]);
    const texts = events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
    assert.deepEqual(texts, [
      'Resource "x://1" of server "a": The server lists this URI twice; the first is kept.',
      'Resource "x://1" of server "b": Server "a" has the same; it is exposed as "toolmux://b/x%3A%2F%2F1".',
    ]);
  });

  it("has tools whose user interface is that of their own server, whatever that is called", async () => {
    const resources = [{ uri: "ui://v", name: "n" }];
    const [a, b] = [offering({ resources }), offering({ resources })];
    const tool =
      '{"name":"t","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui:\\/\\/v"},"x":1.0}}';
    a.tools = [tool];
    b.tools = [tool, tool.replace('"t"', '"u"').replace("v", "w")];
    const { client } = setUpHubWithClock({ a, b });
    await initialize(client);
    await list(client, "tools/list");
    const text = client.received.at(-1) ?? "";
    const own = tool.replace('"t"', '"b__t"').replace("ui:\\/\\/v", "ui://toolmux/b/v");
    for (const one of [tool.replace('"t"', '"a__t"'), own, '"b__u"']) {
      assert.ok(text.includes(one), `${one} in ${text}`);
    }
    assert.ok(text.includes("ui:\\/\\/w"));
  });

  it("has templates the same way, as templates", async () => {
    const resourceTemplates = [{ uriTemplate: "x://{y}", name: "n" }];
    const scripts = { a: offering({ resourceTemplates }), b: offering({ resourceTemplates }) };
    const { client } = setUpHubWithClock(scripts);
    await initialize(client);
    const { entries } = await list(client, "resources/templates/list");
    assert.deepEqual(
      entries.map((one) => one["uriTemplate"]),
      ["toolmux://b/x://{y}", "x://{y}"],
    );
  });

  it("comes in pages if it is very long, each entry once", async () => {
    const prompts = Array.from({ length: 2500 }, (_, i) => ({ name: `p${i}` }));
    const { client } = setUpHubWithClock({ a: offering({ prompts }) });
    await initialize(client);
    const names: unknown[] = [];
    const sizes: number[] = [];
    let cursor: string | undefined;
    do {
      const page = await list(client, "prompts/list", cursor);
      names.push(...page.entries.map(({ name }) => name));
      sizes.push(page.entries.length);
      cursor = page.next;
    } while (cursor !== undefined);
    assert.deepEqual(sizes, [1000, 1000, 500]);
    const expected = prompts.map(({ name }) => `a__${name}`).toSorted();
    assert.deepEqual(names, expected);
  });

  it("has no resource that would name another server than its own", async () => {
    const of = (...uris: string[]): ScriptedServer =>
      offering({
        resources: uris.map((uri) => ({ uri, name: "n" })),
        resourceTemplates: [{ uriTemplate: "toolmux://b/{x}", name: "n" }],
      });
    const a = of("toolmux://b/x%3A%2F%2F1", "toolmux://inner/y");
    const { client } = setUpHubWithClock({ a, b: of("x://1") });
    await initialize(client);
    const { entries } = await list(client, "resources/list");
    assert.deepEqual(
      entries.map(({ uri }) => uri),
      ["toolmux://a/toolmux%3A%2F%2Fb%2Fx%253A%252F%252F1", "toolmux://inner/y", "x://1"],
    );
    a.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    const read = async (uri: string): Promise<unknown> =>
      (await sendRequest(client, "resources/read", { uri })).error?.code;
    const other = { uri: "toolmux://b/x%3A%2F%2F1" };
    client.send({ jsonrpc: "2.0", id: 1, method: "resources/read", params: other });
    await read(String(entries[0]?.["uri"]));
    assert.deepEqual(
      a.messagesOf("resources/read").map(({ params }) => params?.["uri"]),
      ["toolmux://b/x%3A%2F%2F1"],
    );
    const templates = await list(client, "resources/templates/list");
    assert.deepEqual(
      templates.entries.map(({ uriTemplate }) => uriTemplate),
      ["toolmux://a/toolmux://b/{x}", "toolmux://b/toolmux://b/{x}"],
    );
  });

  it("is bounded: who asks for no more than the first page has the first thousand entries", async () => {
    const names = Array.from({ length: 1001 }, (_, i) => `t${1000 + i}`);
    const { client } = setUpHubWithClock({ a: new ScriptedServer(...names) });
    await initialize(client);
    const { entries, next } = await list(client, "tools/list");
    assert.deepEqual(
      entries.map(({ name }) => name),
      names.slice(0, 1000).map((name) => `a__${name}`),
    );
    const rest = await list(client, "tools/list", next);
    assert.deepEqual([rest.entries.length, rest.next], [1, undefined]);
  });

  it("goes on after the last name of a page, whatever has changed since", async () => {
    const prompts = Array.from({ length: 1500 }, (_, i) => ({ name: `p${1000 + i}` }));
    const a = offering({ prompts });
    const { client, clock } = setUpHubWithClock({ a });
    await initialize(client);
    const { next } = await list(client, "prompts/list");
    // The entry that the cursor speaks of goes, and one before and one after it come.
    a.listings = {
      prompts: [{ name: "p1" }, { name: "p9" }, ...prompts.filter(({ name }) => name !== "p1999")],
    };
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/prompts/list_changed" });
    await clock.advanceAsync(1000);
    const { entries } = await list(client, "prompts/list", next);
    const rest = prompts.slice(1000).map(({ name }) => `a__${name}`);
    assert.deepEqual(
      entries.map(({ name }) => name),
      [...rest, "a__p9"],
    );
  });

  for (const cursor of ["", "x", 7, null, Buffer.from('["tools","a"]').toString("base64url")]) {
    it(`refuses a cursor that is not its own: ${JSON.stringify(cursor)}`, async () => {
      const { client } = setUpHubWithClock({ a: new ScriptedServer() });
      await initialize(client);
      assert.equal((await sendRequest(client, "prompts/list", { cursor })).error?.code, -32602);
    });
  }
});

describe("a change of a list", () => {
  const full = (): ScriptedServer["listings"] => ({
    prompts: [{ name: "p" }],
    resources: [{ uri: "x://1", name: "n" }],
    resourceTemplates: [{ uriTemplate: "x://{y}", name: "n" }],
  });

  for (const [method, kind] of [
    ["prompts/list", "prompts"],
    ["resources/list", "resources"],
    ["resources/templates/list", "resources"],
  ] as const) {
    it(`is told to a client that was given it: ${method}`, async () => {
      const a = offering(full());
      const { client, clock, connect } = setUpHubWithClock({ a });
      const other = connect();
      await initialize(client);
      await initialize(other);
      await list(client, method);
      a.listings = { prompts: [], resources: [], resourceTemplates: [] };
      a.newestPeer?.send({ jsonrpc: "2.0", method: `notifications/${kind}/list_changed` });
      await clock.advanceAsync(1000);
      assert.deepEqual(changes(client), [
        { jsonrpc: "2.0", method: `notifications/${kind}/list_changed` },
      ]);
      assert.deepEqual(changes(other), []);
      assert.deepEqual((await list(client, method)).entries, []);
    });
  }

  it("is told to nobody who has listed nothing, and so has nothing that is outdated", async () => {
    const a = offering(full(), "t");
    const { client, clock, connect } = setUpHubWithClock({ a });
    const other = connect();
    for (const peer of [client, other]) await initialize(peer);
    await list(other, "tools/list");
    a.tools = [];
    a.listings = { prompts: [], resources: [], resourceTemplates: [] };
    for (const kind of ["tools", "prompts", "resources"])
      a.newestPeer?.send({ jsonrpc: "2.0", method: `notifications/${kind}/list_changed` });
    await clock.advanceAsync(10_000);
    assert.deepEqual(changes(client), []);
    assert.deepEqual(changes(other), [
      { jsonrpc: "2.0", method: "notifications/tools/list_changed" },
    ]);
  });

  it("is told to who has seen only the first page, wherever it is", async () => {
    const a = new ScriptedServer(...Array.from({ length: 1001 }, (_, i) => `t${1000 + i}`));
    const { client, clock } = setUpHubWithClock({ a });
    await initialize(client);
    await list(client, "tools/list");
    a.tools = a.tools.slice(0, -1);
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await clock.advanceAsync(1000);
    assert.equal(changes(client).length, 1);
  });

  it("is told to all who were given the list, also after one that was none", async () => {
    const a = new ScriptedServer("t");
    const { client, clock, connect } = setUpHubWithClock({ a });
    const other = connect();
    for (const peer of [client, other]) await initialize(peer);
    await list(client, "tools/list");
    const announce = async (...names: string[]): Promise<void> => {
      a.tools = new ScriptedServer(...names).tools;
      a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
      await clock.advanceAsync(10_000);
    };
    await announce("t", "u");
    await list(other, "tools/list");
    a.listings = { prompts: [{ name: "p" }] };
    await announce("t", "u");
    assert.deepEqual([changes(client).length, changes(other).length], [1, 0]);
    await announce("t");
    assert.deepEqual([changes(client).length, changes(other).length], [2, 1]);
  });

  it("is told when there is only more than before", async () => {
    const a = offering({ prompts: [{ name: "p" }] });
    const { client, clock } = setUpHubWithClock({ a });
    await initialize(client);
    await list(client, "prompts/list");
    a.listings = { prompts: [{ name: "p" }, { name: "q" }] };
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/prompts/list_changed" });
    await clock.advanceAsync(1000);
    assert.equal(changes(client).length, 1);
  });

  it("is told once for resources and their templates together", async () => {
    const a = offering(full());
    const { client, clock } = setUpHubWithClock({ a });
    await initialize(client);
    for (const [method] of LISTS) await list(client, method);
    a.listings = { prompts: [{ name: "p" }], resources: [], resourceTemplates: [] };
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/resources/list_changed" });
    await clock.advanceAsync(1000);
    assert.equal(changes(client).length, 1);
  });

  it("is not told if there is none, whatever the server announces", async () => {
    const a = offering(full(), "t");
    const { client, clock } = setUpHubWithClock({ a });
    await initialize(client);
    for (const [method] of LISTS) await list(client, method);
    for (const kind of ["tools", "prompts", "resources"]) {
      a.newestPeer?.send({ jsonrpc: "2.0", method: `notifications/${kind}/list_changed` });
    }
    await clock.advanceAsync(10_000);
    assert.equal(a.messagesOf("resources/templates/list").length, 2);
    assert.deepEqual(changes(client), []);
  });
});

function teller(text: string): ScriptedServer {
  const script = new ScriptedServer("t");
  script.instructions = text;
  return script;
}

/** The hub's own paragraph. */
const INTRODUCTION = HUB_DEFAULTS.instructions.replace("{separator}", "__");

describe("instructions", () => {
  for (const [what, hub, servers, own] of [
    ["say how tools are named, within 400 characters", {}, {}, INTRODUCTION],
    ["name the separator of the manifest", { separator: "-" }, {}, INTRODUCTION.replace("__", "-")],
    ["begin with the manifest's own text", { instructions: "Mind the gap." }, {}, "Mind the gap."],
    ["have no first paragraph if the manifest wants none", { instructions: "" }, {}, undefined],
    ["have none if no server has a prefix", {}, { a: { prefix: "" } }, undefined],
  ] as const) {
    it(what, async () => {
      const { client } = setUpHub({ a: teller("Be kind.") }, { hub, servers });
      client.send(INITIALIZE_REQUEST);
      const { result } = await client.find(isResponseTo("init"));
      assert.equal(result?.["instructions"], own);
      assert.ok((own ?? "").length <= 400);
    });
  }

  it("are not there in a first run, and do not hold it up", async () => {
    const { client } = setUpHub({ a: teller("Be kind.") });
    client.send(INITIALIZE_REQUEST);
    const { result } = await client.find(isResponseTo("init"));
    assert.equal(result?.["instructions"], INTRODUCTION);
  });

  it("are those of all servers in the next run, each under its server's name", async () => {
    const snapshots = memorySnapshots();
    const scripts = {
      a: teller("Be kind."),
      b: new ScriptedServer("t"),
      c: teller(" Be quick.\n"),
    };
    const first = setUpHub(scripts, { snapshots });
    await first.hub.startAllAndSettle();
    await first.hub.close();
    const { client } = setUpHub(scripts, { snapshots });
    client.send(INITIALIZE_REQUEST);
    const { result } = await client.find(isResponseTo("init"));
    const texts = [INTRODUCTION, "# a\n\nBe kind.", "# c\n\nBe quick."];
    assert.equal(result?.["instructions"], texts.join("\n\n"));
  });

  it("are waited for no longer than a moment", async () => {
    const snapshots = {
      load: () => new Promise<undefined>(() => {}),
      save: () => Promise.resolve([]),
      flush: () => Promise.resolve(),
    };
    const { client, clock } = setUpHubWithClock({ a: teller("x") }, { snapshots });
    client.send(INITIALIZE_REQUEST);
    await clock.advanceAsync(49);
    assert.equal(client.messages.length, 0);
    await clock.advanceAsync(1);
    assert.equal(client.messages.some(isResponseTo("init")), true);
  });

  it("come before the first list, although both wait for the same", async () => {
    const snapshots = memorySnapshots();
    const scripts = { a: teller("Be kind."), b: teller("Be quick.") };
    const first = setUpHub(scripts, { snapshots });
    await first.hub.startAllAndSettle();
    await first.hub.close();
    const { client } = setUpHub(scripts, { snapshots });
    client.send(INITIALIZE_REQUEST);
    await sendRequest(client, "tools/list");
    await turn();
    assert.equal(client.messages[0]?.id, "init");
  });
});
