/** Shorter values are not searched for: they would blacken half of every text and are no secrets. */
const SHORTEST = 4;
const MASK = "[redacted]";

/** Takes secrets' values out of text for people, also where a log spells them as JSON or in a URL. */
export class Redactor {
  /** The length of the longest spelling that is searched for, in characters: text that is cut must be redacted with so much to spare. */
  readonly longest: number;
  readonly #pattern: RegExp | undefined;

  constructor(secrets: readonly string[]) {
    const spellings = [...new Set(secrets.flatMap(spell))].sort((a, b) => b.length - a.length);
    this.longest = spellings[0]?.length ?? 0;
    if (spellings.length > 0) this.#pattern = new RegExp(spellings.map(escape).join("|"), "g");
  }

  apply(text: string): string {
    return this.#pattern === undefined ? text : text.replace(this.#pattern, MASK);
  }

  /** The first `length` characters of what `apply` yields; a secret that the cut would split is not in it. */
  cut(text: string, length: number): string {
    return this.apply(text.slice(0, length + this.longest)).slice(0, length);
  }
}

/** A secret as it is, each of its lines (logs are read by lines), and what JSON and URLs make of it. */
function spell(secret: string): string[] {
  const parts = [secret, ...secret.split(/\r?\n/)];
  return parts
    .flatMap((part) => [
      part,
      JSON.stringify(part).slice(1, -1),
      encodeURIComponent(part.toWellFormed()),
    ])
    .filter((part) => part.length >= SHORTEST);
}

function escape(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
