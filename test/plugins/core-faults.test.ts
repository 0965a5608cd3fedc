import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Answer, Next, ToolCall } from "../../src/plugin/plugin.ts";
import { MAX_FAILURES, OPEN_TIME } from "../../src/plugin/instance.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  isResponseTo,
  type Json,
  Latch,
  listToolNames,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import {
  responsesTo,
  callsOf,
  pluginWithHost,
  logsOf,
  openPluginHub,
  type CallHandler,
  openWithClock,
  pluginOf,
  callPlugin,
} from "./plugin-hub.ts";

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function withGetter(): Error {
  const get = (): never => {
    throw new Error("got you");
  };
  return Object.defineProperties(new Error("x"), { message: { get }, stack: { get } });
}

/** A plugin whose return values TypeScript does not check. */
const fake = (value: unknown): Answer => value as Answer;
const throwing = (thrown: unknown): never => {
  throw thrown;
};

/** Plugin faults, each in one call. */
const MISTAKES: Readonly<Record<string, CallHandler>> = {
  "throws an error": () => throwing(new Error("boom")),
  "rejects with an error": () => Promise.reject(new Error("boom")),
  "throws no error": () => throwing("boom"),
  "throws nothing": () => throwing(undefined),
  "throws what cannot be written": () => throwing(Object.create(null)),
  "throws an error that throws": () => throwing(withGetter()),
  "rejects with an error that throws": () => Promise.reject(withGetter()),
  "throws a frozen error": () => throwing(Object.freeze(new Error("boom"))),
  "throws a revoked proxy": () => throwing(revoked()),
  "throws an error of errors that has no end": () => {
    const error = new AggregateError([], "boom");
    error.errors.push(error);
    throw error;
  },
  "gives back nothing": () => undefined,
  "gives back a plain object": () => ({ content: [] }),
  "gives back something with the shape of an answer": () => {
    const value = { content: [] };
    return { kind: "result", size: 14, json: '{"content":[]}', value, isError: false };
  },
  "gives back a copy of an answer": async (given, next) => ({ ...(await next(given)) }),
  "gives back what inherits from an answer": async (given, next) =>
    fake(Object.create(await next(given))),
  "gives back an answer in a proxy": async (given, next) => new Proxy(await next(given), {}),
  "gives back a revoked proxy": () => revoked(),
  // oxlint-disable-next-line unicorn/no-thenable -- that is the mistake
  "gives back a promise that throws": () => ({ then: () => throwing(withGetter()) }),
  "passes on nothing": (_, next) => next(undefined as unknown as ToolCall),
  "passes on a plain object": (_, next) => next({} as ToolCall),
  "passes on a copy of the call": (given, next) => next({ ...given }),
  "sets arguments that are none": (given, next) => next(given.with({ arguments: "[1]" })),
  "sets arguments that are no JSON": (given, next) => next(given.with({ arguments: '{"a":1' })),
  "sets arguments with a line end in a string": (given, next) =>
    next(given.with({ arguments: '{"a":"\n"}' })),
  "answers with no object": (given) => given.answer("1"),
  "answers with what JSON does not know": (given) => given.answer({ a: 1n }),
};

