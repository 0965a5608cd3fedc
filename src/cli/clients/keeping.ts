import { HubError } from "../../errors.ts";
import type { SecretStore } from "../../secrets/store.ts";
import type { World } from "../command.ts";

/** Where values that look like secrets are moved to. @throws {HubError} notSupported */
export function openStore(_world: World): Promise<SecretStore> {
  return Promise.reject(new HubError("notSupported", "There is no secret store yet."));
}
