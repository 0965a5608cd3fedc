import { spawnSync } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../dist/conformance/programs", import.meta.url));

/**
 * Bundles a program of this folder, and says where: the suites start it a hundred times, and reading its packages would be
 * most of what it does.
 */
export function bundleProgram(name: string): string {
  const source = fileURLToPath(new URL(`${name}.ts`, import.meta.url));
  const args = ["build", "--target=bun", "--outdir", FOLDER, source];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${source} cannot be bundled:\n${stdout}${stderr}`);
  return `${FOLDER}/${name}.js`;
}
