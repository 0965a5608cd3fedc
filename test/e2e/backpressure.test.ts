import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { constants, closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { setTimeout as stall } from "node:timers/promises";
import { RawClient } from "../harness/raw-client.ts";
import { assertServes, faulty, peakMemory } from "../harness/faulty-server.ts";
import {
  TEST_OPTIONS,
  closeClient,
  executable,
  it,
  itWith,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { failureText } from "../harness/message.ts";
import { isAlive } from "../harness/processes.ts";

const MEGABYTE = 1_000_000;
/** How long the client does not read, in ms: longer than `callTimeout`. Being slow is the fault itself here, no way to wait. */
const STALL = process.env["TOOLMUX_SLOW_TESTS"] === undefined ? 7000 : 60_000;
const SERVERS = {
  defaults: { callTimeout: "6s" },
  servers: { a: scripted(), b: scripted(), good: scripted() },
};

describe("a client that stops reading", () => {
  itWith({ timeout: TEST_OPTIONS.timeout + STALL })(
    "gets every answer once and whole when it reads again, none of them late, and costs little memory",
    () =>
      withHub(SERVERS, async ({ client }) => {
        await client.initializeAndList();
        client.pause();
        const calls = Array.from({ length: 200 }, (_, at) => {
          const seed = `answer ${at}`;
          const tool = at % 2 === 0 ? "a__big" : "b__big";
          return { seed, id: client.sendCall(tool, { bytes: MEGABYTE, seed }) };
        });
        const sleeping = client.sendCall("good__sleep", { ms: 1000 });
        const hanging = client.sendCall("good__hang");
        await stall(STALL);
        const peak = peakMemory(client.pid);
        client.resume();
        for (const { seed, id } of calls) {
          const { message } = await client.response(id, 20_000);
          const text = `${seed};`.repeat(MEGABYTE / seed.length).slice(0, MEGABYTE);
          assert.ok(
            message.result?.content?.[0]?.text === text,
            `${seed}: ${failureText(message)}`,
          );
        }
        const { message } = await client.response(sleeping);
        assert.deepEqual(message.result?.structuredContent, { ms: 1000 });
        assert.match(
          failureText((await client.response(hanging)).message),
          /did not finish within 6 s/,
        );
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

describe("a client that never reads the hub's stderr", () => {
  it("is served all the same, however much a server has to say there", () =>
    withTestFolder(
      { servers: { bad: faulty(), good: scripted() } },
      async ({ dir, config, env }) => {
        const stderr = join(dir, "stderr");
        spawnSync("mkfifo", [stderr]);
        // Open for both, or opening would wait for the other end.
        const held = openSync(stderr, constants.O_RDWR);
        const script = 'exec "$0" --config "$1" 2> "$2"';
        const client = new RawClient("sh", ["-c", script, executable(), config, stderr], dir, env);
        await client.initializeAndList();
        for (let at = 0; at < 100; at += 1) {
          const { message } = await client.call("bad__garbage");
          assert.equal(message.result?.content?.[0]?.text, "fine");
        }
        await assertServes(client, "good__echo");
        assert.ok(
          isAlive(client.pid) && peakMemory(client.pid) < 150,
          `${peakMemory(client.pid)} MB`,
        );
        await closeClient(client);
        closeSync(held);
      },
    ));
});
