/**
 * Compares toolmux with other programs. Installs them into dist/peers, and runs them in turns with a direct
 * connection, a byte pump, toolmux and a relay that is built with the MCP SDK, over stdio and over HTTP.
 */
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { cpus, loadavg } from "node:os";
import { dirname } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { VERSION } from "../src/base/version.ts";
import {
  type Endpoint,
  type Figures,
  killTagged,
  measure,
  measureTurns,
  SCENARIOS,
} from "./against/measure.ts";
import { type Installation, install, type Program, PROGRAMS } from "./against/programs.ts";
import { formatResults, publish, type Result, type ScenarioName } from "./against/report.ts";
import type { Pace } from "./contest.ts";
import type { Command } from "./peer.ts";
import { describeMachine, formatNumber, formatTable, versionOf } from "./report.ts";
import { type Relay, runMain, Stage, withFolder } from "./stage.ts";
import { median, ratiosOf, spreadOf } from "./stats.ts";

const USAGE = `usage: bun bench/peers.ts [--quick] [--only NAME] [--write]

  --quick      one short round
  --only NAME  only programs with NAME in their name, and toolmux
  --write      puts the tables into docs/benchmarks.md, and the chart beside it`;
const LATEST = fileURLToPath(new URL("results/peers.json", import.meta.url));
const TRANSPORTS = ["stdio", "HTTP"] as const;
/**
 * An environment variable that all processes of this run have. Its value starts with `TAG`, and differs for each
 * start of a program.
 */
const TAG_VARIABLE = "BENCH_RUN";
const TAG = `${process.pid}.`;

/** A program that takes part over one transport. */
export interface Candidate {
  readonly name: string;
  readonly isCompiled?: boolean;
  /** Prepares a new start of the program. @throws {Error} with the reason if the program is not installed */
  prepare(): Promise<Prepared>;
}

/** A program that is ready to be started. */
interface Prepared {
  readonly command: Command;
  readonly endpoint: Endpoint;
  readonly tool: string;
  readonly tag: string;
  /** The executable of the server behind the program. */
  readonly server: string;
}

type RoundFigures = Partial<Record<ScenarioName, Figures>>;

/**
 * Measures all candidates round by round. Each round begins with a different candidate. A candidate that has failed a
 * scenario does not run it again; one that has failed the first scenario runs no further scenario.
 */
export async function compare(
  candidates: readonly Candidate[],
  { rounds, ...times }: Pace,
  report: (text: string) => void,
): Promise<readonly Result[]> {
  const all = candidates.map((candidate) => ({
    candidate,
    scenarios: [...SCENARIOS],
    rounds: [] as RoundFigures[],
    fault: undefined as string | undefined,
  }));
  for (let round = 0; round < rounds; round++) {
    for (const at of all.keys()) {
      const one = all[(at + round) % all.length];
      if (one === undefined) continue;
      const { candidate } = one;
      const figures: RoundFigures = {};
      one.rounds.push(figures);
      for (const scenario of one.scenarios) {
        try {
          const job = { ...(await candidate.prepare()), ...times, scenario };
          figures[scenario.name] = await measure(job);
        } catch (error) {
          const why = reasonOf(error);
          const isFirst = scenario === SCENARIOS[0];
          if (one.fault === undefined) report(`${candidate.name}: ${why}`);
          one.fault ??= isFirst ? why : `${scenario.flight} in flight: ${why}`;
          one.scenarios = isFirst ? [] : one.scenarios.filter((other) => other !== scenario);
          if (isFirst) break;
        }
      }
    }
  }
  const own = all.find(({ candidate }) => isOwn(candidate))?.rounds ?? [];
  return all.map(({ candidate: { name }, rounds: measured, fault }) => {
    const ratios = measured.flatMap((figures, round) => {
      const [mine, theirs] = [own[round]?.many, figures.many];
      return mine && theirs ? mine.rate / theirs.rate : [];
    });
    return { name, figures: medians(measured), toolmuxRate: median(ratios), fault };
  });
}

function isOwn({ name }: Candidate): boolean {
  return name.startsWith("toolmux");
}

/** Number of pairs in the comparison with compiled programs, and the goal for calls per CPU second. */
const RIVAL_PAIRS = 15;
const RIVAL_GOAL = 2;

