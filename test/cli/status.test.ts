import { formatDuration, formatSize } from "../../src/base/format.ts";
import type { ProcessStats } from "../../src/process/child-process.ts";
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import picocolors from "picocolors";
import {
  describeDiagnoses,
  describeStartProgress,
  diagnose,
  openStartProgress,
  type ServerDiagnosis,
  type StartProgress,
  statusToJson,
  verdictOf,
} from "../../src/cli/commands/status.ts";
import { alignTable, formatJson, truncate } from "../../src/terminal/terminal.ts";
import { hintsFor } from "../../src/cli/hints.ts";
import { EXIT_CODES, serverStateOf } from "../../src/cli/server-state.ts";
import type { Clock } from "../../src/base/clock.ts";
import { type ConnectPhase, type ErrorCode, HubError } from "../../src/base/errors.ts";
import { EventBus, type StateName } from "../../src/base/events.ts";
import {
  LIMIT_DEFAULTS,
  type RemoteServer,
  type ServerSpec,
  type StdioServer,
  type UnsupportedServer,
} from "../../src/manifest/manifest.ts";
import type { ConnectionStatus, ServerStatus } from "../../src/upstream/status.ts";

import { remoteSpecOf } from "../fixtures/streamed-transport.ts";

const PAPER = { isTerminal: false, width: Infinity, colors: picocolors.createColors(false) };

function spec(more: Partial<StdioServer> = {}): StdioServer {
  return {
    kind: "stdio",
    name: "git",
    enabled: true,
    prefix: "git",
    command: "git-mcp",
    args: [],
    env: {},
    inheritEnv: [],
    cwd: undefined,
    baseDir: "/home/ann",
    syntax: "toolmux",
    isolation: "shared",
    era: "auto",
    lazy: false,
    tools: { allow: undefined, deny: [], rename: {}, timeout: {} },
    prompts: { allow: undefined, deny: [], rename: {} },
    ...LIMIT_DEFAULTS,
    ...more,
  };
}

const REMOTE: UnsupportedServer = {
  kind: "unsupported",
  name: "web",
  enabled: true,
  prefix: "web",
  reason: "servers over WebSocket are not supported",
};

function connection(state: StateName, more: Partial<ConnectionStatus> = {}): ConnectionStatus {
  return {
    id: "",
    client: undefined,
    clients: [],
    canAsk: [],
    state,
    since: 0,
    attempt: 1,
    retryAt: undefined,
    responsive: state === "connected" ? true : undefined,
    way: undefined,
    progress: undefined,
    cause: undefined,
    lastError: undefined,
    peer: undefined,
    listing: undefined,
    tools: undefined,
    prompts: undefined,
    resources: undefined,
    startDuration: undefined,
    calls: 0,
    inFlight: 0,
    lastTool: undefined,
    ...more,
  };
}

const UP = connection("connected", {
  peer: { era: "legacy", protocolVersion: "2025-11-25", name: "git-mcp", version: "1.2.3" },
  listing: "server",
  tools: 14,
  prompts: 2,
  resources: 0,
  startDuration: 1834.2,
});

const VITALS: ProcessStats = { pid: 4711, processes: 1, memory: 23_400_000, entries: [] };

const LOST = new HubError("connectionLost", 'Server "git" exited with code 3.', {
  server: "git",
  step: "handshake",
  stderr: ["no such repository", "\u001b[31mgiving up"],
});

const starting = (server = "git"): ServerDiagnosis => ({
  state: "starting",
  server,
  transport: "stdio",
  elapsed: 45_000,
});

const healthy = (server = "git", shown = 14): ServerDiagnosis => ({
  state: "connected",
  server,
  transport: "stdio",
  shown,
  connection: UP,
  processStats: VITALS,
});
const failed = (server = "git", state: "failed" | "unsupported" = "failed"): ServerDiagnosis => ({
  state,
  server,
  transport: state === "failed" ? "stdio" : undefined,
  cause: LOST,
  hints: ["Try it by hand: git-mcp"],
});
const disabled: ServerDiagnosis = { state: "disabled", server: "off", transport: "stdio" };

