import type { Editor } from "./editor.ts";
import type { Faults } from "./faults.ts";
import { markOf, type Resident } from "./roster.ts";
import type { Message } from "./wire.ts";

export interface ListsParts {
  readonly faults: Pick<Faults, "add">;
  readonly editor: Pick<Editor, "guests" | "possible">;
  readonly residents: readonly Pick<Resident, "name" | "tool">[];
  /** ms */
  now(): number;
  /** Sends a request for the list. */
  ask(): void;
}

/** A list is answered within so many ms. */
const ANSWERED = 10_000;
/** Within so many ms the client is told that what it has is not what there is, and a new server is in the list. */
const TOLD = 3000;
const LISTED = 20_000;
/** By then every resident was there once. */
const COMPLETE = 30_000;

const GUEST = /^(guest-\d+)__/;

/** The list as a client keeps it: asked for at the start, and again whenever it is told that there is another. */
export class Lists {
  asked = 0;
  readonly #parts: ListsParts;
  readonly #began: number;
  #askedAt: number | undefined;
  #isStale = false;
  #held: readonly string[] = [];
  /** Tools of residents that were in some list: they are in all that come after it. */
  readonly #known = new Set<string>();

  constructor(parts: ListsParts) {
    this.#parts = parts;
    this.#began = parts.now();
  }

  ask(): void {
    this.#isStale = this.#askedAt !== undefined;
    if (this.#isStale) return;
    this.#askedAt = this.#parts.now();
    this.asked++;
    this.#parts.ask();
  }

  take({ result, error }: Message): void {
    const askedAt = this.#askedAt ?? 0;
    this.#askedAt = undefined;
    if (result?.tools === undefined) {
      this.#parts.faults.add(`no list: ${JSON.stringify(error)}`);
      return;
    }
    this.#held = result.tools.map(({ name }) => name);
    this.#judge(this.#held, askedAt);
    if (this.#isStale) this.ask();
  }

  /** Looks whether what the client has is what it should have by now. */
  look(): void {
    const { editor, faults, residents } = this.#parts;
    const now = this.#parts.now();
    if (this.#askedAt !== undefined) {
      if (now - this.#askedAt >= ANSWERED) faults.add(`no list for ${now - this.#askedAt} ms`);
      return;
    }
    for (const name of guestsIn(this.#held)) {
      if (editor.possible(name, now - TOLD, now).every((guest) => guest === undefined))
        faults.add(`the client was never told that ${name} is gone`);
    }
    if (now - this.#began < LISTED) return;
    for (const name of editor.guests) {
      const [guest, ...others] = editor.possible(name, now - LISTED, now);
      if (guest === undefined || others.length > 0) continue;
      const tool = `${name}__${markOf(guest.mark)}`;
      if (!this.#held.includes(tool)) faults.add(`${tool} was never listed`);
    }
    if (now - this.#began < COMPLETE) return;
    const missing = residents.filter(({ name, tool }) => !this.#held.includes(`${name}__${tool}`));
    if (missing.length > 0) faults.add(`not listed: ${missing.map(({ name }) => name).join()}`);
  }

  #judge(names: readonly string[], askedAt: number): void {
    const { editor, faults, residents } = this.#parts;
    const now = this.#parts.now();
    const all = new Set(names);
    if (all.size < names.length) faults.add("a name is twice in a list");
    for (const { name, tool } of residents) {
      if (all.has(`${name}__${tool}`)) this.#known.add(`${name}__${tool}`);
    }
    const missing = [...this.#known].filter((name) => !all.has(name));
    if (missing.length > 0) faults.add(`not in the list any more: ${missing.join()}`);
    for (const name of guestsIn(names)) {
      if (editor.possible(name, askedAt, now).every((guest) => guest === undefined))
        faults.add(`${name} is in a list, but not in the manifest`);
    }
  }
}

function guestsIn(names: readonly string[]): Set<string> {
  return new Set(names.flatMap((name) => GUEST.exec(name)?.[1] ?? []));
}
