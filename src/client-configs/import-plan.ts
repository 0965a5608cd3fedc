import { resolve } from "node:path";
import { parseDuration } from "../manifest/fields.ts";
import { mergeConfigs, sanitizePrefix } from "../manifest/merge/merge.ts";
import { SELF_REASON, TOOLMUX_KEY } from "../manifest/files/own-entry.ts";
import { findSuspectedSecrets, isSecretName } from "../manifest/plaintext-secrets.ts";
import { type ExternalServer, isExternal, type ServerSpec } from "../manifest/manifest.ts";
import { formatPath, type Position } from "../manifest/problems.ts";
import { readServers } from "../manifest/files/manifest-file.ts";
import { findStaticFault } from "../manifest/resolve.ts";
import { createTable, isDeepEqual, isTable, type Table } from "../manifest/table.ts";
import type { ClientFolders } from "./clients.ts";
import {
  secretName,
  type ServerEntry,
  translateEntry,
  WORKSPACE_PLACEHOLDER,
} from "./entry-to-manifest.ts";
import type { ClientFile, ClientServer } from "./read.ts";

/** A value in an entry that looks like a secret in plain text. */
export interface PlaintextSecret {
  /** The path of the value in the entry: `["env", "TOKEN"]`, `["args", 2]`. */
  readonly path: readonly (string | number)[];
  /** The path as shown to people: `env.TOKEN`. */
  readonly label: string;
  /** The name that the secret would be stored under. */
  readonly secretName: string;
  readonly value: string;
}

