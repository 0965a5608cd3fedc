import { listSecrets, secretsOf } from "../../manifest/interpolate.ts";
import { openSecrets } from "../../secrets/secrets.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { editManifestFile, manifestToEdit } from "../../operations/manifest-file.ts";
import { applyToHubs, ask, onlyHub, serverPath } from "../running-hub.ts";

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
  const { args, config, options } = invocation;
  const [name = ""] = args;
  if (options.live) {
    const hub = await onlyHub(invocation, context);
    await ask(hub, { method: "DELETE", path: serverPath(name) }, context);
    context.terminal.print(sanitizeLine(`in toolmux ${hub.pid}: ${name} is removed`));
    return 0;
  }
  const file = await manifestToEdit(options.file ?? config.at(-1), context);
  const edit = await editManifestFile(file, { kind: "remove", name }, context);
  context.terminal.print(sanitizeLine(`removed ${name} from ${file}`));
  for (const line of await applyToHubs(name, invocation, context)) {
    context.terminal.print(sanitizeLine(line));
  }
  const { server, others } = edit;
  if (server === undefined || !("syntax" in server)) return 0;
  const shared = new Set(others.flatMap(secretsOf));
  const unshared = listSecrets(server).filter((secret) => !shared.has(secret));
  // A secret store that cannot be opened is ignored.
  const stored =
    unshared.length === 0
      ? []
      : await openSecrets(context)
          .file.list()
          .catch(() => []);
  for (const secret of unshared.filter((one) => stored.includes(one))) {
    context.terminal.print(
      sanitizeLine(`its secret is still stored: toolmux secret remove ${secret}`),
    );
  }
  if (server.kind === "remote" && server.auth !== "none") {
    context.terminal.print(sanitizeLine(`its login may still be stored: toolmux auth status`));
  }
  return 0;
}
