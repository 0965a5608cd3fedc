import type uPlot from "uplot";
import type { Axis, Chart, Curve, Unit } from "./charts.ts";

export type Formats = Readonly<Record<Unit, (value: number) => string>>;

/**
 * Draws each chart into the element whose `data-chart` is the chart's index, and again when the colour scheme or the
 * width changes. This function is embedded in the report as source text and runs in a browser, so it may use nothing
 * but its arguments and browser APIs.
 */
export function drawPage(Plot: typeof uPlot, charts: readonly Chart[], formats: Formats): void {
  const HEIGHT = 300;
  const FONT = "12px system-ui, sans-serif";
  const isDark = matchMedia("(prefers-color-scheme: dark)");

  const colorOf = ({ role, shade }: Curve): string => {
    // Lightness in percent: a shade of 0 is close to the background, 1 contrasts strongly.
    const light = isDark.matches ? 38 + 32 * shade : 78 - 36 * shade;
    return role === "hub" ? `hsl(217 85% ${light}%)` : `hsl(28 90% ${light - 4}%)`;
  };

  const themeColor = (name: string): string =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const makeScale = ({ scale, unit }: Axis): uPlot.Scale => {
    if (scale === "linear") return unit === "nines" || unit === "moment" ? {} : { range: fromZero };
    return {
      distr: 3,
      log: scale === "log2" ? 2 : 10,
      ...(scale === "log10" && { range: aroundLogs }),
    };
  };

  const fromZero = (_: uPlot, _min: number, max: number): [number, number] => [0, max * 1.08 || 1];

  /**
   * Ends a log axis close to the data. By default, uPlot would extend it to whole powers of ten and leave half of the
   * chart empty.
   */
  const aroundLogs = (_: uPlot, min: number, max: number): [number, number] => [
    min / 1.25,
    max * 1.25,
  ];

  const makeAxis = (axis: Axis, side: "x" | "y", marks: readonly number[]): uPlot.Axis => {
    const format = formats[axis.unit];
    const grid = { stroke: themeColor("--grid"), width: 1 };
    return {
      stroke: themeColor("--quiet"),
      font: FONT,
      labelFont: FONT,
      grid: side === "x" && axis.scale === "log2" ? { show: false } : grid,
      ticks: { show: false },
      gap: 6,
      values: (_, splits) => splits.map((it) => (it === null ? "" : format(it))),
      size: side === "x" ? 32 : measureLabels,
      label: axis.label,
      labelSize: 18,
      labelGap: 2,
      ...(axis.scale === "log2" && { splits: () => [...marks], filter: keepAll }),
      ...(axis.scale === "log10" && { splits: splitLogs, filter: keepAll }),
      ...(axis.unit === "nines" && {
        splits: (plot: uPlot) => {
          const { max = 2 } = plot.scales["x"] ?? {};
          const whole = Array.from({ length: Math.floor(max ?? 2) }, (_, at) => at + 1);
          // A narrow chart has no room for a tick at 0.
          return [...(plot.width > 500 ? [0] : []), Math.log10(2), ...whole];
        },
      }),
    };
  };

  const keepAll = (_: uPlot, splits: number[]): number[] => splits;

  /** Ticks at 1, 2, 5, 10, … if the axis spans at most four powers of ten; otherwise at 1, 10, 100, …. */
  const splitLogs = (plot: uPlot): number[] => {
    const { min, max } = plot.scales["y"] ?? {};
    if (typeof min !== "number" || typeof max !== "number") return [];
    const first = Math.floor(Math.log10(min));
    const decades = Array.from({ length: Math.ceil(Math.log10(max)) - first + 1 }, (_, at) => at);
    const steps = Math.log10(max / min) > 4 ? [1] : [1, 2, 5];
    return decades
      .flatMap((at) => steps.map((step) => step * 10 ** (first + at)))
      .filter((it) => it >= min && it <= max);
  };

  /** The space that the longest label of the y axis needs, in px. */
  const measureLabels = (plot: uPlot, values: string[] | null): number => {
    plot.ctx.save();
    plot.ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    const widths = (values ?? []).map((it) => plot.ctx.measureText(it).width / devicePixelRatio);
    plot.ctx.restore();
    return Math.ceil(Math.max(30, ...widths)) + 12;
  };

  const makePlot = ({ x, y, curves }: Chart, element: HTMLElement): uPlot => {
    const tables = curves.map(({ points }): uPlot.AlignedData => [
      points.map(([at]) => at),
      points.map(([, value]) => value),
    ]);
    const data = Plot.join(tables);
    return new Plot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [12, 28, 0, 0],
        scales: { x: { time: false, ...makeScale(x) }, y: makeScale(y) },
        axes: [makeAxis(x, "x", [...data[0]]), makeAxis(y, "y", [])],
        legend: {
          markers: {
            width: 3,
            fill: () => "transparent",
            stroke: (_, at) => nameColor(curves[at - 1]),
            dash: (_, at) => (curves[at - 1]?.isDashed ? "dashed" : "solid"),
          },
        },
        cursor: { y: false, points: { size: 7 } },
        series: [
          { label: x.label, value: (_, it) => (it === null ? "" : formats[x.unit](it)) },
          ...curves.map((curve): uPlot.Series => ({
            label: curve.name,
            stroke: colorOf(curve),
            width: 2,
            spanGaps: true,
            ...(curve.isDashed && { dash: [6, 4] }),
            points: { show: x.scale === "log2", size: 7, fill: colorOf(curve) },
            value: (_, it) => (it === null ? "" : formats[y.unit](it)),
          })),
        ],
      },
      data,
      element,
    );
  };

  const nameColor = (curve: Curve | undefined): string => (curve ? colorOf(curve) : "transparent");

  const elements = [...document.querySelectorAll<HTMLElement>("[data-chart]")];
  const plots = new Map<HTMLElement, uPlot>();
  const draw = (element: HTMLElement): void => {
    const chart = charts[Number(element.dataset["chart"])];
    plots.get(element)?.destroy();
    if (chart) plots.set(element, makePlot(chart, element));
  };
  const resizeObserver = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      plots.get(target as HTMLElement)?.setSize({ width: target.clientWidth, height: HEIGHT });
    }
  });
  for (const element of elements) {
    draw(element);
    resizeObserver.observe(element);
  }
  isDark.addEventListener("change", () => elements.forEach(draw));

  const saveLink = document.querySelector<HTMLAnchorElement>("#save");
  const json = document.querySelector("#result")?.textContent ?? "";
  if (saveLink) saveLink.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
}
