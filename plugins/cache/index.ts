import * as v from "valibot";
import {
  type Answer,
  definePlugin,
  globs,
  type HubEvent,
  limit,
  matchesGlob,
  size,
  type ToolCall,
  type ToolInfo,
} from "../../src/plugin/plugin.ts";
import { normalize, withCachedTime } from "./json.ts";
import { ResultCache } from "./store.ts";

/*
 * Caches the results of tools without side effects. The cache key consists of the server, the tool and the arguments,
 * and of the client if each client has its own process of the server. A result is removed when its TTL has passed, when
 * space is needed, or when the server's state may have changed: the server restarts, its listing changes, or another of
 * its tools is called that is neither declared read-only nor listed in `tools`.
 *
 * Concurrent equal calls are all sent. A shared request would be cancelled together with the call that started it, and
 * the other calls would miss its progress notifications, which extend their deadlines.
 */

const options = v.strictObject({
  /** TTL of a result, in ms. */
  ttl: v.optional(limit, "5m"),
  /** Maximum size of the cache in bytes, keys included. */
  maxSize: v.optional(size, "32MiB"),
  /** Globs of tools whose results are cached whatever the tools declare. They match the servers' own tool names. */
  tools: v.optional(globs, []),
  /** Whether tools that declare `readOnlyHint` are cached. */
  readOnly: v.optional(v.boolean("true or false"), true),
});

export default definePlugin<v.InferOutput<typeof options>>({
  name: "cache",
  options,
  whenBroken: "pass",
  setup(settings, host) {
    const store = new ResultCache(settings);
    const readers = new ReadOnlyTools();
    let stopListening: (() => void) | undefined;
    return {
      call(next, tool) {
        const isNamed = settings.tools.some((glob) => matchesGlob(glob, tool.name));
        const isReader = tool.definition.annotations?.["readOnlyHint"] === true;
        readers.set(tool, isNamed || isReader);
        if (!isNamed && !(settings.readOnly && isReader)) return next;
        // Subscribe when the first tool is cached, not earlier, because the subscription costs time at every call.
        stopListening ??= host.subscribe(
          (event) => {
            if (!isCallEnd(event) || readers.isReadOnly(event.server, event.tool)) return;
            store.removeServer(event.server);
          },
          ["callFinished", "callCancelled"],
        );
        return async (call) => {
          if (call.size > store.maxEntrySize) return next(call);
          const key = cacheKeyOf(call);
          if (key === undefined) return next(call);
          const known = store.get(key);
          if (known !== undefined) return known;
          const group = store.groupOf(tool.server);
          const answer = await next(call);
          if (answer.size > store.maxEntrySize || answer.isError) return answer;
          const copy = copyForCache(call, answer);
          if (copy !== undefined) store.put(group, key, copy);
          return answer;
        };
      },
      events: ["server", "state", "catalog"],
      event(event) {
        if (event.kind === "server" || (event.kind === "state" && event.to === "connected")) {
          store.removeServer(event.server);
        } else if (event.kind === "catalog") {
          for (const name of event.altered) store.removeServer(readers.serverOf(name));
          for (const name of event.removed) {
            store.removeServer(readers.serverOf(name));
            readers.delete(name);
          }
        }
      },
      dispose() {
        stopListening?.();
        store.clear();
      },
    };
  },
});

/**
 * A copy of the answer for the cache; undefined if the answer may not be cached. Caching the original would keep the
 * whole receive buffer in memory.
 */
function copyForCache(call: ToolCall, answer: Answer): Answer | undefined {
  const json = withCachedTime(answer.json, new Date());
  try {
    return json === undefined ? undefined : call.answer(json);
  } catch {
    // A malformed answer from a server is forwarded, but not cached.
    return undefined;
  }
}

function isCallEnd(
  event: HubEvent,
): event is Extract<HubEvent, { kind: "callFinished" | "callCancelled" }> {
  return event.kind === "callFinished" || event.kind === "callCancelled";
}

class ReadOnlyTools {
  /** The keys are the tools' exposed names. */
  readonly #tools = new Map<string, ToolInfo>();
  readonly #readOnly = new Set<string>();

  set(tool: ToolInfo, isReadOnly: boolean): void {
    this.#tools.set(tool.exposedName, tool);
    if (isReadOnly) this.#readOnly.add(`${tool.server}\0${tool.name}`);
    else this.#readOnly.delete(`${tool.server}\0${tool.name}`);
  }

  isReadOnly(server: string, tool: string): boolean {
    return this.#readOnly.has(`${server}\0${tool}`);
  }

  serverOf(exposedName: string): string | undefined {
    return this.#tools.get(exposedName)?.server;
  }

  delete(exposedName: string): void {
    const tool = this.#tools.get(exposedName);
    if (tool === undefined) return;
    this.#tools.delete(exposedName);
    this.#readOnly.delete(`${tool.server}\0${tool.name}`);
  }
}

/** The cache key: equal for calls with the same result. Undefined if the arguments cannot be normalized. */
function cacheKeyOf({ tool, client, argumentsJson }: ToolCall): string | undefined {
  const clientId = tool.isolation === "perClient" ? client.id : "";
  const args = normalize(argumentsJson);
  if (args === undefined) return undefined;
  return `${JSON.stringify([tool.server, tool.name, clientId])}${args}`;
}
