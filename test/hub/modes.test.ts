import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { encodeUri } from "../../src/catalog/uris.ts";
import type { Filter } from "../../src/manifest/filter.ts";
import {
  callRequest,
  callTool,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  manifestFor,
  modeOf,
  type Peer,
  ScriptedServer,
  sendRequest,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { inputRoundOf, modernRequest, sendModernRequest } from "../fixtures/modern-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const READ = { name: "read", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } };

const MODES = [
  modeOf("reading", { readOnly: true }),
  modeOf("files", { servers: ["files"] }),
  modeOf("git", { and: [{ servers: ["git"] }, { not: { pattern: "push" } }] }),
  modeOf("no-a", "all", { resources: { not: { names: ["file:///a"] } } }),
  modeOf("all-files", { tools: ["read", "write"] }, { prompts: { or: [] }, resources: "all" }),
];

/** A hub with servers `files` (read, write) and `git` (log, push), whose client on stdio has listed its tools. */
async function setUp(hub: Readonly<Record<string, string>> = {}) {
  const [files, git] = [new ScriptedServer("write"), new ScriptedServer("log", "push")];
  files.tools.push(JSON.stringify(READ));
  files.listings = { prompts: [{ name: "p" }], resources: [{ uri: "file:///a", name: "a" }] };
  git.listings = { prompts: [{ name: "p" }], resources: [{ uri: "git://b", name: "b" }] };
  files.instructions = "Files.";
  git.instructions = "Git.";
  const setup = setUpHubWithClock({ files, git }, { modes: MODES, hub });
  const join = async (kind: "stdio" | "memory" | "control" = "stdio"): Promise<Peer> => {
    const client = setup.connect(kind);
    await initialize(client);
    await listToolNames(client);
    return client;
  };
  return { ...setup, files, git, join, client: await join() };
}

const FULL = ["files__read", "files__write", "git__log", "git__push"];
const FILES = ["files__read", "files__write"];
const changes = ({ messages }: Peer): number =>
  messages.filter(({ method }) => method === "notifications/tools/list_changed").length;

async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 100 && !holds(); i++) await turn();
  assert.ok(holds());
}

/** Answers all calls that a server has got. */
function answerAll({ peers }: ScriptedServer): void {
  for (const peer of peers) {
    for (const { method, id } of peer.messages)
      if (method === "tools/call") peer.send({ jsonrpc: "2.0", id, result: { content: [] } });
  }
}

function assertRefused({ error }: Json, name: string, mode: string): void {
  assert.equal(error?.code, -32602);
  assert.equal(error.data?.["code"], "notInMode");
  assert.equal(error.message, `Tool "${name}" is not part of mode "${mode}".`);
}

