/** Jobs that measure one hub with many servers, or with many clients. Times are in ms, sizes in bytes. */
import { Buffer } from "node:buffer";
import { existsSync } from "node:fs";
import { connect as connectSocket, type Socket } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { attachKey, ownAttachName } from "../src/attach/attach-name.ts";
import { formatAttachRequest } from "../src/attach/handshake.ts";
import { VERSION } from "../src/base/version.ts";
import { findRunningHubs } from "../src/control/running-hubs.ts";
import { runFolders } from "../src/control/socket-files.ts";
import { MCP_PATH } from "../src/control/schemas.ts";
import { Caller, type Entrant, type Racer, takeTurn, type Turn } from "./contest.ts";
import { Flight } from "./flight.ts";
import { HttpCallers } from "./http/callers.ts";
import { HttpClient } from "./http/client.ts";
import { Host } from "./http/host.ts";
import { type Command, Peer } from "./peer.ts";
import { median } from "./stats.ts";
import { ownMemoryOf, readUsage, weigh } from "./usage.ts";

/** Maximum number of changes that are measured. */
const CHANGES = 15;
/** Pause before memory is read, in ms, so that garbage of what happened before is collected. */
const REST = 1500;
/** Number of clients that connect before memory is measured: they let the hub load and compile its code. */
const FIRST_CLIENTS = 20;
const FLIGHT = 64;

/** The time that a start has taken, and the CPU time of the hub's process for it; null if unknown. */
interface Start {
  readonly took: number;
  readonly cpu: number | null;
}

/** Figures of one hub with many servers. */
interface ServersFigures {
  /** From the start of the process until all tools are listed, without snapshots and with them. */
  readonly fresh: Start;
  readonly known: Start;
  /** Memory of the hub's process alone, before the first call. */
  readonly own: number | null;
  /** Open files of the hub's process. */
  readonly files: number | null;
  /** Calls to one server of a hub that has only this one; to one of many; to all of many in turn. */
  readonly turns: Readonly<Record<"one" | "toOne" | "toAll", readonly Turn[]>>;
  /** One server changes its list: time until the client is told, CPU time of the hub for it, and the next list. */
  readonly change: { readonly told: number; readonly cpu: number | null; readonly list: number };
}

/**
 * Starts a hub with many servers twice, without snapshots and with them, and lets it take turns with a hub that has
 * one server.
 * @throws if an answer is wrong
 */
export async function manyServers(job: {
  readonly one: Entrant;
  readonly many: Entrant;
  /** Number of tools that `many` lists. */
  readonly tools: number;
  readonly rounds: number;
  readonly warmUp: number;
  readonly duration: number;
}): Promise<ServersFigures> {
  const { one, many, rounds, warmUp, duration } = job;
  const { peer, start: fresh } = startHub(many.peer, job.tools);
  await pause(REST);
  const [own = null, files = null] = [ownMemoryOf(peer.pid), weigh(peer.pid)?.descriptors];
  const middleTool = many.tools[many.tools.length >> 1] ?? many.tools[0];
  const single = new Caller(one, { flight: FLIGHT, lines: 1, pad: 0 });
  const racers = {
    one: single,
    toOne: callerOf(peer, [middleTool]),
    toAll: callerOf(peer, many.tools),
  };
  const all = Object.entries(racers) as [keyof typeof racers, Racer][];
  const turns: Record<keyof typeof racers, Turn[]> = { one: [], toOne: [], toAll: [] };
  for (const [, racer] of all) await racer.run(warmUp);
  for (let round = 0; round < rounds; round++) {
    for (const at of all.keys()) {
      const [name, racer] = all[(at + round) % all.length] ?? ["one", single];
      turns[name].push(await takeTurn(racer, duration));
    }
  }
  await single.end();
  const change = await changeServers(peer, many.tools.slice(0, CHANGES));
  await peer.end();
  const again = startHub(many.peer, job.tools);
  await again.peer.end();
  return { fresh, known: again.start, own, files, turns, change };
}

function startHub(command: Command, tools: number): { readonly peer: Peer; readonly start: Start } {
  const peer = new Peer(command);
  peer.initialize();
  peer.awaitChanges((names) => names.length >= tools);
  const took = performance.now() - peer.started;
  const cpu = readUsage(peer.pid)?.cpu;
  return { peer, start: { took, cpu: cpu === undefined ? null : cpu / 1000 } };
}

