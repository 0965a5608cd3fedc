import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it as nodeTest } from "node:test";
import type { FleetEvent } from "../../src/base/hub-events.ts";
import { encodeAnnouncement } from "../../src/fleet/announcements.ts";
import { connectBus } from "../../src/fleet/nats-bus.ts";
import { Subject } from "../../src/fleet/subjects.ts";
import { Fleet } from "../../src/host/fleet.ts";
import { describeFleet } from "../../src/host/fleet-document.ts";
import type { HostContext } from "../../src/host/context.ts";
import type { Hub } from "../../src/hub/hub.ts";
import type { FleetSettings, Manifest } from "../../src/manifest/manifest.ts";
import {
  initialize,
  listToolNames,
  manifestOf,
  type Peer,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { type NatsServer, SKIP_WITHOUT_NATS, startNats } from "../harness/nats.ts";
import { waitFor, waitUntil } from "../harness/wait.ts";

const folder = mkdtempSync(join(tmpdir(), "toolmux-fleet-"));
const context: HostContext = {
  env: { HOME: folder, NATS_PASSWORD: "hunter2" },
  cwd: folder,
  platform: process.platform,
  signal: new AbortController().signal,
  uncaughtErrorHandlers: new Set(),
  hangupHandlers: new Set(),
};
const cleanUp: (() => unknown)[] = [];

after(async () => {
  for (const end of cleanUp.reverse()) await end();
  rmSync(folder, { recursive: true, force: true });
});

function it(name: string, run: () => Promise<void>): void {
  nodeTest(name, { skip: SKIP_WITHOUT_NATS, timeout: 60_000 }, run);
}

interface Member {
  readonly hub: Hub;
  readonly client: Peer;
  readonly fleet: Fleet;
  readonly logs: readonly string[];
  readonly events: readonly FleetEvent[];
  /** Applies other settings of the fleet. */
  change(settings: Partial<FleetSettings>): Promise<void>;
}

/** A hub that has joined a fleet. */
function member(
  url: string,
  servers: Record<string, ScriptedServer>,
  settings: Partial<FleetSettings>,
): Member {
  const logs: string[] = [];
  const events: FleetEvent[] = [];
  const specs = Object.fromEntries(Object.keys(servers).map((name) => [name, {}]));
  const manifestWith = (more: Partial<FleetSettings>): Manifest => ({
    ...manifestOf(specs),
    fleet: { url, file: join(folder, "a.toml"), baseDir: folder, ...settings, ...more },
  });
  const fleet: Fleet = new Fleet({
    context,
    manifest: manifestWith({}),
    log: (level, text) => void logs.push(`${level} ${text}`),
    emit: (event) => void events.push(event),
    addSecrets: (secrets) => void logs.push(...secrets.map((secret) => `secret ${secret}`)),
  });
  const { hub, client } = setUpHub(servers, {
    manifest: manifestWith({}),
    openFleetTransport: (spec) => fleet.openTransport(spec),
  });
  fleet.join(hub);
  cleanUp.push(
    () => hub.close(),
    () => fleet.close(),
  );
  return {
    hub,
    client,
    fleet,
    logs,
    events,
    change: (more) => fleet.configure(manifestWith(more), hub),
  };
}

async function nats(name: string, config = ""): Promise<NatsServer> {
  const server = await startNats(join(folder, name), config);
  cleanUp.push(() => server.stop());
  return server;
}

const machinesOf = ({ fleet }: Member): readonly string[] =>
  fleet.membership?.peers.all.map(({ name }) => name) ?? [];

describe("a hub as a member of a fleet", () => {
  it("exports only what its manifest says, and imports what others export, as that changes", async () => {
    const { url } = await nats("members");
    const own = {
      git: new ScriptedServer("log"),
      files: new ScriptedServer("read"),
      secret: new ScriptedServer("x"),
    };
    const exporting = member(url, own, { name: "h1", export: ["git", "fi*"] });
    const importing = member(
      url,
      { git: new ScriptedServer("own") },
      { name: "h2", import: ["*"] },
    );
    await initialize(importing.client);
    const listed = async (...wanted: readonly string[]): Promise<void> => {
      await waitUntil(`the tools ${wanted.join()}`, async () => {
        const names = await listToolNames(importing.client);
        return JSON.stringify(names) === JSON.stringify(wanted) ? true : undefined;
      });
    };
    await listed("files__read", "git__own");
    assert.ok(
      importing.logs.some((line) => line.includes('server "git" of the fleet is not used')),
    );
    assert.deepEqual(
      importing.events.map(({ change, machine }) => [change, machine]),
      [["joined", "h1"]],
    );
    await exporting.change({ export: ["git", "secret"] });
    await importing.change({ import: ["h1/secret"] });
    await listed("git__own", "secret__x");
    await importing.change({ import: [] });
    await listed("git__own");
    const { exported, machines } = await describeFleet(exporting.fleet, exporting.hub, true);
    assert.deepEqual(exported, ["git", "secret"]);
    assert.deepEqual(
      machines.map(({ name }) => name),
      ["h2"],
    );
    assert.ok((machines[0]?.roundTrip ?? -1) >= 0);
  });

  it("imports a limited number of servers of a machine, and tells it by one alert until that ends", async () => {
    const { url } = await nats("many");
    const target = {
      urls: [url],
      name: "loud",
      inboxPrefix: "_INBOX_default__",
      login: { kind: "none" },
      tls: undefined,
    } as const;
    const loud = await connectBus(target, new AbortController().signal);
    cleanUp.push(() => loud.close());
    const importing = member(url, {}, { name: "h2", import: ["*"] });
    const alerts: string[] = [];
    importing.hub.subscribe(
      ({ kind, ...event }) =>
        void (
          kind === "alert" &&
          "alert" in event &&
          alerts.push(`${event.raised} ${event.alert.text}`)
        ),
      ["alert"],
    );
    await waitFor("the connection", () => importing.fleet.membership);
    const announce = (count: number): void => {
      const servers = Array.from({ length: count }, (_, at) => ({ name: `s${at}`, digest: "d" }));
      const words = { hub: "loud", instance: "i", version: "1", servers };
      loud.publish(Subject.up("loud"), encodeAnnouncement(words));
    };
    for (const count of [300, 400]) {
      announce(count);
      await waitFor("the servers", () =>
        machinesOf(importing).length === 1 &&
        importing.fleet.membership?.peers.peer("loud")?.servers.size === count &&
        importing.hub.specs.length === 256
          ? true
          : undefined,
      );
    }
    announce(3);
    await waitFor("the end of the alert", () => alerts.length > 1 || undefined, 15_000);
    assert.deepEqual(
      alerts.map((text) => [text.startsWith("true"), text.includes('machine "loud"')]),
      [
        [true, true],
        [false, true],
      ],
    );
  });

  it("does not pass on what it imports", async () => {
    const { url } = await nats("chain");
    member(url, { a: new ScriptedServer("x") }, { name: "h1", export: ["*"] });
    const middle = member(
      url,
      { b: new ScriptedServer("y") },
      { name: "h2", export: ["*"], import: ["*"] },
    );
    await initialize(middle.client);
    await waitUntil("both servers", async () =>
      (await listToolNames(middle.client)).length === 2 ? true : undefined,
    );
    const { exported } = await describeFleet(middle.fleet, middle.hub, false);
    assert.deepEqual(exported, ["b"]);
  });

  it("takes another name if a hub has its own, and gets it back with the next start", async () => {
    const { url } = await nats("names");
    const first = member(url, { a: new ScriptedServer("x") }, { name: "h", export: ["*"] });
    await waitFor("the first", () => first.fleet.membership);
    const second = member(url, { b: new ScriptedServer("y") }, { name: "h", export: ["*"] });
    await waitFor("the second", () => second.fleet.membership);
    assert.equal(second.fleet.membership?.name, "h-2");
    assert.ok(second.logs.some((line) => line.includes('Another hub of the fleet is named "h"')));
    await waitFor("both", () =>
      machinesOf(first).includes("h-2") && machinesOf(second).includes("h") ? true : undefined,
    );
    await first.fleet.close();
    await waitFor("the end", () => (machinesOf(second).length === 0 ? true : undefined), 10_000);
  });

  it("connects as soon as NATS is there, with credentials that stay secret", async () => {
    const server = await nats("late", 'authorization { user: "u1", password: "hunter2" }');
    await server.stop();
    const late = member(server.url, {}, { user: "u1", password: "${env:NATS_PASSWORD}" });
    await waitFor("the fault", () => late.fleet.fault);
    assert.equal(late.fleet.fault?.code, "unreachable");
    const { error, connected } = await describeFleet(late.fleet, late.hub, false);
    assert.match(error ?? "", /cannot be reached/);
    assert.equal(connected, undefined);
    await server.restart();
    await waitFor("the connection", () => late.fleet.membership, 20_000);
    assert.equal(late.fleet.membership?.bus.isAuthenticated, true);
    assert.ok(late.logs.includes("secret hunter2"));
    assert.ok(!late.logs.some((line) => !line.startsWith("secret") && line.includes("hunter2")));
    assert.equal(
      late.logs.filter((line) => line.startsWith("error")).length,
      1,
      "the fault is told once",
    );
  });
});
