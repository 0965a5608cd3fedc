import assert from "node:assert/strict";
import { describe } from "node:test";
import { soak } from "../soak/soak.ts";
import { executable, it } from "../harness/hub.ts";

/** In ms; `npm run soak` takes longer. */
const DURATION = 6_000;

describe("a hub in trouble", () => {
  it("serves, follows its manifest and ends as it has to, whatever its servers and its client do", async () => {
    const options = { executable: executable(), duration: DURATION, seed: 1, print: () => {} };
    const report = await soak(options);
    assert.deepEqual(report.faults, []);
    // There was trouble.
    const { tally, edits, kills, stops } = report;
    assert.ok(
      tally.answered > 10 && tally.failed > 0 && tally.cancelled > 0,
      JSON.stringify(tally),
    );
    assert.ok(edits > 0 && kills > 0 && stops > 0);
  });
});
