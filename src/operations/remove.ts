import { listSecrets, secretsOf } from "../manifest/interpolate.ts";
import { openSecrets } from "../secrets/secrets.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { editManifestFile, manifestToEdit } from "./manifest-file.ts";

/** A server that was removed from a manifest, and what of it remains. */
export interface RemovedServer {
  /** The manifest, as an absolute path. */
  readonly file: string;
  /** Names of its stored secrets that no other server uses. */
  readonly secrets: readonly string[];
  /** Whether a login to it may be stored. */
  readonly mayBeLoggedIn: boolean;
}

/**
 * Removes a server from a manifest. Its secrets and tokens remain.
 * @param named the manifest; undefined: the last one that was chosen, or the user's own
 * @throws {HubError} usage, manifestInvalid
 */
export async function removeServer(
  name: string,
  named: string | undefined,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<RemovedServer> {
  const file = await manifestToEdit(named ?? choice.config.at(-1), context);
  const { server, others } = await editManifestFile(file, { kind: "remove", name }, context);
  if (server === undefined || !("syntax" in server))
    return { file, secrets: [], mayBeLoggedIn: false };
  const shared = new Set(others.flatMap(secretsOf));
  const unshared = listSecrets(server).filter((secret) => !shared.has(secret));
  // A secret store that cannot be opened is ignored.
  const stored =
    unshared.length === 0
      ? []
      : await openSecrets(context)
          .file.list()
          .catch(() => []);
  return {
    file,
    secrets: unshared.filter((one) => stored.includes(one)),
    mayBeLoggedIn: server.kind === "remote" && server.auth !== "none",
  };
}
