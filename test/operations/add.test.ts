import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe } from "node:test";
import { type AddRequest, findServerToAdd, prepareAddition } from "../../src/operations/add.ts";
import { checkManifest } from "../../src/operations/check.ts";
import { removeServer } from "../../src/operations/remove.ts";
import { openSecrets } from "../../src/secrets/secrets.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { officialApi, withRegistryServer } from "../fixtures/registry-server.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const contextIn = (folder: ManifestFolder) =>
  contextOf({ HOME: folder.home, TOOLMUX_KEYCHAIN: "off", PATH: "/usr/bin:/bin" }, folder.cwd);

/** Prepares adding a server to the last of these manifests. */
async function prepare(
  folder: ManifestFolder,
  config: readonly string[],
  more: Partial<AddRequest> & Pick<AddRequest, "name">,
  isNew = true,
) {
  const context = contextIn(folder);
  const request = {
    entry: { command: "true" },
    key: undefined,
    env: {},
    prefix: undefined,
    from: [],
    file: undefined,
    ...more,
  };
  const toAdd = await findServerToAdd(request, { config }, context, () => {});
  return { toAdd, ...(await prepareAddition(toAdd, isNew, context)) };
}

async function add(...args: Parameters<typeof prepare>) {
  return (await prepare(...args)).apply();
}

describe("a server that is added", () => {
  itIn("has a prefix that fits the separator of the manifest", async (folder) => {
    const file = await folder.write("toolmux.toml", '[hub]\nseparator = "-"\n');
    assert.deepEqual(await add(folder, [file], { name: "my-server" }), {
      outcome: "added",
      lostVariables: [],
    });
    assert.match(await readFile(file, "utf8"), /^prefix = "my_server"$/m);
    const dashed = prepare(folder, [file], { name: "x", prefix: "a-b" });
    await assert.rejects(dashed, { code: "usage", message: /--prefix/ });
    assert.equal((await checkManifest({ config: [file] }, contextIn(folder))).document.ok, true);
  });

  itIn("cannot have a prefix that a server of another manifest has", async (folder) => {
    const first = await folder.write("a.toml", '[servers.a]\ncommand = "x"\nprefix = "n"\n');
    const second = await folder.write("b.toml", "");
    const config = [first, second];
    await assert.rejects(prepare(folder, config, { name: "n" }), { code: "usage" });
    assert.equal(await readFile(second, "utf8"), "");
    await add(folder, config, { name: "n", prefix: "m" });
    assert.equal((await checkManifest({ config }, contextIn(folder))).document.ok, true);
  });

  itIn(
    "replaces another one only if that is wanted, and names the variables that are lost",
    async (folder) => {
      const text = '[servers.a]\ncommand = "x"\nenv = { MODE = "fast" }\n';
      const file = await folder.write("toolmux.toml", text);
      await assert.rejects(prepare(folder, [file], { name: "a" }), { code: "usage" });
      const prepared = await prepare(folder, [file], { name: "a" }, false);
      assert.equal(await readFile(file, "utf8"), text, "it is only prepared");
      assert.deepEqual(await prepared.apply(), { outcome: "replaced", lostVariables: ["MODE"] });
    },
  );

  itIn("is not written into the file of a client", async (folder) => {
    const file = await folder.write("claude.json", '{"mcpServers": {}}');
    const entry = { package: "npm:x" };
    await assert.rejects(prepare(folder, [file], { name: "x", entry }), {
      code: "usage",
      message: /--file/,
    });
    assert.equal(await readFile(file, "utf8"), '{"mcpServers": {}}');
  });

  itIn("is found in a registry by its name, and lacks what it needs", (folder) => {
    const key = { name: "API_KEY", isRequired: true, isSecret: true, description: "from the site" };
    const npm = {
      registryType: "npm",
      identifier: "@example/thing",
      version: "1.0.0",
      transport: { type: "stdio" },
      environmentVariables: [key],
    };
    const listed = { name: "io.example/thing", version: "1.0.0", packages: [npm] };
    return withRegistryServer(officialApi([listed]), async ({ baseUrl }) => {
      const file = await folder.write("toolmux.toml", "");
      const ofRegistry = { entry: undefined, from: [baseUrl] };
      const found = await prepare(folder, [file], { name: "io.example/thing", ...ofRegistry });
      const { key: name, requiredValues } = found.toAdd;
      assert.deepEqual([name, found.isIncomplete], ["thing", true]);
      assert.equal(requiredValues[0]?.name, "thing/API_KEY");
      const missing = prepare(folder, [file], { name: "io.example/none", ...ofRegistry });
      await assert.rejects(missing, { code: "usage", message: /"io\.example\/none"/ });
    });
  });
});

describe("a server that is removed", () => {
  itIn("leaves secrets that no other server uses, and they are named", async (folder) => {
    const b = '[servers.b]\ncommand = "y"\nenv.A = "${secret:shared}"\n';
    const a =
      '[servers.a]\ncommand = "x"\nargs = ["${secret:a/key}", "${secret:shared}", "${secret:gone}"]\n';
    const file = await folder.write("toolmux.toml", `${a}\n${b}`);
    const context = contextIn(folder);
    const { file: store } = openSecrets(context);
    for (const name of ["a/key", "shared"]) await store.set(name, "value");
    const removed = await removeServer("a", undefined, { config: [file] }, context);
    assert.deepEqual(removed, { file, secrets: ["a/key"], mayBeLoggedIn: false });
    assert.equal(await readFile(file, "utf8"), b);
    await assert.rejects(removeServer("a", file, { config: [] }, context), {
      code: "usage",
      message: /there are b/,
    });
  });
});
