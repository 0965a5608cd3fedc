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
import { parse, stringify } from "smol-toml";
import {
  listBackups,
  openOriginal,
  prepareInstall,
  prepareUndo,
  writeBackup,
} from "../../src/client-configs/install.ts";
import { editClientFile } from "../../src/client-configs/edit.ts";
import { planImport, replacePlaintextSecrets } from "../../src/client-configs/import-plan.ts";
import {
  type ClientApp,
  clientFoldersOf,
  CLIENTS,
  findClientApp,
} from "../../src/client-configs/clients.ts";
import { CLIENT_NAMES } from "../../src/client-configs/client-names.ts";
import { listServerTables, readClientFiles } from "../../src/client-configs/read.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import { readServers } from "../../src/manifest/files/manifest-file.ts";
import { parseText } from "../../src/manifest/syntax/parse.ts";
import { resolveServer } from "../../src/manifest/resolve.ts";
import {
  getServer,
  plainCopy,
  type ManifestFolder,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";

const FIXTURES = fileURLToPath(new URL("../fixtures/clients/", import.meta.url));

/** The servers that are taken over from each fixture. */
const TAKEN = parse(`
[claude-desktop]
files = { command = "npx", args = ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada/$\${work}"] }
my-server_x = { command = "uvx", args = ["mcp-server-fetch"], env.FETCH_API_KEY = "canary-fetch-0123456789" }
[claude-code]
github = { url = "https://api.example.com/mcp", headers.Authorization = "Bearer \${env:GITHUB_TOKEN:-none}" }
events = { url = "https://events.example.com/sse", transport = "sse" }
local = { command = "node", args = ["server.js"], cwd = "/home/ada/work" }
[cursor.search]
command = "npx"
args = ["-y", "search", "--api-key", "canary-search-0123456789", "\${workspaceFolder}/docs"]
env = { HOMEDIR = "\${env:HOME}", LEVEL = "\${env:LEVEL}" }
[cursor.remote]
url = "https://remote.example.com/mcp?api_key=canary-url-0123456789"
[vscode]
cloud = { command = "cloud-mcp", args = ["--region", "eu"], env.CLOUD_TOKEN = "\${secret:cloud/token}" }
[vscode-insiders]
one = { command = "one", args = ["8080", "true"] }
[windsurf]
wind = { url = "https://wind.example.com/mcp", headers.X-Api-Key = "\${env:WIND_KEY}", tools.deny = ["drop"] }
off = { command = "off", enabled = false }
[codex.docs]
command = "docs-mcp"
args = ["--stdio"]
env = { DOCS_SECRET = "canary-docs-0123456789" }
inheritEnv = ["DOCS_HOME", "DOCS_TOKEN"]
connectTimeout = "20s"
callTimeout = 90_500
tools = { allow = ["search"] }
[codex.far-away]
url = "https://far.example.com/mcp"
headers = { X-Region = "eu", X-User = "\${env:FAR_USER}", Authorization = "Bearer \${env:FAR_TOKEN}" }
[zed]
flat = { command = "flat-mcp", args = ["a"] }
nested = { command = "nested-mcp", args = ["b"], env.N = "1" }
[gemini-cli.gem]
command = "gem"
env = { GEM_KEY = "\${env:GEM_KEY}", PLACE = "\${env:PLACE}/x" }
callTimeout = "120s"
tools = { deny = ["rm"] }
[gemini-cli.web]
url = "https://web.example.com/mcp"
tools = { allow = ["look"] }
[qwen-code]
[antigravity]
far = { url = "https://far.example.com/mcp" }
[cline]
tasks = { command = "tasks", callTimeout = "30s", tools.approval.list = "never" }
stream = { url = "https://stream.example.com/mcp", enabled = false }
[roo-code]
roo = { command = "roo", args = ["\${env:ROO_DIR}"], tools.approval.x = "never" }
[lm-studio]
[opencode.local]
command = "bun"
args = ["x", "local-mcp"]
env = { KEY_FILE = "\${file:~/.secret}", T = "\${env:T}" }
enabled = false
[opencode.remote]
url = "https://r.example.com/mcp"
headers = { Authorization = "Bearer \${env:R}" }
[amazon-q]
q = { command = "q-mcp", callTimeout = "60s" }
[kiro]
kiro = { command = "uvx", args = ["kiro-mcp@latest"], env.KIRO_TOKEN = "\${env:KIRO_TOKEN}" }
[copilot-cli]
co = { command = "co" }
some = { command = "some", tools.allow = ["a", "b"] }
[amp]
ampere = { command = "ampere" }
`);
/** The names of those that are left out. */
const LEFT: Readonly<Record<string, readonly string[]>> = {
  vscode: ["socket"],
  zed: ["extension"],
  "amazon-q": ["toolmux"],
};

function itIn(what: string, use: (folder: ManifestFolder) => Promise<void>): void {
  it(what, () => withManifestFolder(use));
}

const homeOf = (folder: ManifestFolder, platform = "linux") =>
  clientFoldersOf({ HOME: folder.home }, platform);

function spotOf(folder: ManifestFolder, client: ClientApp) {
  const [spot] = listServerTables(client, homeOf(folder), undefined);
  assert.ok(spot);
  return spot;
}

type Spot = ReturnType<typeof spotOf>;

/** Puts a client's fixture where its file lies. @returns its path, and what it holds */
async function place(folder: ManifestFolder, client: ClientApp) {
  const spot = spotOf(folder, client);
  const bytes = await readFile(join(FIXTURES, `${client.name}.${client.format}`));
  await mkdir(dirname(spot.file), { recursive: true });
  await writeFile(spot.file, bytes);
  return { spot, bytes };
}

const readFiles = (folder: ManifestFolder, client: ClientApp) =>
  readClientFiles(client, homeOf(folder), undefined);

/** What is taken over beside the servers of a manifest. */
const planOf = async (folder: ManifestFolder, client: ClientApp, manifest?: Manifest) => {
  const taken = { servers: manifest?.servers ?? [], separator: "__" };
  return planImport(await readFiles(folder, client), taken, homeOf(folder), true);
};

/** Prepares what has to be possible. */
async function prepare(
  client: ClientApp,
  spot: Spot,
  entry: Readonly<Record<string, unknown>> = client.command("/opt/toolmux", []),
  replaced: readonly string[] = [],
) {
  const prepared = await prepareInstall(client, spot, entry, replaced);
  assert.ok(prepared.kind === "ready", JSON.stringify(prepared));
  return prepared;
}

async function undo(client: ClientApp, spot: Spot, kind: string): Promise<void> {
  const undoing = await prepareUndo(client, spot);
  assert.equal(undoing.kind, kind);
  assert.ok("apply" in undoing);
  await undoing.apply();
}

const modeOf = async (file: string): Promise<number> => (await stat(file)).mode & 0o777;

describe("the table of clients", () => {
  it("has every name that a command line knows, in the same order, and a fixture for each", async () => {
    const names = CLIENTS.map(({ name }) => name);
    assert.deepEqual(names, CLIENT_NAMES);
    assert.deepEqual(Object.keys(TAKEN), CLIENT_NAMES);
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
    itIn("is taken over as the same servers in our own schema", async (folder) => {
      await place(folder, client);
      const { planned, skipped } = await planOf(folder, client);
      const taken = Object.fromEntries(planned.map(({ name, entry }) => [name, entry]));
      assert.deepEqual(plainCopy(taken), plainCopy(TAKEN[client.name]));
      const left = skipped.map(({ source }) => source.name);
      assert.deepEqual(left, LEFT[client.name] ?? []);
      const { problems } = readServers(plainCopy(taken), { file: "", baseDir: "/" }, []);
      assert.deepEqual(problems, []);
    });

    for (const [how, entry] of [
      ["", client.command("/opt/toolmux", ["serve"])],
      [", over HTTP", client.remote("http://127.0.0.1:8700/mcp", undefined)],
    ] as const) {
      if (entry === undefined) continue;
      itIn(`is as it was, byte for byte, after toolmux went in and out${how}`, async (folder) => {
        const { spot, bytes } = await place(folder, client);
        await chmod(spot.file, 0o640);
        const prepared = await prepare(client, spot, entry);
        const copy = (await prepared.apply(Date.UTC(2030, 1, 1))) ?? "";
        assert.match(copy, /\.toolmux-backup-20300201T000000Z$/);
        assert.equal(await modeOf(copy), 0o600);
        const written = await readFile(spot.file);
        const [file] = await readFiles(folder, client);
        assert.ok(file?.servers.some(({ name }) => name === "toolmux"));
        assert.equal(await modeOf(spot.file), 0o640);
        // What was there is there still, in the same order, but for what comes between.
        if (!bytes.includes('"toolmux"')) assertInserted(bytes, written);
        assert.equal((await prepareInstall(client, spot, entry)).kind, "same");
        await undo(client, spot, "restore");
        assert.ok((await readFile(spot.file)).equals(bytes));
        assert.equal(await modeOf(spot.file), 0o640);
        assert.deepEqual(await listBackups(spot.file), []);
      });
    }

    itIn("comes to be, and goes again, where there was none", async (folder) => {
      const spot = spotOf(folder, client);
      const prepared = await prepare(client, spot);
      assert.equal(await prepared.apply(0), undefined);
      assert.equal(await modeOf(spot.file), 0o600);
      await undo(client, spot, "remove");
      await assert.rejects(stat(spot.file), { code: "ENOENT" });
    });

    itIn("keeps what somebody has changed since, and loses our entry alone", async (folder) => {
      const { spot } = await place(folder, client);
      const before = await readFile(spot.file, "utf8");
      await (await prepare(client, spot)).apply(0);
      const text = await readFile(spot.file, "utf8");
      const comment = client.format === "json" ? "// mine\n" : "# mine\n";
      const mark = text.startsWith("\ufeff") ? "\ufeff" : "";
      await writeFile(spot.file, mark + comment + text.slice(mark.length));
      await undo(client, spot, "edit");
      // An empty table that was opened stays open, and of two entries of ours both are gone.
      const isOther = /\{ ?\}|toolmux/.test(before);
      const after = await readFile(spot.file, "utf8");
      const wanted = isOther ? after : mark + comment + before.slice(mark.length);
      assert.equal(after.trimEnd(), wanted.trimEnd());
      const [file] = await readFiles(folder, client);
      assert.equal(file?.problem, undefined);
      assert.ok(!file?.servers.some(({ name }) => name === "toolmux"));
      assert.equal((await prepareUndo(client, spot)).kind, "absent");
    });

    itIn("is as it was after all its servers were replaced, too", async (folder) => {
      const { spot, bytes } = await place(folder, client);
      const { planned } = await planOf(folder, client);
      const names = planned
        .map(({ source }) => source.name)
        .filter((name) => name !== "local" || client.name !== "claude-code");
      await (await prepare(client, spot, undefined, names)).apply(0);
      const [file] = await readFiles(folder, client);
      const left = file?.servers.map(({ name }) => name) ?? [];
      assert.ok(left.includes("toolmux"));
      assert.ok(!names.some((name) => left.includes(name)), left.join());
      await undo(client, spot, "restore");
      assert.ok((await readFile(spot.file)).equals(bytes));
    });
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
  itIn("follows a link and keeps it", async (folder) => {
    const real = await folder.write("dotfiles/mcp.json", '{"mcpServers":{}}');
    const spot = spotOf(folder, cursor);
    await mkdir(dirname(spot.file), { recursive: true });
    await symlink(real, spot.file);
    await (await prepare(cursor, spot)).apply(0);
    assert.match(await readFile(real, "utf8"), /toolmux/);
    assert.equal((await openOriginal(spot.file)).path, real);
  });

  itIn("is given up if the client wrote its file meanwhile, and leaves no copy", async (folder) => {
    const { spot } = await place(folder, cursor);
    const prepared = await prepare(cursor, spot);
    await folder.write("home/.cursor/mcp.json", '{"mcpServers":{"theirs":{}}}');
    await assert.rejects(prepared.apply(0), { code: "usage", message: /was changed meanwhile/ });
    assert.equal(await readFile(spot.file, "utf8"), '{"mcpServers":{"theirs":{}}}');
    assert.deepEqual(await listBackups(spot.file), []);
  });

  itIn("is given up where a link leads nowhere, and leaves the link", async (folder) => {
    const spot = spotOf(folder, cursor);
    await mkdir(dirname(spot.file), { recursive: true });
    await symlink("nowhere.json", spot.file);
    const run = (await prepare(cursor, spot)).apply(0);
    await assert.rejects(run, { code: "usage", message: /broken link/ });
    assert.equal(await readlink(spot.file), "nowhere.json");
  });

  itIn("is refused, with the place, where the file cannot be parsed", async (folder) => {
    const spot = spotOf(folder, cursor);
    await folder.write("home/.cursor/mcp.json", '{\n  "mcpServers": { "a": }\n}');
    const prepared = await prepareInstall(cursor, spot, { command: "x" });
    assert.ok(prepared.kind === "refused");
    assert.equal(prepared.problem.position?.line, 2);
    assert.equal((await prepareUndo(cursor, spot)).kind, "refused");
  });

  for (const text of ['mcp_servers = { a = { command = "x" } }', 'mcp_servers = "nonsense"']) {
    itIn(`is refused where nothing can be put beside the servers: ${text}`, async (folder) => {
      const spot = spotOf(folder, codex);
      await folder.write("home/.codex/config.toml", text);
      assert.equal((await prepareInstall(codex, spot, { command: "x" })).kind, "refused");
      assert.equal(await readFile(spot.file, "utf8"), text);
    });
  }

  itIn("goes back to what was before the first time, however often it was done", async (folder) => {
    const { spot, bytes } = await place(folder, codex);
    for (const command of ["/one", "/two", "/three"]) {
      await (await prepare(codex, spot, codex.command(command, []))).apply(0);
    }
    assert.equal((await listBackups(spot.file)).length, 1);
    await undo(codex, spot, "restore");
    assert.ok((await readFile(spot.file)).equals(bytes));
  });

  itIn("keeps three copies at most, the newest", async (folder) => {
    const file = await folder.write("home/x.json", "1");
    for (let i = 0; i < 12; i++) {
      await writeBackup(await openOriginal(file), 1000 * Math.floor(i / 2));
    }
    const copies = (await listBackups(file)).map((path) => path.slice(file.length));
    const start = ".toolmux-backup-19700101T00000";
    assert.deepEqual(copies, [`${start}5Z-2`, `${start}5Z`, `${start}4Z-2`]);
  });
});

describe("a change of a client's file", () => {
  const name = fc.constantFrom<string>("a", "b", "two words", 'quo"te', "toolmux", "x.y", "ä");
  const entry = fc.record({ command: fc.string(), args: fc.array(fc.string()) });
  const entries = fc.dictionary(name, entry);
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
          const isToml = format === "toml";
          const plainText = isToml ? stringify(root) : JSON.stringify(root, null, indent);
          // Behind a comma or a bracket at the end of a line a comment changes nothing.
          const noted = plainText.replaceAll(/(?<=[,{}\]])\n/g, isToml ? "\n" : `${comment}\n`);
          const text = isWindows ? noted.replaceAll("\n", "\r\n") : noted;
          const set = { toolmux: { command: "/x", args: ["serve"] } };
          const edited = await editClientFile(text, format, { keys: ["servers"], remove, set });
          assert.ok(edited.ok, text);
          const wanted = Object.entries(servers).filter(([key]) => !remove.includes(key));
          const parsed = await parseText(edited.text, format);
          assert.ok(parsed.ok);
          const { servers: found, before } = plainCopy(parsed.root) as Record<string, object>;
          assert.deepEqual(found, plainCopy({ ...Object.fromEntries(wanted), ...set }));
          assert.equal(before, 1);
        },
      ),
      { numRuns: 60 },
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
  const read = async (folder: ManifestFolder, servers: object, manifest?: Manifest) => {
    await folder.write("home/.cursor/mcp.json", JSON.stringify({ mcpServers: servers }));
    const { planned, skipped } = await planOf(folder, cursor, manifest);
    const names = planned.map(({ name }) => name);
    return { planned, names, skipped };
  };
  const load = async (folder: ManifestFolder, servers: object | string) => {
    const text = typeof servers === "string" ? servers : JSON.stringify(servers);
    const file = await folder.write("home/.config/toolmux/m.json", `{"servers":${text}}`);
    return (await folder.loadValid({ files: [file] })).manifest;
  };

  itIn("leaves out what the manifest has, whatever it is called there", async (folder) => {
    const manifest = await load(folder, { mine: { command: "x", args: ["${env:A}"] } });
    const servers = { a: { command: "x", args: ["${env:A}"] }, mine: { command: "y" } };
    const { skipped, names } = await read(folder, servers, manifest);
    assert.deepEqual([skipped.map((each) => each.identicalServer), names], [["mine"], ["mine-2"]]);
  });

  itIn("knows a server again whose secrets were moved, but no other account", async (folder) => {
    const entry = (key: string) => ({ command: "x", args: ["--api-key", key] });
    const servers = { "a b": entry("canary-0123456789") };
    const [addition] = (await read(folder, servers)).planned;
    assert.ok(addition);
    const moved = replacePlaintextSecrets(addition.entry, addition.plaintextSecrets);
    const manifest = await load(folder, { [addition.name]: moved });
    const both = { ...servers, c: entry("other-0123456789") };
    const { skipped, names } = await read(folder, both, manifest);
    assert.deepEqual([skipped.map((each) => each.identicalServer), names], [["a-b"], ["c"]]);
  });

  itIn("never takes what a client calls toolmux, whatever starts it", async (folder) => {
    const { planned } = await read(folder, { toolmux: { command: "/home/ada/bin/run.sh" } });
    assert.deepEqual(planned, []);
  });

  itIn("takes over what a server is called, and knows it under another title", async (folder) => {
    const servers = { s: { command: "x", name: "Nice", description: "For us." } };
    const { planned } = await read(folder, servers);
    const wanted = { title: "Nice", description: "For us.", command: "x" };
    assert.deepEqual(plainCopy(planned.map(({ entry }) => entry)), [wanted]);
    const manifest = await load(folder, { s: { command: "x" } });
    assert.deepEqual((await read(folder, servers, manifest)).planned, []);
  });

  itIn("says what is wrong with an entry, and takes the others", async (folder) => {
    const c = { command: "c", args: ["${unclosed"] };
    const { names, skipped } = await read(folder, { a: 7, b: {}, c, d: { command: "d" } });
    assert.deepEqual(names, ["d"]);
    const reasons = skipped.map(({ reason }) => reason);
    assert.deepEqual(reasons, [
      "its entry is not a table",
      "it has neither a command nor a url",
      "it holds a ${ without a closing }",
    ]);
  });

  itIn("finds what looks like a secret, and can put forms in its place", async (folder) => {
    const text = `[{
      "command": "x",
      "args": ["--token", "canary-aaaaaa", "--api-key=canary-bbbbbb", "https://u:canary-cccccc@h/",
        "plain", "--token", "\${env:TOKEN}"],
      "env": { "A_SECRET": "canary-dddddd", "KEY_PATH": "/etc/x", "CREDENTIALS": "/home/a/key.json",
        "LOG": "debug" }
    }, {
      "url": "https://h/?key=canary-eeeeee",
      "headers": { "Authorization": "Bearer canary-ffffff" }
    }]`;
    const [s, r] = JSON.parse(text) as object[];
    const { planned } = await read(folder, { s, r });
    const hidden = planned.map((each) =>
      replacePlaintextSecrets(each.entry, each.plaintextSecrets),
    );
    const names = ["s/token", "s/api-key", "s/password", "s/A_SECRET", "r/key", "r/Authorization"];
    const wanted = text.replaceAll(/canary-\w+/g, () => `\${secret:${names.shift()}}`);
    assert.deepEqual(plainCopy(hidden), JSON.parse(wanted));
  });

  itIn("has the workspace of a client where the hub runs, not the manifest", async (folder) => {
    const entry = {
      command: "${workspaceFolder}/bin/x",
      args: ["--root", "${workspaceFolder}", "${workspaceFolder}/a"],
      env: { PLACE: "${workspaceFolder}/b" },
    };
    const clientServers = {
      sub: { ...entry, cwd: "${workspaceFolder}/sub" },
      same: { ...entry, args: ["${workspaceFolder}"], cwd: "${workspaceFolder}" },
    };
    const { planned } = await read(folder, clientServers);
    const servers = Object.fromEntries(planned.map(({ name, entry: own }) => [name, own]));
    const manifest = await load(folder, servers);
    const resolve = async (name: string) =>
      plainCopy(await resolveServer(getServer(manifest, name), { HOME: folder.home }, "/project"));
    const wanted = { command: "/project/bin/x", env: { PLACE: "/project/b" }, secrets: [] };
    const args = ["--root", "/project", "/project/a"];
    assert.deepEqual(await resolve("sub"), { ...wanted, args, cwd: "/project/sub" });
    assert.deepEqual(await resolve("same"), { ...wanted, args: ["/project"] });

    // It is known again, also as it was written before there was such a form.
    const old = await load(folder, JSON.stringify(servers).replaceAll("${workspaceFolder}", "."));
    const files = await readFiles(folder, cursor);
    for (const known of [manifest, old]) {
      const taken = { servers: known.servers, separator: "__" };
      assert.deepEqual((await planImport(files, taken, homeOf(folder))).planned, []);
    }
  });

  itIn("takes over the variables of a file that an entry names", async (folder) => {
    const variables = "# c\nexport A=1\nB='two words'\nC=\"${X}\" \nbad line\n";
    const envFile = await folder.write("home/.env", variables);
    const a = { command: "a", envFile, env: { A: "own" } };
    const b = { command: "b", envFile: "${workspaceFolder}/.env" };
    const { planned } = await read(folder, { a, b });
    const env = { A: "own", B: "two words", C: "$${X}" };
    assert.deepEqual(plainCopy(planned[0]?.entry), { command: "a", env });
    assert.match(planned[1]?.notes.join() ?? "", /envFile .* not taken over/);
    const strange = JSON.stringify({ mcpServers: { c: { command: "c", envFile } } });
    await folder.write("work/.cursor/mcp.json", strange);
    const files = await readClientFiles(cursor, homeOf(folder), folder.cwd);
    const plan = await planImport(files, { servers: [], separator: "__" }, homeOf(folder));
    assert.deepEqual(plainCopy(plan.planned[0]?.entry), { command: "c", cwd: folder.cwd });
  });
});
