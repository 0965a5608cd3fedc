import { count, formatDuration, formatElapsed, formatWait } from "../base/format.ts";
import type { Separation } from "../upstream/sharing.ts";
import { countServers, describeCounts, nameOfState } from "../upstream/verdict.ts";
import type { ConnectionDocument, ServerDocument } from "./schemas.ts";

/** What `describeState` needs to know of a connection, or of a server as a whole. */
export type DescribedState = Pick<
  ConnectionDocument,
  "attempt" | "retryAt" | "progress" | "lastError" | "failing" | "responsive"
> & {
  readonly state: ConnectionDocument["state"] | ServerDocument["state"];
  /** Absent if there is no connection yet. */
  readonly since?: number | undefined;
};

/** How long after an attempt it counts as made just now, in ms. */
const JUST_NOW = 10_000;
/** Number of failed attempts from which on a server is failing, although other attempts follow. */
const FAILING_AFTER = 3;

type FailingState = DescribedState & {
  readonly failing: NonNullable<DescribedState["failing"]>;
};

/**
 * Whether a server that is tried again has failed so often that the next attempt will hardly succeed. That holds from
 * one attempt to the next, also while its process is stopped.
 */
export function isFailing(described: DescribedState): described is FailingState {
  const { state, failing } = described;
  return (
    (state === "reconnecting" || state === "connecting" || state === "stopping") &&
    failing !== undefined &&
    failing.attempts >= FAILING_AFTER
  );
}

/** The state in a word, as tables have it: `failing` instead of `reconnecting` after several failed attempts. */
export function wordOfState(described: DescribedState & Pick<ServerDocument, "state">): string {
  return isFailing(described) ? "failing" : nameOfState(described.state);
}

/** The numbers of servers by state in words: `4 connected, 1 failed, 2 failing, 1 resting`. */
export function describeServers(
  servers: readonly (DescribedState & Pick<ServerDocument, "state" | "goal">)[],
): string {
  const failing = servers.filter(isFailing);
  const others = servers.filter((server) => !isFailing(server));
  return describeCounts(countServers(others), failing.length);
}

/** @param failing as in the document of a server */
function describeFailing(failing: FailingState["failing"], now: number): string {
  const duration = formatElapsed(Math.max(1000, now - failing.since));
  return `failing for ${duration}, ${count(failing.attempts, "attempt")}`;
}

/**
 * The state of a server or connection in words: the `statusText` of documents. The page calls this, too, because it
 * shows the passing time.
 * @param now in ms since the epoch
 */
export function describeState(described: DescribedState, now: number): string {
  const standing = describeStanding(described, now);
  const reason = reasonOfState(described);
  if (reason === undefined) return standing;
  return standing === "failed" ? reason : `${standing}: ${reason}`;
}

/** Why a server or connection does not run: the message of its last error; undefined if nothing has failed. */
export function reasonOfState(described: DescribedState): string | undefined {
  const { state, lastError } = described;
  const isFailed = state === "failed" || state === "reconnecting" || isFailing(described);
  return isFailed ? lastError?.message : undefined;
}

/** The state in words, without the reason for a failure. */
export function describeStanding(described: DescribedState, now: number): string {
  const {
    state,
    attempt = 1,
    retryAt,
    progress,
    lastError,
    failing,
    responsive,
    since,
  } = described;
  switch (state) {
    case "connected":
      return responsive === false ? "connected, but does not respond" : "connected";
    case "connecting": {
      if (isFailing(described)) return `${describeFailing(described.failing, now)}, trying again`;
      const number = attempt > 1 ? `, attempt ${attempt}` : "";
      return `connecting for ${formatDuration(Math.max(0, now - (since ?? now)))}${number}`;
    }
    case "authenticating":
      return progress?.url === undefined
        ? "waits for its authorization"
        : "waits for a login in the browser";
    case "reconnecting": {
      const wait =
        retryAt === undefined
          ? "soon"
          : `in ${formatWait(Math.max(1, Math.ceil((retryAt - now) / 1000)) * 1000)}`;
      const tried = isFailing(described) ? `${describeFailing(described.failing, now)}, ` : "";
      return `${tried}next attempt ${wait}`;
    }
    case "failed": {
      const isNew = now - (lastError?.at ?? 0) < JUST_NOW;
      return failing?.same === true && isNew ? "tried just now, the same error" : "failed";
    }
    case "idle":
      return "starts when it is called";
    case "notStarted":
      return "not started";
    case "stopping":
      return isFailing(described)
        ? `${describeFailing(described.failing, now)}, next attempt soon`
        : "stopping";
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
