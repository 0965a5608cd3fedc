import assert from "node:assert/strict";
import { afterEach, describe } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { encodeAnnouncement } from "../../src/fleet/announcements.ts";
import { Header } from "../../src/fleet/frames.ts";
import { Subject } from "../../src/fleet/subjects.ts";
import { Exporter } from "../../src/frontend/nats/exporter.ts";
import {
  closeKept,
  exportingHub,
  fleetSpecOf,
  importingHub,
  keep,
  FLEET_LIMIT,
  fleetTest as it,
} from "../fixtures/fleet.ts";
import { type MemoryBus, MemoryNats } from "../fixtures/memory-bus.ts";
import { initialize, isResponseTo, ScriptedServer } from "../fixtures/memory-hub.ts";
import { MODERN_VERSION } from "../fixtures/modern-requests.ts";
import { waitFor } from "../harness/wait.ts";

afterEach(closeKept);

/** Somebody who may answer the question who is there, as each exporting hub, and answers in the name of another. */
function liar(
  nats: MemoryNats,
  ...announcements: readonly { hub: string; instance: string; servers: readonly string[] }[]
): { readonly bus: MemoryBus; readonly answered: () => number } {
  const bus = nats.connect("_INBOX_default_liar");
  let answered = 0;
  bus.subscribe(Subject.who, ({ reply }) => {
    for (const { hub, instance, servers } of announcements) {
      const exported = servers.map((name) => ({ name, digest: "d" }));
      bus.publish(reply, encodeAnnouncement({ hub, instance, version: "1", servers: exported }));
    }
    answered++;
  });
  return { bus, answered: () => answered };
}

describe("a member of a fleet who says something of another hub", () => {
  for (const [what, instance, servers] of [
    ["has started again", "other", ["job"]],
    ["exports nothing any more", undefined, []],
    ["exports something else", undefined, ["job", "trap"]],
  ] as const) {
    it(`ends no call there, and changes nothing, by saying that it ${what}`, async () => {
      const nats = new MemoryNats();
      const server = new ScriptedServer("run");
      const release: (() => void)[] = [];
      server.onCall = ({ id }) => {
        const peer = server.newestPeer;
        release.push(() => peer?.send({ jsonrpc: "2.0", id, result: { content: [], ok: true } }));
        return undefined;
      };
      const exporting = exportingHub(nats, "h1", { job: server });
      keep(exporting);
      const importing = importingHub(nats, [fleetSpecOf("job")]);
      keep(importing);
      const { client, peers } = importing;
      await initialize(client);
      client.send({ jsonrpc: "2.0", id: "c", method: "tools/call", params: { name: "job__run" } });
      await waitFor("the call", () => release.length === 1 || undefined, FLEET_LIMIT);
      const known = peers.peer("h1");
      assert.ok(known !== undefined);
      const changes: string[] = [];
      peers.onChange(({ kind }) => changes.push(kind));
      const evil = liar(nats, { hub: "h1", instance: instance ?? known.instance, servers });
      // Each question gets its answer, and the one of the hub itself.
      for (let i = 1; i <= 3; i++) {
        peers.askAll();
        await waitFor("the lie", () => evil.answered() >= i || undefined, FLEET_LIMIT);
      }
      for (const answer of release) answer();
      const answer = await client.find(isResponseTo("c"));
      assert.equal(answer.result?.["ok"], true);
      assert.equal(peers.peer("h1"), known);
      assert.deepEqual([...known.servers.keys()], ["job"]);
      assert.deepEqual(changes, []);
    });
  }

  it("is found out when it was quicker than the hub itself", async () => {
    const nats = new MemoryNats();
    // It has subscribed first, so its answers come first.
    liar(nats, { hub: "h1", instance: "fake", servers: ["trap"] });
    const server = new ScriptedServer("run");
    keep(exportingHub(nats, "h1", { job: server }));
    const importing = importingHub(nats, [fleetSpecOf("job")]);
    keep(importing);
    const { peers } = importing;
    for (let i = 0; i < 5; i++) {
      peers.askAll();
      await waitFor(
        "the truth",
        () => peers.peer("h1")?.servers.has("job") || undefined,
        FLEET_LIMIT,
      );
      assert.notEqual(peers.peer("h1")?.instance, "fake");
      assert.deepEqual([...(peers.peer("h1")?.servers.keys() ?? [])], ["job"]);
    }
  });

  it("keeps no hub alive that stands still", async () => {
    const nats = new MemoryNats();
    const server = new ScriptedServer("run");
    let started = 0;
    server.onCall = () => {
      started++;
      return undefined;
    };
    const exporting = exportingHub(nats, "h1", { job: server });
    keep(exporting);
    const importing = importingHub(nats, [fleetSpecOf("job")]);
    keep(importing);
    const { client, peers } = importing;
    await initialize(client);
    client.send({ jsonrpc: "2.0", id: "c", method: "tools/call", params: { name: "job__run" } });
    await waitFor("the call", () => started === 1 || undefined, FLEET_LIMIT);
    const { instance } = peers.peer("h1") ?? assert.fail();
    const bus = nats.connect("_INBOX_default_liar");
    const servers = [{ name: "job", digest: "same" }];
    const words = encodeAnnouncement({ hub: "h1", instance, version: "1", servers });
    let timer: NodeJS.Timeout | undefined;
    bus.subscribe(Subject.who, ({ reply }) => {
      timer ??= setInterval(() => bus.publish(reply, words), 5);
    });
    peers.askAll();
    await waitFor("the lies", () => timer, FLEET_LIMIT);
    exporting.bus.isSilent = true;
    const answer = await client.find(isResponseTo("c"));
    clearInterval(timer);
    assert.match(JSON.stringify(answer), /left the fleet: it does not answer any more/);
    exporting.bus.isSilent = false;
  });

  it("fills no memory with hubs and servers that do not exist", async () => {
    const nats = new MemoryNats();
    const importing = importingHub(nats, [fleetSpecOf("job")]);
    keep(importing);
    const { peers } = importing;
    const servers = Array.from({ length: 1000 }, (_, i) => `s${i}`);
    const many = Array.from({ length: 150 }, (_, i) => ({ hub: `e${i}`, instance: "x", servers }));
    const evil = liar(nats, ...many);
    peers.askAll();
    await waitFor("the lies", () => evil.answered() === 1 || undefined, FLEET_LIMIT);
    await waitFor("the first hub", () => peers.peer("e0"), FLEET_LIMIT);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(peers.all.length, 100);
    // Those that were there before stay, and may change.
    evil.bus.publish(
      Subject.up("e1"),
      encodeAnnouncement({ hub: "e1", instance: "x", version: "1", servers: [] }),
    );
    await waitFor(
      "the change",
      () => peers.peer("e1")?.servers.size === 0 || undefined,
      FLEET_LIMIT,
    );
    evil.bus.publish(
      Subject.up("e149"),
      encodeAnnouncement({ hub: "e149", instance: "x", version: "1", servers: [] }),
    );
    await waitFor("another hub", () => peers.peer("e149"), FLEET_LIMIT);
  });
});

