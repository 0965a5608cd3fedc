import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { freemem } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { sleep } from "../src/base/clock.ts";
import { findRunningHubs } from "../src/control/running-hubs.ts";
import type { Era } from "../src/protocol/modern.ts";
import { SKIP_WITHOUT_NATS } from "../test/harness/nats.ts";
import { answerSize } from "./answer.ts";
import type { Entrant, Pace, Turn } from "./contest.ts";
import { withFleet } from "./fleet-hubs.ts";
import { FLOODS } from "./flood-neighbours.ts";
import type { Command } from "./peer.ts";
import { difference, middle, race, ratio, tableOf, valuesOf } from "./race.ts";
import { formatNumber, type Table } from "./report.ts";
import { runJob } from "./runner.ts";
import { type Hub, RELAYS, SHAPES, type Shape, type Stage } from "./stage.ts";
import { mean, median, powerOf, ratiosOf, spreadOf } from "./stats.ts";
import type { OtlpProtocol } from "../src/manifest/telemetry.ts";

/** The lengths of the measurements. Times are in ms. */
export interface Plan {
  /** Number of starts of a hub, and of builds of a catalog. */
  readonly rounds: number;
  /** The rounds and times for programs that take turns. */
  readonly pace: Pace;
  /** Number of starts in a measurement of the start. */
  readonly starts: number;
  /** The scenario `idle`: idle time before the measurement, and length of the measurement. */
  readonly idle: { readonly rest: number; readonly duration: number };
  /** Reports a part of a scenario that cannot be measured on this machine, and why. */
  readonly skip: (text: string) => void;
}

export interface Scenario {
  readonly name: string;
  /** A title for the table of figures. */
  readonly title: string;
  /** True if it is part of a quick run even if it is not named. */
  readonly isQuick: boolean;
  /** @throws if something fails */
  readonly measure: (stage: Stage, plan: Plan) => Promise<Table>;
}

/**
 * Lines of text in an answer. The answers have about 120 bytes (`small`), 10 kB, 1 MB and 16 MB (`huge`). The loads
 * `asking…` have small answers, but arguments of 10 kB or 1 MB.
 */
const LINES = {
  small: 1,
  medium: 312,
  large: 31_250,
  huge: 500_000,
  asking10k: 1,
  asking1M: 1,
} as const;
type Size = keyof typeof LINES;
const PADS: Partial<Record<Size, number>> = { asking10k: 10_000, asking1M: 1_000_000 };
const QUICK = ["small-1-head", "small-64-head", "small-64-spaced", "large-4-head"];
const SHAPE_TEXTS: Readonly<Record<Shape, string>> = {
  head: "id first",
  tail: "id last",
  spaced: "white space, so that it must be parsed",
};

function titleOf(size: Size, flight: number): string {
  const pad = PADS[size];
  const asked = pad === undefined ? "" : `arguments of ${formatNumber(pad)} bytes, `;
  return `${asked}answers of ${formatNumber(answerSize(LINES[size]))} bytes, ${flight} in flight`;
}

/** Calls through all relays over stdio, which take turns. */
function loads(size: Size, flights: readonly number[], shapes: readonly Shape[]): Scenario[] {
  // The SDK closes a connection on which a message of more than 10 MiB comes.
  const relays = RELAYS.filter((relay) => relay !== "sdk" || size !== "huge");
  const references = relays.filter((relay) => relay === "pump" || relay === "sdk");
  return SHAPES.filter((shape) => shapes.includes(shape)).flatMap((shape) =>
    flights.map((flight) => {
      const name = `${size}-${flight}-${shape}`;
      return {
        name,
        title: `${titleOf(size, flight)}, ${SHAPE_TEXTS[shape]}`,
        isQuick: QUICK.includes(name),
        measure: async (stage, { pace }) => {
          const entrants = relays.map((relay) => [relay, stage.relay(relay, { shape })] as const);
          const load = { flight, lines: LINES[size], pad: PADS[size] ?? 0 };
          return tableOf(await race(Object.fromEntries(entrants), load, pace), references);
        },
      };
    }),
  );
}

