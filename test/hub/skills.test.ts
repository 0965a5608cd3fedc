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
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { modernRequest, sendModernRequest } from "../fixtures/modern-requests.ts";
import { DISCOVER_RESULT, ModernScriptedServer } from "../fixtures/modern-server.ts";

const SKILLS = "io.modelcontextprotocol/skills";

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
function skillServer({
  listed = [],
  unlisted = [],
  settings = {},
  resources,
}: Settings): ScriptedServer {
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

function answersOf(
  served: readonly Entry[],
  listed: readonly object[],
): ScriptedServer["handlers"] {
  const invalid = '"error":{"code":-32602,"message":"no"}';
  const own = (message: Json): string => String(message.params?.["uri"]);
  return {
    "skills/list": () =>
      `"result":${JSON.stringify({ resultType: "complete", skills: listed, ttlMs: 5000, cacheScope: "public" })}`,
    "skills/get": (message) => {
      const skill = served.find(({ uri }) => uri === own(message));
      return skill === undefined
        ? invalid
        : `"result":${JSON.stringify({ resultType: "complete", skill, ttlMs: 7000, cacheScope: "public" })}`;
    },
    "resources/read": (message) => {
      const uri = own(message);
      if (!uri.startsWith("skill://")) return invalid;
      return `"result":${JSON.stringify({ resultType: "complete", contents: [{ uri, text: textOf(uri) }], ttlMs: 1, cacheScope: "private" })}`;
    },
    "resources/directory/read": (message) => {
      const uri = own(message);
      const children = [{ uri: `${uri}/SKILL.md`, name: "SKILL.md" }];
      return `"result":${JSON.stringify({ resultType: "complete", resources: children })}`;
    },
  };
}

async function list(client: Peer): Promise<readonly Entry[]> {
  const { result } = await sendModernRequest(client, "skills/list");
  return (result?.["skills"] ?? []) as Entry[];
}

async function listUris(client: Peer): Promise<readonly string[]> {
  return (await list(client)).map(({ uri }) => uri);
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
    const { client } = setUpHub(
      { a: new ModernScriptedServer("t") },
      { servers: { a: { era: "modern" } } },
    );
    assert.deepEqual(await list(client), []);
    assert.equal(await declared(client), undefined);
    const { error } = await sendModernRequest(client, "skills/get", { uri: REFUNDS.uri });
    assert.equal(error?.code, -32602);
  });

  it("is declared if one server declares it, and directoryRead if one of them does", async () => {
    for (const [settings, expected] of [
      [{}, {}],
      [{ directoryRead: true }, { directoryRead: true }],
    ] as const) {
      const { client } = setUpHub(
        { a: new ModernScriptedServer("t"), b: skillServer({ settings }), c: skillServer({}) },
        { servers: { a: { era: "modern" }, b: { era: "modern" }, c: { era: "modern" } } },
      );
      await list(client);
      assert.deepEqual(await declared(client), expected);
    }
  });

  it("is not declared to clients of the legacy era, which read the files as resources", async () => {
    const resources = [{ uri: REFUNDS.uri, name: "refunds" }];
    const { client } = setUpHub(
      { a: skillServer({ listed: [REFUNDS], resources }) },
      { servers: { a: { era: "modern" } } },
    );
    await initialize(client);
    const { result: listed } = await sendRequest(client, "resources/list");
    assert.deepEqual(listed?.["resources"], resources);
    const init = await client.find(isResponseTo("init"));
    assert.ok(!JSON.stringify(init).includes(SKILLS));
    assert.equal((await sendRequest(client, "skills/list")).error?.code, -32601);
    const { result } = await sendRequest(client, "resources/read", { uri: REFUNDS.uri });
    assert.deepEqual(result?.["contents"], [{ uri: REFUNDS.uri, text: textOf(REFUNDS.uri) }]);
  });
});

