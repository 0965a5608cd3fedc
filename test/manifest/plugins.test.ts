import assert from "node:assert/strict";
import { mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { stateFolder } from "../../src/base/paths.ts";
import { addPositionsLater } from "../../src/manifest/positions.ts";
import { formatPath, formatProblem } from "../../src/manifest/problems.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import {
  findProblems,
  loadText,
  plainCopy,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";

const use = (name: string, more = "") => `[[plugins]]\nuse = "${name}"\n${more}`;

function namesOf({ plugins }: Manifest): readonly string[] {
  return plugins.map((plugin) => plugin.use);
}

describe("the plugins of a manifest", () => {
  it("are there with all that is said of them, the same in TOML and JSON", () =>
    withManifestFolder(async (folder) => {
      await folder.write("conf/own.ts", "");
      const toml = await folder.write(
        "conf/a.toml",
        `[[plugins]]\nuse = "audit-log"\nservers = ["a", "b*"]\ntools = ["read_*"]\n[plugins.options]\nfile = "x"\nnested = { n = [1, "2"] }\n${use("./own.ts")}`,
      );
      const json = await folder.write(
        "conf/a.json",
        `{"plugins": [
          {"use": "audit-log", "servers": ["a", "b*"], "tools": ["read_*"], "options": {"file": "x", "nested": {"n": [1, "2"]}}},
          {"use": "./own.ts"}]}`,
      );
      for (const file of [toml, json]) {
        const { manifest } = await folder.loadValid({ files: [file] });
        const baseDir = `${folder.root}/conf`;
        assert.deepEqual(plainCopy(manifest.plugins), [
          {
            use: "audit-log",
            options: { file: "x", nested: { n: [1, "2"] } },
            servers: ["a", "b*"],
            tools: ["read_*"],
            baseDir,
            origin: { file, path: ["plugins", 0] },
          },
          {
            use: "./own.ts",
            path: `${baseDir}/own.ts`,
            baseDir,
            origin: { file, path: ["plugins", 1] },
          },
        ]);
        assert.equal(Object.getPrototypeOf(manifest.plugins[0]?.options ?? {}), null);
      }
    }));

  it("follow each other in the order of the files, also those of one name", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", use("one") + use("two"));
      const b = await folder.write("b.json", `{"plugins": [{"use": "three"}, {"use": "one"}]}`);
      const both = await folder.loadValid({ files: [a, b] });
      assert.deepEqual(namesOf(both.manifest), ["one", "two", "three", "one"]);
      const turned = await folder.loadValid({ files: [b, a] });
      assert.deepEqual(namesOf(turned.manifest), ["three", "one", "one", "two"]);
    }));

  it("may have servers: that there are no others is not noted", async () => {
    assert.deepEqual((await loadText(use("any"))).notes, []);
  });

  for (const [name, path] of [
    ["./x.ts", "conf/x.ts"],
    ["../x.ts", "x.ts"],
    ["./sub/../x.ts", "conf/x.ts"],
    ["~/x.ts", "home/x.ts"],
    ["x.ts", undefined],
    ["sub/x.ts", undefined],
    ["@me/x", undefined],
    [".x", undefined],
    ["...", undefined],
    ["~x", undefined],
    ["file:///x.ts", undefined],
  ] as const) {
    it(`with use = "${name}" are ${path === undefined ? "named" : `the file ${path}`}`, () =>
      withManifestFolder(async (folder) => {
        for (const file of ["conf/x.ts", "conf/sub/x.ts", "x.ts", "home/x.ts"])
          await folder.write(file, "");
        const file = await folder.write("conf/a.toml", use(name));
        const { manifest } = await folder.loadValid({ files: [file] });
        const [plugin] = manifest.plugins;
        assert.equal(plugin?.use, name);
        assert.equal(plugin.path, path && join(folder.root, path));
      }));
  }

  it("may be an absolute path, and a link to a file", () =>
    withManifestFolder(async (folder) => {
      const target = await folder.write("real.ts", "");
      const link = join(folder.root, "link.ts");
      await symlink(target, link);
      const file = await folder.write("conf/a.toml", use(link));
      const { manifest } = await folder.loadValid({ files: [file] });
      assert.equal(manifest.plugins[0]?.path, link);
    }));

  it("with a file that is not there, or is no file, are a problem at its place", () =>
    withManifestFolder(async (folder) => {
      await mkdir(join(folder.root, "folder"));
      await symlink("nowhere", join(folder.root, "dangling"));
      const text = ["./none.ts", "./folder", "/dev/zero", "./dangling", "./none.ts"];
      const file = await folder.write("a.toml", text.map((name) => use(name, "")).join("\n"));
      assert.deepEqual(await folder.loadProblems({ files: [file] }), [
        "a.toml:2:7: plugins[0].use: none.ts does not exist",
        "a.toml:5:7: plugins[1].use: folder is a folder, not a file",
        "a.toml:8:7: plugins[2].use: /dev/zero is not a regular file",
        "a.toml:11:7: plugins[3].use: dangling does not exist",
        "a.toml:14:7: plugins[4].use: none.ts does not exist",
      ]);
      const json = await folder.write("a.json", `{"plugins": [\n  {"use": "./none.ts"}]}`);
      assert.deepEqual(await folder.loadProblems({ files: [json] }), [
        "a.json:2:11: plugins[0].use: none.ts does not exist",
      ]);
    }));

  it("with a file that is not there have that told beside other problems", async () => {
    const text = `[hub]\nnmae = "x"\n${use("./none.ts")}[servers.a]\n`;
    const problems = await findProblems(text);
    assert.deepEqual(problems, [
      `t.toml:2:1: hub.nmae: unknown key; did you mean "name"?`,
      "t.toml:4:7: plugins[0].use: none.ts does not exist",
      "t.toml:5:10: servers.a.command: is missing",
    ]);
  });

  for (const name of ["c.json", ".mcp.json", "mcp.json"]) {
    it(`are not taken from a client's file, which is noted: ${name}`, async () => {
      const text = `{"mcpServers": {"a": {"command": "x", "plugin": "p"}}, "plugins": [{"use": "./x.ts"}]}`;
      const { manifest, notes } = await loadText(text, name);
      assert.deepEqual(manifest.plugins, []);
      assert.deepEqual(notes, [
        `${name}: toolmux does not know these keys and ignores them: plugins, plugin`,
      ]);
    });
  }

  for (const text of [
    `{"plugins": [{"use": "x"}]}`,
    `{"servers": {"a": {"command": "x"}}, "plugins": [{"use": "x"}]}`,
  ]) {
    it(`cannot come from TOOLMUX_SERVERS: ${text}`, () =>
      withManifestFolder(async (folder) => {
        const problems = await folder.loadProblems({ env: { TOOLMUX_SERVERS: text } });
        assert.match(problems.join("\n"), /: plugins: expected a table, found an array$/m);
      }));
  }
});

