import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ToolCall } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  callTool,
  isResponseTo,
  Latch,
  ScriptedServer,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import type { PluginUse } from "../fixtures/plugin-hub.ts";
import {
  responsesTo,
  callsOf,
  errorCodeOf,
  openWithClock,
  requestTextsTo,
  callPlugin,
} from "./plugin-hub.ts";

/** A server that never answers. */
function silent(...names: string[]): ScriptedServer {
  const script = new ScriptedServer(...names);
  script.onCall = () => undefined;
  return script;
}

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

function textOf({ result }: { result?: Record<string, unknown> }): string {
  const [first] = (result?.["content"] ?? []) as { text?: string }[];
  return first?.text ?? "";
}

describe("a call that plugins see, at its deadline,", () => {
  for (const plugins of [
    [],
    [passThrough],
    [awaitingPlugin],
    [awaitingPlugin, passThrough, awaitingPlugin],
  ]) {
    it(`is answered as without plugins, the server is told: ${plugins.length} plugins, ${plugins.map(({ plugin }) => plugin.name).join()}`, async () => {
      const s = silent("t");
      const { client, clock, events, hub } = await openWithClock(plugins, { s }, LIMITS);
      client.send(callRequest(1, "s__t"));
      await clock.advanceAsync(LIMIT);
      const answer = await client.find(isResponseTo(1));
      assert.deepEqual(answer.result?.["_meta"], { "toolmux/error": "callTimeout" });
      assert.equal(answer.result?.["isError"], true);
      assert.match(textOf(answer), /did not finish within 1 second and was cancelled\. Whether/);
      const reported = s.messagesOf("notifications/cancelled").map(({ params }) => params);
      const requestId = s.messagesOf("tools/call")[0]?.id;
      assert.deepEqual(reported, [{ requestId, reason: "The call took too long." }]);
      assert.deepEqual(callsOf(events), ["started s__t", "cancelled by deadline"]);
      assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
    });
  }

  it("rejects what plugins wait for, and aborts their signal", async () => {
    const { recorded: seen, recording } = makeRecorder();
    const { client, clock, plugins } = await openWithClock([recording], { s: silent("t") }, LIMITS);
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT);
    await client.find(isResponseTo(1));
    assert.deepEqual(seen, ["aborted", "callTimeout", "callTimeout"]);
    // The plugin is not at fault.
    assert.equal(plugins.status[0]?.lastError, undefined);
  });

  it("says which plugin held it: the innermost of those that had not given it back", async () => {
    const outer = callPlugin("outer", async (given, next) => next(given));
    const s = silent("t");
    const setup = await openWithClock(
      [outer, awaitingPlugin, blockingPlugin("holder"), passThrough],
      { s },
      LIMITS,
    );
    setup.client.send(callRequest(1, "s__t"));
    await setup.clock.advanceAsync(LIMIT);
    const answer = await setup.client.find(isResponseTo(1));
    assert.match(textOf(answer), /was held by plugin "holder", which was not done within 1 sec/);
    assert.match(textOf(answer), /Try again later/);
    const failed = setup.plugins.status.filter(({ lastError }) => lastError !== undefined);
    assert.deepEqual(
      failed.map(({ name }) => name),
      ["holder"],
    );
    assert.deepEqual(requestTextsTo(s), []);
  });

  it("says that the server was called, if a plugin held what came of that", async () => {
    const keeping = callPlugin("keeping", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await openWithClock(
      [keeping, awaitingPlugin],
      { s: new ScriptedServer("t") },
      LIMITS,
    );
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
    const s = silent("t");
    const { client, clock } = await openWithClock([retrying], { s }, LIMITS);
    s.onMake = () => new Promise(() => {});
    client.send(callRequest(1, "s__t"));
    await s.newestPeer?.find(({ method }) => method === "tools/call");
    s.disconnect();
    await clock.advanceAsync(LIMIT);
    assert.match(textOf(await client.find(isResponseTo(1))), /Whether it took effect is unknown/);
  });

  it("says that it was not called, if its server was not ready", async () => {
    const s = silent("t");
    const { client, clock } = await openWithClock([awaitingPlugin], { s }, LIMITS);
    s.onMake = () => new Promise(() => {});
    s.disconnect();
    await turn();
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT);
    assert.match(
      textOf(await client.find(isResponseTo(1))),
      /was not called: the server was not ready/,
    );
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
    const s = silent("t");
    const { client, clock } = await openWithClock([insisting], { s }, LIMITS);
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT);
    await client.find(isResponseTo(1));
    late.open();
    await turn();
    assert.deepEqual(codes.length, 4);
    assert.ok(codes.every((code) => code === "callTimeout" || code === "cancelled"));
    assert.equal(requestTextsTo(s).length, 1);
    assert.equal(s.messagesOf("notifications/cancelled").length, 1);
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
    const { client, clock, plugins } = await openWithClock([throwing], { s: silent("t") }, LIMITS);
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT);
    await client.find(isResponseTo(1));
    const before = plugins.status[0]?.lastError;
    late.open();
    await turn();
    assert.equal(plugins.status[0]?.lastError, before);
    assert.equal(responsesTo(client, 1).length, 1);
  });

  it("is put off by progress, up to the limit in all", async () => {
    const s = silent("t");
    const { client, clock } = await openWithClock([awaitingPlugin, passThrough], { s }, LIMITS);
    client.send(callRequest(1, "s__t", {}, { _meta: { progressToken: 7 } }));
    await turn();
    for (const _ of [1, 2, 3]) {
      await clock.advanceAsync(LIMIT - 100);
      const progressToken = s.messagesOf("tools/call")[0]?.id;
      const params = { progressToken, progress: 1 };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params });
      await turn();
      assert.equal(responsesTo(client, 1).length, 0);
    }
    await clock.advanceAsync(300);
    assert.match(textOf(await client.find(isResponseTo(1))), /within 3 seconds in all/);
    const reported = client.messages.filter(({ method }) => method === "notifications/progress");
    assert.deepEqual(
      reported.map(({ params }) => params?.["progressToken"]),
      [7, 7, 7],
    );
  });

  it("is not put off by a plugin that does nothing", async () => {
    const { client, clock } = await openWithClock(
      [blockingPlugin("h")],
      { s: silent("t") },
      LIMITS,
    );
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(LIMIT - 1);
    assert.equal(responsesTo(client, 1).length, 0);
    await clock.advanceAsync(1);
    assert.equal(responsesTo(client, 1).length, 1);
  });
});

