/** Keeps values under names. Every implementation passes `storeContract` (test/contract/secrets.ts). */
export interface SecretStore {
  /** What it is, for people: `the keychain of this system`. */
  readonly place: string;
  /** @returns undefined if there is none @throws {HubError} if what is kept cannot be read */
  get(name: string): Promise<string | undefined>;
  /** @throws {HubError} if it cannot be kept */
  set(name: string, value: string): Promise<void>;
  /** @returns whether there was one */
  remove(name: string): Promise<boolean>;
  /** The names, sorted. */
  list(): Promise<readonly string[]>;
}

/** Whether a name is one of those that the hub keeps its own things under, tokens for one. */
export function isReservedName(name: string): boolean {
  return name.startsWith("oauth/");
}

/** Keeps them as long as the process lives. */
export function memoryStore(): SecretStore {
  const kept = new Map<string, string>();
  return {
    place: "memory",
    get: (name) => Promise.resolve(kept.get(name)),
    set: (name, value) => {
      kept.set(name, value);
      return Promise.resolve();
    },
    remove: (name) => Promise.resolve(kept.delete(name)),
    list: () => Promise.resolve([...kept.keys()].toSorted()),
  };
}
