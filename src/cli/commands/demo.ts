import { wrapText } from "../../terminal/terminal.ts";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEMO_VARIABLE, type Env, RUN_FOLDER_VARIABLE } from "../../base/paths.ts";
import { ownCommand } from "../../base/runtime.ts";
import { pageOf } from "../../base/homepage.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { lookFor } from "../../base/clock.ts";
import { SERVERS_VARIABLE } from "../../manifest/manifest.ts";
import { formatClientEntry } from "../../operations/server-description.ts";
import type { DemoProgram } from "../../demo/steps.ts";

/** The embedded servers, in the order of the demo's manifest. */
export const DEMO_SERVERS = ["clock", "text", "slow", "broken"] as const;

/** The line that the broken server prints to stderr before it exits. */
export const BROKEN_SERVER_MESSAGE = "cannot read the price list: no such file";

/** Maximum wait for the start of the hub, in ms. After that, the dashboard is shown without the hub. */
const START_LIMIT = 5000;

/** The table that `--dashboard` adds to the manifest: one tool needs an approval for every call. */
const APPROVAL = `
[servers.text.tools]
approval = { reverse = "always" }
`;

interface DemoOptions {
  readonly dashboard: boolean;
  readonly "no-browser": boolean;
}

/**
 * `toolmux demo`: runs a hub with embedded servers and calls it with a client. With `--dashboard`, shows the hub in
 * the dashboard; `demo agents` runs an agent.
 */
export async function demo(
  invocation: Invocation<DemoOptions>,
  context: CommandContext,
): Promise<number> {
  const [topic] = invocation.args;
  if (topic === "agents") return demoAgents(invocation, context);
  if (topic !== undefined) throw usageError(`There is no demo of "${topic}", only of agents.`);
  const { options } = invocation;
  const folder = await mkdtemp(join(tmpdir(), "toolmux-demo-"));
  try {
    const file = join(folder, "toolmux.toml");
    await writeFile(file, formatManifest() + (options.dashboard ? APPROVAL : ""));
    const [command, ...firstArgs] = ownCommand();
    const args = [...firstArgs, "serve", "--config", file];
    // The demo has its own folders, so that nothing that is stored or allowed in it stays.
    const env = {
      ...withoutManifest(context.env),
      [DEMO_VARIABLE]: "1",
      XDG_CONFIG_HOME: join(folder, "config"),
      XDG_STATE_HOME: join(folder, "state"),
      XDG_DATA_HOME: join(folder, "data"),
      TOOLMUX_KEYCHAIN: "off",
    };
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
  print(
    "\nThe times are of whole steps, with the start of programs and the work of the servers. The hub's own part of a call is microseconds; to measure it: toolmux bench",
  );
  print("\nAll steps succeeded. To see such a hub in your browser: toolmux demo --dashboard");
  print(
    "\nTo use toolmux with your own servers, run toolmux import, then toolmux install CLIENT. Or write this entry into the configuration of your MCP client:\n",
  );
  terminal.print(formatClientEntry(["/path/to/your/toolmux.toml"], env));
  return 0;
}

/** Runs a hub that gets calls all the time, and a dashboard that shows only this hub, until a signal arrives. */
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
  const shown = { ...context, env: { ...context.env, ...place, [DEMO_VARIABLE]: "1" } };
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

/**
 * Waits until a hub runs and has opened its control socket. A hub opens it soon after its first client has connected.
 */
async function untilHubRuns(context: CommandContext, signal: AbortSignal): Promise<void> {
  const { findRunningHubs } = await import("../../control/running-hubs.ts");
  const find = async (): Promise<object | undefined> => (await findRunningHubs(context))[0];
  await lookFor(find, { limit: START_LIMIT, interval: 50, signal });
}

/**
 * The environment without TOOLMUX_SERVERS, because a manifest of the user in that variable would be part of the demo.
 */
function withoutManifest(env: Env): Record<string, string> {
  const entries = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[0] !== SERVERS_VARIABLE && entry[1] !== undefined,
  );
  return Object.fromEntries(entries);
}

/**
 * Shows a run of an agent: tool calls, an approval, and a transfer to another agent. The agents' model is not a real
 * one: it reads its answers from a file.
 */
async function demoAgents(invocation: Invocation, context: CommandContext): Promise<number> {
  const { terminal, env } = context;
  const folder = await mkdtemp(join(tmpdir(), "toolmux-demo-"));
  try {
    const { AGENT_MANIFEST, AGENT_MESSAGE, AGENT_TURNS } = await import("../../demo/agents.ts");
    const file = join(folder, "toolmux.toml");
    await writeFile(file, `${formatManifest(["clock", "text", "slow"])}\n${AGENT_MANIFEST}`);
    await writeFile(join(folder, "turns.toml"), AGENT_TURNS);
    const { runMessage } = await import("./run.ts");
    const { width } = terminal.stdout;
    const print = (text: string): void => terminal.print(wrapText(text, width));
    print(
      'An agent with the tools of three servers gets a task. Its "model" reads its answers from a file, so this needs no key and no network. The clock and the text server only read, so their tools are called at once; to count, the agent has to be allowed.\n',
    );
    terminal.printWrapped(`> ${AGENT_MESSAGE}\n`);
    const options = {
      fresh: true,
      hub: undefined,
      model: undefined,
      mode: undefined,
      approval: undefined,
      quiet: false,
      json: false,
    };
    const code = await runMessage(
      "planner",
      AGENT_MESSAGE,
      { ...invocation, config: [file], options },
      { ...context, env: withoutManifest(env) },
      "y",
    );
    if (code === 0) {
      print(
        `\nFor an agent of your own: toolmux secret set anthropic, describe a model and an agent in the manifest, then toolmux chat. ${pageOf("docs/agents.md")} shows how, also with a model on this computer.`,
      );
    }
    return code;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function formatManifest(servers: readonly string[] = DEMO_SERVERS): string {
  const [command, ...firstArgs] = ownCommand();
  return servers
    .map((server) => {
      // JSON strings and arrays of strings are valid TOML.
      const args = JSON.stringify([...firstArgs, "internal", "demo-server", server]);
      return `[servers.${server}]\ncommand = ${JSON.stringify(command)}\nargs = ${args}\n`;
    })
    .join("\n");
}
