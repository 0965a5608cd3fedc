import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { failure } from "../harness/message.ts";
import { LIMIT, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

describe("the deadline of a call", () => {
  it(
    "ends it with a result that says tool, server and seconds, and cancels it at the server under the server's id",
    LIMIT,
    () =>
      withHub(
        { servers: { slow: scripted("", { callTimeout: "300ms" }) } },
        async ({ client, logged }) => {
          await client.open();
          const began = performance.now();
          const { message } = await client.call("slow__hang", {}, 5000);
          const took = performance.now() - began;
          assert.equal(message.error, undefined);
          assert.equal(message.result?.isError, true);
          const said = failure(message);
          assert.match(said, /hang/);
          assert.match(said, /slow/);
          assert.match(said, /\b0\.3 ?s/);
          assert.ok(took >= 290 && took < 3000, `${took} ms`);
          const call = await logged("slow", ({ event }) => event === "call");
          const cancelled = await logged("slow", ({ event }) => event === "cancelled");
          assert.equal(cancelled.requestId, call.id);
        },
      ),
  );

  it(
    "says whether the effect is known: a tool that only reads can be called again, another may have done its work",
    LIMIT,
    () =>
      withHub(
        { defaults: { callTimeout: "200ms" }, servers: { a: scripted() } },
        async ({ client }) => {
          await client.open();
          const reading = failure((await client.call("a__hang-reading")).message);
          const other = failure((await client.call("a__hang")).message);
          assert.match(other, /may|unknown|not known/i);
          assert.notEqual(reading.replaceAll("hang-reading", "hang"), other);
        },
      ),
  );

  it("does not end other calls, nor the server, and the next call to it works", LIMIT, () =>
    withHub(
      {
        servers: {
          slow: scripted("", { callTimeout: "300ms", tools: { timeout: { sleep: "10s" } } }),
        },
      },
      async ({ client, log }) => {
        await client.open();
        const sleeping = client.askCall("slow__sleep", { ms: 800 });
        assert.equal((await client.call("slow__hang")).message.result?.isError, true);
        assert.deepEqual((await client.answer(sleeping)).message.result?.structuredContent, {
          ms: 800,
        });
        assert.deepEqual(
          (await client.call("slow__echo", { n: 1 })).message.result?.structuredContent,
          { n: 1 },
        );
        assert.equal(log("slow").filter(({ event }) => event === "start").length, 1);
      },
    ),
  );

  it("is set per tool by its remote name, longer or shorter than the server's", LIMIT, () =>
    withHub(
      {
        servers: {
          long: scripted("", { callTimeout: "60s", tools: { timeout: { hang: "250ms" } } }),
          short: scripted("", { callTimeout: 250, tools: { timeout: { sleep: 10_000 } } }),
        },
      },
      async ({ client }) => {
        await client.open();
        const hanging = client.askCall("long__hang");
        const sleeping = client.askCall("short__sleep", { ms: 700 });
        assert.match(failure((await client.answer(hanging, 5000)).message), /\b0\.25 ?s/);
        assert.deepEqual((await client.answer(sleeping)).message.result?.structuredContent, {
          ms: 700,
        });
      },
    ),
  );

  it("is set for all servers by the defaults, and a server's own setting wins", LIMIT, () =>
    withHub(
      {
        defaults: { callTimeout: "250ms" },
        servers: { a: scripted(), b: scripted("", { callTimeout: "20s" }) },
      },
      async ({ client }) => {
        await client.open();
        const sleeping = client.askCall("b__sleep", { ms: 700 });
        assert.equal((await client.call("a__hang", {}, 5000)).message.result?.isError, true);
        assert.equal((await client.answer(sleeping)).message.result?.isError, undefined);
      },
    ),
  );

  it("is pushed back by progress", LIMIT, () =>
    withHub({ servers: { a: scripted("", { callTimeout: "600ms" }) } }, async ({ client }) => {
      await client.open();
      const args = { steps: 6, ms: 250 };
      const id = client.ask("tools/call", {
        name: "a__progress",
        arguments: args,
        _meta: { progressToken: 1 },
      });
      const { message } = await client.answer(id);
      assert.deepEqual(message.result?.structuredContent, args);
      assert.equal(client.filter(({ method }) => method === "notifications/progress").length, 6);
    }),
  );

  it("is pushed back by progress no further than maxCallTimeout", LIMIT, () =>
    withHub(
      { servers: { a: scripted("", { callTimeout: "500ms", maxCallTimeout: "1s" }) } },
      async ({ client, logged }) => {
        await client.open();
        const began = performance.now();
        const params = {
          name: "a__progress",
          arguments: { steps: 600, ms: 100 },
          _meta: { progressToken: "t" },
        };
        const { message } = await client.answer(client.ask("tools/call", params), 6000);
        const took = performance.now() - began;
        assert.equal(message.result?.isError, true);
        assert.ok(took >= 950 && took < 4000, `${took} ms`);
        const call = await logged("a", ({ event }) => event === "call");
        assert.equal((await logged("a", ({ event }) => event === "cancelled")).requestId, call.id);
      },
    ),
  );

  it("counts from the call, the start of its server included", LIMIT, () =>
    withHub(
      {
        hub: { listWait: "50ms" },
        servers: {
          late: scripted("--start-delay 60000", { callTimeout: "400ms", prefix: "late" }),
        },
      },
      async ({ client }) => {
        await client.open();
        const { message } = await client.call("late__echo", {}, 5000);
        assert.match(failure(message), /late/);
      },
    ),
  );

  it("leaves nothing to forward: an answer that comes after it reaches nobody", LIMIT, () =>
    withHub({ servers: { a: scripted("", { callTimeout: "250ms" }) } }, async ({ client }) => {
      await client.open();
      const id = client.askCall("a__hang", { late: true });
      await client.answer(id);
      // The server answers both on one pipe, in order: once this one is here, the late one was read.
      await client.call("a__cancellations");
      assert.equal(
        client.filter((message) => message.id === id && message.method === undefined).length,
        1,
      );
    }),
  );
});
