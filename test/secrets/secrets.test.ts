import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import type { Clock } from "../../src/base/clock.ts";
import { HubError } from "../../src/base/errors.ts";
import { fileStore, openSecrets } from "../../src/secrets/secrets.ts";
import { memoryStore } from "../fixtures/memory-secret-store.ts";
import { secretVariableOf } from "../../src/secrets/secret-name.ts";
import { type Keychain, openKeychain, keyringFromPackage } from "../../src/secrets/keychain.ts";
import { formatVaultKey, makeVaultKey, seal, Vault } from "../../src/secrets/vault.ts";
import { storeContract } from "../contract/secret-store.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { MemoryKeyring } from "../fixtures/memory-keyring.ts";

const WRITER = fileURLToPath(new URL("../fixtures/processes/secret-writer.ts", import.meta.url));
const CANARY = "canary-value-1234567890";

async function withFolder<T>(run: (folder: string) => Promise<T>): Promise<T> {
  const root = await mkdtemp(join(tmpdir(), "toolmux-secrets-"));
  try {
    return await run(join(root, "secrets"));
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

function chainOf(keyring: MemoryKeyring, limit?: number, clock?: Clock): Keychain {
  return openKeychain({}, () => Promise.resolve(keyring), limit, clock);
}

/** One that is not there. */
function noKeychain(): Keychain {
  const keyring = new MemoryKeyring();
  keyring.failure = "rejects";
  return chainOf(keyring);
}

const openFile = (folder: string, keychain = noKeychain()) =>
  fileStore(new Vault(folder, keychain));

/** The package's class, over a keyring in memory. */
function packageOf(keyring: MemoryKeyring): Parameters<typeof keyringFromPackage>[0] {
  return {
    AsyncEntry: class {
      readonly #names: readonly [string, string];
      constructor(...names: [string, string]) {
        this.#names = names;
      }
      getPassword(): Promise<string | undefined> {
        return keyring.get(...this.#names);
      }
      setPassword(value: string): Promise<void> {
        return keyring.set(...this.#names, value);
      }
    },
  };
}

storeContract("memory", (run) => run({ store: memoryStore() }));
storeContract("a file whose key lies beside it", (run) =>
  withFolder((folder) => run({ store: openFile(folder), reopen: () => openFile(folder) })),
);
storeContract("a file whose key is in the keychain", (run) =>
  withFolder((folder) => {
    const keyring = new MemoryKeyring();
    const open = () => openFile(folder, chainOf(keyring));
    return run({ store: open(), reopen: open });
  }),
);
storeContract("a file whose key is in the keychain, by a package", (run) =>
  withFolder(async (folder) => {
    const keyring = new MemoryKeyring();
    const find = async () => keyringFromPackage(packageOf(keyring));
    const open = () => openFile(folder, openKeychain({}, find));
    await run({ store: open(), reopen: open });
    const isWritten = existsSync(join(folder, "values"));
    assert.equal(keyring.entries.size, isWritten ? 1 : 0);
  }),
);

function itIn(what: string, use: (folder: string) => Promise<void>, options = {}): void {
  it(what, options, () => withFolder(use));
}

const modeOf = async (...path: string[]): Promise<number> =>
  (await stat(join(...path))).mode & 0o777;
const broken = (message: RegExp) => ({ code: "storeBroken", message });

describe("the file of secrets", () => {
  itIn(
    "shows neither names nor values, is its owner's alone, and another each time",
    async (folder) => {
      const store = openFile(folder);
      await store.set("canary-name", CANARY);
      const first = await readFile(join(folder, "values"));
      assert.equal(first.indexOf("canary"), -1);
      await store.set("b", "2");
      await store.remove("b");
      const second = await readFile(join(folder, "values"));
      assert.ok(!first.subarray(34).equals(second.subarray(34)));
      for (const name of ["values", "key"]) assert.equal(await modeOf(folder, name), 0o600);
      assert.equal(await modeOf(folder), 0o700);
      assert.deepEqual((await readdir(folder)).toSorted(), ["key", "values"]);
    },
  );

  itIn("says where its key lies", async (folder) => {
    const keyring = new MemoryKeyring();
    const vault = new Vault(folder, chainOf(keyring));
    assert.equal(await vault.protection(), "none");
    await fileStore(vault).set("a", "1");
    assert.equal(await vault.protection(), "keychain");
    assert.deepEqual(await readdir(folder), ["values"]);
    assert.equal(keyring.entries.size, 1);
    const bare = new Vault(`${folder}2`, noKeychain());
    await fileStore(bare).set("a", "1");
    assert.equal(await bare.protection(), "beside");
  });

  itIn("becomes private again if others could read it", async (folder) => {
    await openFile(folder).set("a", "1");
    for (const name of ["values", "key"]) await chmod(join(folder, name), 0o644);
    await openFile(folder).get("a");
    for (const name of ["values", "key"]) assert.equal(await modeOf(folder, name), 0o600);
  });

  itIn("that was changed is refused, says what to do, and is not overwritten", async (folder) => {
    await openFile(folder).set("a", CANARY);
    const path = join(folder, "values");
    const whole = await readFile(path);
    const flips = [0, 16, 20, 36, 50, whole.length - 1].map((at) =>
      Buffer.from(whole.map((byte, index) => (index === at ? byte ^ 1 : byte))),
    );
    for (const bytes of [Buffer.alloc(0), whole.subarray(0, 20), whole.subarray(0, -1), ...flips]) {
      await writeFile(path, bytes);
      const store = openFile(folder);
      const uses = [
        () => store.get("a"),
        () => store.set("b", "1"),
        () => store.remove("a"),
        () => store.list(),
      ];
      for (const use of uses) {
        await assert.rejects(use, ({ code, message }: HubError) => {
          assert.equal(code, "storeBroken");
          assert.match(message, /values cannot be used: .*(move the store away|newer version|key)/);
          return !message.includes(CANARY);
        });
      }
      assert.ok((await readFile(path)).equals(bytes));
    }
    await writeFile(path, whole);
    assert.equal(await openFile(folder).get("a"), CANARY);
  });

  itIn("that cannot be written says where, and why", async (folder) => {
    await writeFile(folder, "in its place");
    await assert.rejects(openFile(folder).set("a", "1"), (error) => {
      assert.ok(error instanceof HubError, String(error));
      assert.equal(error.code, "storeBroken");
      return error.message.includes(folder);
    });
  });

  itIn("of a newer version is left to that", async (folder) => {
    await mkdir(folder);
    await writeFile(join(folder, "values"), "toolmux-secrets 2 0123456789abcdef\nwhatever");
    await assert.rejects(openFile(folder).set("a", "1"), broken(/newer version/));
  });

  itIn("whose key is lost is refused, and no new key made for it", async (folder) => {
    const keyring = new MemoryKeyring();
    await openFile(folder, chainOf(keyring)).set("a", "1");
    for (const keychain of [chainOf(new MemoryKeyring()), noKeychain()]) {
      const missing = broken(/its key is missing.*Unlock the keychain/);
      await assert.rejects(openFile(folder, keychain).set("a", "2"), missing);
    }
    assert.deepEqual(await readdir(folder), ["values"]);
    assert.equal(await openFile(folder, chainOf(keyring)).get("a"), "1");
  });

  itIn("whose key beside it is damaged is refused, and the key not overwritten", async (folder) => {
    await openFile(folder).set("a", "1");
    await writeFile(join(folder, "key"), "toolmux-key 1 x");
    await assert.rejects(openFile(folder).set("a", "2"), broken(/key, is damaged/));
    assert.equal(await readFile(join(folder, "key"), "utf8"), "toolmux-key 1 x");
  });

  itIn("may be of an earlier version, which named what was in the keychain", async (folder) => {
    const key = makeVaultKey();
    const content = JSON.stringify({ values: [["a", CANARY]], keychain: ["b"] });
    await mkdir(folder, { mode: 0o700 });
    await writeFile(join(folder, "key"), `${formatVaultKey(key)}\n`);
    await writeFile(join(folder, "values"), await seal(new TextEncoder().encode(content), key));
    const store = openFile(folder);
    assert.deepEqual(await store.list(), ["a"]);
    await store.set("c", "1");
    assert.deepEqual([await store.get("a"), await store.get("c")], [CANARY, "1"]);
  });

  itIn(
    "loses nothing of what several processes write at a time, one of which is killed",
    async (folder) => {
      const writers = ["a", "b", "c", "d"].map((name) => {
        const own = [WRITER, folder, name, "15"];
        const args = "Deno" in globalThis ? ["run", "-A", "--no-check", ...own] : own;
        const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
        return { child, exited: once(child, "exit") };
      });
      const [victim, ...others] = writers;
      assert.ok(victim);
      await once(victim.child.stdout, "data");
      victim.child.kill("SIGKILL");
      await Promise.all(writers.map(({ exited }) => exited));
      for (const { child } of others) assert.equal(child.exitCode, 0);
      const names = await openFile(folder).list();
      for (const name of ["b", "c", "d"])
        for (let i = 0; i < 15; i++) assert.ok(names.includes(`${name}${i}`), `${name}${i}`);
      assert.ok(names.includes("a0"));
    },
    { timeout: 30_000 },
  );
});

describe("the keychain", () => {
  it("that is not there gives nothing, says why, and is not asked again", async () => {
    const keyring = new MemoryKeyring();
    keyring.failure = "rejects";
    const keychain = chainOf(keyring);
    assert.equal(keychain.fault, undefined);
    assert.equal(await keychain.get("a"), undefined);
    assert.equal(keychain.fault, "no secret service");
    const message = "The keychain of this system cannot be used: no secret service.";
    await assert.rejects(keychain.set("a", CANARY), { code: "storeBroken", message });
    assert.equal(keyring.operationCount, 1);
  });

  it("that does not answer is given up in time, and not waited for twice", async () => {
    const keyring = new MemoryKeyring();
    keyring.failure = "hangs";
    const keychain = chainOf(keyring, 50);
    assert.equal(await keychain.get("a"), undefined);
    assert.match(keychain.fault ?? "", /did not answer within/);
    await assert.rejects(keychain.set("a", CANARY), { code: "storeBroken" });
    assert.equal(keyring.operationCount, 1);
  });

  for (const fail of ["rejects", "hangs"] as const)
    it(`that failed (${fail}) is asked again after a pause, which grows, and serves as before once it can`, async () => {
      const keyring = new MemoryKeyring();
      const clock = new VirtualClock();
      const keychain = chainOf(keyring, 20, clock);
      await keychain.set("a", CANARY);
      keyring.operationCount = 0;
      keyring.failure = fail;
      for (const pause of [30, 60, 120, 240, 480, 600, 600]) {
        // One of several finds out for all.
        const found = await Promise.all([1, 2, 3].map(() => keychain.get("a")));
        assert.deepEqual(found, [undefined, undefined, undefined]);
        const { operationCount: asked } = keyring;
        clock.advanceTo(clock.now() + pause * 1000 - 1);
        assert.equal(await keychain.get("a"), undefined);
        assert.equal(keyring.operationCount, asked);
        assert.notEqual(keychain.fault, undefined);
        clock.advanceTo(clock.now() + 1);
      }
      assert.equal(keyring.operationCount, 3 + 6);
      keyring.failure = "no";
      assert.equal(await keychain.get("a"), CANARY);
      assert.equal(keychain.fault, undefined);
      keyring.failure = fail;
      await assert.rejects(keychain.set("b", CANARY), { code: "storeBroken" });
      clock.advanceTo(clock.now() + 30_000);
      keyring.failure = "no";
      await keychain.set("b", CANARY);
    });

  it("that cannot be opened is opened anew when it is asked again", async () => {
    const clock = new VirtualClock();
    let opened = 0;
    const open = (): Promise<MemoryKeyring> =>
      ++opened === 1 ? Promise.reject(new Error("locked")) : Promise.resolve(new MemoryKeyring());
    const keychain = openKeychain({}, open, undefined, clock);
    await assert.rejects(keychain.set("a", CANARY), { code: "storeBroken" });
    clock.advanceTo(30_000);
    await keychain.set("a", CANARY);
    assert.equal(await keychain.get("a"), CANARY);
  });

  it("is left alone if the environment says so", async () => {
    const keychain = openKeychain({ TOOLMUX_KEYCHAIN: "off" }, () => assert.fail("it was opened"));
    assert.equal(await keychain.get("a"), undefined);
    assert.match(keychain.fault ?? "", /TOOLMUX_KEYCHAIN=off/);
  });
});

describe("a secret", () => {
  const withSecrets = (
    env: Record<string, string>,
    run: (secrets: ReturnType<typeof openSecrets>, keyring: MemoryKeyring) => Promise<void>,
  ) =>
    withFolder(async (folder) => {
      const keyring = new MemoryKeyring();
      const all = { HOME: folder, XDG_CONFIG_HOME: folder, ...env };
      await run(openSecrets({ env: all, platform: "linux" }, chainOf(keyring)), keyring);
    });

  it("has the variable that one would guess", () => {
    assert.equal(secretVariableOf("linear/token"), "TOOLMUX_SECRET_LINEAR_TOKEN");
    assert.equal(secretVariableOf("a.b-c_d"), "TOOLMUX_SECRET_A_B_C_D");
  });

  it("is looked for in one source after the other, in the order that is given", () =>
    withSecrets({ TOOLMUX_SECRET_A_B: "of the variable", "e-x": "by name" }, async (secrets) => {
      await secrets.file.set("a/b", "of the file");
      const find = async (...sources: ("environment" | "file")[]) =>
        (await secrets.find("a/b", sources.length > 0 ? sources : undefined))?.value;
      assert.equal(await find(), "of the variable");
      assert.equal(await find("file", "environment"), "of the file");
      assert.equal(await find("file"), "of the file");
      assert.deepEqual(await secrets.find("e-x"), { value: "by name", source: "environment" });
      await secrets.file.remove("a/b");
      assert.equal(await find("file", "environment"), "of the variable");
      assert.equal(await find("file"), undefined);
    }));

  it("is not looked for in the keychain, where earlier versions could keep it", () =>
    withSecrets({}, async (secrets, keyring) => {
      await keyring.set("toolmux", "secret/a", CANARY);
      assert.equal(await secrets.find("a"), undefined);
      assert.deepEqual(await secrets.file.list(), []);
    }));

  it("in an empty variable is none", () =>
    withSecrets({ A: "", TOOLMUX_SECRET_A: "" }, async (secrets) => {
      assert.equal(await secrets.find("A"), undefined);
    }));

  it("in the environment needs no store: nothing is opened for it", () =>
    withSecrets({ A: "here" }, async (secrets, keyring) => {
      assert.equal(await secrets.require("A"), "here");
      assert.equal(keyring.operationCount, 0);
    }));

  it("is none of those that let the hub into servers", () =>
    withFolder(async (folder) => {
      const env = { XDG_CONFIG_HOME: folder, TOOLMUX_KEYCHAIN: "off" };
      const secrets = openSecrets({ env, platform: "linux" });
      await secrets.file.set("oauth/server/a-1", CANARY);
      assert.equal(await secrets.find("oauth/server/a-1"), undefined);
      const refused = { code: "valueMissing", message: /servers cannot use it/ };
      await assert.rejects(secrets.require("oauth/server/a-1"), refused);
    }));

  it("that is missing is an error that says where it is not, and what to run", () =>
    withSecrets({}, async (secrets) => {
      const name = "linear/token";
      await assert.rejects(secrets.require(name), {
        code: "valueMissing",
        data: { secrets: [name] },
        message: `it is not set in the environment or the secret store; run: toolmux secret set ${name}`,
      });
      for (const [source, message] of [
        ["file", "it is not set in the secret store; run: toolmux secret set a"],
        ["environment", "it is not set in the environment; run: export TOOLMUX_SECRET_A=…"],
      ] as const) {
        await assert.rejects(secrets.require("a", [source]), { message });
      }
    }));
});