/** Finds the values in an entry (in the manifest's schema) that look like secrets in plain text. */
export function findPlaintextSecrets(
  entry: ServerEntry,
  server: string,
): readonly PlaintextSecret[] {
  const found: PlaintextSecret[] = [];
  const add = (path: PlaintextSecret["path"], name: string, value: string): void => {
    // A value with a placeholder is not a secret in plain text: the secret is stored elsewhere. (A literal `${` is
    // escaped as `$${`.)
    if (value.includes("${")) return;
    const secret = secretName(server, name);
    const isTaken = found.some((each) => each.secretName === secret && each.value !== value);
    const unique = isTaken ? `${secret}-${found.length + 1}` : secret;
    found.push({ path, label: path.join("."), secretName: unique, value });
  };
  /** @param owner prefix of the secret's name if the secret is only a part of the text, such as `DATABASE_URL-` */
  const inspect = (path: PlaintextSecret["path"], name: string, text: string, owner = ""): void => {
    for (const { part, value } of findSuspectedSecrets(name, text)) {
      add(path, part === undefined ? name : `${owner}${part}`, value);
    }
  };
  for (const key of ["env", "headers"]) {
    const table = entry[key];
    for (const [name, text] of Object.entries(isTable(table) ? table : {})) {
      if (typeof text !== "string") continue;
      // The authentication scheme, such as `Bearer`, is not part of the secret.
      const [, credentials] = key === "headers" ? (AUTHORIZATION_VALUE.exec(text) ?? []) : [];
      inspect([key, name], name, credentials ?? text, `${name}-`);
    }
  }
  const args: readonly unknown[] = Array.isArray(entry["args"]) ? entry["args"] : [];
  for (const [at, arg] of args.entries()) {
    if (typeof arg !== "string") continue;
    const before = args[at - 1];
    const named = /^(-{0,2}[\w.-]+)\s*[=:]\s*(.+)$/s.exec(arg);
    const isValue =
      typeof before === "string" &&
      /^--?[\w-]+$/.test(before) &&
      isSecretName(before) &&
      !arg.startsWith("-");
    if (isValue) inspect(["args", at], before, arg);
    else if (/^\w+:\/\//.test(arg)) inspect(["args", at], `arg-${at}`, arg);
    else if (named !== null && !/^[A-Za-z]:[\\/]/.test(arg)) {
      const [, name = "", value = ""] = named;
      inspect(["args", at], name, AUTHORIZATION_VALUE.exec(value)?.[1] ?? value);
    } else inspect(["args", at], `arg-${at}`, arg);
  }
  const { command, cwd, url, oauth } = entry;
  for (const [key, text] of Object.entries({ command, cwd, url })) {
    if (typeof text === "string") inspect([key], key, text);
  }
  for (const [name, text] of Object.entries(isTable(oauth) ? oauth : {})) {
    if (typeof text === "string") inspect(["oauth", name], name, text);
  }
  return found;
}

const AUTHORIZATION_VALUE = /^(?:Bearer|Basic|Token|ApiKey|Key) +(\S.*)$/i;

/** Replaces the values of these secrets in the entry by `${secret:…}`. */
export function replacePlaintextSecrets(
  entry: ServerEntry,
  secrets: readonly PlaintextSecret[],
): ServerEntry {
  return secrets.reduce((at, { path, value, secretName: secret }) => {
    return replaceAt(at, path, (text) =>
      text.replace(value, () => `\${secret:${secret}}`),
    ) as ServerEntry;
  }, entry);
}

function replaceAt(
  at: unknown,
  [key, ...rest]: readonly (string | number)[],
  change: (text: string) => string,
): unknown {
  if (key === undefined) return typeof at === "string" ? change(at) : at;
  if (Array.isArray(at)) {
    return (at as readonly unknown[]).map((it, i) =>
      i === key ? replaceAt(it, rest, change) : it,
    );
  }
  if (!isTable(at)) return at;
  return { ...at, [key]: replaceAt(at[key], rest, change) };
}

/** A server that would be added to the manifest. */
export interface PlannedServer {
  readonly name: string;
  readonly entry: ServerEntry;
  readonly source: ServerSource;
  readonly notes: readonly string[];
  /** The names of the secrets that must be set before the server can be used. */
  readonly requiredSecrets: readonly string[];
  readonly plaintextSecrets: readonly PlaintextSecret[];
}

/** A server that would not be added. `reason` is a clause such as "it is the same as …". */
export interface SkippedServer {
  readonly source: ServerSource;
  readonly reason: string;
  /** The position of the entry in the client's file; undefined if the entry is right as it is. */
  readonly position?: Position | undefined;
  /**
   * The name of the identical server in the manifest or in the file of another client; undefined if the server is skipped for
   * another reason.
   */
  readonly identicalServer: string | undefined;
}

export interface ServerSource {
  readonly client: string;
  /** The client's file, absolute. */
  readonly file: string;
  readonly name: string;
}

export interface ImportPlan {
  readonly planned: readonly PlannedServer[];
  readonly skipped: readonly SkippedServer[];
}

/** The servers whose names are taken, and the separator, which new names must not contain. */
export interface TakenNames {
  readonly servers: readonly ServerSpec[];
  readonly separator: string;
}

/** Reads a secret of the store; undefined if it is not there or cannot be read. */
export type SecretReader = (name: string) => Promise<string | undefined>;

/**
 * Plans the import of servers from clients' files into a manifest. Every planned entry is valid by itself. An entry that
 * cannot be used is skipped, and does not affect the others.
 * @param addsAll whether to also import servers of a single project, and servers that differ from one in the manifest
 * only in the version of a package
 * @param readSecret tells servers with different stored secrets apart; undefined: they count as the same
 */
export async function planImport(
  files: readonly ClientFile[],
  { servers, separator }: TakenNames,
  home: ClientFolders,
  addsAll = false,
  readSecret?: SecretReader,
): Promise<ImportPlan> {
  const planned: PlannedServer[] = [];
  const skipped: SkippedServer[] = [];
  const known: KnownServer[] = servers.flatMap((spec) =>
    identifySpec(spec).map((identity) => ({ name: spec.name, identity, settings: spec })),
  );
  // A new server's prefix is its name, so the prefixes of other servers are taken, too.
  const names = new Set(servers.flatMap(({ name, prefix }) => [name, prefix]));
  const add = async (file: ClientFile, clientServer: ClientServer): Promise<void> => {
    const source = { client: file.client.name, file: file.file, name: clientServer.name };
    const base = sanitizePrefix(clientServer.name.replace(/[^\w-]+/g, "-"), separator);
    const name = chooseName(base, names);
    const { client, inputs } = file;
    const skip = (reason: string, identicalServer?: string): void => {
      skipped.push({ source, reason, identicalServer });
    };
    const refuse = async (reason: string): Promise<void> => {
      const position = (await file.preparePositions())(clientServer.path, "key");
      skipped.push({ source, reason, position, identicalServer: undefined });
    };
    if (clientServer.name === TOOLMUX_KEY) return skip(SELF_REASON);
    if (clientServer.project !== undefined && !addsAll) {
      return skip(`it is only for the project ${clientServer.project}; --all adds it for all`);
    }
    const project = clientServer.project ?? file.project;
    const place = { client, home, file: file.file, server: name, project, inputs };
    const translated = await translateEntry(clientServer.entry, place);
    if (!translated.ok) return refuse(translated.reason);
    const { entry, notes, requiredSecrets } = translated;
    const fault = faultOf(name, entry, separator);
    if (fault !== undefined) return refuse(fault);
    const identity = identifyEntry(entry);
    const same = await findSame(entry, base, known, readSecret);
    if (same !== undefined) return skip(describeSame(entry, same), same.name);
    const otherVersion = addsAll ? undefined : findOtherVersion(identity, known);
    if (otherVersion !== undefined) {
      return skip(`it looks like "${otherVersion}" in another version; --all adds it`);
    }
    known.push({ name, identity, settings: entry });
    names.add(name);
    const allNotes = [
      ...(name === clientServer.name ? [] : [`its name in the client is "${clientServer.name}"`]),
      ...notes,
      ...(JSON.stringify(entry).includes(WORKSPACE_PLACEHOLDER) ? [WORKSPACE_NOTE] : []),
    ];
    planned.push({
      name,
      entry,
      source,
      notes: allNotes,
      requiredSecrets,
      plaintextSecrets: findPlaintextSecrets(entry, name),
    });
  };
  for (const file of files) for (const clientServer of file.servers) await add(file, clientServer);
  return { planned, skipped };
}

/** The base name or, if it is taken, the first free name that ends with a number. */
function chooseName(base: string, taken: ReadonlySet<string>): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? base : `${base}-${number}`;
    if (!taken.has(name)) return name;
  }
}

