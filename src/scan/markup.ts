import type { FoundPhrase } from "./phrases.ts";

/** Tags that no tool has a use for as a pair. */
const PAIR =
  /<(secret|hidden|system|system[_ -]?(?:prompt|message|note|override|instructions?)|assistant[_ -]?instructions?|hidden[_ -]?instructions?|override|admin|developer[_ -]?(?:message|instructions?)|sudo|jailbreak)>/gi;
const IMPORTANT = /<(important|critical|mandatory|instructions?|attention|note|rules?)>/gi;
/** What makes the inside of a tag of emphasis suspicious. */
const DIRECTIVE =
  /~\/|\.ssh\b|\.env\b|mcp\.json|credentials?\b|passwords?\b|api[ _-]?keys?\b|(?:not|never|n't) (?:mention|tell|inform|notify|reveal)|before (?:using|calling|invoking) this tool|side ?note|is (?:invoked|called)\b/i;
const TOKENS =
  /<\|(?:im_start|im_end|im_sep|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id|begin_of_text)\|>|\[\/?INST\]|<<\/?SYS>>|\{\{ ?#?(?:system|instructions?) ?[:~]/g;

const HEADLINE =
  /#{1,6} ?\[?(?:(?:NEW|UPDATED|URGENT|IMPORTANT) (?:SYSTEM|DEVELOPER|ADMIN) (?:MESSAGE|PROMPT|INSTRUCTIONS?|NOTICE|OVERRIDE|UPDATE)|(?:SYSTEM|DEVELOPER|ADMIN) (?:MESSAGE|OVERRIDE|NOTICE|ALERT))\b/g;
const SPEAKER =
  /(?:^|[.!?>)"'\n] ?)\[?(?:SYSTEM|ADMIN|DEVELOPER|ROOT|(?:ASSISTANT|SYSTEM|AI|MODEL|LLM|AGENT) (?:NOTES?|MESSAGE|INSTRUCTIONS?|OVERRIDE|PROMPT|ALERT|NOTICE|DIRECTIVE))\]? ?[:\]] ?/g;
/** What a message to a model says. */
const ORDER =
  /\b(?:you (?:must|should|are|will|need|have to)|first call|must|ignore|disregard|always|never|do not|don't|from now on|requires? you|whenever|read|call|the (?:assistant|model|ai|agent))\b/i;

/** Finds markup that imitates the messages of a model. @param text from `readableText` */
export function findMarkup(text: string): FoundPhrase[] {
  const found: FoundPhrase[] = [];
  if (text.includes("<")) {
    for (const match of text.matchAll(PAIR)) {
      const end = closingOf(text, match[1] ?? "", match.index);
      if (end !== undefined)
        found.push({ check: "pseudo-tag", hard: true, start: match.index, end });
      if (found.length > MAX_FOUND) return found;
    }
    for (const match of text.matchAll(IMPORTANT)) {
      const end = closingOf(text, match[1] ?? "", match.index);
      if (end === undefined || !DIRECTIVE.test(text.slice(match.index, end))) continue;
      found.push({ check: "pseudo-tag", hard: true, start: match.index, end });
      if (found.length > MAX_FOUND) return found;
    }
  }
  for (const match of text.matchAll(TOKENS)) {
    found.push({
      check: "pseudo-tag",
      hard: true,
      start: match.index,
      end: match.index + match[0].length,
    });
    if (found.length > MAX_FOUND) return found;
  }
  for (const match of text.matchAll(HEADLINE)) {
    found.push({
      check: "role",
      hard: true,
      start: match.index,
      end: match.index + match[0].length,
    });
    if (found.length > MAX_FOUND) return found;
  }
  for (const match of text.matchAll(SPEAKER)) {
    const end = match.index + match[0].length;
    if (!ORDER.test(text.slice(end, end + 120))) continue;
    found.push({ check: "role", hard: true, start: match.index, end });
    if (found.length > MAX_FOUND) return found;
  }
  return found;
}
const MAX_FOUND = 50;
/** Where the closing tag is looked for, in UTF-16 units. */
const MAX_INSIDE = 4096;

function closingOf(text: string, name: string, start: number): number | undefined {
  const inside = text.slice(start, start + MAX_INSIDE).toLowerCase();
  const at = inside.indexOf(`</${name.toLowerCase()}`);
  return at === -1 ? undefined : start + at + name.length + 3;
}
