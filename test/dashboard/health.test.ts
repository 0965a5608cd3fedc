import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { nameAndIdOfClient, nameOfClient } from "../../src/base/client-name.ts";
import { applyEvents } from "../../src/dashboard/page/apply-events.ts";
import type { HubEntry, HubEvent, ServerDocument } from "../../src/dashboard/page/documents.ts";
import { healthOf } from "../../src/dashboard/page/health.ts";
import { hubNames } from "../../src/dashboard/page/hub-names.ts";
import { type DashboardState, INITIAL_STATE } from "../../src/dashboard/page/state.ts";

const NOW = 1_000_000;

function server(name: string, about: Partial<ServerDocument> = {}): ServerDocument {
  return {
    name,
    state: "connected",
    goal: "up",
    origin: "manifest",
    statusText: "",
    shown: 1,
    tokens: 1,
    calls: 0,
    inFlight: 0,
    connections: [],
    ...about,
  };
}

const failed = { state: "failed", lastError: { code: "serverFailed", message: "No." } } as const;

describe("the health of a hub", () => {
  const cases: readonly (readonly [
    text: string,
    servers: readonly Partial<ServerDocument>[],
    tone: string,
    sentence: string,
    note: string,
  ])[] = [
    ["no server", [], "quiet", "This hub has no servers yet.", ""],
    [
      "all switched off",
      [{ state: "disabled", goal: "down" }],
      "quiet",
      "All servers are switched off.",
      "1 switched off.",
    ],
    ["one that works", [{}], "good", "The server works.", ""],
    [
      "one that rests",
      [{}, { state: "idle", goal: "onDemand" }],
      "good",
      "All 2 servers work.",
      "1 starts when it is called.",
    ],
    [
      "one that starts",
      [{}, { state: "connecting" }],
      "busy",
      "1 of 2 servers ready.",
      "1 server is starting.",
    ],
    ["one that failed", [{}, {}, failed], "bad", "1 of 3 servers does not work.", ""],
    ["only a failed one", [failed], "bad", "The only server does not work.", ""],
    ["all failed", [failed, failed], "bad", "None of the 2 servers works.", ""],
    [
      "one that waits for a login",
      [{}, { state: "authenticating" }],
      "busy",
      "1 of 2 servers does not work.",
      "",
    ],
    [
      "one that is tried again for long",
      [{}, { ...failed, state: "reconnecting", failing: { since: 0, attempts: 13, same: true } }],
      "bad",
      "1 of 2 servers does not work.",
      "",
    ],
  ];
  for (const [text, abouts, tone, sentence, note] of cases) {
    it(`is one sentence: ${text}`, () => {
      const servers = abouts.map((about, at) => server(`s${at}`, about));
      const health = healthOf(servers, [], NOW);
      assert.deepEqual([health.tone, health.sentence, health.note], [tone, sentence, note]);
    });
  }

  it("has a reason and a cure for each server in trouble, and no alert about the same server", () => {
    const servers = [
      server("a", failed),
      server("b", { state: "failed", lastError: { code: "unauthorized", message: "401" } }),
      server("c", { state: "failed", lastError: { code: "valueMissing", message: "No key." } }),
      server("d"),
      server("e", { state: "failed", lastError: { code: "serverInvalid", message: "Wrong." } }),
    ];
    const alert = (id: string, about: object) => ({
      id,
      kind: "x",
      text: `t${id}`,
      at: 1,
      ...about,
    });
    const alerts = [
      alert("1", { server: "a" }),
      alert("2", { server: "d" }),
      alert("3", { client: "laptop" }),
    ];
    const { troubles } = healthOf(servers, alerts, NOW);
    assert.deepEqual(
      troubles.map(({ title, cure, alert: id }) => [title, cure, id]),
      [
        ["a", "retry", undefined],
        ["b", "login", undefined],
        ["c", "secret", undefined],
        ["e", "edit", undefined],
        ["Client laptop", undefined, "3"],
        ["d", undefined, "2"],
      ],
    );
    assert.ok(troubles.every(({ reason }) => reason !== ""));
  });
});

