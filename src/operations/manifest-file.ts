import { join, resolve } from "node:path";
import { HubError } from "../base/errors.ts";
import { expandHome, stateFolder } from "../base/paths.ts";
import type { ManifestChange } from "../manifest/edit/edit.ts";
import {
  findUserFile,
  type PreparedEdit,
  prepareEdit,
  readServerEntry,
} from "../manifest/edit/write.ts";
import { listDependencies, loadManifest } from "../manifest/load.ts";
import { HUB_DEFAULTS, type ServerSpec } from "../manifest/manifest.ts";
import type { Table } from "../manifest/table.ts";
import { isTrusted, trust } from "../manifest/trust.ts";
import { withFileLock } from "../process/file-lock.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { loadOptions } from "./load-manifest.ts";

/**
 * Runs `work` while this process holds the lock for manifests and the trust store.
 * @throws {HubError} what `withFileLock` throws
 */
export async function withManifestLock<T>(
  context: OperationContext,
  work: () => Promise<T>,
): Promise<T> {
  const { env, platform, signal } = context;
  try {
    return await withFileLock(join(stateFolder(env, platform), "manifest.lock"), signal, work);
  } catch (error) {
    // The code `storeBroken` is replaced, because it would give the exit code for a failed server, and no server is
    // involved.
    const isBroken = error instanceof HubError && error.code === "storeBroken";
    throw isBroken ? new HubError("internal", error.message, { cause: error }) : error;
  }
}

/**
 * Absolute path of the manifest to edit: the named one, or else the user's own, whether it exists or not.
 * @param named the value of `--file` or of the last `--config`
 */
export function manifestToEdit(
  named: string | undefined,
  context: OperationContext,
): Promise<string> {
  if (named === undefined) return findUserFile(context);
  return Promise.resolve(resolve(context.cwd, expandHome(named, context.env)));
}

/**
 * The separators and servers that limit the prefix of a new server: the prefix must not contain a separator, and no
 * other server may have it.
 */
export interface ExistingServers {
  /**
   * The separators (between prefix and tool name) that the prefix must not contain: first that of the edited file,
   * then that of the manifests loaded with it.
   */
  readonly separators: readonly [string, ...string[]];
  /** The servers of the edited file and of all manifests loaded with it. */
  readonly servers: readonly ServerSpec[];
}

/**
 * Reads the separators and servers that limit the prefix of a new server. Ignores problems of the manifest, because
 * `prepareEdit` reports them.
 * @param file absolute path
 */
export async function readExistingServers(
  file: string,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<ExistingServers> {
  const options = loadOptions(choice, context);
  const env = { ...context.env, TOOLMUX_SERVERS: undefined };
  const own = await loadManifest({ ...options, env, files: [file] });
  // If the files that `options` loads do not include the edited file, only the servers of the edited file count.
  const isUsed = listDependencies(options).includes(file);
  const all = isUsed ? await loadManifest(options) : own;
  const separator = own.ok ? own.manifest.hub.separator : HUB_DEFAULTS.separator;
  const ownServers = own.ok ? own.manifest.servers : [];
  if (!all.ok) return { separators: [separator], servers: ownServers };
  const { hub, servers } = all.manifest;
  // An edited file that is in the current directory and not trusted is not loaded with the other files, so its servers
  // are added here.
  const isLoaded = ({ name }: ServerSpec): boolean => servers.some((spec) => spec.name === name);
  const others = ownServers.filter((spec) => !isLoaded(spec));
  return { separators: [separator, hub.separator], servers: [...others, ...servers] };
}

/**
 * Edits a manifest under the lock for manifests. A trusted file stays trusted, because the change is the user's own.
 * @throws {HubError} what `prepareEdit` and `PreparedEdit.write` throw
 */
export function editManifestFile(
  file: string,
  change: ManifestChange,
  context: OperationContext,
): Promise<PreparedEdit> {
  const folder = stateFolder(context.env, context.platform);
  return withManifestLock(context, async () => {
    const edit = await prepareEdit(file, change);
    const { before } = edit;
    const wasTrusted = before !== undefined && (await isTrusted(file, before, folder));
    const { backup } = await edit.write();
    if (backup !== undefined) {
      const text = `${file} cannot be replaced, for example because it is mounted, so it was written in place. Its text before is in ${backup}`;
      context.note?.(text);
    }
    if (wasTrusted) await trust(file, new TextEncoder().encode(edit.text), folder);
    return edit;
  });
}

/** Writes a change into the manifest to edit: the last one that was chosen, or the user's own. @throws {HubError} */
export async function changeManifest(
  change: ManifestChange,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<PreparedEdit> {
  return editManifestFile(await manifestToEdit(choice.config.at(-1), context), change, context);
}

/** The manifest to edit, and a server's entry as it stands there; undefined: it has none. @throws {HubError} */
export async function readManifestEntry(
  name: string,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<{ readonly file: string; readonly entry: Table | undefined }> {
  const file = await manifestToEdit(choice.config.at(-1), context);
  return { file, entry: await readServerEntry(file, name) };
}
