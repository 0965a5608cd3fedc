import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Answer, CallOptions, ClientInfo, Host, ToolCall } from "../../src/plugin/plugin.ts";
import {
  callRequest,
  callTool,
  initialize,
  isResponseTo,
  listToolNames,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import type { PluginUse } from "../fixtures/plugin-hub.ts";
import { inputRoundOf, sendModernRequest, sendModernWithId } from "../fixtures/modern-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callPlugin,
  CANCELLED,
  cancelOf,
  logsOf,
  messageTo,
  openPluginHub,
  openWithClock,
  pluginWithHost,
} from "./plugin-hub.ts";

const CALL = { name: "s__t", arguments: {} };
const LIMITS = { servers: { s: { callTimeout: 1000, maxCallTimeout: 2000 } } };
const FORM = {
  message: "Go on?",
  schema: { type: "object", properties: { sure: { type: "boolean" } } },
};
const FORMS = { elicitation: {} };
const MESSAGES = {
  messages: [{ role: "user", content: { type: "text", text: "Hi" } }],
  maxTokens: 9,
};
const WITH_TOOLS = { ...MESSAGES, tools: [{ name: "x", inputSchema: { type: "object" } }] };
const SAID = { role: "assistant", model: "m", content: { type: "text", text: "Hello" } };
const SAMPLING = { sampling: { tools: {} } };

/** A plugin that asks with each call, and answers with what the client can do and what came of that, or an error's code. */
function asking(ask: (call: ToolCall) => Promise<unknown>, can: (call: ToolCall) => unknown) {
  return callPlugin("asking", async (call) => {
    const outcome = await ask(call).catch((error: unknown) => ({
      code: (error as { readonly code?: string }).code,
    }));
    return call.answer({ content: [], can: can(call), outcome });
  });
}

const askingPerson = asking(
  (call) => call.elicit(FORM),
  (call) => call.canElicit,
);
const askingModel = (params: Readonly<Record<string, unknown>>): PluginUse =>
  asking(
    (call) => call.sample(params),
    (call) => call.canSample,
  );

/** What plugins can ask a client. */
interface Question {
  readonly plugin: PluginUse;
  /** What a client can do that can be asked, as it declares it and as the plugin sees it. */
  readonly capabilities: object;
  readonly can: unknown;
  /** The request that the client gets. */
  readonly request: { readonly method: string; readonly params: object };
  /** What the client may answer, and what the plugin is given. */
  readonly answers: readonly (readonly [what: string, answer: object, outcome: unknown])[];
  /** Clients that cannot be asked. */
  readonly refusals: readonly (readonly [plugin: PluginUse, capabilities: object, can: unknown])[];
}

const accepted = { action: "accept", content: { sure: true } };
const failed = { error: { code: -1, message: "no" } };

const QUESTIONS: Readonly<Record<string, Question>> = {
  "the person at the client": {
    plugin: askingPerson,
    capabilities: FORMS,
    can: true,
    request: {
      method: "elicitation/create",
      params: { message: "[s] Go on?", requestedSchema: FORM.schema },
    },
    answers: [
      ["accepts", { result: accepted }, accepted],
      ["declines", { result: { action: "decline" } }, { action: "decline" }],
      ["closes the form", { result: { action: "cancel" } }, { action: "cancel" }],
      ["answers with nonsense", { result: { action: "perhaps" } }, { code: "invalidParams" }],
      ["answers with an error", failed, { code: "notAsked" }],
    ],
    refusals: [[askingPerson, {}, false]],
  },
  "the model of the client": {
    plugin: askingModel(WITH_TOOLS),
    capabilities: SAMPLING,
    can: "tools",
    request: { method: "sampling/createMessage", params: WITH_TOOLS },
    answers: [
      ["lets it answer", { result: SAID }, SAID],
      ["does not let it", failed, { code: "notAsked" }],
      ["answers with nonsense", { result: [1] }, { code: "invalidParams" }],
    ],
    refusals: [
      [askingModel(MESSAGES), {}, false],
      [askingModel(WITH_TOOLS), { sampling: {} }, "text"],
    ],
  },
};

