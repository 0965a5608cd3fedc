import assert from "node:assert/strict";
import { symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { HubError } from "../../src/base/errors.ts";
import type { HubEvent } from "../../src/base/hub-events.ts";
import { describePluginFault, markHandled, positionInFile } from "../../src/plugin/errors.ts";
import type { Host, ToolCall } from "../../src/plugin/plugin.ts";
import type { PluginSet } from "../../src/plugin/plugin-set.ts";
import { setUpPlugins } from "../../src/plugin/setup.ts";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { callTool, manifestOf, recordEvents } from "../fixtures/memory-hub.ts";
import { errorCodeOf, pluginWithHost, logsOf, openPluginHub, callPlugin } from "./plugin-hub.ts";

const PLUGIN = `export default { name: "NAME", setup: () => ({}) };`;

/** Sets up plugins that are files, each in a folder of its own. */
async function withFiles(
  names: readonly string[],
  run: (set: PluginSet, events: readonly HubEvent[], paths: readonly string[]) => unknown,
  link = false,
): Promise<void> {
  await withManifestFolder(async (folder) => {
    const { bus, events } = recordEvents();
    const paths: string[] = [];
    const plugins = [];
    for (const [at, use] of names.entries()) {
      const file = await folder.write(`${use}/plugin.js`, PLUGIN.replaceAll("NAME", use));
      const linked = join(folder.root, `${use}.js`);
      if (link) await symlink(file, linked);
      paths.push(file);
      const options = { options: undefined, servers: undefined, tools: undefined };
      const origin = { file: "/nowhere/toolmux.toml", path: ["plugins", at] };
      const path = link ? linked : file;
      plugins.push({ ...options, use, path, baseDir: folder.root, origin });
    }
    const environment = { bus, env: {}, stateFolder: folder.home, clock: systemClock };
    const prepared = await setUpPlugins({ ...manifestOf({}), plugins }, environment);
    assert.ok(prepared.ok, JSON.stringify(prepared));
    await run(prepared.plugins, events, paths);
    await prepared.plugins.dispose();
  });
}

/** An error whose stack has this file. */
function thrownAt(...places: readonly string[]): Error {
  const error = new Error("boom");
  error.stack = ["Error: boom", ...places.map((place) => `    at work (${place})`)].join("\n");
  return error;
}

describe("an error that nobody caught", () => {
  it("is a plugin's if its file is in the stack, loaded anew or not", () =>
    withFiles(["one", "two"], (set, events, [, two = ""]) => {
      assert.equal(set.attributeError(thrownAt("node:timers:1:2", `${two}?v=3:4:5`)), true);
      assert.deepEqual(logsOf(events), [`plugin "two": failed: boom (${two}:4:5)`]);
      assert.equal(set.status[1]?.lastError?.code, "pluginFailed");
      assert.equal(set.status[0]?.lastError, undefined);
    }));

  it("is a plugin's if it was thrown by a file beside its own, in a folder below or not", () =>
    withFiles(["one", "two"], (set, events, [, two = ""]) => {
      const helper = two.replace("plugin.js", "lib/a b.js");
      assert.equal(set.attributeError(thrownAt(`${helper}:1:2`)), true);
      assert.equal(set.attributeError(thrownAt(`file://${encodeURI(helper)}?x=1:1:2`)), true);
      assert.ok(logsOf(events).every((text) => text.startsWith('plugin "two": failed: boom')));
    }));

  it("is a plugin's if that is a link to the file that is in the stack", () =>
    withFiles(
      ["one"],
      (set, events, [one = ""]) => {
        assert.equal(set.attributeError(thrownAt(`${one}:1:2`)), true);
        assert.deepEqual(logsOf(events), [`plugin "one": failed: boom (${one}:1:2)`]);
      },
      true,
    ));

  it("is a plugin's if it is no error at all", async () => {
    await withFiles(["one"], (set, events) => {
      assert.equal(set.attributeError("a text"), true);
      assert.deepEqual(logsOf(events), ['plugin "one": failed: a text']);
    });
    await withFiles(["one", "two"], (set, events) => {
      assert.equal(set.attributeError(Object.create(null)), true);
      const either = /this plugin or another one threw a value that is not an error: it/;
      assert.match(logsOf(events)[0] ?? "", either);
    });
  });

  it("is not a plugin's if it is from anywhere else", async () => {
    await withFiles(["one"], (set, events) => {
      for (const error of [
        new Error("ours"),
        new HubError("internal", "ours"),
        thrownAt("/elsewhere/plugin.js:1:2"),
        thrownAt("/elsewhere/a.js:1:2", "/elsewhere/b.js:1:2"),
        Object.assign(new Error("x"), { stack: 7 }),
        Object.assign(new Error("x"), { stack: undefined }),
      ]) {
        assert.equal(set.attributeError(error), false);
      }
      assert.deepEqual(logsOf(events), []);
    });
    const builtIn = callPlugin("built-in", (given, next) => next(given));
    const { plugins } = await openPluginHub([builtIn], {});
    assert.equal(plugins.attributeError("a text"), false);
  });

  it("is nobody's if a plugin was given it, although its file is in the stack", () =>
    withFiles(["one"], (set, events, [one = ""]) => {
      const error = markHandled(new HubError("cancelled", "The call has ended."));
      error.stack = thrownAt(`${one}:1:2`).stack ?? "";
      assert.equal(set.attributeError(error), true);
      assert.deepEqual(logsOf(events), []);
    }));

  it("is nobody's if a plugin was given it and has lost interest", async () => {
    const errors: unknown[] = [];
    const note = (error: unknown): void => void errors.push(error);
    let host: Host | undefined;
    const dropping = pluginWithHost("dropping", (given) => {
      host = given;
      return {
        call: (next) => async (call: ToolCall) => {
          await next(call).catch(note);
          await next(call.with({ signal: AbortSignal.abort() })).catch(note);
          return call.answer({});
        },
      };
    });
    const wrong = callPlugin("wrong", (given, next) => {
      if (given.argumentsJson === "{}") throw new Error("boom");
      return next(given);
    });
    const { client, plugins, hub, s } = await openPluginHub([dropping, wrong]);
    await callTool(client, "s__t");
    s.onCall = () => (s.disconnect(), undefined);
    await callTool(client, "s__t", { a: 1 });
    await hub.close();
    await host?.call("s__t").catch(note);
    const failed = ["pluginFailed", "pluginFailed", "connectionLost", "cancelled", "cancelled"];
    assert.deepEqual(errors.map(errorCodeOf), failed);
    for (const error of errors) assert.equal(plugins.attributeError(error), true);
    const other = new HubError("connectionLost", "not given to anybody");
    assert.equal(plugins.attributeError(other), false);
  });
});

describe("what was thrown", () => {
  it("is told in one line, whatever it was", () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const strange = "it threw something that cannot be described";
    const reported: readonly [unknown, string][] = [
      [new Error("a\n b"), "a b"],
      [new RangeError(""), "RangeError"],
      ["text", "text"],
      [undefined, "undefined"],
      [Symbol("s"), "Symbol(s)"],
      [Object.create(null), strange],
      [proxy, strange],
    ];
    for (const [thrown, message] of reported) {
      assert.deepEqual(describePluginFault(thrown, "/p.js"), { message, position: undefined });
    }
  });

  it("has the place that the first of several errors has, or its own", () => {
    const path = "/a folder/p.js";
    const inner = thrownAt(`file:///a%20folder/p.js:7:8`);
    const outer = thrownAt(`${path}:1:2`);
    assert.equal(positionInFile(Object.assign(outer, { errors: [inner] }), path), `${path}:7:8`);
    assert.equal(positionInFile(Object.assign(outer, { errors: [{}] }), path), `${path}:1:2`);
    assert.equal(positionInFile(Object.assign(outer, { errors: 3 }), path), `${path}:1:2`);
    const position = { line: 3, column: 4 };
    assert.equal(positionInFile({ position }, path), `${path}:3:4`);
    assert.equal(positionInFile(new Error("x"), path), undefined);
  });
});
