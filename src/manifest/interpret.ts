import { basename } from "node:path";
import { readForeign } from "./client-entry.ts";
import { readOwn, readServers } from "./read.ts";
import { printPath, type Complaint } from "./problems.ts";
import type { Reading } from "./file-config.ts";
import { isTable } from "./table.ts";

/** Reads the content of `file`: a manifest, or a client's file if it looks like one. `duplicates`: duplicate keys. */
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

/** Reads an object of servers in the manifest's schema, or one that holds it under `servers` or `mcpServers`. */
export function interpretVariable(root: unknown, doubled: readonly Complaint[]): Reading {
  if (isWrapped(root)) return interpretFile(root, "", doubled);
  const listed = readServers(root, []);
  const complaints = [...doubled, ...listed.complaints];
  return { hub: {}, defaults: {}, plugins: [], ...listed, complaints, notes: [] };
}

/**
 * Whether the only key is a wrapper, and not a server called "servers": a server has `command`, `url`, … as text, while
 * a table of servers holds only tables.
 */
function isWrapped(root: unknown): boolean {
  if (!isTable(root)) return false;
  const [key = "", ...others] = Object.keys(root);
  const inner = root[key];
  const isKnown = key === "servers" || key === "mcpServers";
  const isServer = isTable(inner) && MAIN.some((main) => main in inner && !isTable(inner[main]));
  return isKnown && others.length === 0 && isTable(inner) && !isServer;
}

const MAIN = ["command", "package", "url", "plugin"];

/** Clients silently use the last of duplicate keys; only duplicate servers are noted. */
function noteDoubled({ path }: Complaint): readonly string[] {
  const isServer = path[0] === "mcpServers" || path[0] === "servers";
  return isServer ? [`${printPath(path)} stands twice, the last one counts`] : [];
}