describe("a manifest of the working directory", () => {
  for (const name of ["toolmux.toml", "toolmux.json"]) {
    it(`gives no plugin unless it is trusted as it is: ${name}`, () =>
      withManifestFolder(async (folder) => {
        const text = name.endsWith("toml") ? use("./x.ts") : `{"plugins": [{"use": "./x.ts"}]}`;
        const script = await folder.write("work/x.ts", "");
        const file = await folder.write(`work/${name}`, text);
        await folder.write("home/.config/toolmux/toolmux.toml", use("mine"));
        const load = async () => {
          const { manifest } = await folder.loadValid();
          const result = await folder.load();
          return { names: namesOf(manifest), files: result.pluginFiles };
        };
        const without = { names: ["mine"], files: [] };
        assert.deepEqual(await load(), without);
        await folder.trust(file, stateFolder({ HOME: folder.home }, "linux"));
        assert.deepEqual(await load(), { names: ["mine", "./x.ts"], files: [script] });
        await writeFile(file, `${text} `);
        assert.deepEqual(await load(), without);
      }));
  }

  it("that is not trusted does not even have its plugins' files looked at", () =>
    withManifestFolder(async (folder) => {
      await folder.write("work/toolmux.toml", use("./none.ts"));
      await folder.write("home/.config/toolmux/toolmux.toml", "");
      await folder.loadValid();
    }));
});

