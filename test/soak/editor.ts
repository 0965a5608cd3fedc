import { renameSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import type { Chance } from "./chance.ts";
import { History } from "./history.ts";
import { type Guest, guestEntry, LIMITS, type Resident } from "./roster.ts";

const FIRST_GUESTS = 2;
const MOST_GUESTS = 4;
const FORMER = 3;
/** Stands for no file at all. */
const MISSING = "missing";

/** Edits the manifest in every way in which people and programs do, and knows what may be in force when. */
export class Editor {
  edits = 0;
  readonly #file: string;
  readonly #residents: readonly Resident[];
  readonly #chance: Chance;
  readonly #history = new History<Guest>();
  #guests: ReadonlyMap<string, Guest> = new Map();
  #settings = { healthInterval: 1000, callTimeout: LIMITS.call.least as number };
  #former: readonly string[] = [];
  #names = 0;
  #marks = 0;

  /** Writes the first manifest. */
  constructor(file: string, residents: readonly Resident[], chance: Chance) {
    this.#file = file;
    this.#residents = residents;
    this.#chance = chance;
    for (let guests = 0; guests < FIRST_GUESTS; guests++) this.#add();
    this.#note(this.#guests);
    writeFileSync(file, this.#text());
  }

  /** Whoever is in the manifest now beside the residents. */
  get guests(): readonly string[] {
    return [...this.#guests.keys()];
  }

  /** Those who went last. */
  get former(): readonly string[] {
    return this.#former;
  }

  /** What that guest may have been to the hub at some time between these, in ms; undefined: not there. */
  possible(name: string, from: number, to: number): readonly (Guest | undefined)[] {
    return this.#history.possible(name, from, to);
  }

  /** Edits at random times until the signal is aborted; what it leaves is a manifest. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const isHasty = this.#chance.happens(0.2);
      const wait = isHasty ? this.#chance.between(0, 200) : this.#chance.between(300, 5000);
      await pause(wait, undefined, { signal }).catch(() => {});
      if (!signal.aborted) await this.#edit();
    }
  }

  async #edit(): Promise<void> {
    const chance = this.#chance;
    this.edits++;
    const edit = chance.weigh<() => void | Promise<void>>([
      [4, () => this.#add()],
      [4, () => this.#remove()],
      [4, () => this.#change({ mark: ++this.#marks })],
      [3, () => this.#change({ limit: chance.between(LIMITS.call.least, LIMITS.call.most) })],
      [2, () => this.#set()],
      [1, () => {}],
      [3, () => this.#break()],
    ]);
    await edit();
    await this.#write();
  }

  #add(): void {
    if (this.#guests.size >= MOST_GUESTS) return this.#remove();
    const [number, mark] = [++this.#names, ++this.#marks];
    const guest = { isStubborn: number % 2 === 0, mark, limit: LIMITS.call.most };
    this.#guests = new Map([...this.#guests, [`guest-${number}`, guest]]);
  }

  #remove(): void {
    if (this.#guests.size === 0) return this.#add();
    const gone = this.#chance.pick(this.guests);
    this.#guests = new Map([...this.#guests].filter(([name]) => name !== gone));
    this.#former = [...this.#former, gone].slice(-FORMER);
  }

  #change(change: Partial<Guest>): void {
    if (this.#guests.size === 0) return this.#add();
    const changed = this.#chance.pick(this.guests);
    this.#guests = new Map(
      [...this.#guests].map(([name, guest]) =>
        name === changed ? [name, { ...guest, ...change }] : [name, guest],
      ),
    );
  }

  #set(): void {
    const { least, most } = LIMITS.call;
    const healthInterval = this.#chance.pick([0, 1000, 1500, 2000]);
    this.#settings = { healthInterval, callTimeout: this.#chance.between(least, most) };
  }

  /** Leaves something else than a manifest in its place for a while. */
  async #break(): Promise<void> {
    const whole = this.#text();
    const broken = this.#chance.pick([
      whole.slice(0, this.#chance.between(1, whole.length - 2)),
      whole.replace('"servers"', '"sorvers"'),
      whole.replace(/"callTimeout":\d+/, '"callTimeout":"soon"'),
      "",
      MISSING,
    ]);
    this.#note(undefined);
    if (broken === MISSING) rmSync(this.#file);
    else writeFileSync(this.#file, broken);
    await pause(this.#chance.between(0, 2500));
  }

  /** By rename, in place, or in place and in two pieces. */
  async #write(): Promise<void> {
    const text = this.#text();
    const way = this.#chance.weigh([
      [2, "rename"],
      [2, "place"],
      [1, "pieces"],
    ] as const);
    if (way === "pieces") {
      this.#note(undefined);
      writeFileSync(this.#file, text.slice(0, text.length / 2));
      await pause(this.#chance.between(0, 150));
    }
    // Whoever looks between these two lines must not see what nobody expects.
    this.#note(this.#guests);
    if (way === "rename") {
      writeFileSync(`${this.#file}.new`, text);
      renameSync(`${this.#file}.new`, this.#file);
    } else {
      writeFileSync(this.#file, text);
    }
  }

  #note(guests: ReadonlyMap<string, Guest> | undefined): void {
    this.#history.note(performance.now(), guests);
  }

  #text(): string {
    const servers = [
      ...this.#residents.map(({ name, entry }) => [name, entry] as const),
      ...[...this.#guests].map(([name, guest]) => [name, guestEntry(name, guest)] as const),
    ];
    const reconnect = { base: 100, max: 1000 };
    const { total: maxCallTimeout } = LIMITS;
    const defaults = { connectTimeout: 5000, maxCallTimeout, reconnect, ...this.#settings };
    return JSON.stringify({
      hub: { listWait: 3000 },
      defaults,
      servers: Object.fromEntries(servers),
    });
  }
}
