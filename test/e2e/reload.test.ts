import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { END, LIMIT, executable } from "../harness/hub.ts";
import type { Manifest, ServerEntry } from "../harness/manifest.ts";
import { failure } from "../harness/message.ts";
import { isAlive, waitUntilGone } from "../harness/processes.ts";
import {
  askPid,
  changed,
  changes,
  type Edit,
  governed,
  hold,
  listNames,
  type Realm,
  saying,
  withRealm,
} from "../harness/controlled-servers.ts";

const EDITS: readonly Edit[] = ["in place", "by rename"];

const REFUSED = /the manifest was changed, but is not taken/;

/** A manifest of these servers, by name. */
function of(servers: Readonly<Record<string, ServerEntry>>): Manifest {
  return { servers };
}

/** A governed server that another argument makes another process. */
function version(argument: string, more: Readonly<Record<string, unknown>> = {}): ServerEntry {
  const { args = [], ...rest } = governed(more);
  return { ...rest, args: [...args, argument] };
}

function prefixes(names: readonly string[]): string[] {
  return [...new Set(names.map((name) => name.slice(0, name.indexOf("__"))))];
}

/** Runs a command of the executable to its end. @returns its exit code and stderr. */
async function command(
  { dir, env }: Realm,
  ...args: readonly string[]
): Promise<{ code: number | null; stderr: string }> {
  const client = new RawClient(executable(), args, dir, env);
  const { code } = await client.ended(END);
  return { code, stderr: client.stderr };
}

/** Removes one server and changes another while calls are in flight on both that never end. */
function overtake(): Promise<void> {
  return withRealm(of({ gone: governed(), other: version("1") }), async (realm) => {
    await realm.serve(async (client) => {
      await client.open();
      const names = ["gone", "other"] as const;
      const asked = names.map((name) => client.askCall(`${name}__hang`));
      for (const name of names)
        await realm.noting(name, (notes) => notes.find(({ tool }) => tool === "hang"));
      const pids = names.flatMap((name) => realm.started(name));
      const began = performance.now();
      realm.edit(of({ other: version("2") }));
      for (const [at, name] of names.entries()) {
        const { message } = await client.answer(asked[at], 20_000);
        assert.match(failure(message), new RegExp(`Server "${name}" was stopped`));
      }
      assert.ok(performance.now() - began > 9000);
      await waitUntilGone(pids, END);
      await askPid(client, "other");
    });
  });
}

let overtaken: Promise<void> | undefined;

// It takes more than 10 s: all other tests run meanwhile.
before(() => {
  overtaken = overtake();
  overtaken.catch(() => undefined);
});

// Also when its own test is not run: nothing of it is left behind.
after(() => overtaken?.catch(() => undefined), LIMIT);

