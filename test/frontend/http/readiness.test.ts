import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import type { StateName } from "../../../src/base/hub-events.ts";
import { summaryOf } from "../../../src/frontend/http/server.ts";
import type { ConnectionStatus, Goal, ServerStatus } from "../../../src/upstream/status.ts";

function connection(state: StateName, cause?: HubError): ConnectionStatus {
  const status: Partial<ConnectionStatus> = { id: "", state, since: 0, calls: 0, inFlight: 0 };
  return { ...status, cause } as ConnectionStatus;
}

function server(goal: Goal, ...connections: ConnectionStatus[]): ServerStatus {
  const isStopped = connections.length > 0;
  return { server: "s", origin: "manifest", transport: "stdio", goal, isStopped, connections };
}

describe("how the servers stand", () => {
  const failure = new HubError("commandNotFound", "no");
  const two = server("up", connection("failed"), connection("connected"));
  for (const [what, status, list] of [
    ["connected", server("up", connection("connected")), "connected"],
    ["connected for one of two", two, "connected"],
    ["starting", server("up", connection("connecting")), "waiting"],
    ["being started again", server("onDemand", connection("reconnecting", failure)), "waiting"],
    ["about to start", server("up", connection("idle")), "waiting"],
    ["asking for a login", server("up", connection("authenticating")), "waiting"],
    ["started when it is called", server("onDemand", connection("idle")), "resting"],
    ["stopped", server("down", connection("disconnected")), "stopped"],
    ["stopping for good", server("down", connection("stopping")), "stopped"],
    ["disabled", server("down"), "disabled"],
    ["not started, though it should be up", server("up"), "waiting"],
    ["lazy, and not used yet", server("onDemand"), "resting"],
    ["lazy, and did not start", server("onDemand", connection("idle", failure)), "failed"],
    ["failed for good", server("up", connection("failed", failure)), "failed"],
  ] as const)
    it(`tells of one that is ${what} as ${list}`, () => {
      const { failed, ...others } = summaryOf([status]);
      const lists = { ...others, failed: failed.map((one) => one.server) };
      const none = { connected: [], waiting: [], failed: [], resting: [] };
      assert.deepEqual(lists, { ...none, [list]: ["s"] });
      if (list === "failed") assert.equal(failed[0]?.code, "commandNotFound");
    });
});
