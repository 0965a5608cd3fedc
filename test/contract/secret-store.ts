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
  describe(`a store of secrets: ${name}`, () => {
    it("says what it is, as people call it", () =>
      withStore(async ({ store }) => {
        assert.match(store.location, /^[a-z]/);
        await Promise.resolve();
      }));

    it("is empty at first, and has nothing to remove", () =>
      withStore(async ({ store }) => {
        assert.deepEqual(await store.list(), []);
        assert.equal(await store.get("a"), undefined);
        assert.equal(await store.remove("a"), false);
      }));

    it("gives back what was kept, by its very name, character for character", () =>
      withStore(async ({ store, reopen: again }) => {
        for (const [key, value] of UNUSUAL_SECRETS) await store.set(key, value);
        for (const reader of [store, again?.() ?? store]) {
          for (const [key, value] of UNUSUAL_SECRETS)
            assert.equal(await reader.get(key), value, key);
          assert.deepEqual(await reader.list(), UNUSUAL_SECRETS.map(([key]) => key).toSorted());
          assert.equal(await reader.get("toString"), undefined);
        }
      }));

    it("keeps the last value of a name", () =>
      withStore(async ({ store, reopen: again }) => {
        await store.set("a", "1");
        await store.set("a", "2");
        await store.set("a", "2");
        assert.equal(await store.get("a"), "2");
        assert.equal(await (again?.() ?? store).get("a"), "2");
        assert.deepEqual(await store.list(), ["a"]);
      }));

    it("forgets what is removed, and nothing else", () =>
      withStore(async ({ store, reopen: again }) => {
        await store.set("a", "1");
        await store.set("b", "2");
        assert.equal(await store.remove("a"), true);
        assert.equal(await store.remove("a"), false);
        for (const reader of [store, again?.() ?? store]) {
          assert.equal(await reader.get("a"), undefined);
          assert.equal(await reader.get("b"), "2");
          assert.deepEqual(await reader.list(), ["b"]);
        }
      }));

    it("loses nothing of what is done at the same time", () =>
      withStore(async ({ store, reopen: again }) => {
        const other = again?.() ?? store;
        const names = Array.from({ length: 12 }, (_, i) => `n${i}`);
        await store.set("gone", "x");
        await Promise.all([
          ...names.map((key, i) => (i % 2 === 0 ? store : other).set(key, `v${i}`)),
          other.remove("gone"),
        ]);
        assert.deepEqual(await store.list(), names.toSorted());
        for (const [i, key] of names.entries()) assert.equal(await other.get(key), `v${i}`);
      }));
  });
}
