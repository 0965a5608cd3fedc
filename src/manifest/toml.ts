import { parse, TomlError } from "smol-toml";
import type { AST } from "toml-eslint-parser";
import { explainSyntaxError } from "./toml-syntax.ts";
import type { ParsedFile, PositionFinder } from "./parse.ts";
import type { Position } from "./problems.ts";

export function parseToml(text: string): ParsedFile {
  try {
    const root = parse(text);
    return { ok: true, root, duplicates: [], preparePositions: () => mapPositions(text) };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const position = { line: error.line, column: error.column };
    const fault = explainSyntaxError(text, position) ?? { message: describeError(error), position };
    return { ok: false, ...fault, message: `not valid TOML: ${fault.message}` };
  }
}

/**
 * The first line of the parser's message, if it consists of plain words only. The other lines quote the file, which may
 * contain secrets.
 */
function describeError(error: TomlError): string {
  const [line = ""] = error.message.replace("Invalid TOML document: ", "").split("\n", 1);
  return /^[a-zA-Z ,:;.-]+$/.test(line) ? line : "invalid value";
}

type KeyPositions = Readonly<Record<"key" | "value", Position>>;

/** Parses the text again with a slower parser that knows positions; only called if there are problems. */
async function mapPositions(text: string): Promise<PositionFinder> {
  const { parseTOML } = await import("toml-eslint-parser");
  const positions = new Map<string, KeyPositions>();
  const program = parseTOML(text, { tomlVersion: "1.1" });

  const addPosition = (path: readonly (string | number)[], place: KeyPositions) => {
    const id = JSON.stringify(path);
    if (!positions.has(id)) positions.set(id, place);
  };

  const visitValue = (path: readonly (string | number)[], node: AST.TOMLContentNode) => {
    if (node.type === "TOMLInlineTable") for (const pair of node.body) visitPair(path, pair);
    if (node.type !== "TOMLArray") return;
    for (const [index, element] of node.elements.entries()) {
      addPosition([...path, index], { key: startOf(element), value: startOf(element) });
      visitValue([...path, index], element);
    }
  };

  const visitPair = (base: readonly (string | number)[], pair: AST.TOMLKeyValue) => {
    let path = base;
    for (const part of pair.key.keys) {
      path = [...path, part.type === "TOMLBare" ? part.name : part.value];
      const isLast = part === pair.key.keys.at(-1);
      addPosition(path, { key: startOf(part), value: startOf(isLast ? pair.value : part) });
    }
    visitValue(path, pair.value);
  };

  const visitTable = (table: AST.TOMLTable) => {
    let index = 0;
    for (const [depth, key] of table.resolvedKey.entries()) {
      const part = table.key.keys[typeof key === "string" ? index++ : index - 1] ?? table.key;
      addPosition(table.resolvedKey.slice(0, depth + 1), {
        key: startOf(part),
        value: startOf(part),
      });
    }
    for (const pair of table.body) visitPair(table.resolvedKey, pair);
  };

  for (const node of program.body[0].body) {
    if (node.type === "TOMLTable") visitTable(node);
    else visitPair([], node);
  }
  return (path, at) => {
    const exact = positions.get(JSON.stringify(path));
    if (exact !== undefined) return exact[at];
    for (let length = path.length - 1; length > 0; length--) {
      const outer = positions.get(JSON.stringify(path.slice(0, length)));
      if (outer !== undefined) return outer.key;
    }
    return undefined;
  };
}

function startOf(node: { readonly loc: AST.SourceLocation }): Position {
  return { line: node.loc.start.line, column: node.loc.start.column + 1 };
}
