import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type {
  ApprovalDecision,
  ApprovalEvent,
  ApprovalPrompt,
  HubEvent,
} from "../../src/base/hub-events.ts";
import { MAX_PENDING } from "../../src/approval/approvals.ts";
import { describePrompt } from "../../src/cli/approval-prompter.ts";
import { memoryApprovals } from "../../src/approval/remembered.ts";
import {
  APPROVAL_DEFAULTS,
  type ApprovalLevel,
  type StdioServer,
} from "../../src/manifest/manifest.ts";
import type { Hub } from "../../src/hub/hub.ts";
import { ALL_SERVERS } from "../../src/upstream/profile.ts";
import {
  callRequest,
  callTool,
  type HubSetupOptions,
  initialize,
  isResponseTo,
  type Json,
  manifestFor,
  Peer,
  ScriptedServer,
  sendRequest,
  setUpHubWithClock,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";
import { withDeadline } from "../harness/wait.ts";
import { setUpHttp } from "../fixtures/http-client.ts";
import {
  answersTo,
  inputRoundOf,
  sendModernRequest,
  sendModernWithId,
} from "../fixtures/modern-requests.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import { cancel } from "../fixtures/peer-messages.ts";
import { openWithClock, callPlugin, pluginWithHost } from "../plugins/plugin-hub.ts";

const FORMS = { elicitation: { form: {} } };
const RESULT = '{"content":[],"n":1.0,"big":1234567890123456789}';
const TASKS = { tasks: { requests: { tools: { call: {} } } } };
const NO_RULES = { allow: undefined, deny: [], rename: {}, timeout: {} };

/** Tools `w` (says nothing), `r` (read-only) and `d` (destructive) that answer with `RESULT`. */
function makeServer(): ScriptedServer {
  const server = new ScriptedServer();
  server.tools = [
    tool("w"),
    tool("r", { readOnlyHint: true }),
    tool("d", { readOnlyHint: false, destructiveHint: true }),
  ];
  server.capabilities = TASKS;
  server.onCall = () => `"result":${RESULT}`;
  return server;
}

function tool(name: string, annotations?: object, description = "It works."): string {
  const execution = { taskSupport: "optional" };
  return JSON.stringify({
    name,
    description,
    inputSchema: { type: "object" },
    annotations,
    execution,
  });
}

interface Settings extends Pick<
  HubSetupOptions,
  "servers" | "minimumApproval" | "howToBeAsked" | "isWatchable" | "openApprovals" | "redact"
> {
  /** `defaults.approvalWait`. */
  readonly wait?: number;
  readonly approval?: ApprovalLevel;
  readonly timeout?: number;
}

/** A hub with a server `s` whose calls need approval at level `auto`, and a client that shows forms. */
async function open(settings: Settings = {}, capabilities: object = FORMS) {
  const s = makeServer();
  const { approval = "auto", timeout = 120_000, wait, ...others } = settings;
  const manifest = {
    ...manifestFor({ s }, others),
    approval: { ...APPROVAL_DEFAULTS, approval, timeout, wait },
  };
  const setup = setUpHubWithClock({ s }, { ...others, manifest });
  await initialize(setup.client, capabilities);
  await setup.hub.settled();
  return { ...setup, s, manifest };
}

const isForm = ({ method }: Json): boolean => method === "elicitation/create";

/** The n-th form that the client gets. */
async function formAt(client: Peer, n = 0): Promise<Json> {
  await client.until(() => client.messages.filter(isForm).length > n);
  return client.messages.filter(isForm)[n] ?? assert.fail();
}

function answerForm(client: Peer, form: Json, decision: unknown): void {
  const result = { action: "accept", content: { decision } };
  client.send({ jsonrpc: "2.0", id: form.id, result });
}

const callsAt = (s: ScriptedServer): readonly unknown[] =>
  s.messagesOf("tools/call").map(({ params }) => params?.["name"]);

const codeOf = ({ result }: Json): unknown =>
  (result?.["_meta"] as Json | undefined)?.["toolmux/error" as keyof Json];

const approvalsOf = (events: readonly HubEvent[]): readonly ApprovalEvent[] =>
  events.flatMap((event) => (event.kind === "approval" ? [event] : []));

const changesOf = (events: readonly HubEvent[]): readonly unknown[] =>
  approvalsOf(events).map((event) =>
    event.change === "decided" ? `${event.decision} by ${event.by}` : event.change,
  );

/** The same with a call, 1, of the tool `w`, and the form that the client has got. */
async function openAsked(settings: Settings = {}) {
  const setup = await open(settings);
  setup.client.send(callRequest(1, "s__w"));
  const form = await formAt(setup.client);
  return { ...setup, form, answered: () => setup.client.find(isResponseTo(1)) };
}

/** Waits until so many questions are open. */
function openQuestions(hub: Hub, count = 1): Promise<readonly ApprovalPrompt[]> {
  return withDeadline(
    5000,
    () => `${count} open questions instead of ${hub.approvals.prompts.length}`,
    (resolve) => {
      const check = (): void => {
        if (hub.approvals.prompts.length === count) resolve(hub.approvals.prompts);
      };
      const unsubscribe = hub.subscribe(check, ["approval"]);
      check();
      return unsubscribe;
    },
  );
}

describe("a call that needs an approval", () => {
  it("is put to the client's person, and then runs exactly once, its result byte for byte", async () => {
    const { client, s, hub, events } = await open();
    client.send(callRequest(1, "s__w", { path: "/tmp/x", n: 1 }));
    const form = await formAt(client);
    const { message, requestedSchema } = form.params as {
      message: string;
      requestedSchema: { properties: { decision: { enum: unknown } } };
    };
    assert.equal(
      message,
      'Server "s" wants to run s__w with:\n{\n  "path": "/tmp/x",\n  "n": 1\n}',
    );
    const choices = ["once", "session", "always", "deny"];
    assert.deepEqual(requestedSchema.properties.decision.enum, choices);
    assert.deepEqual(
      hub.snapshot().calls.map(({ waitingFor }) => waitingFor),
      ["approval"],
    );
    assert.deepEqual(callsAt(s), []);
    answerForm(client, form, "once");
    await client.find(isResponseTo(1));
    assert.ok(client.received.some((text) => text.includes(`"result":${RESULT}`)));
    assert.deepEqual(callsAt(s), ["w"]);
    assert.deepEqual(changesOf(events), ["asked", "once by terminal"]);
    client.send(callRequest(2, "s__w"));
    await formAt(client, 1);
  });

  const REFUSALS: readonly [string, object][] = [
    ["deny", { result: { action: "accept", content: { decision: "deny" } } }],
    ["decline", { result: { action: "decline" } }],
    ["cancel", { result: { action: "cancel" } }],
    [
      "a decision that was not offered",
      { result: { action: "accept", content: { decision: "yes" } } },
    ],
    ["no decision", { result: { action: "accept", content: {} } }],
    ["content that is no object", { result: { action: "accept", content: "once" } }],
    ["no result of an elicitation", { result: { decision: "once" } }],
    ["an array", { result: [] }],
  ];
  for (const [what, answer] of REFUSALS) {
    it(`never reaches its server if the client answers with ${what}`, async () => {
      const { client, s, form, answered } = await openAsked();
      client.send({ jsonrpc: "2.0", id: form.id, ...answer });
      const response = await answered();
      assert.equal(response.result?.["isError"], true);
      assert.equal(codeOf(response), "notApproved");
      assert.deepEqual(callsAt(s), []);
    });
  }

  it("is refused with the remedy if nobody can be asked, and if the client cannot show the form after all", async () => {
    const silent = await open({ howToBeAsked: "watch" }, {});
    const refused = await callTool(silent.client, "s__w");
    assert.equal(codeOf(refused), "notApproved");
    assert.match(
      JSON.stringify(refused.result),
      /s__w.*defaults\.approval.*Ask the user to watch, .*tools\.approval/,
    );
    const { client, s, form, answered } = await openAsked();
    client.send({ jsonrpc: "2.0", id: form.id, error: { code: -32601, message: "no" } });
    assert.equal(codeOf(await answered()), "notApproved");
    assert.deepEqual([callsAt(s), callsAt(silent.s)], [[], []]);
  });

  it("is refused with the remedy when the last one who watches leaves and does not return, if the client cannot show the form", async () => {
    for (const capabilities of [{}, FORMS]) {
      const watched = { isWatchable: true, wait: 5000 };
      const { client, clock, s, hub, events } = await open(watched, capabilities);
      const ends = [hub.approvals.watch(), hub.approvals.watch()];
      client.send(callRequest(1, "s__w"));
      if (capabilities === FORMS) {
        const { id } = await formAt(client);
        client.send({ jsonrpc: "2.0", id, error: { code: -32601, message: "no" } });
      }
      await openQuestions(hub);
      ends[0]?.();
      await sendRequest(client, "ping");
      assert.deepEqual(changesOf(events), ["asked"]);
      ends[1]?.();
      await clock.advanceAsync(4000);
      const endReturned = hub.approvals.watch();
      await clock.advanceAsync(6000);
      assert.deepEqual(changesOf(events), ["asked"]);
      endReturned();
      await clock.advanceAsync(5010);
      const refused = await client.find(isResponseTo(1));
      assert.equal(codeOf(refused), "notApproved");
      assert.match(JSON.stringify(refused), /Ask the user to set tools\.approval/);
      assert.deepEqual([changesOf(events), callsAt(s)], [["asked", "withdrawn"], []]);
    }
  });

  const WAITS: readonly {
    readonly what: string;
    readonly settings: Settings;
    readonly capabilities?: object;
    /** Of the server. */
    readonly own?: number;
    /** In ms; undefined: at once. */
    readonly until?: number;
    readonly then?: "refused" | "asked";
  }[] = [
    { what: "30 s if its client cannot be asked", settings: {}, until: 30_000 },
    { what: "as long as the default says", settings: { wait: 7000 }, until: 7000 },
    { what: "as long as its server says", settings: { wait: 7000 }, own: 3000, until: 3000 },
    { what: "not at all if that is 0", settings: { wait: 0 } },
    { what: "not at all if its server says 0", settings: { wait: 7000 }, own: 0 },
    { what: "at most for approvalTimeout", settings: { timeout: 2000, wait: 7000 }, until: 2000 },
    { what: "not at all without a control API", settings: { isWatchable: false, wait: 7000 } },
    { what: "not at all if its client can be asked", settings: {}, capabilities: FORMS },
    {
      what: "as long as is set if its client can be asked",
      settings: { wait: 7000 },
      capabilities: FORMS,
      until: 7000,
    },
  ];
  for (const { what, settings, capabilities = {}, own, until } of WAITS)
    it(`waits for somebody who watches: ${what}`, async () => {
      const { s: _, ...setup } = await open({ isWatchable: true, ...settings }, capabilities);
      const { client, clock, hub } = setup;
      if (own !== undefined) hub.add(stdioSpecOf("s", { approvalWait: own }), "manifest");
      await hub.settled();
      const params = { name: "s__w", arguments: {}, _meta: { progressToken: "p" } };
      client.send({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
      const isRefused = capabilities !== FORMS;
      const isEnd = isRefused ? isResponseTo(1) : isForm;
      if (until !== undefined) {
        await openQuestions(hub);
        await clock.advanceAsync(until - 10);
        await sendRequest(client, "ping");
        assert.ok(!client.messages.some(isEnd));
        const told = client.messages.find(({ method }) => method === "notifications/progress");
        assert.equal(told?.params?.["progressToken"], "p");
        await clock.advanceAsync(20);
      }
      const end = await client.find(isEnd);
      if (isRefused) assert.equal(codeOf(end), "notApproved");
    });

  it("that waits for somebody who watches goes on to wait when one comes, and is decided by that one", async () => {
    const { client, clock, hub, s } = await open({ isWatchable: true, wait: 1000 }, {});
    client.send(callRequest(1, "s__w"));
    const [question] = await openQuestions(hub);
    hub.approvals.watch();
    await clock.advanceAsync(60_000);
    assert.equal(hub.approvals.answer(question?.id ?? "", "once", "terminal"), "accepted");
    assert.equal((await client.find(isResponseTo(1))).result?.["n"], 1);
    assert.deepEqual(callsAt(s), ["w"]);
  });

  it("is put to whoever watches as well: the first answer counts, later ones find nothing", async () => {
    const { client, s, hub, events } = await open();
    const endWatch = hub.approvals.watch();
    client.send(callRequest(1, "s__w"));
    const form = await formAt(client);
    const [question] = await openQuestions(hub);
    assert.ok(question);
    assert.equal(hub.approvals.answer("99", "once", "terminal"), "unknown");
    assert.equal(hub.approvals.answer(question.id, "once", "terminal"), "accepted");
    await client.find(isResponseTo(1));
    const withdrawn = await client.find(({ method }) => method === "notifications/cancelled");
    assert.equal(withdrawn.params?.["requestId"], form.id);
    answerForm(client, form, "deny");
    assert.equal(hub.approvals.answer(question.id, "deny", "terminal"), "over");
    assert.deepEqual(callsAt(s), ["w"]);
    assert.deepEqual(changesOf(events), ["asked", "once by terminal"]);
    endWatch();
  });

  it("takes no answer of another client", async () => {
    const { client, connect, hub, s } = await open();
    const other = connect();
    await initialize(other, FORMS);
    client.send(callRequest(1, "s__w"));
    answerForm(other, await formAt(client), "once");
    await sendRequest(other, "ping");
    assert.equal((await openQuestions(hub)).length, 1);
    assert.deepEqual(callsAt(s), []);
  });

  it("is denied after approvalTimeout, and its own deadline stands still until then", async () => {
    const servers = { s: { callTimeout: 1000, maxCallTimeout: 2000 } };
    const { client, clock, events, hub, s, form, answered } = await openAsked({ servers });
    await clock.advanceAsync(119_000);
    assert.deepEqual(changesOf(events), ["asked"]);
    await clock.advanceAsync(1000);
    assert.equal(codeOf(await answered()), "notApproved");
    assert.deepEqual(changesOf(events), ["asked", "deny by timeout"]);
    assert.deepEqual(
      events.flatMap((event) =>
        event.kind === "callFinished" ? [[event.outcome, event.failed]] : [],
      ),
      [["denied", false]],
    );
    answerForm(client, form, "once");
    client.send(callRequest(2, "s__w"));
    const second = await formAt(client, 1);
    await clock.advanceAsync(60_000);
    answerForm(client, second, "once");
    assert.equal((await client.find(isResponseTo(2))).result?.["n"], 1);
    assert.deepEqual(callsAt(s), ["w"]);
    // A denial is no error, and nothing of the time for which a person was waited for is the tool's.
    const [used] = hub.usage.usage(60_000, 1).tools;
    assert.deepEqual(
      [used?.calls, used?.denied, used?.failed, used?.n, used?.personWait],
      [2, 1, 0, 1, 180_000],
    );
    assert.ok((used?.max ?? Infinity) < 1000);
    assert.deepEqual(
      hub.usage.ended.map(({ outcome, personWait, sent }) => [outcome, personWait, sent]),
      [
        ["answered", 60_000, true],
        ["denied", 120_000, false],
      ],
    );
  });

  it("reports progress every 10 s while it waits, under the client's token", async () => {
    const { client, clock, hub } = await open();
    client.send(callRequest(1, "s__w", {}, { _meta: { progressToken: "p" } }));
    await openQuestions(hub);
    await clock.advanceAsync(21_000);
    const progress = client.messages.filter(({ method }) => method === "notifications/progress");
    assert.deepEqual(
      progress.map(({ params }) => [params?.["progressToken"], params?.["message"]]),
      [
        ["p", "Waiting for approval"],
        ["p", "Waiting for approval"],
      ],
    );
    const [first, second] = progress.map(({ params }) => Number(params?.["progress"]));
    assert.ok(Number(first) < Number(second));
  });

  const ENDINGS: Readonly<Record<string, (setup: Awaited<ReturnType<typeof open>>) => unknown>> = {
    "the client cancels it": ({ client }) => cancel(client, 1),
    "the client leaves": ({ client }) => client.transport.close(),
    "the operator cancels it": ({ hub }) => hub.cancelCall(1),
    "the hub ends": ({ hub }) => hub.close(),
    "its server dies": ({ s }) => s.disconnect(),
    "its server is stopped": ({ hub }) => hub.stop("s"),
    "its server is removed": ({ hub }) => hub.remove("s"),
    "a reload changes its server": ({ hub, manifest }) => {
      const tools = { ...NO_RULES, deny: ["w"] };
      hub.reload({ ...manifest, servers: [stdioSpecOf("s", { tools })] });
    },
    "a reload removes its server": ({ hub, manifest }) => hub.reload({ ...manifest, servers: [] }),
  };
  for (const [what, end] of Object.entries(ENDINGS)) {
    it(`is withdrawn everywhere when ${what}, and reaches no server`, async () => {
      const setup = await openAsked();
      const { client, hub, events, s, form } = setup;
      const [question] = await openQuestions(hub);
      await end(setup);
      await openQuestions(hub, 0);
      assert.equal(hub.approvals.answer(question?.id ?? "", "once", "terminal"), "over");
      assert.deepEqual(changesOf(events), ["asked", "withdrawn"]);
      if (!client.isClosed) answerForm(client, form, "once");
      await hub.close();
      assert.deepEqual(callsAt(s), []);
      assert.deepEqual(
        hub.usage.ended.map(({ sent }) => sent),
        [false],
      );
    });
  }

  it("does not run if its server has changed the tool meanwhile", async () => {
    const { client, s, hub, form, answered } = await openAsked();
    s.tools = [tool("w", undefined, "It deletes everything.")];
    await hub.refresh("s");
    answerForm(client, form, "always");
    assert.equal(codeOf(await answered()), "notDelivered");
    client.send(callRequest(2, "s__w"));
    await formAt(client, 1);
    assert.deepEqual(callsAt(s), []);
  });

  it("is answered out of order, each by its own answer", async () => {
    const { client, s } = await open();
    for (const id of [1, 2, 3]) client.send(callRequest(id, "s__w", { id }));
    await formAt(client, 2);
    for (const [id, decision] of [
      [3, "once"],
      [1, "deny"],
      [2, "once"],
    ] as const) {
      const form = client.messages
        .filter(isForm)
        .find(({ params }) => String(params?.["message"]).includes(`"id": ${id}\n`));
      answerForm(client, form ?? assert.fail(), decision);
      const response = await client.find(isResponseTo(id));
      assert.equal(response.result?.["isError"], decision === "deny" ? true : undefined);
    }
    const args = s.messagesOf("tools/call").map(({ params }) => params?.["arguments"]);
    assert.deepEqual(args, [{ id: 3 }, { id: 2 }]);
  });

  it("is refused at once if too many of its client already wait", async () => {
    const { client, hub } = await open({ approval: "always" });
    for (let id = 1; id <= MAX_PENDING.perClient; id++) client.send(callRequest(id, "s__w"));
    await openQuestions(hub, MAX_PENDING.perClient);
    assert.equal(codeOf(await callTool(client, "s__w")), "notApproved");
  });

  it("can become a task, once it is allowed", async () => {
    const { client, s } = await open();
    s.onCall = ({ params }) => `"result":{"content":[],"task":${JSON.stringify(params?.["task"])}}`;
    client.send(callRequest(1, "s__w", {}, { task: { ttl: 1000 } }));
    answerForm(client, await formAt(client), "once");
    await client.find(isResponseTo(1));
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["task"], { ttl: 1000 });
  });
});

describe("a modern client", () => {
  const params = { name: "s__w", arguments: { a: 1 } };

  it("is asked by input_required at once if nobody watches, and its retry decides", async () => {
    for (const [decision, calls] of [
      ["once", ["w"]],
      ["deny", []],
      [7, []],
    ] as const) {
      const { client, s, clock, hub } = await open();
      const pending = sendModernRequest(client, "tools/call", params, FORMS);
      await openQuestions(hub);
      await clock.advanceAsync(10);
      const answer = { action: "accept", content: { decision } };
      const retry = { ...params, ...answersTo(await pending, () => answer) };
      const answered = await sendModernWithId(client, "again", "tools/call", retry, FORMS);
      assert.equal(answered.result?.["isError"], calls.length === 0 ? true : undefined);
      assert.deepEqual(callsAt(s), calls);
    }
  });

  it("is asked after 10 s if somebody watches, whose answer counts while its call is parked", async () => {
    const { client, s, clock, hub } = await open();
    hub.approvals.watch();
    const pending = sendModernRequest(client, "tools/call", params, FORMS);
    const [question] = await openQuestions(hub);
    await clock.advanceAsync(9000);
    assert.ok(!client.received.some((text) => text.includes("inputRequests")));
    await clock.advanceAsync(1010);
    const { state } = inputRoundOf(await pending);
    assert.equal(hub.approvals.answer(question?.id ?? "", "once", "dashboard"), "accepted");
    const retry = { ...params, requestState: state, inputResponses: {} };
    const answered = await sendModernWithId(client, "again", "tools/call", retry, FORMS);
    assert.equal(answered.result?.["n"], 1);
    assert.deepEqual(callsAt(s), ["w"]);
  });

  it("is asked soon after the last one who watches has gone", async () => {
    const { client, clock, hub } = await open();
    const endWatch = hub.approvals.watch();
    const pending = sendModernRequest(client, "tools/call", params, FORMS);
    await openQuestions(hub);
    endWatch();
    await clock.advanceAsync(5010);
    assert.equal(inputRoundOf(await pending).keys.length, 1);
  });
});

describe("what is asked for", () => {
  const of = (s: Partial<StdioServer>): Settings => ({ servers: { s } });
  const rules = (approval: Readonly<Record<string, ApprovalLevel>>): Settings =>
    of({ tools: { ...NO_RULES, approval } });
  const annotations = { w: { readOnlyHint: true }, r: { readOnlyHint: false } };
  const W_NEVER = { ...rules({ w: "never" }), approval: "never" } as const;
  const R_ALWAYS = { ...NO_RULES, approval: { r: "always", w: "never" } } as const;
  /** With the tools whose calls are asked for, of w, r and d. */
  const CASES: readonly (readonly [what: string, settings: Settings, asked: string])[] = [
    ["never: nothing", { approval: "never" }, ""],
    ["auto: what does not say that it only reads", {}, "wd"],
    ["always: everything", { approval: "always" }, "wrd"],
    [
      "a server's level before the default",
      { approval: "always", ...of({ approval: "never" }) },
      "",
    ],
    [
      "a tool's level before the server's",
      { approval: "never", ...of({ approval: "auto", tools: R_ALWAYS }) },
      "rd",
    ],
    [
      "a name before a pattern, and the longer pattern before the shorter",
      rules({ "*": "always", w: "never", "?": "never" }),
      "rd",
    ],
    ["the manifest's annotations first", of({ tools: { ...NO_RULES, annotations } }), "rd"],
    [
      "--approval raises servers and defaults, but not rules for tools",
      { ...W_NEVER, minimumApproval: "always" },
      "rd",
    ],
    ["--approval lowers nothing", { approval: "always", minimumApproval: "auto" }, "wrd"],
    ["--approve-all raises everything", { ...W_NEVER, minimumApproval: "all" }, "wrd"],
  ];
  for (const [what, settings, asked] of CASES) {
    it(what, async () => {
      const { client } = await open(settings, {});
      let found = "";
      for (const name of ["w", "r", "d"])
        if (codeOf(await callTool(client, `s__${name}`)) === "notApproved") found += name;
      assert.equal(found, asked);
    });
  }

  it("includes a tool that says only later that it only reads, until that is accepted", async () => {
    const { client, s, hub } = await open({}, {});
    s.tools = [tool("w", { readOnlyHint: true }), tool("r", { readOnlyHint: true })];
    await hub.refresh("s");
    assert.equal(codeOf(await callTool(client, "s__w")), "notApproved");
    assert.equal((await callTool(client, "s__r")).result?.["n"], 1);
    await hub.acceptTools("s");
    assert.equal((await callTool(client, "s__w")).result?.["n"], 1);
  });
});

describe("a decision", () => {
  async function decide(client: Peer, name: string, n: number, decision: ApprovalDecision) {
    const called = callTool(client, name);
    answerForm(client, await formAt(client, n), decision);
    return called;
  }

  it("for the session counts for this client and tool, until the client leaves", async () => {
    const { client, connect, events } = await open();
    await decide(client, "s__w", 0, "session");
    assert.equal((await callTool(client, "s__w")).result?.["n"], 1);
    assert.deepEqual(changesOf(events), ["asked", "session by terminal", "session by rule"]);
    client.send(callRequest("open", "s__d"));
    await formAt(client, 1);
    const other = connect();
    await initialize(other, FORMS);
    other.send(callRequest("open", "s__w"));
    await formAt(other);
  });

  it("for good counts for all clients and later hubs, until it is forgotten or the tool changes", async () => {
    const store = memoryApprovals();
    const openApprovals = () => Promise.resolve(store);
    const first = await open({ openApprovals });
    await decide(first.client, "s__w", 0, "always");
    const { client, s, hub } = await open({ openApprovals }, {});
    assert.equal((await callTool(client, "s__w")).result?.["n"], 1);
    const [entry, ...others] = await store.list();
    assert.deepEqual([entry?.server, entry?.tool, entry?.clientName, others], ["s", "w", "t", []]);
    s.tools = [tool("w", undefined, "Another one.")];
    await hub.refresh("s");
    assert.equal(codeOf(await callTool(client, "s__w")), "notApproved");
    const last = await open({ openApprovals }, {});
    assert.equal((await callTool(last.client, "s__w")).result?.["n"], 1);
    assert.deepEqual(await store.forget([entry?.id ?? ""]), [entry?.id]);
    assert.equal(codeOf(await callTool(last.client, "s__w")), "notApproved");
  });

  for (const [what, name, decision] of [
    ["for the session", "w", "session"],
    ["for good", "w", "always"],
    ["that a tool only reads", "r", undefined],
  ] as const) {
    it(`${what} does not count for what the server lists once the call has started it`, async () => {
      const { client, s, hub } = await open();
      if (decision === undefined) await callTool(client, `s__${name}`);
      else await decide(client, `s__${name}`, 0, decision);
      s.disconnect();
      s.tools = [tool(name, undefined, "It deletes everything.")];
      assert.equal(codeOf(await callTool(client, `s__${name}`)), "notDelivered");
      client.send(callRequest("again", `s__${name}`));
      await openQuestions(hub);
      assert.deepEqual(callsAt(s), [name]);
    });
  }

  it("for the session does not count for another server of the same name", async () => {
    const { client, s, hub, manifest } = await open();
    await decide(client, "s__w", 0, "session");
    hub.reload({ ...manifest, servers: [stdioSpecOf("s", { command: "another" })] });
    await hub.settled();
    client.send(callRequest("again", "s__w"));
    await formAt(client, 1);
    assert.deepEqual(callsAt(s), ["w"]);
  });

  it("for good lets other calls go on that wait for the same", async () => {
    const { client, hub, s } = await open();
    for (const id of [1, 2]) client.send(callRequest(id, "s__w"));
    await openQuestions(hub, 2);
    answerForm(client, await formAt(client), "always");
    await Promise.all([1, 2].map((id) => client.find(isResponseTo(id))));
    assert.deepEqual(callsAt(s), ["w", "w"]);
  });

  it("counts once, with a warning, if it cannot be stored", async () => {
    const store = memoryApprovals();
    store.allow = () => Promise.reject(new Error("disk full"));
    const { client, events } = await open({ openApprovals: () => Promise.resolve(store) });
    assert.equal((await decide(client, "s__w", 0, "always")).result?.["n"], 1);
    client.send(callRequest("open", "s__w"));
    await formAt(client, 1);
    assert.ok(events.some((event) => event.kind === "log" && event.level === "warn"));
  });

  it("for good is not offered for a destructive tool, unless tools.approval sets it to auto", async () => {
    const choicesOf = async (settings: Settings): Promise<unknown> => {
      const { client, hub } = await open(settings);
      client.send(callRequest("open", "s__d"));
      const [question] = await openQuestions(hub);
      return [question?.choices, Object.keys(question?.unavailable ?? {})];
    };
    assert.deepEqual(await choicesOf({}), [["once", "session", "deny"], ["always"]]);
    const tools = { ...NO_RULES, approval: { d: "auto" as const } };
    const choices = ["once", "session", "always", "deny"];
    assert.deepEqual(await choicesOf({ servers: { s: { tools } } }), [choices, []]);
  });
});

describe("a client that is no command of toolmux", () => {
  /** The same hub with a client on stdio that shows forms. */
  async function openOnStdio() {
    const setup = await open();
    const client = setup.connect("stdio");
    await initialize(client, FORMS);
    return { ...setup, client };
  }
  const enumOf = (params: unknown): unknown =>
    (params as { requestedSchema: { properties: { decision: { enum: unknown } } } }).requestedSchema
      .properties.decision.enum;

  for (const [decision, runs] of [
    ["once", ["w"]],
    ["session", ["w", "w"]],
    ["always", []],
  ] as const) {
    it(`decides for itself alone, so ${decision} of its form allows ${runs.length} of its calls and none of others`, async () => {
      const { client, connect, s, hub } = await openOnStdio();
      client.send(callRequest(1, "s__w"));
      const form = await formAt(client);
      assert.deepEqual(enumOf(form.params), ["once", "session", "deny"]);
      assert.deepEqual(hub.approvals.prompts[0]?.choices, ["once", "session", "always", "deny"]);
      answerForm(client, form, decision);
      const first = await client.find(isResponseTo(1));
      assert.equal(codeOf(first), decision === "always" ? "notApproved" : undefined);
      client.send(callRequest(2, "s__w"));
      if (decision === "session") await client.find(isResponseTo(2));
      else await formAt(client, 1);
      const other = connect("stdio");
      await initialize(other, FORMS);
      other.send(callRequest(3, "s__w"));
      await formAt(other);
      assert.deepEqual(callsAt(s), runs);
      const [entry, ...others] = await hub.approvals.remembered();
      assert.deepEqual(others, []);
      assert.deepEqual(
        entry && [entry.decision, entry.by, entry.client, entry.clientName],
        decision === "session" ? ["session", "client", "client-2", "t"] : undefined,
      );
    });

    it(`does so in the modern era, too, with ${decision}`, async () => {
      const { client, s, clock, hub } = await openOnStdio();
      const params = { name: "s__w", arguments: {} };
      const ask = async () => {
        const pending = sendModernRequest(client, "tools/call", params, FORMS);
        await openQuestions(hub);
        await clock.advanceAsync(10);
        return pending;
      };
      const asked = await ask();
      const { requests, keys } = inputRoundOf(asked);
      assert.deepEqual(enumOf(requests[keys[0] ?? ""]?.params), ["once", "session", "deny"]);
      const answer = answersTo(asked, () => ({ action: "accept", content: { decision } }));
      const done = await sendModernRequest(client, "tools/call", { ...params, ...answer }, FORMS);
      assert.equal(codeOf(done), decision === "always" ? "notApproved" : undefined);
      if (decision === "session") await sendModernRequest(client, "tools/call", params, FORMS);
      else assert.equal(inputRoundOf(await ask()).keys.length, 1);
      assert.deepEqual(callsAt(s), runs);
    });
  }

  it("is let by always of a terminal or the page, which is remembered with its source, for all clients", async () => {
    for (const by of ["terminal", "dashboard"] as const) {
      const { client, hub, connect, s } = await openOnStdio();
      client.send(callRequest(1, "s__w"));
      const [question] = await openQuestions(hub);
      assert.equal(hub.approvals.answer(question?.id ?? "", "always", by), "accepted");
      await client.find(isResponseTo(1));
      const other = connect("stdio");
      await initialize(other, {});
      assert.equal((await callTool(other, "s__w")).result?.["n"], 1);
      assert.deepEqual(callsAt(s), ["w", "w"]);
      const [entry, ...others] = await hub.approvals.remembered();
      assert.deepEqual(
        [entry?.decision, entry?.by, entry?.client, others],
        ["always", by, undefined, []],
      );
    }
  });

  it("finds what it decided for its session forgotten when it has left, or when that is asked for", async () => {
    for (const leaves of [true, false]) {
      const { client, hub } = await openOnStdio();
      client.send(callRequest(1, "s__w"));
      answerForm(client, await formAt(client), "session");
      await client.find(isResponseTo(1));
      const [entry] = await hub.approvals.remembered();
      assert.ok(entry);
      if (leaves) await client.transport.close();
      else assert.deepEqual(await hub.approvals.forget([entry.id]), [entry.id]);
      assert.deepEqual(await hub.approvals.remembered(), []);
    }
  });

  it("of HTTP without a token leaves room for others, however many sessions it opens", async () => {
    const s = makeServer();
    const manifest = manifestFor({ s }, { servers: { s: { approval: "always" } } });
    const { hub, newClient } = setUpHttp({ s }, { manifest });
    await hub.startAllAndSettle();
    const endWatch = hub.approvals.watch();
    const waiting: Promise<Response>[] = [];
    for (let session = 0; session < 6; session++) {
      const client = newClient();
      await client.initialize();
      for (let i = 0; i < 32; i++)
        waiting.push(client.post(callRequest(`${session} ${i}`, "s__w")));
    }
    await openQuestions(hub, MAX_PENDING.unidentified);
    const [ours, theirs] = chunkedTransportPair();
    void hub.accept(ours, new AbortController().signal, { kind: "stdio" });
    const own = new Peer(theirs);
    await initialize(own, FORMS);
    own.send(callRequest(1, "s__w"));
    await formAt(own);
    assert.ok(MAX_PENDING.unidentified < MAX_PENDING.total);
    endWatch();
    await hub.close();
    await Promise.allSettled(waiting);
  });
});

describe("a tool that its server removes while its approval is open", () => {
  for (const [what, tools] of [
    ["alone", [tool("r")]],
    ["with all others", []],
  ] as const) {
    for (const decided of ["after", "before"] as const) {
      it(`${what} is not called, if the hub learns of it ${decided} the decision`, async () => {
        const { client, s, hub, form, answered } = await openAsked();
        s.tools = [...tools];
        if (decided === "before") await hub.refresh("s");
        else s.onCall = () => assert.fail("the tool was called");
        if (decided === "before") {
          if (hub.approvals.prompts.length > 0) answerForm(client, form, "once");
          assert.equal(codeOf(await answered()), "notDelivered");
        } else {
          s.disconnect();
          answerForm(client, form, "once");
          assert.equal(codeOf(await answered()), "notDelivered");
        }
        assert.deepEqual(callsAt(s), []);
      });
    }
  }
});

describe("clients that cannot be told apart", () => {
  it("are not offered an approval for the session", async () => {
    const s = makeServer();
    const manifest = manifestFor({ s }, { servers: { s: { approval: "always" } } });
    const { hub, newClient } = setUpHttp({ s }, { manifest });
    await hub.startAllAndSettle();
    const params = { name: "s__w", arguments: {} };
    const extra = { capabilities: FORMS };
    const response = await newClient().postModern("tools/call", params, extra);
    const { requests, keys } = inputRoundOf((await response.json()) as Json);
    const schema = JSON.stringify(requests[keys[0] ?? ""]?.params["requestedSchema"]);
    assert.match(schema, /"enum":\["once","deny"\]/);
    await hub.close();
  });
});

describe("a client with a token of its own", () => {
  it("is asked for what its table says, unless a tool has a rule of its own", async () => {
    const s = makeServer();
    const tools = { ...NO_RULES, approval: { d: "never" as const } };
    const token = { text: "t", file: "/m.toml", baseDir: "/" };
    const named = { mode: undefined, servers: undefined, sessions: undefined };
    const manifest = {
      ...manifestFor({ s }, { servers: { s: { tools } } }),
      clients: (["never", "auto", "always"] as const).map((approval) => ({
        ...named,
        kind: "client" as const,
        name: approval,
        token,
        approval,
      })),
    };
    const clients = manifest.clients.map(({ name }) => ({
      name,
      subset: ALL_SERVERS,
      mode: undefined,
      maxSessions: undefined,
      token: `token-of-${name}`,
    }));
    const { hub, newClient } = setUpHttp({ s }, { manifest, server: { clients } });
    await hub.startAllAndSettle();
    const asked: string[] = [];
    for (const { token: bearer } of clients) {
      for (const name of ["w", "r", "d"]) {
        const params = { name: `s__${name}`, arguments: {} };
        const headers = { Authorization: `Bearer ${bearer}` };
        const response = await newClient().postModern("tools/call", params, { headers });
        const json = (await response.json()) as Json;
        if (codeOf(json) === "notApproved") asked.push(`${bearer} ${name}`);
      }
    }
    const limits = hub.snapshot().clients.map(({ id, limits: own }) => [id, own?.approval]);
    assert.deepEqual(new Map(limits as [string, unknown][]).get("auto"), "auto");
    assert.deepEqual(asked, ["token-of-auto w", "token-of-always w", "token-of-always r"]);
    await hub.close();
  });
});

describe("the arguments that are shown", () => {
  async function shown(json: string, settings: Settings = {}): Promise<string> {
    const { client, hub } = await open(settings);
    client.send(
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__w","arguments":${json}}}`,
    );
    return (await openQuestions(hub))[0]?.argumentsShown ?? "";
  }

  it("are those that are sent: numbers, repeated keys and their order stay", async () => {
    const text = await shown('{"b":1.0,"a":[1234567890123456789,{}],"b":"x"}');
    assert.equal(
      text,
      '{\n  "b": 1.0,\n  "a": [\n    1234567890123456789,\n    {}\n  ],\n  "b": "x"\n}',
    );
  });

  it("have no secrets, however they are written, and invisible characters as escapes", async () => {
    const redact = (text: string): string => text.replaceAll("hunter2", "[redacted]");
    const text = await shown('{"k":"a\\u0068unter2","z":"x\u200b\u202ey"}', { redact });
    assert.ok(!text.includes("hunter2") && text.includes("[redacted]"));
    assert.ok(text.includes(String.raw`x\u{200b}\u{202e}y`));
  });

  it("are at most 2,000 characters long, with both ends of long values", async () => {
    const long = `START${"x".repeat(50_000)}END`;
    const one = await shown(JSON.stringify({ long, short: "s" }));
    assert.ok(one.length <= 2000 && one.includes("START") && one.includes("END"));
    assert.ok(one.includes('"short": "s"'));
    const many = await shown(JSON.stringify({ list: Array.from({ length: 5000 }, () => "y") }));
    assert.ok(many.length <= 2000);
    const huge = await shown(JSON.stringify({ long: "x".repeat(2_000_000) }));
    assert.ok(huge.length < 200);
  });
});

describe("calls of plugins and agents", () => {
  it("are asked for before the first plugin sees them", async () => {
    const seen: string[] = [];
    const plugin = callPlugin("seeing", (call, next) => {
      seen.push(call.tool.name);
      return next(call);
    });
    const s = makeServer();
    const servers = { s: { approval: "auto" as const } };
    const { client } = await openWithClock([plugin], { s }, { servers }, FORMS);
    client.send(callRequest(1, "s__w"));
    const form = await formAt(client);
    assert.deepEqual(seen, []);
    answerForm(client, form, "once");
    assert.equal((await client.find(isResponseTo(1))).result?.["n"], 1);
    assert.deepEqual(seen, ["w"]);
  });

  const ALWAYS: Settings = { servers: { s: { approval: "always" } } };
  /** The level that the manifest gives a call of an agent, by who says it. */
  const AGENT_CALLS: readonly (readonly [string, object, Settings, string])[] = [
    ["are asked for at level auto by default", {}, { approval: "never" }, "w"],
    ["take the agent's level before the server's", { approval: "never" }, ALWAYS, ""],
    ["take a fallback only where the manifest says nothing", { fallback: "never" }, {}, ""],
    ["take no fallback for what the server says", { fallback: "never" }, ALWAYS, "wr"],
  ];
  for (const [what, agent, settings, asked] of AGENT_CALLS) {
    it(`that an agent makes through the control socket ${what}`, async () => {
      const { connect } = await open({ approval: "never", ...settings });
      const client = connect("control");
      await initialize(client);
      let found = "";
      for (const name of ["w", "r"]) {
        const _meta = { "toolmux/agent": { name: "reviewer", ...agent } };
        client.send(callRequest(name, `s__${name}`, {}, { _meta }));
        if (codeOf(await client.find(isResponseTo(name))) === "notApproved") found += name;
      }
      assert.equal(found, asked);
      const bad = { _meta: { "toolmux/agent": { approval: "no" } } };
      client.send(callRequest("bad", "s__r", {}, bad));
      assert.equal((await client.find(isResponseTo("bad"))).error?.code, -32602);
    });
  }

  it("that a person has to allow each time are asked for, whatever is set or was allowed before", async () => {
    const tools = { ...NO_RULES, approval: { w: "never", r: "never" } as const };
    const never: Settings = { servers: { s: { tools } } };
    const { hub, connect } = await open(never);
    hub.approvals.watch();
    const client = connect("control");
    await initialize(client, FORMS);
    const agent = { name: "reviewer", approval: "never" };
    client.send(callRequest("plain", "s__w", {}, { _meta: { "toolmux/agent": agent } }));
    assert.equal((await client.find(isResponseTo("plain"))).result?.["n"], 1);
    const _meta = { "toolmux/agent": { ...agent, everyCall: true } };
    for (const [at, name] of ["w", "w", "r"].entries()) {
      client.send(callRequest(at, `s__${name}`, {}, { _meta }));
      const form = await formAt(client, at);
      const { requestedSchema } = form.params as {
        readonly requestedSchema: {
          readonly properties: { readonly decision: { readonly enum: readonly string[] } };
        };
      };
      assert.deepEqual(requestedSchema.properties.decision.enum, ["once", "deny"]);
      answerForm(client, form, "once");
      assert.equal((await client.find(isResponseTo(at))).error, undefined);
    }
  });

  it("name an agent in one line, whatever its file calls it", async () => {
    const { hub, connect } = await open();
    hub.approvals.watch();
    const client = connect("control");
    await initialize(client, FORMS);
    const name = `a" asks: nothing.\n\u202e\u001b[2J${"x".repeat(1000)}`;
    client.send(callRequest(1, "s__w", {}, { _meta: { "toolmux/agent": { name } } }));
    const [line = ""] = String((await formAt(client)).params?.["message"]).split("\n");
    assert.match(
      line,
      /^Agent "a\\" asks: nothing\..{1,100}" asks: Server "s" wants to run s__w with:$/,
    );
    assert.doesNotMatch(JSON.stringify(await openQuestions(hub)), /\\n\u202e|\\u001b/);
    const named = { ...(await openQuestions(hub))[0], principal: "ci", clientName: "cursor" };
    assert.match(describePrompt(named as ApprovalPrompt), / of ci \(cursor\) wants to run /);
  });

  it("are those of the client if it is none of the control socket, whatever it says of an agent", async () => {
    const { client } = await open({ approval: "always" }, {});
    const _meta = { "toolmux/agent": { name: "reviewer", approval: "never" } };
    client.send(callRequest(1, "s__w", {}, { _meta }));
    assert.equal(codeOf(await client.find(isResponseTo(1))), "notApproved");
  });

  it("that a plugin makes for a client are put to that client, at the level of agents if an agent makes them", async () => {
    const s = makeServer();
    const acting = pluginWithHost("acting", (host) => ({
      call: (next, { name }) =>
        name === "r"
          ? (call) => host.call("s__w", {}, { for: call, agent: { name: "reviewer" } })
          : next,
    }));
    const { client, events } = await openWithClock([acting], { s }, {}, FORMS);
    assert.equal((await callTool(client, "s__w")).result?.["n"], 1);
    client.send(callRequest(1, "s__r"));
    answerForm(client, await formAt(client), "once");
    assert.equal((await client.find(isResponseTo(1))).result?.["n"], 1);
    assert.equal(approvalsOf(events)[0]?.agent, "reviewer");
  });
});