describe("numbers for people", () => {
  for (const [ms, text] of [
    [0, "0 ms"],
    [41.6, "42 ms"],
    [999.4, "999 ms"],
    [999.6, "1 s"],
    [1834, "1.8 s"],
    [30_000, "30 s"],
    [59_960, "1 min"],
    [150_000, "2.5 min"],
  ] as const) {
    it(`say ${ms} ms as ${text}`, () => assert.equal(formatDuration(ms), text));
  }

  for (const [bytes, text] of [
    [640, "640 B"],
    [999_499, "999 KB"],
    [999_500, "1 MB"],
    [23_400_000, "23 MB"],
    [1_240_000_000, "1.2 GB"],
  ] as const) {
    it(`say ${bytes} bytes as ${text}`, () => assert.equal(formatSize(bytes), text));
  }
});

describe("a JSON document", () => {
  it("has nothing in it that a terminal obeys, and means the same", () => {
    const document = { text: "a\u001b[2J\u009b2J\u007f", list: ["é"] };
    const text = formatJson(document);
    assert.match(text, /^[\n\u0020-\u007e\u00a0-\uffff]+$/);
    assert.deepEqual(JSON.parse(text), document);
  });
});

describe("a table", () => {
  it("is aligned where a character takes two columns of a terminal, or none", () => {
    const rows = [
      ["天気", "x"],
      ["cafe\u0301", "x"],
      ["🦊", "x"],
    ];
    const lines = ["N     V", "天気  x", "cafe\u0301  x", "🦊    x"];
    assert.equal(alignTable(["N", "V"], rows, PAPER), lines.join("\n"));
  });

  it("is cut by columns, not by characters", () => {
    assert.equal(truncate("天気予報", 8), "天気予報");
    assert.equal(truncate("天気予報", 7), "天気予…");
    assert.equal(truncate("天気予報", 6), "天気…");
    assert.equal(truncate("plain", 4), "pla…");
  });
});

