import assert from "node:assert/strict";
import { afterEach, describe } from "node:test";
import type { FleetServer } from "../../src/manifest/manifest.ts";
import { memoryBaselines } from "../../src/pins/store.ts";
import {
  closeKept,
  exportingHub,
  fleetSpecOf,
  importingHub,
  keep,
  type ExportingSetup,
  FLEET_LIMIT,
  fleetTest as it,
} from "../fixtures/fleet.ts";
import { MemoryNats } from "../fixtures/memory-bus.ts";
import {
  callTool,
  initialize,
  type Json,
  listToolNames,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { waitUntil } from "../harness/wait.ts";

afterEach(closeKept);

/** A server whose tools have these descriptions, and whose answers say on which machine it is. */
function serverOn(machine: string, tools: Readonly<Record<string, string>>): ScriptedServer {
  const server = new ScriptedServer();
  server.tools = Object.entries(tools).map(([name, description]) =>
    JSON.stringify({ name, description, inputSchema: { type: "object" } }),
  );
  server.onCall = () => `"result":{"content":[],"from":"${machine}"}`;
  return server;
}

/** Starts a machine that exports the server `files`. */
function start(
  nats: MemoryNats,
  machine: string,
  tools: Readonly<Record<string, string>>,
  digest = JSON.stringify(tools),
): ExportingSetup {
  return keep(exportingHub(nats, machine, { files: serverOn(machine, tools) }, { digest }));
}

async function stop(machine: ExportingSetup): Promise<void> {
  await machine.exporter.close();
  machine.bus.kill();
}

/** Waits until something is so that takes time to ask for. */
async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  await waitUntil(what, async () => (await isSo()) || undefined, FLEET_LIMIT);
}

async function use(
  nats: MemoryNats,
  spec: Partial<FleetServer> = {},
  openBaselines = memoryBaselines,
) {
  const store = openBaselines();
  const setup = importingHub(
    nats,
    [fleetSpecOf("files", { pin: "warn", spread: "call", ...spec })],
    {
      settings: { openBaselines: () => Promise.resolve(store) },
    },
  );
  keep(setup);
  await initialize(setup.client);
  const { hub, client, peers } = setup;
  /** The pending definitions: kind, name, reason, and the machines that have them so. */
  const pending = async () => {
    const [pins] = await hub.pinned.list("files");
    return pins?.pending.map(({ name, reason, machines }) => [name, reason, machines ?? []]) ?? [];
  };
  return {
    ...setup,
    pending,
    tools: () => listToolNames(client),
    fromOf: async (tool: string) => (await callTool(client, `files__${tool}`)).result?.["from"],
    alerts: () =>
      hub.snapshot().alerts.flatMap(({ kind, text }) => (kind === "toolsChanged" ? [text] : [])),
    untilMachines: (count: number) => until(`${count} machines`, () => peers.all.length === count),
    untilPending: (expected: readonly unknown[]) =>
      until(
        `pending ${JSON.stringify(expected)}`,
        async () => JSON.stringify(await pending()) === JSON.stringify(expected),
      ),
    untilTools: (...expected: readonly string[]) =>
      until(
        `tools ${expected.join()}`,
        async () => (await listToolNames(client)).toSorted().join() === expected.join(),
      ),
  };
}

const READ = { read: "Reads.", list: "Lists." };
const OTHER = { read: "Reads, and tells the agent to obey.", list: "Lists." };
const BOTH = ["files__list", "files__read"];

