import { type AST, parseTOML } from "toml-eslint-parser";
import type { Table } from "../table.ts";
import {
  applyTextEdits,
  type EditRefusal,
  formatTomlKey,
  formatTomlPair,
  formatTomlValue,
  type ManifestChange,
  type ServerChange,
  type TextEdit,
  TextLines,
} from "./change.ts";

/** A key-value pair and its place in the file. */
interface PlacedPair {
  readonly node: AST.TOMLKeyValue;
  /** The whole path of keys from the root. */
  readonly path: readonly (string | number)[];
  /** The number of keys in `path` that come from the table's header. */
  readonly depth: number;
}

interface TomlLayout {
  readonly text: string;
  readonly serversKey: string;
  readonly lines: TextLines;
  readonly tables: readonly AST.TOMLTable[];
  /** The key-value pairs at the root and in tables, without those inside inline tables. */
  readonly pairs: readonly PlacedPair[];
}

/**
 * Computes the text edits for a change in valid TOML.
 * @param serversKey the key of the table of servers
 */
export function editToml(
  text: string,
  serversKey: string,
  change: ManifestChange,
): readonly TextEdit[] | EditRefusal {
  if (change.kind === "addClient") {
    const clients = readLayout(text, "clients");
    const inline = clients.pairs.find(({ path }) => path.length === 1 && path[0] === "clients");
    if (inline !== undefined)
      return { reason: `has its clients in an inline array (line ${inline.node.loc.start.line})` };
    const block = ["[[clients]]", ...Object.entries(change.entry).map(formatTomlPair)];
    return [appendLines(clients, block)];
  }
  if (change.kind === "setHub")
    return setHubKey(readLayout(text, "hub"), change.key, formatTomlValue(change.value));
  const layout = readLayout(text, serversKey);
  const inlineServers = layout.pairs.find(
    ({ path }) => path.length === 1 && path[0] === serversKey,
  );
  if (inlineServers !== undefined) {
    return {
      reason: `has its servers in an inline table (line ${inlineServers.node.loc.start.line})`,
    };
  }
  if (change.kind === "addAll") {
    const blocks = [...change.servers].map(([name, entry]) => [
      "",
      ...linesOfServer(serversKey, name, entry),
    ]);
    return [appendLines(layout, blocks.flat().slice(1))];
  }
  const { name } = change;
  switch (change.kind) {
    case "add":
      return addServer(layout, change);
    case "remove":
      return removeServer(layout, name);
    case "set":
      return setKey(layout, name, change.key, formatTomlValue(change.value));
    case "rename":
      return renameServer(layout, name, formatTomlKey(change.to));
  }
}