/** Calls through toolmux and the SDK's relay over HTTP, which take turns. */
function httpLoads(size: Size, flights: readonly number[]): Scenario[] {
  return flights.map((flight) => ({
    name: `http-${size}-${flight}`,
    title: `${titleOf(size, flight)}, over HTTP`,
    isQuick: false,
    measure: async (stage, { pace }) => {
      const entrants = { toolmux: stage.overHttp("toolmux"), sdk: stage.overHttp("sdk") };
      return tableOf(await race(entrants, { flight, lines: LINES[size] }, pace), ["sdk"]);
    },
  }));
}

/** Number of idle clients of a shared hub. */
const ATTACHED_CLIENTS = 1000;

export const SCENARIOS: readonly Scenario[] = [
  ...loads("small", [1, 16, 64, 256], ["head"]),
  ...loads("small", [1, 64], ["tail", "spaced"]),
  ...loads("medium", [1, 16, 64], ["head"]),
  ...loads("large", [1, 4, 16], ["head"]),
  ...loads("large", [4], ["tail", "spaced"]),
  ...loads("huge", [1, 4], ["head"]),
  ...loads("asking10k", [16], ["head"]),
  ...loads("asking1M", [4], ["head"]),
  scenario("start", "times to the first line of new processes", measureStart),
  scenario("slow", "time to the list of servers that sleep at their start", measureSlow),
  scenario("broad", "one server and many, of 50 tools each", measureBroad),
  scenario("snapshots", "the first list, while 3 of 10 servers never answer", measureSnapshots),
  long("copies", "memory for results of 16 MB, in multiples of their size", measureCopies),
  scenario("catalogs", "catalogs of servers with 50 tools, in one process", measureCatalogs),
  scenario("limits", "what limits of all kinds add to a call, in one process", measureLimits),
  scenario("telemetry-traces", "what spans add to a call, in one process", measureTraces),
  scenario("telemetry-metrics", "what metrics add to a call, in one process", measureMetrics),
  scenario("pins", "listings compared with what was accepted, in one process", measurePins),
  ...[1, 64].map((flight) =>
    long(
      `telemetry-calls-${flight}`,
      `a hub without telemetry, and hubs that send traces and metrics, ${flight} in flight`,
      (stage, plan) => measureTracedCalls(stage, plan, flight),
    ),
  ),
  long(
    "servers",
    "one hub with many stdio servers of 10 tools each, 64 calls in flight",
    measureServers,
  ),
  long("sessions", "one hub with many clients over HTTP, 64 calls in flight", (stage, plan) =>
    measureClients(stage, plan, "session"),
  ),
  long("attached", "the same with clients at the control socket", (stage, plan) =>
    measureClients(stage, plan, "attached"),
  ),
  ...[1, 64].map((flight) =>
    long(
      `attach-calls-${flight}`,
      `a hub alone, and a client attached to a shared one, ${flight} in flight; CPU of the attached process alone`,
      (stage, plan) => measureAttachedCalls(stage, plan, flight),
    ),
  ),
  long(
    "attach-start",
    "the first answer of a hub alone, and at a shared hub",
    measureAttachedStart,
  ),
  long("attach-memory", "an attached process with nothing to do", measureAttachedProcess),
  long(
    "attach-clients",
    `a shared hub with ${ATTACHED_CLIENTS} attached clients that do nothing`,
    measureAttachedClients,
  ),
  ...[1, 64].map((flight) =>
    long(
      `fleet-calls-${flight}`,
      `a server of another hub over HTTP and over NATS, ${flight} in flight`,
      (stage, plan) => measureFleetCalls(stage, plan, flight),
    ),
  ),
  long("fleet-nodes", "one machine of a fleet and three, servers that work 20 ms", measureNodes),
  long("idle", "nothing to do; own memory is shared with nobody", measureIdle),
  long("control", "the control socket, and a reader of all events", measureControl),
  scenario("eras", "client, then server, of the legacy or the modern era", measureEras),
  ...httpLoads("small", [1, 16, 64, 256]),
  ...httpLoads("medium", [16]),
  ...httpLoads("large", [4]),
  long("flood-neighbours", "a call over HTTP while another peer floods", measureFloodNeighbours),
  long("soak", "memory during a million calls", measureSoak),
];

