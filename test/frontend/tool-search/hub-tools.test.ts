import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import type { Plugin } from "../../../src/plugin/plugin.ts";
import { HttpTestClient, setUpHttp } from "../../fixtures/http-client.ts";
import {
  callRequest,
  callTool,
  type HubSetupOptions,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  manifestFor,
  modeOf,
  type Peer,
  ScriptedServer,
  sendRequest,
  setUpHub,
  setUpHubWithClock,
} from "../../fixtures/memory-hub.ts";
import { modernRequest, sendModernRequest } from "../../fixtures/modern-requests.ts";
import { setUpPluginHub } from "../../fixtures/plugin-hub.ts";
import { turn } from "../../fixtures/virtual-clock.ts";

const REPO = {
  type: "object",
  properties: { repo: { type: "string" }, state: { enum: ["open", "closed"] } },
  required: ["repo"],
};

function toolOf(name: string, description: string, more: object = {}): string {
  return JSON.stringify({ name, description, inputSchema: { type: "object" }, ...more });
}

function gitHost(): ScriptedServer {
  const server = new ScriptedServer();
  server.instructions = "Repositories, issues and pull requests. Ask before you merge.";
  server.tools = [
    toolOf("list_issues", "Lists the issues of a repository. Newest first.", {
      inputSchema: REPO,
      annotations: { readOnlyHint: true },
    }),
    toolOf("merge_pull_request", "Merges a pull request.", { inputSchema: REPO }),
  ];
  return server;
}

function fileServer(): ScriptedServer {
  const server = new ScriptedServer();
  server.tools = [
    toolOf("read_file", "Reads a file.", { annotations: { readOnlyHint: true } }),
    toolOf("write_file", "Writes a file."),
  ];
  return server;
}

/** A hub over two servers, with a client on stdio that has listed its tools. */
async function setUp(
  { hub = { expose: "search" }, ...options }: HubSetupOptions = {},
  more: Record<string, ScriptedServer> = {},
) {
  const servers = { github: gitHost(), files: fileServer(), ...more };
  const setup = setUpHub(servers, { hub, ...options });
  const client = setup.connect("stdio");
  await initialize(client);
  await listToolNames(client);
  return { ...setup, ...servers, client };
}

interface Found {
  readonly tools: { name: string; server: string; description: string; signature?: string }[];
  readonly matches: number;
  readonly available: number;
  readonly waiting?: string[];
  readonly hint?: string;
}

async function search(client: Peer, args: object): Promise<Found> {
  const { result, error } = await callTool(client, "search_tools", args);
  assert.equal(error, undefined);
  const [{ text }] = result?.["content"] as [{ text: string }];
  assert.deepEqual(JSON.parse(text), result?.["structuredContent"]);
  return result?.["structuredContent"] as Found;
}

/** Waits for something that no message to a client tells. */
async function untilTrue(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !holds(); i++) await turn();
  assert.ok(holds());
}

function errorTextOf({ result }: Json): string {
  assert.equal(result?.["isError"], true);
  return (result["content"] as { text: string }[]).map(({ text }) => text).join("\n");
}

