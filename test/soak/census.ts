import type { Editor } from "./editor.ts";
import type { Faults } from "./faults.ts";
import type { ServerProcess } from "./processes.ts";
import type { Resident } from "./roster.ts";

export interface CensusParts {
  readonly faults: Pick<Faults, "add">;
  readonly editor: Pick<Editor, "possible">;
  readonly residents: readonly Pick<Resident, "name">[];
  /** The hub's children. */
  children(): readonly Pick<ServerProcess, "pid" | "server">[];
  /** ms */
  now(): number;
}

/** A server that is not wanted any more finishes its calls and ends within so many ms. */
const GONE = 15_000;

/** Counts the servers' processes: one of each, and of nobody who is gone. */
export class Census {
  /** Processes at the last count. */
  size = 0;
  readonly #parts: CensusParts;
  /** What was told already. */
  readonly #told = new Set<string>();

  constructor(parts: CensusParts) {
    this.#parts = parts;
  }

  look(): void {
    const { editor, residents } = this.#parts;
    const now = this.#parts.now();
    const children = this.#parts.children();
    this.size = children.length;
    for (const [server, processes] of Map.groupBy(children, (child) => child.server)) {
      const pids = processes.map(({ pid }) => pid).join(" and ");
      if (processes.length > 1) this.#blame(`${server} runs more than once: ${pids}`);
      if (residents.some(({ name }) => name === server)) continue;
      const possible = editor.possible(server, now - GONE, now);
      if (possible.every((guest) => guest === undefined))
        this.#blame(`${server} is not wanted any more and still runs: ${pids}`);
    }
  }

  #blame(text: string): void {
    if (this.#told.has(text)) return;
    this.#told.add(text);
    this.#parts.faults.add(text);
  }
}
