import { Buffer, isUtf8 } from "node:buffer";

export const CR = 0x0d;
export const LF = 0x0a;
const METHOD_KEY = Buffer.from('"method"');
const ESCAPED_LETTERS = [Buffer.from("\\u006"), Buffer.from("\\u007")];
const ESCAPE = Buffer.from("\\u00");
/** In most texts there is none at all, and a search for two bytes costs a third of one for four in some. */
const ESCAPE_START = ESCAPE.subarray(0, 2);

/** What searching has shown of some bytes. What is not in them is in no part of them either. */
export interface Sight {
  /** A line reader would see a line end in them. */
  readonly hasBreak: boolean;
  /** A `method` key may be in them, spelled or escaped. */
  readonly hidesMethod: boolean;
}

export function see(bytes: Buffer): Sight {
  return { hasBreak: hasLineBreak(bytes), hidesMethod: hidesMethod(bytes) };
}

/** Whether a line reader would see a line end in it. */
export function hasLineBreak(bytes: Buffer): boolean {
  return bytes.includes(CR) || bytes.includes(LF);
}

/** Whether a `method` key may be in it, spelled or escaped. */
function hidesMethod(bytes: Buffer): boolean {
  if (bytes.includes(METHOD_KEY)) return true;
  if (!bytes.includes(ESCAPE_START)) return false;
  return bytes.includes(ESCAPE) && ESCAPED_LETTERS.some((letter) => bytes.includes(letter));
}

/**
 * The sight of a chunk, for the lines that are cut from it at LFs; looked for when it is first wanted. A search is a native
 * call, which costs as much as what it searches if that is a short line: one for a chunk instead of several for each line
 * is a fifth of all that a small call costs.
 */
export class ChunkSight implements Sight {
  readonly #chunk: Buffer;
  /** A line in it was no message. */
  isTorn = false;
  #hasBreak: boolean | undefined;
  #hidesMethod: boolean | undefined;
  #isText: boolean | undefined;

  constructor(chunk: Buffer) {
    this.#chunk = chunk;
  }

  get hasBreak(): boolean {
    return (this.#hasBreak ??= this.#chunk.includes(CR));
  }

  get hidesMethod(): boolean {
    return (this.#hidesMethod ??= hidesMethod(this.#chunk));
  }

  /**
   * Whether all lines that are whole in the chunk are valid UTF-8. Lines before and behind them may be cut within a character.
   * @param first where the first whole line begins
   */
  isText(first: number): boolean {
    const chunk = this.#chunk;
    return (this.#isText ??=
      isUtf8(chunk) || isUtf8(chunk.subarray(first, chunk.lastIndexOf(LF) + 1)));
  }
}
