/**
 * The third-party programs that toolmux is compared with: the source of each, and how it is started. bench/README.md
 * describes the programs.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Command } from "../peer.ts";
import type { Endpoint } from "./measure.ts";

/** A third-party program that runs between a client and its servers. */
export interface Program {
  readonly name: string;
  readonly version: string;
  readonly source: keyof typeof SOURCES;
  /** Whether it is compiled to machine code ahead of time, from Rust or Go. */
  readonly isCompiled?: boolean;
  /**
   * How the program is started for a client over stdio or over HTTP; absent if it does not support that transport.
   */
  readonly stdio?: (setup: Setup) => Start;
  readonly http?: (setup: Setup) => Start;
}

/** The settings with which a program is started. */
export interface Setup {
  /** The folder in which the program's packages are installed. */
  readonly installed: string;
  /** An empty folder for this program only; it is also the program's home folder. */
  readonly folder: string;
  /** A free TCP port. */
  readonly port: number;
  /** The only server behind the program. */
  readonly server: Command;
}

export interface Start {
  readonly file: string;
  readonly args: readonly string[];
  readonly endpoint: Endpoint;
  /** The exposed name of the server's tool. */
  readonly tool: string;
}

const HOST = "127.0.0.1";
const STDIO: Endpoint = { kind: "stdio" };
const GO_MODULE = "github.com/TBXark/mcp-proxy@v0.43.2";
const CRATE = "mcp-proxy@0.6.0";
const ONE_MCP = ["https://github.com/1mcp-app/agent", "v0.35.0"] as const;
const MCPPROXY_GO = ["https://github.com/smart-mcp-proxy/mcpproxy-go", "v0.60.0"] as const;

const PYTHON_PROBE = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))";

/** The sources of the programs. `pinned`: the pinned versions. `install`: installs them into an empty folder. */
const SOURCES = {
  npm: {
    pinned: read("npm/package-lock.json"),
    install(folder: string): void {
      for (const file of ["package.json", "package-lock.json"])
        copyFileSync(pathOf(`npm/${file}`), join(folder, file));
      copyFileSync(pathOf("../../.npmrc"), join(folder, ".npmrc"));
      run("npm", ["ci", "--ignore-scripts", "--loglevel=error"], folder);
    },
  },
  PyPI: pythonSource("requirements.txt"),
  "PyPI (mcp-proxy)": pythonSource("mcp-proxy.txt"),
  Go: {
    pinned: GO_MODULE,
    install: (folder: string) => run("go", ["install", GO_MODULE], folder, { GOBIN: folder }),
  },
  "crates.io": {
    pinned: CRATE,
    install: (folder: string) =>
      run("cargo", ["install", CRATE, "--locked", "--root", "."], folder),
  },
  "Git (1MCP)": {
    pinned: ONE_MCP.join(" "),
    install(folder: string): void {
      clone(ONE_MCP, folder);
      run("npm", ["install", "--ignore-scripts", "--loglevel=error"], folder);
      run("npx", ["tsc", "--project", "tsconfig.build.json"], folder);
      run("npx", ["tsc-alias", "-p", "tsconfig.build.json"], folder);
    },
  },
  "Git (mcpproxy-go)": {
    pinned: MCPPROXY_GO.join(" "),
    install(folder: string): void {
      clone(MCPPROXY_GO, folder);
      run("go", ["build", "-o", "mcpproxy", "./cmd/mcpproxy"], folder);
    },
  },
} as const;

