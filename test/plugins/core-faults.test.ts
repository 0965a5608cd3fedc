import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Answer, Next, ToolCall } from "../../src/plugin/plugin.ts";
import { MAX_FAILURES, OPEN_TIME } from "../../src/plugin/instance.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  type Json,
  listToolNames,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import {
  callPlugin,
  callsOf,
  type CallHandler,
  logsOf,
  openPluginHub,
  openWithClock,
  pluginOf,
  pluginWithHost,
  serverOf,
  throwing,
} from "./plugin-hub.ts";

const boom = (): never => throwing(new Error("boom"));

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

/** Plugin faults, each in one call. */
const MISTAKES: Readonly<Record<string, CallHandler>> = {
  "throws an error": boom,
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
      const { client, events, plugins, hub } = await openPluginHub([wrong]);
      const { error } = await callTool(client, "s__t");
      assert.equal(error?.code, -31006);
      assert.equal(error.data?.["code"], "pluginFailed");
      assert.match(error.message, /^Plugin "wrong" failed: ./);
      assert.ok((await callTool(client, "s__t")).result);
      const failed = ["started s__t", "failed pluginFailed"];
      assert.deepEqual(callsOf(events), [...failed, "started s__t", "answered"]);
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
    const { client, s } = await openPluginHub([mixing, guarding], new ScriptedServer("open", "t"));
    assert.equal((await callTool(client, "s__open")).result?.["isError"], true);
    assert.equal((await callTool(client, "s__t")).error?.data?.["code"], "pluginFailed");
    assert.deepEqual(s.messagesOf("tools/call"), []);
  });

  it("is not blamed for what was thrown at it", async () => {
    const passing = callPlugin("passing", async (given, next) => next(given));
    const { client, plugins } = await openPluginHub([passing, callPlugin("wrong", boom)]);
    const { error } = await callTool(client, "s__t");
    assert.match(error?.message ?? "", /^Plugin "wrong" failed: boom$/);
    const codes = plugins.status.map(({ lastError }) => lastError?.code);
    assert.deepEqual(codes, [undefined, "pluginFailed"]);
  });

  it("is not blamed for an answer of a server that is no JSON", async () => {
    const reading = callPlugin("reading", async (given, next) =>
      given.answer((await next(given)).json),
    );
    const script = serverOf(() => '"result":{"content":[}', "t");
    const { client, plugins } = await openPluginHub([reading], script);
    const { error } = await callTool(client, "s__t");
    assert.deepEqual(error?.data, { code: "answerInvalid", server: "s" });
    assert.equal(plugins.status[0]?.lastError, undefined);
  });

  it("fails the calls of tools that it cannot wrap, until it can", async () => {
    let isWrong = true;
    const wrong = pluginOf("wrong", {
      call: (next) => (isWrong ? boom() : (given) => next(given).then((answer) => answer)),
    });
    const { client } = await openPluginHub([wrong]);
    assert.equal((await callTool(client, "s__t")).error?.data?.["code"], "pluginFailed");
    isWrong = false;
    assert.ok((await callTool(client, "s__t")).result);
  });

  it("fails the calls of tools that it wraps in something else than a function", async () => {
    for (const make of [() => Promise.reject(new Error("boom")), () => ({}), () => "text"]) {
      const wrong = pluginOf("wrong", { call: () => make() as unknown as Next });
      const { client } = await openPluginHub([wrong]);
      const { error } = await callTool(client, "s__t");
      assert.match(error?.message ?? "", /call\(\) did not return a function/);
    }
  });

  it("loses nothing that it has dropped, also when what is further in is broken", async () => {
    const dropping = callPlugin("dropping", (given, next) => {
      void next(given);
      void next(given.with({ signal: AbortSignal.abort() }));
      return given.answer({});
    });
    const { client } = await openPluginHub([dropping, callPlugin("wrong", boom)]);
    for (let i = 0; i < MAX_FAILURES + 2; i++) {
      assert.deepEqual((await callTool(client, "s__t")).result, {});
    }
  });
});

