import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  LoggingMessageNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { type RunningHttpServer, startHttpServer } from "../../src/frontend/http/server.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { poll } from "../harness/wait.ts";
import { type Json, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";
import { sendServerRequest } from "../fixtures/server-requests.ts";
import { EventStreamReader, setUpHttp, type HttpTestClient } from "../fixtures/http-client.ts";
import { modernRequest, MODERN_VERSION, inputRoundOf } from "../fixtures/modern-requests.ts";

const SAMPLING = "sampling/createMessage";
const SAMPLE = { messages: [], maxTokens: 1 };
/** How long a request that was given up counts as open, in ms. */
const LIMIT = 10 * 60_000;

/** A server on a pipe whose calls wait until the test answers them. */
class Waiting extends ScriptedServer {
  readonly calls: Json[] = [];
  override onCall = (message: Json): undefined => void this.calls.push(message);
  override onInitialize = (): string =>
    `"result":${JSON.stringify({
      protocolVersion: "2025-11-25",
      capabilities: { tools: {}, logging: {} },
      serverInfo: { name: "s", version: "1" },
    })}`;
  override handlers = { "logging/setLevel": () => '"result":{}' };
  #count = 0;

  /** The newest call, once there are so many. */
  called(count: number): Promise<Json> {
    return poll(
      5000,
      () => `call ${count}`,
      () => (this.calls.length >= count ? this.calls[count - 1] : undefined),
    );
  }

  /** When the server is told that a client does not want a call any more. */
  async cancelled(): Promise<void> {
    await poll(
      5000,
      () => "the cancellation",
      () => this.messagesOf("notifications/cancelled")[0],
    );
  }

  answer({ id }: Json): void {
    this.newestPeer?.send({ jsonrpc: "2.0", id, result: { content: [] } });
  }

  /** Asks for a sample. @returns what it is answered: the name of the client, or the code of an error */
  async sample(): Promise<unknown> {
    const { result, error } = await sendServerRequest(this, `q${++this.#count}`, SAMPLING, SAMPLE);
    return result?.["model"] ?? error?.code;
  }

  /** Asks for a sample whose answer nobody looks at. */
  ask(): void {
    void sendServerRequest(this, `q${++this.#count}`, SAMPLING, SAMPLE);
  }

  log(data: string): void {
    const params = { level: "error", data };
    this.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
  }
}

/** A session of an SDK, which answers questions with its name. */
interface Session {
  readonly client: Client;
  readonly logs: unknown[];
  call(signal?: AbortSignal): Promise<unknown>;
}

async function connect(face: RunningHttpServer, name: string): Promise<Session> {
  const client = new Client({ name, version: "1" }, { capabilities: { sampling: {} } });
  const logs: unknown[] = [];
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    model: name,
    role: "assistant",
    content: { type: "text", text: name },
  }));
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
    logs.push(params.data);
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(face.url)));
  return {
    client,
    logs,
    call: (signal) =>
      client.callTool({ name: "s__t", arguments: {} }, undefined, signal && { signal }),
  };
}

/** Two sessions over HTTP at a hub with one server that they share. */
async function withTwo(
  run: (setup: { git: Waiting; one: Session; two: Session; clock: VirtualClock }) => Promise<void>,
): Promise<void> {
  const git = new Waiting("t");
  const clock = new VirtualClock();
  const { hub } = setUpHub({ s: git }, { clock });
  const settings = { hostname: "127.0.0.1", port: 0, token: undefined, maxMessage: 1024 * 1024 };
  const face = await startHttpServer(hub, { ...settings, clock });
  try {
    const one = await connect(face, "one");
    const two = await connect(face, "two");
    await run({ git, one, two, clock });
    await one.client.close();
    await two.client.close();
  } finally {
    await face.close();
    await hub.close();
  }
}

/** The code of the refusal that names what helps. */
const REFUSED = -31007;

