import { createHash, timingSafeEqual } from "node:crypto";
import type { Exposure } from "../../manifest/exposures.ts";
import { ALL_SERVERS, type ServerSubset } from "../../upstream/profile.ts";
import { errorResponse } from "./responses.ts";

/** A client that is identified by its token, and what it may see. */
export interface Principal {
  /** Unique. It is also the client's id in the modern era, in which there are no sessions. */
  readonly name: string;
  readonly subset: ServerSubset;
  /** The name of the mode that always limits what the principal sees; undefined: none. */
  readonly mode: string | undefined;
  /** The form in which the principal's clients get their tools; undefined: as other settings say. */
  readonly expose?: Exposure | undefined;
  /** Maximum number of simultaneous sessions of the principal; undefined: it has no limit of its own. */
  readonly maxSessions: number | undefined;
}

/** A principal with its token. */
export interface TokenHolder extends Principal {
  readonly token: string;
}

/** The name of the principal for the HTTP server's own token, which belongs to no configured client. */
export const DEFAULT_PRINCIPAL = "default";

/** The principal for the HTTP server's own token. It may see everything. */
export function defaultHolder(token: string): TokenHolder {
  return {
    name: DEFAULT_PRINCIPAL,
    subset: ALL_SERVERS,
    mode: undefined,
    maxSessions: undefined,
    token,
  };
}

/** The principals that may use an HTTP server. Immutable. */
export class Principals {
  /** Whether clients without a token are refused. */
  readonly isTokenRequired: boolean;
  readonly #holders: readonly { readonly digest: Uint8Array; readonly principal: TokenHolder }[];

  constructor(holders: readonly TokenHolder[], isTokenRequired: boolean) {
    this.isTokenRequired = isTokenRequired;
    this.#holders = holders.map((principal) => ({ digest: digestOf(principal.token), principal }));
  }

  /** The principal with this name; undefined if there is none. */
  find(name: string | undefined): TokenHolder | undefined {
    return this.#holders.find(({ principal }) => principal.name === name)?.principal;
  }

  /**
   * Finds the principal of a request by its bearer token.
   * @returns the principal, or the response that refuses the request; undefined if no token is required
   */
  identify(headers: Headers): Principal | Response | undefined {
    if (!this.isTokenRequired) return undefined;
    const given = /^Bearer +(\S+) *$/i.exec(headers.get("Authorization") ?? "")?.[1];
    const holder = given === undefined ? undefined : this.#holderOf(given);
    if (holder !== undefined) return holder;
    const error = given === undefined ? "" : ', error="invalid_token"';
    const text =
      given === undefined
        ? "A bearer token is required: Authorization: Bearer TOKEN."
        : "The bearer token is not valid: it is none of those in the manifest of toolmux.";
    return errorResponse(401, text, {
      headers: { "WWW-Authenticate": `Bearer realm="toolmux"${error}` },
    });
  }

  /**
   * Finds the principal that has a token. Compares the token with all known tokens, each in constant time, so that the
   * duration reveals nothing about them. Their hashes are compared, because these have equal lengths.
   */
  #holderOf(token: string): TokenHolder | undefined {
    const digest = digestOf(token);
    let found: TokenHolder | undefined;
    for (const { digest: expected, principal } of this.#holders)
      if (timingSafeEqual(digest, expected)) found = principal;
    return found;
  }

  /** The names of the principals that `next` lacks, or to which `next` gives another token or other servers. */
  revokedBy(next: Principals): readonly string[] {
    return this.#holders.flatMap(({ principal: { name, token, subset } }) => {
      const other = next.find(name);
      return other?.token === token && other.subset.key === subset.key ? [] : [name];
    });
  }
}

function digestOf(text: string): Uint8Array {
  return createHash("sha256").update(text).digest();
}
