import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterEach, describe, it } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import type { HubError } from "../../src/base/errors.ts";
import { FleetPeers, MAX_OPEN } from "../../src/transport/nats/peers.ts";
import { NatsTransport } from "../../src/transport/nats/transport.ts";
import type { TransportEvents } from "../../src/transport/transport.ts";
import { closeKept, exportingHub, fleetSpecOf, importingHub, keep } from "../fixtures/fleet.ts";
import { type MemoryBus, MemoryNats } from "../fixtures/memory-bus.ts";
import {
  callTool,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  manifestOf,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { waitFor } from "../harness/wait.ts";

afterEach(closeKept);

const codeOf = ({ error, result }: Json): unknown =>
  error?.data?.["code"] ??
  (result?.["_meta"] as Record<string, unknown> | undefined)?.["toolmux/error"];

describe("the limits between machines", () => {
  it("are 1,024 open calls of one hub at another, after which calls are refused until one has ended", async () => {
    const nats = new MemoryNats();
    const server = new ScriptedServer("run");
    const held: (() => void)[] = [];
    server.onCall = ({ id }) => {
      const peer = server.newestPeer;
      held.push(() => peer?.send({ jsonrpc: "2.0", id, result: { content: [] } }));
      return undefined;
    };
    keep(exportingHub(nats, "h1", { job: server }));
    const { client } = keep(importingHub(nats, [fleetSpecOf("job")]));
    await initialize(client);
    await listToolNames(client);
    const send = (id: string): void =>
      client.send({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "job__run" } });
    for (let number = 0; number < MAX_OPEN; number++) send(`c${number}`);
    await waitFor("the calls", () => held.length === MAX_OPEN || undefined, 20_000);
    send("more");
    const refused = await client.find(isResponseTo("more"));
    assert.equal(codeOf(refused), "hubBusy");
    assert.equal(held.length, MAX_OPEN);
    held.shift()?.();
    await client.find(isResponseTo("c0"));
    send("again");
    await waitFor("the next call", () => held.length === MAX_OPEN || undefined);
    for (const answer of held) answer();
    assert.ok((await client.find(isResponseTo("again"))).result);
  });

  it("are 8 MiB of notifications that a client does not read, after which their call is cancelled", async () => {
    const size = 512 * 1024;
    // How many notifications the client reads after each that comes, and whether the limit is reached by them.
    for (const [reads, count, isCancelled] of [
      [0, 16, false],
      [0, 17, true],
      // It reads one after each third: those that wait become more all the same.
      [1 / 3, 60, true],
      [1, 60, false],
    ] as const) {
      const { peer, transport, cause, cancelled, next } = await slowReader();
      let due = 0;
      for (let number = 0; number < count && cause() === undefined; number++) {
        const message = { jsonrpc: "2.0", method: "notifications/message", params: { data: "" } };
        message.params.data = "x".repeat(size - JSON.stringify(message).length);
        peer.send(JSON.stringify(message));
        await peer.settled();
        for (due += reads; due >= 1; due--) next();
      }
      const what = `${reads}, ${count}`;
      assert.equal(cause()?.code, isCancelled ? "notReading" : undefined, what);
      await peer.settled();
      assert.equal(cancelled(), isCancelled ? 1 : 0, what);
      await transport.close();
    }
  });
});

/** A transport whose reader takes a message only when `next` is called, with one open request at a peer. */
async function slowReader() {
  const nats = new MemoryNats();
  const bus: MemoryBus = nats.connect();
  const common = { clock: systemClock, tenant: "default", user: "_", instance: "i" };
  const peers = new FleetPeers({ bus, ...common });
  const transport = new NatsTransport(peers, {
    server: "s",
    remote: "s",
    hub: undefined,
    spread: "sticky",
    isConventional: true,
    maxMessage: 1024 * 1024,
  });
  const events = { message: () => transport.pause(), closed: () => peers.close() };
  await transport.open(events as unknown as TransportEvents, new AbortController().signal);
  const far = nats.connect();
  const request = Promise.withResolvers<string>();
  far.subscribe("mcp.v1.req.>", ({ reply }) => request.resolve(reply));
  let fault: HubError | undefined;
  const body = Buffer.from('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}');
  transport.send([body], {
    method: "tools/call",
    name: "t",
    id: 1,
    unanswered: (cause) => void (fault = cause),
  });
  const reply = await request.promise;
  let cancels = 0;
  far.subscribe(`${reply}.ctl`, () => void cancels++);
  transport.pause();
  return {
    transport,
    next: () => transport.resume(),
    cause: () => fault,
    cancelled: () => cancels,
    peer: {
      send: (text: string): void =>
        far.publish(reply, Buffer.from(text), { headers: [["Mcp-Frame", "msg"]] }),
      /** Waits until what was published has arrived. */
      async settled(): Promise<void> {
        await far.roundTrip();
        await bus.roundTrip();
      },
    },
  };
}

