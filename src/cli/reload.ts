import type { Hub } from "../hub/hub.ts";
import type { LoadedManifest, LoadOptions } from "../manifest/load.ts";
import { manifestError } from "../manifest/problems.ts";
import type { Manifest } from "../manifest/schema.ts";
import { type ManifestWatcher, watchManifest } from "../manifest/watch.ts";
import type { CommandLog, LoadedBasis } from "./load-manifest.ts";
import type { PluginSetup } from "./open-hub.ts";

/** A running hub, and its plugin setup. */
export interface ReloadableHub {
  readonly hub: Hub;
  readonly equip: PluginSetup;
}

/**
 * Reloads a running hub when its manifest changes: a new manifest is applied or rejected as a whole. Plugins
 * are set up again only if their settings or code have changed.
 * @returns the watcher: checks at once, or closes
 */
export function followManifest(
  { hub, equip }: ReloadableHub,
  options: LoadOptions,
  basis: LoadedBasis,
  log: CommandLog,
): ManifestWatcher {
  let { manifest, pluginFingerprint: pluginEdition } = basis;
  let isOver = false;

  const take = async (result: LoadedManifest): Promise<void> => {
    for (const note of result.notes) log("warn", note);
    const refusal = explain(result, manifest);
    if (refusal !== undefined) hub.reportRejectedManifest(refusal);
    if (refusal !== undefined || !result.ok) return;
    const stay = result.pluginFingerprint === pluginEdition ? hub.activePlugins.set : undefined;
    const equipped = await equip(result.manifest, stay);
    if (!equipped.ok) {
      hub.reportRejectedManifest(manifestError(equipped.problems).message);
    } else if (isOver) {
      if (equipped.plugins !== stay) await equipped.plugins?.dispose();
    } else {
      if (result.manifest.httpToken?.text !== manifest.httpToken?.text) {
        log(
          "warn",
          "hub.httpToken is another: clients over HTTP bear it when toolmux is started anew",
        );
      }
      ({ manifest, pluginFingerprint: pluginEdition } = result);
      hub.reload(equipped.manifest, equipped.plugins);
    }
  };

  // Loads are handled one after the other, because setting up plugins takes time.
  let turn = Promise.resolve();
  const watch = watchManifest(options, {
    fingerprint: basis.fingerprint,
    onWarning: (text) => log("warn", text),
    onLoad: (result) => {
      turn = turn.then(() => (isOver ? undefined : take(result)));
    },
  });
  return {
    check: () => watch.check(),
    close() {
      isOver = true;
      watch.close();
    },
  };
}

/** Why the new manifest is rejected, in the format of `check`; undefined: it is accepted. */
function explain(result: LoadedManifest, { sources }: Manifest): string | undefined {
  // Ignoring files that are no longer trusted may leave no manifest at all; the cause is the missing trust.
  const changed = sources.filter((file) => result.untrusted.includes(file));
  if (changed.length > 0) {
    return changed.map((file) => `${file}: has changed since it was trusted`).join("\n");
  }
  return result.ok ? undefined : manifestError(result.problems).message;
}
