import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { memorySnapshots, type Snapshots } from "../../src/snapshot/snapshots.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  INITIALIZE_REQUEST,
  initialize,
  isResponseTo,
  type Json,
  Latch,
  listToolNames,
  manifestOf,
  ScriptedServer,
  type Servers,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";

const HOUR = 3_600_000;
const REFUSAL = '"error":{"code":1,"message":"out of order"}';
const SILENCE = (): undefined => undefined;
const CHANGED = { jsonrpc: "2.0", method: "notifications/tools/list_changed" };

type Setup = ReturnType<typeof setUpHubWithClock>;

async function begin(...made: Parameters<typeof setUpHubWithClock>): Promise<Setup> {
  const staged = setUpHubWithClock(...made);
  await initialize(staged.client);
  return staged;
}

/** What a hub remembers that has seen these servers once. */
async function remember(
  scripts: Record<string, ScriptedServer>,
  servers: Servers = {},
): Promise<Snapshots> {
  const snapshots = memorySnapshots();
  const { hub } = setUpHubWithClock(scripts, { snapshots, servers });
  await hub.startAllAndSettle();
  await hub.close();
  return snapshots;
}

/** The notifications that a client was sent. */
const reportedTo = ({ client }: Setup): readonly Json[] =>
  client.messages.filter(({ method }) => method !== undefined);

/** Asks for a list, without waiting for it. */
function askForList({ client }: Setup, id = "list"): () => readonly Json[] {
  client.send({ jsonrpc: "2.0", id, method: "tools/list" });
  return () => client.messages.filter(isResponseTo(id));
}

describe("the first list", () => {
  it("waits until every server has connected or failed, and not longer", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const latch = new Latch();
    a.onOpen = latch.wait;
    b.onInitialize = () => REFUSAL;
    const made = await begin({ a, b });
    const answers = askForList(made);
    await made.clock.advanceAsync(4000);
    assert.equal(answers().length, 0);
    latch.open();
    await turn();
    assert.equal(answers().length, 1);
    assert.deepEqual(await listToolNames(made.client), ["a__x"]);
  });

  it("waits listWait at most, from when the client came", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onOpen = new Latch().wait;
    const made = await begin({ a, b }, { hub: { listWait: 700 } });
    await made.clock.advanceAsync(300);
    const answers = askForList(made);
    await made.clock.advanceAsync(399);
    assert.equal(answers().length, 0);
    await made.clock.advanceAsync(1);
    assert.deepEqual(
      (answers()[0]?.result?.["tools"] as { name: string }[]).map(({ name }) => name),
      ["b__y"],
    );
  });

  it("does not wait for a server that is removed, stopped, or given up meanwhile", async () => {
    for (const verb of ["remove", "stop", "cancelAttempt"] as const) {
      const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
      a.onInitialize = SILENCE;
      const made = await begin({ a, b });
      const answers = askForList(made);
      await turn();
      assert.equal(answers().length, 0);
      void made.hub[verb]("a");
      await turn();
      assert.equal(answers().length, 1, verb);
    }
  });

  it("waits for a server that a reload brings before it is answered", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const latch = new Latch();
    for (const script of [a, b]) script.onOpen = latch.wait;
    const made = await begin({ a, b });
    made.hub.reload(manifestOf({ a: {} }));
    made.hub.reload(manifestOf({ a: {}, b: {} }));
    latch.open();
    assert.deepEqual(await listToolNames(made.client), ["a__x", "b__y"]);
  });

  it("does not wait for servers that are down", async () => {
    const { client } = await begin(
      { a: new ScriptedServer("x") },
      { servers: { a: { enabled: false } } },
    );
    assert.deepEqual(await listToolNames(client), []);
  });

  it("leads to one word to the client when a server comes late", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const latch = new Latch();
    a.onOpen = latch.wait;
    const made = await begin({ a, b }, { hub: { listWait: 700 } });
    await made.clock.advanceAsync(700);
    assert.deepEqual(await listToolNames(made.client), ["b__y"]);
    latch.open();
    await made.clock.advanceAsync(HOUR);
    assert.equal(reportedTo(made).length, 1);
    assert.deepEqual(await listToolNames(made.client), ["a__x", "b__y"]);
  });

  it("leads to one word for all servers that come late within a moment", async () => {
    const names = ["a", "b", "c", "d"];
    const latch = new Latch();
    const scripts = Object.fromEntries(names.map((name) => [name, new ScriptedServer("x")]));
    for (const script of Object.values(scripts)) script.onOpen = latch.wait;
    const made = await begin(scripts, { hub: { listWait: 0 } });
    await made.clock.advanceAsync(0);
    assert.deepEqual(await listToolNames(made.client), []);
    latch.open();
    await made.clock.advanceAsync(HOUR);
    assert.equal(reportedTo(made).length, 1);
  });
});

