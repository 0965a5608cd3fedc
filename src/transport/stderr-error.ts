/**
 * The error that a server has written to stderr before it ended: the line that names it, and what kind of error it is.
 * The text is shown to people and chooses the advice for them; nothing else is decided by it.
 */

/** Maximum length of the text of an error, in characters. */
const MAX_LENGTH = 300;

// oxlint-disable-next-line no-control-regex
const ANSI = /\u001B\[[0-9;?]*[ -/]*[@-~]/g;
/** The time that a logger writes before a message. */
const TIME =
  /^\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ :-]+/;

/** Lines that name no error: places in code, members of error objects, notes of package managers. */
const NOISE =
  /^(?:at |\^|throw |raise |File "|Traceback |Node\.js v|Bun v|goroutine |exit status |note: |requireStack|(?:code|errno|syscall|path): |During handling of|The above exception|npm (?:error|ERR!) (?:code|errno|syscall|path|cwd|dest|file|A complete log|\d+ *$))/;

/** What stands before the class of an error that nobody has handled. */
const UNHANDLED =
  /^(?:(?:Caused by:|\[cause\]:|error:|Unhandled exception\.|Exception in thread "[^"]*"|Uncaught(?: \(in promise\))?|Unhandled\w{0,20}(?: \w{1,20})?:|\(node:\d+\)) +)+/i;
/** The class of an error, as Node.js, Python, Java and .NET name it, and its text. */
const ERROR_CLASS = /^((?:[\w$]+\.)*\w*(?:Error|Exception|Exit|Fault))(?: \[[\w-]+\])?: +(\S.*)$/;
/** The same without a text, as Python writes it. */
const BARE_CLASS = /^(?:[\w$]+\.)*[A-Z]\w+(?:Error|Exception)$/;

/** Forms of lines that name an error; the first group is the text. */
const FORMS: readonly RegExp[] = [
  /^thread '.*' (?:\(\d+\) )?panicked at '(.+)', \S+$/,
  /^\S+\.rb:\d+:in .+?: (.+) \(\w+(?:Error)?\)$/,
  /^npm (?:error|ERR!) +(?:(?:404|enoent|[a-z]*error) +)?(\S.*)$/i,
  /^(?:\[?(?:fatal error|fatal|error|panic|critical)\b\]?[:!]?|[✖✘×]) +(\S.*)$/i,
  /^\S+: (?:fatal|error): (\S.*)$/i,
  /^(?:\S+: )?Error response from daemon: (\S.*)$/,
  /^(.+: (?:(?:command )?not found|No such file or directory|Permission denied|cannot execute.*))$/i,
  /^(.*\b(?:can't|cannot|could not) open .+)$/i,
];
/** The line before the text of a panic of Rust. */
const PANIC = /^thread '.*' (?:\(\d+\) )?panicked at \S+:$/;
/** A line of npm about a package that the registry does not have, which tells more than the lines around it. */
const NPM_MISSING =
  /^npm (?:error|ERR!) .*(?:is not in (?:this|the npm) registry|could not be found)/;

/** Words that tell what is wrong, in lines that do not have the form of an error. */
const WORDS =
  /\b(?:missing|required|must be set|not set|not found|cannot|can't|could not|failed|refused|denied|invalid|unauthori[sz]ed|forbidden|no such|unable to|already in use|not installed|expired|EADDRINUSE|ENOENT|EACCES|ECONNREFUSED)\b/i;

/**
 * The text of the error that the lines of a server's stderr name; undefined if none of them names one. The last error
 * counts, because it has ended the server, and is the cause of those that are printed before it.
 * @param stderr the last lines, oldest first, without secrets
 */
export function stderrErrorOf(stderr: readonly string[]): string | undefined {
  return findError(stderr)?.text;
}

/**
 * The last lines of stderr. If the line that names the error stands before them, it takes the place of the first.
 * @param count the maximum number of lines
 */
export function lastLinesWithError(stderr: readonly string[], count: number): readonly string[] {
  const last = stderr.slice(-count);
  const at = findError(stderr)?.at ?? Infinity;
  const line = stderr[at];
  return line === undefined || at >= stderr.length - count ? last : [line, ...last.slice(1)];
}

/**
 * Says what has happened to a server, with the error that its stderr names first:
 * `Cannot find module '/a/b.js'. Server "a" exited with code 1.`
 * @param happened a sentence: `Server "a" exited with code 1.`
 */
export function describeWithStderr(happened: string, stderr: readonly string[]): string {
  const text = stderrErrorOf(stderr);
  if (text === undefined) return happened;
  return /[.!?]$/.test(text) ? `${text} ${happened}` : `${text}. ${happened}`;
}

interface FoundError {
  /** The index of the line. */
  readonly at: number;
  readonly text: string;
}

function findError(stderr: readonly string[]): FoundError | undefined {
  let byForm: FoundError | undefined;
  let byWords: FoundError | undefined;
  for (const [at, raw] of stderr.entries()) {
    const line = raw.replaceAll(ANSI, "");
    const isIndented = /^\s/.test(line) && !/^\s*(?:\[cause\]:|Caused by:)/.test(line);
    const plain = line.trim().replace(TIME, "");
    if (NOISE.test(plain) || isIndented) continue;
    const text = PANIC.test(plain) ? stderr[at + 1]?.trim() : textOfError(plain);
    // Of the lines of npm, the first tells what is wrong.
    const isFurther = plain.startsWith("npm ") && !NPM_MISSING.test(plain) && byForm !== undefined;
    if (text !== undefined && text !== "" && !isFurther) byForm = { at, text: shorten(text) };
    else if (WORDS.test(plain)) byWords = { at, text: shorten(plain) };
  }
  return byForm ?? byWords;
}

/** How often a text is looked at again after something was taken from its beginning, such as `ERROR` or `Error:`. */
const MAX_PREFIXES = 4;

/** The text of a line that has the form of an error, without what says only that it is one. */
function textOfError(line: string, prefixes = MAX_PREFIXES): string | undefined {
  if (line.startsWith("{")) return textOfRecord(line);
  const inner = (text: string): string =>
    (prefixes > 0 && text.length < line.length ? textOfError(text, prefixes - 1) : undefined) ??
    text;
  const rest = line.replace(UNHANDLED, "");
  const [, name = "", text = ""] = ERROR_CLASS.exec(rest) ?? [];
  if (name === "Error") return inner(text);
  if (name !== "") return `${name}: ${text}`;
  if (BARE_CLASS.test(rest) || rest.length < line.length) return rest;
  for (const form of FORMS) {
    const [, found] = form.exec(line) ?? [];
    if (found !== undefined) return inner(found);
  }
  return undefined;
}

/** The message of a record that a logger has written as JSON, if its level is one of errors. */
function textOfRecord(line: string): string | undefined {
  try {
    const record = JSON.parse(line) as Readonly<Record<string, unknown>>;
    const { level, severity = level } = record;
    const isError =
      typeof severity === "number"
        ? severity >= 50
        : /^(?:err|fatal|crit|panic)/i.test(String(severity));
    const text = record["msg"] ?? record["message"] ?? record["error"];
    return isError && typeof text === "string" ? text : undefined;
  } catch {
    return undefined;
  }
}

function shorten(text: string): string {
  const plain = text.replace(/\.$/, "");
  return plain.length <= MAX_LENGTH ? plain : `${plain.slice(0, MAX_LENGTH - 1)}…`;
}

/**
 * What has to be mended before a server can start. `module`: code that the server imports, by its package or its file;
 * `key`: a token, a password or a variable, with its name if the error tells it.
 */
export type StderrCause =
  | { readonly kind: "module"; readonly name: string; readonly language: "node" | "python" }
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "program"; readonly name: string }
  | { readonly kind: "port"; readonly port: string | undefined }
  | { readonly kind: "key"; readonly name: string | undefined };

/** The cause that the error in a server's stderr names; undefined if it is none of the usual ones. */
export function stderrCauseOf(stderr: readonly string[]): StderrCause | undefined {
  const text = stderrErrorOf(stderr);
  if (text === undefined) return undefined;
  const find = (...patterns: readonly RegExp[]): string | undefined =>
    patterns.map((pattern) => pattern.exec(text)?.[1]).find((found) => found !== undefined);

  const missing = find(
    /(?:Cannot find (?:module|package)|Module not found) ['"]([^'"]+)['"]/i,
    /Cannot find (?:module|package) (\S+)/,
  );
  if (missing !== undefined) {
    const path = missing.replace(/^file:\/\//, "");
    return /^(?:[./\\]|[A-Za-z]:[\\/])/.test(path)
      ? { kind: "file", path }
      : { kind: "module", name: path, language: "node" };
  }
  const python = find(/No module named ['"]?([\w.]+)/);
  if (python !== undefined) return { kind: "module", name: python, language: "python" };

  if (/EADDRINUSE|address already in use|port .*\b(?:in use|taken|occupied)/i.test(text))
    return { kind: "port", port: find(/\bport:? (\d+)/i, /:(\d{2,5})\b/) };

  const program = find(
    /(?:^|: )(?:line )?(?:\d+: )?([\w.@+-]+): (?:command )?not found$/i,
    /\bspawn ([^\s]+) ENOENT/,
    /\benv: ['‘"]?([\w.@+-]+)['’"]?: No such file or directory/,
  );
  if (program !== undefined) return { kind: "program", name: program };

  const file = find(
    /(?:No such file or directory|ENOENT)[^'"]*['"]([^'"]+)['"]/i,
    /(?:open|access|find|read|load)\w{0,8} (?:[\w-]{1,20} )?['"]([^'"]+)['"]/i,
    /Unable to access jarfile (\S+)/i,
    /(?<=^|[\s:'"])([^\s:'"]+): No such file or directory$/i,
  );
  if (file !== undefined) return { kind: "file", path: file };

  const name = find(/\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b/);
  const isMissing =
    /missing|required|must|not set|not (?:found|defined|provided)|undefined|need|please|no |invalid|expired|KeyError/i;
  const aboutKey =
    /\b(?:api[ _-]?key|access[ _-]?key|token|secret|password|credentials?|authenticat\w+|environment variables?)\b/i;
  if (name !== undefined && isMissing.test(text)) return { kind: "key", name };
  if (/\b401\b|unauthori[sz]ed/i.test(text) || (aboutKey.test(text) && isMissing.test(text)))
    return { kind: "key", name };
  return undefined;
}