describe("an edit of the manifest of a running hub", () => {
  for (const how of EDITS) {
    it(`that adds a server (${how}) shows its tools after one list_changed`, LIMIT, () =>
      withRealm(of({ a: governed() }), async ({ edit, serve, started }) => {
        const left = await serve(async (client) => {
          assert.deepEqual(prefixes((await client.open()).map(({ name }) => name)), ["a"]);
          edit(of({ a: governed(), b: governed() }), how);
          await changed(client, 1);
          assert.deepEqual(prefixes(await listNames(client)), ["a", "b"]);
          await askPid(client, "b");
        });
        assert.equal(changes(left), 1);
        assert.equal(started("a").length, 1);
      }),
    );

    it(
      `that removes a server (${how}) takes its tools away, lets its call finish and ends its process`,
      LIMIT,
      () =>
        withRealm(of({ a: governed(), b: governed() }), async (realm) => {
          const left = await realm.serve(async (client) => {
            await client.open();
            const pid = await askPid(client, "b");
            const call = await hold(realm, client, "b");
            realm.edit(of({ a: governed() }), how);
            await changed(client, 1);
            assert.deepEqual(prefixes(await listNames(client)), ["a"]);
            assert.equal((await client.call("b__pid")).message.error?.code, -32602);
            assert.ok(isAlive(pid));
            await call.release();
            await waitUntilGone([pid], END);
            await askPid(client, "a");
          });
          assert.equal(changes(left), 1);
        }),
    );
  }

  it(
    "that changes a server's arguments starts it anew when the old process is gone, its call is finished, and no other is disturbed",
    LIMIT,
    () =>
      withRealm(of({ a: governed(), b: version("1") }), async (realm) => {
        realm.rule("b", { stubborn: true });
        const left = await realm.serve(
          async (client) => {
            await client.open();
            const pids = { a: await askPid(client, "a"), b: await askPid(client, "b") };
            const calls = [await hold(realm, client, "a"), await hold(realm, client, "b")];
            realm.rule("b", { stubborn: true, tools: ["new"] });
            realm.edit(of({ a: governed(), b: version("2") }));
            // It waits for the new process, and is told of there: the old one gets no call any more.
            await saying(client, /toolmux: info b: its specification was changed/);
            const later = client.askCall("b__pid");
            for (const call of calls) await call.release();
            const { message } = await client.answer(later);
            assert.notEqual(Number(message.result?.content?.[0]?.text), pids.b);
            await changed(client, 1);
            assert.ok((await listNames(client)).includes("b__new"));
            assert.equal(await askPid(client, "a"), pids.a);
            const others = realm.starts("b").map((start) => start.others);
            assert.deepEqual(others, [[], []]);
            realm.rule("b", {});
          },
          ["--config", realm.config, "--log-level", "info"],
        );
        assert.equal(changes(left), 1);
      }),
  );

  it(
    "that changes a server that hangs at its start lets those who wait go on to the new one",
    LIMIT,
    () =>
      withRealm(of({ a: version("1"), b: governed() }), async (realm) => {
        for (const server of ["a", "b"]) realm.rule(server, { start: "hang" });
        await realm.serve(async (client) => {
          await client.initialize();
          const asked = [client.askCall("a__pid"), client.askCall("b__pid")];
          for (const server of ["a", "b"])
            await realm.noting(server, () => realm.starts(server)[0]);
          realm.edit(of({ a: version("2") }));
          const { pid, args } = await realm.noting("a", () => realm.starts("a")[1]);
          realm.rule("a", {});
          const [a, b] = await Promise.all(asked.map((id) => client.answer(id)));
          assert.equal(a?.message.result?.content?.[0]?.text, String(pid));
          assert.deepEqual(args, ["2"]);
          assert.match(failure(b?.message ?? {}), /Server "b" was stopped/);
        });
      }),
  );

  it("that disables a server ends it and hides its tools, until it is enabled again", LIMIT, () =>
    withRealm(of({ a: governed(), b: governed() }), async (realm) => {
      const left = await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        realm.edit(of({ a: governed({ enabled: false }), b: governed() }));
        await changed(client, 1);
        assert.deepEqual(prefixes(await listNames(client)), ["b"]);
        await waitUntilGone([pid], END);
        assert.match(failure((await client.call("a__pid")).message), /Server "a" is stopped/);
        realm.edit(of({ a: governed(), b: governed() }));
        await changed(client, 2);
        assert.deepEqual(prefixes(await listNames(client)), ["a", "b"]);
        assert.notEqual(await askPid(client, "a"), pid);
      });
      assert.equal(changes(left), 2);
    }),
  );

  it("that makes a server lazy leaves it running; one that is lazy no more is started", LIMIT, () =>
    withRealm(of({ a: governed(), b: governed({ lazy: true }), c: governed() }), async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        await realm.noting("b", (notes) => notes.find(({ event }) => event === "end"));
        realm.edit(
          of({ a: governed({ lazy: true }), b: governed(), c: governed({ prefix: "z" }) }),
        );
        await realm.noting("b", () => realm.starts("b")[1]);
        await changed(client, 1);
        assert.equal(await askPid(client, "a"), pid);
      });
    }),
  );

  it(
    "that changes a lazy server's arguments shows what it lists now, and lets it rest again",
    LIMIT,
    () =>
      withRealm(of({ a: version("1", { lazy: true }) }), async (realm) => {
        realm.rule("a", { tools: ["one"] });
        const rested = (times: number): Promise<unknown> =>
          realm.noting("a", (notes) => notes.filter(({ event }) => event === "end")[times - 1]);
        const left = await realm.serve(async (client) => {
          await client.open();
          await rested(1);
          realm.rule("a", { tools: ["two"] });
          realm.edit(of({ a: version("2", { lazy: true }) }));
          await changed(client, 1);
          const names = await listNames(client);
          assert.ok(names.includes("a__two") && !names.includes("a__one"));
          await rested(2);
          // What the first one had is known from before.
          realm.edit(of({ a: version("1", { lazy: true }) }));
          await changed(client, 2);
          assert.ok((await listNames(client)).includes("a__one"));
          assert.equal(realm.starts("a").length, 2);
        });
        assert.equal(changes(left), 2);
      }),
  );

  it("of a prefix, a filter, a new name or a limit is in force without a restart", LIMIT, () =>
    withRealm(of({ a: governed() }), async (realm) => {
      realm.rule("a", { tools: ["one", "two"] });
      const left = await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        const call = await hold(realm, client, "a");
        const tools = { deny: ["two"], rename: { one: "uno" }, timeout: { hang: "200ms" } };
        realm.edit(of({ a: governed({ prefix: "z", tools }) }));
        await changed(client, 1);
        const names = await listNames(client);
        assert.deepEqual(
          names,
          ["announce", "hang", "hold", "pid", "uno"].map((name) => `z__${name}`),
        );
        assert.equal(await askPid(client, "z"), pid);
        await call.release();
        assert.match(failure((await client.call("z__hang")).message), /0\.2 seconds/);
      });
      assert.equal(changes(left), 1);
      assert.equal(realm.started("a").length, 1);
    }),
  );

  for (const reconnect of [{ policy: "none" }, { base: "1h", max: "1h" }]) {
    const what = "policy" in reconnect ? "has failed" : "waits for its next attempt";
    it(`of how a server that ${what} is started has it tried at once`, LIMIT, () =>
      withRealm(of({ a: governed({ reconnect }), b: governed() }), async (realm) => {
        realm.rule("a", { start: "exit" });
        await realm.serve(async (client) => {
          await client.open();
          await saying(client, /Server "a" exited with code 3/);
          realm.rule("a", {});
          realm.edit(of({ a: governed({ reconnect }), b: governed({ prefix: "z" }) }));
          await changed(client, 1);
          assert.equal(realm.starts("a").length, 1);
          realm.edit(of({ a: governed({ connectTimeout: "59s", reconnect }), b: governed() }));
          await realm.noting("a", () => realm.starts("a")[1]);
          await askPid(client, "a");
          assert.deepEqual(prefixes(await listNames(client)), ["a", "b"]);
          assert.equal(realm.starts("a").length, 2);
        });
      }),
    );
  }

  it("that breaks it changes nothing and is told as by check; mending it works", LIMIT, () =>
    withRealm(of({ a: governed() }), async (realm) => {
      const wrong = '[servers.a]\ncommand = "x"\nargz = []\n\n[servers.b]\nenabled = 3\n';
      const broken = `${wrong}\n[hub]\nnme = "x"\n`;
      const left = await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        realm.edit(broken);
        await saying(client, REFUSED);
        const check = await command(realm, "check", "--config", realm.config);
        assert.equal(check.code, 2);
        const problems = check.stderr.split("\n").filter((line) => line.startsWith(realm.config));
        assert.equal(problems.length, 4);
        assert.match(problems[0] ?? "", /toolmux\.toml:3:1: servers\.a\.argz: unknown key/);
        for (const problem of problems)
          assert.ok(client.stderr.includes(`\n${problem}\n`), problem);
        assert.deepEqual(prefixes(await listNames(client)), ["a"]);
        realm.edit(of({ a: governed(), b: governed() }));
        await changed(client, 1);
        assert.deepEqual(prefixes(await listNames(client)), ["a", "b"]);
        assert.equal(await askPid(client, "a"), pid);
      });
      assert.equal(changes(left), 1);
    }),
  );

  it("ten times in a row ends with the last one, and never runs a server twice", LIMIT, () =>
    withRealm(of({ a: version("0"), b: governed() }), async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        for (let at = 1; at <= 10; at += 1) {
          realm.rule("a", { tools: [`tool_${at}`] });
          realm.edit(of({ a: version(String(at)), b: governed() }), EDITS[at % 2]);
        }
        await realm.noting("a", () => realm.starts("a").find(({ args }) => args?.[0] === "10"));
        await askPid(client, "a");
        assert.ok((await listNames(client)).includes("a__tool_10"));
        const starts = realm.starts("a");
        assert.ok(starts.every(({ others }) => others?.length === 0));
        assert.deepEqual(starts.at(-1)?.args, ["10"]);
        assert.equal(starts.filter(({ pid }) => isAlive(pid)).length, 1);
        assert.equal(realm.started("b").length, 1);
      });
    }),
  );

  it(
    "ten times, each as soon as the server of the one before starts, ends with the last one",
    LIMIT,
    () =>
      withRealm(of({ a: version("0") }), async (realm) => {
        await realm.serve(async (client) => {
          await client.open();
          for (let at = 1; at <= 10; at += 1) {
            const past = realm.started("a").length;
            realm.rule("a", { tools: [`tool_${at}`] });
            realm.edit(of({ a: version(String(at)) }), EDITS[at % 2]);
            await realm.noting("a", () => realm.started("a").length > past || undefined);
          }
          await askPid(client, "a");
          assert.ok((await listNames(client)).includes("a__tool_10"));
          const starts = realm.starts("a");
          assert.ok(starts.every(({ others }) => others?.length === 0));
          assert.equal(starts.length, 11);
        });
      }),
  );

  it("that deletes it changes nothing and is told; when it is back it counts", LIMIT, () =>
    withRealm(of({ a: governed() }), async (realm) => {
      const left = await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        rmSync(realm.config);
        await saying(client, REFUSED);
        assert.equal(await askPid(client, "a"), pid);
        realm.edit(of({ a: governed(), b: governed() }));
        await changed(client, 1);
        assert.deepEqual(prefixes(await listNames(client)), ["a", "b"]);
        assert.equal(await askPid(client, "a"), pid);
      });
      assert.equal(changes(left), 1);
    }),
  );

  it(
    "that puts what is no manifest in its place changes nothing, and is told each time",
    LIMIT,
    () =>
      withRealm(of({ a: governed() }), async (realm) => {
        const { config } = realm;
        const makers: Readonly<Record<string, () => void>> = {
          "is a folder, not a file": () => mkdirSync(config),
          "is not a regular file": () => symlinkSync("/dev/zero", config),
          "cannot be read \\(ELOOP\\)": () => symlinkSync(config, config),
          "is longer than 4194304 bytes": () => writeFileSync(config, "#".repeat(5_000_000)),
          "is not UTF-8 text": () => writeFileSync(config, Buffer.alloc(1000, 0xff)),
        };
        await realm.serve(async (client) => {
          await client.open();
          const pid = await askPid(client, "a");
          for (const [what, make] of Object.entries(makers)) {
            rmSync(config, { recursive: true, force: true });
            make();
            await saying(client, new RegExp(`toolmux\\.toml: ${what}\n`));
            assert.equal(await askPid(client, "a"), pid);
          }
          rmSync(config);
          realm.edit(of({ a: governed({ prefix: "z" }) }));
          await changed(client, 1);
          assert.equal(await askPid(client, "z"), pid);
        });
      }),
  );

  it("that empties it ends all servers", LIMIT, () =>
    withRealm(of({ a: governed() }), async (realm) => {
      await realm.serve(async (client) => {
        await client.open();
        realm.edit("");
        await changed(client, 1);
        assert.deepEqual(await listNames(client), []);
        await waitUntilGone(realm.started("a"), END);
      });
    }),
  );
});

