import assert from "node:assert/strict";
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import * as fc from "fast-check";
import { stringify } from "smol-toml";
import {
  listBackups,
  openOriginal,
  prepareInstall,
  prepareUndo,
  writeBackup,
} from "../../src/client-configs/install.ts";
import { editClientFile } from "../../src/client-configs/edit.ts";
import {
  planImport,
  replacePlaintextSecrets,
  type TakenNames,
} from "../../src/client-configs/import-plan.ts";
import {
  type ClientApp,
  clientFoldersOf,
  CLIENTS,
  findClientApp,
} from "../../src/client-configs/clients.ts";
import { CLIENT_NAMES } from "../../src/client-configs/client-names.ts";
import { listServerTables, readClientFiles } from "../../src/client-configs/read.ts";
import { readServers } from "../../src/manifest/read.ts";
import { parseText } from "../../src/manifest/parse.ts";
import { resolveServer } from "../../src/manifest/resolve.ts";
import { isPlaintextSecret } from "../../src/manifest/plaintext-secrets.ts";
import {
  getServer,
  plainCopy,
  type ManifestFolder,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";

const FIXTURES = fileURLToPath(new URL("../fixtures/clients/", import.meta.url));
const NOTHING: TakenNames = { servers: [], separator: "__" };

/** What each fixture comes to: names and entries of what is taken over, names of what is left out. */
const WANTED: Readonly<Record<string, { taken: object; left?: readonly string[] }>> = {
  "claude-desktop": {
    taken: {
      files: {
        command: "npx",
        args: ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada/$${work}"],
      },
      "my-server_x": {
        command: "uvx",
        args: ["mcp-server-fetch"],
        env: { FETCH_API_KEY: "canary-fetch-0123456789" },
      },
    },
  },
  "claude-code": {
    taken: {
      github: {
        url: "https://api.example.com/mcp",
        headers: { Authorization: "Bearer ${env:GITHUB_TOKEN:-none}" },
      },
      events: { url: "https://events.example.com/sse", transport: "sse" },
      local: { command: "node", args: ["server.js"], cwd: "/home/ada/work" },
    },
  },
  cursor: {
    taken: {
      search: {
        command: "npx",
        args: ["-y", "search", "--api-key", "canary-search-0123456789", "${workspaceFolder}/docs"],
        env: { HOMEDIR: "${env:HOME}", LEVEL: "${env:LEVEL}" },
      },
      remote: { url: "https://remote.example.com/mcp?api_key=canary-url-0123456789" },
    },
  },
  vscode: {
    taken: {
      cloud: {
        command: "cloud-mcp",
        args: ["--region", "eu"],
        env: { CLOUD_TOKEN: "${secret:cloud/token}" },
      },
    },
    left: ["socket"],
  },
  "vscode-insiders": { taken: { one: { command: "one", args: ["8080", "true"] } } },
  windsurf: {
    taken: {
      wind: {
        url: "https://wind.example.com/mcp",
        headers: { "X-Api-Key": "${env:WIND_KEY}" },
        tools: { deny: ["drop"] },
      },
      off: { command: "off", enabled: false },
    },
  },
  codex: {
    taken: {
      docs: {
        command: "docs-mcp",
        args: ["--stdio"],
        env: { DOCS_SECRET: "canary-docs-0123456789" },
        inheritEnv: ["DOCS_HOME", "DOCS_TOKEN"],
        connectTimeout: "20s",
        callTimeout: 90_500,
        tools: { allow: ["search"] },
      },
      "far-away": {
        url: "https://far.example.com/mcp",
        headers: {
          "X-Region": "eu",
          "X-User": "${env:FAR_USER}",
          Authorization: "Bearer ${env:FAR_TOKEN}",
        },
      },
    },
  },
  zed: {
    taken: {
      flat: { command: "flat-mcp", args: ["a"] },
      nested: { command: "nested-mcp", args: ["b"], env: { N: "1" } },
    },
    left: ["extension"],
  },
  "gemini-cli": {
    taken: {
      gem: {
        command: "gem",
        env: { GEM_KEY: "${env:GEM_KEY}", PLACE: "${env:PLACE}/x" },
        callTimeout: "120s",
        tools: { deny: ["rm"] },
      },
      web: { url: "https://web.example.com/mcp", tools: { allow: ["look"] } },
    },
  },
  "qwen-code": { taken: {} },
  antigravity: { taken: { far: { url: "https://far.example.com/mcp" } } },
  cline: {
    taken: {
      tasks: { command: "tasks", callTimeout: "30s" },
      stream: { url: "https://stream.example.com/mcp", enabled: false },
    },
  },
  "roo-code": { taken: { roo: { command: "roo", args: ["${env:ROO_DIR}"] } } },
  "lm-studio": { taken: {} },
  opencode: {
    taken: {
      local: {
        command: "bun",
        args: ["x", "local-mcp"],
        env: { KEY_FILE: "${file:~/.secret}", T: "${env:T}" },
        enabled: false,
      },
      remote: { url: "https://r.example.com/mcp", headers: { Authorization: "Bearer ${env:R}" } },
    },
  },
  "amazon-q": { taken: { q: { command: "q-mcp", callTimeout: "60s" } }, left: ["toolmux"] },
  kiro: {
    taken: {
      kiro: {
        command: "uvx",
        args: ["kiro-mcp@latest"],
        env: { KIRO_TOKEN: "${env:KIRO_TOKEN}" },
      },
    },
  },
  "copilot-cli": {
    taken: {
      co: { command: "co" },
      some: { command: "some", tools: { allow: ["a", "b"] } },
    },
  },
  amp: { taken: { ampere: { command: "ampere" } } },
};

const homeOf = (folder: ManifestFolder, platform = "linux") =>
  clientFoldersOf({ HOME: folder.home }, platform);

/** Puts a client's fixture where its file lies. @returns its path, and what it holds */
async function place(folder: ManifestFolder, client: ClientApp) {
  const spot = listServerTables(client, homeOf(folder), undefined)[0];
  assert.ok(spot);
  const bytes = await readFile(join(FIXTURES, `${client.name}.${client.format}`));
  await mkdir(dirname(spot.file), { recursive: true });
  await writeFile(spot.file, bytes);
  return { spot, bytes };
}

const planOf = async (folder: ManifestFolder, client: ClientApp, taken = NOTHING) =>
  planImport(await readClientFiles(client, homeOf(folder), undefined), taken, homeOf(folder), true);

describe("the table of clients", () => {
  it("has every name that a command line knows, in the same order, and a fixture for each", async () => {
    assert.deepEqual(
      CLIENTS.map(({ name }) => name),
      CLIENT_NAMES,
    );
    assert.deepEqual(Object.keys(WANTED), CLIENT_NAMES);
    const files = CLIENTS.map(({ name, format }) => `${name}.${format}`);
    assert.deepEqual((await readdir(FIXTURES)).toSorted(), files.toSorted());
  });

  it("knows where their files lie on each platform", () => {
    const files = (name: string, platform: string) => {
      const home = clientFoldersOf({ HOME: "/h", APPDATA: "/h/AppData/Roaming" }, platform);
      return findClientApp(name)?.user(home)[0]?.file;
    };
    const claude = ["linux", "darwin", "win32"].map((name) => files("claude-desktop", name));
    assert.deepEqual(claude, [
      "/h/.config/Claude/claude_desktop_config.json",
      "/h/Library/Application Support/Claude/claude_desktop_config.json",
      "/h/AppData/Roaming/Claude/claude_desktop_config.json",
    ]);
    assert.equal(files("zed", "darwin"), "/h/.config/zed/settings.json");
    assert.equal(files("codex", "darwin"), "/h/.codex/config.toml");
  });
});

for (const client of CLIENTS) {
  describe(`the file of ${client.title}`, () => {
    it("is taken over as the same servers in our own schema", () =>
      withManifestFolder(async (folder) => {
        await place(folder, client);
        const { planned: additions, skipped: omissions } = await planOf(folder, client);
        const taken = Object.fromEntries(additions.map(({ name, entry }) => [name, entry]));
        const { taken: wanted, left = [] } = WANTED[client.name] ?? { taken: {} };
        assert.deepEqual(plainCopy(taken), wanted);
        assert.deepEqual(
          omissions.map(({ source: origin }) => origin.name),
          left,
        );
        assert.deepEqual(
          readServers(plainCopy(taken), { file: "", baseDir: "/" }, []).problems,
          [],
        );
      }));

    for (const remote of [false, true]) {
      it(`is as it was, byte for byte, after toolmux went in and out${remote ? ", over HTTP" : ""}`, () =>
        withManifestFolder(async (folder) => {
          const { spot, bytes } = await place(folder, client);
          await chmod(spot.file, 0o640);
          const entry = remote
            ? client.remote("http://127.0.0.1:8700/mcp", undefined)
            : client.command("/opt/toolmux", ["serve"]);
          if (entry === undefined) return;
          const prepared = await prepareInstall(client, spot, entry);
          assert.equal(prepared.kind, "ready", JSON.stringify(prepared));
          if (prepared.kind !== "ready") return;
          const copy = await prepared.apply(Date.UTC(2030, 1, 1));
          assert.match(copy ?? "", /\.toolmux-backup-20300201T000000Z$/);
          assert.equal((await stat(copy ?? "")).mode & 0o777, 0o600);
          const written = await readFile(spot.file);
          const [file] = await readClientFiles(client, homeOf(folder), undefined);
          assert.ok(file?.servers.some(({ name }) => name === "toolmux"));
          assert.equal((await stat(spot.file)).mode & 0o777, 0o640);
          // What was there is there still, in the same order, but for what comes between.
          if (!bytes.includes('"toolmux"')) assertInserted(bytes, written);
          assert.equal((await prepareInstall(client, spot, entry)).kind, "same");
          const undoing = await prepareUndo(client, spot);
          assert.equal(undoing.kind, "restore");
          if ("apply" in undoing) await undoing.apply();
          assert.ok((await readFile(spot.file)).equals(bytes));
          assert.equal((await stat(spot.file)).mode & 0o777, 0o640);
          assert.deepEqual(await listBackups(spot.file), []);
        }));
    }

    it("comes to be, and goes again, where there was none", () =>
      withManifestFolder(async (folder) => {
        const spot = listServerTables(client, homeOf(folder), undefined)[0];
        assert.ok(spot);
        const prepared = await prepareInstall(client, spot, client.command("/opt/toolmux", []));
        assert.ok(prepared.kind === "ready");
        assert.equal(await prepared.apply(0), undefined);
        assert.equal((await stat(spot.file)).mode & 0o777, 0o600);
        const undoing = await prepareUndo(client, spot);
        assert.equal(undoing.kind, "remove");
        if ("apply" in undoing) await undoing.apply();
        await assert.rejects(stat(spot.file), { code: "ENOENT" });
      }));

    it("keeps what somebody has changed since, and loses our entry alone", () =>
      withManifestFolder(async (folder) => {
        const { spot } = await place(folder, client);
        const before = await readFile(spot.file, "utf8");
        const prepared = await prepareInstall(client, spot, client.command("/opt/toolmux", []));
        assert.ok(prepared.kind === "ready");
        await prepared.apply(0);
        const text = await readFile(spot.file, "utf8");
        const comment = client.format === "json" ? "// mine\n" : "# mine\n";
        const mark = text.startsWith("\ufeff") ? "\ufeff" : "";
        await writeFile(spot.file, mark + comment + text.slice(mark.length));
        const undoing = await prepareUndo(client, spot);
        assert.equal(undoing.kind, "edit");
        if ("apply" in undoing) await undoing.apply();
        // An empty table that was opened stays open, and of two entries of ours both are gone.
        const isOther = /\{ ?\}|toolmux/.test(before);
        const after = await readFile(spot.file, "utf8");
        assert.equal(
          after.trimEnd(),
          (isOther ? after : mark + comment + before.slice(mark.length)).trimEnd(),
        );
        const [file] = await readClientFiles(client, homeOf(folder), undefined);
        assert.equal(file?.problem, undefined);
        assert.ok(!file?.servers.some(({ name }) => name === "toolmux"));
        assert.equal((await prepareUndo(client, spot)).kind, "absent");
      }));

    it("is as it was after all its servers were replaced, too", () =>
      withManifestFolder(async (folder) => {
        const { spot, bytes } = await place(folder, client);
        const { planned: additions } = await planOf(folder, client);
        const names = additions
          .map(({ source: origin }) => origin.name)
          .filter((name) => name !== "local" || client.name !== "claude-code");
        const prepared = await prepareInstall(
          client,
          spot,
          client.command("/x/toolmux", []),
          names,
        );
        assert.ok(prepared.kind === "ready", JSON.stringify(prepared));
        await prepared.apply(0);
        const [file] = await readClientFiles(client, homeOf(folder), undefined);
        const left = file?.servers.map(({ name }) => name) ?? [];
        assert.ok(left.includes("toolmux"));
        assert.ok(!names.some((name) => left.includes(name)), left.join());
        const undoing = await prepareUndo(client, spot);
        assert.equal(undoing.kind, "restore");
        if ("apply" in undoing) await undoing.apply();
        assert.ok((await readFile(spot.file)).equals(bytes));
      }));
  });
}

/** Every byte of the one is in the other, in the same order. */
function assertInserted(before: Buffer, after: Buffer): void {
  let at = 0;
  for (const byte of after) if (byte === before[at]) at++;
  assert.equal(at, before.length, before.subarray(at).toString());
}

const cursor = findClientApp("cursor");
const codex = findClientApp("codex");
assert.ok(cursor && codex);

describe("writing into a client's file", () => {
  it("follows a link and keeps it", () =>
    withManifestFolder(async (folder) => {
      const real = await folder.write("dotfiles/mcp.json", '{"mcpServers":{}}');
      const [spot] = listServerTables(cursor, homeOf(folder), undefined);
      assert.ok(spot);
      await mkdir(dirname(spot.file), { recursive: true });
      await symlink(real, spot.file);
      const prepared = await prepareInstall(cursor, spot, { command: "x" });
      assert.ok(prepared.kind === "ready");
      await prepared.apply(0);
      assert.match(await readFile(real, "utf8"), /toolmux/);
      assert.equal((await openOriginal(spot.file)).path, real);
    }));

  it("is given up if the client has written its file meanwhile, and leaves no copy", () =>
    withManifestFolder(async (folder) => {
      const { spot } = await place(folder, cursor);
      const prepared = await prepareInstall(cursor, spot, { command: "x" });
      assert.ok(prepared.kind === "ready");
      await folder.write("home/.cursor/mcp.json", '{"mcpServers":{"theirs":{}}}');
      await assert.rejects(prepared.apply(0), { code: "usage", message: /was changed meanwhile/ });
      assert.equal(await readFile(spot.file, "utf8"), '{"mcpServers":{"theirs":{}}}');
      assert.deepEqual(await listBackups(spot.file), []);
    }));

  it("is given up where a link leads nowhere, and leaves the link", () =>
    withManifestFolder(async (folder) => {
      const [spot] = listServerTables(cursor, homeOf(folder), undefined);
      assert.ok(spot);
      await mkdir(dirname(spot.file), { recursive: true });
      await symlink("nowhere.json", spot.file);
      const prepared = await prepareInstall(cursor, spot, { command: "x" });
      assert.ok(prepared.kind === "ready");
      await assert.rejects(prepared.apply(0), {
        code: "usage",
        message: /link that leads nowhere/,
      });
      assert.equal(await readlink(spot.file), "nowhere.json");
    }));

  it("is refused, with the place, where the file cannot be parsed", () =>
    withManifestFolder(async (folder) => {
      const [spot] = listServerTables(cursor, homeOf(folder), undefined);
      assert.ok(spot);
      await folder.write("home/.cursor/mcp.json", '{\n  "mcpServers": { "a": }\n}');
      const prepared = await prepareInstall(cursor, spot, { command: "x" });
      assert.ok(prepared.kind === "refused");
      assert.equal(prepared.problem.position?.line, 2);
      assert.equal((await prepareUndo(cursor, spot)).kind, "refused");
    }));

  for (const text of ['mcp_servers = { a = { command = "x" } }', 'mcp_servers = "nonsense"']) {
    it(`is refused where the servers are written so that nothing can be put beside them: ${text}`, () =>
      withManifestFolder(async (folder) => {
        const [spot] = listServerTables(codex, homeOf(folder), undefined);
        assert.ok(spot);
        await folder.write("home/.codex/config.toml", text);
        const prepared = await prepareInstall(codex, spot, { command: "x" });
        assert.ok(prepared.kind === "refused", prepared.kind);
        assert.equal(await readFile(spot.file, "utf8"), text);
      }));
  }

  it("goes back to what was before the first time, however often it was done", () =>
    withManifestFolder(async (folder) => {
      const { spot, bytes } = await place(folder, codex);
      for (const command of ["/one", "/two", "/three"]) {
        const prepared = await prepareInstall(codex, spot, codex.command(command, []));
        assert.ok(prepared.kind === "ready");
        await prepared.apply(0);
      }
      assert.equal((await listBackups(spot.file)).length, 1);
      const undoing = await prepareUndo(codex, spot);
      assert.ok("apply" in undoing && undoing.kind === "restore");
      await undoing.apply();
      assert.ok((await readFile(spot.file)).equals(bytes));
    }));

  it("keeps three copies at most, the newest", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("home/x.json", "1");
      for (let i = 0; i < 12; i++)
        await writeBackup(await openOriginal(file), 1000 * Math.floor(i / 2));
      const copies = (await listBackups(file)).map((path) => path.slice(file.length));
      assert.deepEqual(copies, [
        ".toolmux-backup-19700101T000005Z-2",
        ".toolmux-backup-19700101T000005Z",
        ".toolmux-backup-19700101T000004Z-2",
      ]);
    }));
});

