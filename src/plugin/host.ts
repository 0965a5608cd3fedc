import { count } from "../base/format.ts";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { HubError } from "../base/errors.ts";
import type {
  ApprovalEvent,
  EventBus,
  EventListener,
  EventStamp,
  HubEvent,
} from "../base/hub-events.ts";
import { type Env, expandHome } from "../base/paths.ts";
import { callStateOf } from "./handler-chain.ts";
import { isOwnError, markHandled } from "./errors.ts";
import type { PluginInstance } from "./instance.ts";
import { makeSdkTransportPair } from "./sdk-transport.ts";
import type { Answer, CallOptions, EventKind, Host, Link, Tool, Transport } from "./plugin.ts";
import { toObjectJson } from "./answer.ts";

export interface HubCallOptions extends Pick<CallOptions, "onProgress"> {
  readonly signal: AbortSignal;
}

/** The functions of the running hub that plugins use. */
export interface HubAccess {
  /** The tools that clients see. */
  list(plugin: PluginInstance, signal: AbortSignal): Promise<readonly Tool[]>;
  /** Calls a tool as a client would, through all plugins but this one. `args` is the JSON text of an object. */
  call(
    plugin: PluginInstance,
    name: string,
    args: string,
    options: HubCallOptions,
  ): Promise<Answer>;
  nameOf(server: string, tool: string): string | undefined;
}

export interface PluginHostOptions {
  readonly bus: EventBus;
  readonly env: Env;
  /** The hub's state folder, absolute. */
  readonly stateFolder: string;
  readonly signal: AbortSignal;
  /** The running hub; undefined while the hub is not running. */
  hub(): HubAccess | undefined;
  /** Whether the event is a log line of a plugin. */
  isPluginLog(event: HubEvent): boolean;
}

/**
 * Maximum number of concurrent calls of one plugin. Without a limit, two plugins could call each other's tools
 * endlessly.
 */
const MAX_CALLS = 1000;
/**
 * Maximum number of subscriptions of one plugin. Without a limit, a listener that itself subscribes at each event would
 * add subscriptions endlessly.
 */
const MAX_SUBSCRIPTIONS = 1000;

/** The host API of one plugin. */
export function makePluginHost(plugin: PluginInstance, options: PluginHostOptions): Host {
  const { env, stateFolder, signal } = options;
  const { name, spec } = plugin;
  let calls = 0;
  let subscriptions = 0;
  const hub = (): HubAccess => {
    signal.throwIfAborted();
    const access = options.hub();
    if (access !== undefined) return access;
    throw new HubError("usage", "The hub is not running yet: setup() cannot use this.");
  };
  const orDisposed = (callerSignal: AbortSignal | undefined): AbortSignal =>
    callerSignal === undefined ? signal : AbortSignal.any([callerSignal, signal]);
  return {
    name,
    signal,
    log: (level, text) => plugin.log(level, text),
    subscribe(listener, kinds) {
      if (subscriptions >= MAX_SUBSCRIPTIONS) {
        const text = `Plugin "${name}" has ${subscriptions} subscriptions, which is the limit.`;
        throw new HubError("usage", text);
      }
      subscriptions++;
      const unsubscribe = subscribeEvents(plugin, options, listener, kinds);
      let isUnsubscribed = false;
      return () => {
        if (!isUnsubscribed) subscriptions--;
        isUnsubscribed = true;
        unsubscribe();
      };
    },
    resolve: (path) => resolve(spec.baseDir, expandHome(path, env)),
    folder: () =>
      runForPlugin(async () => {
        const folder = join(stateFolder, "plugins", name);
        await mkdir(folder, { recursive: true, mode: 0o700 });
        return folder;
      }),
    list: (callerSignal) => runForPlugin(async () => hub().list(plugin, orDisposed(callerSignal))),
    call: (tool, args = {}, given = {}) =>
      runForPlugin(async (): Promise<Answer> => {
        const { for: outer, onProgress, signal: callerSignal, ...inner } = toCallOptions(given);
        if (calls >= MAX_CALLS) {
          const text = `Plugin "${name}" has ${count(calls, "call")} running, which is the limit.`;
          throw new HubError("usage", text);
        }
        calls++;
        try {
          const json = toObjectJson(args);
          const callOptions = { signal: orDisposed(callerSignal), onProgress };
          if (outer === undefined) return await hub().call(plugin, tool, json, callOptions);
          return await callStateOf(outer).callTool(plugin, tool, json, {
            ...callOptions,
            ...inner,
          });
        } finally {
          calls--;
        }
      }),
    nameOf: (server, tool) => options.hub()?.nameOf(server, tool),
    pair: (): [Link, Transport] => makeSdkTransportPair((error) => plugin.logFailure(error)),
  };
}

function toCallOptions(given: AbortSignal | CallOptions): CallOptions {
  return given instanceof AbortSignal ? { signal: given } : given;
}

/**
 * Runs an operation for a plugin, and marks its error as received by the plugin. If the plugin ignores the rejection,
 * the plugin is reported and the process keeps running.
 */
function runForPlugin<T>(work: () => Promise<T>): Promise<T> {
  const promise = work();
  promise.catch((error: unknown) => void (isOwnError(error) && markHandled(error)));
  return promise;
}

/** Whether the plugin applies to the tool of an approval. */
function isFor(plugin: PluginInstance, { server, tool }: ApprovalEvent): boolean {
  return plugin.isForServer(server) && plugin.isForTool(tool);
}

/**
 * Delivers events to a plugin until the plugin is disposed, except while its circuit breaker for events is open.
 * @returns a function that unsubscribes
 */
export function subscribeEvents(
  plugin: PluginInstance,
  { bus, isPluginLog, signal }: Pick<PluginHostOptions, "bus" | "isPluginLog" | "signal">,
  listener: (event: HubEvent, stamp: EventStamp) => unknown,
  kinds: readonly EventKind[] | undefined,
): () => void {
  if (signal.aborted) return () => {};
  const deliver: EventListener = (event, stamp) => {
    // Log lines of plugins are not delivered: a plugin that writes a log line for each delivered one would never stop.
    if (isPluginLog(event) || plugin.isCircuitOpen("event")) return;
    // Plugins get the event of every call.
    if (event.kind === "calls") return;
    if (event.kind === "approval" && !isFor(plugin, event)) return;
    try {
      const done: unknown = listener(event, stamp);
      if (!(done instanceof Promise)) plugin.recordSuccess("event");
      else {
        done.then(
          () => plugin.recordSuccess("event"),
          (error: unknown) => plugin.recordFailure("event", error),
        );
      }
    } catch (error) {
      plugin.recordFailure("event", error);
    }
  };
  const unsubscribe = bus.subscribe(deliver, kinds);
  signal.addEventListener("abort", unsubscribe, { once: true });
  return () => {
    signal.removeEventListener("abort", unsubscribe);
    unsubscribe();
  };
}
