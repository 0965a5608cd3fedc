import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { raceTokenRefresh } from "../fixtures/token-refresh-race.ts";

describe("hubs that share a token whose refresh token is good once", { timeout: 60_000 }, () => {
  it("get another one once, whichever of four is the first, and all are let in", async () => {
    const outcome = await raceTokenRefresh(4);
    assert.deepEqual(outcome, { refreshes: 1, successes: 4, hasRevoked: false });
  });
});
