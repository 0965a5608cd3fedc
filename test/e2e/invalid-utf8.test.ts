import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { Buffer, isUtf8 } from "node:buffer";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { withHttpServe } from "../harness/serve.ts";
import { executable, it, itWith, withHub, withTestFolder } from "../harness/hub.ts";
import { scripted, type ServerEntry } from "../harness/manifest.ts";
import { SKIP_WITHOUT_PYTHON, PYTHON, pythonScript } from "../harness/python.ts";

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

  itWith({ skip: SKIP_WITHOUT_PYTHON })(
    "ends no session of a client made with the Python SDK",
    () =>
      withTestFolder({ servers: { raw: latin("raw"), good: scripted() } }, async (setup) => {
        const args = [
          "-W",
          "ignore",
          pythonScript("strict_utf8.py"),
          executable(),
          "--config",
          setup.config,
        ];
        const { stdout } = await promisify(execFile)(PYTHON, args, {
          cwd: setup.dir,
          env: { ...setup.env },
          timeout: 40_000,
        });
        assert.deepEqual(JSON.parse(stdout), {
          description: "caf\ufffd",
          raw: "\ufffd",
          good: '{"still":"there"}',
        });
      }),
  );
});

describe("text of a client that is not valid UTF-8", () => {
  it("is refused with the id of its request, and no server sees it", () =>
    withHub({ servers: { raw: latin("raw") } }, async ({ client }) => {
      await client.initializeAndList();
      for (const id of ['"a"', "41"]) {
        const message = await client.sendAndReceive(calling(id, "raw__raw"));
        assert.deepEqual([message.id, message.error?.code], [JSON.parse(id), -32700]);
      }
      const { message } = await client.call("raw__fine", { still: "there" });
      // Only the listed tool is known.
      assert.ok(message.error);
      const again = await client.call("raw__raw", { hex: "61" });
      assert.equal(again.message.result?.content?.[0]?.text, "a");
    }));

  it("makes an answer to a server's question an error there, and no answer to the client", () =>
    withHub({ servers: { ask: latin("ask") } }, async ({ client }) => {
      await client.initialize("2025-11-25", { elicitation: {} });
      await client.request("tools/list");
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
    }));

  it("makes a notification one that is dropped and logged", () =>
    withHub({ servers: { raw: latin("raw") } }, async ({ client }) => {
      await client.initializeAndList();
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
    }));

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

  it("is answered over HTTP with status 400 and the id of its request, in both eras", () =>
    withHttpServe({ servers: { raw: latin("raw") } }, async ({ target: reach }) => {
      const post = (
        body: Buffer | string,
        headers: Record<string, string> = {},
      ): Promise<Response> =>
        fetch(reach, {
          method: "POST",
          headers: {
            "Content-Type": "application/json",
            Accept: "application/json, text/event-stream",
            ...headers,
          },
          body: body as BodyInit,
        });
      const introduction = {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "raw", version: "1" },
      };
      const first = await post(
        `\ufeff${JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params: introduction })}`,
      );
      assert.equal(first.status, 200, "a byte order mark is no fault");
      await first.text();
      const session = { "Mcp-Session-Id": first.headers.get("Mcp-Session-Id") ?? "" };
      const modern = { "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call" };
      for (const headers of [session, modern]) {
        const answer = await post(calling('"b"', "raw__raw"), headers);
        const bytes = Buffer.from(await answer.arrayBuffer());
        assert.ok(isUtf8(bytes));
        const { id, error } = JSON.parse(bytes.toString()) as {
          id: unknown;
          error: { code: number };
        };
        assert.deepEqual([answer.status, id, error.code], [400, "b", -32700]);
      }
    }));

  it("makes an answer to a server's question an error there, over HTTP as well", () =>
    withHttpServe({ servers: { ask: latin("ask") } }, async ({ target: reach }) => {
      const headers: Record<string, string> = {
        "Content-Type": "application/json",
        Accept: "application/json, text/event-stream",
      };
      const post = (body: Buffer | string): Promise<Response> =>
        fetch(reach, { method: "POST", headers, body: body as BodyInit });
      const clientInfo = { name: "raw", version: "1" };
      const params = {
        protocolVersion: "2025-11-25",
        capabilities: { elicitation: {} },
        clientInfo,
      };
      const first = await post(
        JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params }),
      );
      await first.text();
      headers["Mcp-Session-Id"] = first.headers.get("Mcp-Session-Id") ?? "";
      await (await post('{"jsonrpc":"2.0","method":"notifications/initialized"}')).text();
      await (await post('{"jsonrpc":"2.0","id":1,"method":"tools/list"}')).text();
      const call = await post(
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask__ask","arguments":{"hex":"3f"}}}',
      );
      let said = "";
      let answered: Response | undefined;
      assert.ok(call.body !== null);
      for await (const chunk of call.body) {
        said += Buffer.from(chunk).toString();
        const id = /"id":("[^"]+"),"method":"elicitation/.exec(said)?.[1];
        if (id === undefined || answered !== undefined) continue;
        answered = await post(broken(`{"jsonrpc":"2.0","id":${id},"result":{"action":"`, '"}}'));
      }
      assert.equal(answered?.status, 400);
      assert.match(said, /\\"code\\":-32603/);
    }));
});

describe("a byte order mark", () => {
  it("may stand before any message of a client", () =>
    withHub({ servers: { raw: latin("raw") } }, async ({ client }) => {
      await client.initializeAndList();
      const message = await client.sendAndReceive(
        '\ufeff{"jsonrpc":"2.0","id":1001,"method":"ping"}',
      );
      assert.deepEqual([message.id, message.result], [1001, {}]);
    }));
});
