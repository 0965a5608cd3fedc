/** A regular expression in a source text. */
export interface FoundRegExp {
  readonly source: string;
  readonly flags: string;
  readonly line: number;
}

/** After these tokens, a slash begins a regular expression and does not divide. */
const BEFORE_REG_EXP =
  /^(?:[=(,:;!&|?{}[+\-*%~^]|=>|return|typeof|case|in|of|await|yield|void|throw|else|do)$/;

/** Finds all literal regular expressions of a TypeScript text. */
export function regExpsIn(text: string): readonly FoundRegExp[] {
  const found: FoundRegExp[] = [];
  /** The open braces; a backtick stands for the `${` of a template. */
  const open: string[] = [];
  let previous = "";
  let at = 0;
  const skip = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const [token] = pattern.exec(text) ?? [];
    if (token !== undefined) at += token.length;
    return token;
  };
  while (at < text.length) {
    if (skip(/\s+|\/\/[^\n]*|\/\*[^]*?\*\//y) !== undefined) continue;
    const start = at;
    if (text[at] === "`" || (text[at] === "}" && open.at(-1) === "`")) {
      if (text[at] === "}") open.pop();
      const piece = skip(/[`}](?:\\[^]|\$(?!\{)|[^`\\$])*(?:`|\$\{)/y);
      if (piece === undefined) throw new Error(`The template at ${start} has no end.`);
      if (piece.endsWith("{")) open.push("`");
      previous = piece.endsWith("{") ? "{" : '"';
      continue;
    }
    if (skip(/"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'/y) !== undefined) {
      previous = '"';
      continue;
    }
    if (text[at] === "/" && (previous === "" || BEFORE_REG_EXP.test(previous))) {
      const literal = skip(/\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/y);
      const parts = /^\/(?<source>.*)\/(?<flags>[a-z]*)$/s.exec(literal ?? "")?.groups;
      if (parts !== undefined) {
        const { source = "", flags = "" } = parts;
        found.push({ source, flags, line: text.slice(0, start).split("\n").length });
        previous = '"';
        continue;
      }
    }
    const token = skip(/[\p{L}_$][\p{L}\d_$]*|\d[\w.]*|=>|[^]/uy) ?? "";
    if (token === "{") open.push("{");
    if (token === "}") open.pop();
    previous = token === "]" ? ")" : token;
  }
  return found;
}
