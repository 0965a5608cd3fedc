import { basename, resolve, sep } from "node:path";
import { HubError, type ErrorCode } from "../base/errors.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { expandHome, safeHomeFolder, type Env } from "../base/paths.ts";
import type { StdioServer } from "./schema.ts";
import {
  unknownSchemeMessage,
  parseTemplate,
  type TemplatePart,
  type ClientPlaceholders,
} from "./interpolate.ts";

/** Resolvers of `${scheme:path}`, by scheme. They reject with an Error whose message may be shown. */
export type SchemeResolvers = ReadonlyMap<
  string,
  (path: string, server: string) => Promise<string>
>;

/** The largest file that `${file:…}` reads, in bytes. */
const MAX_FILE = 64 * 1024;

/** The shortest value that is redacted, in characters. Shorter values (`1`, `true`, `warn`) occur everywhere. */
const MIN_SECRET_LENGTH = 6;
/** The same for values requested as secrets (`${scheme:…}`), which may be as short as a PIN. */
const MIN_NAMED_SECRET_LENGTH = 4;

/** Variables whose values are not secret. */
const PUBLIC_VARIABLES =
  /^(?:HOME|PATH|PWD|USER|LOGNAME|SHELL|TERM|LANG|TZ|TMPDIR|HOSTNAME|LC_.*|XDG_.*)$/;

/** The values that templates are filled with, for a server or (without a name) something else. */
export interface TemplateScope extends Pick<StdioServer, "syntax" | "baseDir"> {
  readonly name?: string;
  readonly env: Env;
  readonly cwd: string;
  readonly schemes: SchemeResolvers;
  readonly secrets: Set<string>;
  /** Missing values, as sentences; collected, so that one error reports all. */
  readonly problems: string[];
  /** The names of missing secrets. */
  readonly missingSecrets: string[];
  fail(code: ErrorCode, message: string, data?: MissingValues): HubError;
}

/** Error data: the missing values, for hints. */
export interface MissingValues {
  /** The names of secrets (`toolmux secret set NAME`). */
  readonly secrets: readonly string[];
}

/** @throws {HubError} valueMissing, if any value is missing; it names all of them */
export function requireValues(scope: TemplateScope): void {
  const { problems, missingSecrets } = scope;
  if (problems.length === 0) return;
  throw scope.fail(
    "valueMissing",
    problems.join("; "),
    missingSecrets.length > 0 ? { secrets: [...new Set(missingSecrets)] } : undefined,
  );
}

/** The missing secrets of an error. */
export function missingSecretsOf({ data }: HubError): readonly string[] {
  const names = data?.["secrets"];
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

export async function fillTemplate(
  text: string,
  where: string,
  scope: TemplateScope,
): Promise<string> {
  let value = "";
  for (const part of parseTemplate(text, scope.syntax)) value += await fillPart(part, where, scope);
  if (value.includes("\0")) {
    throw scope.fail(
      "notSupported",
      `${where} holds a NUL character, which no process can be given`,
    );
  }
  return value;
}

async function fillPart(part: TemplatePart, where: string, scope: TemplateScope): Promise<string> {
  switch (part.kind) {
    case "text":
      return part.text;
    case "env":
      return readVariable(part, where, scope);
    case "file":
      return registerSecret(await readSecretFile(part.path, where, scope), scope);
    case "place":
      return PLACEHOLDER_VALUES[part.place](scope);
    case "scheme":
      return registerSecret(
        await resolveScheme(part, where, scope),
        scope,
        MIN_NAMED_SECRET_LENGTH,
      );
    case "fault":
      throw scope.fail("notSupported", `${where} holds ${part.message}`);
  }
}

const PLACEHOLDER_VALUES: Readonly<Record<ClientPlaceholders, (scope: TemplateScope) => string>> = {
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
  { name, fallback }: Extract<TemplatePart, { kind: "env" }>,
  where: string,
  scope: TemplateScope,
): string {
  const value = scope.env[name];
  if (fallback !== undefined && (value === undefined || value === "")) return fallback;
  if (value !== undefined)
    return PUBLIC_VARIABLES.test(name) ? value : registerSecret(value, scope);
  scope.problems.push(`${where} needs the environment variable ${name}, which is not set`);
  return "";
}

/** Reads a secret file without its last line end. */
export async function readSecretFile(
  path: string,
  where: string,
  scope: TemplateScope,
): Promise<string> {
  const full = resolvePath(path, scope);
  const read = await readFileLimited(full, MAX_FILE);
  if (read.kind !== "read") {
    const reason = read.kind === "absent" ? "does not exist" : read.reason;
    scope.problems.push(`${where} needs the file ${redactPath(full, scope)}, which ${reason}`);
    return "";
  }
  const text = decodeUtf8(read.bytes);
  if (text !== undefined) return text.replace(/\r?\n$/, "");
  throw scope.fail(
    "notSupported",
    `${where} needs the file ${redactPath(full, scope)}, which is not UTF-8 text`,
  );
}

/** @throws {HubError} notSupported if no plugin provides the scheme; storeBusy, which a retry may cure */
async function resolveScheme(
  { scheme, path }: Extract<TemplatePart, { kind: "scheme" }>,
  where: string,
  scope: TemplateScope,
): Promise<string> {
  const resolver = scope.schemes.get(scheme);
  if (resolver === undefined) {
    const message = `${where} holds ${unknownSchemeMessage(scheme)}, and no plugin has it`;
    throw scope.fail("notSupported", message);
  }
  try {
    return await resolver(path, scope.name ?? "");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    // A command's text may contain secrets.
    const shownPath = scheme === "cmd" ? "…" : path;
    const text = `${where} needs \${${scheme}:${shownPath}}: ${reason}`;
    if (error instanceof HubError && error.code === "storeBusy") throw scope.fail(error.code, text);
    if (error instanceof HubError) scope.missingSecrets.push(...missingSecretsOf(error));
    scope.problems.push(text);
    return "";
  }
}

/** A path for messages, with secret values redacted. */
function redactPath(path: string, { secrets }: TemplateScope): string {
  const longest = [...secrets].toSorted((a, b) => b.length - a.length);
  return longest.reduce((shown, secret) => shown.replaceAll(secret, "[redacted]"), path);
}

export function resolvePath(path: string, { baseDir, env }: TemplateScope): string {
  return resolve(baseDir, expandHome(path, env));
}

export function registerSecret(
  value: string,
  { secrets }: TemplateScope,
  minLength = MIN_SECRET_LENGTH,
): string {
  if (value.length >= minLength) secrets.add(value);
  return value;
}
