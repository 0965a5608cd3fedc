import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isAtLeast, lowestSeverityOf } from "../../src/protocol/log-level.ts";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { notify, respond, respondError } from "../fixtures/peer-messages.ts";
import {
  ALL_CAPABILITIES,
  messagesOfMethod,
  waitForRequest,
  newestPeerOf,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  INITIALIZE_REQUEST,
  initialize,
  isResponseTo,
  type Json,
  Latch,
  type Peer,
  ScriptedServer,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";

const MESSAGE = "notifications/message";
const SET_LEVEL = "logging/setLevel";
const WITH_LOGS =
  '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}';

/** A server that logs. */
const logger = (parts: Partial<ScriptedServer> = {}): ScriptedServer =>
  Object.assign(new ScriptedServer("x"), { onInitialize: () => WITH_LOGS, ...parts });

/** A hub with such a server, and a client that has not said anything; `say`: the server logs. */
function setUp(git = logger(), entry: Servers[string] = {}) {
  const setup = setUpHubWithClock({ git }, { servers: { git: entry } });
  const { client } = setup;
  return {
    ...setup,
    git,
    say: async (...lines: object[]): Promise<void> => {
      for (const line of lines) notify(newestPeerOf(git), MESSAGE, line);
      await turn();
    },
    setLevel: (level: unknown, peer = client) => sendRequest(peer, SET_LEVEL, { level }),
    join: async (): Promise<Peer> => {
      const peer = setup.connect();
      await initialize(peer, ALL_CAPABILITIES);
      return peer;
    },
  };
}

/** The same with a client that has introduced itself. */
async function begin(...made: Parameters<typeof setUp>) {
  const setup = setUp(...made);
  await initialize(setup.client, ALL_CAPABILITIES);
  return setup;
}

const linesOf = (peer: Peer): Json["params"][] =>
  messagesOfMethod(peer, MESSAGE).map(({ params }) => params);

/** The levels that the server was told, over all its connections. */
function levelsOf(script: ScriptedServer): unknown[] {
  return script.messagesOf(SET_LEVEL).map(({ params }) => params?.["level"]);
}

describe("levels", () => {
  it("are in order", () => {
    assert.ok(isAtLeast("error", "warning") && isAtLeast("info", "info"));
    assert.ok(!isAtLeast("notice", "warning"));
    assert.equal(lowestSeverityOf(["error", "notice", "alert"]), "notice");
    assert.equal(lowestSeverityOf([]), undefined);
  });
});

describe("a line of a server's log", () => {
  it("reaches its client under the server's name, and is otherwise as it was", async () => {
    const { client, git } = await begin();
    const params = (name: string): string =>
      `{"level":"info","logger":"${name}a\\u0062","data":{"n":1.0,"big":12345678901234567890},"x":[ 1 ]}`;
    newestPeerOf(git).send(`{"jsonrpc":"2.0","method":"${MESSAGE}","params":${params("")}}`);
    assert.equal((await waitForRequest(client, MESSAGE)).params?.["logger"], "git/ab");
    assert.ok(client.received.some((text) => text.includes(params("git/"))));
  });

  for (const [what, source, name] of [
    ["without a logger", {}, "git"],
    ["whose logger is no text", { logger: 7 }, "git"],
    ["of a logger", { logger: "db" }, "git/db"],
  ] as const) {
    it(`${what} is of "${name}"`, async () => {
      const { client, say } = await begin();
      await say({ level: "error", ...source, data: "d" });
      assert.deepEqual(linesOf(client), [{ level: "error", logger: name, data: "d" }]);
    });
  }

  it("is in the hub's own log up to a length, whatever its level, and reaches none of several clients", async () => {
    const { client, join, events, say } = await begin();
    const other = await join();
    const sevens = Array.from({ length: 50_000 }, () => 7);
    const data = ["a".repeat(3000), { a: [1, 2] }, sevens];
    await say(
      { level: "unheard of", data: "x" },
      ...data.map((one) => ({ level: "error", data: one })),
    );
    const texts = events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
    const list = `[${"7,".repeat(1000)}`.slice(0, 2000);
    assert.deepEqual(texts.slice(-4), ["x", "a".repeat(2000), '{"a":[1,2]}', list]);
    assert.deepEqual([linesOf(client), linesOf(other)], [[], []]);
  });

  it("reaches only the client whose own server it is", async () => {
    const { client, join, say } = await begin(logger(), { isolation: "perClient" });
    const other = await join();
    await say({ level: "error", data: "d" });
    assert.deepEqual([linesOf(client).length, linesOf(other).length], [0, 1]);
  });

  it("of a level that nobody knows reaches no client", async () => {
    const { client, git, say } = await begin();
    await say({ level: "loud", data: "d" }, { data: "d" });
    notify(newestPeerOf(git), MESSAGE);
    await turn();
    assert.deepEqual(linesOf(client), []);
  });

  it("is not sent to a client before the answer to its introduction", async () => {
    const [git, other] = [logger(), new ScriptedServer("x")];
    const latch = new Latch();
    const snapshots = memorySnapshots();
    snapshots.load = async ({ command }) => {
      if (command === "other") await latch.wait();
      return undefined;
    };
    const { client } = setUpHubWithClock({ git, other }, { snapshots });
    client.send(INITIALIZE_REQUEST);
    await turn();
    notify(newestPeerOf(git), MESSAGE, { level: "error", data: "early" });
    await turn();
    assert.deepEqual(client.messages, []);
    latch.open();
    await client.find(isResponseTo(INITIALIZE_REQUEST.id));
    notify(newestPeerOf(git), MESSAGE, { level: "error", data: "late" });
    assert.equal((await waitForRequest(client, MESSAGE)).params?.["data"], "late");
  });

  it("is not sent to a client that has not been greeted", async () => {
    const { client, say } = setUp();
    await sendRequest(client, "tools/list");
    await say({ level: "error", data: "d" });
    assert.deepEqual(linesOf(client), []);
  });
});

describe("the level that a client sets", () => {
  it("is what it is sent from there on, and more important things", async () => {
    const { client, say, setLevel } = await begin();
    await say({ level: "debug", data: 1 });
    assert.deepEqual((await setLevel("warning")).result, {});
    await say(...["debug", "notice", "warning", "emergency"].map((level) => ({ level, data: 2 })));
    const seen = linesOf(client).map((params) => params?.["level"]);
    assert.deepEqual(seen, ["debug", "warning", "emergency"]);
  });

  it("is told to the servers that have levels, and only to those, and not before anybody sets one", async () => {
    const [git, mute] = [logger(), new ScriptedServer("x")];
    const { client } = setUpHubWithClock({ git, mute });
    await initialize(client, ALL_CAPABILITIES);
    assert.deepEqual(levelsOf(git), []);
    for (const level of ["notice", "notice", "error"])
      await sendRequest(client, SET_LEVEL, { level });
    await turn();
    assert.deepEqual(levelsOf(git), ["notice", "error"]);
    assert.deepEqual(levelsOf(mute), []);
  });

  it("is told to a server that is started again, and to one that comes later", async () => {
    const { client, git, hub, setLevel } = await begin();
    await setLevel("debug");
    git.disconnect();
    await turn();
    await callTool(client, "git__x");
    assert.deepEqual(levelsOf(git), ["debug", "debug"]);
    await hub.stop("git");
    hub.start("git");
    await turn();
    assert.deepEqual(levelsOf(git), ["debug", "debug", "debug"]);
  });

  it("is told as the lowest that one of the clients wants, also when one has left", async () => {
    const { git, join, setLevel } = await begin();
    const other = await join();
    await setLevel("error");
    await setLevel("info", other);
    await setLevel("alert");
    await other.transport.close();
    await turn();
    assert.deepEqual(levelsOf(git), ["error", "info", "alert"]);
  });

  it("is told to a server that has been greeted and is still listing, and once", async () => {
    const { git, setLevel } = await begin(logger({ onList: () => undefined }));
    assert.deepEqual((await setLevel("debug")).result, {});
    await turn();
    assert.deepEqual(levelsOf(git), ["debug"]);
    respond(newestPeerOf(git), git.messagesOf("tools/list")[0]?.id, { tools: [] });
    await turn();
    assert.deepEqual(levelsOf(git), ["debug"]);
  });

  it("is for this client alone, and forgotten when it has left, so that the next one's log is not full of it", async () => {
    for (const [level, told] of [
      ["debug", ["debug", "info"]],
      ["emergency", ["emergency", "info"]],
    ] as const) {
      const { client, git, join, say, setLevel } = await begin();
      await setLevel(level);
      await client.transport.close();
      await turn();
      const other = await join();
      assert.deepEqual(levelsOf(git), told);
      await say({ level: "notice", data: "d" });
      assert.equal(linesOf(other).length, 1);
    }
  });

  it("may be set before the client introduces itself", async () => {
    const { client, git, setLevel } = setUp();
    await setLevel("error");
    await initialize(client, ALL_CAPABILITIES);
    await turn();
    assert.deepEqual(levelsOf(git), ["error"]);
  });

  it("is refused if there is no such level", async () => {
    const { git, setLevel } = await begin();
    for (const level of ["loud", 3, undefined])
      assert.equal((await setLevel(level)).error?.code, -32602);
    assert.deepEqual(levelsOf(git), []);
  });

  it("costs a call nothing if the server refuses it", async () => {
    const { client, git, setLevel } = await begin(
      logger({ handlers: { [SET_LEVEL]: () => undefined } }),
    );
    await setLevel("debug");
    assert.ok((await callTool(client, "git__x")).result);
    respondError(newestPeerOf(git), git.messagesOf(SET_LEVEL)[0]?.id, "?");
    assert.ok((await callTool(client, "git__x")).result);
  });
});