/**
 * Compares the calls per CPU second of toolmux, over HTTP with 64 in flight, with those of each compiled program: both
 * run all the time, and take turns.
 * @returns the verdict of `judgeRivals`, with the programs that could not be measured
 */
export async function compareWithCompiled(
  candidates: readonly Candidate[],
  times: Omit<Pace, "rounds">,
  report: (text: string) => void,
): Promise<{ readonly text: string; readonly isMissed: boolean | undefined }> {
  const own = candidates.find(isOwn);
  const scenario = SCENARIOS.find(({ name }) => name === "many") ?? SCENARIOS[1];
  const all: { readonly name: string; readonly ratios: readonly number[] }[] = [];
  const missing: string[] = [];
  for (const rival of candidates) {
    if (rival.isCompiled !== true || own === undefined) continue;
    try {
      const pair = [await own.prepare(), await rival.prepare()];
      const jobs = pair.map((prepared) => ({ ...prepared, ...times, scenario }));
      const [mine = [], theirs = []] = await measureTurns(jobs, RIVAL_PAIRS);
      const ratios = ratiosOf(theirs, mine);
      all.push({ name: rival.name, ratios });
    } catch (error) {
      report(`${rival.name}: ${reasonOf(error)}`);
      missing.push(`  NOT MEASURED: ${rival.name}: ${reasonOf(error)}`);
    }
  }
  const { text, isMissed } = judgeRivals(all);
  return { text: [text, ...missing].join("\n"), isMissed };
}

/**
 * Judges ratios of toolmux's calls per CPU second to those of compiled programs by the program that comes nearest.
 * @returns a table with the verdict; `isMissed` is true only if the whole 95 % interval lies below the goal, and
 * undefined without ratios
 */
export function judgeRivals(
  all: readonly { readonly name: string; readonly ratios: readonly number[] }[],
): { readonly text: string; readonly isMissed: boolean | undefined } {
  const title = "calls per CPU second over HTTP, 64 in flight, to those of compiled programs";
  const spreads = all
    .map(({ name, ratios }) => ({ name, spread: spreadOf(ratios) }))
    .filter(({ spread }) => !Number.isNaN(spread.median))
    .sort((one, other) => one.spread.median - other.spread.median);
  const [nearest] = spreads;
  if (nearest === undefined) {
    const loud = "  THE GOAL WAS NOT JUDGED: no compiled program could be measured";
    return { text: `${title}\n${loud}`, isMissed: undefined };
  }
  const isMissed = nearest.spread.high < RIVAL_GOAL;
  const rows = spreads.map(({ name, spread: { median: middle, low, high } }) => {
    const reached = middle >= RIVAL_GOAL ? "reached" : "not clearly missed";
    const verdict = name !== nearest.name ? "" : isMissed ? "missed" : reached;
    return [name, ...[middle, low, high].map((ratio) => `${formatNumber(ratio)} ×`), verdict];
  });
  const head = ["", "toolmux's", "95 % from", "to", `goal: ≥ ${RIVAL_GOAL} ×`];
  return { text: `${title}\n${formatTable([head, ...rows])}`, isMissed };
}

/** The median of each figure over the rounds. */
function medians(rounds: readonly RoundFigures[]): RoundFigures {
  const entries = SCENARIOS.flatMap(({ name }) => {
    const all = rounds.flatMap((figures) => figures[name] ?? []);
    if (all.length === 0) return [];
    const of = (key: keyof Figures): number | null => {
      const values = all.flatMap((figures) => figures[key] ?? []);
      return values.length > 0 ? median(values) : null;
    };
    const keys = ["calls", "p50", "p99", "rate", "cpu", "rss"] as const;
    return [[name, Object.fromEntries(keys.map((key) => [key, of(key)]))] as const];
  });
  return Object.fromEntries(entries);
}

/** The message of an error without the folders of this machine, because it is published. */
function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const folders = /(?<![\w:/])\/(?:[\w.@+-]+\/)+/g;
  return text.replaceAll(/\s+/g, " ").replaceAll(folders, "").trim().slice(0, 300);
}

