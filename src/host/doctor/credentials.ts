import { HubError } from "../../base/errors.ts";
import { resolveRemote } from "../../manifest/resolve.ts";
import type { Manifest, RemoteServer, ServerSpec } from "../../manifest/manifest.ts";
import { secretUsesOf } from "../../manifest/secret-uses.ts";
import type { Secrets } from "../../secrets/secrets.ts";
import type { HostContext } from "../context.ts";
import { openUserAuthorizer } from "../../hub/transport-factory.ts";
import type { Finding } from "./findings.ts";
import { dryRunSchemes, isResolvable, toSentence } from "./servers.ts";

/** Checks the stored OAuth tokens of servers. Requests no new token. */
export async function checkTokens(
  servers: readonly ServerSpec[],
  secrets: Secrets,
  context: HostContext,
): Promise<readonly Finding[]> {
  const remote = servers.filter((spec) => spec.kind === "remote");
  const found = await Promise.all(
    remote.map(async (spec): Promise<readonly Finding[]> => {
      if (!spec.enabled || !isResolvable(spec)) return [];
      try {
        return await checkToken(spec, secrets, context);
      } catch (error) {
        // Broken stores and entries that cannot be resolved are ignored here, because other checks report them.
        if (error instanceof HubError) return [];
        throw error;
      }
    }),
  );
  return found.flat();
}

async function checkToken(
  spec: RemoteServer,
  secrets: Secrets,
  context: HostContext,
): Promise<readonly Finding[]> {
  const { name: subject, auth, oauth } = spec;
  const resolved = await resolveRemote(
    spec,
    context.env,
    context.cwd,
    dryRunSchemes(spec, secrets),
  );
  const authorizer = await openUserAuthorizer(context, () => Promise.resolve());
  const status = await authorizer.getStatus(spec, resolved);
  const advice = `Log in: toolmux auth login ${subject}`;
  if (status.kind === "none") {
    if (auth !== "oauth" || oauth.grant === "clientCredentials") return [];
    return [{ code: "TM401", subject, text: "It needs a login.", advice }];
  }
  if (status.kind !== "expired") return [];
  if (status.isRefreshable) {
    return [
      { code: "TM403", subject, text: "Its token has expired. toolmux renews it automatically." },
    ];
  }
  const text = "Its token has expired and cannot be renewed: log in again.";
  return [{ code: "TM402", subject, text, advice }];
}

/** Names of secrets that toolmux stores for itself. */
const OWN_SECRET = /^(?:oauth\/|toolmux\/http-token$)/;

/**
 * Checks the secret store: reports secrets that nothing uses, and an encryption key that is kept beside the store.
 * @param manifest undefined if there is no manifest, in which case no secret counts as unused
 */
export async function checkSecrets(
  secrets: Secrets,
  manifest: Manifest | undefined,
): Promise<readonly Finding[]> {
  try {
    const findings: Finding[] = [];
    if ((await secrets.protection()) === "beside") {
      const reason = secrets.keychainFault === undefined ? "" : ` (${secrets.keychainFault})`;
      const text = `The key of the secret store is in the same directory, because there is no usable keychain${reason}. Everyone who can read the directory can read the secrets.`;
      const advice = "If the system has a keychain, toolmux uses it for new stores automatically.";
      findings.push({ code: "TM303", subject: secrets.folder, text, advice });
    }
    if (manifest === undefined) return findings;
    const used = secretUsesOf(manifest);
    for (const name of await secrets.file.list()) {
      if (used.has(name) || OWN_SECRET.test(name)) continue;
      const text = `Nothing in this manifest uses the secret "${name}".`;
      const advice = `If no other config uses it: toolmux secret remove ${name}`;
      findings.push({ code: "TM302", subject: "secrets", text, advice });
    }
    return findings;
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return [{ code: "TM304", subject: secrets.folder, text: toSentence(error.message) }];
  }
}
