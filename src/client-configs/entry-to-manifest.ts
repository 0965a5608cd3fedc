import { basename, dirname, join, resolve } from "node:path";
import { expandHome } from "../base/paths.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { parseTemplate, type TemplatePart } from "../manifest/interpolate.ts";
import {
  normalizeClientEntry,
  type ProcessTarget,
  type RemoteTarget,
} from "../manifest/files/client-entry.ts";
import { readClientTimeouts } from "../manifest/files/client-timeouts.ts";
import { printPathKey } from "../manifest/problems.ts";
import { createTable, isTable, type Table } from "../manifest/table.ts";
import type { ClientApp, ClientFolders, PlaceholderStyle } from "./clients.ts";

/** A value that an editor asks the user for (VS Code's `inputs`). */
export interface EditorInput {
  /** The default value; undefined if there is none, or if the input is a password. */
  readonly fallback: string | undefined;
}

/** The origin of a text in a client's entry: the client's file and the server. */
export interface TextSource {
  readonly placeholders: PlaceholderStyle;
  /** The client's file, absolute. */
  readonly file: string;
  /** The server's name in the manifest; secrets are stored under it. */
  readonly server: string;
  /** The project folder that the entry belongs to, absolute; undefined for an entry of all projects. */
  readonly project: string | undefined;
  readonly inputs: ReadonlyMap<string, EditorInput>;
}

export interface TranslatedText {
  readonly text: string;
  /** The names of the secrets that must be set before the text can be used. */
  readonly requiredSecrets: readonly string[];
  /** The reason why a manifest cannot express the text, as the end of a sentence; undefined if it can. */
  readonly error: string | undefined;
}

/** Converts a client's placeholders to those of the manifest. */
function translatePlaceholders(text: string, source: TextSource): TranslatedText {
  const requiredSecrets: string[] = [];
  let error: string | undefined;
  let translated = "";
  for (const part of parseClientText(text, source)) {
    const formatted = formatPart(part, source, requiredSecrets);
    if (formatted === undefined) error ??= unsupportedPartReason(part);
    else translated += formatted;
  }
  return { text: translated, requiredSecrets, error };
}

/** The manifest's placeholder for the hub's working directory. */
export const WORKSPACE_PLACEHOLDER = "${workspaceFolder}";

type ClientTextPart = TemplatePart | { readonly kind: "input"; readonly name: string };

const INPUT_PLACEHOLDER = /\$\{input:([^{}]+)\}/g;
/** A variable as `$NAME`, without braces. */
const BARE_VARIABLE = /\$([A-Za-z_][A-Za-z0-9_]*)/g;
const BRACE_PLACEHOLDER = /\{(env|file):([^{}]+)\}/g;

function parseClientText(
  text: string,
  { placeholders, file }: TextSource,
): readonly ClientTextPart[] {
  switch (placeholders) {
    case "none":
      return [{ kind: "text", text }];
    case "braces":
      return splitAtMatches(text, BRACE_PLACEHOLDER).map((piece): ClientTextPart => {
        if (typeof piece === "string") return { kind: "text", text: piece };
        const [, form, rest = ""] = piece;
        if (form === "env") return { kind: "env", name: rest, fallback: undefined };
        return { kind: "file", path: rest.startsWith("~") ? rest : resolve(dirname(file), rest) };
      });
    case "shell":
      return parseTemplate(text.replace(BARE_VARIABLE, "$${$1}"), "client");
    case "editor":
      return splitAtMatches(text, INPUT_PLACEHOLDER).flatMap((piece): readonly ClientTextPart[] =>
        typeof piece === "string"
          ? parseTemplate(piece, "client")
          : [{ kind: "input", name: piece[1] ?? "" }],
      );
  }
}

function splitAtMatches(text: string, pattern: RegExp): readonly (string | RegExpExecArray)[] {
  const pieces: (string | RegExpExecArray)[] = [];
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > from) pieces.push(text.slice(from, match.index));
    pieces.push(match);
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push(text.slice(from));
  return pieces;
}

/** Escapes a text, so that a manifest takes it literally. */
function escapePlaceholders(text: string): string {
  return text.replaceAll("${", () => "$${");
}

function formatPart(
  part: ClientTextPart,
  source: TextSource,
  requiredSecrets: string[],
): string | undefined {
  switch (part.kind) {
    case "text":
      return escapePlaceholders(part.text);
    case "env":
      return part.fallback === undefined || part.fallback.includes("}")
        ? `\${env:${part.name}}`
        : `\${env:${part.name}:-${part.fallback}}`;
    case "file":
      return `\${file:${part.path.startsWith("~") ? part.path : resolve(source.project ?? dirname(source.file), part.path)}}`;
    case "input": {
      const fallback = source.inputs.get(part.name)?.fallback;
      if (fallback !== undefined) return escapePlaceholders(fallback);
      const name = secretName(source.server, part.name);
      requiredSecrets.push(name);
      return `\${secret:${name}}`;
    }
    case "placeholder":
      if (part.place === "workspaceFolder") return workspaceOf(source);
      if (part.place === "workspaceFolderBasename" && source.project !== undefined)
        return escapePlaceholders(basename(source.project));
      if (part.place === "userHome") return "${env:HOME}";
      return part.place === "pathSeparator" ? "/" : undefined;
    case "scheme":
    case "invalid":
      return undefined;
  }
}

