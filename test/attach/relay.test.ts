import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { Relay, type RelayEnd } from "../../src/attach/relay.ts";
import type { ByteInput, ByteOutput } from "../../src/base/byte-streams.ts";
import { HubError } from "../../src/base/errors.ts";
import type { SocketConnection } from "../../src/base/unix-socket.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { waitFor } from "../harness/wait.ts";

type Json = Readonly<Record<string, unknown>>;

/** An input that a test feeds. */
class FedInput implements ByteInput {
  #onChunk: (chunk: Buffer) => void = () => {};
  #onEnd: () => void = () => {};
  isPaused = false;

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#onChunk = onChunk;
    this.#onEnd = onEnd;
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  feed(text: string): void {
    this.#onChunk(Buffer.from(text));
  }

  end(): void {
    this.#onEnd();
  }
}

/** An output that keeps what is written, and may be full. */
class KeptOutput implements ByteOutput {
  text = "";
  hasEnded = false;
  /** Present: writes are not complete before it is called. */
  drain: (() => void) | undefined;
  isFull = false;

  write(bytes: Uint8Array): Promise<void> | undefined {
    this.text += Buffer.from(bytes).toString();
    if (!this.isFull) return undefined;
    return new Promise((resolve) => (this.drain = resolve));
  }

  end(): void {
    this.hasEnded = true;
  }

  get messages(): readonly Json[] {
    return this.text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Json);
  }
}

/** The relay's connection to a hub, which the test plays. */
class FakeHub implements SocketConnection {
  readonly input = new FedInput();
  readonly output = new KeptOutput();
  isDestroyed = false;

  isPeerGone(): boolean {
    return this.isDestroyed;
  }

  destroy(): void {
    this.isDestroyed = true;
  }

  send(message: object): void {
    this.input.feed(`${JSON.stringify(message)}\n`);
  }

  /** The hub is killed. */
  die(): void {
    this.input.end();
  }
}

interface Setup {
  readonly client: FedInput;
  readonly toClient: KeptOutput;
  readonly hubs: FakeHub[];
  readonly clock: VirtualClock;
  readonly ended: Promise<RelayEnd>;
  /** The next joins fail with it. */
  failWith(error: HubError | undefined): void;
  send(message: object): void;
}

