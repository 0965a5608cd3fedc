import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createModel } from "../../src/agent/create-model.ts";
import type { ModelRequest, SamplingClient } from "../../src/agent/model.ts";
import { HubError } from "../../src/base/errors.ts";
import { makeModelSpec, type ModelSpec } from "../../src/manifest/agents.ts";
import { collect, REQUEST } from "../contract/model.ts";

/** Asks the model of a client. */
async function ask(
  client: SamplingClient | undefined,
  request: Partial<ModelRequest> = {},
  given: Partial<ModelSpec> = {},
) {
  const spec = { name: "sampling", provider: "sampling", model: "", baseDir: "/" } as const;
  const context = { env: {}, cwd: "/", schemes: new Map() };
  const model = await createModel(makeModelSpec({ ...spec, ...given }), context);
  return collect(model, { ...REQUEST, ...request, client });
}

describe("the model of the client", () => {
  it("is asked with sampling/createMessage, with tools and results as MCP has them", async () => {
    const asked: unknown[] = [];
    const createMessage = (params: object): Promise<unknown> => {
      asked.push(params);
      return Promise.resolve({ role: "assistant", content: { type: "text", text: "ok" } });
    };
    const settings = { model: "claude", maxTokens: 100, temperature: 0.5 };
    const call = { name: "files__read", argumentsJson: '{"path":"x"}' };
    const picture = { type: "image", mimeType: "image/png", data: "aaaa" } as const;
    const result = { role: "tool", toolName: "files__read", isError: false } as const;
    const toolCalls = [
      { ...call, id: "a" },
      { ...call, id: "b" },
    ];
    const messages: ModelRequest["messages"] = [
      ...REQUEST.messages,
      { role: "assistant", text: "", toolCalls },
      { ...result, toolCallId: "a", content: [picture] },
      { ...result, toolCallId: "b", content: [{ type: "text", text: "no" }], isError: true },
    ];
    await ask({ takesTools: true, createMessage }, { messages }, settings);
    const use = { type: "tool_use", name: "files__read", input: { path: "x" } };
    assert.deepEqual(asked, [
      {
        messages: [
          { role: "user", content: [{ type: "text", text: "Hello" }] },
          {
            role: "assistant",
            content: [
              { ...use, id: "a" },
              { ...use, id: "b" },
            ],
          },
          {
            role: "user",
            content: [
              { type: "tool_result", toolUseId: "a", content: [picture], isError: false },
              {
                type: "tool_result",
                toolUseId: "b",
                content: [{ type: "text", text: "no" }],
                isError: true,
              },
            ],
          },
        ],
        systemPrompt: "Be brief.",
        modelPreferences: { hints: [{ name: "claude" }] },
        temperature: 0.5,
        maxTokens: 100,
        tools: REQUEST.tools,
        toolChoice: { mode: "auto" },
      },
    ]);
  });

  it("is refused before a request if there is no client that takes tools", async () => {
    const createMessage = (): Promise<unknown> => Promise.reject(new Error("asked"));
    for (const client of [undefined, { takesTools: false, createMessage }]) {
      await assert.rejects(ask(client), ({ code, message, hint }: HubError) => {
        assert.doesNotMatch(message, /asked$/);
        return code === "modelFailed" && /sampling\.tools/.test(hint ?? "");
      });
    }
  });

  it("passes on the hub's own errors, such as that the client has left", async () => {
    const gone = new HubError("notAsked", "The client has left.");
    await assert.rejects(
      ask({ takesTools: true, createMessage: () => Promise.reject(gone) }),
      gone,
    );
  });
});
