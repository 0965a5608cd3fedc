import assert from "node:assert/strict";
import { afterEach, describe } from "node:test";
import {
  closeKept,
  exportingHub,
  fleetSpecOf,
  importingHub,
  keep,
  type ExportingSetup,
  type ImportingSetup,
  fleetTest as it,
} from "../fixtures/fleet.ts";
import { MemoryNats } from "../fixtures/memory-bus.ts";
import {
  callTool,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  manifestOf,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { MODERN_VERSION, sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernTaskServer, TASKS_DECLARED } from "../fixtures/modern-task-server.ts";
import { waitFor } from "../harness/wait.ts";

afterEach(closeKept);

function exporting(...args: Parameters<typeof exportingHub>): ExportingSetup {
  return keep(exportingHub(...args));
}

function importing(...args: Parameters<typeof importingHub>): ImportingSetup {
  return keep(importingHub(...args));
}

/** A server whose calls do not end before they are let go. */
function heldServer(...names: string[]): {
  server: ScriptedServer;
  started: () => number;
  release: () => void;
} {
  const server = new ScriptedServer(...names);
  const held: (() => void)[] = [];
  server.onCall = ({ id }) => {
    const peer = server.newestPeer;
    held.push(() => peer?.send({ jsonrpc: "2.0", id, result: { content: [] } }));
    return undefined;
  };
  return {
    server,
    started: () => held.length,
    release: () => {
      for (const answer of held.splice(0)) answer();
    },
  };
}

const errorCode = ({ error, result }: Json): unknown =>
  error?.data?.["code"] ??
  (result?.["_meta"] as Record<string, unknown> | undefined)?.["toolmux/error"];

describe("a hub of a fleet", () => {
  it("serves the tools of another hub's server to clients of both eras", async () => {
    const nats = new MemoryNats();
    exporting(nats, "h1", { git: new ScriptedServer("log", "a.b") });
    const { client, connect } = importing(nats, [fleetSpecOf("git")]);
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["git__a_b_pziw4f", "git__log"]);
    const legacy = await callTool(client, "git__log", { n: 1 });
    assert.deepEqual((legacy.result?.["echo"] as Json["params"])?.["arguments"], { n: 1 });
    const modern = connect();
    const answer = await sendModernRequest(modern, "tools/call", {
      name: "git__a_b_pziw4f",
      arguments: {},
    });
    assert.equal((answer.result?.["echo"] as Json["params"])?.["name"], "a.b");
    // The name that is no token is encoded in the subject, and never `_`.
    const calls = nats.published.filter(({ subject }) => subject.includes(".tools.call."));
    assert.ok(
      calls.every(({ subject }) =>
        subject.startsWith("mcp.v1.hub.h1.req.default._.git.tools.call."),
      ),
    );
    assert.ok(calls.every(({ subject }) => !subject.endsWith("._")));
  });

  it("tells each call that was open at a hub that dies, and sends the next to another hub", async () => {
    const nats = new MemoryNats();
    const held = { h1: heldServer("run"), h2: heldServer("run") };
    const hubs = {
      h1: exporting(nats, "h1", { job: held.h1.server }),
      h2: exporting(nats, "h2", { job: held.h2.server }),
    };
    const { client, peers } = importing(nats, [fleetSpecOf("job")]);
    await initialize(client);
    await listToolNames(client);
    await waitFor("both hubs", () => (peers.all.length === 2 ? true : undefined));
    for (let i = 0; i < 30; i++)
      client.send({
        jsonrpc: "2.0",
        id: `c${i}`,
        method: "tools/call",
        params: { name: "job__run" },
      });
    const dying = await waitFor("the calls", () =>
      (["h1", "h2"] as const).find((name) => held[name].started() === 30),
    );
    hubs[dying].bus.kill();
    for (let i = 0; i < 30; i++) {
      const answer = await client.find(isResponseTo(`c${i}`));
      assert.equal(errorCode(answer), "answerLost");
      assert.match(JSON.stringify(answer), new RegExp(`machine ."${dying}.".*may have run`, "i"));
    }
    const other = dying === "h1" ? "h2" : "h1";
    assert.deepEqual(
      peers.all.map(({ name }) => name),
      [other],
    );
    client.send({ jsonrpc: "2.0", id: "next", method: "tools/call", params: { name: "job__run" } });
    await waitFor("the next call", () => (held[other].started() === 1 ? true : undefined));
    held[other].release();
    assert.ok((await client.find(isResponseTo("next"))).result);
  });

  it("notices a hub that stands still, and one that was started again under the same name", async () => {
    const nats = new MemoryNats();
    const first = heldServer("run");
    const frozen = exporting(nats, "h1", { job: first.server });
    const { client, peers } = importing(nats, [fleetSpecOf("job")]);
    await initialize(client);
    await listToolNames(client);
    client.send({ jsonrpc: "2.0", id: "c", method: "tools/call", params: { name: "job__run" } });
    await waitFor("the call", () => (first.started() === 1 ? true : undefined));
    frozen.bus.isSilent = true;
    const answer = await client.find(isResponseTo("c"));
    assert.equal(errorCode(answer), "answerLost");
    await waitFor("h1 to be gone", () => (peers.all.length === 0 ? true : undefined));
  });

  it("tells a freeze of NATS as the loss of its own connection, and goes on afterwards", async () => {
    const nats = new MemoryNats();
    const held = heldServer("run");
    exporting(nats, "h1", { job: held.server });
    const { client } = importing(nats, [fleetSpecOf("job")]);
    await initialize(client);
    await listToolNames(client);
    client.send({ jsonrpc: "2.0", id: "c", method: "tools/call", params: { name: "job__run" } });
    await waitFor("the call", () => (held.started() === 1 ? true : undefined));
    nats.freeze();
    const answer = await client.find(isResponseTo("c"));
    assert.equal(errorCode(answer), "answerLost");
    assert.match(JSON.stringify(answer), /connection to NATS/);
    assert.doesNotMatch(JSON.stringify(answer), /left the fleet/);
    nats.thaw();
    held.server.onCall = () => '"result":{"content":[]}';
    await waitFor(
      "the server",
      () => {
        client.send({
          jsonrpc: "2.0",
          id: `again${Math.random()}`,
          method: "tools/call",
          params: { name: "job__run" },
        });
        return client.messages.some(
          ({ id, result }) =>
            String(id).startsWith("again") && result?.["isError"] !== true && result !== undefined,
        )
          ? true
          : undefined;
      },
      10_000,
    );
  });

  it("says of a server that nobody serves which hub had it last", async () => {
    const nats = new MemoryNats();
    const only = exporting(nats, "h1", { job: new ScriptedServer("run") });
    const { client } = importing(nats, [fleetSpecOf("job", { isFound: true })]);
    await initialize(client);
    await listToolNames(client);
    only.bus.kill();
    const answer = await callTool(client, "job__run");
    assert.match(
      JSON.stringify(answer),
      /No machine of the fleet serves \\"job\\" now. Last seen: h1, just now/,
    );
    assert.equal(errorCode(answer), "unreachable");
  });

  it("carries a response of many parts", async () => {
    const nats = new MemoryNats();
    const server = new ScriptedServer("big");
    const text = "x".repeat(9 * 1024 * 1024);
    server.onCall = () => `"result":{"content":[{"type":"text","text":"${text}"}]}`;
    exporting(nats, "h1", { data: server });
    const { client } = importing(nats, [fleetSpecOf("data")]);
    await initialize(client);
    await listToolNames(client);
    const answer = await callTool(client, "data__big");
    const [content] = answer.result?.["content"] as { text: string }[];
    assert.equal(content?.text.length, text.length);
    const largest = nats.published.reduce((most, { data }) => Math.max(most, data.length), 0);
    assert.ok(largest <= 256 * 1024);
  });

  it("refuses a request over max_payload, and says what to raise", async () => {
    const nats = new MemoryNats();
    exporting(nats, "h1", { data: new ScriptedServer("put") });
    const { client } = importing(nats, [fleetSpecOf("data")]);
    await initialize(client);
    await listToolNames(client);
    const answer = await callTool(client, "data__put", { text: "x".repeat(2 * 1024 * 1024) });
    assert.equal(errorCode(answer), "messageTooLarge");
    assert.match(JSON.stringify(answer), /Raise max_payload/);
  });

  it("passes progress, cancellation and a question of the server to the client between machines", async () => {
    const nats = new MemoryNats();
    const server = new ScriptedServer("ask", "slow");
    let cancelled = false;
    server.handlers = {
      "notifications/cancelled": () => {
        cancelled = true;
        return undefined;
      },
    };
    const calls: Json[] = [];
    server.onCall = (message) => {
      calls.push(message);
      const meta = message.params?.["_meta"] as { progressToken?: unknown } | undefined;
      if (message.params?.["name"] === "slow")
        server.newestPeer?.send({
          jsonrpc: "2.0",
          method: "notifications/progress",
          params: { progressToken: meta?.progressToken, progress: 1 },
        });
      else {
        const peer = server.newestPeer;
        peer?.send({
          jsonrpc: "2.0",
          id: "q",
          method: "elicitation/create",
          params: { message: "Which?", requestedSchema: { type: "object", properties: {} } },
        });
        void peer
          ?.find((answer) => answer.id === "q" && answer.method === undefined)
          .then((answer) =>
            peer.send({
              jsonrpc: "2.0",
              id: message.id,
              result: { content: [], said: answer.result },
            }),
          );
      }
      return undefined;
    };
    exporting(nats, "h1", { srv: server });
    const { client } = importing(nats, [fleetSpecOf("srv")]);
    client.onMessage = (message) => {
      if (message.method === "elicitation/create")
        client.send({
          jsonrpc: "2.0",
          id: message.id,
          result: { action: "accept", content: { a: 1 } },
        });
    };
    await initialize(client, { elicitation: { form: {} } });
    await listToolNames(client);
    const asked = await callTool(client, "srv__ask");
    assert.deepEqual((asked.result?.["said"] as Json["result"])?.["content"], { a: 1 });
    client.send({
      jsonrpc: "2.0",
      id: "slow",
      method: "tools/call",
      params: { name: "srv__slow", _meta: { progressToken: "t" } },
    });
    const progress = await client.find(({ method }) => method === "notifications/progress");
    assert.equal(progress.params?.["progressToken"], "t");
    client.send({
      jsonrpc: "2.0",
      method: "notifications/cancelled",
      params: { requestId: "slow" },
    });
    await waitFor("the cancellation", () => (cancelled ? true : undefined));
  });

  it("asks the replica again that has asked, whatever others there are", async () => {
    const nats = new MemoryNats();
    const make = (name: string): ScriptedServer => {
      const server = new ScriptedServer("ask");
      server.onCall = ({ id }) => {
        const peer = server.newestPeer;
        peer?.send({
          jsonrpc: "2.0",
          id: `q${id as string}`,
          method: "elicitation/create",
          params: { message: name, requestedSchema: { type: "object", properties: {} } },
        });
        void peer
          ?.find((answer) => answer.id === `q${id as string}` && answer.method === undefined)
          .then(() => peer.send({ jsonrpc: "2.0", id, result: { content: [], from: name } }));
        return undefined;
      };
      return server;
    };
    exporting(nats, "h1", { srv: make("h1") });
    exporting(nats, "h2", { srv: make("h2") });
    const { client, peers } = importing(nats, [fleetSpecOf("srv", { spread: "call" })]);
    const asked: unknown[] = [];
    client.onMessage = (message) => {
      if (message.method !== "elicitation/create") return;
      asked.push(message.params?.["message"]);
      client.send({ jsonrpc: "2.0", id: message.id, result: { action: "accept", content: {} } });
    };
    await initialize(client, { elicitation: { form: {} } });
    await listToolNames(client);
    await waitFor("both hubs", () => (peers.all.length === 2 ? true : undefined));
    const from = new Set<unknown>();
    for (let i = 0; i < 6; i++) {
      const answer = await callTool(client, "srv__ask");
      assert.equal(String(asked.at(-1)).split(" ").at(-1), answer.result?.["from"]);
      from.add(answer.result?.["from"]);
    }
    assert.equal(asked.length, 6);
    assert.deepEqual([...from].map(String).sort(), ["h1", "h2"]);
  });

  it("asks the machine that has a task about it", async () => {
    const nats = new MemoryNats();
    const servers = { h1: new ModernTaskServer(), h2: new ModernTaskServer() };
    const settings = { servers: { job: { era: "modern" } } } as const;
    exporting(nats, "h1", { job: servers.h1 }, { settings });
    exporting(nats, "h2", { job: servers.h2 }, { settings });
    const { client, connect, peers } = importing(nats, [fleetSpecOf("job", { spread: "call" })]);
    await initialize(client);
    await listToolNames(client);
    await waitFor("both hubs", () => (peers.all.length === 2 ? true : undefined));
    const modern = connect();
    const from = new Set<string>();
    for (let i = 0; i < 4; i++) {
      const before = { h1: servers.h1.taskCount, h2: servers.h2.taskCount };
      const params = { name: "job__x", arguments: {} };
      const { result, error } = await sendModernRequest(
        modern,
        "tools/call",
        params,
        TASKS_DECLARED,
      );
      const taskId = result?.["taskId"];
      assert.equal(typeof taskId, "string", JSON.stringify(result ?? error));
      const owner = servers.h1.taskCount > before.h1 ? "h1" : "h2";
      from.add(owner);
      const asked = servers[owner].messagesOf("tasks/get").length;
      const got = await sendModernRequest(modern, "tasks/get", { taskId }, TASKS_DECLARED);
      assert.equal(got.result?.["status"], "working");
      assert.ok(servers[owner].messagesOf("tasks/get").length > asked);
    }
    assert.deepEqual([...from].sort(), ["h1", "h2"]);
  });

  it("asks the people who watch the exporting hub for an approval, and the caller only if it is told to", async () => {
    for (const askCaller of [false, true]) {
      const nats = new MemoryNats();
      nats.isAuthenticated = true;
      const server = new ScriptedServer("run");
      const user = { mode: undefined, servers: undefined, approval: undefined, askCaller };
      const manifest = manifestOf({ job: {} });
      exporting(
        nats,
        "h1",
        { job: server },
        {
          users: [{ user: "acme/u1", ...user }],
          settings: {
            manifest: { ...manifest, approval: { approval: "always", timeout: 60_000 } },
          },
        },
      );
      const { client } = importing(nats, [fleetSpecOf("job", { tenant: "acme" })], {
        tenant: "acme",
        user: "u1",
      });
      client.onMessage = ({ id, method }) => {
        if (method === "elicitation/create")
          client.send({
            jsonrpc: "2.0",
            id,
            result: { action: "accept", content: { decision: "once" } },
          });
      };
      await initialize(client, { elicitation: {} });
      await listToolNames(client);
      const answer = await callTool(client, "job__run");
      if (askCaller) assert.ok(answer.result?.["echo"], JSON.stringify(answer));
      else assert.equal(errorCode(answer), "notApproved");
      const asked = client.messages.filter(({ method }) => method === "elicitation/create");
      assert.equal(asked.length, askCaller ? 1 : 0);
      assert.equal(server.messagesOf("tools/call").length, askCaller ? 1 : 0);
    }
  });

  it("keeps a client at one replica, and spreads calls if the manifest says so", async () => {
    const nats = new MemoryNats();
    const servers = ["h1", "h2", "h3"].map((name) => {
      const server = new ScriptedServer("who");
      server.onCall = () => `"result":{"content":[],"from":"${name}"}`;
      exporting(nats, name, { srv: server });
      return server;
    });
    assert.equal(servers.length, 3);
    const { client, peers } = importing(nats, [
      fleetSpecOf("srv"),
      fleetSpecOf("spread", { fleet: "srv", spread: "call" }),
    ]);
    await initialize(client);
    await listToolNames(client);
    await waitFor("all hubs", () => (peers.all.length === 3 ? true : undefined));
    const fromOf = async (tool: string): Promise<number> => {
      const from = new Set<unknown>();
      for (let i = 0; i < 9; i++) from.add((await callTool(client, tool)).result?.["from"]);
      return from.size;
    };
    assert.equal(await fromOf("srv__who"), 1);
    assert.equal(await fromOf("spread__who"), 3);
  });

  it("spreads the calls of a server evenly, however many calls of other servers a machine has", async () => {
    const nats = new MemoryNats();
    const [first, second, other] = [heldServer("run"), heldServer("run"), heldServer("run")];
    exporting(nats, "h1", { job: first.server, other: other.server });
    exporting(nats, "h2", { job: second.server });
    const { client, peers } = importing(nats, [
      fleetSpecOf("job", { spread: "call" }),
      fleetSpecOf("other"),
    ]);
    await initialize(client);
    await listToolNames(client);
    await waitFor("both hubs", () => (peers.all.length === 2 ? true : undefined));
    const call = (id: string, name: string): void =>
      client.send({ jsonrpc: "2.0", id, method: "tools/call", params: { name } });
    for (let i = 0; i < 5; i++) call(`o${i}`, "other__run");
    await waitFor("the other calls", () => other.started() === 5 || undefined);
    for (let i = 0; i < 4; i++) call(`j${i}`, "job__run");
    await waitFor("the calls", () => first.started() + second.started() === 4 || undefined);
    assert.deepEqual([first.started(), second.started()], [2, 2]);
  });

  it("cancels what it works at for a hub that has died, or that has given it up", async () => {
    const nats = new MemoryNats();
    const held = heldServer("run");
    let cancelled = 0;
    held.server.handlers = {
      "notifications/cancelled": () => {
        cancelled++;
        return undefined;
      },
    };
    const { bus } = exporting(nats, "h1", { job: held.server });
    const call = async (): Promise<ImportingSetup> => {
      const setup = importing(nats, [fleetSpecOf("job")]);
      await initialize(setup.client);
      await listToolNames(setup.client);
      const before = held.started();
      setup.client.send({
        jsonrpc: "2.0",
        id: "c",
        method: "tools/call",
        params: { name: "job__run" },
      });
      await waitFor("the call", () => (held.started() > before ? true : undefined));
      return setup;
    };
    (await call()).bus.kill();
    await waitFor("the cancellation", () => (cancelled === 1 ? true : undefined), 20_000);
    const { client } = await call();
    bus.isSilent = true;
    assert.equal(errorCode(await client.find(isResponseTo("c"))), "answerLost");
    bus.isSilent = false;
    await waitFor("the cancellation", () => (cancelled === 2 ? true : undefined), 20_000);
  });

  it("lists what any replica has, and calls each tool where it is as it was listed", async () => {
    const nats = new MemoryNats();
    const from = (server: ScriptedServer, name: string): ScriptedServer => {
      server.onCall = () => `"result":{"content":[],"from":"${name}"}`;
      return server;
    };
    const other = from(new ScriptedServer("b", "c"), "h2");
    other.tools[0] = JSON.stringify({
      name: "b",
      description: "another",
      inputSchema: { type: "object" },
    });
    exporting(nats, "h1", { srv: from(new ScriptedServer("a", "b"), "h1") }, { digest: "one" });
    exporting(nats, "h2", { srv: other }, { digest: "two" });
    const { client, peers } = importing(nats, [fleetSpecOf("srv", { spread: "call" })]);
    await initialize(client);
    await waitFor("both hubs", () => (peers.all.length === 2 ? true : undefined));
    await waitFor("all tools", () => {
      client.send({ jsonrpc: "2.0", id: `l${Math.random()}`, method: "tools/list" });
      return client.messages.some(
        ({ result }) => (result?.["tools"] as unknown[] | undefined)?.length === 3,
      )
        ? true
        : undefined;
    });
    for (const [tool, hub] of [
      ["a", "h1"],
      ["b", "h1"],
      ["c", "h2"],
    ] as const)
      for (let i = 0; i < 4; i++)
        assert.equal((await callTool(client, `srv__${tool}`)).result?.["from"], hub, tool);
  });
});

