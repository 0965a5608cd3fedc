import type { Buffer } from "node:buffer";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { HubError, toHubError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import { untilAborted } from "../base/grace.ts";
import type { TerminalStyle } from "../terminal/terminal.ts";
import { sanitizeLine } from "../terminal/report.ts";
import { TOUR_STOPS, type TourContext } from "./stops.ts";

/** A hub to be started as a child process. */
export interface DemoProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

const TITLE_WIDTH = 40;

/**
 * Starts a hub, drives it with an MCP client, and prints a line for each thing that there is to see: what,
 * how long it took, and what came of it. @returns whether everything was as it should be.
 */
export async function runTour(
  { command, args, env }: DemoProgram,
  lastWords: string,
  { colors }: TerminalStyle,
  signal: AbortSignal,
): Promise<boolean> {
  const transport = new StdioClientTransport({ command, args: [...args], env, stderr: "pipe" });
  const client = new Client({ name: "toolmux-demo", version: VERSION });
  const tour: TourContext = { client, transport, lastWords, told: listen(transport), pids: [] };
  let failed = 0;
  try {
    for (const { title, visit } of TOUR_STOPS) {
      const started = performance.now();
      let line: string;
      try {
        line = colors.dim(await untilAborted(visit(tour), signal));
      } catch (error) {
        if (signal.aborted) throw error;
        failed++;
        line = colors.red(`WRONG: ${sanitizeLine(toHubError(error).message)}`);
      }
      const ms = `${(performance.now() - started).toFixed(0)} ms`;
      console.log(`  ${title.padEnd(TITLE_WIDTH)}${colors.bold(ms.padStart(8))}  ${line}`);
    }
  } finally {
    await client.close();
  }
  return failed === 0;
}

function listen({ stderr }: StdioClientTransport): TourContext["told"] {
  let heard = "";
  stderr?.on("data", (chunk: Buffer) => (heard += chunk.toString()));
  return (text, ms) =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        if (!heard.includes(text)) return;
        clearTimeout(timer);
        stderr?.off("data", look);
        resolve();
      };
      const timer = setTimeout(() => {
        stderr?.off("data", look);
        reject(new HubError("internal", `the hub did not tell "${text}", only "${heard}"`));
      }, ms);
      stderr?.on("data", look);
      look();
    });
}
