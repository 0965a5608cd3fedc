import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { HubError, type ErrorCode } from "../../src/base/errors.ts";
import type { Answer, ToolCall } from "../../src/plugin/plugin.ts";
import {
  callOf,
  errorAnswer,
  parseOptions,
  TOOL,
  withAuditLog,
} from "../fixtures/audit/audit-log.ts";
import { poll } from "../harness/wait.ts";

const RESULT = '{"content":[]}';

function answer(call: ToolCall): Promise<Answer> {
  return Promise.resolve(call.answer(RESULT));
}

describe("the audit log", () => {
  it("has a line about each call: who, what, when, how long, what became of it, sizes", () =>
    withAuditLog({}, async ({ run, dispose: end }) => {
      const before = Date.now();
      await run(callOf('{"path":"a"}'), answer);
      const after = Date.now();
      const [{ time, duration, ...line } = {}, ...more] = await end();
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
        name: "files__read_file",
        outcome: "ok",
        sizes: { request: 123, answer: RESULT.length },
      });
    }));

  it("measures from the call to its answer", () =>
    withAuditLog({}, async ({ run, dispose: end }) => {
      await run(callOf(), async (call) => {
        const started = performance.now();
        await new Promise((resolve) => setTimeout(resolve, 30));
        assert.ok(performance.now() - started > 25);
        return answer(call);
      });
      const [{ time, duration } = {}] = await end();
      assert.ok(Number(duration) > 25, String(duration));
      assert.ok(Date.parse(String(time)) <= Date.now() - 25);
    }));

  it("gives on what it was given: the very call and the very promise", () =>
    withAuditLog({ arguments: true }, async ({ run }) => {
      const call = callOf();
      const answered = answer(call);
      const given = run(call, (seen) => {
        assert.equal(seen, call);
        return answered;
      });
      assert.equal(given, answered);
      const error = new HubError("callTimeout", "late");
      await assert.rejects(
        run(call, () => Promise.reject(error)),
        (thrown) => thrown === error,
      );
    }));

  it("is in the plugin's own folder, or where it is wanted to be", async () => {
    await withAuditLog({ file: "logs/calls.jsonl" }, async ({ folder, run, dispose: end }) => {
      await run(callOf(), answer);
      assert.equal((await end(join(folder, "logs/calls.jsonl"))).length, 1);
      assert.ok(!existsSync(join(folder, "own", "audit.jsonl")));
    });
  });

  it("is written while calls go on, not only at the end", () =>
    withAuditLog({ file: "a" }, async ({ folder, run }) => {
      await run(callOf(), answer);
      const file = join(folder, "a");
      await poll(
        5000,
        () => "a line",
        () => (existsSync(file) && readFileSync(file, "utf8").endsWith("}\n")) || undefined,
      );
    }));

  it("cuts names that clients and servers made too long", () =>
    withAuditLog({}, async ({ run, dispose: end }) => {
      const long = "n\n".repeat(1e6);
      const tool = { ...TOOL, name: long };
      await run(callOf("{}", { tool, client: { id: "c1", name: long, version: long } }), answer);
      await run(
        callOf("{}", { client: { id: "c2", name: undefined, version: undefined } }),
        answer,
      );
      const [line, nameless] = await end();
      assert.ok(JSON.stringify(line).length < 1500);
      assert.deepEqual(nameless?.["client"], { id: "c2" });
    }));

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
  const answers: readonly [what: string, make: (call: ToolCall) => Answer, expected: object][] = [
    ["is ok for a result", (call) => call.answer('{"isError":false}'), { outcome: "ok" }],
    [
      "is toolError for a result that says so",
      (call) => call.answer('{"content":[],"isError":true}'),
      { outcome: "toolError" },
    ],
    [
      "is toolError for a call that a plugin refused",
      (call) => call.refuse("no"),
      { outcome: "toolError" },
    ],
    [
      "is error for a JSON-RPC error, with its code",
      () => errorAnswer({ code: -32602, message: "secret" }),
      { outcome: "error", error: "-32602" },
    ],
    ["is error without a code for one that has none", () => errorAnswer({}), { outcome: "error" }],
    [
      "is error without a code for one that is too long to look into",
      () => errorAnswer({ code: 1, message: "x".repeat(100_000) }),
      { outcome: "error" },
    ],
  ];
  for (const [what, make, expected] of answers) {
    it(what, () =>
      withAuditLog({}, async ({ run, dispose: end }) => {
        const call = callOf();
        const made = make(call);
        await run(call, () => Promise.resolve(made));
        const [{ outcome, error, sizes } = {}] = await end();
        assert.deepEqual({ outcome, ...(error !== undefined && { error }) }, expected);
        assert.deepEqual(sizes, { request: 123, answer: made.size });
      }),
    );
  }

  const codes: readonly [outcome: string, codes: readonly ErrorCode[]][] = [
    ["cancelled", ["cancelled"]],
    ["timedOut", ["callTimeout"]],
    ["unavailable", ["valueMissing", "notSupported", "commandNotFound", "notExecutable"]],
    ["unavailable", ["spawnFailed", "handshakeFailed", "connectTimeout", "serverStopped"]],
    ["lost", ["connectionLost", "notReading", "notResponding"]],
    ["failed", ["internal", "messageTooLarge", "invalidParams"]],
  ];
  for (const [outcome, members] of codes) {
    for (const code of members) {
      it(`is ${outcome} for a call that ended without an answer by ${code}`, () =>
        withAuditLog({}, async ({ run, dispose: end }) => {
          const error = new HubError(code, "a secret");
          await assert.rejects(run(callOf(), () => Promise.reject(error)));
          const [line] = await end();
          assert.equal(line?.["outcome"], outcome);
          assert.equal(line["error"], code);
          assert.deepEqual(line["sizes"], { request: 123 });
          assert.doesNotMatch(JSON.stringify(line), /secret/);
        }));
    }
  }

  it("is failed for whatever else is thrown", () =>
    withAuditLog({}, async ({ run, dispose: end }) => {
      // An inner plugin may throw any value.
      const things: readonly unknown[] = [new Error("a"), "b", null, { code: 5 }];
      for (const thing of things) {
        const running = run(callOf(), () => Promise.reject(thing));
        await assert.rejects(running, (thrown) => thrown === thing);
      }
      const lines = await end();
      const outcomes = lines.map(({ outcome, error }) => [outcome, error]);
      assert.deepEqual(
        outcomes,
        Array.from({ length: 4 }, () => ["failed", undefined]),
      );
    }));
});

