import { clearTimeout, setTimeout } from "node:timers";
import * as v from "valibot";
import { definePlugin, limit, size, type Tool, type Transport } from "../../src/plugin/plugin.ts";
import { limitResult } from "./limit.ts";
import { type Clock, ContentStore } from "./store.ts";
import { serve } from "./server.ts";
import { SERVER, TOOL } from "./notices.ts";

/** Smallest `max` in bytes: enough for a page and the notice below it. */
const MIN_RESULT_SIZE = 2000;

const options = v.strictObject({
  max: v.exactOptional(v.pipe(size, v.minValue(MIN_RESULT_SIZE, "a size of at least 2KB")), "64KB"),
  maxMedia: v.exactOptional(size, "5MB"),
  keep: v.exactOptional(size, "64MiB"),
  ttl: v.exactOptional(limit, "30m"),
});

const clock: Clock = {
  now: () => performance.now(),
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/**
 * Limits the size of results. Content beyond the limit is stored for a while and can be read in pages, with a tool of
 * the plugin's own server or as a resource.
 */
export default definePlugin({
  name: "result-limit",
  whenBroken: "pass",
  options,
  setup({ max, maxMedia, keep, ttl }, host) {
    const content = new ContentStore(keep, ttl, clock);
    const readMore = (): string | undefined => host.nameOf(SERVER, TOOL);
    const store = { tool: readMore, put: content.put.bind(content) };
    const open = new Set<Transport>();
    const end = async (): Promise<void> => {
      content.close();
      await Promise.all([...open].map((transport) => transport.close()));
    };
    host.signal.addEventListener("abort", () => void end(), { once: true });
    return {
      // Clients see the tools without their output schemas: a tool with an output schema must return structured
      // content, which cannot be cut if it is too large.
      list: (items, server) => (server === SERVER ? items : items.map(withoutOutputSchema)),
      call(next, tool) {
        if (tool.server === SERVER) return next;
        const mayDrop = (): boolean => tool.definition["outputSchema"] === undefined;
        return async (call) => {
          const answer = await next(call);
          if (answer.kind === "error" || answer.size <= Math.min(max, maxMedia)) return answer;
          const limited = limitResult(answer.json, { max, maxMedia }, mayDrop, store);
          return limited === undefined ? answer : call.answer(limited);
        };
      },
      servers: {
        [SERVER]: () => {
          const [link, transport] = host.pair();
          open.add(transport);
          // oxlint-disable-next-line unicorn/prefer-add-event-listener
          transport.onclose = () => open.delete(transport);
          serve(transport, content, () => readMore() ?? TOOL);
          return link;
        },
      },
      dispose: end,
    };
  },
});

function withoutOutputSchema(tool: Tool): Tool {
  if (!("outputSchema" in tool)) return tool;
  const { outputSchema: _, ...rest } = tool;
  return rest;
}
