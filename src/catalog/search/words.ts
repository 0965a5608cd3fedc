/**
 * Words of names, descriptions and queries in the form in which they are compared: split, in lower case, without stop
 * words, stemmed. The time is proportional to the length of the text: no regular expression runs over more than a word.
 */

/** Words that nearly every description or question has, so that they say nothing about a tool. */
const STOP_WORDS: ReadonlySet<string> = new Set(
  (
    "a about above after again all also am an and any are as at be because been before being below between both but " +
    "by can cannot could did do does doing don done during each either else etc ever few for from further had has " +
    "have having he her here hers him his how however i if in into is it its itself just let ll many may me might " +
    "mine more most much must my myself need needs no nor not of off on once only or other otherwise our ours out " +
    "over own per please provided s same shall she should so some such t than that the their theirs them then there " +
    "these they this those through to too under until up us use used uses using ve very via want wants was we were " +
    "what when where whether which while who whom whose why will with within without would you your yours help helps"
  ).split(" "),
);

/** Maximum length of a word in UTF-16 units; a longer run of letters is cut there. */
const MAX_WORD = 40;
/** Number of words whose stems are remembered, for all catalogs together. */
const MAX_STEMS = 50_000;

/** Stems by words in lower case; "" for stop words. */
const stems = new Map<string, string>();

export interface WordLimits {
  /** Maximum number of words that are returned. */
  readonly words?: number;
  /** Number of UTF-16 units of the text that are read. */
  readonly length?: number;
}

/**
 * The words of a text, in order, with repetitions. A word is a run of letters and digits; camelCase is split, and a
 * word of several parts is followed by the whole (`GitHub`: `git`, `hub`, `github`). Chinese, Japanese and Korean text
 * gives pairs of neighbouring characters. English words are stemmed (Porter), and stop words left out.
 */
export function wordsOf(text: string, limits: WordLimits = {}): string[] {
  const words: string[] = [];
  const { words: maxWords = Number.POSITIVE_INFINITY, length = text.length } = limits;
  const end = Math.min(text.length, length);
  let at = 0;
  while (at < end && words.length < maxWords) {
    if (kindOf(text.charCodeAt(at)) === OTHER) {
      at++;
      continue;
    }
    let stop = at + 1;
    let isAscii = text.charCodeAt(at) < 128;
    let hasParts = false;
    while (stop < end && stop - at < MAX_RUN) {
      const code = text.charCodeAt(stop);
      const kind = kindOf(code);
      if (kind === OTHER) break;
      if (kind === UPPER) hasParts = true;
      else if (kind === WIDE) isAscii = false;
      stop++;
    }
    if (isAscii && !hasParts) addWord(text.slice(at, stop).toLowerCase(), words);
    else if (isAscii) addAscii(text, at, stop, words);
    else addUnicode(text.slice(at, stop), words);
    at = stop;
  }
  if (words.length > maxWords) words.length = maxWords;
  return words;
}

/** Maximum length of a run of letters and digits that is split as one, in UTF-16 units. */
const MAX_RUN = 1024;

const OTHER = 0;
const LOWER = 1;
const UPPER = 2;
const DIGIT = 3;
/** A character outside of ASCII. */
const WIDE = 4;

const ASCII_KINDS = Uint8Array.from({ length: 128 }, (_, code) => {
  if (code >= 97 && code <= 122) return LOWER;
  if (code >= 65 && code <= 90) return UPPER;
  return code >= 48 && code <= 57 ? DIGIT : OTHER;
});

function kindOf(code: number): number {
  if (code < 128) return ASCII_KINDS[code] ?? OTHER;
  // General punctuation, arrows, symbols, CJK punctuation, full-width punctuation: what separates words in most texts.
  if (code < 0xaa || code === 0xd7 || code === 0xf7) return OTHER;
  if ((code >= 0x2000 && code <= 0x206f) || (code >= 0x2190 && code <= 0x2bff)) return OTHER;
  if ((code >= 0x3000 && code <= 0x3004) || (code >= 0x3008 && code <= 0x3020)) return OTHER;
  if (code >= 0xff00 && code <= 0xff0f) return OTHER;
  return WIDE;
}

