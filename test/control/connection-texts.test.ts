import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ConnectionDocument } from "../../src/control/schemas.ts";
import { describeConnections, describeSeparation } from "../../src/control/state-text.ts";
import type { Separation } from "../../src/upstream/sharing.ts";

const connectionOf = (
  separation?: Separation,
  more: Partial<ConnectionDocument> = {},
): ConnectionDocument => ({
  id: "",
  state: "connected",
  since: 0,
  calls: 0,
  inFlight: 0,
  ...(separation && { separation: { ...separation, text: describeSeparation(separation) } }),
  ...more,
});

describe("a server with several connections", () => {
  it("is said to have them for each reason once, with the names of all values", () => {
    const connections = [
      connectionOf(),
      connectionOf({ by: "values", names: ["A"] }),
      connectionOf({ by: "values", names: ["A", "${workspaceFolder}"] }),
      connectionOf({ by: "capabilities" }),
      connectionOf({ by: "capabilities" }),
      connectionOf({ by: "era" }),
    ];
    assert.deepEqual(describeConnections(connections), [
      "It has 6 connections: other values of A and ${workspaceFolder}; other capabilities; another era of the protocol.",
    ]);
    assert.deepEqual(describeConnections([connectionOf()]), []);
  });

  it("is said to fail for the clients of one that cannot be used, unless none can", () => {
    const lastError = { code: "valueMissing", message: "needs TOKEN" } as const;
    const failed = connectionOf(
      { by: "client" },
      {
        state: "failed",
        unavailable: true,
        client: "client-2",
        clients: ["client-2"],
        lastError,
      },
    );
    const [, ...faults] = describeConnections([connectionOf(), failed]);
    assert.deepEqual(faults, ["It fails for client-2: needs TOKEN"]);
    assert.equal(describeConnections([failed, failed]).length, 1);
  });
});