describe("a question of a server on a pipe that two sessions over HTTP share", () => {
  it("reaches the one that calls while the other has never called", () =>
    withTwo(async ({ git, one }) => {
      const done = one.call();
      const call = await git.called(1);
      assert.equal(await git.sample(), "one");
      git.answer(call);
      await done;
    }));

  it("reaches the one that calls when the other was closed without a DELETE", () =>
    withTwo(async ({ git, one, two }) => {
      await two.client.close();
      const done = one.call();
      const call = await git.called(1);
      assert.equal(await git.sample(), "one");
      git.answer(call);
      await done;
    }));

  it("reaches the one that calls when the other's call was answered", () =>
    withTwo(async ({ git, one, two }) => {
      const first = two.call();
      git.answer(await git.called(1));
      await first;
      const done = one.call();
      const call = await git.called(2);
      assert.equal(await git.sample(), "one");
      git.answer(call);
      await done;
    }));

  it("reaches none while neither calls, or both do", () =>
    withTwo(async ({ git, one, two }) => {
      assert.equal(await git.sample(), REFUSED);
      const both = [one.call(), two.call()];
      await git.called(2);
      assert.equal(await git.sample(), REFUSED);
      for (const call of git.calls) git.answer(call);
      await Promise.all(both);
    }));

  for (const [what, end] of [
    ["its late answer comes", (git, call) => git.answer(call)],
    ["10 minutes are over", (_, _call, clock) => clock.advanceAsync(LIMIT)],
  ] as const satisfies readonly (readonly [
    string,
    (git: Waiting, call: Json, clock: VirtualClock) => void | Promise<void>,
  ])[]) {
    it(`reaches none while the other's cancelled call is not answered, until ${what}`, () =>
      withTwo(async ({ git, one, two, clock }) => {
        const abort = new AbortController();
        const given = two.call(abort.signal);
        const lost = await git.called(1);
        abort.abort();
        await assert.rejects(given);
        await git.cancelled();
        const early = one.call();
        const first = await git.called(2);
        assert.equal(await git.sample(), REFUSED);
        git.answer(first);
        await early;
        await end(git, lost, clock);
        await turn();
        const done = one.call();
        const call = await git.called(3);
        assert.equal(await git.sample(), "one");
        git.answer(call);
        await done;
      }));
  }

  it("reaches none while a call of the other is not answered that took too long", () =>
    withTwo(async ({ git, one, two, clock }) => {
      const late = two.call();
      await git.called(1);
      await clock.advanceAsync(60_000);
      await late;
      const done = one.call();
      const call = await git.called(2);
      assert.equal(await git.sample(), REFUSED);
      git.answer(call);
      await done;
    }));

  it("lets only the time of its own client's calls stand still", () =>
    withTwo(async ({ git, one, two, clock }) => {
      // Nobody answers it.
      one.client.setRequestHandler(CreateMessageRequestSchema, () => new Promise(() => {}));
      let isOver = false;
      void one.call().then(
        () => (isOver = true),
        () => {},
      );
      const first = await git.called(1);
      const asked = git.sample();
      await turn();
      const late = two.call();
      await git.called(2);
      await clock.advanceAsync(60_000);
      const { isError } = (await late) as { isError?: boolean };
      assert.deepEqual([isError, isOver], [true, false]);
      await clock.advanceAsync(LIMIT);
      assert.equal(await asked, REFUSED);
      git.answer(first);
    }));
});

describe("a log line of a server on a pipe that two sessions over HTTP share", () => {
  it("reaches the one that alone calls and has set a level, and nobody else", () =>
    withTwo(async ({ git, one, two }) => {
      git.log("before");
      const done = one.call();
      const first = await git.called(1);
      git.log("without a level");
      await one.client.setLoggingLevel("info");
      git.log("of one");
      await poll(
        5000,
        () => "the line",
        () => one.logs[0],
      );
      const other = two.call();
      const second = await git.called(2);
      git.log("of either");
      git.answer(first);
      await done;
      git.log("of two, which has set none");
      git.answer(second);
      await other;
      await two.client.ping();
      await one.client.ping();
      assert.deepEqual([one.logs, two.logs], [["of one"], []]);
    }));
});

describe("such a log line, while a cancelled call of the other is not answered,", () => {
  it("reaches nobody, and again the one that calls when the late answer has come", () =>
    withTwo(async ({ git, one, two }) => {
      await one.client.setLoggingLevel("info");
      const abort = new AbortController();
      const given = two.call(abort.signal);
      const lost = await git.called(1);
      abort.abort();
      await assert.rejects(given);
      await git.cancelled();
      const done = one.call();
      const call = await git.called(2);
      git.log("of either");
      git.answer(lost);
      git.log("of one");
      await poll(
        5000,
        () => "the line",
        () => one.logs[0],
      );
      git.answer(call);
      await done;
      await two.client.ping();
      assert.deepEqual([one.logs, two.logs], [["of one"], []]);
    }));
});

/** Modern requests over HTTP, which nothing tells apart. */
describe("a question for the sake of a modern request over HTTP", () => {
  const post = (httpClient: HttpTestClient, id: unknown): Promise<Response> =>
    httpClient.request(
      "POST",
      modernRequest(id, "tools/call", { name: "s__t" }, { sampling: {} }),
      {
        "MCP-Protocol-Version": MODERN_VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "s__t",
      },
    );

  async function begin(): Promise<{
    git: Waiting;
    httpClient: HttpTestClient;
    clock: VirtualClock;
  }> {
    const git = new Waiting("t");
    const clock = new VirtualClock();
    const { newClient: received } = setUpHttp({ s: git }, { clock });
    const httpClient = received();
    const answer = post(httpClient, 0);
    git.answer(await git.called(1));
    await answer;
    return { git, httpClient, clock };
  }

  it("reaches it while no other is open, and one that was answered does not count", async () => {
    const { git, httpClient, clock } = await begin();
    const answer = post(httpClient, 1);
    await git.called(2);
    git.ask();
    await clock.advanceAsync(10);
    const round = inputRoundOf((await (await answer).json()) as Json);
    assert.equal(round.keys.length, 1);
  });

  it("reaches none while one that was given up is not answered, as that may be another client's", async () => {
    const { git, httpClient, clock } = await begin();
    const answer = post(httpClient, 1);
    const lost = await git.called(2);
    await clock.advanceAsync(1000);
    await new EventStreamReader(await answer).cancel();
    await git.cancelled();
    const next = post(httpClient, 2);
    await git.called(3);
    assert.equal(await git.sample(), REFUSED);
    git.answer(lost);
    await turn();
    git.ask();
    await clock.advanceAsync(10);
    assert.equal(inputRoundOf((await (await next).json()) as Json).keys.length, 1);
  });
});
