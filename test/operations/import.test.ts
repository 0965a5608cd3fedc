import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import {
  applyImport,
  importDocument,
  openSecretStore,
  pickClients,
  pickServers,
  readImportSources,
} from "../../src/operations/import.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const MANIFEST = "home/.config/toolmux/toolmux.toml";
const contextIn = (folder: ManifestFolder) =>
  contextOf({ HOME: folder.home, TOOLMUX_KEYCHAIN: "off" }, folder.cwd);

/** Plans the import of the servers of these clients. */
function plan(
  folder: ManifestFolder,
  clients: readonly string[],
  { all = false, config = [] as readonly string[] } = {},
) {
  const request = { project: false, all };
  return readImportSources(pickClients(clients), request, { config }, contextIn(folder));
}

describe("an import", () => {
  itIn(
    "leaves out a server that the manifest has in another version, and one of a single project",
    async (folder) => {
      const memory = (version: string) => ({ command: "npx", args: ["-y", `memory${version}`] });
      const manifest = { servers: { memory: memory("@1.2.3") } };
      await folder.write("home/.config/toolmux/toolmux.json", JSON.stringify(manifest));
      const client = {
        mcpServers: { memory: memory(""), other: memory("-other@1.2.3") },
        projects: { "/work/p": { mcpServers: { pg: { command: "pg" } } } },
      };
      await folder.write("home/.claude.json", JSON.stringify(client));
      const names = async (all: boolean) =>
        (await plan(folder, ["claude-code"], { all })).planned.map(({ name }) => name);
      assert.deepEqual(await names(false), ["other"]);
      assert.deepEqual(await names(true), ["memory-2", "other", "pg"]);
    },
  );

  itIn(
    "moves the secrets of some servers into the store, and leaves those of others",
    async (folder) => {
      const server = (key: string) => ({
        command: "x",
        args: [key],
        env: { API_KEY: `sk-${key}` },
      });
      const mcpServers = { one: server("a".repeat(32)), two: server("b".repeat(32)) };
      await folder.write("home/.cursor/mcp.json", JSON.stringify({ mcpServers }));
      const sources = await plan(folder, ["cursor"]);
      const store = openSecretStore(contextIn(folder));
      const plain = new Set(sources.planned.filter(({ name }) => name === "two"));
      await applyImport(sources, store, contextIn(folder), plain);
      const text = await readFile(join(folder.root, MANIFEST), "utf8");
      assert.deepEqual(await store.list(), ["one/API_KEY"]);
      assert.ok(text.includes(`sk-${"b".repeat(32)}`) && !text.includes(`sk-${"a".repeat(32)}`));
    },
  );

  itIn("adds only the servers of `only`, or all but those of `except`", async (folder) => {
    const mcpServers = { one: { command: "a" }, two: { command: "b" }, three: { command: "c" } };
    await folder.write("home/.cursor/mcp.json", JSON.stringify({ mcpServers }));
    const { planned } = await plan(folder, []);
    const select = (only: readonly string[], except: readonly string[]) =>
      pickServers(planned, { only, except }).map(({ name }) => name);
    assert.throws(() => select(["tow"], []), { code: "usage", message: /"two"/ });
    assert.deepEqual(select(["two"], []), ["two"]);
    assert.deepEqual(select([], ["one"]), ["two", "three"]);
  });

  itIn("moves secrets into the store, and shows none in its document", async (folder) => {
    const one = { command: "x", env: { API_TOKEN: "canary-0123456789abcdef" } };
    await folder.write("home/.cursor/mcp.json", JSON.stringify({ mcpServers: { one } }));
    const sources = await plan(folder, ["cursor"]);
    const context = contextIn(folder);
    const store = openSecretStore(context);
    await applyImport(sources, store, context);
    assert.doesNotMatch(JSON.stringify(importDocument(sources, true, true)), /canary/);
    assert.match(
      await readFile(join(folder.root, MANIFEST), "utf8"),
      /\$\{secret:one\/API_TOKEN\}/,
    );
    assert.deepEqual(await store.list(), ["one/API_TOKEN"]);
    assert.deepEqual((await plan(folder, ["cursor"])).planned, []);
  });

  itIn("changes neither a manifest with a problem nor the file of a client", async (folder) => {
    const text = '{"mcpServers": {"one": {"command": "x"}}}';
    const client = await folder.write("home/.cursor/mcp.json", text);
    const other = await folder.write("work/.mcp.json", '{"mcpServers": {}}');
    await assert.rejects(plan(folder, ["cursor"], { config: [other] }), { code: "usage" });
    const broken = await folder.write("bad.toml", "servers = 3\n");
    await assert.rejects(plan(folder, ["cursor"], { config: [broken] }), {
      code: "manifestInvalid",
      message: /bad\.toml:1:11: servers: expected a table/,
    });
    assert.deepEqual(
      await Promise.all([client, other, broken].map((file) => readFile(file, "utf8"))),
      [text, '{"mcpServers": {}}', "servers = 3\n"],
    );
  });
});
