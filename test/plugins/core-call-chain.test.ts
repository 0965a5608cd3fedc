import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  sendRequest,
  callRequest,
  callTool,
  isResponseTo,
  Latch,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import type { Answer, ToolCall } from "../../src/plugin/plugin.ts";
import {
  responsesTo,
  callsOf,
  pluginWithHost,
  openPluginHub,
  openWithClock,
  requestTextsTo,
  pluginOf,
  callPlugin,
} from "./plugin-hub.ts";

const RESULT = '{"content":[{"type":"text","text":"1.0"}],"big":1234567890123456789,"n":1.0}';

/** A server whose results would be changed by parsing and printing. */
function exact(...names: string[]): ScriptedServer {
  const script = new ScriptedServer(...names);
  script.onCall = () => `"result":${RESULT}`;
  return script;
}

describe("the way of a call", () => {
  it("goes from the outermost plugin to the innermost, and back", async () => {
    const path: string[] = [];
    const passing = (name: string) =>
      callPlugin(name, async (given, next) => {
        path.push(`${name} in`);
        const answer = await next(given);
        path.push(`${name} out`);
        return answer;
      });
    const { client } = await openPluginHub([passing("a"), passing("b"), passing("c")], {
      s: exact("t"),
    });
    await callTool(client, "s__t");
    assert.deepEqual(path, ["a in", "b in", "c in", "c out", "b out", "a out"]);
  });

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
    await callTool(client, "s__t");
    await callTool(client, "s__u");
    assert.deepEqual(composed, ["s t s__t shared", "s u s__u shared"]);
    assert.equal(requestTextsTo(s).length, 3);
  });

  it("is asked for anew when the tool itself has changed", async () => {
    const seen: unknown[] = [];
    const looking = pluginOf("looking", {
      call(next, { definition }) {
        seen.push(definition.description);
        return next;
      },
    });
    const s = exact("t");
    const { client, hub } = await openPluginHub([looking], { s });
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
      {
        call(next, { server, name }) {
          seen.push(`${server} ${name}`);
          return next;
        },
      },
      { servers: ["a*"], tools: ["read_*"] },
    );
    const scripts = { ab: exact("read_x", "write_x"), b: exact("read_x") };
    const { client, plugins, hub } = await openPluginHub([picky], scripts);
    for (const name of ["ab__read_x", "ab__write_x", "b__read_x"]) await callTool(client, name);
    assert.deepEqual(seen, ["ab read_x"]);
    for (const route of hub.catalog.tools.routes)
      assert.equal(plugins.callPath(route, "shared"), undefined);
  });

  it("keeps every byte of request and answer where plugins pass the call on, at once or later", async () => {
    const request =
      '{"jsonrpc":"2.0","id":"q\\u0041","method":"tools/call","params": { "x":1.0, "name" : "s__t","arguments":{"n":1.0 ,"big":12345678901234567890,"a":"\\u0041"} }}';
    const bare = exact("t");
    const plain = setUpHub({ s: bare });
    await sendRequest(plain.client, "tools/list");
    plain.client.send(request);
    await plain.client.find(isResponseTo("qA"));
    for (const run of [
      (given: ToolCall, next: (call: ToolCall) => Promise<Answer>) => next(given),
      async (given: ToolCall, next: (call: ToolCall) => Promise<Answer>) => {
        await turn();
        return next(given);
      },
    ]) {
      const s = exact("t");
      const { client } = await openPluginHub([callPlugin("a", run), callPlugin("b", run)], { s });
      client.send(request);
      await client.find(isResponseTo("qA"));
      assert.deepEqual(requestTextsTo(s).map(withoutId), requestTextsTo(bare).map(withoutId));
      assert.equal(client.received.at(-1), plain.client.received.at(-1));
      assert.ok(client.received.at(-1)?.includes(RESULT));
    }
  });

  it("is told by events as if there were no plugins", async () => {
    const failing = new ScriptedServer("t");
    failing.onCall = () => '"error":{"code":-1,"message":"no"}';
    const { client, events } = await openPluginHub(
      [callPlugin("a", async (given, next) => next(given))],
      {
        s: exact("t"),
        f: failing,
      },
    );
    await callTool(client, "s__t");
    const { error } = await callTool(client, "f__t");
    assert.deepEqual(error, { code: -1, message: "no" });
    assert.deepEqual(callsOf(events), ["started s__t", "answered", "started f__t", "answered"]);
  });
});

