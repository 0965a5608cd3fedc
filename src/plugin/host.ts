import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { HubError } from "../base/errors.ts";
import type { EventBus, HubEvent, EventListener } from "../base/events.ts";
import { expandHome, type Env } from "../base/paths.ts";
import { entrust, isOwnError } from "./errors.ts";
import type { Member } from "./instance.ts";
import { makePair } from "./transport.ts";
import type { Answer, EventKind, Host, Link, Tool, Transport } from "./plugin.ts";
import { writeObject } from "./answer.ts";

/** What the running hub does for plugins. */
export interface HubAccess {
  /** The tools that clients see. */
  list(member: Member, signal: AbortSignal): Promise<readonly Tool[]>;
  /** Calls a tool as a client would, through all plugins but this one. `args` is the JSON text of an object. */
  call(member: Member, name: string, args: string, signal: AbortSignal): Promise<Answer>;
  nameOf(server: string, tool: string): string | undefined;
}

export interface HostParts {
  readonly bus: EventBus;
  readonly env: Env;
  /** The hub's state folder, absolute. */
  readonly stateFolder: string;
  readonly signal: AbortSignal;
  /** undefined while the hub does not run. */
  hub(): HubAccess | undefined;
  /** Whether the event is a log line of a plugin. */
  isEcho(event: HubEvent): boolean;
}

/** Maximum number of concurrent calls per plugin: a plugin may call itself through others. */
const MOST_CALLS = 1000;
/** Maximum number of subscriptions per plugin: one that subscribes at each event would never end. */
const MOST_SUBSCRIPTIONS = 1000;

/** The host API of one plugin. */
export function makeHost(member: Member, parts: HostParts): Host {
  const { bus, env, stateFolder, signal } = parts;
  const { name, spec } = member;
  let calls = 0;
  let subscriptions = 0;
  const hub = (): HubAccess => {
    signal.throwIfAborted();
    const access = parts.hub();
    if (access !== undefined) return access;
    throw new HubError("usage", "The hub is not running yet: that cannot be asked for in setup.");
  };
  const until = (own: AbortSignal | undefined): AbortSignal =>
    own === undefined ? signal : AbortSignal.any([own, signal]);
  return {
    name,
    signal,
    log: (level, text) => member.log(level, text),
    subscribe(listener, kinds) {
      if (subscriptions >= MOST_SUBSCRIPTIONS) {
        const text = `Plugin "${name}" listens ${subscriptions} times at a time, which is too often.`;
        throw new HubError("usage", text);
      }
      subscriptions++;
      const undo = listen(member, parts, listener, kinds, bus);
      let isUndone = false;
      return () => {
        if (!isUndone) subscriptions--;
        isUndone = true;
        undo();
      };
    },
    resolve: (path) => resolve(spec.baseDir, expandHome(path, env)),
    folder: () =>
      spare(async () => {
        const folder = join(stateFolder, "plugins", name);
        await mkdir(folder, { recursive: true, mode: 0o700 });
        return folder;
      }),
    list: (own) => spare(async () => hub().list(member, until(own))),
    call: (tool, args = {}, own) =>
      spare(async (): Promise<Answer> => {
        if (calls >= MOST_CALLS) {
          const text = `Plugin "${name}" has ${calls} calls running at a time, which is too many.`;
          throw new HubError("usage", text);
        }
        calls++;
        try {
          return await hub().call(member, tool, writeObject(args), until(own));
        } finally {
          calls--;
        }
      }),
    nameOf: (server, tool) => parts.hub()?.nameOf(server, tool),
    pair: (): [Link, Transport] => makePair((error) => member.complain(error)),
  };
}

/** Runs an operation for a plugin. A rejection that the plugin does not handle is marked, so that it does no harm. */
function spare<T>(work: () => Promise<T>): Promise<T> {
  const promise = work();
  promise.catch((error: unknown) => void (isOwnError(error) && entrust(error)));
  return promise;
}

/**
 * Delivers events to a plugin until the plugin is disposed; none while its circuit breaker for events is open.
 * @returns unsubscribes
 */
export function listen(
  member: Member,
  { isEcho, signal }: Pick<HostParts, "isEcho" | "signal">,
  listener: (event: HubEvent) => unknown,
  kinds: readonly EventKind[] | undefined,
  bus: EventBus,
): () => void {
  if (signal.aborted) return () => {};
  const tell: EventListener = (event) => {
    // A plugin that logs at each log line would never end.
    if (isEcho(event) || member.isBroken("event")) return;
    try {
      const done = listener(event);
      if (!(done instanceof Promise)) member.succeed("event");
      else {
        done.then(
          () => member.succeed("event"),
          (error: unknown) => member.fail("event", error),
        );
      }
    } catch (error) {
      member.fail("event", error);
    }
  };
  const undo = bus.subscribe(tell, kinds);
  signal.addEventListener("abort", undo, { once: true });
  return () => {
    signal.removeEventListener("abort", undo);
    undo();
  };
}