export const PROGRAMS: readonly Program[] = [
  {
    name: "FastMCP",
    version: versionIn("requirements.txt", "fastmcp"),
    source: "PyPI",
    stdio: (setup) => fastmcp(setup, STDIO, ["--transport", "stdio"]),
    http: (setup) => {
      const listen = ["--transport", "http", ...listenAt(setup)];
      return fastmcp(setup, httpAt(setup, "/mcp"), listen);
    },
  },
  {
    name: "mcporter",
    version: npmVersion("mcporter"),
    source: "npm",
    stdio: (setup) => mcporter(setup, STDIO, ["--stdio"]),
    http: (setup) =>
      mcporter(setup, httpAt(setup, "/mcp"), ["--http", String(setup.port), "--host", HOST]),
  },
  {
    name: "1MCP",
    version: ONE_MCP[1].slice(1),
    source: "Git (1MCP)",
    stdio: (setup) => {
      writeServers(setup, {}, {}, "mcp.json");
      const options = [
        "--transport",
        "stdio",
        "--config-dir",
        setup.folder,
        "--log-level",
        "error",
      ];
      const args = [join(setup.installed, "build/index.js"), "serve", ...options];
      return { file: "node", args, endpoint: STDIO, tool: "echo_1mcp_echo" };
    },
  },
  {
    name: "mcp-proxy",
    version: npmVersion("mcp-proxy"),
    source: "npm",
    http: (setup) => {
      const { file, args } = setup.server;
      const all = [
        ...listenAt(setup),
        "--server",
        "stream",
        "--no-eventStore",
        "--",
        file,
        ...args,
      ];
      const endpoint = httpAt(setup, "/mcp");
      return { ...node(setup, "mcp-proxy/dist/bin/mcp-proxy.mjs", all), endpoint, tool: "echo" };
    },
  },
  {
    name: "sparfenyuk/mcp-proxy",
    version: versionIn("mcp-proxy.txt", "mcp-proxy"),
    source: "PyPI (mcp-proxy)",
    http: (setup) => {
      const config = ["--named-server-config", writeServers(setup)];
      const args = [...listenAt(setup), "--log-level", "ERROR", ...config];
      const endpoint = httpAt(setup, "/servers/echo/mcp");
      return { file: join(setup.installed, "bin/mcp-proxy"), args, endpoint, tool: "echo" };
    },
  },
  {
    name: "joshrotenberg/mcp-proxy",
    version: CRATE.split("@")[1] ?? "",
    source: "crates.io",
    isCompiled: true,
    http: (setup) => {
      const config = join(setup.folder, "proxy.toml");
      const { file, args } = setup.server;
      writeFileSync(
        config,
        `[proxy]\nname = "bench"\nversion = "1.0.0"\n[proxy.listen]\nhost = "${HOST}"\nport = ${setup.port}\n` +
          `[observability]\nlog_level = "error"\n[[backends]]\nname = "echo"\ntransport = "stdio"\n` +
          `command = ${JSON.stringify(file)}\nargs = ${JSON.stringify(args)}\n`,
      );
      const start = { file: join(setup.installed, "bin/mcp-proxy"), args: ["--config", config] };
      return { ...start, endpoint: httpAt(setup, "/"), tool: "echo/echo" };
    },
  },
  {
    name: "mcp-hub",
    version: npmVersion("mcp-hub"),
    source: "npm",
    http: (setup) => {
      const args = ["--port", String(setup.port), "--config", writeServers(setup)];
      const endpoint = { ...httpAt(setup, "/mcp"), kind: "sse" } as const;
      return { ...node(setup, "mcp-hub/dist/cli.js", args), endpoint, tool: "echo__echo" };
    },
  },
  {
    name: "TBXark/mcp-proxy",
    version: GO_MODULE.split("@v")[1] ?? "",
    source: "Go",
    isCompiled: true,
    http: (setup) => {
      const listen = { baseURL: urlOf(setup, ""), addr: `${HOST}:${setup.port}` };
      const mcpProxy = { ...listen, name: "bench", version: "1.0.0", type: "streamable-http" };
      const args = ["--config", writeServers(setup, {}, { mcpProxy })];
      const file = join(setup.installed, "mcp-proxy");
      return { file, args, endpoint: httpAt(setup, "/echo/mcp"), tool: "echo" };
    },
  },
  {
    name: "mcpproxy-go",
    version: MCPPROXY_GO[1].slice(1),
    source: "Git (mcpproxy-go)",
    isCompiled: true,
    http: (setup) => {
      const { file: command, args } = setup.server;
      const echo = { name: "echo", protocol: "stdio", command, args, enabled: true };
      const config = join(setup.folder, "mcp_config.json");
      const listen = { listen: `${HOST}:${setup.port}`, data_dir: setup.folder };
      writeFileSync(config, JSON.stringify({ ...listen, mcpServers: [echo] }));
      const all = ["serve", "--config", config, "--log-level", "error"];
      const endpoint = httpAt(setup, "/mcp/all");
      return { file: join(setup.installed, "mcpproxy"), args: all, endpoint, tool: "echo__echo" };
    },
  },
];

/** The outcome of installing one source: its folder, or the reason why it failed, in one line. */
export type Installation = { readonly folder: string } | { readonly why: string };

const INSTALLED = fileURLToPath(new URL("../../dist/peers", import.meta.url));
/** Time limit for one command of an installation, in ms: some compile hundreds of packages. */
const INSTALL_LIMIT = 15 * 60_000;

/**
 * Installs the programs of one source into dist/peers, unless they are there already. If this fails, only the
 * programs of that source are left out.
 */
