import { Buffer } from "node:buffer";

/** Minimum length of a redacted value, in characters. A shorter one occurs by chance in most texts. */
const MIN_SECRET_LENGTH = 4;
/** Minimum size, in bytes, of a secret that is also redacted inside Base64 text, such as an encoded `user:password`. */
const MIN_BASE64_SECRET = 6;
const MASK = "[redacted]";
/** Maximum length of the RegExp, in characters. Some runtimes reject a longer RegExp with an error that quotes it. */
const MAX_PATTERN_LENGTH = 30_000;

/** Replaces secrets by `[redacted]`, also where they are encoded as JSON, in URLs or in Base64. */
export class Redactor {
  /** The length of the longest encoded secret, in characters: a secret may extend this far beyond a cut in a text. */
  readonly maxEncodedLength: number;
  /** Secrets that are too long for the pattern, searched for one by one, the longest first. */
  readonly #longEncodings: readonly string[];
  readonly #pattern: RegExp | undefined;

  constructor(secrets: readonly string[]) {
    const encodings = [...new Set(secrets.flatMap(encodingsOf))].sort(
      (a, b) => b.length - a.length,
    );
    this.maxEncodedLength = encodings[0]?.length ?? 0;
    const escaped = encodings.map(escapeRegExp);
    let remaining = MAX_PATTERN_LENGTH;
    const at =
      encodings.length -
      escaped.toReversed().findIndex((pattern) => (remaining -= pattern.length + 1) < 0);
    const from = remaining < 0 ? at : 0;
    this.#longEncodings = encodings.slice(0, from);
    if (from < encodings.length) this.#pattern = new RegExp(escaped.slice(from).join("|"), "g");
  }