describe("the list of skills", () => {
  it("is that of all servers in one order, each entry as its server wrote it, with hints and a result type", async () => {
    const servers = { a: { era: "modern" }, b: { era: "modern" } } as const;
    const z = entryOf("skill://z");
    const dynamic = { ...entryOf("skill://acme/daily"), resources: "dynamic" as const };
    const { client } = setUpHub(
      { a: skillServer({ listed: [z] }), b: skillServer({ listed: [REFUNDS, dynamic] }) },
      { servers },
    );
    const { result } = await sendModernRequest(client, "skills/list");
    assert.deepEqual(result?.["skills"], [dynamic, REFUNDS, z]);
    assert.equal(result?.["resultType"], "complete");
    assert.equal(typeof result?.["ttlMs"], "number");
    assert.match(String(result?.["cacheScope"]), /^(public|private)$/);
  });

  it("comes in pages that hold every one of 2,500 skills once, none of them split", async () => {
    const listed = Array.from({ length: 2500 }, (_, i) =>
      entryOf(`skill://s${String(i).padStart(5, "0")}`, "a.md"),
    );
    const { client } = setUpHub(
      {
        a: skillServer({ listed: listed.slice(0, 1200) }),
        b: skillServer({ listed: listed.slice(1200) }),
      },
      { servers: { a: { era: "modern" }, b: { era: "modern" } } },
    );
    const found: unknown[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const { result } = await sendModernRequest(
        client,
        "skills/list",
        cursor === undefined ? {} : { cursor },
      );
      found.push(...(result?.["skills"] as unknown[]));
      cursor = result?.["nextCursor"] as string | undefined;
      pages++;
    } while (cursor !== undefined);
    assert.equal(pages, 3);
    assert.deepEqual(found, listed);
  });

  it("is without the skills of a server that fails to list them, which costs it nothing else", async () => {
    const broken = skillServer({});
    broken.handlers = {
      ...broken.handlers,
      "skills/list": () => '"error":{"code":-32603,"message":"no"}',
    };
    const { client } = setUpHub(
      { a: broken, b: skillServer({ listed: [REFUNDS] }) },
      { servers: { a: { era: "modern" }, b: { era: "modern" } } },
    );
    assert.deepEqual(await listUris(client), [REFUNDS.uri]);
    const { result } = await sendModernRequest(client, "tools/list");
    assert.equal((result?.["tools"] as unknown[]).length, 2);
  });

  it("is without entries that are none of a skill, which strict clients would refuse the whole list for", async () => {
    const { resources: _, ...none } = REFUNDS;
    const { client } = setUpHub(
      {
        a: skillServer({
          listed: [
            none,
            { ...REFUNDS, uri: "skill://odd/SKILL.md", resources: "x" },
            entryOf("skill://ok"),
          ],
        }),
      },
      { servers: { a: { era: "modern" } } },
    );
    assert.deepEqual(await listUris(client), ["skill://ok/SKILL.md"]);
  });

  it("is that of a server of the legacy era, too, which may be asked for its entries", async () => {
    const script = new ScriptedServer("t");
    script.listings = { resources: [] };
    script.handlers = answersOf([REFUNDS], [REFUNDS]);
    script.onInitialize = () =>
      `"result":${JSON.stringify({
        protocolVersion: "2025-11-25",
        capabilities: { tools: {}, resources: {}, extensions: { [SKILLS]: {} } },
        serverInfo: { name: "s", version: "1" },
      })}`;
    const { client } = setUpHub({ a: script });
    assert.deepEqual(await list(client), [REFUNDS]);
    const { result } = await sendModernRequest(client, "skills/get", { uri: REFUNDS.uri });
    assert.deepEqual(result?.["skill"], REFUNDS);
    assert.deepEqual(await declared(client), {});
  });
});