describe("search_tools", () => {
  it("finds tools by what they do, with their signatures, and says which only read", async () => {
    const { client, hub } = await setUp();
    const found = await search(client, { query: "issues of a repository" });
    assert.deepEqual(found.tools[0], {
      name: "github__list_issues",
      server: "github",
      description: "Lists the issues of a repository.",
      signature: '{ repo: string, state?: "open"|"closed" }',
      readOnly: true,
    });
    assert.equal(found.available, 4);
    await hub.close();
  });

  it("shows as much as it is asked for, of the server and as many as it is asked for", async () => {
    const { client, hub } = await setUp();
    const brief = await search(client, { query: "file", detail: "brief", limit: 1 });
    assert.equal(brief.tools.length, 1);
    assert.equal(brief.matches, 2);
    assert.equal("signature" in (brief.tools[0] ?? {}), false);
    const full = await search(client, { query: "list issues", detail: "full", server: "github" });
    assert.deepEqual((full.tools[0] as unknown as { inputSchema: object }).inputSchema, REPO);
    assert.equal(full.available, 2);
    const unknown = await callTool(client, "search_tools", { query: "x", server: "gitub" });
    assert.match(errorTextOf(unknown), /"github"/);
    const none = await search(client, { query: "qqqqq" });
    assert.deepEqual([none.tools, none.matches], [[], 0]);
    assert.match(none.hint ?? "", /github, files/);
    await hub.close();
  });

  it("refuses arguments of a wrong type, and names them", async () => {
    const { client, hub } = await setUp();
    const rows: readonly (readonly [object, RegExp])[] = [
      [{}, /query/],
      [{ query: "" }, /query/],
      [{ query: " " }, /query/],
      [{ query: "x".repeat(501) }, /query/],
      [{ query: 7 }, /query/],
      [{ query: "x", limit: 0 }, /limit/],
      [{ query: "x", limit: 51 }, /limit/],
      [{ query: "x", limit: 1.5 }, /limit/],
      [{ query: "x", limit: "2" }, /limit/],
      [{ query: "x", server: 1 }, /server/],
      [{ query: "x", detail: "all" }, /detail/],
    ];
    for (const [args, member] of rows) {
      const { error } = await callTool(client, "search_tools", args);
      assert.equal(error?.code, -32602, JSON.stringify(args));
      assert.match(error.message, member);
    }
    for (const [tool, args, member] of [
      ["describe_tools", {}, /names/],
      ["describe_tools", { names: [] }, /names/],
      ["describe_tools", { names: "x" }, /names/],
      ["describe_tools", { names: Array.from({ length: 21 }, String) }, /names/],
      ["call_tool", {}, /name/],
      ["call_tool", { name: 1 }, /name/],
    ] as const) {
      const { error } = await callTool(client, tool, args);
      assert.equal(error?.code, -32602, JSON.stringify(args));
      assert.match(error.message, member);
    }
    assert.equal(
      (await sendRequest(client, "tools/call", { name: "call_tool" })).error?.code,
      -32602,
    );
    await hub.close();
  });

  it("answers in at most 16 KiB, and leaves out the signatures of the last hits first", async () => {
    const large = new ScriptedServer();
    const properties = Object.fromEntries(
      Array.from({ length: 100 }, (_, at) => [`argument_${at}`, { type: "string" }]),
    );
    large.tools = Array.from({ length: 50 }, (_, at) =>
      toolOf(`tool_${at}`, `Paints. ${"x".repeat(100)}`, {
        inputSchema: { type: "object", properties },
      }),
    );
    const { client, hub } = await setUp({}, { large });
    const { result } = await callTool(client, "search_tools", {
      query: "paint",
      limit: 50,
      detail: "full",
    });
    const found = result?.["structuredContent"] as Found & { readonly cut?: boolean };
    const [{ text }] = result?.["content"] as [{ text: string }];
    assert.ok(text.length <= 16 * 1024, String(text.length));
    assert.equal(found.cut, true);
    assert.equal(found.tools.length, 50);
    assert.ok("inputSchema" in (found.tools[0] ?? {}));
    assert.equal("inputSchema" in (found.tools.at(-1) ?? {}), false);
    await hub.close();
  });

  it("names the servers that have never listed their tools", async () => {
    const slow = new ScriptedServer("x");
    slow.onInitialize = () => undefined;
    const setup = setUpHubWithClock({ files: fileServer(), slow }, { hub: { expose: "search" } });
    const client = setup.connect("stdio");
    await initialize(client);
    client.send({
      jsonrpc: "2.0",
      id: "s",
      method: "tools/call",
      params: { name: "search_tools", arguments: { query: "read" } },
    });
    for (let i = 0; i < 20; i++) await turn();
    await setup.clock.advanceAsync(5000);
    const { result } = await client.find(isResponseTo("s"));
    const found = result?.["structuredContent"] as Found;
    assert.deepEqual([found.waiting, found.tools[0]?.name], [["slow"], "files__read_file"]);
    await setup.hub.close();
  });

  it("answers from what is indexed after 2 s, and says so", async () => {
    // Loaded before, so that the search begins in the next turn.
    await import("../../../src/catalog/search/answers.ts");
    await import("../../../src/catalog/search/tool-index.ts");
    const many = new ScriptedServer();
    many.tools = Array.from({ length: 3000 }, (_, at) =>
      toolOf(`paint_${at}`, `Paints the ${at}th wall of the house in any colour that one likes.`),
    );
    const { connect, hub, clock } = setUpHubWithClock({ many }, { hub: { expose: "search" } });
    const client = connect("stdio");
    await initialize(client);
    await listToolNames(client);
    const ask = async (): Promise<Found & { readonly indexing?: boolean }> => {
      const { result } = await callTool(client, "search_tools", { query: "paint a wall" });
      return result?.["structuredContent"] as Found;
    };
    const first = ask();
    for (let i = 0; i < 4; i++) await turn();
    await clock.advanceAsync(2000);
    assert.equal((await first).indexing, true);
    const second = await ask();
    assert.deepEqual([second.indexing, second.matches], [undefined, 3000]);
    await hub.close();
  });

  it("answers modern clients in their form", async () => {
    const { client, hub } = await setUp();
    const { result } = await sendModernRequest(client, "tools/call", {
      name: "search_tools",
      arguments: { query: "read a file" },
    });
    assert.equal(result?.["resultType"], "complete");
    assert.equal((result["structuredContent"] as Found).tools[0]?.name, "files__read_file");
    const { error } = await sendModernRequest(client, "tools/call", {
      name: "search_tools",
      arguments: {},
    });
    assert.equal(error?.code, -32602);
    await hub.close();
  });

  it("takes queries of 500 characters, in whatever number of UTF-16 units", async () => {
    const { client, hub } = await setUp();
    for (const character of ["x", "語", "😀"]) {
      assert.equal((await search(client, { query: character.repeat(500) })).matches, 0);
      const { error } = await callTool(client, "search_tools", { query: character.repeat(501) });
      assert.equal(error?.code, -32602, character);
    }
    await hub.close();
  });

  it("lets the hub do other work between searches that come at once", async () => {
    const many = new ScriptedServer();
    many.tools = Array.from({ length: 2000 }, (_, at) =>
      toolOf(`paint_${at}`, `Paints wall ${at}.`),
    );
    const { hub } = await setUp({}, { many });
    await hub.findTools("paint a wall", {});
    let turns = 0;
    let isOver = false;
    const count = async (): Promise<void> => {
      for (; !isOver; turns++) await turn();
    };
    const counting = count();
    await Promise.all(
      Array.from({ length: 300 }, (_, at) => hub.findTools(`paint the wall ${at}`, {})),
    );
    isOver = true;
    await counting;
    assert.ok(turns > 10, `${turns} turns`);
    await hub.close();
  });

  it("answers a thousand searches at once", async () => {
    const { client, hub } = await setUp();
    const all = await Promise.all(
      Array.from({ length: 1000 }, () => search(client, { query: "write file" })),
    );
    for (const { tools } of all) assert.equal(tools[0]?.name, "files__write_file");
    await hub.close();
  });
});

