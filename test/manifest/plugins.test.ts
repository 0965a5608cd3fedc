import assert from "node:assert/strict";
import { mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { stateFolder } from "../../src/base/paths.ts";
import { addPositionsLater } from "../../src/manifest/syntax/positions.ts";
import { formatProblem } from "../../src/manifest/problems.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import {
  findProblems,
  loadText,
  type ManifestFolder,
  plainCopy,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";
import { itIn, loadFiles, serverTable, writeFiles } from "../harness/in-folder.ts";

const use = (name: string, more = "") => `[[plugins]]\nuse = "${name}"\n${more}`;

function namesOf({ plugins }: Manifest): readonly string[] {
  return plugins.map((plugin) => plugin.use);
}

const at = (folder: ManifestFolder, name: string): string => join(folder.root, name);

describe("the plugins of a manifest", () => {
  itIn("are there with all that is said of them, the same in TOML and JSON", async (folder) => {
    await folder.write("conf/own.ts", "");
    const options = "[plugins.options]\nfile = 'x'\nnested = { n = [1, '2'] }\n";
    const first = use("audit-log", `servers = ["a", "b*"]\ntools = ["read_*"]\n${options}`);
    const toml = await folder.write("conf/a.toml", first + use("./own.ts"));
    const said = {
      use: "audit-log",
      servers: ["a", "b*"],
      tools: ["read_*"],
      options: { file: "x", nested: { n: [1, "2"] } },
    };
    const plugins = JSON.stringify({ plugins: [said, { use: "./own.ts" }] });
    const json = await folder.write("conf/a.json", plugins);
    const baseDir = `${folder.root}/conf`;
    for (const file of [toml, json]) {
      const { manifest } = await folder.loadValid({ files: [file] });
      const [origin, other] = [0, 1].map((n) => ({ file, path: ["plugins", n] }));
      const path = `${baseDir}/own.ts`;
      const own = { use: "./own.ts", path, baseDir, origin: other };
      assert.deepEqual(plainCopy(manifest.plugins), [{ ...said, baseDir, origin }, own]);
      assert.equal(Object.getPrototypeOf(manifest.plugins[0]?.options ?? {}), null);
    }
  });

  itIn("follow each other in the order of the files, also those of one name", async (folder) => {
    const texts = [use("one") + use("two"), `{"plugins": [{"use": "three"}, {"use": "one"}]}`];
    const files = await writeFiles(folder, ...texts);
    const both = await folder.loadValid({ files });
    assert.deepEqual(namesOf(both.manifest), ["one", "two", "three", "one"]);
    const turned = await folder.loadValid({ files: files.toReversed() });
    assert.deepEqual(namesOf(turned.manifest), ["three", "one", "one", "two"]);
  });

  it("may have servers: that there are no others is not noted", async () => {
    assert.deepEqual((await loadText(use("any"))).notes, []);
  });

  itIn("are files where they begin like paths, and else names", async (folder) => {
    for (const file of ["conf/x.ts", "conf/sub/x.ts", "x.ts", "home/x.ts"])
      await folder.write(file, "");
    for (const [name, path] of [
      ["./x.ts", "conf/x.ts"],
      ["../x.ts", "x.ts"],
      ["./sub/../x.ts", "conf/x.ts"],
      ["~/x.ts", "home/x.ts"],
      ...["x.ts", "sub/x.ts", "@me/x", ".x", "...", "~x", "file:///x.ts"].map((each) => [each]),
    ]) {
      const file = await folder.write("conf/a.toml", use(name ?? ""));
      const [plugin] = (await folder.loadValid({ files: [file] })).manifest.plugins;
      assert.deepEqual([plugin?.use, plugin?.path], [name, path && at(folder, path)]);
    }
  });

  itIn("may be an absolute path, and a link to a file", async (folder) => {
    const link = at(folder, "link.ts");
    await symlink(await folder.write("real.ts", ""), link);
    const { plugins } = await loadFiles(folder, [use(link)]);
    assert.equal(plugins[0]?.path, link);
  });

  itIn(
    "with a file that is not there, or is no file, are a problem at its place",
    async (folder) => {
      await mkdir(at(folder, "folder"));
      await symlink("nowhere", at(folder, "dangling"));
      const uses = ["./none.ts", "./folder", "/dev/zero", "./dangling", "./none.ts"];
      const [file = ""] = await writeFiles(folder, uses.map((name) => use(name, "")).join("\n"));
      assert.deepEqual(await folder.loadProblems({ files: [file] }), [
        "a.toml:2:7: plugins[0].use: none.ts does not exist",
        "a.toml:5:7: plugins[1].use: folder is a folder, not a file",
        "a.toml:8:7: plugins[2].use: /dev/zero is not a regular file",
        "a.toml:11:7: plugins[3].use: dangling does not exist",
        "a.toml:14:7: plugins[4].use: none.ts does not exist",
      ]);
      const json = await writeFiles(folder, `{"plugins": [\n  {"use": "./none.ts"}]}`);
      assert.deepEqual(await folder.loadProblems({ files: json }), [
        "a.json:2:11: plugins[0].use: none.ts does not exist",
      ]);
    },
  );

  for (const name of ["c.json", ".mcp.json", "mcp.json"]) {
    it(`are not taken from a client's file, which is noted: ${name}`, async () => {
      const text = `{"mcpServers": {"a": {"command": "x", "plugin": "p"}}, "plugins": [{"use": "./x.ts"}]}`;
      const { manifest, notes } = await loadText(text, name);
      assert.deepEqual(manifest.plugins, []);
      const known = `${name}: toolmux does not know these keys and ignores them: plugins, plugin`;
      assert.deepEqual(notes, [known]);
    });
  }

  itIn("cannot come from TOOLMUX_SERVERS", async (folder) => {
    for (const servers of ["", `"servers": {"a": {"command": "x"}}, `]) {
      const env = { TOOLMUX_SERVERS: `{${servers}"plugins": [{"use": "x"}]}` };
      const problems = await folder.loadProblems({ env });
      assert.match(problems.join("\n"), /: plugins: expected a table, found an array$/m);
    }
  });
});

describe("a manifest of the working directory", () => {
  for (const name of ["toolmux.toml", "toolmux.json"]) {
    itIn(`gives no plugin unless it is trusted as it is: ${name}`, async (folder) => {
      const text = name.endsWith("toml") ? use("./x.ts") : `{"plugins": [{"use": "./x.ts"}]}`;
      const script = await folder.write("work/x.ts", "");
      const file = await folder.write(`work/${name}`, text);
      await folder.write("home/.config/toolmux/toolmux.toml", use("mine"));
      const load = async () => {
        const names = namesOf((await folder.loadValid()).manifest);
        return { names, files: (await folder.load()).dependentFiles };
      };
      const without = { names: ["mine"], files: [] };
      assert.deepEqual(await load(), without);
      await folder.trust(file, stateFolder({ HOME: folder.home }, "linux"));
      assert.deepEqual(await load(), { names: ["mine", "./x.ts"], files: [script] });
      await writeFile(file, `${text} `);
      assert.deepEqual(await load(), without);
    });
  }

  itIn("that is not trusted does not even have its plugins' files looked at", async (folder) => {
    await folder.write("work/toolmux.toml", use("./none.ts"));
    await folder.write("home/.config/toolmux/toolmux.toml", "");
    await folder.loadValid();
  });
});

describe("a server of a plugin", () => {
  it("has all settings that are not about a process", async () => {
    const common = 'enabled = false\nprefix = "p"\nisolation = "perClient"\nlazy = true\n';
    const { manifest } = await loadText(
      `defaults.callTimeout = "5s"\n[servers.n]\nplugin = "notes"\n${common}idleStop = 1\ntools.deny = ["x"]\n${use("notes")}`,
    );
    const { plugins: _, ...rest } = manifest;
    assert.deepEqual(plainCopy(rest.servers), [
      {
        ...(plainCopy(rest.defaults) as object),
        kind: "plugin",
        name: "n",
        plugin: "notes",
        origin: { file: rest.sources[0], path: ["servers", "n"] },
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
      },
    ]);
  });

  it("keeps to the rules between servers as any other does", async () => {
    const of = (name: string, more = ""): string => `[servers.${name}]\nplugin = "p"\n${more}`;
    const servers = of("b", 'prefix = "a"\n') + of("c__d") + of("e", "maxCallTimeout = 1\n");
    const [b, c, e, ...others] = await findProblems(
      `[servers.a]\ncommand = "x"\n${servers}${use("p")}`,
    );
    assert.match(b ?? "", /^t\.toml:5:10: servers\.b\.prefix: .*have the same prefix "a"/);
    assert.match(c ?? "", /^t\.toml:6:10: servers\.c__d: .*prefix = "c_d"$/);
    assert.match(e ?? "", /^t\.toml:10:18: servers\.e\.maxCallTimeout: callTimeout/);
    assert.deepEqual(others, []);
  });

  itIn("is wrong where no plugin is named, but not if a later file replaces it", async (folder) => {
    const files = await writeFiles(folder, `[servers.a]\nplugin = "p"`, serverTable("a"));
    assert.deepEqual(await folder.loadProblems({ files: files.toReversed() }), [
      'a.toml:2:10: servers.a.plugin: there is no plugin "p": [[plugins]] names none',
    ]);
    await folder.loadValid({ files });
  });

  itIn("takes the place of a process of that name, and the other way round", async (folder) => {
    const plugin = `[servers.a]\nplugin = "p"\n[[plugins]]\nuse = "p"`;
    const files = await writeFiles(folder, serverTable("a"), plugin);
    for (const [order, kind] of [
      [files, "plugin"],
      [files.toReversed(), "stdio"],
    ] as const) {
      const { servers } = (await folder.loadValid({ files: order })).manifest;
      assert.equal(servers.map((server) => server.kind).join(), kind);
    }
  });

  itIn(
    "may come from TOOLMUX_SERVERS, bare and under servers, and be called that",
    async (folder) => {
      for (const [text, name] of [
        [`{"a": {"plugin": "p"}}`, "a"],
        [`{"servers": {"a": {"plugin": "p"}}}`, "a"],
        [`{"servers": {"plugin": "p"}}`, "servers"],
        [`{"servers": {"plugin": {"plugin": "p"}}}`, "plugin"],
      ] as const) {
        const env = { TOOLMUX_SERVERS: text };
        const { servers } = await loadFiles(folder, [use("p")], { env });
        assert.equal(
          servers.map((server) => `${server.name} ${server.kind}`).join(),
          `${name} plugin`,
        );
        const bare = await folder.loadProblems({ env });
        assert.match(bare.join(), /: there is no plugin "p"/);
      }
    },
  );

  it("cannot stand in a client's file", async () => {
    const { manifest, notes } = await loadText(`{"mcpServers": {"a": {"plugin": "p"}}}`, "a.json");
    assert.equal(manifest.servers[0]?.kind, "unsupported");
    assert.deepEqual(notes, [
      `a.json:1:17: server "a" is ignored: it has neither a command nor a url`,
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

  itIn("is left for later if there is one, in whichever file", async (folder) => {
    const files = await writeFiles(folder, server, use("any"));
    await folder.loadValid({ files });
    await folder.loadValid({ files: files.toReversed() });
  });

  it("is not judged while what is said of plugins is wrong", async () => {
    assert.deepEqual(await findProblems(`[[plugins]]\n${server}`), [
      "t.toml:1:3: plugins[0].use: is missing",
    ]);
  });

  it("is none with a plugin either if it is no name", async () => {
    for (const form of ["secret:", "Vault:x", "input:x", "1a:x", "a_b:x", "x y:z"]) {
      const text = `${use("any")}[servers.a]\ncommand = "x"\ncwd = "\${${form}}"`;
      assert.equal((await findProblems(text)).length, 1, form);
    }
  });
});

describe("the edition of plugins", () => {
  /** Loads before and after `change`: which editions are others. */
  const compare = (before: string, after: string, change?: string) =>
    withManifestFolder(async (folder) => {
      await folder.write("x.ts", "one");
      await folder.write("y.ts", "one");
      const files = await writeFiles(folder, before);
      const first = await folder.load({ files });
      assert.equal((await folder.load({ files })).pluginFingerprint, first.pluginFingerprint);
      await writeFiles(folder, after);
      if (change === "") await rm(at(folder, "x.ts"));
      else if (change !== undefined) await folder.write("x.ts", change);
      const second = await folder.load({ files });
      const isOther = (key: "pluginFingerprint" | "fingerprint") => first[key] !== second[key];
      return [isOther("pluginFingerprint"), isOther("fingerprint")];
    });

  const full = use("./x.ts", `options = { a = 1, b = { c = "x", d = [1, 2] } }\nservers = ["s"]\n`);

  const date = use("a", "options.d = 2020-01-01");
  for (const [what, before, after, change] of [
    ["another plugin", use("a"), use("b")],
    ["one more plugin", use("a"), use("a") + use("b")],
    ["another order", use("a") + use("b"), use("b") + use("a")],
    ["another file of the same content", use("./x.ts"), use("./y.ts")],
    ["another option", full, full.replace('"x"', '"y"')],
    ["an option of another type", full, full.replace("a = 1", 'a = "1"')],
    ["a date in the place of its text", date.replace("2020-01-01", '"2020-01-01"'), date],
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

  const [options, turned] = [
    'a = 1, b = { c = "x", d = [1, 2] }',
    'b = { d = [1, 2], c = "x" }, a = 1',
  ] as const;
  for (const [what, after] of [
    ["a comment", `# new\n${full}`],
    ["another server", full + serverTable("s")],
    ["options in another order", full.replace(options, turned)],
  ] as const) {
    it(`is the same with ${what}, though that of the whole is another`, async () => {
      assert.deepEqual(await compare(full, after), [false, true]);
    });
  }

  itIn("knows the files of plugins though there are problems, and an empty one", async (folder) => {
    const files = await writeFiles(folder, `${use("./x.ts")}[servers.a]\n`);
    const path = at(folder, "x.ts");
    for (const [content, isBlank] of [
      [undefined, false],
      ["x", false],
      ["", true],
    ] as const) {
      if (content !== undefined) await writeFile(path, content);
      const result = await folder.load({ files });
      assert.ok(result.problems.length > 0);
      assert.deepEqual([result.dependentFiles, result.hasEmptyFile], [[path], isBlank]);
    }
  });
});

describe("a complaint that comes up later", () => {
  const complaintsOf = (file: string) =>
    (
      [
        { path: ["plugins", 1, "options", "b"], at: "value", message: "is wrong" },
        { path: ["plugins", 0, "options", "a"], at: "key", message: "unknown key" },
        { path: ["plugins", 1, "options", "gone", "deep"], at: "value", message: "is missing" },
      ] as const
    ).map((complaint) => ({ file, ...complaint }));

  itIn("gets its place in the file, or that of what is around it, in order", async (folder) => {
    const text = `${use("x", "options = { a = 1 }\n")}${use("y", "[plugins.options]\nb = 2")}`;
    const [file = ""] = await writeFiles(folder, text);
    const problems = await addPositionsLater(complaintsOf(file));
    const said = problems.map((problem) => folder.shorten(formatProblem(problem)));
    assert.deepEqual(said, [
      "a.toml:3:13: plugins[0].options.a: unknown key",
      "a.toml:6:10: plugins[1].options.gone.deep: is missing",
      "a.toml:7:5: plugins[1].options.b: is wrong",
    ]);
  });

  itIn("has none if the file cannot be read any more", async (folder) => {
    const broken = await folder.write("b.toml", "[");
    for (const file of [broken, at(folder, "none.toml")]) {
      const complaints = complaintsOf(file);
      const problems = await addPositionsLater(complaints);
      assert.deepEqual(
        problems.map(({ position, path }) => [position, path]),
        complaints.map(({ path }) => [undefined, path]),
      );
    }
  });
});
