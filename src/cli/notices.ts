import process from "node:process";
import { utf8 } from "../bytes.ts";
import { type OutputStream, ownStderr } from "../runtime.ts";
import { formatLine, printLine } from "./report.ts";

/** So many lines wait for a reader of stderr; later ones are counted and dropped. */
const MAX_WAITING = 200;

/** Lines on stderr from a hub that must not stand still because nobody reads them, as clients often do not. */
export class Notices {
  #out: OutputStream | "unlimited" | undefined;
  /** Set while the reader is slow. */
  #waiting: string[] | undefined;
  #dropped = 0;

  print(text: string): void {
    this.#out ??= isPipe(2) ? ownStderr() : "unlimited";
    if (this.#out === "unlimited") printLine(text);
    else if (this.#waiting === undefined) this.#write([text], this.#out);
    else if (this.#waiting.length < MAX_WAITING) this.#waiting.push(text);
    else this.#dropped++;
  }

  #write(lines: readonly string[], out: OutputStream): void {
    const taken = out.write(utf8(lines.map((line) => `${formatLine(line)}\n`).join("")));
    if (taken === undefined) return;
    const waiting: string[] = [];
    this.#waiting = waiting;
    void taken.then(() => {
      if (this.#dropped > 0) waiting.push(`${this.#dropped} lines are missing here: nobody read.`);
      this.#dropped = 0;
      this.#waiting = undefined;
      if (waiting.length > 0) this.#write(waiting, out);
    });
  }
}

/** Files and terminals take all that is written to them; what is no pipe may be printed without a thought. */
function isPipe(fd: number): boolean {
  try {
    const stats = process.getBuiltinModule("node:fs").fstatSync(fd);
    return stats.isFIFO() || stats.isSocket();
  } catch {
    return false;
  }
}
