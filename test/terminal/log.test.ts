import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  openEventRecorder,
  eventKindsAtLevel,
  formatLogRecord,
  isLevelEnabled,
  type LogRecord,
  makeLogRecord,
  recordOfEvent,
  recordsOfError,
} from "../../src/terminal/log.ts";
import { StderrWriter } from "../../src/terminal/stderr.ts";
import { HubError } from "../../src/base/errors.ts";
import type {
  AlertKind,
  ApprovalPrompt,
  EventKind,
  HubEvent,
  LogLevel,
  StateName,
} from "../../src/base/hub-events.ts";

const NOW = Date.parse("2030-01-02T03:04:05.678Z");
const TIME = "2030-01-02T03:04:05.678Z";
const LEVELS: readonly LogLevel[] = ["error", "warn", "info", "debug"];

const LOST = new HubError("connectionLost", 'Server "files" exited.', {
  server: "files",
  step: "handshake",
  stderr: ["no disk", "bye"],
  cause: new Error("spawn files --token hunter2"),
});
const LOST_JSON = {
  code: "connectionLost",
  message: 'Server "files" exited.',
  step: "handshake",
  stderr: ["no disk", "bye"],
};
const LOST_TEXT = 'Server "files" exited. Its last stderr lines:\n  | no disk\n  | bye';
const LATER = NOW + 2500;
const LATER_ISO = "2030-01-02T03:04:08.178Z";

const FILES = ["toolmux", "server", "files"];

function move(from: StateName, to: StateName, more: object = {}): HubEvent {
  return { kind: "state", server: "files", from, to, ...more };
}

const FAILING = { cause: LOST, attempt: 2 };
const RETRYING = { ...FAILING, retryAt: LATER };
const WAITING = { retryAt: LATER_ISO };
const ERROR = { error: LOST_JSON };
const ANSWER = { call: 7, client: "c", name: "files__read", startedAt: NOW, server: "files" };
const CALL = { ...ANSWER, tool: "read", duration: 1234.56 };
const QUESTION: ApprovalPrompt = {
  id: "3",
  call: 7,
  client: "c",
  clientName: "editor",
  server: "files",
  tool: "read",
  name: "files__read",
  argumentsShown: "{}",
  reason: "It may write.",
  choices: ["once"],
  askedAt: NOW,
};
const ALLOWED = { decision: "always", remembered: true } as const;
const ASKED = { approval: "3", name: "files__read", client: "c" };
const TOOLS = { added: ["a", "b", "c", "d", "e", "f", "g"], removed: ["x"], altered: [] };
const SAID = { client: "client-1", name: "editor", version: "2" };
const PROBLEMS = ["/a.toml:1:2: x", "/b.toml: y"];

/** These are in the JSON as they are in the event. */
const KEPT = ["change", "from", "to", "attempt", "source", "call", "tool", "outcome", "by"];
/**
 * Every kind of event, and every way in which it is told: everything after `toolmux: ` (undefined:
 * nothing is told), and what the JSON has beside the time, the level, the message and `KEPT`.
 */
