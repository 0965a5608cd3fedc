/**
 * Makes the Python environment of some tests, dist/python, as test/python/requirements.txt says; quick when it is there.
 * Without Python, or without the packages, it says so and those tests are skipped: nothing else needs it.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const REQUIREMENTS = "test/python/requirements.txt";
const ENVIRONMENT = "dist/python";
const STAMP = `${ENVIRONMENT}/.toolmux-setup`;
const PROBE =
  "import ensurepip, sys, venv; print(sys.base_prefix, sys.version); sys.exit(sys.version_info < (3, 10))";

const INSTALL = "apt-get install python3 python3-venv";

/** What installing may take, in ms. */
const LIMIT = 5 * 60_000;

make();

function make() {
  const probe = run("python3", ["-c", PROBE]);
  if (probe.status !== 0) return skip("there is no python3 of 3.10 or later with venv", INSTALL);
  const stamp = createHash("sha256")
    .update(`${probe.stdout}\n${process.cwd()}\n`)
    .update(readFileSync(REQUIREMENTS))
    .digest("hex");
  if (read(STAMP) === stamp) return undefined;
  console.log(`python: making ${ENVIRONMENT}`);
  rmSync(ENVIRONMENT, { recursive: true, force: true });
  const venv = run("python3", ["-m", "venv", ENVIRONMENT]);
  if (venv.status !== 0) return skip(`python3 -m venv failed: ${lastLine(venv.stderr)}`, INSTALL);
  const args = ["--disable-pip-version-check", "--retries=1", "install", "--quiet"];
  const pip = run(`${ENVIRONMENT}/bin/python`, ["-m", "pip", ...args, "-r", REQUIREMENTS]);
  if (pip.status !== 0) {
    return skip(`pip install failed: ${lastLine(pip.stderr)}`, "pip has to reach a package index");
  }
  writeFileSync(STAMP, stamp);
  return undefined;
}

function run(command, args) {
  const stdio = ["ignore", "pipe", "pipe"];
  return spawnSync(command, args, { stdio, encoding: "utf8", timeout: LIMIT });
}

/** Says it in one line. */
function skip(why, cure) {
  rmSync(ENVIRONMENT, { recursive: true, force: true });
  console.log(`python: the tests with Python will be skipped: ${why} (${cure})`);
}

/** What a program said last. */
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
