import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { configFolders, type Env, type SystemEnvironment } from "../base/paths.ts";
import { SECRET_SOURCES, type SecretSource } from "../manifest/schema.ts";
import { isReservedName, secretVariableOf } from "./secret-name.ts";
import { type Keychain, openKeychain } from "./keychain.ts";
import { type VaultProtection, Vault } from "./vault.ts";

/**
 * Reads a secret from the environment variable of the same name, else from TOOLMUX_SECRET_…; skips empty variables.
 */
export function readSecretVariable(env: Env, name: string): string | undefined {
  return env[name] || env[secretVariableOf(name)] || undefined;
}

export function fileStore(vault: Vault): SecretStore {
  return {
    location: "the secret store",
    get: async (name) => (await vault.read()).get(name),
    async set(name, value) {
      await vault.change((values) => {
        if (values.get(name) === value) return false;
        values.set(name, value);
        return true;
      });
    },
    remove: (name) => vault.change((values) => values.delete(name)),
    list: async () => [...(await vault.read()).keys()].toSorted(),
  };
}

/** Stores values by name. Every implementation passes `storeContract` (test/contract/secret-store.ts). */
export interface SecretStore {
  /** Name of the store in messages: `the secret store`. */
  readonly location: string;
  /** @returns undefined if there is no such value @throws {HubError} if the store is not readable */
  get(name: string): Promise<string | undefined>;
  /** @throws {HubError} if the value cannot be stored */
  set(name: string, value: string): Promise<void>;
  /** @returns whether there was such a value */
  remove(name: string): Promise<boolean>;
  /** All names, sorted. */
  list(): Promise<readonly string[]>;
}

/**
 * The secrets folder: named secrets of the user. Main types: `Secrets`, below, which searches the environment and the
 * encrypted file; `SecretStore`, which stores values; `Vault` (`vault.ts`), the encrypted file. Start here, then read
 * `vault.ts`.
 *
 * A secret and the source that has it.
 */
export interface FoundSecret {
  readonly value: string;
  readonly source: SecretSource;
}

/** All secrets of the user. */
export interface Secrets {
  /** The encrypted file in the config folder, which also holds the OAuth tokens. */
  readonly file: SecretStore;
  /** Finds a secret; searches the sources in order. @throws {HubError} storeBroken, storeBusy */
  find(name: string, sources?: readonly SecretSource[]): Promise<FoundSecret | undefined>;
  /** Like `find`, but a missing secret is an error. */
  require(name: string, sources?: readonly SecretSource[]): Promise<string>;
  /** The place of the encrypted file's key. @throws {HubError} storeBroken */
  protection(): Promise<VaultProtection>;
  /** The folder of the encrypted file. */
  readonly folder: string;
  /** The reason why the last use of the keychain failed; undefined if it succeeded, or if there was none yet. */
  readonly keychainFault: string | undefined;
}

const SOURCE_LABELS: Readonly<Record<SecretSource, string>> = {
  environment: "the environment",
  file: "the secret store",
};

/** Makes the `Secrets` of the user. Files are first accessed when a method is called. */
export function openSecrets(
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  keychain: Keychain = openKeychain(env),
): Secrets {
  const [config = ""] = configFolders(env, platform);
  const folder = join(config, "secrets");
  const vault = new Vault(folder, keychain);
  const file = fileStore(vault);
  const readers: Readonly<Record<SecretSource, (name: string) => Promise<string | undefined>>> = {
    environment: (name) => Promise.resolve(readSecretVariable(env, name)),
    file: (name) => file.get(name),
  };
  const find: Secrets["find"] = async (name, sources = SECRET_SOURCES) => {
    // A manifest may name any secret of the user, but must not read the OAuth tokens of other servers.
    if (isReservedName(name)) return undefined;
    for (const source of sources) {
      const value = await readers[source](name);
      if (value !== undefined) return { value, source };
    }
    return undefined;
  };
  return {
    file,
    find,
    require: async (name, sources = SECRET_SOURCES) => {
      const found = await find(name, sources);
      if (found !== undefined) return found.value;
      throw missingSecretError(name, sources);
    },
    protection: () => vault.protection(),
    folder,
    get keychainFault() {
      return keychain.fault;
    },
  };
}

function missingSecretError(name: string, sources: readonly SecretSource[]): HubError {
  if (isReservedName(name))
    return new HubError("valueMissing", "it belongs to toolmux itself: servers cannot use it");
  const sourceLabels = sources.map((source) => SOURCE_LABELS[source]).join(" or ");
  const text = `it is not set in ${sourceLabels}; run: ${commandToProvide(name, sources)}`;
  return new HubError("valueMissing", text, { data: { secrets: [name] } });
}

/** The shell command with which the user can set the secret. */
function commandToProvide(name: string, sources: readonly SecretSource[]): string {
  if (sources.includes("file")) return `toolmux secret set ${name}`;
  return `export ${secretVariableOf(name)}=…`;
}
