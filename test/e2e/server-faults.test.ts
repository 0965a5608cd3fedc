import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import {
  assertServes,
  faulty,
  peakMemory,
  slowestCallDuring,
  withFaulty,
} from "../harness/faulty-server.ts";
import { closeClient, executable, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { failureText, type Received } from "../harness/message.ts";

const MEGABYTE = 1_000_000;

function textOf({ message }: Received): string | undefined {
  return message.result?.content?.[0]?.text;
}

function assertLate({ message }: Received): void {
  assert.equal(message.result?.isError, true, JSON.stringify(message));
  assert.match(failureText(message), /did not finish within/);
}

describe("a server that writes what it should not", () => {
  const HARMLESS: [what: string, tool: string][] = [
    ["lines that are no JSON, NUL bytes and byte order marks among them,", "garbage"],
    ["JSON that is no JSON-RPC", "strange"],
    ["answers to ids that nobody gave out", "foreign"],
    ["CRLF line ends and empty lines", "crlf"],
  ];
  for (const [what, tool] of HARMLESS) {
    it(`${what} is answered for all the same`, () =>
      withFaulty(faulty(), async ({ client }) => {
        await client.initializeAndList();
        const from = client.lines.length;
        const pid = textOf(await client.call("bad__pid"));
        assert.equal(textOf(await client.call(`bad__${tool}`)), "fine");
        assert.equal(textOf(await client.call(`bad__${tool}`)), "fine");
        assert.equal(textOf(await client.call("bad__pid")), pid, "the server went on");
        assert.equal(client.lines.length, from + 4, "nothing else came to the client");
      }));
  }

  it("an answer three times: the first counts, and the others reach nobody", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList();
      const id = client.sendCall("bad__twice");
      assert.equal(textOf(await client.response(id)), "first");
      await assertServes(client, "bad__fine");
      assert.equal(client.filter((message) => message.id === id).length, 1);
    }));

  it("bytes that are not UTF-8 gets U+FFFD to the client in their place", () =>
    withTestFolder(
      { servers: { bad: faulty(), good: scripted() } },
      async ({ dir, config, env }) => {
        const copy = join(dir, "stdout");
        const script = '"$0" --config "$1" | tee "$2"';
        const args = ["-c", script, executable(), config, copy];
        const client = new RawClient("sh", args, dir, env);
        await client.initializeAndList();
        await client.call("bad__latin1");
        await assertServes(client, "good__echo");
        await closeClient(client);
        assert.ok(readFileSync(copy).includes('"text":"caf\ufffd \ufffd\ufffd"'));
      },
    ));

  it("half a line costs that call alone", () =>
    withFaulty(faulty([], { callTimeout: "500ms" }), async ({ client }) => {
      await client.initializeAndList();
      assertLate(await client.call("bad__cut", { line: true }));
      await assertServes(client, "bad__fine");
    }));

  it("half a message without a line end costs that call and the answer after it", () =>
    withFaulty(faulty([], { callTimeout: "500ms" }), async ({ client }) => {
      await client.initializeAndList();
      assertLate(await client.call("bad__cut", { line: false }));
      assertLate(await client.call("bad__fine"));
      await assertServes(client, "bad__fine");
    }));

  it("an answer in writes of a few bytes each gets it to the client whole", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList();
      assert.equal(textOf(await client.call("bad__drip", { bytes: 20_000 })), "é".repeat(10_000));
    }));

  it("an answer of 20 MB gets it to the client whole", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList();
      const answer = await client.call("bad__big", { bytes: 20 * MEGABYTE }, 30_000);
      assert.ok(textOf(answer) === "0123456789".repeat(2 * MEGABYTE));
    }));

  it("an answer of 200 MB fails that call, in little memory, and holds up nobody", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList();
      const pid = textOf(await client.call("bad__pid"));
      const began = performance.now();
      const call = client.call("bad__big", { bytes: 200 * MEGABYTE }, 30_000);
      const slowest = await slowestCallDuring(client, call);
      const took = performance.now() - began;
      const { message } = await call;
      assert.equal(message.error?.code, -31004);
      assert.match(failureText(message), /bad.*200000\d\d\d bytes.*maxMessage/);
      assert.equal(textOf(await client.call("bad__pid")), pid, "the link lives on");
      assert.ok(peakMemory(client.pid) < 300, `${peakMemory(client.pid)} MB`);
      assert.ok(slowest < 2000, `a call to the other server took ${slowest} ms`);
      assert.ok(took < 15_000, `${took} ms`);
    }));
});

