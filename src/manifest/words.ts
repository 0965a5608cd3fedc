/**
 * Splits a command into words, for `${cmd:…}`. No shell is involved: white space separates words; '…' is literal; in
 * "…", \" and \\ are escapes; outside of quotes, a backslash escapes the next character. No other character is special.
 * @returns undefined if a quote is not closed, or there is no word
 */
export function splitCommand(text: string): readonly [string, ...string[]] | undefined {
  const words: string[] = [];
  const token = /\s+|'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)/y;
  let word: string | undefined;
  for (let at = 0; at < text.length; at = token.lastIndex) {
    token.lastIndex = at;
    const found = token.exec(text);
    if (found === null) return undefined;
    const [whole, single, double, escaped, unquoted] = found;
    const piece = single ?? double?.replace(/\\(["\\])/g, "$1") ?? escaped ?? unquoted;
    if (piece !== undefined) word = (word ?? "") + piece;
    else if (/^\s/.test(whole) && word !== undefined) {
      words.push(word);
      word = undefined;
    }
  }
  if (word !== undefined) words.push(word);
  const [first, ...others] = words;
  return first === undefined || first === "" ? undefined : [first, ...others];
}
