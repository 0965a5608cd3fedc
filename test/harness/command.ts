import { EXIT_LIMIT, executable, type TestFolder } from "./hub.ts";
import { RawClient } from "./raw-client.ts";

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
  const command = new RawClient(executable(), args, dir, { ...env, ...options.env });
  if (options.input !== undefined) command.write(options.input);
  command.end();
  return finishCommand(command, options.ms);
}

/** Waits at most `ms` milliseconds until a command that was started has ended. */
export async function finishCommand(command: RawClient, ms = EXIT_LIMIT): Promise<CommandOutput> {
  const { code } = await command.waitForExit(ms);
  const stdout = [...command.lines.map(({ text }) => text), command.unterminatedOutput].join("\n");
  return { code, stdout, stderr: command.stderr };
}