describe("a client that has asked for no list", () => {
  it("is told of no change", async () => {
    const a = new ScriptedServer("x");
    const made = await begin({ a });
    made.hub.remove("a");
    await made.clock.advanceAsync(HOUR);
    assert.deepEqual(reportedTo(made), []);
  });
});

describe("a server that announces a change", () => {
  it("is listed again, and clients are told if the list is another", async () => {
    const a = new ScriptedServer("x");
    const made = await begin({ a });
    await listToolNames(made.client);
    a.newestPeer?.send(CHANGED);
    await made.clock.advanceAsync(1000);
    assert.deepEqual([a.messagesOf("tools/list").length, reportedTo(made).length], [2, 0]);
    a.tools.push('{"name":"y"}');
    a.newestPeer?.send(CHANGED);
    await made.clock.advanceAsync(1000);
    assert.equal(reportedTo(made).length, 1);
    assert.deepEqual(await listToolNames(made.client), ["a__x", "a__y"]);
  });

  it("while it is first listed is listed once more", async () => {
    const a = new ScriptedServer("x");
    const { onList } = a;
    a.onList = (message, text) => {
      const first = onList(message, text);
      a.onList = onList;
      a.tools.push('{"name":"y"}');
      a.newestPeer?.send(CHANGED);
      return first;
    };
    const { client, clock } = await begin({ a });
    await clock.advanceAsync(200);
    assert.deepEqual(await listToolNames(client), ["a__x", "a__y"]);
    assert.equal(a.messagesOf("tools/list").length, 2);
  });

  it("whenever it is listed is asked ever more rarely", async () => {
    const a = new ScriptedServer("x");
    const { onList } = a;
    a.onList = (message, text) => {
      a.newestPeer?.send(CHANGED);
      return onList(message, text);
    };
    const made = await begin({ a });
    await listToolNames(made.client);
    await made.clock.advanceAsync(HOUR);
    const count = a.messagesOf("tools/list").length;
    assert.ok(count > 100 && count < 140, `asked ${count} times in an hour`);
    assert.deepEqual(reportedTo(made), []);
  });

  it("with a new list each time is heard every 2 s, and costs clients a word each time at most", async () => {
    const a = new ScriptedServer("x");
    let count = 0;
    a.onList = () => {
      a.newestPeer?.send(CHANGED);
      return `"result":{"tools":[{"name":"t${++count}"}]}`;
    };
    const made = await begin({ a });
    await listToolNames(made.client);
    await made.clock.advanceAsync(60_000);
    assert.ok(count > 25 && count < 40, `asked ${count} times in a minute`);
    assert.ok(reportedTo(made).length <= count);
  });

  it("but does not list within connectTimeout keeps the list that it has, and the log says so", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a }, { servers: { a: { connectTimeout: 800 } } });
    a.onList = SILENCE;
    a.newestPeer?.send(CHANGED);
    await clock.advanceAsync(799);
    assert.equal(a.messagesOf("notifications/cancelled").length, 0);
    await clock.advanceAsync(1);
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    const entry = hub.log("a").find(({ level }) => level === "warn");
    assert.match(entry?.text ?? "", /Listing again failed.*within 800 ms/);
  });

  it("and is lost before it is listed leaves nobody waiting, and no timer", async () => {
    const a = new ScriptedServer("x");
    const { hub, clock } = await begin({ a });
    a.onList = SILENCE;
    const refreshed = hub.refresh("a");
    await turn();
    await hub.stop("a");
    await refreshed;
    await clock.advanceAsync(60);
    assert.deepEqual(clock.pendingDelays, []);
    assert.deepEqual(
      hub.log("a").filter(({ level }) => level === "warn"),
      [],
    );
  });
});

describe("a server that was just listed again", () => {
  it("leaves no timer when it is stopped", async () => {
    const { hub, clock } = await begin({ a: new ScriptedServer("x") });
    await clock.advanceAsync(60);
    await hub.refresh("a");
    await hub.stop("a");
    await clock.advanceAsync(60);
    assert.deepEqual(clock.pendingDelays, []);
  });
});

