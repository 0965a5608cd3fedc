/**
 * Creates the Python environments of some tests: dist/python and dist/python1, with the packages of
 * test/python/requirements.txt and test/python/requirements1.txt. Does nothing if they exist already. If Python or
 * the packages are missing, says so, and those tests are skipped: nothing else needs the environments.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

/** The requirements file of each environment, by the environment's folder. */
const ENVIRONMENTS = {
  "dist/python": "test/python/requirements.txt",
  "dist/python1": "test/python/requirements1.txt",
};
const PROBE =
  "import ensurepip, sys, venv; print(sys.base_prefix, sys.version); sys.exit(sys.version_info < (3, 10))";

const INSTALL = "apt-get install python3 python3-venv";

/** Time limit of an installation, in ms. */
const LIMIT = 5 * 60_000;

const probe = await run("python3", ["-c", PROBE]);
await Promise.all(
  Object.entries(ENVIRONMENTS).map(([environment, requirements]) =>
    make(environment, requirements),
  ),
);

async function make(environment, requirements) {
  const skip = (why, cure) => {
    rmSync(environment, { recursive: true, force: true });
    console.log(`python: the tests with ${environment} will be skipped: ${why} (${cure})`);
  };
  if (probe.error) return skip("there is no python3 of 3.10 or later with venv", INSTALL);
  const stampFile = `${environment}/.toolmux-setup`;
  const stamp = createHash("sha256")
    .update(`${probe.stdout}\n${process.cwd()}\n`)
    .update(readFileSync(requirements))
    .digest("hex");
  if (read(stampFile) === stamp) return undefined;
  console.log(`python: making ${environment}`);
  rmSync(environment, { recursive: true, force: true });
  const venv = await run("python3", ["-m", "venv", environment]);
  if (venv.error) return skip(`python3 -m venv failed: ${lastLine(venv.stderr)}`, INSTALL);
  // The requirements name all packages, of which the tests import a few: only those need to be compiled, when they are.
  const args = ["--disable-pip-version-check", "--retries=1", "install", "--quiet"];
  const options = ["--no-deps", "--no-compile", "-r", requirements];
  const pip = await run(`${environment}/bin/python`, ["-m", "pip", ...args, ...options]);
  if (pip.error) {
    return skip(`pip install failed: ${lastLine(pip.stderr)}`, "pip has to reach a package index");
  }
  writeFileSync(stampFile, stamp);
  return undefined;
}

/** Runs a program. `error` is set if it could not be started, has failed, or took too long. */
function run(command, args) {
  return new Promise((resolve) => {
    const done = (error, stdout, stderr) => resolve({ error, stdout, stderr });
    execFile(command, args, { encoding: "utf8", timeout: LIMIT }, done).stdin?.end();
  });
}

/** The last line of a program's output. */
function lastLine(text) {
  return text.trim().split("\n").at(-1)?.trim() ?? "";
}

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