const CANCEL = {
  jsonrpc: "2.0",
  method: "notifications/cancelled",
  params: { requestId: 1, reason: "the user said so", more: 1.5 },
};

describe("a call that plugins see, and that its client cancels,", () => {
  for (const plugins of [[], [passThrough], [awaitingPlugin], [awaitingPlugin, passThrough]]) {
    it(`is cancelled at its server, in the client's words, and not answered: ${plugins.length} plugins, ${plugins.map(({ plugin }) => plugin.name).join()}`, async () => {
      const s = silent("t");
      const { client, events, hub } = await openWithClock(plugins, { s });
      client.send(callRequest(1, "s__t"));
      await s.newestPeer?.find(({ method }) => method === "tools/call");
      client.send(CANCEL);
      await s.newestPeer?.find(({ method }) => method === "notifications/cancelled");
      await turn();
      const requestId = s.messagesOf("tools/call")[0]?.id;
      assert.deepEqual(
        s.messagesOf("notifications/cancelled").map(({ params }) => params),
        [{ ...CANCEL.params, requestId }],
      );
      assert.deepEqual(responsesTo(client, 1), []);
      assert.deepEqual(callsOf(events), ["started s__t", "cancelled by client"]);
      assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
      assert.deepEqual(hub.snapshot().calls, []);
    });
  }

  it("rejects what plugins wait for, and aborts their signal", async () => {
    const { recorded: seen, recording } = makeRecorder();
    const s = silent("t");
    const { client, plugins } = await openWithClock([recording], { s });
    client.send(callRequest(1, "s__t"));
    await s.newestPeer?.find(({ method }) => method === "tools/call");
    client.send(CANCEL);
    await turn();
    assert.deepEqual(seen, ["aborted", "cancelled", "cancelled"]);
    assert.equal(plugins.status[0]?.lastError, undefined);
  });

  it("is taken from the plugin that holds it, and nobody is told of an answer", async () => {
    const late = new Latch();
    const kept: ToolCall[] = [];
    const answering = callPlugin("answering", async (given) => {
      kept.push(given);
      await late.wait();
      return given.answer({});
    });
    const s = silent("t");
    const { client, events } = await openWithClock([awaitingPlugin, answering], { s });
    client.send(callRequest(1, "s__t"));
    await turn();
    client.send(CANCEL);
    await turn();
    assert.equal(kept[0]?.signal.aborted, true);
    late.open();
    await turn();
    assert.deepEqual(responsesTo(client, 1), []);
    assert.deepEqual(callsOf(events), ["started s__t", "cancelled by client"]);
    assert.deepEqual([...requestTextsTo(s), ...requestTextsTo(s, "notifications/cancelled")], []);
  });

  it("is cancelled in each of the requests that were made for it", async () => {
    const doubling = callPlugin("doubling", (given, next) =>
      Promise.all([next(given), next(given)]),
    );
    const s = silent("t");
    const { client } = await openWithClock([doubling], { s });
    client.send(callRequest(1, "s__t"));
    await turn();
    client.send(CANCEL);
    await turn();
    const ids = s.messagesOf("tools/call").map(({ id }) => id);
    const reported = s
      .messagesOf("notifications/cancelled")
      .map(({ params }) => params?.["requestId"]);
    assert.equal(ids.length, 2);
    assert.deepEqual(reported, ids);
  });
});

