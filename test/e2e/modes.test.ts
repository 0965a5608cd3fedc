import assert from "node:assert/strict";
import { appendFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe } from "node:test";
import { run, runCommand, startOn } from "../harness/command.ts";
import { listToolNames, waitForListChanged, waitForStderr } from "../harness/controlled-servers.ts";
import { closeClient, EXIT_LIMIT, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import type { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

const MODES = `
[modes.echo]
title = "Echo only"
tools = { and = [{ tools = ["echo", "nothing"] }, { servers = ["*"] }] }
[modes.b]
tools = { servers = ["b"] }
`;

/** A folder with servers `a` and `b`, and two modes. */
function withModes(use: (folder: TestFolder) => Promise<void>, more = ""): Promise<void> {
  return withTestFolder({ servers: { a: scripted(), b: scripted() } }, async (folder) => {
    appendFileSync(folder.config, MODES + more);
    await use(folder);
  });
}

function serve({ env, ...folder }: TestFolder, ...args: readonly string[]): RawClient {
  return startOn({ ...folder, env: { ...env, A_TOKEN: "token-of-a" } }, ...args);
}

/** Waits until the hub's socket is there. */
function untilSocket({ env }: TestFolder): Promise<true> {
  const folder = env["TOOLMUX_RUN_DIR"] ?? "";
  const isThere = (): boolean =>
    existsSync(folder) && readdirSync(folder).some((name) => name.endsWith(".json"));
  return poll(
    10_000,
    () => "the socket of the hub",
    () => isThere() || undefined,
  );
}

describe("modes", () => {
  it("are switched under a running client, which is told when its list is another", () =>
    withModes(async (folder) => {
      const client = serve(folder);
      await client.initializeAndList();
      const all = await listToolNames(client);
      await untilSocket(folder);
      const id = client.sendCall("a__hang");
      await folder.waitForEvent("a", ({ event, tool }) => event === "call" && tool === "hang");
      const switched = await run(folder, "mode", "echo", "--json");
      assert.equal(switched.code, 0, switched.stderr);
      await waitForListChanged(client, 1);
      assert.deepEqual(await listToolNames(client), ["a__echo", "b__echo"]);
      const { message } = await client.request("tools/call", { name: "a__hang", arguments: {} });
      assert.deepEqual(
        [message.error?.code, message.error?.message],
        [-32602, 'Tool "a__hang" is not part of mode "echo".'],
      );
      const isAnswer = (one: { readonly id?: unknown }): boolean => one.id === id;
      assert.deepEqual(client.filter(isAnswer), []);
      assert.match((await run(folder, "mode")).stdout, /echo \* +Echo only +2 +raw \[client-1\]/);
      const shown = await run(folder, "mode", "show", "echo");
      assert.match(shown.stdout, /a__echo[^]*tools\.and\[0\]\.tools\[1\] matches no tool/);
      assert.equal((await run(folder, "mode", "ecko")).code, 2);
      assert.equal((await run(folder, "mode", "full", "--client", "client-1")).code, 0);
      assert.deepEqual(await listToolNames(client), all);
      await closeClient(client);
    }));

  it("limit a client by the command line, whatever the operator chooses, and so do servers", () =>
    withModes(async (folder) => {
      const client = serve(folder, "serve", "--mode", "echo", "--servers", "a,b");
      await client.initializeAndList();
      assert.deepEqual(await listToolNames(client), ["a__echo", "b__echo"]);
      await untilSocket(folder);
      assert.equal((await run(folder, "mode", "b")).code, 0);
      assert.deepEqual(await listToolNames(client), ["b__echo"]);
      await closeClient(client);
      const single = serve(folder, "serve", "--servers", "b");
      await single.initializeAndList();
      assert.ok((await listToolNames(single)).includes("echo"));
      assert.equal(folder.log("a").filter(({ event }) => event === "start").length, 1);
      await closeClient(single);
      for (const args of [
        ["--mode", "ecko"],
        ["--servers", "c"],
        ["--servers", "a,"],
      ]) {
        const wrong = serve(folder, "serve", ...args);
        assert.equal((await wrong.waitForExit(EXIT_LIMIT)).code, 2, args.join(" "));
      }
    }));

  it("are listed and checked without a running hub", () =>
    withModes(async (folder) => {
      const listed = await run(folder, "list", "--mode", "echo", "--all");
      assert.match(listed.stdout, /a__echo[^]*b__echo[^]*Mode "echo" hides it\./);
      assert.equal((await run(folder, "list", "--mode", "ecko")).code, 2);
      assert.match((await run(folder, "check")).stdout, /echo +Echo only/);
      const { stdout } = await run(folder, "doctor", "--json");
      const { findings } = JSON.parse(stdout) as { findings: { code: string; text: string }[] };
      assert.deepEqual(
        findings.filter(({ code }) => code === "TM909").map(({ text }) => text),
        ["These parts of its filter match no tool that is known: tools.and[0].tools[1]."],
      );
    }));
});

describe("a client over HTTP with a token of its own", () => {
  const CLIENTS = `
[[clients]]
name = "laptop"
token = "\${env:A_TOKEN}"
mode = "b"
[[clients]]
name = "wrong"
token = "\${env:NOT_SET}"
[[clients]]
name = "stored"
token = "\${secret:stored}"
`;

  function post(
    url: string,
    message: object,
    headers: Readonly<Record<string, string>>,
  ): Promise<Response> {
    return fetch(url, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        Accept: "application/json, text/event-stream",
        ...headers,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...message }),
    });
  }

  it("loses its session when the manifest does not have it any more, and its token is in no output", () =>
    withModes(async (folder) => {
      const hub = serve(folder, "serve", "--http", "127.0.0.1:0", "--log-level", "debug");
      const url = await hub.until(
        10_000,
        "the address",
        () => /http:[^\s"]+/.exec(hub.stderr)?.[0],
      );
      await waitForStderr(hub, /client "wrong" over HTTP is refused/);
      assert.match((await run(folder, "check")).stderr, /client "wrong" over HTTP is refused/);
      const own = { Authorization: "Bearer token-of-a" };
      const params = {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "c", version: "1" },
      };
      const initialize = { method: "initialize", params };
      assert.equal((await post(url, initialize, {})).status, 401);
      const opened = await post(url, initialize, own);
      assert.equal(opened.status, 200);
      const session = { ...own, "Mcp-Session-Id": opened.headers.get("Mcp-Session-Id") ?? "" };
      await opened.text();
      const listed = await (await post(url, { method: "tools/list" }, session)).text();
      assert.match(listed, /b__echo/);
      assert.doesNotMatch(listed, /a__echo/);
      await untilSocket(folder);
      // Each reload reads the stored tokens again, though the manifest's file is the same.
      for (const token of ["first-token", "second-token"]) {
        const input = `${token}\n`;
        assert.equal((await runCommand(folder, ["secret", "set", "stored"], { input })).code, 0);
        await run(folder, "reload");
        const bearer = (which: string) => ({ Authorization: `Bearer ${which}` });
        assert.equal((await post(url, initialize, bearer(token))).status, 200);
        assert.equal(
          (await post(url, initialize, bearer("first-token"))).status,
          token === "first-token" ? 200 : 401,
        );
      }
      writeFileSync(
        folder.config,
        readFileSync(folder.config, "utf8")
          .replace('"laptop"', '"other"')
          .replace("A_TOKEN", "NONE"),
      );
      assert.equal((await run(folder, "reload")).code, 0);
      assert.equal((await post(url, { method: "tools/list" }, session)).status, 401);
      assert.equal((await post(url, initialize, {})).status, 401);
      assert.doesNotMatch(hub.stderr, /token-of-a/);
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }, CLIENTS));
});