export function install(name: Program["source"], report: (text: string) => void): Installation {
  const { pinned, ...source } = SOURCES[name];
  const folder = join(INSTALLED, name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-"));
  const stamp = createHash("sha256").update(`${folder}\n${pinned}`).digest("hex");
  const file = join(folder, ".stamp");
  if (existsSync(file) && readFileSync(file, "utf8") === stamp) return { folder };
  report(`installing from ${name} into dist/peers`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    source.install(folder);
    writeFileSync(file, stamp);
    return { folder };
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    return { why: error instanceof Error ? error.message : String(error) };
  }
}

function pythonSource(list: string) {
  return {
    pinned: read(list),
    install(folder: string): void {
      run("python3", ["-c", PYTHON_PROBE], folder);
      run("python3", ["-m", "venv", "."], folder);
      const args = ["--disable-pip-version-check", "--retries=1", "install", "--quiet", "-r"];
      run("bin/python", ["-m", "pip", ...args, pathOf(list)], folder);
    },
  };
}

function clone([url, tag]: readonly [string, string], folder: string): void {
  run("git", ["clone", "--quiet", "--depth", "1", "--branch", tag, url, "."], folder);
}

/** Runs a command of an installation. @throws {Error} with the command's own error message */
function run(command: string, args: readonly string[], cwd: string, env: object = {}): void {
  const file = command.includes("/") ? join(cwd, command) : command;
  const options = { cwd, env: { ...process.env, ...env }, timeout: INSTALL_LIMIT } as const;
  const { error, status, stdout, stderr } = spawnSync(file, args, { ...options, encoding: "utf8" });
  if (status === 0) return;
  const lines = `${stdout}${stderr}`.trim().split("\n");
  // npm explains an error in the first `npm error` line that is not only a code; other commands explain it in their
  // last line.
  const said = lines.find((line) => /^npm error (?!code|$)/.test(line)) ?? lines.at(-1);
  throw new Error(
    `${command} ${args[0] ?? ""} failed: ${error?.message ?? (said || `exit code ${status}`)}`,
  );
}

function fastmcp(setup: Setup, endpoint: Endpoint, more: readonly string[]): Start {
  const quiet = ["--no-banner", "--log-level", "ERROR"];
  const args = ["run", writeServers(setup), ...quiet, ...more];
  return { file: join(setup.installed, "bin/fastmcp"), args, endpoint, tool: "echo" };
}

function mcporter(setup: Setup, endpoint: Endpoint, more: readonly string[]): Start {
  const config = writeServers(setup, { lifecycle: "keep-alive" }, { imports: [] });
  const args = ["--config", config, "serve", ...more];
  return { ...node(setup, "mcporter/dist/cli.js", args), endpoint, tool: "echo__echo" };
}

/**
 * A program that runs on Node: on the Node that is installed with it or, if there is none for this machine, on the
 * Node of PATH.
 */
function node({ installed }: Setup, script: string, args: readonly string[]) {
  const packages = join(installed, "node_modules");
  const pinned = join(packages, `node-${process.platform}-${process.arch}`, "bin/node");
  return { file: existsSync(pinned) ? pinned : "node", args: [join(packages, script), ...args] };
}

/** Writes the configuration file that most of the programs read. @returns its path */
function writeServers(
  { folder, server }: Setup,
  more: object = {},
  beside: object = {},
  name = "servers.json",
): string {
  const path = join(folder, name);
  const echo = { command: server.file, args: server.args, ...more };
  writeFileSync(path, JSON.stringify({ ...beside, mcpServers: { echo } }));
  return path;
}

/** The options of most of the programs for the address on which they listen. */
function listenAt({ port }: Setup): readonly string[] {
  return ["--host", HOST, "--port", String(port)];
}

function httpAt(setup: Setup, path: string): { readonly kind: "http"; readonly url: string } {
  return { kind: "http", url: urlOf(setup, path) };
}

function urlOf({ port }: Setup, path: string): string {
  return `http://${HOST}:${port}${path}`;
}

function versionIn(file: string, name: string): string {
  return new RegExp(`^${name}==(.+)$`, "m").exec(read(file))?.[1] ?? "";
}

function npmVersion(name: string): string {
  const { dependencies } = JSON.parse(read("npm/package.json")) as {
    dependencies: Record<string, string>;
  };
  return dependencies[name] ?? "";
}

function pathOf(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

function read(file: string): string {
  return readFileSync(pathOf(file), "utf8");
}
