/**
 * `bench exposures`: what a client's list of tools and its instructions take of a model's context with each exposure,
 * and what calls by `call_tool` cost beside direct ones, with a hub and its servers in this process.
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import process from "node:process";
import { EventBus } from "../src/base/hub-events.ts";
import { estimateTokens } from "../src/catalog/search/signature.ts";
import { Hub } from "../src/hub/hub.ts";
import { bytesOf } from "../src/jsonrpc/message.ts";
import type { Exposure } from "../src/manifest/exposures.ts";
import {
  HUB_DEFAULTS,
  LIMIT_DEFAULTS,
  type Manifest,
  type StdioServer,
} from "../src/manifest/manifest.ts";
import { memorySnapshots } from "../src/snapshot/snapshots.ts";
import { memoryTransportPair } from "../src/transport/memory.ts";
import type { Transport } from "../src/transport/transport.ts";
import { describeMachine } from "./report.ts";
import { quantile } from "./stats.ts";
import { readToolSets, type SetTool } from "./tool-sets.ts";

const NEVER_ABORTED = new AbortController().signal;
/** Maximum number of servers, and of tools of a server. */
const MAX_SERVERS = 100;
/** Calls of a round, and rounds; direct calls and those by call_tool take turns. */
const CALLS = 2000;
const ROUNDS = 21;

/** The servers of the sets, at most 100, each with its tools as JSON. */
export function serversOf(tools: readonly SetTool[]): ReadonlyMap<string, readonly string[]> {
  const servers = new Map<string, Map<string, string>>();
  for (const { server, name, description, inputSchema } of tools) {
    const own = servers.get(server) ?? new Map<string, string>();
    if (!servers.has(server) && servers.size >= MAX_SERVERS) continue;
    servers.set(server, own);
    own.set(name, JSON.stringify({ name, description, inputSchema }));
  }
  return new Map(Array.from(servers, ([name, own]) => [name, [...own.values()]]));
}

/** The server's end of a connection: a server with these tools that answers each call at once. */
function serve(transport: Transport, name: string, tools: readonly string[]): void {
  const answer = (id: unknown, result: string): void =>
    void transport.send(
      Buffer.from(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`),
    );
  const results: Readonly<Record<string, string>> = {
    initialize: JSON.stringify({
      protocolVersion: "2025-11-25",
      capabilities: { tools: {} },
      serverInfo: { name, version: "1" },
      instructions: `Tools of ${name}.`,
    }),
    "tools/list": `{"tools":[${tools.join(",")}]}`,
    "tools/call": '{"content":[{"type":"text","text":"done"}]}',
    ping: "{}",
  };
  void transport.open(
    {
      message(message) {
        if (message.kind !== "request") return;
        const { id, method } = JSON.parse(bytesOf(message).toString()) as {
          id: unknown;
          method: string;
        };
        const result = results[method];
        if (result !== undefined) answer(id, result);
        else
          transport.send(
            Buffer.from(
              `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":{"code":-32601,"message":"no"}}`,
            ),
          );
      },
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => {},
    },
    NEVER_ABORTED,
  );
}

export function specOf(name: string): StdioServer {
  return {
    kind: "stdio",
    name,
    enabled: true,
    prefix: name.replaceAll(/[^A-Za-z0-9-]+/g, "-").replaceAll(/^-+|-+$/g, ""),
    command: name,
    args: [],
    env: {},
    inheritEnv: [],
    cwd: undefined,
    baseDir: "/",
    syntax: "toolmux",
    isolation: "shared",
    lazy: false,
    era: "legacy",
    ...LIMIT_DEFAULTS,
    tools: { allow: undefined, deny: [], rename: {}, timeout: {} },
    prompts: { allow: undefined, deny: [], rename: {} },
  };
}

/** A hub with these servers, and a client of it. */
export class Peers {
  readonly hub: Hub;
  readonly #transport: Transport;
  readonly #waiting = new Map<unknown, (text: string) => void>();
  #count = 0;

  constructor(servers: ReadonlyMap<string, readonly string[]>, expose: Exposure) {
    const manifest: Manifest = {
      hub: { ...HUB_DEFAULTS, expose },
      servers: Array.from(servers.keys(), specOf),
      defaults: LIMIT_DEFAULTS,
      plugins: [],
      sources: [],
    };
    this.hub = new Hub({
      manifest,
      bus: new EventBus(),
      snapshots: memorySnapshots(),
      resolveIdentity: () => Promise.resolve(undefined),
      digest: (text) => createHash("sha256").update(text).digest(),
      openTransport({ name }) {
        const [ours, theirs] = memoryTransportPair();
        serve(theirs, name, servers.get(name) ?? []);
        return Promise.resolve(ours);
      },
    });
    const [ours, theirs] = memoryTransportPair();
    this.#transport = theirs;
    void this.hub.accept(ours, NEVER_ABORTED, { kind: "stdio" });
    void theirs.open(
      {
        message: (message) => {
          if (message.kind !== "response" || message.id === undefined) return;
          this.#waiting.get(message.id)?.(bytesOf(message).toString());
          this.#waiting.delete(message.id);
        },
        log: () => {},
        oversized: () => {},
        pressure: () => {},
        closed: () => {},
      },
      NEVER_ABORTED,
    );
  }

