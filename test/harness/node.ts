import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";

const INSTALLED = fileURLToPath(
  new URL(
    `../../dist/node-runtime/node_modules/node-${process.platform}-${process.arch}/bin/node`,
    import.meta.url,
  ),
);

/**
 * The Node that the tests use: the one that scripts/node.mjs has installed (the oldest that runs TypeScript, 22.18), or else
 * that of PATH if it is at least as new; undefined: there is none.
 */
export function findNode(): string | undefined {
  if (existsSync(INSTALLED)) return INSTALLED;
  const print = "process.execPath + ' ' + process.versions.node";
  const { stdout } = spawnSync("node", ["-p", print], { encoding: "utf8" });
  const [, path, ...version] = /^(.+) (\d+)\.(\d+)/.exec(stdout ?? "") ?? [];
  const [major = 0, minor = 0] = version.map(Number);
  return major > 22 || (major === 22 && minor >= 18) ? path : undefined;
}
