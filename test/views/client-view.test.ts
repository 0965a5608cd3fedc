import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Alert } from "../../src/base/hub-events.ts";
import { LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import { memorySnapshots, type Snapshots } from "../../src/snapshot/snapshots.ts";
import { HubError } from "../../src/base/errors.ts";
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
import { notify, post } from "../fixtures/peer-messages.ts";

const HOUR = 3_600_000;
const CHANGED = "notifications/tools/list_changed";
const REFUSE = (): string => '"error":{"code":1,"message":"out of order"}';
const SILENCE = (): undefined => undefined;
const HANG = (): Promise<void> => new Promise(() => {});
const TOOL_Y = ['{"name":"y"}'];

async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const setup = setUpHubWithClock(...made);
  const { client, clock, hub } = setup;
  await initialize(client);
  return {
    ...setup,
    /** The notifications that the client was sent. */
    reported: (): readonly Json[] => client.messages.filter(({ method }) => method !== undefined),
    list: () => listToolNames(client),
    /** Asks for a list, which is not there after so many ms. @returns the answers so far */
    askForList: async (ms: number): Promise<() => readonly Json[]> => {
      post(client, "list", "tools/list");
      const answers = (): readonly Json[] => client.messages.filter(isResponseTo("list"));
      await clock.advanceAsync(ms);
      assert.deepEqual(answers(), []);
      return answers;
    },
    statusOf: (name = "a") => connectionStatusOf(hub, name),
  };
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

/** A hub that remembers a server, which is like this now. */
async function beginRemembered(
  now: Partial<ScriptedServer> = {},
  servers: Servers = {},
  startDelay?: number,
) {
  const a = new ScriptedServer("x");
  const snapshots = await remember({ a }, servers);
  const starts = a.transportCount;
  Object.assign(a, now);
  const setup = await begin({ a }, { snapshots, servers, startDelay });
  return { ...setup, a, newStarts: () => a.transportCount - starts };
}

/** Two servers, which open when the latch does. */
function makeTwo() {
  const latch = new Latch();
  const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
  a.onOpen = b.onOpen = latch.wait;
  return { a, b, latch };
}

describe("the cursor of a server's list", () => {
  const tool = (name: string): string => `{"name":"${name}","inputSchema":{"type":"object"}}`;
  const page = (names: string, more = ""): string =>
    `"result":{"tools":[${names.split("").map(tool).join(",")}]${more}}`;
  const next = (cursor: unknown): string => `,"nextCursor":${JSON.stringify(cursor)}`;
  const refused = '"error":{"code":-32602,"message":"Invalid cursor"}';
  let count = 0;
  const lists: Readonly<Record<string, (cursor: unknown) => string>> = {
    "is always the same, and so is the page": () => page("xy", next("c")),
    "is always another, and the page is always the same": () => page("xy", next(`c${++count}`)),
    "is in a circle": (cursor) => (cursor === "b" ? page("y", next("a")) : page("x", next("b"))),
    "is empty, and the page is always the same": () => page("xy", next("")),
    "is empty, and refused": (cursor) => (cursor === undefined ? page("xy", next("")) : refused),
    "is refused": (cursor) => (cursor === undefined ? page("xy", next("c")) : refused),
    "is a number": () => page("xy", next(2)),
    "is an object": () => page("xy", next({ page: 2 })),
    "is false": () => page("xy", next(false)),
  };
  for (const [what, answer] of Object.entries(lists)) {
    it(`costs one warning and lists each tool once if it ${what}`, async () => {
      const a = new ScriptedServer();
      a.onList = ({ params }) => answer(params?.["cursor"]);
      const { list, hub, clock } = await begin({ a });
      assert.deepEqual(await list(), ["a__x", "a__y"]);
      notify(a.newestPeer, CHANGED);
      await clock.advanceAsync(1000);
      assert.deepEqual(hub.catalog.notes, []);
      const warnings = hub.log("a").filter(({ level }) => level === "warn");
      assert.equal(warnings.length, 1, JSON.stringify(warnings));
      assert.ok(a.messagesOf("tools/list").length <= 8);
    });
  }

  it("may be empty, and ends the list if it is null or absent", async () => {
    const a = new ScriptedServer();
    a.onList = ({ params }) =>
      params?.["cursor"] === "" ? page("y", next(null)) : page("x", next(""));
    const { list, hub } = await begin({ a });
    assert.deepEqual(await list(), ["a__x", "a__y"]);
    assert.deepEqual(
      hub.log("a").filter(({ level }) => level === "warn"),
      [],
    );
  });
});

describe("the first list", () => {
  it("waits until every server has connected or failed, and not longer", async () => {
    const { a, b, latch } = makeTwo();
    Object.assign(b, { onOpen: undefined, onInitialize: REFUSE });
    const { list, askForList } = await begin({ a, b });
    const answers = await askForList(3900);
    latch.open();
    await turn();
    assert.equal(answers().length, 1);
    assert.deepEqual(await list(), ["a__x"]);
  });

  it("waits listWait at most, from when the client came, and one word follows when a server comes late", async () => {
    const { a, b, latch } = makeTwo();
    b.onOpen = undefined;
    const { clock, list, askForList, reported } = await begin({ a, b }, { hub: { listWait: 700 } });
    await clock.advanceAsync(300);
    const answers = await askForList(399);
    await clock.advanceAsync(1);
    assert.deepEqual(JSON.stringify(answers()[0]?.result).match(/\w__\w/g), ["b__y"]);
    assert.deepEqual(await list(), ["b__y"]);
    latch.open();
    await clock.advanceAsync(HOUR);
    assert.equal(reported().length, 1);
    assert.deepEqual(await list(), ["a__x", "b__y"]);
  });

  for (const [what, settings] of [
    ["a server", {}],
    ["a server that only calls start", { a: { lazy: true } }],
  ] as const) {
    it(`looks again for a program that was missing, of ${what}, and has what it lists then`, async () => {
      const a = new ScriptedServer("x");
      const missing = new HubError("commandNotFound", "It is not installed.", { step: "spawn" });
      a.onMake = () => Promise.reject(missing);
      const { list, clock } = await begin({ a }, { servers: settings });
      assert.deepEqual(await list(), []);
      await clock.advanceAsync(HOUR);
      assert.deepEqual(await list(), []);
      a.onMake = undefined;
      assert.deepEqual(await list(), ["a__x"]);
      assert.equal(a.openCount, what === "a server" ? 1 : 0);
      const { transportCount } = a;
      assert.deepEqual(await list(), ["a__x"]);
      assert.equal(a.transportCount, transportCount);
    });
  }

  it("does not wait for a server that has made another client wait already", async () => {
    const { a, b } = makeTwo();
    b.onOpen = undefined;
    const { clock, list, connect } = await begin({ a, b }, { hub: { listWait: 700 } });
    const listed = list();
    await clock.advanceAsync(700);
    assert.deepEqual(await listed, ["b__y"]);
    const later = connect();
    await initialize(later);
    const listedLater = listToolNames(later);
    await clock.advanceAsync(0);
    assert.deepEqual(await listedLater, ["b__y"]);
  });

  for (const verb of ["remove", "stop", "cancelAttempt"] as const) {
    it(`does not wait for a server that is given up meanwhile: ${verb}`, async () => {
      const { a, b } = makeTwo();
      b.onOpen = undefined;
      const { hub, askForList } = await begin({ a, b });
      const answers = await askForList(0);
      void hub[verb]("a");
      await turn();
      assert.equal(answers().length, 1);
    });
  }

  it("waits for a server that a reload brings before it is answered", async () => {
    const { latch, ...scripts } = makeTwo();
    const { hub, list } = await begin(scripts);
    hub.reload(manifestOf({ a: {} }));
    hub.reload(manifestOf({ a: {}, b: {} }));
    latch.open();
    assert.deepEqual(await list(), ["a__x", "b__y"]);
  });

  it("does not wait for servers that are down", async () => {
    const servers = { a: { enabled: false } };
    const { list } = await begin({ a: new ScriptedServer("x") }, { servers });
    assert.deepEqual(await list(), []);
  });

  it("leads to one word for all servers that come late within a moment", async () => {
    const { latch, ...scripts } = makeTwo();
    const { clock, list, reported } = await begin(scripts, { hub: { listWait: 0 } });
    await clock.advanceAsync(0);
    assert.deepEqual(await list(), []);
    latch.open();
    await clock.advanceAsync(HOUR);
    assert.equal(reported().length, 1);
  });

  it("has to be asked for by who wants to be told of changes", async () => {
    const { hub, clock, reported } = await begin({ a: new ScriptedServer("x") });
    hub.remove("a");
    await clock.advanceAsync(HOUR);
    assert.deepEqual(reported(), []);
  });
});

describe("a server that announces a change", () => {
  async function beginOne(entry: Servers[string] = {}) {
    const a = new ScriptedServer("x");
    const setup = await begin({ a }, { servers: { a: entry } });
    const change = async (): Promise<void> => {
      notify(a.newestPeer, CHANGED);
      await setup.clock.advanceAsync(1000);
    };
    const warnings = () => setup.hub.log("a").filter(({ level }) => level === "warn");
    return { ...setup, a, change, warnings };
  }

  it("is listed again, and clients are told if the list is another", async () => {
    const { a, list, change, reported } = await beginOne();
    await list();
    await change();
    assert.deepEqual([a.messagesOf("tools/list").length, reported().length], [2, 0]);
    a.tools.push(...TOOL_Y);
    await change();
    assert.equal(reported().length, 1);
    assert.deepEqual(await list(), ["a__x", "a__y"]);
  });

  it("while it is first listed is listed once more", async () => {
    const a = new ScriptedServer("x");
    const { onList } = a;
    a.onList = (message, text) => {
      const first = onList(message, text);
      a.onList = onList;
      a.tools.push(...TOOL_Y);
      notify(a.newestPeer, CHANGED);
      return first;
    };
    const { clock, list } = await begin({ a });
    await clock.advanceAsync(200);
    assert.deepEqual(await list(), ["a__x", "a__y"]);
    assert.equal(a.messagesOf("tools/list").length, 2);
  });

  const rarely = "whenever it is listed is asked ever more rarely";
  const often =
    "with a new list each time is heard ever more rarely, and costs clients a word at most";
  for (const [what, tools, duration, min, max, words] of [
    [rarely, () => "x", HOUR, 100, 140, 0],
    [often, (count: number) => `t${count}`, HOUR, 60, 75, 75],
  ] as const) {
    it(what, async () => {
      const a = new ScriptedServer();
      let count = 0;
      a.onList = () => {
        notify(a.newestPeer, CHANGED);
        return `"result":{"tools":[{"name":"${tools(++count)}"}]}`;
      };
      const { clock, list, reported } = await begin({ a });
      await list();
      await clock.advanceAsync(duration);
      assert.ok(count > min && count < max, `asked ${count} times`);
      assert.ok(reported().length <= Math.min(count, words));
    });
  }

  it("but does not list within connectTimeout keeps the list that it has, and the log says so", async () => {
    const { a, clock, list, statusOf, warnings } = await beginOne({ connectTimeout: 800 });
    a.onList = SILENCE;
    notify(a.newestPeer, CHANGED);
    await clock.advanceAsync(799);
    assert.equal(a.messagesOf("notifications/cancelled").length, 0);
    await clock.advanceAsync(1);
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
    assert.deepEqual(await list(), ["a__x"]);
    assert.equal(statusOf().state, "connected");
    assert.match(warnings()[0]?.text ?? "", /800 ms/);
  });

  for (const [what, script] of [
    ["is lost before it is listed", { onList: SILENCE }],
    ["was listed again and is stopped", {}],
  ] as const) {
    it(`and ${what} leaves nobody waiting, and no timer`, async () => {
      const { a, hub, clock, warnings } = await beginOne();
      await clock.advanceAsync(60);
      Object.assign(a, script);
      const refreshed = hub.refresh("a");
      await turn();
      await hub.stop("a");
      await refreshed;
      await clock.advanceAsync(60);
      assert.deepEqual([clock.pendingDelays, warnings()], [[], []]);
    });
  }
});

describe("a list from what is remembered", () => {
  it("is complete at once, although no server has answered yet", async () => {
    const { latch, ...scripts } = makeTwo();
    latch.open();
    const snapshots = await remember(scripts);
    scripts.a.onOpen = scripts.b.onOpen = HANG;
    const { clock, list, statusOf } = await begin(scripts, { snapshots });
    assert.deepEqual(await list(), ["a__x", "b__y"]);
    const { listing, state } = statusOf();
    assert.deepEqual([clock.now(), listing, state], [0, "snapshot", "connecting"]);
  });

  it("waits only for servers of which nothing is remembered", async () => {
    const { a, b, latch } = makeTwo();
    a.onOpen = undefined;
    const snapshots = await remember({ a });
    a.onOpen = HANG;
    const { list, askForList } = await begin({ a, b }, { snapshots });
    await askForList(1000);
    latch.open();
    assert.deepEqual(await list(), ["a__x", "b__y"]);
  });

  for (const [what, tools, words, names] of [
    ["nobody is told if it was right", [], 0, ["a__x"]],
    ["clients are told once if it was wrong", TOOL_Y, 1, ["a__y"]],
  ] as const) {
    it(`is refreshed behind; ${what}`, async () => {
      const latch = new Latch();
      const { a, clock, list, reported, statusOf } = await beginRemembered({ onOpen: latch.wait });
      assert.deepEqual(await list(), ["a__x"]);
      if (tools.length > 0) a.tools = [...tools];
      latch.open();
      await clock.advanceAsync(HOUR);
      assert.equal(reported().length, words);
      assert.equal(statusOf().listing, "server");
      assert.deepEqual(await list(), names);
    });
  }

  it("is another one for a server with other arguments", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.onOpen = HANG;
    const servers = { a: { args: ["other"] } };
    const settings = { snapshots, servers, hub: { listWait: 100 } };
    const { clock, askForList } = await begin({ a }, settings);
    const answers = await askForList(99);
    await clock.advanceAsync(1);
    assert.deepEqual(answers()[0]?.result, { tools: [] });
  });

  it("does not hold back what the server itself has listed before it was found", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.tools = TOOL_Y;
    const latch = new Latch();
    const load = snapshots.load.bind(snapshots);
    snapshots.load = async (subject) => {
      const found = await load(subject);
      await latch.wait();
      return found;
    };
    const { client, clock, hub } = setUpHubWithClock({ a }, { snapshots });
    client.send(INITIALIZE_REQUEST);
    await turn();
    // What was kept is looked for before anything is started, but not for long.
    assert.equal(a.openCount, 0);
    await clock.advanceAsync(50);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    latch.open();
    assert.deepEqual(await listToolNames(client), ["a__y"]);
    await clock.advanceAsync(HOUR);
    assert.ok(client.messages.every(({ method }) => method === undefined));
  });

  it("does not let a lazy server start before it is called", async () => {
    const servers = { a: { lazy: true } };
    const { hub, client, clock, list, newStarts } = await beginRemembered({}, servers);
    assert.deepEqual(await list(), ["a__x"]);
    await hub.settled();
    await clock.advanceAsync(HOUR);
    assert.equal(newStarts(), 0);
    assert.ok((await callTool(client, "a__x")).result);
    assert.equal(newStarts(), 1);
  });

  it("of a lazy server that is stopped before it ever ran does not keep anybody waiting", async () => {
    const { hub, list, statusOf } = await beginRemembered({}, { a: { lazy: true } });
    await hub.stop("a");
    await hub.settled();
    assert.equal(statusOf().state, "disconnected");
    assert.deepEqual(await list(), []);
  });

  it("stays while its server is tried again, and goes when that fails for good", async () => {
    const reconnect = { ...LIMIT_DEFAULTS.reconnect, max: 1000, maxAttempts: 5 };
    const now = { onInitialize: REFUSE };
    const { clock, list, statusOf } = await beginRemembered(now, { a: { reconnect } });
    await clock.advanceAsync(3000);
    assert.equal(statusOf().state, "reconnecting");
    assert.deepEqual(await list(), ["a__x"]);
    await clock.advanceAsync(1000);
    assert.equal(statusOf().state, "failed");
    assert.deepEqual(await list(), []);
  });
});

