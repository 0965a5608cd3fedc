import type { Clock } from "../../base/clock.ts";
import type { EventBus, StateName } from "../../base/events.ts";
import { type Manifest, isRunnable } from "../../manifest/schema.ts";
import { formatDuration, type StatusLine } from "../../terminal/terminal.ts";

/** How often the times are drawn anew, in ms. */
const TICK = 100;

/** What is waited for; `since` is when its state began, in ms of a clock. */
export interface StartProgress {
  readonly server: string;
  readonly state: StateName;
  readonly since: number;
}

/**
 * Draws how far the start of these servers is, in one line of a terminal, until it is told to end.
 * @returns the end, which clears the line; what others print meanwhile has to clear it before.
 */
export function openStartProgress(
  servers: readonly string[],
  bus: EventBus,
  line: StatusLine,
  clock: Clock,
): () => void {
  const all = new Map<string, StartProgress>(
    servers.map((server) => [server, { server, state: "idle", since: clock.now() }]),
  );
  let undo = (): void => {};
  const draw = (): void => {
    undo();
    line.show(describeStartProgress([...all.values()], clock.now()));
    undo = clock.after(TICK, draw);
  };
  const unsubscribe = bus.subscribe(
    (event) => {
      if (event.kind !== "state" || !all.has(event.server)) return;
      const { server, to: state } = event;
      all.set(server, { server, state, since: clock.now() });
      draw();
    },
    ["state"],
  );
  draw();
  return () => {
    unsubscribe();
    undo();
    line.clear();
  };
}

/** The names of the servers that a hub starts. */
export function startedBy({ servers }: Manifest): readonly string[] {
  return servers.flatMap((spec) => (spec.enabled && isRunnable(spec) ? [spec.name] : []));
}

/** `2 of 5 ready, 1 failed; waiting for git 2.3 s, files 900 ms`: who has been waited for longest comes first. */
export function describeStartProgress(all: readonly StartProgress[], now: number): string {
  const waiting = all
    .filter(({ state }) => isWaitedFor(state))
    .toSorted((a, b) => a.since - b.since)
    .map(({ server, since }) => `${server} ${formatDuration(now - since)}`);
  const ready = all.filter(({ state }) => state === "connected").length;
  const failed = all.filter(({ state }) => hasFailed(state)).length;
  const counts = `${ready} of ${all.length} ready${failed === 0 ? "" : `, ${failed} failed`}`;
  return waiting.length > 0 ? `${counts}; waiting for ${waiting.join(", ")}` : counts;
}

function isWaitedFor(state: StateName): boolean {
  return state === "connecting" || state === "authenticating";
}

/** One that is being stopped while all start has failed before. */
function hasFailed(state: StateName): boolean {
  return state === "failed" || state === "reconnecting" || state === "stopping";
}
