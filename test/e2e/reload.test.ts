import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, TEST_OPTIONS, executable, it } from "../harness/hub.ts";
import type { Manifest, ServerEntry } from "../harness/manifest.ts";
import { failureText } from "../harness/message.ts";
import { isAlive, waitUntilExited } from "../harness/processes.ts";
import {
  callPid,
  waitForListChanged,
  listChangedCount,
  type EditMethod,
  controlled,
  holdCall,
  listToolNames,
  type ControlledServers,
  waitForStderr,
  withControlledServers,
} from "../harness/controlled-servers.ts";

const EDITS: readonly EditMethod[] = ["in place", "by rename"];

const REFUSED = /the changed config has errors/;

/** A manifest of these servers, by name. */
function of(servers: Readonly<Record<string, ServerEntry>>): Manifest {
  return { servers };
}

/** A governed server that another argument makes another process. */
function version(argument: string, more: Readonly<Record<string, unknown>> = {}): ServerEntry {
  const { args = [], ...rest } = controlled(more);
  return { ...rest, args: [...args, argument] };
}

function prefixes(names: readonly string[]): string[] {
  return [...new Set(names.map((name) => name.slice(0, name.indexOf("__"))))];
}

/** Runs a command of the executable to its end. @returns its exit code and stderr. */
async function command(
  { dir, env }: ControlledServers,
  ...args: readonly string[]
): Promise<{ code: number | null; stderr: string }> {
  const client = new RawClient(executable(), args, dir, env);
  const { code } = await client.waitForExit(EXIT_LIMIT);
  return { code, stderr: client.stderr };
}