describe("describe_tools", () => {
  it("has definitions byte for byte as in the whole list, and the instructions of their servers", async () => {
    const odd = new ScriptedServer();
    odd.tools = [
      '{"name":"odd","x":1.0,"big":1234567890123456789,"inputSchema":{"type":"object"},"z":{"b":1,"a":"\\u00e9"},"execution":{"taskSupport":"optional"}}',
    ];
    const { client, connect, hub } = await setUp({}, { odd });
    const plain = connect("memory");
    await initialize(plain);
    const names = ["odd__odd", "github__list_issues"];
    for (const era of ["legacy", "modern"]) {
      const request = (id: string, method: string, params: Record<string, unknown>): object =>
        era === "legacy"
          ? { jsonrpc: "2.0", id, method, params }
          : modernRequest(id, method, params);
      plain.send(request(`all ${era}`, "tools/list", {}));
      const all = await plain.findText((text) => text.includes(`"id":"all ${era}"`));
      client.send(
        request(`d ${era}`, "tools/call", { name: "describe_tools", arguments: { names } }),
      );
      const text = await client.findText((each) => each.includes(`"id":"d ${era}"`));
      const { result } = JSON.parse(text) as Json;
      const found = result?.["structuredContent"] as {
        tools: object[];
        servers: Record<string, { instructions: string }>;
        notFound: object[];
      };
      const definition = /\{"name":"odd__odd".*?"a":"\\u00e9"\}(?:,"execution":\{[^}]*\})?\}/.exec(
        all,
      )?.[0];
      assert.ok(definition);
      assert.ok(text.includes(`"structuredContent":{"tools":[${definition},`), text);
      assert.deepEqual(Object.keys(found.servers), ["github"]);
      assert.match(found.servers["github"]?.instructions ?? "", /^Repositories, issues/);
      assert.deepEqual(found.notFound, []);
    }
    await hub.close();
  });

  it("says which names it does not know, and which are similar", async () => {
    const { client, hub } = await setUp();
    const { result } = await callTool(client, "describe_tools", {
      names: ["github__list_isues", "nothing like it"],
    });
    const { tools, notFound } = result?.["structuredContent"] as {
      tools: object[];
      notFound: { name: string; similar: string[] }[];
    };
    assert.deepEqual(tools, []);
    assert.equal(notFound[0]?.similar[0], "github__list_issues");
    assert.deepEqual(notFound[1]?.similar, []);
    await hub.close();
  });

  it("answers in at most 64 KiB for names of any length", async () => {
    const { client, hub } = await setUp();
    const names = Array.from({ length: 20 }, (_, at) => `${at}${"x".repeat(40_000)}`);
    const { result } = await callTool(client, "describe_tools", { names });
    const described = result?.["structuredContent"] as { notFound: { name: string }[] };
    assert.equal(described.notFound.length, 20);
    assert.ok(JSON.stringify(described).length <= 64 * 1024);
    await hub.close();
  });

  it("shows the first definition whatever its size is, and says which it has left out", async () => {
    const large = new ScriptedServer();
    large.tools = ["a", "b"].map((name) => toolOf(name, "x".repeat(100_000)));
    const { client, hub } = await setUp({}, { large });
    const { result } = await callTool(client, "describe_tools", {
      names: ["large__a", "large__b"],
    });
    const { tools, omitted } = result?.["structuredContent"] as {
      tools: { name: string }[];
      omitted: string[];
    };
    assert.deepEqual([tools.map(({ name }) => name), omitted], [["large__a"], ["large__b"]]);
    await hub.close();
  });
});

