import { systemKeychain } from "../base/runtime.ts";

/** What the system itself keeps secrets in, by service and name. Rejects where there is none. */
export interface Keyring {
  get(service: string, name: string): Promise<string | undefined>;
  set(service: string, name: string, value: string): Promise<void>;
  /** @returns whether there was one */
  remove(service: string, name: string): Promise<boolean>;
}

/** A package that reaches it where the runtime does not, if people have installed it. */
interface KeyringPackage {
  readonly AsyncEntry: new (
    service: string,
    name: string,
  ) => {
    getPassword(): Promise<string | null | undefined>;
    setPassword(value: string): Promise<void>;
    deletePassword(): Promise<unknown>;
  };
}

/** By what the runtime has built in, or else by the package `@napi-rs/keyring`. Rejects if there is neither. */
export async function openKeyring(): Promise<Keyring> {
  if (systemKeychain !== undefined) {
    const secrets = systemKeychain();
    return {
      get: async (service, name) => (await secrets.get({ service, name })) ?? undefined,
      set: (service, name, value) => secrets.set({ service, name, value }),
      remove: (service, name) => secrets.delete({ service, name }),
    };
  }
  // A name that no bundler follows: it is no dependency.
  const name = "@napi-rs/keyring";
  return wrapPackage((await import(name)) as KeyringPackage);
}

/** The package as a Keyring. */
export function wrapPackage({ AsyncEntry }: KeyringPackage): Keyring {
  const get = async (service: string, name: string): Promise<string | undefined> =>
    (await new AsyncEntry(service, name).getPassword()) ?? undefined;
  return {
    get,
    set: (service, name, value) => new AsyncEntry(service, name).setPassword(value),
    remove: async (service, name) => {
      // What there is not, some of its platforms refuse to delete.
      if ((await get(service, name)) === undefined) return false;
      await new AsyncEntry(service, name).deletePassword();
      return true;
    },
  };
}