const ROWS: readonly (readonly [event: HubEvent, text?: string, json?: object])[] = [
  [{ kind: "server", server: "files", change: "added" }, "info files: added"],
  [{ kind: "server", server: "files", change: "changed" }, "info files: its settings changed"],
  [{ kind: "server", server: "files", change: "removed" }, "info files: removed"],
  [move("idle", "connecting", { attempt: 1 }), "info files: connecting"],
  [
    move("reconnecting", "connecting", { attempt: 3, client: "c1" }),
    "info files: connecting (attempt 3)",
    { client: "c1" },
  ],
  [move("connecting", "connected", { attempt: 1 }), "info files: connected"],
  [move("connecting", "authenticating", { attempt: 1 }), "debug files: authorization is needed"],
  [
    move("connected", "stopping", RETRYING),
    `warn files: ${LOST_TEXT.replace(" Its", " Next attempt in 2.5 s. Its")}`,
    { ...WAITING, ...ERROR },
  ],
  // After this only a call starts it.
  [move("connected", "stopping", { cause: LOST }), `warn files: ${LOST_TEXT}`, ERROR],
  // On the way to a failure for good, and to a stop.
  [move("connecting", "stopping", FAILING), "debug files: stopping"],
  [move("connected", "stopping"), "debug files: stopping"],
  [move("stopping", "reconnecting", RETRYING), "debug files: next attempt in 2.5 s", WAITING],
  [move("stopping", "failed", FAILING), `error files: ${LOST_TEXT}`, ERROR],
  [move("stopping", "idle"), "info files: stopped while idle; the next call starts it"],
  [move("stopping", "disconnected"), "info files: stopped"],
  ...LEVELS.map(
    (level) =>
      [{ kind: "log", level, source: "hub", text: "so {it} is" }, `${level} so {it} is`] as const,
  ),
  ...(["stderr", "stdout", "server"] as const).map(
    (source) =>
      [
        { kind: "log", level: "info", source, server: "files", text: "a\tb" },
        "info files: a b",
      ] as const,
  ),
  [
    { kind: "callStarted", ...CALL },
    "debug files: call 7 of read started",
    { name: "files__read" },
  ],
  [
    { kind: "callFinished", outcome: "answered", failed: false, ...CALL },
    "debug files: call 7 of read answered after 1.2 s",
    { ms: 1235 },
  ],
  [
    { kind: "callFinished", outcome: "failed", failed: true, ...CALL, cause: LOST },
    `debug files: call 7 of read failed after 1.2 s: ${LOST_TEXT}`,
    { ms: 1235, ...ERROR },
  ],
  ...(["client", "deadline", "disconnect", "shutdown", "operator"] as const).map(
    (by) =>
      [
        { kind: "callCancelled", by, ...CALL, duration: 12 },
        `debug files: call 7 of read cancelled after 12 ms: ${by}`,
        { ms: 12 },
      ] as const,
  ),
  [
    { kind: "catalog", ...TOOLS },
    "info the list of tools changed: 7 added (a, b, c, d, e, 2 more), 1 removed (x)",
    TOOLS,
  ],
  // A state has told these already.
  ...(["connectionFailed", "disconnected"] as const).flatMap((kind) =>
    [true, false].map((raised) => [alertOf(kind, raised)] as const),
  ),
  ...(["authRequired", "authExpired", "toolsChanged", "nameMoved"] as const).flatMap((alert) => [
    [alertOf(alert, true), "warn files: Look here.", { alert, raised: true }] as const,
    [alertOf(alert, false), "info files: resolved: Look here.", { alert, raised: false }] as const,
  ]),
  [
    { kind: "approval", change: "asked", ...QUESTION },
    "info files: call 7 of read waits for an approval (toolmux approvals)",
    ASKED,
  ],
  [
    { kind: "approval", change: "decided", ...QUESTION, ...ALLOWED, by: "client" },
    "info files: call 7 of read was allowed (always): client",
    { ...ASKED, decision: "always", remembered: true },
  ],
  [
    { kind: "approval", change: "decided", ...QUESTION, ...ALLOWED, by: "rule" },
    "debug files: call 7 of read was allowed (always): rule",
    { ...ASKED, decision: "always", remembered: true },
  ],
  [
    { kind: "approval", change: "withdrawn", ...QUESTION },
    "info files: call 7 of read does not need its approval any more",
    ASKED,
  ],
  [
    { kind: "client", change: "changed", ...SAID },
    "info client editor 2 [client-1] is initialized",
    SAID,
  ],
  [
    {
      kind: "limit",
      limit: "rate",
      of: "client",
      client: "ci",
      retryAfter: 14_000,
      text: "Over the limit.",
    },
    "warn Over the limit.",
    { limit: "rate", of: "client", client: "ci", retryAfter: 14_000 },
  ],
  [
    { kind: "fleet", change: "joined", machine: "h2", servers: ["git", "files"] },
    'info machine "h2" has joined the fleet; it exports git, files',
    { change: "joined", machine: "h2", servers: ["git", "files"] },
  ],
  [
    { kind: "fleet", change: "left", machine: "h2", servers: [], reason: "was killed" },
    'warn machine "h2" has left the fleet: it was killed',
    { change: "left", machine: "h2", servers: [] },
  ],
  [
    { kind: "mode", client: "client-1", from: "full", to: "review" },
    'info mode of client client-1: "review" instead of "full"',
    { client: "client-1", from: "full", to: "review" },
  ],
  [
    {
      kind: "mode",
      client: "client-1",
      name: "Cursor",
      principal: "laptop",
      from: "full",
      to: "review",
    },
    'info mode of client laptop (Cursor) [client-1]: "review" instead of "full"',
    { client: "client-1", name: "Cursor", principal: "laptop", from: "full", to: "review" },
  ],
  [
    {
      kind: "manifest",
      outcome: "reloaded",
      servers: 1,
      added: [],
      changed: ["files"],
      removed: ["a", "b"],
    },
    "info config reloaded: 1 server; changed: files; removed: a, b",
    { servers: 1, added: [], changed: ["files"], removed: ["a", "b"] },
  ],
  [
    { kind: "manifest", outcome: "refused", problems: PROBLEMS.join("\n") },
    `error the changed config has errors: the hub keeps the old one\n${PROBLEMS.join("\n")}`,
    { problems: PROBLEMS },
  ],
];

