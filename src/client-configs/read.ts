import { join } from "node:path";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { parseText } from "../manifest/parse.ts";
import type { Position } from "../manifest/problems.ts";
import { isTable, type Table } from "../manifest/table.ts";
import type { Client, Home, Spot } from "./client.ts";
import type { Input } from "./forms.ts";

/** The largest client file that is read, in bytes. Some clients keep their whole history in it. */
export const MAX_FILE = 64 * 1024 * 1024;

/** One server of a client's file, untranslated. */
export interface Listed {
  readonly name: string;
  readonly entry: unknown;
  /** The project folder that it belongs to, where the file says so. */
  readonly project: string | undefined;
}

/** An existing file of a client. */
export interface ClientFile {
  readonly client: Client;
  /** Absolute. */
  readonly file: string;
  readonly servers: readonly Listed[];
  /** The inputs that an editor asks for, by id. */
  readonly inputs: ReadonlyMap<string, Input>;
  /** Why the file could not be read; undefined if it was. */
  readonly problem: Fault | undefined;
}

/** `message` follows the file's name and contains nothing of its text. */
export interface Fault {
  readonly message: string;
  readonly position: Position | undefined;
}

/** The text of a client's file and its parsed root. */
export type Content =
  | { readonly kind: "absent" }
  | { readonly kind: "read"; readonly text: string; readonly root: Table }
  | { readonly kind: "broken"; readonly fault: Fault };

/** Reads a client's file. An empty file has an empty root. */
export async function readContent(file: string, format: Client["format"]): Promise<Content> {
  const read = await readFileLimited(file, MAX_FILE);
  const fail = (message: string, position?: Position): Content => ({
    kind: "broken",
    fault: { message, position },
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

/** Reads the existing files of a client. @param project the folder whose files are read; undefined: the user's files */
export async function readClient(
  client: Client,
  home: Home,
  project: string | undefined,
): Promise<readonly ClientFile[]> {
  const spots = listSpots(client, home, project);
  const files: ClientFile[] = [];
  for (const file of new Set(spots.map((spot) => spot.file))) {
    const content = await readContent(file, client.format);
    if (content.kind === "absent") continue;
    const common = { client, file };
    if (content.kind === "broken") {
      files.push({ ...common, servers: [], inputs: new Map(), problem: content.fault });
      continue;
    }
    const { root } = content;
    const keys = spots.filter((spot) => spot.file === file).map((spot) => spot.keys);
    const servers = keys.flatMap((path) => list(root, path));
    files.push({ ...common, servers, inputs: readInputs(root), problem: undefined });
  }
  return files;
}

/** The tables that hold a client's servers, with absolute paths. */
export function listSpots(
  client: Client,
  home: Home,
  project: string | undefined,
): readonly Spot[] {
  if (project === undefined) return client.user(home);
  return client.project.map(({ file, keys }) => ({ file: join(project, file), keys }));
}

function list(root: Table, path: readonly string[]): readonly Listed[] {
  const walk = (at: unknown, [key, ...rest]: readonly string[], project?: string): Listed[] => {
    if (!isTable(at)) return [];
    if (key === undefined)
      return Object.entries(at).map(([name, entry]) => ({ name, entry, project }));
    if (key !== "*") return walk(at[key], rest, project);
    return Object.entries(at).flatMap(([each, inner]) => walk(inner, rest, each));
  };
  return walk(root, path);
}

function readInputs(root: Table): ReadonlyMap<string, Input> {
  const inputs = new Map<string, Input>();
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
