/**
 * Edits manifests as text, so that comments and formatting stay.
 * `editManifest` applies a `ManifestChange` (see `change.ts`) to a text and verifies the result; `toml.ts` and
 * `json.ts` compute the text edits, `write.ts` writes files. Start with `editManifest`.
 */

import { HubError } from "../../base/errors.ts";
import { readConfigFile } from "../files/read-file.ts";
import { mergeConfigs } from "../merge/merge.ts";
import { type FileFormat, parseText } from "../syntax/parse.ts";
import { addPositions } from "../syntax/positions.ts";
import {
  fileProblem,
  formatProblem,
  manifestError,
  type KeyPath,
  printPathKey,
  type Problem,
} from "../problems.ts";
import { secretsMentionedIn } from "../interpolate.ts";
import { isInNamedEntry } from "../load.ts";
import type { ServerSpec } from "../manifest.ts";
import { isDeepEqual, isTable, type Table } from "../table.ts";
import {
  applyChange,
  applyTextEdits,
  type EditRefusal,
  formatTomlPair,
  formatTomlValue,
  type ManifestChange,
  type TextEdit,
} from "./change.ts";

export type { ManifestChange } from "./change.ts";

export interface ManifestText {
  /** The absolute path of the manifest. */
  readonly file: string;
  readonly baseDir: string;
  readonly text: string;
  readonly format: FileFormat;
}

export interface EditedText {
  readonly text: string;
  /**
   * The server as it is after the change, or as it was before if the change removes it; undefined if several are
   * changed.
   */
  readonly server: ServerSpec | undefined;
  readonly others: readonly ServerSpec[];
}

/**
 * Applies a change to a manifest's text and keeps the rest: comments, order, blank lines, line ends and byte order
 * mark. Problems with which a hub starts, those of single servers, modes, clients, models and agents, may be there
 * before, so that each can be mended while the others remain; a change adds none.
 * @throws {HubError} manifestInvalid if the manifest has a problem as a whole, or one that it had not before the
 * change; usage if its formatting does not allow the edit; the message says what to write by hand
 */
export async function editManifest(
  manifest: ManifestText,
  change: ManifestChange,
): Promise<EditedText> {
  const [byteOrderMark, body] = splitByteOrderMark(manifest.text);
  const text = body.trim() === "" && manifest.format === "json" ? `{}${body || "\n"}` : body;
  const before = await readManifestText({ ...manifest, text }, isInOneEntry);
  const serversKey = serversKeyOf(before.root);
  const expected = applyChange(before.root, serversKey, change);
  if (expected === undefined) throw inapplicableError(manifest, before.root, serversKey, change);
  const edits = await computeEdits(text, manifest.format, [serversKey], change);
  if ("reason" in edits) throw refusedError(manifest, serversKey, change, edits.reason);
  const edited = keepFinalLineEnd(applyTextEdits(text, edits), text);
  const parsed = await parseText(edited, manifest.format);
  const isAsIntended =
    parsed.ok && isDeepEqual(withServersTable(parsed.root, serversKey), expected);
  if (!isAsIntended)
    throw refusedError(
      manifest,
      serversKey,
      change,
      "is written in a way that toolmux cannot change",
    );
  const known = new Set(before.problems.map(identify));
  const after = await readManifestText(
    { ...manifest, text: edited },
    (problem) => known.has(identify(problem)) && !isInAddedServer(problem, change),
    false,
  );
  const isSubject = ({ name }: ServerSpec): boolean => "name" in change && name === change.name;
  return {
    text: byteOrderMark + edited,
    server: (change.kind === "remove" ? before : after).servers.find(isSubject),
    others: after.servers.filter((server) => !isSubject(server)),
  };
}

/**
 * Computes the text edits for a change of servers.
 * @param path the keys that lead to the table of servers; for TOML, a single key
 */
export async function computeEdits(
  text: string,
  format: FileFormat,
  path: readonly string[],
  change: ManifestChange,
): Promise<readonly TextEdit[] | EditRefusal> {
  // The modules are loaded only when needed, because their parsers, which record positions, load slowly.
  return format === "toml"
    ? (await import("./toml.ts")).editToml(text, path.join("."), change)
    : (await import("./json.ts")).editJson(text, path, change);
}

interface ParsedManifestText {
  readonly root: Table;
  readonly servers: readonly ServerSpec[];
  readonly problems: readonly Problem[];
}

