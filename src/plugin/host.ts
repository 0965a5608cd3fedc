import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { HubError } from "../errors.ts";
import type { Bus, HubEvent, Listener } from "../events.ts";
import { expandHome, type Env } from "../manifest/folders.ts";
import { entrust, isOwnError } from "./fault.ts";
import type { Member } from "./member.ts";
import { makePair } from "./pair.ts";
import type { Answer, EventKind, Host, Link, Tool, Transport } from "./plugin.ts";
import { writeObject } from "./answer.ts";

/** What the hub itself does for plugins, once it runs. */
export interface HubAccess {
  /** The tools that clients see. */
  list(member: Member, signal: AbortSignal): Promise<readonly Tool[]>;
  /** Calls a tool as a client would, through all plugins but this one. `args` is the JSON text of an object. */
  call(member: Member, name: string, args: string, signal: AbortSignal): Promise<Answer>;
  nameOf(server: string, tool: string): string | undefined;
}

export interface HostParts {
  readonly bus: Bus;
  readonly env: Env;
  /** The hub's state folder, absolute. */
  readonly stateFolder: string;
  readonly signal: AbortSignal;
  /** undefined while the hub does not run. */
  hub(): HubAccess | undefined;
  /** Whether an event tells what a plugin has logged. */
  isEcho(event: HubEvent): boolean;
}

/** More calls of one plugin at a time would only pile up: it may be calling itself through others. */
const MOST_CALLS = 1000;
/** A plugin that subscribes again at each event would never end. */
const MOST_SUBSCRIPTIONS = 1000;

/** What one plugin is given. */
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

/** Does something for a plugin, which may lose interest in it: then its failure is nobody's. */
function spare<T>(work: () => Promise<T>): Promise<T> {
  const promise = work();
  promise.catch((error: unknown) => void (isOwnError(error) && entrust(error)));
  return promise;
}

/** Gives a plugin events, until it is no longer used; while it keeps failing at them it gets none. @returns the undo. */
export function listen(
  member: Member,
  { isEcho, signal }: Pick<HostParts, "isEcho" | "signal">,
  listener: (event: HubEvent) => unknown,
  kinds: readonly EventKind[] | undefined,
  bus: Bus,
): () => void {
  if (signal.aborted) return () => {};
  const tell: Listener = (event) => {
    // Who logs what is logged would never end.
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
