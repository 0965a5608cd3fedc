import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AgentChain } from "../../src/agent/run-chain.ts";
import type { Toolbox, ToolCallOptions } from "../../src/agent/toolbox.ts";
import { HubError } from "../../src/base/errors.ts";
import { NO_ERROR_MESSAGE } from "../../src/jsonrpc/parse.ts";
import { ScriptedServer } from "../fixtures/memory-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";

/** Runs a test with a toolbox over a hub with these servers; `s` has the prefix s. */
export type WithToolbox = (
  servers: Record<string, ScriptedServer>,
  run: (toolbox: Toolbox) => Promise<void>,
) => Promise<void>;

/** Members of a response that are not JSON. */
const UNREADABLE_BODIES = [
  '"result":{"content":[],"structuredContent":{"v":NaN}}',
  '"result":{"content":[],"v":-Infinity}',
  '"result":{"content":[],"v":undefined}',
  '"result":{"content":["a}',
  '"result":{"content":[]}}',
  '"result":{"content":[],}',
  "\"result\":{'content':[]}",
  '"result":{"content":[]} x',
  '"error":{"code":NaN,"message":"x"}',
];

/** Errors with an unusual shape, and the text that is made of them. */
const ODD_ERRORS = [
  ['{"message":"no code here"}', "no code here"],
  ['{"code":"E1","message":"a text as code"}', "a text as code"],
  ['{"code":-32000,"message":null}', NO_ERROR_MESSAGE],
  ['{"code":-32000,"data":{"code":"constructor"}}', NO_ERROR_MESSAGE],
  ['{"message":{"text":1},"data":null}', NO_ERROR_MESSAGE],
  ['"just text"', "just text"],
  ["5", NO_ERROR_MESSAGE],
  ["null", NO_ERROR_MESSAGE],
  ["[]", NO_ERROR_MESSAGE],
] as const;

