import type { Clock } from "../base/clock.ts";
import type { EventBus, StateName } from "../base/hub-events.ts";
import { formatDuration } from "../base/format.ts";
import { isRunnable, type Manifest } from "../manifest/manifest.ts";
import type { StatusLine } from "../terminal/terminal.ts";

/** Interval between two updates of the status line, in ms. */
const REDRAW_INTERVAL = 100;

/** The state of a starting server. `since`: time at which that state began, in ms of the monotonic clock. */
export interface StartProgress {
  readonly server: string;
  readonly state: StateName;
  readonly since: number;
}

/**
 * Shows the progress of starting servers in a status line, until the returned function is called.
 * @param servers the servers to show; if undefined, all servers that start
 * @returns a function that stops showing the progress and clears the line. Any other output must clear the line first.
 */
export function openStartProgress(
  servers: readonly string[] | undefined,
  bus: EventBus,
  line: StatusLine,
  clock: Clock,
): () => void {
  const progress = new Map<string, StartProgress>(
    (servers ?? []).map((server) => [server, { server, state: "idle", since: clock.now() }]),
  );
  let cancelTimer = (): void => {};
  const draw = (): void => {
    cancelTimer();
    if (progress.size > 0) line.show(describeStartProgress([...progress.values()], clock.now()));
    cancelTimer = clock.after(REDRAW_INTERVAL, draw);
  };
  const unsubscribe = bus.subscribe(
    (event) => {
      if (event.kind !== "state") return;
      if (servers !== undefined && !progress.has(event.server)) return;
      const { server, to: state } = event;
      progress.set(server, { server, state, since: clock.now() });
      draw();
    },
    ["state"],
  );
  draw();
  return () => {
    unsubscribe();
    cancelTimer();
    line.clear();
  };
}

/** Names of the servers that a hub starts. */
export function startedServersOf({ servers }: Manifest): readonly string[] {
  return servers.flatMap((spec) => (spec.enabled && isRunnable(spec) ? [spec.name] : []));
}

/** Describes the starts: `2 of 5 ready, 1 failed; waiting for git 2.3 s, files 900 ms`, with the longest wait first. */
export function describeStartProgress(all: readonly StartProgress[], now: number): string {
  const waiting = all
    .filter(({ state }) => isStarting(state))
    .toSorted((a, b) => a.since - b.since)
    .map(({ server, since }) => `${server} ${formatDuration(now - since)}`);
  const ready = all.filter(({ state }) => state === "connected").length;
  const failed = all.filter(({ state }) => hasFailed(state)).length;
  const counts = `${ready} of ${all.length} ready${failed === 0 ? "" : `, ${failed} failed`}`;
  return waiting.length > 0 ? `${counts}; waiting for ${waiting.join(", ")}` : counts;
}

function isStarting(state: StateName): boolean {
  return state === "connecting" || state === "authenticating";
}

/** Whether a start has failed. While servers start, a server is stopped (`stopping`) only after a failure. */
function hasFailed(state: StateName): boolean {
  return state === "failed" || state === "reconnecting" || state === "stopping";
}
