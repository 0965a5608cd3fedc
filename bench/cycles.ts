import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { type Clock, sleep, systemClock } from "../src/base/clock.ts";
import { EventBus } from "../src/base/events.ts";
import { Hub } from "../src/hub/hub.ts";
import { loadManifest } from "../src/manifest/load.ts";
import type { ExternalServer, Manifest } from "../src/manifest/manifest.ts";
import { memorySnapshots } from "../src/snapshot/snapshots.ts";
import type { Transport } from "../src/transport/transport.ts";
import { parseOwnerTag } from "../src/process/orphans.ts";
import { listProcesses } from "../src/process/process-table.ts";
import { openStdioTransport } from "../src/transport/stdio.ts";
import { type CyclesJob, type CyclesResult, type Leftovers, PACES, type Pace } from "./job.ts";
import { countDescriptors } from "./usage.ts";

const DIARY = fileURLToPath(new URL("peers/diary.ts", import.meta.url));
/** What is told to end may take so long until the system shows it, in ms. */
const END_LIMIT = 2000;
const END_PAUSE = 10;
/** At random means within so many ms: in the middle of a start, of a handshake, or of an end. */
const LONGEST = 60;

/** Starts, stops and reconnects servers at every pace there is. Whatever would keep this process from ending fails the job. */
export async function cycle(job: CyclesJob): Promise<CyclesResult> {
  const names = Array.from({ length: job.servers }, (_, at) => `c${at}`);
  const clock = new CountingClock();
  const bus = new EventBus();
  const hub = new Hub({
    manifest: await makeManifest(job.folder, names),
    bus,
    clock,
    digest: (text) => createHash("sha256").update(text).digest(),
    snapshots: memorySnapshots(),
    resolveIdentity: () => Promise.resolve(undefined),
    openTransport: (spec) => Promise.resolve(linkTo(spec)),
  });
  // What is loaded and opened by the first start stays.
  await hub.startAllAndSettle();
  await hub.stopAll();
  const descriptors = countDescriptors(process.pid);

  const times = new Map<Pace, number>();
  for (const pace of PACES) {
    const began = performance.now();
    await Promise.all(names.map((name) => perform[pace](new Words(hub, bus, name), job)));
    times.set(pace, performance.now() - began);
  }
  await hub.close();
  const left = await countLeft(descriptors, clock);
  const diaries = names.flatMap((name) => readDiary(join(job.folder, name)));
  const count = (word: string) => diaries.filter((line) => line.startsWith(word)).length;
  return {
    times: Object.fromEntries(times) as Record<Pace, number>,
    lives: count("start"),
    overlaps: count("meet"),
    left,
  };
}

async function makeManifest(folder: string, names: readonly string[]): Promise<Manifest> {
  const server = (name: string) => ({
    command: process.execPath,
    args: [DIARY, join(folder, name)],
  });
  const servers = Object.fromEntries(names.map((name) => [name, server(name)]));
  const file = join(folder, "toolmux.json");
  writeFileSync(file, JSON.stringify({ servers }));
  const { env, platform } = process;
  const loaded = await loadManifest({ files: [file], env, cwd: folder, platform });
  if (!loaded.ok) throw new Error(`no manifest: ${JSON.stringify(loaded.problems)}`);
  return loaded.manifest;
}

function linkTo(spec: ExternalServer): Transport {
  if (spec.kind !== "stdio") throw new Error("All servers here are processes.");
  const { name, command, args, env, cwd, maxMessage } = spec;
  const target = { server: name, command, args, env, cwd, maxMessage };
  return openStdioTransport({ ...target, hubEnv: process.env, secrets: [] });
}

/** The system's, and how many of its timers are armed. */
class CountingClock implements Clock {
  armed = 0;

  now(): number {
    return systemClock.now();
  }

  after(ms: number, callback: () => void): () => void {
    this.armed++;
    let isArmed = true;
    const disarm = (): void => {
      if (isArmed) this.armed--;
      isArmed = false;
    };
    const cancel = systemClock.after(ms, () => {
      disarm();
      callback();
    });
    return () => {
      disarm();
      cancel();
    };
  }
}

/** What can be said to a hub of one server. */
class Words {
  readonly #hub: Hub;
  readonly #bus: EventBus;
  readonly #name: string;

  constructor(hub: Hub, bus: EventBus, name: string) {
    this.#hub = hub;
    this.#bus = bus;
    this.#name = name;
  }

  start(): void {
    this.#hub.start(this.#name);
  }

  stop(): Promise<void> {
    return this.#hub.stop(this.#name);
  }

  reconnect(): void {
    this.#hub.reconnect(this.#name);
  }

  /** Settles when it connects the next time. */
  connected(): Promise<void> {
    return new Promise((resolve) => {
      const undo = this.#bus.subscribe(
        (event) => {
          if (event.kind !== "state" || event.server !== this.#name) return;
          if (event.to !== "connected") return;
          undo();
          resolve();
        },
        ["state"],
      );
    });
  }
}

const perform: Readonly<Record<Pace, (words: Words, job: CyclesJob) => Promise<unknown>>> = {
  atOnce: (words, { cycles }) => {
    const stops = Array.from({ length: cycles }, () => {
      words.start();
      return words.stop();
    });
    return Promise.all(stops);
  },
  turnByTurn: (words, { cycles }) => alternate(words, cycles, nextTurn),
  atRandom: (words, { cycles }) => alternate(words, cycles, () => sleep(Math.random() * LONGEST)),
  oneByOne: async (words, { cycles }) => {
    for (let at = 0; at < cycles; at++) {
      const up = words.connected();
      words.start();
      await up;
      await words.stop();
    }
  },
  reconnects: async (words, { reconnects }) => {
    words.start();
    // The first of these find an attempt that runs, the others a connection.
    for (let round = 0; round < 2; round++) {
      const up = words.connected();
      for (let at = 0; at < reconnects; at++) words.reconnect();
      await up;
    }
  },
};

/** Starts and stops, without waiting for more than these pauses. */
async function alternate(words: Words, cycles: number, pause: () => Promise<void>): Promise<void> {
  let stop: Promise<void> | undefined;
  for (let at = 0; at < cycles; at++) {
    words.start();
    await pause();
    stop = words.stop();
    await pause();
  }
  await stop;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

async function countLeft(before: number | undefined, clock: CountingClock): Promise<Leftovers> {
  const end = performance.now() + END_LIMIT;
  for (;;) {
    const entries = await listProcesses();
    const own = entries.filter(({ tags }) =>
      tags.some((tag) => parseOwnerTag(tag)?.pid === process.pid),
    );
    const now = countDescriptors(process.pid);
    const descriptors = now === undefined || before === undefined ? null : now - before;
    const isClean = own.length === 0 && (descriptors ?? 0) <= 0;
    if (isClean || performance.now() > end) {
      return { processes: own.length, descriptors, timers: clock.armed };
    }
    await sleep(END_PAUSE);
  }
}

function readDiary(file: string): readonly string[] {
  return existsSync(file) ? readFileSync(file, "utf8").trimEnd().split("\n") : [];
}
