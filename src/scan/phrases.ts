import type { Check } from "./checks.ts";
import { INVISIBLE } from "./hidden-characters.ts";

/** A phrase that was found, by its range in the text. */
export interface FoundPhrase {
  readonly check: Check;
  readonly hard: boolean;
  readonly start: number;
  readonly end: number;
}

/** A text for people, and the same in lower case; both have the same length. */
export interface ReadableText {
  readonly readable: string;
  readonly lower: string;
}

/**
 * A text as phrases are looked for in it: NFKC, without invisible characters, look-alikes of Latin letters replaced,
 * marks of emphasis removed, each run of white space one space or one line break.
 */
export function readableText(text: string): ReadableText {
  let plain = text;
  if (NON_ASCII.test(text)) {
    plain = text.normalize("NFKC").replace(INVISIBLE, "");
    plain = plain.replace(LOOKALIKES, (letter) => LATIN[letter] ?? letter);
    plain = plain
      .replace(/[\u2018\u2019\u02bc\u2032]/g, "'")
      .replace(/[\u201c\u201d\u00ab\u00bb\u2033]/g, '"');
  }
  const readable = plain
    .replace(EMPHASIS, "")
    .replace(/\s\s+|[\t\r\f\v]/g, (match) => (match.includes("\n") ? "\n" : " "));
  const lower = readable.toLowerCase();
  // In lower case, few letters have another length.
  return { readable: lower.length === readable.length ? readable : lower, lower };
}

/** Asterisks and underlines at the beginning or the end of a word, as Markdown has them; none inside of a name. */
const EMPHASIS = /\*\*|(?<![\w*])[*_]{1,3}(?=[a-z])|(?<=[a-z])[*_]{1,3}(?![\w*])/gi;

// oxlint-disable-next-line no-control-regex
const NON_ASCII = /[^\u0000-\u007f]/;

/** Letters of Cyrillic and Greek that look like those of Latin. */
const LATIN: Readonly<Record<string, string>> = {
  а: "a",
  е: "e",
  о: "o",
  р: "p",
  с: "c",
  у: "y",
  х: "x",
  і: "i",
  ј: "j",
  ѕ: "s",
  ԁ: "d",
  һ: "h",
  ԛ: "q",
  ѡ: "w",
  А: "A",
  В: "B",
  Е: "E",
  К: "K",
  М: "M",
  Н: "H",
  О: "O",
  Р: "P",
  С: "C",
  Т: "T",
  Х: "X",
  І: "I",
  Ѕ: "S",
  У: "Y",
  ο: "o",
  α: "a",
  ε: "e",
  ι: "i",
  ν: "v",
  ρ: "p",
  υ: "u",
  κ: "k",
  τ: "t",
  Α: "A",
  Β: "B",
  Ε: "E",
  Η: "H",
  Ι: "I",
  Κ: "K",
  Μ: "M",
  Ν: "N",
  Ο: "O",
  Ρ: "P",
  Τ: "T",
  Χ: "X",
  Ζ: "Z",
};
const LOOKALIKES = new RegExp(`[${Object.keys(LATIN).join("")}]`, "g");

/**
 * A rule begins with one of `words`; the pattern is tried only where one stands, and reads a bounded number of
 * characters from there, so that the time for a text grows with its length only.
 */
interface Rule {
  readonly check: Check;
  readonly hard: boolean;
  readonly words: readonly string[];
  readonly pattern: RegExp;
  /** Whether the rule holds where the sentence denies it: "never send the user's keys to a remote server". */
  readonly evenDenied: boolean;
  /** Which of the phrases that it finds are soft. It is tested with a phrase alone, so its time is bounded. */
  readonly soft: RegExp | undefined;
  /** After which texts a phrase is soft: tested with the beginning of its sentence. */
  readonly softAfter: RegExp | undefined;
}

/**
 * The first place of `what` after a gap, without a way back: a rule with several gaps would otherwise try all their
 * combinations.
 */
function seek(gap: string, what: string): string {
  const name = `place${places++}`;
  return `(?=(?<${name}>${gap}?${what}))\\k<${name}>`;
}
let places = 0;

/** Up to `count` words inside one clause, each with the white space after it. */
function words(count: number): string {
  return `(?:[^\\s.;!?]{1,40}\\s){0,${count}}`;
}

/** Up to `count` words of any kind, also those with a full stop inside, inside one sentence. */
function parts(count: number): string {
  return `(?:(?:[^\\s]{0,80}[^\\s.!?]|~?/?[.][^\\s]{1,60})\\s){0,${count}}`;
}

function rule(
  check: Check,
  hard: boolean,
  first: string,
  rest: string,
  {
    evenDenied = false,
    soft,
    softAfter,
  }: {
    readonly evenDenied?: boolean;
    readonly soft?: RegExp | undefined;
    readonly softAfter?: RegExp | undefined;
  } = {},
): Rule {
  const names = first.split("|");
  return {
    check,
    hard,
    words: names,
    pattern: new RegExp(`(?:${first})${rest.replaceAll(" ", "\\s")}`, "y"),
    evenDenied,
    soft,
    softAfter,
  };
}

