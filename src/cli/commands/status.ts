import { systemClock } from "../../base/clock.ts";
import type { Hub } from "../../hub/hub.ts";
import { type Manifest, type ServerSpec, isRunnable } from "../../manifest/schema.ts";
import { untilAborted } from "../../base/grace.ts";
import type { ProcessStats } from "../../transport/transport.ts";
import { ownConsole } from "../../terminal/console.ts";
import type { Invocation, World } from "../command.ts";
import {
  describeDiagnoses,
  diagnose,
  type Diagnosis,
  EXIT_CODES,
  judge,
  toJson,
} from "./diagnosis.ts";
import { openGauge, startedBy } from "./gauge.ts";
import { type Log, openLog, openManifest } from "../load-manifest.ts";
import { openHub } from "../open-hub.ts";
import { suggest, usage } from "../args.ts";
import { terminalStyleOf, formatJson, openStatusLine } from "../../terminal/terminal.ts";
import { settleRunner } from "../runner.ts";
import { standingOf } from "../server-state.ts";

/** Starts every server, or those that are named, and tells how each is and what can be done about those that are not there. */
export async function status(invocation: Invocation, world: World): Promise<number> {
  const isForPeople = invocation.json === false;
  const line = isForPeople ? openStatusLine(world.env) : undefined;
  const print = openLog(invocation);
  const log: Log = (level, text) => {
    line?.clear();
    print(level, text);
  };
  const whole = await openManifest(invocation, world, log);
  const { hub, bus, manifest, close } = await openHub(whole, world, log, {
    choose: (all) => pickServers(all, invocation.words),
    // Who looks how things are does not want to be asked.
    authorizes: false,
  });
  const endGauge = line && openGauge(startedBy(manifest), bus, line, systemClock);
  try {
    const diagnoses = await untilAborted(examine(manifest, hub, world), world.signal);
    endGauge?.();
    ownConsole.log(
      isForPeople
        ? describeDiagnoses(diagnoses, terminalStyleOf(world.env))
        : formatJson(toJson(diagnoses)),
    );
    return EXIT_CODES[judge(diagnoses)];
  } finally {
    endGauge?.();
    await close();
  }
}

async function examine(manifest: Manifest, hub: Hub, world: World): Promise<readonly Diagnosis[]> {
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
      const settled = isRunnable(spec) ? await settleRunner(spec, world) : spec;
      return diagnose(standingOf(spec, hub), settled, vitals.get(spec.name), world.env);
    }),
  );
}

/** The manifest with those servers alone, or with all if none is named. @throws {HubError} usage */
function pickServers(manifest: Manifest, names: readonly string[]): Manifest {
  const known = manifest.servers.map(({ name }) => name);
  const strange = names.find((name) => !known.includes(name));
  if (strange !== undefined) {
    const near = suggest(strange, known) || " toolmux check shows what there is.";
    throw usage(`There is no server "${strange}" in the manifest.${near}`);
  }
  const servers = manifest.servers.filter(({ name }) => names.length === 0 || names.includes(name));
  return { ...manifest, servers: servers.map(askOnce) };
}

/** Each is tried once, and who has started early is not stopped before the last is there. */
function askOnce(spec: ServerSpec): ServerSpec {
  if (!isRunnable(spec)) return spec;
  return { ...spec, idleStop: 0, reconnect: { ...spec.reconnect, policy: "none" } };
}
