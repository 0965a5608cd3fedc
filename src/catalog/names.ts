/** SHA-256 of a text's UTF-8 bytes; an argument, so that this layer stays free of I/O and of start-up cost. */
export type Digest = (text: string) => Uint8Array;

export interface NameRules {
  readonly separator: string;
  /** The longest exposed name, in characters: the hub's limit less what clients put in front. */
  readonly limit: number;
}

/** What an exposed name is made of, and of nothing else: no other server or tool can move it. */
export interface NameParts {
  readonly server: string;
  /** Empty for none. */
  readonly prefix: string;
  /** The server's own name for it. */
  readonly remoteName: string;
  /** The name before the prefix: the remote one, or what it was renamed to. */
  readonly name: string;
}

export interface ExposedName {
  readonly name: string;
  /** The name before characters were replaced or cut off. */
  readonly full: string;
}

const SAFE = /^[A-Za-z0-9_-]+$/;
const HASH_LENGTH = 6;
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/**
 * The name that clients see: always `^[A-Za-z0-9_-]{1,limit}$`. Characters outside become `_`; a name that
 * this changed, or that is too long, ends in `_` and six characters of a hash of server and remote name.
 */
export function exposeName(rules: NameRules, parts: NameParts, digest: Digest): ExposedName {
  const { server, prefix, remoteName, name } = parts;
  const full = prefix === "" ? name : prefix + rules.separator + name;
  // Most are as they may be, and to look costs a quarter of what it costs to replace nothing.
  if (full.length <= rules.limit && SAFE.test(full)) return { name: full, full };
  const safe = full.replace(/[^A-Za-z0-9_-]/gu, "_");
  const hash = base32(digest(`${server}\0${remoteName}`));
  return { name: `${safe.slice(0, rules.limit - HASH_LENGTH - 1)}_${hash}`, full };
}

function base32(bytes: Uint8Array): string {
  let text = "";
  let bits = 0;
  let value = 0;
  for (const byte of bytes) {
    value = ((value << 8) | byte) & 0xfff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += BASE32[(value >> bits) & 31];
      if (text.length === HASH_LENGTH) return text;
    }
  }
  return text;
}

/**
 * Whether a name matches a glob, in which `*` stands for any characters and `?` for one. Bounded by the product of the lengths
 * of both, whatever the name looks like: servers choose it.
 */
export function matchesGlob(glob: string, name: string): boolean {
  const [pattern, text] = [Array.from(glob), Array.from(name)];
  let at = 0;
  // The last star, and up to where it has been taken to reach.
  let star = -1;
  let end = 0;
  for (let i = 0; i < text.length;) {
    const wanted = pattern[at];
    if (wanted === "*") {
      star = at++;
      end = i;
    } else if (wanted === "?" || wanted === text[i]) {
      at++;
      i++;
    } else if (star >= 0) {
      at = star + 1;
      i = ++end;
    } else {
      return false;
    }
  }
  return pattern.slice(at).every((wanted) => wanted === "*");
}
