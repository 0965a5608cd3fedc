import type { HttpStreamsJob, HttpStreamsResult } from "../job.ts";
import { readUsage } from "../usage.ts";
import { Host } from "./host.ts";
import { type Message, Visitor } from "./visitor.ts";

/** How many sessions are begun at a time. */
const CROWD = 50;
/** ms that everybody has to hear of a change. */
const HEAR_LIMIT = 10_000;
/** Between two changes, in ms: a server whose list changes all the time is asked for it ever more rarely. */
const CALM = 500;
/** Between two looks at memory, in ms. */
const LOOK_PAUSE = 100;

/** A session whose stream is read. */
interface Listener {
  readonly visitor: Visitor;
  heard: number;
}

/** Opens sessions that do nothing but listen, weighs them, and lets a server's list of tools change. */
export async function listenHttp(job: HttpStreamsJob): Promise<HttpStreamsResult> {
  const host = await Host.start(job.peer);
  const caller = await Visitor.arrive(host.url);
  // What is remembered of another run is not what there is.
  while (!(await lists(caller, 0)));
  const crowd = new Crowd(host.url);
  // The first ones warm up.
  await crowd.grow(CROWD);
  const before = await weighAtRest(host.pid, job.rest);
  await crowd.grow(job.sessions);
  const after = await weighAtRest(host.pid, job.rest);
  let missed = 0;
  const times: number[] = [];
  for (let change = 1; change <= job.changes; change++) {
    const asked = performance.now();
    const everybody = crowd.hears(change);
    await caller.ask("tools/call", { name: job.tool, arguments: { key: String(change) } });
    missed += await everybody;
    times.push(performance.now() - asked);
    if (!(await lists(caller, change))) throw new Error(`not the list after change ${change}`);
    await new Promise((resolve) => setTimeout(resolve, CALM));
  }
  const { strays } = crowd;
  crowd.close();
  caller.close();
  await host.end();
  const { sessions, changes, rest } = job;
  const each = before === null || after === null ? null : (after - before) / sessions;
  return { sessions, changes, rest, missed, strays, slowest: Math.max(...times), each };
}

/** Whether the list of tools is as the server has made it with that change. */
async function lists(caller: Visitor, change: number): Promise<boolean> {
  const [message] = await caller.ask("tools/list", {});
  return JSON.stringify(message?.result ?? {}).includes(`changed_${change}"`);
}

class Crowd {
  readonly #url: URL;
  readonly #listeners: Listener[] = [];
  #look = (): void => {};
  /** What they were told that was no such change, or that was told twice. */
  strays = 0;
  #changes = 0;

  constructor(url: URL) {
    this.#url = url;
  }

  async grow(by: number): Promise<void> {
    for (let left = by; left > 0; left -= CROWD) {
      const some = Math.min(left, CROWD);
      await Promise.all(Array.from({ length: some }, () => this.#admit()));
    }
  }

  /** @returns how many of them have not heard of that change in time. */
  hears(change: number): Promise<number> {
    this.#changes = change;
    return new Promise((resolve) => {
      const missing = () => this.#listeners.filter(({ heard }) => heard < change);
      const settle = () => {
        clearTimeout(timer);
        const deaf = missing();
        for (const listener of deaf) listener.heard = change;
        resolve(deaf.length);
      };
      const timer = setTimeout(settle, HEAR_LIMIT);
      let left = this.#listeners.length;
      this.#look = () => {
        if (--left === 0) settle();
      };
    });
  }

  close(): void {
    this.#look = () => {};
    for (const { visitor } of this.#listeners) visitor.close();
  }

  async #admit(): Promise<void> {
    const listener: Listener = { visitor: await Visitor.arrive(this.#url), heard: 0 };
    this.#listeners.push(listener);
    // Who has not been given a list is not told that it is another.
    await listener.visitor.ask("tools/list", {});
    // Its end is a change that was missed.
    listener.visitor.listen((message) => this.#hear(listener, message)).catch(() => {});
  }

  #hear(listener: Listener, { method }: Message): void {
    if (method !== "notifications/tools/list_changed" || listener.heard === this.#changes) {
      this.strays++;
      return;
    }
    listener.heard++;
    this.#look();
  }
}

/** The least that it holds while it has nothing to do for `rest` ms; null where that cannot be known. */
async function weighAtRest(pid: number, rest: number): Promise<number | null> {
  let least = Infinity;
  for (const end = performance.now() + rest; performance.now() < end || least === Infinity;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_PAUSE));
    const usage = readUsage(pid);
    if (usage === undefined) return null;
    least = Math.min(least, usage.rss);
  }
  return least;
}
