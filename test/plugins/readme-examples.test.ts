import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { formatProblem } from "../../src/manifest/problems.ts";
import { loadManifest } from "../../src/manifest/load.ts";
import { callTool, type Json, listToolNames } from "../fixtures/memory-hub.ts";
import { pluginContract, type PluginUnderTest } from "../contract/plugin.ts";
import { type PluginTestHub, withPluginHub } from "../contract/plugin-setup.ts";
import { requestTextsTo } from "./plugin-hub.ts";

/* Checks all code that plugins/README.md shows, unchanged. */

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const README = fs.readFileSync(join(ROOT, "plugins/README.md"), "utf8");

const sources = blocks("ts");
/** A folder outside of the project, as a user's, with all plugins of plugins/README.md by name. */
const folder = fs.mkdtempSync(join(tmpdir(), "template-"));
after(() => fs.rmSync(folder, { recursive: true, force: true }));
fs.symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
const plugins = sources.map((text) => {
  const name = /\bname: "([\w-]+)",\n/.exec(text)?.[1] ?? "nameless";
  fs.writeFileSync(join(folder, `${name}.ts`), text);
  return name;
});

// One of them runs a program for secrets.
fs.mkdirSync(join(folder, "bin"));
fs.writeFileSync(
  join(folder, "bin", "pass"),
  `#!/bin/sh
  [ "$3" = work/notes ] && echo hunter2 && exit
  echo "Error: $3 is not in the password store." >&2
  exit 1`,
);
fs.chmodSync(join(folder, "bin", "pass"), 0o755);
process.env["PATH"] = [join(folder, "bin"), process.env["PATH"]].join(delimiter);

interface ReadmeCheck extends Omit<PluginUnderTest, "use" | "folder"> {
  /** The check, with a client. */
  run(testHub: PluginTestHub): Promise<void>;
}

const README_CHECKS: Readonly<Record<string, ReadmeCheck>> = {
  "look-only": {
    options: { also: ["pl*"], slow: 1 },
    wrong: [{ no: 1 }, { slow: "often" }, { also: 1 }],
    async run({ client, script, events }) {
      assert.deepEqual(await listToolNames(client), ["s__plain", "s__reader"]);
      script.onCall = ({ id }) => {
        const answer = { jsonrpc: "2.0", id, result: { content: [] } };
        setTimeout(() => script.newestPeer?.send(answer), 20);
        return undefined;
      };
      assert.deepEqual((await callTool(client, "s__reader")).result, { content: [] });
      const lines = events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
      assert.match(lines.join("\n"), /^plugin "look-only": s__reader took \d+ ms$/m);
    },
  },
  "who-am-i": {
    async run({ client }) {
      assert.ok((await listToolNames(client)).includes("s__who_am_i"));
      const { result } = await callTool(client, "s__who_am_i");
      assert.deepEqual(result, { content: [{ type: "text", text: "t 1" }] });
    },
  },
  careful: {
    changes: ["arguments"],
    async run({ client, script }) {
      const { onCall } = script;
      script.onCall = (message, text) => {
        script.onCall = onCall;
        script.disconnect();
        return onCall(message, text);
      };
      const { result } = await callTool(client, "s__reader", { path: "a" });
      assert.deepEqual(echoedArguments(result), { path: "a", lines: 20 });
      assert.equal(script.messagesOf("tools/call").length, 2);
      const { result: other } = await callTool(client, "s__reader", { lines: 5 });
      assert.deepEqual(echoedArguments(other), { lines: 5 });
    },
  },
  "fifty-rows": {
    changes: ["arguments"],
    async run({ client, script }) {
      for (const [id, args] of ['{"n":1.0,"rows":2e1}', '{"n":1234567890123456789}'].entries()) {
        client.send(
          `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"s__reader","arguments":${args}}}`,
        );
        await client.find((message) => message.id === id);
      }
      const [first = "", second = ""] = requestTextsTo(script);
      assert.ok(first.includes('"arguments":{"n":1.0,"rows":2e1}'), first);
      assert.ok(second.includes('"arguments":{"n":1234567890123456789,"rows":50}'), second);
    },
  },
  counter: {
    async run({ client, hub, stateFolder }) {
      for (const tool of ["s__plain", "s__plain", "s__reader"]) await callTool(client, tool);
      await hub.close();
      const text = fs.readFileSync(join(stateFolder, "plugins/counter/counts.json"), "utf8");
      assert.deepEqual(JSON.parse(text), { "s plain": 2, "s reader": 1 });
    },
  },
  pass: {
    secrets: { pass: { "work/notes": "hunter2" } },
    async run({ plugins: set }) {
      assert.equal(await set.schemes.get("pass")?.("work/notes", "s"), "hunter2");
    },
  },
  time: {
    async run({ client, hub }) {
      await hub.settled();
      assert.ok((await listToolNames(client)).includes("clock__now"));
      const { result } = await callTool(client, "clock__now");
      const [content] = result?.["content"] as { text: string }[];
      assert.ok(!Number.isNaN(Date.parse(content?.text ?? "")));
    },
  },
};

