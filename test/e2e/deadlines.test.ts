import assert from "node:assert/strict";
import { describe } from "node:test";
import { failureText } from "../harness/message.ts";
import { it, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

describe("the deadline of a call", () => {
  it("ends it with a result that says tool, server and seconds, and cancels it at the server under the server's id", () =>
    withHub(
      { servers: { slow: scripted("", { callTimeout: "300ms" }) } },
      async ({ client, waitForEvent: logged }) => {
        await client.initializeAndList();
        const began = performance.now();
        const { message } = await client.call("slow__hang", {}, 15_000);
        const took = performance.now() - began;
        assert.equal(message.error, undefined);
        assert.equal(message.result?.isError, true);
        const said = failureText(message);
        assert.match(said, /hang/);
        assert.match(said, /slow/);
        assert.match(said, /\b0\.3 ?s/);
        assert.ok(took >= 290 && took < 10_000, `${took} ms`);
        const call = await logged("slow", ({ event }) => event === "call");
        const cancelled = await logged("slow", ({ event }) => event === "cancelled");
        assert.equal(cancelled.requestId, call.id);
      },
    ));

  it("says whether the effect is known: a tool that only reads can be called again, another may have done its work", () =>
    withHub(
      { defaults: { callTimeout: "200ms" }, servers: { a: scripted() } },
      async ({ client }) => {
        await client.initializeAndList();
        const reading = failureText((await client.call("a__hang-reading")).message);
        const other = failureText((await client.call("a__hang")).message);
        assert.match(other, /may|unknown|not known/i);
        assert.notEqual(reading.replaceAll("hang-reading", "hang"), other);
      },
    ));

  it("does not end other calls, nor the server, and the next call to it works", () =>
    withHub(
      {
        servers: {
          slow: scripted("", { callTimeout: "300ms", tools: { timeout: { sleep: "10s" } } }),
        },
      },
      async ({ client, log }) => {
        await client.initializeAndList();
        const sleeping = client.sendCall("slow__sleep", { ms: 800 });
        assert.equal((await client.call("slow__hang")).message.result?.isError, true);
        assert.deepEqual((await client.response(sleeping)).message.result?.structuredContent, {
          ms: 800,
        });
        assert.deepEqual(
          (await client.call("slow__echo", { n: 1 })).message.result?.structuredContent,
          { n: 1 },
        );
        assert.equal(log("slow").filter(({ event }) => event === "start").length, 1);
      },
    ));

  it("is set per tool by its remote name, longer or shorter than the server's", () =>
    withHub(
      {
        servers: {
          long: scripted("", { callTimeout: "60s", tools: { timeout: { hang: "250ms" } } }),
          short: scripted("", { callTimeout: 250, tools: { timeout: { sleep: 10_000 } } }),
        },
      },
      async ({ client }) => {
        await client.initializeAndList();
        const hanging = client.sendCall("long__hang");
        const sleeping = client.sendCall("short__sleep", { ms: 700 });
        assert.match(failureText((await client.response(hanging, 5000)).message), /\b0\.25 ?s/);
        assert.deepEqual((await client.response(sleeping)).message.result?.structuredContent, {
          ms: 700,
        });
      },
    ));

  it("is set for all servers by the defaults, and a server's own setting wins", () =>
    withHub(
      {
        defaults: { callTimeout: "250ms" },
        servers: { a: scripted(), b: scripted("", { callTimeout: "20s" }) },
      },
      async ({ client }) => {
        await client.initializeAndList();
        const sleeping = client.sendCall("b__sleep", { ms: 700 });
        assert.equal((await client.call("a__hang", {}, 5000)).message.result?.isError, true);
        assert.equal((await client.response(sleeping)).message.result?.isError, undefined);
      },
    ));

  it("is pushed back by progress", () =>
    withHub({ servers: { a: scripted("", { callTimeout: "600ms" }) } }, async ({ client }) => {
      await client.initializeAndList();
      const args = { steps: 6, ms: 250 };
      const id = client.sendRequest("tools/call", {
        name: "a__progress",
        arguments: args,
        _meta: { progressToken: 1 },
      });
      const { message } = await client.response(id);
      assert.deepEqual(message.result?.structuredContent, args);
      assert.equal(client.filter(({ method }) => method === "notifications/progress").length, 6);
    }));

  it("is pushed back by progress no further than maxCallTimeout", () =>
    withHub(
      { servers: { a: scripted("", { callTimeout: "500ms", maxCallTimeout: "1s" }) } },
      async ({ client, waitForEvent: logged }) => {
        await client.initializeAndList();
        const began = performance.now();
        const params = {
          name: "a__progress",
          arguments: { steps: 600, ms: 100 },
          _meta: { progressToken: "t" },
        };
        const { message } = await client.response(client.sendRequest("tools/call", params), 20_000);
        const took = performance.now() - began;
        assert.equal(message.result?.isError, true);
        assert.ok(took >= 950 && took < 15_000, `${took} ms`);
        const call = await logged("a", ({ event }) => event === "call");
        assert.equal((await logged("a", ({ event }) => event === "cancelled")).requestId, call.id);
      },
    ));

  it("counts from the call, the start of its server included", () =>
    withHub(
      {
        hub: { listWait: "50ms" },
        servers: {
          late: scripted("--start-delay 60000", { callTimeout: "400ms", prefix: "late" }),
        },
      },
      async ({ client }) => {
        await client.initializeAndList();
        const { message } = await client.call("late__echo", {}, 5000);
        assert.match(failureText(message), /late/);
      },
    ));

  it("leaves nothing to forward: an answer that comes after it reaches nobody", () =>
    withHub({ servers: { a: scripted("", { callTimeout: "250ms" }) } }, async ({ client }) => {
      await client.initializeAndList();
      const id = client.sendCall("a__hang", { late: true });
      await client.response(id);
      // The server answers both on one pipe, in order: once this one is here, the late one was read.
      await client.call("a__cancellations");
      assert.equal(
        client.filter((message) => message.id === id && message.method === undefined).length,
        1,
      );
    }));
});
