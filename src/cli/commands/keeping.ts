import { openSecrets } from "../../secrets/secrets.ts";
import type { SecretStore } from "../../secrets/store.ts";
import type { CommandContext } from "../command.ts";

/** Where values that look like secrets are moved to. */
export function openSecretStore(world: CommandContext): SecretStore {
  return openSecrets(world).file;
}
