import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { SecretStore } from "../../src/secrets/secrets.ts";

/** Names and values that a store could change, truncate or confuse. */
const UNUSUAL_SECRETS: readonly (readonly [name: string, value: string])[] = [
  ["linear/token", "plain"],
  ["linear.token", "another"],
  ["linear_token", "yet another"],
  ["LINEAR/TOKEN", "big letters"],
  ["__proto__", "no prototype"],
  ["constructor", " spaces around "],
  ["-x", "two\nlines\r\n"],
  ["ünïcode", "€ 🔑 \u2028"],
  ["quote", `"'\`\\$\{x}`],
  ["x".repeat(200), "y".repeat(60_000)],
];

export interface StoreSetup {
  readonly store: SecretStore;
  /** A second store over the same data, as in another process; absent if there can be none. */
  reopen?(): SecretStore;
}

/** The contract of every writable `SecretStore`. */
export function storeContract(
  name: string,
  withStore: (run: (bench: StoreSetup) => Promise<void>) => Promise<void>,
): void {
  /** `again`: the store as another process has it, if there can be one. */
  const test = (
    sentence: string,
    run: (store: SecretStore, again: () => SecretStore) => Promise<void>,
  ): void =>
    void it(sentence, () =>
      withStore(({ store, reopen }) => run(store, () => reopen?.() ?? store)),
    );

  describe(`a store of secrets: ${name}`, () => {
    test("is empty at first, has nothing to remove, and says what it is, as people call it", async (store) => {
      assert.match(store.location, /^[a-z]/);
      assert.deepEqual(await store.list(), []);
      assert.equal(await store.get("a"), undefined);
      assert.equal(await store.remove("a"), false);
    });

    test("gives back what was kept, by its very name, character for character", async (store, again) => {
      for (const [key, value] of UNUSUAL_SECRETS) await store.set(key, value);
      for (const reader of [store, again()]) {
        for (const [key, value] of UNUSUAL_SECRETS) assert.equal(await reader.get(key), value, key);
        assert.deepEqual(await reader.list(), UNUSUAL_SECRETS.map(([key]) => key).toSorted());
        assert.equal(await reader.get("toString"), undefined);
      }
    });

    test("keeps the last value of a name, and forgets what is removed, and nothing else", async (store, again) => {
      for (const value of ["1", "2", "2"]) await store.set("a", value);
      assert.deepEqual([await store.get("a"), await again().get("a")], ["2", "2"]);
      assert.deepEqual(await store.list(), ["a"]);
      await store.set("b", "2");
      assert.equal(await store.remove("a"), true);
      assert.equal(await store.remove("a"), false);
      for (const reader of [store, again()]) {
        assert.equal(await reader.get("a"), undefined);
        assert.equal(await reader.get("b"), "2");
        assert.deepEqual(await reader.list(), ["b"]);
      }
    });

    test("loses nothing of what is done at the same time", async (store, again) => {
      const other = again();
      const names = Array.from({ length: 12 }, (_, i) => `n${i}`);
      await store.set("gone", "x");
      await Promise.all([
        ...names.map((key, i) => (i % 2 === 0 ? store : other).set(key, `v${i}`)),
        other.remove("gone"),
      ]);
      assert.deepEqual(await store.list(), names.toSorted());
      for (const [i, key] of names.entries()) assert.equal(await other.get(key), `v${i}`);
    });
  });
}
