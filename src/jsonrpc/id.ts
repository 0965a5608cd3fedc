import { Buffer } from "node:buffer";
import { type Range, textOf } from "../base/bytes.ts";
import { isDigit, stringOf, valueOf } from "../base/json.ts";
import type { Id } from "./message.ts";

/** No id that the hub assigns has more digits. */
const MAX_DIGITS = 15;

/** Parses a request id: a string or a number. Undefined for anything else, including null. */
export function readId(bytes: Uint8Array, range: Range): Id | undefined {
  const key = keyOf(bytes, range);
  return key === undefined ? undefined : { key, of: bytes, start: range.start, end: range.end };
}

function keyOf(bytes: Uint8Array, range: Range): string | number | undefined {
  const plain = plainInteger(bytes, range.start, range.end);
  if (plain !== undefined) return plain;
  const first = bytes[range.start];
  const text = stringOf(bytes, range);
  if (text !== undefined) return `"${text}`;
  if (first !== 0x2d && !isDigit(first)) return undefined;
  const spelled = textOf(bytes, range.start, range.end);
  const value = Number(spelled);
  return Number.isSafeInteger(value) ? value : spelled;
}

/** Prefix of the ids of our requests to clients: a string cannot equal a numeric id of the client. */
const ASK = "toolmux-";

export function askId(number: number): string {
  return ASK + String(number);
}

const OURS = new RegExp(`^(?:${ASK})?(\\d{1,15})$`);

/** Parses an id that the hub assigned; also accepts `7.0` and `"7"`, which other clients accept too. */
export function integerOf(bytes: Uint8Array, range: Range): number | undefined {
  const plain = plainInteger(bytes, range.start, range.end);
  if (plain !== undefined) return plain;
  const value = valueOf(bytes, range);
  const number = typeof value === "string" ? Number(OURS.exec(value)?.[1] ?? NaN) : value;
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0
    ? number
    : undefined;
}

/** An unguessable token: base64url of that many random bytes. (Loading node:crypto would dominate start-up time.) */
export function makeSecret(bytes = 32): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(bytes))).toString("base64url");
}

/** The value of a run of digits; undefined if it is empty, too long or has a leading zero. */
export function plainInteger(bytes: Uint8Array, start: number, end: number): number | undefined {
  if (end <= start || end - start > MAX_DIGITS) return undefined;
  if (bytes[start] === 0x30 && end - start > 1) return undefined;
  let value = 0;
  for (let i = start; i < end; i++) {
    if (!isDigit(bytes[i])) return undefined;
    value = value * 10 + ((bytes[i] ?? 0x30) - 0x30);
  }
  return value;
}
