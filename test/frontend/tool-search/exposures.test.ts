import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import type { Exposure } from "../../../src/manifest/exposures.ts";
import {
  type HubSettings,
  type Manifest,
  TOOL_SEARCH_DEFAULTS,
  type ToolSearchSettings,
} from "../../../src/manifest/manifest.ts";
import type { Era } from "../../../src/protocol/modern.ts";
import {
  callTool,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  manifestFor,
  type Peer,
  ScriptedServer,
  sendRequest,
  setUpHub,
  setUpHubWithClock,
} from "../../fixtures/memory-hub.ts";
import { modernRequest, sendModernRequest } from "../../fixtures/modern-requests.ts";
import { turn, type VirtualClock } from "../../fixtures/virtual-clock.ts";
import type { ClientTransportName, MatrixClient } from "../../matrix/client.ts";
import { connectRawClient } from "../../matrix/raw-client.ts";

const SEARCH = ["search_tools", "describe_tools", "call_tool", "call_read_only_tool"];
const SELECT = ["search_tools", "select_tools", "call_tool"];

function toolOf(name: string, more: object = {}): string {
  return JSON.stringify({
    name,
    description: `Does ${name}.`,
    inputSchema: { type: "object" },
    ...more,
  });
}

function serverOf(...tools: string[]): ScriptedServer {
  const server = new ScriptedServer();
  server.tools = tools;
  return server;
}

function settingsOf(more: Partial<ToolSearchSettings> = {}): ToolSearchSettings {
  return { ...TOOL_SEARCH_DEFAULTS, ...more };
}

/** A manifest for scripted servers, with these settings. */
function manifestWith(
  servers: Record<string, ScriptedServer>,
  hub: Partial<HubSettings>,
  toolSearch: Partial<ToolSearchSettings> = {},
): Manifest {
  return { ...manifestFor(servers, { hub }), toolSearch: settingsOf(toolSearch) };
}

/** Waits until the hub has announced the last changes of its servers. */
async function announced(clock: VirtualClock): Promise<void> {
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 10; i++) await turn();
    await clock.advanceAsync(500);
  }
}

const listChanges = ({ messages }: Peer): number =>
  messages.filter(({ method }) => method === "notifications/tools/list_changed").length;

const namesOf = (result: Json["result"] | Readonly<Record<string, unknown>>): readonly string[] =>
  (result?.["tools"] as { name: string }[]).map(({ name }) => name);

