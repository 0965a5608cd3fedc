import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createModel } from "../../src/agent/create-model.ts";
import { makeModelSpec } from "../../src/manifest/agents.ts";
import { modelContract, TIMEOUT } from "../contract/model.ts";
import type { FakeAnswer } from "../fixtures/models/answer.ts";
import { DIALECTS, FakeApi } from "../fixtures/models/fake-apis.ts";

const CONTEXT = { env: {}, cwd: "/", schemes: new Map() } as const;
const SPEC = { name: "main", baseDir: "/", timeout: TIMEOUT } as const;

for (const dialect of DIALECTS) {
  const { provider } = dialect;
  modelContract(provider, async (run) => {
    const api = await FakeApi.start(dialect);
    try {
      await run({
        open(clock, answers) {
          api.answers.push(...answers);
          const model = provider === "google" ? "gemini-x" : "model-x";
          const spec = { ...SPEC, provider, model, url: api.url, apiKey: "key-of-the-test" };
          return createModel(makeModelSpec(spec), { ...CONTEXT, clock });
        },
        openRequests: () => api.server.sockets.size,
        failures: ["rateLimit", "overloaded", "unauthorized", "contextTooLong", "badRequest"],
        // Its API sends arguments as JSON, not as a text.
        lacks: provider === "google" ? ["invalidJson"] : [],
      });
    } finally {
      api.server.destroy();
    }
  });
}

function turnOf({ text = [], calls, ending, failure, ...rest }: FakeAnswer): object {
  return {
    times: 1,
    text,
    ...rest,
    ...(calls && { toolCalls: calls.map(({ name, json }) => ({ name, arguments: json })) }),
    ...(ending === "hang" && { hang: true }),
    ...(ending === "cut" && { error: { reason: "badAnswer" } }),
    ...(failure && { error: { reason: failure } }),
  };
}

modelContract("script", async (run) => {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-script-"));
  try {
    await run({
      async open(clock, answers) {
        await writeFile(join(folder, "s.json"), JSON.stringify({ turns: answers.map(turnOf) }));
        const spec = { ...SPEC, provider: "script", model: "", script: "s.json" } as const;
        return createModel(makeModelSpec({ ...spec, baseDir: folder }), { ...CONTEXT, clock });
      },
      failures: ["rateLimit", "overloaded", "unauthorized", "contextTooLong", "unreachable"],
    });
  } finally {
    await rm(folder, { recursive: true });
  }
});

modelContract("sampling", async (run) => {
  const given: FakeAnswer[] = [];
  let openRequests = 0;
  await run({
    async open(clock, answers) {
      given.push(...answers);
      const createMessage = async (_: object, signal: AbortSignal): Promise<unknown> => {
        const { text = [], calls = [], ending, failure, finish } = given.shift() ?? {};
        openRequests++;
        try {
          if (ending === "hang") {
            await new Promise((_resolve, reject) => {
              signal.addEventListener("abort", () => reject(signal.reason));
            });
          }
        } finally {
          openRequests--;
        }
        if (failure === "badRequest") throw new Error("The user does not want that.");
        if (failure !== undefined) return { role: "assistant", content: "no block" };
        const blocks = calls.map(({ id, name, json }) => {
          return { type: "tool_use", id, name, input: JSON.parse(json) as unknown };
        });
        return {
          role: "assistant",
          model: "of the client",
          content: [{ type: "text", text: text.join("") }, ...blocks],
          stopReason: finish === "length" ? "maxTokens" : "endTurn",
        };
      };
      const client = { takesTools: true, createMessage };
      const spec = makeModelSpec({ ...SPEC, provider: "sampling", model: "" });
      const model = await createModel(spec, { ...CONTEXT, clock });
      return {
        ...model,
        stream: (request, signal) => model.stream({ ...request, client }, signal),
      };
    },
    openRequests: () => openRequests,
    failures: ["badRequest", "badAnswer"],
    lacks: ["thinking", "usage", "cut", "refused", "pieces", "invalidJson"],
  });
});
