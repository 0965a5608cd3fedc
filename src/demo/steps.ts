import { formatDuration } from "../base/format.ts";
import type { Buffer } from "node:buffer";
import process from "node:process";
import { type CallToolResult, Client, type RequestOptions } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { abortable } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import { sanitizeLine } from "../terminal/log.ts";
import { type Terminal, wrapText } from "../terminal/terminal.ts";
import type { SlowServerHistory } from "./servers.ts";

/** The state that the steps of the demo share. */
export interface DemoContext {
  readonly client: Client;
  readonly transport: StdioClientTransport;
  /** The line that the demo's broken server prints to stderr before it exits. */
  readonly lastMessage: string;
  /** Resolves when the hub has written `text` to stderr. @throws {HubError} if that takes longer than `ms` */
  readonly waitForStderr: (text: string, ms: number) => Promise<void>;
  /** Ids of processes that must have ended at the end of the demo. */
  readonly pids: number[];
}

export interface DemoStep {
  readonly title: string;
  /** Runs the step. @returns the outcome, in a few words. @throws {HubError} if the outcome is not as expected */
  readonly run: (context: DemoContext) => Promise<string>;
}

/** Timeout of each request, in ms, so that the demo always ends. */
const REQUEST_TIMEOUT = 10_000;
/** Timeout for output on stderr, which may arrive later than a response on stdout, in ms. */
const STDERR_TIMEOUT = 5000;
const CONCURRENT_CALLS = 60;
const COUNT_STEPS = 4;
/** Delay between two steps of a count, in ms. */
const STEP_DELAY = 60;

const EXPECTED_TOOLS =
  "clock__now clock__offset slow__count slow__history text__count text__reverse text__trim text__upper";

export const DEMO_STEPS: readonly DemoStep[] = [
  { title: "start the hub and connect", run: connect },
  { title: "list the tools of all servers", run: listTools },
  { title: "a broken server affects only itself", run: findBroken },
  { title: "call a tool", run: callOne },
  { title: `make ${CONCURRENT_CALLS} calls at once`, run: callMany },
  { title: "make three slow calls at once", run: callSlow },
  { title: "follow a call's progress", run: followProgress },
  { title: "cancel a running call", run: cancelHalfWay },
  { title: "disconnect", run: leave },
];

async function connect({ client, transport, pids }: DemoContext): Promise<string> {
  await client.connect(transport, { timeout: REQUEST_TIMEOUT });
  if (transport.pid !== null) pids.push(transport.pid);
  const { name, version } = client.getServerVersion() ?? {};
  return `${name} ${version}`;
}

async function listTools({ client }: DemoContext): Promise<string> {
  const { tools } = await client.listTools(undefined, { timeout: REQUEST_TIMEOUT });
  const names = tools.map(({ name }) => name);
  expectEqual(names.join(" "), EXPECTED_TOOLS);
  return `${tools.length} tools of three servers, each under its server's prefix`;
}

async function findBroken({ client, lastMessage, waitForStderr }: DemoContext): Promise<string> {
  const response = call(client, "broken__price", {});
  const refused = await response.then(
    () => false,
    () => true,
  );
  if (!refused) throw demoError("a call of a tool that does not exist succeeded");
  await waitForStderr(lastMessage, STDERR_TIMEOUT);
  return `the fourth server exited; the hub reports why: ${lastMessage}`;
}

async function callOne({ client }: DemoContext): Promise<string> {
  const { structuredContent } = await call(client, "clock__now", { zone: "Asia/Tokyo" });
  const { time, epoch } = structuredContent as { time: string; epoch: number };
  if (Math.abs(Date.now() - epoch) > REQUEST_TIMEOUT)
    throw demoError(`the clock server returned ${time}`);
  expectEqual(time, `${new Date(epoch + 9 * 3_600_000).toISOString().slice(0, 19)}+09:00`);
  return `it is ${time} in Tokyo`;
}

async function callMany({ client }: DemoContext): Promise<string> {
  const calls = Array.from({ length: CONCURRENT_CALLS }, async (_, i) => {
    const result = await call(client, "text__upper", { text: `number ${i}` });
    expectEqual(textOf(result), `NUMBER ${i}`);
  });
  await Promise.all(calls);
  return "every result belongs to its call";
}

async function callSlow({ client }: DemoContext): Promise<string> {
  const calls = [1, 2, 3].map(async (steps) => {
    const result = await call(client, "slow__count", { steps, pause: STEP_DELAY });
    expectEqual(textOf(result), `Counted to ${steps}.`);
  });
  await Promise.all(calls);
  const alone = (2 + 3 + 4) * STEP_DELAY;
  return `in sequence they would take at least ${formatDuration(alone)}`;
}

