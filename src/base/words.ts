/** Scans long strings four bytes at a time: arguments of 1 MB are mostly one string. */

/** The bytes as 32-bit words, from the first aligned byte on. */
export function toInt32View({ buffer, byteOffset, length }: Uint8Array): Int32Array {
  const start = (byteOffset + 3) & ~3;
  return new Int32Array(buffer, start, Math.max(byteOffset + length - start, 0) >> 2);
}

/**
 * Skips words without a quote, a backslash or a control character. The test is whether a subtraction borrows into the
 * top bit of a byte. It does so for each of these characters, and for another byte only behind one of them in the same
 * word.
 * @param words view of the bytes
 * @param at the three bytes before it must be none of these characters, as the scan starts at the word that contains it
 * @returns the index of the first word that may contain one of them, or the end of the last word
 */
export function skipPlainChars(
  int32View: Int32Array,
  { byteOffset }: Uint8Array,
  at: number,
): number {
  const start = int32View.byteOffset - byteOffset;
  let i = (at - start) >> 2;
  for (; i < int32View.length; i++) {
    const word = int32View[i] as number;
    const control = word - 0x20202020;
    const quote = (word ^ 0x22222222) - 0x01010101;
    const backslash = (word ^ 0x5c5c5c5c) - 0x01010101;
    if (((control | quote | backslash) & ~word & 0x80808080) !== 0) break;
  }
  return start + i * 4;
}
