import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { EventStreamReader, setUpHttp, type HttpTestClient } from "../fixtures/http-client.ts";
import {
  type Json,
  manifestOf,
  type Peer,
  type Servers,
  setUpHubWithClock,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import {
  modernRequest,
  MODERN_VERSION,
  sendModernWithId,
  sendModernRequest,
} from "../fixtures/modern-requests.ts";
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

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };

async function begin(s: ModernScriptedServer = new ModernTaskServer()) {
  const setup = setUpHubWithClock({ s }, { servers: AUTO });
  await sendModernRequest(setup.client, "tools/list", {}, TASKS_DECLARED);
  return setup;
}

describe("a modern client of modern servers with tasks", () => {
  it("is told that the hub carries them, and its servers that it knows them", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const { result } = await sendModernRequest(client, "server/discover");
    const { extensions } = result?.["capabilities"] as { extensions: object };
    assert.deepEqual(extensions, { [TASKS_EXTENSION_ID]: {} });
    await createModernTask(client);
    assert.equal(s.taskCount, 1);
  });

  it("gets a task for an answer, under an id that nobody can guess, and nothing else of it is changed", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const ids = [await createModernTask(client), await createModernTask(client)];
    for (const [i, id] of ids.entries()) {
      assert.match(id, /^[\w-]{43}$/);
      const text = client.received.find((each): boolean => each.includes(id));
      const task = modernTaskJson(`t${i + 1}`).replace(`"t${i + 1}"`, `"${id}"`);
      assert.ok(text?.includes(`{ "resultType": "task",${task},"_meta":{"n":1.0}}`), text ?? "");
    }
    assert.notEqual(ids[0], ids[1]);
    assert.ok(!client.received.some((text) => text.includes('"t1"')));
  });

  it("asks for a task, answers what it wants and cancels it under that id", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    await createModernTask(client);
    const id = await createModernTask(client);
    s.status = "completed";
    s.extraMembers = COMPLETED_MEMBERS;
    const { result } = await requestTask(client, "get", id);
    assert.equal(result?.["taskId"], id);
    assert.ok(client.received.at(-1)?.includes(modernTaskJson(id, "completed", COMPLETED_MEMBERS)));
    const inputResponses = { k: { action: "accept", content: { n: 1 } } };
    const updated = await requestTask(client, "update", id, { inputResponses });
    assert.deepEqual(updated.result, { resultType: "complete" });
    await requestTask(client, "cancel", id);
    assert.deepEqual(
      s.messagesOf("tasks/update").at(-1)?.params?.["inputResponses"],
      inputResponses,
    );
    for (const method of ["get", "update", "cancel"]) {
      assert.deepEqual(s.taskIdsOf(`tasks/${method}`), ["t2"]);
    }
  });

  it("is told which server asks", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const id = await createModernTask(client);
    s.status = "input_required";
    s.extraMembers = `,"inputRequests":${JSON.stringify({ k: FORM_ELICITATION })}`;
    const { result } = await requestTask(client, "get", id);
    const { k } = result?.["inputRequests"] as { k: typeof FORM_ELICITATION };
    assert.equal(k.params.message, "[s] Which?");
  });

  for (const method of ["get", "update", "cancel"] as const) {
    it(`has to know of the task that it asks about (${method})`, async () => {
      const s = new ModernTaskServer();
      const { client } = await begin(s);
      await createModernTask(client);
      for (const id of ["t1", "", 1, undefined]) {
        assert.equal((await requestTask(client, method, id)).error?.code, -32602);
      }
      assert.deepEqual(s.taskIdsOf(`tasks/${method}`), []);
    });

    it(`has to declare that it knows tasks (${method})`, async () => {
      const { client } = await begin();
      const id = await createModernTask(client);
      const { error } = await sendModernRequest(
        client,
        `tasks/${method}`,
        { taskId: id },
        { roots: {} },
      );
      assert.equal(error?.code, -32021);
      assert.deepEqual(error?.data?.["requiredCapabilities"], TASKS_DECLARED);
    });
  }

  it("may have declared other things when it began one", async () => {
    const { client } = await begin();
    const id = await createModernTask(client);
    const able = { ...TASKS_DECLARED, sampling: {} };
    const { result } = await sendModernRequest(client, "tasks/get", { taskId: id }, able);
    assert.equal(result?.["taskId"], id);
  });

  it("gets the server's error if it does not know the task any more, also after a restart", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const id = await createModernTask(client);
    s.disconnect();
    s.handlers["tasks/get"] = () => '"error":{"code":-32602,"message":"gone","data":1.0}';
    const { error } = await requestTask(client, "get", id);
    assert.deepEqual(error, { code: -32602, message: "gone", data: 1 });
    assert.equal(s.transportCount, 2);
  });

  it("knows nothing of what another client has begun", async () => {
    const s = new ModernTaskServer();
    const { client, connect } = await begin(s);
    const id = await createModernTask(client);
    const { error } = await requestTask(connect(), "get", id);
    assert.equal(error?.code, -32602);
  });

  it("has what has not ended cancelled when it leaves, and nothing else", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const ended = await createModernTask(client);
    s.status = "failed";
    await requestTask(client, "get", ended);
    await createModernTask(client);
    await client.transport.close();
    await s.newestPeer?.until(() => s.taskIdsOf("tasks/cancel").length > 0);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t2"]);
  });

  it("has what has not ended cancelled when it leaves, also at the process in the place of the first", async () => {
    const s = new ModernTaskServer();
    const { client, hub } = await begin(s);
    const id = await createModernTask(client);
    hub.reload(manifestOf({ s: { ...AUTO["s"], args: ["other"] } }));
    await requestTask(client, "get", id);
    assert.equal(s.transportCount, 2);
    await client.transport.close();
    await s.newestPeer?.until(() => s.taskIdsOf("tasks/cancel").length > 0);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("has a task ended that is made of a call which it has given up", async () => {
    const s = new ModernTaskServer();
    s.onCall = () => undefined;
    const { client } = await begin(s);
    client.send(modernRequest(5, "tools/call", { name: "s__x" }, TASKS_DECLARED));
    await s.newestPeer?.until(() => s.messagesOf("tools/call").length === 1);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await s.newestPeer?.until(() => s.messagesOf("notifications/cancelled").length === 1);
    const [first] = s.messagesOf("tools/call");
    const result = `{"resultType":"task",${modernTaskJson("t7")}}`;
    s.newestPeer?.send(`{"jsonrpc":"2.0","id":${String(first?.id)},"result":${result}}`);
    await s.newestPeer?.until(() => s.taskIdsOf("tasks/cancel").length > 0);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t7"]);
    // What merely looks like one is none.
    client.send(modernRequest(6, "tools/call", { name: "s__x" }, TASKS_DECLARED));
    await s.newestPeer?.until(() => s.messagesOf("tools/call").length === 2);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 6 } });
    await s.newestPeer?.until(() => s.messagesOf("notifications/cancelled").length === 2);
    const second = s.messagesOf("tools/call")[1];
    s.newestPeer?.send({ jsonrpc: "2.0", id: second?.id, result: { taskId: "t8" } });
    await sendModernRequest(client, "tools/list");
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t7"]);
    assert.ok(s.messagesOf("tasks/cancel")[0]?.params?.["_meta"], "it says who asks");
  });

  it("has one forgotten when its server does not keep it any more", async () => {
    const s = new ModernTaskServer();
    const { client, clock } = await begin(s);
    const id = await createModernTask(client);
    await clock.advanceAsync(60_000);
    assert.equal((await requestTask(client, "get", id)).error, undefined);
    await clock.advanceAsync(61_000);
    assert.equal((await requestTask(client, "get", id)).error?.code, -32602);
  });

  for (const [ttl, status, hours] of [
    ["1e15", "working", 24],
    ["null", "working", 24],
    ["null", "failed", 1],
  ] as const) {
    it(`has one forgotten after ${hours} h that is ${status} and kept for ${ttl}`, async () => {
      const s = new ModernTaskServer();
      s.ttl = ttl;
      s.status = status;
      const { client, clock } = await begin(s);
      const id = await createModernTask(client);
      await requestTask(client, "get", id);
      const find = async (): Promise<number | undefined> =>
        (await sendModernRequest(client, "tasks/cancel", { taskId: id }, TASKS_DECLARED)).error
          ?.code;
      await clock.advanceAsync(hours * 3_600_000 - 60_000);
      assert.equal(await find(), undefined);
      await clock.advanceAsync(120_000);
      assert.equal(await find(), -32602);
    });
  }

  it("keeps the process of one that has not ended, also if clients of another kind come", async () => {
    for (const [status, starts] of [
      ["working", 1],
      ["completed", 2],
    ] as const) {
      const s = new ModernTaskServer();
      s.ttl = "null";
      s.status = status;
      const { client, clock } = await begin(s);
      const id = await createModernTask(client);
      await requestTask(client, "get", id);
      await clock.advanceAsync(600_000);
      const able = { ...TASKS_DECLARED, sampling: {} };
      await sendModernRequest(client, "tools/list", {}, able);
      const { result } = await sendModernRequest(client, "tasks/get", { taskId: id }, able);
      assert.equal(result?.["taskId"], id);
      const at = s.peers.map(({ messages }) => messages.filter((m) => m.method === "tasks/get"));
      assert.deepEqual(
        at.map(({ length }) => length),
        starts === 1 ? [2, 0] : [1, 1],
      );
    }
  });

  it("is told what a server knows that was taken out of the manifest and put back", async () => {
    const s = new ModernTaskServer();
    const { client, hub } = await begin(s);
    const id = await createModernTask(client);
    hub.reload(manifestOf({}));
    assert.equal((await requestTask(client, "get", id)).error?.code, -32602);
    hub.reload(manifestOf(AUTO));
    assert.equal((await requestTask(client, "get", id)).result?.["taskId"], id);
    assert.equal(s.transportCount, 2);
  });

  it("cancels a request about one at its server, and not the task", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const id = await createModernTask(client);
    s.handlers["tasks/get"] = () => undefined;
    client.send(modernRequest(5, "tasks/get", { taskId: id }, TASKS_DECLARED));
    await s.newestPeer?.until(() => s.messagesOf("tasks/get").length === 1);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await s.newestPeer?.until(() => s.messagesOf("notifications/cancelled").length === 1);
    const [asked] = s.messagesOf("tasks/get");
    assert.equal(s.messagesOf("notifications/cancelled")[0]?.params?.["requestId"], asked?.id);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
  });

  it("is told when its server takes too long", async () => {
    const s = new ModernTaskServer();
    const { client, clock } = await begin(s);
    const id = await createModernTask(client);
    s.handlers["tasks/get"] = () => undefined;
    const answer = requestTask(client, "get", id);
    await clock.advanceAsync(300_000);
    assert.match((await answer).error?.message ?? "", /"s" did not answer tasks\/get within/);
  });

  it("keeps its server from being idle as long as one has not ended", async () => {
    const s = new ModernTaskServer();
    const servers = { s: { era: "auto", lazy: true, idleStop: 30_000 } } as const;
    const { client, clock } = setUpHubWithClock({ s }, { servers });
    const id = await createModernTask(client);
    await clock.advanceAsync(59_000);
    assert.equal(s.openCount, 1);
    s.status = "completed";
    await requestTask(client, "get", id);
    await clock.advanceAsync(61_000);
    assert.equal(s.openCount, 0);
  });

  it("has as many as can be remembered, and those that have ended make place", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const first = await createModernTask(client);
    const { length } = client.received;
    for (let i = 1; i < 1024; i++) {
      client.send(modernRequest(`many-${i}`, "tools/call", { name: "s__x" }, TASKS_DECLARED));
    }
    await client.until(() => client.received.length === length + 1023);
    const { error } = await sendModernRequest(
      client,
      "tools/call",
      { name: "s__x" },
      TASKS_DECLARED,
    );
    assert.match(error?.message ?? "", /1024 tasks/);
    await s.newestPeer?.until(() => s.taskIdsOf("tasks/cancel").length > 0);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1025"]);
    s.status = "cancelled";
    await requestTask(client, "get", first);
    await createModernTask(client);
    assert.equal((await requestTask(client, "get", first)).error?.code, -32602);
  });

  it("gets an error for a task without an id", async () => {
    const s = new ModernTaskServer();
    s.onCall = () => '"result":{"resultType":"task","status":"working"}';
    const { client } = await begin(s);
    const { error } = await sendModernRequest(
      client,
      "tools/call",
      { name: "s__x" },
      TASKS_DECLARED,
    );
    assert.match(error?.message ?? "", /Server "s" .*task/);
  });

  it("learns of resources from a task's result", async () => {
    const s = new ModernTaskServer();
    s.listings = { ...s.listings, resources: [] };
    s.handlers["resources/read"] = () => '"result":{"resultType":"complete","contents":[]}';
    const { client } = await begin(s);
    const id = await createModernTask(client);
    s.status = "completed";
    s.extraMembers = ',"result":{"content":[{"type":"resource_link","uri":"odd:1","name":"r"}]}';
    await requestTask(client, "get", id);
    const { error } = await sendModernRequest(client, "resources/read", { uri: "odd:1" });
    assert.equal(error, undefined);
    await listenFor(client, "l", [id]);
    s.notifyStatus(
      s.listenRequests.at(-1)?.id,
      "t1",
      "completed",
      s.extraMembers.replace("odd:1", "odd:2"),
    );
    await client.until(() => changesOf(client).length === 1);
    const second = await sendModernRequest(client, "resources/read", { uri: "odd:2" });
    assert.equal(second.error, undefined);
  });
});

