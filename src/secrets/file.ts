import type { SecretStore } from "./store.ts";
import type { Vault } from "./vault.ts";

/** Keeps values in the encrypted file of a folder. */
export function fileStore(vault: Vault): SecretStore {
  return {
    place: "the file of secrets",
    get: async (name) => (await vault.read()).values.get(name),
    async set(name, value) {
      await vault.change(({ values }) => {
        if (values.get(name) === value) return false;
        values.set(name, value);
        return true;
      });
    },
    remove: (name) => vault.change(({ values }) => values.delete(name)),
    list: async () => [...(await vault.read()).values.keys()].toSorted(),
  };
}