async function followProgress({ client }: DemoContext): Promise<string> {
  const seen: string[] = [];
  const result = await call(
    client,
    "slow__count",
    { steps: COUNT_STEPS, pause: STEP_DELAY },
    { onprogress: ({ progress, total }) => void seen.push(`${progress}/${total}`) },
  );
  expectEqual(textOf(result), `Counted to ${COUNT_STEPS}.`);
  expectEqual(
    seen.join(" "),
    Array.from({ length: COUNT_STEPS }, (_, i) => `${i + 1}/${COUNT_STEPS}`).join(" "),
  );
  return `${seen.join(" ")}, then the result`;
}

async function cancelHalfWay({ client, pids }: DemoContext): Promise<string> {
  const abort = new AbortController();
  const running = call(
    client,
    "slow__count",
    { steps: COUNT_STEPS, pause: STEP_DELAY },
    { signal: abort.signal, onprogress: ({ progress }) => progress === 2 && abort.abort() },
  );
  const finished = await running.then(
    () => true,
    (error: unknown) => {
      if (!abort.signal.aborted) throw error;
      return false;
    },
  );
  if (finished) throw demoError("the call was not cancelled");
  const { structuredContent } = await call(client, "slow__history", {});
  const history = structuredContent as SlowServerHistory;
  pids.push(history.pid);
  // Four counts have finished: three concurrent ones, and the one with progress.
  expectEqual(history.finished, 4);
  expectEqual(history.cancelled.length, 1);
  return `the server got the cancellation after step ${history.cancelled[0]} of ${COUNT_STEPS}`;
}

async function leave({ client, pids }: DemoContext): Promise<string> {
  await client.close();
  const left = pids.filter(isAlive);
  if (left.length > 0) throw demoError(`these processes still run: ${left.join(", ")}`);
  return "the hub and its servers have ended";
}

function call(
  client: Client,
  name: string,
  args: Record<string, unknown>,
  options: RequestOptions = {},
): Promise<CallToolResult> {
  return client.callTool({ name, arguments: args }, { timeout: REQUEST_TIMEOUT, ...options });
}

function textOf({ content: [first] }: CallToolResult): string {
  return first?.type === "text" ? first.text : "";
}

function expectEqual(found: string | number, wanted: string | number): void {
  if (found !== wanted) throw demoError(`expected ${wanted}, found ${found}`);
}

function demoError(text: string): HubError {
  return new HubError("internal", text);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** The command that starts a hub. */
export interface DemoProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

const TITLE_WIDTH = 40;
/**
 * `OUTCOME_COLUMN`: the column in which the outcome of a step starts. If fewer than `MIN_OUTCOME_WIDTH` columns are
 * left there, the outcome gets lines of its own.
 */
const OUTCOME_COLUMN = TITLE_WIDTH + 12;
const MIN_OUTCOME_WIDTH = 40;

/**
 * `toolmux demo`: starts a hub, calls it with an MCP client, and prints the title, duration and outcome of each step
 * (`DEMO_STEPS`). Start here.
 * @returns whether every step succeeded
 */
export async function runDemoSteps(
  { command, args, env }: DemoProgram,
  lastMessage: string,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<boolean> {
  const { colors, width } = terminal.stdout;
  const transport = new StdioClientTransport({ command, args: [...args], env, stderr: "pipe" });
  const client = new Client({ name: "toolmux-demo", version: VERSION });
  const context: DemoContext = {
    client,
    transport,
    lastMessage,
    waitForStderr: watchStderr(transport),
    pids: [],
  };
  let failed = 0;
  try {
    for (const { title, run } of DEMO_STEPS) {
      const started = performance.now();
      let outcome: string;
      let color = colors.dim;
      try {
        outcome = await abortable(run(context), signal);
      } catch (error) {
        if (signal.aborted) throw error;
        failed++;
        color = colors.red;
        outcome = `FAILED: ${sanitizeLine(toHubError(error).message)}`;
      }
      const duration = formatDuration(performance.now() - started);
      const head = `  ${title.padEnd(TITLE_WIDTH)}${colors.bold(duration.padStart(8))}`;
      const isNarrow = width < OUTCOME_COLUMN + MIN_OUTCOME_WIDTH;
      const indent = " ".repeat(isNarrow ? 4 : OUTCOME_COLUMN);
      const text = color(wrapText(outcome, width, indent, indent).slice(indent.length));
      terminal.print(isNarrow ? `${head}\n${indent}${text}` : `${head}  ${text}`);
    }
  } finally {
    await client.close();
  }
  return failed === 0;
}

function watchStderr({ stderr }: StdioClientTransport): DemoContext["waitForStderr"] {
  let output = "";
  stderr?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  return (text, ms) =>
    new Promise((resolve, reject) => {
      const check = (): void => {
        if (!output.includes(text)) return;
        clearTimeout(timer);
        stderr?.off("data", check);
        resolve();
      };
      const timer = setTimeout(() => {
        stderr?.off("data", check);
        reject(new HubError("internal", `the hub did not report "${text}", only "${output}"`));
      }, ms);
      stderr?.on("data", check);
      check();
    });
}
