/** What the answers of the echo servers are made of; peers/echo.c spells it too. */
export const LINE = '  return read(path, "utf8");\n';

/** The text that a call with this key asks for. */
export function answerText(key: number | string, lines: number): string {
  return `${key} ${LINE.repeat(lines)}`;
}

/** How long the answer is on the wire, in bytes, give or take some white space. */
export function answerSize(lines: number): number {
  return 90 + lines * (JSON.stringify(LINE).length - 2);
}
