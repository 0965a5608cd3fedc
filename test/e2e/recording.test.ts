import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { readRecording } from "../../src/recording/reader.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import { EXIT_LIMIT, type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";
import { startRemote } from "../harness/remote-process.ts";
import { publishedServer, scripted, toToml } from "../harness/manifest.ts";

const ERAS = fileURLToPath(new URL("../fixtures/servers/eras.mjs", import.meta.url));
const TELLTALE = fileURLToPath(new URL("../fixtures/servers/leak-settings.mjs", import.meta.url));

function start(setup: TestFolder, ...args: string[]): RawClient {
  return new RawClient(executable(), args, setup.dir, setup.env);
}

function record(setup: TestFolder, ...more: string[]): RawClient {
  return start(setup, "--config", setup.config, "--record", "r.jsonl", ...more);
}

async function leave(client: RawClient): Promise<number | null> {
  client.end();
  return (await client.waitForExit(EXIT_LIMIT)).code;
}

function read({ dir }: TestFolder): string {
  return readFileSync(join(dir, "r.jsonl"), "utf8");
}

/** What a client hears of two servers of everything, without what is another each time. */
async function openedPage(client: RawClient): Promise<string[]> {
  await client.initialize("2025-11-25", { sampling: {}, roots: {} });
  client.send({ jsonrpc: "2.0", method: "notifications/roots/list_changed" });
  await client.request("tools/list");
  for (const server of ["all", "far"])
    await client.call(`${server}__echo`, '{"message":"ü 1.0 \\u2028"}');
  const meta = '"_meta":{"progressToken":"t"}';
  const slow =
    '"name":"all__trigger-long-running-operation","arguments":{"duration":0.2,"steps":3}';
  await client.response(client.sendRequest("tools/call", `{${slow},${meta}}`));
  const sampled = client.sendCall("all__trigger-sampling-request", { prompt: "p", maxTokens: 5 });
  const { message: question } = await client.find(
    ({ method }) => method === "sampling/createMessage",
    "the question",
  );
  const content = { type: "text", text: "sampled" };
  const result = { role: "assistant", content, model: "m" };
  client.send({ jsonrpc: "2.0", id: question.id, result });
  await client.response(sampled);
  await client.request("resources/read", { uri: "demo://resource/dynamic/text/1" });
  await client.request("prompts/get", { name: "all__simple-prompt" });
  return client.lines
    .map(({ text }) => text)
    .filter(
      (text) =>
        !/list_changed|"method":"notifications\/message"|^\{"jsonrpc":"2.0","id":"?toolmux/.test(
          text,
        ),
    );
}