/** A failure, whose server it is, and what is suggested. */
const REMEDIES: readonly (readonly [
  code: ErrorCode,
  step: ConnectPhase | undefined,
  server: ServerSpec,
  ...expected: readonly RegExp[],
])[] = [
  ["notSupported", undefined, REMOTE, /"disabled": true$/],
  [
    "notSupported",
    "resolve",
    spec({ args: ["${x:y}"] }),
    /\$\{env:NAME\}, \$\{env:NAME:-default\}, \$\{file:PATH\}/,
    /^\$\{x:…\} needs a plugin/,
  ],
  [
    "valueMissing",
    "resolve",
    spec({ args: ["${x:y}", "${x:z}"], env: { B: "${env:HOME}" } }),
    /plugin for \$\{x:…\}/,
  ],
  ["connectTimeout", "resolve", spec({ args: ["${x:y}"] }), /files and plugins/, /connectTimeout/],
  [
    "valueMissing",
    "resolve",
    spec({ env: { A: "${env:MISSING}", B: "${env:HOME}", C: "${env:ELSE:-x}" } }),
    /^Set MISSING .*: export MISSING=….*\$\{env:MISSING:-…\}$/,
  ],
  [
    "valueMissing",
    "resolve",
    spec({ syntax: "client", args: ["${ONE}", "${TWO} ${ONE}"] }),
    /^Set ONE .*\$\{ONE:-…\}$/,
    /^Set TWO .*\$\{TWO:-…\}$/,
  ],
  [
    "valueMissing",
    "resolve",
    spec({ env: { A: "${file:~/token}", B: "${file:other}" } }),
    /: \/home\/bob\/token, \/home\/ann\/other$/,
  ],
  [
    "commandNotFound",
    "spawn",
    spec({ command: "npx" }),
    /^Install npx \(part of Node\.js\)/,
    /full path.*command -v npx\./,
  ],
  ["commandNotFound", "spawn", spec({ command: "uv" }), /^Install uv, or/, /command -v uv/],
  [
    "commandNotFound",
    "spawn",
    spec({ command: "constructor" }),
    /^Install constructor, or/,
    /constructor/,
  ],
  ["commandNotFound", "spawn", spec({ command: "./bin/it's" }), /relative to \/home\/ann\.$/],
  [
    "notExecutable",
    "spawn",
    spec({ command: "./bin/it's" }),
    /: chmod \+x '\/home\/ann\/bin\/it'\\''s'$/,
    /first line/,
  ],
  [
    "notExecutable",
    "spawn",
    spec({ command: "tool" }),
    /chmod \+x "\$\(command -v tool\)"$/,
    /first line/,
  ],
  ["commandNotFound", "spawn", spec({ command: "~/bin/x" }), /^Correct the path \(command\)\.$/],
  [
    "notExecutable",
    "spawn",
    spec({ command: "~/bin/x" }),
    /chmod \+x \/home\/bob\/bin\/x$/,
    /first line/,
  ],
  [
    "commandNotFound",
    "spawn",
    spec({ command: "${env:BIN}/x" }),
    /^Correct the path \(command\)\.$/,
  ],
  [
    "notExecutable",
    "spawn",
    spec({ command: "${env:BIN}/x" }),
    /chmod \+x '\$\{env:BIN\}\/x'$/,
    /first line/,
  ],
  ["spawnFailed", "spawn", spec({ cwd: "gone" }), /: \/home\/ann\/gone$/, /ulimit/],
  ["spawnFailed", "spawn", spec(), /ulimit/],
  [
    "connectTimeout",
    "handshake",
    spec({ command: "/usr/bin/npx", args: ["-y", "pkg"], connectTimeout: 5000 }),
    /^npx may still be downloading.*: \/usr\/bin\/npx -y pkg$/,
    /raise connectTimeout .*\(now 5 s\)/,
  ],
  [
    "connectTimeout",
    "spawn",
    spec(),
    /raise connectTimeout .*\(now 30 s\)/,
    /stdio\. .*: git-mcp$/,
  ],
  ["connectTimeout", "list", spec({ command: "npx" }), /raise connectTimeout/, /its tools/],
  ["connectTimeout", "resolve", spec(), /\$\{file:…\}/, /raise connectTimeout/],
  ["handshakeFailed", "handshake", spec(), /not be an MCP server over stdio/, /by hand/],
  ["handshakeFailed", "list", spec(), /invalid list.*newer version/],
  [
    "connectionLost",
    "handshake",
    spec({ cwd: "my work", args: ["--dir", "${env:HOME}"] }),
    /^Run it by hand \(replace the placeholders\): cd '\/home\/ann\/my work' && git-mcp --dir \$\{env:HOME\}$/,
    /inheritEnv/,
    /not be an MCP server/,
  ],
  ["connectionLost", undefined, spec(), /^Run it by hand: git-mcp$/, /inheritEnv/, /not be an MCP/],
  ["notResponding", undefined, spec(), /stuck/, /by hand/],
  ["notReading", undefined, spec(), /stuck/, /by hand/],
  ["messageTooLarge", "list", spec({ maxMessage: 2_000_000 }), /Raise maxMessage .*\(now 2 MB\)/],
  ["internal", "list", spec(), /bug in toolmux/],
  ["serverStopped", undefined, spec()],
];

const ENV = { HOME: "/home/bob" };

describe("what to do", () => {
  for (const [code, step, server, ...expected] of REMEDIES) {
    const what = server.kind === "stdio" ? [server.command, ...server.args].join(" ") : server.kind;
    it(`about ${code} at step ${step ?? "none"} of ${what} is told by code and step`, () => {
      const remedies = hintsFor(new HubError(code, "whatever", { step }), server, ENV);
      assert.equal(remedies.length, expected.length, remedies.join("\n"));
      for (const [i, pattern] of expected.entries()) assert.match(remedies[i] ?? "", pattern);
    });
  }

  it("shows no secret, whatever the failure", () => {
    const server = spec({
      args: ["--token", "hunter2", "https://ann:hunter2@example.com/", "-e", "MY_KEY=hunter2"],
      env: { PASSWORD: "hunter2", OTHER: "${env:SECRET}" },
    });
    for (const [code, step] of REMEDIES) {
      const error = new HubError(code, "whatever", { step });
      const text = hintsFor(error, server, { ...ENV, SECRET: "hunter2" }).join("\n");
      assert.ok(!text.includes("hunter2"), text);
    }
  });
});