/**
 * Reads and validates a text.
 * @param isTolerated whether the text may have a problem
 * @param isWritten whether the file already has this text; if not, problems get no line numbers
 * @throws {HubError} manifestInvalid with the problems that are not tolerated
 */
async function readManifestText(
  { file, baseDir, text, format }: ManifestText,
  isTolerated: (problem: Problem) => boolean,
  isWritten = true,
): Promise<ParsedManifestText> {
  const parsed = await parseText(text, format);
  if (!parsed.ok) {
    const { message, position } = parsed;
    throw manifestError([fileProblem(file, message, position)]);
  }
  const config = readConfigFile(parsed.root, { file, baseDir }, parsed.duplicates);
  const isOf = (server: { readonly path: KeyPath }, { path }: Problem): boolean =>
    server.path.every((key, at) => path[at] === key);
  const broken = [...config.servers.values()].filter((server) =>
    config.problems.some((problem) => isOf(server, problem)),
  );
  const { servers, ...merged } = mergeConfigs([config], { invalid: new Set(broken) });
  const problems = [...config.problems, ...merged.problems];
  // With a key that is set twice, it is not clear which of the two is to be changed.
  const isClear = parsed.duplicates.length === 0;
  const refused = problems.filter((problem) => !(isClear && isTolerated(problem)));
  if (refused.length > 0) {
    const unplaced = refused.map((problem) => ({ ...problem, position: undefined }));
    throw manifestError(
      isWritten ? await addPositions(refused, parsed.preparePositions) : unplaced,
    );
  }
  const root = isTable(parsed.root) ? parsed.root : {};
  const markInvalid = (spec: ServerSpec): ServerSpec => {
    const { name, enabled, prefix } = spec;
    const server = config.servers.get(name);
    const own = problems.filter((problem) => server !== undefined && isOf(server, problem));
    if (own.length === 0) return spec;
    const table = root[serversKeyOf(root)];
    const secrets = secretsMentionedIn(isTable(table) ? table[name] : undefined);
    return { kind: "invalid", name, enabled, prefix, problems: own, secrets };
  };
  return { root, servers: servers.map(markInvalid), problems };
}

/** Whether a problem concerns a single entry of a table, so that a hub starts without that entry. */
function isInOneEntry(problem: Problem): boolean {
  const [table, name] = problem.path;
  const isInServer = (table === "servers" || table === "mcpServers") && name !== undefined;
  return isInServer || isInNamedEntry(problem);
}

/** Whether a problem concerns a server whose whole entry is written. */
function isInAddedServer({ path }: Problem, change: ManifestChange): boolean {
  const name = String(path[1]);
  return (
    (change.kind === "add" && change.name === name) ||
    (change.kind === "addAll" && change.servers.has(name))
  );
}

/** The same text for the same problem before and after a change. */
function identify(problem: Problem): string {
  return formatProblem({ ...problem, position: undefined });
}

/** The key of the table of servers: `servers`, or `mcpServers` as in the files of MCP clients. */
function serversKeyOf(root: Table): string {
  return "mcpServers" in root && !("servers" in root) ? "mcpServers" : "servers";
}

/** Adds an empty table of servers if there is none, for example because the last server was removed. */
function withServersTable(root: unknown, serversKey: string): unknown {
  return isTable(root) && !(serversKey in root) ? { ...root, [serversKey]: {} } : root;
}

function splitByteOrderMark(text: string): readonly [mark: string, body: string] {
  return text.startsWith("\uFEFF") ? ["\uFEFF", text.slice(1)] : ["", text];
}

/** Removes the final line end if the original text has none. */
function keepFinalLineEnd(edited: string, text: string): string {
  const hasNoLineEnd = text.trim() !== "" && !text.endsWith("\n");
  return hasNoLineEnd ? edited.replace(/\r?\n$/, "") : edited;
}

