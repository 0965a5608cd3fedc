import type { Buffer } from "node:buffer";
import process from "node:process";
import {
  type ClientOrigin,
  differingValues,
  fillWithClientValues,
  valueNamesOf,
} from "../manifest/client-values.ts";
import type { Isolation } from "../manifest/isolations.ts";
import { isExternal, type RunnableServer } from "../manifest/manifest.ts";
import { containsCapabilityClass, sizeOfCapabilityClass } from "../protocol/capabilities.ts";
import { type ClientProfile, profileOf } from "./profile.ts";

/* Which clients share a connection to a server, and why others have another one. */

/**
 * Maximum number of connections to a shared server for clients with different capabilities. If none of them fits further
 * clients, these share one more connection, which declares no capabilities.
 */
export const MAX_CLASSES = 4;

/** Whether several clients may use one connection to a server. */
export function hasSharedConnections({ isolation }: { readonly isolation: Isolation }): boolean {
  return isolation !== "perClient";
}

/**
 * The key of a client's own connection to a server: clients with equal keys share it. Only the keys of servers that take
 * values from their clients depend on these values.
 */
export function connectionKeyOf(spec: RunnableServer, profile: ClientProfile): string {
  const key = profile.keys[spec.isolation];
  if (profile.origin === undefined || spec.isolation === "perClient") return key;
  const values = valuesKeyOf(spec, profile.origin);
  return values === "" ? key : `${key} ${values}`;
}

const valuesKeys = new WeakMap<ClientOrigin, WeakMap<RunnableServer, string>>();
let hashKey: Buffer | undefined;
/** Length of `valuesKeyOf`, in hexadecimal digits. */
const VALUES_KEY_LENGTH = 32;

/**
 * Equal for clients that fill in the entry of a server with equal values; "" if the server takes no values from its
 * clients, or there is no origin. It is an HMAC with a random key of this process, because the values may be secret.
 */
export function valuesKeyOf(spec: RunnableServer, origin: ClientOrigin | undefined): string {
  if (origin === undefined || !isExternal(spec) || valueNamesOf(spec).length === 0) return "";
  const keys = valuesKeys.get(origin) ?? new WeakMap<RunnableServer, string>();
  valuesKeys.set(origin, keys);
  const known = keys.get(spec);
  if (known !== undefined) return known;
  const { createHmac, randomBytes } = process.getBuiltinModule("node:crypto");
  hashKey ??= randomBytes(32);
  const hash = createHmac("sha256", hashKey).update(fillWithClientValues(spec, origin));
  const key = hash.digest("hex").slice(0, VALUES_KEY_LENGTH);
  keys.set(spec, key);
  return key;
}

/** The same client without capabilities. */
export function withoutCapabilities({ era, client, subset, origin }: ClientProfile): ClientProfile {
  return profileOf("", client, undefined, subset, false, origin, era);
}

/** Everybody who fills in entries as this client does. A connection for everybody is one for the legacy era. */
export function everybodyLike({ origin }: ClientProfile): ClientProfile {
  return profileOf("", undefined, undefined, undefined, false, origin);
}

/**
 * The profile whose connection serves a client that gets none of its own: of those with the client's era whose
 * capabilities the client has, too, the one with the most capabilities; of several, the first in the order of the text.
 * @param profiles those that the server's connections were created for
 */
export function largestContained(
  profiles: readonly ClientProfile[],
  { era, capabilities }: ClientProfile,
): ClientProfile | undefined {
  const fitting = profiles.filter(
    (each) => each.era === era && containsCapabilityClass(capabilities, each.capabilities),
  );
  const sizeOf = (each: ClientProfile): number => sizeOfCapabilityClass(each.capabilities);
  return fitting.toSorted(
    (a, b) => sizeOf(b) - sizeOf(a) || (a.capabilities < b.capabilities ? -1 : 1),
  )[0];
}

/** Why a server has a connection in addition to others. */
export type Separation =
  /** Its clients have other values: of these variables, or of `${workspaceFolder}`. */
  | { readonly by: "values"; readonly names: readonly string[] }
  /** Its clients speak another era of the protocol. */
  | { readonly by: "era" }
  /** Its clients have other capabilities. */
  | { readonly by: "capabilities" }
  /** The server has one for each client. */
  | { readonly by: "client" };

/**
 * For each connection to a server, why it is not one of the earlier connections; undefined for the first one.
 * @param profiles those that the connections were created for
 */
export function separationsOf(
  spec: RunnableServer,
  profiles: readonly ClientProfile[],
): readonly (Separation | undefined)[] {
  const [first] = profiles;
  return profiles.map(({ era, origin }, index): Separation | undefined => {
    if (index === 0) return undefined;
    if (!hasSharedConnections(spec)) return { by: "client" };
    const values = valuesKeyOf(spec, origin);
    const withSameValues = profiles
      .slice(0, index)
      .filter((each) => valuesKeyOf(spec, each.origin) === values);
    if (withSameValues.length === 0)
      return { by: "values", names: differingValues(spec, first?.origin, origin) };
    return { by: withSameValues.some((each) => each.era === era) ? "capabilities" : "era" };
  });
}
