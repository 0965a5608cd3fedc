import { formatDuration } from "../base/format.ts";
import type { Separation } from "../upstream/sharing.ts";
import type { ConnectionDocument, ServerDocument } from "./schemas.ts";

/** What `describeState` needs to know of a connection, or of a server as a whole. */
export type DescribedState = Pick<
  ConnectionDocument,
  "attempt" | "retryAt" | "progress" | "lastError" | "responsive"
> & {
  readonly state: ConnectionDocument["state"] | ServerDocument["state"];
  /** Absent if there is no connection yet. */
  readonly since?: number | undefined;
};

/**
 * The state of a server or connection in words: the `statusText` of documents. The page calls this, too, because it
 * shows the passing time.
 * @param now in ms since the epoch
 */
export function describeState(described: DescribedState, now: number): string {
  const { state, attempt = 1, retryAt, progress, lastError, responsive, since } = described;
  switch (state) {
    case "connected":
      return responsive === false ? "connected, but does not respond" : "connected";
    case "connecting": {
      const number = attempt > 1 ? `, attempt ${attempt}` : "";
      return `connecting for ${formatDuration(Math.max(0, now - (since ?? now)))}${number}`;
    }
    case "authenticating":
      return progress?.url === undefined
        ? "waits for its authorization"
        : "waits for a login in the browser";
    case "reconnecting": {
      const wait =
        retryAt === undefined ? "soon" : `in ${formatDuration(Math.max(0, retryAt - now))}`;
      return `next attempt ${wait}${lastError === undefined ? "" : `: ${lastError.message}`}`;
    }
    case "failed":
      return lastError?.message ?? "failed";
    case "idle":
      return "starts when it is called";
    case "notStarted":
      return "not started";
    case "stopping":
      return "stopping";
    case "disconnected":
    case "stopped":
      return "stopped";
    case "disabled":
      return "disabled";
  }
}

/** Why a server has one more connection, in words. */
export function describeSeparation(separation: Separation): string {
  switch (separation.by) {
    case "values":
      return `other values of ${new Intl.ListFormat("en").format(separation.names)}`;
    case "era":
      return "another era of the protocol";
    case "capabilities":
      return "other capabilities";
    case "client":
      return "one per client";
  }
}

/**
 * Sentences about a server with several connections: why it has them, and for each one that cannot be used while another
 * can, for whom and why. None for a server with one connection.
 */
export function describeConnections(connections: readonly ConnectionDocument[]): readonly string[] {
  if (connections.length < 2) return [];
  const all = connections.flatMap(({ separation }) => separation ?? []);
  const names = new Set(all.flatMap((each) => each.names ?? []));
  const texts = all.map(({ by, text }) =>
    by === "values" ? describeSeparation({ by, names: [...names] }) : text,
  );
  const why = texts.length === 0 ? "" : `: ${[...new Set(texts)].join("; ")}`;
  const failed = connections.filter(({ unavailable }) => unavailable === true);
  const faults = failed.length === connections.length ? [] : failed;
  return [
    `It has ${connections.length} connections${why}.`,
    ...faults.map(({ client, clients = [], lastError }) => {
      const whom = [...new Set([client, ...clients])].filter((id) => id !== undefined);
      const head =
        whom.length === 0 ? "One of them cannot be used" : `It fails for ${whom.join(", ")}`;
      return lastError === undefined ? `${head}.` : `${head}: ${lastError.message}`;
    }),
  ];
}
