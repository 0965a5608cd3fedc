import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { LIMIT, withHub } from "../harness/hub.ts";
import type { ServerEntry } from "../harness/manifest.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/eras.mjs", import.meta.url));

function speaking(era: string): { readonly servers: Record<string, ServerEntry> } {
  return { servers: { s: { command: process.execPath, args: [SERVER, era] } } };
}

describe("a process", () => {
  for (const era of ["dual", "modern"]) {
    it(
      `that speaks ${era === "dual" ? "both eras" : "the modern era alone"} asks a client of old`,
      LIMIT,
      () =>
        withHub(speaking(era), async ({ client }) => {
          await client.initialize("2025-11-25", { elicitation: { form: {} } });
          await client.request("tools/list");
          const id = client.askCall("s__ask");
          const question = await client.find(
            ({ method }) => method === "elicitation/create",
            "a question",
          );
          assert.equal(question.message.params?.["message"], "[s] Who?");
          const result = { action: "accept", content: { name: "Ada" } };
          client.send({ jsonrpc: "2.0", id: question.message.id, result });
          const { message } = await client.answer(id);
          assert.deepEqual(message.result?.content, [{ type: "text", text: "hello Ada" }]);
          assert.ok(!("resultType" in (message.result ?? {})));
        }),
    );
  }

  it("of old that ends when it is asked what it speaks is there all the same", LIMIT, () =>
    withHub(speaking("brittle"), async ({ client }) => {
      assert.deepEqual(
        (await client.open()).map(({ name }) => name),
        ["s__pid"],
      );
      const { message } = await client.call("s__pid");
      assert.match(message.result?.content?.[0]?.text ?? "", /^\d+$/);
    }),
  );
});
