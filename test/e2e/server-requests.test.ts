import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import {
  executable,
  EXIT_LIMIT,
  it,
  itWith,
  type TestFolder,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";
import type { Received } from "../harness/message.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

const CAPABILITIES = {
  roots: { listChanged: true },
  sampling: {},
  elicitation: { form: {}, url: {} },
};
const MANIFEST = {
  servers: { every: { ...publishedServer("everything", ["stdio"]), title: "Everything" } },
};

async function introduce(client: RawClient, capabilities: object): Promise<readonly string[]> {
  await client.initialize("2025-11-25", capabilities);
  const { message } = await client.request("tools/list");
  return (message.result?.tools ?? []).map(({ name }) => name);
}

function asked(client: RawClient, method: string, from = 0): Promise<Received> {
  return client.find((message) => message.method === method, method, { from });
}

function answer(client: RawClient, { message }: Received, result: object): void {
  client.send({ jsonrpc: "2.0", id: message.id, result });
}

function textOf({ message }: Received): string {
  return (message.result?.content ?? []).map(({ text }) => text ?? "").join("\n");
}

describe("a published server that asks its client", () => {
  it("shows the tools that need it only if the client can be asked", () =>
    withHub(MANIFEST, async ({ client }) => {
      const names = await introduce(client, {});
      assert.ok(names.length > 0);
      assert.ok(!names.some((name) => /sampling|elicitation|roots/.test(name)));
    }));

  it("gets a sample, a filled in form, and the roots, also others later, and logs under its own name", () =>
    withHub(MANIFEST, async ({ client }) => {
      const names = await introduce(client, CAPABILITIES);
      const find = (word: string): string => {
        const name = names.find((each) => each.includes(word));
        assert.ok(name, `no tool for ${word} in ${names.join(" ")}`);
        return name;
      };
      answer(client, await asked(client, "roots/list"), {
        roots: [{ uri: "file:///somewhere", name: "somewhere" }],
      });

      const sample = client.sendCall(find("sampling-request"), { prompt: "p", maxTokens: 9 });
      const content = { type: "text", text: "from the client" };
      answer(client, await asked(client, "sampling/createMessage"), {
        model: "m",
        role: "assistant",
        content,
      });
      assert.match(textOf(await client.response(sample)), /from the client/);

      const form = client.sendCall(find("trigger-elicitation-request"));
      const question = await asked(client, "elicitation/create");
      assert.match(String(question.message.params?.["message"]), /^\[Everything \(every\)\] /);
      answer(client, question, { action: "accept", content: { name: "Ada" } });
      assert.match(textOf(await client.response(form)), /Ada/);

      assert.match(textOf(await client.call(find("roots"))), /somewhere/);
      const from = client.lines.length;
      await client.request("logging/setLevel", { level: "info" });
      client.send({ jsonrpc: "2.0", method: "notifications/roots/list_changed" });
      answer(client, await asked(client, "roots/list", from), {
        roots: [{ uri: "file:///a", name: "a" }],
      });
      const { message } = await asked(client, "notifications/message", from);
      assert.match(String(message.params?.["logger"]), /^every/);
    }));
});

/** The titles of the fields in the form of the published server, in their order. Only the first one is required. */
const FIELDS = [
  "String",
  "Boolean",
  "String with default",
  "String with email format",
  "String with uri format",
  "String with date format",
  "Integer",
  "Number in range 1-1000",
  "Untitled Single Select Enum",
  "Untitled Multiple Select Enum",
  "Titled Single Select Enum",
  "Titled Multiple Select Enum",
  "Legacy Titled Single Select Enum",
];

describe("a published server that asks toolmux call", () => {
  itWith({ skip: skipWithoutTerminal })(
    "gets the form that the person fills in at the terminal, through a running hub, too",
    async () => {
      const fill = async ({ dir, env, config }: TestFolder): Promise<void> => {
        const name = "every__trigger-elicitation-request";
        const line = `'${executable()}' call ${name} --config '${config}'`;
        const terminal = startInTerminal({ dir, env }, line);
        for (const [at, title] of FIELDS.entries()) {
          await terminal.until(EXIT_LIMIT, `the field ${title}`, () =>
            shownBy(terminal).includes(`\n${title}: `) ? true : undefined,
          );
          terminal.write(at === 0 ? "Ann\r" : "\r");
        }
        await terminal.waitForExit(EXIT_LIMIT);
        assert.match(shownBy(terminal), /Ann[^]*"action": "accept"[^]*"name": "Ann"/);
      };
      await withTestFolder(MANIFEST, fill);
      await withHub(MANIFEST, async (hub) => {
        // The command uses the server that was started for this client.
        await introduce(hub.client, CAPABILITIES);
        await fill(hub);
      });
    },
  );
});
