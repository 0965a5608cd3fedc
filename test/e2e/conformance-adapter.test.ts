import assert from "node:assert/strict";
import { describe } from "node:test";
import { StdioAdapter } from "../conformance/stdio-adapter.ts";
import { MODERN_VERSION, modernRequest } from "../fixtures/modern-requests.ts";
import { type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import type { RpcMessage } from "../harness/message.ts";

/** Gives `run` an adapter in front of the executable, which has one scripted server, under its own names. */
function withAdapter(
  run: (adapter: StdioAdapter, setup: TestFolder) => Promise<void>,
): Promise<void> {
  return withTestFolder({ servers: { s: scripted("", { prefix: "" }) } }, async (setup) => {
    const args = ["serve", "--config", setup.config];
    const adapter = new StdioAdapter({
      command: executable(),
      args,
      cwd: setup.dir,
      env: { ...setup.env },
    });
    try {
      await run(adapter, setup);
    } finally {
      await adapter.close();
    }
  });
}

const URL = "http://localhost/mcp";
const HEADERS = {
  Host: "localhost",
  "Content-Type": "application/json",
  Accept: "application/json, text/event-stream",
};

function post(
  { fetch }: StdioAdapter,
  body: object,
  headers: Readonly<Record<string, string>>,
  signal?: AbortSignal,
): Promise<Response> {
  const init = { method: "POST", headers: { ...HEADERS, ...headers }, body: JSON.stringify(body) };
  return fetch(new Request(URL, signal === undefined ? init : { ...init, signal }));
}

/** Calls a tool as a modern client does. */
function callModern(
  adapter: StdioAdapter,
  name: string,
  params: Readonly<Record<string, unknown>>,
  signal?: AbortSignal,
): Promise<Response> {
  const headers = {
    "MCP-Protocol-Version": MODERN_VERSION,
    "Mcp-Method": "tools/call",
    "Mcp-Name": name,
  };
  return post(adapter, modernRequest(1, "tools/call", { name, ...params }), headers, signal);
}

/** The messages of a stream of events, each as soon as it is there. */
async function* read(response: Response): AsyncGenerator<RpcMessage> {
  assert.equal(response.headers.get("Content-Type"), "text/event-stream");
  assert.ok(response.body);
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const data = /^data: (\{.*)$/m.exec(event)?.[1];
      if (data !== undefined) yield JSON.parse(data) as RpcMessage;
    }
  }
}

async function readAll(response: Response): Promise<RpcMessage[]> {
  const messages: RpcMessage[] = [];
  for await (const message of read(response)) messages.push(message);
  return messages;
}

/** Begins a legacy session whose client has a model. @returns its id */
async function begin(adapter: StdioAdapter): Promise<string> {
  const params = {
    protocolVersion: "2025-11-25",
    capabilities: { sampling: {} },
    clientInfo: { name: "c", version: "1" },
  };
  const response = await post(adapter, { jsonrpc: "2.0", id: 0, method: "initialize", params }, {});
  const id = response.headers.get("Mcp-Session-Id") ?? "";
  await readAll(response);
  await post(adapter, { jsonrpc: "2.0", method: "notifications/initialized" }, sessionOf(id));
  return id;
}

function sessionOf(id: string): Record<string, string> {
  return { "Mcp-Session-Id": id, "MCP-Protocol-Version": "2025-11-25" };
}

const call = (id: unknown, name: string, args: object = {}, more: object = {}): object => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, arguments: args, ...more },
});

