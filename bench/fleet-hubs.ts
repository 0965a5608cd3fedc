import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { startNats } from "../test/harness/nats.ts";
import type { Entrant } from "./contest.ts";
import type { EchoOptions, Stage } from "./stage.ts";

/** A fleet of hubs that export the same echo servers over a NATS server. */
export interface BenchFleet {
  /** A hub that uses the servers of the fleet: each call goes to the machine with the fewest open calls. */
  readonly importer: Entrant;
  /** A hub that uses the first machine as a server over HTTP. */
  readonly overHttp: Entrant;
}

/** Time that a hub has to start, in ms. */
const START_LIMIT = 20_000;

/**
 * Runs a fleet while `run` runs.
 * @param servers number of servers on each machine
 */
export async function withFleet<Value>(
  stage: Stage,
  machines: number,
  servers: number,
  options: EchoOptions,
  run: (fleet: BenchFleet) => Promise<Value>,
): Promise<Value> {
  const nats = await startNats(stage.makeFolder(`nats${++fleets}`));
  const running: ChildProcess[] = [];
  // A signal ends the benchmark without a word to those who wait.
  const kill = (): void => {
    for (const child of running) child.kill("SIGKILL");
    void nats.stop();
  };
  process.once("exit", kill);
  try {
    const names = Array.from({ length: servers }, (_, at) => `s${String(at).padStart(3, "0")}`);
    const { file: command, args } = stage.server(options);
    const urls: string[] = [];
    for (let machine = 1; machine <= machines; machine++) {
      const content = {
        fleet: { url: nats.url, name: `h${machine}`, export: ["*"] },
        servers: Object.fromEntries(names.map((name) => [name, { command, args }])),
      };
      const { peer } = stage.serving(content, ["--http", "127.0.0.1:0"]);
      const child = spawn(peer.file, peer.args, {
        env: { ...peer.env },
        stdio: ["ignore", "ignore", "pipe"],
      });
      running.push(child);
      urls.push(await urlOf(child));
    }
    const imported = {
      fleet: { url: nats.url, name: "importer" },
      servers: Object.fromEntries(names.map((name) => [name, { fleet: name, spread: "call" }])),
    };
    const far = { servers: { far: { url: urls[0] } } };
    const toolsOf = (prefix: string): Entrant["tools"] => {
      const [first = "", ...others] = names.map((name) => `${prefix}${name}__echo`);
      return [first, ...others];
    };
    return await run({
      importer: { ...stage.serving(imported), tools: toolsOf("") },
      overHttp: { ...stage.serving(far), tools: toolsOf("far__") },
    });
  } finally {
    process.off("exit", kill);
    await Promise.all(running.map(stop));
    await nats.stop();
  }
}

let fleets = 0;

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "exit");
}

/** Waits until a hub serves HTTP. @returns its URL */
async function urlOf(child: ChildProcess): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let log = "";
  const timer = setTimeout(() => reject(new Error(`a hub did not start: ${log}`)), START_LIMIT);
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    log = (log + text).slice(-10_000);
    const [url] = /http:\/\/[\d.]+:\d+\/mcp/.exec(log) ?? [];
    if (url !== undefined) resolve(url);
  });
  child.once("exit", () => reject(new Error(`a hub has ended: ${log}`)));
  return promise.finally(() => clearTimeout(timer));
}