/** All candidates for one transport: this project's own programs first, then third-party programs. */
function candidatesOf(
  transport: (typeof TRANSPORTS)[number],
  stage: Stage,
  programs: readonly Program[],
  installations: ReadonlyMap<string, Installation>,
): readonly Candidate[] {
  let starts = 0;
  const mark = (peer: Command, endpoint: Endpoint, tool: string): Prepared => {
    const tag = `${TAG}${transport}${++starts}.`;
    const command = { ...peer, env: { ...peer.env, [TAG_VARIABLE]: tag } };
    return { command, endpoint, tool, tag: `${TAG_VARIABLE}=${tag}`, server: stage.programs.echo };
  };
  const isStdio = transport === "stdio";
  const endpoint: Endpoint = isStdio ? { kind: "stdio" } : { kind: "http", url: undefined };
  const own = (name: string, relay: Relay): Candidate => ({
    name,
    prepare: async () => {
      const isRemote = !isStdio && (relay === "toolmux" || relay === "sdk");
      const { peer, tools } = isRemote ? stage.overHttp(relay) : stage.relay(relay);
      return mark(peer, endpoint, tools[0]);
    },
  });
  const ours = [
    ...(isStdio ? [own("direct", "direct"), own("byte pump", "pump")] : []),
    own(`toolmux ${VERSION}`, "toolmux"),
    own(`SDK relay ${versionOf("@modelcontextprotocol/server")}`, "sdk"),
  ];
  const others = programs.flatMap((program): readonly Candidate[] => {
    const start = isStdio ? program.stdio : program.http;
    if (start === undefined) return [];
    const prepare = async (): Promise<Prepared> => {
      const installation = installations.get(program.source);
      if (installation === undefined || "why" in installation) throw new Error(installation?.why);
      const folder = stage.makeFolder(`${transport}${starts + 1}`);
      const server = stage.server();
      const setup = { installed: installation.folder, folder, port: await findPort(), server };
      const { file, args, endpoint: reached, tool } = start(setup);
      const home = {
        HOME: folder,
        XDG_STATE_HOME: folder,
        NODE_ENV: "production",
        DO_NOT_TRACK: "1",
      };
      return mark({ file, args, env: { ...stage.env, ...home } }, reached, tool);
    };
    const { name, version, isCompiled = false } = program;
    return [{ name: `${name} ${version}`, isCompiled, prepare }];
  });
  return [...ours, ...others];
}

async function findPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

interface Options {
  readonly quick: boolean;
  readonly only: string | undefined;
  readonly write: boolean;
}

async function run({ quick, only = "", write }: Options, folder: string): Promise<void> {
  const report = (text: string): void => console.error(text);
  const programs = PROGRAMS.filter(({ name }) => name.includes(only));
  const sources = new Set(programs.map(({ source }) => source));
  const installations = new Map([...sources].map((name) => [name, install(name, report)] as const));
  const stage = await Stage.build(folder);
  const machine = describeMachine();
  console.log(machine);
  if ((loadavg()[0] ?? 0) > cpus().length)
    report("OTHERS USE THIS MACHINE: the figures are worth little");
  const pace: Pace = quick
    ? { rounds: 1, warmUp: 200, duration: 200 }
    : { rounds: 3, warmUp: 400, duration: 600 };
  const made = [stage, programs, installations] as const;
  const results = new Map<string, readonly Result[]>();
  const candidates = { stdio: candidatesOf("stdio", ...made), HTTP: candidatesOf("HTTP", ...made) };
  for (const transport of TRANSPORTS) {
    report(`running over ${transport}`);
    results.set(transport, await compare(candidates[transport], pace, report));
  }
  report("running in pairs with compiled programs");
  const short = { warmUp: 1000, duration: 400 };
  const compiled = await compareWithCompiled(candidates.HTTP, short, report);
  for (const [transport, all] of results) console.log(`\n${formatResults(transport, all)}`);
  console.log(`\n${compiled.text}`);
  if (compiled.isMissed === true) process.exitCode = 1;
  if (only !== "") return;
  mkdirSync(dirname(LATEST), { recursive: true });
  const figures = { machine, pace, results: Object.fromEntries(results), compiled };
  writeFileSync(LATEST, `${JSON.stringify(figures, undefined, 2)}\n`);
  if (write) publish(machine, results, compiled.text);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      write: { type: "boolean", default: false },
    },
  });
  const { quick, only, write } = values;
  // The written tables would have no rows for the programs that --only leaves out.
  if (write && only !== undefined)
    throw new TypeError("--write needs all programs, without --only");
  await withFolder(
    () => killTagged(`${TAG_VARIABLE}=${TAG}`),
    (folder) => run({ quick, only, write }, folder),
  );
}

if (import.meta.main) await runMain(main, USAGE);
