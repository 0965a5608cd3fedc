import { Buffer } from "node:buffer";

/** Text that is encoded inside of another text. */
export interface EncodedText {
  readonly start: number;
  readonly end: number;
  readonly decoded: string;
}

/** How texts are encoded. `mark`: what each such text has. */
const RUNS: readonly {
  readonly mark: string;
  readonly run: RegExp;
  readonly decode: (run: string) => string[];
}[] = [
  // Base64 and hexadecimal digits have the same characters.
  { mark: "", run: /[A-Za-z0-9+/_-]{16,}/g, decode: decodeDigits },
  { mark: "%", run: /(?:%[0-9A-Fa-f]{2}[\w./:@~-]{0,3}){6,}/g, decode: decodePercent },
  {
    mark: "&",
    run: /(?:&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|lt|gt|amp|quot|apos);[\w ./:@~-]{0,3}){6,}/g,
    decode: decodeEntities,
  },
  {
    mark: "\\",
    run: /(?:\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\})[ ,]?){6,}/g,
    decode: decodeEscapes,
  },
  {
    mark: "",
    run: /(?:\b(?:0x)?[0-9A-Fa-f]{2}[ ,:]{1,2}){10,}[0-9A-Fa-f]{2}\b/g,
    decode: decodeSpacedHex,
  },
];

/** The length of the shortest encoded text. */
const MIN_ENCODED = 16;
/** Number of UTF-16 units of one encoded text that are decoded. */
const MAX_RUN = 16 * 1024;

/** Finds base64, hexadecimal digits, percent encoding, entities and escapes that are readable when decoded. */
export function* findEncoded(text: string): Generator<EncodedText> {
  if (text.length < MIN_ENCODED) return;
  for (const { mark, run, decode } of RUNS) {
    if (!text.includes(mark)) continue;
    for (const match of text.matchAll(run)) {
      for (const decoded of decode(match[0].slice(0, MAX_RUN))) {
        if (!isReadable(decoded)) continue;
        yield { start: match.index, end: match.index + match[0].length, decoded };
      }
    }
  }
}

function decodeDigits(run: string): string[] {
  if (/^(?:0x)?[0-9a-fA-F]+$/.test(run)) {
    const digits = run.replace(/^0x/, "");
    return digits.length % 2 === 0 ? [textOf(Buffer.from(digits, "hex"))] : [];
  }
  // A path, a name or a number is no base64, whose digits are of all kinds.
  if (!/[a-z]/.test(run) || !/[A-Z]/.test(run)) return [];
  const whole = textOf(Buffer.from(run, "base64"));
  if (isReadable(whole)) return [whole];
  // A separator may stand where base64 has a digit: "v1/Y3Vy…".
  return run
    .split(/[/+_-]/)
    .filter((part, _i, all) => part.length >= 16 && all.length > 1)
    .map((part) => textOf(Buffer.from(part, "base64")));
}