describe("a plugin that makes a mistake in a call", () => {
  for (const [what, run] of Object.entries(MISTAKES)) {
    it(`fails that call, and nothing else: ${what}`, async () => {
      let isWrong = true;
      const wrong = callPlugin("wrong", (...all) => {
        if (!isWrong) return all[1](all[0]);
        isWrong = false;
        return run(...all);
      });
      const s = new ScriptedServer("t");
      const { client, events, plugins, hub } = await openPluginHub([wrong], { s });
      const { error } = await callTool(client, "s__t");
      assert.equal(error?.code, -31006);
      assert.equal(error.data?.["code"], "pluginFailed");
      assert.match(error.message, /^Plugin "wrong" failed: ./);
      const { result } = await callTool(client, "s__t");
      assert.ok(result);
      assert.deepEqual(callsOf(events), [
        "started s__t",
        "failed pluginFailed",
        "started s__t",
        "answered",
      ]);
      assert.equal(logsOf(events).filter((text) => text.startsWith('plugin "wrong"')).length, 1);
      assert.deepEqual(plugins.status[0]?.broken, []);
      await hub.close();
      await turn();
    });
  }

  it("fails the call when it passes on one of another tool", async () => {
    let other: ToolCall | undefined;
    const mixing = callPlugin("mixing", (given, next, tool) => {
      if (tool.name === "open") return next((other = given));
      return next(other ?? given);
    });
    const guarding = callPlugin("guarding", (given) => given.refuse("no"), { tools: ["open"] });
    const s = new ScriptedServer("open", "t");
    const { client } = await openPluginHub([mixing, guarding], { s });
    assert.equal((await callTool(client, "s__open")).result?.["isError"], true);
    assert.equal((await callTool(client, "s__t")).error?.data?.["code"], "pluginFailed");
    assert.deepEqual(s.messagesOf("tools/call"), []);
  });

  it("is not blamed for what was thrown at it", async () => {
    const passing = callPlugin("passing", async (given, next) => next(given));
    const wrong = callPlugin("wrong", () => throwing(new Error("boom")));
    const { client, plugins } = await openPluginHub([passing, wrong], {
      s: new ScriptedServer("t"),
    });
    const { error } = await callTool(client, "s__t");
    assert.match(error?.message ?? "", /^Plugin "wrong" failed: boom$/);
    assert.deepEqual(
      plugins.status.map(({ lastError }) => lastError?.code),
      [undefined, "pluginFailed"],
    );
  });

  it("is not blamed for an answer of a server that is no JSON", async () => {
    const reading = callPlugin("reading", async (given, next) => {
      const answer = await next(given);
      return given.answer(answer.json);
    });
    const s = new ScriptedServer("t");
    s.onCall = () => '"result":{"content":[}';
    const { client, plugins } = await openPluginHub([reading], { s });
    const { error } = await callTool(client, "s__t");
    assert.equal(error?.data?.["code"], "internal");
    assert.match(error?.message ?? "", /server's answer/);
    assert.equal(plugins.status[0]?.lastError, undefined);
  });

  it("fails the calls of tools that it cannot wrap, until it can", async () => {
    let isWrong = true;
    const wrong = pluginOf("wrong", {
      call(next) {
        if (isWrong) throw new Error("boom");
        return (given) => next(given).then((answer) => answer);
      },
    });
    const { client } = await openPluginHub([wrong], { s: new ScriptedServer("t") });
    assert.equal((await callTool(client, "s__t")).error?.data?.["code"], "pluginFailed");
    isWrong = false;
    assert.ok((await callTool(client, "s__t")).result);
  });

  it("fails the calls of tools that it wraps in something else than a function", async () => {
    for (const make of [() => Promise.reject(new Error("boom")), () => ({}), () => "text"]) {
      const wrong = pluginOf("wrong", { call: () => make() as unknown as Next });
      const { client } = await openPluginHub([wrong], { s: new ScriptedServer("t") });
      const { error } = await callTool(client, "s__t");
      assert.match(error?.message ?? "", /call\(\) did not return a function/);
    }
  });

  it("loses nothing that it has dropped", async () => {
    const dropping = callPlugin("dropping", (given, next) => {
      void next(given);
      void next(given.with({ signal: AbortSignal.abort() }));
      return given.answer({});
    });
    const wrong = callPlugin("wrong", () => throwing(new Error("boom")));
    const broken = callPlugin("broken", () => throwing(new Error("boom")));
    for (const inner of [wrong, broken]) {
      const { client } = await openPluginHub([dropping, inner], { s: new ScriptedServer("t") });
      for (let i = 0; i < MAX_FAILURES + 2; i++) {
        assert.deepEqual((await callTool(client, "s__t")).result, {});
      }
    }
  });
});

describe("a plugin that keeps failing", () => {
  const wrong = { is: true };
  const failing: CallHandler = (given, next) =>
    wrong.is ? throwing(new Error("boom")) : next(given);

  it("is left alone for a while, in which what it is for is refused; then it is tried again", async () => {
    wrong.is = true;
    let calls = 0;
    const counting = callPlugin("p", (...all) => {
      calls++;
      return failing(...all);
    });
    const s = new ScriptedServer("t");
    const { client, clock, plugins, events } = await openWithClock([counting], { s });
    for (let i = 0; i < MAX_FAILURES; i++) await callTool(client, "s__t");
    assert.deepEqual(plugins.status[0]?.broken, ["call"]);
    const reported = logsOf(events).filter((text) => text.includes("in a row"));
    assert.deepEqual(reported, [
      'plugin "p": failed 5 times in a row: for 30 s the calls that it is for are refused',
    ]);
    wrong.is = false;
    const { error } = await callTool(client, "s__t");
    assert.match(error?.message ?? "", /boom\. It failed 5 times in a row and /);
    assert.equal(calls, MAX_FAILURES);
    await clock.advanceAsync(OPEN_TIME - 1);
    assert.ok((await callTool(client, "s__t")).error);
    await clock.advanceAsync(1);
    assert.ok((await callTool(client, "s__t")).result);
    assert.equal(calls, MAX_FAILURES + 1);
    assert.deepEqual(plugins.status[0]?.broken, []);
    assert.deepEqual(s.messagesOf("tools/call").length, 1);
  });

  it("is broken again by one more failure after that, and whole again by one success", async () => {
    wrong.is = true;
    const { client, clock, plugins } = await openWithClock([callPlugin("p", failing)], {
      s: new ScriptedServer("t"),
    });
    for (let i = 0; i < MAX_FAILURES; i++) await callTool(client, "s__t");
    await clock.advanceAsync(OPEN_TIME);
    assert.deepEqual(plugins.status[0]?.broken, []);
    await callTool(client, "s__t");
    assert.deepEqual(plugins.status[0]?.broken, ["call"]);
    await clock.advanceAsync(OPEN_TIME);
    wrong.is = false;
    await callTool(client, "s__t");
    wrong.is = true;
    for (let i = 1; i < MAX_FAILURES; i++) await callTool(client, "s__t");
    assert.deepEqual(plugins.status[0]?.broken, []);
    await callTool(client, "s__t");
    assert.deepEqual(plugins.status[0]?.broken, ["call"]);
  });

  it("is passed by if it says so, also by calls of tools that it cannot wrap", async () => {
    const optional = pluginOf(
      "optional",
      { call: () => throwing(new Error("boom")) },
      { whenBroken: "pass" },
    );
    const { client } = await openWithClock([optional], { s: new ScriptedServer("t") });
    for (let i = 0; i < MAX_FAILURES; i++) assert.ok((await callTool(client, "s__t")).error);
    assert.ok((await callTool(client, "s__t")).result);
  });

  it("costs no tools but those that it is for", async () => {
    wrong.is = true;
    const { client } = await openWithClock([callPlugin("p", failing, { tools: ["t"] })], {
      s: new ScriptedServer("t", "u"),
    });
    for (let i = 0; i < MAX_FAILURES + 1; i++) await callTool(client, "s__t");
    assert.ok((await callTool(client, "s__u")).result);
  });

  it("is left alone when it held calls beyond their deadlines", async () => {
    const holding = callPlugin("holding", () => new Promise(() => {}));
    const { client, clock, plugins } = await openWithClock([holding], {
      s: new ScriptedServer("t"),
    });
    for (let i = 0; i < MAX_FAILURES; i++) client.send(callRequest(i, "s__t"));
    await clock.advanceAsync(60_000);
    assert.deepEqual(plugins.status[0]?.broken, ["call"]);
    assert.ok((await callTool(client, "s__t")).error);
  });
});

describe("an event listener of a plugin", () => {
  const tick = ({ client }: { readonly client: Peer }): Promise<Json> => callTool(client, "s__t");

  for (const [what, fail] of Object.entries({
    throws: () => throwing(withGetter()),
    rejects: () => Promise.reject(withGetter()),
  })) {
    it(`that ${what} is logged once, and left alone for a while after ${MAX_FAILURES} times in a row`, async () => {
      let received = 0;
      const wrong = pluginOf("wrong", {
        events: ["callFinished"],
        event() {
          received++;
          return fail();
        },
      });
      const setup = await openWithClock([wrong], { s: new ScriptedServer("t") });
      for (let i = 0; i < MAX_FAILURES + 3; i++) {
        assert.ok((await tick(setup)).result);
        await turn();
      }
      assert.equal(received, MAX_FAILURES);
      assert.deepEqual(setup.plugins.status[0]?.broken, ["event"]);
      const reported = logsOf(setup.events).filter((text) => text.startsWith('plugin "wrong"'));
      assert.equal(reported.length, 2);
      await setup.clock.advanceAsync(OPEN_TIME);
      await tick(setup);
      assert.equal(received, MAX_FAILURES + 1);
    });
  }

  it("that fails now and then is not left alone, if it rejects or throws", async () => {
    for (const fail of [() => Promise.reject(new Error("x")), () => throwing(new Error("x"))]) {
      let received = 0;
      const wrong = pluginOf("wrong", {
        events: ["callFinished"],
        event: () => (received++ % 2 === 0 ? fail() : Promise.resolve()),
      });
      const setup = await openWithClock([wrong], { s: new ScriptedServer("t") });
      for (let i = 0; i < 3 * MAX_FAILURES; i++) {
        await tick(setup);
        await turn();
      }
      assert.equal(received, 3 * MAX_FAILURES);
    }
  });

  it("may log what it hears: neither it nor others hear that", async () => {
    const received: string[] = [];
    const echoing = (name: string) =>
      pluginWithHost(name, (host) => ({
        events: ["log"],
        event(event) {
          if (event.kind !== "log") return;
          received.push(event.text);
          host.log("info", `heard ${event.text}`);
        },
      }));
    const s = new ScriptedServer("t");
    const { client } = await openPluginHub([echoing("a"), echoing("b")], { s });
    const params = { level: "info", data: "hello" };
    s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    await turn();
    await callTool(client, "s__t");
    assert.deepEqual(received, ["hello", "hello"]);
  });

  it("gets only the kinds that it names, and all if it names none", async () => {
    const received: string[][] = [[], []];
    const some = pluginOf("some", {
      events: ["callStarted"],
      event: ({ kind }) => void received[0]?.push(kind),
    });
    const all = pluginOf("all", { event: ({ kind }) => void received[1]?.push(kind) });
    const setup = await openPluginHub([some, all], { s: new ScriptedServer("t") });
    await tick(setup);
    assert.deepEqual(received[0], ["callStarted"]);
    assert.ok(received[1]?.includes("state") && received[1].includes("callFinished"));
  });

  it("may subscribe while it is told something, and again and again", async () => {
    let received = 0;
    const greedy = pluginWithHost("greedy", (host) => {
      const listen = (): void => {
        received++;
        host.subscribe(listen, ["callFinished"]);
      };
      return { events: ["callFinished"], event: listen };
    });
    const setup = await openPluginHub([greedy], { s: new ScriptedServer("t") });
    assert.ok((await tick(setup)).result);
    assert.ok(received >= 1 && received <= 2000, `${received}`);
    assert.ok((await tick(setup)).result);
  });

  it("hears nothing any more once its subscription is undone, twice or not", async () => {
    const received: string[] = [];
    let undo = (): void => {};
    const quiet = pluginWithHost("quiet", (host) => {
      undo = host.subscribe(({ kind }) => received.push(kind), ["callStarted"]);
      return {};
    });
    const setup = await openPluginHub([quiet], { s: new ScriptedServer("t") });
    await tick(setup);
    undo();
    undo();
    await tick(setup);
    assert.deepEqual(received, ["callStarted"]);
  });
});

describe("a plugin's mistakes", () => {
  it("are told in one line that is not too long, and at most a hundred of them", async () => {
    let count = 0;
    const wrong = callPlugin("wrong", () =>
      throwing(new Error(`a\nb ${count++} ${"x".repeat(9999)}`)),
    );
    const { client, events, clock } = await openWithClock([wrong], { s: new ScriptedServer("t") });
    for (let i = 0; i < 120; i++) {
      await callTool(client, "s__t");
      await clock.advanceAsync(OPEN_TIME);
    }
    const reported = logsOf(events).filter((text) => text.includes("failed: a b"));
    assert.equal(reported.length, 100);
    assert.ok(reported.every((text) => text.length < 600));
  });

  it("do not keep clients from their lists, nor a hub from its end", async () => {
    const wrong = pluginOf("wrong", {
      call: () => throwing(withGetter()),
      event: () => throwing(withGetter()),
      dispose: () => throwing(withGetter()),
    });
    const { client, hub } = await openPluginHub([wrong], { s: new ScriptedServer("t") });
    await callTool(client, "s__t");
    assert.deepEqual(await listToolNames(client), ["s__t"]);
    await hub.close();
  });

  it("answer each of many calls once", async () => {
    const late = new Latch();
    const wrong = callPlugin("wrong", async () => {
      await late.wait();
      throw new Error("boom");
    });
    const { client } = await openPluginHub([wrong], { s: new ScriptedServer("t") });
    for (let i = 0; i < 50; i++) client.send(callRequest(i, "s__t"));
    await turn();
    late.open();
    const last: Json = await client.find(isResponseTo(49));
    assert.ok(last.error);
    for (let i = 0; i < 50; i++) assert.equal(responsesTo(client, i).length, 1);
  });
});