describe("the list of tools", () => {
  for (const transport of ["stdio", "HTTP"] as const satisfies readonly ClientTransportName[]) {
    for (const era of ["legacy", "modern"] as const satisfies readonly Era[]) {
      it(`of a ${era} client over ${transport} has what its exposure says`, async () => {
        const expected: Readonly<Record<Exposure, readonly string[]>> = {
          direct: ["s__a", "s__b"],
          search: SEARCH,
          select: era === "legacy" ? SELECT : SEARCH,
          auto: ["s__a", "s__b"],
        };
        for (const [expose, names] of Object.entries(expected)) {
          const servers = { s: serverOf(toolOf("a"), toolOf("b")) };
          const { hub } = setUpHub(servers, { hub: { expose: expose as Exposure } });
          const server = new HttpServer(hub, {
            hostname: "127.0.0.1",
            token: undefined,
            maxMessage: 1024 * 1024,
          });
          const client: MatrixClient = await connectRawClient(era, { transport, hub, server });
          assert.deepEqual(
            (await client.list("tools")).map(({ name }) => name),
            names,
            expose,
          );
          // Whatever is listed, each tool can be called by its own name.
          const result = await client.request("tools/call", { name: "s__b", arguments: {} });
          assert.equal((result["echo"] as { name: string }).name, "b");
          if (expose !== "direct" || era === "modern") {
            const instructions = client.handshake.instructions ?? "";
            assert.equal(
              instructions.includes("search_tools"),
              expose !== "direct" && expose !== "auto",
            );
          }
          await client.close();
          await server.close();
          await hub.close();
        }
      });
    }
  }

  it("has the same bytes before and after servers come, change and go, and nobody is told of a change", async () => {
    const [a, b] = [serverOf(toolOf("a")), serverOf(toolOf("b"))];
    const before = manifestWith({ a }, { expose: "search" });
    const { hub, connect, clock } = setUpHubWithClock({ a, b }, { manifest: before });
    const client = connect("stdio");
    await initialize(client);
    const texts: string[] = [];
    const record = async (): Promise<void> => {
      await announced(clock);
      for (const id of [`l${texts.length}`, `m${texts.length}`]) {
        const isModern = id.startsWith("m");
        client.send(
          isModern ? modernRequest(id, "tools/list") : { jsonrpc: "2.0", id, method: "tools/list" },
        );
        const text = await client.findText((each) => isResponseTo(id)(JSON.parse(each) as Json));
        texts.push(text.replace(JSON.stringify(id), "0"));
      }
    };
    await record();
    hub.reload(manifestWith({ a, b }, { expose: "search" }));
    await record();
    b.tools.push(toolOf("c"));
    b.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await record();
    hub.reload(manifestWith({ b }, { expose: "search" }));
    await record();
    const [legacy, modern, ...others] = texts;
    assert.ok(legacy !== undefined && modern !== undefined);
    for (const [at, text] of others.entries()) assert.equal(text, at % 2 === 0 ? legacy : modern);
    assert.equal(listChanges(client), 0);
    for (const text of [legacy, modern]) assert.doesNotMatch(text, /"?a__|"b"|202\d-\d\d-\d\d[^"]/);
    await hub.close();
  });

  it("may be cached for an hour if its form is fixed, for a minute under auto, always privately", async () => {
    for (const [expose, ttlMs] of [
      ["search", 3_600_000],
      ["auto", 60_000],
    ] as const) {
      const servers = { s: serverOf(toolOf("a")) };
      const { connect, hub } = setUpHub(servers, { hub: { expose, exposeBudget: 0 } });
      const { result } = await sendModernRequest(connect("stdio"), "tools/list");
      assert.deepEqual([result?.["ttlMs"], result?.["cacheScope"]], [ttlMs, "private"], expose);
      await hub.close();
    }
  });

  it("keeps the tools of `always`, those that ask for it within limits, and apps for clients that show them", async () => {
    const load = { _meta: { "anthropic/alwaysLoad": true } };
    const app = { _meta: { ui: { resourceUri: "ui://x" } } };
    const many = Array.from({ length: 12 }, (_, at) =>
      toolOf(`m${String(at).padStart(2, "0")}`, load),
    );
    const long = toolOf("long", { ...load, description: "x".repeat(9000) });
    const servers = {
      s: serverOf(toolOf("a"), toolOf("b", load), toolOf("app", app), long),
      t: serverOf(...many),
    };
    const manifest = manifestWith(servers, { expose: "search" }, { always: { ids: ["s.a"] } });
    const { connect, hub } = setUpHub(servers, { manifest });
    const client = connect("stdio");
    await initialize(client);
    const first10 = many
      .slice(0, 10)
      .map((text) => `t__${(JSON.parse(text) as { name: string }).name}`);
    assert.deepEqual(await listToolNames(client), [...SEARCH, "s__a", "s__b", ...first10]);
    const host = connect("stdio");
    await initialize(host, { extensions: { "io.modelcontextprotocol/ui": {} } });
    assert.deepEqual(await listToolNames(host), [...SEARCH, "s__a", "s__app", "s__b", ...first10]);
    await hub.close();
  });

  it("has no tool for calls that only read if the manifest does not want it", async () => {
    const servers = { s: serverOf(toolOf("a")) };
    const manifest = manifestWith(servers, { expose: "search" }, { readOnlyCall: false });
    const { connect, hub } = setUpHub(servers, { manifest });
    const client = connect("stdio");
    await initialize(client);
    assert.deepEqual(await listToolNames(client), SEARCH.slice(0, 3));
    assert.equal(
      (await callTool(client, "call_read_only_tool", { name: "s__a" })).error?.code,
      -32602,
    );
    await hub.close();
  });

  it("is always the whole one for clients in this process and on the control socket", async () => {
    const servers = { s: serverOf(toolOf("a")) };
    const { connect, hub } = setUpHub(servers, { hub: { expose: "search" } });
    for (const kind of ["memory", "control"] as const) {
      const client = connect(kind);
      await initialize(client);
      assert.deepEqual(await listToolNames(client), ["s__a"]);
      assert.equal((await callTool(client, "search_tools", { query: "a" })).error?.code, -32602);
    }
    await hub.close();
  });

  it("follows the setting when the manifest is read again, and the client is told", async () => {
    const s = serverOf(toolOf("a"));
    const manifest = manifestWith({ s }, { expose: "direct" });
    const { hub, connect, clock } = setUpHubWithClock({ s }, { manifest });
    const client = connect("stdio");
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["s__a"]);
    for (const [expose, names] of [
      ["search", SEARCH],
      ["select", SELECT],
      ["auto", ["s__a"]],
      ["direct", ["s__a"]],
    ] as const) {
      const before = listChanges(client);
      const known = await listToolNames(client);
      hub.reload(manifestWith({ s }, { expose }));
      await announced(clock);
      assert.deepEqual(await listToolNames(client), names);
      const isOther = JSON.stringify(known) !== JSON.stringify(names);
      assert.equal(listChanges(client) - before, isOther ? 1 : 0, expose);
    }
    await hub.close();
  });
});

