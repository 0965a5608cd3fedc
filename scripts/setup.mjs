/**
 * Prepares a clone for building: installs the packages of package-lock.json, and makes sure that bun runs.
 * It needs only Node without packages, because it runs before anything else is installed. It is quick if nothing is
 * missing.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const STAMP = "node_modules/.toolmux-setup";
const HIDDEN_LOCK = "node_modules/.package-lock.json";

const lock = read("package-lock.json") ?? fail("package-lock.json is missing");
// The stamp includes the platform, so that node_modules from another platform are installed again.
const stamp = createHash("sha256")
  .update(`${process.platform} ${process.arch}\n${lock}`)
  .digest("hex");

if (read(STAMP) !== stamp) {
  installPackages();
  ensureBun();
  writeFileSync(STAMP, stamp);
}

function installPackages() {
  const installed = read(HIDDEN_LOCK);
  if (installed !== undefined && agrees(JSON.parse(installed).packages)) return;
  const why =
    installed === undefined ? "there is no node_modules yet" : "package-lock.json changed";
  console.log(`setup: npm ci (${why})`);
  // Development packages are needed whatever NODE_ENV says: bun is one.
  const { status } = spawnSync("npm", ["ci", "--include=dev", "--loglevel=error"], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (status !== 0) fail("npm ci failed");
}

/** Whether npm installed exactly the packages of the lock file. Packages for other platforms may be missing. */
function agrees(installed) {
  const wanted = JSON.parse(lock).packages;
  return (
    Object.keys(installed).every((path) => path in wanted) &&
    Object.entries(wanted).every(
      ([path, entry]) =>
        path === "" ||
        (installed[path] === undefined
          ? entry.optional
          : installed[path].integrity === entry.integrity),
    )
  );
}

/**
 * Makes sure that bun runs. If npm was told to skip install scripts, bun is only a placeholder until its install
 * script has run.
 */
function ensureBun() {
  if (bunRuns()) return;
  console.log("setup: completing bun (its install script did not run)");
  spawnSync(process.execPath, ["node_modules/bun/install.js"], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (!bunRuns()) fail("bun does not run: node_modules/.bin/bun --version");
}

function bunRuns() {
  return spawnSync("node_modules/.bin/bun", ["--version"], { stdio: "ignore" }).status === 0;
}

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

function fail(message) {
  console.error(`setup: ${message}`);
  process.exit(1);
}
