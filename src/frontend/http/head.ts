import type { Buffer } from "node:buffer";
import type { Fields, QueryHead } from "./query.ts";

/** The head of a request, and what it says of what follows. */
export interface RequestHead extends QueryHead {
  /** How long its body is, in bytes, or that it comes in chunks. */
  readonly body: number | "chunked";
  /** Whether its client waits to be told that the body is wanted. */
  readonly isWaiting: boolean;
  /** Whether another request may follow on the connection. */
  readonly isLasting: boolean;
  /** Whether its client knows of chunks. */
  readonly takesChunks: boolean;
}

/** What is no head of a request that is served: the status to say that with. */
export interface Fault {
  readonly fault: 400 | 417 | 431 | 501 | 505;
}

/** A longer head is refused, in bytes. */
export const LONGEST_HEAD = 16 * 1024;

const END = "\r\n\r\n";
const LINE_END = "\r\n";
/** Absolute addresses are for relays, but whoever sends one means the same (RFC 9112, 3.2.2). */
const REQUEST_LINE =
  /^([!#$%&'*+.^_`|~\w-]{1,32}) (?:[Hh][Tt]{2}[Pp]:\/\/([^/?#\s]+))?(\/[\x21-\x7e]*) HTTP\/1\.([01])$/;
const OTHER_VERSION = / HTTP\/(?:0|[2-9])[.\d]*$/;
/** No space before the colon, no line that goes on with the last one, nothing that ends lines elsewhere (RFC 9112, 5). */
// oxlint-disable-next-line no-control-regex
const FIELD = /^([!#$%&'*+.^_`|~\w-]+):[ \t]?([^\x00-\x08\x0a-\x1f\x7f]*)$/;
/** A name or an address, and a port: nobody, no path and no second one beside it (RFC 9112, 3.2). */
const HOST = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;
const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;

/**
 * Reads the head of a request from its first bytes. It is strict: what others might take for the head of another request is
 * refused, since somebody in front of this may have let it pass for what it is not.
 * @returns it, and where what follows it begins; undefined if more has to come.
 */
export function readHead(
  bytes: Buffer,
): { readonly head: RequestHead; readonly end: number } | Fault | undefined {
  const at = bytes.indexOf(END);
  if (at < 0 ? bytes.length > LONGEST_HEAD : at > LONGEST_HEAD) return { fault: 431 };
  if (at < 0) return canBegin(bytes) ? undefined : { fault: 400 };
  const [first = "", ...lines] = bytes.toString("latin1", 0, at).split(LINE_END);
  const [, method = "", authority, target = "", minor] = REQUEST_LINE.exec(first) ?? [];
  if (minor === undefined) return { fault: OTHER_VERSION.test(first) ? 505 : 400 };
  const fields = new FieldMap();
  for (const line of lines) {
    const [, name, value] = FIELD.exec(line) ?? [];
    if (name === undefined || value === undefined) return { fault: 400 };
    if (!fields.add(name.toLowerCase(), trim(value))) return { fault: 400 };
  }
  const isNew = minor === "1";
  if (isNew && fields.get("host") === null) return { fault: 400 };
  if (authority !== undefined) fields.replace("host", authority);
  if (!HOST.test(fields.get("host") ?? "")) return { fault: 400 };
  const body = bodyOf(fields, isNew);
  if (typeof body === "object") return body;
  const expected = fields.get("expect");
  if (expected !== null && expected.toLowerCase() !== "100-continue") return { fault: 417 };
  const head: RequestHead = {
    method,
    target,
    fields,
    body,
    isWaiting: isNew && expected !== null,
    isLasting: isNew && !/\bclose\b/i.test(fields.get("connection") ?? ""),
    takesChunks: isNew,
  };
  return { head, end: at + END.length };
}

/** Without the blanks around it: in the pattern of a line these would be tried at every length. */
function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  while (start < end && isBlank(text.charCodeAt(end - 1))) end--;
  return end - start === text.length ? text : text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}

/** Whether a head may begin so. Who speaks something else, such as TLS, waits for an answer, and shall have it at once. */
function canBegin(bytes: Buffer): boolean {
  const [first = CR] = bytes;
  const isText = first > SPACE && first < 0x7f;
  if (!isText && !(first === CR && bytes.length <= 1)) return false;
  const end = bytes.indexOf(LF);
  return end < 0 || bytes[end - 1] === CR;
}

/** How long the body is. Two who read a connection must never differ in that. */
function bodyOf(fields: Fields, isNew: boolean): RequestHead["body"] | Fault {
  const coding = fields.get("transfer-encoding");
  const length = fields.get("content-length");
  if (coding === null) {
    if (length === null) return 0;
    return /^\d{1,15}$/.test(length) ? Number(length) : { fault: 400 };
  }
  if (length !== null || !isNew) return { fault: 400 };
  return coding.toLowerCase() === "chunked" ? "chunked" : { fault: 501 };
}

/** What there may be one of. */
const SINGLE: ReadonlySet<string> = new Set(["host", "content-length", "transfer-encoding"]);

class FieldMap implements Fields {
  readonly #values = new Map<string, string>();

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  [Symbol.iterator](): Iterator<[string, string]> {
    return this.#values[Symbol.iterator]();
  }

  /** @returns false if there must not be another one of that name */
  add(name: string, value: string): boolean {
    const before = this.#values.get(name);
    this.#values.set(name, before === undefined ? value : `${before}, ${value}`);
    return before === undefined || !SINGLE.has(name);
  }

  replace(name: string, value: string): void {
    this.#values.set(name, value);
  }
}
