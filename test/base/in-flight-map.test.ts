import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { IdMap } from "../../src/base/in-flight-map.ts";

/** Ids as clients give them: many that follow each other, and some that no table has a slot for. */
const KEY = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 40 }) },
  fc.integer({ min: 0, max: 2 ** 31 - 1 }),
  fc.integer({ min: -3, max: -1 }),
  fc.constantFrom(0.5, 2 ** 31, 2 ** 53, "", "1", '"1', "a"),
);

const ACTION = fc.record({
  what: fc.constantFrom("set", "set", "take", "take", "clear"),
  key: KEY,
});

describe("a register", () => {
  it("has what a Map has, whatever is put in and taken out", () => {
    fc.assert(
      fc.property(fc.array(ACTION, { maxLength: 300 }), (actions) => {
        const register = new IdMap<{ at: number }>();
        const map = new Map<string | number, { at: number }>();
        for (const [at, { what, key }] of actions.entries()) {
          // That one is rare, so that there is something to be cleared.
          if (what === "clear" && at % 50 === 49) {
            register.clear();
            map.clear();
          } else if (what === "take") {
            assert.equal(register.remove(key), map.get(key));
            map.delete(key);
          } else {
            const value = { at };
            register.set(key, value);
            // What is set again comes last here.
            map.delete(key);
            map.set(key, value);
          }
          assert.equal(register.size, map.size);
          assert.equal(register.get(key), map.get(key));
          assert.equal(register.has(key), map.has(key));
        }
        assert.deepEqual(register.entries(), [...map.entries()]);
        assert.deepEqual(register.values(), [...map.values()]);
        const isOdd = ({ at }: { at: number }): boolean => at % 2 === 1;
        const odd = [...map.values()].filter(isOdd);
        assert.deepEqual(new Set(register.filter(isOdd)), new Set(odd));
        assert.equal(register.findLast(isOdd), odd.at(-1));
      }),
    );
  });

  it("has nothing of another one, though both began with the same table", () => {
    const [first, second, unused] = [new IdMap<string>(), new IdMap<string>(), new IdMap<string>()];
    assert.equal(first.remove(0), undefined);
    first.set(0, "of the first");
    second.set(1, "of the second");
    assert.deepEqual(first.entries(), [[0, "of the first"]]);
    assert.deepEqual(second.entries(), [[1, "of the second"]]);
    first.clear();
    assert.deepEqual([first.size, second.size, unused.size], [0, 1, 0]);
    assert.deepEqual([unused.get(0), unused.get(1)], [undefined, undefined]);
  });

  it("finds each of very many, and none that has gone", () => {
    const register = new IdMap<number>();
    const keys = Array.from({ length: 100_000 }, (_, at) => at * 7);
    for (const key of keys) register.set(key, key + 1);
    for (const key of keys) if (key % 2 === 0) assert.equal(register.remove(key), key + 1);
    for (const key of keys) assert.equal(register.get(key), key % 2 === 0 ? undefined : key + 1);
    assert.equal(register.size, 50_000);
    for (const key of keys) register.remove(key);
    assert.deepEqual(register.entries(), []);
    register.set(7, 8);
    assert.deepEqual(register.entries(), [[7, 8]]);
  });

  it("gives each a key of its own, also when others have gone", () => {
    const register = new IdMap<string>();
    const [a, b] = [register.add("a"), register.add("b")];
    assert.equal(register.remove(a), "a");
    const c = register.add("c");
    assert.equal(new Set([a, b, c]).size, 3);
    assert.deepEqual(register.values(), ["b", "c"]);
    assert.equal(register.remove(a), undefined);
  });
});
