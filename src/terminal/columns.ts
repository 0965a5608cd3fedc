import { withoutMarks } from "./visible.ts";

/**
 * Words that stand on one line, because people copy them: a text in backticks, the command after `by hand: `, and a
 * command of toolmux after a colon, a parenthesis, `run`, or a column gap, until the sentence, the parenthesis or the
 * column ends.
 */
const WHOLE =
  /`[^`]+`\S*|(?<=by hand(?: \([^)]*\))?: )\S.*|(?<=(?<!Usage): |\(|\brun | {2})toolmux(?: (?:'[^']*'|"[^"]*"|[^\s'"(#])+(?<![.,;)]))+[.,;)]*/g;

/**
 * Wraps text at words, to `width` columns. A longer word is not broken, and commands to copy are words
 * (see `WHOLE`). Existing line breaks are kept.
 * @param indent prefix of every line but the first
 * @param first prefix of the first line
 */
export function wrapText(text: string, width: number, indent = "", first = indent): string {
  const lines: string[] = [];
  for (const paragraph of text.split("\n")) {
    let line = lines.length === 0 ? first : indent;
    let columns = columnsOf(line);
    let isEmpty = true;
    for (const word of wordsOf(paragraph)) {
      const needed = columnsOf(word);
      if (!isEmpty && columns + 1 + needed > width) {
        lines.push(line.trimEnd());
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

/** The parts of a text that are not broken. Joined with spaces, they are the text. */
function wordsOf(text: string): readonly string[] {
  const words: string[] = [];
  let from = 0;
  for (const { 0: whole, index } of text.matchAll(WHOLE)) {
    const before = text.slice(from, index).split(" ");
    // Text directly before it, such as a parenthesis, belongs to it.
    const prefix = before.pop() ?? "";
    words.push(...before, prefix + whole);
    from = index + whole.length;
    if (text[from] === " ") from++;
    else if (from < text.length) {
      const rest = /^\S*/.exec(text.slice(from))?.[0] ?? "";
      words.push((words.pop() ?? "") + rest);
      from += rest.length;
      if (text[from] === " ") from++;
    }
    if (from >= text.length) return words;
  }
  return [...words, ...text.slice(from).split(" ")];
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

/** The text, truncated after a word with an ellipsis if it is wider than `width` columns. */
export function truncateAtWord(text: string, width: number): string {
  if (columnsOf(text) <= width) return text;
  const [line = ""] = wrapText(text, width - 2).split("\n");
  return truncate(`${line.replace(/[,;:]$/, "")} …`, width);
}

/** Combining marks have no column of their own. */
const COMBINING = /\p{Mn}/gu;
/** Characters that take two terminal columns: East Asian scripts and most emoji. */
const DOUBLE_WIDTH =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/gu;

/** Width of a text in terminal columns. Its only control characters are the codes of our own colors. */
export function columnsOf(colored: string): number {
  const text = withoutMarks(colored);
  // oxlint-disable-next-line no-control-regex
  if (/^[\u0000-\u02ff]*$/.test(text)) return text.length;
  const visible = text.replace(COMBINING, "");
  return Array.from(visible).length + (visible.match(DOUBLE_WIDTH)?.length ?? 0);
}
