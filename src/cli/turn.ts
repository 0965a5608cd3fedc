import { join } from "node:path";
import { stateFolder } from "../manifest/folders.ts";
import { withLock } from "../secrets/lock.ts";
import type { World } from "./command.ts";

/** Changes a manifest, or what is trusted, while no other command of this user does. @throws {HubError} as `withLock` */
export function takeTurn<T>(world: World, work: () => Promise<T>): Promise<T> {
  const { env, platform, signal } = world;
  return withLock(join(stateFolder(env, platform), "manifest.lock"), signal, work);
}
