/**
 * Edits manifests as text, so that comments and formatting stay.
 * `editManifest` applies a `ManifestChange` (see `change.ts`) to a text and verifies the result; `toml.ts` and
 * `json.ts` compute the text edits, `write.ts` writes files. Start with `editManifest`.
 */

import { HubError } from "../../base/errors.ts";
import { interpretFile } from "../interpret.ts";
import { mergeSources } from "../merge.ts";
import { type Format, parseText } from "../parse.ts";
import { place } from "../place.ts";
import { type Complaint, manifestError, type Problem, printKey } from "../problems.ts";
import type { ServerSpec } from "../schema.ts";
import { isEqual, isTable, type Table } from "../table.ts";
import { applyChange, applySplices, type Change, type Refusal, type Splice } from "./change.ts";
import { printPair, printValue } from "./value.ts";

export type { Change } from "./change.ts";

/** The text of a manifest and its file. */
export interface Draft {
  /** Absolute. */
  readonly file: string;
  readonly baseDir: string;
  readonly text: string;
  readonly format: Format;
}

/** The result of an edit. */
export interface Edited {
  readonly text: string;
  /**
   * The server that the change is about: after the change, or before it if it was removed; undefined if there are
   * several.
   */
  readonly server: ServerSpec | undefined;
  readonly others: readonly ServerSpec[];
}

/**
 * Applies a change to a manifest's text and keeps the rest: comments, order, blank lines, line ends and byte order
 * mark.
 * @throws {HubError} manifestInvalid if the manifest is invalid before or after the change; usage if its formatting
 * does not allow the edit, with what to write by hand
 */
export async function editText(draft: Draft, change: Change): Promise<Edited> {
  const [mark, body] = splitMark(draft.text);
  const text = body.trim() === "" && draft.format === "json" ? `{}${body || "\n"}` : body;
  const before = await read({ ...draft, text });
  const group = groupOf(before.root);
  const expected = applyChange(before.root, group, change);
  if (expected === undefined) throw explainNothing(draft, before.root, group, change);
  const made = await make(text, draft.format, group, change);
  if ("refusal" in made) throw refuse(draft, group, change, made.refusal);
  const edited = keepEnd(applySplices(text, made), text);
  const parsed = await parseText(edited, draft.format);
  const isMeant = parsed.ok && isEqual(withServers(parsed.root, group), expected);
  if (!isMeant)
    throw refuse(draft, group, change, "is written in a way that toolmux cannot change");
  const after = await read({ ...draft, text: edited }, false);
  const isThere = ({ name }: ServerSpec): boolean => "name" in change && name === change.name;
  return {
    text: mark + edited,
    server: (change.kind === "remove" ? before : after).servers.find(isThere),
    others: after.servers.filter((server) => !isThere(server)),
  };
}

async function make(
  text: string,
  format: Format,
  group: string,
  change: Change,
): Promise<readonly Splice[] | Refusal> {
  // Both parsers know positions, and are slow to load.
  return format === "toml"
    ? (await import("./toml.ts")).editToml(text, change)
    : (await import("./json.ts")).editJson(text, group, change);
}

interface Content {
  readonly root: Table;
  readonly servers: readonly ServerSpec[];
}

/**
 * Reads and validates a text. @param isWritten whether the file has this text; if not, problems get no line numbers
 * @throws {HubError} manifestInvalid
 */
async function read({ file, baseDir, text, format }: Draft, isWritten = true): Promise<Content> {
  const parsed = await parseText(text, format);
  if (!parsed.ok) {
    const { message, position } = parsed;
    throw manifestError([{ file, path: "", message, position }]);
  }
  const reading = interpretFile(parsed.root, file, parsed.doubled);
  const source = { file, baseDir, reading };
  const { servers, ...merged } = mergeSources([source]);
  const faults: readonly Complaint[] = merged.faults;
  const placed = await place(file, parsed.locate, [...reading.complaints, ...faults]);
  const problems: readonly Problem[] = placed.map(({ problem }) => problem);
  if (problems.length > 0) {
    const told = problems.map((problem) => ({ ...problem, position: undefined }));
    throw manifestError(isWritten ? problems : told);
  }
  return { root: isTable(parsed.root) ? parsed.root : {}, servers };
}

