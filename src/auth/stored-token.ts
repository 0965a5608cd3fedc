import type { SecretStore } from "../secrets/secrets.ts";
import { type ClientRegistration, parseObject } from "./registration.ts";

/** What gets the hub into one server, as it is kept. Times are in ms since the epoch. */
export interface StoredToken {
  /** The server's, so that another server of the same name is not given it. */
  readonly url: string;
  readonly issuer: string;
  /** Where the issuer is asked for more; see `Authority`. */
  readonly place: string;
  readonly tokenEndpoint: string | undefined;
  readonly revocationEndpoint: string | undefined;
  /** Ways in which a client can prove who it is. */
  readonly methods: readonly string[] | undefined;
  readonly resource: string | undefined;
  /** All that was asked for, and what was given of it. */
  readonly asked: readonly string[];
  readonly scopes: readonly string[];
  readonly grant: "authorizationCode" | "clientCredentials";
  readonly client: ClientRegistration;
  readonly access: string;
  readonly refresh: string | undefined;
  readonly issued: number;
  /** undefined: it is not said. */
  readonly expires: number | undefined;
}

/** The form of what is kept; another one is as good as nothing. */
const FORM = 1;

/** @returns undefined if there is nothing, or nothing that can be read. @throws {HubError} what the store throws */
export async function loadToken(
  store: SecretStore,
  name: string,
  url: URL,
): Promise<StoredToken | undefined> {
  const kept = parseObject(await store.get(name)) as
    (StoredToken & { readonly form: number }) | undefined;
  if (kept?.form !== FORM || typeof kept.access !== "string") return undefined;
  return kept.url === url.href ? kept : undefined;
}

/** @throws {HubError} what the store throws */
export function saveToken(store: SecretStore, name: string, kept: StoredToken): Promise<void> {
  return store.set(name, JSON.stringify({ form: FORM, ...kept }));
}

/** Of the life of a token, and in ms: with less left, another is got. */
const SHARE = 0.1;
const MARGIN = 60_000;

/** The longest life of a token that is believed, in s. */
const LONGEST = 100 * 365 * 24 * 3600;

/** When a token ends that is to live for so many seconds; undefined: what is said is nothing that tells, as 0 of those that do not end. */
export function expiryOf(issued: number, life: number | undefined): number | undefined {
  return life !== undefined && life > 0 && life < LONGEST ? issued + life * 1000 : undefined;
}

/** Whether another token can be got without a person. */
export function isRefreshable({ refresh, grant }: StoredToken): boolean {
  return refresh !== undefined || grant === "clientCredentials";
}

/** Whether it is time for another token. Where there is no way to one, the server will say when it is over. */
export function isRefreshDue(kept: StoredToken, now: number): boolean {
  const { issued, expires } = kept;
  if (expires === undefined || !isRefreshable(kept)) return false;
  return expires - now < Math.min(MARGIN, (expires - issued) * SHARE);
}

export function isExpired({ expires }: StoredToken, now: number): boolean {
  return expires !== undefined && expires <= now;
}
