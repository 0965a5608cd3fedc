import type { SecretStore } from "../secrets/secrets.ts";
import { type ClientRegistration, parseObject } from "./registration.ts";

/** The tokens for one server, as stored. Times are in ms since the epoch. */
export interface StoredToken {
  /** The server's URL. It is compared on loading: another server with the same name must not get the tokens. */
  readonly url: string;
  readonly issuer: string;
  /** Base URL of the authorization server; see `AuthorizationServer.url`. */
  readonly place: string;
  readonly tokenEndpoint: string | undefined;
  readonly revocationEndpoint: string | undefined;
  /** Client authentication methods of the token endpoint. */
  readonly methods: readonly string[] | undefined;
  readonly resource: string | undefined;
  /** The requested scopes; `scopes` are the granted ones. */
  readonly asked: readonly string[];
  readonly scopes: readonly string[];
  readonly grant: "authorizationCode" | "clientCredentials";
  readonly client: ClientRegistration;
  readonly access: string;
  readonly refresh: string | undefined;
  readonly issued: number;
  /** Time at which the access token expires; undefined if it is not known. */
  readonly expires: number | undefined;
}

/** Version of the stored format. Tokens with another version are ignored. */
const FORMAT_VERSION = 1;

/**
 * Loads the token.
 * @returns undefined if there is no token for this URL, or it is malformed
 * @throws {HubError} if the store is not readable
 */
export async function loadToken(
  store: SecretStore,
  name: string,
  url: URL,
): Promise<StoredToken | undefined> {
  const stored = parseObject(await store.get(name)) as
    (StoredToken & { readonly form: number }) | undefined;
  if (stored?.form !== FORMAT_VERSION || typeof stored.access !== "string") return undefined;
  return stored.url === url.href ? stored : undefined;
}

/** @throws {HubError} if the token cannot be stored */
export function saveToken(store: SecretStore, name: string, token: StoredToken): Promise<void> {
  return store.set(name, JSON.stringify({ form: FORMAT_VERSION, ...token }));
}

/**
 * A token is renewed when its remaining time is less than this share of its lifetime, and also less than
 * `REFRESH_MARGIN` (in ms).
 */
const REFRESH_SHARE = 0.1;
const REFRESH_MARGIN = 60_000;

/** Maximum plausible lifetime of a token, in seconds; a longer one is ignored. */
const MAX_LIFETIME = 100 * 365 * 24 * 3600;

/**
 * The time at which a token expires, in ms since the epoch, from the time of issue (in ms) and the lifetime (in s).
 * Undefined if the lifetime is missing or not plausible: some servers send 0 for tokens that do not expire.
 */
export function expiryOf(issued: number, lifetime: number | undefined): number | undefined {
  return lifetime !== undefined && lifetime > 0 && lifetime < MAX_LIFETIME
    ? issued + lifetime * 1000
    : undefined;
}

/** Whether another token can be requested without the user. */
export function isRefreshable({ refresh, grant }: StoredToken): boolean {
  return refresh !== undefined || grant === "clientCredentials";
}

/** Whether the token is due for renewal. A token that cannot be renewed is used until the server rejects it. */
export function isRefreshDue(token: StoredToken, now: number): boolean {
  const { issued, expires } = token;
  if (expires === undefined || !isRefreshable(token)) return false;
  return expires - now < Math.min(REFRESH_MARGIN, (expires - issued) * REFRESH_SHARE);
}

export function isExpired({ expires }: StoredToken, now: number): boolean {
  return expires !== undefined && expires <= now;
}
