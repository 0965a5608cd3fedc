import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { resolvePackage, runtimeName } from "../base/runtime.ts";

/** How often each file was imported. */
const importCounts = new Map<string, number>();

/**
 * Imports a JavaScript or TypeScript file anew each time; modules that it imports itself may come from the cache.
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
 * Resolves a package as `import` does; the runtime's own function uses the conditions of `require`.
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

/** The first target whose conditions match `import`. */
function pickTarget(target: Exports | undefined): string | undefined {
  if (target === undefined || typeof target === "string") return target;
  for (const [condition, inner] of Object.entries(target)) {
    const found = ["import", "node", "default"].includes(condition) ? pickTarget(inner) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}