describe("a recorded hub", () => {
  it("is replayed without its servers, over stdio and HTTP, and every answer is the same to the byte", async () => {
    const remote = await startRemote("http");
    const servers = {
      all: publishedServer("everything", ["stdio"]),
      far: { url: remote.url, transport: "http" },
    };
    try {
      await withTestFolder({ servers }, async (setup) => {
        const first = record(setup);
        const received = await openedPage(first);
        assert.equal(await leave(first), 0);
        await remote.stop();
        assert.equal(statSync(join(setup.dir, "r.jsonl")).mode & 0o777, 0o600);
        const { notes } = readRecording(Buffer.from(read(setup)), "r");
        assert.deepEqual(notes, []);
        const again = start(setup, "replay", "r.jsonl", "--speed", "max", "--strict");
        assert.deepEqual(await openedPage(again), received);
        assert.equal(await leave(again), 0, again.stderr);
        assert.match(again.stderr, /replayed: .* 0 not recorded, 0 recorded and never made/);
      });
    } finally {
      await remote.stop();
    }
  });

  for (const era of ["modern", "brittle"]) {
    it(`is replayed also where its server spoke otherwise than its client (${era})`, () =>
      withTestFolder(
        { servers: { s: { command: process.execPath, args: [ERAS, era] } } },
        async (setup) => {
          const converse = async (client: RawClient): Promise<unknown> => {
            await client.initialize("2025-11-25", { elicitation: { form: {} } });
            const { message: listed } = await client.request("tools/list");
            if (era === "brittle") return listed.result;
            const id = client.sendCall("s__ask");
            const { message: question } = await client.find(
              ({ method }) => method === "elicitation/create",
              "a question",
            );
            const result = { action: "accept", content: { name: "Ada" } };
            client.send({ jsonrpc: "2.0", id: question.id, result });
            const { message } = await client.response(id);
            return [listed.result, question.params, message.result];
          };
          const first = record(setup);
          const received = await converse(first);
          await leave(first);
          const again = start(setup, "replay", "r.jsonl", "--speed", "max", "--strict");
          assert.deepEqual(await converse(again), received);
          assert.equal(await leave(again), 0, again.stderr);
        },
      ));
  }

  it("is replayed server by server, from a manifest in which they stand as commands", () =>
    withTestFolder({ servers: { a: scripted(), b: scripted() } }, async (setup) => {
      const first = record(setup);
      const tools = await first.initializeAndList();
      const { message } = await first.call("b__echo", '{"n":1.0}');
      await leave(first);
      const args = (server: string): string[] => ["replay", "r.jsonl", "--server", server];
      const servers = Object.fromEntries(
        ["a", "b"].map((name) => [
          name,
          { command: executable(), args: args(name), cwd: setup.dir },
        ]),
      );
      writeFileSync(join(setup.dir, "played.toml"), toToml({ servers }));
      const again = start(setup, "--config", "played.toml");
      assert.deepEqual(await again.initializeAndList(), tools);
      assert.deepEqual((await again.call("b__echo", '{"n":1.0}')).message.result, message.result);
      const { message: other } = await again.call("b__echo", '{"n":2}');
      assert.equal(other.error?.code, -31009);
      assert.equal(await leave(again), 0);
    }));

  it("ends with 1 under --strict if its client diverges, and says where", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const first = record(setup);
      await first.initializeAndList();
      await first.call("a__echo", { n: 1 });
      await leave(first);
      for (const [more, code] of [
        [["--strict"], 1],
        [[], 0],
      ] as const) {
        const again = start(setup, "replay", "r.jsonl", "--speed", "max", ...more);
        await again.initializeAndList();
        const { message } = await again.call("a__echo", { n: 2 });
        assert.match(
          message.error?.message ?? "",
          /the nearest is on line \d+, with arguments\.n 1 and not 2/,
        );
        assert.equal(await leave(again), code);
        assert.match(again.stderr, /diverged: a: tools\/call of echo was not recorded/);
      }
    }));

  it("has left whole lines to its last message when it is killed", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const first = record(setup);
      await first.initializeAndList();
      await first.call("a__echo", { marker: "last" });
      await poll(
        5000,
        () => "the answer in the recording",
        () => read(setup).split('"client":1,"way":"sent"').length > 3 || undefined,
      );
      first.signal("SIGKILL");
      await first.waitForExit(EXIT_LIMIT);
      const { notes } = readRecording(Buffer.from(read(setup)), "r");
      assert.deepEqual(notes, ["It has no end: its hub was killed, or still runs."]);
      const again = start(setup, "replay", "r.jsonl", "--speed", "max");
      await again.initializeAndList();
      assert.ok((await again.call("a__echo", { marker: "last" })).message.result);
      await leave(again);
    }));

  it("has servers that die where they died, and come back", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const converse = async (client: RawClient): Promise<readonly unknown[]> => {
        await client.initializeAndList();
        const { message: lost } = await client.call("a__die");
        const { message: found } = await client.call("a__echo", { n: 1 });
        return [lost.result?.isError, found.result];
      };
      const first = record(setup);
      const received = await converse(first);
      await leave(first);
      assert.ok(read(setup).includes(`"run":1,"event":"closed","by":"peer"`));
      assert.ok(read(setup).includes(`"run":2,"event":"opening"`));
      const again = start(setup, "replay", "r.jsonl", "--speed", "max", "--strict");
      assert.deepEqual(await converse(again), received);
      assert.equal(received[0], true);
      assert.equal(await leave(again), 0, again.stderr);
    }));

  it("goes on when its recording is full", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const first = record(setup, "--record-limit", "8KiB");
      await first.initializeAndList();
      for (let n = 0; n < 30; n++) assert.ok((await first.call("a__echo", { n })).message.result);
      assert.equal(await leave(first), 0);
      assert.ok(read(setup).length <= 8192);
      assert.match(read(setup), /"event":"full","limit":8192\}\n$/);
      assert.match(first.stderr, /warn the recording ends here: it has reached its size limit/);
    }));

  it("is not begun over what is no recording, or with a limit that is none", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      writeFileSync(join(setup.dir, "r.jsonl"), "mine");
      for (const [args, why] of [
        [["--record", "r.jsonl"], /r\.jsonl exists and is not a recording/],
        [["--record", "none/r"], /The recording cannot be written/],
        [["--record", "s.jsonl", "--record-limit", "5"], /--record-limit must be a size/],
        [["--record-limit", "5MB"], /it needs --record/],
        [["replay", "r.jsonl"], /r\.jsonl is no recording of toolmux/],
        [["replay", "none"], /none: ENOENT/],
      ] as const) {
        const config = args[0] === "replay" ? [] : ["--config", setup.config];
        const client = start(setup, ...args, ...config);
        assert.equal(await leave(client), 2, client.stderr);
        assert.match(client.stderr, why);
      }
      assert.equal(read(setup), "mine");
    }));
});