  apply(text: string): string {
    let redacted = text;
    for (const encoded of this.#longEncodings) redacted = redacted.replaceAll(encoded, MASK);
    return this.#pattern === undefined ? redacted : redacted.replace(this.#pattern, MASK);
  }

  /** Redacts a text and cuts it to `length` characters; a secret at the cut is left out whole. */
  applyTruncated(text: string, length: number): string {
    if (text.length <= length + this.maxEncodedLength) return this.apply(text).slice(0, length);
    const redacted = this.apply(text.slice(0, length + this.maxEncodedLength));
    const end = Math.max(
      redacted.lastIndexOf(MASK) + MASK.length,
      redacted.length - this.maxEncodedLength,
    );
    return redacted.slice(0, Math.min(end, length));
  }

  /**
   * Redacts a text that may begin in the middle of a secret: leaves out the start of the text, which may be the rest of
   * that secret.
   */
  applyToFragment(text: string): string {
    const redacted = this.apply(text);
    const first = redacted.indexOf(MASK);
    return redacted.slice(
      first < 0 ? this.maxEncodedLength : Math.min(first, this.maxEncodedLength),
    );
  }
}

/**
 * Returns the secret and each of its lines (logs are read by lines), with their encodings in JSON, URLs, forms, HTML,
 * string literals and Base64, and with letters that are composed differently or were read in another character set.
 */
function encodingsOf(secret: string): string[] {
  // A secret that is URL-encoded itself may be shown decoded.
  const decoded = urlDecode(secret);
  const parts = [secret, decoded, ...secret.split(/\r?\n/)].flatMap((part) =>
    NON_ASCII.test(part) ? [part, part.normalize("NFC"), part.normalize("NFD")] : [part],
  );
  return [...new Set(parts)]
    .filter((part) => part.length >= MIN_SECRET_LENGTH)
    .flatMap((part) => {
      const urlEncoded = encodeURIComponent(part.toWellFormed());
      const formEncoded = new URLSearchParams([["", part.toWellFormed()]]).toString().slice(1);
      return [
        part,
        JSON.stringify(part).slice(1, -1),
        urlEncoded,
        urlEncoded.replace(/%[0-9A-F]{2}/g, (escape) => escape.toLowerCase()),
        formEncoded,
        // Some encoders leave the characters that URLs reserve, others encode more of them (RFC 3986).
        encodeURI(part.toWellFormed()),
        urlEncoded.replace(/[!'()*~]/g, percentOf),
        JSON.stringify(part).slice(1, -1).replaceAll("/", "\\/"),
        part.replace(/[&<>"']/g, (character) => HTML_ENTITIES[character] ?? character),
        ...base64EncodingsOf(Buffer.from(part)),
        ...(NON_ASCII.test(part) ? nonAsciiEncodingsOf(part) : []),
      ];
    });
}

const NON_ASCII = /[^\0-\x7f]/;
const NON_ASCII_UNITS = /[^\0-\x7f]/g;
const NON_ASCII_CHARACTERS = /[^\0-\x7f]/gu;
const HTML_ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function percentOf(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}

/** The encodings that only letters outside ASCII have. */
function nonAsciiEncodingsOf(part: string): string[] {
  const wellFormed = part.toWellFormed();
  // UTF-8 that was read as Latin-1.
  const misread = Buffer.from(part).toString("latin1");
  const isLatin1 = /^[\0-\xff]*$/.test(part);
  const latin1 = Buffer.from(part, "latin1");
  const byCharacter = (escape: (code: number) => string): string =>
    part.replace(NON_ASCII_CHARACTERS, (character) => escape(character.codePointAt(0) ?? 0));
  const escaped = [lowerHex, upperHex].flatMap((hex) => {
    const asciiJson = (text: string): string =>
      JSON.stringify(text)
        .slice(1, -1)
        .replace(NON_ASCII_UNITS, (unit) => `\\u${hex(unit.charCodeAt(0)).padStart(4, "0")}`);
    const byBytes = (prefix: string): string =>
      wellFormed.replace(NON_ASCII_CHARACTERS, (character) =>
        [...Buffer.from(character)].map((byte) => prefix + hex(byte)).join(""),
      );
    const latin1Percent = (byte: number): string => {
      const character = String.fromCharCode(byte);
      return /[\w.~-]/.test(character) ? character : `%${hex(byte).padStart(2, "0")}`;
    };
    return [
      asciiJson(part),
      asciiJson(part).replaceAll("/", "\\/"),
      asciiJson(misread),
      byCharacter((code) => `\\u{${hex(code)}}`),
      byCharacter((code) => `&#x${hex(code)};`),
      byBytes("\\x"),
      byBytes("%"),
      ...(isLatin1 ? [[...latin1].map(latin1Percent).join("")] : []),
    ];
  });
  return [
    ...escaped,
    byCharacter((code) => `&#${code};`),
    misread,
    // Letters in Latin-1, as HTTP headers have them.
    ...(isLatin1 ? base64EncodingsOf(latin1) : []),
  ];
}

function lowerHex(code: number): string {
  return code.toString(16);
}

function upperHex(code: number): string {
  return code.toString(16).toUpperCase();
}

function urlDecode(secret: string): string {
  try {
    return decodeURIComponent(secret);
  } catch {
    return secret;
  }
}

/**
 * Returns the Base64 and base64url forms of a text that is a part of longer data, like the password in `user:password`.
 * There are three forms, one for each alignment; only the characters that do not depend on adjacent bytes are returned.
 */
function base64EncodingsOf(bytes: Uint8Array): string[] {
  if (bytes.length < MIN_BASE64_SECRET) return [];
  const whole = Buffer.from(bytes).toString("base64");
  const parts = [0, 1, 2].map((before) => {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    const first = Math.ceil((before * 8) / 6);
    return encoded.slice(first, Math.floor(((before + bytes.length) * 8) / 6));
  });
  return [whole, whole.replace(/(?<!=)=+$/, ""), ...parts].flatMap((part) => [
    part,
    part.replaceAll("+", "-").replaceAll("/", "_"),
  ]);
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