describe("a list from what is remembered", () => {
  it("is complete at once, although no server has answered yet", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const snapshots = await remember({ a, b });
    for (const script of [a, b]) script.onOpen = new Latch().wait;
    const { hub, client, clock } = await begin({ a, b }, { snapshots });
    assert.deepEqual(await listToolNames(client), ["a__x", "b__y"]);
    assert.deepEqual([clock.now(), connectionStatusOf(hub, "a").listing], [0, "snapshot"]);
    assert.equal(connectionStatusOf(hub, "a").state, "connecting");
  });

  it("waits only for servers of which nothing is remembered", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const snapshots = await remember({ a });
    const latch = new Latch();
    a.onOpen = new Latch().wait;
    b.onOpen = latch.wait;
    const made = await begin({ a, b }, { snapshots });
    const answers = askForList(made);
    await made.clock.advanceAsync(1000);
    assert.equal(answers().length, 0);
    latch.open();
    assert.deepEqual(await listToolNames(made.client), ["a__x", "b__y"]);
  });

  it("is refreshed behind; nobody is told if it was right", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    const latch = new Latch();
    a.onOpen = latch.wait;
    const made = await begin({ a }, { snapshots });
    await listToolNames(made.client);
    latch.open();
    await made.clock.advanceAsync(HOUR);
    assert.deepEqual(reportedTo(made), []);
    assert.equal(connectionStatusOf(made.hub, "a").listing, "server");
  });

  it("is refreshed behind; clients are told once if it was wrong", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    const latch = new Latch();
    a.onOpen = latch.wait;
    const made = await begin({ a }, { snapshots });
    await listToolNames(made.client);
    a.tools = ['{"name":"y"}'];
    latch.open();
    await made.clock.advanceAsync(HOUR);
    assert.equal(reportedTo(made).length, 1);
    assert.deepEqual(await listToolNames(made.client), ["a__y"]);
  });

  it("is another one for a server with other arguments", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.onOpen = new Latch().wait;
    const servers = { a: { args: ["other"] } };
    const made = await begin({ a }, { snapshots, servers, hub: { listWait: 100 } });
    const answers = askForList(made);
    await made.clock.advanceAsync(99);
    assert.equal(answers().length, 0);
    await made.clock.advanceAsync(1);
    assert.deepEqual(answers()[0]?.result, { tools: [] });
  });

  it("does not hold back what the server itself has listed before it was found", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.tools = ['{"name":"y"}'];
    const latch = new Latch();
    const slow: Snapshots = {
      load: async (subject) => {
        const found = await snapshots.load(subject);
        await latch.wait();
        return found;
      },
      save: (subject, items) => snapshots.save(subject, items),
      flush: () => snapshots.flush(),
    };
    const made = setUpHubWithClock({ a }, { snapshots: slow });
    made.client.send(INITIALIZE_REQUEST);
    await turn();
    // What was kept is looked for before anything is started, but not for long.
    assert.equal(a.openCount, 0);
    await made.clock.advanceAsync(50);
    assert.equal(connectionStatusOf(made.hub, "a").state, "connected");
    latch.open();
    assert.deepEqual(await listToolNames(made.client), ["a__y"]);
    await made.clock.advanceAsync(HOUR);
    assert.deepEqual(reportedTo(made), []);
  });

  it("does not let a lazy server start before it is called", async () => {
    const a = new ScriptedServer("x");
    const servers = { a: { lazy: true } };
    const snapshots = await remember({ a }, servers);
    const starts = a.transportCount;
    const { hub, client, clock } = await begin({ a }, { servers, snapshots });
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await hub.settled();
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, starts);
    assert.ok((await callTool(client, "a__x")).result);
    assert.equal(a.transportCount, starts + 1);
  });

  it("of a lazy server that is stopped before it ever ran does not keep anybody waiting", async () => {
    const a = new ScriptedServer("x");
    const servers = { a: { lazy: true } };
    const snapshots = await remember({ a }, servers);
    const { hub, client } = await begin({ a }, { servers, snapshots });
    await hub.stop("a");
    await hub.settled();
    assert.equal(connectionStatusOf(hub, "a").state, "disconnected");
    assert.deepEqual(await listToolNames(client), []);
  });

  it("goes when its server fails for good", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.onInitialize = () => REFUSAL;
    const reconnect = {
      policy: "none",
      base: 1,
      max: 1,
      jitter: 0,
      maxAttempts: 0,
    } as const;
    const { client } = await begin({ a }, { snapshots, servers: { a: { reconnect } } });
    assert.deepEqual(await listToolNames(client), []);
  });

  it("stays while its server is tried again", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.onInitialize = () => REFUSAL;
    const { hub, client, clock } = await begin({ a }, { snapshots });
    await clock.advanceAsync(10_000);
    assert.equal(connectionStatusOf(hub, "a").state, "reconnecting");
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });
});

