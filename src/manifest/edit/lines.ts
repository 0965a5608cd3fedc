import type { Splice } from "./change.ts";

/** A line of a text: `to` is behind its end, `text` is without it. */
export interface Line {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** The lines of a text, and what can be told of places in it. */
export class Lines {
  readonly #text: string;
  readonly all: readonly Line[];
  /** How its lines end. */
  readonly end: string;
  readonly #isComment: RegExp;

  /** @param comment how a line begins that is nothing but a comment */
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

  /** The number of the line that holds a place, from 0. */
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

  /** The first line of the comments that stand directly above a line, or that line itself. */
  above(line: number): number {
    let first = line;
    while (first > 0 && this.isComment(first - 1)) first--;
    return first;
  }

  /** The last line of the comments directly below a line, or that line itself; those that belong to what follows do not count. */
  below(line: number): number {
    let last = line;
    while (this.isComment(last + 1)) last++;
    const belongsBelow = last + 1 < this.all.length && !this.isBlank(last + 1);
    return belongsBelow ? line : last;
  }

  /** Takes lines out, with the blank ones that nothing needs any more then. Both count. */
  remove(first: number, last: number): Splice {
    let from = first;
    let to = last;
    while (this.isBlank(to + 1)) to++;
    const isFirst = this.all.slice(0, first).every((line) => line.text.trim() === "");
    const isLast = to >= this.all.length - 1;
    if (isLast) while (from > 0 && this.isBlank(from - 1)) from--;
    // One gap is enough where there were two.
    else if (!(isFirst || this.isBlank(first - 1))) to = last;
    return { from: this.all[from]?.from ?? 0, to: this.all[to]?.to ?? this.#text.length, text: "" };
  }

  /** Puts a block of whole lines in the place of others. Both count. */
  replace(block: readonly string[], first: number, last: number): Splice {
    const from = this.all[first]?.from ?? 0;
    const to = this.all[last]?.to ?? this.#text.length;
    const isOpen = !this.#text.slice(0, to).endsWith("\n");
    return { from, to, text: block.join(this.end) + (isOpen ? "" : this.end) };
  }

  /** Puts a block of whole lines behind a line, with a blank one on either side where there is none. -1: in front of all. */
  insert(block: readonly string[], behind: number): Splice {
    const at = this.all[behind]?.to ?? 0;
    const isOpen = behind >= 0 && !this.#text.slice(0, at).endsWith("\n");
    const isAlone = this.all.every((line) => line.text.trim() === "");
    const gap = behind < 0 || isAlone || this.isBlank(behind) ? [] : [""];
    const isFollowed = behind + 1 < this.all.length && !this.isBlank(behind + 1);
    const lines = [...gap, ...block, ...(isFollowed ? [""] : [])];
    const text = lines.map((line) => line + this.end).join("");
    // The last line of a text that ends without a line end goes on doing so.
    return isOpen
      ? { from: at, to: at, text: this.end + text.slice(0, -this.end.length) }
      : { from: at, to: at, text };
  }
}
