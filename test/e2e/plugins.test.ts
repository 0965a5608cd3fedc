import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, closeClient, executable, it } from "../harness/hub.ts";
import { toToml } from "../harness/manifest.ts";
import {
  callPid,
  waitForListChanged,
  controlled,
  holdCall,
  listToolNames,
  type ControlledServers,
  waitForStderr,
  withControlledServers,
} from "../harness/controlled-servers.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

/** What runs the hub, and the words before its own. */
const PROGRAMS: Readonly<Record<string, () => readonly string[]>> = {
  "the executable": () => [executable()],
  "the source under Deno": () => ["deno", "run", "-A", MAIN],
};

/** A manifest with the governed server `a` and these plugins. */
function withPlugins({ dir }: ControlledServers, ...entries: readonly string[]): string {
  const servers = { a: controlled({ env: { GOVERNED: join(dir, "a") } }) };
  return [toToml({ servers }), ...entries.map((entry) => `[[plugins]]\n${entry}\n`)].join("\n");
}

/** A plugin that marks what it sees with a word. */
function marking(word: string, more = ""): string {
  return `
    interface Named { readonly name: string; readonly description?: string }
    export default {
      name: "marking",
      setup(_: unknown, host: { log(level: string, text: string): void }) {
        host.log("warn", "${word} is set up");
        ${more}
        return {
          list: (tools: readonly Named[]) => tools.map((tool) => ({ ...tool, description: "${word}" })),
          call: (next: (call: object) => Promise<unknown>, tool: Named) => async (call: object) => {
            const answer = await next(call);
            host.log("warn", "${word} saw " + tool.name);
            return answer;
          },
          dispose: () => host.log("warn", "${word} is gone"),
        };
      },
    };
  `;
}

