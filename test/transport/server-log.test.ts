import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { ServerLog } from "../../src/transport/server-log.ts";
import { Redactor } from "../../src/transport/redact.ts";

/** A noise whose clock the test moves, and what it logged. */
function make(secrets: readonly string[] = []) {
  const logs: string[] = [];
  const clock = { ms: 0 };
  const noise = new ServerLog(
    new Redactor(secrets),
    (level, source, text) => logs.push(`${level} ${source} ${text}`),
    () => clock.ms,
  );
  return { noise, logs, clock };
}

function say(noise: ServerLog, text: string): void {
  noise.stderr(Buffer.from(text));
}

describe("the log of a noisy server", () => {
  it("gets whole lines, however they were cut", () => {
    const { noise, logs } = make();
    for (const text of ["on", "e\ntw", "o\r\n\nthree"]) say(noise, text);
    assert.deepEqual(logs, ["info stderr one", "info stderr two"]);
    noise.end();
    assert.deepEqual(logs.slice(2), ["info stderr three"]);
  });

  it("gets a thousand lines and the rest of a chunk in one second, then what was left out as a number", () => {
    const { noise, logs, clock } = make();
    for (let n = 0; n < 1500; n++) say(noise, `${n}\n`);
    assert.equal(logs.length, 1000);
    clock.ms += 1000;
    say(noise, "next\n");
    assert.deepEqual(logs.slice(1000), [
      "warn stderr (2500 bytes came too fast and were not logged)",
      "info stderr next",
    ]);
  });

  it("goes on at the beginning of a line, so that no rest of a secret is in it", () => {
    const { noise, logs, clock } = make(["very secret"]);
    say(noise, "x\n".repeat(1000));
    say(noise, "key=very ");
    clock.ms += 1000;
    say(noise, "sec");
    say(noise, "ret\nnext\n");
    assert.deepEqual(logs.slice(1000), [
      "warn stderr (16 bytes came too fast and were not logged)",
      "info stderr next",
    ]);
  });

  it("shows no part of a secret at the end of a line that is too long to be kept", () => {
    const { noise, logs } = make(["0123456789abcdef"]);
    say(noise, `${"€".repeat(1362)}0123456789abcdef${"y".repeat(20_000)}\n`);
    assert.equal(logs.length, 1);
    const [line = ""] = logs;
    assert.ok(!/[0-9]{3}/.test(line.split("…")[0] ?? ""), line.slice(-100));
    assert.match(line, /… \(a line of 24102 bytes\)$/);
  });
});

describe("the end of stderr", () => {
  it("is remembered line by line, without empty lines and with the unfinished last one", () => {
    const { noise } = make();
    say(noise, "one\n\ntwo\r\n  \nthree\nfo");
    say(noise, "ur");
    assert.deepEqual(noise.tail(3), ["two", "three", "four"]);
    assert.deepEqual(noise.tail(10), ["one", "two", "three", "four"]);
    assert.deepEqual(make().noise.tail(10), []);
  });

  it("is the last 128 KiB in whole lines, whatever the size of the chunks", () => {
    const text = Array.from({ length: 40_000 }, (_, n) => `line ${n}\n`).join("");
    for (const size of [7, 1000, 65_536, 131_072, 200_000, text.length]) {
      const { noise } = make();
      for (let at = 0; at < text.length; at += size) say(noise, text.slice(at, at + size));
      const lines = noise.tail(1_000_000);
      assert.equal(lines.length, 1000);
      assert.deepEqual([lines[0], lines.at(-1)], ["line 39000", "line 39999"], `${size}`);
    }
  });

  it("shows no secret that it has cut", () => {
    const { noise } = make(["0123456789abcdef"]);
    say(noise, "0123456789abcdef".repeat(20_000));
    const lines = noise.tail(10).map((line) => line.replaceAll("[redacted]", ""));
    assert.deepEqual(lines, [""]);
  });
});