/** Calls a running peer, which it does not end. */
function callerOf(peer: Peer, tools: Entrant["tools"]): Racer {
  const flight = new Flight(tools, 1, FLIGHT);
  return {
    pid: peer.pid,
    run(ms) {
      flight.record();
      const until = performance.now() + ms;
      for (let now = 0; now < until; now = flight.receive(peer)) flight.send(peer);
      flight.finish(peer);
      return flight.latencies();
    },
    end: async () => flight.verify(),
  };
}

/**
 * Lets servers change their lists, one after the other: a server that changes its list again and again is listed less
 * often.
 */
async function changeServers(
  peer: Peer,
  tools: readonly string[],
): Promise<ServersFigures["change"]> {
  const figures = { told: [] as number[], cpu: [] as number[], list: [] as number[] };
  for (const echo of tools) {
    const tool = echo.replace(/echo$/, "change");
    peer.forgetChanges();
    const before = readUsage(peer.pid)?.cpu ?? Number.NaN;
    const began = performance.now();
    peer.ask("tools/call", { name: tool, arguments: { key: "12345678", lines: 0 } });
    peer.awaitChange();
    const told = performance.now();
    // The work of the hub after it has told the client, such as saving the list, is part of the cost.
    await pause(200);
    figures.told.push(told - began);
    figures.cpu.push(((readUsage(peer.pid)?.cpu ?? Number.NaN) - before) / 1000);
    const asked = performance.now();
    peer.listTools();
    figures.list.push(performance.now() - asked);
  }
  const cpu = median(figures.cpu);
  return {
    told: median(figures.told),
    cpu: Number.isNaN(cpu) ? null : cpu,
    list: median(figures.list),
  };
}

/** Figures of one hub with many clients. */
interface ClientsFigures {
  /** Memory that each client after the first `FIRST_CLIENTS` adds to the hub's process. */
  readonly each: number | null;
  /** Calls of one client, and of many in turn, over as many connections as there are calls in flight. */
  readonly turns: Readonly<Record<"one" | "many", readonly Turn[]>>;
}

/**
 * Connects many clients to a hub, each with its stream of messages, and lets it take turns with a hub that has one.
 * @throws if an answer is wrong
 */
export async function manyClients(job: {
  readonly one: Entrant & { readonly manifest: string };
  readonly many: Entrant & { readonly manifest: string };
  readonly clients: number;
  /** `session`: over HTTP; `attached`: at the hub's control socket. */
  readonly kind: "session" | "attached";
  readonly rounds: number;
  readonly warmUp: number;
  readonly duration: number;
}): Promise<ClientsFigures> {
  const { one, many, kind, clients: count, rounds, warmUp, duration } = job;
  const load = { flight: FLIGHT, lines: 1, pad: 0 };
  const hosts = [await Host.start(one.peer), await Host.start(many.peer)] as const;
  const [few, crowd] = [await doorOf(hosts[0], one, kind), await doorOf(hosts[1], many, kind)];
  const single = await connect(few, one.tools[0]);
  const crowded: HttpClient[] = [];
  const connectMore = async (more: number): Promise<number | undefined> => {
    for (let at = 0; at < more; at++) crowded.push(await connect(crowd, many.tools[0]));
    await pause(REST);
    return ownMemoryOf(hosts[1].pid);
  };
  const before = await connectMore(FIRST_CLIENTS);
  const after = await connectMore(count - FIRST_CLIENTS);
  const callers = {
    one: new HttpCallers(hosts[0], inTurn([single]), one.tools, load),
    many: new HttpCallers(hosts[1], inTurn(crowded), many.tools, load),
  };
  for (const caller of Object.values(callers)) await caller.run(warmUp);
  const turns: Record<keyof typeof callers, Turn[]> = { one: [], many: [] };
  for (let round = 0; round < rounds; round++) {
    for (const name of round % 2 === 0 ? (["one", "many"] as const) : (["many", "one"] as const))
      turns[name].push(await takeTurn(callers[name], duration));
  }
  for (const caller of Object.values(callers)) await caller.end();
  return {
    each:
      before === undefined || after === undefined
        ? null
        : (after - before) / (count - FIRST_CLIENTS),
    turns,
  };
}

