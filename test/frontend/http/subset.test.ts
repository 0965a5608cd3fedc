import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { subsetOf } from "../../../src/upstream/profile.ts";
import { chunkedTransportPair } from "../../fixtures/memory-transport.ts";
import { sendServerRequest, SAMPLING_PARAMS } from "../../fixtures/server-requests.ts";
import { turn, VirtualClock } from "../../fixtures/virtual-clock.ts";
import { setUpHttp, type HttpTestClient } from "../../fixtures/http-client.ts";
import {
  INITIALIZE_REQUEST,
  initialize,
  type Json,
  Latch,
  listToolNames,
  manifestFor,
  Peer,
  ScriptedServer,
  type HubSetupOptions,
  setUpHub,
} from "../../fixtures/memory-hub.ts";

const TOOLS_CHANGED = "notifications/tools/list_changed";
const CHANGED = { jsonrpc: "2.0", method: TOOLS_CHANGED };
const SAMPLING = "sampling/createMessage";
const BOTH_HAVE = "x://both";

/** A server with something of each kind. */
function makeServer(name: string): ScriptedServer {
  const script = new ScriptedServer("t");
  script.listings = {
    prompts: [{ name: "p" }],
    resources: [
      { uri: `${name}://one`, name: "one" },
      { uri: BOTH_HAVE, name: "both" },
    ],
    resourceTemplates: [{ uriTemplate: `${name}://{x}`, name: "any" }],
  };
  script.instructions = `Use ${name}.`;
  const read = (message: Json): string =>
    `"result":{"contents":[],"of":${JSON.stringify([name, message.params?.["uri"]])}}`;
  script.handlers = {
    "resources/read": read,
    "resources/subscribe": () => '"result":{}',
    "prompts/get": (message) => `"result":{"messages":[],"of":${JSON.stringify(message.params)}}`,
  };
  return script;
}

/** Three servers over HTTP, under a clock that the test moves; only who is wanted is started. */
function begin(settings: HubSetupOptions = {}) {
  const scripts = { a: makeServer("a"), b: makeServer("b"), c: makeServer("c") };
  const clock = new VirtualClock();
  const setup = setUpHttp(scripts, { ...settings, clock, random: () => 0 });
  /** Whoever speaks at that path, and has introduced itself. */
  const open = async (path: string, capabilities: object = {}): Promise<HttpTestClient> => {
    const one = setup.newClient(path);
    await one.initialize(INITIALIZE_REQUEST.params.protocolVersion, capabilities);
    await turn();
    return one;
  };
  return { ...setup, scripts, clock, open };
}

async function ask(one: HttpTestClient, method: string, params: object = {}): Promise<Json> {
  const response = await one.post({ jsonrpc: "2.0", id: 1, method, params });
  assert.equal(response.status, 200);
  return (await response.json()) as Json;
}

/** All that is listed, of each kind, by its name or URI. */
async function listAll(one: HttpTestClient): Promise<Record<string, unknown[]>> {
  const pick = async (method: string, kind: string, key: string): Promise<unknown[]> => {
    const { result } = await ask(one, method);
    return (result?.[kind] as Record<string, unknown>[]).map((item) => item[key]);
  };
  return {
    tools: await pick("tools/list", "tools", "name"),
    prompts: await pick("prompts/list", "prompts", "name"),
    resources: await pick("resources/list", "resources", "uri"),
    templates: await pick("resources/templates/list", "resourceTemplates", "uriTemplate"),
  };
}

const starts = ({ scripts }: ReturnType<typeof begin>): number[] =>
  Object.values(scripts).map(({ transportCount }) => transportCount);

