import { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { isDigit, readString, parseRange } from "../base/json.ts";
import type { RequestId } from "./message.ts";

/** No id that the hub assigns has more digits. */
const MAX_ID_DIGITS = 15;

/** Parses a request id: a string or a number. Undefined for anything else, including null. */
export function readId(bytes: Uint8Array, range: ByteRange): RequestId | undefined {
  const key = idKeyOf(bytes, range);
  return key === undefined ? undefined : { key, bytes, start: range.start, end: range.end };
}

function idKeyOf(bytes: Uint8Array, range: ByteRange): string | number | undefined {
  const digits = parseDigits(bytes, range.start, range.end);
  if (digits !== undefined) return digits;
  const first = bytes[range.start];
  const text = readString(bytes, range);
  if (text !== undefined) return `"${text}`;
  if (first !== 0x2d && !isDigit(first)) return undefined;
  const literal = textOf(bytes, range.start, range.end);
  const value = Number(literal);
  return Number.isSafeInteger(value) ? value : literal;
}

/** Prefix of the ids of our requests to clients: a string cannot equal a numeric id of the client. */
const OWN_ID_PREFIX = "toolmux-";

export function formatOwnId(number: number): string {
  return OWN_ID_PREFIX + String(number);
}

const OWN_ID_PATTERN = new RegExp(`^(?:${OWN_ID_PREFIX})?(\\d{1,15})$`);

/** Parses an id that the hub assigned; also accepts `7.0` and `"7"`, which other clients accept too. */
export function readOwnId(bytes: Uint8Array, range: ByteRange): number | undefined {
  const digits = parseDigits(bytes, range.start, range.end);
  if (digits !== undefined) return digits;
  const value = parseRange(bytes, range);
  const number = typeof value === "string" ? Number(OWN_ID_PATTERN.exec(value)?.[1] ?? NaN) : value;
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0
    ? number
    : undefined;
}

/** An unguessable token: base64url of that many random bytes. (Loading node:crypto would dominate start-up time.) */
export function randomToken(byteCount = 32): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(byteCount))).toString("base64url");
}

/** The value of a run of digits; undefined if it is empty, too long or has a leading zero. */
export function parseDigits(bytes: Uint8Array, start: number, end: number): number | undefined {
  if (end <= start || end - start > MAX_ID_DIGITS) return undefined;
  if (bytes[start] === 0x30 && end - start > 1) return undefined;
  let value = 0;
  for (let i = start; i < end; i++) {
    if (!isDigit(bytes[i])) return undefined;
    value = value * 10 + ((bytes[i] ?? 0x30) - 0x30);
  }
  return value;
}
