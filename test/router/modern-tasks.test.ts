import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  EventStreamReader,
  setUpHttp,
  type HttpTestClient,
  type ModernRequestOptions,
} from "../fixtures/http-client.ts";
import {
  type Json,
  manifestOf,
  type Peer,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { modernRequest, sendModernRequest } from "../fixtures/modern-requests.ts";
import {
  FORM_ELICITATION,
  ModernScriptedServer,
  METHOD_NOT_FOUND,
} from "../fixtures/modern-server.ts";
import {
  createModernTask,
  requestTask,
  TASKS_DECLARED,
  COMPLETED_MEMBERS,
  TASKS_EXTENSION_ID,
  ModernTaskServer,
  modernTaskJson,
} from "../fixtures/modern-task-server.ts";
import { cancel, respond } from "../fixtures/peer-messages.ts";
import { messagesOfMethod } from "../fixtures/server-requests.ts";

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };
const ASKS = `,"inputRequests":${JSON.stringify({ k: FORM_ELICITATION })}`;
const ABLE = { ...TASKS_DECLARED, sampling: {} };
const SILENCE = (): undefined => undefined;
const METHODS = ["get", "update", "cancel"] as const;

/** A hub with one server, and a client that knows tasks. */
async function begin(script: Partial<ModernTaskServer> = {}, servers = AUTO) {
  const s =
    script instanceof ModernTaskServer ? script : Object.assign(new ModernTaskServer(), script);
  const setup = setUpHubWithClock({ s }, { servers });
  const { client } = setup;
  await sendModernRequest(client, "tools/list", {}, TASKS_DECLARED);
  return {
    ...setup,
    s,
    create: () => createModernTask(client),
    request: (method: (typeof METHODS)[number], id: unknown, more?: object) =>
      requestTask(client, method, id, more),
    /** Waits until the server has received so many messages of this method. */
    received: (method: string, count = 1) =>
      s.newestPeer?.until(() => s.messagesOf(method).length >= count),
  };
}

const call = (client: Peer): Promise<Json> =>
  sendModernRequest(client, "tools/call", { name: "s__x" }, TASKS_DECLARED);

