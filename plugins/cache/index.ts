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
import { canonical, mark } from "./json.ts";
import { Store } from "./store.ts";

/*
 * Keeps the results of tools that change nothing, for a while. A result is kept under its server, its tool and its
 * arguments, and goes when its time is over, when room is needed, or when the server may have changed: after any call of
 * another of its tools that is neither declared read-only nor named, and when it is started anew or lists otherwise.
 *
 * Equal calls that run at the same time are each sent on. To share one request it would have to outlive the call that it
 * was made for, but it ends with that call's signal; and the others would miss its progress, which moves their deadlines.
 */

const options = v.strictObject({
  /** How long a result is kept, in ms. */
  ttl: v.optional(limit, "5m"),
  /** All that is kept, keys included, in bytes. */
  maxSize: v.optional(size, "32MiB"),
  /** Servers' own names of tools that are cached whatever they declare. */
  tools: v.optional(globs, []),
  /** Whether tools that declare `readOnlyHint` are cached. */
  readOnly: v.optional(v.boolean("true or false"), true),
});

export default definePlugin<v.InferOutput<typeof options>>({
  name: "cache",
  options,
  whenBroken: "pass",
  setup(settings, host) {
    const store = new Store(settings);
    const readers = new Readers();
    let stopListening: (() => void) | undefined;
    return {
      call(next, tool) {
        const isNamed = settings.tools.some((glob) => matchesGlob(glob, tool.name));
        const isReader = tool.definition.annotations?.["readOnlyHint"] === true;
        readers.set(tool, isNamed || isReader);
        if (!isNamed && !(settings.readOnly && isReader)) return next;
        // Who caches nothing listens to no calls, as that costs something at each of them.
        stopListening ??= host.subscribe(
          (event) => {
            if (!isCallEnd(event) || readers.has(event.server, event.tool)) return;
            store.drop(event.server);
          },
          ["callFinished", "callCancelled"],
        );
        return async (call) => {
          if (call.size > store.largest) return next(call);
          const key = keyOf(call);
          if (key === undefined) return next(call);
          const known = store.get(key);
          if (known !== undefined) return known;
          const shelf = store.shelf(tool.server);
          const answer = await next(call);
          if (answer.size > store.largest || answer.isError) return answer;
          const kept = keep(call, answer);
          if (kept !== undefined) store.put(shelf, key, kept);
          return answer;
        };
      },
      events: ["server", "state", "catalog"],
      event(event) {
        if (event.kind === "server" || (event.kind === "state" && event.to === "connected")) {
          store.drop(event.server);
        } else if (event.kind === "catalog") {
          for (const name of event.altered) store.drop(readers.serverOf(name));
          for (const name of event.removed) {
            store.drop(readers.serverOf(name));
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

/** An answer as it is kept: one of a server would keep the memory that it was read into. undefined if it may not be kept. */
function keep(call: ToolCall, answer: Answer): Answer | undefined {
  const json = mark(answer.json, new Date());
  try {
    return json === undefined ? undefined : call.answer(json);
  } catch {
    // What a server says is passed on as it is, even if it is no JSON.
    return undefined;
  }
}

function isCallEnd(
  event: HubEvent,
): event is Extract<HubEvent, { kind: "callFinished" | "callCancelled" }> {
  return event.kind === "callFinished" || event.kind === "callCancelled";
}

/** The tools that are known, and which of them change nothing. */
class Readers {
  /** By the name that clients see. */
  readonly #tools = new Map<string, ToolInfo>();
  readonly #readers = new Set<string>();

  set(tool: ToolInfo, isReader: boolean): void {
    this.#tools.set(tool.exposedName, tool);
    if (isReader) this.#readers.add(`${tool.server}\0${tool.name}`);
    else this.#readers.delete(`${tool.server}\0${tool.name}`);
  }

  /** Whether a tool changes nothing; of one that is not known this cannot be said. */
  has(server: string, tool: string): boolean {
    return this.#readers.has(`${server}\0${tool}`);
  }

  serverOf(exposedName: string): string | undefined {
    return this.#tools.get(exposedName)?.server;
  }

  delete(exposedName: string): void {
    const tool = this.#tools.get(exposedName);
    if (tool === undefined) return;
    this.#tools.delete(exposedName);
    this.#readers.delete(`${tool.server}\0${tool.name}`);
  }
}

/** Equal for calls that have to have the same answer; undefined if that cannot be said. */
function keyOf({ tool, client, argumentsJson }: ToolCall): string | undefined {
  const whose = tool.isolation === "perClient" ? client.id : "";
  const args = canonical(argumentsJson);
  if (args === undefined) return undefined;
  return `${JSON.stringify([tool.server, tool.name, whose])}${args}`;
}
