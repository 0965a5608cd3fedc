import type { HubReader, HubReaderOptions } from "../control/hub-reader.ts";
import { localHubReader } from "../control/local-hub-reader.ts";
import { isRunnable } from "../manifest/manifest.ts";
import { hintsFor } from "../operations/hints.ts";
import { describeServer, withInstalledRunner } from "../operations/server-description.ts";
import type { CommandContext } from "./command.ts";
import type { OpenedHub } from "../host/open-hub.ts";

/** Reads a hub that this command has opened. */
export function readOpenedHub(
  { hub, manifest, redact }: Pick<OpenedHub, "hub" | "manifest" | "redact">,
  context: CommandContext,
  options: Omit<HubReaderOptions, "signal"> = {},
): HubReader {
  const { env, signal } = context;
  const texts = {
    describe: async (spec: Parameters<typeof describeServer>[0]) =>
      describeServer(await withInstalledRunner(spec, context)),
    remedies: async (error: Parameters<typeof hintsFor>[0], spec: Parameters<typeof hintsFor>[1]) =>
      hintsFor(error, isRunnable(spec) ? await withInstalledRunner(spec, context) : spec, env),
  };
  return localHubReader({ hub, manifest, redact, texts }, { ...options, signal });
}
