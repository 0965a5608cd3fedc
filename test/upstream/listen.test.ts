import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { modernRequest, sendModernWithId, sendModernRequest } from "../fixtures/modern-requests.ts";

const isAcknowledgement = ({ method }: Json): boolean =>
  method === "notifications/subscriptions/acknowledged";

function idOf({ params }: Json): unknown {
  return (params?.["_meta"] as Record<string, unknown>)[MetaKey.subscription];
}

function listen(client: Peer, id: unknown, notifications: object): void {
  client.send(modernRequest(id, "subscriptions/listen", { notifications }));
}

/** What the client was told, beside answers. */
function reportedTo(client: Peer): Json[] {
  return client.messages.filter(({ method }) => method !== undefined);
}

function setListening(): ReturnType<typeof setUpHubWithClock> & { git: ScriptedServer } {
  const git = new ScriptedServer("x");
  git.listings = {
    prompts: [{ name: "p" }],
    resources: [
      { uri: "u:1", name: "1" },
      { uri: "u:2", name: "2" },
    ],
  };
  git.handlers = {
    "resources/subscribe": ({ params }) =>
      params?.["uri"] === "u:2" ? '"error":{"code":-32000,"message":"no"}' : '"result":{}',
    "resources/unsubscribe": () => '"result":{}',
  };
  return { ...setUpHubWithClock({ git }), git };
}

function change(git: ScriptedServer, uri: string): void {
  git.newestPeer?.send({
    jsonrpc: "2.0",
    method: "notifications/resources/updated",
    params: { uri },
  });
}

/** Lets all that is on its way arrive. */
async function arrive(): Promise<void> {
  for (let i = 0; i < 4; i++) await turn();
}

