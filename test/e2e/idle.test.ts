import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { END, LIMIT } from "../harness/hub.ts";
import { isAlive, waitUntilGone } from "../harness/processes.ts";
import {
  askPid,
  changes,
  governed,
  hold,
  listNames,
  type Realm,
  withRealm,
} from "../harness/controlled-servers.ts";

const LAZY = governed({ lazy: true });
/** Unused for longer than this, a server is stopped, a quarter of it later at most. */
const IDLE = governed({ idleStop: "200ms" });

/** Waits until a server has been stopped that often. */
async function stopped(realm: Realm, server: string, times: number): Promise<void> {
  await realm.noting(server, (notes) => notes.filter(({ event }) => event === "end")[times - 1]);
  await waitUntilGone(realm.started(server).slice(0, times), END);
}

describe("a lazy server", () => {
  it("of which nothing is known is started once to be listed, and stopped again", LIMIT, () =>
    withRealm({ hub: { listWait: "60s" }, servers: { a: LAZY } }, async (realm) => {
      const left = await realm.serve(async (client) => {
        assert.ok((await client.open()).some(({ name }) => name === "a__pid"));
        await stopped(realm, "a", 1);
        assert.ok((await listNames(client)).includes("a__pid"));
        assert.deepEqual(
          realm.notes("a").map(({ event }) => event),
          ["start", "initialize", "notifications/initialized", "tools/list", "end"],
        );
        // Its first call starts it, and it stays.
        const pid = await askPid(client, "a");
        assert.equal(pid, realm.started("a")[1]);
        assert.equal(await askPid(client, "a"), pid);
      });
      assert.equal(changes(left), 0);
      assert.equal(left.stderr, "");
    }),
  );

  it("whose tools are known is not started before its first call", LIMIT, () =>
    withRealm({ hub: { listWait: "60s" }, servers: { a: LAZY, b: governed() } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        await stopped(realm, "a", 1);
      });
      await realm.serve(async (client) => {
        assert.ok((await client.open()).some(({ name }) => name === "a__pid"));
        await askPid(client, "b");
        assert.equal(realm.starts("a").length, 1);
        assert.equal(await askPid(client, "a"), realm.started("a")[1]);
      });
      assert.equal(realm.starts("a").length, 2);
    }),
  );

  it("that is killed is not started before its next call", LIMIT, () =>
    withRealm({ servers: { a: LAZY, clock: IDLE } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        process.kill(pid, "SIGKILL");
        await waitUntilGone([pid], END);
        const before = realm.starts("a").length;
        await stopped(realm, "clock", 1);
        assert.equal(realm.starts("a").length, before);
        assert.ok((await listNames(client)).includes("a__pid"));
        assert.notEqual(await askPid(client, "a"), pid);
      });
    }),
  );

  it(
    "that cannot be listed is tried once, and again by a call of a tool that it may have",
    LIMIT,
    () =>
      withRealm({ servers: { a: governed({ lazy: true }) } }, async (realm) => {
        realm.rule("a", { start: "exit" });
        await realm.serve(async (client) => {
          assert.deepEqual(await client.open(), []);
          realm.rule("a", {});
          assert.equal(await askPid(client, "a"), realm.started("a")[1]);
        });
      }),
  );

  it("with 30 calls at once is started once, and answers them all", LIMIT, () =>
    withRealm({ servers: { a: LAZY } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        await stopped(realm, "a", 1);
        const asked = Array.from({ length: 30 }, () => client.askCall("a__pid"));
        for (const id of asked) {
          const { message } = await client.answer(id);
          assert.equal(message.result?.content?.[0]?.text, String(realm.started("a")[1]));
        }
        assert.equal(realm.starts("a").length, 2);
      });
    }),
  );
});

describe("a server that nobody uses", () => {
  it("is stopped after idleStop, stays listed, and is started by the next call", LIMIT, () =>
    withRealm({ servers: { a: IDLE } }, async (realm) => {
      const left = await realm.serve(async (client) => {
        await client.open();
        for (let times = 1; times <= 3; times += 1) {
          const used = Date.now();
          const pid = await askPid(client, "a");
          assert.equal(realm.starts("a").length, times);
          await stopped(realm, "a", times);
          const end = realm.notes("a").findLast(({ event }) => event === "end");
          assert.ok((end?.time ?? 0) >= used + 195, "not before its time");
          assert.equal(isAlive(pid), false);
          assert.ok((await listNames(client)).includes("a__pid"));
        }
      });
      assert.equal(changes(left), 0);
      assert.equal(left.stderr, "");
    }),
  );

  it("goes on if idleStop is 0", LIMIT, () =>
    withRealm({ servers: { a: governed({ idleStop: 0 }), clock: IDLE } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        for (let times = 1; times <= 3; times += 1) {
          await askPid(client, "clock");
          await stopped(realm, "clock", times);
        }
        assert.equal(await askPid(client, "a"), pid);
      });
    }),
  );
});

describe("a call that takes longer than idleStop", () => {
  it("is not cut, and its server is stopped only after it", LIMIT, () =>
    withRealm({ servers: { a: IDLE, clock: IDLE } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        const call = await hold(realm, client, "a");
        for (let times = 1; times <= 3; times += 1) {
          await askPid(client, "clock");
          await stopped(realm, "clock", times);
        }
        assert.equal(realm.notes("a").filter(({ event }) => event === "end").length, 0);
        await call.release();
        await stopped(realm, "a", 1);
        assert.notEqual(await askPid(client, "a"), realm.started("a")[0]);
      });
    }),
  );
});

describe("many servers that need a processor to start", () => {
  it("all connect, a few at a time, though together they would take too long", LIMIT, () => {
    const names = Array.from({ length: 40 }, (_, at) => `s${at}`);
    const manifest = {
      hub: { parallelStarts: 4, listWait: "60s" },
      servers: Object.fromEntries(
        names.map((name) => [
          name,
          governed({ connectTimeout: "2s", reconnect: { policy: "none" } }),
        ]),
      ),
    };
    return withRealm(manifest, async (realm) => {
      for (const name of names) realm.rule(name, { burn: 100 });
      const left = await realm.serve(async (client) => {
        await client.initialize();
        const listed = await listNames(client, 30_000);
        assert.equal(listed.filter((name) => name.endsWith("__pid")).length, 40);
      });
      assert.equal(left.stderr, "");
      for (const name of names) assert.equal(realm.starts(name).length, 1);
    });
  });
});
