import assert from "node:assert/strict";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { checkManifest, scriptOf } from "../../src/operations/check.ts";
import type { CheckDocument } from "../../src/operations/documents.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";
import { type Manifest, toToml } from "../harness/manifest.ts";

const PATH = process.env["PATH"] ?? "";

/** Checks a manifest in a folder of its own. */
async function check(
  folder: ManifestFolder,
  manifest: Manifest | string,
  env: Readonly<Record<string, string>> = {},
  name = "toolmux.toml",
): Promise<CheckDocument> {
  const text = typeof manifest === "string" ? manifest : toToml(manifest);
  const file = await folder.write(name, text);
  const context = contextOf({ HOME: folder.home, PATH, ...env }, folder.root, process.platform);
  return (await checkManifest({ config: [file] }, context)).document;
}

describe("the script that a command runs", () => {
  const CASES: readonly (readonly [line: string, script: string | undefined])[] = [
    ["node /x/y.js", "/x/y.js"],
    ["/usr/bin/node --enable-source-maps --max-old-space-size=100 /x/y.js -r z", "/x/y.js"],
    ["node -r /x/hook.js /x/y.js", undefined],
    ["node --import /x/hook.js /x/y.js", undefined],
    ["node y.js", undefined],
    ["bun /x/y.ts", "/x/y.ts"],
    ["bun run /x/y.ts", "/x/y.ts"],
    ["bun x /x/y.ts", undefined],
    ["deno run -A --allow-net=a /x/y.ts", "/x/y.ts"],
    ["deno run --config /x/deno.json /x/y.ts", undefined],
    ["deno task /x", undefined],
    ["python3 -u /x/y.py", "/x/y.py"],
    ["python3.12 -m /x/y.py", undefined],
    ["python -c /x/y.py", undefined],
    ["ruby -w /x/y.rb", "/x/y.rb"],
    ["ruby -r /x/z.rb /x/y.rb", undefined],
    ["bash -e /x/y.sh", "/x/y.sh"],
    ["sh -c /x/y.sh", undefined],
    ["bash -o /x/opt /x/y.sh", undefined],
    ["docker run -v /x:/x image /x/y", undefined],
    ["ssh host /x/y", undefined],
    ["npx /x/y", undefined],
    ["uvx /x/y", undefined],
  ];
  for (const [line, script] of CASES)
    it(`is ${script ?? "not known"} for ${line}`, () => {
      const [command = "", ...args] = line.split(" ");
      assert.equal(scriptOf(command, args), script);
    });
});

describe("a check", () => {
  itIn("tells that other users can change the manifest", async (folder) => {
    const file = await folder.write("toolmux.toml", '[servers.a]\ncommand = "true"\n');
    const notes = async (mode: number): Promise<number> => {
      await chmod(file, mode);
      const context = contextOf({ HOME: folder.home, PATH }, folder.root, process.platform);
      const { document } = await checkManifest({ config: [file] }, context);
      return document.notes.filter((note) => note.includes("other users")).length;
    };
    assert.deepEqual([await notes(0o600), await notes(0o666)], [0, 1]);
  });

  itIn(
    "finds a script as its runtime does: a folder, or a file without its ending",
    async (folder) => {
      const at = (path: string): string => join(folder.root, path);
      await folder.write("app/index.js", "");
      const make = (command: string, path: string) => ({ command, args: [at(path)] });
      const { servers } = await check(folder, {
        servers: {
          folder: make("node", "app"),
          ending: make("node", "app/index"),
          file: make("node", "app/index.js"),
          none: make("node", "app/other"),
          shell: make("sh", "app"),
          shellEnding: make("sh", "app/index"),
        },
      });
      assert.deepEqual(
        servers.filter(({ starts }) => starts).map(({ name }) => name),
        ["folder", "ending", "file"],
      );
    },
  );

  itIn("counts a server as starting only if its process could start", async (folder) => {
    const { ok, servers } = await check(folder, {
      servers: {
        good: { command: "true" },
        unset: { command: "true", env: { A: "${env:NOT_SET_HERE}" } },
        absent: { command: "no-such-mcp-server" },
        line: { command: "npx -y foo" },
        path: { command: "./no-such-file" },
        folder: { command: "true", cwd: "no-such-folder" },
        denied: { command: "./toolmux.toml" },
        ftp: { url: "ftp://example.com/" },
        off: { command: "true", enabled: false },
      },
    });
    assert.equal(ok, true);
    assert.deepEqual(
      servers.map(({ name, state, starts }) => `${name} ${state} ${starts}`),
      [
        "good starts true",
        "unset incomplete false",
        "absent fails false",
        "line fails false",
        "path fails false",
        "folder fails false",
        "denied fails false",
        "ftp incomplete false",
        "off disabled false",
      ],
    );
    assert.ok(!JSON.stringify(servers).includes(PATH), "PATH is shown");
  });

  itIn(
    "takes a program as installed if only a plugin or a command knows its name",
    async (folder) => {
      const { servers } = await check(
        folder,
        '[secrets]\ncommands = true\n[servers.a]\ncommand = "${cmd:echo true}"\n' +
          '[servers.b]\ncommand = "true"\ncwd = "${cmd:pwd}"\n',
      );
      assert.ok(servers.length === 2 && servers.every(({ starts }) => starts));
    },
  );

  itIn("shows the command of the first runner of a package that is installed", async (folder) => {
    const bin = join(folder.root, "bin");
    await mkdir(bin);
    await writeFile(join(bin, "bunx"), "#!/bin/sh\n", { mode: 0o755 });
    const find = async (path: string) =>
      (await check(folder, '[servers.a]\npackage = "npm:foo"\n', { PATH: path })).servers[0];
    const found = await find(bin);
    assert.deepEqual([found?.starts, found?.text], [true, "npm:foo, by bunx foo"]);
    assert.equal((await find(folder.root))?.starts, false);
  });

  itIn("takes a command for the path of a program with a space in it", async (folder) => {
    const file = await folder.write("my server", "#!/bin/sh\n");
    const stateOf = async () =>
      (await check(folder, { servers: { a: { command: "./my server" } } })).servers[0]?.state;
    assert.equal(await stateOf(), "fails");
    await chmod(file, 0o755);
    assert.equal(await stateOf(), "starts");
  });

  itIn("says where each secret is, and what uses it", async (folder) => {
    const { secrets } = await check(
      folder,
      {
        servers: {
          a: { command: "true", env: { A: "${secret:one}", B: "${secret:two}" } },
          b: { command: "true", env: { A: "${secret:one}" } },
        },
      },
      { one: "x" },
    );
    assert.deepEqual(secrets, [
      { name: "one", place: "environment", servers: ["a", "b"], models: [] },
      { name: "two", place: null, servers: ["a"], models: [] },
    ]);
  });
});