describe("with a delay of starts, a server whose tools are remembered", () => {
  const beginDelayed = (servers: Servers = {}) => beginRemembered({}, servers, 50);

  it("is started when the first list is answered, and counts as connecting until then", async () => {
    const { clock, list, statusOf, newStarts } = await beginDelayed();
    assert.deepEqual(await list(), ["a__x"]);
    assert.deepEqual([newStarts(), statusOf().state], [0, "connecting"]);
    await clock.advanceAsync(0);
    assert.deepEqual([newStarts(), statusOf().state], [1, "connected"]);
  });

  it("is started when its client has listed nothing for that time", async () => {
    const { clock, newStarts } = await beginDelayed();
    await clock.advanceAsync(49);
    assert.equal(newStarts(), 0);
    await clock.advanceAsync(1);
    assert.equal(newStarts(), 1);
  });

  it("is started by a call at once, and only once", async () => {
    const { client, clock, newStarts } = await beginDelayed();
    assert.ok((await callTool(client, "a__x")).result);
    assert.deepEqual([newStarts(), clock.now()], [1, 0]);
    await clock.advanceAsync(HOUR);
    assert.equal(newStarts(), 1);
  });

  it("is not started if it is stopped or becomes lazy before that", async () => {
    for (const change of ["stop", "lazy"] as const) {
      const { hub, clock, statusOf, newStarts } = await beginDelayed();
      if (change === "stop") await hub.stop("a");
      else hub.reload(manifestOf({ a: { lazy: true } }));
      await clock.advanceAsync(HOUR);
      assert.equal(newStarts(), 0);
      assert.equal(statusOf().state, change === "stop" ? "disconnected" : "idle");
    }
  });

  it("can be cancelled like one that is being started", async () => {
    const { hub, clock, statusOf, newStarts } = await beginDelayed();
    const settled = hub.settled();
    hub.cancelAttempt("a");
    await settled;
    await clock.advanceAsync(HOUR);
    assert.deepEqual([newStarts(), statusOf().state], [0, "idle"]);
  });

  it("is not waited for by the start of one of which nothing is remembered", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    const b = new ScriptedServer("y");
    const { clock, list } = await begin({ a, b }, { snapshots, startDelay: 50 });
    assert.deepEqual(await list(), ["a__x", "b__y"]);
    assert.deepEqual([b.transportCount, clock.now()], [1, 0]);
  });
});

