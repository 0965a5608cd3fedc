import { systemClock } from "../../base/clock.ts";
import type { HubError } from "../../base/errors.ts";
import {
  HUB_DEFAULTS,
  LIMIT_DEFAULTS,
  type Manifest,
  type RunnableServer,
} from "../../manifest/schema.ts";
import { untilAborted } from "../../base/grace.ts";
import type { CommandContext } from "../command.ts";
import type { CommandLog } from "../load-manifest.ts";
import { openStartProgress } from "./gauge.ts";
import { openHub } from "../open-hub.ts";
import { openStatusLine } from "../../terminal/terminal.ts";
import { hintsFor } from "../hints.ts";
import { serverStateOf } from "../server-state.ts";

/** What came of starting a server once. */
export type TrialResult =
  | {
      readonly kind: "connected";
      /** As it says itself. */
      readonly name: string | undefined;
      readonly version: string | undefined;
      readonly tools: number;
    }
  /** It is there, and wants an authorization first. */
  | { readonly kind: "unauthorized" }
  | { readonly kind: "failed"; readonly cause: HubError; readonly remedies: readonly string[] };

/**
 * Starts a server once, alone, and asks what it has; afterwards nothing of it is left. One that is late is waited for
 * as long as its manifest lets it start. Nobody is asked for an authorization.
 */
export async function tryServer(
  spec: RunnableServer,
  world: CommandContext,
  print: CommandLog,
): Promise<TrialResult> {
  const line = openStatusLine(world.env);
  const log: CommandLog = (level, text) => {
    line?.clear();
    print(level, text);
  };
  const once = askOnce(spec);
  const manifest: Manifest = {
    hub: HUB_DEFAULTS,
    defaults: LIMIT_DEFAULTS,
    servers: [once],
    plugins: [],
    sources: [],
  };
  const options = { kinds: [], authorizes: false };
  const { hub, bus, close } = await openHub(manifest, world, log, options);
  const endGauge = line && openStartProgress([once.name], bus, line, systemClock);
  try {
    hub.startAll();
    await untilAborted(hub.settled("untilStarted"), world.signal);
    const connections = hub.status().flatMap((status) => status.connections);
    // Whoever waits for an authorization has settled already.
    if (connections.some(({ state }) => state === "authenticating"))
      return { kind: "unauthorized" };
    const standing = serverStateOf(once, hub);
    if (standing.at === "connected") {
      const { peer, tools = 0 } = standing.connection;
      return { kind: "connected", name: peer?.name, version: peer?.version, tools };
    }
    const cause = standing.at === "failed" ? standing.cause : undefined;
    if (cause === undefined) throw new Error(`server "${spec.name}" has settled as ${standing.at}`);
    if (cause.code === "unauthorized") return { kind: "unauthorized" };
    return { kind: "failed", cause, remedies: hintsFor(cause, spec, world.env) };
  } finally {
    endGauge?.();
    await close();
  }
}

function askOnce(spec: RunnableServer): RunnableServer {
  const reconnect = { ...spec.reconnect, policy: "none" } as const;
  const common = { enabled: true, lazy: false, idleStop: 0, reconnect } as const;
  return { ...spec, ...common };
}
