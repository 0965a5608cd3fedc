import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { itIn, loadFiles } from "../harness/in-folder.ts";

const NATS = 'url = "nats://127.0.0.1:4222"';

/** The paths and messages of the problems of a manifest. */
async function problemsOf(text: string): Promise<readonly string[]> {
  return withManifestFolder(async (folder) => {
    const file = await folder.write("a.toml", text);
    const result = await folder.load({ files: [file] });
    return result.problems.map(({ path, message }) => `${path.join(".")}: ${message}`);
  });
}

describe("the table fleet", () => {
  itIn("says where NATS is, what is exported and imported, and who may do what", async (folder) => {
    const text = `[fleet]
url = ["tls://a.example:4222", "tls://b.example"]
credentials = "./fleet.creds"
tenant = "acme"
user = "u1"
name = "laptop"
export = ["git", "files*"]
import = ["*", "laptop/files"]
tls = { ca = "./ca.pem" }
[[fleet.clients]]
user = "acme/u2"
servers = ["git"]
approval = "always"
askCaller = true
`;
    const { fleet } = await loadFiles(folder, [text]);
    assert.equal(fleet?.tenant, "acme");
    assert.deepEqual(fleet.export, ["git", "files*"]);
    assert.deepEqual(fleet.clients, [
      { user: "acme/u2", servers: ["git"], approval: "always", askCaller: true },
    ]);
  });

  itIn("is needed by no server, and makes one of each key fleet of a server", async (folder) => {
    const text = `[fleet]\n${NATS}\ntenant = "acme"\n[servers.gh]\nfleet = "github"\nspread = "call"\n[servers.f]\nfleet = "laptop/files"\nprefix = "g"\n`;
    const { servers } = await loadFiles(folder, [text]);
    const shown = servers.map((spec) =>
      spec.kind === "fleet"
        ? [spec.name, spec.prefix, spec.machine, spec.fleet, spec.spread, spec.tenant, spec.era]
        : spec,
    );
    assert.deepEqual(shown, [
      ["gh", "gh", undefined, "github", "call", "acme", "modern"],
      ["f", "g", "laptop", "files", "sticky", "acme", "modern"],
    ]);
    assert.equal((await loadFiles(folder, ["[servers.a]\ncommand = 'x'\n"])).fleet, undefined);
  });

  it("is refused where it would send calls or credentials in the clear, or cannot work", async () => {
    const table: readonly (readonly [text: string, problem: RegExp])[] = [
      ['url = "nats://nats.example:4222"', /fleet\.url: .*without TLS/],
      ['url = ["tls://a.example", "nats://10.0.0.1"]', /fleet\.url: .*without TLS/],
      ['url = "http://a.example"', /fleet\.url: expected the URL of a NATS server/],
      ['url = "nats://u:p@127.0.0.1"', /fleet\.url: expected the URL of a NATS server/],
      ["url = []", /fleet\.url/],
      ["export = ['*']", /fleet\.url: is missing/],
      [`${NATS}\ntoken = "a"\nnkey = "b"`, /cannot be used together with nkey/],
      [`${NATS}\npassword = "a"`, /fleet\.password: needs a user name/],
      [`${NATS}\nlogin = "a"`, /fleet\.login: needs a password/],
      [`${NATS}\ntenant = "a.b"`, /fleet\.tenant: expected letters, digits/],
      [`${NATS}\nuser = ">"`, /fleet\.user/],
      [`${NATS}\nname = "-x"`, /fleet\.name/],
      [`${NATS}\ntls = { cert = "a" }`, /fleet\.tls: has to have both/],
      [
        `${NATS}\n[[fleet.clients]]\nuser = "acme/_"`,
        /fleet\.clients\.0\.user: expected TENANT\/USER/,
      ],
      [`${NATS}\n[[fleet.clients]]\nuser = "acme"`, /fleet\.clients\.0\.user/],
      [
        `${NATS}\n[servers.a]\nfleet = "a"\ncommand = "x"`,
        /command: cannot be used together with fleet/,
      ],
      [`${NATS}\n[servers.a]\nfleet = "a*"`, /servers\.a\.fleet: expected/],
      [
        `${NATS}\n[servers.a]\ncommand = "x"\nspread = "call"`,
        /spread: cannot be used together with command/,
      ],
    ];
    for (const [text, problem] of table) {
      const problems = await problemsOf(`[fleet]\n${text}\n`);
      assert.ok(
        problems.some((one) => problem.test(one)),
        `${text}: ${problems.join(" | ")}`,
      );
    }
    for (const fine of [
      NATS,
      'url = "nats://localhost"',
      'url = "nats://[::1]:4222"',
      'url = "nats://nats.example"\ninsecure = true',
      `${NATS}\nuser = "u1"\npassword = "\${secret:fleet}"`,
    ])
      assert.deepEqual(
        (await problemsOf(`[fleet]\n${fine}\n`)).filter((one) => one.startsWith("fleet")),
        [],
      );
  });

  itIn("counts only in the user's own manifest", async (folder) => {
    const file = await folder.write(
      "work/toolmux.toml",
      `[fleet]\n${NATS}\nexport = ["*"]\n[servers.a]\ncommand = "x"\n`,
    );
    await folder.trust(file, join(folder.home, ".local/state/toolmux"));
    const result = await folder.load();
    assert.ok(result.ok, JSON.stringify(result.problems));
    assert.equal(result.manifest.fleet, undefined);
    assert.ok(result.notes.some((note) => note.includes("fleet is ignored")));
  });
});
