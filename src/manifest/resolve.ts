import { Buffer } from "node:buffer";
import process from "node:process";
import { HubError, type ErrorCode } from "../base/errors.ts";
import {
  hide,
  type Lack,
  locate,
  readSecret,
  render,
  requireAll,
  type Schemes,
  type Scope,
} from "./fill.ts";
import type { Env } from "../base/paths.ts";
import { otherWays } from "./package.ts";
import type { OAuthSettings } from "./remote.ts";
import type { HttpToken, OuterServer, RemoteServer, StdioServer } from "./schema.ts";
import { findSuspects, isRandom, isTelling } from "./plaintext-secrets.ts";
import { createTable } from "./table.ts";

export type { Schemes } from "./fill.ts";

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
  readonly key: string | undefined;
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
  schemes: Schemes = new Map(),
  secrets: Set<string> = new Set(),
): Promise<ResolvedServer> {
  const scope = scopeOf(server, env, cwd, schemes, secrets);
  const command = await render(server.command, "command", scope);
  const args = await Promise.all(server.args.map((arg, i) => render(arg, `args[${i}]`, scope)));
  const variables = createTable<string>();
  for (const name of server.inheritEnv) {
    const value = env[name];
    if (value !== undefined) variables[name] = value;
  }
  for (const [name, text] of Object.entries(server.env)) {
    variables[name] = await render(text, `env.${name}`, scope);
  }
  const folder = server.cwd === undefined ? undefined : await render(server.cwd, "cwd", scope);
  requireAll(scope);
  for (const [name, value] of Object.entries(variables)) {
    for (const suspect of findSuspects(name, value)) hide(suspect.value, scope);
  }
  return {
    command: command.includes("/") ? locate(command, scope) : command,
    args,
    ...(server.package !== undefined && { alternatives: otherWays(server.package, args) }),
    env: variables,
    cwd: folder === undefined ? undefined : locate(folder, scope),
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
  schemes: Schemes = new Map(),
  secrets: Set<string> = new Set(),
): Promise<ResolvedRemote> {
  const scope = scopeOf(server, env, cwd, schemes, secrets);
  const url = await render(server.url, "url", scope);
  const headers = createTable<string>();
  for (const [name, text] of Object.entries(server.headers)) {
    headers[name] = checkField(name, await render(text, `headers.${name}`, scope), scope);
  }
  const key = await readKey(server.keyFile, "keyFile", scope);
  const ca = await readKey(server.ca, "ca", scope);
  const oauth: Record<string, unknown> = { ...server.oauth };
  for (const [name, text] of Object.entries(server.oauth)) {
    if (typeof text === "string") oauth[name] = await render(text, `oauth.${name}`, scope);
  }
  requireAll(scope);
  for (const [name, value] of Object.entries(headers)) {
    if (isTelling(name)) hideField(value, scope);
    for (const suspect of findSuspects(name, value)) hide(suspect.value, scope);
  }
  for (const name of ["clientSecret", "privateKey"]) {
    if (typeof oauth[name] === "string") hide(oauth[name], scope);
  }
  if (key !== undefined) hide(key, scope);
  const parsed = parseUrl(url, scope);
  for (const [name, value] of parsed.searchParams) {
    if (isTelling(name) || isRandom(value)) hide(value, scope);
  }
  return { url: parsed, headers, key, ca, oauth, secrets: sortSecrets(scope) };
}

function scopeOf(
  server: OuterServer,
  env: Env,
  cwd: string,
  schemes: Schemes,
  secrets: Set<string>,
): Scope {
  const { name, syntax, baseDir } = server;
  const what = server.kind === "stdio" ? "started" : "reached";
  const fail = (code: ErrorCode, message: string, data?: Lack): HubError => {
    const text = `server "${name}" cannot be ${what}: ${message}`;
    return new HubError(code, text, { server: name, step: "resolve", data: data && { ...data } });
  };
  const lack = { missing: [], unknown: [] };
  return { name, syntax, baseDir, env, cwd, schemes, secrets, ...lack, fail };
}

function sortSecrets({ secrets }: Scope): readonly string[] {
  return [...secrets].toSorted((a, b) => b.length - a.length);
}

function parseUrl(text: string, scope: Scope): URL {
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
function checkField(name: string, value: string, scope: Scope): string {
  const isSound = FIELD_NAME.test(name) && FIELD_VALUE.test(value);
  if (isSound) return value.trim();
  throw scope.fail("notSupported", `headers.${name} cannot be a header of HTTP`);
}
const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Redacts a header's value, and the credentials after the authorization scheme. */
function hideField(value: string, scope: Scope): void {
  hide(value, scope);
  const [, scheme, credentials] = /^(\S+) +(.+)$/.exec(value) ?? [];
  if (scheme === undefined || credentials === undefined) return;
  hide(credentials, scope);
  if (scheme.toLowerCase() === "basic") hidePassword(credentials, scope);
}

/** Redacts the decoded form of Basic credentials, too. */
function hidePassword(credentials: string, scope: Scope): void {
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(credentials)) return;
  const pair = Buffer.from(credentials, "base64").toString();
  hide(pair, scope);
  hide(pair.slice(pair.indexOf(":") + 1), scope);
}

async function readKey(
  path: string | undefined,
  where: string,
  scope: Scope,
): Promise<string | undefined> {
  if (path === undefined) return undefined;
  return (await readSecret(await render(path, where, scope), where, scope)).trim();
}

/** Resolves the token that HTTP clients must send. @throws {HubError} usage */
export async function resolveToken(
  { text, baseDir }: HttpToken,
  env: Env,
  schemes: Schemes = new Map(),
): Promise<string> {
  const scope: Scope = {
    syntax: "toolmux",
    baseDir,
    env,
    cwd: baseDir,
    schemes,
    secrets: new Set(),
    missing: [],
    unknown: [],
    fail: (_, message) => new HubError("usage", `${message}.`),
  };
  const token = await render(text, "hub.httpToken", scope);
  requireAll(scope);
  return token;
}