/** A hub of which only the status is asked, with two tools of `git` in its catalog and one of another server. */
function hubWith(connections: readonly ConnectionStatus[]): Parameters<typeof serverStateOf>[1] {
  const status: ServerStatus = {
    server: "git",
    origin: "manifest",
    transport: "stdio",
    goal: "up",
    connections,
  };
  const routes = ["git", "git", "web"].map((server) => ({ server }));
  return { status: () => [status], catalog: { tools: { routes } } } as unknown as Parameters<
    typeof serverStateOf
  >[1];
}

describe("a server", () => {
  for (const state of ["reconnecting", "failed", "stopping", "connecting"] as const) {
    it(`that is ${state} for a reason has failed for that reason`, () => {
      const standing = serverStateOf(spec(), hubWith([connection(state, { cause: LOST })]));
      assert.deepEqual(standing, { at: "failed", server: "git", cause: LOST });
    });
  }

  it("that is late is starting, for as long as its start has taken, also if it has failed before", () => {
    const late = connection("connecting", { late: 45_000, lastError: LOST });
    const standing = serverStateOf(spec(), hubWith([connection("failed", { cause: LOST }), late]));
    assert.deepEqual(standing, { at: "starting", server: "git", elapsed: 45_000 });
    const diagnosis = diagnose(standing, spec(), undefined, ENV);
    assert.deepEqual(diagnosis, {
      state: "starting",
      server: "git",
      transport: "stdio",
      elapsed: 45_000,
    });
    assert.equal(serverStateOf(spec(), hubWith([late, UP])).at, "connected");
  });

  it("that is late is told of in the report, and is no failure", () => {
    const lines = describeDiagnoses([healthy("files"), starting()], PAPER).split("\n");
    assert.match(lines[2] ?? "", /^git +still starting, 45 s +stdio$/);
    const { verdict, servers } = statusToJson([healthy("files"), starting()]) as {
      verdict: string;
      servers: readonly object[];
    };
    assert.equal(verdict, "partial");
    assert.deepEqual(JSON.parse(JSON.stringify(servers[1])), {
      name: "git",
      state: "starting",
      transport: "stdio",
      elapsed: 45_000,
    });
  });

  it("that has failed and rests has failed for that reason, unless it was seen at work", () => {
    const rests = connection("idle", { lastError: LOST });
    const at = (more: Partial<ConnectionStatus>) =>
      serverStateOf(spec(), hubWith([{ ...rests, ...more }]));
    assert.deepEqual(at({}), { at: "failed", server: "git", cause: LOST });
    assert.equal(at({ listing: "snapshot" }).at, "failed");
    assert.deepEqual(at({ listing: "server" }), { at: "idle", server: "git", tools: 2 });
    assert.equal(at({ listing: "server", state: "connecting" }).at, "failed");
  });

  it("that rests until it is called is idle, with the tools that clients see", () => {
    for (const state of ["idle", "stopping"] as const) {
      const standing = serverStateOf(spec(), hubWith([connection(state, { listing: "snapshot" })]));
      assert.deepEqual(standing, { at: "idle", server: "git", tools: 2 });
    }
  });

  it("that nobody has started has failed, too", () => {
    for (const connections of [[], [connection("idle")], [connection("disconnected")]]) {
      const standing = serverStateOf(spec(), hubWith(connections));
      assert.equal(standing.at === "failed" && standing.cause.code, "serverStopped");
    }
  });

  it("of a server that is being authorized is that, and not that it does not run", () => {
    const standing = serverStateOf(spec(), hubWith([connection("authenticating")]));
    assert.ok(standing.at === "failed");
    assert.match(standing.cause.message, /waits for its authorization/);
  });

  it("is connected if one of its connections is, with the tools that clients see", () => {
    const standing = serverStateOf(spec(), hubWith([connection("failed", { cause: LOST }), UP]));
    assert.deepEqual(standing, {
      at: "connected",
      server: "git",
      tools: 2,
      connection: UP,
    });
  });

  it("that is switched off is disabled, also if it could not be used", () => {
    for (const server of [spec({ enabled: false }), { ...REMOTE, enabled: false }])
      assert.equal(serverStateOf(server, hubWith([])).at, "disabled");
  });

  it("that toolmux cannot use is unsupported, and what can be done is told", () => {
    const diagnosis = diagnose(serverStateOf(REMOTE, hubWith([])), REMOTE, undefined, ENV);
    assert.equal(diagnosis.state, "unsupported");
    assert.equal("cause" in diagnosis && diagnosis.cause.code, "notSupported");
    assert.equal("hints" in diagnosis && diagnosis.hints.length, 1);
  });

  it("that is connected but does not answer has failed", () => {
    const silent = hubWith([{ ...UP, responsive: false }]);
    const diagnosis = diagnose(serverStateOf(spec(), silent), spec(), VITALS, ENV);
    assert.equal(diagnosis.state, "failed");
    assert.equal("cause" in diagnosis && diagnosis.cause.code, "notResponding");
  });
});

