/**
 * Builds into dist; run by bun. Without arguments, builds the executable for this machine. `--target=NAME`, which may
 * be repeated, builds executables for other platforms, the bundle for Node (`node`), or all of these (`all`).
 * `--version=TEXT` gives them another version than that of package.json. dist changes only after everything has been
 * built. Everything is always compiled again, because that takes only half a second.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { writePage } from "./page.ts";
import { EXECUTABLES, HOST, NODE, type Target, TARGETS, versionFlags } from "./target.ts";

/** What is built; `flags`: further arguments of `bun build`. */
interface Plan {
  readonly targets: readonly Target[];
  readonly flags: readonly string[];
}

/** Reads the command line. @throws {Error} if an argument is invalid */
function readPlan(): Plan {
  const { values } = parseArgs({
    options: { target: { type: "string", multiple: true }, version: { type: "string" } },
  });
  const flags = values.version === undefined ? [] : versionFlags(values.version);
  return { targets: targetsOf(values.target), flags };
}

function targetsOf(names: readonly string[] | undefined): readonly Target[] {
  if (names === undefined) return [HOST];
  const wanted = new Set(names);
  const known = new Set(["all", ...TARGETS.map(({ name }) => name)]);
  const unknown = [...wanted].filter((name) => !known.has(name));
  if (unknown.length > 0)
    throw new Error(`no target "${unknown.join('", "')}"; there are ${[...known].join(", ")}`);
  return wanted.has("all") ? TARGETS : TARGETS.filter(({ name }) => wanted.has(name));
}

/** Builds targets into dist. @throws {Error} if one of them cannot be built; dist then keeps the earlier builds */
async function build({ targets, flags }: Plan): Promise<void> {
  mkdirSync("dist", { recursive: true });
  await writePage();
  const staged = mkdtempSync("dist/staged-");
  try {
    for (const target of targets) make(target, flags, staged);
    for (const { output, remark = "" } of targets) {
      rmSync(`dist/${output}`, { recursive: true, force: true });
      renameSync(`${staged}/${output}`, `dist/${output}`);
      const megabytes = (sizeOf(`dist/${output}`) / 1e6).toFixed(1);
      console.log(`dist/${output}  ${megabytes} MB  ${remark}`.trimEnd());
    }
    writeSums();
  } finally {
    rmSync(staged, { recursive: true, force: true });
  }
}

function make(target: Target, flags: readonly string[], folder: string): void {
  const { status, error, stdout, stderr } = spawnSync(
    process.execPath,
    ["build", ...target.args(folder), ...flags],
    { encoding: "utf8" },
  );
  if (status !== 0) {
    const hint =
      target === HOST || target === NODE
        ? ""
        : "\nThe first build for another platform downloads bun's executable for it.";
    const why = error?.message ?? `${stdout}${stderr}`.trim();
    throw new Error(`${target.name} cannot be built; dist stays as it was.\n${why}${hint}`);
  }
  if (target === NODE) makeRunnable(`${folder}/node/toolmux.js`);
}

function makeRunnable(script: string): void {
  writeFileSync(script, `#!/usr/bin/env node\n${readFileSync(script, "utf8")}`);
  chmodSync(script, 0o755);
}

/** The size of a file, or of all files in a folder, in bytes. */
function sizeOf(path: string): number {
  const stat = statSync(path);
  if (stat.isFile()) return stat.size;
  return readdirSync(path).reduce((sum, name) => sum + sizeOf(`${path}/${name}`), 0);
}

/** Writes the checksums of all built executables, in the format that `sha256sum -c` reads. */
function writeSums(): void {
  const lines = EXECUTABLES.filter(({ output }) => existsSync(`dist/${output}`)).map(
    ({ output }) => {
      const bytes = readFileSync(`dist/${output}`);
      return `${createHash("sha256").update(bytes).digest("hex")}  ${output}\n`;
    },
  );
  writeFileSync("dist/SHA256SUMS", lines.join(""));
}

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
try {
  await build(readPlan());
} catch (error) {
  console.error(`build: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
