import type { HubEvent } from "../../src/base/events.ts";
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
  introduce,
  type Json,
  type Peer,
  type Script,
  type Settings,
} from "../fixtures/memory-hub.ts";
import { setUpWith, type Use } from "../fixtures/plugin-hub.ts";

type More = Partial<Pick<Use, "servers" | "tools" | "options"> & Pick<Plugin, "whenBroken">>;

/*
 * test/plugins: core-* test how the hub runs plugins, the other files test the built-in plugins. This file has what the
 * core-* tests share: plugins made of functions, hubs with these plugins (`open`, `openWithClock`), and their events.
 */

/** A plugin with these hooks. */
export function use(name: string, parts: Parts, more?: More): Use {
  return hosted(name, () => parts, more);
}

/** The same for hooks that need the host. */
export function hosted(name: string, setup: (host: Host) => Parts, more: More = {}): Use {
  const { whenBroken = "refuse", ...entry } = more;
  return { plugin: { name, whenBroken, setup: (_: unknown, host) => setup(host) }, ...entry };
}

/** A `call` hook in one function; its result is returned unchanged. */
export type Run = (call: ToolCall, next: Next, tool: ToolInfo) => unknown;

/** A plugin that handles each call with this function. */
export function wrapping(name: string, run: Run, more: More = {}): Use {
  const wrap = (next: Next, tool: ToolInfo): Next =>
    ((call) => run(call, next, tool)) as (call: ToolCall) => Promise<Answer>;
  return use(name, { call: wrap }, more);
}

type Realm = Awaited<ReturnType<typeof setUpWith>>;

/** A hub with these plugins, and a client that has listed the tools. */
export async function open(
  uses: readonly Use[],
  scripts: Record<string, Script>,
  settings: Settings = {},
): Promise<Realm> {
  const realm = await setUpWith(uses, scripts, settings);
  await introduce(realm.client);
  await realm.hub.settled();
  return realm;
}

/** The same with a virtual clock. @param capabilities the client's capabilities */
export async function stage(
  uses: readonly Use[],
  scripts: Record<string, Script>,
  settings: Settings = {},
  capabilities: object = {},
): Promise<Realm & { readonly clock: VirtualClock }> {
  const clock = new VirtualClock();
  const realm = await setUpWith(uses, scripts, { ...settings, clock, random: () => 0 });
  await introduce(realm.client, capabilities);
  await turn();
  return { ...realm, clock };
}

/** The text of each message of this method that a server received. */
export function textsTo(script: Script, method = "tools/call"): readonly string[] {
  return script.peers.flatMap(({ received }) =>
    received.filter((text) => (JSON.parse(text) as Json).method === method),
  );
}

/** All responses with this id that a client received. */
export function answersTo({ messages }: Peer, id: unknown): readonly Json[] {
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
export function codeOf(error: unknown): unknown {
  return error instanceof HubError ? error.code : error;
}