describe("a server of a plugin", () => {
  it("has all settings that are not about a process", async () => {
    const { manifest } = await loadText(
      `defaults.callTimeout = "5s"\n[servers.n]\nplugin = "notes"\nenabled = false\nprefix = "p"\nisolation = "perClient"\nlazy = true\nidleStop = 1\ntools.deny = ["x"]\n[[plugins]]\nuse = "notes"`,
    );
    const [server] = manifest.servers;
    assert.deepEqual(plainCopy(server), {
      ...(plainCopy(manifest.defaults) as object),
      kind: "plugin",
      name: "n",
      plugin: "notes",
      origin: { file: manifest.sources[0], path: ["servers", "n"] },
      set: 0,
      enabled: false,
      prefix: "p",
      isolation: "perClient",
      era: "auto",
      lazy: true,
      callTimeout: 5000,
      idleStop: 1,
      tools: { deny: ["x"], rename: {}, timeout: {} },
      prompts: { deny: [], rename: {} },
    });
  });

  it("keeps to the rules between servers as any other does", async () => {
    const text = `[servers.a]\ncommand = "x"\n[servers.b]\nplugin = "p"\nprefix = "a"\n[servers.c__d]\nplugin = "p"\n[servers.e]\nplugin = "p"\nmaxCallTimeout = 1\n[[plugins]]\nuse = "p"`;
    const problems = await findProblems(text);
    assert.match(
      problems[0] ?? "",
      /^t\.toml:5:10: servers\.b\.prefix: .*have the same prefix "a"/,
    );
    assert.match(problems[1] ?? "", /^t\.toml:6:10: servers\.c__d: .*prefix = "c_d"$/);
    assert.match(problems[2] ?? "", /^t\.toml:10:18: servers\.e\.maxCallTimeout: callTimeout/);
    assert.equal(problems.length, 3);
  });

  it("is wrong where no plugin is named, but not if another file makes something else of it", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", `[servers.a]\nplugin = "p"`);
      const b = await folder.write("b.toml", `[servers.a]\ncommand = "x"`);
      const alone = await folder.load({ files: [b, a] });
      assert.deepEqual(alone.problems.map(formatProblem), [
        `${a}:2:10: servers.a.plugin: there is no plugin "p": [[plugins]] names none`,
      ]);
      await folder.loadValid({ files: [a, b] });
    }));

  it("takes the place of a process of that name, and the other way round", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", `[servers.a]\ncommand = "x"`);
      const b = await folder.write("b.toml", `[servers.a]\nplugin = "p"\n[[plugins]]\nuse = "p"`);
      const kinds = async (files: string[]) =>
        (await folder.loadValid({ files })).manifest.servers.map(({ kind }) => kind);
      assert.deepEqual(await kinds([a, b]), ["plugin"]);
      assert.deepEqual(await kinds([b, a]), ["stdio"]);
    }));

  it("may come from TOOLMUX_SERVERS, bare and under servers, and may be called servers", () =>
    withManifestFolder(async (folder) => {
      for (const [text, name] of [
        [`{"a": {"plugin": "p"}}`, "a"],
        [`{"servers": {"a": {"plugin": "p"}}}`, "a"],
        [`{"servers": {"plugin": "p"}}`, "servers"],
        [`{"servers": {"plugin": {"plugin": "p"}}}`, "plugin"],
      ] as const) {
        const file = await folder.write("p.toml", '[[plugins]]\nuse = "p"');
        const env = { TOOLMUX_SERVERS: text };
        const { manifest } = await folder.loadValid({ files: [file], env });
        assert.deepEqual(
          manifest.servers.map((server) => [server.name, server.kind]),
          [[name, "plugin"]],
        );
        const bare = await folder.load({ env });
        assert.match(bare.problems.map(formatProblem).join(), /: there is no plugin "p"/);
      }
    }));

  it("cannot stand in a client's file", async () => {
    const { manifest, notes } = await loadText(`{"mcpServers": {"a": {"plugin": "p"}}}`, "a.json");
    assert.equal(manifest.servers[0]?.kind, "unsupported");
    assert.deepEqual(notes, [
      `a.json: server "a" is ignored: it has neither a command nor a url`,
      "a.json: toolmux does not know these keys and ignores them: plugin",
    ]);
  });
});

describe("a form that only a plugin can fill in", () => {
  const server = `[servers.a]\ncommand = "x"\nargs = ["\${vault:db/pw}"]\n`;
  const fault =
    "t.toml:3:9: servers.a.args[0]: found the unknown placeholder ${vault:…}; known placeholders: ${env:NAME}, ${file:PATH}, ${secret:NAME} and ${cmd:COMMAND}";

  it("is wrong if there is no plugin", async () => {
    assert.deepEqual(await findProblems(server), [fault]);
    assert.deepEqual(await findProblems(`plugins = []\n${server}`), [fault.replace(":3:", ":4:")]);
  });

  it("is left for later if there is one, in whichever file", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", server);
      const b = await folder.write("b.toml", use("any"));
      await folder.loadValid({ files: [a, b] });
      await folder.loadValid({ files: [b, a] });
    }));

  it("is not judged while what is said of plugins is wrong", async () => {
    assert.deepEqual(await findProblems(`[[plugins]]\n${server}`), [
      "t.toml:1:3: plugins[0].use: is missing",
    ]);
  });

  for (const form of ["secret:", "Vault:x", "input:x", "1a:x", "a_b:x", "x y:z"]) {
    it(`is none with a plugin either: \${${form}}`, async () => {
      const text = `${use("any")}[servers.a]\ncommand = "x"\ncwd = "\${${form}}"`;
      assert.equal((await findProblems(text)).length, 1);
    });
  }
});

