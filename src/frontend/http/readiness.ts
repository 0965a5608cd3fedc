import type { ServerStatus } from "../../upstream/status.ts";

/** Whether `initialize` would be answered now, or why not. */
export type Readiness =
  { readonly ready: true } | { readonly ready: false; readonly reason: "stopping" | "full" };

/**
 * The servers by state, as `/readyz` reports them. None of them delays `initialize`, but tools of some may be missing.
 */
export interface ServerSummary {
  readonly connected: readonly string[];
  /** To be connected, but not connected now. */
  readonly waiting: readonly string[];
  readonly failed: readonly { readonly server: string; readonly code: string }[];
  /** Started on demand, or not at all. */
  readonly resting: readonly string[];
}

export function summaryOf(servers: readonly ServerStatus[]): ServerSummary {
  const connected: string[] = [];
  const waiting: string[] = [];
  const failed: { server: string; code: string }[] = [];
  const resting: string[] = [];
  for (const { server, goal, connections } of servers) {
    const [first] = connections;
    const best = connections.find(({ state }) => state === "connected") ?? first;
    if (goal === "down" || best === undefined) {
      resting.push(server);
    } else if (best.state === "connected") {
      connected.push(server);
    } else if (best.state === "failed") {
      failed.push({ server, code: (best.cause ?? best.lastError)?.code ?? "internal" });
    } else if (best.state === "idle" || best.state === "disconnected") {
      (goal === "up" ? waiting : resting).push(server);
    } else {
      waiting.push(server);
    }
  }
  return { connected, waiting, failed, resting };
}
