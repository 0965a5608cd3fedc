import { sanitizePrefix } from "../manifest/merge.ts";
import { SELF_REASON, TOOLMUX_KEY } from "../manifest/own-entry.ts";
import { findSuspectedSecrets, isSecretName } from "../manifest/plaintext-secrets.ts";
import type { ServerSpec } from "../manifest/manifest.ts";
import { isTable } from "../manifest/table.ts";
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

/**
 * Plans the import of servers from clients' files into a manifest.
 * @param addsAll whether to also import servers of a single project, and servers that differ from one in the manifest
 * only in the version of a package
 */
export async function planImport(
  files: readonly ClientFile[],
  { servers, separator }: TakenNames,
  home: ClientFolders,
  addsAll = false,
): Promise<ImportPlan> {
  const planned: PlannedServer[] = [];
  const skipped: SkippedServer[] = [];
  /** Names of servers in the manifest and of servers to be added, by identity (see `identifyEntry`). */
  const namesByIdentity = new Map(
    servers.flatMap((spec) => identifySpec(spec).map((it) => [it, spec.name])),
  );
  const names = new Set(servers.map(({ name }) => name));
  const add = async (file: ClientFile, clientServer: ClientServer): Promise<void> => {
    const source = { client: file.client.name, file: file.file, name: clientServer.name };
    const base = sanitizePrefix(clientServer.name.replace(/[^\w-]+/g, "-"), separator);
    const name = chooseName(base, names);
    const { client, inputs } = file;
    const place = {
      client,
      home,
      file: file.file,
      server: name,
      project: clientServer.project,
      inputs,
    };
    if (clientServer.name === TOOLMUX_KEY) {
      skipped.push({ source, reason: SELF_REASON, identicalServer: undefined });
      return;
    }
    if (clientServer.project !== undefined && !addsAll) {
      const reason = `it is only for the project ${clientServer.project}; --all adds it for all`;
      skipped.push({ source, reason, identicalServer: undefined });
      return;
    }
    const translated = await translateEntry(clientServer.entry, place);
    if (!translated.ok) {
      skipped.push({ source, reason: translated.reason, identicalServer: undefined });
      return;
    }
    const { entry, notes, requiredSecrets } = translated;
    const identity = identifyEntry(entry);
    const identicalServer =
      namesByIdentity.get(identity) ??
      namesByIdentity.get(withOldWorkspace(identity)) ??
      findWithStoredSecrets(entry, base, namesByIdentity);
    if (identicalServer !== undefined) {
      skipped.push({ source, reason: `it is the same as "${identicalServer}"`, identicalServer });
      return;
    }
    const otherVersion = addsAll ? undefined : findOtherVersion(identity, namesByIdentity);
    if (otherVersion !== undefined) {
      const reason = `it looks like "${otherVersion}" in another version; --all adds it`;
      skipped.push({ source, reason, identicalServer: undefined });
      return;
    }
    namesByIdentity.set(identity, name);
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

/**
 * Finds the server in the manifest that an earlier import made from this entry, if that import moved the entry's
 * secrets into the secret store.
 */
function findWithStoredSecrets(
  entry: ServerEntry,
  base: string,
  namesByIdentity: ReadonlyMap<string, string>,
): string | undefined {
  const names = new Set(namesByIdentity.values());
  return [...names].find((name) => {
    if (name !== base && !(name.startsWith(`${base}-`) && /-\d+$/.test(name))) return false;
    const withStoredSecrets = replacePlaintextSecrets(entry, findPlaintextSecrets(entry, name));
    return namesByIdentity.get(identifyEntry(withStoredSecrets)) === name;
  });
}

/**
 * The identity of a server, as text. Two entries with the same command and arguments, or the same URL, are one server.
 */
export function identifyEntry({ command, args = [], url }: ServerEntry): string {
  return JSON.stringify([command ?? null, args, url ?? null]);
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
function findOtherVersion(
  identity: string,
  namesByIdentity: ReadonlyMap<string, string>,
): string | undefined {
  const plain = withoutVersions(identity);
  return [...namesByIdentity].find(([other]) => withoutVersions(other) === plain)?.[1];
}

function withoutVersions(identity: string): string {
  const [command, args, url] = JSON.parse(identity) as [unknown, unknown, unknown];
  const plain = (arg: unknown): unknown =>
    typeof arg === "string" ? arg.replace(PACKAGE_VERSION, "$1") : arg;
  return JSON.stringify([command, Array.isArray(args) ? args.map(plain) : args, url]);
}

/** Replaces `${workspaceFolder}` in an identity by `.`, which older manifests have instead. */
function withOldWorkspace(identity: string): string {
  return identity.replaceAll(WORKSPACE_PLACEHOLDER, ".");
}

/**
 * All identities of a server in the manifest (see `identifyEntry`). If its placeholders are in a client's syntax, one
 * of the identities has them converted to the manifest's syntax, so that equal servers are found.
 */
export function identifySpec(spec: ServerSpec): readonly string[] {
  if (spec.kind === "stdio") {
    const { command, args, syntax } = spec;
    const own = identifyEntry({ command, args });
    return syntax === "toolmux"
      ? [own]
      : [own, own.replaceAll(/\$\{(?!env:|workspaceFolder\})(\w+)/g, "${env:$1")];
  }
  return spec.kind === "remote" ? [identifyEntry({ url: spec.url })] : [];
}
