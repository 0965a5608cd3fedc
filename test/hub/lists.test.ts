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
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { notify, post } from "../fixtures/peer-messages.ts";
import { LegacyTaskServer } from "../fixtures/legacy-task-server.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";

const LISTS = [
  ["tools/list", "tools"],
  ["prompts/list", "prompts"],
  ["resources/list", "resources"],
  ["resources/templates/list", "resourceTemplates"],
] as const;

type Entry = Readonly<Record<string, unknown>>;

async function list(client: Peer, method: string, cursor?: string) {
  const params = cursor === undefined ? {} : { cursor };
  const { result, error } = await sendRequest(client, method, params);
  assert.equal(error, undefined);
  const key = LISTS.find(([one]) => one === method)?.[1] ?? "";
  return { entries: result?.[key] as Entry[], next: result?.["nextCursor"] as string | undefined };
}

function offering(listings: ScriptedServer["listings"], ...tools: string[]): ScriptedServer {
  return Object.assign(new ScriptedServer(...tools), { listings });
}

/** A hub whose client has introduced itself. */
async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const setup = setUpHubWithClock(...made);
  await initialize(setup.client);
  return setup;
}

/** The same with one server that announces changes, and another client. */
async function beginOne(a: ScriptedServer) {
  const setup = await begin({ a });
  const { client, clock, connect } = setup;
  const other = connect();
  await initialize(other);
  return {
    client,
    other,
    change: async (...kinds: string[]): Promise<void> => {
      for (const kind of kinds) notify(a.newestPeer, `notifications/${kind}/list_changed`);
      await clock.advanceAsync(10_000);
    },
    /** The kinds of lists that either client was told have changed. */
    changes: () => [client, other].map(changesOf),
  };
}

const changesOf = ({ messages }: Peer): string[] =>
  messages.flatMap(({ method }) => method?.split("/")[1] ?? []);