describe("the exposure auto", () => {
  /** The size of the list of these tools, as the specification says: a quarter of its bytes. */
  const tokensOf = (server: ScriptedServer): number =>
    Math.ceil(server.tools.reduce((sum, tool) => sum + tool.length + "s__".length, 0) / 4);

  it("is direct up to the budget, and search above it", async () => {
    for (const [more, names] of [
      [0, ["s__a", "s__b"]],
      [1, ["s__a", "s__b"]],
      [-1, SEARCH],
    ] as const) {
      const s = serverOf(toolOf("a"), toolOf("b"));
      const exposeBudget = tokensOf(s) + more;
      const { connect, hub, clock } = setUpHubWithClock(
        { s },
        { hub: { expose: "auto", exposeBudget } },
      );
      const first = connect("stdio");
      await initialize(first);
      await listToolNames(first);
      await announced(clock);
      // The lists of the servers are known when this one comes.
      const client = connect("stdio");
      await initialize(client);
      assert.deepEqual(await listToolNames(client), names, String(more));
      const { result } = await sendModernRequest(client, "tools/list");
      assert.deepEqual(namesOf(result), names, String(more));
      await hub.close();
    }
  });

  it("stays as it was decided for a session, and changes for modern clients above the budget and below 80 % of it", async () => {
    const s = serverOf(...Array.from({ length: 10 }, (_, at) => toolOf(`t${at}`)));
    const exposeBudget = tokensOf(s);
    const { connect, hub, clock } = setUpHubWithClock(
      { s },
      { hub: { expose: "auto", exposeBudget } },
    );
    const client = connect("stdio");
    await initialize(client);
    await listToolNames(client);
    client.send(
      modernRequest("listen", "subscriptions/listen", {
        notifications: { toolsListChanged: true },
      }),
    );
    const isSearch = async (): Promise<boolean> =>
      namesOf((await sendModernRequest(client, "tools/list")).result).includes("search_tools");
    const toldOfChanges = (): number =>
      client.messages.filter(
        ({ method, params }) =>
          method === "notifications/tools/list_changed" && params !== undefined,
      ).length;
    assert.equal(await isSearch(), false);
    const steps: (readonly [number, boolean])[] = [
      [11, true],
      [9, true],
      [7, false],
      [9, false],
      [10, false],
    ];
    for (const [count, expected] of steps) {
      const told = toldOfChanges();
      const before = await isSearch();
      s.tools = Array.from({ length: count }, (_, at) => toolOf(`t${at}`));
      for (const peer of s.peers)
        peer.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
      await announced(clock);
      assert.equal(await isSearch(), expected, String(count));
      if (before !== expected) assert.equal(toldOfChanges(), told + 1, String(count));
      assert.equal((await listToolNames(client)).length, count, "a session keeps its form");
    }
    await hub.close();
  });

  it("gives all tools to clients that search by themselves", async () => {
    const s = serverOf(toolOf("a"));
    const { connect, hub } = setUpHub({ s }, { hub: { expose: "auto", exposeBudget: 0 } });
    const other = connect("stdio");
    await initialize(other);
    await listToolNames(other);
    const client = connect("stdio");
    await sendRequest(client, "initialize", {
      protocolVersion: "2025-11-25",
      capabilities: {},
      clientInfo: { name: "claude-code", version: "2" },
    });
    assert.deepEqual(await listToolNames(client), ["s__a"]);
    await hub.close();
  });

  it("answers the hub's tools also while all tools are listed, unless a visible tool has such a name", async () => {
    const s = serverOf(toolOf("a"));
    const own = serverOf(toolOf("search_tools"));
    const { connect, hub } = setUpHub(
      { s, own },
      { hub: { expose: "auto" }, servers: { own: { prefix: "" } } },
    );
    const client = connect("stdio");
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["s__a", "search_tools"]);
    const called = await callTool(client, "call_tool", { name: "s__a", arguments: { x: 1 } });
    assert.deepEqual(called.result?.["echo"], { name: "a", arguments: { x: 1 } });
    const { result } = await callTool(client, "search_tools", { query: "a" });
    assert.deepEqual(result?.["echo"], { name: "search_tools", arguments: { query: "a" } });
    await hub.close();
  });
});

