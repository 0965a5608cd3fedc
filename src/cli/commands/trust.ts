import { dirname, resolve } from "node:path";
import { HubError } from "../../base/errors.ts";
import { expandHome, stateFolder } from "../../base/paths.ts";
import { loadManifest } from "../../manifest/load.ts";
import { manifestError } from "../../manifest/problems.ts";
import type { Manifest, ServerSpec } from "../../manifest/manifest.ts";
import { maskSecretParts } from "../../manifest/plaintext-secrets.ts";
import { parseTemplate, type TemplatePart, templatePartsOf } from "../../manifest/interpolate.ts";
import { trust } from "../../manifest/trust.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { describePlugin, describeServer } from "../../operations/server-description.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { withManifestLock } from "../../operations/manifest-file.ts";

/**
 * `toolmux trust`: trusts a file with its current content, or an agent of a registry, and prints the commands and
 * plugins that this allows. A file with problems is not trusted.
 */
export async function trustFile(invocation: Invocation, context: CommandContext): Promise<number> {
  const [word = ""] = invocation.args;
  const { trustAgent } = await import("../agent-library.ts");
  const agent = await trustAgent(word, invocation, context);
  if (agent !== undefined) {
    const { printTrustedAgent } = await import("./agent-files.ts");
    printTrustedAgent(agent, context.terminal);
    return 0;
  }
  const { real, manifest } = await trustFileContent(
    resolve(context.cwd, expandHome(word, context.env)),
    context,
  );
  context.terminal.print(`trusted: ${sanitizeLine(real)}`);
  context.terminal.print(
    `Until its content changes, toolmux starts these servers in ${sanitizeLine(dirname(real))}:`,
  );
  for (const spec of manifest.servers) {
    if (spec.kind === "invalid") continue;
    const what = spec.kind === "unsupported" ? `nothing: ${spec.reason}` : describeServer(spec);
    context.terminal.print(
      `  ${sanitizeLine(spec.name)}: ${sanitizeLine(what)}${spec.enabled ? "" : " (disabled)"}`,
    );
  }
  const models = [...(manifest.models?.values() ?? [])].flatMap((model) =>
    "problems" in model ? [] : [model],
  );
  const commands = [
    ...new Set([
      ...manifest.servers.flatMap(listCommands),
      ...models
        .flatMap(({ url = "", apiKey = "" }) => [url, apiKey])
        .flatMap((text) => commandsOf(parseTemplate(text, "toolmux"))),
    ]),
  ];
  if (commands.length > 0)
    context.terminal.print("and runs these commands, to use what they print as values:");
  for (const command of commands) context.terminal.print(`  ${sanitizeLine(command)}`);
  if (models.length > 0)
    context.terminal.print("and sends the conversations of agents to these models:");
  for (const { name, provider, url } of models) {
    const place = url === undefined ? provider : `${provider}, at ${maskSecretParts(url)}`;
    context.terminal.print(`  ${sanitizeLine(name)}: ${sanitizeLine(place)}`);
  }
  const { plugins } = manifest;
  if (plugins.length > 0)
    context.terminal.print("and loads these plugins, also if their files change:");
  for (const plugin of plugins) context.terminal.print(`  ${sanitizeLine(describePlugin(plugin))}`);
  return 0;
}

/**
 * Trusts exactly the bytes that the returned manifest was parsed from. Holds the lock for manifests, so that no other
 * toolmux process changes the file between reading it and storing its hash.
 * @param path absolute
 * @returns the real path, and the parsed manifest
 * @throws {HubError} manifestInvalid, and what `withManifestLock` throws
 */
export function trustFileContent(
  path: string,
  context: CommandContext,
): Promise<{ readonly real: string; readonly manifest: Manifest }> {
  const { cwd, platform } = context;
  const env = { ...context.env, TOOLMUX_SERVERS: undefined };
  return withManifestLock(context, async () => {
    const loaded = await loadManifest({ files: [path], env, cwd, platform });
    if (!loaded.ok || loaded.problems.length > 0) throw manifestError(loaded.problems);
    const [found] = loaded.files;
    if (found === undefined) throw new HubError("internal", `${path} was not read.`);
    const real = await trust(path, found.bytes, stateFolder(env, platform));
    return { real, manifest: loaded.manifest };
  });
}

/** The commands of a server's `${cmd:…}`, unmasked: the user must see them in full before trusting them. */
function listCommands(spec: ServerSpec): readonly string[] {
  if (spec.kind !== "stdio" && spec.kind !== "remote") return [];
  return commandsOf(templatePartsOf(spec));
}

function commandsOf(parts: readonly TemplatePart[]): readonly string[] {
  return parts.flatMap((part) =>
    part.kind === "scheme" && part.scheme === "cmd" ? [part.path] : [],
  );
}
