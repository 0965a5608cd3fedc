import type { Table } from "../table.ts";
import { createScanner, findNodeAtLocation, type Node, parseTree } from "jsonc-parser";
import { type EditRefusal, type ManifestChange, type TextEdit, TextLines } from "./change.ts";

/**
 * Computes the text edits for a change in valid JSON, with or without comments and trailing commas.
 * @param path the keys that lead to the object of servers
 */
export function editJson(
  text: string,
  path: readonly string[],
  change: ManifestChange,
): readonly TextEdit[] | EditRefusal {
  const root = parseTree(text, [], { allowTrailingComma: true });
  if (root === undefined) return { reason: "is empty" };
  const source: JsonText = {
    text,
    lines: new TextLines(text, /^\s*(?:\/\/|\/\*.*\*\/\s*$)/),
    ...styleOf(text),
  };
  if (change.kind === "addClient") return addClient(source, root, change.entry);
  if (change.kind === "setHub") return setMember(source, root, ["hub"], change.key, change.value);
  if (change.kind === "addAll") return addAt(source, root, path, [...change.servers]);
  const { name } = change;
  const server = findNodeAtLocation(root, [...path, name]);
  const property = server?.parent;
  switch (change.kind) {
    case "add":
      if (server !== undefined && property !== undefined) {
        const indent = indentAt(text, property.offset);
        return [
          replaceNode(
            server,
            formatValue(source, change.entry, indent, isMultiline(source, server)),
          ),
        ];
      }
      return addAt(source, root, path, [[name, change.entry]]);
    case "remove":
      return property === undefined ? [] : removeMember(source, property);
    case "rename": {
      const key = property?.children?.[0];
      return key === undefined ? [] : [replaceNode(key, JSON.stringify(change.to))];
    }
    case "set": {
      if (server === undefined) return [];
      return setMember(source, root, [...path, name], change.key, change.value);
    }
  }
}

/** Sets a member of the object at a path, which is created if need be. */
function setMember(
  source: JsonText,
  root: Node,
  path: readonly string[],
  key: string,
  value: unknown,
): readonly TextEdit[] | EditRefusal {
  const node = findNodeAtLocation(root, [...path, key]);
  if (node?.parent === undefined) return addAt(source, root, path, [[key, value]]);
  const indent = indentAt(source.text, node.parent.offset);
  return [replaceNode(node, formatValue(source, value, indent, isMultiline(source, node)))];
}

interface JsonText {
  readonly text: string;
  readonly lines: TextLines;
  /** The indentation of one level. */
  readonly indentUnit: string;
}

