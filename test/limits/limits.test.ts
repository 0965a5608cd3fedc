import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { HubEvent } from "../../src/base/hub-events.ts";
import { limitsOn } from "../../src/frontend/clients.ts";
import type { CallLimitsInput, HubLimitsInput } from "../../src/manifest/call-limits.ts";
import { isRunnable, type Manifest } from "../../src/manifest/manifest.ts";
import type { Parts, Plugin } from "../../src/plugin/plugin.ts";
import type { NamedClient } from "../../src/manifest/named-clients.ts";
import {
  callRequest,
  callTool,
  type HubSetupOptions,
  initialize,
  isResponseTo,
  type Json,
  manifestFor,
  type Peer,
  ScriptedServer,
  sendRequest,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { callAgents, setUpAgentHub } from "../fixtures/agent-hub.ts";
import { createTask, LegacyTaskServer } from "../fixtures/legacy-task-server.ts";
import { answersTo, sendModernRequest } from "../fixtures/modern-requests.ts";
import {
  FORM_ELICITATION,
  inputRequiredResult,
  ModernScriptedServer,
} from "../fixtures/modern-server.ts";
import { createModernTask, ModernTaskServer, requestTask } from "../fixtures/modern-task-server.ts";
import { cancel, isOf, respond } from "../fixtures/peer-messages.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const CALL = "tools/call";
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const SILENCE = (): undefined => undefined;

const NO_RULES = { allow: undefined, deny: [], rename: {}, timeout: {} };

interface Settings extends Omit<HubSetupOptions, "clock" | "random" | "servers"> {
  readonly limits?: HubLimitsInput;
  readonly clients?: Readonly<Record<string, CallLimitsInput>>;
  readonly servers?: Servers;
}

const per = (count: number, ms = MINUTE) => ({ count, per: ms });

function namedClients(clients: Readonly<Record<string, CallLimitsInput>>): readonly NamedClient[] {
  const token = { text: "x", file: "/x", baseDir: "/" };
  const common = { mode: undefined, servers: undefined, approval: undefined, sessions: undefined };
  return Object.entries(clients).map(([name, limits]) => ({
    kind: "client",
    name,
    token,
    ...common,
    limits,
  }));
}

function manifestWith(
  scripts: Record<string, ScriptedServer>,
  { limits, clients = {}, ...settings }: Settings,
): Manifest {
  return { ...manifestFor(scripts, settings), limits, clients: namedClients(clients) };
}

/** A hub with a virtual clock, with these servers and limits. Its client is initialized. */
async function open(scripts: Record<string, ScriptedServer>, settings: Settings = {}) {
  const manifest = manifestWith(scripts, settings);
  const setup = setUpHubWithClock(scripts, { ...settings, manifest });
  await initialize(setup.client);
  const connect = async (principal?: string): Promise<Peer> => {
    const peer = setup.connect("http", { ...limitsOn("http"), principal });
    await initialize(peer);
    return peer;
  };
  return { ...setup, connectHttp: connect };
}

/** A server whose calls wait until they are answered. */
class HoldingServer extends ScriptedServer {
  override onCall = SILENCE;

  get calls(): readonly Json[] {
    return this.messagesOf(CALL);
  }

  /** The arguments `n` of the calls that have come, in order. */
  get order(): readonly unknown[] {
    return this.calls.map(({ params }) => (params?.["arguments"] as { n?: unknown }).n);
  }

  async answer(at: number): Promise<void> {
    respond(this.newestPeer, this.calls[at]?.id, { content: [] });
    for (let turns = 0; turns < 4; turns++) await turn();
  }
}

const metaOf = ({ result }: Json): Readonly<Record<string, unknown>> =>
  (result?.["_meta"] ?? {}) as Readonly<Record<string, unknown>>;
const textOf = ({ result }: Json): string =>
  (result?.["content"] as readonly { text?: string }[])[0]?.text ?? "";
const isRefused = (answer: Json): boolean => metaOf(answer)["toolmux/error"] === "overLimit";

/** Lets the hub work until this holds. */
async function until(holds: () => boolean): Promise<void> {
  const due = performance.now() + 5000;
  while (!holds()) {
    assert.ok(performance.now() < due, `never: ${holds.toString()}`);
    await turn();
  }
}

const limitEvents = (events: readonly HubEvent[]) =>
  events.flatMap((event) => (event.kind === "limit" ? [event] : []));

async function send(client: Peer, id: string, name: string, more: object = {}): Promise<void> {
  client.send(callRequest(id, name, { n: id }, more));
  await turn();
}

/** The results of so many calls: whether each is refused. */
async function callOften(client: Peer, name: string, count: number): Promise<readonly boolean[]> {
  const refused: boolean[] = [];
  for (let at = 0; at < count; at++) refused.push(isRefused(await callTool(client, name)));
  return refused;
}

describe("a manifest", () => {
  it("without limits, or with empty tables of them, limits nothing and is not asked for each call", async () => {
    const a = () => new ScriptedServer("x");
    for (const settings of [
      {},
      { limits: {} },
      { limits: { client: {} }, clients: { ci: {} } },
      { servers: { a: { limits: {}, tools: { ...NO_RULES, limits: {} } } } },
    ]) {
      const { client, hub } = await open({ a: a() }, settings);
      assert.deepEqual(await callOften(client, "a__x", 3), [false, false, false]);
      assert.equal(hub.limits.active, undefined);
      assert.deepEqual(hub.limits.status, []);
    }
  });
});

describe("a rate", () => {
  it("lets a burst through, and refuses with a result that says when to try again", async () => {
    const { connectHttp, clock, events, hub } = await open(
      { a: new ScriptedServer("x") },
      { clients: { ci: { rate: per(60), burst: 2 } } },
    );
    const ci = await connectHttp("ci");
    assert.deepEqual(await callOften(ci, "a__x", 2), [false, false]);
    const refused = await callTool(ci, "a__x");
    assert.equal(refused.result?.["isError"], true);
    assert.deepEqual(metaOf(refused), {
      "toolmux/error": "overLimit",
      "toolmux/retryAfterMs": 1000,
    });
    assert.equal(
      textOf(refused),
      'Over the limit of 60 calls a minute for client "ci". Try again in 1 s.',
    );
    await clock.advanceAsync(SECOND);
    assert.deepEqual(await callOften(ci, "a__x", 2), [false, true]);
    // One event a minute for each limit.
    assert.deepEqual(
      limitEvents(events).map(({ limit, of, client, retryAfter }) => [
        limit,
        of,
        client,
        retryAfter,
      ]),
      [["rate", "client", "ci", 1000]],
    );
    await clock.advanceAsync(MINUTE);
    assert.deepEqual(await callOften(ci, "a__x", 3), [false, false, true]);
    assert.equal(limitEvents(events).length, 2);
    const [status] = hub.limits.status;
    assert.deepEqual([status?.client, status?.refused, status?.rate?.left], ["ci", 3, 0]);
  });

  it("of hub, client, server and tool count together, and a refused call counts nowhere", async () => {
    const limits = { rate: per(4), client: { rate: per(3) } };
    const cases: readonly (readonly [Settings, readonly string[], readonly boolean[], string])[] = [
      [{ limits }, ["x", "x", "x", "x"], [false, false, false, true], 'client "client-1"'],
      [{ limits: { rate: per(2) } }, ["x", "y", "x"], [false, false, true], "all clients together"],
      [{ servers: { a: { limits: { rate: per(1) } } } }, ["x", "y"], [false, true], 'server "a"'],
      [
        {
          servers: {
            a: {
              tools: {
                ...NO_RULES,
                limits: { "*": { rate: per(9) }, "x*": { rate: per(1) }, xx: { rate: per(2) } },
              },
            },
          },
        },
        ["x", "xz", "xx", "xx", "xx", "y"],
        [false, true, false, false, true, false],
        'tool "xx" of server "a"',
      ],
    ];
    for (const [settings, names, refused, whose] of cases) {
      const { client } = await open({ a: new ScriptedServer("x", "y", "xx", "xz") }, settings);
      const answers: Json[] = [];
      for (const name of names) answers.push(await callTool(client, `a__${name}`));
      assert.deepEqual(answers.map(isRefused), refused);
      assert.ok(textOf(answers.findLast(isRefused) ?? {}).includes(` for ${whose}. Try again in `));
    }
    const { client, hub } = await open(
      { a: new ScriptedServer("x") },
      { limits: { rate: per(5) }, servers: { a: { limits: { rate: per(1) } } } },
    );
    await callOften(client, "a__x", 4);
    assert.deepEqual(
      hub.limits.status.map(({ kind, rate, refused: number }) => [kind, rate?.left, number]),
      [
        ["hub", 4, 0],
        ["server", 0, 3],
      ],
    );
  });

  it("counts lists, reads, prompts and the hub's own tools for the client alone, and not what keeps a session", async () => {
    const a = new ScriptedServer("x");
    a.listings = { prompts: [{ name: "p" }], resources: [{ uri: "u:1", name: "r" }] };
    a.handlers = {
      "prompts/get": () => '"result":{"messages":[]}',
      "resources/read": () => '"result":{"contents":[]}',
    };
    const counted: readonly (readonly [string, object])[] = [
      ["tools/list", {}],
      ["resources/read", { uri: "u:1" }],
      ["prompts/get", { name: "a__p" }],
    ];
    for (const [method, params] of counted) {
      const settings = {
        limits: { rate: per(9), client: { rate: per(2) } },
        servers: { a: { limits: { rate: per(1) } } },
      };
      const { client, hub } = await open({ a }, settings);
      for (const _ of [1, 2])
        assert.equal((await sendRequest(client, method, params)).error, undefined);
      const { error } = await sendRequest(client, method, params);
      assert.equal(error?.code, -31019, method);
      assert.deepEqual(error.data, {
        code: "overLimit",
        retryAfterMs: 30_000,
        limit: 2,
        remaining: 0,
      });
      const modern = await sendModernRequest(client, method, params as Record<string, unknown>);
      assert.equal(modern.error?.code, -31019);
      assert.equal(hub.limits.status.find(({ kind }) => kind === "hub")?.rate?.left, 9);
      for (const free of ["ping", "initialize", "logging/setLevel"]) {
        const answer = await sendRequest(client, free, {
          level: "debug",
          protocolVersion: "2025-11-25",
          capabilities: {},
        });
        assert.equal(answer.error, undefined, free);
      }
      assert.equal((await sendModernRequest(client, "server/discover")).error, undefined);
    }
  });

  it("counts a call of the hub's own tools for the client alone, in both eras, and refuses it with a result", async () => {
    for (const ask of [sendRequest, sendModernRequest]) {
      const { connect, hub } = await open(
        { a: new ScriptedServer("x") },
        { limits: { rate: per(9), client: { rate: per(1) } }, hub: { expose: "search" } },
      );
      const client = connect("stdio");
      await initialize(client);
      const params = { name: "search_tools", arguments: { query: "x" } };
      assert.equal(isRefused(await ask(client, CALL, params)), false);
      const refused = await ask(client, CALL, params);
      assert.deepEqual([isRefused(refused), refused.result?.["isError"]], [true, true]);
      // A call of another tool through the hub's tool is a call of that tool.
      const called = { name: "call_tool", arguments: { name: "a__x", arguments: {} } };
      assert.equal(isRefused(await ask(client, CALL, called)), true);
      assert.equal(hub.limits.status.find(({ kind }) => kind === "hub")?.rate?.left, 9);
    }
  });

  it("is one for all clients over HTTP without a name, and one for each pipe", async () => {
    const { client, connect, connectHttp } = await open(
      { a: new ScriptedServer("x") },
      { limits: { client: { rate: per(1), quota: per(1, 24 * 60 * MINUTE) } } },
    );
    const other = connect("stdio");
    await initialize(other);
    const [one, two] = [await connectHttp(), await connectHttp("default")];
    assert.deepEqual(await callOften(client, "a__x", 2), [false, true]);
    assert.deepEqual(await callOften(other, "a__x", 2), [false, true]);
    assert.deepEqual(await callOften(one, "a__x", 1), [false]);
    assert.deepEqual(await callOften(two, "a__x", 1), [true]);
    assert.match(textOf(await callTool(two, "a__x")), /for clients without a name\./);
  });
});

describe("the queue", () => {
  const ONE = { servers: { a: { limits: { maxConcurrent: 1 } } } };

  it("lets clients take turns: behind 32 calls of one client, another one's is second", async () => {
    const a = new HoldingServer("x");
    const { client, connectHttp, hub } = await open({ a }, ONE);
    const other = await connectHttp();
    for (let n = 0; n <= 32; n++) await send(client, `c${n}`, "a__x");
    await send(other, "o", "a__x");
    assert.deepEqual(a.order, ["c0"]);
    assert.equal(
      hub.snapshot().calls.filter(({ waitingFor }) => waitingFor === "queue").length,
      33,
    );
    for (const n of [0, 1, 2]) await a.answer(n);
    assert.deepEqual(a.order, ["c0", "c1", "o", "c2"]);
    // A 33rd call of the client may not wait.
    await send(client, "d1", "a__x");
    await send(client, "d2", "a__x");
    await send(client, "d3", "a__x");
    const refused = await client.find(isResponseTo("d3"));
    assert.equal(isRefused(refused), true);
    assert.match(textOf(refused), /^Too many calls wait for client "client-1"\. Try again/);
  });

  it("never has more calls at the server than may be there, and all are answered", async () => {
    const a = new ScriptedServer("x");
    const held: Json[] = [];
    let most = 0;
    a.onCall = (message) => {
      held.push(message);
      most = Math.max(most, held.length);
      return undefined;
    };
    const { client, connectHttp } = await open(
      { a },
      { servers: { a: { limits: { maxConcurrent: 3 } } } },
    );
    const other = await connectHttp();
    for (let n = 0; n < 20; n++) await send(n % 2 === 0 ? client : other, `c${n}`, "a__x");
    for (let n = 0; n < 20; n++) {
      const first = held.shift();
      respond(a.newestPeer, first?.id, { content: [] });
      await turn();
      await turn();
    }
    assert.equal(most, 3);
    assert.equal(client.messages.filter(({ id }) => String(id).startsWith("c")).length, 10);
    assert.equal(other.messages.filter(({ id }) => String(id).startsWith("c")).length, 10);
  });

  it("refuses what exceeds maxQueued of a server", async () => {
    const a = new HoldingServer("x");
    const { client } = await open(
      { a },
      { servers: { a: { limits: { maxConcurrent: 1, maxQueued: 1 } } } },
    );
    for (const id of ["1", "2", "3"]) await send(client, id, "a__x");
    assert.match(
      textOf(await client.find(isResponseTo("3"))),
      /^Too many calls wait for server "a"\./,
    );
    await a.answer(0);
    assert.deepEqual(a.order, ["1", "2"]);
  });

  it("does not hold up calls of a server that has places", async () => {
    const [a, b] = [new HoldingServer("x"), new ScriptedServer("x")];
    const { client } = await open({ a, b }, { limits: { maxConcurrent: 2 }, ...ONE });
    for (const id of ["1", "2", "3"]) await send(client, id, "a__x");
    assert.equal((await callTool(client, "b__x")).error, undefined);
    assert.deepEqual(a.order, ["1"]);
  });

  it("is left by a call that is cancelled, or whose client leaves, and such a call reaches no server", async () => {
    const a = new HoldingServer("x");
    const { client, connectHttp, hub } = await open({ a }, ONE);
    const other = await connectHttp();
    await send(client, "1", "a__x");
    await send(client, "2", "a__x");
    await send(other, "o", "a__x");
    await send(client, "3", "a__x");
    cancel(client, "2");
    void other.transport.close();
    await turn();
    await turn();
    assert.equal(hub.limits.status.find(({ kind }) => kind === "server")?.queued, 1);
    for (const n of [0, 1]) await a.answer(n);
    assert.deepEqual(a.order, ["1", "3"]);
    assert.deepEqual(a.messagesOf("notifications/cancelled"), []);
    const [running] = hub.limits.status.map(({ running: number }) => number);
    assert.equal(running, 0);
  });

  it("is left by a call whose deadline passes, and by one that the operator cancels", async () => {
    const a = new HoldingServer("x");
    a.tools.push(JSON.stringify({ name: "y", inputSchema: {} }));
    const tools = { ...NO_RULES, timeout: { x: 5000 } };
    const { client, clock, hub } = await open(
      { a },
      { servers: { a: { tools, limits: { maxConcurrent: 1 } } } },
    );
    await send(client, "1", "a__y");
    await send(client, "2", "a__x");
    await send(client, "3", "a__x");
    const third = hub.snapshot().calls.at(-1)?.call ?? 0;
    assert.ok(hub.cancelCall(third));
    assert.equal((await client.find(isResponseTo("3"))).error?.data?.["code"], "cancelled");
    await clock.advanceAsync(5000);
    const expired = await client.find(isResponseTo("2"));
    assert.equal(metaOf(expired)["toolmux/error"], "callTimeout");
    assert.match(textOf(expired), /was not called: it waited/);
    assert.deepEqual(a.order, ["1"]);
    await a.answer(0);
    assert.deepEqual(
      hub.limits.status.map(({ running, queued }) => [running, queued]),
      [[0, 0]],
    );
  });

  it("tells a client that asks for progress the place of its call every 10 s", async () => {
    const a = new HoldingServer("x");
    const { client, clock, connectHttp } = await open({ a }, ONE);
    const other = await connectHttp();
    for (const id of ["1", "2", "3"]) await send(client, id, "a__x");
    await send(other, "o", "a__x", { _meta: { progressToken: "p" } });
    const reports = () =>
      other.messages.filter(isOf("notifications/progress")).map(({ params }) => params);
    await clock.advanceAsync(10 * SECOND);
    assert.deepEqual(
      reports().map((params) => params?.["message"]),
      ["Waiting in the queue: place 2 of 3"],
    );
    await a.answer(0);
    await clock.advanceAsync(10 * SECOND);
    const [first, second] = reports();
    assert.equal(second?.["message"], "Waiting in the queue: place 1 of 2");
    assert.ok(Number(second["progress"]) > Number(first?.["progress"]));
    await a.answer(1);
    await clock.advanceAsync(30 * SECOND);
    assert.equal(reports().length, 2);
  });
});

describe("a place", () => {
  const ONE = { servers: { a: { limits: { maxConcurrent: 1 } } } };

  it("is not taken by a call that waits for an approval", async () => {
    const a = new HoldingServer("w", "r");
    a.tools = [
      JSON.stringify({ name: "w", inputSchema: {} }),
      JSON.stringify({ name: "r", inputSchema: {}, annotations: { readOnlyHint: true } }),
    ];
    const { client, hub } = await open(
      { a },
      { servers: { a: { approval: "auto", limits: { maxConcurrent: 1 } } }, isWatchable: true },
    );
    hub.approvals.watch();
    const waiting = () => hub.snapshot().calls.map(({ waitingFor }) => waitingFor);
    await send(client, "w", "a__w");
    await send(client, "r", "a__r");
    await until(() => a.calls.length === 1 && hub.approvals.prompts.length === 1);
    assert.deepEqual(waiting(), ["approval", "server"]);
    assert.deepEqual(a.order, ["r"]);
    hub.approvals.answer(hub.approvals.prompts[0]?.id ?? "", "once", "terminal");
    await until(() => waiting()[0] === "queue");
    await a.answer(0);
    await until(() => a.calls.length === 2);
    assert.deepEqual(a.order, ["r", "w"]);
  });

  it("is kept by a task of a legacy server until it ends", async () => {
    const a = new LegacyTaskServer("x", "y");
    const { client } = await open({ a }, ONE);
    const id = await createTask(client, "a__x");
    await send(client, "2", "a__y");
    assert.equal(a.messagesOf(CALL).length, 1);
    a.status = "completed";
    await sendRequest(client, "tasks/get", { taskId: id });
    await client.find(isResponseTo("2"));
    assert.equal(a.messagesOf(CALL).length, 2);
  });

  it("is kept by a task of a modern server until it ends, whether its client polls it or the hub does", async () => {
    const a = new ModernTaskServer("x");
    const { client, clock } = await open(
      { a },
      { servers: { a: { era: "modern", limits: { maxConcurrent: 1 } } } },
    );
    const id = await createModernTask(client, "a__x");
    await send(client, "2", "a__x");
    assert.equal(a.messagesOf(CALL).length, 1);
    Object.assign(a, {
      status: "completed",
      extraMembers: ',"result":{"content":[],"resultType":"complete"}',
    });
    await requestTask(client, "get", id);
    await turn();
    await clock.advanceAsync(5000);
    await client.find(isResponseTo("2"));
  });

  it("is kept while a modern client is asked for input, and its retry is the same call", async () => {
    const a = new ModernScriptedServer("x");
    a.onCall = ({ params }) =>
      params?.["inputResponses"] === undefined
        ? inputRequiredResult({ q: FORM_ELICITATION }, "state-1")
        : '"result":{"resultType":"complete","content":[]}';
    const { client, hub } = await open(
      { a },
      { servers: { a: { era: "modern", limits: { maxConcurrent: 1, rate: per(2) } } } },
    );
    const capabilities = { elicitation: { form: {} } };
    const asked = await sendModernRequest(client, CALL, { name: "a__x" }, capabilities);
    assert.equal(asked.result?.["resultType"], "input_required");
    assert.equal(hub.limits.status[0]?.running, 1);
    const retry = {
      name: "a__x",
      requestState: "state-1",
      inputResponses: { q: { action: "accept", content: {} } },
    };
    const forged = { ...retry, requestState: "state-2" };
    const done = await sendModernRequest(client, CALL, retry, capabilities);
    assert.equal(done.result?.["resultType"], "complete");
    assert.deepEqual(
      hub.limits.status.map(({ running, rate }) => [running, rate?.left]),
      [[0, 1]],
    );
    // A state that no call waits with is one more call, and so is a state that was used.
    await sendModernRequest(client, CALL, forged, capabilities);
    assert.equal(isRefused(await sendModernRequest(client, CALL, retry, capabilities)), true);
  });

  it("is kept while a modern client opens a page for a legacy server, and its retry is the same call", async () => {
    const a = new ScriptedServer("x");
    const elicitations = [
      { mode: "url", url: "https://example.com/", message: "Go", elicitationId: "e" },
    ];
    const asking = `"error":{"code":-32042,"message":"page","data":${JSON.stringify({ elicitations })}}`;
    a.onCall = () => (a.messagesOf(CALL).length === 1 ? asking : '"result":{"content":[]}');
    const limits = { maxConcurrent: 1, rate: per(1) };
    const { client, hub } = await open({ a }, { servers: { a: { limits } } });
    const capabilities = { elicitation: { url: {} } };
    const asked = await sendModernRequest(client, CALL, { name: "a__x" }, capabilities);
    assert.equal(hub.limits.status[0]?.running, 1);
    const retry = { name: "a__x", ...answersTo(asked, () => ({ action: "accept" })) };
    const done = await sendModernRequest(client, CALL, retry, capabilities);
    assert.equal(done.result?.["resultType"], "complete");
    assert.equal(isRefused(done), false);
    assert.equal(a.messagesOf(CALL).length, 2);
    assert.deepEqual(
      hub.limits.status.map(({ running, rate }) => [running, rate?.left]),
      [[0, 0]],
    );
  });

  it("is given up when a modern client does not come back", async () => {
    const a = new ModernScriptedServer("x");
    a.onCall = () => inputRequiredResult({ q: FORM_ELICITATION }, "s");
    const { client, clock, hub } = await open(
      { a },
      { servers: { a: { era: "modern", limits: { maxConcurrent: 1 } } } },
    );
    await sendModernRequest(client, CALL, { name: "a__x" }, { elicitation: { form: {} } });
    await clock.advanceAsync(5 * MINUTE);
    assert.equal(hub.limits.status[0]?.running, 0);
  });
});

describe("a call that plugins handle", () => {
  const DAY = 24 * 60 * MINUTE;

  /** A hub whose plugin answers calls of `x` with what `handle` returns. */
  const openWith = async (
    a: ScriptedServer,
    settings: Settings,
    call: NonNullable<Parts["call"]>,
  ) => {
    const plugin: Plugin = { name: "p", setup: () => ({ call }) };
    const manifest = manifestWith({ a }, settings);
    const setup = await setUpPluginHub([{ plugin }], { a }, { ...settings, manifest });
    await initialize(setup.client);
    return setup;
  };

  it("and answer counts for its client and the hub, and not for the server", async () => {
    const a = new ScriptedServer("x", "y");
    const { client, hub } = await openWith(
      a,
      {
        limits: { rate: per(3), client: { rate: per(3) } },
        servers: { a: { limits: { rate: per(1), quota: per(1, DAY), maxConcurrent: 1 } } },
      },
      (next, tool) => (tool.name === "x" ? (given) => Promise.resolve(given.answer("kept")) : next),
    );
    assert.deepEqual(await callOften(client, "a__y", 1), [false]);
    assert.deepEqual(await callOften(client, "a__x", 3), [false, false, true]);
    const [ofHub, ofClient, ofServer] = hub.limits.status;
    assert.deepEqual([ofHub?.rate?.left, ofClient?.rate?.left], [0, 0]);
    assert.deepEqual([ofServer?.rate?.left, ofServer?.quota?.used], [0, 1]);
  });

  it("and send counts once at the server, however often they send it", async () => {
    const a = new ScriptedServer("x");
    const { client, hub } = await openWith(
      a,
      { servers: { a: { limits: { rate: per(3), quota: per(9, DAY), maxConcurrent: 1 } } } },
      (next) => async (given) => {
        await next(given);
        return next(given);
      },
    );
    assert.deepEqual(await callOften(client, "a__x", 1), [false]);
    assert.equal(a.messagesOf(CALL).length, 2);
    const [status] = hub.limits.status;
    assert.deepEqual([status?.rate?.left, status?.quota?.used, status?.running], [2, 1, 0]);
  });

  it("waits for its server's place when they send it, and is refused there with a result", async () => {
    const a = new HoldingServer("x");
    const { client, hub } = await openWith(
      a,
      { servers: { a: { limits: { maxConcurrent: 1, maxQueued: 1 } } } },
      (next) => async (given) => await next(given),
    );
    for (const id of ["1", "2", "3"]) await send(client, id, "a__x");
    assert.equal(isRefused(await client.find(isResponseTo("3"))), true);
    assert.deepEqual(
      hub.snapshot().calls.map(({ waitingFor }) => waitingFor),
      ["server", "queue"],
    );
    cancel(client, "2");
    await turn();
    await send(client, "4", "a__x");
    await a.answer(0);
    assert.deepEqual(a.order, ["1", "4"]);
  });
});

describe("the calls of an agent", () => {
  it("count for the client at the outside, and take places of servers alone", async () => {
    const a = new ScriptedServer("x");
    let most = 0;
    const settings = {
      limits: { maxConcurrent: 1, client: { rate: per(4), maxConcurrent: 1 } },
      servers: { a: { limits: { maxConcurrent: 1, rate: per(9) } } },
    };
    const { client, hub } = await setUpAgentHub(
      { a },
      {
        ...settings,
        change: (manifest) => ({ ...manifest, limits: settings.limits }),
      },
    );
    a.onCall = () => {
      most = Math.max(most, ...hub.limits.status.map(({ running }) => running));
      return '"result":{"content":[{"type":"text","text":"done"}]}';
    };
    await initialize(client);
    const run = { agent: "worker", message: "call a__x {} times 3" };
    assert.match((await callAgents(client, "invoke_agent", run)).text, /result: done/);
    assert.equal(most, 1);
    const status = new Map(hub.limits.status.map((one) => [one.kind, one]));
    // One call of the agent's tool, and three calls that it made.
    assert.deepEqual([status.get("client")?.rate?.left, status.get("server")?.rate?.left], [0, 6]);
    assert.deepEqual(
      hub.limits.status.map(({ running, queued }) => [running, queued]),
      [
        [0, 0],
        [0, 0],
        [0, 0],
      ],
    );
    assert.equal((await callAgents(client, "invoke_agent", run)).code, "overLimit");
  });

  it("do not wait for a place that the agent's own call has", async () => {
    const a = new ScriptedServer("x");
    const limits = { maxConcurrent: 1 };
    const { client } = await setUpAgentHub(
      { a },
      {
        agents: { worker: { allowAgents: true } },
        change: (manifest) => ({
          ...manifest,
          servers: manifest.servers.map((spec) => (isRunnable(spec) ? { ...spec, limits } : spec)),
        }),
      },
    );
    await initialize(client);
    const run = { agent: "worker", message: "call agents__list_agents" };
    assert.match((await callAgents(client, "invoke_agent", run)).text, /worker/);
  });
});

describe("a reload", () => {
  it("keeps the calls of what does not change, under load", async () => {
    const a = new HoldingServer("x");
    const scripts = { a };
    const settings: Settings = {
      limits: { rate: per(20) },
      servers: { a: { limits: { maxConcurrent: 1 } } },
    };
    const { client, hub } = await open(scripts, settings);
    for (let n = 0; n < 5; n++) await send(client, `c${n}`, "a__x");
    hub.reload(manifestWith(scripts, settings));
    await turn();
    assert.deepEqual(
      hub.limits.status.map(({ rate, running, queued }) => [rate?.left, running, queued]),
      [
        [15, 1, 4],
        // The client, because calls of it wait.
        [undefined, 1, 4],
        [undefined, 1, 4],
      ],
    );
    // Two places more.
    hub.reload(
      manifestWith(scripts, { ...settings, servers: { a: { limits: { maxConcurrent: 3 } } } }),
    );
    await turn();
    assert.deepEqual(a.order, ["c0", "c1", "c2"]);
    // Fewer places: those that run go on.
    hub.reload(
      manifestWith(scripts, { ...settings, servers: { a: { limits: { maxConcurrent: 1 } } } }),
    );
    await a.answer(0);
    assert.equal(a.order.length, 3);
    // No limits: all go on.
    hub.reload(manifestWith(scripts, {}));
    await turn();
    assert.equal(a.order.length, 5);
    for (const n of [1, 2, 3, 4]) await a.answer(n);
    assert.deepEqual(hub.limits.status, []);
    hub.reload(manifestWith(scripts, settings));
    assert.deepEqual(
      hub.limits.status.map(({ running, queued }) => [running, queued]),
      [
        [0, 0],
        [0, 0],
      ],
    );
  });
});
