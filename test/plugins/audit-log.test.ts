import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { HubError, type ErrorCode } from "../../src/base/errors.ts";
import type { Answer, Next, ToolCall } from "../../src/plugin/plugin.ts";
import { poll } from "../harness/wait.ts";
import { callOf, parseOptions, TOOL, withAuditLog } from "./audit-log-setup.ts";
import { errorAnswer } from "./plugin-host.ts";

const RESULT = '{"content":[]}';

function answer(call: ToolCall): Promise<Answer> {
  return Promise.resolve(call.answer(RESULT));
}

type Lines = readonly Readonly<Record<string, unknown>>[];

/** The lines about these calls, and their text. */
async function logged(
  options: object,
  calls: readonly ToolCall[],
  next: Next = answer,
): Promise<{ readonly lines: Lines; readonly text: string }> {
  let lines: Lines = [];
  let text = "";
  await withAuditLog({ file: "log", ...options }, async ({ run, dispose, folder }) => {
    for (const call of calls) await run(call, next).catch(() => undefined);
    const file = join(folder, "log");
    lines = await dispose(file);
    text = readFileSync(file, "utf8");
  });
  return { lines, text };
}

describe("the audit log", () => {
  it("has a line about each call: who, what, when, how long, what became of it, sizes", async () => {
    const before = Date.now();
    const { lines } = await logged({}, [callOf('{"path":"a"}')]);
    const after = Date.now();
    const [{ time, duration, ...line } = {}, ...more] = lines;
    assert.deepEqual(more, []);
    assert.ok(typeof time === "string" && typeof duration === "number");
    assert.equal(new Date(time).toISOString(), time);
    assert.ok(Date.parse(time) >= before && Date.parse(time) <= after);
    assert.ok(duration >= 0 && duration <= after - before + 1);
    assert.equal(Math.round(duration * 10) / 10, duration);
    assert.deepEqual(line, {
      hub: process.pid,
      call: 7,
      client: { id: "c1", name: "claude", version: "1.0" },
      server: "files",
      tool: "read file",
      name: "files__read file",
      outcome: "ok",
      sizes: { request: 123, answer: RESULT.length },
    });
  });

  it("measures from the call to its answer", async () => {
    const { lines } = await logged({}, [callOf()], async (call) => {
      const started = performance.now();
      await new Promise((resolve) => setTimeout(resolve, 30));
      assert.ok(performance.now() - started > 25);
      return answer(call);
    });
    const [{ time, duration } = {}] = lines;
    assert.ok(Number(duration) > 25, String(duration));
    assert.ok(Date.parse(String(time)) <= Date.now() - 25);
  });

  it("gives on what it was given: the very call and the very promise", () =>
    withAuditLog({ arguments: true }, async ({ run }) => {
      const call = callOf();
      const answered = answer(call);
      const given = run(call, (seen) => {
        assert.equal(seen, call);
        return answered;
      });
      assert.equal(given, answered);
      // An inner plugin may throw any value.
      const things: readonly unknown[] = [new HubError("callTimeout", "late"), "b", null];
      for (const thing of things) {
        const running = run(call, () => Promise.reject(thing));
        await assert.rejects(running, (thrown) => thrown === thing);
      }
    }));

  it("is in the plugin's own folder, or where it is wanted to be", async () => {
    await withAuditLog({}, async ({ run, dispose }) => {
      await run(callOf(), answer);
      assert.equal((await dispose()).length, 1);
    });
    await withAuditLog({ file: "logs/calls.jsonl" }, async ({ folder, run, dispose }) => {
      await run(callOf(), answer);
      assert.equal((await dispose(join(folder, "logs/calls.jsonl"))).length, 1);
      assert.ok(!existsSync(join(folder, "own", "audit.jsonl")));
    });
  });

  it("is written while calls go on, not only at the end", () =>
    withAuditLog({ file: "a" }, async ({ folder, run }) => {
      await run(callOf(), answer);
      const file = join(folder, "a");
      const isWritten = () => existsSync(file) && readFileSync(file, "utf8").endsWith("}\n");
      await poll(
        5000,
        () => "a line",
        () => isWritten() || undefined,
      );
    }));

  it("cuts names that clients and servers made too long, and has none that there are not", async () => {
    const long = "n\n".repeat(1e6);
    const client = { id: "c1", name: long, version: long };
    const { lines } = await logged({}, [
      callOf("{}", { tool: { ...TOOL, name: long }, client }),
      callOf("{}", { client: { id: "c2", name: undefined, version: undefined } }),
      callOf("{}", { client: { id: "c3", name: "n", version: "1", principal: "laptop" } }),
    ]);
    assert.ok(JSON.stringify(lines[0]).length < 1500);
    assert.deepEqual(lines[1]?.["client"], { id: "c2" });
    assert.deepEqual((lines[2]?.["client"] as { principal?: string }).principal, "laptop");
  });

  it("of two entries of one manifest in one file has the lines of both", () =>
    withAuditLog({ file: "shared.jsonl" }, (one) => {
      const file = join(one.folder, "shared.jsonl");
      return withAuditLog({ file }, async (other) => {
        await Promise.all([one.run(callOf(), answer), other.run(callOf(), answer)]);
        await one.dispose(file);
        assert.equal((await other.dispose(file)).length, 2);
      });
    }));
});

