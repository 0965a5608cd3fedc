import assert from "node:assert/strict";
import { describe } from "node:test";
import { it, shareInSuite } from "../harness/hub.ts";
import { failureText } from "../harness/message.ts";
import {
  callPid,
  waitForListChanged,
  listChangedCount,
  controlled,
  holdCall,
  listToolNames,
  type ControlledEvent,
  type ControlledServers,
  waitForStderr,
  withControlledServers,
} from "../harness/controlled-servers.ts";
import type { RawClient } from "../harness/raw-client.ts";

/** Attempts that come so often that a test need not wait for them: 50 ms, 100 ms, 200 ms … */
const SOON = { base: "50ms", max: "10s", jitter: 0 };
/** Attempts that come so late that no test sees one. */
const LATE = { base: "1h", max: "1h", jitter: 0 };

/** How much time lies between each start and the next, in ms. */
function gaps(starts: readonly ControlledEvent[]): number[] {
  return starts.slice(1).map(({ time }, at) => time - (starts[at]?.time ?? 0));
}

describe("a server that is killed", () => {
  // Tests with one hub, in this order.
  const shared = shareInSuite<{ harness: ControlledServers; client: RawClient }>((use) =>
    withControlledServers({ servers: { a: controlled({ reconnect: LATE }) } }, async (harness) => {
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        await use({ harness, client });
      });
      assert.equal(listChangedCount(left), 0);
    }),
  );

  it("between two calls answers the second one from a new process", async () => {
    const { harness, client } = shared();
    const pid = await callPid(client, "a");
    process.kill(pid, "SIGKILL");
    await waitForStderr(client, /"a" was killed by signal SIGKILL/);
    assert.notEqual(await callPid(client, "a"), pid);
    assert.equal(harness.startEvents("a").length, 2);
    assert.equal(listChangedCount(client), 0);
  });

  it("in the very moment of a call answers it or fails it clearly, and the next one is answered", async () => {
    const { harness, client } = shared();
    for (let at = 0; at < 5; at += 1) {
      const pid = await callPid(client, "a");
      process.kill(pid, "SIGKILL");
      const { message } = await client.call("a__pid");
      if (message.error !== undefined) assert.match(failureText(message), /Server "a" .*SIGKILL/);
      assert.notEqual(await callPid(client, "a"), pid);
    }
    assert.ok(harness.startEvents("a").every(({ others }) => others?.length === 0));
  });

  it("during a call fails it clearly, and answers the next one", async () => {
    const { harness, client } = shared();
    const pid = await callPid(client, "a");
    const call = await holdCall(harness, client, "a");
    process.kill(pid, "SIGKILL");
    const { message } = await call.response();
    assert.equal(message.result?.isError, true);
    assert.match(failureText(message), /Server "a" was killed by signal SIGKILL/);
    assert.notEqual(await callPid(client, "a"), pid);
  });

  it("is started again though nobody calls it", () =>
    withControlledServers({ servers: { a: controlled({ reconnect: SOON }) } }, async (harness) => {
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        process.kill(await callPid(client, "a"), "SIGKILL");
        await harness.waitForEvents(
          "a",
          (notes) => notes.filter(({ event }) => event === "tools/list")[1],
        );
        assert.equal(await callPid(client, "a"), harness.startedPids("a")[1]);
      });
      assert.equal(listChangedCount(left), 0);
      assert.match(left.stderr, /^toolmux: warn a: Server "a" was killed by signal SIGKILL\..*\n$/);
    }));
});

