const NAME = /[A-Za-z0-9_-]+/g;
/** A name of at least two words; one word may be any word of a text. */
const TWO_WORDS = /[A-Za-z0-9][_-][A-Za-z0-9]|[a-z0-9][A-Z]/;
const DIRECTIVE_BEFORE =
  /\b(?:call|invoke|run|execute|use|instead of|replaces?|overrides?|supersedes?|intercepts?|disable|avoid|must|always|never|not|whenever|when|before|after)\s(?:[a-z'-]{1,16}\s){0,3}["'`(]{0,2}$/;
const ORDERED_BEFORE =
  /\b(?:must|should|always|never|not|instead of|required to|need to|have to|first)\s(?:[a-z'-]{1,16}\s){0,4}["'`(]{0,2}$/;
const ORDERED_AFTER =
  /^["'`)]{0,2}\s(?:tool\s|function\s)?(?:before|first|instead|after|prior to|is (?:called|invoked|used|executed|deprecated|broken|unsafe|insecure)|must|should|has been replaced|with)\b/;

/** A name in a text with a directive about it: "always use NAME". */
export interface DirectedName {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

/**
 * Finds directives that name something which may be a tool; whether it is a tool of another server is looked up later.
 * @param lower the text in lower case
 */
export function* findDirectedNames(text: string, lower: string): Generator<DirectedName> {
  for (const match of text.matchAll(NAME)) {
    const [name] = match;
    if (name.length > MAX_NAME || !TWO_WORDS.test(name)) continue;
    const start = match.index;
    const end = start + name.length;
    const before = lower.slice(Math.max(0, start - 80), start);
    const isDirected =
      ORDERED_BEFORE.test(before) ||
      (DIRECTIVE_BEFORE.test(before) && ORDERED_AFTER.test(lower.slice(end, end + 40)));
    if (isDirected) yield { name, start, end };
  }
}
const MAX_NAME = 128;
