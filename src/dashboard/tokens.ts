import { Buffer } from "node:buffer";
import { createHash, timingSafeEqual } from "node:crypto";
import { type Clock, systemClock } from "../base/clock.ts";

/** Length of a token, in bytes. */
const LENGTH = 32;

/** A valid token. */
export interface IssuedToken {
  /** Time at which the token expires, in ms since the epoch. */
  readonly expiresAt: number;
  /** Aborted when the token expires or is made invalid. */
  readonly signal: AbortSignal;
}

export interface TokenOptions {
  /** How long a token is valid, in ms. */
  readonly lifetime: number;
  /** Maximum number of valid tokens. If one more is created, the oldest becomes invalid. */
  readonly limit: number;
  readonly clock?: Clock;
}

interface Entry extends IssuedToken {
  readonly digest: Uint8Array;
  end(): void;
}

/** 256-bit tokens that are valid for a limited time. Only their digests are kept, not the tokens. */
export class Tokens {
  readonly #options: TokenOptions;
  /** The valid tokens, the oldest first. */
  readonly #entries = new Set<Entry>();

  constructor(options: TokenOptions) {
    this.#options = options;
  }

  create(): IssuedToken & { readonly token: string } {
    const { lifetime, limit, clock = systemClock } = this.#options;
    const token = makeToken();
    const controller = new AbortController();
    const cancelTimer = clock.after(lifetime, () => entry.end());
    const entry: Entry = {
      digest: digestOf(token),
      expiresAt: Date.now() + lifetime,
      signal: controller.signal,
      end: () => {
        cancelTimer();
        this.#entries.delete(entry);
        controller.abort();
      },
    };
    this.#entries.add(entry);
    const [oldest] = this.#entries;
    if (this.#entries.size > limit) oldest?.end();
    return { token, expiresAt: entry.expiresAt, signal: entry.signal };
  }

  /** The token, if it is valid. Compares in constant time. */
  find(token: string): IssuedToken | undefined {
    return this.#find(token);
  }

  /** Makes a token invalid. @returns whether it was valid before */
  end(token: string): boolean {
    const entry = this.#find(token);
    entry?.end();
    return entry !== undefined;
  }

  /** Makes all tokens invalid. */
  clear(): void {
    for (const entry of this.#entries) entry.end();
  }

  #find(token: string): Entry | undefined {
    const digest = digestOf(token);
    return [...this.#entries].find((entry) => timingSafeEqual(entry.digest, digest));
  }
}

/** A random text of 256 bits. */
export function makeToken(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(LENGTH))).toString("base64url");
}

function digestOf(token: string): Uint8Array {
  return createHash("sha256").update(token).digest();
}
