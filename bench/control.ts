import { request } from "node:http";
import process from "node:process";
import { sleep } from "../src/base/clock.ts";
import { findRunningHubs } from "../src/control/running-hubs.ts";
import type { Turn } from "./contest.ts";
import type { HubScene, Stage } from "./contestants.ts";
import type { Plan } from "./plan.ts";
import { difference, ECHO, entrantOf, middle, race } from "./race.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/**
 * The cost of the control socket: `open` is a hub with an open control socket, `none` a hub with `control = false`.
 */
export interface ControlResult {
  /** Medians of the time from the start of the process to the answer to `initialize`, in ms. */
  readonly start: { readonly open: number; readonly none: number };
  /**
   * Medians of the memory that is not shared with other processes, while the socket is not used, in bytes; NaN if
   * unknown.
   */
  readonly memory: { readonly open: number; readonly none: number };
  /**
   * CPU time of a call in µs: medians of the rounds. `alone`: without a reader of events. `follower`:
   * the additional time with a reader of all events.
   */
  readonly call: { readonly alone: number; readonly follower: number };
}

/** Time that a hub is idle before its memory is measured, in ms; its socket opens during this time. */
const REST = 2000;
const MEMORY_RUNS = 5;
const SEARCH_PAUSE = 20;
/** How many times as many rounds as for other loads measure a reader of events. */
const FOLLOWER_ROUNDS = 5;

/** Measures the cost of the control socket. @returns undefined if the executable has not been built */
export async function measureControl(
  stage: Stage,
  { starts, pace }: Plan,
): Promise<ControlResult | undefined> {
  const open = stage.hub(1, ECHO);
  const none = stage.hub(1, ECHO, { hub: { control: false } });
  if (open === undefined || none === undefined) return undefined;
  const hubs = [open, none];
  for (const { peer } of hubs) await runJob({ kind: "first", peer, tools: 1, runs: 1 });
  const peers = hubs.map(({ peer: command }) => ({ command, speaksFirst: false }));
  const { times } = await runJob({ kind: "start", peers, runs: 2 * starts });
  const [openStart = Number.NaN, noneStart = Number.NaN] = times.map((each) => median(each));
  const memory = hubs.map((): number[] => []);
  for (let run = 0; run < MEMORY_RUNS; run++) {
    for (const [at, { peer }] of hubs.entries()) {
      const { holding } = await runJob({ kind: "idle", peer, tools: 1, rest: REST, duration: 1 });
      memory[at]?.push(holding?.own ?? Number.NaN);
    }
  }
  const [openMemory = Number.NaN, noneMemory = Number.NaN] = memory.map((each) => median(each));
  return {
    start: { open: openStart, none: noneStart },
    memory: { open: openMemory, none: noneMemory },
    call: await measureFollower(stage, pace),
  };
}

async function measureFollower(stage: Stage, pace: Plan["pace"]): Promise<ControlResult["call"]> {
  const [alone, followed] = [stage.hub(1, ECHO), stage.hub(1, ECHO)];
  const abort = new AbortController();
  const reading = followed && readEvents(followed, abort.signal);
  // With more calls in flight, the reader could not keep up with the events, and the hub would close the event stream.
  const entrants = { alone: entrantOf(alone), followed: entrantOf(followed) };
  // The difference is small beside the variation from round to round, so it needs many rounds.
  const long = { ...pace, rounds: FOLLOWER_ROUNDS * pace.rounds };
  const run = await race(entrants, { flight: 16 }, long).finally(() => abort.abort());
  const ends = (await reading) ?? 0;
  if (ends > 0) throw new Error(`the reader of events was ended ${ends} times`);
  const cpu = (turn: Turn): number | null => turn.cpu;
  return {
    alone: middle(run, cpu, "alone"),
    follower: difference(run, cpu, "followed", "alone"),
  };
}

/**
 * Reads all events of a hub as soon as it runs. @returns how often the event stream was closed before `signal` was
 * aborted
 */
async function readEvents({ peer, file }: HubScene, signal: AbortSignal): Promise<number> {
  const environment = { env: peer.env, platform: process.platform };
  let opened = 0;
  while (!signal.aborted) {
    const hubs = await findRunningHubs(environment);
    const hub = hubs.find(({ manifest }) => manifest.includes(file));
    if (hub === undefined) {
      await sleep(SEARCH_PAUSE);
      continue;
    }
    opened++;
    await new Promise<void>((resolve) => {
      const { socket: socketPath } = hub;
      const outgoing = request({ socketPath, path: "/v1/events", signal }, (response) => {
        response
          .on("close", resolve)
          .on("error", () => {})
          .resume();
      });
      outgoing.on("error", () => resolve()).end();
    });
  }
  return opened - 1;
}
