import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { Events, setUpHttp, type Visitor } from "../fixtures/http-client.ts";
import {
  type Json,
  manifestOf,
  type Peer,
  type Servers,
  setStage,
  setUp,
} from "../fixtures/memory-hub.ts";
import { modern, MODERN, put, request } from "../fixtures/modern-requests.ts";
import { FORM, ModernScript, UNKNOWN_METHOD } from "../fixtures/modern-server.ts";
import {
  beginTicket,
  consult,
  DECLARED,
  DONE,
  EXTENSION,
  ModernTasker,
  ticketJson,
} from "../fixtures/modern-task-server.ts";

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };

async function begin(s: ModernScript = new ModernTasker()) {
  const stage = setStage({ s }, { servers: AUTO });
  await request(stage.client, "tools/list", {}, DECLARED);
  return stage;
}

describe("a modern client of modern servers with tasks", () => {
  it("is told that the hub carries them, and its servers that it knows them", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const { result } = await request(client, "server/discover");
    const { extensions } = result?.["capabilities"] as { extensions: object };
    assert.deepEqual(extensions, { [EXTENSION]: {} });
    await beginTicket(client);
    assert.equal(s.count, 1);
  });

  it("gets a task for an answer, under an id that nobody can guess, and nothing else of it is changed", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const ids = [await beginTicket(client), await beginTicket(client)];
    for (const [i, id] of ids.entries()) {
      assert.match(id, /^[\w-]{43}$/);
      const text = client.received.find((each): boolean => each.includes(id));
      const task = ticketJson(`t${i + 1}`).replace(`"t${i + 1}"`, `"${id}"`);
      assert.ok(text?.includes(`{ "resultType": "task",${task},"_meta":{"n":1.0}}`), text ?? "");
    }
    assert.notEqual(ids[0], ids[1]);
    assert.ok(!client.received.some((text) => text.includes('"t1"')));
  });

  it("asks for a task, answers what it wants and cancels it under that id", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    await beginTicket(client);
    const id = await beginTicket(client);
    s.status = "completed";
    s.more = DONE;
    const { result } = await consult(client, "get", id);
    assert.equal(result?.["taskId"], id);
    assert.ok(client.received.at(-1)?.includes(ticketJson(id, "completed", DONE)));
    const inputResponses = { k: { action: "accept", content: { n: 1 } } };
    const updated = await consult(client, "update", id, { inputResponses });
    assert.deepEqual(updated.result, { resultType: "complete" });
    await consult(client, "cancel", id);
    assert.deepEqual(s.asked("tasks/update").at(-1)?.params?.["inputResponses"], inputResponses);
    for (const method of ["get", "update", "cancel"]) {
      assert.deepEqual(s.queries(`tasks/${method}`), ["t2"]);
    }
  });

  it("is told which server asks", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const id = await beginTicket(client);
    s.status = "input_required";
    s.more = `,"inputRequests":${JSON.stringify({ k: FORM })}`;
    const { result } = await consult(client, "get", id);
    const { k } = result?.["inputRequests"] as { k: typeof FORM };
    assert.equal(k.params.message, "[s] Which?");
  });

  for (const method of ["get", "update", "cancel"] as const) {
    it(`has to know of the task that it asks about (${method})`, async () => {
      const s = new ModernTasker();
      const { client } = await begin(s);
      await beginTicket(client);
      for (const id of ["t1", "", 1, undefined]) {
        assert.equal((await consult(client, method, id)).error?.code, -32602);
      }
      assert.deepEqual(s.queries(`tasks/${method}`), []);
    });

    it(`has to declare that it knows tasks (${method})`, async () => {
      const { client } = await begin();
      const id = await beginTicket(client);
      const { error } = await request(client, `tasks/${method}`, { taskId: id }, { roots: {} });
      assert.equal(error?.code, -32021);
      assert.deepEqual(error?.data?.["requiredCapabilities"], DECLARED);
    });
  }

  it("may have declared other things when it began one", async () => {
    const { client } = await begin();
    const id = await beginTicket(client);
    const able = { ...DECLARED, sampling: {} };
    const { result } = await request(client, "tasks/get", { taskId: id }, able);
    assert.equal(result?.["taskId"], id);
  });

  it("gets the server's error if it does not know the task any more, also after a restart", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const id = await beginTicket(client);
    s.die();
    s.on["tasks/get"] = () => '"error":{"code":-32602,"message":"gone","data":1.0}';
    const { error } = await consult(client, "get", id);
    assert.deepEqual(error, { code: -32602, message: "gone", data: 1 });
    assert.equal(s.starts, 2);
  });

  it("knows nothing of what another client has begun", async () => {
    const s = new ModernTasker();
    const { client, connect } = await begin(s);
    const id = await beginTicket(client);
    const { error } = await consult(connect(), "get", id);
    assert.equal(error?.code, -32602);
  });

  it("has what has not ended cancelled when it leaves, and nothing else", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const ended = await beginTicket(client);
    s.status = "failed";
    await consult(client, "get", ended);
    await beginTicket(client);
    await client.link.close();
    await s.peer?.until(() => s.queries("tasks/cancel").length > 0);
    assert.deepEqual(s.queries("tasks/cancel"), ["t2"]);
  });

  it("has a task ended that is made of a call which it has given up", async () => {
    const s = new ModernTasker();
    s.onCall = () => undefined;
    const { client } = await begin(s);
    client.send(modern(5, "tools/call", { name: "s__x" }, DECLARED));
    await s.peer?.until(() => s.asked("tools/call").length === 1);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await s.peer?.until(() => s.asked("notifications/cancelled").length === 1);
    const [first] = s.asked("tools/call");
    const result = `{"resultType":"task",${ticketJson("t7")}}`;
    s.peer?.send(`{"jsonrpc":"2.0","id":${String(first?.id)},"result":${result}}`);
    await s.peer?.until(() => s.queries("tasks/cancel").length > 0);
    assert.deepEqual(s.queries("tasks/cancel"), ["t7"]);
    // What merely looks like one is none.
    client.send(modern(6, "tools/call", { name: "s__x" }, DECLARED));
    await s.peer?.until(() => s.asked("tools/call").length === 2);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 6 } });
    await s.peer?.until(() => s.asked("notifications/cancelled").length === 2);
    const second = s.asked("tools/call")[1];
    s.peer?.send({ jsonrpc: "2.0", id: second?.id, result: { taskId: "t8" } });
    await request(client, "tools/list");
    assert.deepEqual(s.queries("tasks/cancel"), ["t7"]);
    assert.ok(s.asked("tasks/cancel")[0]?.params?.["_meta"], "it says who asks");
  });

  it("has one forgotten when its server does not keep it any more", async () => {
    const s = new ModernTasker();
    const { client, clock } = await begin(s);
    const id = await beginTicket(client);
    await clock.run(60_000);
    assert.equal((await consult(client, "get", id)).error, undefined);
    await clock.run(61_000);
    assert.equal((await consult(client, "get", id)).error?.code, -32602);
  });

  for (const [ttl, status, hours] of [
    ["1e15", "working", 24],
    ["null", "working", 24],
    ["null", "failed", 1],
  ] as const) {
    it(`has one forgotten after ${hours} h that is ${status} and kept for ${ttl}`, async () => {
      const s = new ModernTasker();
      s.ttl = ttl;
      s.status = status;
      const { client, clock } = await begin(s);
      const id = await beginTicket(client);
      await consult(client, "get", id);
      const find = async (): Promise<number | undefined> =>
        (await request(client, "tasks/cancel", { taskId: id }, DECLARED)).error?.code;
      await clock.run(hours * 3_600_000 - 60_000);
      assert.equal(await find(), undefined);
      await clock.run(120_000);
      assert.equal(await find(), -32602);
    });
  }

  it("keeps the process of one that has not ended, also if clients of another kind come", async () => {
    for (const [status, starts] of [
      ["working", 1],
      ["completed", 2],
    ] as const) {
      const s = new ModernTasker();
      s.ttl = "null";
      s.status = status;
      const { client, clock } = await begin(s);
      const id = await beginTicket(client);
      await consult(client, "get", id);
      await clock.run(600_000);
      const able = { ...DECLARED, sampling: {} };
      await request(client, "tools/list", {}, able);
      const { result } = await request(client, "tasks/get", { taskId: id }, able);
      assert.equal(result?.["taskId"], id);
      const at = s.peers.map(({ messages }) => messages.filter((m) => m.method === "tasks/get"));
      assert.deepEqual(
        at.map(({ length }) => length),
        starts === 1 ? [2, 0] : [1, 1],
      );
    }
  });

  it("is told what a server knows that was taken out of the manifest and put back", async () => {
    const s = new ModernTasker();
    const { client, hub } = await begin(s);
    const id = await beginTicket(client);
    hub.reload(manifestOf({}));
    assert.equal((await consult(client, "get", id)).error?.code, -32602);
    hub.reload(manifestOf(AUTO));
    assert.equal((await consult(client, "get", id)).result?.["taskId"], id);
    assert.equal(s.starts, 2);
  });

  it("cancels a request about one at its server, and not the task", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const id = await beginTicket(client);
    s.on["tasks/get"] = () => undefined;
    client.send(modern(5, "tasks/get", { taskId: id }, DECLARED));
    await s.peer?.until(() => s.asked("tasks/get").length === 1);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await s.peer?.until(() => s.asked("notifications/cancelled").length === 1);
    const [asked] = s.asked("tasks/get");
    assert.equal(s.asked("notifications/cancelled")[0]?.params?.["requestId"], asked?.id);
    assert.deepEqual(s.queries("tasks/cancel"), []);
  });

  it("is told when its server takes too long", async () => {
    const s = new ModernTasker();
    const { client, clock } = await begin(s);
    const id = await beginTicket(client);
    s.on["tasks/get"] = () => undefined;
    const answer = consult(client, "get", id);
    await clock.run(300_000);
    assert.match((await answer).error?.message ?? "", /"s" did not answer tasks\/get within/);
  });

  it("keeps its server from being idle as long as one has not ended", async () => {
    const s = new ModernTasker();
    const servers = { s: { era: "auto", lazy: true, idleStop: 30_000 } } as const;
    const { client, clock } = setStage({ s }, { servers });
    const id = await beginTicket(client);
    await clock.run(59_000);
    assert.equal(s.open, 1);
    s.status = "completed";
    await consult(client, "get", id);
    await clock.run(61_000);
    assert.equal(s.open, 0);
  });

  it("has as many as can be remembered, and those that have ended make place", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const first = await beginTicket(client);
    const { length } = client.received;
    for (let i = 1; i < 1024; i++) {
      client.send(modern(`many-${i}`, "tools/call", { name: "s__x" }, DECLARED));
    }
    await client.until(() => client.received.length === length + 1023);
    const { error } = await request(client, "tools/call", { name: "s__x" }, DECLARED);
    assert.match(error?.message ?? "", /1024 tasks/);
    await s.peer?.until(() => s.queries("tasks/cancel").length > 0);
    assert.deepEqual(s.queries("tasks/cancel"), ["t1025"]);
    s.status = "cancelled";
    await consult(client, "get", first);
    await beginTicket(client);
    assert.equal((await consult(client, "get", first)).error?.code, -32602);
  });

  it("gets an error for a task without an id", async () => {
    const s = new ModernTasker();
    s.onCall = () => '"result":{"resultType":"task","status":"working"}';
    const { client } = await begin(s);
    const { error } = await request(client, "tools/call", { name: "s__x" }, DECLARED);
    assert.match(error?.message ?? "", /does not say which/);
  });

  it("learns of resources from a task's result", async () => {
    const s = new ModernTasker();
    s.lists = { ...s.lists, resources: [] };
    s.on["resources/read"] = () => '"result":{"resultType":"complete","contents":[]}';
    const { client } = await begin(s);
    const id = await beginTicket(client);
    s.status = "completed";
    s.more = ',"result":{"content":[{"type":"resource_link","uri":"odd:1","name":"r"}]}';
    await consult(client, "get", id);
    const { error } = await request(client, "resources/read", { uri: "odd:1" });
    assert.equal(error, undefined);
    await listenFor(client, "l", [id]);
    s.change(s.listens.at(-1)?.id, "t1", "completed", s.more.replace("odd:1", "odd:2"));
    await client.until(() => changesOf(client).length === 1);
    const second = await request(client, "resources/read", { uri: "odd:2" });
    assert.equal(second.error, undefined);
  });
});

