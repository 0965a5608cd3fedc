import assert from "node:assert/strict";
import { describe } from "node:test";
import { executable, itWith } from "../harness/hub.ts";
import { SKIP_WITHOUT_NATS } from "../harness/nats.ts";
import { soakFleet } from "../soak/fleet.ts";

const it = itWith({ skip: SKIP_WITHOUT_NATS, timeout: 240_000 });
/**
 * 5 % of the calls of `npm run soak -- --fleet`: 10,000 calls take up to two seconds of a processor. With more in flight,
 * a call takes less.
 */
const SIZE = { servers: 2, calls: 50_000, flight: 512, hasOutages: false } as const;

describe("a fleet over a NATS server", () => {
  it("answers every call while machines are killed and started again, or says that it is lost", async () => {
    const report = await soakFleet({ executable: executable(), ...SIZE, print: () => {} });
    assert.deepEqual(report.faults, []);
    assert.equal(report.unanswered, 0);
    assert.equal(report.answered + report.lost, SIZE.calls);
    assert.ok(report.lost > 0, "machines were killed while calls were open");
  });
});
