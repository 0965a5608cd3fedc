import { existsSync, readFileSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { resolvePackage, runtimeName } from "../base/runtime.ts";
import { describeValue, findNearest, type Problem, type SpecSource } from "../manifest/problems.ts";
import { validateOptions } from "../manifest/plugin-options.ts";
import type { ValidationResult } from "../manifest/validate.ts";
import type { PluginSpec } from "../manifest/manifest.ts";
import { createTable } from "../manifest/table.ts";
import { describePluginFault, formatPluginFault } from "./errors.ts";
import {
  type Api,
  definePlugin,
  delay,
  globs,
  limit,
  matchesGlob,
  memberOf,
  type Plugin,
  readSpelling,
  rewrite,
  type Schema,
  size,
} from "./plugin.ts";

/** Functions that load plugins, by the plugin's name in the manifest. */
export type PluginLoaders = Readonly<Record<string, () => Promise<{ readonly default: unknown }>>>;

/** The plugins that toolmux contains; each is loaded when it is first used. */
export const BUILT_IN_PLUGINS: PluginLoaders = {
  "audit-log": () => import("../../plugins/audit-log/index.ts"),
  cache: () => import("../../plugins/cache/index.ts"),
  "result-limit": () => import("../../plugins/result-limit/index.ts"),
  "schema-repair": () => import("../../plugins/schema-repair/index.ts"),
};

/** How often each file was imported. */
const importCounts = new Map<string, number>();

/**
 * Imports a JavaScript or TypeScript file, and runs it again at each call. The modules that the file imports may come
 * from the module cache.
 * @param path absolute
 * @throws whatever the file throws, or the runtime if it cannot read the file
 */
export async function importFile(path: string): Promise<unknown> {
  const count = importCounts.get(path) ?? 0;
  importCounts.set(path, count + 1);
  const query = count === 0 ? "" : `?v=${count}`;
  // Bun ignores the query of a URL; Deno and Node do not support a query in a path.
  const name = runtimeName === "bun" ? path : pathToFileURL(path).href;
  return import(name + query);
}

/**
 * The absolute path of the file that importing a package from a folder would load; undefined if the package is not
 * found.
 */
export function locatePackage(name: string, folder: string): string | undefined {
  try {
    return (resolvePackage ?? findPackageEntry)(name, folder);
  } catch {
    return undefined;
  }
}

/**
 * Resolves a package as `import` does. The runtime's own function would apply the conditions of `require` instead.
 * @throws {Error} if the package is broken
 */
function findPackageEntry(name: string, folder: string): string | undefined {
  const path = join(folder, "node_modules", name);
  const file = join(path, "package.json");
  if (!existsSync(file)) {
    const above = dirname(folder);
    return above === folder ? undefined : findPackageEntry(name, above);
  }
  const { exports: packageExports, main } = JSON.parse(readFileSync(file, "utf8")) as PackageJson;
  const rootTarget =
    typeof packageExports === "object" ? (packageExports["."] ?? packageExports) : packageExports;
  const entry = pickTarget(rootTarget);
  return entry === undefined
    ? createRequire(file).resolve(join(path, main ?? "."))
    : join(path, entry);
}

interface PackageJson {
  readonly exports?: Exports;
  readonly main?: string;
}

type Exports = string | { readonly [condition: string]: Exports };

/** The first target in a package's `exports` whose conditions apply to `import`. */
function pickTarget(target: Exports | undefined): string | undefined {
  if (target === undefined || typeof target === "string") return target;
  for (const [condition, inner] of Object.entries(target)) {
    const found = ["import", "node", "default"].includes(condition) ? pickTarget(inner) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** A plugin, and its options as validated by its schema. */
export interface LoadedPlugin {
  readonly plugin: Plugin;
  /** The file that it was loaded from, absolute; undefined if it is built in. */
  readonly path: string | undefined;
  readonly options: unknown;
}

export type PluginLoadResult =
  | { readonly ok: true; readonly loaded: LoadedPlugin }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/**
 * Loads the plugin of a manifest entry and validates its options. Never rejects.
 * @param loaders the built-in plugins
 */
export async function loadPlugin(
  spec: PluginSpec,
  loaders: PluginLoaders = BUILT_IN_PLUGINS,
): Promise<PluginLoadResult> {
  const { file, path: at } = spec.origin;
  const found = await findPlugin(spec, loaders);
  if ("fault" in found) {
    const use = { file, path: [...at, "use"] };
    return { ok: false, problems: [{ ...use, at: "value", message: found.fault }] };
  }
  const { plugin, path } = found;
  const checked = await checkOptions(plugin, spec.options, { file, path: [...at, "options"] });
  if (!checked.ok) return checked;
  return { ok: true, loaded: { plugin, path, options: checked.value } };
}

/**
 * The problems of an entry that are known without loading foreign code: invalid options of a built-in plugin, or a
 * missing package. Never rejects.
 * @param loaders the built-in plugins
 */
export async function checkPlugin(
  spec: PluginSpec,
  loaders: PluginLoaders = BUILT_IN_PLUGINS,
): Promise<readonly Problem[]> {
  if (findBuiltIn(spec, loaders) === undefined) {
    if (locatePlugin(spec) !== undefined) return [];
    const { file, path } = spec.origin;
    const message = notFoundMessage(spec, loaders);
    return [{ file, path: [...path, "use"], at: "value", message }];
  }
  const result = await loadPlugin(spec, loaders);
  return result.ok ? [] : result.problems;
}

/** The absolute path of an entry's plugin; undefined if it is built in or not found. */
export function locatePlugin(
  spec: PluginSpec,
  loaders: PluginLoaders = BUILT_IN_PLUGINS,
): string | undefined {
  if (findBuiltIn(spec, loaders)) return undefined;
  return spec.path ?? locatePackage(spec.use, spec.baseDir);
}

function findBuiltIn(
  { use, path }: PluginSpec,
  loaders: PluginLoaders,
): PluginLoaders[string] | undefined {
  return path === undefined && Object.hasOwn(loaders, use) ? loaders[use] : undefined;
}

type FoundPlugin =
  { readonly plugin: Plugin; readonly path: string | undefined } | { readonly fault: string };

async function findPlugin(spec: PluginSpec, loaders: PluginLoaders): Promise<FoundPlugin> {
  const located = locatePlugin(spec, loaders);
  // Symbolic links are resolved, because the path is searched in stack traces, which contain real paths.
  const path = located && (await realpath(located).catch(() => located));
  const load = path === undefined ? findBuiltIn(spec, loaders) : () => importFile(path);
  if (load === undefined) return { fault: notFoundMessage(spec, loaders) };
  try {
    const module: unknown = await load();
    const plugin = await toPlugin((module as { default?: unknown }).default);
    if (typeof plugin === "string") return { fault: plugin };
    return { plugin, path };
  } catch (error) {
    return { fault: `cannot be loaded: ${formatPluginFault(describePluginFault(error, path))}` };
  }
}

function notFoundMessage({ use, baseDir }: PluginSpec, loaders: PluginLoaders): string {
  const nearest = findNearest(use, Object.keys(loaders));
  const guess = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
  return `there is no built-in plugin "${use}", and no package of that name for ${baseDir}${guess}`;
}

/** Turns a default export into a plugin: an exported function is called with the plugin API and returns the plugin. */
async function toPlugin(exported: unknown): Promise<Plugin | string> {
  const value: unknown =
    typeof exported === "function" ? await (exported as Factory)(await makeApi()) : exported;
  const { name, setup, options } = (value ?? {}) as Partial<Record<keyof Plugin, unknown>>;
  if (typeof name !== "string" || typeof setup !== "function") {
    return "its default export is no plugin: expected { name, setup }, or a function that returns that";
  }
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) {
    return `the plugin's name is ${describeValue(name, true)}: expected letters, digits, _ and -, 64 at most`;
  }
  if (options !== undefined && !isSchema(options)) {
    return "the plugin's options are no schema: expected one of valibot, or any Standard Schema";
  }
  return value as Plugin;
}

type Factory = (api: Api) => unknown;

async function makeApi(): Promise<Api> {
  const v = await import("valibot");
  const jsonText = { memberOf, readSpelling, rewrite };
  return { v, definePlugin, delay, globs, limit, matchesGlob, size, ...jsonText };
}

function isSchema(value: unknown): value is Schema<unknown> {
  const standard: unknown = (value as Partial<Schema<unknown>> | null)?.["~standard"];
  return typeof (standard as { validate?: unknown } | undefined)?.validate === "function";
}

async function checkOptions(
  { options: schema }: Plugin,
  options: PluginSpec["options"],
  source: SpecSource,
): Promise<ValidationResult<unknown>> {
  if (schema === undefined) {
    if (options === undefined) return { ok: true, value: undefined };
    return {
      ok: false,
      problems: [{ ...source, at: "key", message: "this plugin takes no options" }],
    };
  }
  try {
    return await validateOptions(schema, options ?? createTable<unknown>(), source);
  } catch (error) {
    const { message: fault } = describePluginFault(error, undefined);
    return {
      ok: false,
      problems: [{ ...source, at: "value", message: `cannot be checked: ${fault}` }],
    };
  }
}
