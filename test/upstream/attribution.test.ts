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
import { notify, respond } from "../fixtures/peer-messages.ts";
import { SAMPLING_PARAMS, sendServerRequest } from "../fixtures/server-requests.ts";
import { EventStreamReader, setUpHttp } from "../fixtures/http-client.ts";
import { inputRoundOf } from "../fixtures/modern-requests.ts";

/** How long a request that was given up counts as open, in ms. */
const LIMIT = 10 * 60_000;
/** The code of the refusal that names what helps. */
const REFUSED = -31007;

const waitFor = <Found>(what: string, find: () => Found | undefined): Promise<Found> =>
  poll(5000, () => what, find);

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
    return waitFor(`call ${count}`, () => this.calls[count - 1]);
  }

  /** When the server is told that a client does not want a call any more. */
  async cancelled(): Promise<void> {
    await waitFor("the cancellation", () => this.messagesOf("notifications/cancelled")[0]);
  }

  answer({ id }: Json): void {
    respond(this.newestPeer, id, { content: [] });
  }

  /** Asks for a sample. @returns what it is answered: the name of the client, or the code of an error */
  async sample(): Promise<unknown> {
    const id = `q${++this.#count}`;
    const { result, error } = await sendServerRequest(
      this,
      id,
      "sampling/createMessage",
      SAMPLING_PARAMS,
    );
    return result?.["model"] ?? error?.code;
  }

  log(data: string): void {
    notify(this.newestPeer, "notifications/message", { level: "error", data });
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
  const call = (signal?: AbortSignal): Promise<unknown> =>
    client.callTool({ name: "s__t", arguments: {} }, undefined, signal && { signal });
  return { client, logs, call };
}

interface Pair {
  readonly git: Waiting;
  readonly clock: VirtualClock;
  readonly one: Session;
  readonly two: Session;
}

/** Two sessions over HTTP at a hub with one server that they share. */
async function withTwo(run: (pair: Pair) => Promise<void>): Promise<void> {
  const git = new Waiting("t");
  const clock = new VirtualClock();
  const { hub } = setUpHub({ s: git }, { clock });
  const settings = { hostname: "127.0.0.1", port: 0, token: undefined, maxMessage: 1024 * 1024 };
  const face = await startHttpServer(hub, { ...settings, clock });
  try {
    const [one, two] = [await connect(face, "one"), await connect(face, "two")];
    await run({ git, one, two, clock });
    for (const { client } of [one, two]) await client.close();
  } finally {
    await face.close();
    await hub.close();
  }
}

/** Does this while a call of the session runs, which is answered then. */
async function during(
  { git }: Pair,
  session: Session,
  act: () => Promise<void> | void,
): Promise<void> {
  const count = git.calls.length + 1;
  const done = session.call();
  const call = await git.called(count);
  await act();
  git.answer(call);
  await done;
}

/** What a question of the server's is answered while a call of the session runs. */
async function sampleDuring(pair: Pair, session: Session): Promise<unknown> {
  let answer: unknown;
  await during(pair, session, async () => {
    answer = await pair.git.sample();
  });
  return answer;
}

/** A call that its client cancels. @returns the call, which the server has not answered */
async function cancelledCall({ git }: Pair, session: Session): Promise<Json> {
  const abort = new AbortController();
  const given = session.call(abort.signal);
  const lost = await git.called(1);
  abort.abort();
  await assert.rejects(given);
  await git.cancelled();
  return lost;
}

