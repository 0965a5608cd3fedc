import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { startOn } from "../harness/command.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  executable,
  it,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const LATEST = "2025-11-25";
/** The hub adds no paragraph of its own. */
const OWN = { instructions: "" };
const LAZY = { lazy: true };

interface InitializeResult {
  readonly serverInfo: { readonly name: string };
  readonly instructions?: string;
  readonly capabilities: { readonly resources: { subscribe?: true }; readonly tasks?: object };
}

/**
 * Starts a hub, initializes it as a client with those capabilities, waits for the first list, and ends it.
 * @param tools are called, so that their servers are up and listed when the client leaves
 */
async function serveOnce(
  setup: TestFolder,
  capabilities: object = {},
  tools: readonly string[] = [],
): Promise<InitializeResult> {
  const client = startOn(setup);
  const result = await client.initialize(LATEST, capabilities);
  await client.request("tools/list");
  for (const tool of tools) await client.call(tool);
  await closeClient(client);
  return result as unknown as InitializeResult;
}

type Era = "legacy" | "modern";
type Transport = "stdio" | "HTTP";

/**
 * Connects an SDK client, and waits until server "a" has been listed.
 * @returns the instructions that the client gets
 */
async function readInstructions(
  setup: TestFolder,
  transport: StdioClientTransport | StreamableHTTPClientTransport,
  era: Era,
): Promise<string | undefined> {
  const mode = era === "modern" ? "auto" : "legacy";
  const client = new Client({ name: "t", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(transport);
  assert.equal(client.getProtocolEra(), era);
  const instructions = client.getInstructions();
  const pid = await callPid(client);
  await setup.waitForEvent("a", (event) => event.event === "list" && event.pid === pid);
  // The server answers in order: the answer to this call comes after that to the hub's list request.
  await callPid(client);
  await client.close();
  return instructions;
}

/** The process id of server "a". */
async function callPid(client: Client): Promise<number> {
  const result = await client.callTool({ name: "a__pid", arguments: {} });
  return Number((result.content as { text: string }[])[0]?.text);
}

/**
 * Starts a hub, connects several SDK clients one after the other, and ends the hub; over stdio there can be only one.
 * @returns the instructions that each client gets
 */
async function serveSdkClients(
  setup: TestFolder,
  transport: Transport,
  era: Era,
  count = 1,
): Promise<readonly (string | undefined)[]> {
  const { config, dir, env } = setup;
  if (transport === "stdio") {
    const command = { command: executable(), args: ["--config", config], cwd: dir, env };
    return [
      await readInstructions(
        setup,
        new StdioClientTransport({ ...command, stderr: "ignore" }),
        era,
      ),
    ];
  }
  const hub = startOn(setup, "--http", "127.0.0.1:0");
  const url = await hub.until(10_000, "the address", () => /http:[^\s"]+/.exec(hub.stderr)?.[0]);
  const all: (string | undefined)[] = [];
  while (all.length < count)
    all.push(await readInstructions(setup, new StreamableHTTPClientTransport(new URL(url)), era));
  hub.signal("SIGTERM");
  await hub.waitForExit(EXIT_LIMIT);
  return all;
}

/** A server whose instructions are "For WHOM.", WHOM being the content of a file. */
function readingServer(dir: string): ReturnType<typeof scripted> {
  return scripted("--instruct", { env: { FOR_FILE: join(dir, "whom") } });
}

describe("the first client of a process", () => {
  const ONE = "# a\n\nFor one.";
  const TWO = "# a\n\nFor two.";
  /** The instructions that the clients of the first run get. Those of the tests below are of the legacy era, over stdio. */
  const CASES: readonly (readonly [Transport, Era, ...(string | undefined)[]])[] = [
    ["stdio", "modern", undefined],
    ["HTTP", "legacy", undefined, ONE],
    ["HTTP", "modern", undefined, ONE],
  ];
  for (const [transport, era, ...first] of CASES) {
    it(`gets the instructions of the last run, also while its server is not up yet, and further ones those of this run: ${transport}, ${era}`, () =>
      withTestFolder(
        (dir) => ({ hub: OWN, servers: { a: readingServer(dir) } }),
        async (setup) => {
          const serve = (count = 1): Promise<readonly (string | undefined)[]> =>
            serveSdkClients(setup, transport, era, count);
          writeFileSync(join(setup.dir, "whom"), "one");
          const given = await serve(first.length);
          // Over HTTP, the server may be up before the first client is there.
          const [atFirst] = given;
          if (transport === "HTTP" && atFirst !== undefined) assert.equal(atFirst, ONE);
          else assert.equal(atFirst, undefined);
          assert.deepEqual(given.slice(1), first.slice(1));
          writeFileSync(join(setup.dir, "whom"), "two");
          const [again] = await serve();
          if (transport === "stdio" || again !== TWO) assert.equal(again, ONE);
          // What a run writes down is the same whatever its client speaks, and over what.
          if (transport === "HTTP") return;
          assert.deepEqual(await serve(), [TWO]);
        },
      ));
  }

  // A lazy server is started once to be listed, and not again by clients for which it has been.
  it("gets the instructions that servers give to clients with its capabilities", () =>
    withTestFolder({ hub: OWN, servers: { a: scripted("--instruct", LAZY) } }, async (setup) => {
      await serveOnce(setup, { sampling: {} });
      await serveOnce(setup, {}, ["a__pid"]);
      for (const capabilities of [{}, { sampling: {} }]) {
        const { instructions } = await serveOnce(setup, capabilities);
        assert.equal(instructions, `# a\n\nFor ${JSON.stringify(capabilities)}.`);
      }
    }));

  it("gets the instructions that servers give with the present variables", () =>
    withTestFolder(
      {
        hub: OWN,
        servers: { a: scripted("--instruct", { env: { FOR: "${env:WHOM}" }, ...LAZY }) },
      },
      async (setup) => {
        const as = (whom: string): TestFolder => ({ ...setup, env: { ...setup.env, WHOM: whom } });
        await serveOnce(as("one"));
        await serveOnce(as("two"));
        for (const whom of ["one", "two"]) {
          const { instructions } = await serveOnce(as(whom));
          assert.equal(instructions, `# a\n\nFor ${whom}.`);
        }
      },
    ));

  it("gets the capabilities that the servers had in the last run, and after a change of the manifest also the new name, and the instructions of unchanged servers", () =>
    withTestFolder({ hub: OWN, servers: { a: scripted("--instruct") } }, async (setup) => {
      const declared = ({ capabilities }: InitializeResult): readonly [boolean, boolean] => [
        capabilities.resources.subscribe === true,
        capabilities.tasks !== undefined,
      ];
      assert.deepEqual(declared(await serveOnce(setup)), [true, true]);
      assert.deepEqual(declared(await serveOnce(setup)), [false, false]);
      const text = readFileSync(setup.config, "utf8");
      writeFileSync(setup.config, text.replace("[hub]\n", '[hub]\nname = "mine"\n'));
      const changed = await serveOnce(setup);
      assert.deepEqual(declared(changed), [false, false]);
      assert.equal(changed.serverInfo.name, "mine");
      assert.equal(changed.instructions, "# a\n\nFor {}.");
    }));

  it("gets one answer, with the id as it was spelled", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      await serveOnce(setup);
      for (const id of ["1.0", String.raw`"a\/b"`]) {
        const client = startOn(setup);
        client.send(
          `{"jsonrpc":"2.0","id":${id},"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
        );
        // Its id is none of those above.
        await client.response(client.sendRequest("tools/list", undefined, "list"));
        const [first = { text: "" }, ...others] = client.lines;
        assert.ok(first.text.includes(`"id":${id}`), first.text);
        assert.equal(others.length, 1);
        await closeClient(client);
      }
    }));
});

describe("the first client after a change of the manifest", () => {
  it("gets no instructions of servers that are gone, disabled or changed, nor of other capabilities", () => {
    // Servers that are not known yet are started once to be listed.
    const server = (whom: string) => scripted("--instruct", { env: { FOR: whom }, ...LAZY });
    const [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(server);
    const run = async (setup: TestFolder): Promise<void> => {
      await serveOnce(setup, { sampling: {} }, ["a__pid", "c__pid"]);
      const changed = server("another");
      const servers = { c, b: { ...b, enabled: false }, a, d: changed, other: scripted() };
      writeFileSync(setup.config, JSON.stringify({ hub: OWN, servers }));
      for (const [capabilities, instructions] of [
        [{ sampling: {} }, "# c\n\nFor c.\n\n# a\n\nFor a."],
        [{}, undefined],
      ] as const) {
        const answer = await serveOnce(setup, capabilities);
        assert.equal(answer.instructions, instructions);
      }
    };
    const manifest = { hub: OWN, servers: { a, b, c, d, e } };
    return withTestFolder(JSON.stringify(manifest), run, "toolmux.json");
  });
});

describe("a hub that cannot serve", () => {
  /** What a client sends at once, so that it would be answered before anything is checked. */
  const INITIALIZE = {
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: LATEST, capabilities: {}, clientInfo: { name: "t", version: "1" } },
  };

  it("answers nothing, as a new one and also if it has served before", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const right = readFileSync(setup.config, "utf8");
      const assertNoAnswer = async (text: string, ...options: string[]): Promise<void> => {
        writeFileSync(setup.config, text);
        const client = startOn(setup, ...options);
        client.send(INITIALIZE);
        assert.equal((await client.exit).code, 2);
        assert.deepEqual(client.lines, []);
      };
      const unknownKey = '[hub]\nnme = "x"\n';
      await assertNoAnswer(unknownKey);
      writeFileSync(setup.config, right);
      await serveOnce(setup);
      await assertNoAnswer(unknownKey);
      await assertNoAnswer(`${right}\n[defaults]\ncallTimeout = "soon"\n`);
      await assertNoAnswer("[[");
      await assertNoAnswer(`${right}\n[[plugins]]\nuse = "./missing.ts"\n`);
      await assertNoAnswer(right, "--record-limit", "1MB");
      await assertNoAnswer(right, "--http", "nowhere:-1");
    }));
});