/** Removes one server and changes another while calls are in flight on both that never end. */
function overtake(): Promise<void> {
  return withControlledServers(of({ gone: controlled(), other: version("1") }), async (harness) => {
    await harness.serve(async (client) => {
      await client.initializeAndList();
      const names = ["gone", "other"] as const;
      const asked = names.map((name) => client.sendCall(`${name}__hang`));
      for (const name of names)
        await harness.waitForEvents(name, (notes) => notes.find(({ tool }) => tool === "hang"));
      const pids = names.flatMap((name) => harness.startedPids(name));
      const began = performance.now();
      harness.editManifest(of({ other: version("2") }));
      for (const [at, name] of names.entries()) {
        const { message } = await client.response(asked[at], 20_000);
        assert.match(failureText(message), new RegExp(`Server "${name}" was stopped`));
      }
      assert.ok(performance.now() - began > 9000);
      await waitUntilExited(pids, EXIT_LIMIT);
      await callPid(client, "other");
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
after(() => overtaken?.catch(() => undefined), TEST_OPTIONS);

describe("an edit of the manifest of a running hub", () => {
  for (const how of EDITS) {
    it(`that adds a server (${how}) shows its tools after one list_changed`, () =>
      withControlledServers(
        of({ a: controlled() }),
        async ({ editManifest: edit, serve, startedPids: started }) => {
          const left = await serve(async (client) => {
            assert.deepEqual(prefixes((await client.initializeAndList()).map(({ name }) => name)), [
              "a",
            ]);
            edit(of({ a: controlled(), b: controlled() }), how);
            await waitForListChanged(client, 1);
            assert.deepEqual(prefixes(await listToolNames(client)), ["a", "b"]);
            await callPid(client, "b");
          });
          assert.equal(listChangedCount(left), 1);
          assert.equal(started("a").length, 1);
        },
      ));

    it(`that removes a server (${how}) takes its tools away, lets its call finish and ends its process`, () =>
      withControlledServers(of({ a: controlled(), b: controlled() }), async (harness) => {
        const left = await harness.serve(async (client) => {
          await client.initializeAndList();
          const pid = await callPid(client, "b");
          const call = await holdCall(harness, client, "b");
          harness.editManifest(of({ a: controlled() }), how);
          await waitForListChanged(client, 1);
          assert.deepEqual(prefixes(await listToolNames(client)), ["a"]);
          assert.equal((await client.call("b__pid")).message.error?.code, -32602);
          assert.ok(isAlive(pid));
          await call.release();
          await waitUntilExited([pid], EXIT_LIMIT);
          await callPid(client, "a");
        });
        assert.equal(listChangedCount(left), 1);
      }));
  }

  it("that changes a server's arguments starts it anew when the old process is gone, its call is finished, and no other is disturbed", () =>
    withControlledServers(of({ a: controlled(), b: version("1") }), async (harness) => {
      harness.setRules("b", { stubborn: true });
      const left = await harness.serve(
        async (client) => {
          await client.initializeAndList();
          const pids = { a: await callPid(client, "a"), b: await callPid(client, "b") };
          const calls = [
            await holdCall(harness, client, "a"),
            await holdCall(harness, client, "b"),
          ];
          harness.setRules("b", { stubborn: true, tools: ["new"] });
          harness.editManifest(of({ a: controlled(), b: version("2") }));
          // It waits for the new process, and is told of there: the old one gets no call any more.
          await waitForStderr(client, /toolmux: info b: its settings changed/);
          const later = client.sendCall("b__pid");
          for (const call of calls) await call.release();
          const { message } = await client.response(later);
          assert.notEqual(Number(message.result?.content?.[0]?.text), pids.b);
          await waitForListChanged(client, 1);
          assert.ok((await listToolNames(client)).includes("b__new"));
          assert.equal(await callPid(client, "a"), pids.a);
          const others = harness.startEvents("b").map((start) => start.others);
          assert.deepEqual(others, [[], []]);
          harness.setRules("b", {});
        },
        ["--config", harness.config, "--log-level", "info"],
      );
      assert.equal(listChangedCount(left), 1);
    }));

  it("that changes a server that hangs at its start lets those who wait go on to the new one", () =>
    withControlledServers(of({ a: version("1"), b: controlled() }), async (harness) => {
      for (const server of ["a", "b"]) harness.setRules(server, { start: "hang" });
      await harness.serve(async (client) => {
        await client.initialize();
        const asked = [client.sendCall("a__pid"), client.sendCall("b__pid")];
        for (const server of ["a", "b"])
          await harness.waitForEvents(server, () => harness.startEvents(server)[0]);
        harness.editManifest(of({ a: version("2") }));
        const { pid, args } = await harness.waitForEvents("a", () => harness.startEvents("a")[1]);
        harness.setRules("a", {});
        const [a, b] = await Promise.all(asked.map((id) => client.response(id)));
        assert.equal(a?.message.result?.content?.[0]?.text, String(pid));
        assert.deepEqual(args, ["2"]);
        assert.match(failureText(b?.message ?? {}), /Server "b" was stopped/);
      });
    }));

  it("that disables a server ends it and hides its tools, until it is enabled again", () =>
    withControlledServers(of({ a: controlled(), b: controlled() }), async (harness) => {
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        harness.editManifest(of({ a: controlled({ enabled: false }), b: controlled() }));
        await waitForListChanged(client, 1);
        assert.deepEqual(prefixes(await listToolNames(client)), ["b"]);
        await waitUntilExited([pid], EXIT_LIMIT);
        assert.match(failureText((await client.call("a__pid")).message), /Server "a" is stopped/);
        harness.editManifest(of({ a: controlled(), b: controlled() }));
        await waitForListChanged(client, 2);
        assert.deepEqual(prefixes(await listToolNames(client)), ["a", "b"]);
        assert.notEqual(await callPid(client, "a"), pid);
      });
      assert.equal(listChangedCount(left), 2);
    }));

  it("that makes a server lazy leaves it running; one that is lazy no more is started", () =>
    withControlledServers(
      of({ a: controlled(), b: controlled({ lazy: true }), c: controlled() }),
      async (harness) => {
        await harness.serve(async (client) => {
          await client.initializeAndList();
          const pid = await callPid(client, "a");
          await harness.waitForEvents("b", (notes) => notes.find(({ event }) => event === "end"));
          harness.editManifest(
            of({
              a: controlled({ lazy: true }),
              b: controlled(),
              c: controlled({ prefix: "z" }),
            }),
          );
          await harness.waitForEvents("b", () => harness.startEvents("b")[1]);
          await waitForListChanged(client, 1);
          assert.equal(await callPid(client, "a"), pid);
        });
      },
    ));

  it("that changes a lazy server's arguments shows what it lists now, and lets it rest again", () =>
    withControlledServers(of({ a: version("1", { lazy: true }) }), async (harness) => {
      harness.setRules("a", { tools: ["one"] });
      const rested = (times: number): Promise<unknown> =>
        harness.waitForEvents(
          "a",
          (notes) => notes.filter(({ event }) => event === "end")[times - 1],
        );
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        await rested(1);
        harness.setRules("a", { tools: ["two"] });
        harness.editManifest(of({ a: version("2", { lazy: true }) }));
        await waitForListChanged(client, 1);
        const names = await listToolNames(client);
        assert.ok(names.includes("a__two") && !names.includes("a__one"));
        await rested(2);
        // What the first one had is known from before.
        harness.editManifest(of({ a: version("1", { lazy: true }) }));
        await waitForListChanged(client, 2);
        assert.ok((await listToolNames(client)).includes("a__one"));
        assert.equal(harness.startEvents("a").length, 2);
      });
      assert.equal(listChangedCount(left), 2);
    }));

  it("of a prefix, a filter, a new name or a limit is in force without a restart", () =>
    withControlledServers(of({ a: controlled() }), async (harness) => {
      harness.setRules("a", { tools: ["one", "two"] });
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        const call = await holdCall(harness, client, "a");
        const tools = { deny: ["two"], rename: { one: "uno" }, timeout: { hang: "200ms" } };
        harness.editManifest(of({ a: controlled({ prefix: "z", tools }) }));
        await waitForListChanged(client, 1);
        const names = await listToolNames(client);
        assert.deepEqual(
          names,
          ["announce", "hang", "hold", "pid", "uno"].map((name) => `z__${name}`),
        );
        assert.equal(await callPid(client, "z"), pid);
        await call.release();
        assert.match(failureText((await client.call("z__hang")).message), /0\.2 seconds/);
      });
      assert.equal(listChangedCount(left), 1);
      assert.equal(harness.startedPids("a").length, 1);
    }));

  for (const reconnect of [{ policy: "none" }, { base: "1h", max: "1h" }]) {
    const what = "policy" in reconnect ? "has failed" : "waits for its next attempt";
    it(`of how a server that ${what} is started has it tried at once`, () =>
      withControlledServers(
        of({ a: controlled({ reconnect }), b: controlled() }),
        async (harness) => {
          harness.setRules("a", { start: "exit" });
          await harness.serve(async (client) => {
            await client.initializeAndList();
            await waitForStderr(client, /Server "a" exited with code 3/);
            harness.setRules("a", {});
            harness.editManifest(
              of({ a: controlled({ reconnect }), b: controlled({ prefix: "z" }) }),
            );
            await waitForListChanged(client, 1);
            assert.equal(harness.startEvents("a").length, 1);
            harness.editManifest(
              of({ a: controlled({ connectTimeout: "59s", reconnect }), b: controlled() }),
            );
            await harness.waitForEvents("a", () => harness.startEvents("a")[1]);
            await callPid(client, "a");
            assert.deepEqual(prefixes(await listToolNames(client)), ["a", "b"]);
            assert.equal(harness.startEvents("a").length, 2);
          });
        },
      ));
  }

  it("that breaks it changes nothing and is told as by check; mending it works", () =>
    withControlledServers(of({ a: controlled() }), async (harness) => {
      const wrong = '[servers.a]\ncommand = "x"\nargz = []\n\n[servers.b]\nenabled = 3\n';
      const broken = `${wrong}\n[hub]\nnme = "x"\n`;
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        harness.editManifest(broken);
        await waitForStderr(client, REFUSED);
        const check = await command(harness, "check", "--config", harness.config);
        assert.equal(check.code, 2);
        const problems = check.stderr.split("\n").filter((line) => line.startsWith(harness.config));
        assert.equal(problems.length, 4);
        assert.match(problems[0] ?? "", /toolmux\.toml:3:1: servers\.a\.argz: unknown key/);
        for (const problem of problems)
          assert.ok(client.stderr.includes(`\n${problem}\n`), problem);
        assert.deepEqual(prefixes(await listToolNames(client)), ["a"]);
        harness.editManifest(of({ a: controlled(), b: controlled() }));
        await waitForListChanged(client, 1);
        assert.deepEqual(prefixes(await listToolNames(client)), ["a", "b"]);
        assert.equal(await callPid(client, "a"), pid);
      });
      assert.equal(listChangedCount(left), 1);
    }));

  it("ten times in a row ends with the last one, and never runs a server twice", () =>
    withControlledServers(of({ a: version("0"), b: controlled() }), async (harness) => {
      await harness.serve(async (client) => {
        await client.initializeAndList();
        for (let at = 1; at <= 10; at += 1) {
          harness.setRules("a", { tools: [`tool_${at}`] });
          harness.editManifest(of({ a: version(String(at)), b: controlled() }), EDITS[at % 2]);
        }
        await harness.waitForEvents("a", () =>
          harness.startEvents("a").find(({ args }) => args?.[0] === "10"),
        );
        await callPid(client, "a");
        assert.ok((await listToolNames(client)).includes("a__tool_10"));
        const starts = harness.startEvents("a");
        assert.ok(starts.every(({ others }) => others?.length === 0));
        assert.deepEqual(starts.at(-1)?.args, ["10"]);
        assert.equal(starts.filter(({ pid }) => isAlive(pid)).length, 1);
        assert.equal(harness.startedPids("b").length, 1);
      });
    }));

  it("ten times, each as soon as the server of the one before starts, ends with the last one", () =>
    withControlledServers(of({ a: version("0") }), async (harness) => {
      await harness.serve(async (client) => {
        await client.initializeAndList();
        for (let at = 1; at <= 10; at += 1) {
          const past = harness.startedPids("a").length;
          harness.setRules("a", { tools: [`tool_${at}`] });
          harness.editManifest(of({ a: version(String(at)) }), EDITS[at % 2]);
          await harness.waitForEvents(
            "a",
            () => harness.startedPids("a").length > past || undefined,
          );
        }
        await callPid(client, "a");
        assert.ok((await listToolNames(client)).includes("a__tool_10"));
        const starts = harness.startEvents("a");
        assert.ok(starts.every(({ others }) => others?.length === 0));
        assert.equal(starts.length, 11);
      });
    }));

  it("that deletes it changes nothing and is told; when it is back it counts", () =>
    withControlledServers(of({ a: controlled() }), async (harness) => {
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        rmSync(harness.config);
        await waitForStderr(client, REFUSED);
        assert.equal(await callPid(client, "a"), pid);
        harness.editManifest(of({ a: controlled(), b: controlled() }));
        await waitForListChanged(client, 1);
        assert.deepEqual(prefixes(await listToolNames(client)), ["a", "b"]);
        assert.equal(await callPid(client, "a"), pid);
      });
      assert.equal(listChangedCount(left), 1);
    }));

  it("that puts what is no manifest in its place changes nothing, and is told each time", () =>
    withControlledServers(of({ a: controlled() }), async (harness) => {
      const { config } = harness;
      const makers: Readonly<Record<string, () => void>> = {
        "is a folder, not a file": () => mkdirSync(config),
        "is not a regular file": () => symlinkSync("/dev/zero", config),
        "cannot be read \\(ELOOP\\)": () => symlinkSync(config, config),
        "is longer than 4194304 bytes": () => writeFileSync(config, "#".repeat(5_000_000)),
        "is not UTF-8 text": () => writeFileSync(config, Buffer.alloc(1000, 0xff)),
      };
      await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        for (const [what, make] of Object.entries(makers)) {
          rmSync(config, { recursive: true, force: true });
          make();
          await waitForStderr(client, new RegExp(`toolmux\\.toml: ${what}\n`));
          assert.equal(await callPid(client, "a"), pid);
        }
        rmSync(config);
        harness.editManifest(of({ a: controlled({ prefix: "z" }) }));
        await waitForListChanged(client, 1);
        assert.equal(await callPid(client, "z"), pid);
      });
    }));

  it("that empties it ends all servers", () =>
    withControlledServers(of({ a: controlled() }), async (harness) => {
      await harness.serve(async (client) => {
        await client.initializeAndList();
        harness.editManifest("");
        await waitForListChanged(client, 1);
        assert.deepEqual(await listToolNames(client), []);
        await waitUntilExited(harness.startedPids("a"), EXIT_LIMIT);
      });
    }));
});