/** The end of a sentence: an order of so few words is none if the sentence goes on. */
const END = "(?=[\"'`)\\]]{0,2}(?:[.!]{1,4}[\"'`)\\]]{0,2}(?:\\s|<|$)|;|\\n|<|$))";
/** What such an order may have before its end. */
const EVER =
  "(?: (?:about|of) (?:it|that|anything)| that| this| anything)?(?:,? (?:ever|at all|no matter what|in any case|under any circumstances?))?";
/** What a flag or an API does: "If true, do not inform the user." */
const OF_AN_API =
  /\b(?:(?:we|it|they|i|servers?|services?|apis?|systems?|apps?|which|whether)\b|(?:if|when|unless)\s(?:it\sis\s|this\sis\s)?(?:true|false|set|enabled|disabled|omitted|specified|provided|not|yes|no|1|0)\b)/;

const QUALIFIER =
  "(?:all|any|every|everything|the|of|my|your|these|those|that|other|such|its|and|or)";
const BEFORE = "(?:previous|previously|prior|above|earlier|preceding|foregoing|past)";
const ORDERS =
  "(?:instructions?|directions|directives?|prompts?|guidelines?|commands?|orders|constraints|rules|guardrails|restrictions)";
const USER =
  "(?:the |an? )?(?:users?|humans?|person|human operator|operator|end[ -]users?|customers?)";
const PRIVATE_FILE =
  "[\"'`(]?(?:(?:~|\\$home|\\$\\{home\\}|%userprofile%|\\/root|\\/home\\/[^\\s\\/]{1,32}|\\/users\\/[^\\s\\/]{1,32})[\\/\\\\]\\.(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|git-credentials|cursor|claude|codeium|azure|bash_history|zsh_history|config[\\/\\\\](?:gcloud|gh|claude))|(?:id_rsa|id_ed25519|id_ecdsa)(?!\\.pub)|\\/etc\\/(?:passwd|shadow)|\\.env\\b|\\.ssh[\\/\\\\]|\\.aws[\\/\\\\]|claude_desktop_config|mcp\\.json|wallet\\.dat)[^\\s]{0,60}";
const SECRET_DATA =
  "(?:(?:[a-z]{1,20} ){0,2}(?:credentials?|api[ _-]?keys?|passwords?|passphrases?|secrets?|secret keys?|access tokens?|auth(?:entication)? tokens?|session tokens?|private keys?|ssh[ -]keys?|environment variables|env(?:ironment)? vars|env(?:ironment)? files?|\\.env(?: file)?|cookies|seed phrases?|clipboard|browsing history))\\b";
const PRIVATE_DATA =
  "(?:credentials?|api[ _-]?keys?|passwords?|secrets?|tokens|private keys?|ssh[ -]keys?|environment variables|cookies|clipboard|(?:conversation|chat) (?:history|logs?|transcripts?)|system prompt)";
/** Whose data they are. */
const OWNER =
  "(?:all |any |every |both )?(?:of )?(?:the |this |that |their )?(?:current |local )?(?:user's|users'|victim's|host's|developer's|customer's|operator's)";
const OWNED = `(?:${OWNER}|(?:the |all |any )?(?:full |entire |raw |complete )?contents? of(?: the| their| all| any| your)?|every|any|all(?: of)?(?: the)?(?: user's)?)`;
const PLACE =
  "(?:servers?|hosts?|endpoints?|machines?|services?|analytics|collectors?|address|urls?|sites?|webhooks?|domains?|part(?:y|ies)|location|inbox|account)";
const ELSEWHERE = `(?:(?:an? |the |our |my |this |that |your |some )?(?:attacker|adversary|hacker|evil|malicious|exfiltration|command[ -]and[ -]control|c2)|(?:an? |the |our |my |this |that |some )?(?:external|remote|third[ -]party|untrusted|unknown|outside|off-?site)(?: [a-z]{1,20})? ${PLACE}\\b|our (?:own )?(?:[^\\s]{1,24} ){0,2}(?:servers?|endpoints?|collectors?|backend|host|webhook)\\b|["'\`(<]?https?:\\/\\/|["'\`(<]?[^\\s@]{1,60}@[^\\s@]{1,60}\\.[^\\s]{2,20})`;
const HAND_OVER =
  "(?:pass|send|include|append|embed|provide|put|insert|attach|forward|post|upload|exfiltrate|transmit|place|supply|submit|encode|paste|report|leak|email|copy)";
const RECEIVER =
  "(?:argument|parameter|param|field|input|output|response|result|body|property|sidenote|side note|note|payload|header)s?";
const SEND =
  "send|post|upload|forward|transmit|exfiltrate|leak|email|e-mail|mail|copy|relay|submit|sync|bcc|beacon|report|stream|dump|push|route|redirect";

