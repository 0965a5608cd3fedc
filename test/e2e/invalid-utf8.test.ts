import assert from "node:assert/strict";
import { Buffer, isUtf8 } from "node:buffer";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { type Hub, it, shareInSuite, withHub } from "../harness/hub.ts";
import { serveForSuite } from "../harness/serve.ts";
import type { ServerEntry } from "../harness/manifest.ts";

const LATIN = fileURLToPath(new URL("../fixtures/servers/invalid-utf8.mjs", import.meta.url));
const latin = (tool: string): ServerEntry => ({ command: process.execPath, args: [LATIN, tool] });

/** A line with bytes in it that are in no character. */
const broken = (before: string, behind: string): Buffer =>
  Buffer.concat([Buffer.from(before), Buffer.of(0xff), Buffer.from(behind)]);
const calling = (id: string, tool: string): Buffer =>
  broken(
    `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${tool}","arguments":{"a":"`,
    '"}}}',
  );

// withHub fails if a line of the hub is not valid UTF-8.
describe("text of a server that is not valid UTF-8", () => {
  it("reaches the client with U+FFFD in it, in listings, results, log lines and questions, and is told of once", () =>
    withHub(
      { servers: Object.fromEntries(["raw", "note", "ask"].map((tool) => [tool, latin(tool)])) },
      async ({ client }) => {
        await client.initialize("2025-11-25", { elicitation: {} });
        const listed = await client.request("tools/list");
        const tools = listed.message.result?.tools ?? [];
        assert.deepEqual(
          tools.map(({ description }) => description),
          ["caf\ufffd", "caf\ufffd", "caf\ufffd"],
        );
        for (const [hex, text] of [
          ["ff", "\ufffd"],
          ["e282c3a9", "\ufffdé"],
          ["f09f9880", "😀"],
          ["61".repeat(300_000), "a".repeat(300_000)],
          [`${"e282ac".repeat(100_000)}ff`, `${"€".repeat(100_000)}\ufffd`],
        ] as const) {
          const { message } = await client.call("raw__raw", { hex });
          assert.ok(message.result?.content?.[0]?.text === text, hex.slice(0, 20));
        }
        await client.call("note__note", { hex: "6ce9" });
        const log = await client.find(
          ({ method }) => method === "notifications/message",
          "a log line",
        );
        assert.equal(log.message.params?.["data"], "l\ufffd");
        const call = client.sendCall("ask__ask", { hex: "3fff" });
        const question = await client.find(
          ({ method }) => method === "elicitation/create",
          "a question",
        );
        assert.equal(question.message.params?.["message"], "[ask] ?\ufffd");
        const id = JSON.stringify(question.message.id);
        client.send(`{"jsonrpc":"2.0","id":${id},"result":{"action":"decline"}}`);
        const { message } = await client.response(call);
        assert.equal(message.result?.content?.[0]?.text, '{"result":{"action":"decline"}}');
        for (const server of ["raw", "note", "ask"]) {
          const reported = client.stderr
            .split("\n")
            .filter((line) => line.includes(` ${server}: `));
          assert.equal(reported.length, 1, client.stderr);
          assert.match(reported[0] ?? "", /UTF-8/);
        }
      },
    ));
});