describe("the verdict", () => {
  for (const [verdict, code, text, ...diagnoses] of [
    ["healthy", 0, "all healthy: 2 servers", healthy(), healthy("b")],
    ["healthy", 0, "all healthy: 1 server; 1 disabled", healthy(), disabled],
    ["partial", 1, "1 of 2 servers failed", healthy("b"), failed()],
    ["partial", 1, "1 of 2 servers failed", healthy(), failed("web", "unsupported")],
    ["partial", 1, "not all ready: 1 of 2 servers still starting", healthy("b"), starting()],
    ["partial", 1, "not all ready: 1 of 1 server still starting; 1 disabled", starting(), disabled],
    [
      "partial",
      1,
      "not all ready: 1 of 2 servers still starting, 1 failed",
      starting(),
      failed("b"),
    ],
    ["failed", 3, "all failed: 2 servers; 1 disabled", failed(), failed("b"), disabled],
    ["failed", 3, "all failed: 1 server", failed("web", "unsupported")],
    ["none", 2, "no servers in the manifest; add them with toolmux import or toolmux add NAME"],
    ["none", 2, "no server is enabled; 1 disabled", disabled],
  ] as const) {
    const states = diagnoses.map(({ state }) => state).join(", ") || "no server";
    it(`on ${states} is ${verdict}, exit code ${code}`, () => {
      assert.equal(verdictOf(diagnoses), verdict);
      assert.equal(EXIT_CODES[verdict], code);
      assert.equal(describeDiagnoses(diagnoses, PAPER).split("\n").at(-1), text);
    });
  }
});

