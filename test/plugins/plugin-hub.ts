import assert from "node:assert/strict";
import type { HubEvent } from "../../src/base/hub-events.ts";
import { HubError } from "../../src/base/errors.ts";
import type {
  Answer,
  Host,
  Next,
  Parts,
  Plugin,
  ToolCall,
  ToolInfo,
} from "../../src/plugin/plugin.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  type HubSetupOptions,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";

type PluginUseOptions = Partial<
  Pick<PluginUse, "servers" | "tools" | "options"> & Pick<Plugin, "whenBroken">
>;

/*
 * test/plugins: core-* test how the hub runs plugins, the other files test the built-in plugins. This file has what the
 * core-* tests share: plugins made of functions, hubs with these plugins (`open`, `openWithClock`), and their events.
 */

/** A plugin with these hooks. */
export function pluginOf(name: string, parts: Parts, more?: PluginUseOptions): PluginUse {
  return pluginWithHost(name, () => parts, more);
}

/** The same for hooks that need the host. */
export function pluginWithHost(
  name: string,
  setup: (host: Host) => Parts,
  more: PluginUseOptions = {},
): PluginUse {
  const { whenBroken = "refuse", ...entry } = more;
  return { plugin: { name, whenBroken, setup: (_: unknown, host) => setup(host) }, ...entry };
}

/** A `call` hook in one function; its result is returned unchanged. */
export type CallHandler = (call: ToolCall, next: Next, tool: ToolInfo) => unknown;

/** A plugin that handles each call with this function. */
export function callPlugin(name: string, run: CallHandler, more: PluginUseOptions = {}): PluginUse {
  const wrap = (next: Next, tool: ToolInfo): Next =>
    ((call) => run(call, next, tool)) as (call: ToolCall) => Promise<Answer>;
  return pluginOf(name, { call: wrap }, more);
}

/** One server is the server `s`. */
type Scripts = ScriptedServer | Readonly<Record<string, ScriptedServer>>;
type PluginTestHub = Awaited<ReturnType<typeof setUpPluginHub>> & { readonly s: ScriptedServer };

/** A hub with these plugins, by default over a server `s` with a tool `t`, and a client that has listed the tools. */
export async function openPluginHub(
  plugins: readonly PluginUse[],
  scripts: Scripts = new ScriptedServer("t"),
  settings: HubSetupOptions = {},
): Promise<PluginTestHub> {
  const setup = await setUp(plugins, scripts, settings);
  await initialize(setup.client);
  await setup.hub.settled();
  return setup;
}

/** The same with a virtual clock. @param capabilities the client's capabilities */
export async function openWithClock(
  plugins: readonly PluginUse[],
  scripts: Scripts = new ScriptedServer("t"),
  settings: HubSetupOptions = {},
  capabilities: object = {},
): Promise<PluginTestHub & { readonly clock: VirtualClock }> {
  const clock = new VirtualClock();
  const setup = await setUp(plugins, scripts, { ...settings, clock, random: () => 0 });
  await initialize(setup.client, capabilities);
  await turn();
  return { ...setup, clock };
}

async function setUp(
  plugins: readonly PluginUse[],
  scripts: Scripts,
  settings: HubSetupOptions,
): Promise<PluginTestHub> {
  const servers = scripts instanceof ScriptedServer ? { s: scripts } : scripts;
  const setup = await setUpPluginHub(plugins, servers, settings);
  return { ...setup, s: servers["s"] ?? new ScriptedServer() };
}

/** A result that would be changed by parsing and printing. */
export const RESULT =
  '{"content":[{"type":"text","text":"1.0"}],"big":1234567890123456789,"n":1.0}';

/** A server with these tools that does this with calls. */
export function serverOf(onCall: ScriptedServer["onCall"], ...names: string[]): ScriptedServer {
  return Object.assign(new ScriptedServer(...names), { onCall });
}

/** Servers that answer calls with `RESULT`, and not at all. */
export const exact = (...names: string[]) => serverOf(() => `"result":${RESULT}`, ...names);
export const silent = (...names: string[]) => serverOf(() => undefined, ...names);

/** Throws what is no error as well. */
export const throwing = (thrown: unknown): never => {
  throw thrown;
};

/** Sends a message with this id, by default a call of `s__t`. @returns the response */
export function answerTo(
  client: Peer,
  id: unknown,
  message: object | string = callRequest(id, "s__t"),
): Promise<Json> {
  client.send(message);
  return client.find(isResponseTo(id));
}

/** The first message of this method that the server got, or gets. */
export function messageTo(script: ScriptedServer, method = "tools/call"): Promise<Json> {
  return script.newestPeer?.find((message) => message.method === method) ?? assert.fail();
}

export const CANCELLED = "notifications/cancelled";

/** A client's cancellation of the call with this id. */
export const cancelOf = (requestId: unknown, more: object = {}): object => ({
  jsonrpc: "2.0",
  method: CANCELLED,
  params: { requestId, ...more },
});

/** The text of each message of this method that a server received. */
export function requestTextsTo(script: ScriptedServer, method = "tools/call"): readonly string[] {
  return script.peers.flatMap(({ received }) =>
    received.filter((text) => (JSON.parse(text) as Json).method === method),
  );
}

/** All responses with this id that a client received. */
export function responsesTo({ messages }: Peer, id: unknown): readonly Json[] {
  return messages.filter((message) => message.id === id && message.method === undefined);
}

export function logsOf(events: readonly HubEvent[]): readonly string[] {
  return events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
}

/** The call events, without durations. */
export function callsOf(events: readonly HubEvent[]): readonly string[] {
  return events.flatMap((event) => {
    switch (event.kind) {
      case "callStarted":
        return [`started ${event.name}`];
      case "callFinished":
        return [`${event.outcome}${event.outcome === "failed" ? ` ${event.cause.code}` : ""}`];
      case "callCancelled":
        return [`cancelled by ${event.by}`];
      default:
        return [];
    }
  });
}

/** The code of an error, or the thrown value as text. */
export function errorCodeOf(error: unknown): unknown {
  return error instanceof HubError ? error.code : error;
}