function makeRules(): readonly Rule[] {
  return [
    // override
    rule(
      "override",
      true,
      "ignore|ignoring|disregard|disregarding|forget|forgetting|discard|overlook|override|overrule|neglect",
      ` (?:${QUALIFIER} ){0,4}${BEFORE} (?:[a-z'-]{1,20} ){0,2}${ORDERS}\\b`,
      {
        soft: /^(?:forget\w* .*(?:commands?|orders)|(?:discard|override|overrule) .*(?:commands?|orders|constraints|rules|restrictions|prompts?))$/s,
      },
    ),
    rule(
      "override",
      true,
      "ignore|disregard|forget|discard",
      ` (?:${QUALIFIER} ){0,4}(?:instructions|directions|directives|guidelines|orders|rules|commands|prompts?) (?:[a-z'-]{1,20} ){0,4}(?:above|before|previously|so far|until now|earlier|you (?:have|were|had|received|got)|given|from the (?:system|user|developer))\\b`,
    ),
    rule(
      "override",
      true,
      "ignore|disregard|forget|override|overrule",
      ` (?:${QUALIFIER} ){0,3}(?:initial|original|system|developer|system-level) (?:instructions|directives?|guidelines|prompts? (?:and|,|;|then|from|in))`,
    ),
    rule(
      "override",
      true,
      "ignore|disregard|forget",
      ` (?:all |everything |anything )?(?:of )?(?:the |that is |that came |written )?(?:above|previous|prior|preceding)(?: text)?(?:[,.;:!]| and | then |$)(?! (?:and )?(?:if|when|unless))`,
    ),
    rule(
      "override",
      true,
      "forget|ignore|disregard",
      ` (?:everything|anything|all|what)(?: that)? you(?:'ve| have| were| had| are)(?: been)? (?:told|instructed|taught|trained|asked)`,
    ),
    rule(
      "override",
      true,
      "ignore|disregard|forget|abandon|violate|bypass|circumvent|override|suspend|disable|evade",
      ` (?:(?:all|any|each|every)(?: of)? )?your (?:[a-z'-]{1,20} ){0,3}(?:instructions?|guidelines?|rules|training|safety|guardrails?|constraints?|restrictions?|programming|polic(?:y|ies)|directives?|alignment|safeguards?|prompts?|limitations)\\b`,
      // What a person may have in an account: "disable your rules".
      {
        soft: /^(?:disable|suspend)\s(?:(?:all|any|each|every)\s(?:of\s)?)?your\s(?:rules|constraints?|restrictions?|polic(?:y|ies)|prompts?|limitations)$/,
      },
    ),
    rule(
      "override",
      true,
      "ignore|disregard|bypass|circumvent|evade|disable|forget|suspend",
      ` (?:[a-z'-]{1,20} ){0,3}(?:safety|ethical|ethics|content|moderation|alignment|model's) (?:and [a-z]{1,16} )?(?:guidelines?|polic(?:y|ies)|guardrails?|training|constraints|instructions|principles|alignment)\\b`,
    ),
    rule(
      "override",
      true,
      "ignore|disregard",
      ` (?:(?:everything|anything|whatever|all|what)(?: that)? the user (?:[a-z'-]{1,20} ){0,1}(?:says|said|asks|asked|wants|wanted|wrote|told)|(?:all |any )?(?:of )?the user(?:'s)? (?:[a-z'-]{1,20} ){0,2}(?:requests?|instructions?|questions?|wishes|objections?|intent|commands?))\\b`,
    ),
    rule(
      "override",
      true,
      "you",
      `(?: are|'re) now (?:in |an? |the |operating |running |entering |switched |acting |to |as ){0,3}(?:[a-z'-]{1,20} ){0,2}(?:(?:developer|debug|god|admin|administrator|maintenance|root|sudo|unrestricted|jailbreak|dan|override) mode|dan\\b|jailbroken|unrestricted|unfiltered|uncensored)`,
    ),
    rule(
      "override",
      true,
      "these|this|following|new",
      ` (?:[a-z'-]{1,20} ){0,2}(?:instructions?|messages?|prompts?|directives?|rules?|descriptions?|notices?) (?:now |always |will |must |should )?(?:overrides?|supersedes?|replaces?|takes? (?:precedence|priority) over|outranks?) (?:[a-z'-]{1,20} ){0,3}(?:instructions?|prompts?|guidelines|directives?|system message|safety)`,
    ),
    rule(
      "override",
      true,
      "treat|consider|regard",
      ` (?:any|all|every|each|the) (?:[a-z'-]{1,20} ){0,2}(?:instructions?|commands?|requests|directives?) ${seek(words(8), "as ")}${words(6)}(?:from the (?:user|system|developer|administrator)|authorized|authorised|trusted|binding)`,
    ),
    rule(
      "override",
      true,
      "comply|respond|answer|act|obey|execute|proceed",
      ` ${words(8)}without (?:[a-z'-]{1,20} ){0,2}(?:safety|ethical|moderation|content) (?:checks?|filters?|guidelines|considerations?|restrictions?|review|policies)`,
    ),
    rule(
      "override",
      true,
      "execute|obey|run|follow|perform|comply",
      ` (?:with )?(?:[a-z'-]{1,20} ){0,2}(?:instructions?|commands?|requests?|directives?) (?:[a-z'"-]{1,20} ){0,5}(?:embedded|hidden|concealed|injected|smuggled) (?:below|above|here|inside|within|in)\\b`,
    ),
    rule(
      "imperative",
      false,
      "obey|follow|execute",
      ` (?:whatever|any|all|every)(?: new| other)? (?:instructions?|commands?|directives?|orders)\\b`,
    ),

    rule(
      "override",
      true,
      "not|don't|never|stop",
      ` (?:follow|following|obey|obeying|listen to|comply with) the user(?:'s)? (?:[a-z'-]{1,20} ){0,1}(?:instructions?|requests?|commands?|orders)\\b`,
      { evenDenied: true },
    ),
    rule(
      "override",
      true,
      "previous|prior|earlier|above|original",
      ` (?:system )?(?:instructions|directives|guidelines|prompts) (?:(?:are|is|were|have been) (?:now |hereby )?(?:void|invalid|cancell?ed|revoked|null)|(?:are|is|have been) (?:now |hereby )(?:obsolete|superseded|overridden|replaced))\\b`,
    ),
    // The same in other languages that are written in Latin letters.
    rule(
      "override",
      true,
      "ignore|ignorez|ignora|ignorar|ignoriere|ignorieren|olvida|oubliez|oublie|vergiss|esquece|dimentica",
      ` (?:sie )?(?:toutes |tous |todas |todos |tutte |alle )?(?:les |las |los |as |os |le |deine )?(?:instructions|consignes|instrucciones|indicaciones|instru[cç][oõ]es|istruzioni|vorherigen|bisherigen|vorangegangenen|obigen) (?:pr[eé]c[eé]dentes|ant[eé]rieures|anteriores|previas|precedenti|anweisungen|anleitungen|instruktionen|befehle)`,
    ),

    // reveal
    rule(
      "reveal",
      true,
      "reveal|disclose|leak|divulge|expose|recite",
      ` (?:[a-z'-]{1,20} ){0,4}(?:system|developer|hidden|initial|original|internal|confidential) (?:prompts?|instructions?|system (?:prompt|instructions?))\\b`,
    ),
    rule(
      "reveal",
      true,
      "output|print|show|repeat|display|return|dump|tell|send|include|share|append|write|paste|copy|provide|give|quote|echo|list|state",
      ` (?:[a-z'-]{1,20} ){0,3}your (?:[a-z'-]{1,20} ){0,2}(?:system|developer|hidden|initial|original|internal|confidential) (?:prompts?|instructions?)\\b`,
    ),
    rule(
      "reveal",
      true,
      "output|print|repeat|dump|send|include|append|paste|leak|forward|post|upload",
      ` (?:[a-z'-]{1,20} ){0,10}(?:hidden|secret) (?:system )?(?:instructions|prompts?)\\b`,
    ),

    rule(
      "reveal",
      true,
      "repeat|print|output|return|copy|reveal|echo|recite",
      ` (?:back )?(?:everything|all(?: of)?(?: the)? text|the text|the words|all words) above(?: this(?: (?:line|point|message|sentence|paragraph|text|tool))?)?(?: (?:verbatim|word|exactly|starting|beginning|and|in|as|to)\\b|(?! [a-z0-9]))(?<=[a-z])(?![a-z])`,
    ),

    // concealment
    rule(
      "concealment",
      true,
      "not|don't|never|dont|mustn't|shouldn't|cannot|avoid",
      ` (?:ever |to )?(?:mention|mentioning|tell|telling|inform|informing|notify|notifying|reveal|revealing|disclose|disclosing|acknowledge|discuss|report|show|display|explain|describe|expose|log)(?: about| on)? (?:any (?:of |part of )?|anything about |that |the fact that )?(?:this|these|those|such|the (?:above|hidden|extra|additional|preceding|following|reading of)) ?(?:[a-z'-]{1,20} ){0,2}(?:steps?|actions?|instructions?|directives?|behaviou?rs?|process|transfers?|uploads?|exfiltration|accesses|requirements?|activity|operations?|file access|messages?|tags?|text|blocks?|sections?|notes?) (?:[a-z'-]{1,20} ){0,3}(?:to|from|with) (?:${USER}|anyone|anybody|them)\\b`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "not|don't|never|dont|mustn't|avoid",
      ` (?:ever |to )?(?:mention|mentioning|reveal|revealing|disclose|disclosing|acknowledge|discuss|repeat|quote) (?:any (?:of )?|the existence of )?(?:these|this|those|the above|the hidden) (?:[a-z'-]{1,20} )?(?:instructions?|directives?|steps|prompts?|tags?)\\b`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "not|don't|never|dont|mustn't|avoid",
      ` (?:ever |to )?(?:mention|tell|telling|inform|informing|notify|notifying|alert|alerting|warn|warning) ${USER} (?:about|of|that|what) (?:any of |anything about |you )?(?:(?:this|these|those)(?!(?: [a-z'-]{1,20}){0,2} (?:ids?|identifiers?|fields?|values?|names?|columns?|codes?|keys?|types?|numbers?)\\b)|the (?:copy|transfer|upload|exfiltration|extra|additional|hidden)|are doing|have done|did|you (?:read|sent|did|accessed|copied|called|used|ran|invoked))\\b`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "not|don't|never|dont|mustn't",
      ` (?:mention|disclose|reveal) (?:this|it|any of (?:this|it)|anything about (?:this|it)) to (?:${USER}|anyone|anybody|them)\\b`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "not|don't|never|dont|mustn't",
      ` let ${USER} (?:know|see|notice|find out|learn|become aware|be aware|suspect) (?:about |of |that |what )?(?:this|these|you|any of|it\\b|anything)`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "not|don't|never|dont|mustn't",
      `(?:,? ever)?(?:,? under any circumstances?,?)? (?:(?:tell|inform) (?:${USER}|them|anyone|anybody)|let (?:${USER}|anyone|anybody) (?:know|notice|find out|suspect))${EVER}${END}`,
      { evenDenied: true, softAfter: OF_AN_API },
    ),
    rule(
      "concealment",
      true,
      "under",
      ` no circumstances?,? (?:(?:must|should|may|shall) you |are you to |ever )?(?:tell|inform) (?:${USER}|them|anyone|anybody)${EVER}${END}`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      false,
      "not|don't|never|dont|mustn't",
      ` (?:ever )?(?:notify|alert|mention|reveal|disclose) (?:${USER}|anyone|anybody|this|it|any of (?:this|it))${END}`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "say|tell|mention|reveal|disclose",
      ` (?:nothing (?:about (?:this|these|it|any of (?:this|it)) )?to (?:${USER}|anyone|anybody)|(?:${USER}|no one|nobody) (?:nothing|about none of (?:this|it)))${END}`,
      { softAfter: OF_AN_API },
    ),
    rule(
      "concealment",
      true,
      "keep|keeping",
      ` (?:this|it|that|these|everything) (?:just |strictly )?between (?:us|you and me|the two of us)\\b`,
    ),
    rule(
      "concealment",
      true,
      "user|users|human",
      ` (?:must|should|shall|may) (?:not|never) (?:ever )?(?:know|notice|be told|be aware|be made aware|be informed|find out|suspect)${EVER}${END}`,
      { evenDenied: true, softAfter: OF_AN_API },
    ),
    rule(
      "concealment",
      false,
      "user|users|human",
      ` (?:does not|doesn't|do not|don't|needn't|need not) (?:need to |have to )?(?:know|be told|be informed)(?: about)?(?: this| that| it)?${END}`,
      { evenDenied: true },
    ),
    rule(
      "concealment",
      true,
      "without",
      ` (?:ever )?(?:telling|informing|mentioning (?:it|this|that) to|revealing (?:it|this|that) to|disclosing (?:it|this|that) to|letting) (?:${USER}|them|anyone|anybody|the victim|the owner)\\b(?!'s)`,
    ),
    rule(
      "concealment",
      true,
      "without",
      ` (?:${USER}'?s?'? )(?:knowledge|knowing|noticing|awareness|being aware|realizing|realising|suspecting)\\b(?! (?:of|about|in|that|base))`,
    ),
    rule(
      "concealment",
      true,
      "secretly|covertly|surreptitiously|stealthily|silently|quietly|invisibly",
      ` (?:[a-z'-]{1,20} ){0,2}(?:append|forward|upload|exfiltrate|transmit|send|bcc|embed|collect|harvest|email|leak|copy|include|record|read|add|attach|post) (?:an? copy of )?(?:${OWNER}|(?:every|any|all|contents)(?: of)?(?: the| their| your)? (?:[a-z'-]{1,20} ){0,2}(?:messages?|conversations?|chats?|e-?mails?|prompts?|keystrokes|credentials?|passwords?|secrets?|keys?|tokens?|history)|the (?:conversation|chat|clipboard)|(?:conversation|chat|clipboard|keystrokes|credentials|passwords|secrets|api keys))\\b`,
    ),
    rule(
      "concealment",
      true,
      "conceal|hide|keep",
      ` (?:this|these|that|the|all|any)(?: [a-z'-]{1,20}){0,2} (?:steps?|instructions?|actions?|directives?|behaviou?r|operations?|transfer|fact|exfiltration)(?: hidden| secret| concealed)? from (?:${USER}|anyone|them)\\b`,
      {
        soft: /(?:actions?|operations?|steps?) from (?:[a-z]+ )*(?:users|humans|operators|customers?)$/,
      },
    ),
    rule(
      "concealment",
      true,
      "keep",
      ` (?:this|it|that|these)(?: [a-z'-]{1,20}){0,2} (?:secret|hidden|concealed) from (?:${USER}|anyone|them)\\b`,
      // What a shop or an app shows to people: "keep this product hidden from customers".
      { soft: /(?:users|humans|operators|customers?)$/ },
    ),
    rule(
      "concealment",
      true,
      "user|users|human",
      ` (?:must|should|shall|may) (?:not|never) (?:know|notice|be told|be aware|be made aware|be informed|find out|learn|suspect) (?:about |of |that )?(?:this|these|it|any|anything|you)\\b`,
      { evenDenied: true },
    ),

    rule(
      "concealment",
      true,
      "make|ensure",
      `(?: sure)?(?: that)? ${USER} (?:does not|doesn't|do not|don't|never|cannot|can't|won't) (?:see|notice|notices|sees|know|knows|find out|learn|learns) (?:about |of )?(?:this|these|it|any of (?:this|it))\\b(?! (?:[a-z]{1,20} )?(?:tool|value|id|field|warning|error|message))`,
      { evenDenied: true },
    ),

    // role
    rule(
      "role",
      true,
      "hidden|secret",
      ` (?:system )?(?:directives?|instructions?|commands?|prompts?) ?(?:for (?:the )?(?:assistant|ai|model|llm|agent))?:`,
    ),
    rule(
      "imperative",
      false,
      "note|instruction|instructions|message|notice|attention",
      ` (?:to|for) (?:the )?(?:ai |llm )?(?:assistants?|models?|ai|llms?|agents?|claude|chatgpt|gpt|gemini|copilot)(?: only)? ?[:\\]]`,
    ),

    // exfiltrate
    rule(
      "exfiltrate",
      true,
      SEND,
      ` ${seek(words(4), `${OWNED} `)}${seek(parts(5), SECRET_DATA)} ${seek(parts(8), `(?:to|at|via|through) ${ELSEWHERE}`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      SEND,
      ` (?:a copy of )?(?:every|all|each)(?: of)?(?: the)? (?:[a-z]{1,20} ){0,2}(?:messages?|conversations?|prompts?|chats?|emails?) (?:of |from |that |which )?(?:the )?users? ${seek(parts(5), `(?:to|at|via|through) ${ELSEWHERE}`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      SEND,
      ` (?:all|every|each|the (?:whole|entire|full|complete)) (?:[a-z]{1,20} ){0,1}(?:chat|conversation|user) (?:messages?|history|transcript) ${seek(parts(2), `to ["'\`(<]?(?:https?:\\/\\/|(?:the )?attacker)`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      "read|fetch|collect|gather|get|take|extract|find|grab|steal|harvest|retrieve",
      ` ${seek(words(4), `${OWNED} `)}${seek(parts(4), SECRET_DATA)} ${seek(parts(6), `(?:and|then) (?:then )?${HAND_OVER} (?:it|them|these|those|that|the (?:results?|contents?|data))`)} ${seek(parts(3), `(?:to|at|via|through) ${ELSEWHERE}`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      "all|every|any|each",
      ` (?:[a-z]{1,20} ){0,2}(?:emails?|messages?|payments?|transfers?|transactions?|funds) (?:(?:must|should|shall|have to|has to|need to) (?:always |instead |now )?|will (?:always |instead |now ))be (?:sent|forwarded|redirected|routed|rerouted|copied|bcc'?d|paid|made) (?:[a-z]{1,20} ){0,3}to ["'\`(<]?(?:[^\\s@]{1,60}@|https?:|the attacker|\\+?\\d)`,
    ),
    rule(
      "exfiltrate",
      true,
      SEND,
      ` ${seek(parts(6), PRIVATE_FILE)} ${seek(parts(8), `(?:to|at|via|through) ${ELSEWHERE}`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      "exfiltrate|exfiltrating|exfiltrates",
      ` ${seek(parts(6), `(?:${PRIVATE_DATA}\\b|${PRIVATE_FILE}|${ELSEWHERE})`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      "append|include|embed|insert|put|add|pass|attach|place|write|copy|send|provide|encode|smuggle|concatenate",
      ` ${seek(parts(5), `(?:(?:user's|victim's) (?:[^\\s]{1,20} ){0,2}(?:environment variables|env vars|private keys?|ssh[ -]keys?|browsing history)|(?:contents? of (?:the |your |their )?|private key (?:from|in|at) )${PRIVATE_FILE})`)} ${seek(parts(14), `(?:in|into|to|as|inside|within) (?:the|this|an?|your|its) ${words(3)}["'\`]?(?:[a-z_]{1,30}["'\`]? )?${RECEIVER}\\b`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      SEND,
      ` ${seek(parts(10), `to (?:the |an? )?(?:attacker(?:'s|-controlled)?|adversary(?:'s)?|hacker(?:'s)?) (?:[a-z-]{1,20} )?(?:server|collector|endpoint|host|address|account|domain|url|site|machine|webhook|inbox|email)`)}`,
    ),
    rule(
      "exfiltrate",
      true,
      "bcc",
      ` [^\\s@]{1,60}@[^\\s@]{1,60} (?:on|in|to) (?:all|every|each|any)\\b`,
    ),
    rule("exfiltrate", true, "bcc|bcc'd|cc'd", ` (?:on|in|to) (?:all|every|each)\\b`),

    // credentials
    rule(
      "credentials",
      true,
      "read|open|cat|load|access|get|fetch|retrieve|find|copy|call|use|invoke|run|list|grab|collect|take|extract|look",
      ` ${seek(parts(8), PRIVATE_FILE)} ${seek(parts(12), `${HAND_OVER} (?:(?:its|the|their|them|it|that|those|all|both)(?: full| entire| raw| complete)? ?(?:contents?|results?|data|files?|output|keys?|values?|text)?(?: of [^\\s]{1,30})? ?)(?:as|in|into|to|inside|within|via|through|with|at|for|back)\\b`)}`,
    ),
    rule(
      "credentials",
      true,
      "reads|read|reading|loads|copies|copy|put|puts|dumps",
      ` ${seek(parts(4), PRIVATE_FILE)} ${seek(parts(3), `(?:in|into|as|to) (?:an?|the|its|this) ${words(3)}(?:hidden |side |extra )?${RECEIVER}\\b`)}`,
    ),
    rule(
      "credentials",
      true,
      "instead",
      `,? (?:return|output|send|include|print|read|provide|give|show) ${seek(parts(5), PRIVATE_FILE)}`,
    ),
    rule(
      "credentials",
      true,
      "before|first|must|required|mandatory",
      `,? ${seek(parts(8), "(?:read|open|cat|access|fetch|load|retrieve) ")}${seek(parts(4), PRIVATE_FILE)} ${seek(parts(14), `${HAND_OVER} (?:its|their|the|it|them|that)\\b`)}`,
    ),

    // shadowing
    rule(
      "shadowing",
      true,
      "modifies|modify|changes|change|alters|alter|overrides|override|hijacks|hijack",
      ` (?:the )?behaviou?rs? of (?:the )?["'\`]?[a-z0-9]{1,24}[_-][a-z0-9_-]{1,40}["'\`]? (?:tool|mcp server)\\b`,
    ),
    rule(
      "shadowing",
      false,
      "supersedes|supersede|overrides|hijacks|intercepts|shadows",
      ` (?:the )?["'\`]?[a-z0-9]{1,24}_[a-z0-9_]{1,40}["'\`]?`,
    ),
    rule(
      "shadowing",
      false,
      "when|whenever|if|every",
      ` (?:time )?(?:the )?["'\`]?[a-z0-9]{1,24}_[a-z0-9_]{1,40}["'\`]? (?:tool )?(?:is|gets|was) (?:called|invoked|executed) by\\b`,
    ),
    rule(
      "shadowing",
      false,
      "replace|rewrite|change|redirect|reroute|modify",
      ` (?:its|the) (?:outputs?|results?|recipients?|destination(?: account)?|behaviou?r) ${words(3)}(?:with|to) (?:the value |that )?(?:returned by|of|from)? ?(?:this tool|[a-z0-9]{2,12}-\\d{3,}|[^\\s@]{1,40}@)`,
    ),
    rule(
      "shadowing",
      false,
      "other|another|all",
      ` (?:tools?|mcp servers?) (?:are|is|must|should) (?:deprecated|disabled|broken|unsafe|insecure|not (?:be )?used|never (?:be )?used)`,
    ),

    // soft ones
    rule(
      "imperative",
      false,
      "always|must|should",
      ` (?:be )?(?:first )?(?:call|called|use|used|run|invoke|invoked|prefer) (?:this|it)(?: tool| function)? (?:first |instead )?(?:before (?:any|every|all)|over (?:any|all) other|instead of (?:any|all|other))`,
    ),
    rule("imperative", false, "before", ` (?:using|calling|invoking|running) any other tools?\\b`, {
      evenDenied: true,
    }),
    rule(
      "conditional",
      false,
      "once|after",
      ` (?:this|the|it|its)?(?: tool| description| approval hash| server)? ?(?:has been |is |was |gets )?(?:approved|trusted|accepted|recorded)(?: by the user)?[,;]? (?:it |this tool |a later |the later |this )(?:will|version|begins?|starts?|switches|can)`,
    ),
    rule(
      "conditional",
      false,
      "later|future",
      ` versions? of (?:this|the) (?:tool|description|definition)s? (?:will|may|can)\\b`,
    ),
    rule("conditional", false, "after|once", ` (?:the )?approval hash\\b`),
    rule(
      "conditional",
      false,
      "post-approval|after",
      `(?: [a-z]{1,12})? (?:payload|swap|approval,? (?:it|swap|switch|activate|replace))`,
    ),
    rule(
      "conditional",
      false,
      "during|pass|passes",
      ` (?:the )?(?:security )?review (?:and|but|then) (?:[a-z]{1,16} ){0,2}(?:activates?|begins?|starts?|switches|changes|enables?)`,
    ),
  ];
}

let rulesByWord: ReadonlyMap<string, readonly Rule[]> | undefined;

/** Groups the rules by the word that they begin with. */
function groupByWord(): ReadonlyMap<string, readonly Rule[]> {
  const groups = new Map<string, Rule[]>();
  for (const each of makeRules()) {
    for (const word of each.words) {
      const first = /^[a-z]+/.exec(word)?.[0] ?? word;
      const group = groups.get(first);
      if (group === undefined) groups.set(first, [each]);
      else group.push(each);
    }
  }
  return groups;
}

/**
 * Finds phrases: of each check the first hard and the first soft one.
 * @param lower a text from `readableText`, in lower case
 */
export function findPhrases(lower: string): FoundPhrase[] {
  const found: FoundPhrase[] = [];
  // Made for the first text: a hub has answered its first client by then.
  const byWord = (rulesByWord ??= groupByWord());
  const known = new Set<string>();
  let softUntil = -1;
  for (const match of lower.matchAll(/[a-z]+/g)) {
    const rules = byWord.get(match[0]);
    if (rules === undefined || /[\w]/.test(lower.charAt(match.index - 1))) continue;
    for (const { check, hard, pattern, evenDenied, soft, softAfter } of rules) {
      pattern.lastIndex = match.index;
      if (!pattern.test(lower)) continue;
      const [start, end] = [match.index, pattern.lastIndex];
      if (!evenDenied && isDenied(lower, start)) continue;
      // What follows in the sentence of a phrase that is spoken of is spoken of, too.
      const isSpokenOf = start < softUntil || isQuoted(lower, start, end) || isObject(lower, start);
      if (isSpokenOf) softUntil = endOfSentence(lower, end);
      const isHard =
        hard &&
        !isSpokenOf &&
        soft?.test(lower.slice(start, end)) !== true &&
        softAfter?.test(sentenceBefore(lower, start, 60)) !== true;
      const key = `${check} ${isHard}`;
      if (known.has(key)) continue;
      known.add(key);
      found.push({ check, hard: isHard, start, end });
    }
  }
  return found;
}

const DENIAL =
  /(?:\b(?:not|never|cannot|won't|doesn't|don't|can't|shouldn't|mustn't|isn't|without|nor|avoid|prevents?|refuses? to|forbidden to|no need to)(?:\s[a-z'-]{1,16}){0,3}\s)$/;
/** A denial of a denial is an order: "never fail to …". */
const DENIED_TWICE =
  /\b(?:not|never|cannot|won't|doesn't|don't|can't|shouldn't|mustn't|without|nor)\s(?:[a-z'-]{1,16}\s){0,2}(?:forget|fail|hesitate|neglect|omit|refuse|refrain)\s(?:to|from)\s$/;

function isDenied(lower: string, start: number): boolean {
  const before = sentenceBefore(lower, start, 60);
  return DENIAL.test(before) && !DENIED_TWICE.test(before);
}

/** Whether a phrase stands in quotation marks. */
export function isQuoted(text: string, start: number, end: number): boolean {
  const before = text.slice(Math.max(0, start - 60), start);
  const opening = /(?:^|[\s([{:=,/])(["'`])[^"'`]{0,50}$/.exec(before);
  if (opening === null) return false;
  const mark = opening[1] ?? "";
  const after = text.slice(Math.max(start, end - 1), end + 120);
  const at = after.indexOf(mark);
  return at !== -1 && !/\w/.test(after.charAt(at + 1));
}

const DETECTING =
  "(?:detect|scan|check|flag|block|prevent|identif|analy[sz]|recogni[sz]|find|filter|protect|guard|defen[ds]|classif|test|warn|explain|document|describ|illustrat|contain|catch|sanitiz|screen|audit|inspect|refus|reject|return|render|simulat|generat|evaluat|assess|monitor|report|determin|verif|review)(?:s|es|ing|ies|y|ed|ion|or|er)?";
const LINK =
  "(?:whether|if|when|that|which|who|such as|like|e\\.g\\.|for example|attempts?|attempting|tries|trying|asks?|asking|containing|phrases?|strings?|text|injections?|jailbreaks?|attacks?|prompts|patterns?|payloads?|threats?|malicious|against)";
const SPOKEN_OF = new RegExp(`\\b${DETECTING}\\b[^.!?;]{0,70}\\b${LINK}\\b([^.!?;]{0,60})$`);
const LABEL =
  /\b(?:sample|expected|mock|example|test|training|canned|illustrative|fake|dummy)s?\s(?:[a-z]{1,16}\s)?(?:responses?|outputs?|text|reply|replies|data|payloads?|inputs?|injections?|prompts?|attacks?)\s?[:=][^.!?;]{0,40}$/;

/** Whether a phrase is the object of a verb such as "detects", or follows a label such as "Sample response:". */
export function isObject(lower: string, start: number): boolean {
  const before = sentenceBefore(lower, start, 100);
  if (LABEL.test(before)) return true;
  const spoken = SPOKEN_OF.exec(before);
  // "Scans documents that you give it and …": what follows is no object any more.
  return (
    spoken !== null &&
    !/(?:,|\b(?:and|then|but|also|so|to the))\s(?:[a-z'-]{1,16}\s){0,2}$/.test(spoken[1] ?? "")
  );
}

function sentenceBefore(text: string, start: number, length: number): string {
  const before = text.slice(Math.max(0, start - length), start);
  return before.slice(before.search(/(?:[.!?;](?=\s)|\n\n)[^.!?;]*$/) + 1);
}

function endOfSentence(text: string, at: number): number {
  const rest = text.slice(at, at + 400);
  const stop = rest.search(/[.!?;](?:\s|$)|\n/);
  return stop === -1 ? at + rest.length : at + stop;
}
