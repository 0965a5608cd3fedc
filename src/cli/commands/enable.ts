import { enableServer } from "../../operations/enable.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, CommandRun, Invocation } from "../command.ts";
import { applyToHubs } from "../running-hub.ts";

interface EnableOptions {
  readonly file: string | undefined;
}

/** `toolmux enable|disable SERVER …`: changes the manifest, and makes the hubs that serve it read it again. */
export function switchServers(enabled: boolean): CommandRun<EnableOptions> {
  return async (invocation: Invocation<EnableOptions>, context: CommandContext) => {
    const { args, options } = invocation;
    const { terminal } = context;
    const word = enabled ? "enabled" : "disabled";
    for (const name of new Set(args)) {
      const { file, isChanged } = await enableServer(
        name,
        enabled,
        options.file,
        invocation,
        context,
      );
      const text = isChanged
        ? `${word} ${name} in ${file}`
        : `${name} is ${word} in ${file} already`;
      terminal.printWrapped(sanitizeLine(text));
      for (const line of isChanged ? await applyToHubs(name, invocation, context) : [])
        terminal.printWrapped(sanitizeLine(line));
    }
    return 0;
  };
}
