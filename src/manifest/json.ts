import {
  findNodeAtLocation,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from "jsonc-parser";
import type { DuplicateKey, ParsedFile } from "./parse.ts";
import type { KeyPath, Position } from "./problems.ts";
import { findStrayCharacter } from "./stray-character.ts";
import { createTable } from "./table.ts";

/** Parses JSON with comments and trailing commas. Duplicate keys are reported in `duplicates`. */
export function parseJson(text: string): ParsedFile {
  const errors: ParseError[] = [];
  const tree = parseTree(text, errors, { allowTrailingComma: true });
  const [first] = errors;
  if (first !== undefined || tree === undefined) {
    if (first === undefined) {
      return { ok: false, message: "the file is empty", position: findPosition(text, 0) };
    }
    const stray = findStrayCharacter(text, first.offset, "json");
    const message = `not valid JSON: ${stray?.message ?? describeError(first)}`;
    return { ok: false, message, position: findPosition(text, (stray ?? first).offset) };
  }
  const duplicates: DuplicateKey[] = [];
  const root = readNode(tree, [], (path, offset) => {
    duplicates.push({ path, position: findPosition(text, offset) });
  });
  return {
    ok: true,
    root,
    duplicates,
    preparePositions: () =>
      Promise.resolve((path, at) => findPosition(text, findOffset(tree, path, at))),
  };
}

/** The parser's error codes in words. They never quote the file's text. */
const ERROR_TEXTS: Readonly<Partial<Record<string, string>>> = {
  InvalidSymbol: "this is not a value; a text needs double quotes",
  InvalidNumberFormat: "this is not a number",
  PropertyNameExpected: "a key in double quotes is missing",
  ValueExpected: "a value is missing",
  ColonExpected: "a colon is missing after the key",
  CommaExpected: "a comma is missing",
  CloseBraceExpected: "a closing } is missing",
  CloseBracketExpected: "a closing ] is missing",
  EndOfFileExpected: "text follows after the end of the document",
  UnexpectedEndOfComment: "the comment has no closing */",
  UnexpectedEndOfString: "the text has no closing quote",
  UnexpectedEndOfNumber: "the number is not complete",
  InvalidUnicode: "\\u needs four hexadecimal digits; write \\\\ for a backslash",
  InvalidEscapeCharacter: "this is not an escape sequence; write \\\\ for a backslash",
  InvalidCharacter: "the text contains a control character",
};

function describeError(error: ParseError): string {
  return ERROR_TEXTS[printParseErrorCode(error.error)] ?? "syntax error";
}

type ReportDuplicate = (path: KeyPath, offset: number) => void;

function readNode(node: Node, path: KeyPath, report: ReportDuplicate): unknown {
  const children = node.children ?? [];
  if (node.type === "array") {
    return children.map((child, index) => readNode(child, [...path, index], report));
  }
  if (node.type !== "object") return node.value;
  const table = createTable<unknown>();
  for (const { children: [name, value] = [] } of children) {
    if (name === undefined || value === undefined) continue;
    const key = String(name.value);
    const inner = [...path, key];
    if (key in table) report(inner, name.offset);
    table[key] = readNode(value, inner, report);
  }
  return table;
}

/** The offset of the value at a path, or of its key; if the path does not exist, of the nearest table around it. */
function findOffset(tree: Node, path: KeyPath, at: "key" | "value"): number {
  for (let length = path.length; length > 0; length--) {
    const node = findNodeAtLocation(tree, path.slice(0, length));
    if (node === undefined) continue;
    const isKey = node.parent?.type === "property" && (at === "key" || length < path.length);
    return (isKey ? node.parent : node)?.offset ?? 0;
  }
  return tree.offset;
}

function findPosition(text: string, offset: number): Position {
  const before = text.slice(0, offset).split("\n");
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}
