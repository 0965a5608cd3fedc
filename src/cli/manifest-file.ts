import { join, resolve } from "node:path";
import { HubError } from "../base/errors.ts";
import { expandHome, stateFolder } from "../base/paths.ts";
import type { ManifestChange } from "../manifest/edit/edit.ts";
import { findUserFile, type PreparedEdit, prepareEdit } from "../manifest/edit/write.ts";
import { listDependencies, loadManifest } from "../manifest/load.ts";
import { HUB_DEFAULTS, type ServerSpec } from "../manifest/schema.ts";
import { isTrusted, trust } from "../manifest/trust.ts";
import { withFileLock } from "../process/file-lock.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { loadOptions } from "./load-manifest.ts";

/** Changes a manifest, or what is trusted, while no other command of this user does. @throws {HubError} as `withLock` */
export async function withManifestLock<T>(
  world: CommandContext,
  work: () => Promise<T>,
): Promise<T> {
  const { env, platform, signal } = world;
  try {
    return await withFileLock(join(stateFolder(env, platform), "manifest.lock"), signal, work);
  } catch (error) {
    // No server was to be reached, which is what the exit code of a store would say.
    const isBroken = error instanceof HubError && error.code === "storeBroken";
    throw isBroken ? new HubError("internal", error.message, { cause: error }) : error;
  }
}

/** The manifest that is to be changed: the one that is named, or else the user's own, whether it is there yet or not. Absolute. */
export function manifestToEdit(
  { values, config }: Invocation,
  world: CommandContext,
): Promise<string> {
  const named = values.get("file")?.at(-1) ?? config.at(-1);
  if (named === undefined) return findUserFile(world);
  return Promise.resolve(resolve(world.cwd, expandHome(named, world.env)));
}

/** What a server that is added to a manifest has to get along with. */
export interface Neighbours {
  /** What may stand in no prefix: as the file says, and as all manifests say that are used with it. The file's is first. */
  readonly separators: readonly [string, ...string[]];
  /** The servers of all of them. */
  readonly servers: readonly ServerSpec[];
}

/** What is wrong with a manifest does not matter here: `prepareEdit` says it. @param file absolute */
export async function readNeighbours(
  file: string,
  invocation: Invocation,
  world: CommandContext,
): Promise<Neighbours> {
  const options = loadOptions(invocation, world);
  const env = { ...world.env, TOOLMUX_SERVERS: undefined };
  const alone = await loadManifest({ ...options, env, files: [file] });
  // A file that is named may have nothing to do with those that are found.
  const isUsed = listDependencies(options).includes(file);
  const whole = isUsed ? await loadManifest(options) : alone;
  const separator = alone.ok ? alone.manifest.hub.separator : HUB_DEFAULTS.separator;
  if (!whole.ok) return { separators: [separator], servers: [] };
  const { hub, servers } = whole.manifest;
  return { separators: [separator, hub.separator], servers };
}

/**
 * Makes a change in a manifest as it is by now; those who change one at the same time take turns. A file that was trusted as it
 * was is trusted as it is then: it is its user who has changed it.
 * @throws {HubError} as prepareEdit and Edit.write
 */
export function editManifestFile(
  file: string,
  change: ManifestChange,
  world: CommandContext,
): Promise<PreparedEdit> {
  const folder = stateFolder(world.env, world.platform);
  return withManifestLock(world, async () => {
    const edit = await prepareEdit(file, change);
    const { before } = edit;
    const wasTrusted = before !== undefined && (await isTrusted(file, before, folder));
    await edit.write();
    if (wasTrusted) await trust(file, new TextEncoder().encode(edit.text), folder);
    return edit;
  });
}
