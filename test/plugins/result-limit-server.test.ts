import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { Client as ClientV2 } from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import plugin from "../../plugins/result-limit/index.ts";
import { OwnAnswer } from "../../src/plugin/answer.ts";
import { paginate } from "../../plugins/result-limit/pages.ts";
import { type StoredContent, ContentStore } from "../../plugins/result-limit/store.ts";
import { LEGACY_VERSIONS } from "../../src/protocol/legacy.ts";
import type { Json } from "../fixtures/memory-hub.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { toolCall, toolInfo } from "./plugin-host.ts";
import { libraryHost, type LinkTransport, openServer, readerOf } from "./result-limit-reader.ts";

const INFO = { name: "reader", version: "1" };
const OPTIONS = { max: 2000, maxMedia: 5000, keep: 1 << 20, ttl: 60_000 };
const LONG = Array.from({ length: 500 }, (_, i) => `line ${i}`).join("\n");

/** A store with one result, whose id is known. */
async function setUp() {
  const host = libraryHost("results__read_more");
  const parts = await plugin.setup(OPTIONS, host);
  const tool = toolInfo("files", "read");
  const answer = new OwnAnswer({ content: [{ type: "text", text: LONG }] });
  const next = parts.call?.(() => Promise.resolve(answer), tool) ?? assert.fail();
  const { json } = await next(toolCall(tool, "{}"));
  const [id] = /[0-9a-f]{32}/.exec(json) ?? assert.fail();
  return { host, parts, id };
}

/** What the server says to messages that no SDK would send, until it has answered. */
async function ask(transport: LinkTransport, ...messages: object[]): Promise<Json[]> {
  await transport.start();
  const received: Json[] = [];
  const answered = new Promise<void>((resolve) => {
    // oxlint-disable-next-line unicorn/prefer-add-event-listener
    transport.onmessage = (message) => {
      received.push(message);
      resolve();
    };
  });
  for (const message of messages) await transport.send({ jsonrpc: "2.0", ...message });
  await answered;
  await transport.close();
  return received;
}

const V2 = { versionNegotiation: { mode: "legacy" } } as const;
const CLIENTS = {
  "the SDK's client, version 1": () => new ClientV1(INFO),
  "the SDK's client, version 2": () => new ClientV2(INFO, V2),
} as const;

for (const [name, make] of Object.entries(CLIENTS)) {
  const connect = async () => {
    const setup = await setUp();
    const client = make() as ClientV1;
    await client.connect(await openServer(setup.parts));
    /** Calls read_more. @returns the texts of the result */
    const readMore = async (args: object) => {
      const result = await client.callTool({ name: "read_more", arguments: { ...args } });
      const texts = (result.content as { text: string }[]).map(({ text }) => text);
      return { isError: result.isError === true, texts };
    };
    return { client, id: setup.id, readMore };
  };

  describe(`what was cut off, for ${name},`, () => {
    it("is read on with the one tool there is", async () => {
      const { client, id, readMore } = await connect();
      const { tools } = await client.listTools();
      assert.equal(tools.map((tool) => tool.name).join(), "read_more");
      const [page = assert.fail(), notice] = (await readMore({ id })).texts;
      assert.ok(LONG.includes(page));
      assert.equal(
        notice,
        `[Page 2 of 3. For page 3 call the tool results__read_more with {"id":"${id}","page":3}.]`,
      );
      assert.equal((await readMore({ id, page: 3 })).texts[1], "[Page 3 of 3: the end.]");
      await client.ping();
      await client.close();
    });

    it("is a resource, whole and in pages, which no list tells of", async () => {
      const { client, id } = await connect();
      assert.deepEqual((await client.listResources()).resources, []);
      const { resourceTemplates } = await client.listResourceTemplates();
      assert.deepEqual(
        resourceTemplates.map(({ uriTemplate }) => uriTemplate),
        ["toolmux-result://{id}", "toolmux-result://{id}/{page}"],
      );
      const uri = `toolmux-result://${id}`;
      const whole = await client.readResource({ uri });
      assert.deepEqual(whole.contents, [{ uri, mimeType: "text/plain", text: LONG }]);
      let pages = "";
      for (const page of [1, 2, 3]) {
        const { contents } = await client.readResource({ uri: `${uri}/${page}` });
        pages += (contents[0] as { text: string }).text;
      }
      assert.equal(pages, LONG);
      await assert.rejects(client.readResource({ uri: `${uri}/4` }), /no such resource/);
      await client.close();
    });

    it("is asked for in a way that cannot be answered, and that is said", async () => {
      const { client, id, readMore } = await connect();
      const refusals: [object, RegExp][] = [
        [{}, /Give the id/],
        [{ id: 1 }, /Give the id/],
        [{ id: "0".repeat(32) }, /no result of that id any more.*ask for less/],
        [{ id, page: 0 }, /Give a page/],
        [{ id, page: 1.5 }, /Give a page/],
        [{ id, page: "two" }, /Give a page/],
        [{ id, page: 4 }, /no page 4\b.*\b3\b/],
      ];
      for (const [args, says] of refusals) {
        const { isError, texts } = await readMore(args);
        assert.equal(isError, true);
        assert.match(texts[0] ?? "", says);
      }
      assert.equal((await readMore({ id: ` ${id} `, page: "3" })).isError, false);
      await assert.rejects(client.callTool({ name: "other", arguments: {} }), /read_more/);
      await client.close();
    });
  });
}