/** Adds the words of a run of ASCII letters and digits: its parts at changes of case, and the whole. */
function addAscii(text: string, start: number, end: number, words: string[]): void {
  let from = start;
  for (let at = start + 1; at < end; at++) {
    if (kindOf(text.charCodeAt(at)) !== UPPER) continue;
    const before = kindOf(text.charCodeAt(at - 1));
    // `listIssues` is split before `I`; `HTTPServer` before `S`, the last capital, which a small letter follows.
    const isStart = before !== UPPER || (at + 1 < end && kindOf(text.charCodeAt(at + 1)) === LOWER);
    if (!isStart) continue;
    addWord(text.slice(from, at).toLowerCase(), words);
    from = at;
  }
  addWord(text.slice(from, end).toLowerCase(), words);
  if (from > start && end - start <= MAX_WORD) addWord(text.slice(start, end).toLowerCase(), words);
}

const LETTERS = /[\p{L}\p{N}\p{M}]+/gu;
const PAIRED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u30fc]+|[^\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u30fc]+/gu;
const IS_PAIRED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u30fc]/u;
const CASES = /\p{Lu}+(?!\p{Ll})\p{M}*|\p{Lu}?[^\p{Lu}]+/gu;
const ACCENTS = /(\p{Script=Latin})\p{M}+/gu;

function addUnicode(run: string, words: string[]): void {
  for (const [letters] of run.normalize("NFKC").matchAll(LETTERS)) {
    for (const [part] of letters.matchAll(PAIRED)) {
      if (IS_PAIRED.test(part)) addPairs(part, words);
      else {
        const plain = part.normalize("NFD").replace(ACCENTS, "$1").normalize("NFC");
        for (const [word] of plain.matchAll(CASES)) addWord(word.toLowerCase(), words);
      }
    }
  }
}

function addPairs(text: string, words: string[]): void {
  const characters = Array.from(text);
  const [only] = characters;
  if (only !== undefined && characters.length === 1) words.push(only);
  for (let i = 1; i < characters.length; i++) words.push(`${characters[i - 1]}${characters[i]}`);
}

/** Adds the stem of a word in lower case, unless it is a stop word. */
function addWord(word: string, words: string[]): void {
  const stem = stemOf(word.length > MAX_WORD ? word.slice(0, MAX_WORD) : word);
  if (stem !== "") words.push(stem);
}

/** The stem of a word in lower case; "" if it is a stop word. */
export function stemOf(word: string): string {
  const known = stems.get(word);
  if (known !== undefined) return known;
  if (stems.size >= MAX_STEMS) stems.clear();
  const own = detached(word);
  const stem = STOP_WORDS.has(own) ? "" : porterStem(own);
  stems.set(own, stem);
  return stem;
}

/** A copy that shares no memory with the text that the word was cut from, which may be large. */
function detached(word: string): string {
  let copy = "";
  for (let i = 0; i < word.length; i++) copy += String.fromCharCode(word.charCodeAt(i));
  return copy;
}

const ENGLISH = /^[a-z]{3,}$/;

/** The stem of a word of a–z from 3 letters, as in M. F. Porter, “An algorithm for suffix stripping” (1980). */
export function porterStem(word: string): string {
  if (!ENGLISH.test(word)) return word;
  let stem = word;
  // Step 1a: plurals.
  if (stem.endsWith("sses") || stem.endsWith("ies")) stem = stem.slice(0, -2);
  else if (stem.endsWith("s") && !stem.endsWith("ss")) stem = stem.slice(0, -1);
  // Step 1b: -eed, -ed, -ing.
  if (stem.endsWith("eed")) {
    if (measure(stem.slice(0, -3)) > 0) stem = stem.slice(0, -1);
  } else {
    const base = stem.endsWith("ed")
      ? stem.slice(0, -2)
      : stem.endsWith("ing")
        ? stem.slice(0, -3)
        : undefined;
    if (base !== undefined && hasVowel(base)) {
      stem = base;
      if (/(?:at|bl|iz)$/.test(stem)) stem += "e";
      else if (endsWithDouble(stem) && !/[lsz]$/.test(stem)) stem = stem.slice(0, -1);
      else if (measure(stem) === 1 && endsWithShortSyllable(stem)) stem += "e";
    }
  }
  // Step 1c: -y.
  if (stem.endsWith("y") && hasVowel(stem.slice(0, -1))) stem = `${stem.slice(0, -1)}i`;
  stem = replaceSuffix(stem, STEP_2, 0);
  stem = replaceSuffix(stem, STEP_3, 0);
  stem = replaceSuffix(stem, STEP_4, 1);
  // Step 5: a last -e, and -ll.
  if (stem.endsWith("e")) {
    const base = stem.slice(0, -1);
    const m = measure(base);
    if (m > 1 || (m === 1 && !endsWithShortSyllable(base))) stem = base;
  }
  if (stem.endsWith("ll") && measure(stem) > 1) stem = stem.slice(0, -1);
  return stem;
}

