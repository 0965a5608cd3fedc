import assert from "node:assert/strict";
import { describe } from "node:test";
import { type Tool, failureText } from "../harness/message.ts";
import { poll } from "../harness/wait.ts";
import { type ScriptedEvent, it, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { isAlive } from "../harness/processes.ts";

function starts(log: ScriptedEvent[]): number {
  return log.filter(({ event }) => event === "start").length;
}

function names(tools: readonly Tool[]): string[] {
  return tools.map(({ name }) => name);
}

describe("a server that dies in the middle of a call", () => {
  it("fails that call with an error that names the server, its exit and its last words", () =>
    withHub({ servers: { mortal: scripted("--name mortal") } }, async ({ client }) => {
      await client.initializeAndList();
      const { message } = await client.call("mortal__die", { code: 7 });
      const said = failureText(message);
      assert.match(said, /mortal/);
      assert.match(said, /\b7\b/);
      assert.match(said, /last words of mortal/);
    }));

  it("fails that call with an error that names the signal that killed it", () =>
    withHub({ servers: { mortal: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const { message } = await client.call("mortal__kill-self", { signal: "SIGKILL" });
      assert.match(failureText(message), /mortal[^]*SIGKILL/);
    }));

  it("fails every other call that it had not answered, and no call to another server", () =>
    withHub(
      { servers: { mortal: scripted(), other: scripted() } },
      async ({ client, waitForEvent: logged }) => {
        await client.initializeAndList();
        const hanging = [client.sendCall("mortal__hang"), client.sendCall("mortal__hang")];
        const sleeping = client.sendCall("other__sleep", { ms: 300, n: 1 });
        await logged("other", ({ tool }) => tool === "sleep");
        const died = client.sendCall("mortal__die");
        for (const id of [...hanging, died]) {
          assert.match(failureText((await client.response(id)).message), /mortal/);
        }
        const { message } = await client.response(sleeping);
        assert.deepEqual(message.result?.structuredContent, { ms: 300, n: 1 });
      },
    ));

  it("is started again by the next calls, once, even when 20 come at the same time", () =>
    withHub({ servers: { mortal: scripted("--start-delay 100") } }, async ({ client, log }) => {
      await client.initializeAndList();
      await client.call("mortal__die");
      const asked = Array.from({ length: 20 }, (_, at) => client.sendCall("mortal__echo", { at }));
      for (const [at, id] of asked.entries()) {
        assert.deepEqual((await client.response(id)).message.result?.structuredContent, { at });
      }
      assert.equal(starts(log("mortal")), 2);
    }));

  it("keeps its tools listed, and nobody is told that the list changed", () =>
    withHub({ servers: { mortal: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const before = await client.request("tools/list");
      await client.call("mortal__die");
      const after = await client.request("tools/list");
      assert.deepEqual(after.message.result, before.message.result);
      await client.call("mortal__echo");
      assert.deepEqual(
        client.filter(({ method }) => method === "notifications/tools/list_changed"),
        [],
      );
    }));

  it("can die again and again, and each time only its own call fails", () =>
    withHub({ servers: { mortal: scripted(), other: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      for (let at = 0; at < 3; at += 1) {
        assert.match(
          failureText((await client.call("mortal__die", { code: 20 + at })).message),
          new RegExp(String(20 + at)),
        );
        const { message } = await client.call("other__echo", { at });
        assert.deepEqual(message.result?.structuredContent, { at });
      }
    }));
});

/** What is said of a server that did not answer the handshake in time; the tool's own name is not enough. */
const UNANSWERED = /server "?mute[^]*(initialize|handshake|connect|1 ?s|1000 ?ms)/i;

describe("a server that never gets up", () => {
  it("exits at once: its tools are missing, the others are served, and a call says why", () =>
    withHub(
      {
        hub: { listWait: "2s" },
        servers: { broken: scripted("--exit-at-once"), fine: scripted() },
      },
      async ({ client }) => {
        const listed = names(await client.initializeAndList());
        assert.ok(listed.includes("fine__echo"));
        assert.deepEqual(
          listed.filter((name) => name.startsWith("broken")),
          [],
        );
        const said = failureText((await client.call("broken__echo")).message);
        assert.match(said, /broken/);
        assert.match(said, /cannot open the database of scripted/);
        assert.equal((await client.call("fine__echo")).message.error, undefined);
      },
    ));

  it("has no such command: the others are served, and a call says so", () =>
    withHub(
      { servers: { broken: { command: "no-such-command-anywhere" }, fine: scripted() } },
      async ({ client }) => {
        const listed = names(await client.initializeAndList());
        assert.ok(listed.includes("fine__echo"));
        assert.match(
          failureText((await client.call("broken__echo")).message),
          /no-such-command-anywhere[^]*broken/,
        );
      },
    ));

  it("never answers initialize: the others are served, connectTimeout ends it, and a call says so", () =>
    withHub(
      {
        servers: {
          mute: scripted("--never-answer-initialize", { connectTimeout: "1s" }),
          fine: scripted(),
        },
      },
      async ({ client, waitForEvent: logged }) => {
        const listed = names(await client.initializeAndList());
        assert.deepEqual(
          listed.filter((name) => name.startsWith("mute")),
          [],
        );
        assert.ok(listed.includes("fine__echo"));
        const { pid } = await logged("mute", ({ event }) => event === "initialize");
        await poll(
          8000,
          () => `the end of the mute server ${pid}`,
          () => (isAlive(pid) ? undefined : true),
        );
        assert.match(failureText((await client.call("mute__echo")).message), UNANSWERED);
      },
    ));

  it("a call to it ends with the cause when its attempt to connect does", () =>
    withHub(
      {
        hub: { listWait: "100ms" },
        servers: { mute: scripted("--never-answer-initialize", { connectTimeout: "1s" }) },
      },
      async ({ client }) => {
        await client.initializeAndList();
        const { message } = await client.call("mute__echo", {}, 6000);
        assert.match(failureText(message), UNANSWERED);
      },
    ));
});