describe("a user of a fleet who keeps requests open", () => {
  it("leaves places to other users", async () => {
    const nats = new MemoryNats();
    nats.isAuthenticated = true;
    nats.keepsPublished = false;
    const exporting = nats.connect("_INBOX_default_h1");
    let handled = 0;
    const exporter = new Exporter({
      hub: { createModernClients: () => ({ handle: () => void handled++, stop() {}, close() {} }) },
      bus: exporting,
      clock: systemClock,
      name: "h1",
      instance: "i1",
      version: "1",
      warn() {},
    });
    exporter.setServers([{ name: "job", digest: "d" }]);
    const ask = (user: string): { send: (id: number) => void; refused: () => number } => {
      const bus = nats.connect(`_INBOX_acme_${user}`);
      let refused = 0;
      bus.subscribe(`${bus.inbox}.>`, (message) => {
        if (message.header(Header.frame) === "err") refused++;
      });
      const meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": { name: "c", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      };
      return {
        send: (id) =>
          bus.publish(
            `mcp.v1.hub.h1.req.acme.${user}.job.tools.call.run`,
            Buffer.from(
              JSON.stringify({
                jsonrpc: "2.0",
                id,
                method: "tools/call",
                params: { name: "run", _meta: meta },
              }),
            ),
            {
              reply: `${bus.inbox}.${id}`,
              headers: [
                [Header.wire, "1"],
                [Header.method, "tools/call"],
                [Header.name, "run"],
                [Header.version, MODERN_VERSION],
              ],
            },
          ),
        refused: () => refused,
      };
    };
    const greedy = ask("u1");
    for (let i = 0; i < 6000; i++) greedy.send(i);
    await waitFor("the refusals", () => greedy.refused() >= 1000 || undefined, FLEET_LIMIT);
    assert.deepEqual([handled, greedy.refused()], [5000, 1000]);
    const other = ask("u2");
    other.send(1);
    await waitFor("the request of another user", () => handled === 5001 || undefined, FLEET_LIMIT);
    assert.equal(other.refused(), 0);
    exporting.kill();
    await exporter.close();
  });
});
