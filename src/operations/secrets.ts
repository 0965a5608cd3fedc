import { usageError } from "../base/errors.ts";
import { loadManifest } from "../manifest/load.ts";
import { listedUsers } from "../manifest/secret-users.ts";
import { type SecretUses, secretUsesOf } from "../manifest/secret-uses.ts";
import { isReservedName } from "../secrets/secret-name.ts";
import { openSecrets, readSecretVariable, type Secrets } from "../secrets/secrets.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import type { SecretsDocument } from "./documents.ts";
import { loadOptions } from "./load-manifest.ts";

/** A secret in a list of all. `places`: `environment`, `file`. */
export type ListedSecret = SecretsDocument["secrets"][number];

/** The protection of the secret store. */
export interface StoreProtection extends Pick<SecretsDocument, "folder" | "key"> {
  /** Why the keychain of the system cannot be used. */
  readonly keychainFault: string | undefined;
}

/** All secrets. */
export interface SecretList {
  readonly document: SecretsDocument;
  /** Whether the manifest can be used. If not, it is unknown what uses a secret. */
  readonly isManifestUsable: boolean;
  readonly protection: StoreProtection;
}

/** Lists the secrets that are stored, and those that the manifest needs. Reads no value. */
export async function listSecrets(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<SecretList> {
  const secrets = openSecrets(context);
  const uses = await usersBySecret(choice, context);
  const rows = await listRows(secrets, uses ?? new Map(), context);
  const protection = await protectionOf(secrets);
  const { folder, key } = protection;
  return {
    document: { secrets: rows, folder, key },
    isManifestUsable: uses !== undefined,
    protection,
  };
}

async function protectionOf(secrets: Secrets): Promise<StoreProtection> {
  const { folder } = secrets;
  const key = await secrets.protection();
  return { folder, key, keychainFault: secrets.keychainFault };
}

/** A secret that can be stored: its name is valid, and the store can be used. */
export interface SecretToSet {
  /** Stores the value. @throws {HubError} usage if the value is invalid */
  set(value: string): Promise<StoredSecret>;
}

/** A secret that was stored or removed. */
export interface StoredSecret {
  /** The store, as shown to users. */
  readonly location: string;
  readonly protection: StoreProtection;
  /** Whether an environment variable has the same secret, and takes precedence. */
  readonly isInEnvironment: boolean;
}

/**
 * Opens the store for a secret. If the store cannot be used, this fails before the user has typed a value.
 * @throws {HubError} usage if the name is reserved; storeBroken
 */
export async function openSecretToSet(
  name: string,
  context: OperationContext,
): Promise<SecretToSet> {
  const secrets = openSecrets(context);
  if (isReservedName(name))
    throw usageError(`${name} is reserved for the tokens of toolmux: choose another name.`);
  await secrets.file.list();
  return {
    async set(value) {
      if (value === "") throw usageError("The value is empty: nothing was changed.");
      if (value.includes("\0"))
        throw usageError("The value contains a NUL character: nothing was changed.");
      await secrets.file.set(name, value);
      return {
        location: secrets.file.location,
        protection: await protectionOf(secrets),
        isInEnvironment: readSecretVariable(context.env, name) !== undefined,
      };
    },
  };
}

/** Removes a secret from the store. @returns `isRemoved`: whether the store had it */
export async function removeStoredSecret(
  name: string,
  context: OperationContext,
): Promise<Pick<StoredSecret, "location" | "isInEnvironment"> & { readonly isRemoved: boolean }> {
  const { file } = openSecrets(context);
  const isListed = (await file.list()).includes(name);
  return {
    isRemoved: isListed && (await file.remove(name)),
    location: file.location,
    isInEnvironment: readSecretVariable(context.env, name) !== undefined,
  };
}

async function listRows(
  secrets: Secrets,
  uses: ReadonlyMap<string, SecretUses>,
  { env }: OperationContext,
): Promise<ListedSecret[]> {
  const stored = await secrets.file.list();
  const names = [...new Set([...stored, ...uses.keys()])].toSorted();
  return names.map((name) => {
    const used = uses.get(name);
    const variables = used?.variables ?? [];
    const isSet =
      readSecretVariable(env, name) !== undefined || variables.some((variable) => env[variable]);
    const places = [...(isSet ? ["environment"] : []), ...(stored.includes(name) ? ["file"] : [])];
    return { name, places, ...listedUsers(used) };
  });
}

/** The uses of each secret, by its name; undefined if there is no usable manifest. */
export async function usersBySecret(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<ReadonlyMap<string, SecretUses> | undefined> {
  const loaded = await loadManifest(loadOptions(choice, context));
  return loaded.ok ? secretUsesOf(loaded.manifest) : undefined;
}
