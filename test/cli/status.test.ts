import type { ProcessStats } from "../../src/process/child-process.ts";
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  describeDiagnoses,
  diagnose,
  EXIT_CODES,
  type ServerDiagnosis,
  statusToJson,
  verdictOfDiagnoses,
} from "../../src/cli/status-report.ts";
import { describeStartProgress, openStartProgress } from "../../src/cli/start-progress.ts";
import { serverDocument } from "../../src/control/documents.ts";
import { availabilityOf, errorOf } from "../../src/control/hub-reader.ts";
import type { ServerDocument } from "../../src/control/schemas.ts";
import { alignTable, formatJson, truncate, makeColors } from "../../src/terminal/terminal.ts";
import { sanitizeForTerminal } from "../../src/terminal/visible.ts";
import { hintsFor } from "../../src/operations/hints.ts";
import { describeServer } from "../../src/operations/server-description.ts";
import { type ConnectPhase, type ErrorCode, HubError } from "../../src/base/errors.ts";
import { EventBus, type StateName } from "../../src/base/hub-events.ts";
import type { RemoteServer, StdioServer, UnsupportedServer } from "../../src/manifest/manifest.ts";
import type { ConnectionStatus, ServerStatus } from "../../src/upstream/status.ts";
import { stdioSpecOf } from "../fixtures/memory-hub.ts";
import { plainCopy } from "../fixtures/manifest/manifest-folder.ts";
import { remoteSpecOf } from "../fixtures/streamed-transport.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const PAPER = { isTerminal: false, width: Infinity, colors: makeColors(false) };

const spec = (more: Partial<StdioServer> = {}): StdioServer =>
  stdioSpecOf("git", { command: "git-mcp", baseDir: "/home/ann", ...more });

const REMOTE: UnsupportedServer = {
  kind: "unsupported",
  name: "web",
  enabled: true,
  prefix: "web",
  reason: "servers over WebSocket are not supported",
};

