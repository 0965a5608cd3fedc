import { abortable } from "../base/clock.ts";
import type { HubError } from "../base/errors.ts";
import type { Hub } from "../hub/hub.ts";
import { unavailableReasonOf } from "../upstream/status.ts";
import {
  HUB_DEFAULTS,
  LIMIT_DEFAULTS,
  type Manifest,
  type RunnableServer,
} from "../manifest/manifest.ts";
import type { EntryFinding } from "../scan/checks.ts";
import type { OperationContext } from "./context.ts";
import { type TrialDocument, withoutUndefined } from "./documents.ts";
import { hintsFor } from "./hints.ts";

/** The result of starting a server once, to try it. */
export type TrialResult =
  | {
      readonly kind: "connected";
      /** The `serverInfo.name` that the server sent. */
      readonly name: string | undefined;
      readonly version: string | undefined;
      readonly tools: number;
      /** What the scan has found in its definitions, hard ones first. */
      readonly findings: readonly EntryFinding[];
    }
  /** The server answered, but requires authorization. */
  | { readonly kind: "unauthorized" }
  | { readonly kind: "failed"; readonly cause: HubError; readonly hints: readonly string[] };

/** A hub that was opened for a trial. Its servers have not been started, and it never starts a login. */
export interface TrialHub {
  readonly hub: Hub;
  close(): Promise<void>;
}

/**
 * Starts a single server, lists its tools and stops it. Waits until the start has succeeded or failed; the server's
 * `startLimit` ends a start that takes too long. Never starts a login.
 * @param openHub opens a hub with this manifest, which has only that server
 */
export async function tryServer(
  spec: RunnableServer,
  openHub: (manifest: Manifest) => Promise<TrialHub>,
  context: OperationContext,
): Promise<TrialResult> {
  const singleStart = withoutRetries(spec);
  const opened = await openHub({
    hub: HUB_DEFAULTS,
    defaults: LIMIT_DEFAULTS,
    servers: [singleStart],
    plugins: [],
    sources: [],
  });
  const { hub } = opened;
  try {
    hub.startAll();
    await abortable(hub.settled("allStarted"), context.signal);
    const connections = hub.status().flatMap((status) => status.connections);
    // Some servers demand authorization only after the connection is established. Then the connection has the state
    // `authenticating` instead of an error.
    if (connections.some(({ state }) => state === "authenticating"))
      return { kind: "unauthorized" };
    const connected = connections.find(({ state }) => state === "connected");
    if (connected !== undefined) {
      const { peer, tools = 0 } = connected;
      await abortable(hub.scanned.settled(), context.signal);
      const findings = hub.scanned.list(spec.name).flatMap((each) => each.findings);
      return { kind: "connected", name: peer?.name, version: peer?.version, tools, findings };
    }
    const cause = unavailableReasonOf(spec.name, connections);
    if (cause.code === "unauthorized") return { kind: "unauthorized" };
    return { kind: "failed", cause, hints: hintsFor(cause, spec, context.env) };
  } finally {
    await opened.close();
  }
}

/** The document of a trial. */
export function trialDocument(result: TrialResult): TrialDocument {
  switch (result.kind) {
    case "connected": {
      const { kind: state, name, version, tools, findings } = result;
      return withoutUndefined<Extract<TrialDocument, { state: "connected" }>>({
        state,
        name,
        version,
        tools,
        findings,
      });
    }
    case "unauthorized":
      return { state: "unauthorized" };
    case "failed": {
      const { code, message } = result.cause;
      return { state: "failed", error: { code, message }, remedies: result.hints };
    }
  }
}

function withoutRetries(spec: RunnableServer): RunnableServer {
  const reconnect = { ...spec.reconnect, policy: "none" } as const;
  const common = { enabled: true, lazy: false, idleStop: 0, reconnect } as const;
  return { ...spec, ...common };
}