describe("a change of a client's file", () => {
  const name = fc.constantFrom<string>("a", "b", "two words", 'quo"te', "toolmux", "x.y", "ä");
  const entries = fc.dictionary(
    name,
    fc.record({ command: fc.string(), args: fc.array(fc.string()) }),
  );
  const remark = fc.constantFrom("", " // a, b", " /* { , } */", "\n  // alone\n");

  it("says what it is to say in any file that can be parsed, and is refused in none", () =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom("json", "toml"),
        entries,
        fc.constantFrom("", "  ", "\t"),
        remark,
        fc.boolean(),
        fc.uniqueArray(name),
        async (format, servers, indent, comment, isWindows, remove) => {
          const root = { before: 1, servers, after: [1, 2] };
          const plainText =
            format === "toml" ? stringify(root) : JSON.stringify(root, null, indent);
          // Behind a comma or a bracket at the end of a line a comment changes nothing.
          const noted =
            format === "toml" ? plainText : plainText.replaceAll(/(?<=[,{}\]])\n/g, `${comment}\n`);
          const text = isWindows ? noted.replaceAll("\n", "\r\n") : noted;
          const put = { toolmux: { command: "/x", args: ["serve"] } };
          const edited = await editClientFile(text, format, {
            keys: ["servers"],
            remove,
            set: put,
          });
          assert.ok(edited.ok, text);
          const wanted = Object.entries(servers).filter(([key]) => !remove.includes(key));
          const parsed = await parseText(edited.text, format);
          assert.ok(parsed.ok);
          const { servers: found, before } = plainCopy(parsed.root) as Record<string, object>;
          assert.deepEqual(found, plainCopy({ ...Object.fromEntries(wanted), ...put }));
          assert.equal(before, 1);
        },
      ),
      { numRuns: 300 },
    ));
});

