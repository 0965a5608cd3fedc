import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { addClient, listNamedClients } from "../../src/operations/clients.ts";
import { openSecrets } from "../../src/secrets/secrets.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const contextIn = (folder: ManifestFolder) =>
  contextOf({ HOME: folder.home, TOOLMUX_KEYCHAIN: "off" }, folder.cwd);
const ANY = { servers: [] };

describe("a client that is added", () => {
  for (const [name, before] of [
    ["toolmux.toml", '# mine\n[servers.a]\ncommand = "x" # why\n'],
    ["toolmux.toml", '[[clients]]\nname = "one"\ntoken = "t"\n\n[servers.a]\ncommand = "x"\n'],
    ["toolmux.json", '{\n  // mine\n  "servers": { "a": { "command": "x" } }\n}\n'],
    [
      "toolmux.json",
      '{\n  "clients": [\n    // first\n    { "name": "one", "token": "t" }\n  ],\n  "servers": {}\n}\n',
    ],
    ["toolmux.json", '{ "clients": [], "servers": {} }'],
  ] as const) {
    itIn(`has a token in the store, and a table in ${name}: ${before}`, async (folder) => {
      const context = contextIn(folder);
      const choice = { config: [await folder.write(name, before)] };
      const { manifest, secret, token } = await addClient("laptop", ANY, choice, context);
      assert.equal(await openSecrets(context).file.get(secret), token);
      assert.ok(token.length >= 40);
      const text = await readFile(manifest, "utf8");
      assert.ok(!text.includes(token));
      for (const comment of before.match(/(?:#|\/\/) \w+/g) ?? [])
        assert.ok(text.includes(comment));
      const all = await listNamedClients(choice, context);
      const added = all.at(-1);
      assert.ok(added?.kind === "client");
      assert.deepEqual([added.name, added.token.text], ["laptop", `\${secret:${secret}}`]);
      assert.equal(all.length, before.includes('"one"') ? 2 : 1);
    });
  }

  itIn("may be limited to a mode and to servers", async (folder) => {
    const manifest = '[servers.a]\ncommand = "x"\n[modes.review]\ntools = "all"\n';
    const choice = { config: [await folder.write("toolmux.toml", manifest)] };
    const limits = { mode: "review", servers: ["a"] };
    await addClient("ci", limits, choice, contextIn(folder));
    const [client] = await listNamedClients(choice, contextIn(folder));
    assert.ok(client?.kind === "client");
    assert.deepEqual([client.mode, client.servers], ["review", ["a"]]);
  });

  itIn("is refused, and leaves nothing, if its name or its mode cannot be", async (folder) => {
    const text = '[[clients]]\nname = "one"\ntoken = "t"\n';
    const file = await folder.write("toolmux.toml", text);
    const inline = await folder.write("inline.toml", 'clients = [{ name = "x", token = "t" }]\n');
    const context = contextIn(folder);
    for (const [name, mode, config] of [
      ["one", undefined, file],
      ["", undefined, file],
      ["two", "nope", file],
      ["two", undefined, inline],
    ] as const) {
      const adding = addClient(name, { mode, servers: [] }, { config: [config] }, context);
      await assert.rejects(adding, { code: "usage" });
    }
    assert.deepEqual(await openSecrets(context).file.list(), []);
    assert.equal(await readFile(join(folder.root, "toolmux.toml"), "utf8"), text);
  });
});
