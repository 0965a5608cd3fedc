import assert from "node:assert/strict";
import { describe } from "node:test";
import { setTimeout as stall } from "node:timers/promises";
import { startOn } from "../harness/command.ts";
import { assertServes, peakMemory } from "../harness/faulty-server.ts";
import {
  closeClient,
  it,
  itWith,
  sharedTestFolder,
  TEST_OPTIONS,
  withHub,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { failureText } from "../harness/message.ts";
import type { RawClient } from "../harness/raw-client.ts";

const MEGABYTE = 1_000_000;
/** How long a client does not read, in ms: longer than `callTimeout`. Being slow is the fault itself here, no way to wait. */
const STALL = process.env["TOOLMUX_SLOW_TESTS"] === undefined ? 7000 : 60_000;

describe("many and big calls", () => {
  let client: RawClient;
  const servers = Object.fromEntries(["a", "b", "c", "d", "e"].map((key) => [key, scripted()]));
  sharedTestFolder({ servers }, async (folder) => {
    client = startOn(folder);
    await client.initializeAndList();
    return () => closeClient(client);
  });

  it("200 concurrent calls over 5 servers that answer in all shapes each get their own answer", async () => {
    const from = client.lines.length;
    const tools = ["echo", "tail", "parsed", "garbage", "sleep", "stderr", "progress"];
    const asked = Array.from({ length: 200 }, (_, at) => {
      const server = "abcde"[at % 5];
      const tool = tools[at % tools.length];
      const tag = `${server}-${tool}-${at}`;
      const args = { at, tag, shape: at, ms: (at * 7) % 50, steps: 2, lines: 3 };
      const id = at % 2 === 0 ? at + 1000 : `call ${at}`;
      return { id: client.sendCall(`${server}__${tool}`, args, id), tool, args };
    });
    for (const { id, tool, args } of asked) {
      const { message } = await client.response(id, 20_000);
      assert.deepEqual(message.result?.structuredContent, args);
      assert.equal(message.result.content?.[1]?.text, tool);
    }
    assert.equal(client.lines.length, from + 200, "nothing is answered twice");
  });

  it("arguments of 5 MB and results of 1 MB under 16 concurrent calls pass whole", async () => {
    const text = repeat("five", 5 * MEGABYTE);
    const { message } = await client.call("a__echo", { text }, 20_000);
    assert.ok(message.result?.structuredContent?.["text"] === text);
    await assertAnswers(client, sendBigCalls(client, 16));
  });
});

/** Calls of two servers whose results have 1 MB each. */
function sendBigCalls(client: RawClient, count: number) {
  return Array.from({ length: count }, (_, at) => {
    const seed = `answer ${at}`;
    const tool = at % 2 === 0 ? "a__big" : "b__big";
    return { seed, id: client.sendCall(tool, { bytes: MEGABYTE, seed }) };
  });
}

async function assertAnswers(
  client: RawClient,
  calls: ReturnType<typeof sendBigCalls>,
): Promise<void> {
  for (const { seed, id } of calls) {
    const { message } = await client.response(id, 20_000);
    const isWhole = message.result?.content?.[0]?.text === repeat(seed, MEGABYTE);
    assert.ok(isWhole, `${seed}: ${failureText(message)}`);
  }
}

/** The text that the tool `big` returns. */
function repeat(seed: string, bytes: number): string {
  return `${seed};`.repeat(Math.ceil(bytes / (seed.length + 1))).slice(0, bytes);
}

describe("a client that stops reading", () => {
  const servers = { a: scripted(), b: scripted(), good: scripted() };
  itWith({ timeout: TEST_OPTIONS.timeout + STALL })(
    "gets every answer once and whole when it reads again, none of them late, and costs little memory",
    () =>
      withHub({ defaults: { callTimeout: "6s" }, servers }, async ({ client }) => {
        await client.initializeAndList();
        client.pause();
        const calls = sendBigCalls(client, 120);
        const sleeping = client.sendCall("good__sleep", { ms: 1000 });
        const hanging = client.sendCall("good__hang");
        await stall(STALL);
        const peak = peakMemory(client.pid);
        client.resume();
        await assertAnswers(client, calls);
        const { message } = await client.response(sleeping);
        assert.deepEqual(message.result?.structuredContent, { ms: 1000 });
        const failure = failureText((await client.response(hanging)).message);
        assert.match(failure, /did not finish within 6 s/);
        const ids = client
          .filter(({ method }) => method === undefined)
          .map((line) => line.message.id);
        assert.equal(new Set(ids).size, ids.length, "nothing was answered twice");
        assert.ok(peak < 150, `${peak} MB while it did not read`);
        assert.ok(peakMemory(client.pid) < 280, `${peakMemory(client.pid)} MB in all`);
        await assertServes(client, "good__echo");
      }),
  );
});
