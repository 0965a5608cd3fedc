import type { HubSetup } from "../control/setup-api.ts";
import { HubError } from "../base/errors.ts";
import { isDemo } from "../base/paths.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import { sanitizeLine } from "../terminal/log.ts";
import type { ManifestChoice, OperationContext } from "../operations/context.ts";
import type { HostContext } from "./context.ts";
import type { CommandLog } from "../operations/load-manifest.ts";

const DEMO_REFUSAL =
  "This is a demo, whose servers and manifest are gone when it ends, so no MCP client gets an entry of it, and nothing is imported. Start a hub of your own: toolmux serve --http 8700 --dashboard";

export interface HubSetupOptions {
  /** The manifests of the hub. */
  readonly choice: ManifestChoice;
  readonly context: HostContext;
  readonly log: CommandLog;
  /** Reads a server's entry as if it were in the manifest. @throws {HubError} manifestInvalid */
  readServer(name: string, entry: Readonly<Record<string, unknown>>): Promise<RunnableServer>;
}

/**
 * Makes the functions by which the control API of a hub changes secrets, servers, logins and clients: the operations, on
 * the hub's manifest. Their code is loaded on first use.
 */
export function makeHubSetup(options: HubSetupOptions): HubSetup {
  const { choice, context, log } = options;
  /** The context of an operation that also ends with the request for it. */
  const within = (signal: AbortSignal): OperationContext => ({
    ...context,
    signal: AbortSignal.any([context.signal, signal]),
    note: (text) => log("warn", text),
  });
  const refuseInDemo = (): void => {
    if (isDemo(context.env)) throw new HubError("usage", DEMO_REFUSAL);
  };
  return {
    async check() {
      const { checkManifest } = await import("../operations/check.ts");
      return (await checkManifest(choice, context)).document;
    },
    async login(server, onNote) {
      const { login } = await import("../operations/login.ts");
      const request = { server, opensBrowser: true };
      const { document } = await login(request, choice, context, log, {
        onStep() {},
        onPage(url) {
          onNote(`To log in to ${server}, open this page:`);
          onNote(sanitizeLine(url));
        },
        onNote,
      });
      return document;
    },
    async logout(server, signal) {
      const { logout } = await import("../operations/login.ts");
      return logout(server, choice, within(signal), log);
    },
    async listSecrets() {
      const { listSecrets } = await import("../operations/secrets.ts");
      return (await listSecrets(choice, context)).document;
    },
    async setSecret(name, value) {
      const { openSecretToSet } = await import("../operations/secrets.ts");
      await (await openSecretToSet(name, context)).set(value);
    },
    async removeSecret(name) {
      const { removeStoredSecret } = await import("../operations/secrets.ts");
      return (await removeStoredSecret(name, context)).isRemoved;
    },
    async search(words, limit, signal) {
      const [{ searchServers }, { logRegistryFailures }] = await Promise.all([
        import("../operations/search.ts"),
        import("../operations/registries.ts"),
      ]);
      const request = { words, from: [], limit };
      const { document, failures } = await searchServers(request, choice, within(signal));
      logRegistryFailures(failures, log);
      return document;
    },
    async tryServer(name, entry, signal) {
      const [{ trialDocument, tryServer }, { openTrialHub }] = await Promise.all([
        import("../operations/try-server.ts"),
        import("./open-hub.ts"),
      ]);
      const spec = await options.readServer(name, entry);
      const own = { ...context, ...within(signal) };
      return trialDocument(
        await tryServer(spec, (manifest) => openTrialHub(manifest, own, log), own),
      );
    },
    async clientApps() {
      const { listClientApps } = await import("../operations/install-in-client.ts");
      return listClientApps(context);
    },
    async makeSnippet(client, http) {
      const { findInstallTarget, makeSnippet } = await import("../operations/install-in-client.ts");
      const target = await findInstallTarget(client, false, context);
      return makeSnippet(target, { http }, choice, context);
    },
    async install(client, { replace = false, http, dryRun = false }, signal) {
      refuseInDemo();
      const { findInstallTarget, prepareInstallation } =
        await import("../operations/install-in-client.ts");
      const own = within(signal);
      const target = await findInstallTarget(client, false, own);
      const request = { project: false, secrets: false, replace, http };
      const prepared = await prepareInstallation(target, request, choice, own);
      return dryRun ? prepared.planned : prepared.apply();
    },
    async undoInstall(client, dryRun) {
      refuseInDemo();
      const { findInstallTarget, prepareRemoval } =
        await import("../operations/install-in-client.ts");
      const prepared = await prepareRemoval(await findInstallTarget(client, false, context));
      return dryRun ? prepared.planned : prepared.apply();
    },
  };
}