describe("an exporting hub", () => {
  const request = (name: string, more: object = {}): object => ({
    jsonrpc: "2.0",
    id: 7,
    method: "tools/call",
    params: {
      name,
      arguments: {},
      _meta: {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": { name: "p", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      },
      ...more,
    },
  });

  /** Sends a request as a peer that has only the convention. @returns the frames of the answer */
  async function ask(
    nats: MemoryNats,
    subject: string,
    body: object,
    headers: Record<string, string> = {},
    reply = "_INBOX_default__.peer.1",
  ): Promise<readonly { readonly frame: string; readonly body: Json }[]> {
    const bus = nats.connect();
    const frames: { frame: string; body: Json }[] = [];
    let isOver = false;
    bus.subscribe(reply, (message) => {
      const text = Buffer.from(message.data).toString();
      const frame = message.hasNoResponders ? "none" : message.header("Mcp-Frame");
      frames.push({ frame, body: (text === "" ? {} : JSON.parse(text)) as Json });
      isOver = frame !== "msg" && frame !== "ka";
    });
    const all = {
      "Mcp-Wire": "1",
      "Mcp-Method": "tools/call",
      "Mcp-Name": "log",
      "MCP-Protocol-Version": MODERN_VERSION,
      ...headers,
    };
    bus.publish(subject, Buffer.from(JSON.stringify(body)), {
      reply,
      headers: Object.entries(all),
    });
    await waitFor("the answer", () => (isOver ? true : undefined));
    return frames;
  }

  it("answers a peer that knows only the convention, on the subject for any hub", async () => {
    const nats = new MemoryNats();
    exporting(nats, "h1", { git: new ScriptedServer("log", "a.b") });
    const [end] = await ask(nats, "mcp.v1.req.default._.git.tools.call.log", request("log"));
    assert.equal(end?.frame, "end");
    assert.equal(end.body.id, 7);
    assert.ok(end.body.result);
    const [unsafe] = await ask(nats, "mcp.v1.req.default._.git.tools.call._", request("a.b"), {
      "Mcp-Name": "a.b",
    });
    assert.equal(unsafe?.frame, "end");
    const [none] = await ask(nats, "mcp.v1.req.default._.other.tools.call.log", request("log"));
    assert.equal(none?.frame, "none");
  });

  it("refuses each request whose subject, headers and body do not agree", async () => {
    const nats = new MemoryNats();
    const server = new ScriptedServer("log", "delete");
    exporting(nats, "h1", { git: server, other: new ScriptedServer("log") });
    const own = "mcp.v1.req.default._.git.tools.call";
    const table: readonly (readonly [string, object, Record<string, string>?])[] = [
      [`${own}.log`, request("delete"), { "Mcp-Name": "delete" }],
      [`${own}.log`, request("delete")],
      [`${own}._`, request("delete"), { "Mcp-Name": "delete" }],
      [`${own}.log`, request("log"), { "Mcp-Name": "delete" }],
      [`${own}.log`, request("log"), { "Mcp-Method": "tools/list" }],
      [`${own}.log`, request("log"), { "MCP-Protocol-Version": "2025-11-25" }],
      ["mcp.v1.req.default._.git.tools.list._", request("log")],
      ["mcp.v1.hub.h1.req.default._.git.tools.call._", request("log")],
      // Of two members of the same name, the later one counts.
      [`${own}.log`, JSON.parse(JSON.stringify(request("log"))) as object, { "Mcp-Name": "LOG" }],
    ];
    for (const [subject, body, headers] of table) {
      const [frame] = await ask(nats, subject, body, headers);
      assert.equal(frame?.frame, "err", subject);
      assert.equal(frame.body.error?.code, -32020, subject);
    }
    assert.equal(server.messagesOf("tools/call").length, 0);
  });

  it("shows a peer nothing of a server that is not exported", async () => {
    const nats = new MemoryNats();
    const secret = new ScriptedServer("read");
    const { exporter } = exporting(nats, "h1", { git: new ScriptedServer("log"), secret });
    exporter.setServers([{ name: "git", digest: undefined }]);
    const read = { "Mcp-Name": "read" };
    assert.equal(
      (await ask(nats, "mcp.v1.req.default._.secret.tools.call.read", request("read"), read))[0]
        ?.frame,
      "none",
    );
    const [other] = await ask(
      nats,
      "mcp.v1.req.default._.git.tools.call.secret__read",
      request("secret__read"),
      { "Mcp-Name": "secret__read" },
    );
    assert.ok(other?.body.error ?? other?.body.result?.["isError"]);
    assert.equal(secret.messagesOf("tools/call").length, 0);
  });

  it("sends no answer to a subject that is not one of an inbox", async () => {
    const nats = new MemoryNats();
    const server = new ScriptedServer("log");
    exporting(nats, "h1", { git: server });
    const bus = nats.connect();
    const subject = "mcp.v1.req.default._.git.tools.call.log";
    for (const reply of ["mcp.v1.hub.h1.down", "other.subject", "_INBOX.x", "_INBOX_*.x"])
      bus.publish(subject, Buffer.from(JSON.stringify(request("log"))), { reply });
    await ask(nats, subject, request("log"));
    assert.equal(server.messagesOf("tools/call").length, 1);
    const inboxes = nats.published.filter(
      ({ subject: to }) => /^(?:other|_INBOX\.|_INBOX_\*)/.test(to) || to.endsWith(".down"),
    );
    assert.deepEqual(inboxes, []);
  });

  it("believes users only if NATS asks for credentials, and limits those that the manifest names", async () => {
    const nats = new MemoryNats();
    const users = [
      { user: "acme/u1", mode: undefined, servers: ["git"], approval: undefined, askCaller: false },
    ];
    const { hub } = exporting(
      nats,
      "h1",
      { git: new ScriptedServer("log"), jobs: new ScriptedServer("log") },
      { users },
    );
    const jobs = "mcp.v1.req.acme.u1.jobs.tools.call.log";
    assert.equal((await ask(nats, jobs, request("log")))[0]?.frame, "end");
    nats.isAuthenticated = true;
    const inbox = "_INBOX_acme_u1.peer.1";
    const [refused] = await ask(nats, jobs, request("log"), {}, inbox);
    assert.equal(refused?.body.error?.data?.["code"], "accessDenied");
    const [allowed] = await ask(
      nats,
      "mcp.v1.req.acme.u1.git.tools.call.log",
      request("log"),
      {},
      inbox,
    );
    assert.equal(allowed?.frame, "end");
    const client = hub.snapshot().clients.find(({ principal }) => principal === "nats:acme/u1");
    assert.equal(client?.transport, "nats");
  });
});

describe("a hub that uses a peer of the convention", () => {
  it("sends its requests to whoever serves the server, and reads each kind of frame", async () => {
    const nats = new MemoryNats();
    const bus = nats.connect();
    const cancelled: string[] = [];
    bus.subscribe("mcp.v1.req.*.*.gh.>", (message) => {
      const body = JSON.parse(Buffer.from(message.data).toString()) as Json;
      const frame = (kind: string, value?: object): void =>
        bus.publish(message.reply, Buffer.from(value === undefined ? "" : JSON.stringify(value)), {
          headers: [["Mcp-Frame", kind]],
        });
      const end = (result: object): void => frame("end", { jsonrpc: "2.0", id: body.id, result });
      bus.subscribe(`${message.reply}.ctl`, ({ data }) =>
        cancelled.push(Buffer.from(data).toString()),
      );
      const base = { resultType: "complete", ttlMs: 0, cacheScope: "public" };
      if (body.method === "server/discover")
        end({
          ...base,
          supportedVersions: [MODERN_VERSION],
          capabilities: { tools: {} },
          serverInfo: { name: "gw", version: "1" },
        });
      else if (body.method === "tools/list")
        end({
          ...base,
          tools: ["ok", "gone", "odd.name", "wait"].map((name) => ({
            name,
            inputSchema: { type: "object" },
          })),
        });
      else if (body.params?.["name"] === "gone")
        frame("err", {
          jsonrpc: "2.0",
          id: null,
          error: { code: -32010, message: "gateway draining" },
        });
      else if (body.params?.["name"] !== "wait") {
        frame("ka");
        assert.equal(
          message.subject,
          `mcp.v1.req.default._.gh.tools.call.${body.params?.["name"] === "ok" ? "ok" : "_"}`,
        );
        end({ ...base, content: [], name: body.params?.["name"] });
      }
    });
    const { client } = importing(nats, [fleetSpecOf("gh")]);
    await initialize(client);
    assert.deepEqual(await listToolNames(client), [
      "gh__gone",
      "gh__odd_name_emhlpj",
      "gh__ok",
      "gh__wait",
    ]);
    assert.equal((await callTool(client, "gh__ok")).result?.["name"], "ok");
    assert.equal((await callTool(client, "gh__odd_name_emhlpj")).result?.["name"], "odd.name");
    const gone = await callTool(client, "gh__gone");
    assert.equal(errorCode(gone), "answerLost");
    assert.match(JSON.stringify(gone), /gateway draining/);
    client.send({ jsonrpc: "2.0", id: "w", method: "tools/call", params: { name: "gh__wait" } });
    await waitFor(
      "the call",
      () => nats.published.some(({ subject }) => subject.endsWith(".wait")) || undefined,
    );
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "w" } });
    await waitFor("the cancellation", () =>
      cancelled.some((text) => text.includes("notifications/cancelled")) ? true : undefined,
    );
  });
});