describe("a modern client of modern servers with tasks", () => {
  it("gets a task for an answer, under an id that nobody can guess, and nothing else of it is changed", async () => {
    const { client, create } = await begin();
    const ids = [await create(), await create()];
    for (const [i, id] of ids.entries()) {
      assert.match(id, /^[\w-]{43}$/);
      const text = client.received.find((each) => each.includes(id)) ?? "";
      const task = modernTaskJson(`t${i + 1}`).replace(`"t${i + 1}"`, `"${id}"`);
      assert.ok(text.includes(`{ "resultType": "task",${task},"_meta":{"n":1.0}}`), text);
    }
    assert.notEqual(ids[0], ids[1]);
    assert.ok(!client.received.some((text) => text.includes('"t1"')));
  });

  it("asks for a task, answers what it wants and cancels it under that id", async () => {
    const { client, s, create, request } = await begin();
    await create();
    const id = await create();
    Object.assign(s, { status: "input_required", extraMembers: ASKS });
    const { inputRequests } = (await request("get", id)).result ?? {};
    assert.match(JSON.stringify(inputRequests), /"\[s\] Which\?"/, "it is told which server asks");
    Object.assign(s, { status: "completed", extraMembers: COMPLETED_MEMBERS });
    assert.equal((await request("get", id)).result?.["taskId"], id);
    assert.ok(client.received.at(-1)?.includes(modernTaskJson(id, "completed", COMPLETED_MEMBERS)));
    const inputResponses = { k: { action: "accept", content: { n: 1 } } };
    const updated = await request("update", id, { inputResponses });
    assert.deepEqual(updated.result, { resultType: "complete" });
    await request("cancel", id);
    const [sent] = s.messagesOf("tasks/update");
    assert.deepEqual(sent?.params?.["inputResponses"], inputResponses);
    assert.deepEqual(
      METHODS.map((method) => s.taskIdsOf(`tasks/${method}`)),
      [["t2", "t2"], ["t2"], ["t2"]],
    );
  });

  for (const method of METHODS) {
    it(`has to know of the task that it asks about, and to declare that it knows tasks (${method})`, async () => {
      const { client, connect, s, create, request } = await begin();
      const taskId = await create();
      for (const id of ["t1", "", 1, undefined]) {
        assert.equal((await request(method, id)).error?.code, -32602);
      }
      assert.equal((await requestTask(connect(), method, taskId)).error?.code, -32602);
      const params = { taskId };
      const { error } = await sendModernRequest(client, `tasks/${method}`, params, { roots: {} });
      assert.equal(error?.code, -32021);
      assert.deepEqual(error?.data?.["requiredCapabilities"], TASKS_DECLARED);
      assert.deepEqual(s.taskIdsOf(`tasks/${method}`), []);
    });
  }

  it("gets the server's error if it does not know the task any more, also after a restart", async () => {
    const { s, create, request } = await begin();
    const id = await create();
    s.disconnect();
    s.handlers["tasks/get"] = () => '"error":{"code":-32602,"message":"gone","data":1.0}';
    const { error } = await request("get", id);
    assert.deepEqual(error, { code: -32602, message: "gone", data: 1 });
    assert.equal(s.transportCount, 2);
  });

  it("has what has not ended cancelled when it leaves, and nothing else", async () => {
    const { client, s, create, request, received } = await begin();
    const ended = await create();
    s.status = "failed";
    await request("get", ended);
    await create();
    await client.transport.close();
    await received("tasks/cancel");
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t2"]);
  });

  it("has what has not ended cancelled when it leaves, also at the process in the place of the first", async () => {
    const { client, hub, s, create, request, received } = await begin();
    const id = await create();
    hub.reload(manifestOf({ s: { ...AUTO["s"], args: ["other"] } }));
    await request("get", id);
    assert.equal(s.transportCount, 2);
    await client.transport.close();
    await received("tasks/cancel");
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("has a task ended that is made of a call which it has given up, and nothing that looks like one", async () => {
    const { client, s, received } = await begin({ onCall: SILENCE });
    const giveUp = async (id: number, count: number): Promise<unknown> => {
      client.send(modernRequest(id, "tools/call", { name: "s__x" }, TASKS_DECLARED));
      await received("tools/call", count);
      cancel(client, id);
      await received("notifications/cancelled", count);
      return s.messagesOf("tools/call")[count - 1]?.id;
    };
    const first = await giveUp(5, 1);
    const result = `{"resultType":"task",${modernTaskJson("t7")}}`;
    s.newestPeer?.send(`{"jsonrpc":"2.0","id":${String(first)},"result":${result}}`);
    await received("tasks/cancel");
    respond(s.newestPeer, await giveUp(6, 2), { taskId: "t8" });
    await sendModernRequest(client, "tools/list");
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t7"]);
    assert.ok(s.messagesOf("tasks/cancel")[0]?.params?.["_meta"], "it says who asks");
  });

  /** Sends no pings, of which there would be thousands in a day. */
  const UNWATCHED: Servers = { s: { ...AUTO["s"], healthInterval: 0 } };
  for (const [ttl, status, minutes] of [
    ["60000.0", "working", 2],
    ["1e15", "working", 24 * 60],
    ["null", "working", 24 * 60],
    ["null", "failed", 60],
  ] as const) {
    it(`has one forgotten after ${minutes} min that is ${status} and kept for ${ttl}`, async () => {
      const { clock, create, request } = await begin({ ttl, status }, UNWATCHED);
      const id = await create();
      await request("get", id);
      await clock.advanceAsync((minutes - 1) * 60_000);
      assert.equal((await request("cancel", id)).error, undefined);
      await clock.advanceAsync(120_000);
      assert.equal((await request("cancel", id)).error?.code, -32602);
    });
  }

  for (const [what, status, requests] of [
    ["keeps the process of one that has not ended", "working", [2, 0]],
    ["does not keep the process of one that has ended", "completed", [1, 1]],
  ] as const) {
    it(`${what}, if clients of another kind come`, async () => {
      const { client, clock, s, create, request } = await begin({ ttl: "null", status });
      const id = await create();
      await request("get", id);
      await clock.advanceAsync(600_000);
      await sendModernRequest(client, "tools/list", {}, ABLE);
      const { result } = await sendModernRequest(client, "tasks/get", { taskId: id }, ABLE);
      assert.equal(result?.["taskId"], id);
      const counts = s.peers.map((peer) => messagesOfMethod(peer, "tasks/get").length);
      assert.deepEqual(counts, requests);
    });
  }

  it("is told what a server knows that was taken out of the manifest and put back", async () => {
    const { hub, s, create, request } = await begin();
    const id = await create();
    hub.reload(manifestOf({}));
    assert.equal((await request("get", id)).error?.code, -32602);
    hub.reload(manifestOf(AUTO));
    assert.equal((await request("get", id)).result?.["taskId"], id);
    assert.equal(s.transportCount, 2);
  });

  it("cancels a request about one at its server, and not the task", async () => {
    const { client, s, create, received } = await begin();
    const id = await create();
    s.handlers["tasks/get"] = SILENCE;
    client.send(modernRequest(5, "tasks/get", { taskId: id }, TASKS_DECLARED));
    await received("tasks/get");
    cancel(client, 5);
    await received("notifications/cancelled");
    const [asked] = s.messagesOf("tasks/get");
    assert.equal(s.messagesOf("notifications/cancelled")[0]?.params?.["requestId"], asked?.id);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
  });

  it("is told when its server takes too long", async () => {
    const { s, clock, create, request } = await begin();
    const id = await create();
    s.handlers["tasks/get"] = SILENCE;
    const answer = request("get", id);
    await clock.advanceAsync(300_000);
    assert.match((await answer).error?.message ?? "", /"s" did not answer tasks\/get/);
  });

  it("keeps its server from being idle as long as one has not ended", async () => {
    const servers = { s: { era: "auto", lazy: true, idleStop: 30_000 } } as const;
    const { s, clock, create, request } = await begin({}, servers);
    const id = await create();
    await clock.advanceAsync(59_000);
    assert.equal(s.openCount, 1);
    s.status = "completed";
    await request("get", id);
    await clock.advanceAsync(61_000);
    assert.equal(s.openCount, 0);
  });

  it("has as many as can be remembered, and those that have ended make place", async () => {
    const { client, s, create, request, received } = await begin();
    const first = await create();
    const { length } = client.received;
    for (let i = 1; i < 1024; i++) {
      client.send(modernRequest(`many-${i}`, "tools/call", { name: "s__x" }, TASKS_DECLARED));
    }
    await client.until(() => client.received.length === length + 1023);
    assert.match((await call(client)).error?.message ?? "", /1024/);
    await received("tasks/cancel");
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1025"]);
    s.status = "cancelled";
    await request("get", first);
    await create();
    assert.equal((await request("get", first)).error?.code, -32602);
  });

  it("gets an error for a task without an id", async () => {
    const onCall = (): string => '"result":{"resultType":"task","status":"working"}';
    const { client } = await begin({ onCall });
    assert.match((await call(client)).error?.message ?? "", /Server "s" .*task/);
  });

  it("learns of resources from a task's result", async () => {
    const { client, s, create, request } = await begin();
    s.listings = { ...s.listings, resources: [] };
    s.handlers["resources/read"] = () => '"result":{"resultType":"complete","contents":[]}';
    const read = async (uri: string): Promise<unknown> =>
      (await sendModernRequest(client, "resources/read", { uri })).error;
    const resultWith = (uri: string): string =>
      `,"result":{"content":[{"type":"resource_link","uri":"${uri}","name":"r"}]}`;
    const id = await create();
    Object.assign(s, { status: "completed", extraMembers: resultWith("odd:1") });
    await request("get", id);
    assert.equal(await read("odd:1"), undefined);
    await listenFor(client, "l", [id]);
    s.notifyStatus(s.listenRequests.at(-1)?.id, "t1", "completed", resultWith("odd:2"));
    await client.until(() => changesOf(client).length === 1);
    assert.equal(await read("odd:2"), undefined);
  });

  it("has nothing at the other end of a task that it did not begin, at a server without tasks", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers["tasks/get"] = () => METHOD_NOT_FOUND;
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    assert.equal((await requestTask(client, "get", "t")).error?.code, -32602);
  });
});

/** Listens for tasks. @returns what the client has acknowledged */
async function listenFor(client: Peer, id: unknown, taskIds: unknown[]): Promise<unknown> {
  const params = { notifications: { taskIds } };
  client.send(modernRequest(id, "subscriptions/listen", params, TASKS_DECLARED));
  const acknowledged = await client.find(
    (message) =>
      message.method === "notifications/subscriptions/acknowledged" &&
      (message.params?.["_meta"] as Record<string, unknown>)[MetaKey.subscription] === id,
  );
  return acknowledged.params?.["notifications"];
}

const changesOf = (client: Peer): Json[] => messagesOfMethod(client, "notifications/tasks");

/** The tasks that each request to listen has asked for. */
const wantedOf = ({ listenRequests }: ModernScriptedServer): unknown[] =>
  listenRequests.map(
    ({ params }) => (params?.["notifications"] as Record<string, unknown>)["taskIds"],
  );

describe("a modern client that listens for tasks", () => {
  /** The same with a task that the client listens for. */
  async function beginListening(script: Partial<ModernTaskServer> = {}, servers = AUTO) {
    const setup = await begin(script, servers);
    const { client, s } = setup;
    const id = await setup.create();
    const heard = await listenFor(client, "l", [id]);
    const notifyCompleted = async (): Promise<void> => {
      s.notifyStatus(s.listenRequests.at(-1)?.id, "t1", "completed", COMPLETED_MEMBERS);
      await client.until(() => changesOf(client).length === 1);
    };
    /** Waits until the server is listened to again. */
    const before = s.listenRequests.length;
    const listenedAgain = (): Promise<void> | undefined =>
      s.newestPeer?.until(() => wantedOf(s).slice(before).flat().includes("t1"));
    return { ...setup, id, heard, notifyCompleted, listenedAgain };
  }

  it("is told of those that it knows, under its own ids, on its own subscription", async () => {
    const { client, s, create } = await begin();
    await create();
    const id = await create();
    assert.deepEqual(await listenFor(client, "l", [id, "t1", "nothing"]), { taskIds: [id] });
    assert.deepEqual(wantedOf(s).at(-1), ["t2"]);
    const listen = s.listenRequests.at(-1);
    s.notifyStatus(listen?.id, "t1", "completed");
    s.notifyStatus(listen?.id, "t2", "input_required", ASKS);
    await client.until(() => changesOf(client).length === 1);
    const [change] = changesOf(client);
    assert.equal(change?.params?.["taskId"], id);
    assert.deepEqual(change?.params?.["_meta"], { mine: 1, [MetaKey.subscription]: "l" });
    assert.match(JSON.stringify(change), /\[s\] Which\?/);
    assert.ok(client.received.at(-1)?.includes('"big":12345678901234567890'));
  });

  it("has its server listened to once, for what anybody wants", async () => {
    const { client, connect, s } = await beginListening();
    const other = connect();
    await sendModernRequest(other, "tools/list", {}, TASKS_DECLARED);
    await listenFor(other, "l", [await createModernTask(other)]);
    assert.deepEqual(wantedOf(s).at(-1), ["t1", "t2"]);
    s.notifyStatus(s.listenRequests.at(-1)?.id, "t2", "completed", COMPLETED_MEMBERS);
    await other.until(() => changesOf(other).length === 1);
    assert.deepEqual(changesOf(client), []);
    cancel(other, "l");
    await s.newestPeer?.until(() => JSON.stringify(wantedOf(s).at(-1)) === '["t1"]');
  });

  it("needs not ask to have a task known as ended", async () => {
    const { client, s, notifyCompleted } = await beginListening();
    await notifyCompleted();
    await client.transport.close();
    await turn();
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
  });

  it("is listened for again at a server that was started anew", async () => {
    const { s, id, request, notifyCompleted, listenedAgain } = await beginListening();
    s.disconnect();
    await request("get", id);
    await listenedAgain();
    await notifyCompleted();
  });

  it("goes on to hear of a task, and to need its server, when that is another process", async () => {
    const entry = { era: "auto", lazy: true, idleStop: 5000 } as const;
    const setup = await beginListening({}, { s: entry });
    const { client, hub, clock, s, id, request, listenedAgain } = setup;
    hub.reload(manifestOf({ s: { ...entry, args: ["other"] } }));
    await request("get", id);
    await listenedAgain();
    cancel(client, "l");
    await clock.advanceAsync(100_000);
    assert.equal(s.openCount, 1, "the task has not ended");
  });

  it("hears of no task whose server does not tell of any", async () => {
    const silent = new ModernTaskServer();
    const discover = silent.handlers["server/discover"];
    silent.handlers["server/discover"] = (message, text) =>
      discover?.(message, text)?.replace(TASKS_EXTENSION_ID, "vendor/odd");
    const { s, heard } = await beginListening(silent);
    assert.deepEqual(heard, {});
    assert.ok(wantedOf(s).every((wanted) => wanted === undefined));
  });

  it("hears of no task of which its server will not tell", async () => {
    const { client, s, create } = await begin();
    s.handlers["subscriptions/listen"] = (message) => {
      s.acknowledge(message, { toolsListChanged: true, taskIds: [] });
      return undefined;
    };
    assert.deepEqual(await listenFor(client, "l", [await create()]), {});
  });

  it("has to declare that it knows tasks, and to name them by texts", async () => {
    const { client, create } = await begin();
    const id = await create();
    for (const [taskIds, able, code] of [
      [[id], {}, -32021],
      [[1], TASKS_DECLARED, -32602],
      [id, TASKS_DECLARED, -32602],
    ] as const) {
      const params = { notifications: { taskIds } };
      const { error } = await sendModernRequest(client, "subscriptions/listen", params, able);
      assert.equal(error?.code, code);
    }
  });
});

describe("a modern client of tasks over HTTP", () => {
  /** Sends a modern request over HTTP. */
  async function post(
    httpClient: HttpTestClient,
    method: string,
    params: Readonly<Record<string, unknown>>,
    more: ModernRequestOptions = {},
  ): Promise<{ status: number; json: Json; code: number | undefined }> {
    const extra = { capabilities: TASKS_DECLARED, ...more };
    const response = await httpClient.postModern(method, params, extra);
    const json = (await response.json()) as Json;
    return { status: response.status, json, code: json.error?.code };
  }

  async function beginHttp() {
    const s = new ModernTaskServer();
    const servers = { ...AUTO, o: { era: "auto" } } as const;
    const { newClient } = setUpHttp({ s, o: new ModernTaskServer() }, { servers });
    const made = await post(newClient(), "tools/call", { name: "s__x" });
    const taskId = made.json.result?.["taskId"];
    assert.equal(typeof taskId, "string");
    return { s, newClient, taskId };
  }

  it("repeats the task's id in a header", async () => {
    const { s, newClient, taskId } = await beginHttp();
    const found = await post(newClient(), "tasks/get", { taskId });
    assert.equal(found.json.result?.["taskId"], taskId);
    for (const method of METHODS) {
      const headers = { "Mcp-Name": "another" };
      const { status, code } = await post(newClient(), `tasks/${method}`, { taskId }, { headers });
      assert.deepEqual([status, code], [400, -32020]);
    }
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), [], "a request that ends ends no task");
  });

  it("finds no task of a server that it has nothing to do with", async () => {
    const { newClient, taskId } = await beginHttp();
    assert.equal((await post(newClient("/mcp/o"), "tasks/get", { taskId })).code, -32602);
    assert.equal((await post(newClient("/mcp/s"), "tasks/get", { taskId })).code, undefined);
  });

  it("is refused with 400 if it does not declare that it knows them, and 404 for what there is not", async () => {
    const { newClient } = await beginHttp();
    const { status, code } = await post(
      newClient(),
      "tasks/get",
      { taskId: "t" },
      { capabilities: {} },
    );
    assert.deepEqual([status, code], [400, -32021]);
    for (const method of ["tasks/result", "tasks/list"]) {
      assert.equal((await post(newClient(), method, { taskId: "t" })).status, 404);
    }
  });

  it("listens for one on a stream", async () => {
    const { s, newClient, taskId } = await beginHttp();
    const method = "subscriptions/listen";
    const notifications = { taskIds: [taskId] };
    const extra = { capabilities: TASKS_DECLARED };
    const response = await newClient().postModern(method, { notifications }, extra);
    const events = new EventStreamReader(response);
    assert.deepEqual((await events.message()).params?.["notifications"], notifications);
    s.notifyStatus(s.listenRequests.at(-1)?.id, "t1", "completed", COMPLETED_MEMBERS);
    assert.equal((await events.message()).params?.["taskId"], taskId);
    await events.cancel();
  });
});