/** Listens for tasks. @returns what the client has acknowledged */
async function listenFor(client: Peer, id: unknown, taskIds: unknown[]): Promise<unknown> {
  client.send(
    modernRequest(id, "subscriptions/listen", { notifications: { taskIds } }, TASKS_DECLARED),
  );
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
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    await createModernTask(client);
    const id = await createModernTask(client);
    assert.deepEqual(await listenFor(client, "l", [id, "t1", "nothing"]), { taskIds: [id] });
    const listen = s.listenRequests.at(-1);
    assert.deepEqual(listen && wantedBy(listen), ["t2"]);
    const asks = `,"inputRequests":${JSON.stringify({ k: FORM_ELICITATION })}`;
    s.notifyStatus(listen?.id, "t1", "completed");
    s.notifyStatus(listen?.id, "t2", "input_required", asks);
    await client.until(() => changesOf(client).length === 1);
    const [change] = changesOf(client);
    assert.equal(change?.params?.["taskId"], id);
    assert.deepEqual(change?.params?.["_meta"], { mine: 1, [MetaKey.subscription]: "l" });
    assert.match(JSON.stringify(change), /\[s\] Which\?/);
    assert.ok(client.received.at(-1)?.includes('"big":12345678901234567890'));
  });

  it("has its server listened to once, for what anybody wants", async () => {
    const s = new ModernTaskServer();
    const { client, connect } = await begin(s);
    const other = connect();
    await sendModernRequest(other, "tools/list", {}, TASKS_DECLARED);
    const [one, two] = [await createModernTask(client), await createModernTask(other)];
    await listenFor(client, "l", [one]);
    await listenFor(other, "l", [two]);
    const last = s.listenRequests.at(-1);
    assert.deepEqual(last && wantedBy(last), ["t1", "t2"]);
    s.notifyStatus(last?.id, "t2", "completed", COMPLETED_MEMBERS);
    await other.until(() => changesOf(other).length === 1);
    assert.deepEqual(changesOf(client), []);
    other.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "l" } });
    await s.newestPeer?.until(
      () => JSON.stringify(s.listenRequests.map(wantedBy).at(-1)) === '["t1"]',
    );
  });

  it("needs not ask to have a task known as ended", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const id = await createModernTask(client);
    await listenFor(client, "l", [id]);
    s.notifyStatus(s.listenRequests.at(-1)?.id, "t1", "completed", COMPLETED_MEMBERS);
    await client.until(() => changesOf(client).length === 1);
    await client.transport.close();
    await turn();
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
  });

  it("is listened for again at a server that was started anew", async () => {
    const s = new ModernTaskServer();
    const { client } = await begin(s);
    const id = await createModernTask(client);
    await listenFor(client, "l", [id]);
    const before = s.listenRequests.length;
    s.disconnect();
    await requestTask(client, "get", id);
    await s.newestPeer?.until(() =>
      s.listenRequests.slice(before).flatMap(wantedBy).includes("t1"),
    );
    s.notifyStatus(s.listenRequests.at(-1)?.id, "t1", "completed", COMPLETED_MEMBERS);
    await client.until(() => changesOf(client).length === 1);
  });

  it("goes on to hear of a task, and to need its server, when that is another process", async () => {
    const s = new ModernTaskServer();
    const settings = { era: "auto", lazy: true, idleStop: 5000 } as const;
    const { client, hub, clock } = setUpHubWithClock({ s }, { servers: { s: settings } });
    const id = await createModernTask(client);
    await listenFor(client, "l", [id]);
    const before = s.listenRequests.length;
    hub.reload(manifestOf({ s: { ...settings, args: ["other"] } }));
    await requestTask(client, "get", id);
    await s.newestPeer?.until(() =>
      s.listenRequests.slice(before).flatMap(wantedBy).includes("t1"),
    );
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "l" } });
    await clock.advanceAsync(100_000);
    assert.equal(s.openCount, 1, "the task has not ended");
  });

  it("hears of no task whose server does not tell of any", async () => {
    const s = new ModernTaskServer();
    const discover = s.handlers["server/discover"];
    s.handlers["server/discover"] = (message, text) =>
      discover?.(message, text)?.replace(TASKS_EXTENSION_ID, "vendor/odd");
    const { client } = await begin(s);
    const id = await createModernTask(client);
    assert.deepEqual(await listenFor(client, "l", [id]), {});
    assert.ok(s.listenRequests.every((listen) => wantedBy(listen) === undefined));
  });

  it("hears of no task of which its server will not tell", async () => {
    const s = new ModernTaskServer();
    s.handlers["subscriptions/listen"] = (message) => {
      s.acknowledge(message, { toolsListChanged: true, taskIds: [] });
      return undefined;
    };
    const { client } = await begin(s);
    assert.deepEqual(await listenFor(client, "l", [await createModernTask(client)]), {});
  });

  it("has to declare that it knows tasks, and to name them by texts", async () => {
    const { client } = await begin();
    const id = await createModernTask(client);
    const listen = (taskIds: unknown, able: object): Promise<Json> =>
      sendModernRequest(client, "subscriptions/listen", { notifications: { taskIds } }, able);
    assert.equal((await listen([id], {})).error?.code, -32021);
    assert.equal((await listen([1], TASKS_DECLARED)).error?.code, -32602);
    assert.equal((await listen(id, TASKS_DECLARED)).error?.code, -32602);
  });
});