describe("an outcome in the audit log", () => {
  const failed = (call: ToolCall): Answer => call.answer('{"content":[],"isError":true}');
  const long = { code: 1, message: "x".repeat(100_000) };
  const answers: readonly [what: string, make: (call: ToolCall) => Answer, expected: object][] = [
    ["ok for a result", (call) => call.answer('{"isError":false}'), { outcome: "ok" }],
    ["toolError for a result that says so", failed, { outcome: "toolError" }],
    ["toolError for a refused call", (call) => call.refuse("no"), { outcome: "toolError" }],
    [
      "error for a JSON-RPC error, with its code",
      () => errorAnswer({ code: -32602, message: "secret" }),
      { outcome: "error", error: "-32602" },
    ],
    ["error without a code for one that has none", () => errorAnswer({}), { outcome: "error" }],
    ["error without a code for one that is long", () => errorAnswer(long), { outcome: "error" }],
  ];
  for (const [what, make, expected] of answers) {
    it(`is ${what}`, async () => {
      const call = callOf();
      const made = make(call);
      const { lines } = await logged({}, [call], () => Promise.resolve(made));
      const [{ outcome, error, sizes } = {}] = lines;
      assert.deepEqual({ outcome, ...(error !== undefined && { error }) }, expected);
      assert.deepEqual(sizes, { request: 123, answer: made.size });
    });
  }

  const outcomes: readonly [outcome: string, codes: readonly ErrorCode[]][] = [
    ["cancelled", ["cancelled"]],
    ["timedOut", ["callTimeout"]],
    ["unavailable", ["valueMissing", "notSupported", "commandNotFound", "notExecutable"]],
    ["unavailable", ["spawnFailed", "handshakeFailed", "connectTimeout", "serverStopped"]],
    ["lost", ["connectionLost", "notReading", "notResponding"]],
    ["failed", ["internal", "messageTooLarge", "invalidParams"]],
  ];
  for (const [outcome, codes] of outcomes) {
    it(`is ${outcome} for a call that ended without an answer by ${codes.join()}`, async () => {
      for (const code of codes) {
        const error = new HubError(code, "a secret");
        const { lines, text } = await logged({}, [callOf()], () => Promise.reject(error));
        const { outcome: found, error: told, sizes } = lines[0] ?? {};
        assert.deepEqual([found, told, sizes], [outcome, code, { request: 123 }]);
        assert.doesNotMatch(text, /secret/);
      }
    });
  }

  it("is failed for whatever else is thrown", async () => {
    const things: readonly unknown[] = [new Error("a"), "b", null, { code: 5 }];
    for (const thing of things) {
      const { lines } = await logged({}, [callOf()], () => Promise.reject(thing));
      assert.deepEqual([lines[0]?.["outcome"], lines[0]?.["error"]], ["failed", undefined]);
    }
  });
});

