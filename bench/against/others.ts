import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Command } from "../peer.ts";
import { GO_MODULE, type Source } from "./install.ts";
import type { Face } from "./job.ts";

/** What somebody else's program is given to work with. */
export interface Place {
  /** Where its packages are installed. */
  readonly installed: string;
  /** Its own, empty, and its home. */
  readonly folder: string;
  /** Free on this machine, for what serves over HTTP. */
  readonly port: number;
  /** The one server behind it. */
  readonly server: Command;
}

/** How it is started, and how the one tool is called there. */
export interface Start {
  readonly file: string;
  readonly args: readonly string[];
  readonly face: Face;
  readonly tool: string;
}

/** A program of somebody else that stands between a client and its servers; bench/README.md describes each. */
export interface Other {
  readonly name: string;
  readonly version: string;
  readonly source: Source;
  readonly stdio?: (place: Place) => Start;
  readonly http?: (place: Place) => Start;
}

/** Whoever serves over HTTP listens on it. */
const HOST = "127.0.0.1";
const STDIO: Face = { kind: "stdio" };

export const OTHERS: readonly Other[] = [
  {
    name: "FastMCP",
    version: versionOf("PyPI"),
    source: "PyPI",
    stdio: (place) => fastmcp(place, STDIO, ["--transport", "stdio"]),
    http: (place) => {
      const listen = ["--transport", "http", "--host", HOST, "--port", String(place.port)];
      return fastmcp(place, streamable(place, "/mcp"), listen);
    },
  },
  {
    name: "mcporter",
    version: versionOf("mcporter"),
    source: "npm",
    stdio: (place) => mcporter(place, STDIO, ["--stdio"]),
    http: (place) =>
      mcporter(place, streamable(place, "/mcp"), ["--http", String(place.port), "--host", HOST]),
  },
  {
    name: "mcp-proxy",
    version: versionOf("mcp-proxy"),
    source: "npm",
    http: (place) => {
      const { file, args } = place.server;
      const listen = ["--host", HOST, "--port", String(place.port), "--server", "stream"];
      const rest = [...listen, "--no-eventStore", "--", file, ...args];
      const face = streamable(place, "/mcp");
      return { ...node(place, "mcp-proxy/dist/bin/mcp-proxy.mjs", rest), face, tool: "echo" };
    },
  },
  {
    name: "mcp-hub",
    version: versionOf("mcp-hub"),
    source: "npm",
    http: (place) => {
      const args = ["--port", String(place.port), "--config", writeServers(place)];
      const url = urlOf(place, "/mcp");
      const face = { kind: "sse", url } as const;
      return { ...node(place, "mcp-hub/dist/cli.js", args), face, tool: "echo__echo" };
    },
  },
  {
    name: "TBXark/mcp-proxy",
    version: versionOf("Go"),
    source: "Go",
    http: (place) => {
      const base = { baseURL: urlOf(place, ""), addr: `${HOST}:${place.port}` };
      const mcpProxy = { ...base, name: "bench", version: "1.0.0", type: "streamable-http" };
      const file = join(place.installed, "mcp-proxy");
      const args = ["--config", writeServers(place, {}, { mcpProxy })];
      return { file, args, face: streamable(place, "/echo/mcp"), tool: "echo" };
    },
  },
];

/** The version of a package that is pinned. */
function versionOf(name: string): string {
  if (name === "Go") return GO_MODULE.split("@v")[1] ?? "";
  if (name === "PyPI") return /^fastmcp==(.+)$/m.exec(read("requirements.txt"))?.[1] ?? "";
  const { dependencies } = JSON.parse(read("npm/package.json")) as {
    dependencies: Record<string, string>;
  };
  return dependencies[name] ?? "";
}

function fastmcp(place: Place, face: Face, more: readonly string[]): Start {
  const file = join(place.installed, "bin/fastmcp");
  const quiet = ["--no-banner", "--log-level", "ERROR"];
  return { file, args: ["run", writeServers(place), ...quiet, ...more], face, tool: "echo" };
}

function mcporter(place: Place, face: Face, more: readonly string[]): Start {
  const config = writeServers(place, { lifecycle: "keep-alive" }, { imports: [] });
  const args = ["--config", config, "serve", ...more];
  return { ...node(place, "mcporter/dist/cli.js", args), face, tool: "echo__echo" };
}

/** A program of Node, on the Node that is installed with it; on that of PATH where there is none for this machine. */
function node(
  { installed }: Place,
  script: string,
  args: readonly string[],
): Pick<Start, "file" | "args"> {
  const packages = join(installed, "node_modules");
  const pinned = join(packages, `node-${process.platform}-${process.arch}`, "bin/node");
  const file = existsSync(pinned) ? pinned : "node";
  return { file, args: [join(packages, script), ...args] };
}

/** Writes the file that all of them read, with what only one of them knows. @returns where it is. */
function writeServers({ folder, server }: Place, more: object = {}, beside: object = {}): string {
  const path = join(folder, "servers.json");
  const echo = { command: server.file, args: server.args, ...more };
  writeFileSync(path, JSON.stringify({ ...beside, mcpServers: { echo } }));
  return path;
}

function streamable(place: Place, path: string): Face {
  return { kind: "streamable", url: urlOf(place, path) };
}

function urlOf({ port }: Place, path: string): string {
  return `http://${HOST}:${port}${path}`;
}

function read(file: string): string {
  return readFileSync(new URL(file, import.meta.url), "utf8");
}
