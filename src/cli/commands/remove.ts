import { removeServer } from "../../operations/remove.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { applyToHubs, askFor, onlyHub } from "../running-hub.ts";

interface RemoveOptions {
  readonly file: string | undefined;
  readonly live: boolean;
  readonly hub: string | undefined;
}

/**
 * `toolmux remove`: removes a server from the manifest, and names its secrets and tokens that remain. With `--live` it
 * removes the server from a running hub instead.
 */
export async function remove(
  invocation: Invocation<RemoveOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [name = ""] = args;
  if (options.live) {
    const hub = await onlyHub(invocation, context);
    await askFor(hub, "DELETE /servers/:name", context, { params: { name } });
    context.terminal.printWrapped(sanitizeLine(`in toolmux ${hub.pid}: ${name} is removed`));
    return 0;
  }
  const { file, secrets, mayBeLoggedIn } = await removeServer(
    name,
    options.file,
    invocation,
    context,
  );
  context.terminal.printWrapped(sanitizeLine(`removed ${name} from ${file}`));
  for (const line of await applyToHubs(name, invocation, context)) {
    context.terminal.printWrapped(sanitizeLine(line));
  }
  for (const secret of secrets) {
    context.terminal.printWrapped(
      sanitizeLine(`its secret is still stored: toolmux secret remove ${secret}`),
    );
  }
  if (mayBeLoggedIn) {
    context.terminal.printWrapped(
      sanitizeLine(`its login may still be stored: toolmux auth status`),
    );
  }
  return 0;
}
