import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { stateFolder } from "../base/paths.ts";
import { withFileLock } from "../process/file-lock.ts";
import type { CommandContext } from "./command.ts";

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