describe("a trusted manifest in the working directory", () => {
  it("that changes is refused until it is trusted again beside the running hub", () =>
    withControlledServers(of({ a: controlled() }), async (harness) => {
      assert.equal((await command(harness, "trust", harness.config)).code, 0);
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        harness.editManifest(of({ a: controlled(), b: controlled() }));
        await waitForStderr(client, /toolmux\.toml: has changed since it was trusted\n/);
        assert.doesNotMatch(client.stderr, /no manifest/);
        assert.deepEqual(prefixes(await listToolNames(client)), ["a"]);
        assert.equal(harness.startedPids("b").length, 0);
        assert.equal((await command(harness, "trust", harness.config)).code, 0);
        await waitForListChanged(client, 1);
        assert.deepEqual(prefixes(await listToolNames(client)), ["a", "b"]);
        assert.equal(await callPid(client, "a"), pid);
      }, []);
      assert.equal(listChangedCount(left), 1);
    }));
});

describe("a hub on two manifests", () => {
  it("follows both, and the later one wins by server", () =>
    withControlledServers(of({ a: controlled(), b: controlled() }), async (harness) => {
      const second = join(harness.dir, "second.toml");
      harness.editManifest(of({ b: controlled({ prefix: "second" }) }), "in place", second);
      const args = ["--config", harness.config, "--config", second];
      await harness.serve(async (client) => {
        assert.deepEqual(prefixes((await client.initializeAndList()).map(({ name }) => name)), [
          "a",
          "second",
        ]);
        harness.editManifest(
          of({ a: controlled({ prefix: "one" }), b: controlled({ prefix: "first" }) }),
        );
        await waitForListChanged(client, 1);
        assert.deepEqual(prefixes(await listToolNames(client)), ["one", "second"]);
        harness.editManifest(
          of({ b: controlled({ prefix: "two" }), c: controlled() }),
          "by rename",
          second,
        );
        await client.until(EXIT_LIMIT, "the tools of c", () => harness.startedPids("c")[0]);
        await callPid(client, "c");
        assert.deepEqual(prefixes(await listToolNames(client)), ["c", "one", "two"]);
        assert.equal(harness.startedPids("b").length, 1);
      }, args);
    }));
});

describe("a call that never ends", () => {
  it("fails clearly 10 s after its server was removed or changed", async () => {
    await (overtaken ?? overtake());
  });
});
