/** The soak: a hub or a fleet under every kind of trouble, for minutes. Exit code 1 if anything was wrong. */
import { randomInt } from "node:crypto";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { SKIP_WITHOUT_NATS } from "../harness/nats.ts";
import { type FleetSoakReport, soakFleet } from "./fleet.ts";
import { soak, type SoakOptions, type SoakReport } from "./soak.ts";

const USAGE = `usage: bun test/soak/main.ts [--minutes N] [--seed S]
       bun test/soak/main.ts --fleet

  --minutes N  how long there is trouble (5)
  --seed S     what happens when, as far as a seed can decide that; another each time if there is none
  --fleet      three machines with 10 servers each, a million calls, and outages of machines and NATS`;

/** @throws {TypeError} if the command line is not as USAGE has it. */
function readOptions(
  argv: readonly string[],
): Omit<SoakOptions, "print"> & { readonly isOfFleet: boolean } {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      minutes: { type: "string", default: "5" },
      seed: { type: "string" },
      fleet: { type: "boolean", default: false },
    },
  });
  const minutes = Number(values.minutes);
  const seed = Number(values.seed ?? randomInt(1_000_000));
  if (!(minutes > 0)) throw new TypeError("--minutes wants a number");
  if (!Number.isSafeInteger(seed)) throw new TypeError("--seed wants a whole number");
  const built = fileURLToPath(new URL("../../dist/toolmux", import.meta.url));
  const executable = process.env["TOOLMUX_EXECUTABLE"] ?? built;
  return { executable, duration: minutes * 60_000, seed, isOfFleet: values.fleet };
}

function summarize(report: SoakReport): string {
  const { tally, latency, thirds, faultCount, end } = report;
  const calls = Object.entries(tally).map(([how, count]) => `${count} ${how}`);
  const times = Object.entries(latency).map(([name, ms]) => `${name} ${ms.toFixed(1)} ms`);
  const weights = thirds.map(
    ({ rss, descriptors }) => `${(rss / 1e6).toFixed(0)} MB and ${descriptors} descriptors`,
  );
  return [
    `calls: ${calls.join(", ")}`,
    `a calm server's: ${times.join(", ")}`,
    `${report.edits} edits, ${report.kills} kills, ${report.stops} stops, ${report.lists} lists`,
    `thirds: ${weights.join("; ")}`,
    `nothing was left ${end.toFixed(0)} ms after the client had left`,
    `${faultCount} faults`,
  ].join("\n");
}

/** The size of the soak of a fleet. */
const FLEET = { servers: 10, calls: 1_000_000, flight: 64, hasOutages: true } as const;

function summarizeFleet(report: FleetSoakReport): string {
  const { answered, lost, unanswered, rate, slowest, told, faultCount } = report;
  const times = Object.entries(told).map(([name, ms]) => `${name} ${ms.toFixed(0)} ms`);
  return [
    `calls: ${answered} answered, ${lost} lost and told so, ${unanswered} unanswered`,
    `${rate.toFixed(0)} calls a second, the slowest ${slowest.toFixed(0)} ms`,
    `all open calls told: ${times.join(", ")}`,
    `${faultCount} faults`,
  ].join("\n");
}

try {
  const { isOfFleet, ...options } = readOptions(process.argv.slice(2));
  const print = (line: string): void => console.log(line);
  if (isOfFleet) {
    if (SKIP_WITHOUT_NATS !== false) throw new Error(`not run: ${SKIP_WITHOUT_NATS}`);
    const report = await soakFleet({ executable: options.executable, ...FLEET, print });
    console.log(summarizeFleet(report));
    process.exitCode = report.faultCount > 0 ? 1 : 0;
  } else {
    console.log(`seed ${options.seed}, ${options.duration / 60_000} minutes`);
    const report = await soak({ ...options, print });
    console.log(summarize(report));
    process.exitCode = report.faultCount > 0 ? 1 : 0;
  }
} catch (error) {
  console.error(error instanceof TypeError ? `${error.message}\n\n${USAGE}` : error);
  process.exitCode = error instanceof TypeError ? 2 : 1;
}
