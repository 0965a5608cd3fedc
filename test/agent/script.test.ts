import assert from "node:assert/strict";
import { describe } from "node:test";
import type { Model, ModelMessage, ModelPart } from "../../src/agent/model.ts";
import { createModel } from "../../src/agent/create-model.ts";
import type { HubError } from "../../src/base/errors.ts";
import { makeModelSpec } from "../../src/manifest/agents.ts";
import { collect, failureOf, REQUEST, textOf } from "../contract/model.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { itIn } from "../harness/in-folder.ts";

async function openScript(
  folder: ManifestFolder,
  toml: string,
  clock = new VirtualClock(),
): Promise<Model> {
  await folder.write("script.toml", toml);
  const spec = { name: "m", provider: "script", model: "", script: "./script.toml" } as const;
  const context = { env: {}, cwd: "/", schemes: new Map(), clock };
  return createModel(makeModelSpec({ ...spec, baseDir: folder.root }), context);
}

function ask(model: Model, ...messages: readonly ModelMessage[]): Promise<readonly ModelPart[]> {
  return collect(model, { ...REQUEST, messages });
}

function user(text: string): ModelMessage {
  return { role: "user", content: [{ type: "text", text }] };
}

function result(toolName: string, text: string): ModelMessage {
  const content = [{ type: "text", text }] as const;
  return { role: "tool", toolCallId: "call", toolName, content, isError: false };
}

describe("a script", () => {
  itIn(
    "answers with the first turn that fits the last message and is not used up",
    async (folder) => {
      const model = await openScript(
        folder,
        `[[turns]]
after = "files__read"
text = "It says: {message}"
[[turns]]
when = "TWICE"
times = 1
error = { reason = "rateLimit", status = 429, retryAfter = "2s" }
[[turns]]
when = "read"
text = "Reading."
toolCalls = [{ name = "files__read", arguments = { path = "a" } }, { name = "x", arguments = "{oops" }]
[[turns]]
when = "twice"
text = ["at ", "last"]
`,
      );
      const calls = await ask(model, user("Please READ it"));
      assert.deepEqual(
        calls.filter(({ type }) => type === "toolCall"),
        [
          { type: "toolCall", id: "call_1_1", name: "files__read", argumentsJson: '{"path":"a"}' },
          { type: "toolCall", id: "call_1_2", name: "x", argumentsJson: "{oops" },
        ],
      );
      assert.equal(
        textOf(await ask(model, user("Read"), result("files__read", "hi"))),
        "It says: hi",
      );
      const { data } = await failureOf(ask(model, user("twice")));
      assert.deepEqual(data, { reason: "rateLimit", status: 429, retryAfter: 2000 });
      assert.equal(textOf(await ask(model, user("twice"))), "at last");
      const nothing = await failureOf(
        ask(model, user("Read"), result("other", "nothing that fits")),
      );
      assert.equal(nothing.data?.["reason"], "badRequest");
      assert.match(nothing.message, /script\.toml.*nothing that fits/);
    },
  );

  itIn("waits as long as it says, on the clock", async (folder) => {
    const clock = new VirtualClock();
    const toml = `[[turns]]\ndelay = "5s"\ntext = ["a", "b"]\npause = "1s"\n`;
    const model = await openScript(folder, toml, clock);
    const seen: string[] = [];
    const reading = (async () => {
      for await (const part of model.stream(REQUEST, new AbortController().signal))
        seen.push(part.type === "text" ? part.text : part.type);
    })();
    for (const [ms, expected] of [
      [4999, ""],
      [1, "a"],
      [999, "a"],
      [1, "a,b,finish"],
    ] as const) {
      await clock.advanceAsync(ms);
      assert.equal(seen.join(), expected);
    }
    await reading;
  });

  for (const [toml, ...problems] of [
    [`[[turns]]\ntxt = "a"\n`, `:2:1: turns[0].txt: unknown key; did you mean "text"?`],
    [`turns = 1`, `:1:9: turns: expected an array of tables ([[turns]]), found 1`],
    [
      `[[turns]]\nerror = { reason = "x" }\ndelay = "soon"`,
      `:2:20: turns[0].error.reason: expected one of rateLimit, overloaded, unauthorized, contextTooLong, badRequest, badAnswer, unreachable, timeout, found "x"`,
      `:3:9: turns[0].delay: expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds, found "soon"`,
    ],
    [`[[turns`, `:1:8: not valid TOML`],
  ] as const) {
    itIn(`that is not valid is told with its lines: ${JSON.stringify(toml)}`, async (folder) => {
      await assert.rejects(openScript(folder, toml), (error: HubError) => {
        assert.equal(error.code, "manifestInvalid");
        for (const problem of problems)
          assert.ok(error.message.includes(`script.toml${problem}`), error.message);
        return true;
      });
    });
  }
});