/** What is wrong with an entry as a server of a manifest, without its values; undefined if it is valid. */
function faultOf(name: string, entry: ServerEntry, separator: string): string | undefined {
  const source = { file: "", baseDir: "/" };
  const { servers, ...found } = readServers(
    Object.assign(createTable(), { [name]: entry }),
    source,
    [],
  );
  const common = { hub: { separator }, defaults: {}, plugins: [], notes: [] };
  const config = { ...source, ...common, servers, problems: [], schemeProblems: [] };
  const merged = mergeConfigs([config]);
  const [problem] = [...found.problems, ...found.schemeProblems, ...merged.problems];
  if (problem !== undefined)
    return `${formatPath(problem.path.slice(1))} ${problem.message}`.trim();
  const [spec] = merged.servers;
  return spec !== undefined && isExternal(spec) ? findStaticFault(spec) : undefined;
}

/** A server that an entry can be the same as: one of the manifest, or one that will be added. */
interface KnownServer {
  readonly name: string;
  /** See `identifyEntry`. */
  readonly identity: string;
  readonly settings: ServerSpec | ServerEntry;
}

/**
 * Finds the server that is the same as an entry: with the entry's values, or with secrets in the secret store in their
 * places, where an earlier import put them. A server that shows tools that the entry hides is another one.
 * @param base the name that an import gives the server if no other has it
 */
async function findSame(
  entry: ServerEntry,
  base: string,
  known: readonly KnownServer[],
  readSecret: SecretReader | undefined,
): Promise<KnownServer | undefined> {
  const identity = identifyEntry(entry);
  const identities = [identity, withOldWorkspace(identity)];
  const alike = known.filter(({ settings }) => hidesAlike(entry, settings));
  const same = alike.find((server) => identities.includes(server.identity));
  if (same !== undefined) return same;
  for (const server of alike) {
    const { name } = server;
    const owners = /-\d+$/.test(name) && name.startsWith(`${base}-`) ? [name, base] : [base];
    for (const owner of owners) {
      const secrets = findPlaintextSecrets(entry, owner);
      const stored = identifyEntry(replacePlaintextSecrets(entry, secrets));
      if (stored === server.identity && (await areStored(secrets, readSecret))) return server;
    }
  }
  return undefined;
}

/** Whether none of these secrets is known to have another value in the store. */
async function areStored(
  secrets: readonly PlaintextSecret[],
  readSecret: SecretReader | undefined,
): Promise<boolean> {
  for (const { secretName: name, value } of secrets) {
    const stored = await readSecret?.(name);
    if (stored !== undefined && stored !== value) return false;
  }
  return true;
}

/** The lists of tools of an entry or of a server in the manifest. */
function toolListsOf(settings: ServerSpec | ServerEntry): {
  readonly allow: unknown;
  readonly deny: readonly unknown[];
} {
  const tools = "tools" in settings ? settings.tools : undefined;
  const { allow, deny }: Table = isTable(tools) ? tools : {};
  return { allow, deny: Array.isArray(deny) ? deny : [] };
}

/**
 * Whether a server can stand for an entry: the tools that the entry hides are hidden, too. In the manifest, people
 * choose the tools anew, so there every choice counts.
 */
function hidesAlike(entry: ServerEntry, settings: ServerSpec | ServerEntry): boolean {
  const [own, other] = [toolListsOf(entry), toolListsOf(settings)];
  if (isDeepEqual(own, other)) return true;
  const isSpec = "kind" in settings && "prefix" in settings;
  if (!isSpec) return false;
  return (
    (own.allow === undefined && own.deny.length === 0) ||
    other.allow !== undefined ||
    other.deny.length > 0
  );
}