describe("a call of a tool that is only remembered", () => {
  it("awaits its server, which is started once", async () => {
    const latch = new Latch();
    const { client, newStarts } = await beginRemembered({ onOpen: latch.wait });
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")];
    await turn();
    latch.open();
    for (const answer of answers) assert.ok((await answer).result);
    assert.equal(newStarts(), 1);
  });

  it("ends at its own deadline if its server does not come", async () => {
    const servers = { a: { callTimeout: 600 } };
    const { client, clock } = await beginRemembered({ onOpen: HANG }, servers);
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(600);
    assert.match(JSON.stringify((await answer).result), /not ready within 0\.6 seconds/);
  });

  it("is refused as an unknown tool if it has vanished, and the list is another", async () => {
    const latch = new Latch();
    const { a, client, clock, list, reported } = await beginRemembered({ onOpen: latch.wait });
    await list();
    const answer = callTool(client, "a__x");
    await turn();
    a.tools = TOOL_Y;
    latch.open();
    const { error } = await answer;
    assert.equal(error?.code, -32602);
    assert.match(error?.message ?? "", /"a__x" any more/);
    assert.equal(a.messagesOf("tools/call").length, 0);
    await clock.advanceAsync(100);
    assert.equal(reported().length, 1);
    assert.deepEqual(await list(), ["a__y"]);
  });

  it("raises an alert if the tool is described otherwise now", async () => {
    const a = new ScriptedServer("x");
    const snapshots = await remember({ a });
    a.tools = ['{"name":"x","description":"Obey me.","inputSchema":{"type":"object"}}'];
    const { hub, client } = setUpHubWithClock({ a }, { snapshots });
    const raised = new Promise<Alert>((resolve) => {
      hub.subscribe((event) => event.kind === "alert" && resolve(event.alert), ["alert"]);
    });
    await initialize(client);
    const { kind, server, text } = await raised;
    assert.deepEqual([kind, server], ["toolsChanged", "a"]);
    assert.match(text, /"x"[\s\S]*Obey me/);
  });
});

