/** The servers for the toolsets of agents' files, as `[agentFiles.toolsets]` describes them. */
import { manifestServerSchema } from "./schema.ts";
import { type Problem, suggestName } from "./problems.ts";
import { isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/**
 * What provides a toolset: a server of the manifest, or one with settings of its own, which runs for each conversation.
 */
export type ToolsetMapping =
  | { readonly server: string }
  | {
      /** The server's settings, as in `[servers.NAME]`. An argument `${roots}` stands for the roots. */
      readonly entry: Table;
      /** The folders in which the server may work, as written; undefined: the folder of the agent's file. */
      readonly roots: readonly string[] | undefined;
      /** The folder from which relative paths start. */
      readonly baseDir: string;
    };

/** The mappings by the toolset's type. */
export type ToolsetMappings = ReadonlyMap<string, ToolsetMapping>;

/** Notes about toolsets whose server does not exist. @param servers the names of all servers */
export function missingServers(
  toolsets: ToolsetMappings,
  servers: readonly string[],
): readonly string[] {
  return [...toolsets].flatMap(([type, mapping]) => {
    if (!("server" in mapping) || servers.includes(mapping.server)) return [];
    const { server } = mapping;
    return [
      `agentFiles.toolsets.${type} names the server "${server}", which there is not.${suggestName(server, servers)}`,
    ];
  });
}

/**
 * Reads `toolsets`, whose keys have been checked one by one.
 * @param source where the table is, and the folder from which its relative paths start
 */
export function readToolsets(
  table: unknown,
  { file, baseDir }: { readonly file: string; readonly baseDir: string },
): { readonly toolsets: ToolsetMappings; readonly problems: readonly Problem[] } {
  const toolsets = new Map<string, ToolsetMapping>();
  const problems: Problem[] = [];
  for (const [type, settings] of Object.entries(isTable(table) ? table : {})) {
    if (!isTable(settings)) continue;
    const path = ["agentFiles", "toolsets", type];
    const { server, roots, ...entry } = settings;
    const [other] = Object.keys({ ...entry, ...(roots !== undefined && { roots }) });
    if (server !== undefined) {
      const message = "does not go with server, which is set up in its own table";
      if (other !== undefined) problems.push({ file, path: [...path, other], at: "key", message });
      else if (typeof server === "string") toolsets.set(type, { server });
      continue;
    }
    const checked = validate(manifestServerSchema, entry, { file, path });
    if (!checked.ok) {
      problems.push(...checked.problems);
      continue;
    }
    if (roots !== undefined && entry["url"] !== undefined) {
      const message = "only a command can be given roots";
      problems.push({ file, path: [...path, "roots"], at: "key", message });
      continue;
    }
    const folders = Array.isArray(roots) ? roots.map(String) : undefined;
    toolsets.set(type, { entry, roots: folders, baseDir });
  }
  return { toolsets, problems };
}
