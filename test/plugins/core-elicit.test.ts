import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type {
  Answer,
  CallOptions,
  ClientInfo,
  FormResult,
  Host,
  ToolCall,
} from "../../src/plugin/plugin.ts";
import {
  callRequest,
  callTool,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { inputRoundOf, sendModernRequest, sendModernWithId } from "../fixtures/modern-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { callPlugin, logsOf, openPluginHub, openWithClock, pluginWithHost } from "./plugin-hub.ts";

const FORM = {
  message: "Go on?",
  schema: { type: "object", properties: { sure: { type: "boolean" } } },
};
const FORMS = { elicitation: {} };

/** A plugin that shows a form with each call, and answers with what the person did or the code of the error. */
const asking = callPlugin("asking", async (call) => {
  const outcome = await call.elicit(FORM).catch((error: unknown) => ({ code: codeOf(error) }));
  return call.answer({ content: [], canElicit: call.canElicit, outcome });
});

function codeOf(error: unknown): string | undefined {
  return (error as { readonly code?: string }).code;
}

/** The form that a legacy client is shown. */
const isForm = ({ method }: Json): boolean => method === "elicitation/create";

async function formAt(client: Peer): Promise<Json> {
  return client.find(isForm);
}

const ANSWERS: readonly [string, object, FormResult | { readonly code: string }][] = [
  [
    "accepts",
    { result: { action: "accept", content: { sure: true } } },
    { action: "accept", content: { sure: true } },
  ],
  ["declines", { result: { action: "decline" } }, { action: "decline" }],
  ["closes the form", { result: { action: "cancel" } }, { action: "cancel" }],
  ["answers with nonsense", { result: { action: "perhaps" } }, { code: "invalidParams" }],
  ["answers with an error", { error: { code: -1, message: "no" } }, { code: "notAsked" }],
];

describe("a plugin that asks the person at the client", () => {
  for (const [what, answer, outcome] of ANSWERS) {
    it(`gets what a legacy client says that ${what}`, async () => {
      const s = new ScriptedServer("t");
      const { client } = await openWithClock([asking], { s }, {}, FORMS);
      client.send(callRequest(1, "s__t"));
      const form = await formAt(client);
      assert.deepEqual(form.params, { message: "[s] Go on?", requestedSchema: FORM.schema });
      client.send({ jsonrpc: "2.0", id: form.id, ...answer });
      const { result } = await client.find(isResponseTo(1));
      assert.deepEqual([result?.["canElicit"], result?.["outcome"]], [true, outcome]);
      assert.deepEqual(s.messagesOf("tools/call"), []);
    });
  }

  it("asks a modern client by input_required, and goes on with its retry", async () => {
    const s = new ScriptedServer("t");
    const { client } = await openPluginHub([asking], { s });
    const params = { name: "s__t", arguments: {} };
    const capabilities = { elicitation: { form: {} } };
    const first = await sendModernRequest(client, "tools/call", params, capabilities);
    const { keys, requests, state } = inputRoundOf(first);
    assert.equal(requests[keys[0] ?? ""]?.params["message"], "[s] Go on?");
    const inputResponses = { [keys[0] ?? ""]: { action: "accept", content: { sure: false } } };
    const retry = { ...params, requestState: state, inputResponses };
    const { result } = await sendModernWithId(client, "again", "tools/call", retry, capabilities);
    assert.deepEqual(result?.["outcome"], { action: "accept", content: { sure: false } });
  });

  it("is told that a client without forms cannot be asked", async () => {
    const { client } = await openPluginHub([asking], { s: new ScriptedServer("t") });
    const { result } = await callTool(client, "s__t");
    assert.deepEqual([result?.["canElicit"], result?.["outcome"]], [false, { code: "notAsked" }]);
  });

  it("has all the time that the person needs: the call's deadline stands still", async () => {
    const servers = { s: { callTimeout: 1000, maxCallTimeout: 2000 } };
    const scripts = { s: new ScriptedServer("t") };
    const { client, clock } = await openWithClock([asking], scripts, { servers }, FORMS);
    client.send(callRequest(1, "s__t"));
    const form = await formAt(client);
    await clock.advanceAsync(60_000);
    client.send({ jsonrpc: "2.0", id: form.id, result: { action: "decline" } });
    const { result } = await client.find(isResponseTo(1));
    assert.deepEqual(result?.["outcome"], { action: "decline" });
  });

  it("has its form withdrawn when the client cancels the call", async () => {
    const { client, events } = await openWithClock(
      [asking],
      { s: new ScriptedServer("t") },
      {},
      FORMS,
    );
    client.send(callRequest(1, "s__t"));
    const form = await formAt(client);
    const cancelled = { method: "notifications/cancelled", params: { requestId: 1 } };
    client.send({ jsonrpc: "2.0", ...cancelled });
    const withdrawn = await client.find(({ method }) => method === "notifications/cancelled");
    assert.equal(withdrawn.params?.["requestId"], form.id);
    assert.deepEqual(logsOf(events), []);
  });

  it("has its form withdrawn when it answers without waiting for it", async () => {
    const hasty = callPlugin("hasty", (call) => {
      void call.elicit(FORM);
      return Promise.resolve(call.refuse("no"));
    });
    const { client } = await openWithClock([hasty], { s: new ScriptedServer("t") }, {}, FORMS);
    const { result } = await callTool(client, "s__t");
    assert.equal(result?.["isError"], true);
    const form = await formAt(client);
    const withdrawn = await client.find(({ method }) => method === "notifications/cancelled");
    assert.equal(withdrawn.params?.["requestId"], form.id);
  });
});

const MESSAGES = {
  messages: [{ role: "user", content: { type: "text", text: "Hi" } }],
  maxTokens: 9,
};
const WITH_TOOLS = { ...MESSAGES, tools: [{ name: "x", inputSchema: { type: "object" } }] };
const SAID = { role: "assistant", model: "m", content: { type: "text", text: "Hello" } };
const SAMPLING = { sampling: { tools: {} } };

/** A plugin that asks the model of the client with each call, and answers with what it said or the code of the error. */
const sampling = (params: Readonly<Record<string, unknown>> = MESSAGES) =>
  callPlugin("sampling", async (call) => {
    const outcome = await call.sample(params).catch((error: unknown) => ({ code: codeOf(error) }));
    return call.answer({ content: [], canSample: call.canSample, outcome });
  });

const isSampling = ({ method }: Json): boolean => method === "sampling/createMessage";

describe("a plugin that asks the model of the client", () => {
  for (const [what, answer, outcome] of [
    ["lets it answer", { result: SAID }, SAID],
    ["does not let it", { error: { code: -1, message: "no" } }, { code: "notAsked" }],
    ["answers with nonsense", { result: [1] }, { code: "invalidParams" }],
  ] as const) {
    it(`gets what a legacy client says that ${what}, with all the time that it needs`, async () => {
      const servers = { s: { callTimeout: 1000, maxCallTimeout: 2000 } };
      const scripts = { s: new ScriptedServer("t") };
      const plugins = [sampling(WITH_TOOLS)];
      const { client, clock } = await openWithClock(plugins, scripts, { servers }, SAMPLING);
      client.send(callRequest(1, "s__t"));
      const { id, params } = await client.find(isSampling);
      assert.deepEqual(params, WITH_TOOLS);
      await clock.advanceAsync(60_000);
      client.send({ jsonrpc: "2.0", id, ...answer });
      const { result } = await client.find(isResponseTo(1));
      assert.deepEqual([result?.["canSample"], result?.["outcome"]], ["tools", outcome]);
    });
  }

  it("asks a modern client by input_required, and goes on with its retry", async () => {
    const { client } = await openPluginHub([sampling(WITH_TOOLS)], { s: new ScriptedServer("t") });
    const params = { name: "s__t", arguments: {} };
    const first = await sendModernRequest(client, "tools/call", params, SAMPLING);
    const { keys, requests, state } = inputRoundOf(first);
    const [key = ""] = keys;
    assert.deepEqual(requests[key], { method: "sampling/createMessage", params: WITH_TOOLS });
    const retry = { ...params, requestState: state, inputResponses: { [key]: SAID } };
    const { result } = await sendModernWithId(client, "again", "tools/call", retry, SAMPLING);
    assert.deepEqual(result?.["outcome"], SAID);
  });

  for (const [declared, canSample, refused] of [
    [{}, false, MESSAGES],
    [{ sampling: {} }, "text", WITH_TOOLS],
  ] as const) {
    it(`is told of a client that declares ${JSON.stringify(declared)} what it cannot do, in both eras`, async () => {
      const expected = [canSample, { code: "notAsked" }];
      const plugins = [sampling(refused)];
      const { client } = await openWithClock(plugins, new ScriptedServer("t"), {}, declared);
      const legacy = (await callTool(client, "s__t")).result;
      assert.deepEqual([legacy?.["canSample"], legacy?.["outcome"]], expected);
      const params = { name: "s__t", arguments: {} };
      const modern = (await sendModernRequest(client, "tools/call", params, declared)).result;
      assert.deepEqual([modern?.["canSample"], modern?.["outcome"]], expected);
    });
  }

  it("has its request withdrawn when the client cancels the call", async () => {
    const scripts = { s: new ScriptedServer("t") };
    const { client, events } = await openWithClock([sampling()], scripts, {}, SAMPLING);
    client.send(callRequest(1, "s__t"));
    const { id } = await client.find(isSampling);
    const cancelled = { method: "notifications/cancelled", params: { requestId: 1 } };
    client.send({ jsonrpc: "2.0", ...cancelled });
    const withdrawn = await client.find(({ method }) => method === "notifications/cancelled");
    assert.equal(withdrawn.params?.["requestId"], id);
    assert.deepEqual(logsOf(events), []);
  });

  it("is told that params are no JSON, and nobody is asked", async () => {
    const plugins = [sampling({ ...MESSAGES, big: 1n })];
    const { client } = await openWithClock(plugins, new ScriptedServer("t"), {}, SAMPLING);
    const { result } = await callTool(client, "s__t");
    assert.deepEqual(result?.["outcome"], { code: "internal" });
    assert.ok(!client.messages.some(isSampling));
  });
});

/** A plugin that answers calls of `s__outer` with what a call of `s__inner` as a part of it gives. */
function delegating(options: Omit<CallOptions, "for"> = {}) {
  let host: Host | undefined;
  return pluginWithHost("delegating", (given) => {
    host = given;
    return {
      call: (next, tool) =>
        tool.name === "outer"
          ? (call: ToolCall): Promise<Answer> =>
              host?.call("s__inner", call.argumentsJson, { ...options, for: call }) ?? next(call)
          : next,
    };
  });
}

describe("a call that a plugin makes as a part of a client's call", () => {
  it("has its server's questions put to the client, whose call waits as long", async () => {
    const s = new ScriptedServer("outer", "inner");
    s.onCall = ({ id }) => {
      s.newestPeer?.send({
        jsonrpc: "2.0",
        id: "q",
        method: "elicitation/create",
        params: { message: "Name?", requestedSchema: { type: "object", properties: {} } },
      });
      void s.newestPeer
        ?.find((message) => message.id === "q" && message.method === undefined)
        .then(({ result }) =>
          s.newestPeer?.send({ jsonrpc: "2.0", id, result: { content: [], said: result } }),
        );
      return undefined;
    };
    const servers = { s: { callTimeout: 1000, maxCallTimeout: 2000 } };
    const { client, clock, events } = await openWithClock(
      [delegating()],
      { s },
      { servers },
      FORMS,
    );
    client.send(callRequest(1, "s__outer", { x: 1 }));
    const form = await formAt(client);
    assert.equal(form.params?.["message"], "[s] Name?");
    await clock.advanceAsync(60_000);
    client.send({ jsonrpc: "2.0", id: form.id, result: { action: "accept", content: { n: "a" } } });
    const { result } = await client.find(isResponseTo(1));
    assert.deepEqual(result?.["said"], { action: "accept", content: { n: "a" } });
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["arguments"], { x: 1 });
    const started = events.flatMap((event) => (event.kind === "callStarted" ? [event] : []));
    const [outer, inner] = started;
    assert.deepEqual(
      [inner?.tool, inner?.parentCall, inner?.client],
      ["inner", outer?.call, outer?.client],
    );
  });

  it("reports its progress, is listed while it runs, and is cancelled with the client's call", async () => {
    const s = new ScriptedServer("outer", "inner");
    s.onCall = ({ params }) => {
      const { progressToken } = params?.["_meta"] as { progressToken: unknown };
      const progress = { progressToken, progress: 1, message: "half" };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params: progress });
      return undefined;
    };
    const seen: unknown[] = [];
    const plugin = delegating({ onProgress: ({ message }) => void seen.push(message) });
    const { client, hub } = await openPluginHub([plugin], { s });
    client.send(callRequest(1, "s__outer"));
    await s.newestPeer?.find(({ method }) => method === "tools/call");
    await turn();
    assert.deepEqual(seen, ["half"]);
    const running = hub.snapshot().calls.map(({ tool, parentCall }) => [tool, parentCall]);
    assert.deepEqual(running, [
      ["outer", undefined],
      ["inner", 1],
    ]);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await s.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    await turn();
    assert.deepEqual(hub.snapshot().calls, []);
  });

  it("gets an unknown tool as an answer with an error", async () => {
    const plugin = callPlugin("wrong", async (call) =>
      call.answer({ content: [], n: call.number }),
    );
    let answer: Answer | undefined;
    const calling = pluginWithHost("calling", (host) => ({
      call: (next) => async (call) => {
        answer = await host.call("s__none", {}, { for: call });
        return next(call);
      },
    }));
    const { client } = await openPluginHub([calling, plugin], { s: new ScriptedServer("t") });
    await callTool(client, "s__t");
    assert.deepEqual([answer?.kind, answer?.isError], ["error", true]);
  });
});

describe("a plugin's server with a connection per client", () => {
  it("is opened for each client, whose id and name it gets", async () => {
    const clients: (ClientInfo | undefined)[] = [];
    const own = pluginWithHost("own", () => ({
      servers: {
        mine: {
          isolation: "perClient",
          open: (client) => {
            clients.push(client);
            return new ScriptedServer("t").connect();
          },
        },
      },
    }));
    const { client, connect } = await openPluginHub([own], {});
    const other = connect();
    await initialize(other);
    assert.deepEqual(await listToolNames(client), ["mine__t"]);
    assert.deepEqual(await listToolNames(other), ["mine__t"]);
    assert.deepEqual(
      clients.map((info) => [info?.id, info?.name, info?.version]),
      [
        ["client-1", "t", "1"],
        ["client-2", "t", "1"],
      ],
    );
  });
});
