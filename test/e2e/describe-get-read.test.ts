import assert from "node:assert/strict";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { run, runJson } from "../harness/command.ts";
import { it, type TestFolder, withHub, withTestFolder } from "../harness/hub.ts";
import { startRemote } from "../harness/remote-process.ts";

/** Has a prompt, "say", and a resource, and starts faster than the published server. */
const SMALL = fileURLToPath(new URL("../soak/everything-server.ts", import.meta.url));
const MANIFEST = { servers: { s: { command: process.execPath, args: [SMALL, "s"] } } };

/** A server whose tools t1 and t2 lack a schema, so that clients get them changed. */
const ODD = String.raw`while read -r line; do
  id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *tools/list*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"t1"},{"name":"t2"}]}}' ;;
    *) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"n","version":"1"}}}' ;;
  esac
done`;

describe("describe, get and read", () => {
  it("warn of the item that they were asked for, and of no other", () =>
    withTestFolder(
      { servers: { odd: { command: "/bin/sh", args: ["-c", ODD] } } },
      async (setup) => {
        const { code, stderr } = await run(setup, "describe", "odd__t1");
        assert.equal(code, 0);
        assert.match(stderr, /"t1"/);
        assert.doesNotMatch(stderr, /"t2"/);
      },
    ));

  it("show what a published server has: a tool and a call that it accepts, the messages of a prompt, a resource that fits a template", async () => {
    // It starts slowly, and over HTTP is started once for all commands.
    const remote = await startRemote("http");
    const check = async (setup: TestFolder): Promise<void> => {
      const described = await run(setup, "describe", "e__get-sum");
      assert.equal(described.code, 0);
      assert.match(described.stdout, /^ {2}a +.*required/m);
      const [, example = ""] = /^ {2}toolmux (call .*)$/m.exec(described.stdout) ?? [];
      assert.match(example, /^call e__get-sum /);
      assert.equal((await run(setup, ...example.split(" "))).code, 0);
      const got = await run(setup, "get", "e__args-prompt", "city=Berlin");
      assert.equal(got.code, 0);
      assert.match(got.stdout, /^user:\n[^]*Berlin/);
      const missing = await run(setup, "get", "e__args-prompt");
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /city=/);
      const expanded = await run(setup, "read", "demo://resource/dynamic/text/3");
      assert.equal(expanded.code, 0);
      assert.match(expanded.stdout, /Resource 3/);
      const nothing = await run(setup, "read", "demo://nothing");
      assert.deepEqual([nothing.code, nothing.stdout], [1, ""]);
      assert.match(nothing.stderr, /demo:\/\/nothing/);
    };
    try {
      await withTestFolder({ servers: { e: { url: remote.url } } }, check);
    } finally {
      await remote.stop();
    }
  });

  it("ask a hub that runs, and start a server only with --fresh", () =>
    withHub(MANIFEST, async (hub) => {
      await hub.client.initialize();
      await hub.client.request("tools/list");
      const pid = String(hub.client.pid);
      const processOf = async (...line: string[]): Promise<string> => {
        const { code, stdout, stderr } = await run(hub, ...line);
        assert.equal(code, 0, stderr);
        return /\bs (\d+)\b/.exec(stdout)?.[1] ?? assert.fail(stdout);
      };
      const own = await processOf("get", "s__say", "key=x");
      assert.equal(await processOf("get", "s__say", "key=x", "--hub", pid), own);
      assert.equal(await processOf("read", "medley://s/page"), own);
      assert.notEqual(await processOf("read", "medley://s/page", "--fresh"), own);
      const tool = await runJson<{ name: string }>(hub, "describe", "s__echo", "--hub", pid);
      assert.equal(tool.name, "s__echo");
      for (const line of [
        ["describe", "s__ech"],
        ["get", "s__sya"],
        ["read", "medley://s/pge"],
      ]) {
        const { code, stderr } = await run(hub, ...line);
        assert.equal(code, 2);
        assert.match(stderr, /There is no .*"(?:s__echo|s__say|medley:\/\/s\/page)"/);
      }
    }));

  it("print it as clients get it if that is wanted, and what is wrong on stderr alone", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { code: _, ...tool } = await runJson<{ name: string }>(setup, "describe", "s__echo");
      const { tools } = await runJson<{ tools: { name: string }[] }>(setup, "list");
      assert.deepEqual(
        tool,
        tools.find(({ name }) => name === "s__echo"),
      );
      const prompt = await run(setup, "get", "s__say", "key=x", "--raw");
      assert.ok("messages" in (JSON.parse(prompt.stdout) as object));
      const raw = await run(setup, "read", "medley://s/page", "--raw");
      assert.equal(raw.code, 0);
      assert.ok("contents" in (JSON.parse(raw.stdout) as object));
      for (const [args, code, why] of [
        [["get", "s__say", "kye=x"], 2, /"key"/],
        [["read", "medley://s/pge"], 2, /"medley:\/\/s\/page"/],
      ] as const) {
        const wrong = await run(setup, ...args);
        assert.deepEqual([wrong.code, wrong.stdout], [code, ""], wrong.stderr);
        assert.match(wrong.stderr, why);
      }
    }));
});