describe("one server's address", () => {
  it("shows all of that server under its own names, and starts it alone", async () => {
    const resources = ["b://one", BOTH_HAVE];
    const own = { tools: ["t"], prompts: ["p"], resources, templates: ["b://{x}"] };
    const paths = ["/mcp/b", "/mcp?servers=b", "/mcp?servers=b,b", "/mcp/b?servers=a"];
    for (const path of paths) {
      const setup = begin();
      assert.deepEqual(await listAll(await setup.open(path)), own);
      assert.deepEqual(starts(setup), [0, 1, 0]);
    }
  });

  it("shares the server's process with who uses all", async () => {
    const setup = begin();
    await setup.open("/mcp/a");
    await setup.open("/mcp");
    await setup.open("/mcp?servers=c,a");
    assert.deepEqual(starts(setup), [1, 1, 1]);
  });

  it("has calls, prompts and reads routed to that server", async () => {
    const { open } = begin();
    const one = await open("/mcp/b");
    const called = await ask(one, "tools/call", { name: "t", arguments: { n: 1 } });
    assert.deepEqual(called.result?.["echo"], { name: "t", arguments: { n: 1 } });
    assert.deepEqual((await ask(one, "prompts/get", { name: "p" })).result?.["of"], { name: "p" });
    for (const uri of [BOTH_HAVE, "b://one", "b://other"]) {
      assert.deepEqual((await ask(one, "resources/read", { uri })).result?.["of"], ["b", uri]);
    }
  });

  it("reaches nothing of other servers, however it is named", async () => {
    const setup = begin();
    const all = await setup.open("/mcp");
    const one = await setup.open("/mcp/b");
    const resources = ["a://one", "a://other", "toolmux://a/a%3A%2F%2Fone"];
    for (const uri of resources) {
      assert.ok((await ask(all, "resources/read", { uri })).result, uri);
      assert.equal((await ask(one, "resources/read", { uri })).error?.code, -32002, uri);
      assert.equal((await ask(one, "resources/subscribe", { uri })).error?.code, -32002, uri);
    }
    for (const name of ["a__t", "b__t"]) {
      assert.equal((await ask(one, "tools/call", { name })).error?.code, -32602, name);
    }
  });

  it("tells what that server wants models to know, and no other", async () => {
    const setup = begin();
    await setup.hub.startAllAndSettle();
    const one = setup.newClient("/mcp/b");
    const { result } = (await (await one.post(INITIALIZE_REQUEST)).json()) as Json;
    assert.equal(result?.["instructions"], "# b\n\nUse b.");
  });

  it("has its lists as soon as that server has", async () => {
    const setup = begin();
    setup.scripts.a.onOpen = () => new Promise(() => {});
    await setup.open("/mcp");
    assert.deepEqual((await listAll(await setup.open("/mcp/b")))["tools"], ["t"]);
  });

  it("says so when that server was stopped, whatever its prefix elsewhere", async () => {
    for (const prefix of ["b", ""]) {
      const { open, hub } = begin({ servers: { b: { prefix } } });
      const one = await open("/mcp/b");
      await hub.stop("b");
      await hub.stop("a");
      assert.deepEqual((await listAll(one))["tools"], []);
      const { error } = await ask(one, "tools/call", { name: "t" });
      assert.equal(error?.message, 'Server "b" is stopped, so there is no tool "t" now.');
    }
  });

  it("has a call wait for what that server has not listed yet", async () => {
    const { open, scripts } = begin();
    const latch = new Latch();
    scripts.b.onOpen = latch.wait;
    const one = await open("/mcp/b");
    const called = ask(one, "tools/call", { name: "t" });
    await turn();
    latch.open();
    assert.deepEqual((await called).result?.["echo"], { name: "t" });
  });

  it("leaves that server to whoever comes next, though others are there who do not want it", async () => {
    const { open, scripts } = begin();
    const one = await open("/mcp/a", { sampling: {} });
    await open("/mcp/b");
    await one.request("DELETE", undefined);
    await turn();
    assert.equal(scripts.a.openCount, 1);
  });

  it("starts nothing of others when one of them is asked for by a person", async () => {
    const setup = begin();
    await setup.open("/mcp/b");
    setup.hub.start("a");
    await turn();
    assert.deepEqual(starts(setup), [1, 1, 0]);
    assert.deepEqual((await listAll(await setup.open("/mcp/a")))["tools"], ["t"]);
    assert.equal(setup.scripts.a.openCount, 1);
  });
});