describe("an entry of ours", () => {
  for (const [before, after] of [
    ['{"s":{\n"a":{}, // x\n"toolmux":{}}}', '{"s":{\n"a":{} // x\n}}'],
    ['{"s":{"toolmux":{},"a":{}}}', '{"s":{"a":{}}}'],
    ['{"s":{"a":{},"toolmux":{}}}', '{"s":{"a":{}}}'],
    ['{"s":{\n  "toolmux": {}\n}}', '{"s":{\n}}'],
    ['{"s":{"a":{} /* , */, "toolmux":{},}}', '{"s":{"a":{} /* , */, }}'],
  ] as const) {
    it(`goes alone: ${JSON.stringify(before)}`, async () => {
      const change = { keys: ["s"], remove: ["toolmux"], set: {} };
      assert.deepEqual(await editClientFile(before, "json", change), { ok: true, text: after });
    });
  }
});

describe("taking over servers", () => {
  const read = async (folder: ManifestFolder, servers: object, taken = NOTHING) => {
    await folder.write("home/.cursor/mcp.json", JSON.stringify({ mcpServers: servers }));
    return planOf(folder, cursor, taken);
  };

  it("leaves out what the manifest has, whatever it is called there", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write(
        "m.toml",
        '[servers.mine]\ncommand = "x"\nargs = ["${env:A}"]\n',
      );
      const { manifest } = await folder.loadValid({ files: [file] });
      const taken = { servers: manifest.servers, separator: "__" };
      const plan = await read(
        folder,
        { a: { command: "x", args: ["${env:A}"] }, mine: { command: "y" } },
        taken,
      );
      assert.deepEqual(
        plan.skipped.map(({ identicalServer: same }) => same),
        ["mine"],
      );
      assert.deepEqual(
        plan.planned.map(({ name }) => name),
        ["mine-2"],
      );
    }));

  it("knows a server again whose secrets were moved when it was taken over, and takes another account for another", () =>
    withManifestFolder(async (folder) => {
      const entry = (key: string) => ({ command: "x", args: ["--api-key", key] });
      const first = await read(folder, { "a b": entry("canary-0123456789") });
      const [addition] = first.planned;
      assert.ok(addition);
      const moved = replacePlaintextSecrets(addition.entry, addition.plaintextSecrets);
      const file = await folder.write(
        "m.json",
        JSON.stringify({ servers: { [addition.name]: moved } }),
      );
      const { manifest } = await folder.loadValid({ files: [file] });
      const taken = { servers: manifest.servers, separator: "__" };
      const again = await read(
        folder,
        { "a b": entry("canary-0123456789"), c: entry("other-0123456789") },
        taken,
      );
      assert.deepEqual(
        again.skipped.map(({ identicalServer: same }) => same),
        ["a-b"],
      );
      assert.deepEqual(
        again.planned.map(({ name }) => name),
        ["c"],
      );
    }));

  it("never takes toolmux itself, however it is started", () =>
    withManifestFolder(async (folder) => {
      const own = [
        { command: "toolmux" },
        { command: "/opt/bin/toolmux-linux-x64", args: ["serve"] },
        { command: "npx", args: ["-y", "toolmux@1.2.3"] },
        { command: "bunx", args: ["toolmux"] },
        { command: "node", args: ["/opt/toolmux.js"] },
      ];
      const named = own.map((entry, i) => [`s${i}`, entry] as const);
      const installed = { command: "/usr/bin/bun", args: ["/src/main.ts", "serve"] };
      const plan = await read(folder, { ...Object.fromEntries(named), toolmux: installed });
      assert.deepEqual(plan.planned, []);
      const other = await read(folder, {
        a: { command: "npx", args: ["-y", "toolmux-like", "toolmux"] },
      });
      assert.equal(other.planned.length, 1);
    }));

  it("says what is wrong with an entry, and takes the others", () =>
    withManifestFolder(async (folder) => {
      const plan = await read(folder, {
        a: 7,
        b: {},
        c: { command: "c", args: ["${unclosed"] },
        d: { command: "d" },
      });
      assert.deepEqual(
        plan.planned.map(({ name }) => name),
        ["d"],
      );
      assert.deepEqual(
        plan.skipped.map(({ reason }) => reason),
        [
          "its entry is no table",
          "it has neither a command nor a url",
          "it holds a ${ without a closing }",
        ],
      );
    }));

  it("finds what looks like a secret, and can put forms in its place", () =>
    withManifestFolder(async (folder) => {
      const plan = await read(folder, {
        s: {
          command: "x",
          args: [
            "--token",
            "canary-aaaaaa",
            "--api-key=canary-bbbbbb",
            "https://u:canary-cccccc@h/",
            "plain",
            "--token",
            "${env:TOKEN}",
          ],
          env: {
            A_SECRET: "canary-dddddd",
            KEY_PATH: "/etc/x",
            CREDENTIALS: "/home/a/key.json",
            LOG: "debug",
          },
        },
        r: {
          url: "https://h/?key=canary-eeeeee",
          headers: { Authorization: "Bearer canary-ffffff" },
        },
      });
      const hidden = plan.planned.map(({ entry, plaintextSecrets: clear }) =>
        replacePlaintextSecrets(entry, clear),
      );
      assert.doesNotMatch(JSON.stringify(hidden), /canary/);
      assert.deepEqual(plainCopy(hidden), [
        {
          command: "x",
          args: [
            "--token",
            "${secret:s/token}",
            "--api-key=${secret:s/api-key}",
            "https://u:${secret:s/password}@h/",
            "plain",
            "--token",
            "${env:TOKEN}",
          ],
          env: {
            A_SECRET: "${secret:s/A_SECRET}",
            KEY_PATH: "/etc/x",
            CREDENTIALS: "/home/a/key.json",
            LOG: "debug",
          },
        },
        {
          url: "https://h/?key=${secret:r/key}",
          headers: { Authorization: "Bearer ${secret:r/Authorization}" },
        },
      ]);
    }));

  it("takes over what a server is called, and knows it again under another title", () =>
    withManifestFolder(async (folder) => {
      const plan = await read(folder, {
        s: { command: "x", name: "Nice", description: "For us." },
      });
      assert.deepEqual(
        plan.planned.map(({ entry }) => entry),
        [{ title: "Nice", description: "For us.", command: "x" }],
      );
      const file = await folder.write(
        "toolmux.json",
        JSON.stringify({ servers: { s: { command: "x" } } }),
      );
      const { manifest } = await folder.loadValid({ files: [file] });
      const taken = { servers: manifest.servers, separator: "__" };
      const files = await readClientFiles(cursor, homeOf(folder), undefined);
      assert.deepEqual((await planImport(files, taken, homeOf(folder))).planned, []);
    }));

  it("has the workspace of a client where the hub runs, not where the manifest is", () =>
    withManifestFolder(async (folder) => {
      const entry = {
        command: "${workspaceFolder}/bin/x",
        args: ["--root", "${workspaceFolder}", "${workspaceFolder}/a"],
        env: { PLACE: "${workspaceFolder}/b" },
      };
      const plan = await read(folder, {
        sub: { ...entry, cwd: "${workspaceFolder}/sub" },
        same: { ...entry, args: ["${workspaceFolder}"], cwd: "${workspaceFolder}" },
      });
      const servers = Object.fromEntries(plan.planned.map(({ name, entry: own }) => [name, own]));
      const file = await folder.write(
        "home/.config/toolmux/toolmux.json",
        JSON.stringify({ servers }),
      );
      const { manifest } = await folder.loadValid({ files: [file] });
      const resolve = (name: string) =>
        resolveServer(getServer(manifest, name), { HOME: folder.home }, "/project");
      const wanted = {
        command: "/project/bin/x",
        args: ["--root", "/project", "/project/a"],
        env: { PLACE: "/project/b" },
        secrets: [],
      };
      assert.deepEqual(plainCopy(await resolve("sub")), { ...wanted, cwd: "/project/sub" });
      assert.deepEqual(plainCopy(await resolve("same")), { ...wanted, args: ["/project"] });

      // It is known again, also as it was written before there was such a form.
      const taken = { servers: manifest.servers, separator: "__" };
      const again = await planImport(
        await readClientFiles(cursor, homeOf(folder), undefined),
        taken,
        homeOf(folder),
      );
      assert.deepEqual(again.planned, []);
      const old = JSON.stringify({ servers }).replaceAll("${workspaceFolder}", ".");
      const before = await folder.loadValid({ files: [await folder.write("old.json", old)] });
      const known = { servers: before.manifest.servers, separator: "__" };
      const third = await planImport(
        await readClientFiles(cursor, homeOf(folder), undefined),
        known,
        homeOf(folder),
      );
      assert.deepEqual(third.planned, []);
    }));

  it("takes over the variables of a file that an entry names", () =>
    withManifestFolder(async (folder) => {
      const envFile = await folder.write(
        "home/.env",
        "# c\nexport A=1\nB='two words'\nC=\"${X}\" \nbad line\n",
      );
      const plan = await read(folder, {
        a: { command: "a", envFile, env: { A: "own" } },
        b: { command: "b", envFile: "${workspaceFolder}/.env" },
      });
      assert.deepEqual(plainCopy(plan.planned[0]?.entry), {
        command: "a",
        env: { A: "own", B: "two words", C: "$${X}" },
      });
      assert.match(plan.planned[1]?.notes.join() ?? "", /envFile .* not taken over/);
      await folder.write(
        "work/.cursor/mcp.json",
        JSON.stringify({ mcpServers: { c: { command: "c", envFile } } }),
      );
      const files = await readClientFiles(cursor, homeOf(folder), folder.cwd);
      const strange = await planImport(files, NOTHING, homeOf(folder));
      assert.deepEqual(plainCopy(strange.planned[0]?.entry), { command: "c" });
    }));
});

describe("what stands somewhere as it is", () => {
  for (const [name, value, isSecret] of [
    ["API_KEY", "abcdef", true],
    ["API_KEY", "abcde", false],
    ["GITHUB_TOKEN", "ghp_x-y", true],
    ["Authorization", "dXNlcjpwYXNz", true],
    ["KEY_FILE", "whatever-it-is", false],
    ["TOKEN_URL", "https://x/token", false],
    ["GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/key.json", false],
    ["MODE", "a1b2c3d4e5f6a7b8c9d0e1f2", true],
    ["MODEL", "some-long-name-without-digits", false],
    ["LOG_LEVEL", "warning", false],
  ] as const) {
    it(`${isSecret ? "looks" : "does not look"} like a secret: ${name}=${value}`, () => {
      assert.equal(isPlaintextSecret(name, value), isSecret);
    });
  }
});