describe("a client in a mode", () => {
  it("sees the mode's tools only, whichever of the manifest's it is", async () => {
    for (const [mode, expected] of [
      ["full", FULL],
      ["reading", ["files__read"]],
      ["files", FILES],
      ["git", ["git__log"]],
      ["all-files", FILES],
    ] as const) {
      const { client } = await setUp({ mode });
      assert.deepEqual(await listToolNames(client), expected, mode);
    }
  });

  it("sees prompts, resources and instructions of the servers that the mode is limited to, unless it says more", async () => {
    for (const [mode, prompts, resources, instructions] of [
      ["reading", 2, 2, "# files\n\nFiles.\n\n# git\n\nGit."],
      ["files", 1, 1, "# files\n\nFiles."],
      ["git", 1, 1, "# git\n\nGit."],
      ["all-files", 0, 2, "# files\n\nFiles.\n\n# git\n\nGit."],
    ] as const) {
      const { client, hub } = await setUp({ mode, instructions: "" });
      const lengthOf = async (list: string): Promise<unknown> =>
        ((await sendRequest(client, `${list}/list`)).result?.[list] as object[]).length;
      assert.deepEqual(
        [await lengthOf("prompts"), await lengthOf("resources")],
        [prompts, resources],
      );
      assert.equal(hub.catalogOf("client-2")?.instructions, instructions, mode);
    }
  });

  it("is refused what its mode hides, by the exposed and by the own name, and nothing reaches the server", async () => {
    const { client, git } = await setUp({ mode: "files" });
    assertRefused(await callTool(client, "git__push"), "git__push", "files");
    assertRefused(await callTool(client, "push"), "push", "files");
    const { error } = await sendRequest(client, "resources/read", { uri: "git://b" });
    assert.equal(error?.data?.["code"], "notInMode");
    assert.equal((await callTool(client, "none__x")).error?.data?.["code"], "unknownTool");
    assert.deepEqual([git.messagesOf("tools/call"), git.messagesOf("resources/read")], [[], []]);
    assert.ok((await callTool(client, "files__write")).result);
  });

  it("cannot read a hidden resource by its other URI, which names the server", async () => {
    const { client, files, git } = await setUp({ mode: "no-a" });
    files.handlers = git.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    for (const uri of ["file:///a", encodeUri("files", "file:///a")]) {
      const { error } = await sendRequest(client, "resources/read", { uri });
      assert.equal(error?.data?.["code"], "notInMode", uri);
    }
    assert.ok((await sendRequest(client, "resources/read", { uri: "git://b" })).result);
    assert.deepEqual(files.messagesOf("resources/read"), []);
  });

  it("reaches nothing else by members that some servers take for those that the hub reads", async () => {
    const { client, git } = await setUp({ mode: "git" });
    const methods = {
      "tools/call": [
        { name: "git__log", Name: "push" },
        { name: "git__log", argumentſ: {} },
      ],
      "prompts/get": [{ name: "git__p", NAME: "q" }],
      "resources/read": [{ uri: "git://b", Uri: "file:///a" }],
      "completion/complete": [{ ref: { type: "ref/prompt", name: "git__p", Name: "q" } }],
    };
    for (const [method, all] of Object.entries(methods)) {
      for (const params of all) {
        const { error } = await sendRequest(client, method, params);
        assert.equal(error?.code, -32602, JSON.stringify(params));
      }
      assert.deepEqual(git.messagesOf(method), []);
    }
  });

  it("shares its servers with clients in other modes", async () => {
    const { client, hub, join, files } = await setUp();
    const other = await join();
    hub.setClientMode("client-3", "git");
    assert.deepEqual(await listToolNames(client), FULL);
    assert.deepEqual(await listToolNames(other), ["git__log"]);
    assert.equal(files.transportCount, 1);
  });

  it("is a client of stdio or HTTP; the operator's own see everything", async () => {
    const { join } = await setUp({ mode: "git" });
    assert.deepEqual(await listToolNames(await join("control")), FULL);
    assert.deepEqual(await listToolNames(await join("memory")), FULL);
  });

  it("sees what all of its modes show, whatever the operator chooses", async () => {
    const { connect, hub } = await setUp();
    const limits = { modes: () => ["files"], hasOperatorMode: true };
    const client = connect("stdio", limits);
    await initialize(client);
    assert.deepEqual(await listToolNames(client), FILES);
    for (const [mode, expected] of [
      ["reading", ["files__read"]],
      ["git", []],
      ["full", FILES],
    ] as const) {
      hub.setClientMode("client-3", mode);
      assert.deepEqual(await listToolNames(client), expected, mode);
      assertRefused(
        await callTool(client, "git__push"),
        "git__push",
        mode === "git" ? "files" : mode === "reading" ? "reading" : "files",
      );
    }
  });
});

describe("a mode whose table has a problem", () => {
  it("shows nothing to its clients, cannot be chosen, and is warned of", async () => {
    const problem = { file: "/m.toml", path: ["modes"], at: "key", message: "no" } as const;
    const wrong = modeOf("wrong", { or: [] }, { problems: [problem] });
    const setup = setUpHubWithClock({ files: new ScriptedServer("x") }, { modes: [wrong] });
    const { hub, connect } = setup;
    const client = connect("stdio", { modes: () => ["wrong"], hasOperatorMode: true });
    await initialize(client);
    assert.deepEqual(await listToolNames(client), []);
    assert.throws(() => hub.setMode("wrong"), /problem/);
    assert.match(
      hub
        .log()
        .map(({ text }) => text)
        .join(),
      /Mode "wrong" shows nothing.*no/,
    );
  });
});

