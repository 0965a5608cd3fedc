import { wrapText } from "../../terminal/terminal.ts";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Env } from "../../base/paths.ts";
import { ownCommand } from "../../base/runtime.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { pause, systemClock } from "../../base/clock.ts";
import { formatClientEntry } from "../server-description.ts";
import type { DemoProgram } from "../../demo/steps.ts";
import { RUN_FOLDER_VARIABLE } from "../../control/socket-files.ts";

/** The embedded servers, in the order of the demo's manifest. */
export const DEMO_SERVERS = ["clock", "text", "slow", "broken"] as const;

/** What the broken server prints to stderr before it exits. */
export const BROKEN_SERVER_MESSAGE = "cannot read the price list: no such file";

/** How long the hub may take to start, in ms; then the dashboard is shown without it. */
const START_LIMIT = 5000;

/** For the dashboard: one tool may be called only when a person has allowed it. */
const APPROVAL = `
[servers.text.tools]
approval = { reverse = "always" }
`;

/** `toolmux demo`: runs a hub with embedded servers and checks it with a client; or shows it in the dashboard. */
export async function demo(
  { options }: Invocation<{ readonly dashboard: boolean; readonly "no-browser": boolean }>,
  context: CommandContext,
): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-demo-"));
  try {
    const file = join(folder, "toolmux.toml");
    await writeFile(file, formatManifest() + (options.dashboard ? APPROVAL : ""));
    const [command, ...firstArgs] = ownCommand();
    const args = [...firstArgs, "serve", "--config", file];
    const env = withoutManifest(context.env);
    return options.dashboard
      ? await showDashboard({ command, args, env }, folder, options["no-browser"], context)
      : await runSteps({ command, args, env }, context);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function runSteps(
  program: DemoProgram,
  { env, signal, terminal }: CommandContext,
): Promise<number> {
  const { runDemoSteps } = await import("../../demo/steps.ts");
  const { width } = terminal.stdout;
  const print = (text: string): void => terminal.print(wrapText(text, width));
  const names = `${DEMO_SERVERS.slice(0, -1).join(", ")} and ${DEMO_SERVERS.at(-1)}`;
  print(`One MCP client uses one hub with four servers: ${names}.\n`);
  const isGood = await runDemoSteps(program, BROKEN_SERVER_MESSAGE, terminal, signal);
  if (!isGood) {
    print("\nSome steps failed. toolmux doctor looks for problems of this machine.");
    return 1;
  }
  print("\nAll steps succeeded. To see such a hub in your browser: toolmux demo --dashboard");
  print(
    "\nTo use toolmux with your own servers, run toolmux import and then toolmux install CLIENT. Or write this entry into the configuration of your MCP client:\n",
  );
  terminal.print(formatClientEntry(["/path/to/your/toolmux.toml"], env));
  return 0;
}

/** Runs a hub that is being used, and a dashboard that shows this hub alone, until a signal arrives. */
async function showDashboard(
  program: DemoProgram,
  folder: string,
  noBrowser: boolean,
  context: CommandContext,
): Promise<number> {
  const [{ keepCalling }, { dashboard }] = await Promise.all([
    import("../../demo/calls.ts"),
    import("./dashboard.ts"),
  ]);
  const place = { [RUN_FOLDER_VARIABLE]: folder };
  const options = { port: 0, "no-browser": noBrowser, json: false };
  const shown = { ...context, env: { ...context.env, ...place } };
  const stop = new AbortController();
  const signal = AbortSignal.any([context.signal, stop.signal]);
  const calls = keepCalling({ ...program, env: { ...program.env, ...place } }, signal);
  try {
    await untilHubRuns(shown, signal);
    const invocation = {
      args: [],
      config: [],
      logLevel: "info",
      logFormat: "text",
      options,
    } as const;
    return await Promise.race([dashboard(invocation, shown), calls.then(() => 1)]);
  } finally {
    stop.abort();
    await calls.catch(() => {});
  }
}

/** Waits until a hub has opened its socket, which it does soon after its first client has connected. */
async function untilHubRuns(context: CommandContext, signal: AbortSignal): Promise<void> {
  const { findRunningHubs } = await import("../../control/running-hubs.ts");
  const deadline = systemClock.now() + START_LIMIT;
  while (systemClock.now() < deadline && (await findRunningHubs(context)).length === 0) {
    await pause(systemClock, 50, signal);
  }
}

/**
 * The environment without the variable that may hold a manifest of the user, which would otherwise be part of the demo.
 */
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
