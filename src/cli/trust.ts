import { dirname, resolve } from "node:path";
import { expandHome, stateFolder } from "../manifest/folders.ts";
import { loadManifest } from "../manifest/load.ts";
import { manifestError } from "../manifest/problem.ts";
import type { ServerSpec } from "../manifest/schema.ts";
import { partsOf } from "../manifest/template.ts";
import { trust } from "../manifest/trust.ts";
import type { Invocation, World } from "./command.ts";
import { describeStart } from "./commandline.ts";
import { describePlugin } from "./plugins.ts";
import { clean } from "./report.ts";
import { takeTurn } from "./turn.ts";

/** Trusts a file as it is now, and says which commands and plugins that allows. A file with problems is not trusted. */
export async function trustFile({ words }: Invocation, world: World): Promise<number> {
  const { cwd, platform } = world;
  const [word = ""] = words;
  const path = resolve(cwd, expandHome(word, world.env));
  const env = { ...world.env, TOOLMUX_SERVERS: undefined };
  const loaded = await loadManifest({ files: [path], env, cwd, platform });
  if (!loaded.ok) throw manifestError(loaded.problems);
  const real = await takeTurn(world, () => trust(path, stateFolder(env, platform)));
  console.log(`trusted: ${clean(real)}`);
  console.log(`As long as it stays as it is, toolmux runs from it in ${clean(dirname(real))}:`);
  for (const spec of loaded.manifest.servers) {
    const what = spec.kind === "unsupported" ? `nothing: ${spec.reason}` : describeStart(spec);
    console.log(`  ${clean(spec.name)}: ${clean(what)}${spec.enabled ? "" : " (disabled)"}`);
  }
  const commands = [...new Set(loaded.manifest.servers.flatMap(listCommands))];
  if (commands.length > 0) console.log("and these commands for the values that they print:");
  for (const command of commands) console.log(`  ${clean(command)}`);
  const { plugins } = loaded.manifest;
  if (plugins.length > 0)
    console.log("and uses these plugins, whatever is in their files by then:");
  for (const plugin of plugins) console.log(`  ${clean(describePlugin(plugin))}`);
  return 0;
}

/** What `${cmd:…}` of a server runs, as written: who trusts it is to see it whole. */
function listCommands(spec: ServerSpec): readonly string[] {
  if (spec.kind !== "stdio" && spec.kind !== "remote") return [];
  return partsOf(spec).flatMap((part) =>
    part.kind === "scheme" && part.scheme === "cmd" ? [part.path] : [],
  );
}