describe("the server of results", () => {
  for (const version of [...LEGACY_VERSIONS, "1999-01-01"]) {
    it(`speaks ${version}, or the newest version that it knows`, async () => {
      const { parts } = await setUp();
      const params = { protocolVersion: version, capabilities: {}, clientInfo: INFO };
      const request = { id: "a", method: "initialize", params };
      const [answer] = await ask(await openServer(parts), request);
      const spoken = version === "1999-01-01" ? LEGACY_VERSIONS[0] : version;
      assert.equal(answer?.result?.["protocolVersion"], spoken);
    });
  }

  it("refuses what it does not know, under the id that was asked with", async () => {
    const { parts } = await setUp();
    const [answer] = await ask(await openServer(parts), { id: 7, method: "prompts/list" });
    assert.deepEqual([answer?.id, answer?.error?.code], [7, -32601]);
  });

  it("answers no notification", async () => {
    const { parts } = await setUp();
    const received = await ask(
      await openServer(parts),
      { method: "notifications/initialized" },
      { id: 1, result: {} },
      { id: 2, method: "ping" },
    );
    assert.deepEqual(received, [{ jsonrpc: "2.0", id: 2, result: {} }]);
  });

  it("gives what one client was told of to all that know the id, in any number of connections", async () => {
    const { parts, id } = await setUp();
    const readers = await Promise.all([readerOf(parts), readerOf(parts)]);
    const pages = await Promise.all(readers.map((reader) => reader.call("read_more", { id })));
    assert.deepEqual(pages[0], pages[1]);
    await Promise.all(readers.map((reader) => reader.close()));
  });
});

describe("the shelf", () => {
  const media = (size: number): StoredContent => ({
    kind: "media",
    mimeType: "image/png",
    bytes: Buffer.alloc(size),
  });
  const put = (store: ContentStore, kept: StoredContent): string =>
    store.put(kept) ?? assert.fail("no room");

  it("never has more than its room, and drops what was not read for the longest time", () => {
    const store = new ContentStore(1000, 1000, new VirtualClock());
    const [a, b, c] = [put(store, media(300)), put(store, media(300)), put(store, media(300))];
    assert.ok(store.get(a));
    const d = put(store, media(400));
    assert.equal(store.size, 1000);
    const kept = [a, b, c, d].filter((id) => store.get(id) !== undefined);
    assert.deepEqual(kept, [a, c, d]);
  });

  it("counts what it takes to find the pages", () => {
    const store = new ContentStore(100_000, 1000, new VirtualClock());
    const bytes = Buffer.alloc(10_000, "x");
    put(store, { kind: "text", bytes, ends: paginate(bytes, 1000) });
    assert.equal(store.size, 10_080);
  });

  it("takes what fills it, and nothing that is bigger", () => {
    const store = new ContentStore(1000, 1000, new VirtualClock());
    const id = put(store, media(1000));
    assert.equal(store.put(media(1001)), undefined);
    assert.ok(store.get(id));
  });

  it("drops by itself what was not read for a while, with one timer", async () => {
    const clock = new VirtualClock();
    const store = new ContentStore(1000, 100, clock);
    const a = put(store, media(100));
    await clock.advanceAsync(60);
    const b = put(store, media(100));
    assert.deepEqual(clock.pendingDelays, [40]);
    assert.ok(store.get(a));
    await clock.advanceAsync(99);
    assert.ok(store.get(a));
    assert.equal(store.size, 200);
    await clock.advanceAsync(1);
    assert.equal(store.get(b), undefined);
    assert.equal(store.size, 100);
    await clock.advanceAsync(99);
    assert.equal(store.size, 0);
    assert.deepEqual(clock.pendingDelays, []);
  });

  it("does not give what is overdue, even if its timer is late", () => {
    let now = 0;
    const store = new ContentStore(1000, 100, { now: () => now, after: () => () => {} });
    const id = put(store, media(100));
    now = 99;
    assert.ok(store.get(id));
    now = 199;
    assert.equal(store.get(id), undefined);
  });

  it("has another id for everything, of 128 random bits", () => {
    const store = new ContentStore(1000, 1000, new VirtualClock());
    const ids = Array.from({ length: 500 }, () => put(store, media(1)));
    assert.equal(new Set(ids).size, 500);
    for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
    // Each of the 128 bits occurs as 0 and as 1.
    const bits = ids.map((id) => BigInt(`0x${id}`));
    const ones = bits.reduce((a, b) => a | b);
    const common = bits.reduce((a, b) => a & b);
    assert.deepEqual([ones, common], [(1n << 128n) - 1n, 0n]);
  });

  it("has nothing, takes nothing and waits for nothing once it is closed", () => {
    const clock = new VirtualClock();
    const store = new ContentStore(1000, 1000, clock);
    const id = put(store, media(1));
    store.close();
    assert.equal(store.get(id), undefined);
    assert.equal(store.put(media(1)), undefined);
    assert.equal(store.size, 0);
    assert.deepEqual(clock.pendingDelays, []);
  });
});
