import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { run, runCommand } from "../harness/command.ts";
import {
  callPid,
  controlled,
  type ControlledServers,
  type EditMethod,
  holdCall,
  listChangedCount,
  listToolNames,
  waitForListChanged,
  waitForStderr,
  withControlledServers,
} from "../harness/controlled-servers.ts";
import { EXIT_LIMIT, it, itTogether, TEST_OPTIONS } from "../harness/hub.ts";
import type { ServerEntry } from "../harness/manifest.ts";
import { failureText } from "../harness/message.ts";
import { isAlive, waitUntilExited } from "../harness/processes.ts";
import type { RawClient } from "../harness/raw-client.ts";

const EDITS: readonly EditMethod[] = ["in place", "by rename"];
const REFUSED = /the changed config has errors/;

type Servers = Readonly<Record<string, ServerEntry>>;

/** A running hub with a client that has listed its tools. */
interface EditedHub extends ControlledServers {
  readonly client: RawClient;
  /** Writes a manifest of these servers. */
  edit(servers: Servers, how?: EditMethod, path?: string): void;
  prefixes(): Promise<string>;
  /** The prefixes after the list_changed of this number. */
  prefixesAfter(count: number): Promise<string>;
}

/**
 * Runs a hub on a manifest of these servers, which tells its client `changes` times that its tools have changed.
 * `prepare` comes before its start, and may return its arguments.
 */
function withEditedHub(
  servers: Servers,
  changes: number | undefined,
  check: (hub: EditedHub) => Promise<void>,
  prepare?: (harness: ControlledServers) => readonly string[] | void,
): Promise<void> {
  return withControlledServers({ servers }, async (harness) => {
    const args = prepare?.(harness) ?? undefined;
    const client = await harness.serve(async (started) => {
      await started.initializeAndList();
      await check({
        ...harness,
        client: started,
        edit: (edited, how, path) => harness.editManifest({ servers: edited }, how, path),
        prefixes: () => prefixesOf(started),
        prefixesAfter: async (count) => {
          await waitForListChanged(started, count);
          return prefixesOf(started);
        },
      });
    }, args);
    if (changes !== undefined) assert.equal(listChangedCount(client), changes);
  });
}

/** The prefixes of the tools, each once. */
async function prefixesOf(client: RawClient): Promise<string> {
  const names = await listToolNames(client);
  return [...new Set(names.map((name) => name.slice(0, name.indexOf("__"))))].join();
}

/** A controlled server that another argument makes another process. */
function version(argument: string, more: Readonly<Record<string, unknown>> = {}): ServerEntry {
  const { args = [], ...rest } = controlled(more);
  return { ...rest, args: [...args, argument] };
}

/** Waits until the last process of a server has ended for the `times`th time. */
function waitForEnd(
  { waitForEvents }: ControlledServers,
  server: string,
  times = 1,
): Promise<unknown> {
  const ends = (events: readonly { event: string }[]) =>
    events.filter(({ event }) => event === "end");
  return waitForEvents(server, (events) => ends(events)[times - 1]);
}