function alertOf(kind: AlertKind, raised: boolean, text = "Look here."): HubEvent {
  return { kind: "alert", raised, alert: { id: "1", at: NOW, kind, server: "files", text } };
}

interface Line {
  readonly time: string;
  readonly level: string;
  readonly category: readonly string[];
  readonly message: string;
  readonly [name: string]: unknown;
}

function toJson(record: LogRecord): Line {
  return JSON.parse(formatLogRecord(record, "json")) as Line;
}

function tellAll(events: readonly HubEvent[], least: LogLevel): string[] {
  return events
    .map((event) => recordOfEvent(event, NOW))
    .filter((record) => record !== undefined)
    .filter(({ level }) => isLevelEnabled(level, least))
    .map((record) => formatLogRecord(record, "text"));
}

describe("what is told of an event", () => {
  for (const [event, text, json] of ROWS) {
    it(`is right as text and as JSON: ${text ?? "nothing"}, of ${JSON.stringify(event)}`, () => {
      const record = recordOfEvent(event, NOW);
      if (text === undefined) return assert.equal(record, undefined);
      assert.ok(record !== undefined);
      assert.equal(formatLogRecord(record, "text"), `toolmux: ${text}`);
      const { time, level, message, ...rest } = toJson(record);
      const kept = Object.entries(event).filter(([key]) => KEPT.includes(key));
      const category = / files: /.test(text) ? FILES : ["toolmux"];
      assert.deepEqual(rest, { category, ...Object.fromEntries(kept), ...json });
      assert.deepEqual([time, level], [TIME, record.level]);
      assert.equal(message, record.message);
      assert.ok(text.startsWith(`${level} `));
    });
  }

  it("has no word of what an error was caused by, which may hold arguments", () => {
    const whole = ROWS.map(([event]) => recordOfEvent(event, NOW))
      .filter((record) => record !== undefined)
      .map((record) => formatLogRecord(record, "json") + formatLogRecord(record, "text"))
      .join("\n");
    assert.match(whole, /no disk/);
    assert.doesNotMatch(whole, /hunter2/);
  });

  for (const least of LEVELS) {
    it(`needs no other events than are listened for at ${least}, and none of these in vain`, () => {
      const needed = new Set<EventKind>();
      for (const [event] of ROWS) {
        const record = recordOfEvent(event, NOW);
        if (record !== undefined && isLevelEnabled(record.level, least)) needed.add(event.kind);
      }
      assert.deepEqual([...eventKindsAtLevel(least)].toSorted(), [...needed].toSorted());
    });
  }

  it("says once why a server was lost, however it goes on", () => {
    const raised = alertOf("disconnected", true, LOST.message);
    const ways: readonly (readonly HubEvent[])[] = [
      [move("connected", "stopping", RETRYING), raised, move("stopping", "reconnecting", RETRYING)],
      // A call cuts the wait short before it has begun.
      [move("connected", "stopping", RETRYING), raised, move("stopping", "connecting")],
      [move("connected", "stopping", { cause: LOST }), raised, move("stopping", "idle")],
      [move("connecting", "stopping", FAILING), raised, move("stopping", "failed", FAILING)],
    ];
    for (const way of ways) {
      assert.equal(tellAll(way, "warn").length, 1);
      assert.equal(tellAll(way, "debug").join("\n").split(LOST.message).length - 1, 1);
    }
  });
});

describe("the last stderr lines of a server", () => {
  it("are told with the first failure, and again only if more than numbers change", () => {
    const record = openEventRecorder();
    const failed = (server: string, ...stderr: readonly string[]): number => {
      const cause = new HubError("connectionLost", "It exited.", { server, stderr });
      const event = {
        ...move("connecting", "stopping", { ...RETRYING, cause }),
        server,
      } as HubEvent;
      return record(event, NOW)?.properties.error?.stderr.length ?? -1;
    };
    assert.deepEqual(
      [
        failed("a", "at 12:01: no disk"),
        failed("a", "at 12:02: no disk"),
        failed("b", "at 12:02: no disk"),
        failed("a", "at 12:03: no disk", "bye"),
        failed("a", "at 12:04: no disk", "bye"),
        failed("a", "at 12:05: no disk"),
      ],
      [1, 0, 1, 2, 0, 1],
    );
  });
});

