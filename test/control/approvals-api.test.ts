import assert from "node:assert/strict";
import { it, describe } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { makeControlSchema } from "../../src/control/json-schema.ts";
import type { EventDocument } from "../../src/control/schemas.ts";
import {
  callRequest,
  initialize,
  isResponseTo,
  sendRequest,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";
import { type ApiSetup, eventually, type Json, withApi } from "./controlled-hub.ts";

/** Makes calls of server `a` need an approval, and connects the client. */
async function connect({ hub, client }: ApiSetup): Promise<void> {
  hub.add(stdioSpecOf("a", { approval: "auto" }), "manifest");
  await initialize(client);
  await sendRequest(client, "tools/list");
}

/** Follows the events of approvals as a program that shows them. */
async function watch(setup: ApiSetup, signal: AbortSignal): Promise<readonly EventDocument[]> {
  const seen: EventDocument[] = [];
  const read = async (): Promise<void> => {
    const query = "kinds=approval&watch=approvals";
    for await (const event of setup.follow(query, signal)) seen.push(event as EventDocument);
  };
  read().catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
  await eventually("the reader", () => setup.hub.approvals.watcherCount === 1);
  return seen;
}

const openApproval = (setup: ApiSetup): Promise<Json> =>
  eventually("an open approval", async () => {
    const { document } = await setup.ask("GET", "/approvals");
    return (document["approvals"] as Json[])[0];
  });

const test = (name: string, run: (setup: ApiSetup, signal: AbortSignal) => Promise<void>): void =>
  void it(name, () =>
    withApi(async (setup) => {
      const abort = new AbortController();
      await connect(setup);
      await run(setup, abort.signal).finally(() => abort.abort());
    }),
  );

describe("the control API of approvals", () => {
  test("shows an open one to a reader who watches, counts it, and lets the call go on", async (setup, signal) => {
    const seen = await watch(setup, signal);
    const { client, ask } = setup;
    client.send(callRequest(1, "a__x", { key: "hunter2" }));
    const { id, askedAt, ...question } = await openApproval(setup);
    assert.deepEqual(question, {
      call: 1,
      client: "client-1",
      clientName: "t",
      server: "a",
      tool: "x",
      name: "a__x",
      argumentsShown: '{\n  "key": "[redacted]"\n}',
      reason: 'This tool may change something (approval of server "a" = "auto").',
      choices: ["once", "session", "always", "deny"],
    });
    assert.equal(typeof askedAt, "number");
    const counts = (await ask("GET", "/hub")).document["counts"] as Json;
    assert.equal(counts["approvals"], 1);
    const [call] = (await ask("GET", "/calls")).document["calls"] as Json[];
    assert.equal(call?.["waitingFor"], "approval");
    const path = `/approvals/${String(id)}`;
    const wrong = await ask("POST", path, { decision: "maybe" });
    assert.equal(wrong.status, 400);
    assert.equal((await ask("POST", path, { decision: "once", by: "dashboard" })).status, 204);
    await client.find(isResponseTo(1));
    await eventually("the decision", () => seen.length === 2);
    assert.deepEqual(
      seen.map(({ kind, ...event }) => [kind, event["change"], event["by"], event["decision"]]),
      [
        ["approval", "asked", undefined, undefined],
        ["approval", "decided", "dashboard", "once"],
      ],
    );
    const { $defs } = makeControlSchema() as { readonly $defs: Record<string, object> };
    const validate = new Ajv2020({ strict: false }).compile($defs["Event"] ?? {});
    for (const event of seen) assert.ok(validate(event), JSON.stringify(validate.errors));
  });

  test("asks in the name that the caller of a tool gives", async (setup, signal) => {
    const seen = await watch(setup, signal);
    const body = '{"arguments":{},"client":"toolmux dashboard"}';
    const answer = setup.fetch("POST", "/tools/a__x/call", body);
    const { id, clientName } = await openApproval(setup);
    assert.equal(clientName, "toolmux dashboard");
    await setup.ask("POST", `/approvals/${String(id)}`, { decision: "once" });
    assert.equal((await answer).status, 200);
    await eventually("the decision", () => seen.length === 2);
    assert.deepEqual(
      seen.map((event) => event["clientName"]),
      ["toolmux dashboard", "toolmux dashboard"],
    );
    for (const client of ["", "x".repeat(65), 1])
      assert.equal((await setup.ask("POST", "/tools/a__x/call", { client })).status, 400);
  });

  test("answers 409 for one that is over, and 404 for one that never was", async (setup, signal) => {
    await watch(setup, signal);
    const { client, fetch } = setup;
    client.send(callRequest(1, "a__x"));
    const { id } = await openApproval(setup);
    const answers = [];
    assert.equal(id, "call:1");
    for (const one of [id, id, "call%3A1", "call:77", "1", "x"])
      answers.push((await fetch("POST", `/approvals/${one}`, '{"decision":"deny"}')).status);
    assert.deepEqual(answers, [204, 409, 409, 404, 404, 404]);
    assert.equal((await client.find(isResponseTo(1))).result?.["isError"], true);
    assert.deepEqual(setup.a.messagesOf("tools/call"), []);
  });

  const ENDS: readonly {
    readonly what: string;
    readonly end: (setup: ApiSetup) => Promise<unknown>;
    readonly says: RegExp;
  }[] = [
    {
      what: "in a terminal",
      end: ({ ask }) => ask("POST", "/approvals/call:1", { decision: "session" }),
      says: /allowed \(session\) in a terminal/,
    },
    {
      what: "on the page",
      end: ({ ask }) => ask("POST", "/approvals/call:1", { decision: "deny", by: "dashboard" }),
      says: /denied on the page/,
    },
    {
      what: "by the client",
      end: async ({ hub }) => hub.approvals.answer("call:1", "once", "client"),
      says: /by the client t\b/,
    },
    {
      what: "by nobody, as the call has ended",
      end: async ({ client }) =>
        client.send({
          jsonrpc: "2.0",
          method: "notifications/cancelled",
          params: { requestId: 1 },
        }),
      says: /ended before a decision/,
    },
  ];
  for (const { what, end, says } of ENDS)
    test(`says of one that is over that it was decided ${what}`, async (setup, signal) => {
      await watch(setup, signal);
      const { client, fetch, hub } = setup;
      client.send(callRequest(1, "a__x"));
      await openApproval(setup);
      await end(setup);
      await eventually("the end", () => hub.approvals.prompts.length === 0);
      const again = await fetch("POST", "/approvals/call:1", '{"decision":"once"}');
      assert.equal(again.status, 409);
      assert.match(JSON.stringify(again), says);
    });

  test("shows what was allowed for good, and forgets it", async (setup, signal) => {
    await watch(setup, signal);
    const { client, ask, fetch } = setup;
    client.send(callRequest(1, "a__x"));
    const { id } = await openApproval(setup);
    await ask("POST", `/approvals/${String(id)}`, { decision: "always" });
    const { document } = await ask("GET", "/approvals/remembered");
    const [entry] = document["remembered"] as Json[];
    await client.find(isResponseTo(1));
    assert.deepEqual([entry?.["server"], entry?.["tool"]], ["a", "x"]);
    const path = `/approvals/remembered/${String(entry?.["id"])}`;
    assert.deepEqual((await ask("DELETE", path)).document, { forgotten: [entry?.["id"]] });
    assert.equal((await fetch("DELETE", path)).status, 404);
    assert.deepEqual((await ask("DELETE", "/approvals/remembered")).document, { forgotten: [] });
    assert.equal((await ask("POST", "/approvals/accept", { server: "a" })).status, 204);
    const unknown = await fetch("POST", "/approvals/accept", '{"server":"none"}');
    assert.equal(unknown.status, 404);
  });

  test("takes a reader of events for one who shows them only if it says so", async (setup) => {
    const refused = await setup.ask("GET", "/events?watch=calls");
    assert.equal(refused.status, 400);
    const reading = new AbortController();
    const events = setup.follow("kinds=approval", reading.signal)[Symbol.asyncIterator]();
    const first = events.next().catch(() => undefined);
    setup.client.send(callRequest(1, "a__x"));
    assert.equal((await setup.client.find(isResponseTo(1))).result?.["isError"], true);
    reading.abort();
    await first;
  });
});
