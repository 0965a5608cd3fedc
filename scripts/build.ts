/** Compiles the executable, dist/toolmux; run by bun. It always compiles: half a second buys certainty. */
import { spawnSync } from "node:child_process";
import { mkdirSync, statSync } from "node:fs";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { fileURLToPath } from "node:url";

const OUTPUT = "dist/toolmux";

const FLAGS = [
  "--compile",
  "--minify",
  // Bytecode halves the start-up time; with top-level await it needs ESM.
  "--bytecode",
  "--format=esm",
  "--sourcemap",
  // Nothing in the folder that a user happens to stand in is trusted.
  "--no-compile-autoload-dotenv",
  "--no-compile-autoload-bunfig",
  // Plugins resolve packages from their own node_modules.
  "--compile-autoload-package-json",
];

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
mkdirSync("dist", { recursive: true });

const started = performance.now();
const build = spawnSync(process.execPath, ["build", ...FLAGS, "src/main.ts", "--outfile", OUTPUT], {
  encoding: "utf8",
  stdio: ["ignore", "pipe", "pipe"],
});
if (build.status === 0) {
  const megabytes = (statSync(OUTPUT).size / 1e6).toFixed(1);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${OUTPUT}  ${megabytes} MB  ${seconds} s`);
} else {
  console.error(build.error?.message ?? `${build.stdout}${build.stderr}`);
  process.exitCode = 1;
}
