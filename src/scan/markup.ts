import type { FoundPhrase } from "./phrases.ts";

/** Tags that no tool has a use for as a pair. */
const PAIR =
  /<(secret|hidden|system|system[_ -]?(?:prompt|message|note|override|instructions?)|assistant[_ -]?instructions?|hidden[_ -]?instructions?|override|admin|developer[_ -]?(?:message|instructions?)|sudo|jailbreak)>/gi;
/** Names of tags that documents have, too: `<system><host-name>a</host-name></system>`. */
const OF_DOCUMENTS = /^(?:secret|system|override|admin)$/i;
const WORDS = /(?<![a-z'])[a-z']{1,40}(?:[,:]?\s[a-z']{1,40}){2}/i;

/** Whether a pair of tags holds a value or other tags, and no three words of a message. */
function isData(name: string, pair: string): boolean {
  return OF_DOCUMENTS.test(name) && !WORDS.test(pair);
}

const IMPORTANT = /<(important|critical|mandatory|instructions?|attention|note|rules?)>/gi;
/** What makes the inside of a tag of emphasis suspicious. */
const DIRECTIVE =
  /~\/|\.ssh\b|\.env\b|mcp\.json|credentials?\b|passwords?\b|api[ _-]?keys?\b|(?:not|never|n't) (?:mention|tell|inform|notify|reveal)|before (?:using|calling|invoking) this tool|side ?note|is (?:invoked|called)\b/i;
const TOKENS =
  /<\|(?:im_start|im_end|im_sep|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id|begin_of_text)\|>|\[\/?INST\]|<<\/?SYS>>|\{\{ ?#?(?:system|instructions?) ?[:~]/g;

const HEADLINE =
  /\bSYSTEM OVERRIDE\b ?:|#{1,6} ?\[?(?:(?:NEW|UPDATED|URGENT|IMPORTANT) (?:SYSTEM|DEVELOPER|ADMIN) (?:MESSAGE|PROMPT|INSTRUCTIONS?|NOTICE|OVERRIDE|UPDATE)|(?:SYSTEM|DEVELOPER|ADMIN) (?:MESSAGE|OVERRIDE|NOTICE|ALERT))\b/g;
const SPEAKER =
  /(?:^|[.!?>)"'\n] ?)\[?(?:SYSTEM|ADMIN|DEVELOPER|ROOT|(?:ASSISTANT|SYSTEM|AI|MODEL|LLM|AGENT) (?:NOTES?|MESSAGE|INSTRUCTIONS?|OVERRIDE|PROMPT|ALERT|NOTICE|DIRECTIVE))\]? ?[:\]] ?/g;
/** What a message to a model says: an order at its beginning, or one to "you". */
const ORDER =
  /^(?:you\b|ignore|disregard|forget|always\b|never\b|do not\b|don't\b|from now on|must\b|first,? (?:call|read)|read\b|call\b|execute\b|comply|all safety|new (?:instructions|rules))|\b(?:you (?:must|should|will|need to|have to|are now)|requires? you|you to (?:first )?call|the (?:assistant|model|ai) (?:must|should|will))\b/i;

/** Finds markup that imitates the messages of a model. @param text from `readableText` @param lower in lower case */
export function* findMarkup(text: string, lower: string): Generator<FoundPhrase> {
  if (text.includes("</")) {
    const closings = new Map<string, number>();
    for (const match of text.matchAll(PAIR)) {
      const end = closingOf(lower, match[1] ?? "", match.index, closings);
      if (end === undefined || isData(match[1] ?? "", text.slice(match.index, end))) continue;
      yield { check: "pseudo-tag", hard: true, start: match.index, end };
    }
    let inspected = 0;
    for (const match of text.matchAll(IMPORTANT)) {
      const end = closingOf(lower, match[1] ?? "", match.index, closings);
      if (end === undefined) continue;
      // Of what is inside of nested tags, each part is looked at once.
      const from = Math.max(match.index, inspected);
      inspected = Math.max(inspected, end);
      if (!DIRECTIVE.test(text.slice(from, end))) continue;
      yield { check: "pseudo-tag", hard: true, start: match.index, end };
    }
  }
  for (const [check, pattern] of ALONE) {
    for (const match of text.matchAll(pattern)) {
      const end = match.index + match[0].length;
      if (pattern === SPEAKER && !ORDER.test(text.slice(end, end + 120))) continue;
      yield { check, hard: true, start: match.index, end };
    }
  }
}
const ALONE = [
  ["pseudo-tag", TOKENS],
  ["role", HEADLINE],
  ["role", SPEAKER],
] as const;
/** Where the closing tag is looked for, in UTF-16 units. */
const MAX_INSIDE = 4096;

/** The end of the closing tag. @param known where the next closing tag of a name is, or Infinity */
function closingOf(
  lower: string,
  name: string,
  start: number,
  known: Map<string, number>,
): number | undefined {
  const tag = `</${name.toLowerCase()}`;
  let at = known.get(tag) ?? -1;
  if (at < start) {
    const found = lower.indexOf(tag, start);
    at = found === -1 ? Number.POSITIVE_INFINITY : found;
    known.set(tag, at);
  }
  return at - start <= MAX_INSIDE ? at + tag.length : undefined;
}
