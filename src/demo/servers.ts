import process from "node:process";
import { McpServer, type ServerContext } from "@modelcontextprotocol/server";
import { VERSION } from "../base/version.ts";
import { resultOf, schemaOf, textResult } from "./schema.ts";

interface Count {
  /** How far to count. */
  readonly steps: number;
  /** Before each step, and before the answer, in ms. */
  readonly pause?: number;
}

/** What the server has seen so far. */
export interface SlowServerHistory {
  readonly pid: number;
  readonly finished: number;
  /** Of each count that was cancelled: after which step. */
  readonly cancelled: readonly number[];
}

/** Takes its time, reports progress, and stops when it is told to. */
export function createSlowServer(): McpServer {
  const server = new McpServer({ name: "demo-slow", version: VERSION });
  let finished = 0;
  const cancelled: number[] = [];
  server.registerTool(
    "count",
    {
      description: "Counts slowly, and reports each step.",
      inputSchema: schemaOf<Count>(
        {
          steps: { type: "integer", minimum: 1, maximum: 1000 },
          pause: {
            type: "integer",
            minimum: 0,
            maximum: 10_000,
            description: "ms; 100 if left out",
          },
        },
        "steps",
      ),
    },
    async ({ steps, pause = 100 }, context) => {
      const { signal } = context.mcpReq;
      let step = 0;
      signal.addEventListener("abort", () => cancelled.push(step), { once: true });
      while (step < steps) {
        await wait(pause, signal);
        step++;
        await report(step, steps, context);
      }
      await wait(pause, signal);
      finished++;
      return textResult(`Counted to ${steps}.`);
    },
  );
  server.registerTool(
    "history",
    {
      description: "Which counts were finished and which were cancelled.",
      annotations: { readOnlyHint: true },
    },
    () => {
      const history: SlowServerHistory = { pid: process.pid, finished, cancelled };
      return resultOf({ ...history }, JSON.stringify(history));
    },
  );
  return server;
}

async function report(progress: number, total: number, { mcpReq }: ServerContext): Promise<void> {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  const params = { progressToken, progress, total, message: `step ${progress} of ${total}` };
  await mcpReq.notify({ method: "notifications/progress", params });
}

/** Rejects with the signal's reason as soon as it is aborted. */
function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal.addEventListener("abort", abort, { once: true });
  });
}
