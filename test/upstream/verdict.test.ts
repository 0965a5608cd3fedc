import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { UnsupportedServer } from "../../src/manifest/manifest.ts";
import { summariesOf } from "../../src/upstream/status.ts";
import {
  countServers,
  describeCounts,
  describeIndicator,
  nameOfState,
  type ServerState,
  type ServerSummary,
  verdictOf,
} from "../../src/upstream/verdict.ts";
import { manifestOf, ScriptedServer, setUpHubWithClock } from "../fixtures/memory-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";

function server(state: ServerState): ServerSummary {
  if (state === "stopped" || state === "disabled") return { goal: "down", state };
  return { goal: state === "idle" ? "onDemand" : "up", state };
}

describe("the verdict over servers", () => {
  const cases: readonly (readonly [readonly ServerState[], string, string, string])[] = [
    [[], "none", "no servers", "0/0"],
    [["connected"], "healthy", "1 connected", "1/1"],
    [
      ["connected", "idle", "disabled"],
      "healthy",
      "1 connected, 1 resting, 1 disabled",
      "1/1, 1 resting, 1 disabled",
    ],
    [["idle", "idle"], "healthy", "2 resting", "0/0, 2 resting"],
    [["connected", "notStarted"], "partial", "1 connected, 1 not started", "1/2"],
    [["notStarted"], "partial", "1 not started", "0/1"],
    [["connected", "failed"], "partial", "1 connected, 1 failed", "1/2"],
    [["idle", "failed"], "partial", "1 failed, 1 resting", "0/1, 1 resting"],
    [["failed", "disabled"], "failed", "1 failed, 1 disabled", "0/1, 1 disabled"],
    [["failed", "stopped"], "failed", "1 failed, 1 stopped", "0/1, 1 stopped"],
    [["connecting", "authenticating"], "partial", "1 connecting, 1 authenticating", "0/2"],
    [["reconnecting", "stopping"], "partial", "1 reconnecting, 1 stopping", "0/2"],
    [["stopped", "disabled"], "none", "1 stopped, 1 disabled", "0/0, 1 stopped, 1 disabled"],
  ];
  for (const [states, verdict, counted, indicator] of cases) {
    const names = states.map(nameOfState).join(", ") || "no server";
    it(`on ${names} is ${verdict}: ${counted}; ${indicator}`, () => {
      const servers = states.map(server);
      const counts = countServers(servers);
      assert.equal(verdictOf(servers), verdict);
      assert.equal(describeCounts(counts), counted);
      assert.equal(describeIndicator(counts), indicator);
      const { total, ...parts } = counts;
      const sum = Object.values(parts).reduce((all, part) => all + part, 0);
      assert.deepEqual([total, sum], [servers.length, servers.length]);
    });
  }

  it("counts a server that a command has stopped apart from those that the manifest disables", async () => {
    const a = new ScriptedServer("x");
    const { hub } = setUpHubWithClock(
      { a },
      { manifest: manifestOf({ a: {}, off: { enabled: false } }) },
    );
    const states = (): string => describeCounts(countServers(summariesOf(hub.status())));
    assert.equal(states(), "1 not started, 1 disabled");
    hub.startEarly();
    await turn();
    assert.equal(states(), "1 connected, 1 disabled");
    await hub.stop("a");
    assert.equal(states(), "1 stopped, 1 disabled");
  });

  it("counts a server that the hub cannot use as failed, unless the manifest disables it", () => {
    const unsupported = (name: string, enabled: boolean): UnsupportedServer => ({
      ...manifestOf({ [name]: { enabled } }).servers[0]!,
      kind: "unsupported",
      reason: "it has no command",
    });
    const manifest = manifestOf({});
    const servers = [unsupported("a", true), unsupported("b", false)];
    const { hub } = setUpHubWithClock({}, { manifest: { ...manifest, servers } });
    const summaries = summariesOf(hub.status());
    assert.equal(describeCounts(countServers(summaries)), "1 failed, 1 disabled");
    assert.equal(verdictOf(summaries), "failed");
  });
});