describe("a call that plugins see", () => {
  const ENDINGS = {
    "its client's leaving": {
      end: ({ client }) => client.transport.close(),
      events: ["started s__t", "cancelled by disconnect"],
      code: "cancelled",
    },
    "the operator's cancel": {
      end: ({ hub }) => hub.cancelCall(1),
      events: ["started s__t", "cancelled by operator"],
      code: "cancelled",
    },
    "its server's stop": {
      end: ({ hub }) => hub.stop("s"),
      events: ["started s__t", "cancelled by shutdown"],
      code: "serverStopped",
    },
    "its server's death": {
      end: (_, s) => s.disconnect(),
      events: ["started s__t", "failed connectionLost"],
      code: "connectionLost",
    },
  } satisfies Record<
    string,
    {
      end: (setup: Awaited<ReturnType<typeof openWithClock>>, s: ScriptedServer) => unknown;
      events: readonly string[];
      code: string;
    }
  >;
  for (const [what, { end, events, code }] of Object.entries(ENDINGS)) {
    it(`ends with ${what}, for plugins and client, as it does without plugins`, async () => {
      const { recorded: seen, recording } = makeRecorder();
      const answers: unknown[] = [];
      for (const plugins of [
        [],
        [passThrough],
        [recording],
        [recording, passThrough, awaitingPlugin],
      ]) {
        const s = silent("t");
        const setup = await openWithClock(plugins, { s });
        setup.client.send(callRequest(1, "s__t"));
        await s.newestPeer?.find(({ method }) => method === "tools/call");
        await end(setup, s);
        await turn();
        assert.deepEqual(callsOf(setup.events), events);
        answers.push(JSON.stringify(responsesTo(setup.client, 1)));
        assert.deepEqual(setup.hub.snapshot().calls, []);
      }
      assert.deepEqual(new Set(answers).size, 1);
      const codes = seen.filter((one) => one !== "aborted" && one !== undefined);
      assert.ok(codes.length >= 2);
      assert.deepEqual(new Set(codes), new Set([code]));
    });
  }

  it("is cancelled at its server when the operator cancels it, once", async () => {
    const s = silent("t");
    const { client, hub } = await openWithClock([awaitingPlugin], { s });
    client.send(callRequest(1, "s__t"));
    await s.newestPeer?.find(({ method }) => method === "tools/call");
    assert.equal(hub.cancelCall(1), true);
    const { error } = await client.find(isResponseTo(1));
    assert.match(error?.message ?? "", /operator/);
    const [reported, ...more] = s.messagesOf("notifications/cancelled");
    assert.equal(reported?.params?.["requestId"], s.messagesOf("tools/call")[0]?.id);
    assert.deepEqual(more, []);
    assert.equal(hub.cancelCall(1), false);
  });

  it("ends with the hub as it does without plugins", async () => {
    const outcomes: string[] = [];
    const delaying = callPlugin("delaying", async (given, next) => {
      try {
        return await next(given);
      } finally {
        await turn();
      }
    });
    for (const plugins of [[], [passThrough], [awaitingPlugin], [delaying, awaitingPlugin]]) {
      const s = silent("t");
      const { client, hub, events } = await openWithClock(plugins, { s });
      client.send(callRequest(1, "s__t"));
      await s.newestPeer?.find(({ method }) => method === "tools/call");
      await hub.close();
      await turn();
      const answers = responsesTo(client, 1).map(({ error }) => error?.data?.["code"]);
      outcomes.push(JSON.stringify([answers, callsOf(events)]));
    }
    assert.deepEqual(new Set(outcomes).size, 1, outcomes.join("\n"));
  });

  it("ends with the hub before its plugins do", async () => {
    const order: string[] = [];
    const slow: PluginUse = {
      plugin: {
        name: "slow",
        setup: () => ({
          call: (next) => async (given) => {
            try {
              return await next(given);
            } finally {
              await turn();
              order.push("call ended");
            }
          },
          dispose: () => void order.push("disposed"),
        }),
      },
    };
    const s = silent("t");
    const { client, hub, events } = await openWithClock([slow], { s });
    client.send(callRequest(1, "s__t"));
    await s.newestPeer?.find(({ method }) => method === "tools/call");
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
    const setup = await openWithClock([held], { s: silent("t") });
    const { client, hub, plugins } = setup;
    // An event subscriber ends the call before plugins have seen it.
    const forget = hub.subscribe(
      (event) => event.kind === "callStarted" && hub.cancelCall(event.call),
      ["callStarted"],
    );
    assert.ok((await callTool(client, "s__t")).error);
    forget();
    client.send(callRequest(1, "s__t"));
    await turn();
    client.send(CANCEL);
    await turn();
    let isOver = false;
    const over = plugins.disposeWhenIdle(5000).then(() => (isOver = true));
    await turn();
    assert.equal(isOver, false);
    late.open();
    await over;
  });
});
