import { resolve } from "node:path";
import { readFileLimited } from "../base/read-file.ts";
import { expandHome, type Env } from "../base/paths.ts";
import { type Complaint, findNearest } from "./problems.ts";
import type { PluginDraft } from "./file-config.ts";
import type { Place, PluginSpec } from "./schema.ts";
import type { Fault, Source } from "./source.ts";
import { isTable } from "./table.ts";
import { digest } from "./trust.ts";

/** The largest file of a plugin, in bytes. Some are bundles with all dependencies. */
const MAX_PLUGIN = 16 * 1024 * 1024;

/** All plugins of a manifest. */
export interface Gathered {
  /** In the order of the files, then in the order within each. */
  readonly specs: readonly PluginSpec[];
  /** Files of plugins, absolute, whether they exist or not. */
  readonly files: readonly string[];
  /** A fingerprint: it changes if and only if a specification or a file's content changes. */
  readonly edition: string;
  /** Whether one of the files is empty. */
  readonly blank: boolean;
  readonly faults: readonly Fault[];
}

/** Merges the plugins of all files and reads the plugins' files. Does not run them. */
export async function gatherPlugins(sources: readonly Source[], env: Env): Promise<Gathered> {
  const placed = sources.flatMap((source) =>
    source.reading.plugins.map((draft) => ({ source, spec: specify(draft, source, env) })),
  );
  const specs = placed.map(({ spec }) => spec);
  const files = [...new Set(specs.flatMap(({ path }) => path ?? []))];
  const contents = new Map(
    await Promise.all(files.map(async (it) => [it, await look(it)] as const)),
  );
  const faults = placed.flatMap(({ source, spec: { path = "", origin } }): Fault[] => {
    const content = contents.get(path);
    if (content?.kind !== "refused") return [];
    const message = `${path} ${content.reason}`;
    return [{ source, path: [...origin.path, "use"], at: "value", message }];
  });
  return {
    specs,
    files,
    edition: spell([specs, [...contents.values()]]),
    blank: [...contents.values()].some((it) => it.kind === "read" && it.size === 0),
    faults,
  };
}

/** The problem of a server whose plugin the manifest does not list. @param names the plugins that it lists */
export function missPlugin(
  plugin: string,
  path: Place["path"],
  names: readonly string[],
): Complaint {
  const nearest = findNearest(plugin, names);
  const known = names.map((name) => `"${name}"`).join(", ");
  const advice = known === "" ? "names none" : `names ${known}`;
  const more = nearest === undefined ? `: [[plugins]] ${advice}` : `; did you mean "${nearest}"?`;
  const message = `there is no plugin "${plugin}"${more}`;
  return { path: [...path, "plugin"], at: "value", message };
}

function specify({ path, input }: PluginDraft, { file, baseDir }: Source, env: Env): PluginSpec {
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

type Content =
  /** `size` in bytes; `hash` of the whole content. */
  | { readonly kind: "read"; readonly size: number; readonly hash: string }
  | { readonly kind: "refused"; readonly reason: string };

async function look(path: string): Promise<Content> {
  const read = await readFileLimited(path, MAX_PLUGIN);
  if (read.kind === "absent") return { kind: "refused", reason: "does not exist" };
  if (read.kind === "refused") return read;
  return { kind: "read", size: read.bytes.length, hash: await digest(read.bytes) };
}

/** Canonical text of a value, independent of the order of keys. */
function spell(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spell).join()}]`;
  if (value instanceof Date) return `date ${value.toISOString()}`;
  if (isTable(value)) {
    const keys = Object.keys(value).toSorted();
    return `{${keys.map((key) => `${JSON.stringify(key)}:${spell(value[key])}`).join()}}`;
  }
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  return JSON.stringify(value) ?? "nothing";
}
