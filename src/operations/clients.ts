import { randomBytes } from "node:crypto";
import { usageError } from "../base/errors.ts";
import { secretName } from "../client-configs/entry-to-manifest.ts";
import { loadManifest } from "../manifest/load.ts";
import { describeModeFault } from "../manifest/modes.ts";
import type { NamedClient } from "../manifest/named-clients.ts";
import { formatPath } from "../manifest/problems.ts";
import { namedClientSchema } from "../manifest/schema.ts";
import { validate } from "../manifest/validate.ts";
import { openSecrets } from "../secrets/secrets.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { loadManifestLogged, loadOptions } from "./load-manifest.ts";
import { editManifestFile, manifestToEdit } from "./manifest-file.ts";

/** Length of a new token, in bytes before its encoding. */
const TOKEN_BYTES = 32;

/** A client over HTTP that was added to the manifest. */
export interface AddedClientDocument {
  readonly name: string;
  /** The manifest that has the client. */
  readonly manifest: string;
  /** The name of the secret that has the token. */
  readonly secret: string;
  /** The place where the secret is stored, as shown to people. */
  readonly location: string;
  /** The token, which the client sends as a bearer token. */
  readonly token: string;
}

/**
 * Adds a client over HTTP with a new token of its own: the token goes into the secret store, and a table of `[[clients]]`
 * that names it into the manifest.
 * @throws {HubError} usage if the name is taken or no name, or there is no such mode; manifestInvalid; storeBroken
 */
export async function addClient(
  name: string,
  { mode, servers }: { readonly mode?: string | undefined; readonly servers: readonly string[] },
  choice: ManifestChoice,
  context: OperationContext,
): Promise<AddedClientDocument> {
  const file = await manifestToEdit(choice.config.at(-1), context);
  const secret = secretName("clients", name);
  const entry = {
    name,
    token: `\${secret:${secret}}`,
    ...(mode !== undefined && { mode }),
    ...(servers.length > 0 && { servers }),
  };
  const checked = validate(namedClientSchema(), entry, { file, path: [] });
  if (!checked.ok) {
    const [problem] = checked.problems;
    throw usageError(`${formatPath(problem?.path ?? [])} ${problem?.message ?? "is not valid"}`);
  }
  const loaded = await loadManifest(loadOptions(choice, context));
  const fault =
    loaded.ok && mode !== undefined
      ? describeModeFault(mode, loaded.manifest.modes ?? [])
      : undefined;
  if (fault !== undefined) throw usageError(fault);
  const { file: store } = openSecrets(context);
  if ((await store.list()).includes(secret)) {
    const text = `There is a secret ${secret} already: choose another name, or remove it first (toolmux secret remove ${secret}).`;
    throw usageError(text);
  }
  const token = randomBytes(TOKEN_BYTES).toString("base64url");
  await store.set(secret, token);
  try {
    await editManifestFile(file, { kind: "addClient", entry }, context);
  } catch (error) {
    await store.remove(secret);
    throw error;
  }
  return { name, manifest: file, secret, location: store.location, token };
}

/** The clients of the manifest. @throws {HubError} manifestInvalid */
export async function listNamedClients(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<readonly NamedClient[]> {
  const { manifest } = await loadManifestLogged(choice, context, () => {});
  return manifest.clients ?? [];
}
