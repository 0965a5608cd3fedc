import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  sendRequest,
  callRequest,
  callTool,
  isResponseTo,
  Latch,
  type ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import type { Answer, ToolCall } from "../../src/plugin/plugin.ts";
import {
  answerTo,
  CANCELLED,
  type CallHandler,
  callsOf,
  callPlugin,
  errorCodeOf,
  exact,
  messageTo,
  openPluginHub,
  openWithClock,
  pluginOf,
  pluginWithHost,
  requestTextsTo,
  responsesTo,
  RESULT,
  serverOf,
  silent,
} from "./plugin-hub.ts";

/** A hub with plugins that do this with calls, and what a call gets through them. */
async function callThrough(runs: readonly CallHandler[], script?: ScriptedServer, args?: object) {
  const plugins = runs.map((run, i) => callPlugin(`p${i}`, run));
  const setup = await openPluginHub(plugins, script);
  return { ...setup, ...(await callTool(setup.client, "s__t", args)) };
}

/** Passes each call on, and does this before. */
const passing =
  (before: (call: ToolCall) => void): CallHandler =>
  (given, next) => {
    before(given);
    return next(given);
  };

describe("the way of a call", () => {
  it("is composed once for a tool, also when the catalog is made anew and for calls of plugins", async () => {
    const composed: string[] = [];
    const counting = pluginOf("counting", {
      call(next, tool) {
        composed.push(`${tool.server} ${tool.name} ${tool.exposedName} ${tool.isolation}`);
        return (given) => next(given).then((answer) => answer);
      },
    });
    const other = pluginWithHost("other", (host) => ({
      call: (next, tool) => (tool.name === "u" ? () => host.call("s__t") : next),
    }));
    const s = exact("t", "u");
    const { client, hub } = await openPluginHub([counting, other], { s, r: exact("x") });
    await callTool(client, "s__t");
    hub.remove("r");
    for (const name of ["s__t", "s__u"]) await callTool(client, name);
    assert.deepEqual(composed, ["s t s__t shared", "s u s__u shared"]);
    assert.equal(requestTextsTo(s).length, 3);
  });

  it("is asked for anew when the tool itself has changed", async () => {
    const seen: unknown[] = [];
    const looking = pluginOf("looking", {
      call: (next, { definition }) => (seen.push(definition.description), next),
    });
    const { client, hub, s } = await openPluginHub([looking]);
    await callTool(client, "s__t");
    s.tools = ['{"name":"t","description":"other"}'];
    await hub.refresh("s");
    await callTool(client, "s__t");
    assert.deepEqual(seen, [undefined, "other"]);
  });

  it("is not there for servers and tools that no plugin is for", async () => {
    const seen: string[] = [];
    const picky = pluginOf(
      "picky",
      { call: (next, { server, name }) => (seen.push(`${server} ${name}`), next) },
      { servers: ["a*"], tools: ["read_*"] },
    );
    const scripts = { ab: exact("read_x", "write_x"), b: exact("read_x") };
    const { client, plugins, hub } = await openPluginHub([picky], scripts);
    for (const name of ["ab__read_x", "ab__write_x", "b__read_x"]) await callTool(client, name);
    assert.deepEqual(seen, ["ab read_x"]);
    for (const route of hub.catalog.tools.routes)
      assert.equal(plugins.callPath(route, "shared"), undefined);
  });

  it("is told by events as if there were no plugins", async () => {
    const f = serverOf(() => '"error":{"code":-1,"message":"no"}', "t");
    const plugin = callPlugin("a", async (given, next) => next(given));
    const { client, events } = await openPluginHub([plugin], { s: exact("t"), f });
    await callTool(client, "s__t");
    assert.deepEqual((await callTool(client, "f__t")).error, { code: -1, message: "no" });
    assert.deepEqual(callsOf(events), ["started s__t", "answered", "started f__t", "answered"]);
  });
});