/** A relay between a client and its first hub; later hubs are added to `hubs` when they are joined. */
function setUp(maxMessage = 1024 * 1024): Setup {
  const client = new FedInput();
  const toClient = new KeptOutput();
  const first = new FakeHub();
  const hubs = [first];
  const clock = new VirtualClock();
  let failure: HubError | undefined;
  const relay = new Relay({
    input: client,
    output: toClient,
    connection: first,
    join() {
      if (failure !== undefined) return Promise.reject(failure);
      const hub = new FakeHub();
      hubs.push(hub);
      return Promise.resolve(hub);
    },
    maxMessage,
    clock,
    log() {},
  });
  return {
    client,
    toClient,
    hubs,
    clock,
    ended: relay.run(),
    failWith: (error) => (failure = error),
    send: (message) => client.feed(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`),
  };
}

const initialize = { id: 0, method: "initialize", params: { protocolVersion: "2025-11-25" } };
const declared = {
  jsonrpc: "2.0",
  id: 0,
  result: { capabilities: { tools: { listChanged: true }, resources: {} } },
};

/** A relay whose client has a session with the first hub. */
function setUpSession(): Setup & { readonly hub: FakeHub } {
  const setup = setUp();
  const [hub] = setup.hubs;
  assert.ok(hub);
  setup.send(initialize);
  hub.send(declared);
  setup.send({ method: "notifications/initialized" });
  return { ...setup, hub };
}

async function joined(hubs: readonly FakeHub[], count: number): Promise<FakeHub> {
  return waitFor(`hub ${count}`, () => {
    const hub = hubs[count - 1];
    return hub !== undefined && hub.output.text !== "" ? hub : undefined;
  });
}

const call = (id: number | string, more: object = {}): object => ({
  id,
  method: "tools/call",
  params: { name: "t", ...more },
});

describe("the relay", () => {
  it("forwards chunks as they come, also parts of lines, and answers of every shape end their requests", () => {
    const shapes: readonly ((id: string) => string)[] = [
      (id) => `{"jsonrpc":"2.0","result":{"id":9,"x":",\\"id\\":1}"},"id":${id}}`,
      (id) => `{"jsonrpc":"2.0","id":${id},"result":{}}`,
      (id) => `{"result":{},"jsonrpc":"2.0","id":${id}}`,
      (id) => `{"jsonrpc":"2.0","result":{},"id":${id},"x-trace":[1.0]}`,
      (id) => `{ "id" : ${id}, "jsonrpc":"2.0", "error":{"code":1,"message":"m"} }`,
      (id) => `[{"jsonrpc":"2.0","result":{},"id":${id}}]`,
    ];
    const ids = ["7", '"a\\"b"', '",\\"id\\":7"', "1.5"];
    for (const shape of shapes)
      for (const id of ids)
        for (const isSplit of [false, true]) {
          const { client, hubs, toClient } = setUp();
          const [hub] = hubs;
          assert.ok(hub);
          const request = `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{}}\n`;
          client.feed(request.slice(0, 20));
          assert.equal(hub.output.text, request.slice(0, 20));
          client.feed(request.slice(20));
          const answer = `${shape(id)}\n`;
          const at = isSplit ? answer.length - 4 : 0;
          if (at > 0) hub.input.feed(answer.slice(0, at));
          assert.equal(toClient.text, "", "a part of a line is held");
          hub.input.feed(answer.slice(at));
          hub.die();
          assert.equal(toClient.text, answer, "the request has one answer");
        }
  });

  it("drops the unfinished line of a hub that dies, and answers each open request with the client's own id", async () => {
    const { send, hub, hubs, toClient } = setUpSession();
    const before = toClient.messages.length;
    for (const id of [1, "one", 2.5]) send(call(id));
    send({ ...call(3) });
    send({ method: "notifications/cancelled", params: { requestId: 3 } });
    hub.input.feed(`{"jsonrpc":"2.0","result":{"text":"${"x".repeat(50_000)}`);
    hub.die();
    const errors = toClient.messages.slice(before);
    assert.deepEqual(
      errors.map(({ id }) => id),
      [1, "one", 2.5],
    );
    for (const { error } of errors) assert.equal((error as Json)["code"], -31002);
    send(call(4));
    const next = await joined(hubs, 2);
    next.send({ ...declared, id: next.output.messages[0]?.["id"] });
    next.send({ jsonrpc: "2.0", id: 4, result: {} });
    assert.deepEqual(toClient.messages.at(-1), { jsonrpc: "2.0", id: 4, result: {} });
  });

  it("brings the next hub to where the last one was, and hides the answers of that", async () => {
    const { send, hub, hubs, toClient } = setUpSession();
    send({ id: 1, method: "logging/setLevel", params: { level: "error" } });
    for (const [id, uri] of [
      [2, "a:1"],
      [3, "a:2"],
    ] as const)
      send({ id, method: "resources/subscribe", params: { uri } });
    send({ id: 4, method: "resources/unsubscribe", params: { uri: "a:1" } });
    for (const id of [1, 2, 3, 4]) hub.send({ jsonrpc: "2.0", id, result: {} });
    const before = toClient.messages.length;
    hub.die();
    assert.equal(hubs.length, 1, "an idle client joins with its next message");
    // The hub that has asked and the call that is cancelled are gone.
    send({ id: "toolmux-77", result: {} });
    send({ method: "notifications/cancelled", params: { requestId: 9 } });
    assert.equal(hubs.length, 1);
    send(call(5));
    const next = await joined(hubs, 2);
    const [again, ...none] = next.output.messages;
    assert.deepEqual(none, [], "the rest waits for the answer to initialize");
    assert.equal(again?.["method"], "initialize");
    next.send({ ...declared, id: again["id"] });
    const sent = next.output.messages.slice(1);
    assert.deepEqual(
      sent.map(({ method, params }) => [method, (params as Json | undefined)?.["uri"]]),
      [
        ["notifications/initialized", undefined],
        ["logging/setLevel", undefined],
        ["resources/subscribe", "a:2"],
        ["tools/call", undefined],
      ],
    );
    for (const { id } of sent) if (id !== undefined) next.send({ jsonrpc: "2.0", id, result: {} });
    assert.deepEqual(
      toClient.messages.slice(before).map(({ method, id }) => method ?? id),
      ["notifications/tools/list_changed", 5],
    );
  });

  it("sends an open initialize to the next hub, which answers it", async () => {
    const { send, hubs, toClient } = setUp();
    send(initialize);
    hubs[0]?.die();
    const next = await joined(hubs, 2);
    assert.deepEqual(next.output.messages, [{ jsonrpc: "2.0", ...initialize }]);
    next.send(declared);
    assert.deepEqual(toClient.messages, [declared]);
  });

  it("sends the beginning of a line, which the dead hub had got, to the next hub", async () => {
    const { send, client, hub, hubs } = setUpSession();
    hub.die();
    send(call(1));
    const text = JSON.stringify({ jsonrpc: "2.0", ...call(2) });
    client.feed(text.slice(0, 30));
    const next = await joined(hubs, 2);
    next.send({ ...declared, id: next.output.messages[0]?.["id"] });
    client.feed(`${text.slice(30)}\n`);
    assert.deepEqual(
      next.output.messages.slice(2).map(({ id }) => id),
      [1, 2],
    );
  });

  it("has nothing to tell the next hub about a client of the modern era", async () => {
    const { send, hubs, toClient } = setUp();
    send({ id: 1, method: "subscriptions/listen", params: {} });
    hubs[0]?.die();
    assert.deepEqual(
      toClient.messages.map(({ id }) => id),
      [1],
    );
    send(call(2));
    const next = await joined(hubs, 2);
    assert.deepEqual(
      next.output.messages.map(({ id }) => id),
      [2],
    );
  });

  it("pauses the client while the hub does not read, and the hub while the client does not read", async () => {
    const { send, client, hub, toClient } = setUpSession();
    hub.output.isFull = true;
    send(call(1));
    assert.ok(client.isPaused);
    hub.output.drain?.();
    await waitFor("the client is read", () => (client.isPaused ? undefined : true));
    toClient.isFull = true;
    hub.send({ jsonrpc: "2.0", id: 1, result: {} });
    assert.ok(hub.input.isPaused);
    toClient.drain?.();
    await waitFor("the hub is read", () => (hub.input.isPaused ? undefined : true));
  });

  it("ends its half at the end of stdin, and answers what the hub has not answered", async () => {
    const { send, client, hub, toClient, clock, ended } = setUpSession();
    for (const id of [1, 2]) send(call(id));
    client.end();
    assert.ok(hub.output.hasEnded);
    hub.send({ jsonrpc: "2.0", id: 1, result: {} });
    await clock.advanceAsync(1500);
    assert.equal(await ended, "left");
    const answers = toClient.messages.slice(1);
    assert.deepEqual(
      answers.map(({ id, error }) => [id, (error as Json | undefined)?.["code"]]),
      [
        [1, undefined],
        [2, -31005],
      ],
    );
  });

  it("answers no call that the hub has refused as malformed before stdin ended", async () => {
    const { client, hub, toClient, ended } = setUpSession();
    const before = toClient.messages.length;
    client.feed('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{bad}}\n');
    hub.send({ jsonrpc: "2.0", id: null, error: { code: -32700, message: "m" } });
    client.end();
    hub.die();
    assert.equal(await ended, "left");
    assert.deepEqual(
      toClient.messages.slice(before).map(({ id }) => id),
      [null],
    );
  });

  it("leaves a hub whose message is longer than is allowed", () => {
    const { send, hubs, toClient } = setUp(1000);
    const [hub] = hubs;
    send(call(1));
    hub?.input.feed("x".repeat(100_000));
    assert.ok(hub?.isDestroyed);
    assert.deepEqual(
      toClient.messages.map(({ id }) => id),
      [1],
    );
  });

  it("ends after three failed joins in 30 s, whose requests have been answered with the reason", async () => {
    const { send, hub, toClient, failWith, ended } = setUpSession();
    failWith(new HubError("spawnFailed", "It does not start."));
    hub.die();
    const before = toClient.messages.length;
    for (const id of [1, 2, 3]) {
      send(call(id));
      await waitFor(`an answer to ${id}`, () => toClient.messages.find((one) => one["id"] === id));
    }
    assert.equal(await ended, "lost");
    for (const { error } of toClient.messages.slice(before))
      assert.deepEqual((error as Json)["data"], { code: "spawnFailed" });
  });

  it("ends when three hubs have ended without a word while it was initialized", async () => {
    const { send, hubs, toClient, ended } = setUp();
    send(initialize);
    for (const count of [1, 2, 3]) (await joined(hubs, count)).die();
    assert.equal(await ended, "lost");
    const [{ id, error } = {}] = toClient.messages;
    assert.deepEqual([id, (error as Json)["data"]], [0, { code: "answerLost" }]);
  });

  it("counts failed joins of the last 30 s alone", async () => {
    const { send, hub, hubs, toClient, failWith, clock } = setUpSession();
    failWith(new HubError("spawnFailed", "It does not start."));
    hub.die();
    for (const id of [1, 2, 3, 4]) {
      send(call(id));
      await waitFor(`an answer to ${id}`, () => toClient.messages.find((one) => one["id"] === id));
      await clock.advanceAsync(16_000);
    }
    failWith(undefined);
    send(call(5));
    assert.equal((await joined(hubs, 2)).output.messages[0]?.["method"], "initialize");
  });
});
