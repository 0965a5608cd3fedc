import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
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
import type { EventKind, HubEvent, LogLevel, StateName } from "../../src/base/events.ts";

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
const LOST_TEXT = 'Server "files" exited. Its last stderr lines: no disk | bye';
const LATER = NOW + 2500;
const LATER_ISO = "2030-01-02T03:04:08.178Z";

const FILES = ["toolmux", "server", "files"];

interface Row {
  readonly what: string;
  readonly event: HubEvent;
  /** Everything after `toolmux: `; undefined: nothing is told. */
  readonly text: string | undefined;
  /** Everything but the time, the level and the message. */
  readonly json?: object;
}

function move(from: StateName, to: StateName, more: object = {}): HubEvent {
  return { kind: "state", server: "files", from, to, ...more };
}

const FAILING = { cause: LOST, attempt: 2 };
const RETRYING = { ...FAILING, retryAt: LATER };
const CALL = {
  call: 7,
  client: "c",
  name: "files__read",
  startedAt: NOW,
  server: "files",
  tool: "read",
  duration: 1234.56,
};
const CALLED = { category: FILES, call: 7, tool: "read" };

/** Every kind of event, and every way in which it is told. */
const ROWS: readonly Row[] = [
  {
    what: "a server that was added",
    event: { kind: "server", server: "files", change: "added" },
    text: "info files: added",
    json: { category: FILES, change: "added" },
  },
  {
    what: "a server that was changed",
    event: { kind: "server", server: "files", change: "changed" },
    text: "info files: its settings changed",
    json: { category: FILES, change: "changed" },
  },
  {
    what: "a server that was removed",
    event: { kind: "server", server: "files", change: "removed" },
    text: "info files: removed",
    json: { category: FILES, change: "removed" },
  },
  {
    what: "a first attempt",
    event: move("idle", "connecting", { attempt: 1 }),
    text: "info files: connecting",
    json: { category: FILES, from: "idle", to: "connecting", attempt: 1 },
  },
  {
    what: "a later attempt, of one client's connection",
    event: move("reconnecting", "connecting", { attempt: 3, client: "c1" }),
    text: "info files: connecting (attempt 3)",
    json: { category: FILES, client: "c1", from: "reconnecting", to: "connecting", attempt: 3 },
  },
  {
    what: "a success",
    event: move("connecting", "connected", { attempt: 1 }),
    text: "info files: connected",
    json: { category: FILES, from: "connecting", to: "connected", attempt: 1 },
  },
  {
    what: "a wish for authorization",
    event: move("connecting", "authenticating", { attempt: 1 }),
    text: "debug files: authorization is needed",
    json: { category: FILES, from: "connecting", to: "authenticating", attempt: 1 },
  },
  {
    what: "a loss that will be retried",
    event: move("connected", "stopping", RETRYING),
    text: `warn files: ${LOST_TEXT.replace(" Its", " Next attempt in 2.5 s. Its")}`,
    json: {
      category: FILES,
      from: "connected",
      to: "stopping",
      attempt: 2,
      retryAt: LATER_ISO,
      error: LOST_JSON,
    },
  },
  {
    what: "a loss after which only a call starts it",
    event: move("connected", "stopping", { cause: LOST }),
    text: `warn files: ${LOST_TEXT}`,
    json: { category: FILES, from: "connected", to: "stopping", error: LOST_JSON },
  },
  {
    what: "the way to a failure for good",
    event: move("connecting", "stopping", FAILING),
    text: "debug files: stopping",
    json: { category: FILES, from: "connecting", to: "stopping", attempt: 2 },
  },
  {
    what: "a stop",
    event: move("connected", "stopping"),
    text: "debug files: stopping",
    json: { category: FILES, from: "connected", to: "stopping" },
  },
  {
    what: "a wait for the next attempt",
    event: move("stopping", "reconnecting", RETRYING),
    text: "debug files: next attempt in 2.5 s",
    json: {
      category: FILES,
      from: "stopping",
      to: "reconnecting",
      attempt: 2,
      retryAt: LATER_ISO,
    },
  },
  {
    what: "a failure for good",
    event: move("stopping", "failed", FAILING),
    text: `error files: ${LOST_TEXT}`,
    json: { category: FILES, from: "stopping", to: "failed", attempt: 2, error: LOST_JSON },
  },
  {
    what: "a rest",
    event: move("stopping", "idle"),
    text: "info files: stopped while idle; the next call starts it",
    json: { category: FILES, from: "stopping", to: "idle" },
  },
  {
    what: "the end of a stop",
    event: move("stopping", "disconnected"),
    text: "info files: stopped",
    json: { category: FILES, from: "stopping", to: "disconnected" },
  },
  ...LEVELS.map((level) => ({
    what: `a line of the hub, ${level}`,
    event: { kind: "log", level, source: "hub", text: "so {it} is" } as const,
    text: `${level} so {it} is`,
    json: { category: ["toolmux"], source: "hub" },
  })),
  ...(["stderr", "stdout", "server"] as const).map((source) => ({
    what: `a line of a server, ${source}`,
    event: { kind: "log", level: "info", source, server: "files", text: "a\tb" } as const,
    text: "info files: a b",
    json: { category: FILES, source },
  })),
  {
    what: "a call that starts",
    event: { kind: "callStarted", ...CALL },
    text: "debug files: call 7 of read started",
    json: { ...CALLED, name: "files__read" },
  },
  {
    what: "a call that was answered",
    event: { kind: "callFinished", outcome: "answered", failed: false, ...CALL },
    text: "debug files: call 7 of read answered after 1.2 s",
    json: { ...CALLED, ms: 1235, outcome: "answered" },
  },
  {
    what: "a call that the hub had to answer",
    event: { kind: "callFinished", outcome: "failed", failed: true, ...CALL, cause: LOST },
    text: `debug files: call 7 of read failed after 1.2 s: ${LOST_TEXT}`,
    json: { ...CALLED, ms: 1235, outcome: "failed", error: LOST_JSON },
  },
  ...(["client", "deadline", "disconnect", "shutdown", "operator"] as const).map((by) => ({
    what: `a call that was cancelled, ${by}`,
    event: { kind: "callCancelled", by, ...CALL, duration: 12 } as const,
    text: `debug files: call 7 of read cancelled after 12 ms: ${by}`,
    json: { ...CALLED, ms: 12, by },
  })),
  {
    what: "a catalog",
    event: {
      kind: "catalog",
      added: ["a", "b", "c", "d", "e", "f", "g"],
      removed: ["x"],
      altered: [],
    },
    text: "info the list of tools changed: 7 added (a, b, c, d, e, 2 more), 1 removed (x)",
    json: {
      category: ["toolmux"],
      added: ["a", "b", "c", "d", "e", "f", "g"],
      removed: ["x"],
      altered: [],
    },
  },
  ...(["connectionFailed", "disconnected"] as const).flatMap((kind) =>
    [true, false].map((raised) => ({
      what: `an alert that a state has told already: ${kind}, ${raised ? "raised" : "cleared"}`,
      event: {
        kind: "alert",
        raised,
        alert: { id: "1", at: NOW, kind, server: "files", text: "Gone." },
      } as const,
      text: undefined,
    })),
  ),
  ...(["authRequired", "authExpired", "toolsChanged", "nameMoved"] as const).flatMap((alert) =>
    [true, false].map((raised) => ({
      what: `an alert: ${alert}, ${raised ? "raised" : "cleared"}`,
      event: {
        kind: "alert",
        raised,
        alert: { id: "1", at: NOW, kind: alert, server: "files", text: "Look here." },
      } as const,
      text: raised ? "warn files: Look here." : "info files: resolved: Look here.",
      json: { category: FILES, alert, raised },
    })),
  ),
  {
    what: "a client that has said its name",
    event: { kind: "client", client: "client-1", change: "changed", name: "editor", version: "2" },
    text: "debug client client-1 (editor 2) is initialized",
    json: {
      category: ["toolmux"],
      client: "client-1",
      change: "changed",
      name: "editor",
      version: "2",
    },
  },
  {
    what: "a manifest that was taken",
    event: { kind: "manifest", outcome: "reloaded", servers: 1 },
    text: "info config reloaded: 1 server",
    json: { category: ["toolmux"], outcome: "reloaded", servers: 1 },
  },
  {
    what: "a manifest that was refused",
    event: { kind: "manifest", outcome: "refused", problems: "/a.toml:1:2: x\n/b.toml: y" },
    text: "error the changed config has errors: the hub keeps the old one\n/a.toml:1:2: x\n/b.toml: y",
    json: {
      category: ["toolmux"],
      outcome: "refused",
      problems: ["/a.toml:1:2: x", "/b.toml: y"],
    },
  },
];

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
  for (const { what, event, text, json } of ROWS) {
    it(`is right as text and as JSON: ${what}`, () => {
      const record = recordOfEvent(event, NOW);
      if (text === undefined) {
        assert.equal(record, undefined);
        return;
      }
      assert.ok(record !== undefined);
      assert.equal(formatLogRecord(record, "text"), `toolmux: ${text}`);
      const { time, level, message, ...rest } = toJson(record);
      assert.deepEqual(rest, json);
      assert.deepEqual([time, level], [TIME, record.level]);
      assert.equal(message, record.message);
      assert.ok(text.startsWith(`${level} `));
    });
  }

  it("has no word of what an error was caused by, which may hold arguments", () => {
    const whole = ROWS.map(({ event }) => recordOfEvent(event, NOW))
      .filter((record) => record !== undefined)
      .map((record) => formatLogRecord(record, "json") + formatLogRecord(record, "text"))
      .join("\n");
    assert.match(whole, /no disk/);
    assert.doesNotMatch(whole, /hunter2/);
  });

  for (const least of LEVELS) {
    it(`needs no other events than are listened for at ${least}, and none of these in vain`, () => {
      const needed = new Set<EventKind>();
      for (const { event } of ROWS) {
        const record = recordOfEvent(event, NOW);
        if (record !== undefined && isLevelEnabled(record.level, least)) needed.add(event.kind);
      }
      assert.deepEqual([...eventKindsAtLevel(least)].toSorted(), [...needed].toSorted());
    });
  }

  it("says once why a server was lost, however it goes on", () => {
    const alert = {
      id: "1",
      at: NOW,
      kind: "disconnected",
      server: "files",
      text: LOST.message,
    } as const;
    const raised: HubEvent = { kind: "alert", raised: true, alert };
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

describe("a line of a log", () => {
  it("is one line without control characters, whatever is in it", () => {
    const nasty = "a\r\nb\u0000\u001b[31m\u007f\u009bc\u2028d\u2029e\ud800";
    const error = new HubError("internal", nasty, { stderr: [nasty] });
    const record = makeLogRecord("info", nasty, { server: nasty, error, more: [nasty] });
    const json = formatLogRecord(record, "json");
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(json, /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/);
    const { category, message, more } = toJson(record);
    assert.deepEqual([category.at(-1), message, more], [nasty, nasty, [nasty]]);
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(formatLogRecord(record, "text"), /[\u0000-\u001f\u007f-\u009f]/);
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
    const lines = recordsOfError(LOST).map(toJson);
    assert.equal(lines.length, 1);
    assert.deepEqual(lines[0]?.category, FILES);
    assert.deepEqual(lines[0]["error"], LOST_JSON);
  });

  it("is a record for each problem of a manifest", () => {
    const lines = recordsOfError(new HubError("manifestInvalid", "/a:1:2: x\n/b: y")).map(toJson);
    assert.deepEqual(
      lines.map(({ level, message }) => [level, message]),
      [
        ["error", "/a:1:2: x"],
        ["error", "/b: y"],
      ],
    );
  });
});

/** Lets all promises that have settled be seen. */
function settle(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

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
    await settle();
  }
}

describe("notices", () => {
  const open = (reader: Reader): StderrWriter =>
    new StderrWriter((missing) => `${missing} missing`, reader.outlet);

  it("are written one by one to a reader that keeps up", () => {
    const reader = new Reader();
    reader.isSlow = false;
    const notices = open(reader);
    notices.print("one");
    notices.print("two");
    assert.deepEqual(reader.taken, ["one\n", "two\n"]);
  });

  it("wait in order for a reader that is slow", async () => {
    const reader = new Reader();
    const notices = open(reader);
    for (const line of ["one", "two", "three"]) notices.print(line);
    assert.deepEqual(reader.taken, ["one\n"]);
    await reader.read();
    assert.deepEqual(reader.taken, ["one\n", "two\nthree\n"]);
  });

  it("are dropped beyond a limit, and it is told where and how many", async () => {
    const reader = new Reader();
    const notices = open(reader);
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
    const reader = new Reader();
    const notices = open(reader);
    let isDrained = false;
    notices.print("one");
    notices.print("two");
    void notices.drained().then(() => (isDrained = true));
    await reader.read();
    assert.equal(isDrained, false);
    await reader.read();
    assert.equal(isDrained, true);
    await notices.drained();
  });
});