describe("a plugin on the way of a call", () => {
  it("sees who calls what, exactly as it was spelled, and no arguments as an empty object", async () => {
    const seen: unknown[] = [];
    const looking = passing((given) => {
      const { tool, number, argumentsJson, size, client } = given;
      const { name, server, exposedName } = tool;
      seen.push({ server, name, exposedName, number, argumentsJson, size });
      seen.push(given.arguments, client.name, client.version, given.signal.aborted);
    });
    const { client, s } = await openPluginHub([callPlugin("looking", looking)]);
    const params = '{"name":"s__t","arguments":{"n":1.0, "n":2.0}}';
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
    await answerTo(client, 1, text);
    const about = { server: "s", name: "t", exposedName: "s__t", number: 1, size: text.length };
    const whole = { ...about, argumentsJson: '{"n":1.0, "n":2.0}' };
    assert.deepEqual(seen.splice(0), [whole, { n: 2 }, "t", "1", false]);
    for (const more of [{}, { arguments: null }]) {
      await sendRequest(client, "tools/call", { name: "s__t", ...more });
      const [{ argumentsJson }] = seen.splice(0) as [{ argumentsJson: string }];
      assert.equal(argumentsJson, "{}");
      // They are absent in the server's request as well.
      assert.deepEqual(s.messagesOf("tools/call").at(-1)?.params, { name: "t", ...more });
    }
  });

  it("changes nothing by changing what it was given", async () => {
    const seen: unknown[] = [];
    const outer: CallHandler = async (given, next) => {
      seen.push(given.arguments);
      Object.assign(given.arguments, { safe: true });
      const answer = await next(given);
      Object.assign(answer.value as object, { content: "gone" });
      seen.push(answer.value);
      return answer;
    };
    const { result, s } = await callThrough([outer, outer], exact("t"), { a: 1 });
    const given = JSON.parse(RESULT) as object;
    assert.deepEqual(seen, [{ a: 1 }, { a: 1 }, given, given]);
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["arguments"], { a: 1 });
    assert.deepEqual(result, given);
  });

  it("cannot change what a tool is for the others", async () => {
    const seen: unknown[] = [];
    const meddling: CallHandler = (given, next, tool) => {
      seen.push(Object.isFrozen(tool), Object.isFrozen(tool.definition));
      return next(given);
    };
    await callThrough([meddling]);
    assert.deepEqual(seen, [true, true]);
  });

  const around = (args: string): string => `{"y":1.0,"name":"NAME",${args}, "z":"\\u0041"}`;
  const CHANGES: readonly [string, string, object | string, string][] = [
    ["an object", around('"arguments":{"a":1.0}'), { b: 2 }, around('"arguments":{"b":2}')],
    ["a text", around('"arguments":{"a":1}'), ' {"b":2.0}\n', around('"arguments":{"b":2.0}')],
    [
      "a text of lines",
      around('"arguments":{}'),
      '{\r\n"b":\n[1]}',
      around('"arguments":{  "b": [1]}'),
    ],
    ["null", around('"arguments":null'), { b: 2 }, around('"arguments":{"b":2}')],
    ["none", '{ "name":"NAME"}', '{"b":1.0}', '{"arguments":{"b":1.0}, "name":"NAME"}'],
    [
      "duplicates",
      around('"arguments":{"a":1},"x":1.0,"argu\\u006dents":{"a":2}'),
      { b: 2 },
      around('"arguments":{"b":2},"x":1.0,"argu\\u006dents":{"b":2}'),
    ],
  ];
  for (const [what, before, change, after] of CHANGES) {
    it(`changes arguments and nothing else: ${what}`, async () => {
      const { client, s } = await openPluginHub([
        callPlugin("changing", (given, next) => next(given.with({ arguments: change }))),
      ]);
      const text = (params: string, id: unknown, name: string): string =>
        `{"jsonrpc":"2.0","id":${String(id)},"method":"tools/call","params":${params.replace("NAME", name)}}`;
      await answerTo(client, 1, text(before, 1, "s__t"));
      const { id } = await messageTo(s);
      assert.deepEqual(requestTextsTo(s), [text(after, id, "t")]);
    });
  }

  it("changes what others have changed, and sees that", async () => {
    const seen: string[] = [];
    const runs = ["a", "b"].map((name): CallHandler => (given, next) => {
      seen.push(given.argumentsJson);
      return next(given.with({ arguments: { ...given.arguments, [name]: 1 } }));
    });
    const { s } = await callThrough(runs, undefined, { x: 1 });
    assert.deepEqual(seen, ['{"x":1}', '{"x":1,"a":1}']);
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["arguments"], { x: 1, a: 1, b: 1 });
  });

  it("answers itself, and the server hears nothing", async () => {
    const text = ' {"content":[],\n"n":1.0} ';
    const answering = callPlugin("answering", (given) => given.answer(text));
    const { client, events, s } = await openPluginHub([answering]);
    await answerTo(client, "x");
    const shown = '{"jsonrpc":"2.0","result":{"content":[], "n":1.0},"id":"x"}';
    assert.equal(client.received.at(-1), shown);
    assert.deepEqual(requestTextsTo(s), []);
    assert.deepEqual(callsOf(events), ["started s__t", "answered"]);
  });

  it("gives an answer of one call to another, under that one's id", async () => {
    let kept: Answer | undefined;
    const keeping = callPlugin("keeping", async (given, next) => (kept ??= await next(given)));
    const { client, s } = await openPluginHub([keeping], exact("t"));
    for (const id of [1, "two"]) await answerTo(client, id);
    const [first, second] = client.received.slice(-2);
    assert.ok(first?.includes(RESULT));
    assert.equal(second, first?.replace('"id":1', '"id":"two"'));
    assert.equal(requestTextsTo(s).length, 1);
  });

  it("gives what one call waits for to others that are equal", async () => {
    let running: Promise<Answer> | undefined;
    const sharing = callPlugin("sharing", (given, next) => (running ??= next(given)));
    const { client, s } = await openPluginHub([sharing], silent("t"));
    for (const id of [1, 2, 3]) client.send(callRequest(id, "s__t"));
    const { id: sent } = await messageTo(s);
    await turn();
    assert.equal(s.messagesOf("tools/call").length, 1);
    s.newestPeer?.send(`{"jsonrpc":"2.0","id":${String(sent)},"result":${RESULT}}`);
    for (const id of [1, 2, 3]) {
      assert.deepEqual((await client.find(isResponseTo(id))).result, JSON.parse(RESULT));
    }
  });

  it("sends a call twice at a time, each under an id of its own", async () => {
    const doubling: CallHandler = async (given, next) => {
      const args = (n: number) => given.with({ arguments: { n } });
      const [, second] = await Promise.all([next(args(1)), next(args(2))]);
      return second;
    };
    const { result, s } = await callThrough([doubling]);
    assert.deepEqual(result?.["echo"], { name: "t", arguments: { n: 2 } });
    const [one, two, ...more] = s.messagesOf("tools/call").map(({ id }) => id);
    assert.ok(one !== two && more.length === 0);
  });

  it("answers while its own request is under way, which the server is told", async () => {
    const hasty: CallHandler = (given, next) => {
      void next(given);
      return given.answer({ content: [], hasty: true });
    };
    const { result, s } = await callThrough([hasty], silent("t"));
    assert.equal(result?.["hasty"], true);
    const { id: requestId } = await messageTo(s);
    const { params } = await messageTo(s, CANCELLED);
    assert.deepEqual(params, { requestId, reason: "The call was answered." });
    assert.equal(s.messagesOf(CANCELLED).length, 1);
  });

  it("retries when the connection was lost, and the server is started for that", async () => {
    const codes: unknown[] = [];
    const retrying: CallHandler = async (given, next) => {
      try {
        return await next(given);
      } catch (error) {
        codes.push(errorCodeOf(error));
        return next(given);
      }
    };
    const script = serverOf(() => {
      if (script.transportCount > 1) return `"result":${RESULT}`;
      script.disconnect();
      return undefined;
    }, "t");
    const { result, s } = await callThrough([retrying], script);
    assert.deepEqual(codes, ["connectionLost"]);
    assert.deepEqual(result, JSON.parse(RESULT));
    assert.equal(s.transportCount, 2);
  });

  /** A server whose calls run until this is done. */
  const endless = (end: () => void) => serverOf(() => (queueMicrotask(end), undefined), "t");

  it("cancels what it has sent, by a signal, and gets an error with a code for it", async () => {
    const codes: unknown[] = [];
    const stop = new AbortController();
    const timing: CallHandler = async (given, next) => {
      try {
        return await next(given.with({ signal: stop.signal }));
      } catch (error) {
        codes.push(errorCodeOf(error));
        return given.refuse("too slow");
      }
    };
    const { result, events, s } = await callThrough(
      [timing],
      endless(() => stop.abort("enough")),
    );
    assert.equal(result?.["isError"], true);
    assert.deepEqual(codes, ["cancelled"]);
    const { params } = await messageTo(s, CANCELLED);
    assert.equal(params?.["requestId"], s.messagesOf("tools/call")[0]?.id);
    assert.deepEqual(callsOf(events), ["started s__t", "answered"]);
  });

  it("gives its own end of a call to the client, if it leaves it at that", async () => {
    const stop = new AbortController();
    const timing: CallHandler = (given, next) => next(given.with({ signal: stop.signal }));
    const script = endless(() => stop.abort(new Error("enough")));
    const { error, client, plugins, s } = await callThrough([timing], script);
    assert.equal(error?.data?.["code"], "cancelled");
    assert.match(error?.message ?? "", /enough/);
    assert.equal(plugins.status[0]?.lastError, undefined);
    // The signal is aborted now: nothing more is sent under it.
    assert.equal((await callTool(client, "s__t")).error?.data?.["code"], "cancelled");
    assert.equal(requestTextsTo(s).length, 1);
  });

  for (const which of [0, 1]) {
    it(`is under the signals of all that are further out: number ${which + 1}`, async () => {
      const stops = [new AbortController(), new AbortController()];
      const outer = stops.map(
        (stop): CallHandler =>
          (given, next) =>
            next(given.with({ signal: stop.signal })),
      );
      const seen: boolean[] = [];
      const innermost = passing((given) => {
        const { signal } = given;
        assert.equal(given.signal, signal);
        signal.addEventListener("abort", () => seen.push(true));
      });
      const script = endless(() => stops[which]?.abort());
      const { error } = await callThrough([...outer, innermost], script);
      assert.equal(error?.data?.["code"], "cancelled");
      assert.deepEqual(seen, [true]);
    });
  }

  it("may watch the very promise that it gives back", async () => {
    const seen: unknown[] = [];
    const watching: CallHandler = (given, next) => {
      const answered = next(given);
      answered.then(
        ({ json }) => seen.push(json),
        () => seen.push("failed"),
      );
      return answered;
    };
    await callThrough([watching, watching], exact("t"));
    await turn();
    assert.deepEqual(seen, [RESULT, RESULT]);
  });

  it("gives the client what is written under its own progress token", async () => {
    const method = "notifications/progress";
    const script = serverOf(({ params }) => {
      const { progressToken } = params?.["_meta"] as { progressToken?: unknown };
      script.newestPeer?.send({ jsonrpc: "2.0", method, params: { progressToken, progress: 0.5 } });
      return '"result":{}';
    }, "t");
    const plugin = callPlugin("a", async (given, next) => next(given));
    const { client } = await openPluginHub([plugin], script);
    await answerTo(client, 1, callRequest(1, "s__t", {}, { _meta: { progressToken: "mine" } }));
    const reported = client.messages.filter((message) => message.method === method);
    const tokens = reported.map(({ params }) => params?.["progressToken"]);
    assert.deepEqual(tokens, ["mine"]);
    const { id, params } = await messageTo(script);
    assert.deepEqual(params?.["_meta"], { progressToken: id });
    assert.equal(responsesTo(client, 1).length, 1);
  });

  it("waits for nothing: calls overtake one that it holds", async () => {
    const latch = new Latch();
    const holding = callPlugin("holding", async (given, next) => {
      if (given.arguments["slow"] === true) await latch.wait();
      return next(given);
    });
    const { client } = await openWithClock([holding]);
    client.send(callRequest(1, "s__t", { slow: true }));
    await callTool(client, "s__t");
    assert.equal(responsesTo(client, 1).length, 0);
    latch.open();
    await client.find(isResponseTo(1));
  });
});