describe("a server that sends 300,000 messages which nobody asked for", () => {
  for (const what of ["progress", "log", "change", "answer", "batch", "stray"]) {
    it(`(${what}) costs little memory, fills no log and holds up nobody`, () =>
      withFaulty(faulty(), async ({ client }) => {
        await client.initializeAndList();
        const call = client.call("bad__chatter", { what, count: 300_000 }, 30_000);
        const slowest = await slowestCallDuring(client, call);
        assert.equal(textOf(await call), "fine");
        assert.ok(peakMemory(client.pid) < 200, `${peakMemory(client.pid)} MB`);
        assert.ok(client.stderr.length < MEGABYTE, `${client.stderr.length} characters on stderr`);
        assert.ok(slowest < 3000, `a call to the other server took ${slowest} ms`);
      }));
  }
});

describe("a server that floods stderr with 100 MB", () => {
  for (const lines of [true, false]) {
    it(`${lines ? "in lines" : "without a line end"} costs little memory and holds up nobody`, () =>
      withFaulty(faulty(), async ({ client }) => {
        await client.initializeAndList();
        const call = client.call("bad__flood", { bytes: 100 * MEGABYTE, lines }, 30_000);
        const slowest = await slowestCallDuring(client, call);
        assert.equal(textOf(await call), "fine");
        assert.ok(peakMemory(client.pid) < 200, `${peakMemory(client.pid)} MB`);
        assert.ok(slowest < 3000, `a call to the other server took ${slowest} ms`);
      }));
  }
});

describe("a server that does not read", () => {
  it("ends calls by their deadlines, refuses those that pile up, and holds up nobody", () =>
    withFaulty(faulty([], { callTimeout: "2s" }), async ({ client }) => {
      await client.initializeAndList();
      client.sendCall("bad__deaf");
      const text = "x".repeat(5 * MEGABYTE);
      const calls = Array.from({ length: 40 }, () => client.sendCall("bad__fine", { text }));
      const answers = Promise.all(calls.map((id) => client.response(id, 30_000)));
      const slowest = await slowestCallDuring(client, answers);
      const codes = (await answers).map(({ message }) => message.error?.code);
      assert.ok(codes.includes(-31002), "some were refused at once");
      for (const { message } of await answers) {
        assert.match(failureText(message), /did not finish within 2 seconds|does not read/);
      }
      assert.ok(peakMemory(client.pid) < 600, `${peakMemory(client.pid)} MB`);
      assert.ok(slowest < 2000, `a call to the other server took ${slowest} ms`);
    }));

  it("but asks and asks is not answered for ever: the hub's memory stays bounded", () =>
    withFaulty(faulty([], { callTimeout: "3s" }), async ({ client }) => {
      await client.initializeAndList();
      const call = client.call("bad__asking");
      const slowest = await slowestCallDuring(client, call);
      assertLate(await call);
      assert.ok(peakMemory(client.pid) < 300, `${peakMemory(client.pid)} MB`);
      assert.ok(slowest < 2000, `a call to the other server took ${slowest} ms`);
    }));
});

describe("a server that leaves", () => {
  const LEAVING: [how: string, tool: string, args: object, says: RegExp][] = [
    ["closing its stdout and living on", "close", { fd: 1 }, /closed its stdout/],
    ["exiting in the middle of a line", "torn", {}, /exited with code 0/],
    ["exiting with 0", "exit", { code: 0 }, /exited with code 0/],
    ["exiting with its stdout in the hands of a child", "fork", { code: 3 }, /exited with code 3/],
  ];
  for (const [how, tool, args, says] of LEAVING) {
    it(`by ${how} fails what it has not answered, and the next call starts it again`, () =>
      withFaulty(faulty(), async ({ client }) => {
        await client.initializeAndList();
        const calls = [client.sendCall("bad__hang"), client.sendCall(`bad__${tool}`, args)];
        for (const id of calls)
          assert.match(failureText((await client.response(id)).message), says);
        await assertServes(client, "bad__fine");
      }));
  }

  it("by closing its stdin and living on is found out by the next call", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList();
      const pid = textOf(await client.call("bad__pid"));
      const calls = [client.sendCall("bad__hang"), client.sendCall("bad__close", { fd: 0 })];
      const stdin = `/proc/${pid}/fd/0`;
      await poll(
        5000,
        () => `the end of ${stdin}`,
        () => !existsSync(stdin) || undefined,
      );
      calls.push(client.sendCall("bad__fine"));
      for (const id of calls) {
        assert.match(failureText((await client.response(id)).message), /closed its stdin/);
      }
      await assertServes(client, "bad__fine");
    }));
});
