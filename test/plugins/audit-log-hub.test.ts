import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import plugin from "../../plugins/audit-log/index.ts";
import { definePlugin } from "../../src/plugin/plugin.ts";
import {
  callRequest,
  callTool,
  initialize,
  isResponseTo,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";

interface Line {
  readonly call: number;
  readonly client: { readonly id: string; readonly name: string; readonly version: string };
  readonly server: string;
  readonly tool: string;
  readonly name: string;
  readonly outcome: string;
  readonly error?: string;
  readonly sizes: { readonly request: number; readonly answer?: number };
  readonly arguments?: unknown;
}

interface Setup {
  readonly client: Peer;
  readonly files: ScriptedServer;
  /** Closes the hub. @returns the logged lines */
  end(): Promise<readonly Line[]>;
}

/** A hub over one server, with the audit log as the first plugin. */
async function withHub(
  options: PluginUse["options"],
  run: (setup: Setup) => Promise<void>,
  inner: readonly PluginUse[] = [],
  settings: { callTimeout?: number } = {},
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-audit-"));
  const files = new ScriptedServer("read", "write");
  const file = join(folder, "audit.jsonl");
  const use = { plugin: plugin as unknown as PluginUse["plugin"], options: { file, ...options } };
  const servers = { files: settings };
  const { client, hub } = await setUpPluginHub([use, ...inner], { files }, { servers });
  try {
    await initialize(client);
    await run({
      client,
      files,
      async end() {
        await hub.close();
        const lines = readFileSync(file, "utf8").trimEnd().split("\n");
        return lines.map((line) => JSON.parse(line) as Line);
      },
    });
  } finally {
    await hub.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

describe("in a hub, the audit log", () => {
  it("has every call by its number, with its client and the server's own name of the tool", () =>
    withHub({ arguments: true }, async ({ client, end }) => {
      await callTool(client, "files__read", { path: "a" });
      await callTool(client, "files__write", {});
      const [first, second, ...more] = await end();
      assert.deepEqual(more, []);
      assert.deepEqual([first?.call, second?.call], [1, 2]);
      assert.deepEqual([first?.client.name, first?.client.version], ["t", "1"]);
      assert.equal(first?.client.id, second?.client.id);
      const names = [first?.server, first?.tool, first?.name, first?.outcome];
      assert.deepEqual(names, ["files", "read", "files__read", "ok"]);
      assert.deepEqual([first?.arguments, second?.arguments], [{ path: "a" }, {}]);
    }));

  it("has the sizes of messages as they were sent", () =>
    withHub({}, async ({ client, files, end }) => {
      const result = '{"content":[],"é":1.0}';
      files.onCall = () => `"result":${result}`;
      const request = JSON.stringify(callRequest("x", "files__read", { a: "é" }));
      client.send(request);
      await client.find(isResponseTo("x"));
      const [line] = await end();
      assert.deepEqual(line?.sizes, {
        request: Buffer.byteLength(request),
        answer: Buffer.byteLength(result),
      });
    }));

  it("tells errors of the server, and of its tools", () =>
    withHub({}, async ({ client, files, end }) => {
      files.onCall = () => '"error":{"code":-32602,"message":"no"}';
      await callTool(client, "files__read");
      files.onCall = () => '"result":{"content":[],"isError":true}';
      await callTool(client, "files__read");
      const reported = (await end()).map(({ outcome, error }) => [outcome, error]);
      assert.deepEqual(reported, [
        ["error", "-32602"],
        ["toolError", undefined],
      ]);
    }));

  it("tells of calls that the client cancelled", () =>
    withHub({}, async ({ client, files, end }) => {
      files.onCall = () => undefined;
      client.send(callRequest("x", "files__read"));
      await files.newestPeer?.find(({ method }) => method === "tools/call");
      client.send({
        jsonrpc: "2.0",
        method: "notifications/cancelled",
        params: { requestId: "x" },
      });
      await files.newestPeer?.find(({ method }) => method === "notifications/cancelled");
      const [line] = await end();
      assert.deepEqual([line?.outcome, line?.error], ["cancelled", "cancelled"]);
    }));

  it("tells of calls that took too long", () =>
    withHub(
      {},
      async ({ client, files, end }) => {
        files.onCall = () => undefined;
        await callTool(client, "files__read");
        const [line] = await end();
        assert.deepEqual([line?.outcome, line?.error], ["timedOut", "callTimeout"]);
      },
      [],
      { callTimeout: 30 },
    ));

  it("tells of calls that lost their server, and of those for which it could not be started", () =>
    withHub({}, async ({ client, files, end }) => {
      files.onCall = () => {
        files.disconnect();
        return undefined;
      };
      await callTool(client, "files__read");
      files.onInitialize = () => '"error":{"code":1,"message":"no"}';
      await callTool(client, "files__read");
      const reported = (await end()).map(({ outcome, error }) => [outcome, error]);
      assert.deepEqual(reported, [
        ["lost", "connectionLost"],
        ["unavailable", "handshakeFailed"],
      ]);
    }));

  it("has calls that plugins behind it answer, refuse, and fail", () => {
    const stranger: PluginUse = {
      plugin: definePlugin({
        name: "stranger",
        setup: () => ({
          call: () => (asked) => {
            const { how } = asked.arguments;
            if (how === "answer") return Promise.resolve(asked.answer({ content: [] }));
            if (how === "refuse") return Promise.resolve(asked.refuse("no"));
            throw new Error("a secret");
          },
        }),
      }),
    };
    return withHub(
      {},
      async ({ client, files, end }) => {
        for (const how of ["answer", "refuse", "fail"])
          await callTool(client, "files__read", { how });
        assert.deepEqual(files.messagesOf("tools/call"), []);
        const lines = await end();
        const reported = lines.map(({ outcome, error }) => [outcome, error]);
        assert.deepEqual(reported, [
          ["ok", undefined],
          ["toolError", undefined],
          ["failed", "pluginFailed"],
        ]);
        assert.doesNotMatch(JSON.stringify(lines), /secret/);
      },
      [stranger],
    );
  });

  it("has the calls that still ran when the hub ended", () =>
    withHub({}, async ({ client, files, end }) => {
      files.onCall = () => undefined;
      client.send(callRequest("x", "files__read"));
      await files.newestPeer?.find(({ method }) => method === "tools/call");
      const lines = await end();
      assert.equal(lines.length, 1);
      assert.notEqual(lines[0]?.outcome, "ok");
    }));
});