/** The address at which a client reaches a hub. */
interface Door {
  readonly url: URL;
  readonly socketPath: string | undefined;
}

async function doorOf(
  host: Host,
  { peer, manifest }: Entrant & { readonly manifest: string },
  kind: "session" | "attached",
): Promise<Door> {
  if (kind === "session") return { url: host.url, socketPath: undefined };
  for (;;) {
    const hubs = await findRunningHubs({ env: peer.env, platform: process.platform });
    const hub = hubs.find(({ manifest: files }) => files.includes(manifest));
    if (hub !== undefined)
      return { url: new URL(`http://localhost${MCP_PATH}`), socketPath: hub.socket };
    await pause(20);
  }
}

/** Connects a client that reads its stream of messages, and has called a tool once. */
async function connect({ url, socketPath }: Door, tool: string): Promise<HttpClient> {
  const client = await HttpClient.connect(url, socketPath);
  void client.listen(() => {}).catch(() => {});
  await client.ask("tools/list", {});
  await client.ask("tools/call", { name: tool, arguments: { key: "12345678", lines: 1 } });
  return client;
}

/** As many callers as there are calls in flight, which use the clients in turn. */
function inTurn(clients: readonly HttpClient[]) {
  let next = 0;
  const caller = {
    call: async (text: string): Promise<Buffer> => {
      const client = clients[next++ % clients.length];
      return client === undefined ? Buffer.alloc(0) : client.call(text);
    },
    close: () => {
      for (const client of clients) client.close();
    },
  };
  return Array.from({ length: FLIGHT }, () => caller);
}

/** The first line of an attached client, then its handshake. */
const ATTACHED_LINES = [
  formatAttachRequest({ version: VERSION, pid: process.pid, cwd: "/", env: {} }),
  '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}',
];

/**
 * Connects many clients to the attach socket of a shared hub, each of which has initialized and does nothing.
 * @param job.peer a client that starts the hub
 * @returns the memory that each client after the first `FIRST_CLIENTS` adds to the hub's process, in bytes; null if unknown
 */
export async function attachedClients(job: {
  readonly peer: Command;
  readonly manifest: string;
  readonly clients: number;
}): Promise<number | null> {
  const starter = new Peer(job.peer);
  starter.initialize();
  const env = job.peer.env;
  const key = attachKey([job.manifest], env);
  const folders = runFolders({ env, platform: process.platform }, process.getuid?.() ?? -1);
  const socket = folders
    .map(({ path }) => join(path, ownAttachName(key, VERSION)))
    .find(existsSync);
  if (socket === undefined) throw new Error("the shared hub has no attach socket");
  const sockets: Socket[] = [];
  let hub = 0;
  const connectMore = async (count: number): Promise<number | undefined> => {
    for (let at = 0; at < count; at++) {
      const { connection, answer } = await openAttached(socket);
      sockets.push(connection);
      hub = answer.hub.pid;
    }
    await pause(REST);
    return ownMemoryOf(hub);
  };
  const before = await connectMore(FIRST_CLIENTS);
  const after = await connectMore(job.clients);
  for (const connection of sockets) connection.destroy();
  await starter.end();
  return before === undefined || after === undefined ? null : (after - before) / job.clients;
}

/** Attaches a client, and waits for the answer to its `initialize`. */
async function openAttached(path: string): Promise<{
  readonly connection: Socket;
  readonly answer: { readonly hub: { readonly pid: number } };
}> {
  const connection = connectSocket(path);
  const answered = Promise.withResolvers<string>();
  let text = "";
  connection.setEncoding("utf8");
  connection.on("data", (chunk: string) => {
    text += chunk;
    if (text.split("\n").length > ATTACHED_LINES.length) answered.resolve(text);
  });
  connection.on("error", (error) => answered.reject(error));
  connection.on("close", () => answered.reject(new Error(`the hub has closed: ${text}`)));
  connection.write(`${ATTACHED_LINES.join("\n")}\n`);
  const [first = ""] = (await answered.promise).split("\n");
  return { connection, answer: JSON.parse(first) as { hub: { pid: number } } };
}
