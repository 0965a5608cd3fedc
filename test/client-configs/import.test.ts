import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { type ClientApp, clientFoldersOf, CLIENTS } from "../../src/client-configs/clients.ts";
import { planImport, type SecretReader } from "../../src/client-configs/import-plan.ts";
import { prepareInstall, prepareUndo } from "../../src/client-configs/install.ts";
import { listServerTables, readClientFiles } from "../../src/client-configs/read.ts";
import { findOwnExecutable } from "../../src/manifest/files/client-entry.ts";
import { PROJECT_FILES } from "../../src/manifest/files/client-file.ts";
import { prepareEdit } from "../../src/manifest/edit/write.ts";
import { readConfigFile } from "../../src/manifest/files/read-file.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import { isTable } from "../../src/manifest/table.ts";
import { getServer, type ManifestFolder, plainCopy } from "../fixtures/manifest/manifest-folder.ts";
import { itIn } from "../harness/in-folder.ts";

function clientOf(name: string): ClientApp {
  const client = CLIENTS.find((one) => one.name === name);
  assert.ok(client);
  return client;
}

const cursor = clientOf("cursor");

interface PlanOptions {
  readonly client?: ClientApp;
  readonly manifest?: Manifest | undefined;
  /** Whether the file is that of the project `work`, else that of the user. */
  readonly isProject?: boolean;
  readonly readSecret?: SecretReader;
}

/** Writes the servers into a client's file, and plans their import. */
async function plan(folder: ManifestFolder, servers: unknown, options: PlanOptions = {}) {
  const { client = cursor, manifest, isProject = false, readSecret } = options;
  const home = clientFoldersOf({ HOME: folder.home }, "linux");
  const project = isProject ? folder.cwd : undefined;
  const [table] = listServerTables(client, home, project);
  assert.ok(table);
  const root = table.keys.reduceRight<unknown>((inner, key) => ({ [key]: inner }), servers);
  await mkdir(dirname(table.file), { recursive: true });
  await writeFile(table.file, JSON.stringify(root, null, 1));
  const files = await readClientFiles(client, home, project);
  const taken = { servers: manifest?.servers ?? [], separator: "__" };
  const found = await planImport(files, taken, home, false, readSecret);
  const [file] = files;
  assert.ok(file);
  return {
    file,
    planned: found.planned,
    skipped: found.skipped,
    entries: plainCopy(
      Object.fromEntries(found.planned.map(({ name, entry }) => [name, entry])),
    ) as Readonly<Record<string, Readonly<Record<string, unknown>>>>,
    left: Object.fromEntries(found.skipped.map(({ source, reason }) => [source.name, reason])),
  };
}

const GOOD = { command: "good", args: ["a"], env: { A: "1" } };

