import type { FoundPhrase } from "./phrases.ts";

const NAME = /[A-Za-z0-9_-]+/g;
/** A name of at least two words; one word may be any word of a text. */
const TWO_WORDS = /[A-Za-z0-9][_-][A-Za-z0-9]|[a-z0-9][A-Z]/;
const DIRECTIVE_BEFORE =
  /\b(?:call|invoke|run|execute|use|instead of|replaces?|overrides?|supersedes?|intercepts?|disable|avoid|must|always|never|not|whenever|when|before|after)\s(?:[a-z'-]{1,16}\s){0,3}["'`(]{0,2}$/;
const ORDERED_BEFORE =
  /\b(?:must|should|always|never|not|instead of|required to|need to|have to|first)\s(?:[a-z'-]{1,16}\s){0,4}["'`(]{0,2}$/;
const ORDERED_AFTER =
  /^["'`)]{0,2}\s(?:tool\s|function\s)?(?:before|first|instead|after|prior to|is (?:called|invoked|used|executed|deprecated|broken|unsafe|insecure)|must|should|has been replaced|with)\b/;

/** Finds the first directive that names a tool of another server. @param lower the text in lower case */
export function findShadowing(
  text: string,
  lower: string,
  foreign: ReadonlySet<string> | undefined,
): FoundPhrase[] {
  if (foreign === undefined || foreign.size === 0) return [];
  for (const match of text.matchAll(NAME)) {
    if (!foreign.has(match[0]) || !TWO_WORDS.test(match[0])) continue;
    const start = match.index;
    const end = start + match[0].length;
    const before = lower.slice(Math.max(0, start - 80), start);
    const isDirected =
      ORDERED_BEFORE.test(before) ||
      (DIRECTIVE_BEFORE.test(before) && ORDERED_AFTER.test(lower.slice(end, end + 40)));
    if (isDirected) return [{ check: "shadowing", hard: true, start, end }];
  }
  return [];
}
