import type { Chart, Curve, Unit } from "./charts.ts";
import type { ReportTable } from "./tables.ts";

/** The percentiles that a table has of a curve over all of them. */
const PERCENTILES = [10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999] as const;

/** A chart's numbers as a table: a row for each place on its lower axis, a column for each curve. */
export function chartTable(
  { x, y, curves }: Chart,
  formats: Readonly<Record<Unit, (value: number) => string>>,
): Pick<ReportTable, "columns" | "rows"> {
  const columns = [x.label, ...curves.map(({ name }) => name)].map((title) => ({
    title,
    kind: "number" as const,
  }));
  const cell = (value: number | undefined): string =>
    value === undefined ? "–" : formats[y.unit](value);
  if (x.unit === "nines") {
    const rows = PERCENTILES.map((it) => [
      `${it}%`,
      ...curves.map((curve) => cell(reach(curve, -Math.log10(1 - it / 100)))),
    ]);
    return { columns, rows: rows.filter((row) => row.slice(1).some((it) => it !== "–")) };
  }
  // Places that are written alike are one: levels' spans begin a little apart.
  const places = new Map(
    curves
      .flatMap(({ points }) => points.map(([at]) => at))
      .toSorted((a, b) => a - b)
      .map((at) => [formats[x.unit](at), at]),
  );
  const byPlace = curves.map(
    ({ points }) => new Map(points.map(([at, value]) => [formats[x.unit](at), value])),
  );
  const rows = [...places.keys()].map((place) => [
    place,
    ...byPlace.map((values) => cell(values.get(place))),
  ]);
  return { columns, rows };
}

/** The value of a rising curve at some place: that of the first point which is not before it. */
function reach({ points }: Curve, place: number): number | undefined {
  return points.find(([at]) => at >= place - 1e-9)?.[1];
}
