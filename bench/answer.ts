/** The line of text of which the echo servers' answers consist. peers/echo.c has its own copy. */
export const LINE = '  return read(path, "utf8");\n';

/** The text of the correct answer to a call with the given key. */
export function answerText(key: number | string, lines: number): string {
  return `${key} ${LINE.repeat(lines)}`;
}

/** Approximate size of an answer as it is sent, in bytes. */
export function answerSize(lines: number): number {
  return 90 + lines * (JSON.stringify(LINE).length - 2);
}
