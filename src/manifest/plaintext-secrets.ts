/* Detects secrets in plain text: by the words of a name, by the token prefixes of issuers, and by randomness. */

/** Words that mark a name as that of a secret, anywhere in the name. */
const SECRET_WORDS = new Set(
  (
    "token tokens secret secrets password passwords passwd passphrase passphrases passcode pwd " +
    "credential credentials creds authorization bearer cookie cookies jwt otp apikey apikeys apitoken " +
    "authtoken authkey accesskey accesstoken refreshtoken secretkey privatekey clientsecret"
  ).split(" "),
);
/** Words that mark a secret at the end of a name without separators: `PGPASSWORD`, `githubtoken`. */
const SECRET_WORD_SUFFIX = /.(?:token|secret|password|passwd|passphrase|apikey|credentials?)$/;
/**
 * Words that mark a secret only at the end of a name, because other names contain them, too: `AUTH_MODE`,
 * `KEY_BINDINGS`.
 */
const FINAL_SECRET_WORDS = new Set(["key", "keys", "auth", "pass", "pat", "cred", "pw"]);
/** Words that mark a secret if `key` follows, as in `API_KEY`, anywhere in the name. */
const SECRET_KEY_QUALIFIERS = new Set(
  "api access secret private signing encryption master service auth app deploy".split(" "),
);
/** Words that mean that a following `key` is not secret, as in `PUBLIC_KEY`. */
const HARMLESS_KEY_QUALIFIERS = new Set(
  (
    "public primary foreign sort partition cache group project issue object hot shortcut idempotency " +
    "translation routing host row index lookup hash field publishable map"
  ).split(" "),
);
/**
 * Last words that only distinguish variants of a name, as in `API_KEY_OLD`. The words before them decide whether the
 * name is that of a secret.
 */
const VARIANT_WORDS = new Set(
  (
    "prod production dev development staging stage test testing live sandbox default main backup old new " +
    "value raw primary secondary current previous v"
  ).split(" "),
);
/** Last words of names whose values are not secrets, but say where a secret is or how it is used. */
const HARMLESS_FINAL_WORDS = new Set(
  (
    "path paths file files filename dir directory folder url urls uri endpoint host hostname port id ids " +
    "name names type types mode method methods header headers field column env var variable count limit max " +
    "min size length len bytes ttl expiry expires expiration lifetime age timeout interval duration window " +
    "budget usage rate ratio threshold prefix suffix format pattern version model algorithm alg scheme flow " +
    "strategy policy provider server service issuer audience scope scopes realm domain region enabled " +
    "disabled required optional stdin backend source sources command cmd label title description hint index " +
    "user username owner email"
  ).split(" "),
);
/** Words that mark a name as that of an amount, anywhere in the name: `MAX_TOKENS`, `tokens-per-minute`. */
const AMOUNT_WORDS = new Set("max min num count limit per total budget".split(" "));
/** Last words of names whose values are random but not secret. */
const IDENTIFIER_WORDS = new Set(
  "id ids uuid guid hash sha commit revision rev ref digest checksum fingerprint version model".split(
    " ",
  ),
);

/** Token prefixes of issuers, and other forms that only secrets have. */
const TOKEN_FORMATS = new RegExp(
  [
    "sk-(?=[\\w./+-]{0,200}\\d)[A-Za-z0-9][\\w./+=-]{14,}",
    "(?:sk|rk)_(?:live|test)_\\w{10,}",
    "gh[pousr]_\\w{16,}",
    "github_pat_\\w{20,}",
    "glpat-[\\w.-]{16,}",
    "xox[abeoprs]-[\\w-]{10,}",
    "xapp-[\\w-]{10,}",
    "(?:AKIA|ASIA)[A-Z0-9]{16}",
    "AIza[\\w-]{30,}",
    "ya29\\.[\\w.-]{16,}",
    "npm_\\w{30,}",
    "pypi-[\\w-]{16,}",
    "hf_\\w{20,}",
    "ntn_\\w{20,}",
    "lin_api_\\w{16,}",
    "gsk_\\w{20,}",
    "xai-\\w{20,}",
    "pplx-\\w{20,}",
    "tvly-[\\w-]{16,}",
    "figd_[\\w-]{20,}",
    "whsec_[\\w+/=]{16,}",
    "shp(?:at|ca|pa|ss)_\\w{16,}",
    "do[opr]_v1_\\w{16,}",
    "dckr_pat_[\\w-]{16,}",
    "hvs\\.[\\w-]{16,}",
    "ATATT[\\w=-]{16,}",
    "SG\\.[\\w-]{16,}\\.[\\w-]{16,}",
    "AGE-SECRET-KEY-[A-Z0-9]{16,}",
    "eyJ[\\w-]{8,}\\.[\\w-]{4,}(?:\\.[\\w-]*)*",
    "-----BEGIN [A-Z ]*PRIVATE KEY-----[\\s\\S]*",
  ]
    .map((form) => `(?<![\\w-])${form}`)
    .join("|"),
  "g",
);
/** A random key has only these characters, at least 20 of them, with at least one digit and one letter. */
const ALPHABET = /^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_+/=.~-]{20,}$/;
/** SHA-1 and SHA-256 object names of Git. */
const GIT_HASH = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/i;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** The start of a path. Paths consist of words, so they do not count as random. */
const PATH = /^(?:~|\.{1,2})?\//;
/**
 * Random text changes between letter and digit, or from lower to upper case, at least once in this many characters on
 * average.
 */