/** The contract of every `Toolbox` over the tools of a hub. */
export function toolboxContract(name: string, withToolbox: WithToolbox): void {
  const options = (signal = new AbortController().signal): ToolCallOptions => ({
    signal,
    chain: AgentChain.none.with("main", "7"),
    agent: { name: "main", approval: "never" },
  });
  const content = (text: string) => ({ type: "text", text });

  describe(`a toolbox: ${name}`, () => {
    it("has the tools of all servers, sorted, with where they come from and what they do", async () => {
      const s = new ScriptedServer();
      s.tools = [
        { name: "z", description: "Z.", inputSchema: { type: "object" } },
        {
          name: "a",
          inputSchema: { type: "object", properties: { x: {} } },
          annotations: { readOnlyHint: true, idempotentHint: true },
        },
      ].map((tool) => JSON.stringify(tool));
      await withToolbox({ s, other: new ScriptedServer("b") }, async (toolbox) => {
        const tools = await toolbox.tools(options().signal);
        const own = tools.filter(({ server }) => server !== "host");
        const definitions = own.map(
          ({ definition }) => JSON.parse(Buffer.from(definition ?? []).toString()) as object,
        );
        assert.partialDeepStrictEqual(definitions, [
          { name: "other__b" },
          { name: "s__a", annotations: { readOnlyHint: true, idempotentHint: true } },
          { name: "s__z", description: "Z." },
        ]);
        const parsed = own.map((tool) => ({ ...tool, definition: undefined }));
        assert.deepEqual(parsed, [
          {
            name: "other__b",
            server: "other",
            remoteName: "b",
            description: "",
            inputSchema: { type: "object" },
            isReadOnly: false,
            isIdempotent: false,
            definition: undefined,
          },
          {
            name: "s__a",
            server: "s",
            remoteName: "a",
            description: "",
            inputSchema: { type: "object", properties: { x: {} } },
            isReadOnly: true,
            isIdempotent: true,
            definition: undefined,
          },
          {
            name: "s__z",
            server: "s",
            remoteName: "z",
            description: "Z.",
            inputSchema: { type: "object" },
            isReadOnly: false,
            isIdempotent: false,
            definition: undefined,
          },
        ]);
        const again = await toolbox.tools(options().signal);
        assert.equal(
          again.find((tool) => tool.name === "s__a"),
          tools.find((tool) => tool.name === "s__a"),
        );
      });
    });

    for (const [what, answer, expected, isError, code] of [
      [
        "each block on its own",
        { content: [content("1"), content("2")] },
        [content("1"), content("2")],
      ],
      [
        "a picture as a picture, other media by their size",
        {
          content: [
            { type: "image", mimeType: "image/png", data: "AAAA" },
            { type: "audio", mimeType: "audio/wav", data: "AAAA" },
            { type: "resource", resource: { uri: "x://a", text: "A" } },
            { type: "resource", resource: { uri: "x://b", mimeType: "a/b", blob: "AAAA" } },
          ],
        },
        [
          { type: "image", mimeType: "image/png", data: "AAAA" },
          content("[audio, audio/wav, 3 B: not shown]"),
          content("A"),
          content("[x://b, a/b, 3 B: not shown]"),
        ],
      ],
      [
        "structured content as JSON, if no block has it",
        { content: [content("said")], structuredContent: { a: 1 } },
        [content("said"), content('{"a":1}')],
      ],
      [
        "structured content once, if a block has it",
        { content: [content('{ "a": 1 }')], structuredContent: { a: 1 } },
        [content('{ "a": 1 }')],
      ],
      [
        "an error of the tool as one",
        { content: [content("no")], isError: true },
        [content("no")],
        true,
      ],
      [
        "the hub's own errors with their codes",
        { content: [content("late")], isError: true, _meta: { "toolmux/error": "callTimeout" } },
        [content("late")],
        true,
        "callTimeout",
      ],
    ] as const) {
      it(`gives ${what}`, async () => {
        const s = new ScriptedServer("t");
        s.onCall = () => `"result":${JSON.stringify(answer)}`;
        await withToolbox({ s }, async (toolbox) => {
          const result = await toolbox.call("s__t", '{"n":1.0}', options());
          assert.deepEqual(result.content, expected);
          assert.deepEqual([result.isError, result.code], [isError ?? false, code]);
          assert.equal(result.size, JSON.stringify(answer).length);
        });
        assert.ok(
          s.peers.some(({ received }) => received.join().includes('"arguments":{"n":1.0}')),
        );
      });
    }

    for (const body of UNREADABLE_BODIES) {
      it(`ends a call at once whose answer cannot be read, and names the server: ${body}`, async () => {
        const s = new ScriptedServer("t");
        s.onCall = () => body;
        await withToolbox({ s }, async (toolbox) => {
          const { content: shown, ...result } = await toolbox.call("s__t", "{}", options());
          assert.deepEqual([result.isError, result.code], [true, "answerInvalid"]);
          assert.match(JSON.stringify(shown), /Server \\"s\\"/);
        });
      });
    }

    it("reads errors without a code, and errors that are no objects", async () => {
      for (const [body, said] of ODD_ERRORS) {
        const s = new ScriptedServer("t");
        s.onCall = () => `"error":${body}`;
        await withToolbox({ s }, async (toolbox) => {
          const result = await toolbox.call("s__t", "{}", options());
          assert.deepEqual(result.content, [content(said)]);
          assert.deepEqual([result.isError, result.code], [true, "serverError"]);
        });
      }
    });

    it("gives errors of servers and of the hub as results", async () => {
      const s = new ScriptedServer("t");
      s.onCall = () => '"error":{"code":-5,"message":"broken"}';
      await withToolbox({ s }, async (toolbox) => {
        const failed = await toolbox.call("s__t", "{}", options());
        assert.deepEqual(failed.content, [content("broken")]);
        assert.deepEqual([failed.isError, failed.code], [true, "serverError"]);
        const unknown = await toolbox.call("s__nothing", "{}", options());
        assert.deepEqual([unknown.isError, unknown.code], [true, "unknownTool"]);
      });
    });

    it("gives what a server that dies in the call leaves, as a result with a code", async () => {
      const s = new ScriptedServer("t");
      s.onCall = () => {
        s.disconnect();
        return undefined;
      };
      await withToolbox({ s }, async (toolbox) => {
        const result = await toolbox.call("s__t", "{}", options());
        assert.equal(result.isError, true);
        assert.ok(HubError.isCode(result.code ?? ""), String(result.code));
      });
    });

    it("gives that a person has not allowed a call of an agent as a result with its code", async () => {
      const s = new ScriptedServer("t");
      await withToolbox({ s }, async (toolbox) => {
        const result = await toolbox.call("s__t", "{}", { ...options(), agent: { name: "main" } });
        assert.deepEqual([result.isError, result.code], [true, "notApproved"]);
      });
      assert.deepEqual(s.messagesOf("tools/call"), []);
    });

    it("tells servers the chain of agents", async () => {
      const s = new ScriptedServer("t");
      await withToolbox({ s }, async (toolbox) => {
        await toolbox.call("s__t", "{}", options());
      });
      const [{ params } = {}] = s.messagesOf("tools/call");
      const meta = params?.["_meta"] as Record<string, unknown> | undefined;
      assert.deepEqual(meta?.["toolmux/chain"], ["main@7"]);
    });

    it("cancels a call at its server", async () => {
      const s = new ScriptedServer("t");
      s.onCall = () => undefined;
      await withToolbox({ s }, async (toolbox) => {
        const controller = new AbortController();
        const done = toolbox.call("s__t", "{}", options(controller.signal));
        while (s.messagesOf("tools/call").length === 0) await turn();
        controller.abort(new HubError("cancelled", "Enough."));
        await assert.rejects(done, { code: "cancelled" });
        while (s.messagesOf("notifications/cancelled").length === 0) await turn();
      });
    });
  });
}
