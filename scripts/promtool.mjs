/**
 * Fetches dist/promtool/promtool, with which a test checks the metrics, from the package `prometheus` of Debian. Does
 * nothing if it is there already. If it cannot be had, says so, and that test is skipped: nothing else needs it.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../dist/promtool", import.meta.url));
const PROGRAM = join(FOLDER, "promtool");
const UNPACKED = join(FOLDER, "unpacked");
/** Time limit of each step, in ms. */
const LIMIT = 120_000;

if (!existsSync(PROGRAM)) {
  const fault = await fetchPromtool();
  if (fault !== undefined) {
    rmSync(FOLDER, { recursive: true, force: true });
    console.log(
      `promtool: the test of metrics with it will be skipped: ${fault} (it comes from Debian's package prometheus, by apt-get and dpkg-deb)`,
    );
  }
}

/** @returns the reason for which it cannot be had */
async function fetchPromtool() {
  console.log("promtool: fetching it");
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(UNPACKED, { recursive: true });
  const download = await run("apt-get", ["download", "--quiet", "prometheus"]);
  if (download !== undefined) return download;
  const archive = readdirSync(FOLDER).find((name) => name.endsWith(".deb"));
  if (archive === undefined) return "apt-get has written no package";
  const unpack = await run("dpkg-deb", ["--extract", archive, UNPACKED]);
  if (unpack !== undefined) return unpack;
  const unpacked = join(UNPACKED, "usr/bin/promtool");
  if (!existsSync(unpacked)) return "the package has no promtool";
  renameSync(unpacked, PROGRAM);
  rmSync(UNPACKED, { recursive: true });
  rmSync(join(FOLDER, archive));
  return undefined;
}

/** Runs a program in the folder. @returns why it failed */
function run(command, args) {
  return new Promise((resolve) => {
    const done = (error, _, stderr) =>
      resolve(error && `${command} failed: ${stderr.trim().split("\n").at(-1) || error.message}`);
    execFile(command, args, { cwd: FOLDER, encoding: "utf8", timeout: LIMIT }, done).stdin?.end();
  }).then((fault) => fault ?? undefined);
}
