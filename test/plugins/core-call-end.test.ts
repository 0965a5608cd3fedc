import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ToolCall } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  callTool,
  connectionStatusOf,
  isResponseTo,
  Latch,
} from "../fixtures/memory-hub.ts";
import type { PluginUse } from "../fixtures/plugin-hub.ts";
import {
  CANCELLED,
  cancelOf,
  callPlugin,
  callsOf,
  errorCodeOf,
  messageTo,
  openWithClock,
  pluginOf,
  requestTextsTo,
  responsesTo,
  silent,
} from "./plugin-hub.ts";

const LIMIT = 1000;
const LIMITS = { servers: { s: { callTimeout: LIMIT, maxCallTimeout: 3000 } } };

/** A plugin that waits for the answer and records what happens to a call. */
function makeRecorder(): { readonly recorded: unknown[]; readonly recording: PluginUse } {
  const recorded: unknown[] = [];
  const recording = callPlugin("witness", async (given, next) => {
    given.signal.addEventListener("abort", () => recorded.push("aborted"));
    try {
      return await next(given);
    } catch (error) {
      recorded.push(errorCodeOf(error), errorCodeOf(given.signal.reason));
      throw error;
    }
  });
  return { recorded, recording };
}

/** A plugin that neither answers a call nor passes it on. */
const blockingPlugin = (name: string) => callPlugin(name, () => new Promise(() => {}));
/** Two plugins that change nothing: one returns the promise of `next`, the other awaits it. */
const passThrough = callPlugin("passing", (given, next) => next(given));
const awaitingPlugin = callPlugin("waiting", async (given, next) => {
  const answer = await next(given);
  return answer;
});
const delayingPlugin = callPlugin("delaying", async (given, next) => {
  try {
    return await next(given);
  } finally {
    await turn();
  }
});
const HARMLESS = [[], [passThrough], [awaitingPlugin], [awaitingPlugin, passThrough]];

function textOf({ result }: { result?: Record<string, unknown> }): string {
  const [first] = (result?.["content"] ?? []) as { text?: string }[];
  return first?.text ?? "";
}

/** A hub with these plugins over a server that answers no call, by which a call has been made. */
async function callSilent(plugins: readonly PluginUse[], settings = {}, more: object = {}) {
  const setup = await openWithClock(plugins, silent("t"), settings);
  setup.client.send(callRequest(1, "s__t", {}, more));
  await turn();
  return setup;
}

/** The same after the call's deadline, with what it was answered. */
async function outlast(plugins: readonly PluginUse[]) {
  const setup = await callSilent(plugins, LIMITS);
  await setup.clock.advanceAsync(LIMIT);
  return { ...setup, answer: await setup.client.find(isResponseTo(1)) };
}

