import assert from "node:assert/strict";
import { describe } from "node:test";
import { returns } from "../soak/returns.ts";
import { executable, it } from "../harness/hub.ts";

describe("servers over HTTP that are killed and come back under load", () => {
  it("lose no call, run none twice, and are used again within a second", async () => {
    const report = await returns({
      executable: executable(),
      duration: 9000,
      every: 3000,
      down: 700,
      flight: 32,
      print: () => {},
    });
    assert.deepEqual(report.faults, []);
    assert.ok(report.kills >= 6 && report.done > 100, JSON.stringify(report));
    assert.ok(report.back.worst < 1000, `${report.back.worst} ms`);
  });
});
