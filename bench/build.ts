import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { FLAGS } from "../scripts/target.ts";

/** The executables of all programs in the benchmark. */
export interface Programs {
  readonly echo: string;
  /** The language of the echo server. The server in JavaScript needs 20 times as much memory as the one in C. */
  readonly language: "C" | "JavaScript";
  readonly pump: string;
  readonly sdk: string;
  readonly sdkHttp: string;
  readonly hello: string;
  /**
   * The toolmux executable: the one that TOOLMUX_EXECUTABLE names, or else dist/toolmux; undefined if it has not been
   * built.
   */
  readonly toolmux: string | undefined;
  /** Whether dist/toolmux is older than the sources. */
  readonly stale: boolean;
}

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PEERS = fileURLToPath(new URL("peers/", import.meta.url));

/** Compiles the peers into a folder. @throws if one does not compile. */
export function buildPrograms(folder: string): Programs {
  mkdirSync(folder, { recursive: true });
  const named = process.env["TOOLMUX_EXECUTABLE"];
  const toolmux = named ?? join(ROOT, "dist/toolmux");
  const built = existsSync(toolmux);
  return {
    ...buildEcho(folder),
    pump: compile("pump", folder),
    sdk: compile("sdk", folder),
    sdkHttp: compile("sdk-http", folder),
    hello: compile("hello", folder),
    toolmux: built ? toolmux : undefined,
    stale: built && named === undefined && statSync(toolmux).mtimeMs < newest(join(ROOT, "src")),
  };
}

/**
 * Builds the echo server, from C if there is a compiler: the server must not be slower than the measured programs.
 */
function buildEcho(folder: string): Pick<Programs, "echo" | "language"> {
  const echo = join(folder, "echo");
  const { status } = spawnSync("cc", ["-O2", "-o", echo, join(PEERS, "echo.c")]);
  if (status === 0) return { echo, language: "C" };
  return { echo: compile("echo", folder), language: "JavaScript" };
}

function compile(name: string, folder: string): string {
  const file = join(folder, name);
  const source = join(PEERS, `${name}.ts`);
  const build: SpawnSyncReturns<string> = spawnSync(
    process.execPath,
    ["build", ...FLAGS, source, "--outfile", file],
    { encoding: "utf8", cwd: folder },
  );
  if (build.status !== 0) throw new Error(`${name} does not compile: ${build.stderr}`);
  return file;
}

function newest(folder: string): number {
  const files = readdirSync(folder, { encoding: "utf8", recursive: true });
  return Math.max(...files.map((file) => statSync(join(folder, file)).mtimeMs));
}