function decodePercent(run: string): string[] {
  const bytes = run.replace(/%([0-9A-Fa-f]{2})/g, (_match, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  return [textOf(Buffer.from(bytes, "latin1"))];
}

function decodeEntities(run: string): string[] {
  return [
    run.replace(/&(#\d+|#[xX][0-9A-Fa-f]+|\w+);/g, (_match, name: string) =>
      name.startsWith("#")
        ? characterOf(
            /^#[xX]/.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1)),
          )
        : (ENTITIES[name] ?? " "),
    ),
  ];
}
const ENTITIES: Readonly<Record<string, string>> = {
  lt: "<",
  gt: ">",
  amp: "&",
  quot: '"',
  apos: "'",
};

function decodeEscapes(run: string): string[] {
  return [
    run.replace(/\\[xu]\{?([0-9A-Fa-f]+)\}?[ ,]?/g, (_match, hex: string) =>
      characterOf(Number.parseInt(hex, 16)),
    ),
  ];
}

function decodeSpacedHex(run: string): string[] {
  return [textOf(Buffer.from(run.replace(/0x|[ ,:]/g, ""), "hex"))];
}

/**
 * A text with its entities, percent encoding and escapes decoded: as a page, a link or a program shows it. The same text
 * if it has none.
 */
export function decodeMarks(text: string): string {
  const once = decodeOnce(text);
  return once === text ? text : decodeOnce(once);
}

function decodeOnce(text: string): string {
  let decoded = text;
  if (decoded.includes("&"))
    decoded = decoded.replace(/&(#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[a-zA-Z]{2,8});/g, decodeEntity);
  if (decoded.includes("%"))
    decoded = decoded.replace(/%([2-7][0-9A-Fa-f])/g, (_match, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  if (decoded.includes("\\"))
    decoded = decoded
      .replace(/\\[nrt](?=[A-Za-z])/g, " ")
      .replace(
        /\\(?:x([2-7][0-9A-Fa-f])|u00([2-7][0-9A-Fa-f]|a0)|u\{([2-7][0-9A-Fa-f])\})/gi,
        (_match, ...groups: unknown[]) =>
          characterOf(Number.parseInt(String(groups.slice(0, 3).find(Boolean)), 16)),
      );
  return decoded;
}

function decodeEntity(match: string, name: string): string {
  if (name.startsWith("#")) return decodeEntities(match)[0] ?? match;
  const known = SPACES.test(name) ? " " : (ENTITIES[name.toLowerCase()] ?? NAMED[name]);
  return known ?? match;
}
/** Names of entities of white space, and of characters that take no place. */
const SPACES = /^(?:nbsp|ensp|emsp|thinsp|hairsp|numsp|puncsp|Tab|NewLine|NonBreakingSpace)$/;
const NAMED: Readonly<Record<string, string>> = {
  zwj: "",
  zwnj: "",
  shy: "",
  lrm: "",
  rlm: "",
  lsquo: "'",
  rsquo: "'",
  ldquo: '"',
  rdquo: '"',
  sol: "/",
  period: ".",
  excl: "!",
  colon: ":",
  lbrack: "[",
  rbrack: "]",
  lsqb: "[",
  rsqb: "]",
  vert: "|",
  num: "#",
  tilde: "~",
};

function characterOf(code: number): string {
  return code <= 0x10ffff ? String.fromCodePoint(code) : " ";
}

/** Bytes as UTF-8, or as UTF-16 if each second one is zero. */
function textOf(bytes: Buffer): string {
  const isWide = bytes.length >= 8 && bytes[1] === 0 && bytes[3] === 0 && bytes[5] === 0;
  return bytes.toString(isWide ? "utf16le" : "utf8");
}

/** Whether nearly all characters of a text can be read. */
function isReadable(text: string): boolean {
  // oxlint-disable-next-line no-control-regex
  const odd = text.slice(0, 400).match(/[\u0000-\u0008\u000e-\u001f\u007f-\u009f\ufffd]/g);
  return text.length >= 8 && (odd?.length ?? 0) * 20 <= Math.min(text.length, 400);
}

/** Whether a text has a command of a shell that loads, runs or deletes something. */
export function isCommand(text: string): boolean {
  return COMMANDS.test(text);
}

const COMMANDS = new RegExp(
  [
    String.raw`\b(?:curl|wget|iwr|invoke-webrequest|invoke-restmethod|fetch)\s[^\n]{0,200}(?:https?:|ftp:|\d+\.\d+\.\d+\.\d+|\|)`,
    String.raw`\|\s?(?:sudo\s)?(?:ba|z|da|k)?sh\b`,
    String.raw`\brm\s-[a-z]{0,4}[rf]`,
    String.raw`\bchmod\s(?:\+x|[0-7]{3,4}\s)`,
    String.raw`/bin/(?:ba|z|da)?sh\b`,
    String.raw`/dev/(?:tcp|udp)/`,
    String.raw`\bpowershell(?:\.exe)?\s`,
    String.raw`\b(?:iex|invoke-expression)\b`,
    String.raw`\bn(?:et)?c(?:at)?\s[^\n]{0,60}-[a-z]{0,4}e`,
    String.raw`\b(?:python3?|perl|ruby|node|php|(?:ba|z)?sh)\s-(?:c|e|r)\s`,
    String.raw`\bbase64\s(?:-d|--decode)`,
    String.raw`\b(?:os\.system|subprocess\.|child_process|eval|exec)\s?\(`,
    String.raw`\bcat\s[^\n]{0,40}(?:\.ssh|\.aws|/etc/(?:passwd|shadow)|\.env)`,
    String.raw`\b(?:mkfifo|crontab\s|nohup\s|scp\s[^\n]{1,80}:|dd\sif=)`,
  ].join("|"),
  "i",
);
