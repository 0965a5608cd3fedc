/**
 * Simulates fleets of 10, 100 and 1,000 hubs with 10 servers each, over a NATS in memory: what it costs to find each
 * other, to choose a replica, and to watch all others. Runs on Bun: `bun bench/fleet.ts`.
 * The times are those of the code of hubs, without NATS, sockets and servers.
 */
import { Buffer } from "node:buffer";
import process from "node:process";
import { systemClock } from "../src/base/clock.ts";
import { Exporter } from "../src/frontend/nats/exporter.ts";
import { FleetPeers } from "../src/transport/nats/peers.ts";
import { NatsTransport } from "../src/transport/nats/transport.ts";
import { MemoryNats } from "../test/fixtures/memory-bus.ts";
import { formatNumber, formatTable } from "./report.ts";

const SIZES = [10, 100, 1000];
const SERVERS = 10;
const CHOICES = 20_000;
const NEVER_ABORTED = new AbortController().signal;

/** Resolves when everything that was sent so far has arrived. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The time of the processor since then, in ms. */
function msSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

interface Row {
  readonly hubs: number;
  readonly joining: number;
  readonly messages: number;
  readonly bytes: number;
  readonly choice: number;
  readonly beat: number;
}

/** Lets so many hubs join one after the other, and measures. */
async function simulate(hubs: number): Promise<Row> {
  const nats = new MemoryNats();
  nats.keepsPublished = false;
  const all: { readonly peers: FleetPeers; readonly exporter: Exporter }[] = [];
  const start = process.cpuUsage();
  for (let i = 0; i < hubs; i++) {
    const bus = nats.connect(`_INBOX_default_h${i}`);
    const common = { bus, clock: systemClock, instance: `i${i}` };
    const hub = { createModernClients: () => ({ handle() {}, stop() {}, close() {} }) };
    const exporter = new Exporter({ ...common, hub, name: `h${i}`, version: "1.0.0", warn() {} });
    const peers = new FleetPeers({ ...common, tenant: "default", user: "_" });
    // Each hub has servers of its own, and one that all have.
    const own = Array.from({ length: SERVERS - 1 }, (_, at) => ({
      name: `s${i}-${at}`,
      digest: "d",
    }));
    exporter.setServers([...own, { name: "common", digest: "d".repeat(22) }]);
    all.push({ peers, exporter });
    await settled();
  }
  await settled();
  const joining = msSince(start) / hubs;
  const { delivered, deliveredBytes } = nats;
  const [first] = all;
  if (first === undefined || first.peers.all.length !== hubs - 1)
    throw new Error("not all are known");
  const { peers } = first;
  const target = {
    server: "common",
    remote: "common",
    hub: undefined,
    spread: "call",
    isConventional: false,
    maxMessage: 1e6,
  } as const;
  const transport = new NatsTransport(peers, target);
  await transport.open(
    { message() {}, log() {}, oversized() {}, pressure() {}, closed() {} },
    NEVER_ABORTED,
  );
  const body = Buffer.from('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}');
  const beforePings = process.cpuUsage();
  peers.pingAll();
  await settled();
  const beat = msSince(beforePings);
  // Nothing is delivered any more: only the side of the importing hub counts.
  nats.freeze();
  const request = (): void =>
    transport.send(body, { method: "tools/call", name: "t", id: 1 }).abandon();
  // The first request to a hub subscribes to its answers.
  for (let i = 0; i < hubs; i++) request();
  const beforeChoices = process.cpuUsage();
  for (let i = 0; i < CHOICES; i++) request();
  const choice = (msSince(beforeChoices) / CHOICES) * 1000;
  for (const each of all) {
    each.peers.close();
    void each.exporter.close();
  }
  return {
    hubs,
    joining,
    messages: delivered,
    bytes: deliveredBytes,
    choice,
    beat,
  };
}

const HEADS = [
  "hubs",
  "CPU of joining, each",
  "messages",
  "MB",
  "request to one of n",
  "ping of all",
];
const rows: (readonly string[])[] = [HEADS];
for (const size of SIZES) {
  const { hubs, joining, messages, bytes, choice, beat } = await simulate(size);
  const times = [`${formatNumber(choice)} µs`, `${formatNumber(beat)} ms`];
  const sent = [String(messages), formatNumber(bytes / 1e6)];
  rows.push([String(hubs), `${formatNumber(joining)} ms`, ...sent, ...times]);
  console.log(formatTable(rows));
}
process.exit(0);
