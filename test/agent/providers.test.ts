import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import type { Model, ModelMessage } from "../../src/agent/model.ts";
import { type ModelEnvironment, createModel } from "../../src/agent/create-model.ts";
import { HubError } from "../../src/base/errors.ts";
import { makeModelSpec, type ModelSpec } from "../../src/manifest/agents.ts";
import type { SchemeResolvers } from "../../src/manifest/resolve.ts";
import { collect, failureOf, finishOf, REQUEST, textOf } from "../contract/model.ts";
import { DIALECTS, FakeApi, type FakeDialect } from "../fixtures/models/fake-apis.ts";
import { type RawHttpRequest, RawHttpServer } from "../fixtures/raw-http-server.ts";

const KEY = "sk-key-of-the-test-0123456789";
const PNG = "iVBORw0KGgo=";
const EVENTS = { "Content-Type": "text/event-stream" };

/** Opens models of one fake API. */
interface Setup {
  readonly api: FakeApi;
  readonly dialect: FakeDialect;
  open(given?: Partial<ModelSpec>, context?: Partial<ModelEnvironment>): Promise<Model>;
}

/** A test with the fake of each provider's API. */
function itWithEach(sentence: string, run: (setup: Setup) => Promise<void>): void {
  for (const dialect of DIALECTS) {
    const { provider } = dialect;
    const model = provider === "google" ? "gemini-x" : "model-x";
    it(`${sentence} (${provider})`, async () => {
      const api = await FakeApi.start(dialect);
      const base = { name: "main", provider, model, baseDir: "/", url: api.url, apiKey: KEY };
      try {
        await run({
          api,
          dialect,
          open: (given = {}, context = {}) =>
            createModel(makeModelSpec({ ...base, ...given }), {
              env: {},
              cwd: "/",
              schemes: new Map(),
              ...context,
            }),
        });
      } finally {
        api.server.destroy();
      }
    });
  }
}

/** An event stream of these bytes. */
const streamOf =
  (...chunks: readonly string[]) =>
  (request: RawHttpRequest): void => {
    const response = request.beginResponse(200, EVENTS);
    for (const chunk of chunks) response.write(chunk);
    response.end();
  };

/** What the second request of a conversation says, in the words of each API, without what all requests have. */
const SECOND_REQUESTS: Readonly<Record<string, object>> = {
  anthropic: {
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
    messages: [
      { role: "user", content: [{ type: "text", text: "Hello" }] },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Hm.", signature: "signature-1" },
          { type: "text", text: "Look:" },
          { type: "tool_use", id: "a", name: "files__read", input: { path: "x" } },
          { type: "tool_use", id: "b", name: "files__read", input: {} },
        ],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "a",
            content: [
              { type: "text", text: "see" },
              { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
            ],
          },
          {
            type: "tool_result",
            tool_use_id: "b",
            content: "no\n\nway",
            is_error: true,
            cache_control: { type: "ephemeral" },
          },
        ],
      },
    ],
    max_tokens: 5024,
    thinking: { type: "enabled", budget_tokens: 1024 },
  },
  openai: {
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
      {
        role: "assistant",
        content: "Look:",
        reasoning_content: "Hm.",
        tool_calls: [
          {
            id: "a",
            type: "function",
            function: { name: "files__read", arguments: '{"path":"x"}' },
          },
          { id: "b", type: "function", function: { name: "files__read", arguments: "{}" } },
        ],
      },
      { role: "tool", tool_call_id: "a", content: "see" },
      { role: "tool", tool_call_id: "b", content: "no\n\nway" },
      {
        role: "user",
        content: [
          { type: "text", text: "Pictures of the result of files__read:" },
          { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
        ],
      },
    ],
    max_tokens: 4000,
    temperature: 0.5,
    reasoning_effort: "low",
    stream_options: { include_usage: true },
  },
  google: {
    systemInstruction: { parts: [{ text: "Be brief." }] },
    contents: [
      { role: "user", parts: [{ text: "Hello" }] },
      {
        role: "model",
        parts: [
          { text: "Hm.", thought: true },
          { text: "Look:" },
          {
            functionCall: { id: "a", name: "files__read", args: { path: "x" } },
            thoughtSignature: "c2lnbmF0dXJl",
          },
          { functionCall: { id: "b", name: "files__read", args: {} } },
        ],
      },
      {
        role: "user",
        parts: [
          {
            functionResponse: {
              id: "a",
              name: "files__read",
              response: { name: "files__read", content: "see" },
              parts: [{ inlineData: { mimeType: "image/png", data: PNG } }],
            },
          },
          {
            functionResponse: {
              id: "b",
              name: "files__read",
              response: { name: "files__read", error: "no\n\nway" },
            },
          },
        ],
      },
    ],
    generationConfig: {
      maxOutputTokens: 4000,
      temperature: 0.5,
      thinkingConfig: { thinkingLevel: "low", includeThoughts: true },
    },
  },
};