function scenario(name: string, title: string, measure: Scenario["measure"]): Scenario {
  return { name, title, isQuick: true, measure };
}

/** A scenario that a quick run leaves out. */
function long(name: string, title: string, measure: Scenario["measure"]): Scenario {
  return { name, title, isQuick: false, measure };
}

async function measureStart(stage: Stage, { starts: runs }: Plan): Promise<Table> {
  const [known, fresh] = [stage.hub(1), stage.hub(1)];
  // This run saves a snapshot of the server, from which the measured starts take its instructions.
  await runJob("first", { peers: [known.peer], tools: 1, runs: 1 });
  const hello = { command: stage.hello(), speaksFirst: true };
  const peers = [hello, { command: known.peer }, { command: fresh.peer }];
  const [least = NaN, ...rest] = (await runJob("start", { peers, runs })).map(median);
  const row = (ms = NaN) => ({ ms, "to hello-world": ms / least });
  return {
    "hello-world": row(least),
    toolmux: row(rest[0]),
    "without snapshots": row(rest[1]),
  };
}

async function measureFloodNeighbours(stage: Stage, { pace }: Plan): Promise<Table> {
  const duration = 10 * pace.warmUp;
  const table: Record<string, Readonly<Record<string, number>>> = {};
  for (const flood of FLOODS) {
    const { peer, manifest } = stage.hub(1, {}, {}, ["--http", "127.0.0.1:0"]);
    const folder = stage.makeFolder(`f-${flood}`);
    const job = { peer, manifest, echo: stage.server(), folder, flood, duration };
    const { p50, p99, max } = await runJob("floodNeighbours", job, { duration });
    table[flood] = { "p50 ms": p50, "p99 ms": p99, "max ms": max };
  }
  return table;
}

async function measureSlow(stage: Stage, { rounds }: Plan): Promise<Table> {
  const [servers, delay] = [20, 500];
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    // Use a new hub in each round, so that it has no snapshots of its servers.
    const { peer } = stage.hub(servers, { delay });
    times.push((await runJob("list", { peer, tools: servers, runs: 0 })).ready);
  }
  return { [`${servers} servers that sleep ${delay} ms`]: { "ready ms": median(times) } };
}

async function measureBroad(stage: Stage, { rounds, pace }: Plan): Promise<Table> {
  const toolsEach = 50;
  // A server in JavaScript needs more memory.
  const counts = [1, stage.programs.language === "C" ? 100 : 20] as const;
  const hubs = counts.map((count) => stage.hub(count, { tools: toolsEach }));
  const [one, many] = hubs.map(({ peer, tools }): Entrant => {
    return { peer, tools: [tools[tools.length >> 1] ?? tools[0]] };
  });
  if (one === undefined || many === undefined) throw new Error("a hub is missing");
  const lists: { ready: number; size: number; p50: number }[][] = [[], []];
  for (let round = 0; round < rounds; round++) {
    for (const [at, count] of counts.entries()) {
      // Use a new hub in each round, so that it has no snapshots of its servers.
      const { peer } = stage.hub(count, { tools: toolsEach });
      lists[at]?.push(await runJob("list", { peer, tools: count * toolsEach, runs: 100 }));
    }
  }
  const run = await race({ one, many }, { flight: 1 }, pace);
  const perByte = (at: number) => lists[at]?.map(({ p50, size }) => p50 / size) ?? [];
  const least = perByte(0);
  const row = (name: "one" | "many", at: number) => ({
    servers: counts[at] ?? NaN,
    "ready ms": median(lists[at]?.map(({ ready }) => ready) ?? []),
    "a call µs": middle(run, "p50", name),
    "a list µs": median(lists[at]?.map(({ p50 }) => p50) ?? []),
    "list bytes": lists[at]?.[0]?.size ?? NaN,
  });
  const ratios = {
    "call:one": ratio(run, "p50", "many", "one"),
    "list byte:one": median(ratiosOf(perByte(1), least)),
  };
  return { one: row("one", 0), many: { ...row("many", 1), ...ratios } };
}

