import { access } from "node:fs/promises";
import { join, resolve } from "node:path";
import { openOriginal, rewrite } from "../../clients/backup.ts";
import { editText } from "../../clients/edit.ts";
import type { OwnEntry } from "../../clients/entry.ts";
import { readContent } from "../../clients/reading.ts";
import { utf8 } from "../../bytes.ts";
import { HubError } from "../../errors.ts";
import { configFolders, expandHome } from "../../manifest/folders.ts";
import { loadManifest } from "../../manifest/load.ts";
import { detectFormat } from "../../manifest/parse.ts";
import { manifestError } from "../../manifest/problem.ts";
import { HUB_DEFAULTS } from "../../manifest/schema.ts";
import type { Taken } from "../../clients/plan.ts";
import { loadOptions } from "../open.ts";
import type { Invocation, World } from "../command.ts";

/** What the manifest has already; nothing if there is none yet. @throws {HubError} manifestInvalid */
export async function readTaken(invocation: Invocation, world: World): Promise<Taken> {
  const none = { servers: [], separator: HUB_DEFAULTS.separator };
  const file = await locateManifest(invocation, world);
  const loaded = await loadManifest(loadOptions(invocation, world));
  if (loaded.ok)
    return { servers: loaded.manifest.servers, separator: loaded.manifest.hub.separator };
  if (!(await exists(file))) return none;
  throw manifestError(loaded.problems);
}

/** The file that servers are added to: the last that is named, or that of the user's config folder, which may not be there yet. */
export async function locateManifest(
  { config }: Invocation,
  { env, cwd, platform }: World,
): Promise<string> {
  const named = config.at(-1);
  if (named !== undefined) return resolve(cwd, expandHome(named, env));
  const folders = configFolders(env, platform);
  const names = ["toolmux.toml", "toolmux.json", "toolmux.jsonc"];
  const files = folders.flatMap((folder) => names.map((name) => join(folder, name)));
  for (const file of files) if (await exists(file)) return file;
  return files[0] ?? join(cwd, "toolmux.toml");
}

/** Adds servers to a manifest of ours and changes nothing else in it. @throws {HubError} usage */
export async function addServers(
  file: string,
  servers: Readonly<Record<string, OwnEntry>>,
): Promise<void> {
  const format = detectFormat(file, "");
  const content = await readContent(file, format);
  if (content.kind === "broken") throw refuse(file, content.fault.message);
  const root = content.kind === "read" ? content.root : {};
  if ("mcpServers" in root || "inputs" in root) throw refuse(file, "is the file of another client");
  const text = content.kind === "read" ? content.text : "";
  const edited = await editText(text, format, { keys: ["servers"], remove: [], put: servers });
  if (!edited.ok) throw refuse(file, `cannot be added to: ${edited.reason}`);
  await rewrite(await openOriginal(file), utf8(edited.text));
}

function refuse(file: string, reason: string): HubError {
  return new HubError("usage", `${file} ${reason}.`);
}

function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
