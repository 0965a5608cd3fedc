import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { HttpClient } from "./http/client.ts";
import { Host } from "./http/host.ts";
import type { Command } from "./peer.ts";
import { quantile } from "./stats.ts";

/** Who floods the hub: nobody, one of its servers or models, or one of its clients. */
export const FLOODS = ["none", "events", "chunks", "stdio", "model", "body", "control"] as const;
export type Flood = (typeof FLOODS)[number];

interface FloodJob {
  /** A hub that serves HTTP, with a manifest at `manifest` that may be replaced. */
  readonly peer: Command;
  readonly manifest: string;
  readonly echo: Command;
  readonly folder: string;
  readonly flood: Flood;
  /** How long calls are measured, in ms. */
  readonly duration: number;
}

const FLOODER = fileURLToPath(new URL("peers/flooder.ts", import.meta.url));
/** Time from the beginning of the flood to the first measured call, in ms. */
const WARM_UP = 500;
/** Pause between two calls of the neighbour, in ms: it waits for the event loop anew each time. */
const PAUSE = 2;

/**
 * Measures the calls of an HTTP client of a stdio server while another peer of the hub floods it.
 * @returns the times of the calls, in ms
 */
export async function floodNeighbours({
  peer,
  manifest,
  echo,
  folder,
  flood,
  duration,
}: FloodJob): Promise<{ p50: number; p99: number; max: number; calls: number }> {
  const flooders: ChildProcess[] = [];
  const start = (...args: readonly string[]): ChildProcess => {
    const child = spawn(process.execPath, [FLOODER, ...args], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    flooders.push(child);
    return child;
  };
  const isServed = flood === "events" || flood === "chunks" || flood === "model";
  const port = isServed ? await firstLine(start(flood)) : "";
  const url = `http://127.0.0.1:${port}`;
  const servers = {
    s000: { command: echo.file, args: echo.args },
    ...(flood === "stdio" && { flood: { command: process.execPath, args: [FLOODER, "stdio"] } }),
    ...((flood === "events" || flood === "chunks") && { flood: { url: `${url}/mcp` } }),
  };
  const agents = flood === "model" && {
    models: { fast: { provider: "openai", model: "m", url: `${url}/v1`, apiKey: "none" } },
    agents: { flood: { model: "fast", instruction: "Write.", description: "Writes." } },
  };
  writeFileSync(manifest, JSON.stringify({ servers, ...agents }));
  const run = join(folder, "run");
  const host = await Host.start({ ...peer, env: { ...peer.env, TOOLMUX_RUN_DIR: run } });
  try {
    const client = await HttpClient.connect(host.url);
    await client.ask("tools/list", {});
    if (flood === "body") start("body", host.url.port);
    if (flood === "control") start("control", await socketIn(run));
    if (flood === "model")
      await post(await socketIn(run), "/v1/agents/flood/runs", { message: "Go." });
    if ("flood" in servers) {
      const other = await HttpClient.connect(host.url);
      // The call is answered only when the hub ends.
      for (let at = 0; at < 4; at++)
        void other.ask("tools/call", { name: "flood__flood", arguments: {} }).catch(() => {});
    }
    await sleep(WARM_UP);
    const times: number[] = [];
    for (const end = performance.now() + duration; performance.now() < end;) {
      const begun = performance.now();
      const params = { name: "s000__echo", arguments: { key: "10000001", lines: 1 } };
      const [message] = await client.ask("tools/call", params);
      if (message?.result === undefined) throw new Error(`no result: ${JSON.stringify(message)}`);
      times.push(performance.now() - begun);
      await sleep(PAUSE);
    }
    const sorted = Float64Array.from(times).sort();
    return {
      p50: quantile(sorted, 0.5),
      p99: quantile(sorted, 0.99),
      max: sorted.at(-1) ?? Number.NaN,
      calls: times.length,
    };
  } finally {
    for (const child of flooders) child.kill("SIGKILL");
    process.kill(host.pid, "SIGKILL");
  }
}

async function firstLine({ stdout }: ChildProcess): Promise<string> {
  for await (const chunk of stdout?.iterator({ destroyOnReturn: false }) ?? [])
    return String(chunk).trim();
  throw new Error("the flooder did not start");
}

/** Waits for the control socket of the hub with this folder. */
async function socketIn(folder: string): Promise<string> {
  for (let tries = 0; tries < 200; tries++) {
    try {
      const name = readdirSync(folder).find((file) => file.endsWith(".sock"));
      if (name !== undefined) return join(folder, name);
    } catch {
      // The hub makes the folder.
    }
    await sleep(50);
  }
  throw new Error("the hub has no control socket");
}

function post(socketPath: string, path: string, body: object): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { "Content-Type": "application/json" };
    const sent = request({ socketPath, path, method: "POST", headers }, (response) => {
      response.resume();
      if ((response.statusCode ?? 500) < 300) resolve();
      else reject(new Error(`${path} was answered by ${response.statusCode}`));
    });
    sent.on("error", reject);
    sent.end(JSON.stringify(body));
  });
}
