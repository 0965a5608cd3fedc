import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Track } from "./entrants.ts";
import type { Standing } from "./race.ts";

/** The part of echarts that this uses; it is installed with the peers, as nothing else needs its 60 MB. */
interface Echarts {
  init(
    place: null,
    theme: null,
    how: { renderer: "svg"; ssr: true; width: number; height: number },
  ): { setOption(option: object): void; renderToSVGString(): string; dispose(): void };
}

const WIDTH = 820;
const BAR = 30;
const HEAD = 64;
const LEFT = 200;
/** Both are read on white and on black. */
const INK = "#7a828c";
const OURS = "#2f9e6e";
const OTHERS = "#8f99a8";

/** The rates with 64 in flight as bars, one below the other for each track. @returns an SVG file. */
export async function drawChart(
  installed: string,
  standings: ReadonlyMap<Track, readonly Standing[]>,
): Promise<string> {
  const module = pathToFileURL(join(installed, "node_modules/echarts/dist/echarts.esm.mjs"));
  const echarts = (await import(module.href)) as Echarts;
  const tracks = [...standings].map(([track, ofTrack]) => ({ track, bars: barsOf(ofTrack) }));
  const tops = tracks.map((_, at) =>
    tracks.slice(0, at).reduce((sum, { bars }) => sum + HEAD + bars.length * BAR, HEAD),
  );
  const height = tracks.reduce((sum, { bars }) => sum + HEAD + bars.length * BAR, 16);
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height });
  chart.setOption({
    animation: false,
    title: tracks.map(({ track }, at) => ({
      text: `Small calls per second over ${track}, 64 in flight (logarithmic)`,
      left: 8,
      top: (tops[at] ?? 0) - 40,
      textStyle: { color: INK, fontSize: 15, fontWeight: "bold" },
    })),
    grid: tracks.map(({ bars }, at) => ({
      left: LEFT,
      right: 90,
      top: tops[at],
      height: bars.length * BAR,
    })),
    xAxis: tracks.map(({ bars }, at) => ({
      gridIndex: at,
      type: "log",
      min: 10 ** Math.floor(Math.log10(Math.min(...bars.map(({ rate }) => rate)) * 0.8)),
      show: false,
    })),
    yAxis: tracks.map(({ bars }, at) => ({
      gridIndex: at,
      type: "category",
      inverse: true,
      data: bars.map(({ name }) => name),
      axisLine: { show: false },
      axisTick: { show: false },
      axisLabel: { color: INK, fontSize: 13 },
    })),
    series: tracks.map(({ bars }, at) => ({
      type: "bar",
      xAxisIndex: at,
      yAxisIndex: at,
      barWidth: BAR - 10,
      data: bars.map(({ name, rate }) => ({
        value: Math.round(rate),
        itemStyle: { color: name.startsWith("toolmux") ? OURS : OTHERS },
      })),
      label: {
        show: true,
        position: "right",
        color: INK,
        fontSize: 13,
        formatter: ({ value }: { value: number }) => value.toLocaleString("en-US"),
      },
    })),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return `${svg}\n`;
}

/** Who has run with 64 in flight, the fastest first. */
function barsOf(standings: readonly Standing[]): { name: string; rate: number }[] {
  return standings
    .flatMap(({ name, version, laps }) => {
      const rate = laps.many?.rate;
      return rate === undefined ? [] : { name: `${name} ${version}`.trim(), rate };
    })
    .sort((one, other) => other.rate - one.rate);
}
