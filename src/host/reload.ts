import type { Hub } from "../hub/hub.ts";
import type { LoadedManifest, LoadOptions } from "../manifest/load.ts";
import { manifestError } from "../manifest/problems.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { type ManifestWatcher, watchManifest } from "../manifest/watch.ts";
import {
  type CommandLog,
  logRemarks,
  type ManifestWithHashes,
} from "../operations/load-manifest.ts";
import type { PluginSetup } from "./open-hub.ts";

/** A running hub, and the function that sets up plugins for it. */
export interface ReloadableHub {
  readonly hub: Hub;
  readonly setUpPlugins: PluginSetup;
  /** Applies what a manifest says of traces and metrics; never rejects. */
  readonly configureTelemetry?: (manifest: Manifest) => Promise<void>;
  /**
   * Prepares the parts outside of the hub that depend on the manifest, such as the tokens of HTTP clients.
   * @returns a function that applies the manifest to these parts, or why the manifest is refused
   */
  readonly prepare?: (manifest: Manifest) => Promise<(() => void) | { readonly refusal: string }>;
}

/**
 * Reloads a running hub when its manifest changes. A new manifest is applied or rejected as a whole. Plugins are set up
 * again only if their settings or code have changed.
 * @returns the watcher of the manifest; it can be told to check at once, and can be closed
 */
export function followManifest(
  { hub, setUpPlugins, prepare, configureTelemetry }: ReloadableHub,
  options: LoadOptions,
  loaded: ManifestWithHashes,
  log: CommandLog,
): ManifestWatcher {
  let { manifest, pluginFingerprint } = loaded;
  let isClosed = false;

  const onLoaded = async (result: LoadedManifest): Promise<void> => {
    logRemarks(result, log);
    const rejection = rejectionReason(result, manifest);
    if (rejection !== undefined) hub.reportRejectedManifest(rejection);
    if (rejection !== undefined || !result.ok) return;
    const current =
      result.pluginFingerprint === pluginFingerprint ? hub.activePlugins.set : undefined;
    const outside = await prepare?.(result.manifest);
    if (outside !== undefined && typeof outside !== "function") {
      hub.reportRejectedManifest(outside.refusal);
      return;
    }
    const prepared = await setUpPlugins(result.manifest, current);
    if (!prepared.ok) {
      hub.reportRejectedManifest(manifestError(prepared.problems).message);
    } else if (isClosed) {
      if (prepared.plugins !== current) await prepared.plugins?.dispose();
    } else {
      if (result.manifest.httpToken?.text !== manifest.httpToken?.text) {
        log(
          "warn",
          "hub.httpToken has changed: clients over HTTP need the new token when toolmux has been restarted",
        );
      }
      ({ manifest, pluginFingerprint } = result);
      outside?.();
      await configureTelemetry?.(prepared.manifest);
      hub.reload(prepared.manifest, prepared.plugins);
    }
  };

  const prepareAgain = async (): Promise<void> => {
    const outside = await prepare?.(manifest);
    if (typeof outside === "function") outside();
  };

  // Loaded manifests are handled one after the other, because the next one may arrive while plugins are still being set
  // up.
  let queue = Promise.resolve();
  let loadCount = 0;
  const watch = watchManifest(options, {
    fingerprint: loaded.fingerprint,
    onLoad: (result) => {
      loadCount++;
      queue = queue.then(() => (isClosed ? undefined : onLoaded(result)));
    },
  });
  return {
    async check() {
      const before = loadCount;
      await watch.check();
      // What the manifest refers to, such as stored secrets, may have changed although its files have not.
      if (loadCount === before) queue = queue.then(() => (isClosed ? undefined : prepareAgain()));
      await queue;
    },
    close() {
      isClosed = true;
      watch.close();
    },
  };
}

/** Why the new manifest is rejected, in the format of `toolmux check`; undefined if it is accepted. */
function rejectionReason(result: LoadedManifest, { sources }: Manifest): string | undefined {
  // Files that lost the user's trust by a change are checked first. They are not loaded, so the loader may report only
  // that there is no manifest.
  const changed = sources.filter((file) => result.untrusted.includes(file));
  if (changed.length > 0) {
    return changed.map((file) => `${file}: has changed since it was trusted`).join("\n");
  }
  return result.ok ? undefined : manifestError(result.problems).message;
}
