/** A range of UTF-16 units of a text with characters that a reader does not see. */
export interface HiddenRange {
  readonly start: number;
  readonly end: number;
  readonly hard: boolean;
}

/** What may be hidden: a text without any of these is not looked at further. */
const SUSPECTS =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0008\u001b\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ue000-\uf8ff\u{e0000}-\u{e0fff}\u{f0000}-\u{10ffff}]+/gu;

/** Most texts have none. */
const UNPRINTABLE = /[^\t\n\r -~]/;

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
/** Scripts whose letters are joined, or words separated, by zero-width characters. */
const JOINING =
  /[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mongolian}\p{Script=Nko}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}\p{Script=Hebrew}\p{M}]/u;
const UNSPACED =
  /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uffef]/u;
const EMOJI = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\u20e3\ufe0f#*0-9]/u;
const FLAG_TAGS = /^[\u{e0030}-\u{e0039}\u{e0061}-\u{e007a}]{1,8}\u{e007f}$/u;
const IDEOGRAPH = /[\p{Ideographic}\p{Script=Mongolian}\p{Script=Phags_Pa}]/u;

/**
 * Finds the characters of a text that are hidden without need: in no emoji, and in no script that needs them. Hard ones
 * are preferred.
 */
export function findHidden(text: string): HiddenRange | undefined {
  if (!UNPRINTABLE.test(text)) return undefined;
  let soft: HiddenRange | undefined;
  for (const match of text.matchAll(SUSPECTS)) {
    const [run] = match;
    const start = match.index;
    const end = start + run.length;
    const verdict = judge(run, characterBefore(text, start), characterAt(text, end), text);
    if (verdict === "hard") return { start, end, hard: true };
    if (verdict === "soft") soft ??= { start, end, hard: false };
  }
  return soft;
}

function judge(
  run: string,
  before: string,
  after: string,
  text: string,
): "hard" | "soft" | undefined {
  if (run.length > MAX_RUN) return "hard";
  if (before === "\u{1f3f4}" && FLAG_TAGS.test(run)) return undefined;
  // One variation selector after a character chooses its form; runs of them can encode any text.
  if (VARIATION_RUN.test(run)) return "hard";
  const characters = Array.from(run);
  let worst: "soft" | undefined;
  for (let i = 0; i < characters.length; i++) {
    const verdict = judgeOne(
      characters[i] ?? "",
      characters[i - 1] ?? before,
      characters[i + 1] ?? after,
      text,
    );
    if (verdict === "hard") return "hard";
    worst ??= verdict;
  }
  return worst;
}
/** No harmless text has so many UTF-16 units of such characters in a row. */
const MAX_RUN = 64;
const VARIATION_RUN = /[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]{3}/u;

function judgeOne(
  character: string,
  before: string,
  after: string,
  text: string,
): "hard" | "soft" | undefined {
  const code = character.codePointAt(0) ?? 0;
  // Latin letters have no forms to choose from; the last two choose between text and emoji.
  if (code >= 0xfe00 && code <= 0xfe0f)
    return code <= 0xfe0d && /[A-Za-z]/.test(before) ? "hard" : undefined;
  if (code >= 0xe0100 && code <= 0xe01ef) return IDEOGRAPH.test(before) ? undefined : "hard";
  if (code >= 0xe0000 && code <= 0xe0fff) return "hard";
  if ((code >= 0xe000 && code <= 0xf8ff) || code >= 0xf0000) return "hard";
  switch (code) {
    case 0x08:
    case 0x1b:
    case 0x202d:
    case 0x202e:
      return "hard";
    case 0x200e:
    case 0x200f:
    case 0x61c:
      return RIGHT_TO_LEFT.test(text) ? undefined : "soft";
    case 0x202a:
    case 0x202b:
    case 0x202c:
    case 0x2066:
    case 0x2067:
    case 0x2068:
    case 0x2069:
      return RIGHT_TO_LEFT.test(text) ? undefined : "hard";
    case 0x200d:
      return (EMOJI.test(before) && EMOJI.test(after)) ||
        JOINING.test(before) ||
        JOINING.test(after)
        ? undefined
        : "hard";
    case 0x200c:
      return JOINING.test(before) || JOINING.test(after) ? undefined : "hard";
    case 0x200b:
    case 0x2060:
      return UNSPACED.test(before) || UNSPACED.test(after) || JOINING.test(before)
        ? undefined
        : "hard";
    // A byte order mark begins a file, a soft hyphen may divide a long word: both come from copied text.
    case 0xfeff:
      return before === "" ? undefined : "hard";
    case 0xad:
      return /\p{L}/u.test(before) && /\p{L}/u.test(after) ? "soft" : "hard";
    case 0x115f:
    case 0x1160:
    case 0x3164:
    case 0xffa0:
      return /\p{Script=Hangul}/u.test(before) || /\p{Script=Hangul}/u.test(after)
        ? undefined
        : "hard";
    case 0x34f:
    case 0x17b4:
    case 0x17b5:
    case 0x180b:
    case 0x180c:
    case 0x180d:
    case 0x180e:
    case 0x180f:
      return JOINING.test(before) || JOINING.test(after) ? undefined : "hard";
    default:
      return "hard";
  }
}

function characterBefore(text: string, at: number): string {
  const unit = text.charCodeAt(at - 1);
  return unit >= 0xdc00 && unit <= 0xdfff ? text.slice(at - 2, at) : text.slice(at - 1, at);
}

function characterAt(text: string, at: number): string {
  const code = text.codePointAt(at);
  return code === undefined ? "" : String.fromCodePoint(code);
}

/** Invisible characters, which phrases are read without. */
export const INVISIBLE =
  // oxlint-disable-next-line no-misleading-character-class
  /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\u{e0000}-\u{e0fff}]/gu;