/** The key of the servers' table: `mcpServers` in clients' files. */
function groupOf(root: Table): string {
  return "mcpServers" in root && !("servers" in root) ? "mcpServers" : "servers";
}

/** The table may be missing once it is empty. */
function withServers(root: unknown, group: string): unknown {
  return isTable(root) && !(group in root) ? { ...root, [group]: {} } : root;
}

function splitMark(text: string): readonly [mark: string, body: string] {
  return text.startsWith("\uFEFF") ? ["\uFEFF", text.slice(1)] : ["", text];
}

/** Keeps a text without a final line end that way. */
function keepEnd(edited: string, text: string): string {
  const isOpen = text.trim() !== "" && !text.endsWith("\n");
  return isOpen ? edited.replace(/\r?\n$/, "") : edited;
}

function explainNothing({ file }: Draft, root: Table, group: string, change: Change): HubError {
  const servers = root[group];
  if (change.kind === "addAll") {
    const taken = isTable(servers) ? servers : {};
    const names = [...change.servers.keys()].filter((name) => taken[name] !== undefined);
    const text = `${file} has these servers already: ${names.map(printKey).join(", ")}. Nothing was changed; try again.`;
    return new HubError("usage", text);
  }
  const { name } = change;
  if (change.kind === "add") {
    return new HubError(
      "usage",
      `There is a server ${printKey(name)} in ${file} already; take another name, or replace it (--replace).`,
    );
  }
  const known = isTable(servers) ? Object.keys(servers) : [];
  const there =
    known.length === 0 ? "it holds none" : `there are ${known.map(printKey).join(", ")}`;
  return new HubError("usage", `There is no server ${printKey(name)} in ${file}; ${there}.`);
}

function refuse({ file, format }: Draft, group: string, change: Change, why: string): HubError {
  const hand = format === "toml" ? spellToml(change) : spellJson(group, change);
  return new HubError("usage", `${file} ${why}. Nothing was changed; by hand: ${hand}`);
}

/** Hides values that may be secrets, but shows placeholders. */
function mask(key: string, value: unknown): unknown {
  const isPrivate = ["env", "headers", "oauth"].includes(key);
  if (!(isPrivate && isTable(value))) return value;
  const masked = Object.entries(value).map(([name, text]) => {
    const isReference = typeof text === "string" && text.includes("${");
    return [name, isReference ? text : "…"] as const;
  });
  return Object.fromEntries(masked);
}

function spellToml(change: Change): string {
  if (change.kind === "addAll") {
    const all = [...change.servers].map(([name, entry]) => spellTable(name, entry));
    return ["add", ...all].join("\n");
  }
  const header = `[servers.${printKey(change.name)}]`;
  switch (change.kind) {
    case "add":
      return `add\n${spellTable(change.name, change.entry)}`;
    case "remove":
      return `take out ${header} with all that belongs to it`;
    case "set":
      return `write ${printKey(change.key)} = ${printValue(mask(change.key, change.value))} in ${header}`;
    case "rename":
      return `write ${printKey(change.to)} for ${printKey(change.name)} in ${header} and all that belongs to it`;
  }
}

function spellTable(name: string, entry: Table): string {
  const pairs = Object.entries(entry).map(([key, value]) => printPair([key, mask(key, value)]));
  return [`[servers.${printKey(name)}]`, ...pairs].join("\n");
}

function spellJson(group: string, change: Change): string {
  if (change.kind === "addAll") {
    const all = [...change.servers].map(([name, entry]) => spellMember(name, entry));
    return `add under ${JSON.stringify(group)}\n${all.join(",\n")}`;
  }
  const key = JSON.stringify(change.name);
  switch (change.kind) {
    case "add":
      return `add under ${JSON.stringify(group)}\n${spellMember(change.name, change.entry)}`;
    case "remove":
      return `take out ${key} under ${JSON.stringify(group)}`;
    case "set":
      return `write ${JSON.stringify(change.key)}: ${JSON.stringify(mask(change.key, change.value))} in ${key}`;
    case "rename":
      return `write ${JSON.stringify(change.to)} for ${key}`;
  }
}

function spellMember(name: string, entry: Table): string {
  const masked = Object.entries(entry).map(([key, value]) => [key, mask(key, value)]);
  return `${JSON.stringify(name)}: ${JSON.stringify(Object.fromEntries(masked), null, 2)}`;
}