describe("skills/get", () => {
  it("gives the entry as the server wrote it, with the hints of the server", async () => {
    const { client } = setUpHub(
      { a: skillServer({ listed: [REFUNDS] }) },
      { servers: { a: { era: "modern" } } },
    );
    await list(client);
    const { result } = await sendModernRequest(client, "skills/get", { uri: REFUNDS.uri });
    assert.deepEqual(result?.["skill"], REFUNDS);
    assert.deepEqual(
      [result?.["resultType"], result?.["ttlMs"], result?.["cacheScope"]],
      ["complete", 7000, "public"],
    );
  });

  it("is told for how long its answer holds also where a server of the modern era leaves that out", async () => {
    const a = skillServer({ listed: [REFUNDS] });
    const result = JSON.stringify({ resultType: "complete", skill: REFUNDS });
    a.handlers = { ...a.handlers, "skills/get": () => `"result":${result}` };
    const { client } = setUpHub({ a }, { servers: { a: { era: "modern" } } });
    await list(client);
    const answer = await sendModernRequest(client, "skills/get", { uri: REFUNDS.uri });
    assert.deepEqual(answer.result?.["skill"], REFUNDS);
    assert.equal(answer.result?.["ttlMs"], 0);
    assert.equal(answer.result?.["cacheScope"], "private");
  });

  it("gets a skill that no list has, and answers -32602 for what nobody serves", async () => {
    const secret = entryOf("skill://secret");
    const { client } = setUpHub(
      { a: skillServer({ listed: [REFUNDS], unlisted: [secret] }) },
      { servers: { a: { era: "modern" } } },
    );
    await list(client);
    const { result } = await sendModernRequest(client, "skills/get", { uri: secret.uri });
    assert.deepEqual(result?.["skill"], secret);
    const none = await sendModernRequest(client, "skills/get", { uri: "skill://none/SKILL.md" });
    assert.equal(none.error?.code, -32602);
  });

  it("of a skill that no list has names its server where several have skills, and all of the entry is under that URI", async () => {
    const secret = entryOf("skill://secret", "x.md");
    const [a, b] = [skillServer({ listed: [REFUNDS] }), skillServer({ unlisted: [secret] })];
    const { client } = setUpHub(
      { a, b },
      { servers: { a: { era: "modern" }, b: { era: "modern" } } },
    );
    await list(client);
    const { error } = await sendModernRequest(client, "skills/get", { uri: secret.uri });
    assert.equal(error?.code, -32602);
    assert.ok(error.message.includes("toolmux://b/skill://secret/SKILL.md"));
    const uri = `toolmux://b/${secret.uri}`;
    const { result } = await sendModernRequest(client, "skills/get", { uri });
    const skill = result?.["skill"] as Entry;
    assert.equal(skill.uri, uri);
    assert.ok(Array.isArray(skill.resources));
    for (const file of skill.resources) {
      const read = await sendModernRequest(client, "resources/read", { uri: file.uri });
      const [content] = read.result?.["contents"] as { uri: string; text: string }[];
      assert.equal(content?.uri, file.uri);
      const digest = createHash("sha256").update(content.text).digest("hex");
      assert.equal(`sha256:${digest}`, file.digest);
    }
  });
});

function setTwo(settings: object = { directoryRead: true }) {
  const a = skillServer({ listed: [REFUNDS], settings });
  const b = skillServer({
    listed: [REFUNDS, entryOf("skill://refunds/inner"), entryOf("skill://own")],
    settings,
  });
  const servers = { a: { era: "modern" }, b: { era: "modern" } } as const;
  return { a, b, ...setUpHub({ a, b }, { servers }) };
}

