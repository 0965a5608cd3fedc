import { setTimeout as pause } from "node:timers/promises";
import type { Chance } from "./chance.ts";
import { childrenOf, type ServerProcess, signalTo } from "./processes.ts";

/** Kills, stops and continues servers at random times. */
export class Trouble {
  readonly counts = { kills: 0, stops: 0 };
  readonly #hub: number;
  readonly #calm: ReadonlySet<string>;
  readonly #chance: Chance;
  readonly #stopped = new Set<Promise<void>>();

  constructor(hub: number, calm: ReadonlySet<string>, chance: Chance) {
    this.#hub = hub;
    this.#calm = calm;
    this.#chance = chance;
  }

  /** Goes on until the signal is aborted; by the end nobody is stopped any more. */
  async run(signal: AbortSignal): Promise<void> {
    const chance = this.#chance;
    while (!signal.aborted) {
      await pause(chance.between(20, 1200), undefined, { signal }).catch(() => {});
      const victims = childrenOf(this.#hub).filter(({ server }) => !this.#calm.has(server));
      if (signal.aborted || victims.length === 0) continue;
      const isMassacre = chance.happens(0.03);
      const chosen = isMassacre ? victims : [chance.pick(victims)];
      const way = chance.weigh([
        [5, "SIGKILL"],
        [1, "SIGTERM"],
        [3, "SIGSTOP"],
      ] as const);
      for (const victim of chosen) {
        if (way === "SIGSTOP") this.#stop(victim, signal);
        else if (signalTo(victim, way)) this.counts.kills++;
      }
    }
    await Promise.all(this.#stopped);
  }

  #stop(victim: ServerProcess, signal: AbortSignal): void {
    if (!signalTo(victim, "SIGSTOP")) return;
    this.counts.stops++;
    const length = this.#chance.between(50, 4000);
    const stopped = pause(length, undefined, { signal })
      .catch(() => {})
      .then(() => void signalTo(victim, "SIGCONT"))
      .finally(() => this.#stopped.delete(stopped));
    this.#stopped.add(stopped);
  }
}
