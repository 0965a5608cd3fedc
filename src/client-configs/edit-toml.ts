import { stringify } from "smol-toml";
import { type AST, parseTOML } from "toml-eslint-parser";
import type { ServerTableChange } from "./clients.ts";

/** Edits a table of servers in TOML: removed entries are cut out, new ones are appended as tables. */
export function editClientToml(text: string, { keys, remove, set }: ServerTableChange): string {
  const eol = text.includes("\r\n") ? "\r\n" : "\n";
  let edited = text;
  for (const name of [...remove, ...Object.keys(set)]) edited = removeKey(edited, [...keys, name]);
  for (const [name, entry] of Object.entries(set)) {
    const table = stringify(nest([...keys, name], entry)).trimEnd();
    // A table that only contains other tables needs no header of its own.
    const lines = table
      .split("\n")
      .filter((line, at, all) => !isRedundantHeader(line, all[at + 1]));
    const gap = edited === "" ? "" : edited.endsWith("\n") ? eol : eol + eol;
    edited += `${gap}${lines.join(eol).trimStart()}${eol}`;
  }
  return edited;
}

function isRedundantHeader(line: string, next: string | undefined): boolean {
  return line.startsWith("[") && (next === "" || next === undefined || next.startsWith("["));
}

function nest(path: readonly string[], value: unknown): Record<string, unknown> {
  const [key = "", ...rest] = path;
  return { [key]: rest.length === 0 ? value : nest(rest, value) };
}

/** Removes everything under a path of keys. */
function removeKey(text: string, path: readonly string[]): string {
  const ranges: (readonly [number, number])[] = [];
  const isUnder = (keys: readonly (string | number)[]): boolean =>
    path.every((key, at) => keys[at] === key);
  const visit = (pair: AST.TOMLKeyValue, above: readonly (string | number)[]): void => {
    const names = pair.key.keys.map((key) => (key.type === "TOMLBare" ? key.name : key.value));
    if (isUnder([...above, ...names])) ranges.push(pair.range);
  };
  if (text.trim() === "") return text;
  for (const node of parseTOML(text, { tomlVersion: "1.1" }).body[0].body) {
    if (node.type === "TOMLKeyValue") visit(node, []);
    else if (isUnder(node.resolvedKey)) ranges.push(node.range);
    else for (const pair of node.body) visit(pair, node.resolvedKey);
  }
  return ranges.reduceRight((rest, [start, end]) => {
    const line = rest.indexOf("\n", end);
    const behind = line < 0 ? "" : rest.slice(line + 1);
    // A comment on the same line belongs to what is removed.
    const before = rest
      .slice(0, start)
      .replace(/(\r?\n)\r?\n$/, behind.trim() === "" ? "$1" : "$&");
    return before + behind;
  }, text);
}