describe("an address of several servers", () => {
  it("shows these under their usual names, in whatever order they are named", async () => {
    const setup = begin();
    const expected = {
      tools: ["b__t", "c__t"],
      prompts: ["b__p", "c__p"],
      resources: ["b://one", "c://one", "toolmux://c/x%3A%2F%2Fboth", BOTH_HAVE],
      templates: ["b://{x}", "c://{x}"],
    };
    assert.deepEqual(await listAll(await setup.open("/mcp?servers=c,b")), expected);
    assert.deepEqual(await listAll(await setup.open("/mcp?servers=b&servers=c")), expected);
    assert.deepEqual(starts(setup), [0, 1, 1]);
  });

  it("has nothing remarked on that was not remarked on of the whole", async () => {
    const { open, hub, clock, events } = begin();
    await hub.startAllAndSettle();
    await clock.advanceAsync(1000);
    const remarks = (): unknown[] =>
      events.filter((event) => event.kind === "log" && event.text.includes(BOTH_HAVE));
    assert.equal(remarks().length, 2);
    await listAll(await open("/mcp?servers=c,b"));
    await clock.advanceAsync(1000);
    assert.equal(remarks().length, 2);
  });

  it("keeps the process of a server that each client has for itself to those who want it", async () => {
    const setup = begin({ servers: { a: { isolation: "perClient" } } });
    await setup.open("/mcp/a");
    await setup.open("/mcp?servers=a,b");
    await setup.open("/mcp/b");
    assert.deepEqual(starts(setup), [2, 1, 0]);
  });
});

describe("what servers say", () => {
  it("is asked of the one client that has to do with that server", async () => {
    const { open, scripts } = begin();
    const capabilities = { sampling: {} };
    const one = await open("/mcp/a", capabilities);
    const other = await open("/mcp/b", capabilities);
    const [received, missed] = [await one.openStream(), await other.openStream()];
    const answer = sendServerRequest(scripts.a, "s", SAMPLING, SAMPLING_PARAMS);
    const asked = await received.message();
    assert.equal(asked.method, SAMPLING);
    const result = { role: "assistant" };
    assert.equal((await one.post({ jsonrpc: "2.0", id: asked.id, result })).status, 202);
    assert.deepEqual((await answer).result, result);
    const params = { level: "error", data: "of b" };
    scripts.a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    scripts.b.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    assert.equal((await received.message()).params?.["logger"], "a");
    assert.equal((await missed.message()).params?.["logger"], "b");
  });

  it("is refused if it may be asked of two", async () => {
    const { open, scripts } = begin();
    await open("/mcp/a", { sampling: {} });
    await open("/mcp", { sampling: {} });
    const { error } = await sendServerRequest(scripts.a, "s", SAMPLING, SAMPLING_PARAMS);
    assert.match(error?.message ?? "", /perClient/);
  });

  it("changes the lists of those alone who have to do with that server", async () => {
    const { open, scripts, clock } = begin();
    const [all, one, other] = [await open("/mcp"), await open("/mcp/a"), await open("/mcp/b")];
    for (const httpClient of [all, one, other]) await listAll(httpClient);
    const own = await other.openStream();
    const change = async (script: ScriptedServer, name: string): Promise<void> => {
      script.tools = [JSON.stringify({ name, inputSchema: { type: "object" } })];
      script.newestPeer?.send(CHANGED);
      await clock.advanceAsync(5000);
    };
    await change(scripts.a, "u");
    assert.equal((await (await all.openStream()).message()).method, TOOLS_CHANGED);
    assert.equal((await (await one.openStream()).message()).method, TOOLS_CHANGED);
    assert.deepEqual((await listAll(one))["tools"], ["u"]);
    await other.request("DELETE", undefined);
    assert.deepEqual(await own.remainingMessages(), []);
  });
});