function readLayout(text: string, serversKey: string): TomlLayout {
  const program = parseTOML(text, { tomlVersion: "1.1" });
  const nodes = program.body[0].body;
  const tables = nodes.filter((node) => node.type === "TOMLTable");
  const pairs = nodes.flatMap((node) =>
    node.type === "TOMLTable"
      ? node.body.map((pair) => placePair(pair, node.resolvedKey))
      : [placePair(node, [])],
  );
  // Lines such as `#:schema` are directives for editors, not comments on what follows.
  return { text, serversKey, lines: new TextLines(text, /^\s*#(?!:)/), tables, pairs };
}

function placePair(node: AST.TOMLKeyValue, base: readonly (string | number)[]): PlacedPair {
  return { node, path: [...base, ...node.key.keys.map(nameOf)], depth: base.length };
}

function nameOf(key: AST.TOMLBare | AST.TOMLQuoted): string {
  return key.type === "TOMLBare" ? key.name : key.value;
}

function tablesOf({ tables, serversKey }: TomlLayout, name: string): readonly AST.TOMLTable[] {
  return tables.filter(({ resolvedKey: [top, key] }) => top === serversKey && key === name);
}

/** The key-value pairs that configure a server outside of its own tables, as dotted keys or inline tables. */
function pairsOutsideTablesOf(
  { pairs, serversKey }: TomlLayout,
  name: string,
): readonly PlacedPair[] {
  return pairs.filter(
    ({ path: [top, key], depth }) => depth < 2 && top === serversKey && key === name,
  );
}

/** The last line of a table, including the comment lines that follow it directly. */
function lastLine({ lines }: TomlLayout, { range: [from], key, body }: AST.TOMLTable): number {
  const end = Math.max(from, key.range[1], ...body.map((pair) => pair.range[1]));
  return lines.lastCommentBelow(lines.indexAt(end - 1));
}

/**
 * The line ranges (first, last) of a server's tables and of its pairs outside of these tables, each with its comments,
 * in the order of the file.
 */
function lineRangesOf(layout: TomlLayout, name: string): readonly (readonly [number, number])[] {
  const { lines } = layout;
  const tables = tablesOf(layout, name).map(
    (table) =>
      [lines.firstCommentAbove(lines.indexAt(table.range[0])), lastLine(layout, table)] as const,
  );
  const outsidePairs = pairsOutsideTablesOf(layout, name).map(({ node }) => {
    const [from, to] = node.range;
    return [lines.firstCommentAbove(lines.indexAt(from)), lines.indexAt(to - 1)] as const;
  });
  return [...tables, ...outsidePairs].toSorted(([a], [b]) => a - b);
}

function addServer(
  layout: TomlLayout,
  change: ServerChange & { readonly kind: "add" },
): readonly TextEdit[] {
  const { name, entry } = change;
  const { lines, text, serversKey } = layout;
  const block = linesOfServer(serversKey, name, entry);
  if (pairsOutsideTablesOf(layout, name).length > 0) {
    // If a table header took the place of these pairs, the pairs that follow would become part of the new table. So the
    // server is removed here, and appended as a new table after the last server.
    const withoutServer = applyTextEdits(text, removeServer(layout, name));
    const result = applyTextEdits(
      withoutServer,
      addServer(readLayout(withoutServer, serversKey), change),
    );
    return [{ from: 0, to: text.length, text: result }];
  }
  const [old, ...others] = lineRangesOf(layout, name);
  if (old !== undefined) return [lines.replace(block, ...old), ...removeAll(lines, others)];
  return [appendLines(layout, block)];
}

function linesOfServer(serversKey: string, name: string, entry: Table): readonly string[] {
  return [`[${serversKey}.${formatTomlKey(name)}]`, ...Object.entries(entry).map(formatTomlPair)];
}

/** Inserts lines after the last server. */
function appendLines(layout: TomlLayout, block: readonly string[]): TextEdit {
  const { lines, tables, serversKey } = layout;
  const before = tables.findLast(({ resolvedKey: [top] }) => top === serversKey);
  const afterLine = before === undefined ? lines.all.length - 1 : lastLine(layout, before);
  return lines.insert(block, lastNonBlankLine(lines, afterLine));
}

/** The last line up to `afterLine` that is not blank; `afterLine` if there is none. */
function lastNonBlankLine(lines: TextLines, afterLine: number): number {
  let line = afterLine;
  while (line > 0 && lines.isBlank(line)) line--;
  return lines.isBlank(line) ? afterLine : line;
}

function removeServer(layout: TomlLayout, name: string): readonly TextEdit[] {
  return removeAll(layout.lines, lineRangesOf(layout, name));
}

function removeAll(
  lines: TextLines,
  ranges: readonly (readonly [number, number])[],
): readonly TextEdit[] {
  return mergeTouching(ranges.map(([first, last]) => lines.remove(first, last)));
}

/** Merges edits that touch each other. */
function mergeTouching(edits: readonly TextEdit[]): readonly TextEdit[] {
  const merged: TextEdit[] = [];
  for (const edit of edits.toSorted((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last === undefined || edit.from > last.to) merged.push(edit);
    else merged[merged.length - 1] = { ...last, to: Math.max(last.to, edit.to) };
  }
  return merged;
}

function setKey(
  layout: TomlLayout,
  name: string,
  key: string,
  value: string,
): readonly TextEdit[] | EditRefusal {
  const path = [layout.serversKey, name];
  const table = tablesOf(layout, name).find(({ resolvedKey }) => resolvedKey.length === 2);
  return (
    setKeyAt(layout, path, key, value, table, pairsOutsideTablesOf(layout, name)) ?? {
      reason: "configures it in a form that cannot be extended",
    }
  );
}

/** Sets a key of the table `hub`. If there is no such table, it becomes the last one of the file. */
function setHubKey(
  layout: TomlLayout,
  key: string,
  value: string,
): readonly TextEdit[] | EditRefusal {
  const { tables, pairs, lines } = layout;
  const table = tables.find(
    ({ resolvedKey }) => resolvedKey.length === 1 && resolvedKey[0] === "hub",
  );
  const outsidePairs = pairs.filter(({ path: [top], depth }) => depth === 0 && top === "hub");
  const edits = setKeyAt(layout, ["hub"], key, value, table, outsidePairs);
  if (edits !== undefined) return edits;
  const block = ["[hub]", `${formatTomlKey(key)} = ${value}`];
  return [lines.insert(block, lastNonBlankLine(lines, lines.all.length - 1))];
}

/**
 * Sets a key of the table at a path.
 * @param table the table itself, if it has a header
 * @param outsidePairs the key-value pairs of the table outside of its own tables
 * @returns undefined if the file has no such table in a form that can be extended
 */
function setKeyAt(
  layout: TomlLayout,
  tablePath: readonly string[],
  key: string,
  value: string,
  table: AST.TOMLTable | undefined,
  outsidePairs: readonly PlacedPair[],
): readonly TextEdit[] | undefined {
  const targetPath = [...tablePath, key];
  const { lines, text, pairs } = layout;
  const existing = pairs.find(
    ({ path }) =>
      path.length === targetPath.length && targetPath.every((step, i) => step === path[i]),
  );
  if (existing !== undefined) return [replaceNode(existing.node.value, value)];
  const pair = `${formatTomlKey(key)} = ${value}`;
  if (table !== undefined) {
    const last = table.body.at(-1);
    const [from, to] = (last ?? table.key).range;
    const line = lines.indexAt(to - 1);
    const indent = last === undefined ? "" : indentAt(text, from);
    return [insertLineAfter(layout, line, indent + pair)];
  }
  const inline = outsidePairs.find(({ path }) => path.length === tablePath.length)?.node.value;
  if (inline?.type === "TOMLInlineTable") {
    const own = inline.body.find(
      ({ key: { keys } }) => keys.length === 1 && keys[0] && nameOf(keys[0]) === key,
    );
    if (own !== undefined) return [replaceNode(own.value, value)];
    const last = inline.body.at(-1);
    if (last === undefined) return [replaceNode(inline, `{ ${pair} }`)];
    const [, at] = last.range;
    return [{ from: at, to: at, text: `, ${pair}` }];
  }
  const last = outsidePairs.at(-1);
  const owner = last?.node.key.keys[tablePath.length - 1 - last.depth];
  if (last === undefined || owner === undefined) return undefined;
  const [start] = last.node.range;
  const front = indentAt(text, start) + text.slice(start, owner.range[1]);
  return [insertLineAfter(layout, lines.indexAt(last.node.range[1] - 1), `${front}.${pair}`)];
}

function insertLineAfter({ lines, text }: TomlLayout, line: number, added: string): TextEdit {
  const at = lines.all[line]?.to ?? text.length;
  const isOpen = !text.slice(0, at).endsWith("\n");
  return { from: at, to: at, text: isOpen ? lines.lineEnd + added : added + lines.lineEnd };
}

function indentAt(text: string, offset: number): string {
  return (
    /(?<![ \t])[ \t]*$/.exec(text.slice(text.lastIndexOf("\n", offset - 1) + 1, offset))?.[0] ?? ""
  );
}

function renameServer(layout: TomlLayout, name: string, to: string): readonly TextEdit[] {
  const headers = tablesOf(layout, name).flatMap(({ key }) => key.keys[1] ?? []);
  const keys = pairsOutsideTablesOf(layout, name).flatMap(
    ({ node, depth }) => node.key.keys[1 - depth] ?? [],
  );
  return [...headers, ...keys].map((key) => replaceNode(key, to));
}

function replaceNode({ range: [from, to] }: { readonly range: AST.Range }, text: string): TextEdit {
  return { from, to, text };
}
