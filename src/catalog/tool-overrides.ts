/** Members of listed tools that the manifest sets in place of their server: description, `_meta`, annotations. Pure. */

import { applyEdits, type ByteRange, type Edit, joinPieces, textOf, utf8 } from "../base/bytes.ts";
import { appendMembers, JsonObject } from "../base/json.ts";
import { isDeepEqual, isTable, type Table } from "../manifest/table.ts";
import { type ListedItem, readItem } from "./listing.ts";

/** The manifest's overrides. Each table maps the tool's name at its server to values, and has no prototype. */
export interface ToolOverrides {
  readonly describe?: Readonly<Record<string, string>> | undefined;
  /** Members of `_meta` that are set. The other members of `_meta` keep the server's values. */
  readonly meta?: Readonly<Record<string, Table>> | undefined;
  /** Members of `annotations` (schema, ToolAnnotations) that are set. Its other members keep the server's values. */
  readonly annotations?: Readonly<Record<string, Table>> | undefined;
}

export function overriddenNames({ describe, meta, annotations }: ToolOverrides): Set<string> {
  return new Set([describe, meta, annotations].flatMap((table) => Object.keys(table ?? {})));
}

export interface OverrideResult {
  readonly item: ListedItem;
  /** Paths of overridden members, such as `annotations.readOnlyHint`, for which the server has another value. */
  readonly conflicts: readonly string[];
}

/**
 * Sets the members that the manifest overrides for this tool; all other bytes remain unchanged. Returns the same item
 * if the manifest overrides none.
 */
export function overrideTool(item: ListedItem, overrides: ToolOverrides): OverrideResult {
  const overrideOf = <T>(tables: Readonly<Record<string, T>> | undefined): T | undefined =>
    tables !== undefined && Object.hasOwn(tables, item.key) ? tables[item.key] : undefined;
  const description = overrideOf(overrides.describe);
  const tables = {
    annotations: overrideOf(overrides.annotations),
    _meta: overrideOf(overrides.meta),
  };
  const { bytes } = item;
  const tool = JsonObject.of(bytes);
  const edits: Edit[] = [];
  const appended: string[] = [];
  const conflicts: string[] = [];
  if (description !== undefined) {
    const json = JSON.stringify(description);
    if (!replaceMember(tool, "description", json, edits)) appended.push(`"description":${json}`);
  }
  for (const [key, table] of Object.entries(tables)) {
    if (table === undefined || Object.keys(table).length === 0) continue;
    const member = tool.member(key);
    const current = tool.value(key);
    if (member === undefined || !isTable(current)) {
      const json = JSON.stringify(table);
      if (!replaceMember(tool, key, json, edits)) appended.push(`"${key}":${json}`);
      continue;
    }
    for (const [name, value] of Object.entries(table)) {
      if (Object.hasOwn(current, name) && !isDeepEqual(current[name], value))
        conflicts.push(`${key}.${name}`);
    }
    setMembers(bytes, member, table, edits);
  }
  if (appended.length > 0) {
    edits.push(appendMembers(bytes, { start: 0, end: bytes.length }, appended.join(",")));
  }
  if (edits.length === 0) return { item, conflicts };
  const changed = readItem(joinPieces(applyEdits(bytes, edits)), "tools");
  return { item: changed ?? item, conflicts };
}

/**
 * Replaces the value of every member with that key, because parsers differ on which duplicate counts.
 * @returns whether there is such a member
 */
function replaceMember(object: JsonObject, key: string, json: string, edits: Edit[]): boolean {
  const found = object.all(key);
  for (const { start, end } of found) {
    if (textOf(object.bytes, start, end) !== json)
      edits.push({ start, end, replacement: utf8(json) });
  }
  return found.length > 0;
}

function setMembers(bytes: Uint8Array, object: ByteRange, table: Table, edits: Edit[]): void {
  const current = JsonObject.at(bytes, object);
  const appended: string[] = [];
  for (const [key, value] of Object.entries(table)) {
    const json = JSON.stringify(value);
    if (!replaceMember(current, key, json, edits)) appended.push(`${JSON.stringify(key)}:${json}`);
  }
  if (appended.length > 0) edits.push(appendMembers(bytes, object, appended.join(",")));
}