describe("an address", () => {
  it("of a server that there is not is refused, and says which there are, as other methods are", async () => {
    const { newClient, server: face } = begin();
    for (const path of ["/mcp/x", "/mcp?servers=a,x", "/mcp?servers=x"]) {
      const response = await newClient(path).post(INITIALIZE_REQUEST);
      assert.equal(response.status, 404, path);
      const { error } = (await response.json()) as Json;
      assert.match(error?.message ?? "", /"x".*"a", "b", "c"\.$/);
    }
    for (const method of ["GET", "DELETE"] as const)
      assert.equal((await newClient("/mcp/x").request(method, undefined)).status, 404, method);
    assert.equal((await newClient("/mcp/a").request("GET", undefined)).status, 400);
    assert.equal((await newClient("/mcp/a").request("PUT", undefined)).status, 405);
    assert.equal((await newClient("/mcp?servers=").post(INITIALIZE_REQUEST)).status, 404);
    assert.equal((await newClient("/mcp/a/b").post(INITIALIZE_REQUEST)).status, 404);
    assert.equal(face.sessions, 0);
  });

  it("is the only one where its sessions are", async () => {
    const { open } = begin();
    const one = await open("/mcp?servers=a,b");
    const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
    for (const path of ["/mcp", "/mcp/a", "/mcp?servers=a", "/mcp?servers=a,b,c", "/mcp/x"]) {
      one.path = path;
      for (const method of ["POST", "GET", "DELETE"]) {
        const { status } = await one.request(method, method === "POST" ? ping : undefined);
        assert.equal(status, 404, `${method} ${path}`);
      }
    }
    one.path = "/mcp?servers=b,a";
    assert.ok((await ask(one, "ping")).result);
    assert.equal((await one.request("DELETE", undefined)).status, 204);
  });

  it("may spell a server's name as addresses do", async () => {
    const setup = setUpHttp({ "my server": new ScriptedServer("t"), b: new ScriptedServer("t") });
    const one = setup.newClient("/mcp/my%20server");
    await one.initialize();
    assert.match(JSON.stringify((await ask(one, "tools/list")).result?.["tools"]), /"name":"t"/);
  });
});

describe("a manifest that changes", () => {
  it("takes a server from those who had it alone, and gives it back to them", async () => {
    const { open, newClient, hub, scripts, clock } = begin();
    const one = await open("/mcp/b");
    const events = await one.openStream();
    assert.deepEqual((await listAll(one))["tools"], ["t"]);
    const { a, b } = scripts;
    hub.reload(manifestFor({ a }, {}));
    await clock.advanceAsync(100);
    assert.equal((await events.message()).method, TOOLS_CHANGED);
    assert.deepEqual((await listAll(one))["tools"], []);
    assert.equal((await newClient("/mcp/b").post(INITIALIZE_REQUEST)).status, 404);
    hub.reload(manifestFor({ a, b }, {}));
    await clock.advanceAsync(100);
    assert.deepEqual((await listAll(one))["tools"], ["t"]);
  });

  it("adds a server only for those who want it", async () => {
    const setup = begin();
    const { hub, scripts } = setup;
    hub.remove("a");
    await setup.open("/mcp/b");
    hub.reload(manifestFor(scripts, {}));
    await turn();
    assert.deepEqual(starts(setup), [0, 1, 0]);
  });
});

describe("catalogs of parts", () => {
  it("are kept, but not for as many parts as there may be", async () => {
    const names = ["a", "b", "c", "d", "e", "f", "g"];
    const scripts = Object.fromEntries(names.map((name) => [name, new ScriptedServer("t")]));
    const { hub, client } = setUpHub(scripts);
    await initialize(client);
    await listToolNames(client);
    const whole = hub.catalog;
    const parts = Array.from({ length: 2 ** names.length - 1 }, (_, i) =>
      names.filter((__, bit) => ((i + 1) >> bit) & 1),
    );
    for (const [i, part] of parts.entries()) {
      if (i === 60) assert.equal(hub.catalog, whole);
      const [ours, theirs] = chunkedTransportPair();
      void hub.accept(ours, new AbortController().signal, { subset: subsetOf(part) });
      const peer = new Peer(theirs);
      await initialize(peer);
      const shown = part.length === 1 ? ["t"] : part.map((name) => `${name}__t`);
      assert.deepEqual(await listToolNames(peer), shown);
    }
    assert.notEqual(hub.catalog, whole);
  });
});
