import assert from "node:assert/strict";
import { describe } from "node:test";
import { startOn } from "../harness/command.ts";
import type { Received } from "../harness/message.ts";
import { closeClient, it, withHub, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const CHANGED = "notifications/tools/list_changed";

function names({ message }: Received): string[] {
  return (message.result?.tools ?? []).map(({ name }) => name);
}

describe("initialize", () => {
  it("agrees with a client on the version that it asks for, or else on 2025-11-25", async () => {
    const spoken = ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    const unknown = ["1999-01-01", "2099-12-31", "2026-07-28", "latest"];
    for (const version of [...spoken, ...unknown]) {
      await withHub({ servers: {} }, async ({ client }) => {
        const { protocolVersion } = await client.initialize(version);
        assert.equal(protocolVersion, spoken.includes(version) ? version : "2025-11-25");
      });
    }
  });

  it("agrees with servers and clients on versions that only they speak", async () => {
    const servers = { old: scripted("--protocol-version 2024-11-05"), new: scripted() };
    for (const version of ["2024-10-07", "2025-11-25"]) {
      await withHub({ servers }, async ({ client }) => {
        await client.initializeAndList(version);
        for (const server of ["old", "new"]) {
          const { message } = await client.call(`${server}__echo`, { server });
          assert.deepEqual(message.result?.structuredContent, { server });
        }
      });
    }
  });

  it("says who the hub is, by the manifest's name, and that its tools may change", () =>
    withHub({ hub: { name: "my tools" }, servers: { a: scripted() } }, async ({ client }) => {
      const { serverInfo, capabilities } = await client.initialize();
      assert.equal((serverInfo as { name: string }).name, "my tools");
      assert.deepEqual((capabilities as { tools?: unknown }).tools, { listChanged: true });
    }));

  it("is answered at once, before all servers are up, and calls wait for no other server than theirs", () =>
    withHub(
      {
        servers: {
          late: scripted("--start-delay 8000"),
          mute: scripted("--never-answer-initialize"),
          on: scripted(),
        },
      },
      async ({ client }) => {
        const began = performance.now();
        await client.initialize();
        assert.equal((await client.request("ping")).message.error, undefined);
        const { message } = await client.call("on__echo", { n: 1 });
        assert.deepEqual(message.result?.structuredContent, { n: 1 });
        const took = performance.now() - began;
        assert.ok(took < 7000, `${took} ms`);
      },
    ));

  it("lists nothing and refuses nothing when the manifest has no servers", () =>
    withHub({ servers: {} }, async ({ client }) => {
      await client.initialize();
      assert.deepEqual(names(await client.request("tools/list")), []);
      assert.equal((await client.call("a__echo")).message.error?.code, -32602);
    }));

  it("starts no server that is not enabled", () =>
    withHub(
      { servers: { on: scripted(), off: scripted("", { enabled: false }) } },
      async ({ client, log }) => {
        await client.initialize();
        const listed = names(await client.request("tools/list"));
        assert.ok(listed.includes("on__echo"));
        assert.ok(listed.every((name) => name.startsWith("on__")));
        assert.deepEqual(log("off"), []);
      },
    ));
});

describe("a server that is late", () => {
  it("holds the first list up no longer than listWait and then announces itself exactly once", () =>
    withTestFolder(
      {
        hub: { listWait: "1s" },
        servers: { late: scripted("--start-delay 3000"), on: scripted() },
      },
      async (setup) => {
        const client = startOn(setup);
        await client.initialize();
        const first = names(await client.request("tools/list"));
        assert.ok(first.includes("on__echo"));
        assert.ok(!first.includes("late__echo"));
        await client.find(({ method }) => method === CHANGED, CHANGED);
        const second = names(await client.request("tools/list"));
        assert.ok(second.includes("late__echo") && second.includes("on__echo"));
        assert.deepEqual(
          (await client.call("late__echo", { n: 1 })).message.result?.structuredContent,
          { n: 1 },
        );
        await closeClient(client);
        assert.equal(client.filter(({ method }) => method === CHANGED).length, 1);
      },
    ));

  it("is waited for by the first list as long as listWait allows, and then nothing is left to announce", () =>
    withTestFolder(
      {
        hub: { listWait: "10s" },
        servers: { late: scripted("--start-delay 800"), on: scripted() },
      },
      async (setup) => {
        const client = startOn(setup);
        await client.initialize();
        const first = names(await client.request("tools/list"));
        assert.ok(first.includes("late__echo") && first.includes("on__echo"));
        await client.call("late__echo");
        await closeClient(client);
        assert.deepEqual(
          client.filter(({ method }) => method === CHANGED),
          [],
        );
      },
    ));

  it("gets the calls that were made to it before it was up", () =>
    withHub({ servers: { late: scripted("--start-delay 500") } }, async ({ client }) => {
      await client.initialize();
      const { message } = await client.call("late__echo", { n: 1 });
      assert.deepEqual(message.result?.structuredContent, { n: 1 });
    }));
});