  /** Sends a request. @returns the text of the response */
  request(method: string, params: string): Promise<string> {
    const id = ++this.#count;
    const text = `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#transport.send(Buffer.from(text));
    });
  }

  initialize(): Promise<string> {
    const params = {
      protocolVersion: "2025-11-25",
      capabilities: {},
      clientInfo: { name: "bench", version: "1" },
    };
    return this.request("initialize", JSON.stringify(params));
  }
}

/** Measures the list of tools and the instructions of a client, in tokens. */
async function contextCost(
  servers: ReadonlyMap<string, readonly string[]>,
  expose: Exposure,
): Promise<{ readonly list: number; readonly instructions: number }> {
  const first = new Peers(servers, expose);
  await first.initialize();
  const list = await first.request("tools/list", "{}");
  // The servers' instructions are known when they have listed their tools for modern clients, too.
  const envelope = JSON.stringify({
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  });
  await first.request("tools/list", envelope);
  const discovered = await first.request("server/discover", envelope);
  const { result } = JSON.parse(discovered) as { result: { instructions?: string } };
  await first.hub.close();
  return {
    list: estimateTokens(Buffer.byteLength(list)),
    instructions: estimateTokens(Buffer.byteLength(result.instructions ?? "")),
  };
}

/** Median CPU time in µs of calls in turns, directly and by call_tool, and of searches. */
async function callCost(servers: ReadonlyMap<string, readonly string[]>) {
  const peers = new Peers(servers, "search");
  await peers.initialize();
  await peers.request("tools/list", "{}");
  const [first] = servers;
  if (first === undefined) throw new TypeError("The sets have no tools.");
  const [server, own] = first;
  const { name } = JSON.parse(own[0] ?? "{}") as { readonly name: string };
  const exposed = JSON.stringify(`${specOf(server).prefix}__${name}`);
  const args = '{"path":"/tmp/file","options":{"encoding":"utf8","limit":100}}';
  const forms = {
    direct: `{"name":${exposed},"arguments":${args}}`,
    call_tool: `{"name":"call_tool","arguments":{"name":${exposed},"arguments":${args}}}`,
  };
  const times: Record<keyof typeof forms, number[]> = { direct: [], call_tool: [] };
  const timeOf = async (params: string, count: number): Promise<number> => {
    const before = process.cpuUsage();
    for (let i = 0; i < count; i++) await peers.request("tools/call", params);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / count;
  };
  for (const params of Object.values(forms)) await timeOf(params, CALLS);
  for (let round = 0; round < ROUNDS; round++)
    for (const form of ["direct", "call_tool"] as const)
      times[form].push(await timeOf(forms[form], CALLS));
  const search = '{"name":"search_tools","arguments":{"query":"read a file of the project"}}';
  await timeOf(search, 50);
  const searches = await timeOf(search, 200);
  await peers.hub.close();
  return {
    direct: quantile(Float64Array.from(times.direct).sort(), 0.5),
    named: quantile(Float64Array.from(times.call_tool).sort(), 0.5),
    searches,
  };
}

/** Measures and prints. @param folder of sets of tools */
export async function measureExposures(folder: string): Promise<void> {
  const servers = serversOf(readToolSets(folder).tools);
  const tools = [...servers.values()].reduce((sum, own) => sum + own.length, 0);
  console.log(describeMachine());
  console.log(`${servers.size} servers, ${tools} tools; a token is 4 bytes\n`);
  for (const expose of ["direct", "search", "select"] as const) {
    const { list, instructions } = await contextCost(servers, expose);
    console.log(
      `${expose.padEnd(8)} list ${list} tokens, instructions ${instructions}, together ${list + instructions}`,
    );
  }
  const { direct, named, searches } = await callCost(servers);
  console.log(
    `\nCPU: direct call ${direct.toFixed(1)} µs, by call_tool ${named.toFixed(1)} µs: ${(named - direct).toFixed(1)} µs more; search_tools ${(searches / 1000).toFixed(2)} ms`,
  );
}