function inapplicableError(
  { file }: ManifestText,
  root: Table,
  serversKey: string,
  change: ManifestChange,
): HubError {
  const servers = root[serversKey];
  if (change.kind === "addClient") {
    const name = JSON.stringify(change.entry["name"]);
    return new HubError(
      "usage",
      `There is a client ${name} in ${file} already; choose another name.`,
    );
  }
  if (change.kind === "addAll") {
    const taken = isTable(servers) ? servers : {};
    const names = [...change.servers.keys()].filter((name) => taken[name] !== undefined);
    const text = `${file} has these servers already: ${names.map(printPathKey).join(", ")}. Nothing was changed; try again.`;
    return new HubError("usage", text);
  }
  if (change.kind === "setHub") {
    const text = `"hub" in ${file} is not a table, so ${change.key} cannot be set in it.`;
    return new HubError("usage", text);
  }
  const { name } = change;
  if (change.kind === "add") {
    return new HubError(
      "usage",
      `There is a server ${printPathKey(name)} in ${file} already; choose another name, or replace it (--replace).`,
    );
  }
  const known = isTable(servers) ? Object.keys(servers) : [];
  const available =
    known.length === 0 ? "it has no servers" : `there are ${known.map(printPathKey).join(", ")}`;
  return new HubError(
    "usage",
    `There is no server ${printPathKey(name)} in ${file}; ${available}.`,
  );
}

function refusedError(
  { file, format }: ManifestText,
  serversKey: string,
  change: ManifestChange,
  reason: string,
): HubError {
  const byHand =
    format === "toml" ? describeTomlChange(change) : describeJsonChange(serversKey, change);
  return new HubError("usage", `${file} ${reason}. Nothing was changed; by hand: ${byHand}`);
}

/** A JSON replacer that masks values that may be secrets; placeholders such as `${env:X}` stay visible. */
function maskSecrets(key: string, value: unknown): unknown {
  const isPrivate = ["env", "headers", "oauth"].includes(key);
  if (!(isPrivate && isTable(value))) return value;
  const masked = Object.entries(value).map(([name, text]) => {
    const isReference = typeof text === "string" && text.includes("${");
    return [name, isReference ? text : "…"] as const;
  });
  return Object.fromEntries(masked);
}

function describeTomlChange(change: ManifestChange): string {
  if (change.kind === "addClient")
    return ["add", "[[clients]]", ...Object.entries(change.entry).map(formatTomlPair)].join("\n");
  if (change.kind === "addAll") {
    const all = [...change.servers].map(([name, entry]) => formatMaskedTable(name, entry));
    return ["add", ...all].join("\n");
  }
  if (change.kind === "setHub")
    return `write ${formatTomlPair([change.key, change.value])} in [hub]`;
  const header = `[servers.${printPathKey(change.name)}]`;
  switch (change.kind) {
    case "add":
      return `add\n${formatMaskedTable(change.name, change.entry)}`;
    case "remove":
      return `remove ${header} with all that belongs to it`;
    case "set":
      return `write ${printPathKey(change.key)} = ${formatTomlValue(maskSecrets(change.key, change.value))} in ${header}`;
    case "rename":
      return `write ${printPathKey(change.to)} for ${printPathKey(change.name)} in ${header} and all that belongs to it`;
  }
}

function formatMaskedTable(name: string, entry: Table): string {
  const pairs = Object.entries(entry).map(([key, value]) =>
    formatTomlPair([key, maskSecrets(key, value)]),
  );
  return [`[servers.${printPathKey(name)}]`, ...pairs].join("\n");
}

function describeJsonChange(serversKey: string, change: ManifestChange): string {
  if (change.kind === "addClient")
    return `add to the array "clients"\n${JSON.stringify(change.entry, null, 2)}`;
  if (change.kind === "addAll") {
    const all = [...change.servers].map(([name, entry]) => formatMaskedMember(name, entry));
    return `add under ${JSON.stringify(serversKey)}\n${all.join(",\n")}`;
  }
  if (change.kind === "setHub")
    return `write ${JSON.stringify(change.key)}: ${JSON.stringify(change.value)} in "hub"`;
  const key = JSON.stringify(change.name);
  switch (change.kind) {
    case "add":
      return `add under ${JSON.stringify(serversKey)}\n${formatMaskedMember(change.name, change.entry)}`;
    case "remove":
      return `remove ${key} under ${JSON.stringify(serversKey)}`;
    case "set":
      return `write ${JSON.stringify(change.key)}: ${JSON.stringify(maskSecrets(change.key, change.value))} in ${key}`;
    case "rename":
      return `write ${JSON.stringify(change.to)} for ${key}`;
  }
}

function formatMaskedMember(name: string, entry: Table): string {
  const masked = Object.entries(entry).map(([key, value]) => [key, maskSecrets(key, value)]);
  return `${JSON.stringify(name)}: ${JSON.stringify(Object.fromEntries(masked), null, 2)}`;
}
