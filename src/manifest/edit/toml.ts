import { type AST, parseTOML } from "toml-eslint-parser";
import type { Table } from "../table.ts";
import {
  applySplices,
  type Change,
  type Refusal,
  type SingleChange,
  type Splice,
} from "./change.ts";
import { Lines } from "./lines.ts";
import { printKey, printPair, printValue } from "./value.ts";

const GROUP = "servers";

/** A key-value pair and its place in the file. */
interface Pair {
  readonly node: AST.TOMLKeyValue;
  /** The whole path of keys from the root. */
  readonly path: readonly (string | number)[];
  /** The number of keys that come from the table's header. */
  readonly depth: number;
}

/** The parsed structure of a file. */
interface Layout {
  readonly text: string;
  readonly lines: Lines;
  readonly tables: readonly AST.TOMLTable[];
  /** At the root and in tables, but not inside inline tables. */
  readonly pairs: readonly Pair[];
}

/** Computes the text edits for a change in valid TOML. */
export function editToml(text: string, change: Change): readonly Splice[] | Refusal {
  const layout = readLayout(text);
  const whole = layout.pairs.find(({ path }) => path.length === 1 && path[0] === GROUP);
  if (whole !== undefined) {
    return { refusal: `has its servers within braces (line ${whole.node.loc.start.line})` };
  }
  if (change.kind === "addAll") {
    const blocks = [...change.servers].map(([name, entry]) => ["", ...blockOf(name, entry)]);
    return [append(layout, blocks.flat().slice(1))];
  }
  const { name } = change;
  switch (change.kind) {
    case "add":
      return add(layout, change);
    case "remove":
      return remove(layout, name);
    case "set":
      return set(layout, name, change.key, printValue(change.value));
    case "rename":
      return rename(layout, name, printKey(change.to));
  }
}