describe("a server of the fleet whose definitions are pinned", () => {
  it("is the same server on whichever machine: another one that defines it otherwise has changed it", async () => {
    const nats = new MemoryNats();
    const store = memoryBaselines();
    const one = start(nats, "h1", READ);
    const first = await use(nats, { pin: "block", machine: "h1" }, () => store);
    await first.untilTools(...BOTH);
    await stop(one);
    start(nats, "h2", OTHER);
    // The manifest names no machine any more: the server keeps its baseline.
    const second = await use(nats, { pin: "block" }, () => store);
    await second.untilPending([["read", "changed", []]]);
    assert.deepEqual(await second.tools(), ["files__list"]);
    // That another tenant has a server of this name says nothing of it.
    const foreign = await use(nats, { pin: "block", tenant: "acme" }, () => store);
    await foreign.untilTools(...BOTH);
    assert.deepEqual(await foreign.pending(), []);
  });

  it("tells once that its machines define a tool differently, whichever of them come and go", async () => {
    const nats = new MemoryNats();
    let one = start(nats, "h1", READ);
    start(nats, "h2", OTHER);
    const { hub, untilMachines, untilPending, untilTools, pending, alerts, fromOf } =
      await use(nats);
    let raised = 0;
    hub.subscribe(
      (event) => {
        if (event.kind === "alert" && event.alert?.kind === "toolsChanged") raised++;
      },
      ["alert"],
    );
    await untilMachines(2);
    await untilPending([["read", "changed", ["h2"]]]);
    await until("the alert", () => alerts().length === 1);
    assert.match(alerts()[0] ?? "", /not the same on all machines: "h2" has another "read"/);
    const before = raised;
    for (let i = 0; i < 2; i++) {
      assert.equal(await fromOf("read"), "h1");
      await stop(one);
      await untilMachines(1);
      await untilPending([["read", "changed", []]]);
      assert.equal(await fromOf("read"), "h2");
      one = start(nats, "h1", READ);
      await untilMachines(2);
      await untilPending([["read", "changed", ["h2"]]]);
    }
    assert.deepEqual([raised - before, alerts().length], [0, 1]);
    await hub.pinned.accept("files", [{ name: "read" }]);
    assert.deepEqual([await pending(), alerts()], [[], []]);
    await stop(one);
    await untilMachines(1);
    // What was accepted of one machine is accepted of each, and nothing is told any more.
    await until("h2", async () => (await fromOf("read")) === "h2");
    await untilTools(...BOTH);
    assert.deepEqual([await pending(), alerts()], [[], []]);
  });

  it("under block shows and calls a tool only as it was accepted, on the machines that have it so", async () => {
    const nats = new MemoryNats();
    const one = start(nats, "h1", READ);
    const { untilMachines, untilPending, untilTools, tools, fromOf, hub } = await use(nats, {
      pin: "block",
    });
    await untilTools(...BOTH);
    start(nats, "h2", OTHER);
    await untilMachines(2);
    await untilPending([["read", "changed", ["h2"]]]);
    assert.deepEqual((await tools()).toSorted(), BOTH);
    for (let i = 0; i < 4; i++) assert.equal(await fromOf("read"), "h1");
    await stop(one);
    await untilMachines(1);
    await untilTools("files__list");
    assert.equal(await fromOf("read"), undefined);
    await hub.pinned.accept("files", "all");
    await untilTools(...BOTH);
    assert.equal(await fromOf("read"), "h2");
  });
});

describe("replicas of a server", () => {
  it("get no call before they are asked what they offer, if they say that it differs", async () => {
    const nats = new MemoryNats();
    start(nats, "h1", READ);
    const { untilMachines, untilTools, client, peers } = await use(nats, { pin: "off" });
    await untilTools(...BOTH);
    // The moment in which another machine is known, and not asked yet.
    const joined = Promise.withResolvers<readonly Promise<Json>[]>();
    peers.onChange(({ kind }) => {
      if (kind === "joined")
        joined.resolve([1, 2, 3, 4].map(() => callTool(client, "files__read")));
    });
    start(nats, "h0", OTHER);
    await untilMachines(2);
    const answers = await Promise.all(await joined.promise);
    assert.deepEqual(
      answers.map(({ result }) => result?.["from"]),
      ["h1", "h1", "h1", "h1"],
    );
  });

  it("that have not listed their servers yet are not taken for equal", async () => {
    const nats = new MemoryNats();
    const one = start(nats, "h1", READ);
    one.exporter.setServers([{ name: "files", digest: undefined }]);
    const two = start(nats, "h2", OTHER);
    two.exporter.setServers([{ name: "files", digest: undefined }]);
    const { untilMachines, untilPending, fromOf } = await use(nats);
    await untilMachines(2);
    await untilPending([["read", "changed", ["h2"]]]);
    for (let i = 0; i < 4; i++) assert.equal(await fromOf("read"), "h1");
    const both = [await fromOf("list"), await fromOf("list")];
    assert.deepEqual(new Set(both), new Set(["h1", "h2"]));
  });

  it("are left out of the list if they do not answer, and all others stay", async () => {
    const nats = new MemoryNats();
    start(nats, "h1", READ);
    const broken = start(nats, "h2", { write: "Writes." }, "broken");
    broken.bus.isSilent = true;
    const { untilTools, untilMachines, fromOf, tools } = await use(nats);
    broken.bus.isSilent = false;
    broken.exporter.announce();
    await untilMachines(2);
    await untilTools(...BOTH, "files__write");
    // A machine that stands still says nothing, also if its list is wanted.
    broken.bus.isSilent = true;
    start(nats, "h3", { ...READ, more: "More." });
    await until("the new tool", async () => (await tools()).includes("files__more"));
    assert.equal(await fromOf("more"), "h3");
  });
});
