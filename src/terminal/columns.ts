/**
 * Wraps text at words, to `width` columns. A longer word is not broken. Existing line breaks are kept.
 * @param indent prefix of every line but the first
 * @param first prefix of the first line
 */
export function wrapText(text: string, width: number, indent = "", first = indent): string {
  const lines: string[] = [];
  for (const paragraph of text.split("\n")) {
    let line = lines.length === 0 ? first : indent;
    let columns = columnsOf(line);
    let isEmpty = true;
    for (const word of paragraph.split(" ")) {
      const needed = columnsOf(word);
      if (!isEmpty && columns + 1 + needed > width) {
        lines.push(line);
        line = indent;
        columns = columnsOf(line);
        isEmpty = true;
      }
      line += isEmpty ? word : ` ${word}`;
      columns += isEmpty ? needed : needed + 1;
      isEmpty = false;
    }
    lines.push(line.trimEnd());
  }
  return lines.join("\n");
}

/** The text, truncated with an ellipsis if it is wider than `width` columns. */
export function truncate(text: string, width: number): string {
  if (columnsOf(text) <= width) return text;
  let columnsLeft = width - 1;
  let shown = "";
  for (const character of text) {
    columnsLeft -= columnsOf(character);
    if (columnsLeft < 0) break;
    shown += character;
  }
  return `${shown}…`;
}

/** Combining marks have no column of their own. */
const COMBINING = /\p{Mn}/gu;
/** Characters that take two terminal columns: East Asian scripts and most emoji. */
const DOUBLE_WIDTH =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/gu;

/** Width of a text without control characters, in terminal columns. */
export function columnsOf(text: string): number {
  // oxlint-disable-next-line no-control-regex
  if (/^[\u0000-\u02ff]*$/.test(text)) return text.length;
  const visible = text.replace(COMBINING, "");
  return Array.from(visible).length + (visible.match(DOUBLE_WIDTH)?.length ?? 0);
}
