/** Servers over HTTP that are killed and come back, under load. Exit code 1 if anything was wrong. */
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { returns, type ReturnsReport } from "./soak/returns.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "120" },
    flight: { type: "string", default: "32" },
  },
});
const built = fileURLToPath(new URL("../dist/toolmux", import.meta.url));
const executable = process.env["TOOLMUX_EXECUTABLE"] ?? built;

function summarize({ calls, kills, done, unsure, back, latency }: ReturnsReport): string {
  const show = ({ p50, worst }: ReturnsReport["back"]): string =>
    `p50 ${p50.toFixed(0)} ms, worst ${worst.toFixed(0)} ms`;
  return [
    `${calls} calls, ${kills} kills`,
    `${done} done, ${unsure} told that the tool may have run`,
    `from a server's return to its next answer: ${show(back)}`,
    `a call: ${show(latency)}`,
  ].join("\n");
}

const report = await returns({
  executable,
  duration: Number(values.seconds) * 1000,
  every: 5000,
  down: 1000,
  flight: Number(values.flight),
  print: (line) => console.log(line),
});
console.log(summarize(report));
console.log(`${report.faults.length} faults`);
process.exitCode = report.faults.length > 0 ? 1 : 0;