describe("a value of a client's entry", () => {
  /** What an entry becomes: the changed keys of the manifest's entry. */
  const CONVERTED: readonly (readonly [entry: object, wanted: object])[] = [
    [{ args: "-y pkg" }, { args: ["-y", "pkg"] }],
    [{ args: "server.js" }, { args: ["server.js"] }],
    [{ args: " " }, {}],
    [{ args: 8080 }, { args: ["8080"] }],
    [{ args: [1, true, "x"] }, { args: ["1", "true", "x"] }],
    [{ env: ["T=1", "U=a=b "] }, { env: { T: "1", U: "a=b " } }],
    [{ env: ["T: 1"] }, { env: { T: "1" } }],
    [{ env: "T=1" }, { env: { T: "1" } }],
    [{ env: [{ name: "T", value: 1 }] }, { env: { T: "1" } }],
    [{ env: [{ key: "T", value: "x" }] }, { env: { T: "x" } }],
    [{ env: { T: 1, U: false, V: null } }, { env: { T: "1", U: "false" } }],
    [{ environment: ["T=1"] }, { env: { T: "1" } }],
    [{ disabled: "true" }, { enabled: false }],
    [{ disabled: "False" }, {}],
    [{ disabled: 1 }, { enabled: false }],
    [{ enabled: "false" }, { enabled: false }],
    [{ enabled: "no" }, { enabled: false }],
    [{ isActive: false }, { enabled: false }],
    [{ active: "off" }, { enabled: false }],
    [{ is_enabled: 0 }, { enabled: false }],
    [{ Disabled: true }, { enabled: false }],
    [{ "dis\u200babled": true }, { enabled: false }],
    [{ disabled: false, enabled: false }, { enabled: false }],
    [{ tools: [] }, { tools: { allow: [] } }],
    [{ includeTools: [] }, { tools: { allow: [] } }],
    [{ enabled_tools: "a, b" }, { tools: { allow: ["a", "b"] } }],
    [{ tools: ["*"] }, {}],
    [{ tools: "*" }, {}],
    [{ tools: ["a", "b"], includeTools: ["b", "c"] }, { tools: { allow: ["b"] } }],
    [{ disabledTools: ["a"], excludeTools: ["b"] }, { tools: { deny: ["a", "b"] } }],
    [{ tools: { deny: ["a"] }, disabledTools: ["b"] }, { tools: { deny: ["a", "b"] } }],
    [{ env_vars: ["A", { name: "B" }] }, { inheritEnv: ["A", "B"] }],
    [{ cwd: "" }, {}],
    [Object.fromEntries(["args", "env", "cwd", "disabled", "enabled", "tools", "headers", "url", "timeout", "envFile", "name", "type"].map((key) => [key, null])), {}], // prettier-ignore
    [{ tools: { allow: null, deny: ["x"] } }, { tools: { deny: ["x"] } }],
  ];
  for (const [more, wanted] of CONVERTED) {
    itIn(`is converted where its meaning is plain: ${JSON.stringify(more)}`, async (folder) => {
      const { entries, left } = await plan(folder, { s: { command: "x", ...more } });
      assert.deepEqual([entries["s"], left], [{ command: "x", ...wanted }, {}]);
    });
  }

  const HEADERS: readonly (readonly [headers: unknown, wanted: object])[] = [
    [["Authorization: Bearer a=="], { Authorization: "Bearer a==" }],
    [["X-A=b", "X-C:d"], { "X-A": "b", "X-C": "d" }],
    ["Authorization: Bearer a b", { Authorization: "Bearer a b" }],
    [[{ name: "X-A", value: "b" }], { "X-A": "b" }],
    [{ "X-A": 1, "X-B": null }, { "X-A": "1" }],
  ];
  for (const [headers, wanted] of HEADERS) {
    itIn(`is converted in headers, too: ${JSON.stringify(headers)}`, async (folder) => {
      const { entries } = await plan(folder, { s: { url: "https://h/", headers } });
      assert.deepEqual(entries["s"]?.["headers"], wanted);
    });
  }

  const REFUSED: readonly (readonly [entry: object, place: string])[] = [
    [{ command: 5 }, "command"],
    [{ command: ["x", {}] }, "args[0]"],
    [{ args: ["x", { k: 1 }] }, "args[1]"],
    [{ args: ["x", null] }, "args[1]"],
    [{ args: { a: 1 } }, "args"],
    [{ args: 'run "a b"' }, "args"],
    [{ args: "C:\\x" }, "args"],
    [{ env: { A: ["x"] } }, "env.A"],
    [{ env: ["A"] }, "env[0]"],
    [{ env: ["A=1", "A=2"] }, "env[1]"],
    [{ env: "A=1 B=2" }, "env"],
    [{ env: 7 }, "env"],
    [{ env_vars: "A" }, "env_vars"],
    [{ cwd: ["x"] }, "cwd"],
    [{ envFile: 7 }, "envFile"],
    [{ disabled: "perhaps" }, "disabled"],
    [{ disabled: {} }, "disabled"],
    [{ enabled: [] }, "enabled"],
    [{ isActive: "" }, "isActive"],
    [{ tools: 5 }, "tools"],
    [{ tools: [5] }, "tools[0]"],
    [{ tools: "a b" }, "tools"],
    [{ tools: { search: { approval_mode: "x" } } }, "tools.search.approval_mode"],
    [{ approval: true }, "approval"],
    [{ approval: "sometimes" }, "approval"],
    [{ default_tools_approval_mode: "ask" }, "default_tools_approval_mode"],
    [{ require_approval: 5 }, "require_approval"],
    [{ require_approval: { some: ["a"] } }, "require_approval.some"],
    [{ "disabled-tools": ["a b", 5] }, "disabled-tools[1]"],
    [{ disabledTools: ["delete_[ab]"] }, "disabledTools[0]"],
    [{ tools: { exclude: 5 } }, "tools.exclude"],
    [{ tools: { include: ["a"], exclude: 5 } }, "tools.exclude"],
    [{ tools: { search: { enabled: false } } }, "tools.search.enabled"],
    [{ tools: { blocked: ["a"] } }, "tools.blocked"],
    [{ blockedTools: ["a"] }, "blockedTools"],
    [{ "Requires-Approval": "always" }, "Requires-Approval"],
    [{ confirmWrites: true }, "confirmWrites"],
    [{ tool_denylist: [] }, "tool_denylist"],
    [{ autoApproveAll: true }, "autoApproveAll"],
    [{ disabledTools: {} }, "disabledTools"],
    [{ excludeTools: [null] }, "excludeTools[0]"],
    [{ command: null, url: "https://h/", headers: "nonsense" }, "headers[0]"],
    [{ command: null, url: "https://h/", headers: 7 }, "headers"],
    [{ command: null, url: "https://h/", bearer_token_env_var: 7 }, "bearer_token_env_var"],
    [{ command: null, url: "https://h/", env_http_headers: ["A"] }, "env_http_headers"],
    [{ command: null, url: "https://h/", env_http_headers: { A: 1 } }, "env_http_headers.A"],
    [{ command: null, url: 7 }, "url"],
  ];
  for (const [more, path] of REFUSED) {
    itIn(
      `leaves out its server alone if it cannot be read: ${JSON.stringify(more)}`,
      async (folder) => {
        const servers = { before: GOOD, s: { command: "x", ...more }, after: { command: "y" } };
        const { planned, skipped } = await plan(folder, servers);
        assert.deepEqual(
          planned.map(({ name }) => name),
          ["before", "after"],
        );
        const [left] = skipped;
        assert.equal(left?.source.name, "s");
        assert.ok(left.reason.startsWith(`${path} `), left.reason);
        assert.equal(left.position?.line, 12);
        // A hub that has this file as its manifest does not start the server either.
        const file = await folder.write("m.json", JSON.stringify({ mcpServers: servers }));
        const { manifest } = await folder.loadValid({ files: [file] });
        assert.deepEqual(
          manifest.servers.map(({ kind }) => kind),
          ["stdio", "unsupported", "stdio"],
        );
      },
    );
  }

  const UNUSABLE: readonly (readonly [entry: object, reason: RegExp])[] = [
    [{ url: "x y" }, /^its url is not valid/],
    [{ url: "//host/mcp" }, /^its url is not valid/],
    [{ url: "ftp://host/" }, /^its url starts with "ftp/],
    [{ url: "https://u:p@host/" }, /^its url contains a password/],
    [{ url: "https://host/", headers: { "A b": "c" } }, /^headers\.A b is not/],
    [{ url: "https://host/", headers: { A: "b\nC: d" } }, /^headers\.A is not/],
    [{ command: "a\0b" }, /^command contains a NUL/],
    [{ command: "a", args: ["\0"] }, /^args\[0\] contains a NUL/],
    [{ command: "a", env: { B: "\0" } }, /^env\.B contains a NUL/],
  ];
  for (const [entry, reason] of UNUSABLE) {
    itIn(
      `leaves out its server alone if nothing can start with it: ${JSON.stringify(entry)}`,
      async (folder) => {
        const { entries, left } = await plan(folder, { s: entry, after: GOOD });
        assert.deepEqual(Object.keys(entries), ["after"]);
        assert.match(left["s"] ?? "", reason);
      },
    );
  }

  itIn("is not judged while a placeholder stands in it", async (folder) => {
    const { left } = await plan(folder, {
      s: { url: "${env:BASE}/mcp", headers: { Authorization: "Bearer ${env:TOKEN}" } },
    });
    assert.deepEqual(left, {});
  });

  itIn("that has no effect is told", async (folder) => {
    const { planned } = await plan(folder, {
      p: { command: "x", url: "https://h/", headers: { A: "b" }, icon: "y", other: 1, oauth: {} },
      r: { url: "https://h/", args: ["x"], oauth: { clientId: "a", other: 1 }, timeout: "soon" },
    });
    const notes = planned.map((server) => server.notes.join());
    assert.match(notes[0] ?? "", /url, headers, icon, other not taken over/);
    assert.match(notes[1] ?? "", /args, oauth\.other, timeout not taken over/);
  });

  itIn("decides between a command and a URL by the type", async (folder) => {
    const both = { command: "x", url: "https://h/" };
    const { planned } = await plan(folder, { a: both, b: { ...both, type: "http" } });
    assert.deepEqual(plainCopy(planned.map(({ entry }) => entry)), [
      { command: "x" },
      { url: "https://h/" },
    ]);
    const notes = planned.map((server) => server.notes.join());
    assert.deepEqual(notes, ["url not taken over", "command not taken over"]);
  });

  itIn("that is in the place of a table of servers is a problem of the file", async (folder) => {
    const { file, planned } = await plan(folder, ["x"]);
    assert.deepEqual([planned, file.problem?.position?.line], [[], 2]);
    assert.equal((await plan(folder, null)).file.problem, undefined);
  });
});

describe("any JSON in a client's file", () => {
  const json = fc.jsonValue({ maxDepth: 3 });
  const key = fc.constantFrom(
    ..."command args env environment env_vars cwd url serverUrl httpUrl type transport headers http_headers env_http_headers bearer_token_env_var disabled enabled isActive tools includeTools enabled_tools disabledTools excludeTools approval require_approval default_tools_approval_mode oauth auth envFile source name title description autoApprove alwaysAllow timeout startup_timeout_sec icon trust __proto__ constructor".split(
      " ",
    ),
  );
  const member = fc.dictionary(key, json, { maxKeys: 4 });
  const entry = fc.oneof(
    json,
    member,
    member.map((more) => ({ command: "x", ...more })),
    member.map((more) => ({ url: "https://h/", ...more })),
  );
  const client = fc.constantFrom(...CLIENTS.filter(({ format }) => format === "json"));

  itIn("costs no more than its own server, and what is planned can be written", async (folder) => {
    await fc.assert(
      fc.asyncProperty(client, entry, fc.string(), fc.boolean(), async (one, odd, name, last) => {
        const others = { first: GOOD, zzz: { url: "https://good.example/mcp" } };
        const named = Object.fromEntries([[name, odd]]);
        const servers = last ? { ...others, ...named } : { ...named, ...others };
        const { planned } = await plan(folder, servers, { client: one });
        const sources = planned.map(({ source }) => source.name);
        for (const good of Object.keys(others))
          if (good !== name) assert.ok(sources.includes(good));
        const change = new Map(planned.map((server) => [server.name, server.entry]));
        await prepareEdit(join(folder.root, "new.toml"), { kind: "addAll", servers: change });
        await prepareEdit(join(folder.root, "new.json"), { kind: "addAll", servers: change });
        // As the manifest, the file has the other servers, too; and nothing else reads entries less leniently.
        findOwnExecutable(odd);
        const file = await folder.write("m.json", JSON.stringify({ mcpServers: servers }));
        const loaded = await folder.load({ files: [file] });
        assert.ok(loaded.ok && loaded.problems.length === 0);
        const first = loaded.manifest.servers.find((spec) => spec.name === "first");
        if (name !== "first") assert.equal(first?.kind, "stdio");
      }),
      { numRuns: 300 },
    );
  });

  itIn(
    "in the place of the whole or of a table is read without an error of ours",
    async (folder) => {
      const home = clientFoldersOf({ HOME: folder.home }, "linux");
      await fc.assert(
        fc.asyncProperty(client, json, fc.boolean(), async (one, value, isWhole) => {
          const [table] = listServerTables(one, home, undefined);
          assert.ok(table);
          const [first = ""] = table.keys;
          const root = isWhole ? value : { [first]: value, inputs: value };
          await mkdir(dirname(table.file), { recursive: true });
          await writeFile(table.file, JSON.stringify(root));
          const files = await readClientFiles(one, home, undefined);
          await planImport(files, { servers: [], separator: "__" }, home, true);
          const prepared = await prepareInstall(one, table, one.command("/opt/toolmux", []));
          assert.ok(prepared.kind === "refused" || prepared.kind === "ready");
          await prepareUndo(one, table);
          readConfigFile(root, { file: "/x/mcp.json", baseDir: "/x" });
        }),
        { numRuns: 100 },
      );
    },
  );
});

describe("the identity of a server", () => {
  const base = { command: "x", args: ["a"] };
  const remote = { url: "https://h/mcp" };
  const DIFFERENT: readonly (readonly [string, object, object])[] = [
    ["a variable", { ...base, env: { T: "1" } }, { ...base, env: { T: "2" } }],
    ["a variable more", base, { ...base, env: { T: "2" } }],
    ["an inherited variable", base, { ...base, env_vars: ["T"] }],
    ["the folder", { ...base, cwd: "/a" }, { ...base, cwd: "/b" }],
    ["an argument", base, { ...base, args: ["b"] }],
    ["a header", { ...remote, headers: { A: "1" } }, { ...remote, headers: { A: "2" } }],
    ["the variable of its token", remote, { ...remote, bearer_token_env_var: "T" }],
    ["the OAuth client", remote, { ...remote, oauth: { clientId: "a" } }],
    ["the transport", remote, { ...remote, type: "sse" }],
    ["the tools that it hides", base, { ...base, disabledTools: ["rm"] }],
    ["the tools that it shows", { ...base, tools: ["a"] }, { ...base, tools: ["b"] }],
    ["that all calls are asked for", base, { ...base, require_approval: "always" }],
    ["that calls of a tool are asked for", base, { ...base, require_approval: ["rm"] }],
  ];
  for (const [what, a, b] of DIFFERENT) {
    itIn(`has ${what}`, async (folder) => {
      const { planned } = await plan(folder, { a, b });
      assert.deepEqual(
        planned.map(({ name }) => name),
        ["a", "b"],
      );
      // And what was added is known again.
      const entries = Object.fromEntries(planned.map(({ name, entry }) => [name, entry]));
      const file = await folder.write("m.json", JSON.stringify({ servers: entries }));
      const { manifest } = await folder.loadValid({ files: [file] });
      const again = await plan(folder, { a, b }, { manifest });
      assert.deepEqual(again.planned, []);
      assert.ok(again.skipped.every(({ identicalServer }) => identicalServer !== undefined));
    });
  }

  const SAME: readonly (readonly [string, object, object])[] = [
    ["the order of variables", { ...base, env: { A: "1", B: "2" } }, { ...base, env: { B: "2", A: "1" } }], // prettier-ignore
    ["the case of a header's name", { ...remote, headers: { a: "1" } }, { ...remote, headers: { A: "1" } }], // prettier-ignore
    ["what is empty", base, { ...base, env: {}, cwd: "" }],
    ["its title", base, { ...base, title: "X" }],
    ["that some tools are not asked for", base, { ...base, alwaysAllow: ["a"] }],
  ];
  for (const [what, a, b] of SAME) {
    itIn(`has not ${what}`, async (folder) => {
      const { planned } = await plan(folder, { a, b });
      assert.deepEqual(
        planned.map(({ name }) => name),
        ["a"],
      );
    });
  }

  itIn("has the secret in the store", async (folder) => {
    const token = (value: string) => ({ a: { ...base, env: { API_TOKEN: value } } });
    const file = await folder.write(
      "m.json",
      JSON.stringify({ servers: { a: { ...base, env: { API_TOKEN: "${secret:a/API_TOKEN}" } } } }),
    );
    const { manifest } = await folder.loadValid({ files: [file] });
    const readSecret: SecretReader = () => Promise.resolve("canary-one-0123456789");
    const options = { manifest, readSecret };
    const same = await plan(folder, token("canary-one-0123456789"), options);
    assert.deepEqual(same.planned, []);
    const other = await plan(folder, token("canary-two-0123456789"), options);
    assert.deepEqual(
      other.planned.map(({ name }) => name),
      ["a-2"],
    );
  });

  itIn("tells which settings of the same server it has not", async (folder) => {
    const file = await folder.write("m.json", JSON.stringify({ servers: { a: base } }));
    const { manifest } = await folder.loadValid({ files: [file] });
    const off = { ...base, disabled: true, description: "d" };
    const { left } = await plan(folder, { off }, { manifest });
    assert.equal(
      left["off"],
      'it is the same as "a", which is enabled there, which has its own description',
    );
  });

  itIn("is not the name: a prefix of another server is not taken", async (folder) => {
    const servers = { other: { command: "z", prefix: "files" } };
    const file = await folder.write("m.json", JSON.stringify({ servers }));
    const { manifest } = await folder.loadValid({ files: [file] });
    const { planned } = await plan(folder, { files: base }, { manifest });
    assert.deepEqual(
      planned.map(({ name }) => name),
      ["files-2"],
    );
  });
});

describe("a relative path", () => {
  const servers = {
    cmd: { command: "./bin/s.sh", cwd: "server", args: ["a.js"] },
    args: { command: "node", args: ["./x.js", "${workspaceFolder}/y"] },
    up: { command: "../q/run", cwd: "." },
    home: { command: "~/run", cwd: "/abs" },
  };

  for (const client of CLIENTS.filter(
    ({ project, format }) => project.length > 0 && format === "json",
  )) {
    itIn(`of a project's file of ${client.title} is absolute after the import`, async (folder) => {
      const own = client.placeholders === "editor" ? servers : { ...servers, args: servers.up };
      const { entries } = await plan(folder, own, { client, isProject: true });
      const p = folder.cwd;
      const { cmd, args, up, home } = entries;
      assert.deepEqual(cmd, { command: `${p}/bin/s.sh`, cwd: `${p}/server`, args: ["a.js"] });
      if (client.placeholders === "editor")
        assert.deepEqual(args, { command: "node", args: ["./x.js", `${p}/y`], cwd: p });
      assert.deepEqual(up ?? args, { command: join(p, "../q/run"), cwd: p });
      assert.deepEqual(home, { command: "~/run", cwd: "/abs" });
    });
  }

  for (const path of PROJECT_FILES) {
    itIn(`of ${path} as the manifest starts at the project's folder`, async (folder) => {
      const file = await folder.write(`p/${path}`, JSON.stringify({ mcpServers: servers }));
      const { manifest } = await folder.loadValid({ files: [file] });
      const p = join(folder.root, "p");
      const { baseDir, cwd } = getServer(manifest, "cmd");
      assert.deepEqual([baseDir, cwd], [p, "server"]);
      const { args, cwd: own } = getServer(manifest, "args");
      assert.deepEqual([args, own], [["./x.js", `${p}/y`], p]);
    });
  }

  it("has its base in every project's file of a client", () => {
    const files = CLIENTS.flatMap(({ project }) => project)
      .filter(({ keys }) => keys.length === 1 && /^(?:mcpServers|servers)$/.test(keys[0] ?? ""))
      .map(({ file }) => file);
    assert.deepEqual([...new Set(files)].toSorted(), PROJECT_FILES.toSorted());
  });

  itIn(
    "of a user's file starts where the client works, and of VS Code's in the home",
    async (folder) => {
      const own = { cmd: servers.cmd, up: servers.up };
      const { entries } = await plan(folder, own);
      assert.deepEqual(entries, {
        cmd: {
          command: "${workspaceFolder}/bin/s.sh",
          cwd: "${workspaceFolder}/server",
          args: ["a.js"],
        },
        up: { command: "${workspaceFolder}/q/run" },
      });
      const code = await plan(folder, own, { client: clientOf("vscode") });
      assert.deepEqual(code.entries["cmd"], {
        command: `${folder.home}/bin/s.sh`,
        cwd: `${folder.home}/server`,
        args: ["a.js"],
      });
    },
  );

  itIn("of a user's file as the manifest starts where the hub works", async (folder) => {
    const text = JSON.stringify({ mcpServers: { cmd: servers.cmd } });
    const file = await folder.write("home/.cursor/mcp.json", text);
    const { manifest } = await folder.loadValid({ files: [file] });
    assert.equal(getServer(manifest, "cmd").baseDir, folder.cwd);
  });
});

describe("an import over several files", () => {
  itIn("takes what is good in each, whatever the others have", async (folder) => {
    const home = clientFoldersOf({ HOME: folder.home }, "linux");
    const projects = { "/p": { mcpServers: 7 }, "/q": { mcpServers: { c: { command: "c" } } } };
    const text = JSON.stringify({ mcpServers: { a: { command: "a" } }, projects });
    await folder.write("home/.claude.json", text);
    await folder.write("home/.cursor/mcp.json", "{");
    const files = (
      await Promise.all(
        [clientOf("claude-code"), cursor].map((client) => readClientFiles(client, home, undefined)),
      )
    ).flat();
    const { planned } = await planImport(files, { servers: [], separator: "__" }, home, true);
    assert.deepEqual(
      planned.map(({ name }) => name),
      ["a", "c"],
    );
    assert.ok(files.every(({ problem }) => problem !== undefined && isTable(problem)));
  });
});
