import { resolve } from "node:path";
import { readFileLimited } from "../../base/read-file.ts";
import { type Env, expandHome } from "../../base/paths.ts";
import { findNearest, type Problem, type SpecSource } from "../problems.ts";
import type { FileConfig, PluginConfig, SourceFile } from "../files/file-config.ts";
import type { PluginSpec } from "../manifest.ts";
import { isTable } from "../table.ts";
import { sha256Hex } from "../trust.ts";

/** The maximum size of a plugin's file, in bytes. Some of these files are bundles with all dependencies. */
const MAX_PLUGIN = 16 * 1024 * 1024;

export interface PluginList {
  /** The plugins in the order of the manifest's files and, within a file, in the order of its text. */
  readonly specs: readonly PluginSpec[];
  /** The absolute paths of the plugins' files, whether the files exist or not. */
  readonly files: readonly string[];
  /** A fingerprint: it changes if and only if a plugin's specification or the content of a plugin's file changes. */
  readonly fingerprint: string;
  /** Whether one of the plugins' files is empty. */
  readonly hasEmptyFile: boolean;
  readonly problems: readonly Problem[];
}

/** Merges the plugins of all files and reads the plugins' files. Does not run them. */
export async function mergePlugins(configs: readonly FileConfig[], env: Env): Promise<PluginList> {
  const specs = configs.flatMap((config) =>
    config.plugins.map((plugin) => toPluginSpec(plugin, config, env)),
  );
  const files = [...new Set(specs.flatMap(({ path }) => path ?? []))];
  const contents = new Map(
    await Promise.all(files.map(async (it) => [it, await readPluginFile(it)] as const)),
  );
  const problems = specs.flatMap(({ path = "", origin: { file, path: keys } }): Problem[] => {
    const content = contents.get(path);
    if (content?.kind !== "refused") return [];
    const message = `${path} ${content.reason}`;
    return [{ file, path: [...keys, "use"], at: "value", message }];
  });
  return {
    specs,
    files,
    fingerprint: canonicalText([specs, [...contents.values()]]),
    hasEmptyFile: [...contents.values()].some((it) => it.kind === "read" && it.size === 0),
    problems,
  };
}

/**
 * The problem of a server whose plugin the manifest does not list.
 * @param names the names of the plugins that the manifest lists
 */
export function missingPluginProblem(
  plugin: string,
  { file, path }: SpecSource,
  names: readonly string[],
): Problem {
  const nearest = findNearest(plugin, names);
  const known = names.map((name) => `"${name}"`).join(", ");
  const listed = known === "" ? "names none" : `names ${known}`;
  const more = nearest === undefined ? `: [[plugins]] ${listed}` : `; did you mean "${nearest}"?`;
  const message = `there is no plugin "${plugin}"${more}`;
  return { file, path: [...path, "plugin"], at: "value", message };
}

function toPluginSpec(
  { path, input }: PluginConfig,
  { file, baseDir }: SourceFile,
  env: Env,
): PluginSpec {
  const { use, options, servers, tools } = input;
  return {
    use,
    path: /^(?:\.{0,2}|~)\//.test(use) ? resolve(baseDir, expandHome(use, env)) : undefined,
    options,
    servers,
    tools,
    baseDir,
    origin: { file, path },
  };
}

type PluginFile =
  /** A file that was read; `size` in bytes, `hash`: the SHA-256 of the whole content in hex. */
  | { readonly kind: "read"; readonly size: number; readonly hash: string }
  | { readonly kind: "refused"; readonly reason: string };

async function readPluginFile(path: string): Promise<PluginFile> {
  const read = await readFileLimited(path, MAX_PLUGIN);
  if (read.kind === "absent") return { kind: "refused", reason: "does not exist" };
  if (read.kind === "refused") return read;
  return { kind: "read", size: read.bytes.length, hash: await sha256Hex(read.bytes) };
}

/** Canonical text of a value, independent of the order of keys. */
function canonicalText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalText).join()}]`;
  if (value instanceof Date) return `date ${value.toISOString()}`;
  if (isTable(value)) {
    const keys = Object.keys(value).toSorted();
    return `{${keys.map((key) => `${JSON.stringify(key)}:${canonicalText(value[key])}`).join()}}`;
  }
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  return JSON.stringify(value) ?? "nothing";
}