describe("the check of plugins", () => {
  const use = (name: string, more = "") => `[[plugins]]\nuse = "${name}"\n${more}`;
  /** Fails the check that loads it. */
  const writePlugin = (folder: ManifestFolder, path: string) =>
    folder.write(path, 'throw new Error("A check loads no plugin.");');

  itIn("says which code would be loaded for them, and loads none of it", async (folder) => {
    const own = await writePlugin(folder, "own.mjs");
    const wide = await writePlugin(folder, "node_modules/@me/wide/index.mjs");
    const about = { name: "@me/wide", version: "1.0.0", type: "module", main: "index.mjs" };
    await folder.write("node_modules/@me/wide/package.json", JSON.stringify(about));
    const audit = use("audit-log", 'options = { file = "calls.jsonl" }\n');
    const { ok, plugins } = await check(folder, audit + use("./own.mjs") + use("@me/wide"));
    assert.equal(ok, true);
    assert.deepEqual(plugins, [
      { use: "audit-log", path: null, kind: "builtIn" },
      { use: "./own.mjs", path: own, kind: "file" },
      { use: "@me/wide", path: wide, kind: "package" },
    ]);
  });

  itIn("finds wrong options of those that are built in, and of no others", async (folder) => {
    await writePlugin(folder, "own.mjs");
    const manifest = use("audit-log", "options.fle = 1\n") + use("./own.mjs", "options.any = 1\n");
    const { ok, problems, plugins } = await check(folder, manifest);
    assert.deepEqual([ok, plugins], [false, []]);
    assert.deepEqual(
      problems.map(({ line, path }) => [line, path]),
      [[3, "plugins[0].options.fle"]],
    );
  });

  itIn("takes what plugins fill in as given", async (folder) => {
    await writePlugin(folder, "own.mjs");
    const { servers } = await check(
      folder,
      `${use("./own.mjs")}[servers.a]\ncommand = "true"\nargs = ["\${vault:db/pw}"]\n[servers.b]\nplugin = "own"\n`,
    );
    assert.deepEqual(
      servers.map(({ name, state, text }) => [name, state, text]),
      [
        ["a", "starts", "true ${vault:db/pw}"],
        ["b", "starts", "plugin own"],
      ],
    );
  });
});

describe("the note about a shell variable such as $HOME in a manifest", () => {
  const env = { FROM_SHELL: "x" };

  itIn("is one for each server, with the spelling that is replaced", async (folder) => {
    const servers = {
      a: { command: "$HOME/bin/foo", args: ["$HOME/x", "$FROM_SHELL"], env: { A: "$NOT_SET" } },
      b: { url: "https://example.com/$HOME", headers: { A: "x" } },
      off: { command: "$HOME/x", enabled: false },
    };
    const { notes } = await check(folder, { servers }, env);
    const found = notes.map((note) => note.match(/server "\w+"|\$\{env:\w+\}/g));
    const a = ['server "a"', "${env:HOME}", "${env:FROM_SHELL}", "${env:NOT_SET}"];
    assert.deepEqual(found, [a, ['server "b"', "${env:HOME}"]]);
  });

  itIn("is there for a client's file, too", async (folder) => {
    const file = '{"mcpServers": {"a": {"command": "x", "args": ["$HOME"]}}}';
    const { notes } = await check(folder, file, env, "mcp.json");
    assert.match(notes.join("\n"), /\$\{env:HOME\}/);
  });

  itIn("is not about a shell's script, a placeholder or a password", async (folder) => {
    const servers = {
      a: { command: "sh", args: ["-c", "echo $HOME"] },
      b: { command: "x", args: ["${env:HOME}", "$${HOME}", "$$HOME"] },
      c: { command: "x", env: { P: "Secret$WORD", Q: "$home" } },
    };
    assert.deepEqual((await check(folder, { servers }, env)).notes, []);
  });
});
