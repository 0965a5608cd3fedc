import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AlertDocument, ServerDocument } from "../../src/control/schemas.ts";
import { SERVER_STATES } from "../../src/upstream/verdict.ts";
import { findingsOfHub } from "../../src/host/doctor/hubs.ts";

const server = (name: string, state: ServerDocument["state"]) =>
  ({ name, state, goal: "up", connections: [] }) as unknown as ServerDocument;
const alert = (more: Partial<AlertDocument>): AlertDocument => ({
  id: "1",
  kind: "nameMoved",
  text: "Something\nis wrong.",
  at: 0,
  ...more,
});

describe("a running hub that doctor has asked", () => {
  const DOWN = ["failed", "reconnecting", "authenticating"];
  for (const state of SERVER_STATES) {
    it(`is ${DOWN.includes(state) ? "told" : "fine"} with a server that is ${state}`, () => {
      const found = findingsOfHub(1, false, [server("a", state)], []);
      assert.equal(found.length, DOWN.includes(state) ? 1 : 0);
    });
  }

  it("is told with its failed servers, alerts, refused clients and a rejected manifest, each once", () => {
    const servers = [server("a", "failed"), server("b", "connected"), server("c", "connecting")];
    const alerts = [
      alert({ server: "a" }),
      alert({ server: "b" }),
      alert({ server: "b", dismissed: true }),
      alert({ client: "ci" }),
    ];
    const found = findingsOfHub(7, true, servers, alerts);
    assert.deepEqual(
      found.map(({ code, subject }) => `${code} ${subject}`),
      ["TM974 toolmux 7", "TM971 toolmux 7, a", "TM972 toolmux 7, b", "TM973 toolmux 7, client ci"],
    );
    assert.ok(found.every(({ text }) => !text.includes("\n")));
  });
});