type Suffixes = readonly (readonly [suffix: string, replacement: string])[];

/** Longer suffixes come before their own ends. */
const STEP_2: Suffixes = [
  ["ational", "ate"],
  ["tional", "tion"],
  ["enci", "ence"],
  ["anci", "ance"],
  ["izer", "ize"],
  ["abli", "able"],
  ["alli", "al"],
  ["entli", "ent"],
  ["eli", "e"],
  ["ousli", "ous"],
  ["ization", "ize"],
  ["ation", "ate"],
  ["ator", "ate"],
  ["alism", "al"],
  ["iveness", "ive"],
  ["fulness", "ful"],
  ["ousness", "ous"],
  ["aliti", "al"],
  ["iviti", "ive"],
  ["biliti", "ble"],
];
const STEP_3: Suffixes = [
  ["icate", "ic"],
  ["ative", ""],
  ["alize", "al"],
  ["iciti", "ic"],
  ["ical", "ic"],
  ["ful", ""],
  ["ness", ""],
];
const STEP_4: Suffixes = [
  "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize",
].flatMap((list) => list.split(" ").map((suffix) => [suffix, ""] as const));

/** Replaces the first suffix that the word ends with, if what is before it has more than `least` syllables. */
function replaceSuffix(word: string, suffixes: Suffixes, least: number): string {
  for (const [suffix, replacement] of suffixes) {
    if (!word.endsWith(suffix)) continue;
    const base = word.slice(0, -suffix.length);
    const isAllowed = suffix !== "ion" || /[st]$/.test(base);
    return isAllowed && measure(base) > least ? base + replacement : word;
  }
  return word;
}

function isConsonant(word: string, at: number): boolean {
  const letter = word[at] ?? "";
  if (letter === "y") return at === 0 || !isConsonant(word, at - 1);
  return !"aeiou".includes(letter);
}

/** The number of changes from vowels to consonants. */
function measure(word: string): number {
  let count = 0;
  let wasVowel = false;
  let isAfterConsonant = false;
  for (let i = 0; i < word.length; i++) {
    const letter = word[i] ?? "";
    // `y` is a vowel after a consonant.
    const isVowel: boolean = "aeiou".includes(letter) || (letter === "y" && isAfterConsonant);
    if (wasVowel && !isVowel) count++;
    wasVowel = isVowel;
    isAfterConsonant = !isVowel;
  }
  return count;
}

function hasVowel(word: string): boolean {
  for (let i = 0; i < word.length; i++) if (!isConsonant(word, i)) return true;
  return false;
}

function endsWithDouble(word: string): boolean {
  const last = word.length - 1;
  return last > 0 && word[last] === word[last - 1] && isConsonant(word, last);
}

/** Whether the word ends with consonant, vowel, consonant, the last of which is not w, x or y. */
function endsWithShortSyllable(word: string): boolean {
  const last = word.length - 1;
  return (
    last >= 2 &&
    isConsonant(word, last) &&
    !isConsonant(word, last - 1) &&
    isConsonant(word, last - 2) &&
    !/[wxy]$/.test(word)
  );
}

const PLAIN_NAME = /^[A-Za-z0-9_-]*$/;