describe("a question of a server on a pipe that two sessions over HTTP share", () => {
  for (const [what, before] of [
    ["the other has never called", () => {}],
    ["the other was closed without a DELETE", ({ two }) => two.client.close()],
    ["the other's call was answered", (pair) => during(pair, pair.two, () => {})],
  ] as const satisfies readonly (readonly [string, (pair: Pair) => Promise<void> | void])[]) {
    it(`reaches the one that calls while ${what}`, () =>
      withTwo(async (pair) => {
        await before(pair);
        assert.equal(await sampleDuring(pair, pair.one), "one");
      }));
  }

  it("reaches none while neither calls, or both do", () =>
    withTwo(async (pair) => {
      assert.equal(await pair.git.sample(), REFUSED);
      await during(pair, pair.one, async () => {
        assert.equal(await sampleDuring(pair, pair.two), REFUSED);
      });
    }));

  for (const [what, end] of [
    ["its late answer comes", ({ git }, call) => git.answer(call)],
    ["10 minutes are over", ({ clock }) => clock.advanceAsync(LIMIT)],
  ] as const satisfies readonly (readonly [
    string,
    (pair: Pair, call: Json) => void | Promise<void>,
  ])[]) {
    it(`reaches none while the other's cancelled call is not answered, until ${what}`, () =>
      withTwo(async (pair) => {
        const lost = await cancelledCall(pair, pair.two);
        assert.equal(await sampleDuring(pair, pair.one), REFUSED);
        await end(pair, lost);
        await turn();
        assert.equal(await sampleDuring(pair, pair.one), "one");
      }));
  }

  it("reaches none while a call of the other is not answered that took too long", () =>
    withTwo(async (pair) => {
      const late = pair.two.call();
      await pair.git.called(1);
      await pair.clock.advanceAsync(60_000);
      await late;
      assert.equal(await sampleDuring(pair, pair.one), REFUSED);
    }));

  it("lets only the time of its own client's calls stand still", () =>
    withTwo(async ({ git, one, two, clock }) => {
      // Nobody answers it.
      one.client.setRequestHandler(CreateMessageRequestSchema, () => new Promise(() => {}));
      let isOver = false;
      const end = (): void => void (isOver = true);
      void one.call().then(end, () => {});
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
  async function assertLogs({ one, two }: Pair): Promise<void> {
    for (const { client } of [two, one]) await client.ping();
    assert.deepEqual([one.logs, two.logs], [["of one"], []]);
  }
  const heardOne = ({ one }: Pair): Promise<unknown> => waitFor("the line", () => one.logs[0]);

  it("reaches the one that alone calls and has set a level, and nobody else", () =>
    withTwo(async (pair) => {
      const { git, one, two } = pair;
      git.log("before");
      const done = one.call();
      const first = await git.called(1);
      git.log("without a level");
      await one.client.setLoggingLevel("info");
      git.log("of one");
      await heardOne(pair);
      await during(pair, two, async () => {
        git.log("of either");
        git.answer(first);
        await done;
        git.log("of two, which has set none");
      });
      await assertLogs(pair);
    }));

  it("reaches nobody while a cancelled call of the other is not answered, and again the one that calls then", () =>
    withTwo(async (pair) => {
      const { git, one, two } = pair;
      await one.client.setLoggingLevel("info");
      const lost = await cancelledCall(pair, two);
      await during(pair, one, async () => {
        git.log("of either");
        git.answer(lost);
        git.log("of one");
        await heardOne(pair);
      });
      await assertLogs(pair);
    }));
});

/** Modern requests over HTTP, which nothing tells apart. */
describe("a question for the sake of a modern request over HTTP", () => {
  /** A server, and a client whose first call has been answered. */
  async function begin() {
    const git = new Waiting("t");
    const clock = new VirtualClock();
    const httpClient = setUpHttp({ s: git }, { clock }).newClient();
    const call = (id: unknown): Promise<Response> =>
      httpClient.postModern("tools/call", { name: "s__t" }, { capabilities: { sampling: {} }, id });
    const first = call(0);
    git.answer(await git.called(1));
    await first;
    /** The server asks, which is what this call is answered. */
    const assertAsked = async (answer: Promise<Response>): Promise<void> => {
      // Nobody answers it.
      git.sample().catch(() => {});
      await clock.advanceAsync(10);
      assert.equal(inputRoundOf((await (await answer).json()) as Json).keys.length, 1);
    };
    return { git, call, clock, assertAsked };
  }

  it("reaches it while no other is open, and one that was answered does not count", async () => {
    const { git, call, assertAsked } = await begin();
    const answer = call(1);
    await git.called(2);
    await assertAsked(answer);
  });

  it("reaches none while one that was given up is not answered, as that may be another client's", async () => {
    const { git, call, clock, assertAsked } = await begin();
    const answer = call(1);
    const lost = await git.called(2);
    await clock.advanceAsync(1000);
    await new EventStreamReader(await answer).cancel();
    await git.cancelled();
    const next = call(2);
    await git.called(3);
    assert.equal(await git.sample(), REFUSED);
    git.answer(lost);
    await turn();
    await assertAsked(next);
  });
});