/** Listens for tasks. @returns what the client has acknowledged */
async function listenFor(client: Peer, id: unknown, taskIds: unknown[]): Promise<unknown> {
  client.send(modern(id, "subscriptions/listen", { notifications: { taskIds } }, DECLARED));
  const acknowledged = await client.find(
    ({ method, params }) =>
      method === "notifications/subscriptions/acknowledged" &&
      (params?.["_meta"] as Record<string, unknown>)[MetaKey.subscription] === id,
  );
  return acknowledged.params?.["notifications"];
}

const changesOf = (client: Peer): Json[] =>
  client.messages.filter(({ method }) => method === "notifications/tasks");

const wantedBy = ({ params }: Json): unknown =>
  (params?.["notifications"] as Record<string, unknown>)["taskIds"];

describe("a modern client that listens for tasks", () => {
  it("is told of those that it knows, under its own ids, on its own subscription", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    await beginTicket(client);
    const id = await beginTicket(client);
    assert.deepEqual(await listenFor(client, "l", [id, "t1", "nothing"]), { taskIds: [id] });
    const listen = s.listens.at(-1);
    assert.deepEqual(listen && wantedBy(listen), ["t2"]);
    const asks = `,"inputRequests":${JSON.stringify({ k: FORM })}`;
    s.change(listen?.id, "t1", "completed");
    s.change(listen?.id, "t2", "input_required", asks);
    await client.until(() => changesOf(client).length === 1);
    const [change] = changesOf(client);
    assert.equal(change?.params?.["taskId"], id);
    assert.deepEqual(change?.params?.["_meta"], { mine: 1, [MetaKey.subscription]: "l" });
    assert.match(JSON.stringify(change), /\[s\] Which\?/);
    assert.ok(client.received.at(-1)?.includes('"big":12345678901234567890'));
  });

  it("has its server listened to once, for what anybody wants", async () => {
    const s = new ModernTasker();
    const { client, connect } = await begin(s);
    const other = connect();
    await request(other, "tools/list", {}, DECLARED);
    const [one, two] = [await beginTicket(client), await beginTicket(other)];
    await listenFor(client, "l", [one]);
    await listenFor(other, "l", [two]);
    const last = s.listens.at(-1);
    assert.deepEqual(last && wantedBy(last), ["t1", "t2"]);
    s.change(last?.id, "t2", "completed", DONE);
    await other.until(() => changesOf(other).length === 1);
    assert.deepEqual(changesOf(client), []);
    other.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "l" } });
    await s.peer?.until(() => JSON.stringify(s.listens.map(wantedBy).at(-1)) === '["t1"]');
  });

  it("needs not ask to have a task known as ended", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const id = await beginTicket(client);
    await listenFor(client, "l", [id]);
    s.change(s.listens.at(-1)?.id, "t1", "completed", DONE);
    await client.until(() => changesOf(client).length === 1);
    await client.link.close();
    await turn();
    assert.deepEqual(s.queries("tasks/cancel"), []);
  });

  it("is listened for again at a server that was started anew", async () => {
    const s = new ModernTasker();
    const { client } = await begin(s);
    const id = await beginTicket(client);
    await listenFor(client, "l", [id]);
    const before = s.listens.length;
    s.die();
    await consult(client, "get", id);
    await s.peer?.until(() => s.listens.slice(before).flatMap(wantedBy).includes("t1"));
    s.change(s.listens.at(-1)?.id, "t1", "completed", DONE);
    await client.until(() => changesOf(client).length === 1);
  });

  it("goes on to hear of a task, and to need its server, when that is another process", async () => {
    const s = new ModernTasker();
    const settings = { era: "auto", lazy: true, idleStop: 5000 } as const;
    const { client, hub, clock } = setStage({ s }, { servers: { s: settings } });
    const id = await beginTicket(client);
    await listenFor(client, "l", [id]);
    const before = s.listens.length;
    hub.reload(manifestOf({ s: { ...settings, args: ["other"] } }));
    await consult(client, "get", id);
    await s.peer?.until(() => s.listens.slice(before).flatMap(wantedBy).includes("t1"));
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "l" } });
    await clock.run(100_000);
    assert.equal(s.open, 1, "the task has not ended");
  });

  it("hears of no task whose server does not tell of any", async () => {
    const s = new ModernTasker();
    const discover = s.on["server/discover"];
    s.on["server/discover"] = (message, text) =>
      discover?.(message, text)?.replace(EXTENSION, "vendor/odd");
    const { client } = await begin(s);
    const id = await beginTicket(client);
    assert.deepEqual(await listenFor(client, "l", [id]), {});
    assert.ok(s.listens.every((listen) => wantedBy(listen) === undefined));
  });

  it("hears of no task of which its server will not tell", async () => {
    const s = new ModernTasker();
    s.on["subscriptions/listen"] = (message) => {
      s.acknowledge(message, { toolsListChanged: true, taskIds: [] });
      return undefined;
    };
    const { client } = await begin(s);
    assert.deepEqual(await listenFor(client, "l", [await beginTicket(client)]), {});
  });

  it("has to declare that it knows tasks, and to name them by texts", async () => {
    const { client } = await begin();
    const id = await beginTicket(client);
    const listen = (taskIds: unknown, able: object): Promise<Json> =>
      request(client, "subscriptions/listen", { notifications: { taskIds } }, able);
    assert.equal((await listen([id], {})).error?.code, -32021);
    assert.equal((await listen([1], DECLARED)).error?.code, -32602);
    assert.equal((await listen(id, DECLARED)).error?.code, -32602);
  });
});