describe("text of a client that is not valid UTF-8", () => {
  const servers = { raw: latin("raw"), ask: latin("ask") };
  const hub = shareInSuite<Hub>((use) =>
    withHub({ servers }, async (running) => {
      await running.client.initialize("2025-11-25", { elicitation: {} });
      await running.client.request("tools/list");
      await use(running);
    }),
  );

  it("is refused with the id of its request, and no server sees it", async () => {
    const { client } = hub();
    for (const id of ['"a"', "41"]) {
      const message = await client.sendAndReceive(calling(id, "raw__raw"));
      assert.deepEqual([message.id, message.error?.code], [JSON.parse(id), -32700]);
    }
    // The server would have ended.
    const { message } = await client.call("raw__raw", { hex: "61" });
    assert.equal(message.result?.content?.[0]?.text, "a");
  });

  it("makes an answer to a server's question an error there, and no answer to the client", async () => {
    const { client } = hub();
    for (const shape of ["id first", "id last"]) {
      const from = client.lines.length;
      const call = client.sendCall("ask__ask", { hex: "3f" });
      const asked = await client.find(
        ({ method }) => method === "elicitation/create",
        "a question",
        { from },
      );
      const id = JSON.stringify(asked.message.id);
      const before = '"result":{"action":"accept","content":{"a":"';
      const line =
        shape === "id first"
          ? broken(`{"jsonrpc":"2.0","id":${id},${before}`, '"}}}')
          : broken(`{"jsonrpc":"2.0",${before}`, `"}},"id":${id}}`);
      client.write(line);
      client.write("\n");
      const { message } = await client.response(call);
      const text = message.result?.content?.[0]?.text ?? "";
      const { error } = JSON.parse(text) as { error?: { code: number } };
      assert.equal(error?.code, -32603, text);
      assert.deepEqual(
        client.lines.slice(from).filter(({ json }) => (json as { id?: unknown }).id === null),
        [],
      );
    }
  });

  it("makes a notification one that is dropped and logged", async () => {
    const { client } = hub();
    const line = broken(
      '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"',
      '"}}',
    );
    assert.deepEqual(await client.sendAndCollect(line), []);
    await client.until(
      5000,
      "a line in the log",
      () => /notification.*UTF-8/.exec(client.stderr) ?? undefined,
    );
  });

  it("spoils in a batch only its own message", () =>
    withHub({ servers: { raw: latin("raw") } }, async ({ client }) => {
      await client.initializeAndList("2025-03-26");
      const note = broken('{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"', '"}}');
      const batch = Buffer.concat([
        Buffer.from('[{"jsonrpc":"2.0","id":1001,"method":"ping"},'),
        calling("1002", "raw__raw"),
        Buffer.from(","),
        note,
        Buffer.from("]"),
      ]);
      const [line] = await client.sendAndCollect(batch);
      const answers = line?.json as { id: number; error?: { code: number } }[];
      const reported = new Map(answers.map(({ id, error }) => [id, error?.code]));
      assert.equal(answers.length, 2);
      assert.deepEqual([reported.get(1001), reported.get(1002)], [undefined, -32700]);
    }));

  describe("over HTTP", () => {
    const served = serveForSuite("HTTP", () => ({ servers }));

    const post = (body: Buffer | string, headers: Record<string, string> = {}): Promise<Response> =>
      fetch(String(served().target), {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
          ...headers,
        },
        body: body as BodyInit,
      });

    /** Opens a session; a byte order mark is no fault. @returns its header */
    async function open(): Promise<Record<string, string>> {
      const params = {
        protocolVersion: "2025-11-25",
        capabilities: { elicitation: {} },
        clientInfo: { name: "raw", version: "1" },
      };
      const first = await post(
        `\ufeff${JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params })}`,
      );
      assert.equal(first.status, 200);
      await first.text();
      return { "Mcp-Session-Id": first.headers.get("Mcp-Session-Id") ?? "" };
    }

    it("is answered with status 400 and the id of its request, in both eras", async () => {
      const modern = { "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call" };
      for (const headers of [await open(), modern]) {
        const answer = await post(calling('"b"', "raw__raw"), headers);
        const bytes = Buffer.from(await answer.arrayBuffer());
        assert.ok(isUtf8(bytes));
        const { id, error } = JSON.parse(bytes.toString()) as {
          id: unknown;
          error: { code: number };
        };
        assert.deepEqual([answer.status, id, error.code], [400, "b", -32700]);
      }
    });

    it("makes an answer to a server's question an error there", async () => {
      const session = await open();
      for (const message of [
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
      ])
        await (await post(message, session)).text();
      const call = await post(
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask__ask","arguments":{"hex":"3f"}}}',
        session,
      );
      let said = "";
      let answered: Response | undefined;
      assert.ok(call.body !== null);
      for await (const chunk of call.body) {
        said += Buffer.from(chunk).toString();
        const id = /"id":("[^"]+"),"method":"elicitation/.exec(said)?.[1];
        if (id === undefined || answered !== undefined) continue;
        answered = await post(
          broken(`{"jsonrpc":"2.0","id":${id},"result":{"action":"`, '"}}'),
          session,
        );
      }
      assert.equal(answered?.status, 400);
      assert.match(said, /\\"code\\":-32603/);
    });
  });

  it("is not what begins with a byte order mark: any message may", async () => {
    const ping = '\ufeff{"jsonrpc":"2.0","id":1001,"method":"ping"}';
    const message = await hub().client.sendAndReceive(ping);
    assert.deepEqual([message.id, message.result], [1001, {}]);
  });
});
