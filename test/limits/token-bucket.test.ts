import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { TokenBucket } from "../../src/limits/token-bucket.ts";

describe("a token bucket", () => {
  it("never gives more than its burst and what has come since, and gives as soon as it said", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 1, max: 60_000 }),
        fc.integer({ min: 1, max: 60 }),
        fc.array(fc.integer({ min: 0, max: 5000 }), { maxLength: 60 }),
        (count, per, burst, pauses) => {
          const bucket = new TokenBucket({ count, per }, burst);
          let now = 1e9;
          const start = now;
          let taken = 0;
          for (const pause of pauses) {
            now += pause;
            const wait = bucket.wait(now);
            assert.equal(wait === 0, bucket.left(now) > 0);
            if (wait > 0) {
              assert.ok(bucket.wait(now + wait) === 0);
              continue;
            }
            bucket.take(now);
            taken++;
            assert.ok(taken <= burst + ((now - start) * count) / per + 1e-6);
          }
        },
      ),
    );
  });

  it("is full again when its time has passed, and when it is reset", () => {
    const bucket = new TokenBucket({ count: 3, per: 60_000 }, 2);
    for (const _ of [1, 2]) bucket.take(0);
    assert.deepEqual([bucket.left(0), bucket.wait(0)], [0, 20_000]);
    assert.deepEqual([bucket.left(20_000), bucket.left(39_999), bucket.left(1e6)], [1, 1, 2]);
    bucket.reset();
    assert.equal(bucket.left(0), 2);
  });
});