/** A modern request over HTTP. */
async function post(
  visitor: Visitor,
  method: string,
  params: Readonly<Record<string, unknown>>,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ status: number; json: Json }> {
  const name = params["name"] ?? params["taskId"];
  const response = await visitor.request("POST", modern(1, method, params, DECLARED), {
    "MCP-Protocol-Version": MODERN,
    "Mcp-Method": method,
    ...(typeof name === "string" && { "Mcp-Name": name }),
    ...headers,
  });
  return { status: response.status, json: (await response.json()) as Json };
}

describe("a modern client of tasks over HTTP", () => {
  it("repeats the task's id in a header", async () => {
    const s = new ModernTasker();
    const { visit } = setUpHttp({ s }, { servers: AUTO });
    const made = await post(visit(), "tools/call", { name: "s__x" });
    const taskId = made.json.result?.["taskId"];
    assert.equal(typeof taskId, "string");
    const found = await post(visit(), "tasks/get", { taskId });
    assert.equal(found.json.result?.["taskId"], taskId);
    for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
      const { status, json } = await post(visit(), method, { taskId }, { "Mcp-Name": "another" });
      assert.deepEqual([status, json.error?.code], [400, -32020]);
    }
    assert.deepEqual(s.queries("tasks/cancel"), [], "a request that ends ends no task");
  });

  it("finds no task of a server that it has nothing to do with", async () => {
    const { visit } = setUpHttp(
      { s: new ModernTasker(), o: new ModernTasker() },
      { servers: { ...AUTO, o: { era: "auto" } } },
    );
    const made = await post(visit(), "tools/call", { name: "s__x" });
    const taskId = made.json.result?.["taskId"];
    assert.equal((await post(visit("/mcp/o"), "tasks/get", { taskId })).json.error?.code, -32602);
    assert.equal((await post(visit("/mcp/s"), "tasks/get", { taskId })).json.error, undefined);
  });

  it("is refused with 400 if it does not declare that it knows them, and 404 for what there is not", async () => {
    const { visit } = setUpHttp({ s: new ModernTasker() }, { servers: AUTO });
    const headers = { "MCP-Protocol-Version": MODERN, "Mcp-Method": "tasks/get", "Mcp-Name": "t" };
    const body = modern(1, "tasks/get", { taskId: "t" });
    const response = await visit().request("POST", body, headers);
    assert.equal(response.status, 400);
    assert.equal(((await response.json()) as Json).error?.code, -32021);
    for (const method of ["tasks/result", "tasks/list"]) {
      assert.equal((await post(visit(), method, { taskId: "t" })).status, 404);
    }
  });

  it("listens for one on a stream", async () => {
    const s = new ModernTasker();
    const { visit } = setUpHttp({ s }, { servers: AUTO });
    const made = await post(visit(), "tools/call", { name: "s__x" });
    const taskIds = [made.json.result?.["taskId"]];
    const body = modern(7, "subscriptions/listen", { notifications: { taskIds } }, DECLARED);
    const headers = { "MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen" };
    const events = new Events(await visit().request("POST", body, headers));
    assert.deepEqual((await events.message()).params?.["notifications"], { taskIds });
    s.change(s.listens.at(-1)?.id, "t1", "completed", DONE);
    assert.equal((await events.message()).params?.["taskId"], taskIds[0]);
    await events.drop();
  });
});

describe("a modern client of a legacy server", () => {
  it("has nothing at the other end of a task that it did not begin", async () => {
    const clock = new VirtualClock();
    const s = new ModernScript("x");
    s.on["tasks/get"] = () => UNKNOWN_METHOD;
    const { client } = setUp({ s }, { servers: AUTO, clock });
    const { error } = await put(client, 1, "tasks/get", { taskId: "t" }, DECLARED);
    assert.equal(error?.code, -32602);
  });
});