describe("the report", () => {
  it("is a table of all, then each failure with what to do about it, then the verdict", () => {
    const silent = { ...healthy("slow", 3), processStats: undefined };
    assert.equal(
      describeDiagnoses([healthy("files"), failed(), silent, disabled], PAPER),
      [
        "SERVER  STATE      TOOLS    PROMPTS  RESOURCES  START  PID   MEMORY  PROTOCOL",
        "files   connected  14       2        -          1.8 s  4711  23 MB   stdio, legacy 2025-11-25",
        "git     failed                                                       stdio",
        "slow    connected  3 of 14  2        -          1.8 s                stdio, legacy 2025-11-25",
        "off     disabled                                                     stdio",
        "",
        "git: failed to initialize (connectionLost)",
        '  Server "git" exited with code 3.',
        "  | no such repository",
        "  |  [31mgiving up",
        "  - Try it by hand: git-mcp",
        "",
        "1 of 3 servers failed; 1 disabled",
      ].join("\n"),
    );
  });

  it("has two tables where one is too wide, so that nothing is cut in a usual terminal", () => {
    assert.equal(
      describeDiagnoses([healthy("files"), disabled], { ...PAPER, width: 80 }),
      [
        "SERVER  STATE      TOOLS  PROMPTS  RESOURCES  START",
        "files   connected  14     2        -          1.8 s",
        "off     disabled",
        "",
        "SERVER  PID   MEMORY  PROTOCOL",
        "files   4711  23 MB   stdio, legacy 2025-11-25",
        "off                   stdio",
        "all healthy: 1 server; 1 disabled",
      ].join("\n"),
    );
  });

  it("is a table and the verdict if there is nothing to explain, and the verdict alone if there is no server", () => {
    assert.match(
      describeDiagnoses([healthy()], PAPER),
      /^SERVER [^\n]*\ngit [^\n]*\nall healthy: 1 server$/,
    );
    assert.equal(describeDiagnoses([], PAPER).split("\n").length, 1);
  });

  it("has colours only if they are wanted", () => {
    const colored = { ...PAPER, colors: picocolors.createColors(true) };
    assert.ok(describeDiagnoses([failed()], colored).includes("\u001b[31mall failed"));
    assert.ok(!describeDiagnoses([failed()], PAPER).includes("\u001b"));
  });

  it("colors the state of each server, without changing the table", () => {
    const all = [healthy(), starting("b"), failed("c"), failed("d", "unsupported"), disabled];
    const colors = picocolors.createColors(true);
    for (const width of [60, 80, 200]) {
      const text = describeDiagnoses(all, { ...PAPER, width, colors });
      for (const [color, state] of [
        ["32", "connected"],
        ["33", "still starting"],
        ["31", "failed"],
        ["31", "unsupported"],
        ["2", "disabled"],
      ])
        assert.match(text, new RegExp(`^\\S+ +\u001b\\[${color}m${state}`, "m"));
      // oxlint-disable-next-line no-control-regex
      const plain = text.replaceAll(/\u001b\[\d+m/g, "");
      assert.equal(plain, describeDiagnoses(all, { ...PAPER, width }));
    }
  });

  it("wraps its sentences at words, below where they began", () => {
    const message = "The program ended before it had answered the first request of toolmux.";
    const hint = "Look into the log of the server, and try its command by hand in a terminal.";
    const noise = "writes to stdout what is no message, over and over again, for example this";
    const failure = {
      ...failed("a"),
      cause: new HubError("connectionLost", message, { stderr: [noise] }),
      hints: [hint],
    };
    const noisy = {
      ...healthy("b"),
      connection: { ...UP, strayOutput: { lines: 197, example: noise } },
    };
    for (const width of [40, 60, 80]) {
      const text = describeDiagnoses([failure, noisy], { ...PAPER, width });
      const [, ...blocks] = text.split("\n\n").slice(width < 120 ? 1 : 0);
      for (const line of blocks.join("\n").split("\n")) assert.ok(line.length <= width, line);
      const words = text.replaceAll(/\s+(?:\| )?/g, " ");
      for (const sentence of [message, hint, noise]) assert.ok(words.includes(sentence), text);
      const lines = text.split("\n");
      const at = lines.findIndex((line) => line.startsWith("  - "));
      if (hint.length + 4 > width) assert.match(lines[at + 1] ?? "", /^ {4}\S/);
    }
  });

  it("has for programs all that is known, and nothing in the place of what is not", () => {
    assert.deepEqual(JSON.parse(JSON.stringify(statusToJson([healthy(), failed("b"), disabled]))), {
      verdict: "partial",
      servers: [
        {
          name: "git",
          state: "connected",
          transport: "stdio",
          era: "legacy",
          protocolVersion: "2025-11-25",
          implementation: { name: "git-mcp", version: "1.2.3" },
          tools: 14,
          shown: 14,
          prompts: 2,
          resources: 0,
          startDuration: 1834,
          pid: 4711,
          memory: 23_400_000,
        },
        {
          name: "b",
          state: "failed",
          transport: "stdio",
          error: {
            code: "connectionLost",
            message: 'Server "git" exited with code 3.',
            step: "handshake",
            stderr: ["no such repository", "\u001b[31mgiving up"],
          },
          remedies: ["Try it by hand: git-mcp"],
        },
        { name: "off", state: "disabled", transport: "stdio" },
      ],
    });
  });
});

/** Time that passes when it is told to; callbacks come in the order in which they are due. */
class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Set<{ at: number; callback: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { at: this.#now + ms, callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  pass(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const [next] = [...this.#timers].toSorted((a, b) => a.at - b.at);
      if (next === undefined || next.at > end) break;
      this.#timers.delete(next);
      this.#now = next.at;
      next.callback();
    }
    this.#now = end;
  }

  get armed(): number {
    return this.#timers.size;
  }
}

