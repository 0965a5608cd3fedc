import { access } from "node:fs/promises";
import { basename } from "node:path";
import type { ServerEntry } from "../../client-configs/entry.ts";
import type { TakenNames } from "../../client-configs/import-plan.ts";
import { readClientFileText } from "../../client-configs/read.ts";
import { HubError } from "../../base/errors.ts";
import { prepareEdit } from "../../manifest/edit/write.ts";
import { loadManifest } from "../../manifest/load.ts";
import { detectFormat } from "../../manifest/parse.ts";
import { manifestError } from "../../manifest/problems.ts";
import { HUB_DEFAULTS } from "../../manifest/schema.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { loadOptions } from "../load-manifest.ts";
import { editManifestFile, manifestToEdit } from "../manifest-file.ts";

/** What the manifest has already; nothing if there is none yet. @throws {HubError} manifestInvalid */
export async function readTakenNames(
  invocation: Invocation,
  world: CommandContext,
): Promise<TakenNames> {
  const none = { servers: [], separator: HUB_DEFAULTS.separator };
  const file = await manifestToEdit(invocation, world);
  const loaded = await loadManifest(loadOptions(invocation, world));
  if (loaded.ok)
    return { servers: loaded.manifest.servers, separator: loaded.manifest.hub.separator };
  if (!(await exists(file))) return none;
  throw manifestError(loaded.problems);
}

/**
 * Adds servers to a manifest and changes nothing else in it: all of them, or none.
 * @param before what has to be done first, once it is certain that the file lets itself be changed so
 * @throws {HubError} usage, manifestInvalid
 */
export async function addServers(
  file: string,
  servers: ReadonlyMap<string, ServerEntry>,
  before: () => Promise<void>,
  world: CommandContext,
): Promise<void> {
  const change = { kind: "addAll", servers } as const;
  await refuseForeign(file);
  await prepareEdit(file, change);
  await before();
  await editManifestFile(file, change, world);
}

/** What is written for another client is not ours to add to: it would not understand it. @throws {HubError} usage */
async function refuseForeign(file: string): Promise<void> {
  const content = await readClientFileText(file, detectFormat(file, ""));
  const isForeign =
    content.kind === "read" && ["mcpServers", "inputs"].some((key) => key in content.root);
  if (!isForeign && !/^\.?mcp\.json$/.test(basename(file))) return;
  const text = `${file} is the file of another client; name a manifest of toolmux with --config.`;
  throw new HubError("usage", text);
}

function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
