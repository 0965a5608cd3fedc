import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { configFolders, type Env, type SystemEnvironment } from "../base/paths.ts";
import { SECRET_SOURCES, type SecretSource } from "../manifest/schema.ts";
import { type Keychain, openKeychain } from "./keychain.ts";
import { type VaultProtection, Vault } from "./vault.ts";

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

/** The variable that a secret's name stands for: `linear/token` is TOOLMUX_SECRET_LINEAR_TOKEN. */
export function secretVariableOf(name: string): string {
  return `TOOLMUX_SECRET_${name.toUpperCase().replace(/[^A-Z0-9]/g, "_")}`;
}

/** What the environment holds for a secret, under its very name or that of its variable; nothing if that is empty. */
export function readSecretVariable(env: Env, name: string): string | undefined {
  return env[name] || env[secretVariableOf(name)] || undefined;
}

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

/** Keeps values under names. Every implementation passes `storeContract` (test/contract/secret-store.ts). */
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

/** A secret, and where it was found. */
export interface FoundSecret {
  readonly value: string;
  readonly source: SecretSource;
}

/** All places where a user's secrets can be. */
export interface Secrets {
  /** In the config folder; tokens are kept there, too. */
  readonly file: SecretStore;
  readonly keychain: SecretStore;
  /** Looks in one source after the other. @throws {HubError} storeBroken, storeBusy */
  find(name: string, sources?: readonly SecretSource[]): Promise<FoundSecret | undefined>;
  /** The same of what has to be there. @throws {HubError} valueMissing, which says what to run; storeBroken, storeBusy */
  require(name: string, sources?: readonly SecretSource[]): Promise<string>;
  /** Where the key of the file lies. @throws {HubError} storeBroken */
  protection(): Promise<VaultProtection>;
  /** The folder of the file. */
  readonly folder: string;
  /** Why the keychain cannot be used, as far as is known by now. */
  readonly fault: string | undefined;
}

const NAMES: Readonly<Record<SecretSource, string>> = {
  environment: "the environment",
  file: "the file of secrets",
  keychain: "the keychain",
};

/** Where the user's secrets are, whether there are any or not: nothing is touched yet. */
export function openSecrets(
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  keychain: Keychain = openKeychain(env),
): Secrets {
  const [config = ""] = configFolders(env, platform);
  const folder = join(config, "secrets");
  const vault = new Vault(folder, keychain);
  const file = fileStore(vault);
  const chain = keychainStore(keychain, vault);
  const look: Readonly<Record<SecretSource, (name: string) => Promise<string | undefined>>> = {
    environment: (name) => Promise.resolve(readSecretVariable(env, name)),
    file: (name) => file.get(name),
    keychain: (name) => chain.get(name),
  };
  const find: Secrets["find"] = async (name, sources = SECRET_SOURCES) => {
    // Who may name any secret in a manifest is not to be given what lets the hub into other servers.
    if (isReservedName(name)) return undefined;
    for (const source of sources) {
      const value = await look[source](name);
      if (value !== undefined) return { value, source };
    }
    return undefined;
  };
  return {
    file,
    keychain: chain,
    find,
    require: async (name, sources = SECRET_SOURCES) => {
      const found = await find(name, sources);
      if (found !== undefined) return found.value;
      throw miss(name, sources, keychain);
    },
    protection: () => vault.protection(),
    folder,
    get fault() {
      return keychain.fault;
    },
  };
}

function miss(name: string, sources: readonly SecretSource[], { fault }: Keychain): HubError {
  if (isReservedName(name))
    return new HubError("valueMissing", "it is toolmux's own: no server is given it");
  const places = sources.map((source) => NAMES[source]).join(", nor in ");
  const why = sources.includes("keychain") && fault ? ` (which cannot be used: ${fault})` : "";
  const text = `it is not in ${places}${why}; run: ${provide(name, sources)}`;
  return new HubError("valueMissing", text, { data: { secrets: [name] } });
}

/** What to do so that it is found. */
function provide(name: string, sources: readonly SecretSource[]): string {
  if (sources.includes("file")) return `toolmux secret set ${name}`;
  if (sources.includes("keychain")) return `toolmux secret set ${name} --store keychain`;
  return `export ${secretVariableOf(name)}=…`;
}