/** A text with only its letters and digits, in lower case: `list_Issues` and `listIssues` give the same. */
export function squash(text: string): string {
  if (PLAIN_NAME.test(text)) return text.replace(/[_-]+/g, "").toLowerCase();
  let squashed = "";
  let from = -1;
  for (let at = 0; at <= text.length; at++) {
    const isPart = at < text.length && kindOf(text.charCodeAt(at)) !== OTHER;
    if (isPart && from < 0) from = at;
    else if (!isPart && from >= 0) {
      squashed += text.slice(from, at);
      from = -1;
    }
  }
  return squashed.toLowerCase();
}

/** The distinct groups of three characters of a word, with a mark at its beginning and end. */
export function trigramsOf(word: string): Set<string> {
  const padded = `^${word}$`;
  const trigrams = new Set<string>();
  for (let i = 0; i + 3 <= padded.length; i++) trigrams.add(padded.slice(i, i + 3));
  return trigrams;
}

/** Compares many words with one word by `likeness`. */
export class Likeness {
  readonly #word: string;
  readonly #trigrams: ReadonlySet<string>;
  /** 1 for the hashes of the word's trigrams. */
  readonly #hashes = new Uint8Array(HASHES);

  constructor(word: string) {
    this.#word = word;
    this.#trigrams = trigramsOf(word);
    for (const trigram of this.#trigrams) {
      const hash = hashOf(trigram.charCodeAt(0), trigram.charCodeAt(1), trigram.charCodeAt(2));
      this.#hashes[hash] = 1;
    }
  }

  /** The likeness of a word; may be 0 if it is below `least`. */
  of(word: string, least: number): number {
    if (isOneEdit(this.#word, word)) return likeness(this.#word, word);
    const { size } = this.#trigrams;
    const { length } = word;
    // The number of shared trigrams is at most that of trigrams with a known hash, which costs little to count.
    if (2 * Math.min(size, length) < least * size) return 0;
    let shared = 0;
    let [a, b] = [MARK_START, word.charCodeAt(0)];
    for (let i = 1; i <= length; i++) {
      const c = i < length ? word.charCodeAt(i) : MARK_END;
      shared += this.#hashes[hashOf(a, b, c)] ?? 0;
      [a, b] = [b, c];
    }
    return shared < (least * size) / 2 ? 0 : diceOf(this.#trigrams, trigramsOf(word));
  }
}

/**
 * The likeness of two words, from 0 to 1: Dice's coefficient of their trigrams, or if one typing error makes one word of
 * the other, the share of letters that are right, if that is more.
 */
export function likeness(word: string, other: string): number {
  if (word === other) return 1;
  const dice = diceOf(trigramsOf(word), trigramsOf(other));
  if (!isOneEdit(word, other)) return dice;
  return Math.max(dice, 1 - 1 / Math.max(word.length, other.length));
}

function diceOf(trigrams: ReadonlySet<string>, others: ReadonlySet<string>): number {
  let shared = 0;
  for (const trigram of others) if (trigrams.has(trigram)) shared++;
  return shared === 0 ? 0 : (2 * shared) / (trigrams.size + others.size);
}

/**
 * Whether one typing error makes one word of the other: a letter left out, put in or exchanged, or two neighbouring
 * letters in the wrong order. The same word is one, too.
 */
export function isOneEdit(word: string, other: string): boolean {
  const more = word.length - other.length;
  if (more < -1 || more > 1) return false;
  let start = 0;
  const shorter = Math.min(word.length, other.length);
  while (start < shorter && word.charCodeAt(start) === other.charCodeAt(start)) start++;
  let [end, otherEnd] = [word.length, other.length];
  while (
    end > start &&
    otherEnd > start &&
    word.charCodeAt(end - 1) === other.charCodeAt(otherEnd - 1)
  ) {
    end--;
    otherEnd--;
  }
  if (end - start <= 1 && otherEnd - start <= 1) return true;
  return (
    end - start === 2 &&
    otherEnd - start === 2 &&
    word[start] === other[start + 1] &&
    word[start + 1] === other[start]
  );
}

const HASHES = 4096;
const MARK_START = "^".charCodeAt(0);
const MARK_END = "$".charCodeAt(0);

function hashOf(a: number, b: number, c: number): number {
  return ((a * 31 + b) * 31 + c) & (HASHES - 1);
}
