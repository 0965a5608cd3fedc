import type { Keychain } from "./keychain.ts";
import type { SecretStore } from "./store.ts";
import type { Vault } from "./vault.ts";

/** Keeps values in the keychain of this system, and their names, which that does not tell, in the encrypted file. */
export function keychainStore(keychain: Keychain, vault: Vault): SecretStore {
  return {
    place: "the keychain of this system",
    get: (name) => keychain.get(accountOf(name)),
    async set(name, value) {
      await keychain.set(accountOf(name), value);
      await vault.change(({ elsewhere }) => {
        const isNew = !elsewhere.has(name);
        elsewhere.add(name);
        return isNew;
      });
    },
    async remove(name) {
      const wasThere = await keychain.remove(accountOf(name));
      await vault.change(({ elsewhere }) => elsewhere.delete(name));
      return wasThere;
    },
    list: async () => [...(await vault.read()).elsewhere].toSorted(),
  };
}

/** Beside them are keys of files. */
function accountOf(name: string): string {
  return `secret/${name}`;
}
