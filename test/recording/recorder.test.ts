import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { HubError } from "../../src/base/errors.ts";
import { maskJson } from "../../src/recording/mask.ts";
import { openRecordingFile, Recorder } from "../../src/recording/recorder.ts";
import { readRecording } from "../../src/recording/reader.ts";
import { recordableManifest, readManifest } from "../../src/recording/recorded-manifest.ts";
import { Redactor } from "../../src/transport/redact.ts";
import { MemoryRecordingSink, recordingOf } from "../fixtures/recording.ts";

const MEGABYTE = 1024 * 1024;

function make({ limit = 256 * MEGABYTE, secrets = [] as string[] } = {}) {
  const outlet = new MemoryRecordingSink();
  const warnings: string[] = [];
  const redactor = new Redactor(secrets);
  const recorder = new Recorder({
    sink: outlet,
    limit,
    redact: (text) => redactor.apply(text),
    now: () => 0,
    warn: (text) => warnings.push(text),
  });
  return { recorder, outlet, warnings };
}

const STRANGE = `{"jsonrpc":"2.0","method":"n","params":{"a":1.0,"a":1e400,"b":12345678901234567890,"\\u00fc":"\\/\\ud83e\\uddf6\u2028"}, "x" :[ ]}`;

describe("a recording", () => {
  it("says when, of which run of which server, and which way; clients are counted", async () => {
    const { recorder, outlet } = make();
    for (const name of ["a", "b", "a"]) {
      recorder.message(recorder.nextServerRun(name), "received", utf8("{}"));
    }
    recorder.message(recorder.nextClient(), "sent", utf8("{}"));
    recorder.message(recorder.nextClient(), "sent", utf8("{}"), 7);
    await recorder.close();
    assert.deepEqual(outlet.lines.slice(1), [
      { t: 0, server: "a", run: 1, way: "received", message: {} },
      { t: 0, server: "b", run: 1, way: "received", message: {} },
      { t: 0, server: "a", run: 2, way: "received", message: {} },
      { t: 0, client: 1, way: "sent", message: {} },
      { t: 0, client: 2, way: "sent", on: 7, message: {} },
      { t: 0, event: "end" },
    ]);
    assert.ok(outlet.isClosed);
  });

  it("has what is no JSON as a text, so that every line of it is JSON", async () => {
    const { recorder, outlet } = make();
    const texts = ['{"jsonrpc":"2.0","id":1,"result":{]}', "}", '{"a":1}}', "\u0000\n"];
    for (const text of texts) recorder.message(recorder.nextClient(), "received", utf8(text));
    await recorder.close();
    const written = outlet.lines.slice(1, -1).map(({ text }) => text);
    assert.deepEqual(written, texts);
  });

  it("ends at its limit with a line that says so, and its hub is told once", async () => {
    const { recorder, outlet, warnings } = make({ limit: 4096 });
    const peer = recorder.nextServerRun("s");
    for (let n = 0; n < 100; n++) recorder.message(peer, "sent", utf8(STRANGE));
    await outlet.until((lines) => lines.at(-1)?.event === "full");
    recorder.message(peer, "sent", utf8(STRANGE));
    await recorder.close();
    assert.deepEqual(outlet.lines.at(-1), { t: 0, event: "full", limit: 4096 });
    assert.ok(outlet.text.length <= 4096 && outlet.text.length > 3000, `${outlet.text.length}`);
    assert.equal(warnings.length, 1);
    const { notes } = readRecording(Buffer.from(outlet.text), "file");
    assert.deepEqual(notes, ["It ends at its size limit."]);
  });

  it("holds little of what a disk does not take, and says how much is missing", async () => {
    const { recorder, outlet } = make();
    outlet.stall();
    const peer = recorder.nextServerRun("s");
    const big = utf8(`{"jsonrpc":"2.0","method":"n","params":"${"x".repeat(16 * MEGABYTE)}"}`);
    for (let n = 0; n < 20; n++) recorder.message(peer, "sent", big);
    recorder.message(peer, "received", utf8("{}"));
    outlet.resume();
    await outlet.until((all) => all.at(-1)?.way === "received" || all.at(-1)?.event === "missing");
    await recorder.close();
    const { lines } = outlet;
    const written = lines.filter(({ way }) => way === "sent").length;
    const missing = lines.find(({ event }) => event === "missing");
    assert.equal(written + Number(missing?.["messages"]), 20);
    assert.ok(written < 5, `${written} were held`);
    const last = lines.slice(-3).map(({ way, event }) => way ?? event);
    assert.deepEqual(last, ["missing", "received", "end"]);
  });

  it("has of a message that is far too large only which one it is", async () => {
    const { recorder, outlet } = make();
    const huge = `{"jsonrpc":"2.0","id":5,"result":"${"x".repeat(33 * MEGABYTE)}"}`;
    recorder.message(recorder.nextServerRun("s"), "received", utf8(huge));
    await recorder.close();
    assert.deepEqual(outlet.lines[1]?.["cut"], { size: huge.length, kind: "response", id: 5 });
  });

  it("ends when it cannot be written, and nothing else does", async () => {
    const { recorder, outlet, warnings } = make();
    outlet.append = () => Promise.reject(new Error("no space"));
    recorder.message(recorder.nextClient(), "sent", utf8("{}"));
    for (let n = 0; n < 10 && warnings.length === 0; n++) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.deepEqual(warnings, ["the recording ends here: it cannot be written (no space)"]);
    recorder.message(recorder.nextClient(), "sent", utf8("{}"));
    await recorder.close();
    assert.equal(outlet.text, "");
  });

  it("has what waits written at once if its process ends", () => {
    const { recorder, outlet } = make();
    recorder.message(recorder.nextClient(), "sent", utf8('{"last":1}'));
    recorder.flushNow();
    assert.deepEqual(outlet.lines.at(-1)?.message, { last: 1 });
  });
});