async function measureSnapshots(stage: Stage, { starts: runs }: Plan): Promise<Table> {
  const mutes = stage.makeFolder("mutes");
  const { peer, servers } = stage.hub(10, { tools: 20, mutes });
  // In this run all servers answer, so that the hub saves snapshots of them.
  await runJob("list", { peer, tools: 200, runs: 0 });
  for (const name of servers.filter((_, at) => at % 3 === 1)) writeFileSync(join(mutes, name), "");
  const [lists = []] = await runJob("first", { peers: [peer], tools: 200, runs });
  const times = lists.map(({ listed }) => listed);
  rmSync(mutes, { recursive: true });
  return { toolmux: { "median ms": median(times), "worst ms": Math.max(...times) } };
}

/**
 * The additional memory that a hub needs for large results: its peak memory minus its memory before the first call.
 * The same difference for small results is subtracted, because it is caused by compiled code and garbage.
 */
async function measureCopies(stage: Stage, { pace }: Plan): Promise<Table> {
  const size = answerSize(LINES.huge);
  const run = async (flight: number, rounds: number, lines: number = LINES.huge) => {
    const toolmux = stage.relay("toolmux");
    const results = await race({ toolmux }, { flight, lines }, { ...pace, rounds });
    const [base, peak] = [results["toolmux"]?.base ?? NaN, results["toolmux"]?.peak ?? NaN];
    return { more: peak - base, peak };
  };
  const [few, many, four] = [await run(1, 2), await run(1, 20), await run(4, 4)];
  const [small, smallFour] = [await run(1, 2, 1), await run(4, 4, 1)];
  return {
    "one in flight": { copies: (few.more - small.more) / size },
    "four in flight": { copies: (four.more - smallFour.more) / (4 * size) },
    "many calls": { "peak:few": many.peak / few.peak },
  };
}

async function measureCatalogs(_stage: Stage, { rounds }: Plan): Promise<Table> {
  const table: Record<string, Record<string, number>> = {};
  const finds: (readonly [servers: number, ms: number])[] = [];
  for (const servers of [1, 3, 10, 30, 100]) {
    const colds: number[] = [];
    const warm: { readonly first: number; readonly rebuild: number; readonly find: number }[] = [];
    for (let round = 0; round < rounds; round++) {
      const [cold, ...more] = await runJob("catalogs", { servers, rounds: 10 });
      colds.push(cold?.first ?? NaN);
      warm.push(...more);
    }
    const find = median(warm.map((times) => times.find));
    finds.push([servers, find]);
    table[`${servers} servers`] = {
      "cold ms": median(colds),
      "first ms": median(warm.map((times) => times.first)),
      "one changed ms": median(warm.map((times) => times.rebuild)),
      "look-up ns": find * 1e6,
    };
  }
  return { ...table, growth: { "look-up power": powerOf(finds) } };
}

async function measureLimits(): Promise<Table> {
  const times = await runJob("limits", { rounds: 15 });
  return { "all kinds": { "µs a call": median([...times]) } };
}

async function measureTraces(): Promise<Table> {
  const measure = async (
    sample: number | undefined,
    protocol: OtlpProtocol = "http/protobuf",
  ): Promise<Table[string]> => {
    const times = await runJob("traces", { sample, protocol, rounds: 15 });
    return { "µs a call": median([...times]) };
  };
  return {
    "telemetry-off": await measure(undefined),
    "1 % sampled": await measure(0.01),
    "all, protobuf": await measure(1),
    "all, JSON": await measure(1, "http/json"),
  };
}

async function measureMetrics(): Promise<Table> {
  const times = await runJob("metrics", { rounds: 15 });
  return { "both durations": { "µs a call": median([...times]) } };
}

async function measurePins(_stage: Stage, { rounds }: Plan): Promise<Table> {
  const table: Record<string, Record<string, number>> = {};
  for (const tools of [100, 1000, 10_000]) {
    const all: Awaited<ReturnType<typeof runJob<"reviews">>>[] = [];
    for (let round = 0; round < rounds; round++) all.push(await runJob("reviews", { tools }));
    table[`${tools} tools`] = {
      "first ms": median(all.map(({ first }) => first)),
      "again ms": median(all.map(({ again }) => again)),
      "all changed ms": median(all.map(({ changed }) => changed)),
      "longest turn ms": median(all.map(({ longestTurn }) => longestTurn)),
      "look-up ns": median(all.map(({ lookUp }) => lookUp)),
    };
  }
  return table;
}