/** Removes one server and changes another while calls are in flight on both that never end. */
function overtake(): Promise<void> {
  const servers = { gone: controlled(), other: version("1") };
  return withEditedHub(servers, undefined, async (hub) => {
    const names = ["gone", "other"] as const;
    const asked = names.map((name) => hub.client.sendCall(`${name}__hang`));
    for (const name of names)
      await hub.waitForEvents(name, (events) => events.find(({ tool }) => tool === "hang"));
    const pids = names.flatMap((name) => hub.startedPids(name));
    const began = performance.now();
    hub.edit({ other: version("2") });
    for (const [at, name] of names.entries()) {
      const { message } = await hub.client.response(asked[at], 20_000);
      assert.match(failureText(message), new RegExp(`Server "${name}" was stopped`));
    }
    assert.ok(performance.now() - began > 9000);
    await waitUntilExited(pids, EXIT_LIMIT);
    await callPid(hub.client, "other");
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

const A = { a: controlled() };
const A_AND_B = { a: controlled(), b: controlled() };

describe("an edit of the manifest of a running hub", () => {
  const test = itTogether();

  test("in place or by rename that adds a server shows its tools, and one that removes it takes them away, lets its call finish and ends its process", () =>
    withEditedHub(A, 2 * EDITS.length, async (hub) => {
      assert.equal(await hub.prefixes(), "a");
      for (const [at, how] of EDITS.entries()) {
        hub.edit(A_AND_B, how);
        assert.equal(await hub.prefixesAfter(2 * at + 1), "a,b");
        const pid = await callPid(hub.client, "b");
        const call = await holdCall(hub, hub.client, "b");
        hub.edit(A, how);
        assert.equal(await hub.prefixesAfter(2 * at + 2), "a");
        assert.equal((await hub.client.call("b__pid")).message.error?.code, -32602);
        assert.ok(isAlive(pid));
        await call.release();
        await waitUntilExited([pid], EXIT_LIMIT);
        await callPid(hub.client, "a");
        assert.equal(hub.startedPids("a").length, 1);
      }
    }));

  test("that changes a server's arguments starts it anew when the old process is gone, its call is finished, and no other is disturbed", () => {
    const check = async (hub: EditedHub): Promise<void> => {
      const { client } = hub;
      const pids = { a: await callPid(client, "a"), b: await callPid(client, "b") };
      const calls = [await holdCall(hub, client, "a"), await holdCall(hub, client, "b")];
      hub.setRules("b", { stubborn: true, tools: ["new"] });
      hub.edit({ ...A, b: version("2") });
      // It waits for the new process, and is told of there: the old one gets no call any more.
      await waitForStderr(client, /toolmux: info b: its settings changed/);
      const later = client.sendCall("b__pid");
      for (const call of calls) await call.release();
      const { message } = await client.response(later);
      assert.notEqual(Number(message.result?.content?.[0]?.text), pids.b);
      await waitForListChanged(client, 1);
      assert.ok((await listToolNames(client)).includes("b__new"));
      assert.equal(await callPid(client, "a"), pids.a);
      const others = hub.startEvents("b").map((start) => start.others);
      assert.deepEqual(others, [[], []]);
      hub.setRules("b", {});
    };
    // On a busy machine the list changes once more when the new process is listed.
    return withEditedHub({ ...A, b: version("1") }, undefined, check, ({ config, setRules }) => {
      setRules("b", { stubborn: true });
      return ["--config", config, "--log-level", "info"];
    });
  });

  test("that changes a server that hangs at its start lets those who wait go on to the new one", () =>
    withControlledServers({ servers: { a: version("1"), b: controlled() } }, async (harness) => {
      for (const server of ["a", "b"]) harness.setRules(server, { start: "hang" });
      await harness.serve(async (client) => {
        await client.initialize();
        const asked = [client.sendCall("a__pid"), client.sendCall("b__pid")];
        for (const server of ["a", "b"])
          await harness.waitForEvents(server, () => harness.startEvents(server)[0]);
        harness.editManifest({ servers: { a: version("2") } });
        const { pid, args } = await harness.waitForEvents("a", () => harness.startEvents("a")[1]);
        harness.setRules("a", {});
        const [a, b] = await Promise.all(asked.map((id) => client.response(id)));
        assert.equal(a?.message.result?.content?.[0]?.text, String(pid));
        assert.deepEqual(args, ["2"]);
        assert.match(failureText(b?.message ?? {}), /Server "b" was stopped/);
      });
    }));

  test("that disables a server ends it and hides its tools, until it is enabled again", () =>
    withEditedHub(A_AND_B, 2, async (hub) => {
      const pid = await callPid(hub.client, "a");
      hub.edit({ ...A_AND_B, a: controlled({ enabled: false }) });
      assert.equal(await hub.prefixesAfter(1), "b");
      await waitUntilExited([pid], EXIT_LIMIT);
      const { message } = await hub.client.call("a__pid");
      assert.match(failureText(message), /Server "a" is stopped/);
      hub.edit(A_AND_B);
      assert.equal(await hub.prefixesAfter(2), "a,b");
      assert.notEqual(await callPid(hub.client, "a"), pid);
    }));

  test("that makes a server lazy leaves it running; one that is lazy no more is started", () => {
    const lazy = controlled({ lazy: true });
    return withEditedHub({ ...A, b: lazy, c: controlled() }, undefined, async (hub) => {
      const pid = await callPid(hub.client, "a");
      await waitForEnd(hub, "b");
      hub.edit({ a: lazy, b: controlled(), c: controlled({ prefix: "z" }) });
      await hub.waitForEvents("b", () => hub.startEvents("b")[1]);
      await waitForListChanged(hub.client, 1);
      assert.equal(await callPid(hub.client, "a"), pid);
    });
  });

  test("that changes a lazy server's arguments shows what it lists now, and lets it rest again", () => {
    const check = async (hub: EditedHub): Promise<void> => {
      await waitForEnd(hub, "a");
      hub.setRules("a", { tools: ["two"] });
      hub.edit({ a: version("2", { lazy: true }) });
      await waitForListChanged(hub.client, 1);
      // On a busy machine the list may be asked for before the server has answered; then it changes once more.
      for (let names: string[] = []; !names.includes("a__two");) {
        const changes = listChangedCount(hub.client);
        names = await listToolNames(hub.client);
        assert.ok(!names.includes("a__one"));
        if (!names.includes("a__two")) await waitForListChanged(hub.client, changes + 1);
      }
      await waitForEnd(hub, "a", 2);
      const changes = listChangedCount(hub.client);
      // What the first one had is known from before.
      hub.edit({ a: version("1", { lazy: true }) });
      await waitForListChanged(hub.client, changes + 1);
      assert.ok((await listToolNames(hub.client)).includes("a__one"));
      assert.equal(hub.startEvents("a").length, 2);
    };
    const prepare = ({ setRules }: ControlledServers) => setRules("a", { tools: ["one"] });
    return withEditedHub({ a: version("1", { lazy: true }) }, undefined, check, prepare);
  });

  test("of a prefix, a filter, a new name or a limit is in force without a restart", () => {
    const check = async (hub: EditedHub): Promise<void> => {
      const { client } = hub;
      const pid = await callPid(client, "a");
      const call = await holdCall(hub, client, "a");
      const tools = { deny: ["two"], rename: { one: "uno" }, timeout: { hang: "200ms" } };
      hub.edit({ a: controlled({ prefix: "z", tools }) });
      await waitForListChanged(client, 1);
      const names = ["announce", "hang", "hold", "pid", "uno"].map((name) => `z__${name}`);
      assert.deepEqual(await listToolNames(client), names);
      assert.equal(await callPid(client, "z"), pid);
      await call.release();
      assert.match(failureText((await client.call("z__hang")).message), /0\.2 seconds/);
      assert.equal(hub.startedPids("a").length, 1);
    };
    return withEditedHub(A, 1, check, ({ setRules }) => setRules("a", { tools: ["one", "two"] }));
  });

  test("of how a server that has failed, or waits for its next attempt, is started has it tried at once", () => {
    const RECONNECT = { failed: { policy: "none" }, waiting: { base: "1h", max: "1h" } };
    const names = ["failed", "waiting"] as const;
    const entries = (more = {}): Servers =>
      Object.fromEntries(
        names.map((name) => [name, controlled({ reconnect: RECONNECT[name], ...more })]),
      );
    const check = async (hub: EditedHub): Promise<void> => {
      for (const name of names) {
        await waitForStderr(hub.client, new RegExp(`Server "${name}" exited with code 3`));
        hub.setRules(name, {});
      }
      hub.edit({ ...entries(), b: controlled({ prefix: "z" }) });
      await waitForListChanged(hub.client, 1);
      for (const name of names) assert.equal(hub.startEvents(name).length, 1);
      hub.edit({ ...entries({ connectTimeout: "59s" }), b: controlled() });
      for (const name of names) {
        await hub.waitForEvents(name, () => hub.startEvents(name)[1]);
        await callPid(hub.client, name);
        assert.equal(hub.startEvents(name).length, 2);
      }
      assert.equal(await hub.prefixes(), "b,failed,waiting");
    };
    const prepare = ({ setRules }: ControlledServers): void => {
      for (const name of names) setRules(name, { start: "exit" });
    };
    return withEditedHub({ ...entries(), b: controlled() }, undefined, check, prepare);
  });

  test("that breaks it, deletes it or puts what is no manifest in its place changes nothing and is told as by check; mending it works", () =>
    withEditedHub(A, undefined, async (hub) => {
      const { client, config } = hub;
      const pid = await callPid(client, "a");
      const wrong = '[servers.a]\ncommand = "x"\nargz = []\n\n[servers.b]\nenabled = 3\n';
      hub.editManifest(`${wrong}\n[hub]\nnme = "x"\n`);
      await waitForStderr(client, REFUSED);
      const { code, stderr } = await run(hub, "check");
      assert.equal(code, 2);
      const problems = stderr.split("\n").filter((line) => line.startsWith(config));
      assert.equal(problems.length, 4);
      assert.match(problems[0] ?? "", /toolmux\.toml:3:1: servers\.a\.argz: unknown key/);
      for (const problem of problems) assert.ok(client.stderr.includes(`\n${problem}\n`), problem);
      assert.equal(await hub.prefixes(), "a");
      hub.edit(A_AND_B);
      assert.equal(await hub.prefixesAfter(1), "a,b");

      for (const [what, make] of [
        ["does not exist|cannot be read", () => {}],
        ["is a folder, not a file", () => mkdirSync(config)],
        ["is not a regular file", () => symlinkSync("/dev/zero", config)],
        ["cannot be read \\(ELOOP\\)", () => symlinkSync(config, config)],
        ["is longer than 4194304 bytes", () => writeFileSync(config, "#".repeat(5_000_000))],
        ["is not UTF-8 text", () => writeFileSync(config, Buffer.alloc(1000, 0xff))],
      ] as const) {
        rmSync(config, { recursive: true, force: true });
        make();
        await waitForStderr(client, new RegExp(`toolmux\\.toml: (?:${what})`));
        assert.equal(await callPid(client, "a"), pid);
      }
      rmSync(config);
      hub.edit({ a: controlled({ prefix: "z" }) });
      await waitForListChanged(client, 2);
      assert.equal(await callPid(client, "z"), pid);

      hub.editManifest("");
      assert.equal(await hub.prefixesAfter(3), "");
      await waitUntilExited([pid], EXIT_LIMIT);
    }));

  test("five times in a row ends with the last one, and never runs a server twice", () =>
    withEditedHub({ a: version("0"), b: controlled() }, undefined, async (hub) => {
      for (let at = 1; at <= 5; at += 1) {
        hub.setRules("a", { tools: [`tool_${at}`] });
        hub.edit({ a: version(String(at)), b: controlled() }, EDITS[at % 2]);
      }
      const isLast = ({ args }: { args?: readonly string[] }): boolean => args?.[0] === "5";
      await hub.waitForEvents("a", () => hub.startEvents("a").find(isLast));
      await callPid(hub.client, "a");
      assert.ok((await listToolNames(hub.client)).includes("a__tool_5"));
      const starts = hub.startEvents("a");
      assert.ok(starts.every(({ others }) => others?.length === 0));
      assert.deepEqual(starts.at(-1)?.args, ["5"]);
      assert.equal(starts.filter(({ pid }) => isAlive(pid)).length, 1);
      assert.equal(hub.startedPids("b").length, 1);
    }));

  test("five times, each as soon as the server of the one before starts, ends with the last one", () =>
    withEditedHub({ a: version("0") }, undefined, async (hub) => {
      for (let at = 1; at <= 5; at += 1) {
        const past = hub.startedPids("a").length;
        hub.setRules("a", { tools: [`tool_${at}`] });
        hub.edit({ a: version(String(at)) }, EDITS[at % 2]);
        await hub.waitForEvents("a", () => hub.startedPids("a").length > past || undefined);
      }
      await callPid(hub.client, "a");
      assert.ok((await listToolNames(hub.client)).includes("a__tool_5"));
      const starts = hub.startEvents("a");
      assert.ok(starts.every(({ others }) => others?.length === 0));
      assert.equal(starts.length, 6);
    }));
});

describe("a trusted manifest in the working directory", () => {
  it("that changes is refused until it is trusted again beside the running hub", () =>
    withControlledServers({ servers: A }, async (harness) => {
      const trust = async (): Promise<void> =>
        assert.equal((await runCommand(harness, ["trust", harness.config])).code, 0);
      await trust();
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        harness.editManifest({ servers: A_AND_B });
        await waitForStderr(client, /toolmux\.toml: has changed since it was trusted\n/);
        assert.doesNotMatch(client.stderr, /no manifest/);
        assert.equal(await prefixesOf(client), "a");
        assert.equal(harness.startedPids("b").length, 0);
        await trust();
        await waitForListChanged(client, 1);
        assert.equal(await prefixesOf(client), "a,b");
        assert.equal(await callPid(client, "a"), pid);
      }, []);
      assert.equal(listChangedCount(left), 1);
    }));
});

describe("a hub on two manifests", () => {
  it("follows both, and the later one wins by server", () => {
    const second = ({ dir }: ControlledServers): string => join(dir, "second.toml");
    const b = (prefix: string): Servers => ({ b: controlled({ prefix }) });
    const check = async (hub: EditedHub): Promise<void> => {
      assert.equal(await hub.prefixes(), "a,second");
      hub.edit({ a: controlled({ prefix: "one" }), ...b("first") });
      assert.equal(await hub.prefixesAfter(1), "one,second");
      hub.edit({ ...b("two"), c: controlled() }, "by rename", second(hub));
      await hub.client.until(EXIT_LIMIT, "the tools of c", () => hub.startedPids("c")[0]);
      await callPid(hub.client, "c");
      assert.equal(await hub.prefixes(), "c,one,two");
      assert.equal(hub.startedPids("b").length, 1);
    };
    return withEditedHub(A_AND_B, undefined, check, (harness) => {
      harness.editManifest({ servers: b("second") }, "in place", second(harness));
      return ["--config", harness.config, "--config", second(harness)];
    });
  });
});

describe("a call that never ends", () => {
  it("fails clearly 10 s after its server was removed or changed", async () => {
    await (overtaken ?? overtake());
  });
});