describe("a line of a log", () => {
  it("has no control characters, whatever is in it", () => {
    const nasty = "a\r\nb\u0000\u001b[31m\u007f\u009bc\u2028d\u2029e\ud800";
    const error = new HubError("internal", nasty, { stderr: [nasty] });
    const record = makeLogRecord("info", nasty, { server: nasty, error, more: [nasty] });
    const json = formatLogRecord(record, "json");
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(json, /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/);
    const { category, message, more } = toJson(record);
    assert.deepEqual([category.at(-1), message, more], [nasty, nasty, [nasty]]);
    const lines = formatLogRecord(record, "text").split("\n");
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(lines.join(""), /[\u0000-\u001f\u007f-\u009f]/);
    // Each line of a server's stderr has one of its own.
    assert.equal(lines.length, 2);
  });

  it("is bounded, however long its parts are", () => {
    const long = "x".repeat(1_000_000);
    const problems = Array.from({ length: 10_000 }, () => "y");
    const error = new HubError("internal", long, { stderr: [long] });
    const record = makeLogRecord("error", long, { error, problems, names: problems });
    for (const format of ["text", "json"] as const)
      assert.ok(formatLogRecord(record, format).length < 50_000);
    const { message, names } = toJson(record);
    assert.ok(message.endsWith("x…"));
    assert.deepEqual((names as string[]).slice(-2), ["y", "… and 9900 more"]);
  });

  it("begins with time, level, category and message as JSON", () => {
    const keys = Object.keys(toJson(makeLogRecord("warn", "x", { time: NOW, more: 1 })));
    assert.deepEqual(keys, ["time", "level", "category", "message", "more"]);
  });
});

describe("an error that ends a command", () => {
  it("is a record with its server as category", () => {
    const [line, ...others] = recordsOfError(LOST).map(toJson);
    assert.deepEqual(others, []);
    assert.deepEqual([line?.category, line?.["error"]], [FILES, LOST_JSON]);
  });

  it("is a record for each problem of a manifest", () => {
    const lines = recordsOfError(new HubError("manifestInvalid", "/a:1:2: x\n/b: y")).map(toJson);
    assert.deepEqual(
      lines.map(({ level, message }) => `${level} ${message}`),
      ["error /a:1:2: x", "error /b: y"],
    );
  });
});

/** A reader that takes something only when the test says so. */
class Reader {
  readonly taken: string[] = [];
  #release: (() => void) | undefined;
  isSlow = true;

  readonly outlet = (text: string): Promise<void> | undefined => {
    this.taken.push(text);
    if (!this.isSlow) return undefined;
    return new Promise((resolve) => (this.#release = resolve));
  };

  async read(): Promise<void> {
    this.#release?.();
    // Lets all promises that have settled be seen.
    await new Promise((resolve) => void setImmediate(resolve));
  }
}

describe("notices", () => {
  const open = (isSlow = true) => {
    const reader = new Reader();
    reader.isSlow = isSlow;
    const notices = new StderrWriter((missing) => `${missing} missing`, reader.outlet);
    return { reader, notices };
  };

  it("are written one by one to a reader that keeps up", () => {
    const { reader, notices } = open(false);
    for (const line of ["one", "two"]) notices.print(line);
    assert.deepEqual(reader.taken, ["one\n", "two\n"]);
  });

  it("wait in order for a reader that is slow", async () => {
    const { reader, notices } = open();
    for (const line of ["one", "two", "three"]) notices.print(line);
    assert.deepEqual(reader.taken, ["one\n"]);
    await reader.read();
    assert.deepEqual(reader.taken, ["one\n", "two\nthree\n"]);
  });

  it("are dropped beyond a limit, and it is told where and how many", async () => {
    const { reader, notices } = open();
    notices.print("first");
    const line = "x".repeat(1000);
    for (let i = 0; i < 1000; i++) notices.print(line);
    // Also what would fit is dropped behind a gap: the lines stand in order.
    notices.print("short");
    await reader.read();
    const lines = (reader.taken[1] ?? "").split("\n").slice(0, -1);
    const kept = lines.filter((text) => text === line).length;
    assert.ok(kept > 100 && kept < 300, String(kept));
    assert.deepEqual(lines.slice(kept), [`${1001 - kept} missing`]);
    notices.print("after");
    await reader.read();
    assert.equal(reader.taken[2], "after\n");
  });

  it("are drained when the reader has taken the last of them", async () => {
    const { reader, notices } = open();
    let isDrained = false;
    for (const line of ["one", "two"]) notices.print(line);
    void notices.drained().then(() => (isDrained = true));
    await reader.read();
    assert.equal(isDrained, false);
    await reader.read();
    assert.equal(isDrained, true);
    await notices.drained();
  });
});