describe("a call that plugins see, at its deadline,", () => {
  for (const plugins of [...HARMLESS, [awaitingPlugin, passThrough, awaitingPlugin]]) {
    const names = plugins.map(({ plugin }) => plugin.name).join();
    it(`is answered as without plugins, the server is told: ${plugins.length} plugins, ${names}`, async () => {
      const { s, answer, events, hub } = await outlast(plugins);
      assert.deepEqual(answer.result?.["_meta"], { "toolmux/error": "callTimeout" });
      assert.equal(answer.result?.["isError"], true);
      assert.match(textOf(answer), /did not finish within 1 second and was cancelled\. Whether/);
      const reported = s.messagesOf(CANCELLED).map(({ params }) => params);
      const requestId = s.messagesOf("tools/call")[0]?.id;
      assert.deepEqual(reported, [{ requestId, reason: "The call took too long." }]);
      assert.deepEqual(callsOf(events), ["started s__t", "cancelled by deadline"]);
      assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
    });
  }

  it("says which plugin held it: the innermost of those that had not given it back", async () => {
    const outer = callPlugin("outer", async (given, next) => next(given));
    const holder = blockingPlugin("holder");
    const { s, answer, plugins } = await outlast([outer, awaitingPlugin, holder, passThrough]);
    assert.match(textOf(answer), /was held by plugin "holder", which was not done within 1 sec/);
    assert.match(textOf(answer), /Try again later/);
    const failed = plugins.status.filter(({ lastError }) => lastError !== undefined);
    assert.equal(failed.map(({ name }) => name).join(), "holder");
    assert.deepEqual(requestTextsTo(s), []);
  });

  it("says that the server was called, if a plugin held what came of that", async () => {
    const keeping = callPlugin("keeping", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await openWithClock([keeping, awaitingPlugin], undefined, LIMITS);
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT);
    const text = textOf(await client.find(isResponseTo(1)));
    assert.match(text, /was held by plugin "keeping"/);
    assert.match(text, /Its server was called before that: check what took effect/);
  });

  it("does not say that it was not sent, if it was sent before the server went", async () => {
    const retrying = callPlugin("retrying", async (given, next) => {
      try {
        return await next(given);
      } catch {
        return next(given);
      }
    });
    const { client, clock, s } = await callSilent([retrying], LIMITS);
    s.onMake = () => new Promise(() => {});
    await messageTo(s);
    s.disconnect();
    await clock.advanceAsync(LIMIT);
    assert.match(textOf(await client.find(isResponseTo(1))), /Whether it took effect is unknown/);
  });

  it("says that it was not called, if its server was not ready", async () => {
    const { client, clock, s } = await openWithClock([awaitingPlugin], silent("t"), LIMITS);
    s.onMake = () => new Promise(() => {});
    s.disconnect();
    await turn();
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT);
    const answer = await client.find(isResponseTo(1));
    assert.match(textOf(answer), /was not called: the server was not ready/);
  });

  it("sends nothing any more, whatever plugins do", async () => {
    const codes: unknown[] = [];
    const late = new Latch();
    const insisting = callPlugin("insisting", async (given, next) => {
      const again = (): Promise<unknown> =>
        next(given).catch((error: unknown) => codes.push(errorCodeOf(error)));
      given.signal.addEventListener("abort", () => void again());
      await again();
      await again();
      await late.wait();
      await again();
      return given.answer({ content: [], late: true });
    });
    const { client, s } = await outlast([insisting]);
    late.open();
    await turn();
    assert.equal(codes.length, 4);
    assert.ok(codes.every((code) => code === "callTimeout" || code === "cancelled"));
    assert.equal(requestTextsTo(s).length, 1);
    assert.equal(s.messagesOf(CANCELLED).length, 1);
    const [answer, ...more] = responsesTo(client, 1);
    assert.equal(answer?.result?.["late"], undefined);
    assert.deepEqual(more, []);
  });

  it("is not failed by what a plugin throws after that", async () => {
    const late = new Latch();
    const throwing = callPlugin("throwing", async () => {
      await late.wait();
      throw Object.create(null);
    });
    const { client, plugins } = await outlast([throwing]);
    const before = plugins.status[0]?.lastError;
    late.open();
    await turn();
    assert.equal(plugins.status[0]?.lastError, before);
    assert.equal(responsesTo(client, 1).length, 1);
  });

  it("is put off by progress, up to the limit in all", async () => {
    const plugins = [awaitingPlugin, passThrough];
    const meta = { _meta: { progressToken: 7 } };
    const { client, clock, s } = await callSilent(plugins, LIMITS, meta);
    const method = "notifications/progress";
    for (const _ of [1, 2, 3]) {
      await clock.advanceAsync(LIMIT - 100);
      const progressToken = s.messagesOf("tools/call")[0]?.id;
      s.newestPeer?.send({ jsonrpc: "2.0", method, params: { progressToken, progress: 1 } });
      await turn();
      assert.equal(responsesTo(client, 1).length, 0);
    }
    await clock.advanceAsync(300);
    assert.match(textOf(await client.find(isResponseTo(1))), /within 3 seconds in all/);
    const reported = client.messages.filter((message) => message.method === method);
    const tokens = reported.map(({ params }) => params?.["progressToken"]);
    assert.deepEqual(tokens, [7, 7, 7]);
  });

  it("is not put off by a plugin that does nothing", async () => {
    const { client, clock } = await callSilent([blockingPlugin("h")], LIMITS);
    await clock.advanceAsync(LIMIT - 1);
    assert.equal(responsesTo(client, 1).length, 0);
    await clock.advanceAsync(1);
    assert.equal(responsesTo(client, 1).length, 1);
  });
});

const REASON = { reason: "the user said so", more: 1.5 };

describe("a call that plugins see, and that its client cancels,", () => {
  for (const plugins of HARMLESS) {
    const names = plugins.map(({ plugin }) => plugin.name).join();
    it(`is cancelled at its server, in the client's words, and not answered: ${plugins.length} plugins, ${names}`, async () => {
      const { client, events, hub, s } = await callSilent(plugins);
      const { id: requestId } = await messageTo(s);
      client.send(cancelOf(1, REASON));
      await messageTo(s, CANCELLED);
      await turn();
      const reported = s.messagesOf(CANCELLED).map(({ params }) => params);
      assert.deepEqual(reported, [{ ...REASON, requestId }]);
      assert.deepEqual(responsesTo(client, 1), []);
      assert.deepEqual(callsOf(events), ["started s__t", "cancelled by client"]);
      assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
      assert.deepEqual(hub.snapshot().calls, []);
    });
  }

  it("is taken from the plugin that holds it, and nobody is told of an answer", async () => {
    const late = new Latch();
    const kept: ToolCall[] = [];
    const answering = callPlugin("answering", async (given) => {
      kept.push(given);
      await late.wait();
      return given.answer({});
    });
    const { client, events, s } = await callSilent([awaitingPlugin, answering]);
    client.send(cancelOf(1));
    await turn();
    assert.equal(kept[0]?.signal.aborted, true);
    late.open();
    await turn();
    assert.deepEqual(responsesTo(client, 1), []);
    assert.deepEqual(callsOf(events), ["started s__t", "cancelled by client"]);
    assert.deepEqual([...requestTextsTo(s), ...requestTextsTo(s, CANCELLED)], []);
  });

  it("is cancelled in each of the requests that were made for it", async () => {
    const doubling = callPlugin("doubling", (given, next) =>
      Promise.all([next(given), next(given)]),
    );
    const { client, s } = await callSilent([doubling]);
    client.send(cancelOf(1));
    await turn();
    const ids = s.messagesOf("tools/call").map(({ id }) => id);
    const reported = s.messagesOf(CANCELLED).map(({ params }) => params?.["requestId"]);
    assert.equal(ids.length, 2);
    assert.deepEqual(reported, ids);
  });
});