describe("a list of any kind", () => {
  for (const [method, key] of LISTS) {
    it(`is empty where no server offers any: ${method}`, async () => {
      const { client } = await begin({ a: new ScriptedServer() });
      assert.deepEqual((await sendRequest(client, method)).result, { [key]: [] });
    });

    it(`waits until the servers have listed: ${method}`, async () => {
      const a = offering({ prompts: [], resources: [], resourceTemplates: [] });
      a.onInitialize = () => undefined;
      const { client, clock } = await begin({ a }, { hub: { listWait: 5000 } });
      post(client, 1, method);
      await clock.advanceAsync(4999);
      assert.ok(!client.messages.some(isResponseTo(1)));
      await clock.advanceAsync(1);
      assert.ok(client.messages.some(isResponseTo(1)));
    });
  }

  it("has prompts under prefixes, as its rules say, and otherwise as they are", async () => {
    const others = ["draft", "old", "od d"].map((name) => ({ name }));
    const a = offering({ prompts: [{ name: "b", x: 1 }, ...others] });
    const prompts = { allow: undefined, deny: ["d*"], rename: { old: "new" } };
    const { client } = await begin({ a }, { servers: { a: { prompts } } });
    const { entries } = await list(client, "prompts/list");
    assert.deepEqual(entries.slice(0, 2), [{ name: "a__b", x: 1 }, { name: "a__new" }]);
    assert.match(String(entries[2]?.["name"]), /^a__od_d_[a-z2-7]{6}$/);
    assert.equal(entries.length, 3);
  });

  it("has tools with the description, annotations and _meta that the manifest sets for them", async () => {
    const a = new ScriptedServer();
    a.tools = ['{"name":"t","description":"old","inputSchema":{"type":"object"},"x":1.0}'];
    const rules = { allow: undefined, deny: [], rename: {}, timeout: {} };
    const tools = {
      ...rules,
      describe: { t: "new" },
      meta: { t: { "anthropic/searchHint": "find" } },
      annotations: { t: { readOnlyHint: true } },
    };
    const { client } = await begin({ a }, { servers: { a: { tools } } });
    await list(client, "tools/list");
    const entry =
      '{"name":"a__t","description":"new","inputSchema":{"type":"object"},"x":1.0,"annotations":{"readOnlyHint":true},"_meta":{"anthropic/searchHint":"find"}}';
    assert.ok(client.received.at(-1)?.includes(entry), client.received.at(-1) ?? "");
  });

  it("has resources under their own URIs, and the second of one URI under one that names its server", async () => {
    const resources = [{ uri: "x://1", name: "n" }];
    const a = offering({ resources: [...resources, { uri: "x://1", name: "again" }] });
    const b = offering({ resources: [...resources, { uri: "x://2", name: "n" }] });
    const { client, events } = await begin({ a, b });
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
    const { client } = await begin({ a, b });
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
    const [a, b] = [offering({ resourceTemplates }), offering({ resourceTemplates })];
    const { client } = await begin({ a, b });
    const { entries } = await list(client, "resources/templates/list");
    const uris = entries.map(({ uriTemplate }) => uriTemplate);
    assert.deepEqual(uris, ["toolmux://b/x://{y}", "x://{y}"]);
  });

  it("comes in pages of a thousand, each entry once", async () => {
    const prompts = Array.from({ length: 2500 }, (_, i) => ({ name: `p${i}` }));
    const { client } = await begin({ a: offering({ prompts }) });
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
    const { client } = await begin({ a, b: of("x://1") });
    const { entries } = await list(client, "resources/list");
    const uris = entries.map(({ uri }) => uri);
    const [renamed] = uris;
    assert.equal(renamed, "toolmux://a/toolmux%3A%2F%2Fb%2Fx%253A%252F%252F1");
    assert.deepEqual(uris.slice(1), ["toolmux://inner/y", "x://1"]);
    a.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    post(client, 1, "resources/read", { uri: "toolmux://b/x%3A%2F%2F1" });
    await sendRequest(client, "resources/read", { uri: renamed });
    const read = a.messagesOf("resources/read").map(({ params }) => params?.["uri"]);
    assert.deepEqual(read, ["toolmux://b/x%3A%2F%2F1"]);
    const templates = (await list(client, "resources/templates/list")).entries;
    const all = templates.map(({ uriTemplate }) => uriTemplate);
    assert.deepEqual(all, ["toolmux://a/toolmux://b/{x}", "toolmux://b/toolmux://b/{x}"]);
  });

  it("goes on after the last name of a page, whatever has changed since", async () => {
    const prompts = Array.from({ length: 1500 }, (_, i) => ({ name: `p${1000 + i}` }));
    const a = offering({ prompts });
    const { client, change } = await beginOne(a);
    const { next } = await list(client, "prompts/list");
    // The entry that the cursor speaks of goes, and one before and one after it come.
    const rest = prompts.filter(({ name }) => name !== "p1999");
    a.listings = { prompts: [{ name: "p1" }, { name: "p9" }, ...rest] };
    await change("prompts");
    const { entries } = await list(client, "prompts/list", next);
    const expected = [...prompts.slice(1000), { name: "p9" }].map(({ name }) => `a__${name}`);
    assert.deepEqual(
      entries.map(({ name }) => name),
      expected,
    );
  });

  for (const cursor of ["", "x", 7, Buffer.from('["tools","a"]').toString("base64url")]) {
    it(`refuses a cursor that is not its own: ${JSON.stringify(cursor)}`, async () => {
      const { client } = await begin({ a: new ScriptedServer() });
      assert.equal((await sendRequest(client, "prompts/list", { cursor })).error?.code, -32602);
    });
  }
});

describe("the cursor null", () => {
  it("is no cursor: the list begins at its first page", async () => {
    for (const [method, key] of LISTS) {
      const { client } = await begin({ a: new ScriptedServer() });
      const { result } = await sendRequest(client, method, { cursor: null });
      assert.deepEqual(result, { [key]: [] });
    }
  });

  it("is no cursor for modern clients and for lists of tasks either", async () => {
    const { client } = await begin({ a: new LegacyTaskServer() });
    const { result } = await sendRequest(client, "tasks/list", { cursor: null });
    assert.deepEqual(result, { tasks: [] });
    const modern = setUpHub({ a: new ScriptedServer("t") }).client;
    const listed = await sendModernRequest(modern, "tools/list", { cursor: null });
    assert.equal((listed.result?.["tools"] as unknown[]).length, 1);
  });

  it("ends the list of a server of either era", async () => {
    for (const server of [new ScriptedServer("t"), new ModernScriptedServer("t")]) {
      const { onList } = server;
      server.onList = (message, text) => onList(message, text)?.replace("{", '{"nextCursor":null,');
      const { client } = await begin({ a: server }, { servers: { a: { era: "auto" } } });
      const { result } = await sendRequest(client, "tools/list");
      assert.equal((result?.["tools"] as unknown[]).length, 1);
      assert.equal(server.messagesOf("tools/list").length, 1);
    }
  });
});