describe("arguments in the audit log", () => {
  const SECRET = '{"a":"hunter2"}';

  it("are left out unless they are wanted", () =>
    withAuditLog({ redact: ["b"] }, async ({ run, dispose: end }) => {
      await run(callOf(SECRET), answer);
      assert.doesNotMatch(JSON.stringify(await end()), /hunter2|"arguments"/);
    }));

  it("are spelled as the client spelled them, in one line", () =>
    withAuditLog({ arguments: true, file: "a" }, async ({ folder, run, dispose: end }) => {
      await run(callOf('{"n":1.0,\r\n "big":1234567890123456789,"s":"\\u0041\\n"}'), answer);
      const file = join(folder, "a");
      assert.equal((await end(file)).length, 1);
      const text = readFileSync(file, "utf8");
      const spelled = '"arguments":{"n":1.0,   "big":1234567890123456789,"s":"\\u0041\\n"}}\n';
      assert.ok(text.endsWith(spelled), text);
    }));

  it("are masked where they are to be, and keep their spelling elsewhere", () =>
    withAuditLog(
      { arguments: true, redact: ["**.a", "b"], file: "a" },
      async ({ folder, run, dispose: end }) => {
        await run(callOf('{"b":{"c":1},"d":[{"A":2,"e":1.0}]}'), answer);
        const file = join(folder, "a");
        const [line] = await end(file);
        const masked = { b: "•••", d: [{ A: "•••", e: 1 }] };
        assert.deepEqual(line?.["arguments"], masked);
        assert.match(readFileSync(file, "utf8"), /"e":1\.0/);
      },
    ));

  it("are left out if they are long or no JSON, which is said together with their size", () =>
    withAuditLog({ arguments: true, redact: ["b"] }, async ({ run, dispose: end }) => {
      const long = JSON.stringify({ a: "é".repeat(40_000) });
      const fitting = JSON.stringify({ a: "x".repeat(64 * 1024 - 8) });
      for (const text of [long, '{"a":', fitting, fitting.replace("x", "xx")]) {
        await run(callOf(text), answer);
      }
      const lines = await end();
      const reported = lines.map((line) => ({
        truncated: line["truncated"],
        size: (line["sizes"] as { arguments?: number }).arguments,
        length: JSON.stringify(line["arguments"])?.length,
      }));
      assert.deepEqual(reported, [
        { truncated: true, size: 80_008, length: undefined },
        { truncated: true, size: 5, length: undefined },
        { truncated: undefined, size: undefined, length: 64 * 1024 },
        { truncated: true, size: 64 * 1024 + 1, length: undefined },
      ]);
      assert.ok(JSON.stringify(lines[0]).length < 500);
    }));
});

describe("an audit log that cannot be written", () => {
  it("stops no call and fails none, and is told of once", { skip: !existsSync("/dev/full") }, () =>
    withAuditLog({ file: "/dev/full" }, async ({ run, dispose: end, logged }) => {
      await run(callOf(), answer);
      await poll(
        5000,
        () => "a warning",
        () => logged[0],
      );
      for (let i = 0; i < 1000; i++) assert.equal((await run(callOf(), answer)).json, RESULT);
      const started = performance.now();
      await end("/dev/null");
      assert.ok(performance.now() - started < 1000);
      const [warning = "", lost, ...more] = logged;
      assert.match(warning, /^warn: \/dev\/full cannot be written: /);
      assert.equal(lost, "warn: 1001 lines could not be written to /dev/full");
      assert.deepEqual(more, []);
    }),
  );
});

describe("options of the audit log", () => {
  it("have defaults", async () => {
    const defaults = {
      arguments: false,
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
