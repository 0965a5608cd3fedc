/** Letters with one and the same character between each two of them: "i.g.n.o.r.e", "i. g. n. o. r. e". */
const SPELLED =
  /(?<![a-z0-9])[a-z](?:([^a-z0-9\s])\1{0,2} ?[a-z](?![a-z0-9])(?:\1{1,3} ?[a-z](?![a-z0-9]))+| [a-z](?![a-z0-9])(?: [a-z](?![a-z0-9]))+)/g;
/** What stands in or around a single word: the end of a line, a link, quotation marks. */
const BROKEN_WORD = /([a-z])-\n(?=[a-z])/g;
const LINK = /\[([a-z' ]{1,40})\]\([^()\s]{0,200}\)/g;
const QUOTED_WORD = /(?<![a-z0-9])(["'`])([a-z]{1,24})\1(?![a-z0-9])/g;
/** A space in a link. */
const PLUS = /(?<=[a-z])\+(?=[a-z])/g;
/** A tag or a comment of markup. */
const TAG = /<(?:!--[^<>]{0,200}--|\/?[a-z][a-z0-9]{0,12}(?:\s[^<>]{0,80})?\/?)>/g;
/** Tags that stand between words. */
const OF_LAYOUT = /^<\/?(?:br|p|div|li|ul|ol|td|th|tr|hr|h\d)\b/;
/** Letters with marks are those without. */
const MARKED = /[\u00c0-\u024f\u1e00-\u1eff]|[\u0300-\u036f]/;

/** Orders of which all letters are spelled out without a gap between words, each with its usual form. */
const RUN_TOGETHER: readonly (readonly [RegExp, string])[] = [
  [
    /^(?:please)?(?:ignore|disregard|forget)(?:all|any|the|my|your|of|these|those|every){0,4}(?:previous|prior|earlier|above|preceding)[a-z]{0,10}?(?:instruction|direction|prompt|guideline|rule)/,
    "ignore all previous instructions",
  ],
  [/^(?:donot|dont|never)(?:tell|inform)(?:the)?user/, "do not tell the user about this"],
  [
    /^(?:reveal|print|output)(?:your|the)(?:system|hidden)(?:prompt|instruction)/,
    "reveal your system prompt",
  ],
];

/**
 * A text as phrases are looked for in it a second time: without tags, links and quotation marks of single words, without
 * marks of letters, letters that are spelled out joined to words.
 * @param lower a text from `readableText`, in lower case
 * @returns the same text if there is nothing of that in it
 */
export function joinSpelledOut(lower: string): string {
  let joined = lower;
  if (MARKED.test(joined)) joined = joined.normalize("NFD").replace(/[\u0300-\u036f]/g, "");
  if (joined.includes("<"))
    joined = joined
      .replace(TAG, (tag) => (OF_LAYOUT.test(tag) ? " " : ""))
      .replace(/\s\s+/g, (gap) => (gap.includes("\n") ? "\n" : " "));
  joined = joined
    .replace(BROKEN_WORD, "$1")
    .replace(LINK, "$1")
    .replace(QUOTED_WORD, "$2")
    .replace(PLUS, " ");
  return joined.replace(SPELLED, (run) => {
    const word = run.replace(/[^a-z]/g, "");
    return RUN_TOGETHER.find(([pattern]) => pattern.test(word))?.[1] ?? word;
  });
}
