import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

/** Where packages come from. */
export type Source = "npm" | "PyPI" | "Go";

/** A folder with what came from one source, or why there is none, in one line. */
export type Installation =
  | { readonly isThere: true; readonly folder: string }
  | { readonly isThere: false; readonly why: string };
export type Installations = Readonly<Record<Source, Installation>>;

/** The one of Go that is built: a module and its version. */
export const GO_MODULE = "github.com/TBXark/mcp-proxy@v0.43.2";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Beside all else that is made: no check reads it, and a build leaves it alone. */
const INSTALLED = join(ROOT, "dist/peers");
const STAMP = ".stamp";
/** What installing from one source may take, in ms. */
const LIMIT = 5 * 60_000;
const PYTHON_PROBE = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))";

/** Packages of one source: their pinned list, and how they come into an empty folder. */
interface Recipe {
  readonly list: string;
  readonly install: (folder: string) => void;
}

const RECIPES: Readonly<Record<Source, Recipe>> = {
  npm: {
    list: read("npm/package-lock.json"),
    install(folder) {
      for (const file of ["package.json", "package-lock.json"]) {
        copyFileSync(pathOf(`npm/${file}`), join(folder, file));
      }
      copyFileSync(join(ROOT, ".npmrc"), join(folder, ".npmrc"));
      run("npm", ["ci", "--ignore-scripts", "--loglevel=error"], folder);
    },
  },
  PyPI: {
    list: read("requirements.txt"),
    install(folder) {
      run("python3", ["-c", PYTHON_PROBE], folder);
      run("python3", ["-m", "venv", "."], folder);
      const args = ["--disable-pip-version-check", "--retries=1", "install", "--quiet", "-r"];
      run("bin/python", ["-m", "pip", ...args, pathOf("requirements.txt")], folder);
    },
  },
  Go: {
    list: GO_MODULE,
    install: (folder) => run("go", ["install", GO_MODULE], folder, { GOBIN: folder }),
  },
};

/** Installs what is not there yet; a source that fails costs only its own packages. */
export function installPeers(report: (text: string) => void): Installations {
  const from = (source: Source): Installation => install(source, report);
  return { npm: from("npm"), PyPI: from("PyPI"), Go: from("Go") };
}

function install(source: Source, report: (text: string) => void): Installation {
  const folder = join(INSTALLED, source.toLowerCase());
  const recipe = RECIPES[source];
  const stamp = createHash("sha256").update(`${folder}\n${recipe.list}`).digest("hex");
  const file = join(folder, STAMP);
  if (existsSync(file) && readFileSync(file, "utf8") === stamp) return { isThere: true, folder };
  report(`installing from ${source} into dist/peers`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    recipe.install(folder);
    writeFileSync(file, stamp);
    return { isThere: true, folder };
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    const why = error instanceof Error ? error.message : String(error);
    return { isThere: false, why };
  }
}

/** @throws with what the command complained of first, or else said last, if it fails. */
function run(command: string, args: readonly string[], cwd: string, env: object = {}): void {
  const { error, status, stdout, stderr } = spawnSync(
    command.includes("/") ? join(cwd, command) : command,
    args,
    { cwd, env: { ...process.env, ...env }, encoding: "utf8", timeout: LIMIT },
  );
  if (status === 0) return;
  const lines = `${stdout}${stderr}`.trim().split("\n");
  // The first line of npm's that is more than a code says what is wrong, the last one of others does.
  const said = lines.find((line) => /^npm error (?!code|$)/.test(line)) ?? lines.at(-1);
  const why = error?.message ?? (said || `exit code ${status}`);
  throw new Error(`${command} ${args[0] ?? ""} failed: ${why}`);
}

function pathOf(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

function read(file: string): string {
  return readFileSync(pathOf(file), "utf8");
}