/** Says that an entry is the same as a server, and which of its settings the server does not have. */
function describeSame(entry: ServerEntry, { name, settings }: KnownServer): string {
  const other: Table = { ...settings };
  const keys = ["title", "description", "connectTimeout", "callTimeout"].filter(
    (key) => entry[key] !== undefined && limitInMs(entry[key]) !== limitInMs(other[key]),
  );
  if (!isDeepEqual(toolListsOf(entry), toolListsOf(settings))) keys.push("tools");
  const isOff = entry["enabled"] === false;
  const state = isOff === (other["enabled"] === false) ? "" : isOff ? "enabled" : "disabled";
  return [
    `it is the same as "${name}"`,
    ...(state === "" ? [] : [`which is ${state} there`]),
    ...(keys.length === 0 ? [] : [`which has its own ${keys.join(", ")}`]),
  ].join(", ");
}

/** A limit in ms, however it is written; any other value as it is. */
function limitInMs(value: unknown): unknown {
  return (typeof value === "string" ? parseDuration(value) : undefined) ?? value;
}

/**
 * The identity of a server, as text: everything that decides what is started or connected to, with which account and
 * where. How a server is shown, and which of its tools, is not part of it.
 */
function identifyEntry(entry: ServerEntry): string {
  const {
    command,
    args = [],
    env,
    inheritEnv,
    cwd,
    url,
    transport,
    headers,
    keyFile,
    oauth,
  } = entry;
  const list = (table: unknown, nameOf = (name: string): string => name): unknown =>
    Object.entries(isTable(table) ? table : {})
      .map(([name, value]) => [nameOf(name), value] as const)
      .toSorted(([a], [b]) => (a < b ? -1 : 1));
  const names: readonly unknown[] = Array.isArray(inheritEnv) ? inheritEnv : [];
  return JSON.stringify({
    command,
    args,
    env: list(env),
    inheritEnv: names.map(String).toSorted(),
    cwd,
    url,
    isSse: transport === "sse",
    headers: list(headers, (name) => name.toLowerCase()),
    keyFile,
    oauth: list(oauth),
  });
}

const WORKSPACE_NOTE =
  "uses ${workspaceFolder}, the folder in which a client starts toolmux: that is your project only in editors";

/** Matches the name of a package with a version: `name@1.2.3`, `@scope/name@latest`, `name==1.2`, `image:1.2`. */
const PACKAGE_VERSION =
  /^((?:@[\w.-]+\/)?[\w./-]+)(?:(?:@|==|:)[~^]?v?\d[\w.+-]*|[@:](?:latest|next|beta|canary|stable))$/;

/**
 * The name of a known server that differs from the given one only in the versions of packages in its arguments;
 * undefined if there is none.
 */
function findOtherVersion(identity: string, known: readonly KnownServer[]): string | undefined {
  const plain = withoutVersions(identity);
  return known.find(
    (other) => other.identity !== identity && withoutVersions(other.identity) === plain,
  )?.name;
}

function withoutVersions(identity: string): string {
  const server = JSON.parse(identity) as { readonly args: unknown };
  const plain = (arg: unknown): unknown =>
    typeof arg === "string" ? arg.replace(PACKAGE_VERSION, "$1") : arg;
  const { args } = server;
  return JSON.stringify({ ...server, args: Array.isArray(args) ? args.map(plain) : args });
}

/** Replaces `${workspaceFolder}` in an identity by `.`, which older manifests have instead. */
function withOldWorkspace(identity: string): string {
  return identity.replaceAll(WORKSPACE_PLACEHOLDER, ".");
}

/**
 * All identities of a server in the manifest (see `identifyEntry`), so that equal servers are found: as written, with
 * its relative paths made absolute, and with a client's placeholders in the manifest's syntax.
 */
export function identifySpec(spec: ServerSpec): readonly string[] {
  if (!isExternal(spec)) return [];
  const identities = [identifyEntry(entryOf(spec))];
  if (spec.kind === "stdio") {
    const { command, cwd, baseDir } = spec;
    const absolute = (path: string): string =>
      /^[/~]|^\$\{/.test(path) ? path : resolve(baseDir, path);
    const paths = {
      command: command.includes("/") ? absolute(command) : command,
      ...(cwd !== undefined && { cwd: absolute(cwd) }),
    };
    identities.push(identifyEntry({ ...entryOf(spec), ...paths }));
  }
  if (spec.syntax === "client") {
    const own = identities.map((identity) =>
      identity.replaceAll(/\$\{(?!env:|workspaceFolder\})(\w+)/g, "${env:$1"),
    );
    identities.push(...own);
  }
  return [...new Set(identities)];
}

/** The settings of a server in the manifest that are part of its identity. */
function entryOf(spec: ExternalServer): ServerEntry {
  if (spec.kind === "stdio") {
    const { command, args, env, inheritEnv, cwd } = spec;
    return { command, args, env, inheritEnv, cwd };
  }
  const { url, transport, headers, keyFile, oauth } = spec;
  return { url, transport, headers, keyFile, oauth };
}