function readLayout(text: string): Layout {
  const program = parseTOML(text, { tomlVersion: "1.1" });
  const nodes = program.body[0].body;
  const tables = nodes.filter((node) => node.type === "TOMLTable");
  const pairs = nodes.flatMap((node) =>
    node.type === "TOMLTable"
      ? node.body.map((pair) => place(pair, node.resolvedKey))
      : [place(node, [])],
  );
  // Lines such as `#:schema` are directives for editors, not comments on what follows.
  return { text, lines: new Lines(text, /^\s*#(?!:)/), tables, pairs };
}

function place(node: AST.TOMLKeyValue, base: readonly (string | number)[]): Pair {
  return { node, path: [...base, ...node.key.keys.map(nameOf)], depth: base.length };
}

function nameOf(key: AST.TOMLBare | AST.TOMLQuoted): string {
  return key.type === "TOMLBare" ? key.name : key.value;
}

function tablesOf({ tables }: Layout, name: string): readonly AST.TOMLTable[] {
  return tables.filter(({ resolvedKey: [top, key] }) => top === GROUP && key === name);
}

/** The pairs of a server outside of its own tables (dotted keys, inline tables). */
function straysOf({ pairs }: Layout, name: string): readonly Pair[] {
  return pairs.filter(({ path: [top, key], depth }) => depth < 2 && top === GROUP && key === name);
}

/** The last line of a table with its comments. */
function lastLine({ lines }: Layout, { range: [from], key, body }: AST.TOMLTable): number {
  const end = Math.max(from, key.range[1], ...body.map((pair) => pair.range[1]));
  return lines.below(lines.find(end - 1));
}

/** The line ranges (first, last) of a server's tables and other pairs with their comments; in file order. */
function regionsOf(layout: Layout, name: string): readonly (readonly [number, number])[] {
  const { lines } = layout;
  const tables = tablesOf(layout, name).map(
    (table) => [lines.above(lines.find(table.range[0])), lastLine(layout, table)] as const,
  );
  const strays = straysOf(layout, name).map(({ node }) => {
    const [from, to] = node.range;
    return [lines.above(lines.find(from)), lines.find(to - 1)] as const;
  });
  return [...tables, ...strays].toSorted(([a], [b]) => a - b);
}

function add(layout: Layout, change: SingleChange & { readonly kind: "add" }): readonly Splice[] {
  const { name, entry } = change;
  const { lines, text } = layout;
  const block = blockOf(name, entry);
  if (straysOf(layout, name).length > 0) {
    // A table header cannot take their place, because other keys follow; so they are removed, and the server is
    // appended.
    const bare = applySplices(text, remove(layout, name));
    const whole = applySplices(bare, add(readLayout(bare), change));
    return [{ from: 0, to: text.length, text: whole }];
  }
  const [old, ...others] = regionsOf(layout, name);
  if (old !== undefined) return [lines.replace(block, ...old), ...removeAll(lines, others)];
  return [append(layout, block)];
}

/** The lines of a server's table. */
function blockOf(name: string, entry: Table): readonly string[] {
  return [`[${GROUP}.${printKey(name)}]`, ...Object.entries(entry).map(printPair)];
}

/** Inserts lines behind the last server. */
function append(layout: Layout, block: readonly string[]): Splice {
  const { lines, tables } = layout;
  const before = tables.findLast(({ resolvedKey: [top] }) => top === GROUP);
  const behind = before === undefined ? lines.all.length - 1 : lastLine(layout, before);
  return lines.insert(block, lastFilled(lines, behind));
}

/** The last line up to `afterLine` that is not blank; `afterLine` if there is none. */
function lastFilled(lines: Lines, behind: number): number {
  let line = behind;
  while (line > 0 && lines.isBlank(line)) line--;
  return lines.isBlank(line) ? behind : line;
}

function remove(layout: Layout, name: string): readonly Splice[] {
  return removeAll(layout.lines, regionsOf(layout, name));
}

function removeAll(
  lines: Lines,
  regions: readonly (readonly [number, number])[],
): readonly Splice[] {
  return join(regions.map(([first, last]) => lines.remove(first, last)));
}

/** Merges edits that touch each other. */
function join(splices: readonly Splice[]): readonly Splice[] {
  const joined: Splice[] = [];
  for (const splice of splices.toSorted((a, b) => a.from - b.from)) {
    const last = joined.at(-1);
    if (last === undefined || splice.from > last.to) joined.push(splice);
    else joined[joined.length - 1] = { ...last, to: Math.max(last.to, splice.to) };
  }
  return joined;
}

function set(
  layout: Layout,
  name: string,
  key: string,
  value: string,
): readonly Splice[] | Refusal {
  const wanted = [GROUP, name, key];
  const same = layout.pairs.find(
    ({ path }) => path.length === 3 && wanted.every((step, i) => step === path[i]),
  );
  if (same !== undefined) return [replace(same.node.value, value)];
  const pair = `${printKey(key)} = ${value}`;
  const { lines, text } = layout;
  const table = tablesOf(layout, name).find(({ resolvedKey }) => resolvedKey.length === 2);
  if (table !== undefined) {
    const last = table.body.at(-1);
    const [from, to] = (last ?? table.key).range;
    const line = lines.find(to - 1);
    const indent = last === undefined ? "" : indentAt(text, from);
    return [putBelow(layout, line, indent + pair)];
  }
  const strays = straysOf(layout, name);
  const inline = strays.find(({ path }) => path.length === 2)?.node.value;
  if (inline?.type === "TOMLInlineTable") {
    const own = inline.body.find(
      ({ key: { keys } }) => keys.length === 1 && keys[0] && nameOf(keys[0]) === key,
    );
    if (own !== undefined) return [replace(own.value, value)];
    const last = inline.body.at(-1);
    if (last === undefined) return [replace(inline, `{ ${pair} }`)];
    const [, at] = last.range;
    return [{ from: at, to: at, text: `, ${pair}` }];
  }
  const last = strays.at(-1);
  const owner = last?.node.key.keys[1 - last.depth];
  if (last === undefined || owner === undefined) return { refusal: "has it in no place for more" };
  const [start] = last.node.range;
  const front = indentAt(text, start) + text.slice(start, owner.range[1]);
  return [putBelow(layout, lines.find(last.node.range[1] - 1), `${front}.${pair}`)];
}

function putBelow({ lines, text }: Layout, line: number, added: string): Splice {
  const at = lines.all[line]?.to ?? text.length;
  const isOpen = !text.slice(0, at).endsWith("\n");
  return { from: at, to: at, text: isOpen ? lines.end + added : added + lines.end };
}

function indentAt(text: string, offset: number): string {
  return /[ \t]*$/.exec(text.slice(0, offset))?.[0] ?? "";
}

function rename(layout: Layout, name: string, to: string): readonly Splice[] {
  const headers = tablesOf(layout, name).flatMap(({ key }) => key.keys[1] ?? []);
  const keys = straysOf(layout, name).flatMap(({ node, depth }) => node.key.keys[1 - depth] ?? []);
  return [...headers, ...keys].map((key) => replace(key, to));
}

function replace({ range: [from, to] }: { readonly range: AST.Range }, text: string): Splice {
  return { from, to, text };
}
