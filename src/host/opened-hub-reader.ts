import type { HubReader, HubReaderOptions } from "../control/hub-reader.ts";
import { type LocalHub, localHubReader } from "../control/local-hub-reader.ts";
import { isRunnable } from "../manifest/manifest.ts";
import { hintsFor } from "../operations/hints.ts";
import { describeServer, withInstalledRunner } from "../operations/server-description.ts";
import type { HostContext } from "./context.ts";
import type { OpenedHub } from "./open-hub.ts";

/** Reads a hub that was opened in this process. */
export function readOpenedHub(
  {
    hub,
    manifest,
    redact,
    openFleet,
  }: Pick<OpenedHub, "hub" | "manifest" | "redact" | "openFleet">,
  context: HostContext,
  options: Omit<HubReaderOptions, "signal"> = {},
): HubReader {
  const { env, signal } = context;
  const texts: LocalHub["texts"] = {
    async describe(spec) {
      if (spec.kind !== "fleet") return describeServer(await withInstalledRunner(spec, context));
      const { describeFleetServer } = await import("./fleet-document.ts");
      return describeFleetServer(await openFleet(), spec);
    },
    remedies: async (error, spec) =>
      hintsFor(error, isRunnable(spec) ? await withInstalledRunner(spec, context) : spec, env),
  };
  return localHubReader({ hub, manifest, redact, texts }, { ...options, signal });
}
