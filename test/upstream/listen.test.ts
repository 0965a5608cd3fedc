import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { VERSION } from "../../src/base/version.ts";
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
import { cancel, isOf, notify } from "../fixtures/peer-messages.ts";
import { messagesOfMethod } from "../fixtures/server-requests.ts";

const LISTEN = "subscriptions/listen";
const ACKNOWLEDGED = "notifications/subscriptions/acknowledged";
const UPDATED = "notifications/resources/updated";
const TOOL_Y = '{"name":"y","inputSchema":{"type":"object"}}';

const idOf = ({ params }: Json): unknown =>
  (params?.["_meta"] as Record<string, unknown>)[MetaKey.subscription];

function listen(client: Peer, id: unknown, notifications: object): void {
  client.send(modernRequest(id, LISTEN, { notifications }));
}

/** Lets all that is on its way arrive. */
async function arrive(): Promise<void> {
  for (let i = 0; i < 4; i++) await turn();
}

/** A server that refuses one of its subscriptions, and a client that has listed its tools. */
async function begin(subscribe?: (uri: unknown) => string | undefined) {
  const git = new ScriptedServer("x");
  const resources = ["1", "2"].map((name) => ({ uri: `u:${name}`, name }));
  git.listings = { prompts: [{ name: "p" }], resources };
  const refuse = (uri: unknown): string =>
    uri === "u:2" ? '"error":{"code":-32000,"message":"no"}' : '"result":{}';
  git.handlers = {
    "resources/subscribe": ({ params }) => (subscribe ?? refuse)(params?.["uri"]),
    "resources/unsubscribe": () => '"result":{}',
  };
  const setup = setUpHubWithClock({ git });
  const { client, clock } = setup;
  await sendModernRequest(client, "tools/list");
  return {
    ...setup,
    git,
    /** What the client was told, beside answers. */
    reported: () => client.messages.filter(({ method }) => method !== undefined),
    acknowledged: async (count = 1): Promise<Json["params"]> => {
      await client.until(() => messagesOfMethod(client, ACKNOWLEDGED).length === count);
      return messagesOfMethod(client, ACKNOWLEDGED).at(-1)?.params;
    },
    /** Tells of changes, which arrive. */
    change: async (...uris: string[]): Promise<void> => {
      for (const uri of uris) notify(git.newestPeer, UPDATED, { uri });
      await arrive();
    },
    announce: async (kind: string): Promise<void> => {
      notify(git.newestPeer, `notifications/${kind}/list_changed`);
      await arrive();
      await clock.advanceAsync(10_000);
      await arrive();
    },
  };
}

