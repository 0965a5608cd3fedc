import assert from "node:assert/strict";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import type { Received } from "../harness/message.ts";
import {
  type Hub,
  type TestFolder,
  closeClient,
  executable,
  it,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { type Manifest, scripted } from "../harness/manifest.ts";
import { slice } from "../fixtures/servers/json-slices.mjs";

const CHANGED = "notifications/tools/list_changed";

function names({ message }: Received): string[] {
  return (message.result?.tools ?? []).map(({ name }) => name);
}

/** Runs the hub, ends it, and returns how many list_changed it sent in all its life. */
function countChanges(manifest: Manifest, run: (hub: Hub) => Promise<void>): Promise<number> {
  return withTestFolder(manifest, async (setup) => {
    const client = new RawClient(executable(), ["--config", setup.config], setup.dir, setup.env);
    await client.initializeAndList();
    await run({ ...setup, client });
    await closeClient(client);
    return client.filter(({ method }) => method === CHANGED).length;
  });
}

function lists(setup: TestFolder, server: string): number {
  return setup.log(server).filter(({ event }) => event === "list").length;
}

/** Outlasts whatever a hub may wait before it tells its client: what it has to say so far is said. */
async function pass({ client }: Hub): Promise<void> {
  await client.call("a__sleep", { ms: 400 });
}

describe("a server whose tools change", () => {
  it("leads to exactly one list_changed, and the new tool is listed and can be called", async () => {
    const changes = await countChanges(
      { servers: { a: scripted("--grow"), b: scripted() } },
      async ({ client }) => {
        await client.call("a__grow");
        await client.find(({ method }) => method === CHANGED, CHANGED);
        assert.ok(names(await client.request("tools/list")).includes("a__grown_1"));
        assert.deepEqual(
          (await client.call("a__grown_1", { n: 1 })).message.result?.structuredContent,
          { n: 1 },
        );
      },
    );
    assert.equal(changes, 1);
  });

  it("leads to one list_changed each time", async () => {
    const changes = await countChanges(
      { servers: { a: scripted("--grow") } },
      async ({ client }) => {
        for (const tool of ["a__grown_1", "a__grown_2", "a__grown_3"]) {
          const from = client.lines.length;
          await client.call("a__grow");
          await client.find(({ method }) => method === CHANGED, CHANGED, { from });
          assert.ok(names(await client.request("tools/list")).includes(tool));
        }
      },
    );
    assert.equal(changes, 3);
  });

  it("leads to no list_changed when it only says so and nothing is different", async () => {
    const changes = await countChanges({ servers: { a: scripted("--grow") } }, async (hub) => {
      const before = lists(hub, "a");
      await hub.client.call("a__touch");
      await hub.waitForEvent("a", () => lists(hub, "a") > before);
      await pass(hub);
      const from = hub.client.lines.length;
      await hub.client.call("a__grow");
      await hub.client.find(({ method }) => method === CHANGED, CHANGED, { from });
    });
    assert.equal(changes, 1);
  });

  it("that only hides behind a filter is no change for the client", async () => {
    const changes = await countChanges(
      { servers: { a: scripted("--grow", { tools: { deny: ["grown_1"] } }) } },
      async (hub) => {
        const before = lists(hub, "a");
        await hub.client.call("a__grow");
        await hub.waitForEvent("a", () => lists(hub, "a") > before);
        await pass(hub);
        await hub.client.call("a__grow");
        await hub.client.find(({ method }) => method === CHANGED, CHANGED);
        const listed = names(await hub.client.request("tools/list"));
        assert.ok(listed.includes("a__grown_2") && !listed.includes("a__grown_1"));
      },
    );
    assert.equal(changes, 1);
  });
});

describe("a listing in pages", () => {
  for (const options of [
    "--pages 5 --tools 50 --bare",
    "--pages 3 --tools 7 --bare --empty-cursor",
    "--pages 40 --tools 20 --bare",
  ]) {
    it(`is gathered whole, sorted, and the same bytes every time (${options})`, () =>
      withHub(
        { servers: { a: scripted(options), b: scripted("--tools 3") } },
        async ({ client }) => {
          await client.initialize();
          const first = await client.request("tools/list");
          const second = await client.request("tools/list");
          const listed = names(first);
          const expected = Number(/--tools (\d+)/.exec(options)?.[1]);
          assert.equal(listed.filter((name) => name.startsWith("a__extra_")).length, expected);
          assert.equal(listed.filter((name) => name.startsWith("b__extra_")).length, 3);
          assert.deepEqual(listed, listed.toSorted());
          assert.equal(new Set(listed).size, listed.length);
          assert.equal(slice(first.text, "result"), slice(second.text, "result"));
          const { message } = await client.call("a__extra_001", { n: 1 });
          assert.deepEqual(message.result?.structuredContent, { n: 1 });
        },
      ));
  }

  it("is the same bytes from one start of the hub to the next", async () => {
    const manifest = {
      servers: { b: scripted("--tools 20"), a: scripted(), c: scripted("--start-delay 200") },
    };
    const texts: (string | undefined)[] = [];
    for (let at = 0; at < 2; at += 1) {
      await withHub(manifest, async ({ client }) => {
        await client.initialize();
        texts.push(slice((await client.request("tools/list")).text, "result"));
      });
    }
    assert.equal(texts[0], texts[1]);
  });
});