describe("a change of a list", () => {
  const EMPTY = { prompts: [], resources: [], resourceTemplates: [] };
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
      const { client, change, changes } = await beginOne(a);
      await list(client, method);
      a.listings = EMPTY;
      await change(kind);
      assert.deepEqual(changes(), [[kind], []]);
      assert.deepEqual((await list(client, method)).entries, []);
    });
  }

  it("is told to nobody who has listed nothing, and so has nothing that is outdated", async () => {
    const a = offering(full(), "t");
    const { other, change, changes } = await beginOne(a);
    await list(other, "tools/list");
    Object.assign(a, { tools: [], listings: EMPTY });
    await change("tools", "prompts", "resources");
    assert.deepEqual(changes(), [[], ["tools"]]);
  });

  it("is told to who has seen only the first page, wherever it is", async () => {
    const a = new ScriptedServer(...Array.from({ length: 1001 }, (_, i) => `t${1000 + i}`));
    const { client, change, changes } = await beginOne(a);
    await list(client, "tools/list");
    a.tools = a.tools.slice(0, -1);
    await change("tools");
    assert.deepEqual(changes(), [["tools"], []]);
  });

  it("is told to all who were given the list, also if there is only more than before, and after one that was none", async () => {
    const a = new ScriptedServer("t");
    const { client, other, change, changes } = await beginOne(a);
    await list(client, "tools/list");
    const announce = async (...names: string[]): Promise<void> => {
      a.tools = new ScriptedServer(...names).tools;
      await change("tools");
    };
    await announce("t", "u");
    await list(other, "tools/list");
    a.listings = { prompts: [{ name: "p" }] };
    await announce("t", "u");
    assert.deepEqual(changes(), [["tools"], []]);
    await announce("t");
    assert.deepEqual(changes(), [["tools", "tools"], ["tools"]]);
  });

  it("is told once for resources and their templates together, and not if there is none, whatever is announced", async () => {
    const a = offering(full(), "t");
    const { client, change, changes } = await beginOne(a);
    for (const [method] of LISTS) await list(client, method);
    await change("tools", "prompts", "resources");
    assert.equal(a.messagesOf("resources/templates/list").length, 2);
    assert.deepEqual(changes(), [[], []]);
    a.listings = { ...EMPTY, prompts: [{ name: "p" }] };
    await change("resources");
    assert.deepEqual(changes(), [["resources"], []]);
  });
});

/** The hub's own paragraph. */
const INTRODUCTION = HUB_DEFAULTS.instructions.replace("{separator}", "__");

describe("instructions", () => {
  const teller = (instructions: string): ScriptedServer =>
    Object.assign(new ScriptedServer("t"), { instructions });

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

  /** The answer to `initialize` in a first or a second run. */
  async function instructionsOf(scripts: Record<string, ScriptedServer>, isFirst = false) {
    const snapshots = memorySnapshots();
    if (!isFirst) {
      const { hub } = setUpHub(scripts, { snapshots });
      await hub.startAllAndSettle();
      await hub.close();
    }
    const { client } = setUpHub(scripts, { snapshots });
    client.send(INITIALIZE_REQUEST);
    const listed = sendRequest(client, "tools/list");
    const { result } = await client.find(isResponseTo("init"));
    await listed;
    await turn();
    assert.equal(client.messages[0]?.id, "init", "it comes before the first list");
    return result?.["instructions"];
  }

  it("are not there in a first run, and do not hold it up", async () => {
    assert.equal(await instructionsOf({ a: teller("Be kind.") }, true), INTRODUCTION);
  });

  it("are those of all servers in the next run, each under its server's name, and come before the first list", async () => {
    const b = new ScriptedServer("t");
    const scripts = { a: teller("Be kind."), b, c: teller(" Be quick.\n") };
    const texts = [INTRODUCTION, "# a\n\nBe kind.", "# c\n\nBe quick."];
    assert.equal(await instructionsOf(scripts), texts.join("\n\n"));
  });

  it("are waited for no longer than a moment", async () => {
    const snapshots = memorySnapshots();
    snapshots.load = () => new Promise<undefined>(() => {});
    const { client, clock } = setUpHubWithClock({ a: teller("x") }, { snapshots });
    client.send(INITIALIZE_REQUEST);
    await clock.advanceAsync(49);
    assert.equal(client.messages.length, 0);
    await clock.advanceAsync(1);
    assert.ok(client.messages.some(isResponseTo("init")));
  });
});