describe("a modern client that listens", () => {
  it("is told first what of that which it wants it will hear", async () => {
    const { client, acknowledged } = await begin();
    const resourceSubscriptions = ["u:1", "u:2", "v:3"];
    const odd = { promptsListChanged: false, other: true };
    listen(client, 7, { toolsListChanged: true, ...odd, resourceSubscriptions });
    assert.deepEqual(await acknowledged(), {
      notifications: { toolsListChanged: true, resourceSubscriptions: ["u:1"] },
      _meta: { [MetaKey.subscription]: 7 },
    });
  });

  it("hears of what it asked for, each under the id of the request that asked, and of nothing else", async () => {
    const { client, git, acknowledged, reported, change, announce } = await begin();
    listen(client, "tools", { toolsListChanged: true });
    listen(client, "prompts", { promptsListChanged: true });
    listen(client, "one", { resourceSubscriptions: ["u:1"] });
    await acknowledged(3);
    assert.equal(git.messagesOf("resources/subscribe").length, 1);
    git.tools.push(TOOL_Y);
    await change("u:1", "u:2");
    await announce("tools");
    const rest = reported().filter((message) => !isOf(ACKNOWLEDGED)(message));
    const heard = rest.map((each) => [idOf(each), each.method, each.params?.["uri"]]);
    assert.deepEqual(heard, [
      ["one", UPDATED, "u:1"],
      ["tools", "notifications/tools/list_changed", undefined],
    ]);
  });

  it("may listen several times to the same, and leaves nothing behind", async () => {
    const { client, git, acknowledged, change } = await begin();
    for (const id of [1, 2]) listen(client, id, { resourceSubscriptions: ["u:1"] });
    await acknowledged(2);
    await change("u:1");
    assert.deepEqual(messagesOfMethod(client, UPDATED).map(idOf), [1, 2]);
    cancel(client, 1);
    await arrive();
    assert.equal(git.messagesOf("resources/unsubscribe").length, 0);
    cancel(client, 2);
    await git.newestPeer?.find(isOf("resources/unsubscribe"));
    await change("u:1");
    assert.equal(messagesOfMethod(client, UPDATED).length, 2);
    assert.ok(!client.messages.some(isResponseTo(1)), "who does not want it gets no answer");
    listen(client, 3, { resourceSubscriptions: ["u:1"] });
    await acknowledged(3);
    await client.transport.close();
    await git.newestPeer?.until(() => git.messagesOf("resources/unsubscribe").length === 2);
  });

  it("is told so, and no more, if there is nothing that it will hear of", async () => {
    const { client, acknowledged } = await begin();
    const notifications = { resourceSubscriptions: ["u:2"] };
    const { result } = await sendModernWithId(client, 1, LISTEN, { notifications });
    assert.deepEqual((await acknowledged())?.["notifications"], {});
    assert.equal(result?.["resultType"], "complete");
  });

  it("does not wait for a server that does not answer", async () => {
    const { client, clock, git, acknowledged } = await begin(() => undefined);
    const notifications = { toolsListChanged: true, resourceSubscriptions: ["u:1"] };
    listen(client, 1, notifications);
    await git.newestPeer?.find(isOf("resources/subscribe"));
    await clock.advanceAsync(3000);
    assert.deepEqual((await acknowledged())?.["notifications"], notifications);
  });

  it("is not told of what changes before it was told that it listens", async () => {
    const { client, clock, git, reported, change } = await begin((uri) =>
      uri === "u:1" ? '"result":{}' : undefined,
    );
    listen(client, 1, { resourceSubscriptions: ["u:1", "u:2"] });
    await git.newestPeer?.until(() => git.messagesOf("resources/subscribe").length === 2);
    await arrive();
    await change("u:1");
    assert.deepEqual(reported(), []);
    await clock.advanceAsync(3000);
    await arrive();
    const methods = reported().map(({ method }) => method);
    assert.deepEqual(methods, [ACKNOWLEDGED, UPDATED]);
  });

  it("is told once of each change, whatever else changes", async () => {
    const { client, git, acknowledged, reported, announce } = await begin();
    listen(client, 1, { toolsListChanged: true });
    await acknowledged();
    git.tools.push(TOOL_Y);
    await announce("tools");
    git.listings = { ...git.listings, prompts: [] };
    await announce("prompts");
    assert.equal(reported().length, 2);
  });

  it("is told of the hub's end", async () => {
    const { client, hub, acknowledged } = await begin();
    listen(client, 1, { toolsListChanged: true });
    await acknowledged();
    await hub.close();
    const server = { name: "toolmux", version: VERSION };
    assert.deepEqual((await client.find(isResponseTo(1))).result, {
      _meta: { [MetaKey.subscription]: 1, [MetaKey.server]: server },
      resultType: "complete",
    });
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
      const { client } = await begin();
      const params = notifications === undefined ? {} : { notifications };
      assert.equal((await sendModernWithId(client, 1, LISTEN, params)).error?.code, -32602);
    });
  }

  it("may do so a thousand times at once, but not without end", async () => {
    const { client, acknowledged } = await begin();
    for (let id = 0; id < 1025; id++) listen(client, id, { toolsListChanged: true });
    await acknowledged(1024);
    assert.equal((await client.find(isResponseTo(1024))).error?.code, -32600);
    cancel(client, 3);
    listen(client, 3, { promptsListChanged: true });
    assert.deepEqual((await acknowledged(1025))?.["notifications"], { promptsListChanged: true });
  });
});
