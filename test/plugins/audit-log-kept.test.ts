import assert from "node:assert/strict";
import { appendFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import plugin from "../../plugins/audit-log/index.ts";
import type { KeptCall } from "../../src/plugin/plugin.ts";
import { callTool, initialize, ScriptedServer } from "../fixtures/memory-hub.ts";
import { withFolder } from "../contract/plugin-setup.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";

const RESULT = '{"content":[{"type":"text","text":"hi"}],"token":"t","big":1.0}';

type Found = (KeptCall & { readonly by: string }) | undefined;

/** What a hub with the audit log finds of calls after some were made. */
function withCalls(
  options: object,
  calls: readonly object[],
  run: (find: (call: number) => Promise<Found>, file: string) => Promise<void>,
  result = RESULT,
): Promise<void> {
  return withFolder(async (folder) => {
    const files = new ScriptedServer("read");
    files.onCall = () => `"result":${result}`;
    const file = join(folder, "audit.jsonl");
    const audit = plugin as unknown as PluginUse["plugin"];
    const use = { plugin: audit, options: { file, ...options } };
    const { client, hub } = await setUpPluginHub([use], { files }, { servers: { files: {} } });
    try {
      await initialize(client);
      for (const args of calls) await callTool(client, "files__read", args);
      await run(async (call) => hub.activePlugins.set?.findKept(call), file);
    } finally {
      await hub.close();
    }
  });
}

describe("of a call that has ended, the audit log", () => {
  it("gives arguments and result as they were spelled, without values that its options hide", () =>
    withCalls(
      { arguments: true, results: true, redact: ["token", "password"] },
      [{ path: "a" }, { path: "b", password: "p" }],
      async (find) => {
        const result = RESULT.replace('"t"', '"•••"');
        assert.deepEqual(await find(2), {
          by: "audit-log",
          arguments: '{"path":"b","password":"•••"}',
          result,
        });
        assert.deepEqual(await find(1), { by: "audit-log", arguments: '{"path":"a"}', result });
        assert.equal(await find(3), undefined);
      },
    ));

  it("gives only what its options let it keep", async () => {
    await withCalls({}, [{ a: 1 }], async (find) => {
      assert.deepEqual(await find(1), { by: "audit-log" });
    });
    await withCalls({ results: true }, [{ a: 1 }], async (find) => {
      assert.deepEqual(await find(1), { by: "audit-log", result: RESULT });
    });
  });

  it("says how long a text was that is too long to be kept", async () => {
    const long = "x".repeat(70_000);
    const result = JSON.stringify({ content: [{ type: "text", text: long }] });
    await withCalls(
      { arguments: true, results: true },
      [{ long }],
      async (find) => {
        const args = JSON.stringify({ long }).length;
        assert.deepEqual(await find(1), {
          by: "audit-log",
          argumentsSize: args,
          resultSize: result.length,
        });
      },
      result,
    );
  });

  it("finds it in rotated files, behind lines of other processes and lines that were cut off", () =>
    withCalls({ arguments: true }, [{ mine: true }], async (find, file) => {
      assert.equal((await find(1))?.arguments, '{"mine":true}');
      const other = `{"time":"${new Date().toISOString()}","hub":${process.pid + 1},"call":1,"client":{},"sizes":{},"arguments":{"mine":false}}\n`;
      appendFileSync(file, other.repeat(5000));
      appendFileSync(
        file,
        other.replace(String(process.pid + 1), String(process.pid)).slice(0, 90),
      );
      assert.equal((await find(1))?.arguments, '{"mine":true}');
      renameSync(file, `${file}.2`);
      assert.equal((await find(1))?.arguments, '{"mine":true}');
      renameSync(`${file}.2`, `${file}.6`);
      assert.equal(await find(1), undefined);
    }));
});
