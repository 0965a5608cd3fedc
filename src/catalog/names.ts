/** SHA-256 of a text's UTF-8 bytes; an argument, so that this layer stays free of I/O and of start-up cost. */
export type Digest = (text: string) => Uint8Array;

export interface NameRules {
  readonly separator: string;
  /** The longest exposed name, in characters: the hub's limit less what clients put in front. */
  readonly limit: number;
}

/** What is called by a name, and of which server: of nothing else is the hash in a name, so that no other server or tool can move it. */
export interface Named {
  readonly server: string;
  /** The server's own name for it. */
  readonly remoteName: string;
}

const SAFE = /^[A-Za-z0-9_-]+$/;
const HASH_LENGTH = 6;
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** The name with its prefix in front, if that is not empty. @param name the remote one, or what it was renamed to */
export function prefixName({ separator }: NameRules, prefix: string, name: string): string {
  return prefix === "" ? name : prefix + separator + name;
}

/** Whether clients see a name as it is: as `^[A-Za-z0-9_-]{1,limit}$`. */
export function isExposable({ limit }: NameRules, full: string): boolean {
  return full.length <= limit && SAFE.test(full);
}

/**
 * What clients see in the place of a name that is not exposable: always one that is. Characters outside become `_`, and it ends
 * in `_` and six characters of a hash of server and remote name.
 */
export function shortenName(
  { limit }: NameRules,
  full: string,
  { server, remoteName }: Named,
  digest: Digest,
): string {
  const safe = full.replace(/[^A-Za-z0-9_-]/gu, "_");
  const hash = base32(digest(`${server}\0${remoteName}`));
  return `${safe.slice(0, limit - HASH_LENGTH - 1)}_${hash}`;
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