describe("call_tool", () => {
  /** Sends the same call directly and by `call_tool`; ids and tokens are equal in length, so that bytes can be compared. */
  async function bothOf(
    client: Peer,
    era: "legacy" | "modern",
    name: string,
    args: string,
    more = "",
  ): Promise<readonly [string, string]> {
    const meta = JSON.stringify(
      (modernRequest(0, "x") as { params: { _meta: object } }).params._meta,
    );
    const envelope = era === "modern" ? `,"_meta":${meta}` : "";
    const texts: string[] = [];
    for (const [id, params] of [
      ["11", `"name":"${name}","arguments":${args}`],
      ["22", `"name":"call_tool","arguments":{"name":"${name}","arguments":${args}}`],
    ]) {
      client.received.length = 0;
      client.send(
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{${params}${more}${envelope}}}`,
      );
      const text = await client.findText((each) =>
        isResponseTo(Number(id))(JSON.parse(each) as Json),
      );
      texts.push(text.replace(`"id":${id}`, '"id":0'));
    }
    const [direct = "", named = ""] = texts;
    return [direct, named];
  }

  it("has the result of the direct call, byte for byte, in both eras", async () => {
    const { client, github, hub } = await setUp();
    for (const era of ["legacy", "modern"] as const) {
      for (const answer of [
        '"result":{"content":[{"type":"text","text":"\\u00e9 1.0"}],"n":1.0,"big":1234567890123456789}',
        '"result":{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}',
        '"result":{"content":[],"structuredContent":{"b":1,"a":[2.50]}}',
        '"result":{"content":[{"type":"text","text":"It failed."}],"isError":true}',
        '"error":{"code":-32001,"message":"No.","data":{"x":1.0}}',
      ]) {
        github.onCall = () => answer;
        const [direct, named] = await bothOf(client, era, "github__list_issues", '{"repo":"r"}');
        assert.equal(named, direct);
      }
    }
    await hub.close();
  });

  it("passes the arguments on unread, and everything beside them", async () => {
    const { client, github, hub } = await setUp();
    const texts: string[] = [];
    github.onCall = (_, text) => {
      texts.push(text);
      return '"result":{"content":[]}';
    };
    const args =
      '{ "repo" : "r\\u00e9" , "n":1.0,"big":1234567890123456789,"repo2":{"name":"x","arguments":{}} }';
    await bothOf(client, "legacy", "github__list_issues", args, ',"other":{"a":1.0}');
    const [direct = "", named = ""] = texts.map((text) => text.replace(/"id":\d+/, '"id":0'));
    assert.equal(named, direct);
    assert.ok(named.includes(args));
    await hub.close();
  });

  it("forgives the forms in which models write calls", async () => {
    const { client, github, hub } = await setUp();
    github.onCall = ({ params }) =>
      `"result":{"content":[],"called":${JSON.stringify([params?.["name"], params?.["arguments"]])}}`;
    const args = { repo: "r" };
    for (const given of [
      { name: "github__list_issues", arguments: args },
      { name: "github__list_issues", arguments: JSON.stringify(args) },
      { name: "github__list_issues", arguments: '\n{"repo":\r\n"r"}\n' },
      { name: "github__list_issues", arguments: { name: "github__list_issues", arguments: args } },
      { name: "list_issues", arguments: { name: "github:list_issues", arguments: args } },
      {
        name: "github__list_issues",
        arguments: JSON.stringify({ name: "github__list_issues", arguments: args }),
      },
      {
        name: "github__list_issues",
        arguments: { name: "github__list_issues", arguments: JSON.stringify(args) },
      },
      { name: "call_tool", arguments: { name: "github__list_issues", arguments: args } },
      {
        name: "call_read_only_tool",
        arguments: { name: "call_tool", arguments: { name: "list_issues", arguments: args } },
      },
      { arguments: { name: "github__list_issues", arguments: args } },
      { name: "github:list_issues", arguments: args },
      { name: "github.list_issues", arguments: args },
      { name: "github/list_issues", arguments: args },
      { name: "select:github__list_issues", arguments: args },
      { name: "list_issues", arguments: args },
      { name: "GitHub__List_Issues", arguments: args },
      { name: "github-list-issues", arguments: args },
      { name: "githubListIssues", arguments: args },
    ]) {
      const { result } = await callTool(client, "call_tool", given);
      assert.deepEqual(result?.["called"], ["list_issues", args], JSON.stringify(given));
    }
    for (const given of [
      { name: "github__list_issues" },
      { name: "github__list_issues", arguments: null },
      { name: "github__list_issues", arguments: "" },
      { name: "github__list_issues", arguments: {} },
    ]) {
      const { result } = await callTool(client, "call_tool", given);
      assert.deepEqual(result?.["called"], ["list_issues", {}], JSON.stringify(given));
    }
    await hub.close();
  });

  it("takes arguments that look like a call for arguments, if the tool has such ones", async () => {
    const outer = new ScriptedServer();
    const properties = { name: { type: "string" }, arguments: { type: "object" } };
    outer.tools = [toolOf("call_tool", "Calls.", { inputSchema: { type: "object", properties } })];
    const { client, hub } = await setUp({ servers: { outer: { prefix: "" } } }, { outer });
    const args = { name: "call_tool", arguments: { x: 1 } };
    const { result } = await callTool(client, "call_tool", { name: "call_tool", arguments: args });
    // The hub's own tool wins; the server's tool of that name is called by it.
    assert.deepEqual(result?.["echo"], { name: "call_tool", arguments: args });
    await hub.close();
  });

  it("reads a name as it is written first, and calls none if it stands for two tools then", async () => {
    const odd = new ScriptedServer("x", "select:x", "files.read_file");
    const { client, files, hub } = await setUp({}, { odd });
    const call = (name: string) => callTool(client, "call_tool", { name });
    assert.deepEqual((await call("select:x")).result?.["echo"], {
      name: "select:x",
      arguments: {},
    });
    assert.deepEqual((await call("select:odd__x")).result?.["echo"], { name: "x", arguments: {} });
    assert.match(errorTextOf(await call("files.read_file")), /files__read_file/);
    assert.equal(odd.messagesOf("tools/call").length, 2);
    assert.deepEqual(files.messagesOf("tools/call"), []);
    await hub.close();
  });

  it("sends nobody to tools of the hub that the client does not have", async () => {
    const { client, hub } = await setUp({ hub: { expose: "select" } });
    const textFor = async (name: string) =>
      errorTextOf(await callTool(client, "call_tool", { name }));
    assert.match(await textFor("select_tools"), /own name/);
    for (const name of ["describe_tools", "call_read_only_tool"])
      assert.doesNotMatch(await textFor(name), /own name/);
    await hub.close();
  });

  it("does not call a tool whose name is only similar, and says which are", async () => {
    const { client, github, hub } = await setUp();
    const other = await callTool(client, "call_tool", {
      name: "github__list_isues",
      arguments: {},
    });
    assert.match(
      errorTextOf(other),
      /^There is no tool "github__list_isues"\. Similar: "github__list_issues"/,
    );
    for (const name of ["__proto__", "constructor", "toString", "nothing", "", "search_tools"]) {
      errorTextOf(await callTool(client, "call_tool", { name, arguments: {} }));
    }
    assert.deepEqual(github.messagesOf("tools/call"), []);
    await hub.close();
  });

  it("calls tools with the names of members that objects have", async () => {
    const hostile = new ScriptedServer("__proto__", "constructor", "search_tools", "toString");
    const { client, hub } = await setUp({ servers: { hostile: { prefix: "" } } }, { hostile });
    for (const name of ["__proto__", "constructor", "search_tools", "toString"]) {
      const { result } = await callTool(client, "call_tool", { name, arguments: { a: 1 } });
      assert.deepEqual(result?.["echo"], { name, arguments: { a: 1 } });
    }
    await hub.close();
  });

  it("says how the arguments have to be if they are no object, and which tools several servers have", async () => {
    const { client, github, hub } = await setUp({}, { other: fileServer() });
    for (const args of [[], 7, true, "text", '["a"]']) {
      const answer = await callTool(client, "call_tool", {
        name: "github__list_issues",
        arguments: args,
      });
      assert.match(errorTextOf(answer), /\{ repo: string/);
    }
    const flat = await callTool(client, "call_tool", { name: "github__list_issues", repo: "r" });
    assert.match(errorTextOf(flat), /\{ repo: string/);
    const several = errorTextOf(await callTool(client, "call_tool", { name: "read_file" }));
    assert.match(several, /"files__read_file"/);
    assert.match(several, /"other__read_file"/);
    assert.deepEqual(github.messagesOf("tools/call"), []);
    await hub.close();
  });

  it("is seen as a call of the real tool, marked with how it was made", async () => {
    const { client, events, hub } = await setUp();
    await callTool(client, "call_tool", { name: "github:list_issues" });
    await callTool(client, "github__list_issues", {});
    const calls = events.filter(({ kind }) => kind === "callFinished" || kind === "callStarted");
    assert.deepEqual(
      calls.map((event) => ["name" in event && event.name, "via" in event ? event.via : undefined]),
      [
        ["github__list_issues", "call_tool"],
        ["github__list_issues", "call_tool"],
        ["github__list_issues", undefined],
        ["github__list_issues", undefined],
      ],
    );
    assert.deepEqual(
      hub.usage.ended.map(({ tool, via }) => [tool, via]),
      [
        ["list_issues", undefined],
        ["list_issues", "call_tool"],
      ],
    );
    await hub.close();
  });

  it("waits for a server that has not listed its tools yet, as a direct call does", async () => {
    const late = new ScriptedServer("x");
    const setup = setUpHub(
      { late },
      { hub: { expose: "search" }, servers: { late: { lazy: true } } },
    );
    const client = setup.connect("stdio");
    await initialize(client);
    const { result } = await callTool(client, "call_tool", { name: "late__x", arguments: {} });
    assert.deepEqual(result?.["echo"], { name: "x", arguments: {} });
    errorTextOf(await callTool(client, "call_tool", { name: "late__y", arguments: {} }));
    await setup.hub.close();
  });
});

describe("call_tool beside what holds and changes calls", () => {
  it("asks for the approval of the real tool, with the arguments for it", async () => {
    const s = new ScriptedServer("w");
    const manifest = {
      ...manifestFor({ s }, { hub: { expose: "search" } }),
      approval: { approval: "always", timeout: 60_000 } as const,
    };
    const { connect, hub } = setUpHub({ s }, { manifest });
    const client = connect("stdio");
    await initialize(client, { elicitation: { form: {} } });
    await listToolNames(client);
    for (const [decision, calls] of [
      ["deny", 0],
      ["once", 1],
    ] as const) {
      client.received.length = 0;
      const answer = callTool(client, "call_tool", { name: "s:w", arguments: { path: "/x" } });
      const form = await client.find(({ method }) => method === "elicitation/create");
      assert.match(String(form.params?.["message"]), /s__w with:\n\{\n {2}"path": "\/x"\n\}$/);
      const result = { action: "accept", content: { decision } };
      client.send({ jsonrpc: "2.0", id: form.id, result });
      assert.equal((await answer).result?.["isError"] === true, decision === "deny");
      assert.equal(s.messagesOf("tools/call").length, calls);
    }
    await hub.close();
  });

  it("passes plugins as the real tool, which may change its arguments", async () => {
    const seen: unknown[] = [];
    const plugin: Plugin = {
      name: "changes",
      setup: () => ({
        call: (next) => (call) => {
          seen.push([call.tool.name, call.argumentsJson]);
          return next(call.with({ arguments: { ...call.arguments, more: 1 } }));
        },
      }),
    };
    const s = new ScriptedServer("w");
    const { connect, hub } = await setUpPluginHub(
      [{ plugin }],
      { s },
      { hub: { expose: "search" } },
    );
    const client = connect("stdio");
    await initialize(client);
    await listToolNames(client);
    const { result } = await callTool(client, "call_tool", { name: "s__w", arguments: { a: 1 } });
    assert.deepEqual(result?.["echo"], { name: "w", arguments: { a: 1, more: 1 } });
    assert.deepEqual(seen, [["w", '{"a":1}']]);
    await hub.close();
  });

  it("needs no headers for arguments of the real tool, but its own name in Mcp-Name", async () => {
    const s = new ScriptedServer();
    const properties = { region: { type: "string", "x-mcp-header": "Region" } };
    s.tools = [toolOf("w", "Works.", { inputSchema: { type: "object", properties } })];
    const { hub, server, newClient } = setUpHttp({ s }, { hub: { expose: "search" } });
    const client = newClient();
    await (await client.postModern("tools/list")).text();
    const args = { region: "eu" };
    const direct = await client.postModern("tools/call", { name: "s__w", arguments: args });
    assert.equal(direct.status, 400);
    const params = { name: "call_tool", arguments: { name: "s__w", arguments: args } };
    const named = await client.postModern("tools/call", params);
    assert.equal(named.status, 200);
    assert.match(await named.text(), /"arguments":\{"region":"eu"\}/);
    const wrong = await client.postModern("tools/call", params, {
      headers: { "Mcp-Name": "s__w" },
    });
    assert.equal(wrong.status, 400);
    await server.close();
    await hub.close();
  });

  it("ends with the deadline of the real tool, and its server is told", async () => {
    const s = new ScriptedServer("w");
    s.onCall = () => undefined;
    const { connect, hub, clock } = setUpHubWithClock(
      { s },
      { hub: { expose: "search" }, servers: { s: { callTimeout: 1000 } } },
    );
    const client = connect("stdio");
    await initialize(client);
    await listToolNames(client);
    const texts: string[] = [];
    for (const [name, args] of [
      ["s__w", {}],
      ["call_tool", { name: "s__w", arguments: {} }],
    ] as const) {
      const answer = callTool(client, name, args);
      await untilTrue(() => s.messagesOf("tools/call").length > texts.length);
      await clock.advanceAsync(1001);
      texts.push(JSON.stringify((await answer).result));
    }
    assert.equal(texts[1], texts[0]);
    assert.equal(s.messagesOf("notifications/cancelled").length, 2);
    await hub.close();
  });
});

describe("call_read_only_tool", () => {
  it("calls tools that count as read-only, and no others", async () => {
    const { client, files, hub } = await setUp();
    const read = await callTool(client, "call_read_only_tool", { name: "files__read_file" });
    assert.deepEqual(read.result?.["echo"], { name: "read_file", arguments: {} });
    const written = await callTool(client, "call_read_only_tool", { name: "files__write_file" });
    assert.equal(errorTextOf(written), '"files__write_file" may change things: use call_tool.');
    assert.equal(files.messagesOf("tools/call").length, 1);
    await hub.close();
  });

  it("believes the manifest, and the server only as it was first known", async () => {
    const annotations = { write_file: { readOnlyHint: true }, read_file: { readOnlyHint: false } };
    const tools = { allow: undefined, deny: [], rename: {}, timeout: {}, annotations };
    const { client, github, hub } = await setUp({ servers: { files: { tools } } });
    const read = (name: string): Promise<Json> => callTool(client, "call_read_only_tool", { name });
    assert.equal((await read("files__write_file")).result?.["isError"], undefined);
    errorTextOf(await read("files__read_file"));
    // The first word of the tool is known since it was listed; a later word does not count.
    assert.equal((await read("github__list_issues")).result?.["isError"], undefined);
    github.tools[1] = toolOf("merge_pull_request", "Merges.", {
      annotations: { readOnlyHint: true },
    });
    github.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await untilTrue(() => github.messagesOf("tools/list").length > 1);
    errorTextOf(await read("github__merge_pull_request"));
    await hub.close();
  });

  it("knows what tools said first also if approvals are off and none was called by it", async () => {
    const github = gitHost();
    const setup = setUpHubWithClock({ github }, { hub: { expose: "search" } });
    const client = setup.connect("stdio");
    await initialize(client);
    await listToolNames(client);
    const settle = async (): Promise<void> => {
      for (let i = 0; i < 30; i++) await turn();
      await setup.clock.advanceAsync(1500);
      for (let i = 0; i < 30; i++) await turn();
    };
    await settle();
    github.tools[1] = toolOf("merge_pull_request", "Merges.", {
      annotations: { readOnlyHint: true },
    });
    github.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await settle();
    const answer = await callTool(client, "call_read_only_tool", {
      name: "github__merge_pull_request",
    });
    errorTextOf(answer);
    await setup.hub.close();
  });
});

describe("select_tools", () => {
  const select = async (client: Peer, args: object) => {
    const { result, error } = await callTool(client, "select_tools", args);
    assert.equal(error, undefined);
    return result?.["structuredContent"] as {
      selected: string[];
      tools: number;
      notFound: { name: string }[];
    };
  };
  const OWN = ["search_tools", "select_tools", "call_tool"];
  const changes = ({ messages }: Peer): number =>
    messages.filter(({ method }) => method === "notifications/tools/list_changed").length;

  it("appends tools to the list, and tells of the change before it answers", async () => {
    const { client, hub } = await setUp({ hub: { expose: "select" } });
    const first = await select(client, { names: ["files__write_file", "nothing"] });
    assert.deepEqual(first.selected, ["files__write_file"]);
    assert.deepEqual(
      first.notFound.map(({ name }) => name),
      ["nothing"],
    );
    const methods = client.messages.map(({ method, result }) => method ?? (result && "result"));
    assert.deepEqual(methods.slice(-2), ["notifications/tools/list_changed", "result"]);
    assert.deepEqual(await listToolNames(client), [...OWN, "files__write_file"]);
    const second = await select(client, { servers: ["github"] });
    assert.equal(second.tools, 3);
    assert.deepEqual(await listToolNames(client), [
      ...OWN,
      "files__write_file",
      "github__list_issues",
      "github__merge_pull_request",
    ]);
    const found = await select(client, { query: "read a file", limit: 1, replace: true });
    assert.deepEqual([found.selected, found.tools], [["files__read_file"], 1]);
    assert.deepEqual(await listToolNames(client), [...OWN, "files__read_file"]);
    assert.equal(changes(client), 3);
    await select(client, { names: ["files__read_file"] });
    assert.equal(changes(client), 3, "the same selection is no change");
    await hub.close();
  });

  it("tells a session over HTTP of the change on the stream of the call, before the answer", async () => {
    const { hub } = await setUp({ hub: { expose: "select" } });
    const settings = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 * 1024 };
    const client = new HttpTestClient(new HttpServer(hub, settings));
    await client.initialize();
    const response = await client.post(
      callRequest(5, "select_tools", { names: ["files__read_file"] }),
    );
    const text = await response.text();
    const changed = text.indexOf("notifications/tools/list_changed");
    assert.ok(changed > 0 && changed < text.indexOf('"id":5'), text);
    await client.server.close();
    await hub.close();
  });

  it("belongs to one session", async () => {
    const { client, connect, hub } = await setUp({ hub: { expose: "select" } });
    await select(client, { names: ["files__read_file"] });
    const other = connect("stdio");
    await initialize(other);
    assert.deepEqual(await listToolNames(other), OWN);
    assert.equal(changes(other), 0);
    await hub.close();
  });

  it("tells of changes of listed tools only", async () => {
    const { client, files, github, hub } = await setUp({ hub: { expose: "select" } });
    await select(client, { names: ["files__read_file"] });
    await listToolNames(client);
    const known = changes(client);
    github.tools.pop();
    github.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await untilTrue(() => github.messagesOf("tools/list").length > 1);
    files.tools[0] = toolOf("read_file", "Reads another file.");
    files.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await client.until(() => changes(client) > known);
    assert.equal(changes(client), known + 1);
    await hub.close();
  });

  it("takes at most 200 tools, and exactly one of names, servers and query", async () => {
    const many = new ScriptedServer(...Array.from({ length: 201 }, (_, at) => `t${at}`));
    const { client, hub } = await setUp({ hub: { expose: "select" } }, { many });
    assert.match(errorTextOf(await callTool(client, "select_tools", { servers: ["many"] })), /200/);
    assert.deepEqual(await listToolNames(client), OWN);
    assert.equal((await select(client, { servers: ["many"], limit: 200 })).tools, 200);
    for (const args of [
      {},
      { names: [], query: "x" },
      { names: Array.from({ length: 51 }, String) },
      { names: 1 },
    ])
      assert.equal((await callTool(client, "select_tools", args)).error?.code, -32602);
    await hub.close();
  });
});

describe("what is hidden", () => {
  const HIDDEN = /push|secret_vault|app_only|denied/;

  /** A client in a mode that hides the server `secret_vault` and the tool `push`; other tools are denied or for apps. */
  async function setUpHidden(expose: "search" | "select") {
    const git = new ScriptedServer("log", "push", "denied_tool");
    git.tools.push(toolOf("app_only", "Pushes.", { _meta: { ui: { visibility: ["app"] } } }));
    const vault = new ScriptedServer("log", "open_vault");
    vault.instructions = "The secret vault.";
    const tools = { allow: undefined, deny: ["denied*"], rename: {}, timeout: {} };
    const modes = [modeOf("review", { and: [{ servers: ["git"] }, { not: { pattern: "push" } }] })];
    const setup = setUpHub(
      { git, secret_vault: vault },
      { hub: { expose, mode: "review" }, modes, servers: { git: { tools } } },
    );
    const client = setup.connect("stdio");
    await initialize(client);
    await listToolNames(client);
    const whole = setUpHub({ git: new ScriptedServer("log") }, { hub: { expose } });
    const bare = whole.connect("stdio");
    await initialize(bare);
    await listToolNames(bare);
    const close = async (): Promise<void> => {
      await setup.hub.close();
      await whole.hub.close();
    };
    return { client, bare, git, vault, close };
  }

  it("is unknown to the hub's own tools: their answers are those of a hub without it", async () => {
    for (const expose of ["search", "select"] as const) {
      const { client, bare, git, vault, close } = await setUpHidden(expose);
      const asked: (readonly [string, object])[] = [
        ["search_tools", { query: "push" }],
        ["search_tools", { query: "git__push" }],
        ["search_tools", { query: "log" }],
        ["search_tools", { query: "log", server: "secret_vault" }],
        ["search_tools", { query: "vault" }],
        ["call_tool", { name: "git__push" }],
        ["call_tool", { name: "push" }],
        ["call_tool", { name: "git:push" }],
        ["call_tool", { name: "git__app_only" }],
        ["call_tool", { name: "app_only" }],
        ["call_tool", { name: "git__denied_tool" }],
        ["call_tool", { name: "secret_vault__open_vault" }],
        ["call_tool", { name: "secret_vault__open_vaul" }],
        ...(expose === "search"
          ? ([
              ["describe_tools", { names: ["git__push", "git__log", "secret_vault__log"] }],
              ["call_read_only_tool", { name: "git__push" }],
            ] as const)
          : ([
              ["select_tools", { names: ["git__push", "open_vault"] }],
              ["select_tools", { servers: ["secret_vault"] }],
              ["select_tools", { query: "push" }],
            ] as const)),
        // The own name is unique in the client's view, although the hidden server has it, too.
        ["call_tool", { name: "log" }],
      ];
      for (const [tool, args] of asked) {
        const answer = await callTool(client, tool, args);
        const expected = await callTool(bare, tool, args);
        assert.deepEqual(answer.result, expected.result, `${tool} ${JSON.stringify(args)}`);
        assert.deepEqual(answer.error, expected.error);
      }
      assert.equal(git.messagesOf("tools/call").length, 1);
      assert.deepEqual(vault.messagesOf("tools/call"), []);
      // A direct call is answered as ever.
      assert.equal((await callTool(client, "git__push")).error?.data?.["code"], "notInMode");
      await close();
    }
  });

  it("is not in the instructions", async () => {
    const { client, close } = await setUpHidden("search");
    const { result } = await client.find(isResponseTo("init"));
    assert.doesNotMatch(String(result?.["instructions"]), HIDDEN);
    await close();
  });
});

describe("the instructions", () => {
  it("say how to search, and have a line for each server, without the servers' own", async () => {
    const { client, hub } = await setUp({ servers: { files: { title: "Files of the project" } } });
    await sendModernRequest(client, "tools/list");
    const { result } = await sendModernRequest(client, "server/discover");
    const text = String(result?.["instructions"]);
    assert.match(text, /search_tools/);
    assert.match(text, /^github: Repositories, issues and pull requests\.$/m);
    assert.match(text, /^files: Files of the project$/m);
    assert.doesNotMatch(text, /Ask before/);
    await hub.close();
  });

  it("name as many servers as fit, and how many more there are", async () => {
    const servers = Object.fromEntries(
      Array.from({ length: 100 }, (_, at) => [`s${at}-${"x".repeat(60)}`, new ScriptedServer("x")]),
    );
    const setup = setUpHub(servers, { hub: { expose: "search" } });
    const client = setup.connect("stdio");
    await initialize(client);
    await listToolNames(client);
    const { result } = await sendModernRequest(client, "server/discover");
    const text = String(result?.["instructions"]);
    assert.ok(text.length < 5000, String(text.length));
    assert.match(text, /^and \d+ more$/m);
    await setup.hub.close();
  });
});
