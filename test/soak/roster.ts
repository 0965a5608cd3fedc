import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { type Errands, FAULTY, GOOD, MOODY, SCRIPTED } from "./errand.ts";

/** Calls take so long at most, in ms; edits change the first within its bounds. */
export const LIMITS = { call: { least: 1500, most: 3000 }, total: 6000 } as const;
/** A server that nothing is done to, on a machine that may be busy. */
const CALM_LIMIT = 20_000;
/** The environment variable by which a server's process says which one it is. */
export const NAME_VARIABLE = "SOAK_SERVER";

/** A server that is in the manifest all the time. */
export interface Resident {
  readonly name: string;
  /** Nothing is done to it, so every call has to succeed. */
  readonly isCalm: boolean;
  /** As the manifest has it. */
  readonly entry: Entry;
  readonly errands: Errands;
  /** A tool that it always lists. */
  readonly tool: string;
}

export type Entry = Readonly<Record<string, unknown>>;

/** A server that comes and goes: `mark` is in its arguments, and shows in its list; `limit` is a setting. */
export interface Guest {
  /** It takes its time to end, so that two of it would be seen. */
  readonly isStubborn: boolean;
  readonly mark: number;
  readonly limit: number;
}

const SERVERS = fileURLToPath(new URL("../../test/fixtures/servers/", import.meta.url));

export function residents(folder: string, seed: number): readonly Resident[] {
  const scripted = (name: string, args: readonly string[] = [], more: Entry = {}): Resident => ({
    name,
    isCalm: false,
    entry: entryOf(name, "scripted", args, more),
    errands: SCRIPTED,
    tool: "echo",
  });
  const moody = (name: string, moods: readonly string[], more: Entry = {}): Resident => {
    const lives = ["--seed", String(seed), "--lives", join(folder, `${name}.lives`)];
    const args = [...moods.flatMap((mood) => ["--mood", mood]), ...lives];
    const entry = entryOf(name, "random-faults", args, more);
    return { name, isCalm: false, entry, errands: MOODY, tool: "echo" };
  };
  const calmLimits = { callTimeout: CALM_LIMIT, maxCallTimeout: 2 * CALM_LIMIT };
  return [
    { ...scripted("calm", [], calmLimits), isCalm: true, errands: GOOD },
    scripted("steady", ["--pages", "3"]),
    scripted("lazy", [], { lazy: true, idleStop: 700 }),
    scripted("idler", [], { idleStop: 300 }),
    scripted("stubborn", ["--ignore-term"]),
    {
      name: "faulty",
      isCalm: false,
      entry: entryOf("faulty", "faulty"),
      errands: FAULTY,
      tool: "fine",
    },
    moody("mortal", ["mortal", "halting"]),
    moody("sleepy", ["sleepy", "chatty"]),
    moody("restless", ["restless"]),
    moody("late", ["late", "mortal"], { connectTimeout: 1000 }),
    moody("wild", ["mortal", "sleepy", "halting", "chatty", "restless", "stubborn"]),
  ];
}

export function guestEntry(name: string, { isStubborn, mark, limit }: Guest): Entry {
  const args = ["--tool", markOf(mark), "--bare", "--tool", "echo"];
  const more = isStubborn ? ["--ignore-term"] : [];
  return entryOf(name, "scripted", [...args, ...more], { callTimeout: limit });
}

/** The tool that a guest has as long as that is its mark. */
export function markOf(mark: number): string {
  return `mark_${mark}`;
}

function entryOf(
  name: string,
  program: string,
  args: readonly string[] = [],
  more: Entry = {},
): Entry {
  const env = { [NAME_VARIABLE]: name };
  return {
    command: process.execPath,
    args: [join(SERVERS, `${program}.mjs`), ...args],
    env,
    ...more,
  };
}
