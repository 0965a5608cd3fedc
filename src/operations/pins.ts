import { stateFolder } from "../base/paths.ts";
import { diskBaselines } from "../pins/disk.ts";
import type { BaselineStore } from "../pins/store.ts";
import type { OperationContext } from "./context.ts";

/** Opens what this user has accepted of servers. */
export function openStoredBaselines({
  env,
  platform,
}: Pick<OperationContext, "env" | "platform">): BaselineStore {
  return diskBaselines(stateFolder(env, platform));
}
