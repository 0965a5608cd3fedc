/**
 * Gets a NATS server for the tests of fleets: dist/nats/nats-server, built by Go, or from the package of Debian. Does
 * nothing if it exists already. If it cannot be had, says so, and those tests are skipped.
 */
import { execFile } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const PROGRAM = "dist/nats/nats-server";
const VERSIONS = ["v2.15.3", "v2.12.4", "v2.10.29"];
/** Time limits in ms: of a build, which downloads modules, and of all other commands. */
const LIMITS = { build: 180_000, other: 60_000 };

if (!existsSync(PROGRAM) && !((await fromPath()) || (await fromGo()) || (await fromDebian()))) {
  console.log(
    "nats: the tests of fleets will be skipped: there is no nats-server (install Go or nats-server)",
  );
}

/** Takes the program that is installed. */
async function fromPath() {
  const { error, stdout } = await run("sh", ["-c", "command -v nats-server"]);
  return !error && keep(stdout.trim());
}

async function fromGo() {
  const { error } = await run("go", ["version"]);
  if (error) return false;
  const folder = mkdtempSync(join(tmpdir(), "toolmux-nats-"));
  try {
    for (const version of VERSIONS) {
      console.log(`nats: building nats-server ${version}`);
      const env = { ...process.env, GOBIN: folder };
      const target = `github.com/nats-io/nats-server/v2@${version}`;
      const built = await run("go", ["install", target], { env, timeout: LIMITS.build });
      if (!built.error) return keep(join(folder, "nats-server"));
      console.log(`nats: ${lastLine(built.stderr)}`);
    }
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function fromDebian() {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-nats-"));
  try {
    const got = await run("apt-get", ["download", "-qq", "nats-server"], { cwd: folder });
    const [archive] = readdirSync(folder);
    if (got.error || archive === undefined) return false;
    const unpacked = await run("dpkg", ["-x", archive, "."], { cwd: folder });
    return (
      !unpacked.error &&
      keep(join(folder, "usr/sbin/nats-server"), join(folder, "usr/bin/nats-server"))
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Copies the first of these programs that is there. */
function keep(...programs) {
  const program = programs.find((one) => existsSync(one));
  if (program === undefined) return false;
  mkdirSync("dist/nats", { recursive: true });
  copyFileSync(program, PROGRAM);
  return true;
}

function run(command, args, options = {}) {
  return new Promise((resolve) => {
    execFile(command, args, { timeout: LIMITS.other, ...options }, (error, stdout, stderr) =>
      resolve({ error, stdout, stderr }),
    );
  });
}

function lastLine(text) {
  return text.trim().split("\n").at(-1) ?? "";
}