describe("skills of the same root at two servers", () => {
  it("are both listed, the later server's whole root under URIs that name it and end as the skill is named", async () => {
    const { client } = setTwo();
    const all = await list(client);
    assert.deepEqual(
      all.map(({ uri }) => uri),
      [
        "skill://own/SKILL.md",
        "skill://refunds/SKILL.md",
        `${OTHER}/SKILL.md`,
        `${OTHER}/inner/SKILL.md`,
      ],
    );
    assert.deepEqual(all[2], {
      ...REFUNDS,
      uri: `${OTHER}/SKILL.md`,
      resources: (REFUNDS.resources as { uri: string }[]).map((file) => ({
        ...file,
        uri: `toolmux://b/${file.uri}`,
      })),
    });
  });

  it("are got, read and looked into at their own servers only, whose answers speak of the same URIs", async () => {
    const { client, a, b } = setTwo();
    await list(client);
    for (const method of ["skills/get", "resources/read", "resources/directory/read"]) {
      const end = method.endsWith("directory/read") ? "" : "/SKILL.md";
      const [first, second] = await Promise.all([
        sendModernRequest(client, method, { uri: `skill://refunds${end}` }),
        sendModernRequest(client, method, { uri: `${OTHER}${end}` }),
      ]);
      assert.deepEqual(uriOf(a.messagesOf(method)), [`skill://refunds${end}`]);
      assert.deepEqual(uriOf(b.messagesOf(method)), [`skill://refunds${end}`]);
      assert.ok(JSON.stringify(first.result).includes('"skill://refunds/SKILL.md"'));
      assert.ok(!JSON.stringify(first.result).includes("toolmux://"));
      assert.ok(JSON.stringify(second.result).includes(`"${OTHER}/SKILL.md"`));
      assert.ok(!JSON.stringify(second.result).includes('"skill://refunds/SKILL.md"'));
    }
  });

  it("are separate for files that no list names, too", async () => {
    const { client, a, b } = setTwo();
    await list(client);
    const { result } = await sendModernRequest(client, "resources/read", {
      uri: `${OTHER}/deep/x.md`,
    });
    assert.deepEqual(result?.["contents"], [
      { uri: `${OTHER}/deep/x.md`, text: textOf("skill://refunds/deep/x.md") },
    ]);
    await sendModernRequest(client, "resources/read", { uri: "skill://refunds/deep/x.md" });
    assert.deepEqual(uriOf(a.messagesOf("resources/read")), ["skill://refunds/deep/x.md"]);
    assert.deepEqual(uriOf(b.messagesOf("resources/read")), ["skill://refunds/deep/x.md"]);
  });

  it("are what links in results lead to, under the URIs that clients know", async () => {
    const { client, b } = setTwo();
    b.onCall = () =>
      `"result":{"resultType":"complete","content":[{"type":"resource_link","name":"n","uri":"skill://refunds/ref/a.md"}]}`;
    await list(client);
    const { result } = await sendModernRequest(client, "tools/call", {
      name: "b__t",
      arguments: {},
    });
    assert.deepEqual(result?.["content"], [
      { type: "resource_link", name: "n", uri: `${OTHER}/ref/a.md` },
    ]);
  });

  it("are subscribed to at their own servers, whose updates come under the URIs that clients know", async () => {
    const { client, a, b } = setTwo();
    await list(client);
    const uri = `${OTHER}/SKILL.md`;
    client.send(
      modernRequest("sub", "subscriptions/listen", {
        notifications: { resourceSubscriptions: [uri] },
      }),
    );
    const isWatch = ({ method, params }: Json): boolean =>
      method === "subscriptions/listen" &&
      JSON.stringify(params?.["notifications"]).includes("skill://refunds/SKILL.md");
    const watch = await b.newestPeer?.find(isWatch);
    (b as ModernScriptedServer).notifySubscription(watch?.id, "notifications/resources/updated", {
      uri: "skill://refunds/SKILL.md",
    });
    const { params } = await client.find(
      ({ method }) => method === "notifications/resources/updated",
    );
    assert.equal(params?.["uri"], uri);
    assert.ok(!(a as ModernScriptedServer).listenRequests.some(isWatch));
  });

  it("are renamed also where only a nested one is the same", async () => {
    const a = skillServer({ listed: [entryOf("skill://acme/refunds")] });
    const b = skillServer({ listed: [entryOf("skill://acme"), entryOf("skill://acme/refunds")] });
    const { client } = setUpHub(
      { a, b },
      { servers: { a: { era: "modern" }, b: { era: "modern" } } },
    );
    assert.deepEqual(await listUris(client), [
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
    const { client } = setUpHub(
      { a, b },
      { servers: { a: { era: "modern" }, b: { era: "modern" } } },
    );
    await list(client);
    const { error } = await sendModernRequest(client, "resources/directory/read", {
      uri: "skill://refunds",
    });
    assert.equal(error?.code, -32602);
    assert.deepEqual(a.messagesOf("resources/directory/read"), []);
    const { result } = await sendModernRequest(client, "resources/directory/read", {
      uri: "skill://own",
    });
    assert.equal(result?.["resultType"], "complete");
  });
});

describe("a change of resources", () => {
  it("makes skills be listed again, and is told to clients that listen for resources", async () => {
    const a = skillServer({ listed: [REFUNDS] });
    const { client } = setUpHub({ a }, { servers: { a: { era: "modern" } } });
    await list(client);
    client.send(
      modernRequest("l", "subscriptions/listen", { notifications: { resourcesListChanged: true } }),
    );
    await client.find(({ method }) => method === "notifications/subscriptions/acknowledged");
    a.handlers = { ...a.handlers, ...answersOf([], [entryOf("skill://new")]) };
    const script = a as ModernScriptedServer;
    script.notifySubscription(script.listenRequests[0]?.id, "notifications/resources/list_changed");
    await client.find(({ method }) => method === "notifications/resources/list_changed");
    assert.deepEqual(await listUris(client), ["skill://new/SKILL.md"]);
  });
});

describe("a skill that rules of the manifest hide", () => {
  const SECRET = entryOf("skill://acme/secret", "x.md");
  const resources = [
    { uri: SECRET.uri, name: "secret" },
    { uri: REFUNDS.uri, name: "refunds" },
  ];
  for (const skills of [{ deny: ["secret"] }, { allow: ["ref*"] }, { deny: ["skill://acme/*"] }]) {
    it(`by ${JSON.stringify(skills)} is in no list, and neither it nor its files are got or read`, async () => {
      const a = skillServer({ listed: [SECRET, REFUNDS], resources });
      const { client } = setUpHub({ a }, { servers: { a: { era: "modern", skills } } });
      assert.deepEqual(await listUris(client), [REFUNDS.uri]);
      const { result } = await sendModernRequest(client, "resources/list");
      assert.deepEqual(result?.["resources"], [resources[1]]);
      for (const uri of [SECRET.uri, `toolmux://a/${SECRET.uri}`]) {
        assert.equal((await sendModernRequest(client, "skills/get", { uri })).error?.code, -32602);
        assert.equal(
          (await sendModernRequest(client, "resources/read", { uri })).error?.code,
          -32602,
        );
      }
      const file = "skill://acme/secret/x.md";
      assert.equal(
        (await sendModernRequest(client, "resources/read", { uri: file })).error?.code,
        -32602,
      );
      assert.deepEqual([...a.messagesOf("skills/get"), ...a.messagesOf("resources/read")], []);
    });
  }

  it("is not got where the server does not list it, either", async () => {
    const a = skillServer({ listed: [REFUNDS], unlisted: [SECRET] });
    const { client } = setUpHub(
      { a },
      { servers: { a: { era: "modern", skills: { deny: ["secret"] } } } },
    );
    await list(client);
    const { error } = await sendModernRequest(client, "skills/get", { uri: SECRET.uri });
    assert.equal(error?.code, -32602);
    assert.deepEqual(a.messagesOf("skills/get"), []);
  });

  it("stays readable as part of an enclosing skill that is shown", async () => {
    const a = skillServer({ listed: [REFUNDS, entryOf("skill://refunds/inner")] });
    const { client } = setUpHub(
      { a },
      { servers: { a: { era: "modern", skills: { deny: ["inner"] } } } },
    );
    assert.deepEqual(await listUris(client), [REFUNDS.uri]);
    const { result } = await sendModernRequest(client, "resources/read", {
      uri: "skill://refunds/inner/SKILL.md",
    });
    assert.ok(result);
  });
});