describe("a call that plugins see", () => {
  type Setup = Awaited<ReturnType<typeof callSilent>>;
  const ENDINGS: readonly [string, (setup: Setup) => unknown, last: string, code: string][] = [
    [
      "its deadline",
      ({ clock }) => clock.advanceAsync(60_000),
      "cancelled by deadline",
      "callTimeout",
    ],
    [
      "its client's cancel",
      ({ client }) => client.send(cancelOf(1)),
      "cancelled by client",
      "cancelled",
    ],
    [
      "its client's leaving",
      ({ client }) => client.transport.close(),
      "cancelled by disconnect",
      "cancelled",
    ],
    ["the operator's cancel", ({ hub }) => hub.cancelCall(1), "cancelled by operator", "cancelled"],
    ["its server's stop", ({ hub }) => hub.stop("s"), "cancelled by shutdown", "serverStopped"],
    ["its server's death", ({ s }) => s.disconnect(), "failed connectionLost", "connectionLost"],
    ["the hub's end", ({ hub }) => hub.close(), "cancelled by shutdown", "serverStopped"],
  ];
  for (const [what, end, last, code] of ENDINGS) {
    it(`ends with ${what}, for plugins and client, as it does without plugins`, async () => {
      const { recorded, recording } = makeRecorder();
      const answers: unknown[] = [];
      const chain = [recording, passThrough, awaitingPlugin];
      for (const plugins of [[], [passThrough], [recording], chain, [delayingPlugin]]) {
        const setup = await callSilent(plugins);
        await messageTo(setup.s);
        await end(setup);
        await turn();
        await turn();
        assert.deepEqual(callsOf(setup.events), ["started s__t", last]);
        answers.push(JSON.stringify(responsesTo(setup.client, 1)));
        assert.deepEqual(setup.hub.snapshot().calls, []);
        // The plugins are not at fault.
        for (const { lastError } of setup.plugins.status) assert.equal(lastError, undefined);
      }
      assert.equal(new Set(answers).size, 1);
      const codes = recorded.filter((one) => one !== "aborted" && one !== undefined);
      assert.ok(codes.length >= 2);
      assert.deepEqual(new Set(codes), new Set([code]));
      if (what.endsWith("deadline") || what.endsWith("cancel"))
        assert.equal(recorded[0], "aborted");
    });
  }

  it("ends with the hub before its plugins do", async () => {
    const order: string[] = [];
    const slow = pluginOf("slow", {
      call: (next) => async (given) => {
        try {
          return await next(given);
        } finally {
          await turn();
          order.push("call ended");
        }
      },
      dispose: () => void order.push("disposed"),
    });
    const { client, hub, events, s } = await callSilent([slow]);
    await messageTo(s);
    await hub.close();
    assert.deepEqual(order, ["call ended", "disposed"]);
    assert.deepEqual(callsOf(events), ["started s__t", "cancelled by shutdown"]);
    assert.equal(responsesTo(client, 1).length, 1);
  });

  it("counts for its plugins' end until they are done with it, also if it ended before it began", async () => {
    const late = new Latch();
    const held = callPlugin("held", async (given) => {
      await late.wait();
      return given.answer({});
    });
    const { client, hub, plugins } = await openWithClock([held], silent("t"));
    // An event subscriber ends the call before plugins have seen it.
    const forget = hub.subscribe(
      (event) => event.kind === "callStarted" && hub.cancelCall(event.call),
      ["callStarted"],
    );
    assert.ok((await callTool(client, "s__t")).error);
    forget();
    client.send(callRequest(1, "s__t"));
    await turn();
    client.send(cancelOf(1));
    await turn();
    let isOver = false;
    const over = plugins.disposeWhenIdle(5000).then(() => (isOver = true));
    await turn();
    assert.equal(isOver, false);
    late.open();
    await over;
  });
});
