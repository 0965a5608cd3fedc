import assert from "node:assert/strict";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { MODERN_VERSION, modernMetaOf } from "../fixtures/modern-requests.ts";
import { it, withHub } from "../harness/hub.ts";
import type { ServerEntry } from "../harness/manifest.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/eras.mjs", import.meta.url));

function speaking(era: string): { readonly servers: Record<string, ServerEntry> } {
  return { servers: { s: { command: process.execPath, args: [SERVER, era] } } };
}

describe("a process", () => {
  for (const [what, era, tools] of [
    ["both eras", "dual", ["ask", "push"]],
    ["the modern era alone", "modern", ["ask"]],
  ] as const) {
    it(`that speaks ${what} asks a client of old`, () =>
      withHub(speaking(era), async ({ client }) => {
        await client.initialize("2025-11-25", { elicitation: { form: {} } });
        await client.request("tools/list");
        for (const tool of tools) {
          const from = client.lines.length;
          const id = client.sendCall(`s__${tool}`);
          const question = await client.find(
            ({ method }) => method === "elicitation/create",
            `a question of ${tool}`,
            { from },
          );
          assert.equal(question.message.params?.["message"], "[s] Who?");
          const result = { action: "accept", content: { name: "Ada" } };
          client.send({ jsonrpc: "2.0", id: question.message.id, result });
          const { message } = await client.response(id);
          assert.deepEqual(message.result?.content, [{ type: "text", text: "hello Ada" }]);
          assert.ok(!("resultType" in (message.result ?? {})));
        }
      }));
  }

  it("that speaks both eras speaks to each client of one hub in its own", () =>
    withHub(speaking("dual"), async ({ client }) => {
      await client.initialize("2025-11-25");
      const _meta = modernMetaOf();
      const modern = await client.request("tools/call", { name: "s__pid", _meta });
      const legacy = await client.call("s__pid");
      const pids = [modern, legacy].map(({ message }) => message.result?.content?.[0]?.text);
      assert.equal(new Set(pids).size, 2);
      // Where nothing can be asked while a call runs, the server says so itself.
      const { message } = await client.request("tools/call", { name: "s__push", _meta });
      assert.match(JSON.stringify(message), new RegExp(MODERN_VERSION));
      assert.ok(message.error !== undefined || message.result?.isError === true);
    }));

  it("of old that ends when it is asked what it speaks is there all the same", () =>
    withHub(speaking("brittle"), async ({ client }) => {
      assert.deepEqual(
        (await client.initializeAndList()).map(({ name }) => name),
        ["s__pid"],
      );
      const { message } = await client.call("s__pid");
      assert.match(message.result?.content?.[0]?.text ?? "", /^\d+$/);
    }));

  it("of old that ends when it is asked what it speaks is started again for a modern client", () =>
    withHub(speaking("brittle"), async ({ client }) => {
      const { message } = await client.request("tools/call", {
        name: "s__pid",
        _meta: modernMetaOf(),
      });
      assert.match(message.result?.content?.[0]?.text ?? "", /^\d+$/);
    }));
});