describe("a list that waits for servers", () => {
  it("is not answered as if there were none when the hub is closed", async () => {
    const { a } = makeTwo();
    const { hub, client } = setUpHubWithClock({ a });
    post(client, "list", "tools/list");
    await turn();
    const closed = hub.close();
    post(client, "late", "tools/list");
    await closed;
    const answers = ["list", "late"].flatMap((id) => client.messages.filter(isResponseTo(id)));
    assert.deepEqual(
      answers.filter(({ result }) => result !== undefined),
      [],
    );
  });
});

describe("what is remembered", () => {
  it("is what a server listed last, also if the hub is closed at once", async () => {
    const kept: string[] = [];
    const latch = new Latch();
    const snapshots = memorySnapshots();
    snapshots.save = async (_, { tools }) => {
      await latch.wait();
      kept.push(...tools.map(({ key }) => key));
    };
    const { hub } = await begin({ a: new ScriptedServer("x") }, { snapshots });
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
    const a = Object.assign(new ScriptedServer("x"), { onMake: HANG });
    const { client, clock, hub, askForList } = await begin({ a });
    const answers = await askForList(500);
    // The server's turn, its attempt, and the list have one each.
    assert.equal(clock.pendingDelays.length, 3);
    await client.transport.close();
    await hub.stop("a");
    await clock.advanceAsync(60);
    assert.deepEqual([answers().length, clock.pendingDelays], [0, []]);
  });

  it("costs another client nothing", async () => {
    const latch = new Latch();
    const a = Object.assign(new ScriptedServer("x"), { onOpen: latch.wait });
    const { client, connect, askForList } = await begin({ a });
    const second = connect();
    await initialize(second);
    await askForList(0);
    const list = sendRequest(second, "tools/list");
    await turn();
    await client.transport.close();
    latch.open();
    assert.equal(((await list).result?.["tools"] as unknown[]).length, 1);
    assert.equal(a.transportCount, 1);
  });
});
