import { join } from "node:path";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { parseText } from "../manifest/parse.ts";
import type { Position } from "../manifest/problems.ts";
import { isTable, type Table } from "../manifest/table.ts";
import type { ClientApp, ClientFolders, ServerTable } from "./clients.ts";
import type { EditorInput } from "./entry-to-manifest.ts";

/** The maximum size of a client's file, in bytes. Some clients keep their whole history in it. */
export const MAX_FILE = 64 * 1024 * 1024;

/** A server in a client's file, with its entry as written there. */
export interface ClientServer {
  readonly name: string;
  readonly entry: unknown;
  /** The project folder that the server belongs to, if the file names one. */
  readonly project: string | undefined;
}

export interface ClientFile {
  readonly client: ClientApp;
  /** The file's path, absolute. */
  readonly file: string;
  readonly servers: readonly ClientServer[];
  /** The values that an editor asks the user for, by id. */
  readonly inputs: ReadonlyMap<string, EditorInput>;
  /** The reason why the file could not be read; undefined if it was read. */
  readonly problem: ClientFileProblem | undefined;
}

/**
 * The reason why a client's file cannot be used. `message` continues a sentence that begins with the file's name, and
 * contains none of the file's text.
 */
export interface ClientFileProblem {
  readonly message: string;
  readonly position: Position | undefined;
}

export type ClientFileContent =
  | { readonly kind: "absent" }
  | { readonly kind: "read"; readonly text: string; readonly root: Table }
  | { readonly kind: "broken"; readonly problem: ClientFileProblem };

/** Reads a client's file. The root of an empty file is an empty table. */
export async function readClientFileText(
  file: string,
  format: ClientApp["format"],
): Promise<ClientFileContent> {
  const read = await readFileLimited(file, MAX_FILE);
  const fail = (message: string, position?: Position): ClientFileContent => ({
    kind: "broken",
    problem: { message, position },
  });
  if (read.kind === "absent") return read;
  if (read.kind === "refused") return fail(read.reason);
  const text = decodeUtf8(read.bytes);
  if (text === undefined) return fail("is not UTF-8 text");
  if (text.trim() === "") return { kind: "read", text, root: {} };
  const parsed = await parseText(text, format);
  if (!parsed.ok) return fail(parsed.message, parsed.position);
  return isTable(parsed.root)
    ? { kind: "read", text, root: parsed.root }
    : fail("holds no table of settings");
}

/**
 * Reads the existing files of a client.
 * @param project the project folder whose files are read; undefined: the user's files
 */
export async function readClientFiles(
  client: ClientApp,
  home: ClientFolders,
  project: string | undefined,
): Promise<readonly ClientFile[]> {
  const tables = listServerTables(client, home, project);
  const files: ClientFile[] = [];
  for (const file of new Set(tables.map((table) => table.file))) {
    const content = await readClientFileText(file, client.format);
    if (content.kind === "absent") continue;
    const common = { client, file };
    if (content.kind === "broken") {
      files.push({ ...common, servers: [], inputs: new Map(), problem: content.problem });
      continue;
    }
    const { root } = content;
    const keys = tables.filter((table) => table.file === file).map((table) => table.keys);
    const servers = keys.flatMap((path) => serversAt(root, path));
    files.push({ ...common, servers, inputs: readInputs(root), problem: undefined });
  }
  return files;
}

/** The tables in a client's files that list its servers, with absolute paths. */
export function listServerTables(
  client: ClientApp,
  home: ClientFolders,
  project: string | undefined,
): readonly ServerTable[] {
  if (project === undefined) return client.user(home);
  return client.project.map(({ file, keys }) => ({ file: join(project, file), keys }));
}

function serversAt(root: Table, path: readonly string[]): readonly ClientServer[] {
  const walk = (
    at: unknown,
    [key, ...rest]: readonly string[],
    project?: string,
  ): ClientServer[] => {
    if (!isTable(at)) return [];
    if (key === undefined)
      return Object.entries(at).map(([name, entry]) => ({ name, entry, project }));
    if (key !== "*") return walk(at[key], rest, project);
    return Object.entries(at).flatMap(([each, inner]) => walk(inner, rest, each));
  };
  return walk(root, path);
}

function readInputs(root: Table): ReadonlyMap<string, EditorInput> {
  const inputs = new Map<string, EditorInput>();
  const { inputs: listed } = root;
  for (const input of Array.isArray(listed) ? (listed as readonly unknown[]) : []) {
    if (!isTable(input) || typeof input["id"] !== "string") continue;
    const isHidden = input["password"] === true;
    const fallback =
      typeof input["default"] === "string" && !isHidden ? input["default"] : undefined;
    inputs.set(input["id"], { fallback });
  }
  return inputs;
}
