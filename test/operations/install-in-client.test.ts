import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import {
  findInstallTarget,
  type InstallRequest,
  listClientApps,
  makeSnippet,
  prepareInstallation,
  prepareRemoval,
} from "../../src/operations/install-in-client.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const NOTHING = { config: [] };
const REQUEST: InstallRequest = { project: false, replace: false, secrets: false };
const contextIn = (folder: ManifestFolder) => contextOf({ HOME: folder.home }, folder.cwd);

async function install(folder: ManifestFolder, name: string, more: Partial<InstallRequest> = {}) {
  const context = contextIn(folder);
  const target = await findInstallTarget(name, false, context);
  return prepareInstallation(target, { ...REQUEST, ...more }, NOTHING, context);
}

const undo = async (folder: ManifestFolder, name: string) =>
  prepareRemoval(await findInstallTarget(name, false, contextIn(folder)));

describe("an installation", () => {
  itIn(
    "is written where the client looks first, and leaves no trace when it is undone",
    async (folder) => {
      const text = '{ "editor.fontSize": 12 }\n';
      const settings = await folder.write("home/.config/Code/User/settings.json", text);
      const prepared = await install(folder, "vscode");
      const { file } = prepared.planned;
      assert.match(file, /Code\/User\/mcp\.json$/);
      const { change, ...planned } = prepared.planned;
      assert.deepEqual([change?.line, change?.removed], [1, []]);
      assert.match(change?.added.join("\n") ?? "", /"toolmux"[^]*"serve"/);
      assert.deepEqual(planned, {
        client: "vscode",
        file,
        action: "install",
        written: false,
      });
      assert.ok(!existsSync(file), "it is only prepared");
      assert.deepEqual(await prepared.apply(), { ...prepared.planned, written: true });
      assert.equal(await readFile(settings, "utf8"), text);
      const same = await install(folder, "vscode");
      assert.deepEqual([same.planned.change, (await same.apply()).action], [undefined, "none"]);
      const removal = await undo(folder, "vscode");
      assert.deepEqual([removal.planned.action, removal.planned.written], ["remove", false]);
      assert.ok(existsSync(file));
      assert.equal((await removal.apply()).written, true);
      assert.ok(!existsSync(file));
      assert.equal((await undo(folder, "vscode")).planned.action, "none");
    },
  );

  itIn(
    "is shown before it is made: the added lines, and the names of what moves, but nothing of its entries",
    async (folder) => {
      const text = JSON.stringify({
        mcpServers: { one: { command: "x", env: { API_KEY: "sk-secret" } }, two: { command: "y" } },
      });
      const file = await folder.write("home/.cursor/mcp.json", text);
      const replaced = await install(folder, "cursor", { replace: true });
      const { change, imported } = replaced.planned;
      assert.deepEqual(
        [change?.removed, change?.added, imported],
        [["one", "two"], ['"toolmux"'], ["one", "two"]],
      );
      assert.doesNotMatch(JSON.stringify(replaced.planned), /sk-secret/);
      assert.equal(await readFile(file, "utf8"), text);
      await replaced.apply();
      const removal = await undo(folder, "cursor");
      assert.deepEqual(removal.planned.change, { removed: ["toolmux"], added: ['"one"', '"two"'] });
      assert.doesNotMatch(JSON.stringify(removal.planned), /sk-secret/);
    },
  );

  itIn(
    "is shown before it is made with the entry of toolmux and nothing of other entries, however the file is laid out",
    async (folder) => {
      const one = { one: { command: "x", env: { API_KEY: "sk-secret" } } };
      const texts = [
        JSON.stringify({ mcpServers: one }),
        JSON.stringify({ mcpServers: one }, null, 2),
        JSON.stringify({ mcpServers: one }, null, "\t"),
        JSON.stringify({ other: 1, mcpServers: one, last: [2] }),
        JSON.stringify({ mcpServers: {} }),
        JSON.stringify({ other: 1 }),
        `{"mcpServers": {"one": {"command": "x"} // sk-secret\n}}`,
        "",
      ];
      for (const text of texts) {
        await folder.write("home/.cursor/mcp.json", text);
        const { change } = (await install(folder, "cursor")).planned;
        const added = change?.added.join("\n") ?? "";
        assert.match(added, /"toolmux":\s*\{[^]*"serve"/, text);
        assert.doesNotMatch(added, /sk-secret|^\s*,|"one"/, text);
      }
    },
  );

  itIn(
    "tells which servers of the client the manifest has, too, unless it replaces them",
    async (folder) => {
      const server = (command: string) => ({ command });
      const manifest = { servers: { a: server("x"), other: server("z") } };
      await folder.write("home/.config/toolmux/toolmux.json", JSON.stringify(manifest));
      const client = { mcpServers: { mine: server("x"), b: server("y") } };
      await folder.write("home/.cursor/mcp.json", JSON.stringify(client));
      const doubled = async (replace: boolean) =>
        (await install(folder, "cursor", { replace })).doubled;
      assert.deepEqual([await doubled(false), await doubled(true)], [["mine"], []]);
    },
  );

  itIn(
    "of a file that was changed since is undone without the former servers, which are named",
    async (folder) => {
      const one = JSON.stringify({ mcpServers: { one: { command: "x" } } });
      const file = await folder.write("home/.cursor/mcp.json", one);
      const installed = await (await install(folder, "cursor", { replace: true })).apply();
      const manifest = join(folder.home, ".config/toolmux/toolmux.toml");
      assert.match(await readFile(manifest, "utf8"), /^#:schema \S+\n+\[servers\.one\]/);
      const { mcpServers } = JSON.parse(await readFile(file, "utf8")) as { mcpServers: object };
      assert.deepEqual(Object.keys(mcpServers), ["toolmux"]);
      const two = { mcpServers: { ...mcpServers, two: { command: "y" } } };
      await writeFile(file, JSON.stringify(two));
      const { undo: found, apply } = await undo(folder, "cursor");
      assert.ok(found.kind === "edit");
      assert.deepEqual(found.former, { backup: installed.backup, servers: ["one"] });
      assert.equal(await readFile(installed.backup ?? "", "utf8"), one);
      await apply();
      const left = JSON.parse(await readFile(file, "utf8")) as { mcpServers: object };
      assert.deepEqual(Object.keys(left.mcpServers), ["two"]);
    },
  );

  itIn(
    "is refused with a URL for a client that only starts programs, and with a mode that is not there",
    async (folder) => {
      const http = "http://127.0.0.1:1/mcp";
      const message = /Claude Desktop .*--http/;
      await assert.rejects(install(folder, "claude-desktop", { http }), { code: "usage", message });
      await assert.rejects(install(folder, "cursor", { http, approval: "auto" }), {
        code: "usage",
      });
      await folder.write("home/.config/toolmux/toolmux.toml", '[servers.a]\ncommand = "x"\n');
      await assert.rejects(install(folder, "cursor", { mode: "review" }), { code: "usage" });
      assert.ok(!existsSync(join(folder.home, ".cursor")));
    },
  );

  itIn("can be copied by hand instead, from the same entry", async (folder) => {
    const context = contextIn(folder);
    const target = await findInstallTarget("cursor", false, context);
    const request = { http: "http://127.0.0.1:1/mcp", mode: "review" };
    const { text, file, format } = await makeSnippet(target, request, NOTHING, context);
    assert.equal(format, "json");
    assert.ok(!existsSync(file));
    await (await install(folder, "cursor", request)).apply();
    assert.deepEqual(JSON.parse(await readFile(file, "utf8")), JSON.parse(text));
    assert.match(text, /mode=review/);
  });

  itIn(
    "is seen in the list of clients, beside their own servers and broken files",
    async (folder) => {
      await folder.write("home/.cursor/mcp.json", '{"mcpServers": {"a": {"command": "x"}}}');
      await folder.write("home/.codex/config.toml", "x = [\n");
      await (await install(folder, "cursor")).apply();
      const apps = await listClientApps(contextIn(folder));
      const find = (name: string) => apps.find((app) => app.name === name) ?? assert.fail(name);
      const { exists, installed, servers } = find("cursor");
      assert.deepEqual([exists, installed, servers], [true, true, 1]);
      assert.equal(typeof find("codex").problem, "string");
      assert.equal(find("windsurf").exists, false);
    },
  );
});
