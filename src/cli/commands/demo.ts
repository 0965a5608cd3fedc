import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { Env } from "../../base/paths.ts";
import { ownCommand } from "../../base/runtime.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { formatClientEntry } from "../server-description.ts";
import { suggestName, usageError } from "../args.ts";
import { terminalStyleOf } from "../../terminal/terminal.ts";

/** The embedded servers, in the order of the demo's manifest. */
const SERVERS = ["clock", "text", "slow", "broken"] as const;
type Server = (typeof SERVERS)[number];

/** What the broken server prints to stderr before it exits. */
const BROKEN_SERVER_MESSAGE = "cannot read the price list: no such file";

/**
 * `toolmux demo`: runs a hub with embedded servers and checks it with a client. With a server's name as
 * argument, runs that server.
 */
export async function demo({ args }: Invocation, context: CommandContext): Promise<number> {
  const [word, ...rest] = args;
  if (word === undefined) return runDemo(context);
  if (word === "tap") return runBenchProxy(rest);
  if (rest.length > 0) throw usageError(`Command "demo" does not take "${rest[0]}".`);
  if (word === "echo") {
    await (await import("../../bench/echo-server.ts")).serveEcho();
    return 0;
  }
  const server = SERVERS.find((one) => one === word);
  if (server !== undefined) return runServer(server);
  throw usageError(`The demo has no server "${word}".${suggestName(word, SERVERS)}`);
}

async function runServer(server: Server): Promise<number> {
  if (server === "broken") {
    console.warn(BROKEN_SERVER_MESSAGE);
    return 1;
  }
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  serveStdio(await loadServer(server));
  await new Promise((resolve) => process.stdin.once("end", resolve).once("close", resolve));
  return 0;
}

/** Runs the stdio proxy that `toolmux bench` puts in front of a server: see `src/cli/transport-factory.ts`. */
async function runBenchProxy([
  folder = "",
  delay,
  command,
  ...args
]: readonly string[]): Promise<number> {
  if (command === undefined) throw usageError("A tap needs a folder, a delay and a command.");
  const { runStdioProxy } = await import("../../bench/stdio-proxy.ts");
  return runStdioProxy({ folder, delay: Number(delay), command, args });
}

async function loadServer(server: Exclude<Server, "broken">) {
  switch (server) {
    case "clock":
      return (await import("../../demo/servers.ts")).createClockServer;
    case "text":
      return (await import("../../demo/servers.ts")).createTextServer;
    case "slow":
      return (await import("../../demo/servers.ts")).createSlowServer;
  }
}

async function runDemo({ env, signal }: CommandContext): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-demo-"));
  try {
    const file = join(folder, "toolmux.toml");
    await writeFile(file, formatManifest());
    const { runDemoSteps } = await import("../../demo/steps.ts");
    const [command, ...firstArgs] = ownCommand();
    const program = {
      command,
      args: [...firstArgs, "serve", "--config", file],
      env: withoutManifest(env),
    };
    console.log(`One client, one hub, and behind it the servers ${SERVERS.join(", ")}.\n`);
    const isGood = await runDemoSteps(program, BROKEN_SERVER_MESSAGE, terminalStyleOf(env), signal);
    if (!isGood) return 1;
    console.log(
      "\nAll is as it should be. To use toolmux, put this into your MCP client's configuration:\n",
    );
    console.log(formatClientEntry(["/path/to/your/toolmux.toml"]));
    return 0;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The user's own manifest must not affect the demo. */
function withoutManifest(env: Env): Record<string, string> {
  const entries = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[0] !== "TOOLMUX_SERVERS" && entry[1] !== undefined,
  );
  return Object.fromEntries(entries);
}

function formatManifest(): string {
  const [command, ...firstArgs] = ownCommand();
  return SERVERS.map((server) => {
    // JSON strings and arrays of strings are valid TOML.
    const args = JSON.stringify([...firstArgs, "demo", server]);
    return `[servers.${server}]\ncommand = ${JSON.stringify(command)}\nargs = ${args}\n`;
  }).join("\n");
}
