import { Buffer } from "node:buffer";
import { basename, resolve, sep } from "node:path";
import process from "node:process";
import { type ErrorCode, HubError } from "../base/errors.ts";
import { type Env, expandHome, homeFolder } from "../base/paths.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import {
  type ClientPlaceholders,
  parseTemplate,
  secretsMentionedIn,
  type TemplatePart,
  unknownSchemeMessage,
} from "./interpolate.ts";
import { findModel, type ModelProvider, type ModelSpec } from "./agents.ts";
import { alternativeCommands } from "./package.ts";
import { findSuspectedSecrets, isSecretName, looksRandom } from "./plaintext-secrets.ts";
import type {
  ExternalServer,
  HttpToken,
  Manifest,
  OAuthSettings,
  RemoteServer,
  StdioServer,
} from "./manifest.ts";
import { createTable } from "./table.ts";

/** Resolvers of `${scheme:path}`, by scheme. They reject with an Error whose message may be shown. */
export type SchemeResolvers = ReadonlyMap<
  string,
  (path: string, server: string) => Promise<string>
>;

/** The maximum size of a file that `${file:…}` reads, in bytes. */
const MAX_FILE = 64 * 1024;

/**
 * Minimum length of a value that is redacted, in characters: redacting shorter values (`1`, `true`, `warn`) would make
 * most messages unreadable.
 */
const MIN_SECRET_LENGTH = 6;
/** The lower minimum for values of `${scheme:…}` and API keys: they are certainly secret, even if as short as a PIN. */
const MIN_NAMED_SECRET_LENGTH = 4;

/** Environment variables whose values are not secret. */
const PUBLIC_VARIABLES =
  /^(?:HOME|PATH|PWD|USER|LOGNAME|SHELL|TERM|LANG|TZ|TMPDIR|HOSTNAME|LC_.*|XDG_.*)$/;

/**
 * The context in which the `${…}` of a server or of another text, such as the HTTP token, are resolved. `name`: the
 * name of the server; absent for another text.
 */
export interface TemplateScope extends Pick<StdioServer, "syntax" | "baseDir"> {
  readonly name?: string;
  readonly env: Env;
  /** The environment that says where the home folder is; absent: `env`. Set if `env` has only a client's variables. */
  readonly homeEnv?: Env | undefined;
  readonly cwd: string;
  readonly schemes: SchemeResolvers;
  readonly secrets: Set<string>;
  /** One sentence for each missing value. They are collected, so that one error reports all missing values. */
  readonly problems: string[];
  /** The names of missing secrets. */
  readonly missingSecrets: string[];
  fail(code: ErrorCode, message: string, data?: MissingValues): HubError;
}

/** The data of a `valueMissing` error; hints for the user are made from it. */
export interface MissingValues {
  /** The names of the missing secrets, which `toolmux secret set NAME` can set. */
  readonly secrets: readonly string[];
}

/**
 * Checks that no value is missing.
 * @throws {HubError} valueMissing; the message names all missing values
 */
function requireValues(scope: TemplateScope): void {
  const { problems, missingSecrets } = scope;
  if (problems.length === 0) return;
  throw scope.fail(
    "valueMissing",
    problems.join("; "),
    missingSecrets.length > 0 ? { secrets: [...new Set(missingSecrets)] } : undefined,
  );
}

