import { parse, TomlError } from "smol-toml";
import type { AST } from "toml-eslint-parser";
import { explainSyntaxError } from "./toml-errors.ts";
import type { ParsedFile, PositionFinder } from "./parse.ts";
import type { Position } from "../problems.ts";

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

/** A key of the file: its position and that of its value, and the keys below it. */
interface Place {
  key: Position | undefined;
  value: Position | undefined;
  readonly inner: Map<string | number, Place>;
}

/** Maximum length of a text whose positions are mapped, in UTF-16 units: the second parser takes 3 ms for 1,000. */
const MAX_MAPPED = 128 * 1024;

/**
 * Parses the text again with a slower parser that knows positions; only called if there are problems. Positions in a
 * very long text are unknown.
 */
async function mapPositions(text: string): Promise<PositionFinder> {
  if (text.length > MAX_MAPPED) return () => undefined;
  const { parseTOML } = await import("toml-eslint-parser");
  const makePlace = (): Place => ({ key: undefined, value: undefined, inner: new Map() });
  const root = makePlace();
  const program = parseTOML(text, { tomlVersion: "1.1" });

  /** The place of a key; the first position of a key counts. */
  const placeAt = (outer: Place, name: string | number, key: Position, value = key): Place => {
    let place = outer.inner.get(name);
    if (place === undefined) outer.inner.set(name, (place = makePlace()));
    place.key ??= key;
    place.value ??= value;
    return place;
  };

  const visitValue = (place: Place, node: AST.TOMLContentNode): void => {
    if (node.type === "TOMLInlineTable") for (const pair of node.body) visitPair(place, pair);
    if (node.type !== "TOMLArray") return;
    for (const [index, element] of node.elements.entries())
      visitValue(placeAt(place, index, startOf(element)), element);
  };

  const visitPair = (outer: Place, pair: AST.TOMLKeyValue): void => {
    let place = outer;
    const last = pair.key.keys.at(-1);
    for (const part of pair.key.keys) {
      const name = part.type === "TOMLBare" ? part.name : part.value;
      place = placeAt(place, name, startOf(part), startOf(part === last ? pair.value : part));
    }
    visitValue(place, pair.value);
  };

  const visitTable = (table: AST.TOMLTable): void => {
    let index = 0;
    let place = root;
    for (const key of table.resolvedKey) {
      const part = table.key.keys[typeof key === "string" ? index++ : index - 1] ?? table.key;
      place = placeAt(place, key, startOf(part));
    }
    for (const pair of table.body) visitPair(place, pair);
  };

  for (const node of program.body[0].body) {
    if (node.type === "TOMLTable") visitTable(node);
    else visitPair(root, node);
  }
  return (path, at) => {
    let place = root;
    for (const key of path) {
      const inner = place.inner.get(key);
      if (inner === undefined) return place.key;
      place = inner;
    }
    return place[at];
  };
}

function startOf(node: { readonly loc: AST.SourceLocation }): Position {
  return { line: node.loc.start.line, column: node.loc.start.column + 1 };
}
