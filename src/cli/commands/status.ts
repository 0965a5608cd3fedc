import type { ProcessStats } from "../../process/child-process.ts";
import { systemClock } from "../../base/clock.ts";
import type { Hub } from "../../hub/hub.ts";
import { type Manifest, type ServerSpec, isRunnable } from "../../manifest/schema.ts";
import { untilAborted } from "../../base/grace.ts";

import { ownConsole } from "../../terminal/console.ts";
import type { Invocation, CommandContext } from "../command.ts";
import {
  describeDiagnoses,
  diagnose,
  type ServerDiagnosis,
  EXIT_CODES,
  verdictOf,
  statusToJson,
} from "./diagnosis.ts";
import { openStartProgress, startedBy } from "./gauge.ts";
import { type CommandLog, openLog, loadManifestOnly } from "../load-manifest.ts";
import { openHub } from "../open-hub.ts";
import { suggestName, usageError } from "../args.ts";
import { terminalStyleOf, formatJson, openStatusLine } from "../../terminal/terminal.ts";
import { withInstalledRunner } from "../runner.ts";
import { serverStateOf } from "../server-state.ts";

/** Starts every server, or those that are named, and tells how each is and what can be done about those that are not there. */
export async function status(invocation: Invocation, world: CommandContext): Promise<number> {
  const isForPeople = invocation.json === false;
  const line = isForPeople ? openStatusLine(world.env) : undefined;
  const print = openLog(invocation);
  const log: CommandLog = (level, text) => {
    line?.clear();
    print(level, text);
  };
  const whole = await loadManifestOnly(invocation, world, log);
  const { hub, bus, manifest, close } = await openHub(whole, world, log, {
    choose: (all) => pickServers(all, invocation.words),
    // Who looks how things are does not want to be asked.
    authorizes: false,
  });
  const endGauge = line && openStartProgress(startedBy(manifest), bus, line, systemClock);
  try {
    const diagnoses = await untilAborted(examine(manifest, hub, world), world.signal);
    endGauge?.();
    ownConsole.log(
      isForPeople
        ? describeDiagnoses(diagnoses, terminalStyleOf(world.env))
        : formatJson(statusToJson(diagnoses)),
    );
    return EXIT_CODES[verdictOf(diagnoses)];
  } finally {
    endGauge?.();
    await close();
  }
}

async function examine(
  manifest: Manifest,
  hub: Hub,
  world: CommandContext,
): Promise<readonly ServerDiagnosis[]> {
  const { connected } = await hub.startAllAndSettle();
  const vitals = new Map<string, ProcessStats | undefined>();
  await Promise.all(
    connected.map(async (server) => {
      // One that ends meanwhile says so in its state, which is looked at after this.
      const running = await hub.inspect(server).catch(() => undefined);
      vitals.set(server, running);
    }),
  );
  return Promise.all(
    manifest.servers.map(async (spec) => {
      const settled = isRunnable(spec) ? await withInstalledRunner(spec, world) : spec;
      return diagnose(serverStateOf(spec, hub), settled, vitals.get(spec.name), world.env);
    }),
  );
}

/** The manifest with those servers alone, or with all if none is named. @throws {HubError} usage */
function pickServers(manifest: Manifest, names: readonly string[]): Manifest {
  const known = manifest.servers.map(({ name }) => name);
  const strange = names.find((name) => !known.includes(name));
  if (strange !== undefined) {
    const near = suggestName(strange, known) || " toolmux check shows what there is.";
    throw usageError(`There is no server "${strange}" in the manifest.${near}`);
  }
  const servers = manifest.servers.filter(({ name }) => names.length === 0 || names.includes(name));
  return { ...manifest, servers: servers.map(askOnce) };
}

/** Each is tried once, and who has started early is not stopped before the last is there. */
function askOnce(spec: ServerSpec): ServerSpec {
  if (!isRunnable(spec)) return spec;
  return { ...spec, idleStop: 0, reconnect: { ...spec.reconnect, policy: "none" } };
}