describe("the progress of a start", () => {
  const progress = (server: string, state: StateName, since = 0): StartProgress => ({
    server,
    state,
    since,
  });

  it("says how many of how many are ready, and who is waited for since when, longest first", () => {
    const all = [
      progress("a", "connected"),
      progress("b", "connecting", 1500),
      progress("c", "reconnecting"),
      progress("d", "connecting", 100),
      progress("e", "stopping"),
      progress("f", "idle"),
    ];
    assert.equal(
      describeStartProgress(all, 2400),
      "1 of 6 ready, 2 failed; waiting for d 2.3 s, b 900 ms",
    );
    assert.equal(describeStartProgress(all.slice(5), 2400), "0 of 1 ready");
    assert.equal(describeStartProgress(all.slice(2, 3), 2400), "0 of 1 ready, 1 failed");
  });

  it("says no more when nobody is waited for any more", () => {
    const all = [progress("a", "connected"), progress("b", "failed")];
    assert.equal(describeStartProgress(all, 0), "1 of 2 ready, 1 failed");
    assert.equal(
      describeStartProgress([...all, progress("c", "idle")], 0),
      "1 of 3 ready, 1 failed",
    );
  });

  it("is drawn at every change and as time passes, until it ends, and goes then", () => {
    const shown: string[] = [];
    const clock = new ManualClock();
    const bus = new EventBus();
    const line = {
      show: (text: string) => void shown.push(text),
      clear: () => void shown.push(""),
    };
    const move = (server: string, from: StateName, to: StateName): void =>
      bus.emit({ kind: "state", server, from, to });
    const end = openStartProgress(["a", "b"], bus, line, clock);
    move("a", "idle", "connecting");
    move("stranger", "idle", "connecting");
    clock.pass(250);
    move("a", "connecting", "connected");
    assert.deepEqual(shown.splice(0), [
      "0 of 2 ready",
      "0 of 2 ready; waiting for a 0 ms",
      "0 of 2 ready; waiting for a 100 ms",
      "0 of 2 ready; waiting for a 200 ms",
      "1 of 2 ready",
    ]);
    end();
    move("b", "idle", "connecting");
    clock.pass(1000);
    assert.deepEqual(shown, [""]);
    assert.equal(clock.armed, 0);
    assert.ok(!bus.hasListeners("state"));
  });
});

describe("what can be done about a server over HTTP", () => {
  const remote = remoteSpecOf("web", { url: "https://web.example/mcp?token=hunter2" });
  const about = (code: ErrorCode, more: Partial<RemoteServer> = {}): string =>
    hintsFor(new HubError(code, "whatever"), { ...remote, ...more }, {}).join("\n");

  const ADVICE: readonly (readonly [ErrorCode, RegExp])[] = [
    ["unreachable", /url are correct/],
    ["tlsFailed", /set ca /],
    ["serverRefused", /\/mcp or \/sse/],
    ["serverFailed", /its own log/],
    ["unauthorized", /toolmux auth login web/],
    ["handshakeFailed", /not be an MCP server/],
    ["connectTimeout", /connectTimeout/],
    ["messageTooLarge", /maxMessage/],
  ];
  for (const [code, expected] of ADVICE) {
    it(`is said of ${code}, without what looks like a secret`, () => {
      assert.match(about(code), expected);
      assert.doesNotMatch(about(code), /hunter2/);
    });
  }

  it("is to change what the manifest says if that is what it does not accept", () => {
    assert.match(about("unauthorized", { headers: { authorization: "x" } }), /headers\.authoriz/);
    assert.match(about("unauthorized", { auth: "none" }), /auth = "none"/);
    assert.match(about("unauthorized", { keyFile: "k" }), /keyFile/);
    const slip = new HubError("serverRefused", "whatever", { step: "authorize" });
    assert.match(hintsFor(slip, remote, {}).join("\n"), /oauth\.clientSecret/);
  });

  it("comes with its url, in which nothing looks like a secret", () => {
    const cause = new HubError("unreachable", "Nobody is there.");
    const sick = diagnose({ at: "failed", server: "web", cause }, remote, undefined, {});
    const text = describeDiagnoses([sick], PAPER);
    assert.match(text, /https:\/\/web\.example\/mcp/);
    assert.doesNotMatch(text + JSON.stringify(statusToJson([sick])), /hunter2/);
  });
});
