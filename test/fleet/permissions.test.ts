import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import type { Bus, BusEvent, BusMessage } from "../../src/fleet/bus.ts";
import { connectBus } from "../../src/fleet/nats-bus.ts";
import { Exporter } from "../../src/frontend/nats/exporter.ts";
import { FleetPeers } from "../../src/transport/nats/peers.ts";
import { NatsTransport } from "../../src/transport/nats/transport.ts";
import { fleetSpecOf } from "../fixtures/fleet.ts";
import {
  callTool,
  initialize,
  type Json,
  listToolNames,
  manifestOf,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { SKIP_WITHOUT_NATS, startNats } from "../harness/nats.ts";
import { waitFor } from "../harness/wait.ts";

/** The permissions that docs/fleet.md shows, by user. */
function documented(): ReadonlyMap<string, string> {
  const page = readFileSync(new URL("../../docs/fleet.md", import.meta.url), "utf8");
  const blocks = [...page.matchAll(/```text\n# (\S+)\n([^]*?)```/g)];
  return new Map(blocks.map(([, user = "", text = ""]) => [user, text]));
}

describe("the permissions that the documentation shows", () => {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-permissions-"));
  const cleanUp: (() => unknown)[] = [];
  after(async () => {
    for (const end of cleanUp.reverse()) await end();
    rmSync(folder, { recursive: true, force: true });
  });

  it(
    "let a hub export one server, a user use all of it, and another user one tool, and nobody more",
    { skip: SKIP_WITHOUT_NATS, timeout: 60_000 },
    async () => {
      const blocks = documented();
      assert.deepEqual([...blocks.keys()], ["h1", "acme/u1", "acme/u2"]);
      const users = [...blocks].map(
        ([user, text]) => `{ user: "${user}", password: "p", ${text} }`,
      );
      const config = `authorization { users: [${users.join(",\n")}, { user: "spy", password: "p", permissions: { publish: ["_INBOX_acme_u1.>", "mcp.v1.req.acme.u3.>", "mcp.v1.hub.*.down"], subscribe: ["_INBOX_acme_u3.>"] } }] }`;
      const nats = await startNats(join(folder, "nats"), config);
      cleanUp.push(() => nats.stop());
      const denied = new Set<string>();
      const connect = async (user: string, inboxPrefix: string): Promise<Bus> => {
        const login = { kind: "password", user, password: "p" } as const;
        const target = { urls: [nats.url], name: user, inboxPrefix, login, tls: undefined };
        const bus = await connectBus(target, new AbortController().signal);
        bus.onEvent((event: BusEvent) => {
          if (event.kind === "denied") denied.add(`${user} ${event.operation} ${event.subject}`);
        });
        cleanUp.push(() => bus.close());
        return bus;
      };
      const server = new ScriptedServer("read_graph", "delete");
      const exporting = setUpHub({ memory: server }).hub;
      const bus = await connect("h1", "_INBOX_default__");
      const common = { clock: systemClock, instance: "one", version: "1.0.0", warn: () => {} };
      const exporter = new Exporter({ hub: exporting, bus, name: "h1", ...common });
      const ownPeers = new FleetPeers({
        bus,
        clock: systemClock,
        tenant: "default",
        user: "_",
        instance: "one",
      });
      exporter.setServers([{ name: "memory", digest: "d" }]);
      cleanUp.push(
        () => exporting.close(),
        () => ownPeers.close(),
        () => exporter.close(),
      );
      await bus.roundTrip();
      const importing = async (user: string) => {
        const own = await connect(`acme/${user}`, `_INBOX_acme_${user}`);
        const peers = new FleetPeers({
          bus: own,
          clock: systemClock,
          tenant: "acme",
          user,
          instance: user,
        });
        const { hub, client } = setUpHub(
          {},
          {
            manifest: { ...manifestOf({}), servers: [fleetSpecOf("memory", { isFound: true })] },
            openFleetTransport: async (spec) => {
              await peers.firstAnswer;
              return new NatsTransport(peers, {
                server: "memory",
                remote: "memory",
                hub: undefined,
                spread: "sticky",
                isConventional: false,
                maxMessage: spec.maxMessage,
              });
            },
          },
        );
        cleanUp.push(
          () => hub.close(),
          () => peers.close(),
        );
        await initialize(client);
        return client;
      };
      const first = await importing("u1");
      assert.deepEqual(await listToolNames(first), ["memory__delete", "memory__read_graph"]);
      assert.ok((await callTool(first, "memory__delete")).result?.["echo"]);
      const second = await importing("u2");
      assert.deepEqual(await listToolNames(second), ["memory__delete", "memory__read_graph"]);
      assert.ok((await callTool(second, "memory__read_graph")).result?.["echo"]);
      assert.deepEqual([...denied], []);
      const refused: Json = await callTool(second, "memory__delete");
      assert.match(JSON.stringify(refused), /accessDenied/);
      assert.match(
        JSON.stringify(refused),
        /mcp\.v1\.hub\.h1\.req\.acme\.u2\.memory\.tools\.call\.delete/,
      );
      assert.equal(server.messagesOf("tools/call").length, 2);
      // Somebody with other rights on the same NATS.
      const spy = await connect("spy", "_INBOX_acme_u3");
      const seen: BusMessage[] = [];
      spy.subscribe(`${spy.inbox}.>`, (message) => seen.push(message));
      for (const subject of ["mcp.v1.>", "_INBOX_acme_u1.>", "*.*.*.ctl"])
        spy.subscribe(subject, (message) => seen.push(message));
      spy.publish("mcp.v1.hub.h1.req.acme.u1.memory.tools.call.delete", new Uint8Array(), {
        reply: `${spy.inbox}.1`,
      });
      // An answer into the inbox of somebody else, and an untrue farewell.
      spy.publish("mcp.v1.req.acme.u3.memory.tools.call.delete", new Uint8Array(2), {
        reply: "_INBOX_other_u9.x.1",
      });
      spy.publish("mcp.v1.hub.h1.down", new Uint8Array());
      await spy.roundTrip();
      await waitFor("the denials", () =>
        [...denied].filter((one) => one.startsWith("spy")).length >= 4 ? true : undefined,
      );
      assert.ok(
        (await callTool(first, "memory__read_graph")).result?.["echo"],
        "the farewell ended nothing",
      );
      assert.deepEqual(seen, []);
      assert.equal(server.messagesOf("tools/call").length, 3);
    },
  );
});
