import { Buffer } from "node:buffer";
import process from "node:process";
import { HubError, type ErrorCode } from "../base/errors.ts";
import {
  registerSecret,
  type MissingValues,
  resolvePath,
  readSecretFile,
  fillTemplate,
  requireValues,
  type SchemeResolvers,
  type TemplateScope,
} from "./fill.ts";
import type { Env } from "../base/paths.ts";
import { alternativeCommands } from "./package.ts";
import type { OAuthSettings } from "./remote.ts";
import type { HttpToken, ExternalServer, RemoteServer, StdioServer } from "./schema.ts";
import { findSuspectedSecrets, looksRandom, isSecretName } from "./plaintext-secrets.ts";
import { createTable } from "./table.ts";

export type { SchemeResolvers } from "./fill.ts";

/** What is needed to spawn a server, with every `${…}` resolved. */
export interface ResolvedServer {
  /** Absolute if written as a path, else a bare name to look up in PATH. */
  readonly command: string;
  readonly args: readonly string[];
  /** Alternative commands if `command` is not installed, in order of preference. */
  readonly alternatives?: readonly Pick<ResolvedServer, "command" | "args">[] | undefined;
  /**
   * The variables of `inheritEnv` that are set, overridden by those of `env`; without the safe base set. No prototype.
   */
  readonly env: Readonly<Record<string, string>>;
  /** Absolute; undefined: the hub's working directory. */
  readonly cwd: string | undefined;
  /** Values that must be redacted, longest first, so that they can be replaced one by one. */
  readonly secrets: readonly string[];
}

/** What is needed to reach an HTTP server, with every `${…}` resolved. */
export interface ResolvedRemote {
  /** `http:` or `https:`, without credentials. */
  readonly url: URL;
  /** No prototype. */
  readonly headers: Readonly<Record<string, string>>;
  /** The bearer token from `keyFile`. */
  readonly bearerToken: string | undefined;
  /** PEM certificates that are trusted beside the system's. */
  readonly ca: string | undefined;
  readonly oauth: OAuthSettings;
  /** As in `ResolvedServer`. */
  readonly secrets: readonly string[];
}

/**
 * Resolves a server's `${…}`, right before each spawn. A leading `~/` in `command` and `cwd` is the home folder. The
 * parameter `cwd` is the hub's working directory (`${workspaceFolder}`); `schemes` resolves the plugins' placeholders;
 * `secrets` receives values to redact, even if resolving fails.
 * @throws {HubError} valueMissing or notSupported, with the server and the step "resolve"
 */
export async function resolveServer(
  server: StdioServer,
  env: Env,
  cwd: string = process.cwd(),
  schemes: SchemeResolvers = new Map(),
  secrets: Set<string> = new Set(),
): Promise<ResolvedServer> {
  const scope = scopeOf(server, env, cwd, schemes, secrets);
  const command = await fillTemplate(server.command, "command", scope);
  const args = await Promise.all(
    server.args.map((arg, i) => fillTemplate(arg, `args[${i}]`, scope)),
  );
  const variables = createTable<string>();
  for (const name of server.inheritEnv) {
    const value = env[name];
    if (value !== undefined) variables[name] = value;
  }
  for (const [name, text] of Object.entries(server.env)) {
    variables[name] = await fillTemplate(text, `env.${name}`, scope);
  }
  const folder =
    server.cwd === undefined ? undefined : await fillTemplate(server.cwd, "cwd", scope);
  requireValues(scope);
  for (const [name, value] of Object.entries(variables)) {
    for (const suspect of findSuspectedSecrets(name, value)) registerSecret(suspect.value, scope);
  }
  return {
    command: command.includes("/") ? resolvePath(command, scope) : command,
    args,
    ...(server.package !== undefined && {
      alternatives: alternativeCommands(server.package, args),
    }),
    env: variables,
    cwd: folder === undefined ? undefined : resolvePath(folder, scope),
    secrets: sortSecrets(scope),
  };
}

/**
 * Resolves a server's `${…}` and reads its files, right before each connect. `schemes` and `secrets` are as in
 * `resolveServer`.
 * @throws {HubError} valueMissing or notSupported, with the server and the step "resolve"
 */