/** A conversation after an answer with two calls and their results. */
async function converse(model: Model, api: FakeApi, provider = model): Promise<void> {
  api.answers.push({
    thinking: "Hm.",
    text: ["Look:"],
    calls: [
      { id: "a", name: "files__read", json: '{"path":"x"}' },
      { id: "b", name: "files__read", json: "{}" },
    ],
  });
  const parts = await collect(model);
  const result = { role: "tool", toolName: "files__read" } as const;
  const messages: readonly ModelMessage[] = [
    ...REQUEST.messages,
    {
      role: "assistant",
      text: textOf(parts),
      toolCalls: parts.filter((part) => part.type === "toolCall"),
      // As a saved conversation has it.
      providerState: JSON.parse(JSON.stringify(finishOf(parts).providerState)) as unknown,
    },
    {
      ...result,
      toolCallId: "a",
      isError: false,
      content: [
        { type: "text", text: "see" },
        { type: "image", mimeType: "image/png", data: PNG },
      ],
    },
    {
      ...result,
      toolCallId: "b",
      isError: true,
      content: [
        { type: "text", text: "no" },
        { type: "text", text: "way" },
      ],
    },
  ];
  api.answers.push({ text: ["ok"] });
  assert.equal(textOf(await collect(provider, { ...REQUEST, messages })), "ok");
}