describe("a plugin that keeps failing", () => {
  let isWrong = true;
  const failing: CallHandler = (given, next) => (isWrong ? boom() : next(given));
  const callOften = async (client: Peer, count = MAX_FAILURES): Promise<void> => {
    for (let i = 0; i < count; i++) await callTool(client, "s__t");
  };

  it("is left alone for a while, in which what it is for is refused; then it is tried again", async () => {
    isWrong = true;
    let calls = 0;
    const counting = callPlugin("p", (...all) => {
      calls++;
      return failing(...all);
    });
    const { client, clock, plugins, events, s } = await openWithClock([counting]);
    await callOften(client);
    assert.deepEqual(plugins.status[0]?.broken, ["call"]);
    const reported = logsOf(events).filter((text) => text.includes("in a row"));
    assert.deepEqual(reported, [
      'plugin "p": failed 5 times in a row: for 30 s calls of its tools are refused',
    ]);
    isWrong = false;
    const { error } = await callTool(client, "s__t");
    assert.match(error?.message ?? "", /boom\. It failed 5 times in a row and /);
    assert.equal(calls, MAX_FAILURES);
    await clock.advanceAsync(OPEN_TIME - 1);
    assert.ok((await callTool(client, "s__t")).error);
    await clock.advanceAsync(1);
    assert.ok((await callTool(client, "s__t")).result);
    assert.equal(calls, MAX_FAILURES + 1);
    assert.deepEqual(plugins.status[0]?.broken, []);
    assert.equal(s.messagesOf("tools/call").length, 1);
  });

  it("is broken again by one more failure after that, and whole again by one success", async () => {
    isWrong = true;
    const { client, clock, plugins } = await openWithClock([callPlugin("p", failing)]);
    const broken = (): readonly string[] | undefined => plugins.status[0]?.broken;
    await callOften(client);
    await clock.advanceAsync(OPEN_TIME);
    assert.deepEqual(broken(), []);
    await callTool(client, "s__t");
    assert.deepEqual(broken(), ["call"]);
    await clock.advanceAsync(OPEN_TIME);
    isWrong = false;
    await callTool(client, "s__t");
    isWrong = true;
    await callOften(client, MAX_FAILURES - 1);
    assert.deepEqual(broken(), []);
    await callTool(client, "s__t");
    assert.deepEqual(broken(), ["call"]);
  });

  it("is passed by if it says so, also by calls of tools that it cannot wrap", async () => {
    const optional = pluginOf("optional", { call: boom }, { whenBroken: "pass" });
    const { client } = await openWithClock([optional]);
    for (let i = 0; i < MAX_FAILURES; i++) assert.ok((await callTool(client, "s__t")).error);
    assert.ok((await callTool(client, "s__t")).result);
  });

  it("costs no tools but those that it is for", async () => {
    const wrong = callPlugin("p", boom, { tools: ["t"] });
    const { client } = await openWithClock([wrong], new ScriptedServer("t", "u"));
    await callOften(client, MAX_FAILURES + 1);
    assert.ok((await callTool(client, "s__u")).result);
  });

  it("is left alone when it held calls beyond their deadlines", async () => {
    const holding = callPlugin("holding", () => new Promise(() => {}));
    const { client, clock, plugins } = await openWithClock([holding]);
    for (let i = 0; i < MAX_FAILURES; i++) client.send(callRequest(i, "s__t"));
    await clock.advanceAsync(60_000);
    assert.deepEqual(plugins.status[0]?.broken, ["call"]);
    assert.ok((await callTool(client, "s__t")).error);
  });
});

describe("an event listener of a plugin", () => {
  const tick = ({ client }: { readonly client: Peer }): Promise<Json> => callTool(client, "s__t");
  /** A hub with a plugin that does this with the end of each call, so many of which come. */
  async function listen(event: () => void | Promise<void>, count: number) {
    const plugin = pluginOf("wrong", { events: ["callFinished"], event });
    const setup = await openWithClock([plugin]);
    for (let i = 0; i < count; i++) {
      assert.ok((await tick(setup)).result);
      await turn();
    }
    return setup;
  }

  for (const [what, fail] of Object.entries({
    throws: () => throwing(withGetter()),
    rejects: () => Promise.reject(withGetter()),
  })) {
    it(`that ${what} is logged once, and left alone for a while after ${MAX_FAILURES} times in a row`, async () => {
      let received = 0;
      const setup = await listen(() => (received++, fail()), MAX_FAILURES + 3);
      assert.equal(received, MAX_FAILURES);
      assert.deepEqual(setup.plugins.status[0]?.broken, ["event"]);
      const reported = logsOf(setup.events).filter((text) => text.startsWith('plugin "wrong"'));
      assert.equal(reported.length, 2);
      await setup.clock.advanceAsync(OPEN_TIME);
      await tick(setup);
      assert.equal(received, MAX_FAILURES + 1);
    });

    it(`that ${what} now and then is not left alone`, async () => {
      let received = 0;
      await listen(() => (received++ % 2 === 0 ? fail() : undefined), 3 * MAX_FAILURES);
      assert.equal(received, 3 * MAX_FAILURES);
    });
  }

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
    const { client, s } = await openPluginHub([echoing("a"), echoing("b")]);
    const params = { level: "info", data: "hello" };
    s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    await turn();
    await callTool(client, "s__t");
    assert.deepEqual(received, ["hello", "hello"]);
  });

  it("gets only the kinds that it names, and all if it names none", async () => {
    const [named, unnamed]: [string[], string[]] = [[], []];
    const some = pluginOf("some", {
      events: ["callStarted"],
      event: ({ kind }) => void named.push(kind),
    });
    const all = pluginOf("all", { event: ({ kind }) => void unnamed.push(kind) });
    await tick(await openPluginHub([some, all]));
    assert.deepEqual(named, ["callStarted"]);
    assert.ok(unnamed.includes("state") && unnamed.includes("callFinished"));
  });

  it("may subscribe while it is told something, and again and again", async () => {
    let received = 0;
    const greedy = pluginWithHost("greedy", (host) => {
      const listener = (): void => {
        received++;
        host.subscribe(listener, ["callFinished"]);
      };
      return { events: ["callFinished"], event: listener };
    });
    const setup = await openPluginHub([greedy]);
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
    const setup = await openPluginHub([quiet]);
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
    const fail = (): never => throwing(new Error(`a\nb ${count++} ${"x".repeat(9999)}`));
    const { client, events, clock } = await openWithClock([callPlugin("wrong", fail)]);
    for (let i = 0; i < 120; i++) {
      await callTool(client, "s__t");
      await clock.advanceAsync(OPEN_TIME);
    }
    const reported = logsOf(events).filter((text) => text.includes("failed: a b"));
    assert.equal(reported.length, 100);
    assert.ok(reported.every((text) => text.length < 600));
  });

  it("do not keep clients from their lists, nor a hub from its end", async () => {
    const fail = (): never => throwing(withGetter());
    const wrong = pluginOf("wrong", { call: fail, event: fail, dispose: fail });
    const { client, hub } = await openPluginHub([wrong]);
    await callTool(client, "s__t");
    assert.deepEqual(await listToolNames(client), ["s__t"]);
    await hub.close();
  });
});