/** The numbers of servers behind one hub, and of tools of each. */
const SERVER_COUNTS = [10, 100, 1000] as const;
const TOOLS_EACH = 10;
/** Open files of a hub for each stdio server, and for all the rest. */
const FILES = { each: 4, rest: 200 };
/** Memory of a server for each language it is written in, and of a hub with a thousand servers, in bytes. */
const MEMORY = { C: 2e6, JavaScript: 45e6, hub: 1e9 };
/** Minimum number of pairs from which a ratio is judged. */
const PAIRS = 15;
const CLIENTS = 200;
/** The row with the goal of many servers. */
const TO_ONE = "those to a hub with one server";

/** Each row is one cost, with a column for each number of servers and the exponent with which it grows. */
async function measureServers(stage: Stage, { pace, skip }: Plan): Promise<Table> {
  const table: Record<string, Record<string, number>> = {};
  const { rounds, warmUp, duration } = pairsOf(pace);
  for (const count of SERVER_COUNTS) {
    const reason = whyNotServers(stage, count);
    if (reason !== undefined) {
      skip(`servers: a hub with ${formatNumber(count)} servers ${reason}`);
      continue;
    }
    const options = { tools: TOOLS_EACH };
    const many = stage.hub(count, options);
    const job = {
      one: stage.hub(1, options),
      many: { ...many, peer: withOpenFiles(many.peer, filesOf(count)) },
      tools: count * TOOLS_EACH,
      rounds,
      warmUp,
      duration,
    };
    // Three programs warm up and take turns; the start of a server takes some ms.
    const time = 3 * (warmUp + rounds * duration) + 100 * count;
    const figures = await runJob("manyServers", job, { duration: time });
    const { fresh, known, turns, change } = figures;
    const [toOne, toAll] = [turns.toOne, turns.toAll].map((some) =>
      ratiosOf(cpuOf(some), cpuOf(turns.one)),
    );
    const costs = {
      "start until all is listed, ms": fresh.took,
      "its CPU, ms": fresh.cpu ?? NaN,
      "start with snapshots, ms": known.took,
      "CPU with snapshots, ms": known.cpu ?? NaN,
      "own memory, MB": (figures.own ?? NaN) / 1e6,
      "open files": figures.files ?? NaN,
      "calls to one server, CPU µs": median(cpuOf(turns.toOne)),
      [TO_ONE]: median(toOne ?? []),
      "calls to all servers, CPU µs": median(cpuOf(turns.toAll)),
      "those to a hub with one, spread": median(toAll ?? []),
      "a changed server until told, ms": change.told,
      "CPU of the change, ms": change.cpu ?? NaN,
      "the next whole list, ms": change.list,
    };
    for (const [cost, value] of Object.entries(costs))
      table[cost] = { ...table[cost], [formatNumber(count)]: value };
    // The goal is one of the last number, and not measured if that is skipped.
    const isLast = count === SERVER_COUNTS.at(-1);
    const { low, high } = spreadOf(isLast ? (toOne ?? []) : []);
    Object.assign(table[TO_ONE] ?? {}, { "95 % from": low, to: high });
  }
  for (const row of Object.values(table)) {
    const points = SERVER_COUNTS.map((count) => [count, row[formatNumber(count)] ?? NaN] as const);
    row["grows with the power"] = powerOf(points.filter(([, cost]) => !Number.isNaN(cost)));
  }
  return table;
}

async function measureClients(
  stage: Stage,
  { pace }: Plan,
  kind: "session" | "attached",
): Promise<Table> {
  const hub = () => stage.hub(1, {}, {}, ["--http", "127.0.0.1:0"]);
  const { rounds, warmUp, duration } = pairsOf(pace);
  const job = {
    one: hub(),
    many: hub(),
    clients: CLIENTS,
    kind,
    rounds,
    warmUp: 3 * warmUp,
    duration,
  };
  const time = 2 * (3 * warmUp + rounds * duration);
  const { each, turns } = await runJob("manyClients", job, { duration: time });
  const toOne = spreadOf(ratiosOf(cpuOf(turns.many), cpuOf(turns.one)));
  return {
    "one client": { "CPU µs": median(cpuOf(turns.one)) },
    [`${CLIENTS} clients`]: {
      "kB each": (each ?? NaN) / 1e3,
      "CPU µs": median(cpuOf(turns.many)),
      "CPU:one": toOne.median,
      "95 % from": toOne.low,
      to: toOne.high,
    },
  };
}

