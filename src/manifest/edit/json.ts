import { createScanner, findNodeAtLocation, type Node, parseTree } from "jsonc-parser";
import type { Change, Refusal, Splice } from "./change.ts";
import { Lines } from "./lines.ts";

/** Computes the text edits for a change in valid JSON, with or without comments and trailing commas. */
export function editJson(text: string, group: string, change: Change): readonly Splice[] | Refusal {
  const root = parseTree(text, [], { allowTrailingComma: true });
  if (root === undefined) return { refusal: "is empty" };
  const page: Page = {
    text,
    lines: new Lines(text, /^\s*(?:\/\/|\/\*.*\*\/\s*$)/),
    ...styleOf(text),
  };
  const servers = findNodeAtLocation(root, [group]);
  if (change.kind === "addAll") {
    return servers === undefined
      ? addMembers(page, root, [[group, Object.fromEntries(change.servers)]])
      : addMembers(page, servers, [...change.servers]);
  }
  const { name } = change;
  const server = findNodeAtLocation(root, [group, name]);
  const property = server?.parent;
  switch (change.kind) {
    case "add":
      if (server !== undefined && property !== undefined) {
        const indent = indentAt(text, property.offset);
        return [replace(server, printValue(page, change.entry, indent, isSpread(page, server)))];
      }
      return servers === undefined
        ? addMembers(page, root, [[group, { [name]: change.entry }]])
        : addMembers(page, servers, [[name, change.entry]]);
    case "remove":
      return property === undefined ? [] : removeMember(page, property);
    case "rename": {
      const key = property?.children?.[0];
      return key === undefined ? [] : [replace(key, JSON.stringify(change.to))];
    }
    case "set": {
      const value = findNodeAtLocation(root, [group, name, change.key]);
      if (value?.parent !== undefined) {
        const indent = indentAt(text, value.parent.offset);
        return [replace(value, printValue(page, change.value, indent, isSpread(page, value)))];
      }
      return server === undefined ? [] : addMembers(page, server, [[change.key, change.value]]);
    }
  }
}

/** A text and its formatting. */
interface Page {
  readonly text: string;
  readonly lines: Lines;
  /** The indentation of one level. */
  readonly step: string;
}

function styleOf(text: string): Pick<Page, "step"> {
  const [, step = "  "] = /^\s*\{\s*?\n([ \t]+)\S/.exec(text) ?? [];
  return { step };
}

function replace({ offset, length }: Node, text: string): Splice {
  return { from: offset, to: offset + length, text };
}

/** Appends members to an object. */
function addMembers(
  page: Page,
  object: Node,
  members: readonly (readonly [key: string, value: unknown])[],
): readonly Splice[] | Refusal {
  const { text, step, lines } = page;
  if (object.type !== "object")
    return { refusal: "holds something else where its servers would be" };
  const open = object.offset + 1;
  const close = object.offset + object.length - 1;
  const outer = indentAt(text, object.parent?.offset ?? object.offset);
  const inner = outer + step;
  /** Formats each member after the text `front`. */
  const print = (front: string, indent: string, spread: boolean): string =>
    members
      .map(
        ([key, value]) =>
          `${front}${JSON.stringify(key)}: ${printValue(page, value, indent, spread)}`,
      )
      .join(",");
  const last = object.children?.at(-1);
  if (last === undefined) {
    // The object is empty or holds only comments, the last of which may reach to the end of its line.
    const filled = open + text.slice(open, close).trimEnd().length;
    const filling = print(lines.end + inner, inner, true) + lines.end + outer;
    return [{ from: filled, to: close, text: filling }];
  }
  const end = last.offset + last.length;
  const comma = findComma(text, end, close);
  const behind = comma === undefined ? end : comma + 1;
  const commas: Splice[] = comma === undefined ? [{ from: end, to: end, text: "," }] : [];
  const tail = comma === undefined ? "" : ",";
  const first = object.children?.[0] ?? last;
  if (!text.slice(open, first.offset).includes("\n")) {
    return [...commas, { from: behind, to: behind, text: print(" ", "", false) + tail }];
  }
  const indent = indentAt(text, first.offset);
  const line = lines.all[lines.find(behind - 1)];
  const lineEnd = (line?.from ?? 0) + (line?.text.length ?? 0);
  // A comment behind the last member stays on its line.
  const at =
    lineEnd > behind && lineEnd <= close && isTrivia(text.slice(behind, lineEnd))
      ? lineEnd
      : behind;
  return [...commas, { from: at, to: at, text: print(lines.end + indent, indent, true) + tail }];
}

/** Removes a member with the comments directly above it and the comma that is left over. */
function removeMember({ text, lines }: Page, property: Node): readonly Splice[] {
  const object = property.parent;
  const siblings = object?.children ?? [];
  const at = siblings.indexOf(property);
  const end = property.offset + property.length;
  const close = (object?.offset ?? 0) + (object?.length ?? text.length) - 1;
  const previous = siblings[at - 1];
  const next = siblings[at + 1];
  const comma = findComma(text, end, next?.offset ?? close);
  const behind = comma === undefined ? end : comma + 1;
  const first = lines.find(property.offset);
  const last = lines.find(behind - 1);
  const line = lines.all[last];
  const lineEnd = (line?.from ?? 0) + (line?.text.length ?? 0);
  const isAlone =
    text.slice(lines.all[first]?.from, property.offset).trim() === "" &&
    isTrivia(text.slice(behind, lineEnd)) &&
    lineEnd <= (next?.offset ?? close);
  const before = previous === undefined ? undefined : previous.offset + previous.length;
  const surplus =
    before !== undefined && next === undefined && comma === undefined
      ? findComma(text, before, property.offset)
      : undefined;
  const commas: Splice[] =
    surplus === undefined ? [] : [{ from: surplus, to: surplus + 1, text: "" }];
  if (isAlone) return [...commas, lines.remove(lines.above(first), last)];
  if (next !== undefined) return [{ from: property.offset, to: next.offset, text: "" }];
  return [
    ...commas,
    { from: surplus === undefined ? property.offset : surplus + 1, to: behind, text: "" },
  ];
}

/** The position of the comma between two offsets, comments ignored; undefined if there is none. */
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

function isSpread({ text }: Page, { offset, length }: Node): boolean {
  const before = text.slice(0, offset);
  return before.includes("\n") || text.slice(offset, offset + length).includes("\n");
}

/** The white space at the start of the line. */
function indentAt(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  return /^[ \t]*/.exec(text.slice(start, offset))?.[0] ?? "";
}

function printValue(
  { lines, step }: Page,
  value: unknown,
  indent: string,
  spread: boolean,
): string {
  if (!spread) return JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
  return printSpread(value, indent, step).replaceAll("\n", lines.end);
}

/** Objects with one member per line; arrays in one line, as commands are usually written. */
function printSpread(value: unknown, indent: string, step: string): string {
  if (Array.isArray(value))
    return `[${value.map((item) => printSpread(item, indent, step)).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([key, inner]) =>
      `${indent}${step}${JSON.stringify(key)}: ${printSpread(inner, indent + step, step)}`,
  );
  return members.length === 0 ? "{}" : `{\n${members.join(",\n")}\n${indent}}`;
}