export async function resolveRemote(
  server: RemoteServer,
  env: Env,
  cwd: string = process.cwd(),
  schemes: SchemeResolvers = new Map(),
  secrets: Set<string> = new Set(),
): Promise<ResolvedRemote> {
  const scope = scopeOf(server, env, cwd, schemes, secrets);
  const url = await fillTemplate(server.url, "url", scope);
  const headers = createTable<string>();
  for (const [name, text] of Object.entries(server.headers)) {
    headers[name] = checkHeader(name, await fillTemplate(text, `headers.${name}`, scope), scope);
  }
  const bearerToken = await readKeyFile(server.keyFile, "keyFile", scope);
  const ca = await readKeyFile(server.ca, "ca", scope);
  const oauth: Record<string, unknown> = { ...server.oauth };
  for (const [name, text] of Object.entries(server.oauth)) {
    if (typeof text === "string") oauth[name] = await fillTemplate(text, `oauth.${name}`, scope);
  }
  requireValues(scope);
  for (const [name, value] of Object.entries(headers)) {
    if (isSecretName(name)) registerHeader(value, scope);
    for (const suspect of findSuspectedSecrets(name, value)) registerSecret(suspect.value, scope);
  }
  for (const name of ["clientSecret", "privateKey"]) {
    if (typeof oauth[name] === "string") registerSecret(oauth[name], scope);
  }
  if (bearerToken !== undefined) registerSecret(bearerToken, scope);
  const parsed = parseUrl(url, scope);
  for (const [name, value] of parsed.searchParams) {
    if (isSecretName(name) || looksRandom(value)) registerSecret(value, scope);
  }
  return { url: parsed, headers, bearerToken, ca, oauth, secrets: sortSecrets(scope) };
}

function scopeOf(
  server: ExternalServer,
  env: Env,
  cwd: string,
  schemes: SchemeResolvers,
  secrets: Set<string>,
): TemplateScope {
  const { name, syntax, baseDir } = server;
  const action = server.kind === "stdio" ? "started" : "reached";
  const fail = (code: ErrorCode, message: string, data?: MissingValues): HubError => {
    const text = `server "${name}" cannot be ${action}: ${message}`;
    return new HubError(code, text, { server: name, step: "resolve", data: data && { ...data } });
  };
  const collected = { problems: [], missingSecrets: [] };
  return { name, syntax, baseDir, env, cwd, schemes, secrets, ...collected, fail };
}

function sortSecrets({ secrets }: TemplateScope): readonly string[] {
  return [...secrets].toSorted((a, b) => b.length - a.length);
}

function parseUrl(text: string, scope: TemplateScope): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw scope.fail("notSupported", "its url is none that begins with http:// or https://");
  }
  if (url.username !== "" || url.password !== "") {
    throw scope.fail("notSupported", "its url holds a password; write headers.Authorization");
  }
  url.hash = "";
  return url;
}

/** Rejects values that could inject another header. */
function checkHeader(name: string, value: string, scope: TemplateScope): string {
  const isValid = HEADER_NAME.test(name) && HEADER_VALUE.test(value);
  if (isValid) return value.trim();
  throw scope.fail("notSupported", `headers.${name} cannot be a header of HTTP`);
}
const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Redacts a header's value, and the credentials after the authorization scheme. */
function registerHeader(value: string, scope: TemplateScope): void {
  registerSecret(value, scope);
  const [, scheme, credentials] = /^(\S+) +(.+)$/.exec(value) ?? [];
  if (scheme === undefined || credentials === undefined) return;
  registerSecret(credentials, scope);
  if (scheme.toLowerCase() === "basic") registerBasicCredentials(credentials, scope);
}

/** Redacts the decoded form of Basic credentials, too. */
function registerBasicCredentials(credentials: string, scope: TemplateScope): void {
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(credentials)) return;
  const pair = Buffer.from(credentials, "base64").toString();
  registerSecret(pair, scope);
  registerSecret(pair.slice(pair.indexOf(":") + 1), scope);
}

async function readKeyFile(
  path: string | undefined,
  where: string,
  scope: TemplateScope,
): Promise<string | undefined> {
  if (path === undefined) return undefined;
  return (await readSecretFile(await fillTemplate(path, where, scope), where, scope)).trim();
}

/** Resolves the token that HTTP clients must send. @throws {HubError} usage */
export async function resolveHttpToken(
  { text, baseDir }: HttpToken,
  env: Env,
  schemes: SchemeResolvers = new Map(),
): Promise<string> {
  const scope: TemplateScope = {
    syntax: "toolmux",
    baseDir,
    env,
    cwd: baseDir,
    schemes,
    secrets: new Set(),
    problems: [],
    missingSecrets: [],
    fail: (_, message) => new HubError("usage", `${message}.`),
  };
  const token = await fillTemplate(text, "hub.httpToken", scope);
  requireValues(scope);
  return token;
}
