import assert from "node:assert/strict";
import { mkdir, symlink } from "node:fs/promises";
import { resolve } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { clientFoldersOf, findClientApp } from "../../src/client-configs/clients.ts";
import { translateEntry } from "../../src/client-configs/entry-to-manifest.ts";
import { ownCommand } from "../../src/base/runtime.ts";
import { loadText, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

interface Entry {
  readonly command: string;
  readonly args?: readonly string[];
}

/** Whether the loader leaves an entry of a client's file out, and whether the importer does. */
async function leftOut(entry: Entry, name = "mux"): Promise<readonly [boolean, boolean]> {
  const text = JSON.stringify({ mcpServers: { [name]: entry } });
  const { manifest } = await loadText(text, ".mcp.json");
  const client = findClientApp("claude-desktop");
  assert.ok(client !== undefined);
  const home = clientFoldersOf({ HOME: "/home/ada" }, "linux");
  const place = { client, home, file: "/f", server: name, project: undefined, inputs: new Map() };
  const translated = await translateEntry(entry, place);
  return [manifest.servers.every(({ kind }) => kind === "unsupported"), !translated.ok];
}

describe("the rule for what starts toolmux itself, in the loader and in the importer", () => {
  for (const [command, ...args] of [
    ["toolmux"],
    ["/usr/local/bin/toolmux", "serve"],
    ["/opt/bin/toolmux-linux-x64"],
    ["/opt/bin/toolmux-linux-x64-musl", "serve"],
    ["./toolmux-darwin-arm64"],
    ["toolmux.exe"],
    ["node", "/opt/toolmux/dist/node/toolmux.js", "serve"],
    ["/usr/bin/node22", "--enable-source-maps", "/opt/toolmux.js"],
    ["node", "--require", "./hook.cjs", "/opt/toolmux.js"],
    ["bun", "run", "/home/me/toolmux/src/main.ts", "serve"],
    ["deno", "run", "-A", "/home/ada/toolmux/src/main.ts"],
    ["deno", "run", "-A", "npm:toolmux@0.2.0"],
    ["npx", "-y", "toolmux"],
    ["npx", "-y", "toolmux@1.2.3-beta.1"],
    ["npx", "--package", "toolmux", "toolmux"],
    ["npm", "exec", "--", "toolmux"],
    ["pnpm", "dlx", "toolmux"],
    ["bunx", "toolmux@latest"],
    ["env", "A=1", "B=2", "toolmux", "serve"],
    ["sh", "-c", "cd /tmp && exec toolmux serve"],
    ["bash", "-lc", "A=1; node '/opt/my tools/toolmux.js'"],
  ] as const) {
    it(`knows it by ${[command, ...args].join(" ")}`, async () => {
      assert.deepEqual(await leftOut({ command, args }), [true, true]);
    });
  }

  for (const [command, ...args] of [
    ["toolmux-like"],
    ["npx", "-y", "toolmux-like", "toolmux"],
    ["npx", "inspector", "toolmux"],
    ["node", "server.js", "toolmux"],
    ["uvx", "mcp-server-toolmux"],
    ["sh", "-c", "echo toolmux; exec server"],
    ["/opt/toolmux/server"],
  ] as const) {
    it(`takes this for another: ${[command, ...args].join(" ")}`, async () => {
      assert.deepEqual(await leftOut({ command, args }), [false, false]);
    });
  }

  it("follows links to the very program that runs", () =>
    withManifestFolder(async (folder) => {
      const [command, ...before] = ownCommand();
      const main = resolve(before.at(-1) ?? command);
      await mkdir(folder.root, { recursive: true });
      const link = `${folder.root}/mux.ts`;
      await symlink(main, link);
      assert.deepEqual(await leftOut({ command: "node", args: [link] }), [true, true]);
      assert.deepEqual(await leftOut({ command: link }), [true, true]);
      const other = `${folder.root}/other.ts`;
      await symlink(process.execPath, other);
      assert.deepEqual(await leftOut({ command: "node", args: [other] }), [false, false]);
    }));

  it("leaves out what a client's file calls toolmux, whatever starts it", async () => {
    const [isLeftOut] = await leftOut({ command: "/home/ada/bin/run.sh" }, "toolmux");
    assert.equal(isLeftOut, true);
  });
});
