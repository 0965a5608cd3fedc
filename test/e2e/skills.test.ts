import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { after, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createMcpHandler } from "@modelcontextprotocol/server";
import {
  getSkill,
  listSkills,
  readDirectory,
  readSkill,
  readSkillResource,
  serverSupportsDirectoryRead,
} from "@olaservo/ext-skills/client";
import { listen } from "../../src/frontend/http/listener.ts";
import { DYNAMIC, makeServer } from "../fixtures/servers/skills.ts";
import { run } from "../harness/command.ts";
import { withHttpServe } from "../harness/serve.ts";
import { it, withTestFolder } from "../harness/hub.ts";
import type { RemoteEntry, ServerEntry } from "../harness/manifest.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/skills.ts", import.meta.url));
const ROOT = mkdtempSync(join(tmpdir(), "toolmux-skills-"));
after(() => rmSync(ROOT, { recursive: true, force: true }));

type Host = Parameters<typeof listSkills>[0];
type Files = Readonly<Record<string, string>>;

const skill = (name: string, text: string): string =>
  `---\nname: ${name}\ndescription: "About ${name}: é"\nmetadata:\n  version: "1.0"\n---\n${text}\n`;

function write(name: string, files: Files): string {
  for (const [path, text] of Object.entries(files)) {
    const file = join(ROOT, name, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  return join(ROOT, name);
}

const ONE = {
  "refunds/SKILL.md": skill("refunds", "# Of one"),
  "refunds/templates/a.md": "a of one\r\n\ttext  ",
};
const TWO = {
  "refunds/SKILL.md": skill("refunds", "# Of two"),
  "refunds/templates/a.md": "a of two",
  "refunds/inner/SKILL.md": skill("inner", "# Nested"),
  "own/SKILL.md": skill("own", "# Own"),
  "unlisted/SKILL.md": skill("unlisted", "# Not listed"),
};
const FOLDERS = { one: write("one", ONE), two: write("two", TWO) };
const MANY = write(
  "many",
  Object.fromEntries(
    Array.from({ length: 120 }, (_, i) => [`s${i}/SKILL.md`, skill(`s${i}`, `# ${i}`)]),
  ),
);

const stdio = (folder: string, ...words: string[]): ServerEntry => ({
  command: process.execPath,
  args: [SERVER, folder, ...words],
});

/** Serves a folder over HTTP. */
async function withRemote(
  folder: string,
  words: readonly string[],
  use: (entry: RemoteEntry) => Promise<void>,
): Promise<void> {
  const handler = createMcpHandler(() => makeServer(folder, words));
  const fetch = (request: Request): Promise<Response> => handler.fetch(request);
  const listener = await listen({ address: { hostname: "127.0.0.1", port: 0 }, fetch });
  try {
    await use({ url: `http://127.0.0.1:${listener.port}/mcp` });
  } finally {
    await listener.close(0);
  }
}

async function connect(url: string): Promise<Client> {
  const client = new Client(
    { name: "host", version: "1" },
    { versionNegotiation: { mode: { pin: "2026-07-28" } } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

/** A client of the modern era before the hub with these servers, after they have been listed once: what they declare is known. */
function withClient(
  servers: Readonly<Record<string, ServerEntry | RemoteEntry>>,
  use: (client: Host) => Promise<void>,
): Promise<void> {
  // A first list waits for servers that are slow to start where others are at work.
  return withHttpServe({ hub: { listWait: "30s" }, servers }, async ({ target }) => {
    const first = await connect(target);
    await first.listResources();
    await first.close();
    const client = await connect(target);
    try {
      // The SDK's own client, whose optional members are typed less strictly.
      await use(client as unknown as Host);
    } finally {
      await client.close();
    }
  });
}

/** Reads every file of every skill; the SDK checks sizes, digests and frontmatter. @returns texts by URI */
async function readAll(client: Host): Promise<Files> {
  const texts: Record<string, string> = {};
  for (const entry of await listSkills(client)) {
    const allowUnverified = entry.resources === "dynamic";
    texts[entry.uri] = await readSkill(client, entry, { allowUnverified });
    assert.deepEqual(await getSkill(client, entry.uri), entry);
    if (!Array.isArray(entry.resources)) continue;
    for (const { uri } of entry.resources) {
      texts[uri] = (await readSkillResource(client, entry, uri)).text ?? "";
    }
  }
  return texts;
}

const B = "toolmux://two/skill://refunds";
const EXPECTED: Files = {
  "skill://refunds/SKILL.md": ONE["refunds/SKILL.md"],
  "skill://refunds/templates/a.md": ONE["refunds/templates/a.md"],
  "skill://reports/daily/SKILL.md": DYNAMIC,
  "skill://own/SKILL.md": TWO["own/SKILL.md"],
  [`${B}/SKILL.md`]: TWO["refunds/SKILL.md"],
  [`${B}/templates/a.md`]: TWO["refunds/templates/a.md"],
  [`${B}/inner/SKILL.md`]: TWO["refunds/inner/SKILL.md"],
};

describe("toolmux list skills", () => {
  it("shows the skills as clients see them, and with --all which were renamed and which are hidden", () => {
    const two = { ...stdio(FOLDERS.two), skills: { deny: ["own"] } };
    return withTestFolder({ servers: { one: stdio(FOLDERS.one), two } }, async (folder) => {
      const plain = await run(folder, "list", "skills");
      assert.equal(plain.code, 0);
      for (const uri of ["skill://refunds/SKILL.md", `${B}/SKILL.md`, `${B}/inner/SKILL.md`]) {
        assert.ok(plain.stdout.includes(`${uri} `), plain.stdout);
      }
      assert.ok(plain.stdout.includes("About refunds: é"));
      assert.ok(!plain.stdout.includes("skill://own"));
      const { stdout } = await run(folder, "list", "skills", "--all");
      assert.match(stdout, /skill:\/\/refunds\/SKILL\.md +two +renamed/);
      assert.match(stdout, /skill:\/\/own\/SKILL\.md +two +hidden/);
    });
  });
});

describe("skills of real servers behind the hub", () => {
  it("of the same URI at two servers, over stdio and HTTP, are read apart, and what is read is what their digests say", () =>
    withRemote(FOLDERS.two, ["partial"], (two) =>
      withClient({ one: stdio(FOLDERS.one, "dynamic"), two }, async (client) => {
        assert.ok(serverSupportsDirectoryRead(client));
        assert.deepEqual(await readAll(client), EXPECTED);

        const { resources } = await readDirectory(client, B);
        assert.deepEqual(resources.map(({ uri }) => uri).toSorted(), [
          `${B}/SKILL.md`,
          `${B}/inner`,
          `${B}/templates`,
        ]);
        const deeper = await readDirectory(client, `${B}/templates`);
        assert.deepEqual(
          deeper.resources.map(({ uri }) => uri),
          [`${B}/templates/a.md`],
        );
        const own = await readDirectory(client, "skill://refunds");
        assert.ok(!own.resources.some(({ uri }) => uri.includes("inner")));

        for (const uri of [
          "skill://unlisted/SKILL.md",
          "toolmux://two/skill://unlisted/SKILL.md",
        ]) {
          const unlisted = await getSkill(client, uri);
          assert.equal(unlisted.uri, uri);
          assert.equal(await readSkill(client, unlisted), TWO["unlisted/SKILL.md"]);
        }

        const refused = { code: -32602 };
        await assert.rejects(getSkill(client, "skill://refunds/inner/SKILL.md"), refused);
        await assert.rejects(getSkill(client, "skill://none/SKILL.md"), refused);
        await assert.rejects(readDirectory(client, "skill://refunds/SKILL.md"), refused);
      }),
    ));

  it("are all listed if their server lists them in several pages", () =>
    withClient({ many: stdio(MANY) }, async (client) => {
      const entries = await listSkills(client);
      assert.equal(entries.length, 120);
      assert.equal(new Set(entries.map(({ uri }) => uri)).size, 120);
      const last = entries.find(({ uri }) => uri === "skill://s119/SKILL.md");
      assert.ok(last);
      assert.equal(await readSkill(client, last), skill("s119", "# 119"));
    }));
});
