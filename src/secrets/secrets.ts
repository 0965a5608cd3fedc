import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { configFolders, type SystemEnvironment } from "../base/paths.ts";
import { SECRET_SOURCES, type SecretSource } from "../manifest/secrecy.ts";
import { keychainStore } from "./chain.ts";
import { readSecretVariable, secretVariableOf } from "./environment.ts";
import { fileStore } from "./file.ts";
import { type Keychain, openKeychain } from "./keychain.ts";
import { isReservedName, type SecretStore } from "./store.ts";
import { type VaultProtection, Vault } from "./vault.ts";

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
