import assert from "node:assert/strict";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { Host } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { callTool, ScriptedServer, connectionStatusOf } from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";
import {
  answerTo,
  callPlugin,
  CANCELLED,
  errorCodeOf,
  exact,
  messageTo,
  openPluginHub,
  openWithClock,
  pluginOf,
  pluginWithHost,
  requestTextsTo,
  RESULT,
  silent,
} from "./plugin-hub.ts";

/** A plugin that only exposes its host. */
function keep(name = "keeper"): { readonly keeper: PluginUse; readonly hosts: readonly Host[] } {
  const hosts: Host[] = [];
  const keeper = pluginWithHost(name, (given) => {
    hosts.push(given);
    return {};
  });
  return { keeper, hosts };
}

/** A hub with such a plugin in front of these. */
async function open(
  script?: ScriptedServer,
  others: readonly PluginUse[] = [],
  settings: Parameters<typeof openPluginHub>[2] = {},
) {
  const { keeper, hosts } = keep();
  const setup = await openPluginHub([keeper, ...others], script, settings);
  return { ...setup, host: hosts[0] ?? assert.fail("it was not set up") };
}

async function codeFrom(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => assert.fail("it did not fail"),
    (error: unknown) => errorCodeOf(error),
  );
}

const hiding = pluginOf("hiding", { list: (items) => items.filter(({ name }) => name !== "b") });

