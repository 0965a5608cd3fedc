import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import {
  closeClient,
  executable,
  TEST_OPTIONS,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const LATEST = "2025-11-25";
const MANIFEST = { servers: { a: scripted() } };

interface Answer {
  readonly serverInfo: { readonly name: string };
  readonly instructions?: string;
}

function start(setup: TestFolder, ...options: readonly string[]): RawClient {
  return new RawClient(executable(), ["--config", setup.config, ...options], setup.dir, setup.env);
}

/** What a client asks first, as it asks it at once. */
const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: LATEST, capabilities: {}, clientInfo: { name: "t", version: "1" } },
};

/** Serves a client once, so that there is something to remember. */
async function serveOnce(setup: TestFolder, capabilities: object = {}): Promise<void> {
  await settled(setup.config);
  const client = start(setup);
  await client.initialize(LATEST, capabilities);
  await client.request("tools/list");
  await closeClient(client);
}

/** Until a file's times tell it from what it may become. */
async function settled(path: string): Promise<void> {
  const { ctimeMs } = statSync(path);
  while (Date.now() - ctimeMs < 110) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Gives what the hub remembers another name, by which it is known again. */
function mark(setup: TestFolder): void {
  const path = join(setup.env["XDG_STATE_HOME"] ?? "", "toolmux/greetings.json");
  const kept = readFileSync(path, "utf8");
  writeFileSync(
    path,
    kept.replace(`"greeting":{"name":"toolmux"`, `"greeting":{"name":"remembered"`),
  );
}

describe("a start with a manifest that has served before", () => {
  it("greets its client with what it remembers, and serves it as any other", TEST_OPTIONS, () =>
    withTestFolder(MANIFEST, async (setup) => {
      await serveOnce(setup);
      mark(setup);
      const client = start(setup);
      const { serverInfo } = (await client.initialize()) as unknown as Answer;
      assert.equal(serverInfo.name, "remembered");
      assert.ok((await client.request("tools/list")).message.result?.tools?.length);
      const { message } = await client.call("a__echo", { word: "still" });
      assert.deepEqual(message.result?.structuredContent, { word: "still" });
      assert.equal(client.lines.filter(({ text }) => text.endsWith(`"id":1}`)).length, 1);
      await closeClient(client);
    }),
  );

  it(
    "declares what its servers were known to do, and no more, however it greets",
    TEST_OPTIONS,
    () =>
      withTestFolder(MANIFEST, async (setup) => {
        const declared = async (): Promise<readonly [string, boolean, boolean]> => {
          const client = start(setup);
          const { capabilities, serverInfo } = (await client.initialize()) as unknown as Answer & {
            readonly capabilities: { resources: { subscribe?: true }; tasks?: object };
          };
          await client.request("tools/list");
          await closeClient(client);
          const { resources, tasks } = capabilities;
          return [serverInfo.name, resources.subscribe === true, tasks !== undefined];
        };
        await settled(setup.config);
        assert.deepEqual(await declared(), ["toolmux", true, true]);
        mark(setup);
        assert.deepEqual(await declared(), ["remembered", false, false]);
        // What it remembers of its greeting is not good any more, but what it remembers of its servers is.
        writeFileSync(setup.config, `${readFileSync(setup.config, "utf8")}\n`);
        assert.deepEqual(await declared(), ["toolmux", false, false]);
      }),
  );

  it("says what the manifest says now if that has changed", TEST_OPTIONS, () =>
    withTestFolder(MANIFEST, async (setup) => {
      await serveOnce(setup);
      mark(setup);
      writeFileSync(setup.config, `[hub]\nname = "renamed"\n${readFileSync(setup.config, "utf8")}`);
      const client = start(setup);
      const { serverInfo } = (await client.initialize()) as unknown as Answer;
      assert.equal(serverInfo.name, "renamed");
      await closeClient(client);
    }),
  );

  it("gives every id back as it was spelled", TEST_OPTIONS, () =>
    withTestFolder(MANIFEST, async (setup) => {
      await serveOnce(setup);
      for (const id of ["1.0", "1e0", "-0", String.raw`"\u0061"`, String.raw`"a\/b"`]) {
        const client = start(setup);
        client.send(
          `{"jsonrpc":"2.0","id":${id},"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
        );
        await client.request("tools/list");
        const [first = { text: "" }] = client.lines;
        assert.ok(first.text.endsWith(`"id":${id}}`), first.text);
        await closeClient(client);
      }
    }),
  );

  it("says to each client what the servers say to one of its kind", TEST_OPTIONS, () =>
    withTestFolder({ servers: { a: scripted("--instruct") } }, async (setup) => {
      await serveOnce(setup, { sampling: {} });
      await serveOnce(setup, {});
      await serveOnce(setup, { sampling: {} });
      for (const capabilities of [{}, { sampling: {} }]) {
        const client = start(setup);
        const { instructions } = (await client.initialize(
          LATEST,
          capabilities,
        )) as unknown as Answer;
        assert.equal(instructions, `# a\n\nFor ${JSON.stringify(capabilities)}.`);
        await closeClient(client);
      }
    }),
  );

  it("says what the servers say where a variable makes them others", TEST_OPTIONS, () =>
    withTestFolder(
      { servers: { a: scripted("--instruct", { env: { FOR: "${env:WHOM}" } }) } },
      async (setup) => {
        const as = (whom: string): TestFolder => ({ ...setup, env: { ...setup.env, WHOM: whom } });
        await serveOnce(as("one"));
        await serveOnce(as("two"));
        for (const whom of ["one", "two"]) {
          const client = start(as(whom));
          const { instructions } = (await client.initialize()) as unknown as Answer;
          assert.equal(instructions, `# a\n\nFor ${whom}.`);
          await closeClient(client);
        }
      },
    ),
  );

  it("answers nothing if the manifest is wrong now", TEST_OPTIONS, () =>
    withTestFolder(MANIFEST, async (setup) => {
      await serveOnce(setup);
      writeFileSync(setup.config, '[hub]\nnme = "x"\n');
      const client = start(setup);
      client.send({ jsonrpc: "2.0", id: 1, method: "ping" });
      assert.equal((await client.exit).code, 2);
      assert.deepEqual(client.lines, []);
    }),
  );
});

describe("a start with a manifest that has never served", () => {
  it(
    "greets its client once with what the manifest says, and serves it as any other",
    TEST_OPTIONS,
    () =>
      withTestFolder(MANIFEST, async (setup) => {
        writeFileSync(setup.config, `[hub]\nname = "mine"\n${readFileSync(setup.config, "utf8")}`);
        const client = start(setup);
        const { serverInfo, instructions } = (await client.initialize()) as unknown as Answer;
        assert.equal(serverInfo.name, "mine");
        assert.equal(instructions, undefined);
        const { message } = await client.call("a__echo", { word: "new" });
        assert.deepEqual(message.result?.structuredContent, { word: "new" });
        assert.equal(client.lines.filter(({ text }) => text.endsWith(`"id":1}`)).length, 1);
        await closeClient(client);
      }),
  );

  it("says what its servers said when another manifest had them", TEST_OPTIONS, () =>
    withTestFolder({ servers: { a: scripted("--instruct") } }, async (setup) => {
      await serveOnce(setup);
      writeFileSync(setup.config, `[hub]\nname = "mine"\n${readFileSync(setup.config, "utf8")}`);
      const client = start(setup);
      const { serverInfo, instructions } = (await client.initialize()) as unknown as Answer;
      assert.equal(serverInfo.name, "mine");
      assert.equal(instructions, "# a\n\nFor {}.");
      await closeClient(client);
    }),
  );

  it(
    "says what those of its servers said that are switched on, to a client of that kind",
    TEST_OPTIONS,
    () => {
      const speaker = (name: string) => scripted("--instruct", { env: { FOR: name } });
      const [a, b, c] = [speaker("a"), speaker("b"), speaker("c")];
      const run = async (setup: TestFolder): Promise<void> => {
        await serveOnce(setup, { sampling: {} });
        const servers = { c, b: { ...b, enabled: false }, a, other: scripted() };
        writeFileSync(setup.config, JSON.stringify({ servers }));
        const said: (string | undefined)[] = [];
        for (const capabilities of [{ sampling: {} }, {}]) {
          const client = start(setup);
          const answer = (await client.initialize(LATEST, capabilities)) as unknown as Answer;
          said.push(answer.instructions);
          await closeClient(client);
        }
        assert.deepEqual(said, ["# c\n\nFor c.\n\n# a\n\nFor a.", undefined]);
      };
      return withTestFolder(JSON.stringify({ servers: { a, b, c } }), run, "toolmux.json");
    },
  );

  it("answers nothing if anything is wrong with it, or with the command line", TEST_OPTIONS, () =>
    withTestFolder(MANIFEST, async (setup) => {
      const right = readFileSync(setup.config, "utf8");
      const wrong = ['[hub]\nnme = "x"\n', `${right}\n[defaults]\ncallTimeout = "soon"\n`, "[["];
      const cases = [
        ...wrong.map((text) => ({ text, options: [] })),
        { text: right, options: ["--record-limit", "1MB"] },
        { text: right, options: ["--http", "nowhere:-1"] },
      ];
      for (const { text, options } of cases) {
        writeFileSync(setup.config, text);
        const client = start(setup, ...options);
        client.send(INITIALIZE);
        assert.equal((await client.exit).code, 2);
        assert.deepEqual(client.lines, []);
      }
    }),
  );

  it("answers nothing if a plugin that it names cannot be set up", TEST_OPTIONS, () =>
    withTestFolder(MANIFEST, async (setup) => {
      const plugin = `[[plugins]]\nuse = "./missing.ts"\n`;
      writeFileSync(setup.config, `${readFileSync(setup.config, "utf8")}\n${plugin}`);
      const client = start(setup);
      client.send(INITIALIZE);
      assert.equal((await client.exit).code, 2);
      assert.deepEqual(client.lines, []);
    }),
  );
});
