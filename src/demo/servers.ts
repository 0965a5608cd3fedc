import process from "node:process";
import {
  type CallToolResult,
  fromJsonSchema,
  McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { VERSION } from "../base/version.ts";

type Property = { readonly type: "string" | "integer" } & Readonly<Record<string, unknown>>;

/** The input schema of a tool: an object with these properties, typed as `T`. */
export function schemaOf<T>(properties: Record<keyof T & string, Property>, ...required: string[]) {
  return fromJsonSchema<T>({ type: "object", properties, required, additionalProperties: false });
}

/** A tool result with the same data as text and as `structuredContent`. */
export function resultOf(structuredContent: Record<string, unknown>, text: string): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent };
}

export function textResult(text: string, isError = false): CallToolResult {
  return { content: [{ type: "text", text }], isError };
}

interface Count {
  readonly steps: number;
  /** Delay before each step and before the answer, in ms. */
  readonly pause?: number;
}

export interface SlowServerHistory {
  readonly pid: number;
  readonly finished: number;
  /** The step at which each cancelled count stopped. */
  readonly cancelled: readonly number[];
}

/** The demo's slow server: reports progress and stops when cancelled. */
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
            description: "milliseconds; default 100",
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

/** Waits for `ms`. Rejects with the signal's reason if the signal is aborted before that. */
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

const ZONE = {
  type: "string",
  description: 'a time zone such as "Asia/Tokyo"; default UTC',
} as const;

/** The demo's clock server: the time in a time zone. */
export function createClockServer(): McpServer {
  const server = new McpServer({ name: "demo-clock", version: VERSION });
  server.registerTool(
    "now",
    {
      description: "The time in a time zone.",
      inputSchema: schemaOf<{ zone?: string }>({ zone: ZONE }),
      annotations: { readOnlyHint: true },
    },
    ({ zone = "UTC" }) => {
      const now = new Date();
      const offset = readOffset(zone, now);
      if (offset === undefined) return textResult(`There is no time zone "${zone}".`, true);
      const local = new Date(now.getTime() + offset * 60_000).toISOString().slice(0, 19);
      const time = `${local}${formatOffset(offset)}`;
      return resultOf({ zone, time, epoch: now.getTime() }, `${time} (${zone})`);
    },
  );
  server.registerTool(
    "offset",
    {
      description: "How many minutes a time zone is ahead of UTC now.",
      inputSchema: schemaOf<{ zone?: string }>({ zone: ZONE }),
      annotations: { readOnlyHint: true },
    },
    ({ zone = "UTC" }) => {
      const minutes = readOffset(zone, new Date());
      if (minutes === undefined) return textResult(`There is no time zone "${zone}".`, true);
      return resultOf({ zone, minutes }, String(minutes));
    },
  );
  return server;
}

/** How many minutes a time zone is ahead of UTC; undefined if there is no such time zone. */
function readOffset(timeZone: string, date: Date): number | undefined {
  try {
    const format = new Intl.DateTimeFormat("en", { timeZone, timeZoneName: "longOffset" });
    const name =
      format.formatToParts(date).find(({ type }) => type === "timeZoneName")?.value ?? "";
    const [, sign, hours = 0, minutes = 0] = /GMT(?:([+-])(\d+):(\d+))?/.exec(name) ?? [];
    return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  } catch {
    return undefined;
  }
}

function formatOffset(minutes: number): string {
  const pad = (value: number): string => String(Math.floor(value)).padStart(2, "0");
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${pad(size / 60)}:${pad(size % 60)}`;
}

const TRANSFORMS: Readonly<Record<string, { description: string; run: (text: string) => string }>> =
  {
    upper: { description: "The text in capital letters.", run: (text) => text.toUpperCase() },
    reverse: {
      description: "The text backwards.",
      run: (text) => Array.from(text).toReversed().join(""),
    },
    trim: {
      description: "The text without white space around it.",
      run: (text) => text.trim(),
    },
  };

export function createTextServer(): McpServer {
  const server = new McpServer({ name: "demo-text", version: VERSION });
  const inputSchema = schemaOf<{ text: string }>({ text: { type: "string" } }, "text");
  const annotations = { readOnlyHint: true };
  for (const [name, { description, run }] of Object.entries(TRANSFORMS)) {
    const config = { description, inputSchema, annotations };
    server.registerTool(name, config, ({ text }) => textResult(run(text)));
  }
  server.registerTool(
    "count",
    { description: "How many characters, words and lines a text has.", inputSchema, annotations },
    ({ text }) => {
      const characters = Array.from(text).length;
      const words = text.split(/\s+/).filter(Boolean).length;
      const lines = text.split("\n").length;
      const counted = { characters, words, lines };
      return resultOf(counted, JSON.stringify(counted));
    },
  );
  return server;
}
