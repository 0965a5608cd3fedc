import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openModel } from "../../src/agent/open-model.ts";
import type { SamplingClient } from "../../src/agent/sampling.ts";
import { HubError } from "../../src/base/errors.ts";
import { makeModelSpec, type ModelSpec } from "../../src/manifest/agents.ts";
import { collect, REQUEST } from "../contract/model.ts";

function open(client: SamplingClient | undefined, given: Partial<ModelSpec> = {}) {
  const spec = { name: "sampling", provider: "sampling", model: "", baseDir: "/" } as const;
  const context = { env: {}, cwd: "/", schemes: new Map(), client };
  return openModel(makeModelSpec({ ...spec, ...given }), context);
}

describe("the model of the client", () => {
  it("is asked with sampling/createMessage, with tools and results as MCP has them", async () => {
    const asked: unknown[] = [];
    const createMessage = (params: object): Promise<unknown> => {
      asked.push(params);
      return Promise.resolve({ role: "assistant", content: { type: "text", text: "ok" } });
    };
    const settings = { model: "claude", maxTokens: 100, temperature: 0.5 };
    const model = await open({ takesTools: true, createMessage }, settings);
    const call = { name: "files__read", argumentsJson: '{"path":"x"}' };
    const picture = { type: "image", mimeType: "image/png", data: "aaaa" } as const;
    const result = { role: "tool", toolName: "files__read", isError: false } as const;
    await collect(model, {
      ...REQUEST,
      messages: [
        ...REQUEST.messages,
        {
          role: "assistant",
          text: "",
          toolCalls: [
            { ...call, id: "a" },
            { ...call, id: "b" },
          ],
        },
        { ...result, toolCallId: "a", content: [picture] },
        { ...result, toolCallId: "b", content: [{ type: "text", text: "no" }], isError: true },
      ],
    });
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
      await assert.rejects(open(client), (error: HubError) => error.code === "missingCapability");
    }
  });

  it("passes on the hub's own errors, such as that the client has left", async () => {
    const gone = new HubError("notAsked", "The client has left.");
    const model = await open({ takesTools: true, createMessage: () => Promise.reject(gone) });
    await assert.rejects(collect(model), gone);
  });
});
