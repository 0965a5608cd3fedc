import assert from "node:assert/strict";
import { describe } from "node:test";
import { it, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const MEGABYTE = 1_000_000;

describe("many and big calls", () => {
  it("200 concurrent calls over 5 servers that answer in all shapes each get their own answer", () =>
    withHub(
      { servers: Object.fromEntries(["a", "b", "c", "d", "e"].map((key) => [key, scripted()])) },
      async ({ client }) => {
        await client.initializeAndList();
        const tools = ["echo", "tail", "parsed", "garbage", "sleep", "stderr", "progress"];
        const asked = Array.from({ length: 200 }, (_, at) => {
          const server = "abcde"[at % 5];
          const tool = tools[at % tools.length];
          const args = {
            at,
            tag: `${server}-${tool}-${at}`,
            shape: at,
            ms: (at * 7) % 50,
            steps: 2,
            lines: 3,
          };
          return {
            id: client.sendCall(
              `${server}__${tool}`,
              args,
              at % 2 === 0 ? at + 1000 : `call ${at}`,
            ),
            tool,
            args,
          };
        });
        for (const { id, tool, args } of asked) {
          const { message } = await client.response(id, 20_000);
          assert.deepEqual(message.result?.structuredContent, args);
          assert.equal(message.result.content?.[1]?.text, tool);
        }
        const answers = client.filter(({ id, method }) => id !== undefined && method === undefined);
        assert.equal(answers.length, 200 + 2, "nothing is answered twice");
      },
    ));

  it("stray lines on a server's stdout, around an answer, reach nobody and harm no call", () =>
    withHub({ servers: { noisy: scripted(), quiet: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const from = client.lines.length;
      for (let at = 0; at < 20; at += 1) {
        const id = client.sendCall("noisy__garbage", { at });
        const { message } = await client.call("quiet__echo", { at });
        assert.deepEqual(message.result?.structuredContent, { at });
        assert.deepEqual((await client.response(id)).message.result?.structuredContent, { at });
      }
      assert.equal(client.lines.length, from + 40);
    }));

  it("a server that floods stderr is answered for all the same", () =>
    withHub({ servers: { a: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const { message } = await client.call("a__stderr", { lines: 50_000, n: 1 }, 20_000);
      assert.deepEqual(message.result?.structuredContent, { lines: 50_000, n: 1 });
    }));

  it("a result of 20 MB passes whole", () =>
    withHub({ servers: { a: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const { message } = await client.call(
        "a__big",
        { bytes: 20 * MEGABYTE, seed: "twenty" },
        20_000,
      );
      assert.ok(message.result?.content?.[0]?.text === repeat("twenty", 20 * MEGABYTE));
    }));

  it("arguments of 5 MB pass whole", () =>
    withHub({ servers: { a: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const text = repeat("five", 5 * MEGABYTE);
      const { message } = await client.call("a__echo", { text }, 20_000);
      assert.ok(message.result?.structuredContent?.["text"] === text);
    }));

  it("results of 1 MB under 16 concurrent calls all reach their callers whole", () =>
    withHub({ servers: { a: scripted(), b: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      for (let round = 0; round < 3; round += 1) {
        const asked = Array.from({ length: 16 }, (_, at) => {
          const seed = `round ${round} call ${at}`;
          return {
            seed,
            id: client.sendCall(at % 2 === 0 ? "a__big" : "b__big", { bytes: MEGABYTE, seed }),
          };
        });
        for (const { seed, id } of asked) {
          const { message } = await client.response(id, 20_000);
          assert.ok(message.result?.content?.[0]?.text === repeat(seed, MEGABYTE));
        }
      }
    }));

  it("a client that does not read for a while gets every answer when it reads again", () =>
    withHub({ servers: { a: scripted() } }, async ({ client, waitForEvent: logged }) => {
      await client.initializeAndList();
      client.pause();
      const asked = Array.from({ length: 8 }, (_, at) => ({
        seed: `slow reader ${at}`,
        id: client.sendCall("a__big", { bytes: MEGABYTE, seed: `slow reader ${at}` }),
      }));
      const last = client.sendCall("a__echo", {});
      await logged("a", ({ tool }) => tool === "echo");
      client.resume();
      await client.response(last, 20_000);
      for (const { seed, id } of asked) {
        const { message } = await client.response(id, 20_000);
        assert.ok(message.result?.content?.[0]?.text === repeat(seed, MEGABYTE));
      }
    }));
});

/** The text that the tool `big` returns. */
function repeat(seed: string, bytes: number): string {
  return `${seed};`.repeat(Math.ceil(bytes / (seed.length + 1))).slice(0, bytes);
}
