import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { describe } from "node:test";
import { run } from "../harness/command.ts";
import { it } from "../harness/hub.ts";
import { toToml } from "../harness/manifest.ts";
import {
  callPid,
  waitForListChanged,
  controlled,
  listToolNames,
  type ControlledServers,
  waitForStderr,
  withControlledServers,
} from "../harness/controlled-servers.ts";

/** A manifest of governed servers as text, with more tables behind them. */
function text(
  { dir }: ControlledServers,
  names: readonly string[],
  more = "",
  settings: Readonly<Record<string, unknown>> = {},
): string {
  const servers = Object.fromEntries(
    names.map((name) => [name, controlled({ env: { GOVERNED: join(dir, name) }, ...settings })]),
  );
  return `${toToml({ servers })}\n${more}`;
}

function owners(names: readonly string[]): string[] {
  return [...new Set(names.map((name) => name.slice(0, name.indexOf("__"))))];
}

/**
 * Tables with an unknown key, a bad value, the prefix of an earlier server, a form that there is not, and a plugin that
 * there is not.
 */
const WRONG = [
  "comand = 'x'",
  "command = 'x'\ncallTimeout = 'soon'",
  "command = 'x'\nprefix = 'good'",
  "command = 'x'\nargs = ['${HOME}']",
  "plugin = 'nobody'",
];

describe("a server whose table in the manifest is wrong", () => {
  it("costs only itself, whatever is wrong", () =>
    withControlledServers("", async (harness) => {
      const tables = WRONG.map((table, at) => `[servers.bad${at}]\n${table}\n`);
      harness.editManifest(text(harness, ["good"], tables.join("")));
      await harness.serve(async (client) => {
        const names = (await client.initializeAndList()).map(({ name }) => name);
        assert.deepEqual(owners(names), ["good"]);
        await callPid(client, "good");
      });
    }));

  it("keeps running as it was on a reload, while the rest is applied", () =>
    withControlledServers("", async (harness) => {
      harness.editManifest(text(harness, ["a", "b"]));
      await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "b");
        harness.editManifest(text(harness, ["a", "c"], "[servers.b]\ncomand = 'x'"));
        await waitForListChanged(client, 1);
        assert.deepEqual(owners(await listToolNames(client)).toSorted(), ["a", "b", "c"]);
        assert.equal(await callPid(client, "b"), pid);
        assert.equal(harness.startEvents("b").length, 1);
      });
    }));

  it("is on a reload the one that does not run yet if two have the same prefix", () =>
    withControlledServers("", async (harness) => {
      harness.editManifest(text(harness, ["b"]));
      await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "b");
        harness.editManifest(text(harness, ["a"], text(harness, ["b"]), { prefix: "b" }));
        await waitForStderr(client, /servers\.a\.prefix/);
        assert.equal(await callPid(client, "b"), pid);
        assert.deepEqual(harness.startEvents("a"), []);
      });
    }));

  it("is told in the instructions if there is no other, and an edit cures that", () =>
    withControlledServers("[servers.bad]\ncomand = 'x'", async (harness) => {
      await harness.serve(async (client) => {
        assert.deepEqual(await client.initializeAndList(), []);
        const greetings = client.filter(({ result }) => result?.instructions !== undefined);
        const said = greetings.map(({ text: line }) => line).join("\n");
        assert.ok(said.includes("bad") && said.includes(` ${basename(harness.config)}:2:1`), said);
        harness.editManifest(text(harness, ["bad"]));
        await waitForListChanged(client, 1);
        await callPid(client, "bad");
      });
    }));

  it("makes list, call and status exit with 3 and check with 2 if there is no other", () =>
    withControlledServers("[servers.bad]\ncomand = 'x'", async (harness) => {
      const codes = [];
      for (const args of [["list"], ["call", "bad__x"], ["call", "x"], ["status"], ["check"]]) {
        codes.push((await run(harness, ...args)).code);
      }
      assert.deepEqual(codes, [3, 3, 3, 3, 2]);
    }));

  it("makes status exit with 1 and check with 2 beside one that is right", () =>
    withControlledServers("", async (harness) => {
      harness.editManifest(text(harness, ["good"], "[servers.bad]\ncomand = 'x'"));
      const codes = [];
      for (const args of [["list"], ["status"], ["check"], ["doctor"]]) {
        codes.push((await run(harness, ...args)).code);
      }
      assert.deepEqual(codes, [0, 1, 2, 2]);
    }));
});
