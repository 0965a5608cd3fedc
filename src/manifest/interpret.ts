import { basename } from "node:path";
import { readClientFile } from "./client-entry.ts";
import { readManifestFile, readServers } from "./read.ts";
import { formatPath, type UnplacedProblem } from "./problems.ts";
import type { FileConfig } from "./file-config.ts";
import { isTable } from "./table.ts";

/** Reads the content of `file`: a manifest, or a client's file if it looks like one. `duplicates`: duplicate keys. */
export function readConfigFile(
  root: unknown,
  file: string,
  duplicates: readonly UnplacedProblem[] = [],
): FileConfig {
  const isClientFileName = /^\.?mcp\.json$/.test(basename(file));
  if (!isTable(root) || !(isClientFileName || "mcpServers" in root || "inputs" in root)) {
    const fileConfig = readManifestFile(root);
    return { ...fileConfig, problems: [...duplicates, ...fileConfig.problems] };
  }
  const fileConfig = readClientFile(root);
  const notes = [...fileConfig.notes, ...duplicates.flatMap(describeDuplicate)];
  if (isClientFileName || !("mcpServers" in root && "servers" in root))
    return { ...fileConfig, notes };
  const message = `cannot stand in one file with "servers"; move the servers into one of the two`;
  const conflict: UnplacedProblem = { path: ["mcpServers"], at: "key", message };
  return { ...fileConfig, problems: [conflict, ...fileConfig.problems], notes };
}

/** Reads an object of servers in the manifest's schema, or one that holds it under `servers` or `mcpServers`. */
export function readConfigVariable(
  root: unknown,
  duplicates: readonly UnplacedProblem[],
): FileConfig {
  if (isWrapped(root)) return readConfigFile(root, "", duplicates);
  const serverTable = readServers(root, []);
  const problems = [...duplicates, ...serverTable.problems];
  return { hub: {}, defaults: {}, plugins: [], ...serverTable, problems, notes: [] };
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
  const isServer =
    isTable(inner) && MAIN_KEYS.some((main) => main in inner && !isTable(inner[main]));
  return isKnown && others.length === 0 && isTable(inner) && !isServer;
}

const MAIN_KEYS = ["command", "package", "url", "plugin"];

/** Clients silently use the last of duplicate keys; only duplicate servers are noted. */
function describeDuplicate({ path }: UnplacedProblem): readonly string[] {
  const isServer = path[0] === "mcpServers" || path[0] === "servers";
  return isServer ? [`${formatPath(path)} stands twice, the last one counts`] : [];
}
