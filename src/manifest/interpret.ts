import { basename } from "node:path";
import { readForeign } from "./foreign.ts";
import { readOwn, readServers } from "./own.ts";
import { printPath, type Complaint } from "./problem.ts";
import type { Reading } from "./reading.ts";
import { isTable } from "./table.ts";

/** Reads the content of `file`: ours, or a client's if it looks like one. `doubled`: keys that stand twice. */
export function interpretFile(
  root: unknown,
  file: string,
  doubled: readonly Complaint[] = [],
): Reading {
  const named = /^\.?mcp\.json$/.test(basename(file));
  if (!isTable(root) || !(named || "mcpServers" in root || "inputs" in root)) {
    const reading = readOwn(root);
    return { ...reading, complaints: [...doubled, ...reading.complaints] };
  }
  const reading = readForeign(root);
  const notes = [...reading.notes, ...doubled.flatMap(noteDoubled)];
  if (named || !("mcpServers" in root && "servers" in root)) return { ...reading, notes };
  const message = `cannot stand in one file with "servers"; move the servers into one of the two`;
  const mixed: Complaint = { path: ["mcpServers"], at: "key", message };
  return { ...reading, complaints: [mixed, ...reading.complaints], notes };
}

/** Reads a bare object of servers in our own schema, or one that holds it under `servers` or `mcpServers`. */
export function interpretVariable(root: unknown, doubled: readonly Complaint[]): Reading {
  if (isWrapped(root)) return interpretFile(root, "", doubled);
  const listed = readServers(root, []);
  const complaints = [...doubled, ...listed.complaints];
  return { hub: {}, defaults: {}, plugins: [], ...listed, complaints, notes: [] };
}

/** A server called "servers" says what it is with a text; in a table of servers there are only tables. */
function isWrapped(root: unknown): boolean {
  if (!isTable(root)) return false;
  const [key = "", ...others] = Object.keys(root);
  const inner = root[key];
  const isKnown = key === "servers" || key === "mcpServers";
  const isServer = isTable(inner) && MAIN.some((main) => main in inner && !isTable(inner[main]));
  return isKnown && others.length === 0 && isTable(inner) && !isServer;
}

const MAIN = ["command", "package", "url", "plugin"];

/** Clients take the last one without a word; only servers are of interest here. */
function noteDoubled({ path }: Complaint): readonly string[] {
  const isServer = path[0] === "mcpServers" || path[0] === "servers";
  return isServer ? [`${printPath(path)} stands twice, the last one counts`] : [];
}
