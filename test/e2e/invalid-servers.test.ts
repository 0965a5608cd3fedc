import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { END, LIMIT, executable } from "../harness/hub.ts";
import { toToml } from "../harness/manifest.ts";
import {
  askPid,
  changed,
  governed,
  listNames,
  type Realm,
  saying,
  withRealm,
} from "../harness/controlled-servers.ts";

/** A manifest of governed servers as text, with more tables behind them. */
function text(
  { dir }: Realm,
  names: readonly string[],
  more = "",
  settings: Readonly<Record<string, unknown>> = {},
): string {
  const servers = Object.fromEntries(
    names.map((name) => [name, governed({ env: { GOVERNED: join(dir, name) }, ...settings })]),
  );
  return `${toToml({ servers })}\n${more}`;
}

async function run(
  { dir, env, config }: Realm,
  ...args: readonly string[]
): Promise<number | null> {
  const client = new RawClient(executable(), [...args, "--config", config], dir, env);
  return (await client.ended(END)).code;
}

function owners(names: readonly string[]): string[] {
  return [...new Set(names.map((name) => name.slice(0, name.indexOf("__"))))];
}

const WRONG: Readonly<Record<string, string>> = {
  "an unknown key": "[servers.bad]\ncomand = 'x'",
  "a bad value": "[servers.bad]\ncommand = 'x'\ncallTimeout = 'soon'",
  "the prefix of an earlier server": "[servers.bad]\ncommand = 'x'\nprefix = 'good'",
  "a form that there is not": "[servers.bad]\ncommand = 'x'\nargs = ['${HOME}']",
  "a plugin that there is not": "[servers.bad]\nplugin = 'nobody'",
};

describe("a server whose table in the manifest is wrong", () => {
  for (const [what, table] of Object.entries(WRONG)) {
    it(`costs only itself: ${what}`, LIMIT, () =>
      withRealm("", async (realm) => {
        realm.edit(text(realm, ["good"], table));
        await realm.serve(async (client) => {
          assert.deepEqual(owners((await client.open()).map(({ name }) => name)), ["good"]);
          await askPid(client, "good");
        });
      }),
    );
  }

  it("keeps running as it was on a reload, while the rest is applied", LIMIT, () =>
    withRealm("", async (realm) => {
      realm.edit(text(realm, ["a", "b"]));
      await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "b");
        realm.edit(text(realm, ["a", "c"], "[servers.b]\ncomand = 'x'"));
        await changed(client, 1);
        assert.deepEqual(owners(await listNames(client)).toSorted(), ["a", "b", "c"]);
        assert.equal(await askPid(client, "b"), pid);
        assert.equal(realm.starts("b").length, 1);
      });
    }),
  );

  it("is on a reload the one that does not run yet if two have the same prefix", LIMIT, () =>
    withRealm("", async (realm) => {
      realm.edit(text(realm, ["b"]));
      await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "b");
        realm.edit(text(realm, ["a"], text(realm, ["b"]), { prefix: "b" }));
        await saying(client, /servers\.a\.prefix/);
        assert.equal(await askPid(client, "b"), pid);
        assert.deepEqual(realm.starts("a"), []);
      });
    }),
  );

  it("is told in the instructions if there is no other, and an edit cures that", LIMIT, () =>
    withRealm("[servers.bad]\ncomand = 'x'", async (realm) => {
      await realm.serve(async (client) => {
        assert.deepEqual(await client.open(), []);
        const greetings = client.filter(({ result }) => result?.instructions !== undefined);
        const said = greetings.map(({ text: line }) => line).join("\n");
        assert.ok(said.includes("bad") && said.includes(`${realm.config}:2:1`), said);
        realm.edit(text(realm, ["bad"]));
        await changed(client, 1);
        await askPid(client, "bad");
      });
    }),
  );

  it("makes list, call and status exit with 3 and check with 2 if there is no other", LIMIT, () =>
    withRealm("[servers.bad]\ncomand = 'x'", async (realm) => {
      const codes = [];
      for (const args of [["list"], ["call", "bad__x"], ["call", "x"], ["status"], ["check"]]) {
        codes.push(await run(realm, ...args));
      }
      assert.deepEqual(codes, [3, 3, 3, 3, 2]);
    }),
  );

  it("makes status exit with 1 and check with 2 beside one that is right", LIMIT, () =>
    withRealm("", async (realm) => {
      realm.edit(text(realm, ["good"], "[servers.bad]\ncomand = 'x'"));
      const codes = [];
      for (const args of [["list"], ["status"], ["check"], ["doctor"]]) {
        codes.push(await run(realm, ...args));
      }
      assert.deepEqual(codes, [0, 1, 2, 2]);
    }),
  );
});
