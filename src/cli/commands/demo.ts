import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Env } from "../../base/paths.ts";
import { ownCommand } from "../../base/runtime.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { formatClientEntry } from "../server-description.ts";

/** The embedded servers, in the order of the demo's manifest. */
export const DEMO_SERVERS = ["clock", "text", "slow", "broken"] as const;

/** What the broken server prints to stderr before it exits. */
export const BROKEN_SERVER_MESSAGE = "cannot read the price list: no such file";

/** `toolmux demo`: runs a hub with embedded servers and checks it with a client. */
export async function demo(
  _: Invocation,
  { env, signal, terminal }: CommandContext,
): Promise<number> {
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
    terminal.print(`One client, one hub, and behind it the servers ${DEMO_SERVERS.join(", ")}.\n`);
    const isGood = await runDemoSteps(program, BROKEN_SERVER_MESSAGE, terminal.stdout, signal);
    if (!isGood) return 1;
    terminal.print(
      "\nAll is as it should be. To use toolmux, put this into your MCP client's configuration:\n",
    );
    terminal.print(formatClientEntry(["/path/to/your/toolmux.toml"]));
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
  return DEMO_SERVERS.map((server) => {
    // JSON strings and arrays of strings are valid TOML.
    const args = JSON.stringify([...firstArgs, "internal", "demo-server", server]);
    return `[servers.${server}]\ncommand = ${JSON.stringify(command)}\nargs = ${args}\n`;
  }).join("\n");
}
