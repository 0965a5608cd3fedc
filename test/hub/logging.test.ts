import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isAtLeast, lowestSeverityOf } from "../../src/protocol/log-level.ts";
import {
  ALL_CAPABILITIES,
  messagesOfMethod,
  waitForRequest,
  INITIALIZED,
  newestPeerOf,
  setUpServerRequests,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  INITIALIZE_REQUEST,
  initialize,
  isResponseTo,
  Latch,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";

const MESSAGE = "notifications/message";
const SET_LEVEL = "logging/setLevel";
const WITH_LOGS =
  '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}';

function makeLogger(): ScriptedServer {
  const script = new ScriptedServer("x");
  script.onInitialize = () => WITH_LOGS;
  return script;
}

async function begin(): Promise<ReturnType<typeof setUpHubWithClock> & { git: ScriptedServer }> {
  const git = makeLogger();
  const setup = setUpHubWithClock({ git });
  await initialize(setup.client, ALL_CAPABILITIES);
  setup.client.send(INITIALIZED);
  await turn();
  return { ...setup, git };
}

function say(script: ScriptedServer, params: object): void {
  newestPeerOf(script).send({ jsonrpc: "2.0", method: MESSAGE, params });
}

function setLevel(client: Peer, level: unknown): ReturnType<typeof sendRequest> {
  return sendRequest(client, SET_LEVEL, { level });
}

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
    const data = '{"n":1.0,"big":12345678901234567890}';
    newestPeerOf(git).send(
      `{"jsonrpc":"2.0","method":"${MESSAGE}","params":{"level":"info","logger":"a\\u0062","data":${data},"x":[ 1 ]}}`,
    );
    const { params } = await waitForRequest(client, MESSAGE);
    assert.equal(params?.["logger"], "git/ab");
    assert.ok(
      client.received.some((text) =>
        text.includes(`{"level":"info","logger":"git/a\\u0062","data":${data},"x":[ 1 ]}`),
      ),
    );
  });

  for (const [what, logger, name] of [
    ["without a logger", {}, "git"],
    ["whose logger is no text", { logger: 7 }, "git"],
    ["of a logger", { logger: "db" }, "git/db"],
  ] as const) {
    it(`${what} is of "${name}"`, async () => {
      const { client, git } = await begin();
      say(git, { level: "error", ...logger, data: "d" });
      assert.deepEqual((await waitForRequest(client, MESSAGE)).params, {
        level: "error",
        logger: name,
        data: "d",
      });
    });
  }

  it("is in the hub's own log, whoever else reads it", async () => {
    const { git, connect, events, client } = await begin();
    await initialize(connect(), ALL_CAPABILITIES);
    say(git, { level: "error", data: "for whom?" });
    say(git, { level: "unheard of", data: "of what?" });
    await turn();
    const texts = events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
    assert.ok(texts.includes("for whom?") && texts.includes("of what?"));
    assert.deepEqual(messagesOfMethod(client, MESSAGE), []);
  });

  it("is in the hub's own log up to a length, however long it is", async () => {
    const { git, events } = await begin();
    const texts = (): string[] =>
      events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
    say(git, { level: "error", data: "a".repeat(3000) });
    say(git, { level: "error", data: { a: [1, 2] } });
    say(git, { level: "error", data: Array.from({ length: 50_000 }, () => 7) });
    await turn();
    const list = `[${"7,".repeat(1000)}`.slice(0, 2000);
    assert.deepEqual(texts().slice(-3), ["a".repeat(2000), '{"a":[1,2]}', list]);
  });

  it("reaches none of several clients", async () => {
    const { client, connect, git } = await begin();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    say(git, { level: "error", data: "d" });
    await turn();
    assert.deepEqual(
      [messagesOfMethod(client, MESSAGE), messagesOfMethod(other, MESSAGE)],
      [[], []],
    );
  });

  it("reaches only the client whose own server it is", async () => {
    const git = makeLogger();
    const { client, connect } = setUpHubWithClock(
      { git },
      { servers: { git: { isolation: "perClient" } } },
    );
    const other = connect();
    for (const peer of [client, other]) await initialize(peer, ALL_CAPABILITIES);
    say(git, { level: "error", data: "d" });
    assert.ok(await waitForRequest(other, MESSAGE));
    assert.deepEqual(messagesOfMethod(client, MESSAGE), []);
  });

  it("of a level that nobody knows reaches no client", async () => {
    const { client, git } = await begin();
    say(git, { level: "loud", data: "d" });
    say(git, { data: "d" });
    newestPeerOf(git).send({ jsonrpc: "2.0", method: MESSAGE });
    await turn();
    assert.deepEqual(messagesOfMethod(client, MESSAGE), []);
  });

  it("is not sent to a client before the answer to its introduction", async () => {
    const [git, other] = [makeLogger(), new ScriptedServer("x")];
    const latch = new Latch();
    const { client } = setUpHubWithClock(
      { git, other },
      {
        snapshots: {
          load: async ({ command }) => {
            if (command === "other") await latch.wait();
            return undefined;
          },
          save: () => Promise.resolve([]),
          flush: () => Promise.resolve(),
        },
      },
    );
    client.send(INITIALIZE_REQUEST);
    await turn();
    say(git, { level: "error", data: "early" });
    await turn();
    assert.deepEqual(client.messages, []);
    latch.open();
    await client.find(isResponseTo(INITIALIZE_REQUEST.id));
    say(git, { level: "error", data: "late" });
    assert.equal((await waitForRequest(client, MESSAGE)).params?.["data"], "late");
  });

  it("is not sent to a client that has not been greeted", async () => {
    const git = makeLogger();
    const { client } = setUpHubWithClock({ git });
    client.send({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    await turn();
    say(git, { level: "error", data: "d" });
    await turn();
    assert.deepEqual(messagesOfMethod(client, MESSAGE), []);
  });
});