const SECRET = 'pa"ss/wörd+1';
const ASCII = JSON.stringify(SECRET).replace("ö", "\\u00f6");
const ESCAPED = SECRET.replace(/./g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
const NESTED = JSON.stringify(JSON.stringify({ deep: JSON.stringify({ k: SECRET }) }));

describe("a message with a secret in it", () => {
  const redactor = new Redactor([SECRET, "424242", '{"type":"account","n":1}']);
  const redact = (text: string): string => redactor.apply(text);
  for (const [what, value] of [
    ["as it is", `{"a":[${JSON.stringify(SECRET)}],"b":1.0}`],
    ["escaped as ASCII", `{"a":${ASCII},"b":1.0}`],
    ["with an escaped slash", `{"a":${JSON.stringify(SECRET).replace("/", "\\/")}}`],
    ["all in \\u escapes", `{"a":"${ESCAPED}"}`],
    ["as a key", `{${ASCII}:1}`],
    ["in JSON in JSON", `{"a":${NESTED}}`],
    ["in Base64", `{"a":"${Buffer.from(`me:${SECRET}`).toString("base64")}"}`],
    ["as a number", '{"a":[424242,-1.50],"b":1.0}'],
  ] as const) {
    it(`is JSON without it: ${what}`, () => {
      const shown = maskJson(value, redact) ?? "";
      const parsed = JSON.parse(shown) as unknown;
      assert.ok(shown.includes("[redacted]"), shown);
      const plain = JSON.stringify(parsed).replaceAll("\\", "");
      for (const part of ["wörd", "w\\u00f6rd", "424242"]) assert.ok(!plain.includes(part), shown);
      if (value.includes("1.0")) assert.ok(shown.includes('"b":1.0'), shown);
      if (value.includes("-1.50")) assert.ok(shown.includes("-1.50"), shown);
    });
  }

  it("that is JSON itself is not in the recording at all", async () => {
    const { recorder, outlet } = make({ secrets: ['{"type":"account","n":1}'] });
    const text = '{"jsonrpc":"2.0","id":9,"result":{"type":"account","n":1}}';
    recorder.message(recorder.nextServerRun("s"), "received", utf8(text));
    await recorder.close();
    assert.ok(!outlet.text.includes("account"), outlet.text);
    assert.deepEqual(outlet.lines[1]?.["cut"], { size: text.length, kind: "response", id: 9 });
  });

  it("of megabytes of escapes is as it was but for the secret", () => {
    const long = "\\n\\u00e9\\\\".repeat(200_000);
    const shown = maskJson(`{"a":"${long}","b":${ASCII},"c":"${long}"}`, redact);
    assert.ok(shown === `{"a":"${long}","b":"[redacted]","c":"${long}"}`);
  });

  it("is as it was where there is none, with all its escapes", () => {
    assert.equal(maskJson(STRANGE, redact), STRANGE);
  });
});

describe("the file of a recording", () => {
  function test(sentence: string, run: (folder: string) => Promise<void>): void {
    void it(sentence, async () => {
      const folder = mkdtempSync(join(tmpdir(), "toolmux-recording-"));
      try {
        await run(folder);
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  }

  test("is its owner's alone, and is there from the beginning", async (folder) => {
    const file = join(folder, "r");
    const outlet = await openRecordingFile(file);
    await outlet.append(utf8("one\n"));
    assert.equal(statSync(file).mode & 0o777, 0o600);
    outlet.appendNow(utf8("two\n"));
    await outlet.append(utf8("three\n"));
    await outlet.close();
    assert.equal(readFileSync(file, "utf8"), "one\ntwo\nthree\n");
  });

  test("takes the place of a recording, and of nothing else", async (folder) => {
    const file = join(folder, "r");
    for (const before of [recordingOf(), ""]) {
      writeFileSync(file, before);
      await (await openRecordingFile(file)).close();
      assert.equal(readFileSync(file, "utf8"), "");
    }
    const link = join(folder, "link");
    writeFileSync(file, '{"servers":{}}');
    symlinkSync(file, link);
    const refused = { code: "usage", message: /is not a recording/ };
    for (const path of [file, link, folder]) await assert.rejects(openRecordingFile(path), refused);
    assert.equal(readFileSync(file, "utf8"), '{"servers":{}}');
    await assert.rejects(openRecordingFile(join(folder, "none", "r")), { code: "usage" });
  });
});

describe("reading a recording", () => {
  const whole = recordingOf(
    [1, '> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'],
    [2, '< {"jsonrpc":"2.0","id":1,"result":{"a":1.0}}'],
  );

  it("takes each of its beginnings for what is whole in it, or says that it is none", () => {
    for (let length = 0; length < whole.length; length++) {
      const part = whole.subarray(0, length);
      const lines = part.toString().split("\n").length - 1;
      if (lines === 0) {
        assert.throws(() => readRecording(part, "file"), /file is no recording of toolmux/);
        continue;
      }
      const { lines: entries, notes } = readRecording(part, "file");
      assert.equal(entries.length, Math.min(lines - 1, 2));
      assert.deepEqual(notes, ["It has no end: its hub was killed, or still runs."]);
    }
  });

  const base = '{"t":1,"server":"s","run":1,"way":"sent","message":';
  const WRONG: Readonly<Record<string, readonly string[]>> = {
    "it is no JSON object": ["nonsense", "[]", '{"t":1} {}', "[".repeat(5000)],
    "it has no valid time or run number": [
      '{"server":"s","run":1,"way":"sent","message":{}}',
      '{"t":-1,"server":"s","run":1,"way":"sent","message":{}}',
      '{"t":1,"server":"s","run":1.5,"way":"sent","message":{}}',
    ],
    "it has no way": ['{"t":1,"server":"s","run":1,"way":"up","message":{}}'],
    "it has no message": ['{"t":1,"server":"s","run":1,"way":"sent"}'],
    "the message is not an object": [`${base}5}`],
    "": [`${base}{"jsonrpc":"1.0","method":"x"}}`],
  };
  for (const [why, wrong] of Object.entries(WRONG)) {
    it(`says which line is wrong, and why: ${why}`, () => {
      for (const line of wrong) {
        const bytes = Buffer.from(`${whole.toString()}${line}\n`);
        const reported = (error: unknown): boolean =>
          error instanceof HubError &&
          error.code === "usage" &&
          error.message.startsWith(`file, line 5: ${why}`);
        assert.throws(() => readRecording(bytes, "file"), reported, line);
      }
    });
  }

  it("refuses a form of later versions", () => {
    const bytes = Buffer.from('{"recording":2}\n');
    assert.throws(() => readRecording(bytes, "file"), /form that is not known here: 2/);
  });

  it("gives back a manifest with the names and rules of the recorded one, and nothing of how servers were reached", () => {
    const tools = { rename: { b: "c" }, deny: ["d*"] };
    const a = { command: "recorded", prefix: "x", lazy: true, callTimeout: 5, tools };
    const manifest = readManifest({ hub: { separator: "-" }, servers: { a } }, ["b"]);
    const again = readManifest(recordableManifest(manifest), []);
    assert.deepEqual(again, manifest);
    assert.ok(!JSON.stringify(recordableManifest(manifest)).includes("baseDir"));
    const wrong = { servers: { a: { url: 5 } } };
    assert.throws(() => readManifest(wrong, []), /manifest in the recording/);
    assert.throws(() => readManifest({ servers: 5 }, []), { code: "usage" });
  });
});