describe("a switch of the mode", () => {
  it("tells exactly the clients whose list is another, once, of either era", async () => {
    const { client, hub, join, events } = await setUp();
    const [own, listening] = [await join(), await join()];
    hub.setClientMode("client-3", "files");
    await turn();
    assert.equal(changes(own), 1);
    listening.send(
      modernRequest("L", "subscriptions/listen", { notifications: { toolsListChanged: true } }),
    );
    await turn();
    hub.setMode("all-files");
    await turn();
    // What client-3 sees is the same as before.
    assert.deepEqual([client, own].map(changes), [1, 1]);
    assert.ok(
      listening.messages.some(({ method }) => method === "notifications/tools/list_changed"),
    );
    hub.setMode("all-files");
    await turn();
    assert.equal(changes(client), 1);
    assert.deepEqual(
      events.filter(({ kind }) => kind === "mode"),
      [
        { kind: "mode", client: "client-3", name: "t", from: "full", to: "files" },
        { kind: "mode", from: "full", to: "all-files" },
      ],
    );
    assert.deepEqual(await listToolNames(client), FILES);
  });

  it("lets calls go on, and refuses the next ones", async () => {
    const { client, hub, git } = await setUp();
    git.onCall = () => undefined;
    client.send(callRequest(7, "git__push"));
    client.send(modernRequest("m", "tools/call", { name: "git__push", arguments: {} }));
    await until(() => git.messagesOf("tools/call").length === 2);
    hub.setMode("files");
    assertRefused(await callTool(client, "git__push"), "git__push", "files");
    const refused = await sendModernRequest(client, "tools/call", { name: "git__push" });
    assertRefused(refused, "git__push", "files");
    answerAll(git);
    assert.ok((await client.find(isResponseTo(7))).result);
    assert.ok((await client.find(isResponseTo("m"))).result);
  });

  it("keeps the updates of a hidden resource from its subscribers, of either era", async () => {
    const { hub, git, client, join } = await setUp();
    git.handlers = { "resources/subscribe": () => '"result":{}' };
    await sendRequest(client, "resources/subscribe", { uri: "git://b" });
    const modern = await join();
    const notifications = { resourceSubscriptions: ["git://b"] };
    modern.send(modernRequest("s", "subscriptions/listen", { notifications }));
    const isUpdate = ({ method }: Json): boolean => method === "notifications/resources/updated";
    const updates = (): readonly number[] =>
      [client, modern].map(({ messages }) => messages.filter(isUpdate).length);
    const update = async (): Promise<void> => {
      const params = { uri: "git://b" };
      for (const peer of git.peers)
        peer.send({ jsonrpc: "2.0", method: "notifications/resources/updated", params });
      for (let i = 0; i < 20; i++) await turn();
    };
    const isAcknowledged = ({ method }: Json): boolean =>
      method === "notifications/subscriptions/acknowledged";
    await until(() => modern.messages.some(isAcknowledged));
    await update();
    const before = updates();
    hub.setMode("files");
    await update();
    assert.deepEqual(updates(), before);
    hub.setMode(undefined);
    await update();
    assert.deepEqual(
      [before, updates()],
      [
        [1, 1],
        [2, 2],
      ],
    );
  });

  it("lets a call of a modern client go on that waits for the client's answer", async () => {
    const { client, hub, git, clock } = await setUp();
    const capabilities = { roots: {} };
    git.onCall = () => {
      git.newestPeer?.send({ jsonrpc: "2.0", id: "ask", method: "roots/list" });
      return undefined;
    };
    const call = { name: "git__push", arguments: {} };
    client.send(modernRequest("m", "tools/call", call, capabilities));
    await until(() => git.messagesOf("tools/call").length === 1);
    await turn();
    await clock.advanceAsync(10);
    const { keys, state } = inputRoundOf(await client.find(isResponseTo("m")));
    hub.setMode("files");
    const inputResponses = Object.fromEntries(keys.map((key) => [key, { roots: [] }]));
    const again = { ...call, inputResponses, requestState: state };
    client.send(modernRequest("m2", "tools/call", again, capabilities));
    await git.newestPeer?.find(isResponseTo("ask"));
    answerAll(git);
    assert.equal((await client.find(isResponseTo("m2"))).error, undefined);
  });

  it("is undone for a client by the operator alone, and forgotten when it leaves", async () => {
    const { client, hub } = await setUp({ mode: "files" });
    hub.setClientMode("client-2", "full");
    assert.deepEqual(await listToolNames(client), FULL);
    hub.setClientMode("client-2", undefined);
    assert.deepEqual(await listToolNames(client), FILES);
    assert.throws(() => hub.setMode("none"), /there is no mode "none"/i);
    assert.throws(() => hub.setClientMode("client-2", "gti"), /did you mean "git"/);
    assert.deepEqual(hub.mode, { current: "files", default: "files" });
  });

  it("starts and stops no server; one that no client sees stops when it is idle", async () => {
    const [files, git] = [new ScriptedServer("read"), new ScriptedServer("log")];
    const servers = { git: { idleStop: 60_000, healthInterval: 0 } };
    const setup = setUpHubWithClock({ files, git }, { modes: MODES, servers });
    const client = setup.connect("stdio");
    await initialize(client);
    await setup.clock.advanceAsync(30_000);
    setup.hub.setMode("files");
    assert.deepEqual([git.openCount, git.transportCount], [1, 1]);
    await setup.clock.advanceAsync(60_000);
    assert.deepEqual([git.openCount, files.openCount], [0, 1]);
    setup.hub.setMode("full");
    assert.equal(git.transportCount, 1);
    assert.ok((await callTool(client, "git__log")).result);
  });
});

