import { switchesOf } from "../manifest/files/client-entry.ts";
import { readServerEntry } from "../manifest/edit/write.ts";
import { loadManifest } from "../manifest/load.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { loadOptions } from "./load-manifest.ts";
import { editManifestFile, manifestToEdit } from "./manifest-file.ts";

/** The file in which a server was enabled or disabled. `isChanged`: whether it was not so before. */
export interface SwitchedServer {
  readonly file: string;
  readonly isChanged: boolean;
}

/**
 * Enables or disables a server in the manifest file that has it: the last one of those that are loaded, as it wins. The
 * entry keeps the key that it has for that, such as `disabled` in the files of clients; otherwise it gets `enabled`.
 * @param named the manifest; undefined: the files that were chosen, or those that are found
 * @throws {HubError} usage if no file has the server, and what `editManifestFile` throws
 */
export async function enableServer(
  name: string,
  enabled: boolean,
  named: string | undefined,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<SwitchedServer> {
  const { file, entry = {} } = await findEntry(name, named, choice, context);
  const existing = switchesOf(entry, enabled);
  const wanted = existing.length > 0 ? existing : enabled ? [] : [{ key: "enabled", value: false }];
  const changes = wanted.filter(({ key, value }) => entry[key] !== value);
  for (const { key, value } of changes)
    await editManifestFile(file, { kind: "set", name, key, value }, context);
  return { file, isChanged: changes.length > 0 };
}

/** The file that has a server, and its entry there; the manifest to edit, if none has it. */
async function findEntry(
  name: string,
  named: string | undefined,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<{ readonly file: string; readonly entry: Awaited<ReturnType<typeof readServerEntry>> }> {
  const own = await manifestToEdit(named ?? choice.config.at(-1), context);
  const files = named === undefined ? await loadedFiles(choice, context) : [];
  for (const file of [...files.toReversed(), own]) {
    const entry = await readServerEntry(file, name);
    if (entry !== undefined) return { file, entry };
  }
  // Reports which servers the file has.
  await editManifestFile(own, { kind: "set", name, key: "enabled", value: true }, context);
  return { file: own, entry: undefined };
}

async function loadedFiles(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<readonly string[]> {
  const loaded = await loadManifest(loadOptions(choice, context));
  return loaded.ok ? loaded.manifest.sources : loaded.files.map(({ path }) => path);
}