describe("the host of a plugin", () => {
  it("lists what clients see", async () => {
    const { host } = await open(new ScriptedServer("a", "b"), [hiding]);
    const tools = await host.list();
    assert.equal(tools.map(({ name }) => name).join(), "s__a");
    assert.throws(() => Object.assign(tools[0] ?? {}, { name: "x" }), TypeError);
  });

  it("calls a tool by the name that clients see, and gives the exact answer", async () => {
    const { host, s } = await open(exact("t"));
    const answer = await host.call("s__t", '{"x":1.0,\n"y":[]}');
    assert.equal(answer.json, RESULT);
    assert.deepEqual([answer.kind, answer.isError, answer.size], ["result", false, RESULT.length]);
    assert.ok(requestTextsTo(s)[0]?.includes('"arguments":{"x":1.0, "y":[]}'));
    await host.call("s__t", { z: 1 });
    await host.call("s__t");
    const sent = s.messagesOf("tools/call").map(({ params }) => params?.["arguments"]);
    assert.deepEqual(sent, [{ x: 1, y: [] }, { z: 1 }, {}]);
  });

  it("gives errors of servers as answers, and what there is no answer for as errors with a code", async () => {
    const { hub, host, s } = await open(exact("t", "u"));
    s.onCall = () => '"error":{"code":-5,"message":"no"}';
    const answer = await host.call("s__t");
    assert.deepEqual([answer.kind, answer.isError], ["error", true]);
    assert.deepEqual(answer.value, { code: -5, message: "no" });
    assert.equal((await host.call("s__nothing")).isError, true);
    await hub.close();
    assert.equal(await codeFrom(host.call("s__t")), "cancelled");
    assert.equal(await codeFrom(host.list()), "cancelled");
  });

  it("refuses arguments that are no object", async () => {
    const { host, s } = await open();
    for (const args of ["1", "[1]", '{"a":', '{"a":"\n"}']) {
      await assert.rejects(host.call("s__t", args), TypeError);
    }
    assert.deepEqual(requestTextsTo(s), []);
  });

  it("knows of no hub in setup", async () => {
    const codes: Promise<unknown>[] = [];
    const early = pluginWithHost("early", (host) => {
      codes.push(codeFrom(host.call("s__t")), codeFrom(host.list()));
      assert.equal(host.nameOf("s", "t"), undefined);
      // Ignored promises must not cause unhandled rejections.
      void host.call("s__t");
      void host.list();
      return {};
    });
    await openPluginHub([early]);
    assert.deepEqual(await Promise.all(codes), ["usage", "usage"]);
  });

  it("takes calls through all plugins but its own", async () => {
    const path: string[] = [];
    let host: Host | undefined;
    const b = pluginWithHost("b", (given) => {
      host = given;
      return { call: (next) => (passed) => (path.push("b"), next(passed)) };
    });
    const telling = (name: string) =>
      callPlugin(name, (given, next) => {
        path.push(`${name} ${given.client.id}`);
        return next(given);
      });
    const { client } = await openPluginHub([telling("a"), b, telling("c")]);
    await host?.call("s__t");
    assert.deepEqual(path.splice(0), ["a plugin-b-2", "c plugin-b-2"]);
    await callTool(client, "s__t");
    assert.deepEqual(path, ["a client-1", "b", "c client-1"]);
  });

  it("is another client than any other plugin, also one of the same name", async () => {
    const ids: string[] = [];
    const watching = callPlugin("watching", (given, next) => {
      ids.push(given.client.id);
      return next(given);
    });
    const { keeper, hosts } = keep("twin");
    await openPluginHub([watching, keeper, keeper]);
    for (const at of [0, 1, 0]) await hosts[at]?.call("s__t");
    const [first, second, third] = ids;
    assert.ok(first !== undefined && first === third && first !== second);
  });

  it("cancels a call with the signal that was given, and its server is told", async () => {
    const { hub, host, s } = await open(silent("t"));
    const stop = new AbortController();
    const reason = new Error("enough");
    const failed = assert.rejects(host.call("s__t", {}, stop.signal), reason);
    await messageTo(s);
    stop.abort(reason);
    await failed;
    await messageTo(s, CANCELLED);
    assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
    assert.equal(s.messagesOf(CANCELLED).length, 1);
    await assert.rejects(host.call("s__t", {}, AbortSignal.abort(reason)), reason);
    await assert.rejects(host.list(AbortSignal.abort(reason)), reason);
  });

  it("has calls of its own at their deadlines answered as those of clients", async () => {
    const { keeper, hosts } = keep();
    const { clock } = await openWithClock([keeper], silent("t"));
    const answered = hosts[0]?.call("s__t");
    await turn();
    await clock.advanceAsync(60_000);
    assert.equal((await answered)?.isError, true);
  });

  it("takes no harm from calls that nobody looks at", async () => {
    const { hub, host, s } = await open(silent("t"));
    void host.call("s__t");
    void host.call("s__t", "nonsense");
    void host.list(AbortSignal.abort(new Error("x")));
    await messageTo(s);
    await hub.close();
    void host.call("s__t");
    void host.list();
    await turn();
  });

  it("has calls that two plugins make of each other without end come to one", async () => {
    let calls = 0;
    const bouncing = (name: string) =>
      pluginWithHost(name, (host) => ({ call: () => () => (calls++, host.call("s__t")) }));
    const { client, hub } = await openPluginHub([bouncing("a"), bouncing("b")]);
    const { error, result } = await callTool(client, "s__t");
    assert.ok(JSON.stringify(error ?? result).includes("which is the limit"));
    assert.ok(calls <= 2001, `${calls}`);
    await turn();
    assert.deepEqual(hub.snapshot().calls, []);
    assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
  });

  it("has calls beyond a limit refused, until others have ended", async () => {
    const { host, s } = await open(silent("t"));
    const stop = new AbortController();
    const running = Array.from({ length: 1000 }, () =>
      codeFrom(host.call("s__t", {}, stop.signal)),
    );
    assert.equal(await codeFrom(host.call("s__t")), "usage");
    stop.abort(new Error("enough"));
    await Promise.all(running);
    s.onCall = () => `"result":${RESULT}`;
    assert.equal((await host.call("s__t")).json, RESULT);
  });

  it("knows what clients call a tool, as long as they see it", async () => {
    const tools = { allow: undefined, deny: [], rename: { a: "z" }, timeout: {} };
    const settings = { servers: { s: { tools } } };
    const { hub, host } = await open(new ScriptedServer("a", "b"), [hiding], settings);
    const names = () => [host.nameOf("s", "a"), host.nameOf("s", "b"), host.nameOf("nobody", "a")];
    assert.deepEqual(names(), ["s__z", undefined, undefined]);
    hub.remove("s");
    assert.equal(host.nameOf("s", "a"), undefined);
  });

  it("has a folder for it that nobody else can read, and paths relative to the manifest", async () => {
    const stateFolder = await mkdtemp(join(tmpdir(), "toolmux-"));
    try {
      const { keeper, hosts } = keep("with-folder");
      await setUpPluginHub([keeper], { s: new ScriptedServer("t") }, { stateFolder });
      const [host = assert.fail()] = hosts;
      const [folder, again] = await Promise.all([host.folder(), host.folder()]);
      assert.equal(folder, join(stateFolder, "plugins", "with-folder"));
      assert.equal(again, folder);
      assert.equal((await stat(folder)).mode & 0o777, 0o700);
      assert.equal(host.resolve("x/../y"), "/nowhere/y");
      assert.equal(host.resolve("/abs"), "/abs");
    } finally {
      await rm(stateFolder, { recursive: true });
    }
  });

  it("aborts its signal at the end, and gives it no events any more", async () => {
    const received: string[] = [];
    const { hub, client, host } = await open();
    host.subscribe(({ kind }) => received.push(kind), ["callStarted"]);
    await callTool(client, "s__t");
    assert.equal(host.signal.aborted, false);
    await hub.close();
    assert.equal(host.signal.aborted, true);
    host.subscribe(({ kind }) => received.push(kind));
    hub.reportRejectedManifest("nothing");
    assert.deepEqual(received, ["callStarted"]);
  });

  it("lets a plugin call in the middle of a call, and answer with what came of that", async () => {
    const asking = pluginWithHost("asking", (host) => ({
      call: (next, { name }) => (name === "t" ? () => host.call("s__u", '{"n":1.0}') : next),
    }));
    const { client, s } = await openPluginHub([asking], exact("t", "u"));
    await answerTo(client, "x");
    assert.ok(client.received.at(-1)?.includes(RESULT));
    const names = s.messagesOf("tools/call").map(({ params }) => params?.["name"]);
    assert.deepEqual(names, ["u"]);
  });
});