/** As many rounds as a ratio needs to be judged, at least. */
function pairsOf(pace: Pace): Pace {
  return { ...pace, rounds: Math.max(PAIRS, pace.rounds) };
}

function cpuOf(turns: readonly Turn[]): readonly number[] {
  return turns.map(({ cpu }) => cpu ?? NaN);
}

function filesOf(servers: number): number {
  return servers * FILES.each + FILES.rest;
}

/** The reason why this machine cannot run so many servers; undefined if it can. */
function whyNotServers({ programs: { language } }: Stage, servers: number): string | undefined {
  const needed = servers * MEMORY[language] + MEMORY.hub;
  const free = freemem();
  if (free < needed) {
    const [need, have] = [needed, free].map((bytes) => formatNumber(bytes / 1e9));
    return `needs ${need} GB of memory, and ${have} GB are available (the echo server is written in ${language})`;
  }
  const files = filesOf(servers);
  const { status } = spawnSync("sh", ["-c", `ulimit -Sn ${files}`], { stdio: "ignore" });
  if (status === 0) return undefined;
  const { stdout } = spawnSync("sh", ["-c", "ulimit -Hn"], { encoding: "utf8" });
  return `needs ${formatNumber(files)} open files, and the hard limit is ${stdout.trim()} (ulimit -Hn)`;
}

/** The command with another limit of open files (RLIMIT_NOFILE), unless the limit is higher already. */
function withOpenFiles({ file, args, env }: Command, files: number): Command {
  const script = `[ "$(ulimit -Sn)" = unlimited ] || [ "$(ulimit -Sn)" -ge ${files} ] || ulimit -Sn ${files}; exec "$0" "$@"`;
  return { file: "/bin/sh", args: ["-c", script, file, ...args], env };
}

/** Calls through a hub alone and through a process that is attached to a shared hub, which take turns. */
async function measureAttachedCalls(stage: Stage, { pace }: Plan, flight: number): Promise<Table> {
  const entrants = { private: stage.hub(1), attached: stage.attached() };
  const run = await race(entrants, { flight }, pairsOf(pace));
  const { private: alone, attached } = tableOf(run, ["private"]);
  const rate = spreadOf(
    ratiosOf(valuesOf(run, "rate", "private"), valuesOf(run, "rate", "attached")),
  );
  return {
    private: alone ?? {},
    attached: {
      ...attached,
      "own CPU µs": middle(run, "cpu", "attached"),
      "more p50 µs": difference(run, "p50", "attached", "private"),
      "private:rate": rate.median,
      "95 % from": rate.low,
      to: rate.high,
    },
  };
}

async function measureAttachedStart(stage: Stage, { starts: runs }: Plan): Promise<Table> {
  const [alone, attached] = [stage.hub(1).peer, stage.attached().peer];
  // The first start saves a snapshot, and starts the shared hub.
  await runJob("first", { peers: [alone, attached], tools: 1, runs: 1 });
  const peers = [{ command: alone }, { command: attached }];
  const [aloneRuns = [], attachedRuns = []] = await runJob("start", { peers, runs });
  const times = [aloneRuns, attachedRuns].map(median);
  return {
    private: { ms: times[0] ?? NaN },
    attached: { ms: times[1] ?? NaN, "ms:private": median(ratiosOf(attachedRuns, aloneRuns)) },
  };
}

async function measureAttachedProcess(stage: Stage, { idle: { rest } }: Plan): Promise<Table> {
  const { peer } = stage.attached();
  // The client that starts the hub loads more than those that come later.
  await runJob("first", { peers: [peer], tools: 1, runs: 1 });
  const job = { peer, tools: 1, rest, duration: 1000 };
  const { own, rss } = await runJob("idle", job, { duration: rest });
  return { attached: { "own MB": (own ?? NaN) / 1e6, "RSS MB": (rss ?? NaN) / 1e6 } };
}