describe("the level that a client sets", () => {
  it("is what it is sent from there on, and more important things", async () => {
    const { client, git } = await begin();
    say(git, { level: "debug", data: 1 });
    assert.deepEqual((await setLevel(client, "warning")).result, {});
    for (const level of ["debug", "notice", "warning", "emergency"]) say(git, { level, data: 2 });
    await client.until(() => messagesOfMethod(client, MESSAGE).length === 3);
    const seen = messagesOfMethod(client, MESSAGE).map(({ params }) => params?.["level"]);
    assert.deepEqual(seen, ["debug", "warning", "emergency"]);
  });

  it("is told to the servers that have levels, and only to those", async () => {
    const [git, mute] = [makeLogger(), new ScriptedServer("x")];
    const { client } = setUpHubWithClock({ git, mute });
    await initialize(client, ALL_CAPABILITIES);
    await setLevel(client, "notice");
    await setLevel(client, "notice");
    await setLevel(client, "error");
    await turn();
    assert.deepEqual(levelsOf(git), ["notice", "error"]);
    assert.deepEqual(levelsOf(mute), []);
  });

  it("is not told to a server before anybody sets one", async () => {
    const { git } = await begin();
    assert.deepEqual(levelsOf(git), []);
  });

  it("is told to a server that is started again, and to one that comes later", async () => {
    const { client, git, hub } = await begin();
    await setLevel(client, "debug");
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
    const { client, connect, git } = await begin();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    await setLevel(client, "error");
    await setLevel(other, "info");
    await setLevel(client, "alert");
    await other.transport.close();
    await turn();
    assert.deepEqual(levelsOf(git), ["error", "info", "alert"]);
  });

  it("is told to a server that has been greeted and is still listing, and once", async () => {
    const git = makeLogger();
    git.onList = () => undefined;
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    assert.deepEqual((await setLevel(client, "debug")).result, {});
    await turn();
    assert.deepEqual(levelsOf(git), ["debug"]);
    const [request] = git.messagesOf("tools/list");
    newestPeerOf(git).send({ jsonrpc: "2.0", id: request?.id, result: { tools: [] } });
    await turn();
    assert.deepEqual(levelsOf(git), ["debug"]);
  });

  it("is forgotten when its client has left, so that the next one's log is not full of it", async () => {
    const { client, connect, git } = await begin();
    await setLevel(client, "debug");
    await client.transport.close();
    await turn();
    await initialize(connect(), ALL_CAPABILITIES);
    assert.deepEqual(levelsOf(git), ["debug", "info"]);
  });

  it("may be set before the client introduces itself", async () => {
    const git = makeLogger();
    const { client } = setUpHubWithClock({ git });
    await setLevel(client, "error");
    await initialize(client, ALL_CAPABILITIES);
    await turn();
    assert.deepEqual(levelsOf(git), ["error"]);
  });

  for (const level of ["loud", 3, undefined]) {
    it(`is refused if it is ${String(level)}`, async () => {
      const { client, git } = await begin();
      assert.equal((await setLevel(client, level)).error?.code, -32602);
      assert.deepEqual(levelsOf(git), []);
    });
  }

  it("is for this client alone, also where another shares the server", async () => {
    const { client, connect, git } = await begin();
    await setLevel(client, "emergency");
    await client.transport.close();
    await turn();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    say(git, { level: "notice", data: "d" });
    assert.ok(await waitForRequest(other, MESSAGE));
  });

  it("costs a call nothing if the server refuses it", async () => {
    const { client, git } = await setUpServerRequests();
    git.onInitialize = () => WITH_LOGS;
    git.disconnect();
    await turn();
    await setLevel(client, "debug");
    assert.ok((await callTool(client, "git__x")).result);
    const [request] = git.messagesOf(SET_LEVEL);
    newestPeerOf(git).send({
      jsonrpc: "2.0",
      id: request?.id,
      error: { code: -32601, message: "?" },
    });
    assert.ok((await callTool(client, "git__x")).result);
  });
});