describe("a reload", () => {
  const reload = (setup: Awaited<ReturnType<typeof setUp>>, modes: typeof MODES, mode = "full") =>
    setup.hub.reload({
      ...manifestFor({ files: setup.files, git: setup.git }, { modes, hub: { mode } }),
    });

  it("that removes a mode puts its clients into the default, and warns", async () => {
    const setup = await setUp();
    const { hub, clock, client, join, events } = setup;
    const other = await join();
    hub.setMode("git");
    hub.setClientMode("client-3", "files");
    await turn();
    const before = [client, other].map(changes);
    reload(setup, [modeOf("reading", { readOnly: true })], "reading");
    await clock.advanceAsync(1000);
    for (const peer of [client, other])
      assert.deepEqual(await listToolNames(peer), ["files__read"]);
    assert.deepEqual(
      [client, other].map(changes),
      before.map((number) => number + 1),
    );
    const warnings = events.filter((event) => event.kind === "log" && event.level === "warn");
    assert.equal(warnings.length, 2);
  });

  it("puts another filter of a mode in force at once", async () => {
    const setup = await setUp({ mode: "files" });
    const filter: Filter = { servers: ["git"] };
    reload(setup, [modeOf("files", filter)], "files");
    assertRefused(await callTool(setup.client, "files__read"), "files__read", "files");
    await setup.clock.advanceAsync(1000);
    assert.equal(changes(setup.client), 1);
    assert.deepEqual(await listToolNames(setup.client), ["git__log", "git__push"]);
  });
});

describe("many clients", () => {
  it("of 10,000 tools in 10 modes have at most 10 catalogs, of the same entries", async () => {
    const servers = Array.from({ length: 10 }, (_, server) => {
      const names = Array.from({ length: 1000 }, (__, tool) => `tool_${tool}`);
      return [`s${server}`, new ScriptedServer(...names)] as const;
    });
    const modes = servers.map(([name], i) =>
      modeOf(`m${i}`, { or: [{ servers: [name] }, { tools: [`*_${i}`] }] }),
    );
    const { hub, connect } = setUpHubWithClock(Object.fromEntries(servers), { modes });
    const clients = Array.from({ length: 100 }, () => connect("stdio"));
    await Promise.all(clients.map((client) => initialize(client)));
    await Promise.all(clients.map((client) => sendRequest(client, "tools/list")));
    for (let i = 0; i < 100; i++) hub.setClientMode(`client-${i + 2}`, `m${i % 10}`);
    const catalogs = clients.map((_, i) => hub.catalogOf(`client-${i + 2}`));
    assert.equal(new Set(catalogs).size, 10);
    const [first] = catalogs;
    assert.equal(first?.tools.size, 1009);
    for (const entry of first.tools.entries)
      assert.equal(hub.catalog.tools.entry(entry.name), entry);
  });
});