/** A modern request over HTTP. */
async function post(
  httpClient: HttpTestClient,
  method: string,
  params: Readonly<Record<string, unknown>>,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ status: number; json: Json }> {
  const name = params["name"] ?? params["taskId"];
  const response = await httpClient.request(
    "POST",
    modernRequest(1, method, params, TASKS_DECLARED),
    {
      "MCP-Protocol-Version": MODERN_VERSION,
      "Mcp-Method": method,
      ...(typeof name === "string" && { "Mcp-Name": name }),
      ...headers,
    },
  );
  return { status: response.status, json: (await response.json()) as Json };
}

describe("a modern client of tasks over HTTP", () => {
  it("repeats the task's id in a header", async () => {
    const s = new ModernTaskServer();
    const { newClient } = setUpHttp({ s }, { servers: AUTO });
    const made = await post(newClient(), "tools/call", { name: "s__x" });
    const taskId = made.json.result?.["taskId"];
    assert.equal(typeof taskId, "string");
    const found = await post(newClient(), "tasks/get", { taskId });
    assert.equal(found.json.result?.["taskId"], taskId);
    for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
      const { status, json } = await post(
        newClient(),
        method,
        { taskId },
        { "Mcp-Name": "another" },
      );
      assert.deepEqual([status, json.error?.code], [400, -32020]);
    }
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), [], "a request that ends ends no task");
  });

  it("finds no task of a server that it has nothing to do with", async () => {
    const { newClient } = setUpHttp(
      { s: new ModernTaskServer(), o: new ModernTaskServer() },
      { servers: { ...AUTO, o: { era: "auto" } } },
    );
    const made = await post(newClient(), "tools/call", { name: "s__x" });
    const taskId = made.json.result?.["taskId"];
    assert.equal(
      (await post(newClient("/mcp/o"), "tasks/get", { taskId })).json.error?.code,
      -32602,
    );
    assert.equal((await post(newClient("/mcp/s"), "tasks/get", { taskId })).json.error, undefined);
  });

  it("is refused with 400 if it does not declare that it knows them, and 404 for what there is not", async () => {
    const { newClient } = setUpHttp({ s: new ModernTaskServer() }, { servers: AUTO });
    const headers = {
      "MCP-Protocol-Version": MODERN_VERSION,
      "Mcp-Method": "tasks/get",
      "Mcp-Name": "t",
    };
    const body = modernRequest(1, "tasks/get", { taskId: "t" });
    const response = await newClient().request("POST", body, headers);
    assert.equal(response.status, 400);
    assert.equal(((await response.json()) as Json).error?.code, -32021);
    for (const method of ["tasks/result", "tasks/list"]) {
      assert.equal((await post(newClient(), method, { taskId: "t" })).status, 404);
    }
  });

  it("listens for one on a stream", async () => {
    const s = new ModernTaskServer();
    const { newClient } = setUpHttp({ s }, { servers: AUTO });
    const made = await post(newClient(), "tools/call", { name: "s__x" });
    const taskIds = [made.json.result?.["taskId"]];
    const body = modernRequest(
      7,
      "subscriptions/listen",
      { notifications: { taskIds } },
      TASKS_DECLARED,
    );
    const headers = {
      "MCP-Protocol-Version": MODERN_VERSION,
      "Mcp-Method": "subscriptions/listen",
    };
    const events = new EventStreamReader(await newClient().request("POST", body, headers));
    assert.deepEqual((await events.message()).params?.["notifications"], { taskIds });
    s.notifyStatus(s.listenRequests.at(-1)?.id, "t1", "completed", COMPLETED_MEMBERS);
    assert.equal((await events.message()).params?.["taskId"], taskIds[0]);
    await events.cancel();
  });
});

describe("a modern client of a legacy server", () => {
  it("has nothing at the other end of a task that it did not begin", async () => {
    const clock = new VirtualClock();
    const s = new ModernScriptedServer("x");
    s.handlers["tasks/get"] = () => METHOD_NOT_FOUND;
    const { client } = setUpHub({ s }, { servers: AUTO, clock });
    const { error } = await sendModernWithId(
      client,
      1,
      "tasks/get",
      { taskId: "t" },
      TASKS_DECLARED,
    );
    assert.equal(error?.code, -32602);
  });
});
