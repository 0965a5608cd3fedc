import { join } from "node:path";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { makeServerSwitch } from "../manifest/files/guard-keys.ts";
import { parseText, type PositionFinder } from "../manifest/syntax/parse.ts";
import { describeValue, formatPath, type KeyPath, type Position } from "../manifest/problems.ts";
import { isTable, type Table } from "../manifest/table.ts";
import type { ClientApp, ClientFolders, ServerTable } from "./clients.ts";
import type { EditorInput } from "./entry-to-manifest.ts";

/** The maximum size of a client's file, in bytes. Some clients keep their whole history in it. */
export const MAX_FILE = 64 * 1024 * 1024;

/** A server in a client's file, with its entry as written there. */
export interface ClientServer {
  readonly name: string;
  readonly entry: unknown;
  /** The path of the entry in the file. */
  readonly path: KeyPath;
  /** The project folder that the server belongs to, if the file names one. */
  readonly project: string | undefined;
}

export interface ClientFile {
  readonly client: ClientApp;
  /** The file's path, absolute. */
  readonly file: string;
  /** The project folder whose file this is, absolute; undefined for a file of the user. */
  readonly project: string | undefined;
  readonly servers: readonly ClientServer[];
  /** The values that an editor asks the user for, by id. */
  readonly inputs: ReadonlyMap<string, EditorInput>;
  /** As in `ParsedFile`. */
  readonly preparePositions: () => Promise<PositionFinder>;
  /** The reason why the file or one of its tables of servers could not be read; undefined if all were read. */
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
  | {
      readonly kind: "read";
      readonly text: string;
      readonly root: Table;
      /** As in `ParsedFile`. */
      readonly preparePositions: () => Promise<PositionFinder>;
    }
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
  if (text.trim() === "") return { kind: "read", text, root: {}, preparePositions: noPositions };
  const parsed = await parseText(text, format);
  if (!parsed.ok) return fail(parsed.message, parsed.position);
  const { root, preparePositions } = parsed;
  return isTable(root)
    ? { kind: "read", text, root, preparePositions }
    : fail("holds no table of settings");
}

const noPositions = (): Promise<PositionFinder> => Promise.resolve(() => undefined);

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
    const common = { client, file, project };
    if (content.kind === "broken") {
      const { problem } = content;
      const nothing = { servers: [], inputs: new Map(), preparePositions: noPositions };
      files.push({ ...common, ...nothing, problem });
      continue;
    }
    const { root, preparePositions } = content;
    const keys = tables.filter((table) => table.file === file).map((table) => table.keys);
    const found = keys.map((path) => serversAt(root, path));
    const [wrong] = found.flatMap((table) => table.wrong);
    const servers = found.flatMap((table) => table.servers);
    const problem = wrong && {
      message: `${formatPath(wrong.path)} expected a table of servers, found ${describeValue(wrong.value, false)}`,
      position: (await preparePositions())(wrong.path, "value"),
    };
    files.push({ ...common, servers, inputs: readInputs(root), preparePositions, problem });
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

interface FoundServers {
  readonly servers: readonly ClientServer[];
  /** The values in the place of a table of servers. */
  readonly wrong: readonly { readonly path: KeyPath; readonly value: unknown }[];
}

/** The servers in the tables that these keys lead to; `*` matches any key. A table that is absent or null is empty. */
function serversAt(root: Table, keys: readonly string[]): FoundServers {
  const servers: ClientServer[] = [];
  const wrong: { path: KeyPath; value: unknown }[] = [];
  const walk = (
    at: unknown,
    path: KeyPath,
    [key, ...rest]: readonly string[],
    project?: string,
    settings = root,
  ): void => {
    if (at === undefined || at === null) return;
    if (!isTable(at)) {
      // Only the last of these tables is certain to be about servers: the others have more settings of the client.
      if (key === undefined) wrong.push({ path, value: at });
      return;
    }
    if (key === undefined) {
      const isSwitchedOff = makeServerSwitch(settings);
      for (const [name, written] of Object.entries(at)) {
        const isOff = isSwitchedOff(name) && isTable(written);
        const entry = isOff ? { ...written, disabled: true } : written;
        servers.push({ name, entry, path: [...path, name], project });
      }
    } else if (key === "*") {
      for (const [each, inner] of Object.entries(at)) walk(inner, [...path, each], rest, each, at);
    } else walk(at[key], [...path, key], rest, project, at);
  };
  walk(root, [], keys);
  return { servers, wrong };
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
