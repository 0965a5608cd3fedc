import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { notification } from "../contract/transport.ts";
import { measureMemory } from "../harness/memory.ts";
import { MEGABYTE, type Setup, withScript } from "./script-server.ts";

describe("what a server says beside the protocol", () => {
  it("goes to the log if it is a stray line on stdout, and messages around it arrive", () => {
    const script = `echo 'Server ready!'; echo '${notification(1)}'; echo '{"hello": 1}'; cat >/dev/null`;
    return withScript(script, async ({ events }) => {
      await events.until("three events", () => events.events.length === 3);
      assert.deepEqual(events.messages, [notification(1)]);
      assert.deepEqual(events.logs, [
        "debug stdout Server ready!",
        'debug stdout Not a message (the message lacks "jsonrpc": "2.0"): {"hello": 1}',
      ]);
    });
  });

  it("reaches the log cut to 2,000 characters", () => {
    const script = `head -c 9000 /dev/zero | tr '\\0' x; echo; head -c 5000 /dev/zero | tr '\\0' y >&2; echo >&2; exit 1`;
    return withScript(script, async ({ events, closed }) => {
      await closed();
      const expected = [`debug stdout ${"x".repeat(2000)}`, `info stderr ${"y".repeat(2000)}`];
      assert.deepEqual(events.logs.toSorted(), expected);
    });
  });

  it("may be 100 MB of stderr without a line end: it does not pile up, and the server lives on", () =>
    withScript(
      // The message shows that all of the line before it was read; the line has not ended then.
      `head -c 100000000 /dev/zero | tr '\\0' x >&2; echo '${notification(1)}'; cat >/dev/null; echo >&2; exit 1`,
      async ({ events }) => {
        const before = measureMemory();
        await events.until("a frame", () => events.has("frame"));
        const grown = (measureMemory() - before) / MEGABYTE;
        assert.ok(grown < 60, `${grown} MB more`);
        assert.ok(events.logs.every((line) => line.length < 2100));
      },
    ));

  it("may be 20 MB of lines on stderr: the log gets some of them, and the end is in the error", () =>
    withScript(
      "yes 'one more line' | head -c 20000000 >&2; echo >&2; echo last words >&2; exit 1",
      async ({ events, closed }) => {
        await closed();
        // Of more than a million lines; how many are logged depends on how long a busy machine takes.
        assert.ok(events.logs.length < 300_000, `${events.logs.length} lines`);
        assert.equal(events.logs[0], "info stderr one more line");
        assert.ok(events.logs.some((line) => /bytes came too fast/.test(line)));
        assert.equal(events.causes[0]?.stderr.length, 10);
        assert.equal(events.causes[0]?.stderr.at(-1), "last words");
      },
    ));

  it("may be a flood without an end: close is not held up by it", () =>
    withScript("yes x", async ({ link, events }) => {
      await events.until("noise", () => events.has("log"));
      const began = performance.now();
      await link.close();
      assert.ok(performance.now() - began < 5000);
    }));

  /** Runs a server that has these secrets to its end. @returns its log, and the end of its stderr */
  async function heard(script: string, secrets: readonly string[]) {
    const setup = { logs: [] as string[], stderr: [] as readonly string[] };
    const run = async ({ events, closed }: Setup): Promise<void> => {
      await closed();
      Object.assign(setup, { logs: events.logs, stderr: events.causes[0]?.stderr ?? [] });
    };
    const [A = "", B = ""] = secrets;
    await withScript(script, run, { secrets, env: { A, B } });
    return { ...setup, all: [...setup.logs, ...setup.stderr].join("\n") };
  }

  it("shows no secret, in no log line and no error", async () => {
    const secrets = ["s3cret value", "line one\nline two", 'with"quote'];
    const script = `echo "plain $A." >&2; echo "$B" >&2; echo '{"key": "with\\"quote"}'; echo "url?key=s3cret%20value"; exit 1`;
    const { logs, stderr, all } = await heard(script, secrets);
    assert.doesNotMatch(all, /s3cret|line one|line two|quote/);
    assert.deepEqual(stderr, ["plain [redacted].", "[redacted]"]);
    assert.ok(logs.includes("debug stdout url?key=[redacted]"));
  });

  it("shows no part of a secret where a line is cut", async () => {
    const script = `for n in 1990 1999 4090 8100; do head -c $n /dev/zero | tr '\\0' x >&2; echo $A >&2; done; head -c 20000 /dev/zero | tr '\\0' x >&2; exit 1`;
    const { logs, all } = await heard(script, ["0123456789".repeat(30)]);
    assert.doesNotMatch(all, /\d{6}/, "six digits in a row");
    assert.equal(logs.length, 5);
  });
});

describe("a message over the limit", () => {
  it("is dropped without being kept, and the link lives on", () =>
    withScript(
      // It ends when it is told to, so that there is a time at which all but its end has come in.
      `printf '{"jsonrpc":"2.0","id":1,"result":"'; head -c 80000000 /dev/zero | tr '\\0' x; echo all >&2; read line; printf '"}\\n'; echo '${notification(1)}'; cat >/dev/null`,
      async ({ events, link }) => {
        const before = measureMemory();
        await events.until("all of it", () => events.has("log"));
        const grown = (measureMemory() - before) / MEGABYTE;
        assert.ok(grown < 50, `${grown} MB more`);
        link.send(utf8(notification(0)));
        await events.until("a frame", () => events.has("frame"));
        assert.deepEqual(events.events, ["log", "oversized", "frame"]);
        assert.equal(events.oversizedMessages[0]?.size, 80_000_036);
      },
      { maxMessage: 16 * MEGABYTE },
    ));
});
