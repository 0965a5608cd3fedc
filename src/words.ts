/** The insides of long strings, four bytes at a time: arguments of a megabyte are mostly one string. */

/** The bytes as words, from the first one on that is aligned. */
export function wordsOf({ buffer, byteOffset, length }: Uint8Array): Int32Array {
  const start = (byteOffset + 3) & ~3;
  return new Int32Array(buffer, start, Math.max(byteOffset + length - start, 0) >> 2);
}

/**
 * Passes over words without a quote, a backslash or a control character. The quick question is whether subtracting borrows
 * into the top bit of a byte. It does for each of these; for another one only behind one of these in the same word.
 * @param words of the bytes
 * @param at where the three bytes before are none of these, so that the word may begin there
 * @returns the index of the first byte of a word that may have one of them, or is not there any more
 */
export function skipPlain(words: Int32Array, { byteOffset }: Uint8Array, at: number): number {
  const start = words.byteOffset - byteOffset;
  let i = (at - start) >> 2;
  for (; i < words.length; i++) {
    const word = words[i] as number;
    const control = word - 0x20202020;
    const quote = (word ^ 0x22222222) - 0x01010101;
    const backslash = (word ^ 0x5c5c5c5c) - 0x01010101;
    if (((control | quote | backslash) & ~word & 0x80808080) !== 0) break;
  }
  return start + i * 4;
}
