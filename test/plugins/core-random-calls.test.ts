import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import type { Next, ToolCall } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { callRequest, ScriptedServer, connectionStatusOf } from "../fixtures/memory-hub.ts";
import { Choices } from "../generate.ts";
import { responsesTo, callsOf, openWithClock, callPlugin } from "./plugin-hub.ts";

/** Set TOOLMUX_TEST_SEED to repeat a run. */
const SEED = Number(process.env["TOOLMUX_TEST_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const CALLS = 200;
const LIMITS = { servers: { s: { callTimeout: 1000, maxCallTimeout: 2000 } } };

/** What a plugin may do with a call, correct or not. */
const ACTIONS: readonly ((given: ToolCall, next: Next) => unknown)[] = [
  (given, next) => next(given),
  async (given, next) => next(given),
  (given, next) => next(given.with({ arguments: given.argumentsJson })),
  async (given, next) => {
    await turn();
    return next(given);
  },
  async (given, next) => {
    try {
      return await next(given);
    } catch {
      return next(given);
    }
  },
  async (given, next) => {
    await Promise.any([next(given), next(given), next(given)]);
    return given.answer({});
  },
  (given, next) => Promise.race([next(given), turn().then(() => given.refuse("too slow"))]),
  (given, next) => {
    const stop = new AbortController();
    void turn().then(() => stop.abort());
    return next(given.with({ signal: stop.signal }));
  },
  (given, next) => {
    given.signal.addEventListener("abort", () => void next(given));
    return next(given);
  },
  (given, next) => {
    void next(given);
    return given.answer({});
  },
  () => new Promise(() => {}),
  () => undefined,
  () => {
    throw new Error("boom");
  },
];

describe("many calls through plugins that do what they like", () => {
  it(`are answered once each, or not at all if they were cancelled, and leave nothing (seed ${SEED})`, async () => {
    const choices = Choices.random(SEED);
    const unruly = (name: string) =>
      callPlugin(name, (given, next) => {
        const action = choices.once(2) ? choices.pick(ACTIONS) : ACTIONS[0];
        return action?.(given, next);
      });
    const s = new ScriptedServer("t");
    const answer = s.onCall;
    s.onCall = (message, text) => {
      if (choices.once(60)) s.disconnect();
      return choices.once(4) ? undefined : answer(message, text);
    };
    const plugins = [unruly("a"), unruly("b"), unruly("c")];
    const { client, hub, clock, events } = await openWithClock(plugins, { s }, LIMITS);
    const cancelled = new Set<number>();
    for (let id = 0; id < CALLS; id++) {
      client.send(callRequest(id, "s__t"));
      if (choices.once(3)) await turn();
      if (choices.once(10)) {
        const requestId = choices.below(id + 1);
        cancelled.add(requestId);
        client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
      }
      if (choices.once(40)) hub.cancelCall(choices.below(id + 1));
      if (choices.once(20)) await clock.advanceAsync(choices.below(600));
    }
    await clock.advanceAsync(10_000);
    for (let id = 0; id < CALLS; id++) {
      const { length } = responsesTo(client, id);
      assert.ok(length === 1 || (length === 0 && cancelled.has(id)), `${length} answers to ${id}`);
    }
    const reported = callsOf(events);
    assert.equal(reported.filter((text) => text.startsWith("started")).length, CALLS);
    assert.equal(reported.length, 2 * CALLS);
    assert.deepEqual(hub.snapshot().calls, []);
    assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
    assert.equal(client.isClosed, false);
    await hub.close();
  });
});