describe("a modern client that listens", () => {
  it("is told first what of that which it wants it will hear", async () => {
    const { client } = setListening();
    await sendModernRequest(client, "tools/list");
    const resourceSubscriptions = ["u:1", "u:2", "v:3"];
    listen(client, 7, {
      toolsListChanged: true,
      promptsListChanged: false,
      other: true,
      resourceSubscriptions,
    });
    const { params } = await client.find(isAcknowledgement);
    assert.deepEqual(params, {
      notifications: { toolsListChanged: true, resourceSubscriptions: ["u:1"] },
      _meta: { [MetaKey.subscription]: 7 },
    });
  });

  it("hears of what it asked for, each under the id of the request that asked, and of nothing else", async () => {
    const { client, clock, git } = setListening();
    await sendModernRequest(client, "tools/list");
    listen(client, "tools", { toolsListChanged: true });
    listen(client, "prompts", { promptsListChanged: true });
    listen(client, "one", { resourceSubscriptions: ["u:1"] });
    await client.until(() => client.messages.filter(isAcknowledgement).length === 3);
    assert.equal(git.messagesOf("resources/subscribe").length, 1);
    git.tools.push('{"name":"y","inputSchema":{"type":"object"}}');
    git.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    change(git, "u:1");
    change(git, "u:2");
    await arrive();
    await clock.advanceAsync(100);
    await arrive();
    const rest = reportedTo(client).filter((message) => !isAcknowledgement(message));
    const reported = rest.map((message) => [
      idOf(message),
      message.method,
      message.params?.["uri"],
    ]);
    assert.deepEqual(reported, [
      ["one", "notifications/resources/updated", "u:1"],
      ["tools", "notifications/tools/list_changed", undefined],
    ]);
  });

  it("may listen several times to the same", async () => {
    const { client, git } = setListening();
    await sendModernRequest(client, "tools/list");
    listen(client, 1, { resourceSubscriptions: ["u:1"] });
    listen(client, 2, { resourceSubscriptions: ["u:1"] });
    await client.until(() => client.messages.filter(isAcknowledgement).length === 2);
    change(git, "u:1");
    await arrive();
    const reported = reportedTo(client).filter(
      ({ method }) => method?.endsWith("updated") === true,
    );
    assert.deepEqual(reported.map(idOf), [1, 2]);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await arrive();
    assert.equal(git.messagesOf("resources/unsubscribe").length, 0);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 2 } });
    await git.newestPeer?.find(({ method }) => method === "resources/unsubscribe");
    change(git, "u:1");
    await arrive();
    assert.equal(
      reportedTo(client).filter(({ method }) => method?.endsWith("updated") === true).length,
      2,
    );
    assert.equal(
      client.messages.some(isResponseTo(1)),
      false,
      "who does not want it gets no answer",
    );
  });

  it("is told so, and no more, if there is nothing that it will hear of", async () => {
    const { client } = setListening();
    await sendModernRequest(client, "tools/list");
    const { result } = await sendModernWithId(client, 1, "subscriptions/listen", {
      notifications: { resourceSubscriptions: ["u:2"] },
    });
    assert.deepEqual(reportedTo(client)[0]?.params?.["notifications"], {});
    assert.equal(result?.["resultType"], "complete");
  });

  it("does not wait for a server that does not answer", async () => {
    const { client, clock, git } = setListening();
    git.handlers = { ...git.handlers, "resources/subscribe": () => undefined };
    await sendModernRequest(client, "tools/list");
    listen(client, 1, { toolsListChanged: true, resourceSubscriptions: ["u:1"] });
    await git.newestPeer?.find(({ method }) => method === "resources/subscribe");
    await clock.advanceAsync(3000);
    const { params } = await client.find(isAcknowledgement);
    assert.deepEqual(params?.["notifications"], {
      toolsListChanged: true,
      resourceSubscriptions: ["u:1"],
    });
  });

  it("is not told of what changes before it was told that it listens", async () => {
    const { client, clock, git } = setListening();
    git.handlers = {
      ...git.handlers,
      "resources/subscribe": ({ params }) =>
        params?.["uri"] === "u:1" ? '"result":{}' : undefined,
    };
    await sendModernRequest(client, "tools/list");
    listen(client, 1, { resourceSubscriptions: ["u:1", "u:2"] });
    await git.newestPeer?.until(() => git.messagesOf("resources/subscribe").length === 2);
    await arrive();
    change(git, "u:1");
    await arrive();
    assert.deepEqual(reportedTo(client), []);
    await clock.advanceAsync(3000);
    await arrive();
    assert.deepEqual(
      reportedTo(client).map(({ method }) => method),
      ["notifications/subscriptions/acknowledged", "notifications/resources/updated"],
    );
  });

  it("is told once of each change, whatever else changes", async () => {
    const { client, clock, git } = setListening();
    await sendModernRequest(client, "tools/list");
    listen(client, 1, { toolsListChanged: true });
    await client.find(isAcknowledgement);
    const announce = async (kind: string): Promise<void> => {
      git.newestPeer?.send({ jsonrpc: "2.0", method: `notifications/${kind}/list_changed` });
      await arrive();
      await clock.advanceAsync(10_000);
      await arrive();
    };
    git.tools.push('{"name":"y","inputSchema":{"type":"object"}}');
    await announce("tools");
    git.listings = { ...git.listings, prompts: [] };
    await announce("prompts");
    const reported = reportedTo(client).filter((message) => !isAcknowledgement(message));
    assert.equal(reported.length, 1);
  });

  it("is told of the hub's end", async () => {
    const { client, hub } = setListening();
    await sendModernRequest(client, "tools/list");
    listen(client, 1, { toolsListChanged: true });
    await client.find(isAcknowledgement);
    await hub.close();
    const { result } = await client.find(isResponseTo(1));
    assert.deepEqual(result, {
      _meta: {
        [MetaKey.subscription]: 1,
        [MetaKey.server]: { name: "toolmux", version: "0.1.0" },
      },
      resultType: "complete",
    });
  });

  it("leaves nothing behind", async () => {
    const { client, git } = setListening();
    await sendModernRequest(client, "tools/list");
    listen(client, 1, { resourceSubscriptions: ["u:1"] });
    await client.find(isAcknowledgement);
    await client.transport.close();
    await git.newestPeer?.find(({ method }) => method === "resources/unsubscribe");
  });

  for (const notifications of [
    undefined,
    7,
    [],
    { resourceSubscriptions: "u:1" },
    { resourceSubscriptions: [1] },
    { resourceSubscriptions: Array.from({ length: 1025 }, (_, i) => `u:${i}`) },
  ]) {
    const text = JSON.stringify(notifications)?.slice(0, 40);
    it(`has to say what it wants to hear of: ${text} is not that`, async () => {
      const { client } = setListening();
      const params = notifications === undefined ? {} : { notifications };
      const { error } = await sendModernWithId(client, 1, "subscriptions/listen", params);
      assert.equal(error?.code, -32602);
    });
  }

  it("may do so a thousand times at once, but not without end", async () => {
    const { client } = setListening();
    await sendModernRequest(client, "tools/list");
    for (let id = 0; id < 1025; id++) listen(client, id, { toolsListChanged: true });
    await client.until(() => client.received.length === 1026);
    assert.equal(client.messages.filter(isAcknowledgement).length, 1024);
    assert.equal((await client.find(isResponseTo(1024))).error?.code, -32600);
    const params = { requestId: 3 };
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    listen(client, 3, { promptsListChanged: true });
    await client.find(({ params: reported }) => {
      const { promptsListChanged } = (reported?.["notifications"] ?? {}) as Record<string, unknown>;
      return promptsListChanged === true;
    });
  });
});