describe("a plugin on the way of a call", () => {
  it("sees who calls what, exactly as it was spelled", async () => {
    const seen: unknown[] = [];
    const looking = callPlugin("looking", (given, next) => {
      const { tool, number, argumentsJson, size, client } = given;
      const { name, server, exposedName } = tool;
      seen.push({ server, name, exposedName, number, argumentsJson, size });
      seen.push(given.arguments, client.name, client.version, given.signal.aborted);
      return next(given);
    });
    const { client } = await openPluginHub([looking], { s: exact("t") });
    const params = '{"name":"s__t","arguments":{"n":1.0, "n":2.0}}';
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
    client.send(text);
    await client.find(isResponseTo(1));
    const about = { server: "s", name: "t", exposedName: "s__t", number: 1, size: text.length };
    const [first, ...rest] = seen;
    assert.deepEqual(first, { ...about, argumentsJson: '{"n":1.0, "n":2.0}' });
    assert.deepEqual(rest, [{ n: 2 }, "t", "1", false]);
  });

  it("sees no arguments as an empty object, however they were left out", async () => {
    const seen: string[] = [];
    const looking = callPlugin("looking", (given, next) => {
      seen.push(given.argumentsJson);
      return next(given);
    });
    const s = exact("t");
    const { client } = await openPluginHub([looking], { s });
    await sendRequest(client, "tools/call", { name: "s__t" });
    await sendRequest(client, "tools/call", { name: "s__t", arguments: null });
    assert.deepEqual(seen, ["{}", "{}"]);
    // They are absent in the server's request as well.
    assert.deepEqual(
      s.messagesOf("tools/call").map(({ params }) => params),
      [{ name: "t" }, { name: "t", arguments: null }],
    );
  });

  it("changes nothing by changing what it was given", async () => {
    const outer = callPlugin("outer", async (given, next) => {
      Object.assign(given.arguments, { safe: true });
      const answer = await next(given);
      Object.assign(answer.value as object, { content: "gone" });
      return answer;
    });
    const seen: unknown[] = [];
    const inner = callPlugin("inner", async (given, next) => {
      seen.push(given.arguments);
      const answer = await next(given);
      Object.assign(answer.value as object, { content: "away" });
      seen.push(answer.value);
      return answer;
    });
    const s = exact("t");
    const { client } = await openPluginHub([outer, inner], { s });
    const { result } = await callTool(client, "s__t", { a: 1 });
    assert.deepEqual(seen, [{ a: 1 }, JSON.parse(RESULT)]);
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["arguments"], { a: 1 });
    assert.deepEqual(result, JSON.parse(RESULT));
  });

  it("cannot change what a tool is for the others", async () => {
    const seen: unknown[] = [];
    const meddling = pluginOf("meddling", {
      call(next, tool) {
        seen.push(Object.isFrozen(tool), Object.isFrozen(tool.definition));
        return next;
      },
    });
    const { client } = await openPluginHub([meddling], { s: exact("t") });
    await callTool(client, "s__t");
    assert.deepEqual(seen, [true, true]);
  });

  const CHANGES: readonly [string, string, object | string, string][] = [
    ["an object", '"arguments":{"a":1.0}', { b: 2 }, '"arguments":{"b":2}'],
    ["a text", '"arguments":{"a":1.0}', ' {"b":2.0}\n', '"arguments":{"b":2.0}'],
    ["a text of lines", '"arguments":{}', '{\r\n"b":\n[1]}', '"arguments":{  "b": [1]}'],
    ["null", '"arguments":null', { b: 2 }, '"arguments":{"b":2}'],
    [
      "duplicates",
      '"arguments":{"a":1},"x":1.0,"argu\\u006dents":{"a":2}',
      { b: 2 },
      '"arguments":{"b":2},"x":1.0,"argu\\u006dents":{"b":2}',
    ],
  ];
  for (const [what, before, change, after] of CHANGES) {
    it(`changes arguments and nothing else: ${what}`, async () => {
      const changing = callPlugin("changing", (given, next) =>
        next(given.with({ arguments: change })),
      );
      const s = exact("t");
      const { client } = await openPluginHub([changing], { s });
      const text = (args: string, id: string, name: string): string =>
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"y":1.0,"name":"${name}",${args}, "z":"\\u0041"}}`;
      client.send(text(before, "1", "s__t"));
      await client.find(isResponseTo(1));
      const [id] = s.messagesOf("tools/call").map((message) => JSON.stringify(message.id));
      assert.deepEqual(requestTextsTo(s), [text(after, id ?? "", "t")]);
    });
  }

  it("gives arguments to a call that has none", async () => {
    const changing = callPlugin("changing", (given, next) =>
      next(given.with({ arguments: '{"b":1.0}' })),
    );
    const s = exact("t");
    const { client } = await openPluginHub([changing], { s });
    client.send('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ "name":"s__t"}}');
    await client.find(isResponseTo(1));
    assert.match(requestTextsTo(s)[0] ?? "", /"params":\{"arguments":\{"b":1\.0\}, "name":"t"\}/);
  });

  it("changes what others have changed, and sees that", async () => {
    const seen: string[] = [];
    const adding = (name: string) =>
      callPlugin(name, (given, next) => {
        seen.push(given.argumentsJson);
        return next(given.with({ arguments: { ...given.arguments, [name]: 1 } }));
      });
    const s = exact("t");
    const { client } = await openPluginHub([adding("a"), adding("b")], { s });
    await callTool(client, "s__t", { x: 1 });
    assert.deepEqual(seen, ['{"x":1}', '{"x":1,"a":1}']);
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["arguments"], { x: 1, a: 1, b: 1 });
  });

  it("answers itself, and the server hears nothing", async () => {
    const answering = callPlugin("answering", (given) =>
      given.answer(' {"content":[],\n"n":1.0} '),
    );
    const s = exact("t");
    const { client, events } = await openPluginHub([answering], { s });
    client.send(callRequest("x", "s__t"));
    await client.find(isResponseTo("x"));
    assert.equal(
      client.received.at(-1),
      '{"jsonrpc":"2.0","result":{"content":[], "n":1.0},"id":"x"}',
    );
    assert.deepEqual(requestTextsTo(s), []);
    assert.deepEqual(callsOf(events), ["started s__t", "answered"]);
  });

  it("refuses in words for the model", async () => {
    const refusing = callPlugin("refusing", (given) => given.refuse('not "that"\n'));
    const { client } = await openPluginHub([refusing], { s: exact("t") });
    const { result } = await callTool(client, "s__t");
    const content = [{ type: "text", text: 'not "that"\n' }];
    assert.deepEqual(result, { content, isError: true });
  });

  it("gives an answer of one call to another, under that one's id", async () => {
    let kept: Answer | undefined;
    const keeping = callPlugin("keeping", async (given, next) => (kept ??= await next(given)));
    const s = exact("t");
    const { client } = await openPluginHub([keeping], { s });
    client.send(callRequest(1, "s__t"));
    await client.find(isResponseTo(1));
    client.send(callRequest("two", "s__t"));
    await client.find(isResponseTo("two"));
    const [first, second] = client.received.slice(-2);
    assert.ok(first?.includes(RESULT));
    assert.equal(second, first?.replace('"id":1', '"id":"two"'));
    assert.equal(requestTextsTo(s).length, 1);
  });

  it("gives what one call waits for to others that are equal", async () => {
    const running = new Map<string, Promise<Answer>>();
    const sharing = callPlugin("sharing", (given, next) => {
      const known = running.get(given.argumentsJson) ?? next(given);
      running.set(given.argumentsJson, known);
      return known;
    });
    const s = new ScriptedServer("t");
    s.onCall = () => undefined;
    const { client } = await openPluginHub([sharing], { s });
    for (const id of [1, 2, 3]) client.send(callRequest(id, "s__t"));
    await s.newestPeer?.find(({ method }) => method === "tools/call");
    await turn();
    const [sent, ...more] = s.messagesOf("tools/call");
    assert.deepEqual(more, []);
    s.newestPeer?.send(`{"jsonrpc":"2.0","id":${String(sent?.id)},"result":${RESULT}}`);
    for (const id of [1, 2, 3]) {
      assert.deepEqual((await client.find(isResponseTo(id))).result, JSON.parse(RESULT));
    }
  });

  it("sends a call twice at a time, each under an id of its own", async () => {
    const doubling = callPlugin("doubling", async (given, next) => {
      const args = (n: number) => given.with({ arguments: { n } });
      const [, second] = await Promise.all([next(args(1)), next(args(2))]);
      return second;
    });
    const s = new ScriptedServer("t");
    const { client } = await openPluginHub([doubling], { s });
    const { result } = await callTool(client, "s__t");
    assert.deepEqual(result?.["echo"], { name: "t", arguments: { n: 2 } });
    const [one, two, ...more] = s.messagesOf("tools/call").map(({ id }) => id);
    assert.ok(one !== two && more.length === 0);
  });

  it("answers while its own request is under way, which the server is told", async () => {
    const hasty = callPlugin("hasty", (given, next) => {
      void next(given);
      return given.answer({ content: [], hasty: true });
    });
    const s = new ScriptedServer("t");
    s.onCall = () => undefined;
    const { client } = await openPluginHub([hasty], { s });
    const { result } = await callTool(client, "s__t");
    assert.equal(result?.["hasty"], true);
    const sent = s.messagesOf("tools/call")[0];
    const reported = await s.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    assert.deepEqual(reported?.params, { requestId: sent?.id, reason: "The call was answered." });
    assert.equal(s.messagesOf("notifications/cancelled").length, 1);
  });

  it("retries when the connection was lost, and the server is started for that", async () => {
    const codes: unknown[] = [];
    const retrying = callPlugin("retrying", async (given, next) => {
      try {
        return await next(given);
      } catch (error) {
        codes.push((error as { code?: unknown }).code);
        return next(given);
      }
    });
    const s = exact("t");
    const answer = s.onCall;
    s.onCall = (message, text) => {
      if (s.transportCount > 1) return answer(message, text);
      s.disconnect();
      return undefined;
    };
    const { client } = await openPluginHub([retrying], { s });
    const { result } = await callTool(client, "s__t");
    assert.deepEqual(codes, ["connectionLost"]);
    assert.deepEqual(result, JSON.parse(RESULT));
    assert.equal(s.transportCount, 2);
  });

  it("cancels what it has sent, by a signal, and gets an error with a code for it", async () => {
    const codes: unknown[] = [];
    const stop = new AbortController();
    const timing = callPlugin("timing", async (given, next) => {
      try {
        return await next(given.with({ signal: stop.signal }));
      } catch (error) {
        codes.push((error as { code?: unknown }).code);
        return given.refuse("too slow");
      }
    });
    const s = new ScriptedServer("t");
    s.onCall = () => {
      queueMicrotask(() => stop.abort("enough"));
      return undefined;
    };
    const { client, events } = await openPluginHub([timing], { s });
    const { result } = await callTool(client, "s__t");
    assert.equal(result?.["isError"], true);
    assert.deepEqual(codes, ["cancelled"]);
    const reported = await s.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    assert.equal(reported?.params?.["requestId"], s.messagesOf("tools/call")[0]?.id);
    assert.deepEqual(callsOf(events), ["started s__t", "answered"]);
  });

  it("gives its own end of a call to the client, if it leaves it at that", async () => {
    const stop = new AbortController();
    const timing = callPlugin("timing", (given, next) => next(given.with({ signal: stop.signal })));
    const s = new ScriptedServer("t");
    s.onCall = () => {
      queueMicrotask(() => stop.abort(new Error("enough")));
      return undefined;
    };
    const { client, plugins } = await openPluginHub([timing], { s });
    const { error } = await callTool(client, "s__t");
    assert.equal(error?.data?.["code"], "cancelled");
    assert.match(error?.message ?? "", /enough/);
    assert.equal(plugins.status[0]?.lastError, undefined);
  });

  it("sends nothing under a signal that was aborted before", async () => {
    const done = AbortSignal.abort();
    const timing = callPlugin("timing", (given, next) => next(given.with({ signal: done })));
    const s = exact("t");
    const { client } = await openPluginHub([timing], { s });
    const { error } = await callTool(client, "s__t");
    assert.equal(error?.data?.["code"], "cancelled");
    assert.deepEqual(requestTextsTo(s), []);
  });

  for (const which of [0, 1]) {
    it(`is under the signals of all that are further out: number ${which + 1}`, async () => {
      const stops = [new AbortController(), new AbortController()] as const;
      const [outer, inner] = stops.map((stop, i) =>
        callPlugin(`p${i}`, (given, next) => next(given.with({ signal: stop.signal }))),
      );
      const seen: boolean[] = [];
      const innermost = callPlugin("innermost", async (given, next) => {
        const { signal } = given;
        assert.equal(given.signal, signal);
        signal.addEventListener("abort", () => seen.push(true));
        return next(given);
      });
      assert.ok(outer && inner);
      const s = new ScriptedServer("t");
      s.onCall = () => {
        queueMicrotask(() => stops[which]?.abort());
        return undefined;
      };
      const { client } = await openPluginHub([outer, inner, innermost], { s });
      const { error } = await callTool(client, "s__t");
      assert.equal(error?.data?.["code"], "cancelled");
      assert.deepEqual(seen, [true]);
    });
  }

  it("may watch the very promise that it gives back", async () => {
    const seen: unknown[] = [];
    const watching = callPlugin("watching", (given, next) => {
      const answered = next(given);
      answered.then(
        ({ json }) => seen.push(json),
        () => seen.push("failed"),
      );
      return answered;
    });
    const { client } = await openPluginHub([watching, watching], { s: exact("t") });
    await callTool(client, "s__t");
    await turn();
    assert.deepEqual(seen, [RESULT, RESULT]);
  });

  it("gives the client what is written under its own progress token", async () => {
    const s = new ScriptedServer("t");
    s.onCall = (message) => {
      const meta = message.params?.["_meta"] as { progressToken?: unknown };
      const params = { progressToken: meta.progressToken, progress: 0.5 };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params });
      return '"result":{}';
    };
    const tokens: unknown[] = [];
    const passing = callPlugin("passing", async (given, next) => next(given));
    const { client } = await openPluginHub([passing], { s });
    client.send(callRequest(1, "s__t", {}, { _meta: { progressToken: "mine" } }));
    await client.find(isResponseTo(1));
    for (const { method, params } of client.messages) {
      if (method === "notifications/progress") tokens.push(params?.["progressToken"]);
    }
    assert.deepEqual(tokens, ["mine"]);
    const [sent] = s.messagesOf("tools/call");
    assert.deepEqual(sent?.params?.["_meta"], { progressToken: sent?.id });
    assert.equal(responsesTo(client, 1).length, 1);
  });

  it("waits for nothing: calls overtake one that it holds", async () => {
    const latch = new Latch();
    const holding = callPlugin("holding", async (given, next) => {
      if (given.arguments["slow"] === true) await latch.wait();
      return next(given);
    });
    const { client } = await openWithClock([holding], { s: exact("t") });
    client.send(callRequest(1, "s__t", { slow: true }));
    await callTool(client, "s__t");
    assert.equal(responsesTo(client, 1).length, 0);
    latch.open();
    await client.find(isResponseTo(1));
  });
});

/** A request without the id that the hub gave it. */
function withoutId(text: string): string {
  return text.replace(/"id":\d+/, '"id":0');
}