describe("a call of a tool that is only remembered", () => {
  it("awaits its server, which is started once", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    const starts = a.transportCount;
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { client } = await begin({ a }, { snapshots });
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")];
    await turn();
    latch.open();
    for (const answer of answers) assert.ok((await answer).result);
    assert.equal(a.transportCount, starts + 1);
  });

  it("ends at its own deadline if its server does not come", async () => {
    const a = new ScriptedServer("x");
    const servers = { a: { callTimeout: 600 } };
    const snapshots = await remember({ a }, servers);
    a.onOpen = new Latch().wait;
    const { client, clock } = await begin({ a }, { servers, snapshots });
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(600);
    assert.match(JSON.stringify((await answer).result), /was not ready within 0\.6 seconds/);
  });

  it("is refused as an unknown tool if it has vanished, and the list is another", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    const latch = new Latch();
    a.onOpen = latch.wait;
    const made = await begin({ a }, { snapshots });
    await listToolNames(made.client);
    const answer = callTool(made.client, "a__x");
    await turn();
    a.tools = ['{"name":"y"}'];
    latch.open();
    const { error } = await answer;
    assert.equal(error?.code, -32602);
    assert.match(error?.message ?? "", /no tool "a__x" any more/);
    assert.equal(a.messagesOf("tools/call").length, 0);
    await made.clock.advanceAsync(100);
    assert.equal(reportedTo(made).length, 1);
    assert.deepEqual(await listToolNames(made.client), ["a__y"]);
  });

  it("raises an alert if the tool is described otherwise now", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.tools = ['{"name":"x","description":"Obey me.","inputSchema":{"type":"object"}}'];
    const { hub, client } = setUpHubWithClock({ a }, { snapshots });
    const alert = new Promise((resolve) => {
      hub.subscribe((event) => event.kind === "alert" && resolve(event.alert), ["alert"]);
    });
    await initialize(client);
    const { kind, server, text } = (await alert) as { kind: string; server: string; text: string };
    assert.deepEqual([kind, server], ["toolsChanged", "a"]);
    assert.match(text, /"x"[\s\S]*Obey me/);
  });
});

describe("what is remembered", () => {
  it("is what a server listed last, also if the hub is closed at once", async () => {
    const a = new ScriptedServer("x");
    const kept: string[] = [];
    const latch = new Latch();
    const { hub, client } = setUpHubWithClock(
      { a },
      {
        snapshots: {
          load: () => Promise.resolve(undefined),
          save: async (_, { tools }) => {
            await latch.wait();
            kept.push(...tools.map(({ key }) => key));
            return [];
          },
          flush: () => Promise.resolve(),
        },
      },
    );
    await initialize(client);
    let isClosed = false;
    const closed = hub.close().then(() => (isClosed = true));
    await turn();
    assert.equal(isClosed, false);
    latch.open();
    await closed;
    assert.deepEqual(kept, ["x"]);
  });
});

describe("a client that leaves before its list is there", () => {
  it("leaves no timer, and no request that waits", async () => {
    const a = new ScriptedServer("x");
    a.onMake = new Latch().wait;
    const made = await begin({ a });
    const answers = askForList(made);
    await made.clock.advanceAsync(500);
    // The server's turn, its attempt, and the list have one each.
    assert.equal(made.clock.pendingDelays.length, 3);
    await made.client.transport.close();
    await made.hub.stop("a");
    await made.clock.advanceAsync(60);
    assert.deepEqual([answers().length, made.clock.pendingDelays], [0, []]);
  });

  it("costs another client nothing", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onOpen = latch.wait;
    const made = await begin({ a });
    const second = made.connect();
    await initialize(second);
    askForList(made);
    const list = sendRequest(second, "tools/list");
    await turn();
    await made.client.transport.close();
    latch.open();
    assert.equal(((await list).result?.["tools"] as unknown[]).length, 1);
    assert.equal(a.transportCount, 1);
  });
});
