import { diskApprovals } from "../approval/disk.ts";
import type { RememberedApprovals } from "../approval/remembered.ts";
import { stateFolder } from "../base/paths.ts";
import type { OperationContext } from "./context.ts";

/** Opens the stored approvals of this user; their damage is noted. */
export function openStoredApprovals({
  env,
  platform,
  note,
}: Pick<OperationContext, "env" | "platform" | "note">): RememberedApprovals {
  const store = diskApprovals(stateFolder(env, platform));
  store.onDamage = (text) => note?.(text);
  return store;
}
