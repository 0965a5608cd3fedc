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

/** The server's answer to a message that no SDK would send. */
async function ask(transport: LinkTransport, message: object): Promise<Record<string, unknown>> {
  await transport.start();
  const answered = new Promise<Record<string, unknown>>((resolve) => {
    // oxlint-disable-next-line unicorn/prefer-add-event-listener
    transport.onmessage = (received) => resolve(received as Record<string, unknown>);
  });
  await transport.send({ jsonrpc: "2.0", ...message });
  return answered;
}

const CLIENTS = {
  "the SDK's client, version 1": async (transport: LinkTransport) => {
    const client = new ClientV1(INFO);
    await client.connect(transport);
    return client;
  },
  "the SDK's client, version 2": async (transport: LinkTransport) => {
    const client = new ClientV2(INFO, { versionNegotiation: { mode: "legacy" } });
    await client.connect(transport);
    return client;
  },
} as const;

for (const [name, connect] of Object.entries(CLIENTS)) {
  describe(`what was cut off, for ${name},`, () => {
    it("is read on with the one tool there is", async () => {
      const { parts, id } = await setUp();
      const client = await connect(await openServer(parts));
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map((tool) => tool.name),
        ["read_more"],
      );
      const result = await client.callTool({ name: "read_more", arguments: { id } });
      const [page, notice] = result.content as { text: string }[];
      assert.ok(LONG.includes(page?.text ?? assert.fail()));
      assert.equal(
        notice?.text,
        `[Page 2 of 3. For page 3 call the tool results__read_more with {"id":"${id}","page":3}.]`,
      );
      const last = await client.callTool({ name: "read_more", arguments: { id, page: 3 } });
      const [, end] = last.content as { text: string }[];
      assert.equal(end?.text, "[Page 3 of 3: the end.]");
      await client.ping();
      await client.close();
    });

    it("is a resource, whole and in pages, which no list tells of", async () => {
      const { parts, id } = await setUp();
      const client = await connect(await openServer(parts));
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
      const { parts, id } = await setUp();
      const client = await connect(await openServer(parts));
      const refusals: [Record<string, unknown>, RegExp][] = [
        [{}, /Give the id/],
        [{ id: 1 }, /Give the id/],
        [{ id: "0".repeat(32) }, /no result of that id any more.*ask for less/],
        [{ id, page: 0 }, /Give a page/],
        [{ id, page: 1.5 }, /Give a page/],
        [{ id, page: "two" }, /Give a page/],
        [{ id, page: 4 }, /no page 4\b.*\b3\b/],
      ];
      for (const [args, says] of refusals) {
        const result = await client.callTool({ name: "read_more", arguments: args });
        assert.equal(result.isError, true);
        assert.match((result.content as { text: string }[])[0]?.text ?? "", says);
      }
      const spaced = { id: ` ${id} `, page: "3" };
      const fine = await client.callTool({ name: "read_more", arguments: spaced });
      assert.notEqual(fine.isError, true);
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
      const transport = await openServer(parts);
      const { result } = await ask(transport, { id: "a", method: "initialize", params });
      const spoken = (result as Record<string, unknown>)["protocolVersion"];
      assert.equal(spoken, version === "1999-01-01" ? LEGACY_VERSIONS[0] : version);
      await transport.close();
    });
  }

  it("refuses what it does not know, under the id that was asked with", async () => {
    const { parts } = await setUp();
    const transport = await openServer(parts);
    const { id, error } = await ask(transport, { id: 7, method: "prompts/list" });
    assert.equal(id, 7);
    assert.equal((error as { code: number }).code, -32601);
    await transport.close();
  });

  it("answers no notification", async () => {
    const { parts } = await setUp();
    const transport = await openServer(parts);
    await transport.start();
    const received: unknown[] = [];
    const ponged = new Promise<void>((resolve) => {
      // oxlint-disable-next-line unicorn/prefer-add-event-listener
      transport.onmessage = (message) => {
        received.push(message);
        resolve();
      };
    });
    await transport.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    await transport.send({ jsonrpc: "2.0", id: 1, result: {} });
    await transport.send({ jsonrpc: "2.0", id: 2, method: "ping" });
    await ponged;
    assert.deepEqual(received, [{ jsonrpc: "2.0", id: 2, result: {} }]);
    await transport.close();
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
  const text = (size: number): StoredContent => {
    const bytes = Buffer.alloc(size, "x");
    return { kind: "text", bytes, ends: paginate(bytes, 1000) };
  };
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
    assert.deepEqual(
      [a, b, c, d].map((id) => store.get(id) !== undefined),
      [true, false, true, true],
    );
  });

  it("counts what it takes to find the pages", () => {
    const store = new ContentStore(100_000, 1000, new VirtualClock());
    put(store, text(10_000));
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
    const all = (1n << 128n) - 1n;
    assert.equal(
      bits.reduce((a, b) => a | b),
      all,
    );
    assert.equal(
      bits.reduce((a, b) => a & b),
      0n,
    );
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
