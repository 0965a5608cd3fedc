import type { Splice } from "./change.ts";

/** A line of a text: `to` is the offset after its line end, `text` excludes the line end. */
export interface Line {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** The lines of a text, for edits of whole lines. */
export class Lines {
  readonly #text: string;
  readonly all: readonly Line[];
  /** The line end of the text. */
  readonly end: string;
  readonly #isComment: RegExp;

  /** @param comment matches lines that hold only a comment */
  constructor(text: string, comment: RegExp) {
    this.#text = text;
    this.#isComment = comment;
    const all: Line[] = [];
    for (let from = 0; from < text.length;) {
      const next = text.indexOf("\n", from);
      const to = next < 0 ? text.length : next + 1;
      all.push({ from, to, text: text.slice(from, to).replace(/\r?\n$/, "") });
      from = to;
    }
    this.all = all;
    this.end = /\r\n/.test(all[0] === undefined ? "" : text.slice(0, all[0].to)) ? "\r\n" : "\n";
  }

  /** The index of the line at an offset, from 0. */
  find(offset: number): number {
    const found = this.all.findIndex(({ to }) => offset < to);
    return found < 0 ? Math.max(0, this.all.length - 1) : found;
  }

  isBlank(line: number): boolean {
    return this.all[line]?.text.trim() === "";
  }

  isComment(line: number): boolean {
    return this.#isComment.test(this.all[line]?.text ?? "");
  }

  /** The first of the comment lines directly above a line, or the line itself. */
  above(line: number): number {
    let first = line;
    while (first > 0 && this.isComment(first - 1)) first--;
    return first;
  }

  /**
   * The last of the comment lines directly below a line, or the line itself. Comments directly above further text
   * belong to that.
   */
  below(line: number): number {
    let last = line;
    while (this.isComment(last + 1)) last++;
    const belongsBelow = last + 1 < this.all.length && !this.isBlank(last + 1);
    return belongsBelow ? line : last;
  }

  /** Removes lines `first` to `last` inclusive, with blank lines that become superfluous. */
  remove(first: number, last: number): Splice {
    let from = first;
    let to = last;
    while (this.isBlank(to + 1)) to++;
    const isFirst = this.all.slice(0, first).every((line) => line.text.trim() === "");
    const isLast = to >= this.all.length - 1;
    if (isLast) while (from > 0 && this.isBlank(from - 1)) from--;
    // Between two blank gaps, one stays.
    else if (!(isFirst || this.isBlank(first - 1))) to = last;
    return { from: this.all[from]?.from ?? 0, to: this.all[to]?.to ?? this.#text.length, text: "" };
  }

  /** Replaces lines `first` to `last` inclusive by other lines. */
  replace(block: readonly string[], first: number, last: number): Splice {
    const from = this.all[first]?.from ?? 0;
    const to = this.all[last]?.to ?? this.#text.length;
    const isOpen = !this.#text.slice(0, to).endsWith("\n");
    return { from, to, text: block.join(this.end) + (isOpen ? "" : this.end) };
  }

  /**
   * Inserts lines behind a line, with blank lines around them where there are none. @param afterLine the index of that
   * line; -1: at the start
   */
  insert(block: readonly string[], behind: number): Splice {
    const at = this.all[behind]?.to ?? 0;
    const isOpen = behind >= 0 && !this.#text.slice(0, at).endsWith("\n");
    const isAlone = this.all.every((line) => line.text.trim() === "");
    const gap = behind < 0 || isAlone || this.isBlank(behind) ? [] : [""];
    const isFollowed = behind + 1 < this.all.length && !this.isBlank(behind + 1);
    const lines = [...gap, ...block, ...(isFollowed ? [""] : [])];
    const text = lines.map((line) => line + this.end).join("");
    // Keeps a text without a final line end that way.
    return isOpen
      ? { from: at, to: at, text: this.end + text.slice(0, -this.end.length) }
      : { from: at, to: at, text };
  }
}