describe("the adapter of the conformance suites", () => {
  it("keeps modern requests with the same id and progress token apart, though they share a process", () =>
    withAdapter(async (adapter, { log }) => {
      const _meta = { progressToken: "same" };
      const responses = await Promise.all(
        [2, 3].map((steps) =>
          callModern(adapter, "progress", { arguments: { steps, ms: 20 }, _meta }),
        ),
      );
      const streams = await Promise.all(responses.map(readAll));
      for (const [index, messages] of streams.entries()) {
        const reported = messages.slice(0, -1);
        assert.equal(reported.length, index + 2);
        for (const { method, params } of reported) {
          assert.equal(method, "notifications/progress");
          assert.equal((params as { progressToken: unknown }).progressToken, "same");
        }
        assert.equal(messages.at(-1)?.id, 1);
        assert.ok(messages.at(-1)?.result);
      }
      assert.equal(log("s").filter(({ event }) => event === "start").length, 1);
    }));

  it("cancels a modern request whose response is closed, and no other", () =>
    withAdapter(async (adapter, setup) => {
      const gone = new AbortController();
      void callModern(adapter, "hang", { arguments: {} }, gone.signal);
      const { id } = await setup.waitForEvent("s", ({ event }) => event === "call");
      const other = callModern(adapter, "sleep", { arguments: { ms: 100, x: 1 } });
      gone.abort();
      const { requestId } = await setup.waitForEvent("s", ({ event }) => event === "cancelled");
      assert.equal(requestId, id);
      const answer = (await (await other).json()) as RpcMessage;
      assert.ok(answer.result);
      assert.equal(setup.log("s").filter(({ event }) => event === "cancelled").length, 1);
    }));

  it("refuses a modern request whose headers say something else, and answers what does not exist with 404", () =>
    withAdapter(async (adapter) => {
      const headers = { "MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "tools/list" };
      const wrong = await post(adapter, modernRequest(1, "prompts/list"), headers);
      const { error } = (await wrong.json()) as RpcMessage;
      assert.deepEqual([wrong.status, error?.code], [400, -32020]);
      const odd = { ...headers, "Mcp-Method": "tools/frobnicate" };
      const missing = await post(adapter, modernRequest(1, "tools/frobnicate"), odd);
      const answer = (await missing.json()) as RpcMessage;
      assert.deepEqual([missing.status, answer.error?.code], [404, -32601]);
    }));

  it("gives each legacy session a process, ends it with the session, and does not take a lost stream for a cancellation", () =>
    withAdapter(async (adapter, setup) => {
      const [one, two] = [await begin(adapter), await begin(adapter)];
      assert.notEqual(one, two);
      const gone = new AbortController();
      const hanging = post(adapter, call(1, "hang"), sessionOf(one), gone.signal);
      await setup.waitForEvent("s", ({ event }) => event === "call");
      await (await hanging).body?.cancel();
      gone.abort();
      const pids = await Promise.all(
        [one, two].map(async (id) => {
          const messages = await readAll(await post(adapter, call(2, "pid"), sessionOf(id)));
          return JSON.stringify(messages.at(-1)?.result);
        }),
      );
      assert.equal(new Set(pids).size, 2);
      assert.equal(setup.log("s").filter(({ event }) => event === "cancelled").length, 0);
      const end = new Request(URL, {
        method: "DELETE",
        headers: { ...HEADERS, ...sessionOf(one) },
      });
      assert.equal((await adapter.fetch(end)).status, 200);
      await setup.waitForEvent("s", ({ event }) => event === "eof" || event === "signal");
      assert.equal((await post(adapter, call(3, "pid"), sessionOf(one))).status, 404);
      await readAll(await post(adapter, call(3, "pid"), sessionOf(two)));
    }));

  it("asks a legacy client on the stream of the only call that is open", () =>
    withAdapter(async (adapter) => {
      const session = sessionOf(await begin(adapter));
      const messages = read(await post(adapter, call(7, "ask"), session));
      const question = (await messages.next()).value as RpcMessage;
      assert.equal(question.method, "sampling/createMessage");
      const answer = {
        jsonrpc: "2.0",
        id: question.id,
        result: { role: "assistant", model: "m", content: { type: "text", text: "!" } },
      };
      assert.equal((await post(adapter, answer, session)).status, 202);
      const last = (await messages.next()).value as RpcMessage;
      assert.equal(last.id, 7);
      assert.ok(last.result);
    }));
});