function connection(state: StateName, more: Partial<ConnectionStatus> = {}): ConnectionStatus {
  const responsive = state === "connected" ? true : undefined;
  const status = {
    id: "",
    clients: [],
    canAsk: [],
    state,
    since: 0,
    attempt: 1,
    responsive,
    calls: 0,
    inFlight: 0,
  };
  return { ...status, ...more } as ConnectionStatus;
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

/** The document of the server `git`, two of whose tools clients see. */
function documentWith(
  connections: readonly ConnectionStatus[],
  { shown = 2, processes }: { readonly shown?: number; readonly processes?: ProcessStats } = {},
): ServerDocument {
  const common = { server: "git", origin: "manifest", transport: "stdio" } as const;
  const numbered = connections.map((one, index) => ({ ...one, id: String(index) }));
  const status: ServerStatus = { ...common, goal: "up", isStopped: false, connections: numbered };
  const running = processes === undefined ? [] : ([["0", processes]] as const);
  const facts = {
    presentation: {},
    endpoint: undefined,
    maxAttempts: 0,
    remedies: [],
    pending: 0,
    shown,
    tokens: 0,
  };
  return serverDocument(status, { ...facts, processes: new Map(running) }, 0);
}

const LOST = new HubError("connectionLost", 'Server "git" exited with code 3.', {
  server: "git",
  step: "handshake",
  stderr: ["no such repository", "\u001b[31mgiving up"],
});

function starting(server = "git"): ServerDiagnosis {
  return { state: "starting", server, transport: "stdio", elapsed: 45_000 };
}

function healthy(server = "git", shown = 14): ServerDiagnosis {
  const document = documentWith([UP], { shown, processes: VITALS });
  return { state: "connected", server, transport: "stdio", shown, document };
}

function failed(server = "git", state: "failed" | "unsupported" = "failed"): ServerDiagnosis {
  const transport = state === "failed" ? "stdio" : undefined;
  return { state, server, transport, cause: LOST, hints: ["Try it by hand: git-mcp"] };
}

const disabled: ServerDiagnosis = { state: "disabled", server: "off", transport: "stdio" };

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
    const rows = ["天気", "cafe\u0301", "🦊"].map((name) => [name, "x"]);
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

const SCRIPT = /first line/;

/** A failure and its step, of which server, and each line of what is suggested. */
const REMEDIES: readonly (readonly [
  failure: string,
  more: Partial<StdioServer> | UnsupportedServer,
  ...expected: readonly RegExp[],
])[] = [
  ["notSupported", REMOTE, /"disabled": true$/],
  [
    "notSupported resolve",
    { args: ["${x:y}"] },
    /\$\{env:NAME\}, \$\{env:NAME:-default\}, \$\{file:PATH\}/,
    /^\$\{x:…\} needs a plugin/,
  ],
  [
    "valueMissing resolve",
    { args: ["${x:y}", "${x:z}"], env: { B: "${env:HOME}" } },
    /plugin for \$\{x:…\}/,
  ],
  [
    "valueMissing resolve",
    { env: { A: "${env:MISSING}", B: "${env:HOME}", C: "${env:ELSE:-x}" } },
    /^Set MISSING .*: export MISSING=….*\$\{env:MISSING:-…\}$/,
  ],
  [
    "valueMissing resolve",
    { syntax: "client", args: ["${ONE}", "${TWO} ${ONE}"] },
    /^Set ONE .*\$\{ONE:-…\}$/,
    /^Set TWO .*\$\{TWO:-…\}$/,
  ],
  [
    "valueMissing resolve",
    { env: { A: "${file:~/token}", B: "${file:other}" } },
    /: \/home\/bob\/token, \/home\/ann\/other$/,
  ],
  [
    "commandNotFound spawn",
    { command: "npx" },
    /^Install npx \(part of Node\.js\)/,
    /full path.*command -v npx`\./,
  ],
  ["commandNotFound spawn", { command: "uv" }, /^Install uv, or/, /command -v uv/],
  ["commandNotFound spawn", { command: "constructor" }, /^Install constructor, or/, /constructor/],
  ["commandNotFound spawn", { command: "./bin/it's" }, /relative to \/home\/ann\.$/],
  ["commandNotFound spawn", { command: "~/bin/x" }, /^Correct the path \(command\)\.$/],
  ["commandNotFound spawn", { command: "${env:BIN}/x" }, /^Correct the path \(command\)\.$/],
  [
    "notExecutable spawn",
    { command: "./bin/it's" },
    /: chmod \+x '\/home\/ann\/bin\/it'\\''s'$/,
    SCRIPT,
  ],
  ["notExecutable spawn", { command: "tool" }, /chmod \+x "\$\(command -v tool\)"$/, SCRIPT],
  ["notExecutable spawn", { command: "~/bin/x" }, /chmod \+x \/home\/bob\/bin\/x$/, SCRIPT],
  ["notExecutable spawn", { command: "${env:BIN}/x" }, /chmod \+x '\$\{env:BIN\}\/x'$/, SCRIPT],
  ["spawnFailed spawn", { cwd: "gone" }, /: \/home\/ann\/gone$/, /ulimit/],
  ["spawnFailed spawn", {}, /ulimit/],
  [
    "connectTimeout handshake",
    { command: "/usr/bin/npx", args: ["-y", "pkg"], connectTimeout: 5000 },
    /^npx may still be downloading.*: \/usr\/bin\/npx -y pkg$/,
    /raise connectTimeout .*\(now 5 s\)/,
  ],
  ["connectTimeout spawn", {}, /raise connectTimeout .*\(now 30 s\)/, /stdio\. .*: git-mcp$/],
  ["connectTimeout list", { command: "npx" }, /raise connectTimeout/, /its tools/],
  ["connectTimeout resolve", {}, /\$\{file:…\}/, /raise connectTimeout/],
  ["connectTimeout resolve", { args: ["${x:y}"] }, /files and plugins/, /connectTimeout/],
  ["handshakeFailed handshake", {}, /not be an MCP server over stdio/, /by hand/],
  ["handshakeFailed list", {}, /invalid list.*newer version/],
  [
    "connectionLost handshake",
    { cwd: "my work", args: ["--dir", "${env:HOME}"] },
    /^Run it by hand \(replace the placeholders\): cd '\/home\/ann\/my work' && git-mcp --dir \$\{env:HOME\}$/,
    /inheritEnv/,
    /not be an MCP server/,
  ],
  ["connectionLost", {}, /^Run it by hand: git-mcp$/, /inheritEnv/, /not be an MCP/],
  ["notResponding", {}, /stuck/, /by hand/],
  ["notReading", {}, /stuck/, /by hand/],
  ["messageTooLarge list", { maxMessage: 2_000_000 }, /Raise maxMessage .*\(now 2 MB\)/],
  ["internal list", {}, /bug in toolmux/],
  ["serverStopped", {}],
];

function failureOf(failure: string): HubError {
  const [code, step] = failure.split(" ") as [ErrorCode, ConnectPhase?];
  return new HubError(code, "whatever", { step });
}

const ENV = { HOME: "/home/bob" };

describe("what to do", () => {
  for (const [failure, more, ...expected] of REMEDIES) {
    const server = more.kind === "unsupported" ? more : spec(more);
    const what = server.kind === "stdio" ? [server.command, ...server.args].join(" ") : server.kind;
    it(`about ${failure} of ${what} is told by code and step`, () => {
      const remedies = hintsFor(failureOf(failure), server, ENV);
      assert.equal(remedies.length, expected.length, remedies.join("\n"));
      for (const [i, pattern] of expected.entries()) assert.match(remedies[i] ?? "", pattern);
    });
  }

  it("shows no secret, whatever the failure", () => {
    const server = spec({
      args: ["--token", "hunter2", "https://ann:hunter2@example.com/", "-e", "MY_KEY=hunter2"],
      env: { PASSWORD: "hunter2", OTHER: "${env:SECRET}" },
    });
    for (const [failure] of REMEDIES) {
      const hints = hintsFor(failureOf(failure), server, { ...ENV, SECRET: "hunter2" });
      assert.ok(!hints.join("\n").includes("hunter2"), hints.join("\n"));
    }
  });
});

const documentOf = (...connections: readonly ConnectionStatus[]) => documentWith(connections);

describe("a server", () => {
  for (const state of ["reconnecting", "failed", "stopping", "connecting", "idle"] as const) {
    it(`that is ${state} for a reason has failed for that reason`, () => {
      const document = documentOf(connection(state, { cause: LOST, tools: 2 }));
      assert.equal(availabilityOf(document), "failed");
      const { code, message, step, stderr } = errorOf(document);
      assert.deepEqual(
        { code, message, step, stderr },
        { code: LOST.code, message: LOST.message, step: LOST.step, stderr: LOST.stderr },
      );
    });
  }

  it("that is late is starting, for as long as its start has taken, also if it has failed before", () => {
    const late = connection("connecting", { late: 45_000, lastError: LOST });
    const document = documentOf(connection("failed", { cause: LOST }), late);
    assert.equal(availabilityOf(document), "starting");
    assert.deepEqual(diagnose(document, spec(), ENV), starting());
    assert.equal(availabilityOf(documentOf(late, UP)), "connected");
  });

  it("that is late is told of in the report, and is no failure", () => {
    const lines = describeDiagnoses([healthy("files"), starting()], PAPER).split("\n");
    assert.match(lines[2] ?? "", /^git +still starting, 45 s +stdio$/);
    const { verdict, servers } = plainCopy(statusToJson([healthy("files"), starting()])) as {
      verdict: string;
      servers: readonly object[];
    };
    assert.equal(verdict, "partial");
    const { server: name, ...rest } = starting();
    assert.deepEqual(servers[1], { name, ...rest });
  });

  it("that has failed and rests has failed for that reason, unless it was seen at work", () => {
    const rests = connection("idle", { lastError: LOST });
    const at = (more: Partial<ConnectionStatus>) =>
      availabilityOf(documentOf({ ...rests, ...more }));
    assert.equal(at({}), "failed");
    assert.equal(at({ listing: "snapshot", listedAt: 1, tools: 2 }), "failed");
    assert.equal(at({ listing: "server", tools: 2 }), "idle");
    assert.equal(at({ listing: "server", tools: 2, state: "connecting" }), "failed");
  });

  it("that rests until it is called is idle, with the tools that clients see", () => {
    for (const state of ["idle", "stopping"] as const) {
      const saved = { listing: "snapshot", listedAt: 1, tools: 3 } as const;
      const document = documentOf(connection(state, saved));
      assert.deepEqual([availabilityOf(document), document.shown], ["idle", 2]);
    }
  });

  it("that nobody has started has failed, too", () => {
    for (const connections of [[], [connection("idle")], [connection("disconnected")]]) {
      const document = documentOf(...connections);
      assert.equal(availabilityOf(document), "failed");
      assert.equal(errorOf(document).code, "serverStopped");
    }
  });

  it("of a server that is being authorized is that, and not that it does not run", () => {
    const document = documentOf(connection("authenticating"));
    assert.equal(availabilityOf(document), "failed");
    assert.match(errorOf(document).message, /waits for its authorization/);
  });

  it("is connected if one of its connections is, with the tools that clients see", () => {
    const document = documentOf(connection("failed", { cause: LOST }), UP);
    assert.deepEqual([availabilityOf(document), document.shown], ["connected", 2]);
  });

  it("that is connected but does not answer has failed", () => {
    const document = documentOf({ ...UP, responsive: false });
    const diagnosis = diagnose(document, spec(), ENV);
    assert.equal(diagnosis.state, "failed");
    assert.equal("cause" in diagnosis && diagnosis.cause.code, "notResponding");
  });
});

describe("the verdict", () => {
  for (const [verdict, code, text, ...diagnoses] of [
    ["healthy", 0, "2 connected", healthy(), healthy("b")],
    ["healthy", 0, "1 connected, 1 disabled", healthy(), disabled],
    ["partial", 1, "1 connected, 1 failed", healthy("b"), failed()],
    ["partial", 1, "1 connected, 1 failed", healthy(), failed("web", "unsupported")],
    ["partial", 1, "1 connected, 1 connecting", healthy("b"), starting()],
    ["partial", 1, "1 connecting, 1 disabled", starting(), disabled],
    ["partial", 1, "1 failed, 1 connecting", starting(), failed("b")],
    ["failed", 3, "2 failed, 1 disabled", failed(), failed("b"), disabled],
    ["failed", 3, "1 failed", failed("web", "unsupported")],
    ["none", 2, "no servers in the manifest; add them with toolmux import or toolmux add NAME"],
    ["none", 2, "1 disabled", disabled],
  ] as const) {
    const states = diagnoses.map(({ state }) => state).join(", ") || "no server";
    it(`on ${states} is ${verdict}, exit code ${code}`, () => {
      assert.equal(verdictOfDiagnoses(diagnoses), verdict);
      assert.equal(EXIT_CODES[verdict], code);
      assert.equal(describeDiagnoses(diagnoses, PAPER).split("\n").at(-1), text);
    });
  }
});

describe("the report", () => {
  it("is a table of all, then each failure with what to do about it, then the verdict", () => {
    const silent = { ...healthy("slow", 3), document: documentWith([UP], { shown: 3 }) };
    const lines = [
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
      "2 connected, 1 failed, 1 disabled",
    ];
    const report = describeDiagnoses([healthy("files"), failed(), silent, disabled], PAPER);
    assert.deepEqual(report.split("\n"), lines);
  });

  it("has two tables where one is too wide, so that nothing is cut in a usual terminal", () => {
    const lines = [
      "SERVER  STATE      TOOLS  PROMPTS  RESOURCES  START",
      "files   connected  14     2        -          1.8 s",
      "off     disabled",
      "",
      "SERVER  PID   MEMORY  PROTOCOL",
      "files   4711  23 MB   stdio, legacy 2025-11-25",
      "off                   stdio",
      "1 connected, 1 disabled",
    ];
    const report = describeDiagnoses([healthy("files"), disabled], { ...PAPER, width: 80 });
    assert.deepEqual(report.split("\n"), lines);
  });

  it("has colours only if they are wanted", () => {
    const colored = { ...PAPER, colors: makeColors(true) };
    const shown = sanitizeForTerminal(describeDiagnoses([failed()], colored));
    assert.ok(shown.includes("\u001b[31m1 failed"));
    assert.ok(!describeDiagnoses([failed()], PAPER).includes("\u001b"));
  });

  it("colors the state of each server, without changing the table", () => {
    const all = [healthy(), starting("b"), failed("c"), failed("d", "unsupported"), disabled];
    const colors = makeColors(true);
    for (const width of [60, 80, 200]) {
      const text = sanitizeForTerminal(describeDiagnoses(all, { ...PAPER, width, colors }));
      const bad = { failed: 31, unsupported: 31 };
      const states = { connected: 32, "still starting": 33, ...bad, disabled: 2 };
      for (const [state, color] of Object.entries(states))
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
    const cause = new HubError("connectionLost", message, { stderr: [noise] });
    const failure = { ...failed("a"), cause, hints: [hint] };
    const strayOutput = { lines: 197, example: noise };
    const noisy = { ...healthy("b"), document: documentWith([{ ...UP, strayOutput }]) };
    for (const width of [40, 60, 80]) {
      const text = describeDiagnoses([failure, noisy], { ...PAPER, width });
      const [, ...blocks] = text.split("\n\n").slice(1);
      for (const line of blocks.join("\n").split("\n")) assert.ok(line.length <= width, line);
      const words = text.replaceAll(/\s+(?:\| )?/g, " ");
      for (const sentence of [message, hint, noise]) assert.ok(words.includes(sentence), text);
      const lines = text.split("\n");
      const at = lines.findIndex((line) => line.startsWith("  - "));
      if (hint.length + 4 > width) assert.match(lines[at + 1] ?? "", /^ {4}\S/);
    }
  });

  it("has for programs all that is known, and nothing in the place of what is not", () => {
    const { name, version, ...protocol } = UP.peer ?? {};
    const implementation = { name, version };
    const counts = { tools: 14, shown: 14, prompts: 2, resources: 0 };
    const run = { startDuration: 1834, pid: 4711, memory: 23_400_000 };
    const stderr = ["no such repository", "\u001b[31mgiving up"];
    const error = { code: LOST.code, message: LOST.message, step: "handshake", stderr };
    const [git, b, off] = ["git", "b", "off"].map((each) => ({ name: each, transport: "stdio" }));
    const remedies = ["Try it by hand: git-mcp"];
    assert.deepEqual(plainCopy(statusToJson([healthy(), failed("b"), disabled])), {
      verdict: "partial",
      servers: [
        { ...git, state: "connected", ...protocol, implementation, ...counts, ...run },
        { ...b, state: "failed", error, remedies },
        { ...off, state: "disabled" },
      ],
    });
  });
});

describe("the progress of a start", () => {
  const describeAll = (now: number, all: readonly (readonly [StateName, number?])[]): string =>
    describeStartProgress(
      all.map(([state, since = 0], index) => ({ server: "abcdef"[index] ?? "", state, since })),
      now,
    );

  it("says how many of how many are ready, and who is waited for since when, longest first", () => {
    const all = describeAll(2400, [
      ["connected"],
      ["connecting", 1500],
      ["reconnecting"],
      ["connecting", 100],
      ["stopping"],
      ["idle"],
    ]);
    assert.equal(all, "1 of 6 ready, 2 failed; waiting for d 2.3 s, b 900 ms");
    assert.equal(describeAll(2400, [["idle"]]), "0 of 1 ready");
    assert.equal(describeAll(2400, [["reconnecting"]]), "0 of 1 ready, 1 failed");
  });

  it("is drawn at every change and as time passes, until it ends, and goes then", () => {
    const shown: string[] = [];
    const clock = new VirtualClock();
    const bus = new EventBus();
    const show = (text: string): void => void shown.push(text);
    const line = { show, clear: () => show("") };
    const move = (server: string, from: StateName, to: StateName): void =>
      bus.emit({ kind: "state", server, from, to });
    const end = openStartProgress(["a", "b"], bus, line, clock);
    move("a", "idle", "connecting");
    move("stranger", "idle", "connecting");
    clock.advanceTo(250);
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
    clock.advanceTo(1250);
    assert.deepEqual(shown, [""]);
    assert.deepEqual(clock.pendingDelays, []);
    assert.ok(!bus.hasListeners("state"));
  });
});

describe("what can be done about a server over HTTP", () => {
  const remote = remoteSpecOf("web", { url: "https://web.example/mcp?token=hunter2" });
  const about = (code: ErrorCode, more: Partial<RemoteServer> = {}): string =>
    hintsFor(new HubError(code, "whatever"), { ...remote, ...more }, {}).join("\n");

  for (const [code, expected] of [
    ["unreachable", /url are correct/],
    ["tlsFailed", /set ca /],
    ["serverRefused", /\/mcp or \/sse/],
    ["serverFailed", /its own log/],
    ["unauthorized", /toolmux auth login web/],
    ["handshakeFailed", /not be an MCP server/],
    ["connectTimeout", /connectTimeout/],
    ["messageTooLarge", /maxMessage/],
  ] as const) {
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
    const failure = documentWith([connection("failed", { cause })]);
    const document = { ...failure, endpoint: describeServer(remote) };
    const sick = diagnose(document, remote, {});
    const text = describeDiagnoses([sick], PAPER);
    assert.match(text, /https:\/\/web\.example\/mcp/);
    assert.doesNotMatch(text + JSON.stringify(statusToJson([sick])), /hunter2/);
  });
});
