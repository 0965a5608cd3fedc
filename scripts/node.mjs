/**
 * Installs the oldest Node that runs the tests (test/node/package.json) into dist/node-runtime, from the npm
 * registry. Does nothing if it is installed already. If the installation fails, the tests use the Node of PATH if it
 * is new enough; otherwise they are skipped.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const FOLDER = "dist/node-runtime";
const STAMP = `${FOLDER}/.toolmux-setup`;

/** Time limit of the installation, in ms. */
const LIMIT = 2 * 60_000;

const stamp = `${process.platform} ${process.arch}\n${readFileSync("test/node/package-lock.json", "utf8")}`;

if (read(STAMP) !== stamp) {
  console.log(`node: installing the Node of the tests into ${FOLDER}`);
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  for (const file of ["package.json", "package-lock.json"])
    copyFileSync(`test/node/${file}`, `${FOLDER}/${file}`);
  const { status } = spawnSync("npm", ["ci", "--loglevel=error", "--ignore-scripts"], {
    cwd: FOLDER,
    stdio: ["ignore", "inherit", "inherit"],
    timeout: LIMIT,
  });
  if (status === 0) writeFileSync(STAMP, stamp);
  else console.log("node: it could not be installed (npm ci has to reach a package registry)");
}

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
