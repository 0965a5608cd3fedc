import {
  findNodeAtLocation,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from "jsonc-parser";
import type { DuplicateKey, ParsedFile } from "./parse.ts";
import type { KeyPath, Position } from "./problems.ts";
import { createTable } from "./table.ts";

/** Parses JSON with comments and trailing commas. Duplicate keys are reported in `duplicates`. */
export function parseJson(text: string): ParsedFile {
  const errors: ParseError[] = [];
  const tree = parseTree(text, errors, { allowTrailingComma: true });
  const [first] = errors;
  if (first !== undefined || tree === undefined) {
    const message = first === undefined ? "the file is empty" : describeError(first);
    return { ok: false, message, position: findPosition(text, first?.offset ?? 0) };
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

/** Turns the parser's code into words: "CommaExpected" → "comma expected". Never quotes the file's text. */
function describeError(error: ParseError): string {
  const code = printParseErrorCode(error.error);
  const words = code.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return `not valid JSON: ${words.toLowerCase()}`;
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
