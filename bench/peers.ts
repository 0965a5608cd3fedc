/**
 * The comparison with programs of others: installs them into dist/peers, runs them side by side with a direct
 * connection, a byte pump, toolmux and a relay made of the MCP SDK, over stdio and over HTTP, and prints a table
 * for each. With --write it puts the tables and a chart into docs/benchmarks.md.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { buildPrograms } from "./build.ts";
import { drawChart } from "./against/chart.ts";
import { Stage } from "./contestants.ts";
import { endAll, gather, type Track, TRACKS } from "./against/entrants.ts";
import { describeMachine } from "./machine.ts";
import { type Installations, installPeers } from "./against/install.ts";
import { type Course, race, type Standing } from "./against/race.ts";
import { formatMachine } from "./report.ts";
import { formatStandings, publish } from "./against/standings.ts";

const USAGE = `usage: bun bench/peers.ts [--quick] [--only TRACK] [--rounds N] [--write]

  --quick       one short round
  --only TRACK  stdio or HTTP alone
  --rounds N    how often each is run (3, quick 1); the figures are medians
  --write       puts the tables into docs/benchmarks.md, and the chart beside it`;
const LATEST = fileURLToPath(new URL("results/peers.json", import.meta.url));

interface Wishes {
  readonly course: Course;
  readonly tracks: readonly Track[];
  readonly write: boolean;
}

/** @throws {TypeError} if the command line is not as USAGE has it. */
function parseWishes(argv: readonly string[]): Wishes {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      rounds: { type: "string" },
      write: { type: "boolean", default: false },
    },
  });
  const { quick, only, write } = values;
  const rounds = Number(values.rounds ?? (quick ? 1 : 3));
  if (!Number.isInteger(rounds) || rounds < 1) throw new TypeError("--rounds wants a number");
  const tracks = TRACKS.filter((track) => only === undefined || only === track);
  if (tracks.length === 0) throw new TypeError("--only wants stdio or HTTP");
  // A table of one of them alone would take the other's away.
  if (write && only !== undefined) throw new TypeError("--write wants both, without --only");
  const course = quick
    ? { rounds, warmUp: 200, duration: 200 }
    : { rounds, warmUp: 400, duration: 600 };
  return { course, tracks, write };
}

async function main({ course, tracks, write }: Wishes, folder: string): Promise<void> {
  const report = (text: string) => console.error(text);
  const installations = installPeers(report);
  const stage = new Stage(buildPrograms(folder), folder);
  if (stage.programs.stale) report("dist/toolmux is older than its sources: run `npm run build`");
  const machine = describeMachine();
  console.log(formatMachine(machine));
  if (machine.load > machine.cores) report("OTHERS USE THIS MACHINE: the figures are worth little");
  const standings = new Map<Track, readonly Standing[]>();
  for (const track of tracks) {
    report(`running over ${track}`);
    standings.set(track, await race(gather(stage, installations, track), course, report));
  }
  for (const [track, ofTrack] of standings) console.log(`\n${formatStandings(track, ofTrack)}`);
  mkdirSync(dirname(LATEST), { recursive: true });
  const figures = { machine, course, standings: Object.fromEntries(standings) };
  writeFileSync(LATEST, `${JSON.stringify(figures, undefined, 2)}\n`);
  if (write) publish(machine, standings, await drawChart(installationOf(installations), standings));
}

/** @throws if the packages of npm are not there: one of them draws the chart. */
function installationOf({ npm }: Installations): string {
  if (npm.isThere) return npm.folder;
  throw new Error(`the chart cannot be drawn: ${npm.why}`);
}

async function run(wishes: Wishes): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "bench-"));
  // What the jobs make for themselves goes with it, even if they are killed.
  process.env["TMPDIR"] = folder;
  const clean = () => {
    endAll();
    rmSync(folder, { recursive: true, force: true });
  };
  const leave = () => {
    clean();
    process.exit(130);
  };
  process.on("SIGINT", leave).on("SIGTERM", leave).on("SIGHUP", leave);
  try {
    await main(wishes, folder);
  } finally {
    clean();
  }
}

try {
  await run(parseWishes(process.argv.slice(2)));
} catch (error) {
  console.error(error instanceof TypeError ? `${error.message}\n\n${USAGE}` : error);
  process.exitCode = error instanceof TypeError ? 2 : 1;
}
