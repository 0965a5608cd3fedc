import type { CatalogResult } from "./catalogs.ts";
import type { ControlResult } from "./control.ts";
import type { CopiesResult } from "./copies.ts";
import { ERA_PAIRS, type ErasResult } from "./eras.ts";
import type { HttpFigures } from "./http-load.ts";
import type { BroadResult, SlowResult, SnapshotsResult, SoakResult, StartResult } from "./hub.ts";
import type { IdleResult } from "./idle.ts";
import type { Figures, RelayResult } from "./relay.ts";

/** All results; those that are undefined were not measured. */
export interface Measurements {
  readonly relay: readonly RelayResult[];
  readonly start?: StartResult | undefined;
  readonly slow?: SlowResult | undefined;
  readonly broad?: BroadResult | undefined;
  readonly snapshots?: SnapshotsResult | undefined;
  readonly copies?: CopiesResult | undefined;
  readonly catalogs?: CatalogResult | undefined;
  readonly idle?: IdleResult | undefined;
  readonly control?: ControlResult | undefined;
  readonly eras?: ErasResult | undefined;
  readonly http?: readonly HttpFigures[] | undefined;
  readonly soak?: SoakResult | undefined;
}

export interface Goal {
  readonly name: string;
  readonly bound: "atMost" | "atLeast";
  readonly limit: number;
  /** Empty if the figure is a count. */
  readonly unit: "×" | "ms" | "µs" | "%" | "MB" | "";
  /** The measured value; undefined if it was not measured. */
  readonly figure: number | undefined;
}

export type Verdict = "reached" | "missed" | "not measured";

/** The goals for the hub, with the measured figures. If a goal is about several loads, the worst one counts. */
export function setGoals(measured: Measurements): Goal[] {
  const {
    relay,
    start,
    slow,
    broad,
    soak,
    snapshots,
    eras,
    http,
    copies,
    catalogs,
    idle,
    control,
  } = measured;
  const catalog = catalogs?.points.at(-1);
  const hubs = (size: "small" | "large", flights: readonly number[]): Figures[] =>
    relay
      .filter(({ load }) => load.size === size && flights.includes(load.flight))
      // Leave out answers that have to be parsed, because parsing is most of their cost.
      .filter(({ load }) => load.shape !== "spaced")
      .flatMap(({ contestants }) => contestants.toolmux ?? []);
  return [
    atMost(
      1.1,
      "×",
      "a small call, 1 in flight: p50 to the pump's",
      highest(hubs("small", [1]).map(({ toPump }) => toPump.p50)),
    ),
    atLeast(
      8,
      "×",
      "small calls, 64 in flight: rate to the SDK relay's",
      lowest(hubs("small", [64]).map(({ toSdk }) => toSdk.rate)),
    ),
    atMost(
      3,
      "×",
      "small calls, 64 in flight: CPU to the pump's",
      highest(hubs("small", [64]).map(({ toPump }) => toPump.cpu)),
    ),
    atLeast(
      1,
      "×",
      "results of 1 MB: rate to the pump's",
      lowest(hubs("large", [1, 4, 16]).map(({ toPump }) => toPump.rate)),
    ),
    atMost(
      3,
      "",
      "results of 16 MB: copies alive of each",
      copies && highest([copies.alone, copies.four]),
    ),
    atMost(1.1, "×", "results of 16 MB: memory after many to after few", copies?.growth),
    atMost(
      10,
      "%",
      "memory, last tenth of a million calls to the second: change",
      soak && Math.abs(soak.late / soak.early - 1) * 100,
    ),
    atMost(
      5.5,
      "×",
      "initialize answered, with snapshots of an earlier run, to hello-world",
      start && start.toolmux / start.hello,
    ),
    atMost(
      60,
      "MB",
      "10 servers and nothing to do: memory that is shared with nobody",
      idle?.holding ? idle.holding.own / 1e6 : undefined,
    ),
    atMost(
      0.1,
      "%",
      "10 servers and nothing to do: part of a core",
      typeof idle?.core === "number" ? idle.core * 100 : undefined,
    ),
    atMost(
      1.1,
      "×",
      "initialize answered, with the control socket to without",
      control && control.start.open / control.start.none,
    ),
    atMost(
      1,
      "MB",
      "memory of the control socket, nobody listening",
      control && (control.memory.open - control.memory.none) / 1e6,
    ),
    atMost(3, "µs", "CPU that a reader of all events adds to a call", control?.call.follower),
    atMost(
      10,
      "ms",
      "5,000 tools of 100 servers: the first list, in a fresh process",
      catalog?.cold,
    ),
    atMost(
      5,
      "ms",
      "5,000 tools of 100 servers: the list again when one has changed",
      catalog?.rebuild,
    ),
    atMost(
      0.1,
      "",
      "a look-up grows with the number of servers to the power of",
      catalogs?.fits.find.b,
    ),
    atMost(1200, "ms", "20 servers that sleep 500 ms, all listed", slow?.ready),
    atMost(1.2, "×", "a call with many servers of 50 tools, to one server", broad?.ratio.call),
    atMost(1, "×", "a byte of the list of many servers, to one server", broad?.ratio.listByte),
    atMost(
      100,
      "ms",
      "the first list from snapshots, while 3 of 10 servers hang: worst",
      snapshots?.worst,
    ),
    atMost(
      1.5,
      "×",
      "small calls, 64 in flight, with peers of the modern era: CPU to that with legacy ones",
      eras && highest(ERA_PAIRS.map((pair) => eras[pair].cpuToLegacy)),
    ),
    atLeast(
      3,
      "×",
      "small calls over HTTP, 64 in flight: rate to the SDK relay's",
      http?.find(({ name }) => name === "small-64")?.rateToSdk,
    ),
  ];
}

function atMost(limit: number, unit: Goal["unit"], name: string, figure: Goal["figure"]): Goal {
  return { name, bound: "atMost", limit, unit, figure };
}

function atLeast(limit: number, unit: Goal["unit"], name: string, figure: Goal["figure"]): Goal {
  return { name, bound: "atLeast", limit, unit, figure };
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