describe("a URL", () => {
  const settings = { hostname: "127.0.0.1", maxMessage: 1024 * 1024 };
  const ask = (server: HttpServer, query: string, token?: string): Promise<Response> =>
    server.fetch(
      new Request(`http://127.0.0.1:8700/mcp${query}`, {
        method: "POST",
        headers: {
          Host: "127.0.0.1:8700",
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
          "MCP-Protocol-Version": "2026-07-28",
          "Mcp-Method": "tools/list",
          ...(token !== undefined && { Authorization: `Bearer ${token}` }),
        },
        body: JSON.stringify(modernRequest(1, "tools/list")),
      }),
      { isPathAsSent: true, keepOpen: () => {} },
    );
  const listed = async (response: Response): Promise<readonly string[]> => {
    const text = await response.text();
    const data = /^data: (.*)$/m.exec(text)?.[1] ?? text;
    return namesOf((JSON.parse(data) as Json).result);
  };

  it("that names an exposure has precedence over the client's table, that over the hub", async () => {
    const servers = { s: serverOf(toolOf("a")) };
    const { hub } = setUpHub(servers, { hub: { expose: "direct" } });
    const client = {
      name: "ci",
      token: "t",
      subset: { key: "", isSingle: false, names: undefined, has: () => true },
      mode: undefined,
      maxSessions: undefined,
      expose: "search" as const,
    };
    const server = new HttpServer(hub, { ...settings, token: "own", clients: [client] });
    assert.deepEqual(await listed(await ask(server, "", "own")), ["s__a"]);
    assert.deepEqual(await listed(await ask(server, "", "t")), SEARCH);
    assert.deepEqual(await listed(await ask(server, "?expose=direct", "t")), ["s__a"]);
    assert.deepEqual(await listed(await ask(server, "?expose=select", "own")), SEARCH);
    await server.close();
    await hub.close();
  });

  it("with another exposure is answered with 404 and the four names", async () => {
    const { hub } = setUpHub({ s: serverOf(toolOf("a")) });
    const server = new HttpServer(hub, { ...settings, token: undefined });
    for (const name of ["code", "Search", ""]) {
      const response = await ask(server, `?expose=${name}`);
      assert.equal(response.status, 404, name);
      assert.match(await response.text(), /direct.+search.+select.+auto/);
    }
    await server.close();
    await hub.close();
  });
});
