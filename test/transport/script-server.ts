import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import process from "node:process";
import { openStdioTransport, type StdioTarget } from "../../src/transport/stdio.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { TransportRecorder } from "../contract/transport.ts";
import { commandLineOf, pidsWithEnv } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";

export const NEVER = new AbortController().signal;
export const MEGABYTE = 1024 * 1024;

export interface Setup {
  readonly link: Transport;
  readonly events: TransportRecorder;
  /** The pids of the child and all that descends from it. */
  pids(): number[];
  /** Waits for a process of this stage whose command line contains a text. */
  running(text: string): Promise<number>;
  closed(): Promise<void>;
}

/** A link to `sh -c script`; afterwards nothing that it started may run. */
export async function withScript(
  script: string,
  run: (setup: Setup) => Promise<void>,
  changes: Partial<StdioTarget> = {},
): Promise<void> {
  const mark = randomUUID();
  const events = new TransportRecorder();
  const env = { ...changes.env, MARK: mark };
  const link = openStdioTransport({ ...target(script), ...changes, env });
  await link.open(events, NEVER);
  const pidOf = (text: string) =>
    pidsWithEnv(mark).find((pid) => commandLineOf(pid).includes(text));
  try {
    await run({
      link,
      events,
      pids: () => pidsWithEnv(mark),
      running: (text) => waitFor(`a process "${text}"`, () => pidOf(text)),
      closed: () => events.until("the end", () => events.causes.length > 0),
    });
  } finally {
    await link.close();
  }
  const left = pidsWithEnv(mark).map(commandLineOf);
  assert.deepEqual(left, [], "nothing is left once close has settled");
  assert.deepEqual([events.causes.length, events.events.at(-1)], [1, "closed"]);
}

export function target(script: string): StdioTarget {
  return {
    server: "x",
    command: "sh",
    args: ["-c", script],
    env: {},
    hubEnv: { PATH: process.env["PATH"] },
    cwd: undefined,
    maxMessage: 64 * MEGABYTE,
    secrets: [],
  };
}
