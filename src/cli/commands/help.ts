import { commandNamed } from "../args.ts";
import type { Command, CommandContext, Invocation } from "../command.ts";
import { formatHelp } from "../help.ts";

/** `toolmux help`: prints the help for one of the commands, or for all. @throws {HubError} usage */
export function help(
  { args: [name] }: Invocation,
  commands: readonly Command[],
  { terminal }: CommandContext,
): Promise<number> {
  const named = name === undefined ? undefined : commandNamed(name, commands);
  terminal.print(formatHelp(commands, named, terminal.stdout));
  return Promise.resolve(0);
}