function styleOf(text: string): Pick<JsonText, "indentUnit"> {
  const [, indentUnit = "  "] = /^\s*\{\s*?\n([ \t]+)\S/.exec(text) ?? [];
  return { indentUnit };
}

function replaceNode({ offset, length }: Node, text: string): TextEdit {
  return { from: offset, to: offset + length, text };
}

function addClient(source: JsonText, root: Node, entry: Table): readonly TextEdit[] | EditRefusal {
  const clients = findNodeAtLocation(root, ["clients"]);
  if (clients === undefined) return addMembers(source, root, [["clients", [entry]]]);
  const { text, lines, indentUnit } = source;
  const last = clients.children?.at(-1);
  const indent = indentAt(text, last?.offset ?? clients.offset) + (last ? "" : indentUnit);
  const value = formatValue(source, entry, indent, text.includes("\n"));
  if (last === undefined) return [replaceNode(clients, `[${value}]`)];
  const end = last.offset + last.length;
  const isOnOwnLine =
    text.slice(0, last.offset).endsWith(indent) && /\n[ \t]*$/.test(text.slice(0, last.offset));
  return [{ from: end, to: end, text: `,${isOnOwnLine ? lines.lineEnd + indent : " "}${value}` }];
}

type Member = readonly [key: string, value: unknown];

/** Appends members to the object at a path; missing objects on the path are created in the nearest existing one. */
function addAt(
  source: JsonText,
  root: Node,
  path: readonly string[],
  members: readonly Member[],
): readonly TextEdit[] | EditRefusal {
  const object = findNodeAtLocation(root, [...path]);
  const key = path.at(-1);
  if (object !== undefined || key === undefined) return addMembers(source, object ?? root, members);
  return addAt(source, root, path.slice(0, -1), [[key, Object.fromEntries(members)]]);
}

function addMembers(
  source: JsonText,
  object: Node,
  members: readonly Member[],
): readonly TextEdit[] | EditRefusal {
  const { text, indentUnit, lines } = source;
  if (object.type !== "object")
    return { reason: "does not have an object where its servers belong" };
  const open = object.offset + 1;
  const close = object.offset + object.length - 1;
  const outer = indentAt(text, object.parent?.offset ?? object.offset);
  const inner = outer + indentUnit;
  /** Formats the members, each preceded by the text `front`. */
  const formatMembers = (front: string, indent: string, multiline: boolean): string =>
    members
      .map(
        ([key, value]) =>
          `${front}${JSON.stringify(key)}: ${formatValue(source, value, indent, multiline)}`,
      )
      .join(",");
  const last = object.children?.at(-1);
  if (last === undefined) {
    // The object is empty or holds only comments. The members start on a new line, because after `//` they would be
    // part of the comment.
    const contentEnd = open + text.slice(open, close).trimEnd().length;
    const newText = formatMembers(lines.lineEnd + inner, inner, true) + lines.lineEnd + outer;
    return [{ from: contentEnd, to: close, text: newText }];
  }
  const end = last.offset + last.length;
  const comma = findComma(text, end, close);
  const afterComma = comma === undefined ? end : comma + 1;
  const commas: TextEdit[] = comma === undefined ? [{ from: end, to: end, text: "," }] : [];
  const tail = comma === undefined ? "" : ",";
  const first = object.children?.[0] ?? last;
  if (!text.slice(open, first.offset).includes("\n")) {
    return [
      ...commas,
      { from: afterComma, to: afterComma, text: formatMembers(" ", "", false) + tail },
    ];
  }
  const indent = indentAt(text, first.offset);
  const line = lines.all[lines.indexAt(afterComma - 1)];
  const lineEnd = (line?.from ?? 0) + (line?.text.length ?? 0);
  // If a comment follows the last member on its line, the new members are inserted after the comment.
  const at =
    lineEnd > afterComma && lineEnd <= close && isTrivia(text.slice(afterComma, lineEnd))
      ? lineEnd
      : afterComma;
  return [
    ...commas,
    { from: at, to: at, text: formatMembers(lines.lineEnd + indent, indent, true) + tail },
  ];
}

/** Removes a member with the comments directly above it and with the comma that is no longer needed. */
function removeMember({ text, lines }: JsonText, property: Node): readonly TextEdit[] {
  const object = property.parent;
  const siblings = object?.children ?? [];
  const at = siblings.indexOf(property);
  const end = property.offset + property.length;
  const close = (object?.offset ?? 0) + (object?.length ?? text.length) - 1;
  const previous = siblings[at - 1];
  const next = siblings[at + 1];
  const comma = findComma(text, end, next?.offset ?? close);
  const afterComma = comma === undefined ? end : comma + 1;
  const first = lines.indexAt(property.offset);
  const last = lines.indexAt(afterComma - 1);
  const line = lines.all[last];
  const lineEnd = (line?.from ?? 0) + (line?.text.length ?? 0);
  const lineStart = lines.all[first]?.from ?? 0;
  const startsLine = text.slice(lineStart, property.offset).trim() === "";
  const isOnOwnLines =
    startsLine && isTrivia(text.slice(afterComma, lineEnd)) && lineEnd <= (next?.offset ?? close);
  const before = previous === undefined ? undefined : previous.offset + previous.length;
  const superfluousComma =
    before !== undefined && next === undefined && comma === undefined
      ? findComma(text, before, property.offset)
      : undefined;
  const commas: TextEdit[] =
    superfluousComma === undefined
      ? []
      : [{ from: superfluousComma, to: superfluousComma + 1, text: "" }];
  if (isOnOwnLines) return [...commas, lines.remove(lines.firstCommentAbove(first), last)];
  if (next !== undefined) return [{ from: property.offset, to: next.offset, text: "" }];
  // A comment at the end of the line above belongs to the member on that line, so it stays.
  const start = startsLine ? lineStart : (superfluousComma ?? property.offset - 1) + 1;
  return [...commas, { from: start, to: afterComma, text: "" }];
}

/** The offset of the comma between two offsets, ignoring comments; undefined if there is none. */
function findComma(text: string, from: number, to: number): number | undefined {
  const scanner = createScanner(text, true);
  scanner.setPosition(from);
  scanner.scan();
  const at = scanner.getTokenOffset();
  return text[at] === "," && at < to ? at : undefined;
}

/** Whether a text holds only white space and comments. */
function isTrivia(text: string): boolean {
  const scanner = createScanner(text, true);
  scanner.scan();
  return scanner.getTokenOffset() >= text.length;
}

function isMultiline({ text }: JsonText, { offset, length }: Node): boolean {
  const before = text.slice(0, offset);
  return before.includes("\n") || text.slice(offset, offset + length).includes("\n");
}

/** The white space at the start of the line that contains the offset. */
function indentAt(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  return /^[ \t]*/.exec(text.slice(start, offset))?.[0] ?? "";
}

function formatValue(
  { lines, indentUnit }: JsonText,
  value: unknown,
  indent: string,
  multiline: boolean,
): string {
  if (!multiline) return JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
  return formatMultiline(value, indent, indentUnit).replaceAll("\n", lines.lineEnd);
}

/** Formats a value as JSON: objects with one member per line, arrays in one line, as commands are usually written. */
function formatMultiline(value: unknown, indent: string, indentUnit: string): string {
  if (Array.isArray(value))
    return `[${value.map((item) => formatMultiline(item, indent, indentUnit)).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([key, inner]) =>
      `${indent}${indentUnit}${JSON.stringify(key)}: ${formatMultiline(inner, indent + indentUnit, indentUnit)}`,
  );
  return members.length === 0 ? "{}" : `{\n${members.join(",\n")}\n${indent}}`;
}
