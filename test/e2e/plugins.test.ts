import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { RawClient } from "../harness/raw-client.ts";
import { END, end, executable, LIMIT } from "../harness/hub.ts";
import { toToml } from "../harness/manifest.ts";
import {
  askPid,
  changed,
  governed,
  hold,
  listNames,
  type Realm,
  saying,
  withRealm,
} from "../harness/controlled-servers.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

/** What runs the hub, and the words before its own. */
const PROGRAMS: Readonly<Record<string, () => readonly string[]>> = {
  "the executable": () => [executable()],
  "the source under Deno": () => ["deno", "run", "-A", MAIN],
};

/** A manifest with the governed server `a` and these plugins. */
function withPlugins({ dir }: Realm, ...entries: readonly string[]): string {
  const servers = { a: governed({ env: { GOVERNED: join(dir, "a") } }) };
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
    { dir, env, config }: Realm,
    use: (client: RawClient) => Promise<void>,
  ): Promise<RawClient> => {
    const [command = "", ...words] = program();
    const client = new RawClient(command, [...words, "--config", config], dir, env);
    await use(client);
    await end(client);
    return client;
  };
  const realm = (play: (realm: Realm) => Promise<void>) => withRealm("", play);
  const describeTool = async (client: RawClient, wanted: string): Promise<unknown> => {
    const { message } = await client.request("tools/list");
    return message.result?.tools?.find((tool) => tool.name === wanted)?.["description"];
  };

  describe(`plugins, with ${name}`, () => {
    it("that are files beside the manifest change lists and see calls", LIMIT, () =>
      realm(async (place) => {
        writeFileSync(join(place.dir, "mine.ts"), marking("first"));
        place.edit(withPlugins(place, 'use = "./mine.ts"\ntools = ["pid"]'));
        await run(place, async (client) => {
          const tools = await client.open();
          const described = tools.filter(({ description }) => description === "first");
          assert.deepEqual(
            described.map((tool) => tool.name),
            ["a__pid"],
          );
          await askPid(client, "a");
          await saying(client, /plugin "marking": first saw pid/);
        });
      }),
    );

    it(
      "that fail in their setup refuse the start, with name, manifest line and own line",
      LIMIT,
      () =>
        realm(async (place) => {
          const { dir, env, config } = place;
          writeFileSync(join(dir, "bad.ts"), marking("bad", "\nthrow new Error('no such vault');"));
          place.edit(withPlugins(place, 'use = "./bad.ts"'));
          const [command = "", ...words] = program();
          const client = new RawClient(command, [...words, "--config", config], dir, env);
          const { code } = await client.ended(END);
          assert.equal(code, 2);
          const at = readFileSync(config, "utf8").split("\n").indexOf("[[plugins]]") + 1;
          assert.match(
            client.stderr,
            new RegExp(
              `toolmux.toml:${at}:3: plugins\\[0\\]: plugin "marking" failed in its setup: no such vault \\(${dir}/bad.ts:8:`,
            ),
          );
        }),
    );

    it("that are edited are exchanged, and calls that run end on the old ones", LIMIT, () =>
      realm(async (place) => {
        const file = join(place.dir, "mine.ts");
        writeFileSync(file, marking("old"));
        place.edit(withPlugins(place, 'use = "./mine.ts"'));
        await run(place, async (client) => {
          await client.open();
          const pid = await askPid(client, "a");
          const held = await hold(place, client, "a");
          writeFileSync(file, marking("new"));
          await changed(client, 1);
          assert.equal(await describeTool(client, "a__pid"), "new");
          assert.equal(await askPid(client, "a"), pid);
          await saying(client, /new saw pid/);
          assert.doesNotMatch(client.stderr, /old is gone/);
          await held.release();
          await saying(client, /old saw hold[^]*old is gone/);
          assert.match(client.stderr, /old is set up[^]*new is set up[^]*old is gone/);
        });
      }),
    );

    it("that are edited and then cannot be loaded leave the old ones in force", LIMIT, () =>
      realm(async (place) => {
        const file = join(place.dir, "mine.ts");
        writeFileSync(file, marking("good"));
        place.edit(withPlugins(place, 'use = "./mine.ts"'));
        const left = await run(place, async (client) => {
          await client.open();
          writeFileSync(file, "export default {\n  name: }");
          await saying(client, /the manifest was changed, but is not taken/);
          await saying(client, /mine\.ts:2:/);
          await askPid(client, "a");
          await saying(client, /good saw pid/);
          writeFileSync(file, marking("better"));
          await changed(client, 1);
          assert.equal(await describeTool(client, "a__pid"), "better");
        });
        assert.match(left.stderr, /better is gone/);
      }),
    );

    it("stay as they are when something else of the manifest changes", LIMIT, () =>
      realm(async (place) => {
        writeFileSync(join(place.dir, "mine.ts"), marking("steady"));
        const entry = 'use = "./mine.ts"';
        place.edit(withPlugins(place, entry));
        await run(place, async (client) => {
          await client.open();
          place.edit(`${withPlugins(place, entry)}\n[hub]\nseparator = "--"\n`);
          await changed(client, 1);
          assert.ok((await listNames(client)).includes("a--pid"));
          assert.equal(client.stderr.match(/steady is set up/g)?.length, 1);
          assert.doesNotMatch(client.stderr, /steady is gone/);
        });
      }),
    );

    it(
      "that throw where nobody catches it cost no call, and it is told where that was",
      LIMIT,
      () =>
        realm(async (place) => {
          const stray = `
          setTimeout(() => { throw new Error("a stray timer"); });
          void Promise.reject(new Error("a stray promise"));`;
          writeFileSync(join(place.dir, "mine.ts"), marking("stray", stray));
          place.edit(withPlugins(place, 'use = "./mine.ts"'));
          await run(place, async (client) => {
            await client.open();
            await saying(client, /"marking": failed: a stray timer \([^)]*mine\.ts:\d+/);
            await saying(client, /"marking": failed: a stray promise \([^)]*mine\.ts:\d+/);
            await askPid(client, "a");
          });
        }),
    );

    it("that write with console write to the log, and nothing to stdout", LIMIT, () =>
      realm(async (place) => {
        const talk = `console.log("one %s", "line", { a: 1 }); console.error("another");`;
        writeFileSync(join(place.dir, "mine.ts"), marking("talking", talk));
        place.edit(withPlugins(place, 'use = "./mine.ts"'));
        const [command = "", ...words] = program();
        const args = [...words, "--log-level", "info", "--config", place.config];
        const client = new RawClient(command, args, place.dir, place.env);
        await client.open();
        await saying(client, /info one line \{ a: 1 \}[^]*error another/);
        await end(client);
      }),
    );

    it("give servers of their own, and secrets for those of others", LIMIT, () =>
      realm(async (place) => {
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
        place.edit(`${withPlugins(place, 'use = "./mine.ts"')}\n${server}`);
        const [command = "", ...words] = program();
        const args = [...words, "--log-level", "debug", "--config", place.config];
        const client = new RawClient(command, args, place.dir, place.env);
        await client.open();
        const { message } = await client.call("echo__say", { word: "hello" });
        assert.equal(message.result?.content?.[0]?.text, "hello");
        await saying(client, /got 11/);
        assert.doesNotMatch(client.stderr, /opened-door/);
        await end(client);
      }),
    );

    it(
      "in a package in node_modules beside the manifest are found, with the packages that they import",
      LIMIT,
      () =>
        realm(async (place) => {
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
          place.edit(withPlugins(place, 'use = "plug"'));
          await run(place, async (client) => {
            await client.open();
            await saying(client, /plugin "plug": from within/);
          });
        }),
    );
  });
}
