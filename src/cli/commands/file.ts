import { access, constants, stat, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { BenchResult } from "../../bench/result.ts";
import { HubError } from "../../base/errors.ts";

/** @throws {HubError} usage if no file can be written there, as far as that can be told without writing one */
export async function checkPage(path: string): Promise<void> {
  const stats = await stat(path).catch(() => undefined);
  if (stats?.isDirectory()) throw unwritable(path, "it is a folder");
  const folder = dirname(resolve(path));
  try {
    if (!(await stat(folder)).isDirectory()) throw unwritable(path, `${folder} is no folder`);
    await access(stats ? path : folder, constants.W_OK);
  } catch (error) {
    throw error instanceof HubError ? error : unwritable(path, error);
  }
}

/**
 * Writes a result as a page. A new file is for its owner alone, as names of tools and arguments stand in it; one that is
 * there keeps its mode.
 * @throws {HubError} usage if it cannot be written
 */
export async function writePage(path: string, result: BenchResult): Promise<void> {
  // The charts' code is only loaded for those who want charts.
  const { formatHtmlReport } = await import("../../bench/report/html.ts");
  try {
    await writeFile(path, formatHtmlReport(result), { mode: 0o600 });
  } catch (error) {
    throw unwritable(path, error);
  }
}

function unwritable(path: string, why: unknown): HubError {
  const cause = why instanceof Error ? why.message : String(why);
  return new HubError("usage", `The page cannot be written to ${path}: ${cause}.`, { cause: why });
}
