import { openSecrets } from "../../secrets/secrets.ts";
import type { SecretStore } from "../../secrets/store.ts";
import type { World } from "../command.ts";

/** Where values that look like secrets are moved to. */
export function openStore(world: World): SecretStore {
  return openSecrets(world).file;
}