for (const [name, program] of Object.entries(PROGRAMS)) {
  const run = async (
    { dir, env, config }: ControlledServers,
    use: (client: RawClient) => Promise<void>,
  ): Promise<RawClient> => {
    const [command = "", ...words] = program();
    const client = new RawClient(command, [...words, "--config", config], dir, env);
    await use(client);
    await closeClient(client);
    return client;
  };
  const harness = (play: (harness: ControlledServers) => Promise<void>) =>
    withControlledServers("", play);
  const describeTool = async (client: RawClient, wanted: string): Promise<unknown> => {
    const { message } = await client.request("tools/list");
    return message.result?.tools?.find((tool) => tool.name === wanted)?.["description"];
  };

  describe(`plugins, with ${name}`, () => {
    it("that are files beside the manifest change lists and see calls", () =>
      harness(async (place) => {
        writeFileSync(join(place.dir, "mine.ts"), marking("first"));
        place.editManifest(withPlugins(place, 'use = "./mine.ts"\ntools = ["pid"]'));
        await run(place, async (client) => {
          const tools = await client.initializeAndList();
          const described = tools.filter(({ description }) => description === "first");
          assert.deepEqual(
            described.map((tool) => tool.name),
            ["a__pid"],
          );
          await callPid(client, "a");
          await waitForStderr(client, /plugin "marking": first saw pid/);
        });
      }));

    it("that fail in their setup refuse the start, with name, manifest line and own line", () =>
      harness(async (place) => {
        const { dir, env, config } = place;
        writeFileSync(join(dir, "bad.ts"), marking("bad", "\nthrow new Error('no such vault');"));
        place.editManifest(withPlugins(place, 'use = "./bad.ts"'));
        const [command = "", ...words] = program();
        const client = new RawClient(command, [...words, "--config", config], dir, env);
        const { code } = await client.waitForExit(EXIT_LIMIT);
        assert.equal(code, 2);
        const at = readFileSync(config, "utf8").split("\n").indexOf("[[plugins]]") + 1;
        assert.match(
          client.stderr,
          new RegExp(
            `toolmux.toml:${at}:3: plugins\\[0\\]: plugin "marking" failed in its setup: no such vault \\(${dir}/bad.ts:8:`,
          ),
        );
      }));

    it("that are edited are exchanged, and calls that run end on the old ones", () =>
      harness(async (place) => {
        const file = join(place.dir, "mine.ts");
        writeFileSync(file, marking("old"));
        place.editManifest(withPlugins(place, 'use = "./mine.ts"'));
        await run(place, async (client) => {
          await client.initializeAndList();
          const pid = await callPid(client, "a");
          const held = await holdCall(place, client, "a");
          writeFileSync(file, marking("new"));
          await waitForListChanged(client, 1);
          assert.equal(await describeTool(client, "a__pid"), "new");
          assert.equal(await callPid(client, "a"), pid);
          await waitForStderr(client, /new saw pid/);
          assert.doesNotMatch(client.stderr, /old is gone/);
          await held.release();
          await waitForStderr(client, /old saw hold[^]*old is gone/);
          assert.match(client.stderr, /old is set up[^]*new is set up[^]*old is gone/);
        });
      }));

    it("that are edited and then cannot be loaded leave the old ones in force", () =>
      harness(async (place) => {
        const file = join(place.dir, "mine.ts");
        writeFileSync(file, marking("good"));
        place.editManifest(withPlugins(place, 'use = "./mine.ts"'));
        const left = await run(place, async (client) => {
          await client.initializeAndList();
          writeFileSync(file, "export default {\n  name: }");
          await waitForStderr(client, /the changed config has errors/);
          await waitForStderr(client, /mine\.ts:2:/);
          await callPid(client, "a");
          await waitForStderr(client, /good saw pid/);
          writeFileSync(file, marking("better"));
          await waitForListChanged(client, 1);
          assert.equal(await describeTool(client, "a__pid"), "better");
        });
        assert.match(left.stderr, /better is gone/);
      }));

    it("stay as they are when something else of the manifest changes", () =>
      harness(async (place) => {
        writeFileSync(join(place.dir, "mine.ts"), marking("steady"));
        const entry = 'use = "./mine.ts"';
        place.editManifest(withPlugins(place, entry));
        await run(place, async (client) => {
          await client.initializeAndList();
          place.editManifest(`${withPlugins(place, entry)}\n[hub]\nseparator = "--"\n`);
          await waitForListChanged(client, 1);
          assert.ok((await listToolNames(client)).includes("a--pid"));
          assert.equal(client.stderr.match(/steady is set up/g)?.length, 1);
          assert.doesNotMatch(client.stderr, /steady is gone/);
        });
      }));

    it("that throw where nobody catches it cost no call, and it is told where that was", () =>
      harness(async (place) => {
        const stray = `
          setTimeout(() => { throw new Error("a stray timer"); });
          void Promise.reject(new Error("a stray promise"));`;
        writeFileSync(join(place.dir, "mine.ts"), marking("stray", stray));
        place.editManifest(withPlugins(place, 'use = "./mine.ts"'));
        await run(place, async (client) => {
          await client.initializeAndList();
          await waitForStderr(client, /"marking": failed: a stray timer \([^)]*mine\.ts:\d+/);
          await waitForStderr(client, /"marking": failed: a stray promise \([^)]*mine\.ts:\d+/);
          await callPid(client, "a");
        });
      }));

    it("that write with console write to the log, and nothing to stdout", () =>
      harness(async (place) => {
        const talk = `console.log("one %s", "line", { a: 1 }); console.error("another");`;
        writeFileSync(join(place.dir, "mine.ts"), marking("talking", talk));
        place.editManifest(withPlugins(place, 'use = "./mine.ts"'));
        const [command = "", ...words] = program();
        const args = [...words, "--log-level", "info", "--config", place.config];
        const client = new RawClient(command, args, place.dir, place.env);
        await client.initializeAndList();
        await waitForStderr(client, /info one line \{ a: 1 \}[^]*error another/);
        await closeClient(client);
      }));

    it("give servers of their own, and secrets for those of others", () =>
      harness(async (place) => {
        writeFileSync(
          join(place.dir, "mine.ts"),
          `export default {
            name: "giving",
            setup(_: unknown, host: any) {
              return {
                secrets: { vault: (path: string) => "opened-" + path },
                servers: {
                  echo: async () => {
                    const [link, transport] = host.pair();
                    const answers: Record<string, (params: any) => object> = {
                      initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "echo", version: "1" } }),
                      ping: () => ({}),
                      "tools/list": () => ({ tools: [{ name: "say", inputSchema: { type: "object" } }] }),
                      "tools/call": (params) => ({ content: [{ type: "text", text: params.arguments.word }] }),
                    };
                    transport.onmessage = ({ id, method, params }: any) => {
                      if (id !== undefined) void transport.send({ jsonrpc: "2.0", id, result: answers[method](params) });
                    };
                    await transport.start();
                    return link;
                  },
                },
              };
            },
          };`,
        );
        const script = "process.stderr.write('got ' + process.env.SEEN.length + '\\\\n')";
        const server = `[servers.b]\ncommand = "${process.execPath}"\nargs = ["-e", "${script}"]\nenv = { SEEN = "\${vault:door}" }\n`;
        place.editManifest(`${withPlugins(place, 'use = "./mine.ts"')}\n${server}`);
        const [command = "", ...words] = program();
        const args = [...words, "--log-level", "debug", "--config", place.config];
        const client = new RawClient(command, args, place.dir, place.env);
        await client.initializeAndList();
        const { message } = await client.call("echo__say", { word: "hello" });
        assert.equal(message.result?.content?.[0]?.text, "hello");
        await waitForStderr(client, /got 11/);
        assert.doesNotMatch(client.stderr, /opened-door/);
        await closeClient(client);
      }));

    it("in a package in node_modules beside the manifest are found, with the packages that they import", () =>
      harness(async (place) => {
        const put = (file: string, text: string): void => {
          const path = join(place.dir, "node_modules", file);
          mkdirSync(join(path, ".."), { recursive: true });
          writeFileSync(path, text);
        };
        const manifest = (of: string): string =>
          JSON.stringify({
            name: of,
            version: "1.0.0",
            type: "module",
            exports: { import: "./main.js" },
          });
        put("plug/package.json", manifest("plug"));
        put(
          "plug/main.js",
          'import { word } from "inner";\nexport default { name: "plug", setup: (_, host) => (host.log("warn", word), {}) };',
        );
        put("inner/package.json", manifest("inner"));
        put("inner/main.js", 'export const word = "from within";');
        place.editManifest(withPlugins(place, 'use = "plug"'));
        await run(place, async (client) => {
          await client.initializeAndList();
          await waitForStderr(client, /plugin "plug": from within/);
        });
      }));
  });
}
