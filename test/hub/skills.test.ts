import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import {
  sendRequest,
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  type Servers,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { modernRequest, sendModernRequest } from "../fixtures/modern-requests.ts";
import { DISCOVER_RESULT, ModernScriptedServer } from "../fixtures/modern-server.ts";
import { isOf } from "../fixtures/peer-messages.ts";

const SKILLS = "io.modelcontextprotocol/skills";
const GET = "skills/get";
const READ = "resources/read";
const READ_DIRECTORY = "resources/directory/read";
const LISTEN = "subscriptions/listen";

interface Entry {
  readonly uri: string;
  readonly frontmatter: { readonly name: string; readonly description: string };
  readonly resources: "dynamic" | { uri: string; digest: string; size: number }[];
}

const textOf = (uri: string): string => `content of ${uri}\n`;

function entryOf(root: string, ...files: string[]): Entry {
  const resources = ["SKILL.md", ...files].map((file) => {
    const uri = `${root}/${file}`;
    const text = textOf(uri);
    const digest = `sha256:${createHash("sha256").update(text).digest("hex")}`;
    return { uri, digest, size: text.length };
  });
  const name = root.slice(root.lastIndexOf("/") + 1);
  return {
    uri: `${root}/SKILL.md`,
    frontmatter: { name, description: `Does ${name}.` },
    resources,
  };
}

interface Settings {
  readonly listed?: readonly object[];
  /** Served, but not listed. */
  readonly unlisted?: readonly Entry[];
  readonly settings?: object;
  readonly resources?: object[];
}

/** A server of the modern era with these skills, which reads and gets under its own URIs alone. */
function skillServer(parts: Settings): ModernScriptedServer {
  const { listed = [], unlisted = [], settings = {}, resources } = parts;
  const script = new ModernScriptedServer("t");
  if (resources !== undefined) script.listings = { ...script.listings, resources } as never;
  const capabilities = { ...DISCOVER_RESULT.capabilities, extensions: { [SKILLS]: settings } };
  script.handlers = {
    ...script.handlers,
    "server/discover": () => `"result":${JSON.stringify({ ...DISCOVER_RESULT, capabilities })}`,
    ...answersOf([...(listed as Entry[]), ...unlisted], listed),
  };
  return script;
}

const complete = (more: object): string =>
  `"result":${JSON.stringify({ resultType: "complete", ...more })}`;

function answersOf(
  served: readonly Entry[],
  listed: readonly object[],
): ModernScriptedServer["handlers"] {
  const invalid = '"error":{"code":-32602,"message":"no"}';
  const own = (message: Json): string => String(message.params?.["uri"]);
  const cacheScope = "public";
  return {
    "skills/list": () => complete({ skills: listed, ttlMs: 5000, cacheScope }),
    [GET]: (message) => {
      const skill = served.find(({ uri }) => uri === own(message));
      return skill === undefined ? invalid : complete({ skill, ttlMs: 7000, cacheScope });
    },
    [READ]: (message) => {
      const uri = own(message);
      if (!uri.startsWith("skill://")) return invalid;
      return complete({ contents: [{ uri, text: textOf(uri) }], ttlMs: 1, cacheScope: "private" });
    },
    [READ_DIRECTORY]: (message) =>
      complete({ resources: [{ uri: `${own(message)}/SKILL.md`, name: "SKILL.md" }] }),
  };
}

/** A hub over these servers, with these settings; `list` and `listUris`: its skills, `ask`: about a URI. */
function setUp(scripts: Record<string, ScriptedServer>, settings: Servers[string] = {}) {
  const servers = Object.entries(scripts).map(([name, script]) => {
    const era = script instanceof ModernScriptedServer ? "modern" : "legacy";
    return [name, { era, ...settings }] as const;
  });
  const setup = setUpHub(scripts, { servers: Object.fromEntries(servers) });
  const { client } = setup;
  const list = async (): Promise<readonly Entry[]> => {
    const { result } = await sendModernRequest(client, "skills/list");
    return (result?.["skills"] ?? []) as Entry[];
  };
  return {
    ...setup,
    list,
    listUris: async () => (await list()).map(({ uri }) => uri),
    ask: (method: string, uri: string) => sendModernRequest(client, method, { uri }),
  };
}

/** The same, and a client that has listed the skills. */
async function begin(...made: Parameters<typeof setUp>) {
  const setup = setUp(...made);
  await setup.list();
  return setup;
}

async function declared(client: Peer): Promise<unknown> {
  const { result } = await sendModernRequest(client, "server/discover");
  const { extensions } = result?.["capabilities"] as { extensions?: Record<string, unknown> };
  return extensions?.[SKILLS];
}

const uriOf = (asked: readonly Json[]): unknown[] => asked.map(({ params }) => params?.["uri"]);

const REFUNDS = entryOf("skill://refunds", "ref/a.md");
const OTHER = "toolmux://b/skill://refunds";

describe("the capability of skills", () => {
  it("is not declared if no server declares it, and its methods reach no server", async () => {
    const { client, list, ask } = setUp({ a: new ModernScriptedServer("t") });
    assert.deepEqual(await list(), []);
    assert.equal(await declared(client), undefined);
    assert.equal((await ask(GET, REFUNDS.uri)).error?.code, -32602);
  });

  it("is declared if one server declares it, and directoryRead if one of them does", async () => {
    for (const settings of [{}, { directoryRead: true }]) {
      const [b, c] = [skillServer({ settings }), skillServer({})];
      const { client } = await begin({ a: new ModernScriptedServer("t"), b, c });
      assert.deepEqual(await declared(client), settings);
    }
  });

  it("is declared to a legacy client that declares it, of any version, which has all its methods", async () => {
    for (const protocolVersion of ["2025-03-26", "2025-06-18", "2025-11-25"]) {
      const settings = { directoryRead: true };
      const { client } = setUp({ a: skillServer({ listed: [REFUNDS], settings }) });
      const capabilities = { extensions: { [SKILLS]: {} } };
      const clientInfo = { name: "c", version: "1" };
      const params = { protocolVersion, capabilities, clientInfo };
      const { result } = await sendRequest(client, "initialize", params);
      const offered = result?.["capabilities"] as { extensions: Record<string, unknown> };
      assert.deepEqual(offered.extensions[SKILLS], {});
      const listed = await sendRequest(client, "skills/list", { cursor: null });
      assert.deepEqual(listed.result, { skills: [REFUNDS] });
      const got = await sendRequest(client, GET, { uri: REFUNDS.uri });
      assert.deepEqual(got.result, { skill: REFUNDS });
      const { result: folder } = await sendRequest(client, READ_DIRECTORY, {
        uri: "skill://refunds",
      });
      assert.deepEqual(Object.keys(folder ?? {}), ["resources"]);
    }
  });

  it("is not declared to legacy clients that do not declare it, which read the files as resources", async () => {
    const resources = [{ uri: REFUNDS.uri, name: "refunds" }];
    const { client } = setUp({ a: skillServer({ listed: [REFUNDS], resources }) });
    await initialize(client);
    const { result: listed } = await sendRequest(client, "resources/list");
    assert.deepEqual(listed?.["resources"], resources);
    const init = await client.find(isResponseTo("init"));
    assert.ok(!JSON.stringify(init).includes(SKILLS));
    assert.equal((await sendRequest(client, "skills/list")).error?.code, -32601);
    const { result } = await sendRequest(client, READ, { uri: REFUNDS.uri });
    assert.deepEqual(result?.["contents"], [{ uri: REFUNDS.uri, text: textOf(REFUNDS.uri) }]);
  });
});

describe("the list of skills", () => {
  it("is that of all servers in one order, each entry as its server wrote it, with hints and a result type", async () => {
    const z = entryOf("skill://z");
    const dynamic = { ...entryOf("skill://acme/daily"), resources: "dynamic" as const };
    const [a, b] = [skillServer({ listed: [z] }), skillServer({ listed: [REFUNDS, dynamic] })];
    const { result } = await sendModernRequest(setUp({ a, b }).client, "skills/list");
    assert.deepEqual(result?.["skills"], [dynamic, REFUNDS, z]);
    assert.equal(result?.["resultType"], "complete");
    assert.equal(typeof result?.["ttlMs"], "number");
    assert.match(String(result?.["cacheScope"]), /^(public|private)$/);
  });

  it("comes in pages that hold every one of 2,500 skills once, none of them split", async () => {
    const listed = Array.from({ length: 2500 }, (_, i) =>
      entryOf(`skill://s${String(i).padStart(5, "0")}`, "a.md"),
    );
    const a = skillServer({ listed: listed.slice(0, 1200) });
    const { client } = setUp({ a, b: skillServer({ listed: listed.slice(1200) }) });
    const found: unknown[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const params = cursor === undefined ? {} : { cursor };
      const { result } = await sendModernRequest(client, "skills/list", params);
      found.push(...(result?.["skills"] as unknown[]));
      cursor = result?.["nextCursor"] as string | undefined;
      pages++;
    } while (cursor !== undefined);
    assert.equal(pages, 3);
    assert.deepEqual(found, listed);
  });

  it("is without the skills of a server that fails to list them, which costs it nothing else", async () => {
    const broken = skillServer({});
    broken.handlers["skills/list"] = () => '"error":{"code":-32603,"message":"no"}';
    const { client, listUris } = setUp({ a: broken, b: skillServer({ listed: [REFUNDS] }) });
    assert.deepEqual(await listUris(), [REFUNDS.uri]);
    const { result } = await sendModernRequest(client, "tools/list");
    assert.equal((result?.["tools"] as unknown[]).length, 2);
  });

  it("is without entries that are none of a skill, which strict clients would refuse the whole list for", async () => {
    const { resources: _, ...none } = REFUNDS;
    const odd = { ...REFUNDS, uri: "skill://odd/SKILL.md", resources: "x" };
    const { listUris } = setUp({ a: skillServer({ listed: [none, odd, entryOf("skill://ok")] }) });
    assert.deepEqual(await listUris(), ["skill://ok/SKILL.md"]);
  });

  it("is that of a server of the legacy era, too, which may be asked for its entries", async () => {
    const script = new ScriptedServer("t");
    script.listings = { resources: [] };
    script.handlers = answersOf([REFUNDS], [REFUNDS]);
    const capabilities = { tools: {}, resources: {}, extensions: { [SKILLS]: {} } };
    const serverInfo = { name: "s", version: "1" };
    script.onInitialize = () =>
      `"result":${JSON.stringify({ protocolVersion: "2025-11-25", capabilities, serverInfo })}`;
    const { client, list, ask } = setUp({ a: script });
    assert.deepEqual(await list(), [REFUNDS]);
    assert.deepEqual((await ask(GET, REFUNDS.uri)).result?.["skill"], REFUNDS);
    assert.deepEqual(await declared(client), {});
  });
});

describe("skills/get", () => {
  it("gives the entry as the server wrote it, with the hints of the server, or such as forbid to keep it", async () => {
    const a = skillServer({ listed: [REFUNDS] });
    const { ask } = await begin({ a });
    const get = async (): Promise<unknown[]> => {
      const { result } = await ask(GET, REFUNDS.uri);
      return [result?.["resultType"], result?.["skill"], result?.["ttlMs"], result?.["cacheScope"]];
    };
    assert.deepEqual(await get(), ["complete", REFUNDS, 7000, "public"]);
    a.handlers[GET] = () => complete({ skill: REFUNDS });
    assert.deepEqual(await get(), ["complete", REFUNDS, 0, "private"]);
  });

  it("gets a skill that no list has, and answers -32602 for what nobody serves", async () => {
    const secret = entryOf("skill://secret");
    const { ask } = await begin({ a: skillServer({ listed: [REFUNDS], unlisted: [secret] }) });
    assert.deepEqual((await ask(GET, secret.uri)).result?.["skill"], secret);
    assert.equal((await ask(GET, "skill://none/SKILL.md")).error?.code, -32602);
  });

  it("of a skill that no list has names its server where several have skills, and all of the entry is under that URI", async () => {
    const secret = entryOf("skill://secret", "x.md");
    const [a, b] = [skillServer({ listed: [REFUNDS] }), skillServer({ unlisted: [secret] })];
    const { ask } = await begin({ a, b });
    const { error } = await ask(GET, secret.uri);
    assert.equal(error?.code, -32602);
    const uri = `toolmux://b/${secret.uri}`;
    assert.ok(error.message.includes(uri));
    const skill = (await ask(GET, uri)).result?.["skill"] as Entry;
    assert.equal(skill.uri, uri);
    assert.ok(Array.isArray(skill.resources));
    for (const file of skill.resources) {
      const { result } = await ask(READ, file.uri);
      const [content] = result?.["contents"] as { uri: string; text: string }[];
      assert.equal(content?.uri, file.uri);
      const digest = createHash("sha256").update(content.text).digest("hex");
      assert.equal(`sha256:${digest}`, file.digest);
    }
  });
});

/** A hub over two servers that have the same skill, whose skills its client has listed. */
async function beginTwo() {
  const settings = { directoryRead: true };
  const a = skillServer({ listed: [REFUNDS], settings });
  const others = [entryOf("skill://refunds/inner"), entryOf("skill://own")];
  const b = skillServer({ listed: [REFUNDS, ...others], settings });
  return { a, b, ...(await begin({ a, b })) };
}

describe("skills of the same root at two servers", () => {
  it("are both listed, the later server's whole root under URIs that name it and end as the skill is named", async () => {
    const { list } = await beginTwo();
    const all = await list();
    const roots = ["skill://own", "skill://refunds", OTHER, `${OTHER}/inner`];
    assert.deepEqual(
      all.map(({ uri }) => uri),
      roots.map((root) => `${root}/SKILL.md`),
    );
    const files = REFUNDS.resources as { uri: string }[];
    const resources = files.map((file) => ({ ...file, uri: `toolmux://b/${file.uri}` }));
    assert.deepEqual(all[2], { ...REFUNDS, uri: `${OTHER}/SKILL.md`, resources });
  });

  it("are got, read and looked into at their own servers only, whose answers speak of the same URIs", async () => {
    const { ask, a, b } = await beginTwo();
    for (const method of [GET, READ, READ_DIRECTORY]) {
      const end = method === READ_DIRECTORY ? "" : "/SKILL.md";
      const uris = [`skill://refunds${end}`, `${OTHER}${end}`];
      const [first, second] = await Promise.all(uris.map((uri) => ask(method, uri)));
      for (const server of [a, b])
        assert.deepEqual(uriOf(server.messagesOf(method)), [`skill://refunds${end}`]);
      const [own, other] = [JSON.stringify(first?.result), JSON.stringify(second?.result)];
      assert.ok(own.includes('"skill://refunds/SKILL.md"') && !own.includes("toolmux://"));
      assert.ok(other.includes(`"${OTHER}/SKILL.md"`));
      assert.ok(!other.includes('"skill://refunds/SKILL.md"'));
    }
  });

  it("are separate for files that no list names, too", async () => {
    const { ask, a, b } = await beginTwo();
    const [own, uri] = ["skill://refunds/deep/x.md", `${OTHER}/deep/x.md`];
    assert.deepEqual((await ask(READ, uri)).result?.["contents"], [{ uri, text: textOf(own) }]);
    await ask(READ, own);
    for (const server of [a, b]) assert.deepEqual(uriOf(server.messagesOf(READ)), [own]);
  });

  it("are what links in results lead to, under the URIs that clients know", async () => {
    const { client, b } = await beginTwo();
    const link = { type: "resource_link", name: "n", uri: "skill://refunds/ref/a.md" };
    b.onCall = () => complete({ content: [link] });
    const { result } = await sendModernRequest(client, "tools/call", { name: "b__t" });
    assert.deepEqual(result?.["content"], [{ ...link, uri: `${OTHER}/ref/a.md` }]);
  });

  it("are subscribed to at their own servers, whose updates come under the URIs that clients know", async () => {
    const { client, a, b } = await beginTwo();
    const uri = `${OTHER}/SKILL.md`;
    const notifications = { resourceSubscriptions: [uri] };
    client.send(modernRequest("sub", LISTEN, { notifications }));
    const isWatch = (message: Json): boolean =>
      isOf(LISTEN)(message) && JSON.stringify(message.params).includes("skill://refunds/SKILL.md");
    const watch = await b.newestPeer?.find(isWatch);
    const UPDATED = "notifications/resources/updated";
    b.notifySubscription(watch?.id, UPDATED, { uri: "skill://refunds/SKILL.md" });
    assert.equal((await client.find(isOf(UPDATED))).params?.["uri"], uri);
    assert.ok(!a.listenRequests.some(isWatch));
  });

  it("are renamed also where only a nested one is the same", async () => {
    const a = skillServer({ listed: [entryOf("skill://acme/refunds")] });
    const b = skillServer({ listed: [entryOf("skill://acme"), entryOf("skill://acme/refunds")] });
    assert.deepEqual(await setUp({ a, b }).listUris(), [
      "skill://acme/refunds/SKILL.md",
      "toolmux://b/skill://acme/SKILL.md",
      "toolmux://b/skill://acme/refunds/SKILL.md",
    ]);
  });
});

describe("resources/directory/read", () => {
  it("is never sent to a server that has not declared it, and is answered with -32602", async () => {
    const a = skillServer({ listed: [REFUNDS] });
    const b = skillServer({ listed: [entryOf("skill://own")], settings: { directoryRead: true } });
    const { ask } = await begin({ a, b });
    assert.equal((await ask(READ_DIRECTORY, "skill://refunds")).error?.code, -32602);
    assert.deepEqual(a.messagesOf(READ_DIRECTORY), []);
    const { result } = await ask(READ_DIRECTORY, "skill://own");
    assert.equal(result?.["resultType"], "complete");
  });
});

describe("a change of resources", () => {
  it("makes skills be listed again, and is told to clients that listen for resources", async () => {
    const a = skillServer({ listed: [REFUNDS] });
    const { client, listUris } = await begin({ a });
    client.send(modernRequest("l", LISTEN, { notifications: { resourcesListChanged: true } }));
    await client.find(isOf("notifications/subscriptions/acknowledged"));
    Object.assign(a.handlers, answersOf([], [entryOf("skill://new")]));
    const CHANGED = "notifications/resources/list_changed";
    a.notifySubscription(a.listenRequests[0]?.id, CHANGED);
    await client.find(isOf(CHANGED));
    assert.deepEqual(await listUris(), ["skill://new/SKILL.md"]);
  });
});

describe("a skill that rules of the manifest hide", () => {
  const SECRET = entryOf("skill://acme/secret", "x.md");
  const resources = [SECRET, REFUNDS].map(({ uri, frontmatter: { name } }) => ({ uri, name }));
  for (const skills of [{ deny: ["secret"] }, { allow: ["ref*"] }, { deny: ["skill://acme/*"] }]) {
    it(`by ${JSON.stringify(skills)} is in no list, and neither it nor its files are got or read`, async () => {
      const a = skillServer({ listed: [SECRET, REFUNDS], resources });
      const { client, listUris, ask } = setUp({ a }, { skills });
      assert.deepEqual(await listUris(), [REFUNDS.uri]);
      const { result } = await sendModernRequest(client, "resources/list");
      assert.deepEqual(result?.["resources"], [resources[1]]);
      for (const [method, uri] of [
        [GET, SECRET.uri],
        [GET, `toolmux://a/${SECRET.uri}`],
        [READ, SECRET.uri],
        [READ, `toolmux://a/${SECRET.uri}`],
        [READ, "skill://acme/secret/x.md"],
      ] as const)
        assert.equal((await ask(method, uri)).error?.code, -32602);
      assert.deepEqual([...a.messagesOf(GET), ...a.messagesOf(READ)], []);
    });
  }

  it("is not got where the server does not list it, either", async () => {
    const a = skillServer({ listed: [REFUNDS], unlisted: [SECRET] });
    const { ask } = await begin({ a }, { skills: { deny: ["secret"] } });
    assert.equal((await ask(GET, SECRET.uri)).error?.code, -32602);
    assert.deepEqual(a.messagesOf(GET), []);
  });

  it("stays readable as part of an enclosing skill that is shown", async () => {
    const a = skillServer({ listed: [REFUNDS, entryOf("skill://refunds/inner")] });
    const { listUris, ask } = setUp({ a }, { skills: { deny: ["inner"] } });
    assert.deepEqual(await listUris(), [REFUNDS.uri]);
    assert.ok((await ask(READ, "skill://refunds/inner/SKILL.md")).result);
  });
});
