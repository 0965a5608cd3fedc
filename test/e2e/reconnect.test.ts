import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LIMIT } from "../harness/hub.ts";
import { failure } from "../harness/message.ts";
import {
  askPid,
  changed,
  changes,
  governed,
  hold,
  listNames,
  type Note,
  saying,
  withRealm,
} from "../harness/controlled-servers.ts";

/** Attempts that come so often that a test need not wait for them: 50 ms, 100 ms, 200 ms … */
const SOON = { base: "50ms", max: "10s", jitter: 0 };
/** Attempts that come so late that no test sees one. */
const LATE = { base: "1h", max: "1h", jitter: 0 };

/** How much time lies between each start and the next, in ms. */
function gaps(starts: readonly Note[]): number[] {
  return starts.slice(1).map(({ time }, at) => time - (starts[at]?.time ?? 0));
}

describe("a server that is killed", () => {
  it("between two calls answers the second one from a new process", LIMIT, () =>
    withRealm({ servers: { a: governed({ reconnect: LATE }) } }, async (realm) => {
      const left = await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        process.kill(pid, "SIGKILL");
        await saying(client, /"a" was killed by signal SIGKILL/);
        assert.notEqual(await askPid(client, "a"), pid);
        assert.equal(realm.starts("a").length, 2);
      });
      assert.equal(changes(left), 0);
    }),
  );

  it(
    "in the very moment of a call answers it or fails it clearly, and the next one is answered",
    LIMIT,
    () =>
      withRealm({ servers: { a: governed({ reconnect: LATE }) } }, async (realm) => {
        await realm.serve(async (client) => {
          await client.open();
          for (let at = 0; at < 10; at += 1) {
            const pid = await askPid(client, "a");
            process.kill(pid, "SIGKILL");
            const { message } = await client.call("a__pid");
            if (message.error !== undefined) assert.match(failure(message), /Server "a" .*SIGKILL/);
            assert.notEqual(await askPid(client, "a"), pid);
          }
          assert.ok(realm.starts("a").every(({ others }) => others?.length === 0));
        });
      }),
  );

  it("during a call fails it clearly, and answers the next one", LIMIT, () =>
    withRealm({ servers: { a: governed({ reconnect: LATE }) } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        const call = await hold(realm, client, "a");
        process.kill(pid, "SIGKILL");
        const { message } = await call.answer();
        assert.equal(message.error?.code, -31002);
        assert.match(failure(message), /Server "a" was killed by signal SIGKILL/);
        assert.notEqual(await askPid(client, "a"), pid);
      });
    }),
  );

  it("is started again though nobody calls it", LIMIT, () =>
    withRealm({ servers: { a: governed({ reconnect: SOON }) } }, async (realm) => {
      const left = await realm.serve(async (client) => {
        await client.open();
        process.kill(await askPid(client, "a"), "SIGKILL");
        await realm.noting("a", (notes) => notes.filter(({ event }) => event === "tools/list")[1]);
        assert.equal(await askPid(client, "a"), realm.started("a")[1]);
      });
      assert.equal(changes(left), 0);
      assert.match(left.stderr, /^toolmux: warn a: Server "a" was killed by signal SIGKILL\..*\n$/);
    }),
  );
});

describe("a server that dies as soon as it has listed", () => {
  it(
    "is started ever more rarely, stays listed, and is tried at once by a call, which gets the cause",
    LIMIT,
    () =>
      withRealm({ servers: { a: governed({ reconnect: SOON }), b: governed() } }, async (realm) => {
        realm.rule("a", { dies: "listed" });
        await realm.serve(async (client) => {
          assert.ok((await client.open()).some(({ name }) => name === "a__pid"));
          const starts = await realm.noting("a", () => {
            const all = realm.starts("a");
            return all.length >= 6 ? all : undefined;
          });
          for (const [at, gap] of gaps(starts).entries()) assert.ok(gap >= 50 * 2 ** at, `${gap}`);
          assert.ok((await listNames(client)).includes("a__pid"));
          // The next attempt of its own comes in 1.6 s.
          const { message } = await client.call("a__pid", {}, 1500);
          assert.match(failure(message), /Server "a" exited with code 5/);
          assert.match(failure(message), /cannot go on after the listing/);
          await askPid(client, "b");
          // A call does not make the attempts that follow come sooner.
          const before = realm.starts("a").length;
          await client.call("a__pid", {}, 1500);
          assert.equal(realm.starts("a").length, before + 1);
        });
      }),
  );
});

describe("a server that cannot start", () => {
  it("is told of with the cause, its last words and when it is tried again", LIMIT, () =>
    withRealm({ servers: { a: governed({ reconnect: LATE }) } }, async (realm) => {
      realm.rule("a", { start: "exit" });
      const left = await realm.serve(async (client) => {
        await client.open();
        await saying(client, /cannot start/);
      });
      assert.match(
        left.stderr,
        /^toolmux: warn a: Server "a" exited with code 3\. It is tried again in 3600\.0 s\. Its last words: cannot start: the disk is missing\n$/,
      );
      assert.equal(realm.starts("a").length, 1);
    }),
  );

  it("comes back by itself when it can, and its tools appear", LIMIT, () =>
    withRealm({ servers: { a: governed({ reconnect: SOON }), b: governed() } }, async (realm) => {
      realm.rule("a", { start: "exit" });
      const left = await realm.serve(async (client) => {
        assert.ok((await client.open()).every(({ name }) => name.startsWith("b__")));
        await realm.noting("a", () => realm.starts("a")[2]);
        assert.equal(changes(client), 0);
        realm.rule("a", {});
        await changed(client, 1);
        assert.ok((await listNames(client)).includes("a__pid"));
        await askPid(client, "a");
      });
      assert.equal(changes(left), 1);
    }),
  );

  it(
    "ends three times in the midst of its handshake is there at the fourth, with no call",
    LIMIT,
    () =>
      withRealm({ servers: { a: governed({ reconnect: SOON }) } }, async (realm) => {
        realm.rule("a", { failures: 3 });
        await realm.serve(async (client) => {
          await client.open();
          await changed(client, 1);
          assert.ok((await listNames(client)).includes("a__pid"));
          assert.equal(realm.starts("a").length, 4);
        });
      }),
  );

  it(
    "fails for good after maxAttempts, is told of as an error, and is still tried by a call",
    LIMIT,
    () =>
      withRealm(
        { servers: { a: governed({ reconnect: { ...SOON, maxAttempts: 2 } }) } },
        async (realm) => {
          realm.rule("a", { start: "exit" });
          await realm.serve(async (client) => {
            await client.open();
            await saying(client, /toolmux: error a: Server "a" exited with code 3/);
            assert.equal(realm.starts("a").length, 2);
            assert.match(failure((await client.call("a__pid")).message), /the disk is missing/);
            realm.rule("a", {});
            await askPid(client, "a");
            await changed(client, 1);
          });
        },
      ),
  );

  it("because there is no such command is told of once, and not tried again", LIMIT, () =>
    withRealm(
      {
        servers: {
          a: { command: "no-such-command-anywhere", reconnect: SOON },
          b: governed({ reconnect: SOON }),
        },
      },
      async (realm) => {
        realm.rule("b", { failures: 4 });
        const left = await realm.serve(async (client) => {
          await client.open();
          // By then a would have been tried as often.
          await changed(client, 1);
          await saying(client, /no-such-command-anywhere/);
        });
        const told = left.stderr.split("\n").filter((line) => line.includes("no-such-command"));
        assert.equal(told.length, 1, left.stderr);
        assert.match(told[0] ?? "", /^toolmux: error a: .* not found/);
      },
    ),
  );
});