const MAX_CHANGE_INTERVAL = 5;
/** A value that is the path of a file, such as a key file, is not a secret itself. */
const FILE = /^(?:~|\.{1,2})?\/(?:[\w.@ -]+\/)*[\w@. -]+\.\w{2,5}$/;
/** Values of secret-like names that only select a mode. */
const MODE_WORD = /^(?:disabled|enabled|required|optional|default|keychain|keyring|system)$/i;
/** The minimum length of a secret, in characters: shorter values (`1`, `true`, `warn`) do not count as secrets. */
const MIN_SECRET_LENGTH = 6;
/** A password in a URL or in a list such as `user=…;password=…` is reported only if it has this many characters. */
const MIN_PART_LENGTH = 4;

/** The words of a name, in lower case: split at non-letters and at camelCase boundaries. */
function wordsOf(name: string): readonly string[] {
  return name
    .replaceAll(/([a-z\d])([A-Z])/g, "$1 $2")
    .replaceAll(/(?<=[A-Z])(?=[A-Z][a-z])/g, " ")
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word !== "");
}

/** Whether the name of an option, variable, header or member says that its value is a secret. */
export function isSecretName(name: string): boolean {
  const all = wordsOf(name);
  const words = all.slice(0, all.findLastIndex((word) => !VARIANT_WORDS.has(word)) + 1);
  const last = words.at(-1) ?? "";
  if (HARMLESS_FINAL_WORDS.has(last) || words.some((word) => AMOUNT_WORDS.has(word))) return false;
  if (words.some((word) => SECRET_WORDS.has(word) || SECRET_WORD_SUFFIX.test(word))) return true;
  const isKey = words.some(
    (word, at) => /^keys?$/.test(word) && SECRET_KEY_QUALIFIERS.has(words[at - 1] ?? ""),
  );
  if (isKey) return true;
  return (
    FINAL_SECRET_WORDS.has(last) &&
    !(last.startsWith("key") && HARMLESS_KEY_QUALIFIERS.has(words.at(-2) ?? ""))
  );
}

/** Whether a value has the form of a token or looks random. */
export function looksRandom(value: string): boolean {
  return hasTokenFormat(value) || isRandomText(value);
}

function hasTokenFormat(value: string): boolean {
  return value.search(TOKEN_FORMATS) >= 0;
}

/**
 * Whether a text alternates so often between letters and digits that it counts as random, unlike words, versions and
 * dates.
 */
function isRandomText(value: string): boolean {
  if (!ALPHABET.test(value) || PATH.test(value) || GIT_HASH.test(value) || UUID.test(value)) {
    return false;
  }
  const digits = value.match(/[A-Za-z](?=\d)|\d(?=[A-Za-z])/g)?.length ?? 0;
  const caseChanges = value.match(/[a-z](?=[A-Z])/g)?.length ?? 0;
  // A single number at the end of a camelCase name does not make it random.
  return digits > 1 && (digits + caseChanges) * MAX_CHANGE_INTERVAL >= value.length;
}

/** Whether a value is or contains a secret, judged by its name and its form. */
export function isPlaintextSecret(name: string, value: string): boolean {
  return findSuspectedSecrets(name, value).length > 0;
}

export interface SuspectedSecret {
  /** The name of the part of the text that looks like a secret; undefined: the whole text. */
  readonly part: string | undefined;
  readonly value: string;
}

/** The parts of a value that look like secrets; the value itself if all of it does. */
export function findSuspectedSecrets(name: string, value: string): readonly SuspectedSecret[] {
  const isUrl = SCHEME.test(value);
  if (!isUrl && isSecretByName(name, value)) return [{ part: undefined, value }];
  const parts = [...findPasswords(value), ...findPairs(value), ...findCredentials(value)];
  if (parts.length > 0) return uniqueOf(parts);
  const tokens = [...value.matchAll(TOKEN_FORMATS)].map(([text]) => text);
  if (tokens.length > 0 && tokens[0] !== value) {
    return uniqueOf(tokens.map((text) => ({ part: "token", value: text })));
  }
  const isIdentity = IDENTIFIER_WORDS.has(wordsOf(name).at(-1) ?? "");
  const isSecret = tokens.length > 0 || (!isIdentity && isRandomText(value));
  return isSecret || (isUrl && isSecretByName(name, value)) ? [{ part: undefined, value }] : [];
}

