import { findNodeAtLocation, type Node, parseTree } from "jsonc-parser";
import type { ServerTableChange } from "./clients.ts";

/** Edits a table of servers in JSON with comments. */
export function editClientJson(text: string, { keys, remove, set }: ServerTableChange): string {
  const style = detectStyle(text);
  let edited = text.trim() === "" ? `{}${style.eol}` : text;
  for (const name of remove) edited = removeMember(edited, [...keys, name]);
  for (const [name, entry] of Object.entries(set))
    edited = setMember(edited, [...keys, name], entry, style);
  return edited;
}

interface Style {
  readonly indent: string;
  readonly eol: string;
}

/** Uses the indentation and line ends of the file. */
function detectStyle(text: string): Style {
  const [, indent = "  "] = /^([ \t]+)\S/m.exec(text) ?? [];
  return {
    indent: indent.startsWith("\t") ? "\t" : indent,
    eol: text.includes("\r\n") ? "\r\n" : "\n",
  };
}

/** Removes a member with its comma, and with its line if nothing else is on the line. */
function removeMember(text: string, path: readonly string[]): string {
  const tree = parseTree(text, [], { allowTrailingComma: true });
  const member = tree && findNodeAtLocation(tree, [...path])?.parent;
  const members = member?.parent?.children ?? [];
  if (member?.parent === undefined) return text;
  const at = members.indexOf(member);
  const [previous, next] = [members[at - 1], members[at + 1]];
  const close = member.parent.offset + member.parent.length - 1;
  const end = member.offset + member.length;
  const comma = findComma(text, end, next?.offset ?? close);
  const rest = removeRange(text, member.offset, comma === undefined ? end : comma + 1);
  if (comma !== undefined || previous === undefined) return rest;
  const before = findComma(text, previous.offset + previous.length, member.offset);
  return before === undefined ? rest : rest.slice(0, before) + rest.slice(before + 1);
}

function removeRange(text: string, start: number, end: number): string {
  const before = /(?:^|\n)[ \t]*$/.exec(text.slice(0, start))?.[0];
  const after = /^[ \t]*\r?\n/.exec(text.slice(end))?.[0];
  if (before === undefined) return text.slice(0, start) + text.slice(end);
  if (after === undefined) {
    // The line begins with the member and goes on after it: the rest of the line is joined to the line above, unless a
    // `//` comment there would swallow it.
    const [above = ""] = text
      .slice(0, start - before.length)
      .split("\n")
      .slice(-1);
    const from = above.includes("//") ? start : start - before.length;
    return text.slice(0, from) + text.slice(end);
  }
  const from = start - before.replace("\n", "").length;
  return text.slice(0, from) + text.slice(end + after.length);
}

function setMember(text: string, path: readonly string[], value: unknown, style: Style): string {
  const tree = parseTree(text, [], { allowTrailingComma: true });
  if (tree === undefined) return text;
  const existing = findNodeAtLocation(tree, [...path]);
  if (existing !== undefined) {
    const replacement = formatJson(value, path.length, style);
    return (
      text.slice(0, existing.offset) + replacement + text.slice(existing.offset + existing.length)
    );
  }
  // Objects of the path that do not exist yet are added to the innermost one that does.
  let depth = path.length - 1;
  while (depth > 0 && findNodeAtLocation(tree, path.slice(0, depth)) === undefined) depth--;
  const table = depth === 0 ? tree : findNodeAtLocation(tree, path.slice(0, depth));
  if (table?.type !== "object") return text;
  const inner = path.slice(depth + 1).reduceRight((at: unknown, key) => ({ [key]: at }), value);
  const member = `${JSON.stringify(path[depth])}: ${formatJson(inner, depth + 1, style)}`;
  return insertMember(text, table, member, depth + 1, style);
}

/** Inserts a member behind the last one of an object. */
function insertMember(
  text: string,
  table: Node,
  member: string,
  depth: number,
  style: Style,
): string {
  const { indent, eol } = style;
  const last = table.children?.at(-1);
  const close = table.offset + table.length - 1;
  const line = eol + indent.repeat(depth) + member;
  if (last === undefined) {
    const between = text.slice(table.offset + 1, close);
    const end =
      between.trim() === "" ? table.offset + 1 : close - (/\s*$/.exec(between)?.[0].length ?? 0);
    return text.slice(0, end) + line + eol + indent.repeat(depth - 1) + text.slice(close);
  }
  const end = last.offset + last.length;
  const comma = findComma(text, end, close);
  const afterComma = (comma ?? end - 1) + 1;
  // A comment on the same line belongs to the member before it.
  const comment = /^[ \t]*(?:\/\/[^\n\r]*|\/\*[^\n\r]*?\*\/[ \t]*(?=\r?\n))/.exec(
    text.slice(afterComma, close),
  );
  const at = afterComma + (comment?.[0].length ?? 0);
  const added = comma === undefined ? "," : "";
  const more = comma === undefined ? "" : ",";
  return text.slice(0, end) + added + text.slice(end, at) + line + more + text.slice(at);
}

/** The position of the first comma outside of comments. */
function findComma(text: string, from: number, to: number): number | undefined {
  const between = text.slice(from, to);
  const plain = between.replace(/\/\/[^\n]*|\/\*[^]*?\*\//g, (comment) =>
    " ".repeat(comment.length),
  );
  const at = plain.indexOf(",");
  return at < 0 ? undefined : from + at;
}

function formatJson(value: unknown, depth: number, { indent, eol }: Style): string {
  return JSON.stringify(value, null, indent).replaceAll("\n", eol + indent.repeat(depth));
}