export function missingSecretsOf({ data }: HubError): readonly string[] {
  const names = data?.["secrets"];
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

async function fillTemplate(text: string, where: string, scope: TemplateScope): Promise<string> {
  let value = "";
  for (const part of parseTemplate(text, scope.syntax)) value += await fillPart(part, where, scope);
  const fault = findTextFault(value, where);
  if (fault !== undefined) throw scope.fail("notSupported", fault);
  return value;
}

function findTextFault(value: string, where: string): string | undefined {
  return value.includes("\0")
    ? `${where} contains a NUL character, which a process cannot get`
    : undefined;
}

/**
 * Finds what makes a server fail at each start whatever its `${…}` are: a NUL character, a URL that is none of HTTP, a
 * header that HTTP does not allow. Texts with a `${…}` are not judged.
 * @returns the reason, without values of the server; undefined if there is none
 */
export function findStaticFault(server: ExternalServer): string | undefined {
  const literalOf = (text: string): string | undefined => {
    const parts = parseTemplate(text, server.syntax);
    return parts.every((part) => part.kind === "text")
      ? parts.map((part) => part.text).join("")
      : undefined;
  };
  const inText = (text: string | undefined, where: string): string | undefined => {
    const literal = text === undefined ? undefined : literalOf(text);
    return literal === undefined ? undefined : findTextFault(literal, where);
  };
  if (server.kind === "stdio") {
    const { command, args, env, cwd } = server;
    const texts: readonly (readonly [string | undefined, string])[] = [
      [command, "command"],
      ...args.map((arg, index) => [arg, `args[${index}]`] as const),
      ...Object.entries(env).map(([name, text]) => [text, `env.${name}`] as const),
      [cwd, "cwd"],
    ];
    return firstOf(texts, ([text, where]) => inText(text, where));
  }
  const url = literalOf(server.url);
  const fault = url === undefined ? undefined : findUrlFault(url, server.url);
  if (fault !== undefined) return fault;
  return firstOf(Object.entries(server.headers), ([name, text]) => {
    const literal = literalOf(text) ?? "";
    return isHeader(name, literal) ? undefined : `headers.${name} is not a valid HTTP header`;
  });
}

function firstOf<T>(
  items: readonly T[],
  find: (item: T) => string | undefined,
): string | undefined {
  for (const item of items) {
    const found = find(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

async function fillPart(part: TemplatePart, where: string, scope: TemplateScope): Promise<string> {
  switch (part.kind) {
    case "text":
      return part.text;
    case "env":
      return readVariable(part, where, scope);
    case "file":
      return registerSecret(await readSecretFile(part.path, where, scope), scope);
    case "placeholder":
      return PLACEHOLDER_VALUES[part.place](scope);
    case "scheme":
      return registerSecret(
        await resolveScheme(part, where, scope),
        scope,
        MIN_NAMED_SECRET_LENGTH,
      );
    case "invalid":
      throw scope.fail("notSupported", `${where} contains ${part.message}`);
  }
}

const PLACEHOLDER_VALUES: Readonly<Record<ClientPlaceholders, (scope: TemplateScope) => string>> = {
  workspaceFolder: ({ cwd }) => cwd,
  workspaceFolderBasename: ({ cwd }) => basename(cwd),
  userHome: ({ env, homeEnv = env }) => homeFolder(homeEnv),
  pathSeparator: () => sep,
};

/**
 * The value of an environment variable. As in a shell (`${NAME:-fallback}`), the fallback also replaces an empty
 * variable. Without a fallback, an empty variable is valid.
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
  const reason =
    scope.homeEnv === undefined
      ? "which is not set"
      : "which its client does not have (set it there, and start the client again)";
  scope.problems.push(`${where} needs the environment variable ${name}, ${reason}`);
  return "";
}

/** Reads a secret from a file. A line end at the end of the file is not a part of the secret. */
async function readSecretFile(path: string, where: string, scope: TemplateScope): Promise<string> {
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

/**
 * Resolves a placeholder of a secret, a command or a plugin.
 * @throws {HubError} notSupported if no plugin provides the scheme; storeBusy, after which a retry may succeed
 */
async function resolveScheme(
  { scheme, path }: Extract<TemplatePart, { kind: "scheme" }>,
  where: string,
  scope: TemplateScope,
): Promise<string> {
  const resolver = scope.schemes.get(scheme);
  if (resolver === undefined) {
    const message = `${where} contains ${unknownSchemeMessage(scheme)}; no plugin provides it`;
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

function resolvePath(path: string, { baseDir, env, homeEnv = env }: TemplateScope): string {
  return resolve(baseDir, expandHome(path, homeEnv));
}

function registerSecret(
  value: string,
  { secrets }: TemplateScope,
  minLength = MIN_SECRET_LENGTH,
): string {
  if (value.length >= minLength) secrets.add(value);
  return value;
}

/** The data that is needed to spawn a server, with every `${…}` resolved. */
export interface ResolvedServer {
  /** The program: an absolute path if it was written as a path, else a bare name to look up in PATH. */
  readonly command: string;
  readonly args: readonly string[];
  /** Alternative commands if `command` is not installed, in order of preference. */
  readonly alternatives?: readonly Pick<ResolvedServer, "command" | "args">[] | undefined;
  /**
   * The environment variables of the server: those of `inheritEnv` that are set, overridden by those of `env`,
   * without the variables that every server inherits. No prototype.
   */
  readonly env: Readonly<Record<string, string>>;
  /** The working directory, absolute; undefined: the hub's working directory. */
  readonly cwd: string | undefined;
  /** Values that must be redacted, longest first: a value must be replaced before any value that is a part of it. */
  readonly secrets: readonly string[];
}

/** The data that is needed to connect to an HTTP server, with every `${…}` resolved. */
export interface ResolvedRemote {
  /** An `http:` or `https:` URL without user name and password. */
  readonly url: URL;
  /** HTTP headers by name. No prototype. */
  readonly headers: Readonly<Record<string, string>>;
  /** The bearer token from `keyFile`. */
  readonly bearerToken: string | undefined;
  /** PEM certificates that are trusted in addition to the system's. */
  readonly ca: string | undefined;
  readonly oauth: OAuthSettings;
  /** The values to redact, as in `ResolvedServer`. */
  readonly secrets: readonly string[];
}

/**
 * Resolves a server's `${…}`, right before each spawn. A leading `~/` in `command` and `cwd` is the home folder. The
 * parameters `env` and `cwd` (`${workspaceFolder}`) are the hub's own, or those of a client of a shared hub, and then
 * `homeEnv` is the hub's environment; `schemes` resolves the plugins' placeholders; `secrets` receives values to redact,
 * even if resolving fails.
 * @throws {HubError} valueMissing or notSupported, with the server and the step "resolve"
 */
export async function resolveServer(
  server: StdioServer,
  env: Env,
  cwd: string = process.cwd(),
  schemes: SchemeResolvers = new Map(),
  secrets: Set<string> = new Set(),
  homeEnv?: Env,
): Promise<ResolvedServer> {
  const scope = scopeOf(server, env, cwd, schemes, secrets, homeEnv);
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
  homeEnv?: Env,
): Promise<ResolvedRemote> {
  const scope = scopeOf(server, env, cwd, schemes, secrets, homeEnv);
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
  const parsed = parseUrl(url, server.url, scope);
  for (const [name, value] of parsed.searchParams) {
    if (isSecretName(name) || looksRandom(value)) registerSecret(value, scope);
  }
  return { url: parsed, headers, bearerToken, ca, oauth, secrets: sortSecrets(scope) };
}

/** The action on a server, by its kind, as error messages say it. */
const ACTIONS: Readonly<Record<ExternalServer["kind"], string>> = {
  stdio: "started",
  remote: "reached",
};

function scopeOf(
  server: ExternalServer,
  env: Env,
  cwd: string,
  schemes: SchemeResolvers,
  secrets: Set<string>,
  homeEnv: Env | undefined,
): TemplateScope {
  const { name, syntax, baseDir } = server;
  const action = ACTIONS[server.kind];
  const fail = (code: ErrorCode, message: string, data?: MissingValues): HubError => {
    const text = `server "${name}" cannot be ${action}: ${message}`;
    return new HubError(code, text, { server: name, step: "resolve", data: data && { ...data } });
  };
  const collected = { problems: [], missingSecrets: [] };
  return { name, syntax, baseDir, env, homeEnv, cwd, schemes, secrets, ...collected, fail };
}

function sortSecrets({ secrets }: TemplateScope): readonly string[] {
  return [...secrets].toSorted((a, b) => b.length - a.length);
}

/** @param instead the key to suggest in the error if the URL contains a password */
function parseUrl(
  text: string,
  template: string,
  scope: TemplateScope,
  instead = "headers.Authorization",
): URL {
  const fault = findUrlFault(text, template, instead);
  if (fault !== undefined) throw scope.fail("notSupported", fault);
  const url = new URL(text);
  url.hash = "";
  return url;
}

/** What makes a text unusable as the URL of a server. Quotes nothing of it but its scheme: the rest may be secret. */
function findUrlFault(
  text: string,
  template: string,
  instead = "headers.Authorization",
): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    const [scheme] = /^[a-z][a-z\d+.-]*:(?:\/\/)?/i.exec(template) ?? [];
    const isOther = scheme !== undefined && !/^https?:/i.test(scheme);
    const problem = isOther ? `starts with "${scheme}"` : "is not valid";
    return `its url ${problem}; it must start with http:// or https:// and name a host`;
  }
  return url.username !== "" || url.password !== ""
    ? `its url contains a password; use ${instead} instead`
    : undefined;
}

/** Rejects values that could inject another header. */
function checkHeader(name: string, value: string, scope: TemplateScope): string {
  if (isHeader(name, value)) return value.trim();
  throw scope.fail("notSupported", `headers.${name} is not a valid HTTP header`);
}

function isHeader(name: string, value: string): boolean {
  return HEADER_NAME.test(name) && HEADER_VALUE.test(value);
}
const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Registers a header's value, and the credentials that follow its authorization scheme, for redaction. */
function registerHeader(value: string, scope: TemplateScope): void {
  registerSecret(value, scope);
  const [, scheme, credentials] = /^(\S+) +(.+)$/.exec(value) ?? [];
  if (scheme === undefined || credentials === undefined) return;
  registerSecret(credentials, scope);
  if (scheme.toLowerCase() === "basic") registerBasicCredentials(credentials, scope);
}

/** Registers the decoded user name and password of Basic credentials for redaction, too. */
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

/** The settings of a model, with every `${…}` resolved. */
export interface ResolvedModel {
  /** An `http:` or `https:` URL without a password; undefined: the provider's own. */
  readonly url: URL | undefined;
  /** The API key; undefined: requests carry no key. */
  readonly apiKey: string | undefined;
  /** The file of a model with provider `script`, absolute. */
  readonly script: string | undefined;
  /** The values to redact, as in `ResolvedServer`. */
  readonly secrets: readonly string[];
}

/** For each provider, the environment variables that may hold its API key, in the order in which they are looked up. */
const KEY_VARIABLES: Readonly<Partial<Record<ModelProvider, readonly string[]>>> = {
  anthropic: ["ANTHROPIC_API_KEY"],
  openai: ["OPENAI_API_KEY"],
  google: ["GEMINI_API_KEY", "GOOGLE_API_KEY"],
};

/**
 * Resolves a model's `${…}`, right before each run. Without `apiKey`, the key is the secret with the provider's name,
 * or an environment variable; such a key is used only with the provider's own URL. `schemes` and `secrets` are as in
 * `resolveServer`.
 * @throws {HubError} valueMissing or notSupported
 */
export async function resolveModel(
  model: ModelSpec,
  env: Env,
  cwd: string,
  schemes: SchemeResolvers = new Map(),
  secrets: Set<string> = new Set(),
): Promise<ResolvedModel> {
  const fail = (code: ErrorCode, message: string, data?: MissingValues): HubError => {
    const name = JSON.stringify(model.name);
    return new HubError(code, `Model ${name} cannot be used: ${message}.`, {
      data: data && { ...data },
    });
  };
  const { baseDir } = model;
  const collected = { problems: [], missingSecrets: [] };
  const scope: TemplateScope = {
    syntax: "toolmux",
    baseDir,
    env,
    cwd,
    schemes,
    secrets,
    ...collected,
    fail,
  };
  const fill = async (key: "url" | "apiKey" | "script"): Promise<string | undefined> => {
    const text = model[key];
    return text === undefined ? undefined : fillTemplate(text, key, scope);
  };
  const url = await fill("url");
  const script = await fill("script");
  let apiKey = (await fill("apiKey"))?.trim();
  if (model.apiKey === undefined && url === undefined) apiKey = await findProviderKey(model, scope);
  requireValues(scope);
  if (apiKey !== undefined) {
    registerSecret(apiKey, scope, MIN_NAMED_SECRET_LENGTH);
    if (!HEADER_VALUE.test(apiKey))
      throw scope.fail("notSupported", "its apiKey has characters that no HTTP header can have");
  }
  if (url !== undefined) {
    for (const suspect of findSuspectedSecrets("url", url)) registerSecret(suspect.value, scope);
  }
  return {
    url: url === undefined ? undefined : parseUrl(url, model.url ?? "", scope, "apiKey"),
    apiKey: apiKey === "" ? undefined : apiKey,
    script: script === undefined ? undefined : resolvePath(script, scope),
    secrets: sortSecrets(scope),
  };
}

/** A secret that a model uses. */
export interface ModelSecret {
  readonly name: string;
  readonly model: string;
  /** Environment variables that can hold the key instead of the secret. */
  readonly variables: readonly string[];
  /** The sources in which the secret is looked up, in this order; undefined: the default. */
  readonly sources: ModelSpec["secretSources"];
}

/** The secrets of all valid models: those in the table `models`, and those that only agents name. */
export function secretsOfModels({
  models = new Map<string, never>(),
  agents = new Map<string, never>(),
}: Manifest): readonly ModelSecret[] {
  const named = [...agents.values()].flatMap((agent) => ("model" in agent ? [agent.model] : []));
  return [...new Set([...models.keys(), ...named])].flatMap((model): readonly ModelSecret[] => {
    const spec = findModel(model, { models, baseDir: "" });
    if (spec === undefined || "problems" in spec) return [];
    const { url, apiKey, script, provider, secretSources: sources } = spec;
    const names = secretsMentionedIn([url, apiKey, script]);
    const own = names.map((name) => ({ name, model, variables: [], sources }));
    const variables = KEY_VARIABLES[provider];
    return apiKey !== undefined || url !== undefined || variables === undefined
      ? own
      : [...own, { name: provider, model, variables, sources }];
  });
}

/**
 * The API key of a provider: the secret with the provider's name, else an environment variable. Undefined if the
 * provider needs no key, or if the key is missing. A missing key is added to the scope's problems.
 */
async function findProviderKey(
  { provider }: ModelSpec,
  scope: TemplateScope,
): Promise<string | undefined> {
  const variables = KEY_VARIABLES[provider];
  if (variables === undefined) return undefined;
  try {
    const secret = await scope.schemes.get("secret")?.(provider, "");
    if (secret !== undefined) return secret.trim();
  } catch (error) {
    if (!(error instanceof HubError) || error.code !== "valueMissing") throw error;
  }
  const found = variables.map((name) => scope.env[name]?.trim() ?? "").find((key) => key !== "");
  if (found !== undefined) return found;
  const names = variables.join(" or ");
  scope.problems.push(`it has no API key; run: toolmux secret set ${provider}, or set ${names}`);
  scope.missingSecrets.push(provider);
  return undefined;
}

/**
 * Resolves a token that HTTP clients must send, or another secret text of the manifest.
 * @param what the name of the token in messages
 * @throws {HubError} usage
 */
export async function resolveHttpToken(
  { text, baseDir }: HttpToken,
  env: Env,
  schemes: SchemeResolvers = new Map(),
  what = "hub.httpToken",
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
  const token = await fillTemplate(text, what, scope);
  requireValues(scope);
  return token;
}