const CANARIES = {
  variable: "canary-of-the-environment",
  quoted: 'canary "of" \\ umläut/',
  bearer: "canary-bearer-of-the-face",
};

/** Every spelling of every canary that is in a text. */
function findCanaries(text: string): string[] {
  return Object.values(CANARIES)
    .flatMap((value) => [
      value,
      JSON.stringify(value).slice(1, -1),
      JSON.stringify(JSON.stringify(value)).slice(3, -3),
      JSON.stringify(value).slice(1, -1).replace("ä", "\\u00e4"),
      encodeURIComponent(value),
      Buffer.from(value).toString("base64"),
      Buffer.from(`user:${value}`).toString("base64").slice(8, -4),
    ])
    .filter((spelling) => text.includes(spelling));
}

describe("a recording", () => {
  it("has nothing of what servers are given that must not be shown, whoever says it", () => {
    const env = { CANARY_1: "${env:SOURCE_1}", CANARY_2: "${env:SOURCE_2}" };
    const tell = { command: process.execPath, args: [TELLTALE, "serve"], env };
    return withTestFolder({ servers: { tell } }, async (bare) => {
      const given = { SOURCE_1: CANARIES.variable, SOURCE_2: CANARIES.quoted };
      const setup = { ...bare, env: { ...bare.env, ...given, FACE: CANARIES.bearer } };
      const http = ["--http", "127.0.0.1:0", "--http-token-env", "FACE", "--stdio"];
      const client = record(setup, ...http);
      await client.initializeAndList();
      const escaped = JSON.stringify(CANARIES.quoted).replace("ä", "\\u00e4").replace("/", "\\/");
      await client.call("tell__tell", `{"said":${escaped},"plain":"${CANARIES.variable}"}`);
      await client.call("tell__tell", { token: CANARIES.bearer, in: JSON.stringify(CANARIES) });
      const url = await client.until(
        5000,
        "the address",
        () => /http:\S+/.exec(client.stderr)?.[0],
      );
      const meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { name: "n", version: CANARIES.variable },
      };
      const params = { name: "tell__tell", arguments: { over: "http" }, _meta: meta };
      const response = await fetch(url, {
        method: "POST",
        headers: {
          Authorization: `Bearer ${CANARIES.bearer}`,
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
          "MCP-Protocol-Version": "2026-07-28",
          "Mcp-Method": "tools/call",
          "Mcp-Name": "tell__tell",
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
      });
      assert.equal(response.status, 200, await response.text());
      await leave(client);
      const text = read(setup);
      assert.deepEqual(findCanaries(text), []);
      assert.match(text, /\[redacted\]/);
      const lines = text
        .split("\n")
        .slice(0, -1)
        .map((line) => JSON.parse(line) as object);
      const plain = JSON.stringify(lines).replaceAll("\\", "");
      assert.ok(!plain.includes("umläut") && !plain.includes("umlu00e4ut"), "no part of one");
      assert.match(text, /"client":2,"way":"received","message":.*"over":"http"/);
      assert.match(text, /"client":2,"way":"sent","message":/);
      assert.match(text, /"event":"log","level":"\w+","source":"stderr"/);
    });
  });
});