describe("arguments in the audit log", () => {
  it("are left out unless they are wanted", async () => {
    const { text } = await logged({ redact: ["b"] }, [callOf('{"a":"hunter2"}')]);
    assert.doesNotMatch(text, /hunter2|"arguments"/);
  });

  it("are spelled as the client spelled them, in one line", async () => {
    const args = '{"n":1.0,\r\n "big":1234567890123456789,"s":"\\u0041\\n"}';
    const { lines, text } = await logged({ arguments: true }, [callOf(args)]);
    assert.equal(lines.length, 1);
    assert.ok(text.endsWith(`"arguments":${args.replace("\r\n", "  ")}}\n`), text);
  });

  it("are masked where they are to be, and keep their spelling elsewhere", async () => {
    const options = { arguments: true, redact: ["**.a", "b"] };
    const { text } = await logged(options, [callOf('{"b":{"c":1},"d":[{"A":2,"e":1.0}]}')]);
    assert.ok(text.endsWith('"arguments":{"b":"•••","d":[{"A":"•••","e":1.0}]}}\n'), text);
  });

  it("are left out if they are long or no JSON, which is said together with their size", async () => {
    const long = JSON.stringify({ a: "é".repeat(40_000) });
    const fitting = JSON.stringify({ a: "x".repeat(64 * 1024 - 8) });
    const calls = [long, '{"a":', fitting, fitting.replace("x", "xx")].map((text) => callOf(text));
    const { lines } = await logged({ arguments: true, redact: ["b"] }, calls);
    const reported = lines.map((line) => [
      line["truncated"],
      (line["sizes"] as { arguments?: number }).arguments,
      JSON.stringify(line["arguments"])?.length,
    ]);
    assert.deepEqual(reported, [
      [true, 80_008, undefined],
      [true, 5, undefined],
      [undefined, undefined, 64 * 1024],
      [true, 64 * 1024 + 1, undefined],
    ]);
    assert.ok(JSON.stringify(lines[0]).length < 500);
  });
});

describe("an audit log that cannot be written", () => {
  it("stops no call and fails none, and is told of once", { skip: !existsSync("/dev/full") }, () =>
    withAuditLog({ file: "/dev/full" }, async ({ run, dispose, logged: told }) => {
      await run(callOf(), answer);
      await poll(
        5000,
        () => "a warning",
        () => told[0],
      );
      for (let i = 0; i < 1000; i++) assert.equal((await run(callOf(), answer)).json, RESULT);
      const started = performance.now();
      await dispose("/dev/null");
      assert.ok(performance.now() - started < 10_000);
      const [warning = "", ...more] = told;
      assert.match(warning, /^warn: \/dev\/full cannot be written: /);
      assert.deepEqual(more, ["warn: 1001 lines could not be written to /dev/full"]);
    }),
  );
});

describe("options of the audit log", () => {
  it("have defaults", async () => {
    const defaults = {
      arguments: false,
      results: false,
      redact: [],
      maxSize: 10 * 1024 * 1024,
      keep: 5,
    };
    assert.deepEqual(await parseOptions({}), defaults);
  });

  it("are checked, and what was expected is told", async () => {
    const PATH = 'a path such as "password", "auth.token", "items.*.secret" or "**.token"';
    const wrong = { file: "", arguments: 1, redact: ["a..b", 1], maxSize: "big", keep: 1.5 };
    await assert.rejects(parseOptions({ ...wrong, redacted: [] }), {
      message: [
        'redacted: unknown key; did you mean "redact"?',
        'file: expected a string that is not empty, found ""',
        "arguments: expected true or false, found 1",
        `redact.0: expected ${PATH}, found "a..b"`,
        `redact.1: expected ${PATH}, found 1`,
        'maxSize: expected a size such as "64MiB" or "512KB", or a number of bytes, found "big"',
        "keep: expected a whole number between 0 and 100, found 1.5",
      ].join("\n"),
    });
    for (const keep of [-1, 101]) await assert.rejects(parseOptions({ keep }));
  });
});
