import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  describeServers,
  describeState,
  type DescribedState,
  isFailing,
  wordOfState,
} from "../../src/control/state-text.ts";

const NOW = 1_000_000_000;
const lastError = { code: "connectionLost", message: "no file", at: NOW - 60_000 };
const failing = { since: NOW - 6 * 60_000 - 500, attempts: 13, same: true };
const retried = { state: "reconnecting", attempt: 13, retryAt: NOW + 26_400, lastError } as const;

describe("the state of a server in words", () => {
  it("says for how long and how often a server has failed, when its attempts have failed three times", () => {
    const often: DescribedState = { ...retried, failing };
    assert.ok(isFailing(often));
    assert.equal(wordOfState({ ...retried, failing }), "failing");
    assert.equal(wordOfState(retried), "reconnecting");
    assert.equal(
      describeState(often, NOW),
      "failing for 6 min, 13 attempts, next attempt in 27 s: no file",
    );
    const twice: DescribedState = { ...retried, failing: { ...failing, attempts: 2 } };
    assert.ok(!isFailing(twice));
    assert.equal(describeState(twice, NOW), "next attempt in 27 s: no file");
  });

  it("counts servers whose attempts keep failing apart from those that are tried again", () => {
    const server = (
      about: Pick<DescribedState, "failing"> & { state: "connected" | "failed" | "reconnecting" },
    ) => ({
      goal: "up" as const,
      ...about,
    });
    const servers = [
      server({ state: "connected" }),
      server({ state: "failed" }),
      server({ state: "reconnecting" }),
      server({ state: "reconnecting", failing }),
      server({ state: "reconnecting", failing: { ...failing, attempts: 1 } }),
    ];
    assert.equal(describeServers(servers), "1 connected, 1 failed, 1 failing, 2 reconnecting");
  });

  it("keeps the reason while a further attempt runs", () => {
    const trying: DescribedState = { state: "connecting", since: NOW, lastError, failing };
    assert.equal(
      describeState(trying, NOW),
      "failing for 6 min, 13 attempts, trying again: no file",
    );
  });

  it("does not change while the process of an attempt is stopped", () => {
    const stopping = { state: "stopping", since: NOW, lastError, failing } as const;
    assert.equal(
      describeState(stopping, NOW),
      "failing for 6 min, 13 attempts, next attempt soon: no file",
    );
    assert.equal(wordOfState(stopping), "failing");
    assert.equal(describeState({ state: "stopping", since: NOW }, NOW), "stopping");
  });

  it("says that an attempt that was made just now has failed with the same error", () => {
    const again: DescribedState = {
      state: "failed",
      lastError: { ...lastError, at: NOW - 2000 },
      failing,
    };
    assert.equal(describeState(again, NOW), "tried just now, the same error: no file");
    assert.equal(describeState(again, NOW + 60_000), "no file");
    const other: DescribedState = { ...again, failing: { ...failing, same: false } };
    assert.equal(describeState(other, NOW), "no file");
  });
});