describe("a server that dies as soon as it has listed", () => {
  it("is started ever more rarely, stays listed, and is tried at once by a call, which gets the cause", () =>
    withControlledServers(
      { servers: { a: controlled({ reconnect: SOON }), b: controlled() } },
      async (harness) => {
        harness.setRules("a", { dies: "listed" });
        await harness.serve(async (client) => {
          assert.ok((await client.initializeAndList()).some(({ name }) => name === "a__pid"));
          const starts = await harness.waitForEvents("a", () => {
            const all = harness.startEvents("a");
            return all.length >= 6 ? all : undefined;
          });
          for (const [at, gap] of gaps(starts).entries()) assert.ok(gap >= 50 * 2 ** at, `${gap}`);
          assert.ok((await listToolNames(client)).includes("a__pid"));
          // The next attempt of its own comes in 1.6 s.
          const { message } = await client.call("a__pid", {}, 1500);
          assert.match(failureText(message), /Server "a" exited with code 5/);
          assert.match(failureText(message), /cannot go on after the listing/);
          await callPid(client, "b");
          // A call does not make the attempts that follow come sooner.
          const before = harness.startEvents("a").length;
          await client.call("a__pid", {}, 1500);
          assert.equal(harness.startEvents("a").length, before + 1);
        });
      },
    ));
});

describe("a server that cannot start", () => {
  it("is told of with the cause, its last words and when it is tried again", () =>
    withControlledServers({ servers: { a: controlled({ reconnect: LATE }) } }, async (harness) => {
      harness.setRules("a", { start: "exit" });
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        await waitForStderr(client, /cannot start/);
      });
      assert.match(
        left.stderr,
        /^toolmux: warn a: cannot start: the disk is missing\. Server "a" exited with code 3\. Next attempt in 1 h\. Its last stderr lines:\n {2}\| cannot start: the disk is missing\n$/,
      );
      assert.equal(harness.startEvents("a").length, 1);
    }));

  it("comes back by itself when it can, and its tools appear", () =>
    withControlledServers(
      { servers: { a: controlled({ reconnect: SOON }), b: controlled() } },
      async (harness) => {
        harness.setRules("a", { start: "exit" });
        const left = await harness.serve(async (client) => {
          assert.ok((await client.initializeAndList()).every(({ name }) => name.startsWith("b__")));
          await harness.waitForEvents("a", () => harness.startEvents("a")[2]);
          assert.equal(listChangedCount(client), 0);
          harness.setRules("a", {});
          await waitForListChanged(client, 1);
          assert.ok((await listToolNames(client)).includes("a__pid"));
          await callPid(client, "a");
        });
        assert.equal(listChangedCount(left), 1);
      },
    ));

  it("ends three times in the midst of its handshake is there at the fourth, with no call", () =>
    withControlledServers({ servers: { a: controlled({ reconnect: SOON }) } }, async (harness) => {
      harness.setRules("a", { failures: 3 });
      await harness.serve(async (client) => {
        await client.initializeAndList();
        await waitForListChanged(client, 1);
        assert.ok((await listToolNames(client)).includes("a__pid"));
        assert.equal(harness.startEvents("a").length, 4);
      });
    }));

  it("fails for good after maxAttempts, is told of as an error, and is still tried by a call", () =>
    withControlledServers(
      { servers: { a: controlled({ reconnect: { ...SOON, maxAttempts: 2 } }) } },
      async (harness) => {
        harness.setRules("a", { start: "exit" });
        await harness.serve(async (client) => {
          await client.initializeAndList();
          await waitForStderr(client, /toolmux: error a: .*Server "a" exited with code 3/);
          assert.equal(harness.startEvents("a").length, 2);
          assert.match(failureText((await client.call("a__pid")).message), /the disk is missing/);
          harness.setRules("a", {});
          await callPid(client, "a");
          await waitForListChanged(client, 1);
        });
      },
    ));

  it("because there is no such command is told of once, and not tried again", () =>
    withControlledServers(
      {
        servers: {
          a: { command: "no-such-command-anywhere", reconnect: SOON },
          b: controlled({ reconnect: SOON }),
        },
      },
      async (harness) => {
        harness.setRules("b", { failures: 4 });
        const left = await harness.serve(async (client) => {
          await client.initializeAndList();
          // By then a would have been tried as often.
          await waitForListChanged(client, 1);
          await waitForStderr(client, /no-such-command-anywhere/);
        });
        const reported = left.stderr.split("\n").filter((line) => line.includes("no-such-command"));
        assert.equal(reported.length, 1, left.stderr);
        assert.match(reported[0] ?? "", /^toolmux: error a: .* is not installed/);
      },
    ));
});