describe("a hub that exports something", () => {
  it("is a service that tools of NATS find and describe, at any of its three addresses", async () => {
    const nats = new MemoryNats();
    keep(
      exportingHub(nats, "h1", { git: new ScriptedServer("log"), jobs: new ScriptedServer("x") }),
    );
    const bus = nats.connect("_INBOX");
    const ask = async (subject: string, reply = "_INBOX.x.1"): Promise<readonly Json[]> => {
      const answers: Json[] = [];
      const end = bus.subscribe(reply, ({ data, hasNoResponders }) => {
        if (!hasNoResponders) answers.push(JSON.parse(Buffer.from(data).toString()) as Json);
      });
      bus.publish(subject, new Uint8Array(), { reply });
      for (let turn = 0; turn < 3; turn++) await bus.roundTrip();
      end();
      return answers;
    };
    const [ping] = (await ask("$SRV.PING")) as readonly (Json & Record<string, unknown>)[];
    assert.equal(ping?.["type"], "io.nats.micro.v1.ping_response");
    assert.equal(ping["name"], "toolmux");
    assert.deepEqual(ping["metadata"], { hub: "h1" });
    assert.match(String(ping["version"]), /^\d+\.\d+\.\d+/);
    const id = String(ping["id"]);
    for (const address of ["", ".toolmux", `.toolmux.${id}`]) {
      const [info] = (await ask(`$SRV.INFO${address}`)) as readonly Record<string, unknown>[];
      assert.equal(info?.["type"], "io.nats.micro.v1.info_response", address);
      const endpoints = info["endpoints"] as readonly Record<string, unknown>[];
      assert.deepEqual(
        endpoints.map(({ name, subject, queue_group: group }) => [name, subject, group]),
        [
          ["git", "mcp.v1.req.*.*.git.>", "toolmux"],
          ["jobs", "mcp.v1.req.*.*.jobs.>", "toolmux"],
        ],
      );
      const [stats] = (await ask(`$SRV.STATS${address}`)) as readonly Record<string, unknown>[];
      assert.equal(stats?.["type"], "io.nats.micro.v1.stats_response", address);
      assert.ok(!Number.isNaN(Date.parse(String(stats["started"]))), address);
    }
    assert.deepEqual(await ask("$SRV.PING.other"), []);
    assert.deepEqual(await ask("$SRV.PING", "mcp.v1.hub.h1.down"), []);
  });

  it("asks for approval of calls of users for whom the manifest says so, and of no others", async () => {
    const levels = [
      ["acme/u1", true],
      ["acme/u2", false],
    ] as const;
    for (const [user, isAsked] of levels) {
      const nats = new MemoryNats();
      nats.isAuthenticated = true;
      const server = new ScriptedServer("run");
      const common = { mode: undefined, servers: undefined, askCaller: true };
      const users = [
        { user: "acme/u1", approval: "always" as const, ...common },
        { user: "acme/u2", approval: undefined, ...common },
      ];
      const manifest = {
        ...manifestOf({ job: {} }),
        fleet: {
          clients: users.map(({ user: named, approval, askCaller }) => ({
            user: named,
            approval,
            askCaller,
          })),
        },
      } as unknown as ReturnType<typeof manifestOf>;
      keep(exportingHub(nats, "h1", { job: server }, { users, settings: { manifest } }));
      const [tenant = "", name = ""] = user.split("/");
      const { client } = keep(
        importingHub(nats, [fleetSpecOf("job", { tenant })], { tenant, user: name }),
      );
      client.onMessage = ({ id, method }) => {
        if (method === "elicitation/create")
          client.send({ jsonrpc: "2.0", id, result: { action: "decline" } });
      };
      await initialize(client, { elicitation: {} });
      await listToolNames(client);
      const answer = await callTool(client, "job__run");
      const questions = client.messages.filter(({ method }) => method === "elicitation/create");
      assert.equal(questions.length, isAsked ? 1 : 0, user);
      assert.equal(server.messagesOf("tools/call").length, isAsked ? 0 : 1, user);
      if (isAsked) assert.equal(codeOf(answer), "notApproved");
      else assert.ok(answer.result?.["echo"], JSON.stringify(answer));
    }
  });
});
