import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { RawClient } from "../harness/raw-client.ts";
import { closeClient, executable, it } from "../harness/hub.ts";
import { toToml } from "../harness/manifest.ts";
import {
  callPid,
  waitForListChanged,
  controlled,
  holdCall,
  type ControlledServers,
  waitForStderr,
  withControlledServers,
} from "../harness/controlled-servers.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

/** In ms. */
const START_LIMIT = 30_000;

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

/** A plugin with a server and a secret of its own. */
const GIVING = `export default {
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
  };`;

/** Writes a plugin that is a package, and one that it imports. */
function writePackages(dir: string): void {
  const put = (file: string, text: string): void => {
    const path = join(dir, "node_modules", file);
    mkdirSync(join(path, ".."), { recursive: true });
    writeFileSync(path, text);
  };
  const packages = {
    plug: 'import { word } from "inner";\nexport default { name: "plug", setup: (_, host) => (host.log("warn", word), {}) };',
    inner: 'export const word = "from within";',
  };
  for (const [name, text] of Object.entries(packages)) {
    const main = { type: "module", exports: { import: "./main.js" } };
    put(`${name}/package.json`, JSON.stringify({ name, version: "1.0.0", ...main }));
    put(`${name}/main.js`, text);
  }
}

/** The tools whose description is that word, which a plugin has given them. */
async function listMarked(client: RawClient, word: string): Promise<readonly string[]> {
  const { message } = await client.request("tools/list");
  const marked = message.result?.tools?.filter(({ description }) => description === word) ?? [];
  return marked.map(({ name }) => name);
}

for (const [name, program] of Object.entries(PROGRAMS)) {
  const start = ({ dir, env, config }: ControlledServers, ...args: string[]): RawClient => {
    const [command = "", ...words] = program();
    return new RawClient(command, [...words, ...args, "--config", config], dir, env);
  };
  /** Deno reads hundreds of modules before the first answer, which takes long on a busy machine. */
  const connect = async (place: ControlledServers, ...args: string[]): Promise<RawClient> => {
    const client = start(place, ...args);
    await client.request("ping", undefined, START_LIMIT);
    await client.initializeAndList();
    return client;
  };
  const harness = (play: (harness: ControlledServers) => Promise<void>) =>
    withControlledServers("", play);

  describe(`plugins, with ${name}`, () => {
    it("that are files beside the manifest change lists and see calls; edits that can be loaded exchange them, and calls that run end on the old ones", () =>
      harness(async (place) => {
        const file = join(place.dir, "mine.ts");
        writeFileSync(file, marking("old"));
        const manifest = withPlugins(place, 'use = "./mine.ts"\ntools = ["pid", "hold"]');
        place.editManifest(manifest);
        const client = await connect(place);
        assert.deepEqual(await listMarked(client, "old"), ["a__hold", "a__pid"]);
        const pid = await callPid(client, "a");
        await waitForStderr(client, /plugin "marking": old saw pid/);

        const held = await holdCall(place, client, "a");
        writeFileSync(file, marking("new"));
        await waitForListChanged(client, 1);
        assert.deepEqual(await listMarked(client, "new"), ["a__hold", "a__pid"]);
        assert.equal(await callPid(client, "a"), pid);
        await waitForStderr(client, /new saw pid/);
        assert.doesNotMatch(client.stderr, /old is gone/);
        await held.release();
        await waitForStderr(client, /old saw hold[^]*old is gone/);
        assert.match(client.stderr, /old is set up[^]*new is set up[^]*old is gone/);

        writeFileSync(file, "export default {\n  name: }");
        await waitForStderr(client, /the changed config has errors[^]*mine\.ts:2:/);
        assert.deepEqual(await listMarked(client, "new"), ["a__hold", "a__pid"]);
        writeFileSync(file, marking("better"));
        await waitForListChanged(client, 2);
        assert.deepEqual(await listMarked(client, "better"), ["a__hold", "a__pid"]);

        // Something else of the manifest.
        place.editManifest(`${manifest}\n[hub]\nseparator = "--"\n`);
        await waitForListChanged(client, 3);
        assert.deepEqual(await listMarked(client, "better"), ["a--hold", "a--pid"]);
        assert.equal(client.stderr.match(/better is set up/g)?.length, 1);
        assert.doesNotMatch(client.stderr, /better is gone/);
        await closeClient(client);
        assert.match(client.stderr, /better is gone/);
      }));

    it("give servers of their own and secrets for those of others, are found in node_modules beside the manifest, with what they import, and cost no call if they throw where nobody catches it or write with console: both are in the log, the errors with their places", () =>
      harness(async (place) => {
        const more = `
          console.log("one %s", "line", { a: 1 }); console.error("another");
          setTimeout(() => { throw new Error("a stray timer"); });
          void Promise.reject(new Error("a stray promise"));`;
        writeFileSync(join(place.dir, "stray.ts"), marking("stray", more));
        writeFileSync(join(place.dir, "mine.ts"), GIVING);
        writePackages(place.dir);
        const script = "process.stderr.write('got ' + process.env.SEEN.length + '\\\\n')";
        const server = `[servers.b]\ncommand = "${process.execPath}"\nargs = ["-e", "${script}"]\nenv = { SEEN = "\${vault:door}" }\n`;
        const uses = ["./stray.ts", "./mine.ts", "plug"].map((use) => `use = "${use}"`);
        place.editManifest(`${withPlugins(place, ...uses)}\n${server}`);
        const client = await connect(place, "--log-level", "debug");
        await waitForStderr(client, /info one line \{ a: 1 \}[^]*error another/);
        await waitForStderr(client, /"marking": failed: a stray timer \([^)]*stray\.ts:\d+/);
        await waitForStderr(client, /"marking": failed: a stray promise \([^)]*stray\.ts:\d+/);
        await callPid(client, "a");
        const { message } = await client.call("echo__say", { word: "hello" });
        assert.equal(message.result?.content?.[0]?.text, "hello");
        await waitForStderr(client, /plugin "plug": from within/);
        await waitForStderr(client, /got 11/);
        assert.doesNotMatch(client.stderr, /opened-door/);
        await closeClient(client);
      }));

    // That errors have their places under Deno is shown above.
    if (name !== "the executable") return;

    it("that fail in their setup refuse the start, with name, manifest line and own line", () =>
      harness(async (place) => {
        const { dir, config } = place;
        writeFileSync(join(dir, "bad.ts"), marking("bad", "\nthrow new Error('no such vault');"));
        place.editManifest(withPlugins(place, 'use = "./bad.ts"'));
        const client = start(place);
        assert.equal((await client.waitForExit(START_LIMIT)).code, 2);
        const at = readFileSync(config, "utf8").split("\n").indexOf("[[plugins]]") + 1;
        assert.match(
          client.stderr,
          new RegExp(
            `toolmux.toml:${at}:3: plugins\\[0\\]: plugin "marking" failed in its setup: no such vault \\(${dir}/bad.ts:8:`,
          ),
        );
      }));
  });
}
