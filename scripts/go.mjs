/**
 * Builds dist/go/client, the clients of test/go, which are made with the Go SDK. Does nothing if that is newer than its
 * sources. If it cannot be built, says so, and the test that needs it is skipped.
 */
import { execFile } from "node:child_process";
import { readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const SOURCES = fileURLToPath(new URL("../test/go", import.meta.url));
const PROGRAM = fileURLToPath(new URL("../dist/go/client", import.meta.url));
/** Time limit of the build, which downloads modules, in ms. */
const LIMIT = 180_000;

if (!isBuilt()) {
  const fault = await build();
  if (fault !== undefined)
    console.log(`go: the test of clients made with the Go SDK will be skipped: ${fault}`);
}

function isBuilt() {
  const built = statSync(PROGRAM, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return readdirSync(SOURCES).every((name) => statSync(join(SOURCES, name)).mtimeMs <= built);
}

/** @returns the reason for which it cannot be built */
function build() {
  console.log("go: building the clients of test/go");
  rmSync(PROGRAM, { force: true });
  const args = ["build", "-buildvcs=false", "-o", PROGRAM, "."];
  // The Go that is installed, or none: another one is not downloaded.
  const env = { ...process.env, GOTOOLCHAIN: "local", GOFLAGS: "" };
  return new Promise((resolve) => {
    const done = (error, _, stderr) =>
      resolve(error ? stderr.trim().split("\n").at(-1) || error.message : undefined);
    execFile("go", args, { cwd: SOURCES, env, encoding: "utf8", timeout: LIMIT }, done);
  });
}
