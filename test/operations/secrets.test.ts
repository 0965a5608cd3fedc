import assert from "node:assert/strict";
import { describe } from "node:test";
import { checkManifest } from "../../src/operations/check.ts";
import {
  listSecrets,
  openSecretToSet,
  removeStoredSecret,
  usersBySecret,
} from "../../src/operations/secrets.ts";
import { checkSecrets } from "../../src/host/doctor/credentials.ts";
import { describeSecretUsers } from "../../src/manifest/secret-users.ts";
import { openSecrets } from "../../src/secrets/secrets.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const USER = '[servers.a]\ncommand = "x"\nenv = { TOKEN = "${secret:a/token}" }\n';

async function prepare(
  folder: ManifestFolder,
  manifest: string,
  env: Readonly<Record<string, string>> = {},
) {
  const choice = { config: [await folder.write("toolmux.toml", manifest)] };
  const own = { HOME: folder.home, TOOLMUX_KEYCHAIN: "off", ...env };
  return { choice, context: contextOf(own, folder.root) };
}

describe("secrets", () => {
  itIn("are listed with their places and users, and removed once", async (folder) => {
    const { choice, context } = await prepare(folder, USER, { A: "1" });
    const rows = async () => (await listSecrets(choice, context)).document.secrets;
    const row = { name: "a/token", servers: ["a"], models: [] };
    assert.deepEqual(await rows(), [{ ...row, places: [] }]);
    for (const name of ["a/token", "A"]) {
      const { location, isInEnvironment } = await (await openSecretToSet(name, context)).set("v");
      assert.deepEqual([location, isInEnvironment], ["the secret store", name === "A"]);
    }
    assert.deepEqual(await rows(), [
      { name: "A", places: ["environment", "file"], servers: [], models: [] },
      { ...row, places: ["file"] },
    ]);
    const remove = async () => (await removeStoredSecret("a/token", context)).isRemoved;
    assert.deepEqual([await remove(), await remove()], [true, false]);
  });

  itIn("of models are listed, also by a check", async (folder) => {
    const manifest = `${USER}
[models.named]
provider = "openai"
model = "x"
url = "http://127.0.0.1:1"
apiKey = "\${secret:key}"
[models.own]
provider = "google"
model = "x"
[agents.one]
model = "anthropic/x"
instruction = "x"
`;
    const { choice, context } = await prepare(folder, manifest, { GEMINI_API_KEY: "x" });
    const expected = [
      ["a/token", [], []],
      ["anthropic", [], ["anthropic/x"]],
      ["google", ["environment"], ["own"]],
      ["key", [], ["named"]],
    ];
    const { secrets } = (await listSecrets(choice, context)).document;
    assert.deepEqual(
      secrets.map(({ name, places, models }) => [name, places, models]),
      expected,
    );
    const { document } = await checkManifest(choice, context);
    assert.deepEqual(
      document.secrets.map(({ name, place, models }) => [name, place ? [place] : [], models]),
      expected,
    );
  });

  itIn("know all that uses them: the list, a check and doctor by the same rule", async (folder) => {
    const manifest = `
plugins = [{ use = "./p.ts", options = { deep = [{ token = "\${secret:of-plugin}" }] } }]
[hub]
httpToken = "\${secret:of-hub}"
[servers.a]
command = "x"
env = { TOKEN = "\${secret:of-server}" }
[servers.b]
url = "http://127.0.0.1:1/?k=\${secret:of-server}"
[models.m]
provider = "openai"
model = "x"
url = "http://127.0.0.1:1"
apiKey = "\${secret:of-model}"
[agents.one]
model = "m"
instruction = "x"
[agents.two]
model = "anthropic/x"
instruction = "x"
[[clients]]
name = "laptop"
token = "\${secret:of-client}"
`;
    await folder.write("p.ts", "export default () => ({});\n");
    const { choice, context } = await prepare(folder, manifest);
    const used = {
      anthropic: { servers: [], models: ["anthropic/x"], agents: ["two"] },
      "of-client": { servers: [], models: [], clients: ["laptop"] },
      "of-hub": { servers: [], models: [], clients: ["hub.httpToken"] },
      "of-model": { servers: [], models: ["m"], agents: ["one"] },
      "of-plugin": { servers: [], models: [], plugins: ["./p.ts"] },
      "of-server": { servers: ["a", "b"], models: [] },
    };
    const rows = Object.entries(used).map(([name, users]) => ({ name, ...users }));
    const { document } = await listSecrets(choice, context);
    assert.deepEqual(
      document.secrets,
      rows.map((row) => ({ ...row, places: [] })),
    );
    const checked = await checkManifest(choice, context);
    assert.deepEqual(
      checked.document.secrets,
      rows.map((row) => ({ ...row, place: null })),
    );
    assert.deepEqual(rows.map(describeSecretUsers), [
      ["model anthropic/x", "agent two"],
      ["client laptop"],
      ["client hub.httpToken"],
      ["model m", "agent one"],
      ["plugin ./p.ts"],
      ["a", "b"],
    ]);
    for (const { name } of [...rows, { name: "unused" }])
      await (await openSecretToSet(name, context)).set("v");
    const { loaded } = checked;
    const found = await checkSecrets(
      openSecrets(context),
      loaded?.ok ? loaded.manifest : undefined,
    );
    assert.deepEqual(
      found.flatMap(({ code, text }) => (code === "TM302" ? [text] : [])),
      ['Nothing in this manifest uses the secret "unused".'],
    );
  });

  itIn("can be listed if the manifest cannot be used, but not what uses them", async (folder) => {
    const { choice, context } = await prepare(folder, "servers = 3\n");
    await (await openSecretToSet("x", context)).set("v");
    const { document, isManifestUsable } = await listSecrets(choice, context);
    assert.equal(isManifestUsable, false);
    assert.deepEqual(document.secrets, [{ name: "x", places: ["file"], servers: [], models: [] }]);
    assert.equal(await usersBySecret(choice, context), undefined);
  });

  itIn(
    "are not stored with a reserved name or a value that is empty or has a NUL",
    async (folder) => {
      const { choice, context } = await prepare(folder, "");
      await assert.rejects(openSecretToSet("oauth/x", context), { code: "usage" });
      const secret = await openSecretToSet("x", context);
      for (const value of ["", "a\0b"]) await assert.rejects(secret.set(value), { code: "usage" });
      assert.deepEqual((await listSecrets(choice, context)).document.secrets, []);
    },
  );
});
