import type { CopiesResult } from "./copies.ts";
import type { CatalogResult, GrowthsResult, ReloadsResult } from "./curves.ts";
import type { SnapshotsResult } from "./endurance.ts";
import { CELLS, type ErasResult } from "./eras.ts";
import type { FaceResult } from "./faces.ts";
import type { HttpResult } from "./http.ts";
import type { BroadResult, SlowResult, SoakResult, StartResult } from "./hub.ts";
import type { IdleResult } from "./idle.ts";
import type { CyclesResult, HttpStreamsResult, KillsResult, Weight } from "./job.ts";
import type { PluginsResult } from "./plugins.ts";
import type { Figures, RelayResult } from "./relay.ts";
import type { ParkedResult } from "./rest.ts";
import type { Setting } from "./spread.ts";
import type { FloodsResult } from "./torrents.ts";

/** All that was measured; what is undefined was not. */
export interface Measurements {
  readonly relay: readonly RelayResult[];
  readonly start?: StartResult | undefined;
  readonly slow?: SlowResult | undefined;
  readonly broad?: BroadResult | undefined;
  readonly snapshots?: SnapshotsResult | undefined;
  readonly kills?: KillsResult | undefined;
  readonly cycles?: CyclesResult | undefined;
  readonly plugins?: PluginsResult | undefined;
  readonly policies?: readonly Setting[] | undefined;
  readonly spread?: readonly Setting[] | undefined;
  readonly flood?: FloodsResult | undefined;
  readonly copies?: CopiesResult | undefined;
  readonly catalogs?: CatalogResult | undefined;
  readonly growth?: GrowthsResult | undefined;
  readonly reload?: ReloadsResult | undefined;
  readonly parked?: ParkedResult | undefined;
  readonly idle?: IdleResult | undefined;
  readonly faces?: readonly FaceResult[] | undefined;
  readonly eras?: ErasResult | undefined;
  readonly http?: HttpResult | undefined;
  readonly soak?: SoakResult | undefined;
}

export interface Goal {
  readonly name: string;
  readonly bound: "atMost" | "atLeast";
  readonly limit: number;
  /** Empty for what is counted. */
  readonly unit: "×" | "ms" | "%" | "kB" | "MB" | "";
  /** undefined: not measured. */
  readonly figure: number | undefined;
}

export type Verdict = "reached" | "missed" | "not measured";

