import { Buffer, isUtf8 } from "node:buffer";
import { bufferOf, textOf, utf8 } from "../base/bytes.ts";
import { parseMessage } from "./parse.ts";
import { bytesOf, type InvalidMessage, type Message } from "./message.ts";

const EMPTY = Buffer.alloc(0);

/** Validates UTF-8 that arrives in pieces. A character may be split between pieces. */
export class Utf8Validator {
  /** The first bytes, at most three, of a character that is split by the end of a piece. */
  #partialCharacter: Buffer = EMPTY;
  #isValid = true;

  push(piece: Buffer): void {
    if (!this.#isValid || piece.length === 0) return;
    let from = 0;
    if (this.#partialCharacter.length > 0) {
      from = characterLength(this.#partialCharacter[0] ?? 0) - this.#partialCharacter.length;
      const character = Buffer.concat([this.#partialCharacter, piece.subarray(0, from)]);
      if (piece.length < from) {
        this.#partialCharacter = character;
        return;
      }
      this.#partialCharacter = EMPTY;
      this.#isValid = isUtf8(character);
    }
    const end = endOfLastCharacter(piece, from);
    if (end < piece.length) this.#partialCharacter = Buffer.from(piece.subarray(end));
    const whole = from === 0 && end === piece.length ? piece : piece.subarray(from, end);
    this.#isValid &&= isUtf8(whole);
  }

  /** Whether all pieces so far, taken as a complete text, are valid UTF-8. */
  get isValid(): boolean {
    return this.#isValid && this.#partialCharacter.length === 0;
  }
}

/** The offset at which the last character that is complete in the piece ends. */
function endOfLastCharacter(piece: Buffer, from: number): number {
  const { length } = piece;
  for (let at = length - 1; at >= from && at >= length - 3; at--) {
    const byte = piece[at] as number;
    if (byte < 0x80) return length;
    // The first byte of a character gives its length; continuation bytes are 0x80 to 0xbf.
    if (byte >= 0xc0) return at + characterLength(byte) > length ? at : length;
  }
  return length;
}

/** Length in bytes of the character that starts with this byte; 1 if no character starts with it. */
function characterLength(first: number): number {
  if (first >= 0xf0) return first < 0xf8 ? 4 : 1;
  return first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

/** Replaces invalid sequences by U+FFFD, as `TextDecoder` does (WHATWG Encoding, UTF-8 decoder). */
export function replaceInvalidUtf8(bytes: Buffer): Buffer {
  const replaced = utf8(textOf(bytes));
  return Buffer.from(replaced.buffer, replaced.byteOffset, replaced.length);
}

/**
 * Replaces invalid UTF-8 in a message from a server by U+FFFD.
 * @param onRepaired called for each message that contained invalid UTF-8
 */
export function repairUtf8(message: Message, onRepaired: () => void): Message {
  if (message.kind === "batch") {
    return { kind: "batch", items: message.items.map((item) => repairUtf8(item, onRepaired)) };
  }
  const bytes = bytesOf(message);
  if (isUtf8(bytes)) return message;
  const repaired = parseMessage(replaceInvalidUtf8(bytes));
  if (repaired.kind !== "invalid") onRepaired();
  return repaired;
}

/** Turns a message from a client, or each message of a batch, into kind `invalid` if it is not valid UTF-8. */
export function rejectInvalidUtf8(message: Message): Message {
  if (message.kind === "batch")
    return { kind: "batch", items: message.items.map(rejectInvalidUtf8) };
  const bytes = bytesOf(message);
  return message.kind === "invalid" || isUtf8(bytes) ? message : invalidUtf8Message(message, bytes);
}

function invalidUtf8Message(
  parsed: NonNullable<InvalidMessage["parsed"]>,
  bytes: Buffer,
): InvalidMessage {
  const id = parsed.kind === "request" ? parsed.id : undefined;
  return {
    kind: "invalid",
    bytes,
    start: 0,
    end: bytes.length,
    code: "parseError",
    reason: "the message is not valid UTF-8",
    // An id that is not valid UTF-8 itself cannot be sent back.
    id: id !== undefined && isUtf8(bufferOf(id)) ? id : undefined,
    parsed,
  };
}
