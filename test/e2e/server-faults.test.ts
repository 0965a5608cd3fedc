import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import {
  assertServes,
  faulty,
  peakMemory,
  slowestCallDuring,
  withFaulty,
} from "../harness/faulty-server.ts";
import { it, sharedHub } from "../harness/hub.ts";
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

/**
 * Waits for the answer, and checks that meanwhile calls to the other server were answered, each within seconds. If there
 * was time for one call only, which may have been made before anything else came, it is done again.
 * @param start begins what is waited for, so many times as long as the first time
 */
async function assertHoldsUpNobody<Answer>(
  client: RawClient,
  what: string,
  start: (times: number) => Promise<Answer>,
): Promise<Answer> {
  for (let times = 1; times <= 16; times *= 2) {
    const from = client.lines.length;
    const answer = start(times);
    const slowest = await slowestCallDuring(client, answer);
    assert.ok(slowest < 8000, `${what}: a call to the other server took ${slowest} ms`);
    if (client.lines.length > from + 2) return answer;
  }
  return assert.fail(`${what}: there was time for one call only`);
}

function assertPeak({ pid }: RawClient, most: number, what: string): void {
  const peak = peakMemory(pid);
  assert.ok(peak < most, `${what}: ${peak} MB`);
}

describe("a server", () => {
  const hub = sharedHub({ servers: { bad: faulty(), good: scripted() } });
  /** Afterwards the other server must still answer. */
  const harmless = async (run: (client: RawClient) => Promise<void>): Promise<void> => {
    const { client } = hub();
    await run(client);
    await assertServes(client, "good__echo");
  };

  describe("that writes what it should not", () => {
    const ANSWERS: readonly (readonly [what: string, tool: string, answer: string])[] = [
      ["lines that are no JSON, NUL bytes and byte order marks among them", "garbage", "fine"],
      ["JSON that is no JSON-RPC", "strange", "fine"],
      ["answers to ids that nobody gave out", "foreign", "fine"],
      ["CRLF line ends and empty lines", "crlf", "fine"],
      ["an answer three times, of which the first counts", "twice", "first"],
      [
        "bytes that are not UTF-8, each of which becomes U+FFFD",
        "latin1",
        "caf\ufffd \ufffd\ufffd",
      ],
    ];
    it("is answered for all the same, and the client gets its answers in valid UTF-8 and nothing else", () =>
      harmless(async (client) => {
        const pid = textOf(await client.call("bad__pid"));
        for (const [what, tool, answer] of ANSWERS) {
          const from = client.lines.length;
          assert.equal(textOf(await client.call(`bad__${tool}`)), answer, what);
          assert.equal(textOf(await client.call(`bad__${tool}`)), answer, what);
          assert.equal(textOf(await client.call("bad__pid")), pid, `${what}: the server went on`);
          assert.equal(client.lines.length, from + 3, `${what}: nothing else came to the client`);
        }
      }));
  });

  describe("that floods", () => {
    /** @param all for each flood, the arguments of one that is so many times as long */
    const floods = (tool: string, all: readonly ((times: number) => object)[]): Promise<void> =>
      harmless(async (client) => {
        for (const argsOf of all) {
          const what = JSON.stringify(argsOf(1));
          const answer = await assertHoldsUpNobody(client, what, (times) =>
            client.call(`bad__${tool}`, argsOf(times), 30_000),
          );
          assert.equal(textOf(answer), "fine");
          // More than the hub needs, and less than it would need if it kept what the server sends.
          assertPeak(client, 230, what);
        }
        assert.ok(client.stderr.length < MEGABYTE, `${client.stderr.length} characters on stderr`);
      });

    it("with messages which nobody asked for costs little memory, fills no log and holds up nobody", () =>
      floods(
        "chatter",
        ["progress", "log", "change", "answer", "batch", "stray"].map((what) => (times) => ({
          what,
          // Lines that are no messages are read in no time.
          count: times * (what === "stray" ? 500_000 : 40_000),
        })),
      ));

    it("with 150 MB on stderr, in lines or without a line end, costs little memory, fills no log and holds up nobody", () =>
      floods(
        "flood",
        [true, false].map((lines) => (times) => ({ bytes: times * 150 * MEGABYTE, lines })),
      ));
  });

  describe("that answers much", () => {
    it("an answer in writes of a few bytes, or of 20 MB, gets it to the client whole; one of 200 MB fails that call, in little memory", () =>
      harmless(async (client) => {
        const pid = textOf(await client.call("bad__pid"));
        assert.equal(textOf(await client.call("bad__drip", { bytes: 20_000 })), "é".repeat(10_000));
        const large = textOf(await client.call("bad__big", { bytes: 20 * MEGABYTE }, 30_000));
        assert.ok(large === "0123456789".repeat(2 * MEGABYTE));
        const { message } = await assertHoldsUpNobody(client, "200 MB", () =>
          client.call("bad__big", { bytes: 200 * MEGABYTE }, 30_000),
        );
        assert.equal(message.error?.code, -31004);
        assert.match(failureText(message), /bad.*200000\d\d\d bytes.*maxMessage/);
        assert.equal(textOf(await client.call("bad__pid")), pid, "the link lives on");
        assertPeak(client, 300, "200 MB");
      }));
  });

  describe("that leaves", () => {
    it("in any way fails what it has not answered, and the next call starts it again", () =>
      harmless(async (client) => {
        const leave = async (says: RegExp, tool: string, args: object): Promise<void> => {
          const calls = [client.sendCall("bad__hang"), client.sendCall(`bad__${tool}`, args)];
          for (const id of calls)
            assert.match(failureText((await client.response(id)).message), says, tool);
          await assertServes(client, "bad__fine");
        };
        await leave(/closed its stdout/, "close", { fd: 1 });
        // In the middle of a line.
        await leave(/exited with code 0/, "torn", {});
        // Whatever has the form of an answer, but is none, is not one.
        await leave(/exited with code 0/, "torn", { missing: 1 });
        await leave(/exited with code 0/, "exit", { code: 0 });
        // With its stdout in the hands of a child.
        await leave(/exited with code 3/, "fork", { code: 3 });
      }));

    it("by closing its stdin and living on is found out by the next call", () =>
      harmless(async (client) => {
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
});

describe("a server with a short time limit", () => {
  it("half a line costs that call alone, without a line end the answer after it, too", () =>
    withFaulty(faulty([], { callTimeout: "500ms" }), async ({ client }) => {
      await client.initializeAndList();
      const { message } = await client.call("bad__cut", { line: true });
      assert.equal(message.error?.code, -31004);
      await assertServes(client, "bad__fine");
      assertLate(await client.call("bad__cut", { line: false }));
      assertLate(await client.call("bad__fine"));
      await assertServes(client, "bad__fine");
    }));
});

describe("a server that does not read", () => {
  it("ends calls by their deadlines, refuses those that pile up, and holds up nobody", () =>
    withFaulty(faulty([], { callTimeout: "3s" }), async ({ client }) => {
      await client.initializeAndList();
      client.sendCall("bad__deaf");
      const text = "x".repeat(5 * MEGABYTE);
      const answers = await assertHoldsUpNobody(client, "deaf", () => {
        const calls = Array.from({ length: 30 }, () => client.sendCall("bad__fine", { text }));
        return Promise.all(calls.map((id) => client.response(id, 30_000)));
      });
      const codes = answers.map(({ message }) => message.error?.code);
      assert.ok(codes.includes(-31002), "some were refused at once");
      for (const { message } of answers) {
        assert.match(failureText(message), /did not finish within 3 seconds|does not read/);
      }
      assertPeak(client, 600, "deaf");
    }));

  it("but asks and asks is not answered for ever: the hub's memory stays bounded", () =>
    withFaulty(faulty([], { callTimeout: "800ms" }), async ({ client }) => {
      await client.initializeAndList();
      assertLate(await assertHoldsUpNobody(client, "asking", () => client.call("bad__asking")));
      assertPeak(client, 300, "asking");
    }));
});