describe("a trusted manifest in the working directory", () => {
  it("that changes is refused until it is trusted again beside the running hub", LIMIT, () =>
    withRealm(of({ a: governed() }), async (realm) => {
      assert.equal((await command(realm, "trust", realm.config)).code, 0);
      const left = await realm.serve(async (client) => {
        await client.open();
        const pid = await askPid(client, "a");
        realm.edit(of({ a: governed(), b: governed() }));
        await saying(client, /toolmux\.toml: has changed since it was trusted\n/);
        assert.doesNotMatch(client.stderr, /no manifest/);
        assert.deepEqual(prefixes(await listNames(client)), ["a"]);
        assert.equal(realm.started("b").length, 0);
        assert.equal((await command(realm, "trust", realm.config)).code, 0);
        await changed(client, 1);
        assert.deepEqual(prefixes(await listNames(client)), ["a", "b"]);
        assert.equal(await askPid(client, "a"), pid);
      }, []);
      assert.equal(changes(left), 1);
    }),
  );
});

describe("a hub on two manifests", () => {
  it("follows both, and the later one wins by server", LIMIT, () =>
    withRealm(of({ a: governed(), b: governed() }), async (realm) => {
      const second = join(realm.dir, "second.toml");
      realm.edit(of({ b: governed({ prefix: "second" }) }), "in place", second);
      const args = ["--config", realm.config, "--config", second];
      await realm.serve(async (client) => {
        assert.deepEqual(prefixes((await client.open()).map(({ name }) => name)), ["a", "second"]);
        realm.edit(of({ a: governed({ prefix: "one" }), b: governed({ prefix: "first" }) }));
        await changed(client, 1);
        assert.deepEqual(prefixes(await listNames(client)), ["one", "second"]);
        realm.edit(of({ b: governed({ prefix: "two" }), c: governed() }), "by rename", second);
        await client.until(END, "the tools of c", () => realm.started("c")[0]);
        await askPid(client, "c");
        assert.deepEqual(prefixes(await listNames(client)), ["c", "one", "two"]);
        assert.equal(realm.started("b").length, 1);
      }, args);
    }),
  );
});

describe("a call that never ends", () => {
  it("fails clearly 10 s after its server was removed or changed", LIMIT, async () => {
    await (overtaken ?? overtake());
  });
});
