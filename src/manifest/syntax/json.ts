import { type Node, type ParseError, parseTree, printParseErrorCode } from "jsonc-parser";
import type { DuplicateKey, ParsedFile } from "./parse.ts";
import { type KeyPath, makePositionIndex } from "../problems.ts";
import { findStrayCharacter } from "./stray-character.ts";
import { createTable } from "../table.ts";

/** Parses JSON with comments and trailing commas. Duplicate keys are reported in `duplicates`. */
export function parseJson(text: string): ParsedFile {
  const errors: ParseError[] = [];
  const tree = parseTree(text, errors, { allowTrailingComma: true });
  const positionOf = makePositionIndex(text);
  const [first] = errors;
  if (first !== undefined || tree === undefined) {
    if (first === undefined) {
      return { ok: false, message: "the file is empty", position: positionOf(0) };
    }
    const stray = findStrayCharacter(text, first.offset, "json");
    const message = `not valid JSON: ${stray?.message ?? describeError(first)}`;
    return { ok: false, message, position: positionOf((stray ?? first).offset) };
  }
  const duplicates: DuplicateKey[] = [];
  const root = readNode(tree, [], (path, offset) => {
    duplicates.push({ path, position: positionOf(offset) });
  });
  return {
    ok: true,
    root,
    duplicates,
    preparePositions: () => {
      const find = makeChildFinder();
      return Promise.resolve((path, at) => positionOf(findOffset(tree, path, at, find)));
    },
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

type ChildFinder = (node: Node, key: string | number) => Node | undefined;

/**
 * Makes the function that finds the value of a key or index in a node; of a repeated key, the first value. The keys of
 * each node are read once.
 */
function makeChildFinder(): ChildFinder {
  const known = new Map<Node, ReadonlyMap<string, Node>>();
  return (node, key) => {
    if (node.type === "array") return typeof key === "number" ? node.children?.[key] : undefined;
    if (node.type !== "object") return undefined;
    let children = known.get(node);
    if (children === undefined) {
      const pairs = (node.children ?? []).flatMap(({ children: [name, value] = [] }) =>
        name === undefined || value === undefined ? [] : [[String(name.value), value] as const],
      );
      known.set(node, (children = new Map(pairs.toReversed())));
    }
    return children.get(String(key));
  };
}

/** The offset of the value at a path, or of its key; if the path does not exist, of the nearest table around it. */
function findOffset(
  tree: Node,
  path: KeyPath,
  at: "key" | "value",
  findChild: ChildFinder,
): number {
  let node = tree;
  for (const [depth, key] of path.entries()) {
    const child = findChild(node, key);
    if (child === undefined) return offsetOf(node, depth > 0);
    node = child;
  }
  return offsetOf(node, at === "key");
}

/** @param isKey whether the place of the node's key is meant, if it has one */
function offsetOf(node: Node, isKey: boolean): number {
  const { parent } = node;
  return isKey && parent?.type === "property" ? parent.offset : node.offset;
}
