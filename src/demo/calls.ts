import { Client, type CallToolResult } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { pause, systemClock } from "../base/clock.ts";
import { VERSION } from "../base/version.ts";
import type { DemoProgram } from "./steps.ts";

/** Pauses between calls, in ms. */
const PAUSE = { quick: 4000, slow: 3000, approved: 2000 };
/** Arguments of the slow call: a count that takes ten minutes unless somebody cancels it. `pause` is in ms. */
const COUNT = { steps: 600, pause: 1000 };
const ZONES = ["Asia/Tokyo", "Europe/Paris", "America/Lima", "Nowhere/Land"];

/**
 * For `toolmux demo --dashboard`: starts a hub and calls its tools until the signal is aborted, so that the page has
 * something to show. It makes three series of calls at the same time: slow calls, calls that need an approval, and
 * quick calls, some of which fail.
 */
export async function keepCalling(
  { command, args, env }: DemoProgram,
  signal: AbortSignal,
): Promise<void> {
  const transport = new StdioClientTransport({ command, args: [...args], env, stderr: "ignore" });
  const client = new Client({ name: "toolmux-demo", version: VERSION });
  await client.connect(transport);
  try {
    const slow = async (): Promise<never> => {
      for (;;) {
        // The call fails if somebody cancels it on the page.
        await call(client, "slow__count", COUNT, signal).catch(() => {});
        await pause(systemClock, PAUSE.slow, signal);
      }
    };
    const quick = async (): Promise<never> => {
      for (let n = 0; ; n++) {
        const zone = ZONES[n % ZONES.length] ?? "";
        await call(client, "clock__now", { zone }, signal).catch(() => {});
        await call(client, "text__upper", { text: `number ${n}` }, signal).catch(() => {});
        await pause(systemClock, PAUSE.quick, signal);
      }
    };
    const approved = async (): Promise<never> => {
      for (;;) {
        // The call is refused while no page is open on which a person could allow it.
        await call(client, "text__reverse", { text: "May I?" }, signal).catch(() => {});
        await pause(systemClock, PAUSE.approved, signal);
      }
    };
    await Promise.all([slow(), quick(), approved()]);
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    await client.close();
  }
}

function call(
  client: Client,
  name: string,
  args: Record<string, unknown>,
  signal: AbortSignal,
): Promise<CallToolResult> {
  const timeout = 2 * COUNT.steps * COUNT.pause;
  // The client asks for progress only if `onprogress` is given, and the server reports progress only if asked.
  return client.callTool({ name, arguments: args }, { timeout, signal, onprogress() {} });
}