for (const [who, question] of Object.entries(QUESTIONS)) {
  const { plugin, capabilities, can, request, answers, refusals } = question;
  /** A hub with the plugin, whose client has made a call and is asked. */
  const beAsked = async () => {
    const setup = await openWithClock([plugin], undefined, LIMITS, capabilities);
    setup.client.send(callRequest(1, "s__t"));
    const { id, params } = await setup.client.find(({ method }) => method === request.method);
    return { ...setup, id, params };
  };

  describe(`a plugin that asks ${who}`, () => {
    for (const [what, answer, outcome] of answers) {
      it(`gets what a legacy client says that ${what}, with all the time that it needs`, async () => {
        const { client, clock, s, id, params } = await beAsked();
        assert.deepEqual(params, request.params);
        await clock.advanceAsync(60_000);
        client.send({ jsonrpc: "2.0", id, ...answer });
        const { result } = await client.find(isResponseTo(1));
        assert.deepEqual(result, { content: [], can, outcome });
        assert.deepEqual(s.messagesOf("tools/call"), []);
      });
    }

    it("is told that a legacy client's answer cannot be used if it is no JSON", async () => {
      for (const body of ['{"action":NaN}', '{"action":"acc\\u12"}', '{"action":"acc\u0001ept"}']) {
        const { client, id } = await beAsked();
        client.send(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${body}}`);
        const { result } = await client.find(isResponseTo(1));
        assert.deepEqual(result?.["outcome"], { code: "internal" }, body);
      }
    });

    it("asks a modern client by input_required, and goes on with its retry", async () => {
      const { client } = await openPluginHub([plugin]);
      const first = await sendModernRequest(client, "tools/call", CALL, capabilities);
      const { keys, requests, state } = inputRoundOf(first);
      const [key = "", ...more] = keys;
      assert.deepEqual([requests[key], more], [request, []]);
      const [[, { result: said }, outcome]] = answers as [[string, { result: unknown }, unknown]];
      const retry = { ...CALL, requestState: state, inputResponses: { [key]: said } };
      const { result } = await sendModernWithId(client, "x", "tools/call", retry, capabilities);
      assert.deepEqual(result?.["outcome"], outcome);
    });

    for (const [refused, declared, isAble] of refusals) {
      it(`is told of a client that declares ${JSON.stringify(declared)} what it cannot do, in both eras`, async () => {
        const { client } = await openWithClock([refused], undefined, {}, declared);
        const legacy = await callTool(client, "s__t");
        const modern = await sendModernRequest(client, "tools/call", CALL, declared);
        for (const { result } of [legacy, modern]) {
          assert.deepEqual([result?.["can"], result?.["outcome"]], [isAble, { code: "notAsked" }]);
        }
      });
    }

    it("has its request withdrawn when the client cancels the call", async () => {
      const { client, events, id } = await beAsked();
      client.send(cancelOf(1));
      const withdrawn = await client.find(({ method }) => method === CANCELLED);
      assert.equal(withdrawn.params?.["requestId"], id);
      assert.deepEqual(logsOf(events), []);
    });
  });
}

describe("a plugin that asks a client", () => {
  it("has its form withdrawn when it answers without waiting for it", async () => {
    const hasty = callPlugin("hasty", (call) => {
      void call.elicit(FORM);
      return Promise.resolve(call.refuse("no"));
    });
    const { client } = await openWithClock([hasty], undefined, {}, FORMS);
    assert.equal((await callTool(client, "s__t")).result?.["isError"], true);
    const { id } = await client.find(({ method }) => method === "elicitation/create");
    const withdrawn = await client.find(({ method }) => method === CANCELLED);
    assert.equal(withdrawn.params?.["requestId"], id);
  });

  it("is told that params are no JSON, and nobody is asked", async () => {
    const plugin = askingModel({ ...MESSAGES, big: 1n });
    const { client } = await openWithClock([plugin], undefined, {}, SAMPLING);
    const { result } = await callTool(client, "s__t");
    assert.deepEqual(result?.["outcome"], { code: "internal" });
    assert.ok(!client.messages.some(({ method }) => method === "sampling/createMessage"));
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
    const { client, clock, events } = await openWithClock([delegating()], s, LIMITS, FORMS);
    client.send(callRequest(1, "s__outer", { x: 1 }));
    const form = await client.find(({ method }) => method === "elicitation/create");
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
    const { client, hub } = await openPluginHub([plugin], s);
    client.send(callRequest(1, "s__outer"));
    await messageTo(s);
    await turn();
    assert.deepEqual(seen, ["half"]);
    const running = hub.snapshot().calls.map(({ tool, parentCall }) => [tool, parentCall]);
    assert.deepEqual(running, [
      ["outer", undefined],
      ["inner", 1],
    ]);
    client.send(cancelOf(1));
    await messageTo(s, CANCELLED);
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
    const { client } = await openPluginHub([calling, plugin]);
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