describe("the page about plugins", () => {
  it("shows a plugin for each of its parts, each of which is tried here", () => {
    assert.deepEqual(plugins, Object.keys(README_CHECKS));
  });

  it("begins with a plugin of at most 40 lines that imports nothing", () => {
    const [template = ""] = sources;
    assert.ok(template.trim().split("\n").length <= 40);
    assert.deepEqual(template.match(/^import (?!type ).*/gm), null);
  });

  it("shows TypeScript without a mistake in it", () => {
    // Inside the project, so that its packages and types are found.
    fs.mkdirSync(join(ROOT, "dist"), { recursive: true });
    const checked = fs.mkdtempSync(join(ROOT, "dist", "template-"));
    try {
      const compilerOptions = { paths: { "toolmux/*": ["../../*"] } };
      const config = { extends: "../../tsconfig.json", compilerOptions, include: ["*.ts"] };
      fs.writeFileSync(join(checked, "tsconfig.json"), JSON.stringify(config));
      for (const [i, text] of sources.entries()) fs.writeFileSync(join(checked, `${i}.ts`), text);
      // The only mistake shows that mistakes are found.
      fs.writeFileSync(join(checked, "wrong.ts"), `export const wrong: number = "text";`);
      const args = ["check", "-p", checked];
      const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
      const faulty = `${stdout}${stderr}`.match(/[\w-]+\.ts(?=\(\d)/g);
      assert.deepEqual(faulty, ["wrong.ts"], `${stdout}${stderr}`);
    } finally {
      fs.rmSync(checked, { recursive: true, force: true });
    }
  });

  it("shows manifests that are right", async () => {
    for (const text of blocks("toml")) {
      const file = join(folder, "toolmux.toml");
      fs.writeFileSync(file, text);
      const env = { HOME: folder };
      const loaded = await loadManifest({ files: [file], env, cwd: folder, platform: "linux" });
      assert.ok(loaded.ok, loaded.ok ? "" : loaded.problems.map(formatProblem).join("\n"));
    }
  });

  for (const name of plugins) {
    it(`shows a plugin that works: ${name}`, () =>
      withPluginHub(subjectOf(name), README_CHECKS[name]?.run ?? assert.fail(name)));
  }
});

describe("what the page about plugins shows", () => {
  pluginContract(Object.fromEntries(plugins.map((name) => [name, subjectOf(name)])));
});

function subjectOf(name: string): PluginUnderTest {
  const { run: _, ...trial } = README_CHECKS[name] ?? assert.fail(name);
  return { use: `./${name}.ts`, folder, ...trial };
}

function blocks(language: string): readonly string[] {
  const pattern = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms");
  return [...README.matchAll(pattern)].map(([, text = ""]) => text);
}

/** The arguments that the server echoed. */
function echoedArguments(result: Json["result"]): unknown {
  return (result?.["echo"] as { arguments?: unknown } | undefined)?.arguments;
}