/** What the hub is held to. Where several loads count, the worst of them does. */
export function setGoals({ relay, start, slow, broad, soak, ...others }: Measurements): Goal[] {
  const { snapshots, kills, cycles, plugins, eras, http } = others;
  const { flood, copies, catalogs, growth, idle } = others;
  const catalog = catalogs?.points.at(-1);
  const hubs = (size: "small" | "large", flights: readonly number[]): Figures[] =>
    relay
      .filter(({ load }) => load.size === size && flights.includes(load.flight))
      // An answer that has to be parsed costs what parsing costs.
      .filter(({ load }) => load.shape !== "spaced")
      .flatMap(({ contestants }) => contestants.toolmux ?? []);
  return [
    {
      name: "a small call, 1 in flight: p50 to the pump's",
      bound: "atMost",
      limit: 1.1,
      unit: "×",
      figure: highest(hubs("small", [1]).map(({ toPump }) => toPump.p50)),
    },
    {
      name: "small calls, 64 in flight: rate to the SDK relay's",
      bound: "atLeast",
      limit: 8,
      unit: "×",
      figure: lowest(hubs("small", [64]).map(({ toSdk }) => toSdk.rate)),
    },
    {
      name: "small calls, 64 in flight: CPU to the pump's",
      bound: "atMost",
      limit: 3,
      unit: "×",
      figure: highest(hubs("small", [64]).map(({ toPump }) => toPump.cpu)),
    },
    {
      name: "results of 1 MB: rate to the pump's",
      bound: "atLeast",
      limit: 1,
      unit: "×",
      figure: lowest(hubs("large", [1, 4, 16]).map(({ toPump }) => toPump.rate)),
    },
    {
      name: "results of 16 MB: copies alive of each",
      bound: "atMost",
      limit: 3,
      unit: "",
      figure: copies && highest([copies.alone, copies.four]),
    },
    {
      name: "results of 16 MB: memory after many to after few",
      bound: "atMost",
      limit: 1.1,
      unit: "×",
      figure: copies?.growth,
    },
    {
      name: "floods of progress: notifications missing, out of order, late or another's",
      bound: "atMost",
      limit: 0,
      unit: "",
      figure: flood && flood.one.faults + flood.several.faults,
    },
    {
      name: "memory, last tenth of a million calls to the second: change",
      bound: "atMost",
      limit: 10,
      unit: "%",
      figure: soak && Math.abs(soak.late / soak.early - 1) * 100,
    },
    {
      name: "initialize answered, with snapshots of an earlier run, to hello-world",
      bound: "atMost",
      limit: 5.5,
      unit: "×",
      figure: start && start.toolmux / start.hello,
    },
    {
      name: "10 servers and nothing to do: memory that is shared with nobody",
      bound: "atMost",
      limit: 60,
      unit: "MB",
      figure: idle?.holding ? idle.holding.own / 1e6 : undefined,
    },
    {
      name: "10 servers and nothing to do: part of a core",
      bound: "atMost",
      limit: 0.1,
      unit: "%",
      figure: typeof idle?.core === "number" ? idle.core * 100 : undefined,
    },
    {
      name: "5,000 tools of 100 servers: the first list, in a fresh process",
      bound: "atMost",
      limit: 10,
      unit: "ms",
      figure: catalog?.cold,
    },
    {
      name: "5,000 tools of 100 servers: the list again when one has changed",
      bound: "atMost",
      limit: 5,
      unit: "ms",
      figure: catalog?.rebuild,
    },
    {
      name: "a look-up grows with the number of servers to the power of",
      bound: "atMost",
      limit: 0.1,
      unit: "",
      figure: catalogs?.fits.find.b,
    },
    {
      name: "a call grows with the number of servers to the power of",
      bound: "atMost",
      limit: 0.1,
      unit: "",
      figure: growth?.fits.call.b,
    },
    {
      name: "a list grows with the number of servers to the power of",
      bound: "atMost",
      limit: 1.1,
      unit: "",
      figure: growth?.fits.list.b,
    },
    {
      name: "20 servers that sleep 500 ms, all listed",
      bound: "atMost",
      limit: 1200,
      unit: "ms",
      figure: slow?.ready,
    },
    {
      name: "a call with many servers of 50 tools, to one server",
      bound: "atMost",
      limit: 1.2,
      unit: "×",
      figure: broad?.ratio.call,
    },
    {
      name: "a byte of the list of many servers, to one server",
      bound: "atMost",
      limit: 1,
      unit: "×",
      figure: broad?.ratio.listByte,
    },
    {
      name: "the first list from snapshots, while 3 of 10 servers hang: worst",
      bound: "atMost",
      limit: 100,
      unit: "ms",
      figure: snapshots?.worst,
    },
    {
      name: "servers killed under load: answers missing, twice, another's or unclear",
      bound: "atMost",
      limit: 0,
      unit: "",
      figure: kills?.faults,
    },
    {
      name: "servers killed under load: memory at rest, change",
      bound: "atMost",
      limit: 10,
      unit: "%",
      figure: kills && kills.rest > 0 ? changeOf(kills, ({ rss }) => rss) : undefined,
    },
    {
      name: "servers killed under load: file descriptors, change",
      bound: "atMost",
      limit: 10,
      unit: "%",
      figure: kills && changeOf(kills, ({ descriptors }) => descriptors),
    },
    {
      name: "starts, stops and reconnects as fast as can be said: overlaps, leftovers",
      bound: "atMost",
      limit: 0,
      unit: "",
      figure: cycles && countFaults(cycles),
    },
    {
      name: "small calls that no plugin looks at: rate to a hub without plugins",
      bound: "atLeast",
      limit: 0.95,
      unit: "×",
      figure: plugins?.small.elsewhere.rateToNone,
    },
    {
      name: "small calls that a plugin only passes on: rate to a hub without plugins",
      bound: "atLeast",
      limit: 0.75,
      unit: "×",
      figure: plugins?.small.passing.rateToNone,
    },
    {
      name: "results of 1 MB that a plugin awaits: rate to a hub without plugins",
      bound: "atLeast",
      limit: 0.8,
      unit: "×",
      figure: plugins?.large.awaiting.rateToNone,
    },
    {
      name: "small calls, 64 in flight, with peers of the modern era: CPU to that with legacy ones",
      bound: "atMost",
      limit: 1.5,
      unit: "×",
      figure: eras && highest(CELLS.map((cell) => eras[cell].cpuToLegacy)),
    },
    {
      name: "small calls over HTTP, 64 in flight: rate to the SDK relay's",
      bound: "atLeast",
      limit: 4,
      unit: "×",
      figure: http?.toSdk,
    },
    {
      name: "many sessions that listen: changes not heard, or heard twice",
      bound: "atMost",
      limit: 0,
      unit: "",
      figure: http && http.streams.missed + http.streams.strays,
    },
    {
      name: "many sessions that listen: memory of each",
      bound: "atMost",
      limit: 50,
      unit: "kB",
      figure: weightOfEach(http?.streams),
    },
    {
      name: "many clients over HTTP, servers killed: answers missing, twice, another's or unclear",
      bound: "atMost",
      limit: 0,
      unit: "",
      figure: http?.mix.faults,
    },
  ];
}

/** By how many % a weight is another than before, either way; undefined if that is not known. */
function changeOf(
  { before, after }: KillsResult,
  of: (weight: Weight) => number,
): number | undefined {
  if (before === null || after === null) return undefined;
  return Math.abs(of(after) / of(before) - 1) * 100;
}

/** Without a rest, memory says little. */
function weightOfEach(streams: HttpStreamsResult | undefined): number | undefined {
  const each = streams?.each ?? undefined;
  return each === undefined || streams?.rest === 0 ? undefined : each / 1000;
}

function countFaults({ overlaps, left }: CyclesResult): number {
  return overlaps + left.processes + Math.max(0, left.descriptors ?? 0) + left.timers;
}

export function judge({ bound, limit, figure }: Goal): Verdict {
  if (figure === undefined || Number.isNaN(figure)) return "not measured";
  return (bound === "atMost" ? figure <= limit : figure >= limit) ? "reached" : "missed";
}

function highest(values: readonly number[]): number | undefined {
  return values.length > 0 ? Math.max(...values) : undefined;
}

function lowest(values: readonly number[]): number | undefined {
  return values.length > 0 ? Math.min(...values) : undefined;
}
