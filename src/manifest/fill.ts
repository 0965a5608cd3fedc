import { basename, resolve, sep } from "node:path";
import { HubError, type ErrorCode } from "../base/errors.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { expandHome, safeHomeFolder, type Env } from "../base/paths.ts";
import type { StdioServer } from "./schema.ts";
import { explainScheme, parseTemplate, type Part, type Place } from "./interpolate.ts";

/** Resolvers of `${scheme:path}`, by scheme. They reject with an Error whose message may be shown. */
export type Schemes = ReadonlyMap<string, (path: string, server: string) => Promise<string>>;

/** The largest file that `${file:…}` reads, in bytes. */
const MAX_FILE = 64 * 1024;

/** The shortest value that is redacted, in characters. Shorter values (`1`, `true`, `warn`) occur everywhere. */
const LEAST_SECRET = 6;
/** The same for values requested as secrets (`${scheme:…}`), which may be as short as a PIN. */
const LEAST_NAMED = 4;

/** Variables whose values are not secret. */
const PLAIN = /^(?:HOME|PATH|PWD|USER|LOGNAME|SHELL|TERM|LANG|TZ|TMPDIR|HOSTNAME|LC_.*|XDG_.*)$/;

/** The values that templates are filled with, for a server or (without a name) something else. */
export interface Scope extends Pick<StdioServer, "syntax" | "baseDir"> {
  readonly name?: string;
  readonly env: Env;
  readonly cwd: string;
  readonly schemes: Schemes;
  readonly secrets: Set<string>;
  /** Missing values, as sentences; collected, so that one error reports all. */
  readonly missing: string[];
  /** The names of missing secrets. */
  readonly unknown: string[];
  fail(code: ErrorCode, message: string, data?: Lack): HubError;
}

/** Error data: the missing values, for hints. */
export interface Lack {
  /** The names of secrets (`toolmux secret set NAME`). */
  readonly secrets: readonly string[];
}

/** @throws {HubError} valueMissing, if any value is missing; it names all of them */
export function requireAll(scope: Scope): void {
  const { missing, unknown } = scope;
  if (missing.length === 0) return;
  throw scope.fail(
    "valueMissing",
    missing.join("; "),
    unknown.length > 0 ? { secrets: [...new Set(unknown)] } : undefined,
  );
}

/** The missing secrets of an error. */
export function secretsOf({ data }: HubError): readonly string[] {
  const names = data?.["secrets"];
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

export async function render(text: string, where: string, scope: Scope): Promise<string> {
  let value = "";
  for (const part of parseTemplate(text, scope.syntax)) value += await fill(part, where, scope);
  if (value.includes("\0")) {
    throw scope.fail(
      "notSupported",
      `${where} holds a NUL character, which no process can be given`,
    );
  }
  return value;
}

async function fill(part: Part, where: string, scope: Scope): Promise<string> {
  switch (part.kind) {
    case "text":
      return part.text;
    case "env":
      return readVariable(part, where, scope);
    case "file":
      return hide(await readSecret(part.path, where, scope), scope);
    case "place":
      return PLACES[part.place](scope);
    case "scheme":
      return hide(await ask(part, where, scope), scope, LEAST_NAMED);
    case "fault":
      throw scope.fail("notSupported", `${where} holds ${part.message}`);
  }
}

const PLACES: Readonly<Record<Place, (scope: Scope) => string>> = {
  workspaceFolder: ({ cwd }) => cwd,
  workspaceFolderBasename: ({ cwd }) => basename(cwd),
  userHome: ({ env }) => safeHomeFolder(env),
  pathSeparator: () => sep,
};

/**
 * As in a shell (`${NAME:-fallback}`), the fallback also replaces an empty variable. Without a fallback, an empty
 * variable is valid.
 */
function readVariable(
  { name, fallback }: Extract<Part, { kind: "env" }>,
  where: string,
  scope: Scope,
): string {
  const value = scope.env[name];
  if (fallback !== undefined && (value === undefined || value === "")) return fallback;
  if (value !== undefined) return PLAIN.test(name) ? value : hide(value, scope);
  scope.missing.push(`${where} needs the environment variable ${name}, which is not set`);
  return "";
}

/** Reads a secret file without its last line end. */
export async function readSecret(path: string, where: string, scope: Scope): Promise<string> {
  const full = locate(path, scope);
  const read = await readFileLimited(full, MAX_FILE);
  if (read.kind !== "read") {
    const reason = read.kind === "absent" ? "does not exist" : read.reason;
    scope.missing.push(`${where} needs the file ${conceal(full, scope)}, which ${reason}`);
    return "";
  }
  const text = decodeUtf8(read.bytes);
  if (text !== undefined) return text.replace(/\r?\n$/, "");
  throw scope.fail(
    "notSupported",
    `${where} needs the file ${conceal(full, scope)}, which is not UTF-8 text`,
  );
}

/** @throws {HubError} notSupported if no plugin provides the scheme; storeBusy, which a retry may cure */
async function ask(
  { scheme, path }: Extract<Part, { kind: "scheme" }>,
  where: string,
  scope: Scope,
): Promise<string> {
  const find = scope.schemes.get(scheme);
  if (find === undefined) {
    const message = `${where} holds ${explainScheme(scheme)}, and no plugin has it`;
    throw scope.fail("notSupported", message);
  }
  try {
    return await find(path, scope.name ?? "");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    // A command's text may contain secrets.
    const shown = scheme === "cmd" ? "…" : path;
    const text = `${where} needs \${${scheme}:${shown}}: ${reason}`;
    if (error instanceof HubError && error.code === "storeBusy") throw scope.fail(error.code, text);
    if (error instanceof HubError) scope.unknown.push(...secretsOf(error));
    scope.missing.push(text);
    return "";
  }
}

/** A path for messages, with secret values redacted. */
function conceal(path: string, { secrets }: Scope): string {
  const longest = [...secrets].toSorted((a, b) => b.length - a.length);
  return longest.reduce((shown, secret) => shown.replaceAll(secret, "[redacted]"), path);
}

export function locate(path: string, { baseDir, env }: Scope): string {
  return resolve(baseDir, expandHome(path, env));
}

export function hide(value: string, { secrets }: Scope, least = LEAST_SECRET): string {
  if (value.length >= least) secrets.add(value);
  return value;
}