describe("a request to a provider", () => {
  itWithEach("says all that was said, with signatures and pictures", async ({ api, ...setup }) => {
    const settings = { thinking: "low", maxTokens: 4000, temperature: 0.5, images: true } as const;
    await converse(await setup.open(settings), api);
    const {
      tools,
      model: _model,
      stream: _stream,
      ...rest
    } = api.bodies[1] as Record<string, unknown>;
    assert.deepEqual(rest, SECOND_REQUESTS[setup.dialect.provider]);
    assert.match(JSON.stringify(tools), /"files__read".*"Reads a file\."/);
    const [header, before] = setup.dialect.key;
    for (const { path, headers } of api.server.requests) {
      assert.equal(path, setup.dialect.path);
      assert.equal(headers.get(header), before + KEY);
    }
  });

  itWithEach(
    "has no signatures of another model, and no pictures that it does not take",
    async ({ api, open, dialect }) => {
      const other = { model: "other", images: false, thinking: "high" } as const;
      await converse(await open(), api, await open(other));
      const text = api.server.requests[1]?.body ?? "";
      assert.doesNotMatch(text, /signature|c2lnbmF0dXJl|Hm\./);
      // Anthropic would refuse to think after calls that came without.
      assert.equal(/"thinking|reasoning_effort/.test(text), dialect.provider !== "anthropic");
      assert.ok(!text.includes(PNG));
      assert.match(text, /picture left out/);
    },
  );

  itWithEach(
    "can repeat names that no tool has, arguments that are not JSON, texts that are not UTF-16, and tools whose schemas have alternatives",
    async ({ api, open }) => {
      api.answers.push({ text: ["ok"] });
      const call = { id: "a", name: "read a file!", argumentsJson: '{"path": oops' };
      const result = { role: "tool", toolCallId: "a", toolName: "read a file!" } as const;
      await collect(await open(), {
        instruction: "",
        messages: [
          ...REQUEST.messages,
          { role: "assistant", text: "", toolCalls: [call] },
          { ...result, isError: true, content: [{ type: "text", text: "\ud800" }] },
        ],
        tools: [{ name: "x", description: "", inputSchema: { anyOf: [{ type: "object" }] } }],
      });
      const [body = ""] = api.server.requests.map((request) => request.body);
      assert.match(body, /invalidArguments.{1,7}\{.{1,4}path.{1,4}: oops/);
      assert.doesNotMatch(body, /anyOf|file!|ud800/);
      assert.match(body, /"read_a_file_"/);
    },
  );

  /** The part of a request that says how much to think, by provider. */
  const THINKING: Readonly<Record<string, Readonly<Record<string, string>>>> = {
    anthropic: {
      off: '"thinking":{"type":"disabled"}',
      medium: '"budget_tokens":1229',
      high: '"budget_tokens":2458',
    },
    openai: {
      off: '"reasoning_effort":"none"',
      medium: '"reasoning_effort":"medium"',
      high: '"reasoning_effort":"high"',
    },
    google: {
      off: '"thinkingLevel":"minimal"',
      medium: '"thinkingLevel":"medium"',
      high: '"thinkingLevel":"high"',
    },
  };
  itWithEach("says how much to think only if the manifest does", async ({ api, open, dialect }) => {
    const expected = THINKING[dialect.provider] ?? {};
    for (const thinking of ["off", "medium", "high"] as const) {
      api.answers.push({ text: ["ok"] });
      await collect(await open({ thinking }));
      const body = api.server.requests.at(-1)?.body ?? "";
      assert.ok(body.includes(expected[thinking] ?? "?"), body);
    }
    api.answers.push({ text: ["ok"] });
    await collect(await open());
    assert.doesNotMatch(api.server.requests.at(-1)?.body ?? "", /thinking|reasoning/i);
  });

  /** The part of a request that asks for JSON of a schema, by provider. */
  const OUTPUT: Readonly<Record<string, RegExp>> = {
    anthropic: /"(?:output_config|output_format|tools)":.*"who"/,
    openai:
      /"response_format":\{"type":"json_schema","json_schema":\{"schema":.*"who".*"strict":true,"name":"person"/,
    google: /"responseMimeType":"application\/json","responseJsonSchema":.*"who"/,
  };
  itWithEach("asks for JSON of the agent's schema", async ({ api, open, dialect }) => {
    api.answers.push({ text: ["{}"] });
    const schema = {
      type: "object",
      properties: { who: { type: "string" } },
      required: ["who"],
      additionalProperties: false,
    };
    const output = { name: "person", strict: true, schema };
    await collect(await open({ topP: 0.5 }), { ...REQUEST, tools: [], output });
    const body = api.server.requests.at(-1)?.body ?? "";
    assert.match(body, OUTPUT[dialect.provider] ?? /never/);
    assert.match(body, /"(?:top_p|topP)":0\.5/);
  });

  itWithEach("reaches no other host", async ({ api, open }) => {
    const proxy = await RawHttpServer.start((request) => request.respond(502));
    const fetchBefore = globalThis.fetch;
    const refused: unknown[] = [];
    globalThis.fetch = ((input: unknown) => {
      refused.push(input);
      return Promise.reject(new Error("no network"));
    }) as typeof fetch;
    try {
      const url = `http://127.0.0.1:${proxy.port}`;
      const env = { HTTP_PROXY: url, HTTPS_PROXY: url, NO_PROXY: "127.0.0.1" };
      const model = await open({}, { env: { ...env, AI_GATEWAY_API_KEY: "x" } });
      await converse(model, api);
      assert.equal(api.server.requests.length, 2);
      assert.equal(proxy.connections, 0);
      assert.deepEqual(refused, []);
      // It would have been seen.
      const elsewhere = await open({ url: "http://model.test/v1" }, { env });
      await failureOf(collect(elsewhere));
      assert.equal(proxy.connections, 1);
    } finally {
      globalThis.fetch = fetchBefore;
      proxy.destroy();
    }
  });
});

/** What an API does, and the reason, the status and the wait (ms) that the error has. */
const FAULTS: readonly (readonly [
  what: string,
  act: (setup: Setup) => (request: RawHttpRequest) => void,
  reason: string,
  status?: number,
  retryAfter?: number,
])[] = [
  [
    "429 with seconds",
    ({ api }) =>
      (request) =>
        api.respondError(request, 429, "rate_limit_error", "Slow down.", { "Retry-After": "7" }),
    "rateLimit",
    429,
    7000,
  ],
  [
    "429 with milliseconds",
    ({ api }) =>
      (request) =>
        api.respondError(request, 429, "rate_limit_error", "x", {
          "Retry-After": "7",
          "Retry-After-Ms": "250",
        }),
    "rateLimit",
    429,
    250,
  ],
  [
    "429 with a date that has passed",
    ({ api }) =>
      (request) =>
        api.respondError(request, 429, "x", "x", { "Retry-After": new Date(0).toUTCString() }),
    "rateLimit",
    429,
    0,
  ],
  [
    "429 with a delay in its body",
    () => (request) =>
      request.respond(
        429,
        { "Content-Type": "application/json" },
        '{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"17.5s"}]}}',
      ),
    "rateLimit",
    429,
    17_500,
  ],
  [
    "500",
    ({ api }) =>
      (request) =>
        api.respondError(request, 500, "api_error", "x"),
    "overloaded",
    500,
  ],
  ["an empty 503", () => (request) => request.respond(503), "overloaded", 503],
  [
    "a page of a gateway",
    () => (request) => request.respond(502, { "Content-Type": "text/html" }, `<p>${KEY}</p>`),
    "overloaded",
    502,
  ],
  [
    "a long refusal that quotes the key",
    ({ api }) =>
      (request) =>
        api.respondError(request, 401, "authentication_error", `${KEY} ${"is wrong ".repeat(500)}`),
    "unauthorized",
    401,
  ],
  [
    "a redirect",
    () => (request) => request.respond(307, { Location: "http://127.0.0.1:1/elsewhere" }),
    "badRequest",
    307,
  ],
  [
    "an error in the middle of its stream",
    ({ dialect }) =>
      streamOf(
        ...dialect.events({ text: ["Hi"], ending: "cut" }),
        `event: error\ndata: ${JSON.stringify(
          dialect.error(503, "overloaded_error", `Overloaded ${KEY}`),
        )}\n\n`,
      ),
    "overloaded",
  ],
  ["a page", () => (request) => request.respond(200, {}, `<p>${KEY}</p>`), "badAnswer"],
  ["an empty stream", () => streamOf(), "badAnswer"],
  ["an event that is not JSON", () => streamOf(`data: {"a ${KEY}\n\n`), "badAnswer"],
  ["an event of another shape", () => streamOf(`data: {"a":"${KEY}"}\n\n`), "badAnswer"],
  ["an event with an array", () => streamOf(`data: [1]\n\n`), "badAnswer"],
  ["bytes of no text", () => streamOf("\u0000\ufffd\n\ndata", "\n\n"), "badAnswer"],
  [
    "an event that never ends",
    () => streamOf("data: ", ...Array.from({ length: 17 }, () => "x".repeat(1024 * 1024))),
    "badAnswer",
  ],
  [
    "an end in the middle of an event",
    ({ dialect }) => {
      const events = dialect.events({ text: ["Hello"] }).join("");
      return streamOf(events.slice(0, events.indexOf("Hello") + 3));
    },
    "badAnswer",
  ],
  ["the end of the connection", () => (request) => void request.socket.destroy(), "unreachable"],
  ["what is not HTTP", () => (request) => request.write("SSH-2.0\r\n\r\n"), "unreachable"],
];

describe("a request to a provider that answers with", () => {
  for (const [what, act, reason, status, retryAfter] of FAULTS) {
    itWithEach(`${what} fails with the reason ${reason}, and without the key`, async (setup) => {
      const { api } = setup;
      const secrets = new Set<string>();
      const model = await setup.open(
        { apiKey: "${env:MY_KEY}" },
        { env: { MY_KEY: KEY }, secrets },
      );
      assert.deepEqual([...secrets], [KEY]);
      api.answers.push(act(setup), { text: ["again"] });
      const error = await failureOf(collect(model));
      assert.equal(error.data?.["reason"], reason, error.message);
      if (status !== undefined) assert.equal(error.data?.["status"], status);
      assert.equal(error.data?.["retryAfter"], retryAfter);
      const texts = [error.message, error.hint, error.stack, JSON.stringify(error.toRpc())];
      assert.ok(!`${texts.join("\n")}${String(error.cause)}`.includes(KEY), error.message);
      assert.ok(Buffer.byteLength(error.message) <= 600, error.message);
      assert.equal(textOf(await collect(model)), "again");
    });
  }
});

describe("a compatible API that refuses optional members", () => {
  const refusals: readonly (readonly [string, number, string])[] = [
    [
      "names the member",
      422,
      '{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}',
    ],
    ["says so in its message", 400, '{"error":{"message":"Unknown parameter: stream_options"}}'],
    ["says nothing", 422, ""],
  ];
  for (const [how, status, body] of refusals) {
    it(`gets them once, if it ${how}`, async () => {
      const dialect = DIALECTS.find(({ provider }) => provider === "openai");
      assert.ok(dialect !== undefined);
      const api = await FakeApi.start(dialect);
      try {
        const spec = {
          name: "main",
          provider: "openai",
          model: "model-x",
          baseDir: "/",
          url: api.url,
        } as const;
        const environment = { env: {}, cwd: "/", schemes: new Map() };
        const model = await createModel(makeModelSpec(spec), environment);
        api.answers.push(
          (request) => request.respond(status, { "Content-Type": "application/json" }, body),
          { text: ["one"] },
          { text: ["two"] },
          { text: ["three"] },
        );
        assert.equal(textOf(await collect(model)), "one");
        assert.equal(textOf(await collect(model)), "two");
        const another = await createModel(makeModelSpec(spec), environment);
        assert.equal(textOf(await collect(another)), "three");
        const sent = api.bodies.map((one) => Object.hasOwn(one as object, "stream_options"));
        assert.deepEqual(sent, [true, false, false, false]);
      } finally {
        api.server.destroy();
      }
    });
  }

  it("has its other errors quoted, whatever their shape", async () => {
    const dialect = DIALECTS.find(({ provider }) => provider === "openai");
    assert.ok(dialect !== undefined);
    for (const [body, said] of [
      ['{"error":"just text"}', '"just text"'],
      ['{"detail":"not \\u001b[31mred"}', '"not \\u{1b}[31mred"'],
      ['{"detail":[{"msg":"too many"}]}', '"too many"'],
      ['{"error":{"message":null,"code":"x"},"message":"outer"}', '"outer"'],
      ["plain text", '"plain text"'],
      [`{"message":"${"x".repeat(2000)}"}`, `"${"x".repeat(499)}…"`],
    ] as const) {
      const api = await FakeApi.start(dialect);
      try {
        const spec = {
          name: "main",
          provider: "openai",
          model: "model-x",
          baseDir: "/",
          url: api.url,
        } as const;
        const model = await createModel(makeModelSpec(spec), {
          env: {},
          cwd: "/",
          schemes: new Map(),
        });
        api.answers.push((request) =>
          request.respond(400, { "Content-Type": "application/json" }, body),
        );
        const { message } = await failureOf(collect(model));
        assert.ok(message.includes(said), message);
      } finally {
        api.server.destroy();
      }
    }
  });
});

describe("the key of a provider", () => {
  const secretsOf = (values: Readonly<Record<string, string>>): SchemeResolvers => {
    const find = (name: string): Promise<string> => {
      const value = values[name];
      if (value !== undefined) return Promise.resolve(value);
      const data = { secrets: [name] };
      return Promise.reject(new HubError("valueMissing", "it is not set", { data }));
    };
    return new Map([["secret", find]]);
  };
  const VARIABLES: Readonly<Record<string, string>> = {
    anthropic: "ANTHROPIC_API_KEY",
    openai: "OPENAI_API_KEY",
    google: "GEMINI_API_KEY",
  };
  const OWN_URL = { url: undefined, apiKey: undefined };

  itWithEach(
    "is the secret or the variable with its name, and if there is none, it says how to set it",
    async ({ open, dialect }) => {
      const { provider } = dialect;
      for (const [values, env] of [
        [{ [provider]: KEY }, {}],
        [{}, { [VARIABLES[provider] ?? ""]: KEY }],
      ] as const) {
        const secrets = new Set<string>();
        await open(OWN_URL, { schemes: secretsOf(values), env, secrets });
        assert.deepEqual([...secrets], [KEY]);
      }
      await assert.rejects(open(OWN_URL, { schemes: secretsOf({}) }), (error: HubError) => {
        assert.equal(error.code, "valueMissing");
        assert.deepEqual(error.data, { secrets: [provider] });
        return error.message.includes(`toolmux secret set ${provider}`);
      });
    },
  );

  itWithEach(
    "goes to no other URL than its own, unless the manifest says so",
    async ({ api, open, dialect }) => {
      const [variable = ""] = [VARIABLES[dialect.provider]];
      const schemes = secretsOf({ [dialect.provider]: KEY });
      const model = await open({ apiKey: undefined }, { schemes, env: { [variable]: KEY } });
      api.answers.push({ text: ["ok"] });
      assert.equal(textOf(await collect(model)), "ok");
      const [request] = api.server.requests;
      assert.ok(!JSON.stringify([...(request?.headers ?? [])]).includes(KEY));
    },
  );

  itWithEach("that is refused is named in the hint", async ({ api, open, dialect }) => {
    const model = await open(
      { apiKey: "${secret:work/key}" },
      { schemes: secretsOf({ "work/key": KEY }) },
    );
    api.answers.push(
      dialect.provider === "google"
        ? (request) =>
            request.respond(
              400,
              { "Content-Type": "application/json" },
              '{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}',
            )
        : { failure: "unauthorized" },
    );
    const error = await failureOf(collect(model));
    assert.equal(error.data?.["reason"], "unauthorized");
    assert.match(error.hint ?? "", /toolmux secret set work\/key$/);
  });
});
