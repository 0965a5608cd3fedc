/**
 * SHA-256 of bytes, or of a text's UTF-8 bytes. Passed as an argument, so that this layer needs no crypto import at
 * start-up.
 */
export type Sha256 = (data: string | Uint8Array) => Uint8Array;

export interface NameRules {
  readonly separator: string;
  /**
   * Maximum length of a name that clients see (exposed name), in characters: the hub's limit minus the length of the
   * prefix that the client itself puts before it.
   */
  readonly maxLength: number;
}

/**
 * The tool or prompt that a name belongs to. The hash in a shortened name is made from these two members only, so no
 * other server or tool can change it.
 */
export interface NameOwner {
  readonly server: string;
  readonly remoteName: string;
}

const EXPOSABLE_NAME = /^[A-Za-z0-9_-]+$/;
const HASH_LENGTH = 6;
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** Puts prefix and separator before the name. @param name the name at the server, or the one that the manifest sets */
export function prefixName({ separator }: NameRules, prefix: string, name: string): string {
  return prefix === "" ? name : prefix + separator + name;
}

/** Whether clients can be shown a name unchanged: it matches `^[A-Za-z0-9_-]+$` and is not longer than `maxLength`. */
export function isExposable({ maxLength }: NameRules, fullName: string): boolean {
  return fullName.length <= maxLength && EXPOSABLE_NAME.test(fullName);
}

/**
 * Converts a name that cannot be exposed to one that can: other characters become `_`, and the end becomes `_` and six
 * base32 characters of a hash of the server's name and the item's name at the server.
 */
export function shortenName(
  { maxLength }: NameRules,
  fullName: string,
  { server, remoteName }: NameOwner,
  sha256: Sha256,
): string {
  const safe = fullName.replace(/[^A-Za-z0-9_-]/gu, "_");
  const hash = base32(sha256(`${server}\0${remoteName}`));
  return `${safe.slice(0, maxLength - HASH_LENGTH - 1)}_${hash}`;
}

/** The exposed name of a tool or prompt. @param name the name at the server, or the one that the manifest sets */
export function exposedNameOf(
  rules: NameRules,
  prefix: string,
  name: string,
  owner: NameOwner,
  sha256: Sha256,
): string {
  const fullName = prefixName(rules, prefix, name);
  return isExposable(rules, fullName) ? fullName : shortenName(rules, fullName, owner, sha256);
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
 * Whether a name matches a glob: `*` stands for any characters, `?` for one. The time is at most proportional to the
 * product of both lengths, divided by 32 for long ones, so that a server cannot slow the hub down by its names.
 */
export function matchesGlob(glob: string, name: string): boolean {
  const [pattern, text] = [Array.from(glob), Array.from(name)];
  if (pattern.length * text.length > MAX_STEPS) return matchesLong(pattern, text);
  let at = 0;
  // `star`: the index of the last star that was tried. `end`: the end of the text that it covers so far.
  let star = -1;
  let end = 0;
  for (let i = 0; i < text.length;) {
    const expected = pattern[at];
    if (expected === "*") {
      star = at++;
      end = i;
    } else if (expected === "?" || expected === text[i]) {
      at++;
      i++;
    } else if (star >= 0) {
      at = star + 1;
      i = ++end;
    } else {
      return false;
    }
  }
  return pattern.slice(at).every((expected) => expected === "*");
}

/**
 * The most exact of the names and globs that match a name: the name itself, else the glob with the most characters
 * besides `*` and `?`; undefined if none matches.
 */
export function mostExactGlob(globs: readonly string[], name: string): string | undefined {
  if (globs.includes(name)) return name;
  const literalLength = (glob: string): number => glob.replaceAll(/[*?]/g, "").length;
  return globs
    .filter((glob) => matchesGlob(glob, name))
    .toSorted((a, b) => literalLength(b) - literalLength(a))[0];
}

/** Maximum number of steps in which a glob is compared with a name one character after the other. */
const MAX_STEPS = 100_000;

/**
 * The same for long texts: follows all ways to match at once, as bits. Bit n says that the text so far can be matched by
 * the first n characters of the glob, stars not counted.
 */
function matchesLong(pattern: readonly string[], text: readonly string[]): boolean {
  const characters = pattern.filter((one) => one !== "*");
  const words = (characters.length >> 5) + 1;
  /** The bits before which the glob has a star: they stay set, whatever character follows. */
  const stars = new Uint32Array(words);
  /** For each character of the glob, the bits that it sets. */
  const steps = new Map<string, Uint32Array>();
  const others = new Uint32Array(words);
  const setBit = (bits: Uint32Array, bit: number): void => {
    bits[bit >> 5] = (bits[bit >> 5] ?? 0) | (1 << (bit & 31));
  };
  let bit = 0;
  for (const one of pattern) {
    if (one === "*") setBit(stars, bit);
    else {
      bit++;
      if (one === "?") setBit(others, bit);
    }
  }
  for (const one of new Set(characters)) if (one !== "?") steps.set(one, others.slice());
  for (const [at, one] of characters.entries()) {
    const bits = one === "?" ? undefined : steps.get(one);
    if (bits !== undefined) setBit(bits, at + 1);
  }
  const state = new Uint32Array(words);
  state[0] = 1;
  for (const one of text) {
    const step = steps.get(one) ?? others;
    let carry = 0;
    let isDead = true;
    for (let word = 0; word < words; word++) {
      const before = state[word] ?? 0;
      const shifted = (before << 1) | carry;
      carry = before >>> 31;
      const next = (shifted & (step[word] ?? 0)) | (before & (stars[word] ?? 0));
      state[word] = next;
      isDead &&= next === 0;
    }
    if (isDead) return false;
  }
  return ((state[characters.length >> 5] ?? 0) & (1 << (characters.length & 31))) !== 0;
}
