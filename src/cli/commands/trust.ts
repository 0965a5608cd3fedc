import { dirname } from "node:path";
import { maskSecretParts } from "../../manifest/plaintext-secrets.ts";
import { describePlugin, describeServer } from "../../operations/server-description.ts";
import { trustFileOrAgent } from "../../operations/trust.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";

/**
 * `toolmux trust`: trusts a file with its current content, or an agent of a registry, and prints the commands and
 * plugins that this allows. A file with problems is not trusted.
 */
export async function trustFile(
  invocation: Invocation<{ readonly force: boolean }>,
  context: CommandContext,
): Promise<number> {
  const [word = ""] = invocation.args;
  const trusted = await trustFileOrAgent(word, invocation, context, invocation.options.force);
  if (trusted.kind === "agent") {
    const { printTrustedAgent } = await import("./agent-files.ts");
    printTrustedAgent(trusted.agent, context.terminal);
    return 0;
  }
  const { file, manifest, commands, models } = trusted;
  context.terminal.printWrapped(`trusted: ${sanitizeLine(file)}`);
  context.terminal.printWrapped(
    `Until its content changes, toolmux starts these servers in ${sanitizeLine(dirname(file))}:`,
  );
  for (const spec of manifest.servers) {
    if (spec.kind === "invalid") continue;
    const what = spec.kind === "unsupported" ? `nothing: ${spec.reason}` : describeServer(spec);
    context.terminal.print(
      `  ${sanitizeLine(spec.name)}: ${sanitizeLine(what)}${spec.enabled ? "" : " (disabled)"}`,
    );
  }
  if (commands.length > 0)
    context.terminal.printWrapped("and runs these commands, to use what they print as values:");
  for (const command of commands) context.terminal.print(`  ${sanitizeLine(command)}`);
  if (models.length > 0)
    context.terminal.printWrapped("and sends the conversations of agents to these models:");
  for (const { name, provider, url } of models) {
    const place = url === undefined ? provider : `${provider}, at ${maskSecretParts(url)}`;
    context.terminal.printWrapped(`  ${sanitizeLine(name)}: ${sanitizeLine(place)}`);
  }
  const { plugins } = manifest;
  if (plugins.length > 0)
    context.terminal.printWrapped("and loads these plugins, also if their files change:");
  for (const plugin of plugins) context.terminal.print(`  ${sanitizeLine(describePlugin(plugin))}`);
  return 0;
}