describe("the health of a hub that has rejected its manifest", () => {
  it("has the problems of the manifest first, and is never good", () => {
    const problem = "/m.toml:1:2: not valid TOML";
    for (const [servers, sentence] of [
      [[], "This hub has no servers yet, but the changed manifest has errors."],
      [[server("a")], "The server works, but the changed manifest has errors."],
      [
        [server("a", failed)],
        "The only server does not work, and the changed manifest has errors.",
      ],
    ] as const) {
      const health = healthOf(servers, [], NOW, problem);
      assert.deepEqual([health.tone, health.sentence], ["bad", sentence]);
      const [{ reason, cure } = {}] = health.troubles;
      assert.deepEqual([reason, cure], [problem, "manifest"]);
    }
  });
});

describe("the trouble of a server whose attempts fail", () => {
  it("stays from one attempt to the next", () => {
    const failing = { since: NOW - 60_000, attempts: 1, same: true };
    for (const state of ["reconnecting", "connecting", "stopping"] as const)
      for (const attempts of [1, 3]) {
        const about = { state, failing: { ...failing, attempts } };
        const { troubles } = healthOf([server("a", about)], [], NOW);
        assert.deepEqual(
          troubles.map((trouble) => [trouble.server, trouble.tone]),
          [["a", attempts === 3 ? "bad" : "busy"]],
          state,
        );
      }
  });
});

describe("the name of a client", () => {
  it("is that of its token and its own, in all combinations", () => {
    const client = { id: "client-2" };
    assert.equal(
      nameOfClient({ ...client, principal: "laptop", name: "Cursor" }),
      "laptop (Cursor)",
    );
    assert.equal(nameOfClient({ ...client, principal: "Cursor", name: "Cursor" }), "Cursor");
    assert.equal(nameOfClient({ ...client, principal: "laptop", name: "" }), "laptop");
    assert.equal(nameOfClient({ ...client, name: "Cursor" }), "Cursor");
    assert.equal(nameOfClient(client), "client-2");
    assert.equal(nameAndIdOfClient({ ...client, name: "Cursor" }), "Cursor [client-2]");
    assert.equal(nameAndIdOfClient(client), "client-2");
  });

  it("is the same in a list of calls while the calls come and after a reload", () => {
    const client = {
      id: "client-2",
      name: "Cursor",
      principal: "laptop",
      version: "1",
    } as unknown as DashboardState["clients"][number];
    const call = {
      at: 1,
      call: 7,
      client: "client-2",
      server: "a",
      tool: "t",
      name: "a__t",
      startedAt: 1,
    };
    const events = [
      { ...call, seq: 1, kind: "callStarted" },
      { ...call, seq: 2, kind: "callFinished", outcome: "answered", duration: 1 },
    ] as unknown as readonly HubEvent[];
    const { state } = applyEvents({ ...INITIAL_STATE, clients: [client] }, events);
    const [ended] = state.ended;
    assert.equal(
      nameOfClient({ id: ended?.client, name: ended?.clientName, principal: ended?.principal }),
      "laptop (Cursor)",
    );
  });
});

describe("the names of hubs", () => {
  const hub = (id: string, about: Partial<HubEntry> = {}): HubEntry => ({
    id,
    pid: Number(id),
    name: "toolmux",
    version: "1",
    cwd: "/home/me",
    manifest: [],
    endpoints: ["stdio"],
    startedAt: 0,
    ...about,
  });
  const client = (name: string) =>
    [{ id: "client-1", name, transport: "stdio" }] as unknown as DashboardState["clients"];

  it("are those of their clients, of what they serve, or tell them apart", () => {
    const hubs = [
      hub("1"),
      hub("2", { endpoints: ["http://127.0.0.1:8700/mcp"] }),
      hub("3", { endpoints: ["shared"] }),
      hub("4", { cwd: "/a/one" }),
      hub("5", { cwd: "/a/two" }),
      hub("6", { name: "work" }),
      hub("7", { cwd: "/a/two" }),
      hub("8"),
    ];
    const clients = new Map([
      ["1", client("Cursor")],
      ["4", client("Zed")],
      ["5", client("Zed")],
      ["7", client("Zed")],
    ]);
    assert.deepEqual(
      [...hubNames(hubs, clients).values()],
      [
        "Cursor",
        "HTTP :8700",
        "shared",
        "Zed · one",
        "Zed · two · 5",
        "work",
        "Zed · two · 7",
        "toolmux 8",
      ],
    );
  });
});