describe("the edition of plugins", () => {
  /** Loads before and after `change`: which editions are others. */
  const compare = (before: string, after: string, change?: string) =>
    withManifestFolder(async (folder) => {
      await folder.write("x.ts", "one");
      await folder.write("y.ts", "one");
      const file = await folder.write("a.toml", before);
      const first = await folder.load({ files: [file] });
      assert.equal(
        (await folder.load({ files: [file] })).pluginFingerprint,
        first.pluginFingerprint,
      );
      await writeFile(file, after);
      if (change === "") await rm(join(folder.root, "x.ts"));
      else if (change !== undefined) await folder.write("x.ts", change);
      const second = await folder.load({ files: [file] });
      return [
        first.pluginFingerprint !== second.pluginFingerprint,
        first.fingerprint !== second.fingerprint,
      ];
    });

  const full = use("./x.ts", `options = { a = 1, b = { c = "x", d = [1, 2] } }\nservers = ["s"]\n`);

  for (const [what, before, after, change] of [
    ["another plugin", use("a"), use("b")],
    ["one more plugin", use("a"), use("a") + use("b")],
    ["another order", use("a") + use("b"), use("b") + use("a")],
    ["another file of the same content", use("./x.ts"), use("./y.ts")],
    ["another option", full, full.replace('"x"', '"y"')],
    ["an option of another type", full, full.replace("a = 1", 'a = "1"')],
    [
      "a date in the place of its text",
      use("a", 'options.d = "2020-01-01"'),
      use("a", "options.d = 2020-01-01"),
    ],
    ["other items in an array", full, full.replace("[1, 2]", "[2, 1]")],
    ["other servers", full, full.replace('"s"', '"t"')],
    ["no servers named", full, full.replace('servers = ["s"]', "")],
    ["other tools", full, `${full}tools = ["x"]`],
    ["other code", full, full, "two"],
    ["empty code", full, full, " "],
    ["no file any more", full, full, ""],
  ] as const) {
    it(`is another with ${what}, and so is that of the whole`, async () => {
      assert.deepEqual(await compare(before, after, change), [true, true]);
    });
  }

  for (const [what, after] of [
    ["a comment", `# new\n${full}`],
    ["another server", `${full}[servers.s]\ncommand = "x"`],
    [
      "options in another order",
      full.replace('a = 1, b = { c = "x", d = [1, 2] }', 'b = { d = [1, 2], c = "x" }, a = 1'),
    ],
  ] as const) {
    it(`is the same with ${what}, though that of the whole is another`, async () => {
      assert.deepEqual(await compare(full, after), [false, true]);
    });
  }

  it("knows the files of plugins though there are problems, and tells an empty one", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("a.toml", `${use("./x.ts")}[servers.a]\n`);
      const path = join(folder.root, "x.ts");
      for (const [content, blank] of [
        [undefined, false],
        ["x", false],
        ["", true],
      ] as const) {
        if (content !== undefined) await writeFile(path, content);
        const result = await folder.load({ files: [file] });
        assert.ok(result.problems.length > 0);
        assert.deepEqual([result.pluginFiles, result.hasEmptyFile], [[path], blank]);
      }
    }));
});

describe("a complaint that comes up later", () => {
  const complaints = [
    { path: ["plugins", 1, "options", "b"], at: "value", message: "is wrong" },
    { path: ["plugins", 0, "options", "a"], at: "key", message: "unknown key" },
    { path: ["plugins", 1, "options", "gone", "deep"], at: "value", message: "is missing" },
  ] as const;

  it("gets its place in the file, or that of what is around it, and the order of the text", () =>
    withManifestFolder(async (folder) => {
      const text = `${use("x", "options = { a = 1 }\n")}${use("y", "[plugins.options]\nb = 2")}`;
      const file = await folder.write("a.toml", text);
      const problems = await addPositionsLater(
        complaints.map((complaint) => ({ file, ...complaint })),
      );
      assert.deepEqual(
        problems.map((problem) => folder.shorten(formatProblem(problem))),
        [
          "a.toml:3:13: plugins[0].options.a: unknown key",
          "a.toml:6:10: plugins[1].options.gone.deep: is missing",
          "a.toml:7:5: plugins[1].options.b: is wrong",
        ],
      );
    }));

  it("has none if the file cannot be read any more", () =>
    withManifestFolder(async (folder) => {
      const broken = await folder.write("b.toml", "[");
      for (const file of [broken, join(folder.root, "none.toml")]) {
        const problems = await addPositionsLater(
          complaints.map((complaint) => ({ file, ...complaint })),
        );
        assert.deepEqual(
          problems.map(({ position, path }) => [position, formatPath(path)]),
          [
            [undefined, "plugins[1].options.b"],
            [undefined, "plugins[0].options.a"],
            [undefined, "plugins[1].options.gone.deep"],
          ],
        );
      }
    }));
});
