import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { DashboardPage } from "../contract/dashboard.ts";
import { runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import { executable, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { waitUntil } from "../harness/wait.ts";

/** For a demo that goes wrong on the way, in ms. */
const LONG = 20_000;

describe("the demo", () => {
  it("shows every step with its time, ends with the entry for a client, and leaves nothing", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      // What the user has is no part of it: a server more would be a tool too many.
      const env = { ...setup.env, TOOLMUX_SERVERS: JSON.stringify({ mine: scripted() }) };
      const demo = new RawClient(executable(), ["demo"], setup.dir, env);
      const { code } = await demo.waitForExit(LONG);
      const text = demo.lines.map((line) => line.text).join("\n");
      assert.equal(code, 0, text + demo.stderr);
      assert.equal(demo.stderr, "");
      assert.ok(!text.includes("\u001b"), "no colours where there is no terminal");
      const times = text.match(/^ {2}\S.* \d+(?:\.\d)? m?s {2}\S/gm) ?? [];
      assert.ok(times.length >= 8, text);
      for (const word of ["progress", "cancel", "at once", "broken"])
        assert.ok(text.includes(word));
      const entry = JSON.parse(text.slice(text.indexOf("\n{"))) as {
        mcpServers: { toolmux: { command: string; args: string[] } };
      };
      assert.equal(entry.mcpServers.toolmux.command, executable());
      assert.equal(entry.mcpServers.toolmux.args[0], "serve");
      assert.deepEqual(readdirSync(join(setup.dir, "tmp")), []);
    }));

  it("of agents shows two tools, an approval and a transfer, and leaves nothing", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const demo = new RawClient(executable(), ["demo", "agents"], setup.dir, setup.env);
      demo.end();
      const { code } = await demo.waitForExit(LONG);
      const text = demo.lines.map((line) => line.text).join("\n");
      assert.equal(code, 0, text + demo.stderr);
      for (const word of ["clock__now", "slow__count", "writer: text__upper", "transfer_task"])
        assert.match(demo.stderr, new RegExp(`✓ ${word} .* m?s, \\d+ B`));
      assert.match(demo.stderr, /Allow it\? .* y\n/);
      assert.match(text, /Done\. The writer wrote: COUNTED TO THREE\./);
      assert.deepEqual(readdirSync(join(setup.dir, "tmp")), []);
    }));

  it("ends with 1, and without the entry, if anything is not as it should be", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      // With so few file descriptors the hub cannot start all of its servers.
      const script = 'ulimit -n 18; exec "$0" demo';
      const demo = new RawClient("sh", ["-c", script, executable()], setup.dir, setup.env);
      const { code } = await demo.waitForExit(LONG);
      const text = demo.lines.map((line) => line.text).join("\n");
      assert.equal(code, 1, text);
      assert.match(text, /FAILED: /);
      assert.ok(!text.includes("mcpServers"));
      assert.deepEqual(readdirSync(join(setup.dir, "tmp")), []);
    }));

  it("shows a hub in the dashboard, with a call that runs and can be cancelled there", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const demo = new RawClient(executable(), ["demo", "--dashboard"], setup.dir, setup.env);
      const find = (): string | undefined =>
        demo.lines.map(({ text }) => /http:\S+:(\d+)/.exec(text)?.[1]).find(Boolean);
      const port = await demo.until(LONG, "the address", find);
      const { stdout } = await runCommand(setup, ["dashboard", "--port", port, "--json"]);
      const page = await DashboardPage.open((JSON.parse(stdout) as { url: string }).url);
      const hubs = await page.hubs();
      assert.equal(hubs.length, 1);
      // A demo writes no file of another program, and starts no hub of the user.
      const api = `hubs/${hubs[0]?.id}/v1`;
      const { demo: isDemo } = (await (await page.ask(`${api}/hub`)).json()) as { demo?: true };
      assert.equal(isDemo, true);
      for (const verb of ["install", "undo"]) {
        const init = { method: "POST", body: "{}" };
        const refused = await page.ask(`${api}/client-apps/cursor/${verb}`, init);
        assert.equal(refused.status, 409);
      }
      assert.equal((await page.ask("hubs", { method: "POST" })).status, 400);
      const path = `hubs/${hubs[0]?.id}/v1/calls`;
      const findCall = async (): Promise<number | undefined> => {
        const { calls } = (await (await page.ask(path)).json()) as {
          calls: readonly { readonly call: number; readonly name: string }[];
        };
        return calls.find(({ name }) => name === "slow__count")?.call;
      };
      const call = await waitUntil("the slow call", findCall);
      const cancelled = await page.ask(`${path}/${call}/cancel`, { method: "POST" });
      assert.equal(cancelled.status, 204);
      // A call that needs an approval waits only while somebody can see it.
      const events = await page.ask(`hubs/${hubs[0]?.id}/v1/events?watch=approvals`);
      const waiting = await waitUntil("the approval", async () => {
        const response = await page.ask(`hubs/${hubs[0]?.id}/v1/approvals`);
        const { approvals } = (await response.json()) as {
          approvals: readonly { name: string }[];
        };
        return approvals[0]?.name;
      });
      assert.equal(waiting, "text__reverse");
      demo.signal("SIGINT");
      await events.body?.cancel().catch(() => {});
      assert.equal((await demo.waitForExit(LONG)).code, 130, demo.stderr);
      assert.deepEqual(readdirSync(join(setup.dir, "tmp")), []);
    }));

  it("can be interrupted, and leaves nothing then either", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const demo = new RawClient(executable(), ["demo"], setup.dir, setup.env);
      await demo.until(LONG, "the list of tools", () =>
        demo.lines.some(({ text }) => text.includes("list the tools")) ? true : undefined,
      );
      demo.signal("SIGINT");
      assert.equal((await demo.waitForExit(LONG)).code, 130);
      assert.deepEqual(readdirSync(join(setup.dir, "tmp")), []);
    }));
});
