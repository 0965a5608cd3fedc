import { realpath } from "node:fs/promises";
import {
  type UnplacedProblem,
  describeValue,
  findNearest,
  type KeyPath,
} from "../manifest/problems.ts";
import type { PluginSpec } from "../manifest/schema.ts";
import { createTable } from "../manifest/table.ts";
import { validateOptions, type ValidationResult } from "../manifest/validate.ts";
import { BUILT_IN_PLUGINS, type PluginLoaders } from "./builtin.ts";
import { describePluginFault } from "./errors.ts";
import { importFile, locatePackage } from "./module.ts";
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

/** A plugin, and its options as validated by its schema. */
export interface LoadedPlugin {
  readonly plugin: Plugin;
  /** The file that it was loaded from, absolute; undefined if it is built in. */
  readonly path: string | undefined;
  readonly options: unknown;
}

export type PluginLoadResult =
  | { readonly ok: true; readonly loaded: LoadedPlugin }
  | { readonly ok: false; readonly problems: readonly UnplacedProblem[] };

/**
 * Loads the plugin of a manifest entry and validates its options. Never rejects.
 * @param loaders the built-in plugins
 */
export async function loadPlugin(
  spec: PluginSpec,
  loaders: PluginLoaders = BUILT_IN_PLUGINS,
): Promise<PluginLoadResult> {
  const { path: at } = spec.origin;
  const found = await findPlugin(spec, loaders);
  if ("fault" in found) {
    return { ok: false, problems: [makeProblem([...at, "use"], found.fault)] };
  }
  const { plugin, path } = found;
  const checked = await checkOptions(plugin, spec.options, [...at, "options"]);
  if (!checked.ok) return checked;
  return { ok: true, loaded: { plugin, path, options: checked.value } };
}

/**
 * The problems of an entry that are known without loading foreign code: options of a built-in plugin, and a missing
 * package. Never rejects.
 */
export async function checkPlugin(spec: PluginSpec): Promise<readonly UnplacedProblem[]> {
  if (findBuiltIn(spec, BUILT_IN_PLUGINS) === undefined) {
    if (locatePlugin(spec) !== undefined) return [];
    return [makeProblem([...spec.origin.path, "use"], notFoundMessage(spec, BUILT_IN_PLUGINS))];
  }
  const result = await loadPlugin(spec);
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
  // Stack traces contain real paths.
  const path = located && (await realpath(located).catch(() => located));
  const load = path === undefined ? findBuiltIn(spec, loaders) : () => importFile(path);
  if (load === undefined) return { fault: notFoundMessage(spec, loaders) };
  try {
    const module: unknown = await load();
    const plugin = await toPlugin((module as { default?: unknown }).default);
    if (typeof plugin === "string") return { fault: plugin };
    return { plugin, path };
  } catch (error) {
    const { message: fault, position: place } = describePluginFault(error, path);
    return { fault: `cannot be loaded: ${fault}${place === undefined ? "" : ` (${place})`}` };
  }
}

function notFoundMessage({ use, baseDir }: PluginSpec, loaders: PluginLoaders): string {
  const nearest = findNearest(use, Object.keys(loaders));
  const guess = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
  return `there is no built-in plugin "${use}", and no package of that name for ${baseDir}${guess}`;
}

/** A plugin without imports exports a function, which gets the API as its argument. */
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
  base: KeyPath,
): Promise<ValidationResult<unknown>> {
  if (schema === undefined) {
    if (options === undefined) return { ok: true, value: undefined };
    return { ok: false, problems: [makeProblem(base, "this plugin has no options", "key")] };
  }
  try {
    return await validateOptions(schema, options ?? createTable<unknown>(), base);
  } catch (error) {
    const { message: fault } = describePluginFault(error, undefined);
    return { ok: false, problems: [makeProblem(base, `cannot be checked: ${fault}`)] };
  }
}

function makeProblem(
  path: KeyPath,
  message: string,
  at: UnplacedProblem["at"] = "value",
): UnplacedProblem {
  return { path, at, message };
}