const SCHEME = /^[A-Za-z][A-Za-z\d+.-]*:\/\//;

function isSecretByName(name: string, value: string): boolean {
  if (
    value.length < MIN_SECRET_LENGTH ||
    !isSecretName(name) ||
    FILE.test(value) ||
    MODE_WORD.test(value)
  )
    return false;
  // With a name that ends in "tokens", a value such as `4k` is a number of LLM tokens.
  return !(wordsOf(name).at(-1) === "tokens" && /^[\d_.,]+[kKmM]?$/.test(value));
}

/** Finds passwords in URLs, and user names that are tokens. */
function findPasswords(text: string): readonly SuspectedSecret[] {
  const found: SuspectedSecret[] = [];
  for (const [, user = "", password] of text.matchAll(
    /(?<=[A-Za-z\d+.-]):\/\/([^/?#@:\s]*)(?::([^/?#\s]+))?@/g,
  )) {
    if (password !== undefined && password.length >= MIN_PART_LENGTH) {
      found.push({ part: "password", value: password });
    }
    if (user !== "" && looksRandom(user)) found.push({ part: "user", value: user });
  }
  return found;
}

/**
 * Finds secrets in `name=value` pairs of queries, connection strings and options, and in `"name": "value"` pairs of
 * JSON.
 */
function findPairs(text: string): readonly SuspectedSecret[] {
  const found: SuspectedSecret[] = [];
  const pairs = [
    ...text.matchAll(/(?<![\w.-])-{0,2}([A-Za-z][\w.-]*)=([^\s;&,"'#]+)/g),
    ...text.matchAll(/"([^"\\]{1,80})"\s*:\s*"(?:[A-Za-z]+ +)?((?:\\.|[^"\\\s])+)"/g),
  ];
  for (const [, name = "", value = ""] of pairs) {
    const isSecret = isSecretName(name) && value.length >= MIN_PART_LENGTH && !FILE.test(value);
    if (isSecret || looksRandom(value)) found.push({ part: name, value });
  }
  return found;
}

/** Finds the credentials after `Bearer`. */
function findCredentials(text: string): readonly SuspectedSecret[] {
  return [...text.matchAll(/\bBearer +([^\s"',;]+)/g)].flatMap(([, value = ""]) =>
    value.length < MIN_SECRET_LENGTH ? [] : [{ part: "credentials", value }],
  );
}

function uniqueOf(parts: readonly SuspectedSecret[]): readonly SuspectedSecret[] {
  const first = new Map<string, SuspectedSecret>();
  for (const part of parts) if (!first.has(part.value)) first.set(part.value, part);
  return [...first.values()];
}

/** The text that messages show in place of a value that may be secret. */
export const MASK = "•••";

/** Maximum length of a text of which only parts are masked, in UTF-16 units: each part is searched for in the text. */
const MAX_SHOWN = 8 * 1024;

/** Masks what looks like a secret in the arguments of a command. */
export function maskArguments(args: readonly string[]): string[] {
  return args.map((arg, at) => maskArgument(arg, args[at - 1] ?? ""));
}

/** Masks what looks like a secret in a command, which may be written together with its arguments. */
export function maskCommandLine(command: string): string {
  if (command.length > MAX_SHOWN) return MASK;
  return maskArguments(command.split(" ")).join(" ");
}

/**
 * Masks what looks like a secret in one argument.
 * @param previous the argument before it
 */
export function maskArgument(arg: string, previous: string): string {
  const isOption = arg.startsWith("-");
  if (!isOption && /^--?[\w-]+$/.test(previous) && isSecretName(previous)) return maskValue(arg);
  return maskSecretParts(arg);
}

/** Masks the parts of a text that look like a secret; all of it if it is very long. */
export function maskSecretParts(text: string): string {
  const named = /^(?<name>-{0,2}[\w.-]+\s*[=:]\s*)(?<value>.+)$/su.exec(text)?.groups;
  if (named !== undefined && isSecretName(named["name"] ?? "")) {
    return `${named["name"]}${maskValue(named["value"] ?? "")}`;
  }
  if (text.length > MAX_SHOWN) return MASK;
  // Credentials in a URL are masked, with or without a password.
  const masked = text.replace(/(?<=\/\/)[^/@\s]+(?=@)/g, MASK);
  return findSuspectedSecrets("", masked).reduce(
    (shown, { value }) => shown.replaceAll(value, () => maskValue(value)),
    masked,
  );
}

/** Masks a value, unless it is only a `${…}` reference, which contains no secret. */
function maskValue(text: string): string {
  return /^\$\{[^{}]*\}$/.test(text) ? text : MASK;
}