async function measureAttachedClients(stage: Stage): Promise<Table> {
  const { peer, manifest } = stage.attached();
  const each = await runJob("attachedClients", { peer, manifest, clients: ATTACHED_CLIENTS });
  return { [`${ATTACHED_CLIENTS} clients`]: { "kB each": (each ?? NaN) / 1e3 } };
}

/** Calls through hubs that send nothing, or traces and metrics to a collector of this process, in turns. */
async function measureTracedCalls(stage: Stage, { pace }: Plan, flight: number): Promise<Table> {
  const collector = createServer((received, answer) => {
    received.resume().on("end", () => {
      answer.setHeader("Content-Type", "application/x-protobuf");
      answer.end();
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const { port } = collector.address() as AddressInfo;
  const endpoint = `http://127.0.0.1:${port}`;
  const traced = (sample: number) => stage.hub(1, {}, { telemetry: { endpoint, sample } });
  try {
    const entrants = { off: stage.hub(1), "0 %": traced(0), "1 %": traced(0.01), all: traced(1) };
    return tableOf(await race(entrants, { flight }, pairsOf(pace)), ["off"]);
  } finally {
    collector.closeAllConnections();
    collector.close();
  }
}

/** Calls through a hub to another one, over HTTP and over NATS in turns. */
async function measureFleetCalls(
  stage: Stage,
  { pace, skip }: Plan,
  flight: number,
): Promise<Table> {
  if (SKIP_WITHOUT_NATS !== false) {
    skip(`fleet-calls-${flight}: ${SKIP_WITHOUT_NATS}`);
    return { fleet: { "more p50 µs": NaN, "own CPU µs": NaN } };
  }
  return withFleet(stage, 1, 1, {}, async ({ importer: fleet, overHttp: http }) => {
    const run = await race({ http, fleet }, { flight }, pairsOf(pace));
    const { http: other, fleet: own } = tableOf(run, ["http"]);
    const more = {
      "more p50 µs": difference(run, "p50", "fleet", "http"),
      "own CPU µs": middle(run, "cpu", "fleet"),
    };
    return { http: other ?? {}, fleet: { ...own, ...more } };
  });
}

/**
 * Number of servers on each machine, the time that they work at a call in ms, calls in flight, and the length of a turn in
 * ms: at its end some servers have nothing to do any more.
 */
const NODES = { servers: 10, work: 20, flight: 256, duration: 3000 } as const;

/** Calls to a fleet of one machine, and to one of three, in turns. The servers take their calls one after the other. */
async function measureNodes(stage: Stage, { pace, skip }: Plan): Promise<Table> {
  if (SKIP_WITHOUT_NATS !== false) {
    skip(`fleet-nodes: ${SKIP_WITHOUT_NATS}`);
    return { three: { to: NaN } };
  }
  const { servers, work, flight, duration } = NODES;
  const turns = { ...pairsOf(pace), duration };
  return withFleet(stage, 1, servers, { work }, ({ importer: one }) =>
    withFleet(stage, 3, servers, { work }, async ({ importer: three }) => {
      const run = await race({ one, three }, { flight }, turns);
      const rate = spreadOf(ratiosOf(valuesOf(run, "rate", "three"), valuesOf(run, "rate", "one")));
      const table = tableOf(run, []);
      const toOne = { "rate:one": rate.median, "95 % from": rate.low, to: rate.high };
      return { one: table["one"] ?? {}, three: { ...table["three"], ...toOne } };
    }),
  );
}

async function measureIdle(stage: Stage, { idle }: Plan): Promise<Table> {
  const { peer } = stage.hub(10);
  const job = { peer, tools: 10, ...idle };
  const { core, rss, own, anonymous } = await runJob("idle", job, {
    duration: idle.rest + idle.duration,
  });
  return {
    "10 servers": {
      "% of a core": (core ?? NaN) * 100,
      "RSS MB": (rss ?? NaN) / 1e6,
      "own MB": (own ?? NaN) / 1e6,
      "without its files MB": (anonymous ?? NaN) / 1e6,
    },
  };
}

/** Client and server of all pairs of eras; the first letter is that of the client. */
async function measureEras(stage: Stage, { pace }: Plan): Promise<Table> {
  const [legacy, modern] = ["legacy", "modern"] as const;
  const pair = (client: Era, server: Era) => ({ ...stage.hub(1, { era: server }), era: client });
  const entrants = {
    LL: pair(legacy, legacy),
    LM: pair(legacy, modern),
    ML: pair(modern, legacy),
    MM: pair(modern, modern),
  };
  return tableOf(await race(entrants, {}, pace), ["LL"]);
}

async function measureSoak(stage: Stage): Promise<Table> {
  const calls = 1_000_000;
  const rss = await runJob("soak", { ...stage.hub(1), flight: 64, calls });
  const tenth = (part: number) => {
    const size = rss.length / 10;
    return mean(rss.slice((part - 1) * size, part * size));
  };
  const [early, late] = [tenth(2), tenth(10)];
  return {
    toolmux: {
      "second tenth MB": early / 1e6,
      "last tenth MB": late / 1e6,
      "change %": Math.abs(late / early - 1) * 100,
    },
  };
}

/** The cost of the control socket: a hub with an open one, and a hub with `control = false`. */
async function measureControl(stage: Stage, { starts, pace }: Plan): Promise<Table> {
  const hubs = [stage.hub(1), stage.hub(1, {}, { hub: { control: false } })];
  await runJob("first", { peers: hubs.map(({ peer }) => peer), tools: 1, runs: 1 });
  const peers = hubs.map(({ peer: command }) => ({ command }));
  const [open = NaN, none = NaN] = (await runJob("start", { peers, runs: 2 * starts })).map(median);
  const memory: number[][] = [[], []];
  for (let run = 0; run < 5; run++) {
    for (const [at, { peer }] of hubs.entries()) {
      // The socket opens while the hub rests.
      const { own } = await runJob("idle", { peer, tools: 1, rest: 2000, duration: 1 });
      memory[at]?.push((own ?? NaN) / 1e6);
    }
  }
  const [openMemory = NaN, noneMemory = NaN] = memory.map(median);
  return {
    without: { "start ms": none, "own MB": noneMemory },
    with: {
      "start ms": open,
      "ms:without": open / none,
      "own MB": openMemory,
      "more MB": openMemory - noneMemory,
    },
    ...(await measureFollower(stage, pace)),
  };
}

/** The CPU time that a reader of all events adds to a call. */
async function measureFollower(stage: Stage, pace: Pace): Promise<Table> {
  const [alone, followed] = [stage.hub(1), stage.hub(1)];
  const abort = new AbortController();
  const reading = readEvents(followed, abort.signal);
  // With more calls in flight, the reader could not keep up with the events, and the hub would close the event stream.
  const load = { flight: 16 };
  // The difference is small beside the variation from round to round, so it needs many rounds.
  const manyRounds = { ...pace, rounds: 5 * pace.rounds };
  const run = await race({ alone, followed }, load, manyRounds).finally(() => abort.abort());
  const ends = await reading;
  // A reader that does not get the processor for a moment is ended, and reads again at once. The medians stand a few
  // such rounds.
  if (ends > manyRounds.rounds / 10)
    throw new Error(`the reader of events was ended ${ends} times`);
  return {
    "nobody reads events": { "CPU µs": middle(run, "cpu", "alone") },
    "a reader of events": { "more CPU µs": difference(run, "cpu", "followed", "alone") },
  };
}

/**
 * Reads all events of a hub as soon as it runs. @returns how often the event stream was closed before `signal` was
 * aborted
 */
async function readEvents({ peer, manifest: path }: Hub, signal: AbortSignal): Promise<number> {
  const environment = { env: peer.env, platform: process.platform };
  let opened = 0;
  while (!signal.aborted) {
    const hubs = await findRunningHubs(environment);
    const hub = hubs.find(({ manifest }) => manifest.includes(path));
    if (hub === undefined) {
      await sleep(20);
      continue;
    }
    opened++;
    await new Promise<void>((resolve) => {
      const { socket: socketPath } = hub;
      const outgoing = request({ socketPath, path: "/v1/events", signal }, (response) => {
        response
          .on("close", resolve)
          .on("error", () => {})
          .resume();
      });
      outgoing.on("error", () => resolve()).end();
    });
  }
  return opened - 1;
}