/**
 * The folder of the client's workspace, in the syntax of a manifest. Without a project this is the folder in which a
 * client starts the hub, so the placeholder is kept. A relative path would be wrong: in a manifest it starts at the
 * manifest's folder.
 */
function workspaceOf({ project }: Pick<TextSource, "project">): string {
  return project === undefined ? WORKSPACE_PLACEHOLDER : escapePlaceholders(project);
}

/** Makes a path in the syntax of a manifest absolute: a relative path starts at `base`, which has the same syntax. */
function rebase(path: string, base: string): string {
  if (/^(?:[/~]|\$\{|[A-Za-z]:[\\/])/.test(path)) return path;
  // `join` would take the parts of a placeholder for names of folders.
  if (path.includes("${")) return `${base}/${path.replace(/^(?:\.\/+)+/, "")}`;
  return base.startsWith("${")
    ? `${base}${join("/", path).replace(/^\/\.?$/, "")}`
    : join(base, path);
}

function unsupportedPartReason(part: ClientTextPart): string {
  if (part.kind === "invalid") return `it holds ${part.message}`;
  return part.kind === "placeholder"
    ? `it needs \${${part.place}}, which only an editor knows`
    : "it holds a ${…} of an unknown form";
}

/** The name under which a value of a server is stored in the secret store: `server/name`. */
export function secretName(server: string, name: string): string {
  const [owner, own] = [server, name].map((part) =>
    part.replace(/[^\w.-]+/g, "-").replace(/^-+|(?<!-)-+$/g, ""),
  );
  return `${owner || "server"}/${own || "value"}`;
}

/** A server's entry in the schema of the manifest: `command`, `args`, `env`, … or `url`, `headers`, …. */
export type ServerEntry = Readonly<Record<string, unknown>>;

export type TranslationResult =
  | {
      readonly ok: true;
      readonly entry: ServerEntry;
      /** The differences from the client's entry; each text is the end of a sentence. */
      readonly notes: readonly string[];
      /** The secrets that must be set before the server can be used. */
      readonly requiredSecrets: readonly string[];
    }
  /** `reason` completes the sentence "this entry is not imported: …". */
  | { readonly ok: false; readonly reason: string };

export interface EntrySource {
  readonly client: ClientApp;
  readonly home: ClientFolders;
  /** The client's file, absolute. */
  readonly file: string;
  /** The server's name in the manifest. */
  readonly server: string;
  /** The project folder that the entry belongs to, absolute; undefined for an entry of all projects. */
  readonly project: string | undefined;
  readonly inputs: ReadonlyMap<string, EditorInput>;
}

/**
 * Translates a client's entry to the manifest's schema, as leniently as clients read it. Reads only the file that the
 * entry names as `envFile`, no other file.
 */
export async function translateEntry(
  raw: unknown,
  source: EntrySource,
): Promise<TranslationResult> {
  const normalized = normalizeClientEntry(raw);
  if (!normalized.ok) return { ok: false, reason: normalized.reason };
  const { target, title, description, tools, approval, autoApproved, ...more } = normalized.entry;
  const { isDisabled, unused, notes, rest } = more;
  const writer = new EntryWriter({ ...source, placeholders: source.client.placeholders });
  const entry =
    target.kind === "process"
      ? await translateProcess(target, source, writer)
      : translateRemote(target, writer);
  if (writer.error !== undefined) return { ok: false, reason: writer.error };
  const limits = readClientTimeouts(rest, source.client.limits);
  const unknownKeys = [...rest.keys()].filter((key) => !limits.keys.has(key)).map(printPathKey);
  const left = [...unused, ...unknownKeys];
  writer.notes.push(...notes);
  if (left.length > 0) writer.notes.push(`${left.join(", ")} not taken over`);
  return {
    ok: true,
    entry: {
      ...entry,
      ...(title !== undefined && title !== source.server && { title }),
      ...(description !== undefined && { description }),
      ...limits.entry,
      ...((tools !== undefined || autoApproved.length > 0) && {
        tools: withAutoApproved(tools, autoApproved),
      }),
      ...(approval !== undefined && { approval }),
      ...(isDisabled && { enabled: false }),
    },
    notes: writer.notes,
    requiredSecrets: writer.requiredSecrets,
  };
}

function withAutoApproved(tools: Table | undefined, names: readonly string[]): Table {
  if (names.length === 0) return { ...tools };
  const approval = createTable<unknown>();
  for (const name of names) approval[name] = "never";
  const own = tools?.["approval"];
  return { ...tools, approval: isTable(own) ? { ...approval, ...own } : approval };
}

/**
 * Translates the texts of an entry to the manifest's placeholders. Collects notes, required secrets and the first
 * error.
 */
class EntryWriter {
  readonly notes: string[] = [];
  readonly requiredSecrets: string[] = [];
  error: string | undefined;
  readonly #source: TextSource;

  constructor(source: TextSource) {
    this.#source = source;
  }

  translateText(text: string): string {
    const translated = translatePlaceholders(text, this.#source);
    this.requiredSecrets.push(...translated.requiredSecrets);
    this.error ??= translated.error;
    return translated.text;
  }

  translateTable(texts: Readonly<Record<string, string>>): Record<string, string> {
    const translated = createTable<string>();
    for (const [key, text] of Object.entries(texts)) translated[key] = this.translateText(text);
    return translated;
  }
}

async function translateProcess(
  target: ProcessTarget,
  source: EntrySource,
  writer: EntryWriter,
): Promise<ServerEntry> {
  const { client, home, project } = source;
  const { inheritEnv } = target;
  const args = target.args.map((arg) => writer.translateText(arg));
  const env = Object.assign(
    await readEnvFile(target.envFile, source, writer),
    writer.translateTable(target.env),
  );
  // The folder where relative paths start in the client. The manifest that they move to has another one.
  const base =
    project === undefined && client.userBase === "home"
      ? escapePlaceholders(home.home)
      : workspaceOf(source);
  const command = writer.translateText(target.command);
  const configured =
    target.cwd === undefined
      ? project && escapePlaceholders(project)
      : rebase(writer.translateText(target.cwd), base);
  // A server without `cwd` starts in the hub's working directory, so a `cwd` that means this folder is omitted.
  const cwd = configured === WORKSPACE_PLACEHOLDER ? undefined : configured;
  if (cwd !== undefined && project === cwd)
    writer.notes.push(`only of the project ${project} there`);
  if (client.placeholders === "none" && /\$\{/.test(JSON.stringify([target.args, target.env]))) {
    writer.notes.push("its ${…} are imported unchanged, because that client has no placeholders");
  }
  return {
    command: command.includes("/") ? rebase(command, base) : command,
    ...(args.length > 0 && { args }),
    ...(Object.keys(env).length > 0 && { env }),
    ...(inheritEnv.length > 0 && { inheritEnv }),
    ...(cwd !== undefined && { cwd }),
  };
}

function translateRemote(target: RemoteTarget, writer: EntryWriter): ServerEntry {
  const headers = writer.translateTable(target.headers);
  for (const [name, variable] of target.envHeaders) headers[name] = `\${env:${variable}}`;
  const { bearerVariable } = target;
  if (bearerVariable !== undefined) headers["Authorization"] = `Bearer \${env:${bearerVariable}}`;
  const oauth = Object.entries(target.oauth).map(([key, value]) => [
    key,
    isString(value) ? writer.translateText(value) : value,
  ]);
  return {
    url: writer.translateText(target.url),
    ...(target.isSse && { transport: "sse" }),
    ...(Object.keys(headers).length > 0 && { headers }),
    ...(oauth.length > 0 && { auth: "auto", oauth: Object.fromEntries(oauth) }),
  };
}

/** Maximum size of an `envFile`, in bytes. */
const MAX_ENV_FILE = 64 * 1024;

/** Reads the `envFile` of an entry: one `NAME=value` per line, quoted or not. */
async function readEnvFile(
  path: string | undefined,
  { client, home, file }: EntrySource,
  writer: EntryWriter,
): Promise<Record<string, string>> {
  const variables = createTable<string>();
  if (path === undefined) return variables;
  const fullPath = expandHome(
    path.replace("${userHome}", home.home).replace("${env:HOME}", home.home),
    {
      ...home.env,
      HOME: home.home,
    },
  );
  // The `envFile` in a project's file is ignored: such a file is not trusted, and could name any file of the user.
  const isUserFile = client.user(home).some((location) => location.file === file);
  const read =
    isUserFile && fullPath.startsWith("/")
      ? await readFileLimited(fullPath, MAX_ENV_FILE)
      : undefined;
  const text = read?.kind === "read" ? decodeUtf8(read.bytes) : undefined;
  if (text === undefined) {
    writer.notes.push(`the variables of its envFile (${path}) not taken over`);
    return variables;
  }
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const [, name, value = ""] = /^\s*(?:export\s+)?([\w.]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined) {
      const isBlank = /^\s*(?:#|$)/.test(line);
      if (!isBlank) writer.notes.push(`line ${index + 1} of ${fullPath} is not NAME=value`);
      continue;
    }
    const quoted = /^(["'])(.*)\1$/.exec(value);
    variables[name] = escapePlaceholders(quoted?.[2] ?? value.split(/(?<!\s)\s+#/, 1)[0] ?? "");
  }
  writer.notes.push(`the variables of ${fullPath} as they are now, as ${basename(file)} names it`);
  return variables;
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}
