import process from "node:process";
import { EXIT_LIMIT, executable, type TestFolder } from "./hub.ts";
import { RawClient } from "./raw-client.ts";
import { waitUntil } from "./wait.ts";

/** What a command of the executable has printed, and its exit code (null: ended by a signal). */
export interface CommandOutput {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  /** Variables besides those of the test folder. */
  readonly env?: Readonly<Record<string, string>>;
  /** Written to stdin, which is then closed. */
  readonly input?: string | Uint8Array;
  /** Time limit in ms. */
  readonly ms?: number;
}

/** Runs the executable with these arguments in the test folder, to its end. */
export function runCommand(
  { dir, env }: Pick<TestFolder, "dir" | "env">,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandOutput> {
  const command = start({ dir, env }, args, options.env);
  if (options.input !== undefined) command.write(options.input);
  command.end();
  return finishCommand(command, options.ms);
}

/** Runs the executable with these arguments on the folder's manifest, to its end. */
export function run(folder: RunFolder, ...args: readonly string[]): Promise<CommandOutput> {
  return runCommand(folder, [...args, "--config", folder.config]);
}

/** The document that such a command prints with `--json`, and its exit code. */
export async function runJson<Document extends object>(
  folder: RunFolder,
  ...args: readonly string[]
): Promise<Document & { readonly code: number | null }> {
  const { code, stdout } = await run(folder, ...args, "--json");
  return { ...(JSON.parse(stdout) as Document), code };
}

/** Starts the executable with these arguments in the test folder. */
export function start(
  { dir, env }: Pick<TestFolder, "dir" | "env">,
  args: readonly string[],
  more: Readonly<Record<string, string>> = {},
): RawClient {
  return new RawClient(executable(), args, dir, { ...env, ...more });
}

/** Starts the executable with these arguments on the folder's manifest: without any, a hub. */
export function startOn(folder: RunFolder, ...args: readonly string[]): RawClient {
  return start(folder, [...args, "--config", folder.config]);
}

/** Starts a hub with a client that has listed its tools; resolves when commands find it. */
export async function startHub(folder: RunFolder): Promise<RawClient> {
  const hub = startOn(folder);
  await hub.initializeAndList();
  await waitUntilFound(folder, hub.pid);
  return hub;
}

/** Waits until commands in the test folder find the hub with this process id. */
export async function waitUntilFound(
  { env }: Pick<TestFolder, "env">,
  hub: number | undefined,
): Promise<void> {
  // Most of the tests that run commands start no hub, and need not load this.
  const { findRunningHubs } = await import("../../src/control/running-hubs.ts");
  const environment = { env, platform: process.platform };
  await waitUntil(
    "the hub",
    async () => (await findRunningHubs(environment)).some(({ pid }) => pid === hub) || undefined,
  );
}

type RunFolder = Pick<TestFolder, "dir" | "env" | "config">;

/** Waits at most `ms` milliseconds until a command that was started has ended. */
export async function finishCommand(command: RawClient, ms = EXIT_LIMIT): Promise<CommandOutput> {
  const { code } = await command.waitForExit(ms);
  const stdout = [...command.lines.map(({ text }) => text), command.unterminatedOutput].join("\n");
  return { code, stdout, stderr: command.stderr };
}
