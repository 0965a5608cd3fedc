/**
 * Creates the Python environments of some tests: dist/python and dist/python1, with the packages of
 * test/python/requirements.txt and test/python/requirements1.txt. Does nothing if they exist already. If Python or
 * the packages are missing, says so, and those tests are skipped: nothing else needs the environments.
 */
import { spawnSync } from "node:child_process";
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

const probe = run("python3", ["-c", PROBE]);
for (const [environment, requirements] of Object.entries(ENVIRONMENTS)) {
  make(environment, requirements);
}

function make(environment, requirements) {
  const skip = (why, cure) => {
    rmSync(environment, { recursive: true, force: true });
    console.log(`python: the tests with ${environment} will be skipped: ${why} (${cure})`);
  };
  if (probe.status !== 0) return skip("there is no python3 of 3.10 or later with venv", INSTALL);
  const stampFile = `${environment}/.toolmux-setup`;
  const stamp = createHash("sha256")
    .update(`${probe.stdout}\n${process.cwd()}\n`)
    .update(readFileSync(requirements))
    .digest("hex");
  if (read(stampFile) === stamp) return undefined;
  console.log(`python: making ${environment}`);
  rmSync(environment, { recursive: true, force: true });
  const venv = run("python3", ["-m", "venv", environment]);
  if (venv.status !== 0) return skip(`python3 -m venv failed: ${lastLine(venv.stderr)}`, INSTALL);
  const args = ["--disable-pip-version-check", "--retries=1", "install", "--quiet"];
  const pip = run(`${environment}/bin/python`, ["-m", "pip", ...args, "-r", requirements]);
  if (pip.status !== 0) {
    return skip(`pip install failed: ${lastLine(pip.stderr)}`, "pip has to reach a package index");
  }
  writeFileSync(stampFile, stamp);
  return undefined;
}

function run(command, args) {
  const stdio = ["ignore", "pipe", "pipe"];
  return spawnSync(command, args, { stdio, encoding: "utf8", timeout: LIMIT });
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
