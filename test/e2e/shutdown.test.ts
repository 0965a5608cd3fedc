import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { EOF_GRACE } from "../../src/base/grace-periods.ts";
import { HubError } from "../../src/base/errors.ts";
import { isObject } from "../harness/message.ts";
import { RawClient } from "../harness/raw-client.ts";
import { modernRequest } from "../fixtures/modern-requests.ts";
import { poll } from "../harness/wait.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  assertProtocolOnly,
  executable,
  it,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { type Manifest, scripted, toToml } from "../harness/manifest.ts";
import {
  pidsWithEnv,
  commandLineOf,
  environmentOf,
  waitForTrees,
  waitUntilExited,
  withProcessTree,
} from "../harness/processes.ts";

/** How long anything of a hub may still run after it has to end, in ms. */
const GRACE = 5000;

/** Each has processes around it that stay in its group or leave it, that can be asked to end and that cannot. */
const SERVERS = {
  polite: withProcessTree(scripted()),
  stubborn: withProcessTree(scripted("--ignore-term")),
};

/** Starts the hub without the checks of `withHub`. */
function open(setup: TestFolder, more: Readonly<Record<string, string>> = {}): RawClient {
  const args = ["--config", setup.config];
  const env = { ...setup.env, ...more };
  if (!("UNREAD" in more)) return new RawClient(executable(), args, setup.dir, env);
  // Its stderr is a pipe that it could read itself, and nobody else does.
  const script = 'mkfifo "$HOME/stderr" && exec "$0" "$@" 2<>"$HOME/stderr"';
  return new RawClient("sh", ["-c", script, executable(), ...args], setup.dir, env);
}

/** Starts every server, all that belongs to it and a call that hangs; returns the pids of all. */
async function populate(
  client: RawClient,
  { dir, waitForEvent: logged }: TestFolder,
): Promise<number[]> {
  await client.initializeAndList();
  client.sendCall("stubborn__hang");
  await logged("stubborn", ({ tool }) => tool === "hang");
  return await waitForTrees(dir, Object.keys(SERVERS).length);
}

/** Lets a server start a process that leaves its group; returns its pid. */
async function spawnGrandchild(client: RawClient, server: string, dir: string): Promise<number> {
  const { message } = await client.call(`${server}__grandchild`);
  const pid = Number(message.result?.content?.[0]?.text);
  // For a moment after its birth a process shows no environment.
  await poll(
    5000,
    () => `the environment of ${pid}`,
    () => pidsWithEnv(dir).includes(pid) || undefined,
  );
  return pid;
}

/** A way to end a hub, and how that shows. */
interface Ending {
  /** Set in the hub's environment; UNREAD: nobody reads its stderr. */
  readonly env?: Readonly<Record<string, string>>;
  readonly code: number;
  /** Nobody is asked to end, as there is no time to wait. */
  readonly isAbrupt: boolean;
  /** What is said of it on stderr. */
  readonly says?: RegExp;
  /** @returns whether it took so long that servers may have been asked before it was abrupt */
  end(client: RawClient, setup: TestFolder): void | boolean | Promise<void | boolean>;
}

/** A mistake that crash.mjs makes in the hub. */
function crash(way: string, more: Readonly<Record<string, string>> = {}): Ending {
  const preload = fileURLToPath(new URL("../fixtures/processes/crash.mjs", import.meta.url));
  const env = { BUN_OPTIONS: `--preload=${preload}`, CRASH: way, ...more };
  return { env, code: 1, isAbrupt: true, end: (client) => client.signal("SIGUSR2") };
}

/** A signal, the first or, when the hub waits for the stubborn server already, the second. */
function signal(name: NodeJS.Signals, code: number, isSecond = false): Ending {
  return {
    code,
    isAbrupt: isSecond,
    async end(client, { waitForEvent: logged }) {
      const start = performance.now();
      client.signal(name);
      if (!isSecond) return false;
      await logged("stubborn", ({ event }) => event === "eof");
      client.signal(name);
      return performance.now() - start > EOF_GRACE / 2;
    },
  };
}

const ENDINGS: Readonly<Record<string, Ending>> = {
  "the client closed stdin": { code: 0, isAbrupt: false, end: (client) => client.end() },
  SIGTERM: signal("SIGTERM", 143),
  SIGINT: signal("SIGINT", 130),
  SIGHUP: signal("SIGHUP", 129),
  "a second SIGTERM": signal("SIGTERM", 143, true),
  "standing still for long in the middle of its end": {
    code: 0,
    isAbrupt: false,
    async end(client, { waitForEvent: logged }) {
      const start = performance.now();
      client.end();
      await logged("stubborn", ({ event }) => event === "eof");
      client.signal("SIGSTOP");
      // All that it waits for comes late now, though not so late that it has no time left.
      await once(spawn("sleep", ["1.2"], { stdio: "ignore" }), "exit");
      client.signal("SIGCONT");
      // A busy machine may have left it no time for a signal.
      return performance.now() - start > 1400;
    },
  },
  "a rejection that nobody handled": { ...crash("rejection"), says: /Error: a mistake/ },
  "exceptions in every turn": { ...crash("exceptions in every turn"), says: /Error: a mistake/ },
  "exceptions without a turn between": crash("exceptions without a turn between"),
  "a throw of what cannot be shown": crash("a throw of what cannot be shown"),
  "an exception while nobody reads stderr": crash("an exception after much output", { UNREAD: "" }),
};

describe("nothing of a hub is left, whatever its servers have started, after", () => {
  // A server that ignores everything takes all the time that it gets, so the endings run side by side.
  let runs: Record<string, Promise<void>> = {};
  before(() => {
    runs = Object.fromEntries(Object.entries(ENDINGS).map(([name, ending]) => [name, run(ending)]));
    for (const one of Object.values(runs)) one.catch(() => undefined);
  });
  after(() => Promise.allSettled(Object.values(runs)));

  function run({ env, code, isAbrupt, says, end }: Ending): Promise<void> {
    return withTestFolder({ hub: { listWait: "10s" }, servers: SERVERS }, async (setup) => {
      const client = open(setup, env);
      const pids = await populate(client, setup);
      const isLate = (await end(client, setup)) === true;
      await waitUntilExited(pids, GRACE);
      assert.deepEqual(pidsWithEnv(setup.dir), [], "nothing was started meanwhile");
      assert.deepEqual(await client.waitForExit(EXIT_LIMIT), { code, signal: null });
      if (says !== undefined) assert.match(client.stderr, says);
      const events = setup.log("stubborn").map(({ event }) => event);
      if (!isLate) assert.equal(events.includes("signal"), !isAbrupt);
      if (!isAbrupt) assert.ok(events.includes("eof"), "it learns first that nobody is there");
      assertProtocolOnly(client);
    });
  }

  for (const name of Object.keys(ENDINGS)) it(name, () => runs[name]);
});

describe("a client that closes stdin and still reads", () => {
  it("gets the answers of all that it has sent, also of a last line without a newline", () =>
    withTestFolder({ hub: { listWait: "10s" }, servers: { a: scripted() } }, async (setup) => {
      const client = open(setup);
      const request = (id: number, method: string, params: object): string =>
        JSON.stringify({ jsonrpc: "2.0", id, method, params });
      const initialize = {
        protocolVersion: "2025-06-18",
        capabilities: {},
        clientInfo: { name: "test", version: "1" },
      };
      client.write(
        [
          request(1, "initialize", initialize),
          request(2, "tools/list", {}),
          request(3, "tools/call", { name: "a__echo", arguments: { x: 1 } }),
        ].join("\n"),
      );
      client.end();
      assert.deepEqual(await client.waitForExit(EXIT_LIMIT), { code: 0, signal: null });
      const ids = client.lines.flatMap(({ json }) =>
        isObject(json) && "id" in json ? [json.id] : [],
      );
      assert.deepEqual(new Set(ids), new Set([1, 2, 3]));
      assertProtocolOnly(client);
    }));

  it("gets the tools of a server that is still starting, in the modern era, too", () =>
    withTestFolder({ hub: { listWait: "10s" }, servers: { a: scripted() } }, async (setup) => {
      const client = open(setup);
      client.write(`${JSON.stringify(modernRequest(1, "tools/list"))}\n`);
      client.end();
      assert.deepEqual(await client.waitForExit(EXIT_LIMIT), { code: 0, signal: null });
      assert.equal(client.lines.length, 1);
      assert.match(client.lines[0]?.text ?? "", /"name":"a__echo"/);
    }));

  it("gets an error for a call that has no answer, and the hub ends with 0 within two seconds", () =>
    withTestFolder({ hub: { listWait: "10s" }, servers: SERVERS }, async (setup) => {
      const client = open(setup);
      const pids = await populate(client, setup);
      const start = performance.now();
      client.end();
      assert.deepEqual(await client.waitForExit(EXIT_LIMIT), { code: 0, signal: null });
      const duration = performance.now() - start;
      assert.ok(duration < 4000, `it took ${duration} ms`);
      const { code } = new HubError("cancelled", "").toRpc();
      const errors = client.lines.filter(({ text }) => text.includes(`"code":${code}`));
      assert.equal(errors.length, 1, JSON.stringify(client.lines.map(({ text }) => text)));
      await waitUntilExited(pids, GRACE);
    }));
});

describe("a hub that is another one's server", () => {
  /** Starts a hub with that server, whose own servers run with their families; gives the pids of all. */
  function nested(
    run: (hub: { client: RawClient; inner: number; pids: number[] }) => Promise<void>,
  ): Promise<void> {
    const manifest = (dir: string): Manifest => {
      const config = join(dir, "inner.toml");
      writeFileSync(config, toToml({ servers: SERVERS }));
      const inner = { command: executable(), args: ["serve", "--config", config] };
      // Started again it would sweep away itself what it has left.
      const reconnect = { policy: "none" };
      return { hub: { listWait: "10s" }, defaults: { reconnect }, servers: { inner } };
    };
    return withTestFolder(manifest, async (setup) => {
      const client = open(setup);
      await client.initializeAndList();
      const pids = await waitForTrees(setup.dir, Object.keys(SERVERS).length);
      const inner = pids.find((pid) => commandLineOf(pid).includes("inner.toml"));
      assert.ok(inner !== undefined);
      await run({ client, inner, pids });
      await waitUntilExited(
        pids.filter((pid) => pid !== client.pid),
        GRACE,
      );
      client.end();
      await client.waitForExit(EXIT_LIMIT);
    });
  }

  it("ends with it, and with all that it has started itself", () =>
    nested(({ client }) => Promise.resolve(client.end())));

  it("leaves nothing to it if it is killed", () =>
    nested(({ inner }) => Promise.resolve(void process.kill(inner, "SIGKILL"))));

  it("ends if that one is killed", () =>
    nested(({ client }) => Promise.resolve(client.signal("SIGKILL"))));
});

describe("a client that goes away", () => {
  it("before it said anything leaves nothing behind", () =>
    withHub({ servers: { a: scripted("--start-delay 60000") } }, async ({ client }) => {
      client.end();
      await client.waitForExit(EXIT_LIMIT);
    }));

  it("by kill -9 takes everything with it, in the middle of a call", () =>
    whenTheClientIsKilled("relay"));

  it("by kill -9 takes everything with it although somebody else holds stdin open", () =>
    whenTheClientIsKilled("inherit"));

  it("is seen while the hub takes nothing in, as the client does not read, although a request stands before it", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const client = open(setup);
      await client.initializeAndList();
      const pids = pidsWithEnv(setup.dir);
      client.pause();
      for (let n = 0; n < 12; n++) client.sendCall("a__big", { bytes: 4_000_000 });
      const isTaken = async (n: number): Promise<boolean> => {
        client.sendCall("a__echo", { n });
        const test = (text = ""): boolean => text === JSON.stringify({ n });
        const seen = setup.waitForEvent("a", (event) => test(event.arguments), 1000);
        return seen.then(
          () => true,
          () => false,
        );
      };
      let requests = 1;
      while (await isTaken(requests)) requests++;
      client.end();
      await waitUntilExited(pids, GRACE);
      client.resume();
    }));
});

/** A client process starts the hub, with pipes of its own or with those that this process holds, and is killed. */
function whenTheClientIsKilled(mode: "relay" | "inherit"): Promise<void> {
  return withTestFolder({ hub: { listWait: "10s" }, servers: SERVERS }, async (setup) => {
    const victim = fileURLToPath(new URL("../harness/killable-client.mjs", import.meta.url));
    const args = [victim, mode, executable(), "--config", setup.config];
    const client = new RawClient(process.execPath, args, setup.dir, setup.env);
    const pids = await populate(client, setup);
    client.signal("SIGKILL");
    await waitUntilExited(pids, GRACE);
  });
}

describe("the processes of servers", () => {
  it("carry the hub's tag, also those that left their group, and are swept with a server that died", () =>
    withHub({ servers: { a: scripted() } }, async ({ client, dir }) => {
      await client.initializeAndList();
      const server = Number((await client.call("a__pid")).message.result?.content?.[0]?.text);
      const grandchild = await spawnGrandchild(client, "a", dir);
      const tags = [server, grandchild].map((pid) =>
        environmentOf(pid).find((pair) => pair.startsWith("TOOLMUX_OWNER=")),
      );
      assert.ok(tags[0]?.includes(String(client.pid)));
      assert.equal(tags[1], tags[0]);
      await client.call("a__die");
      await client.call("a__echo");
      await waitUntilExited([grandchild], EXIT_LIMIT);
    }));

  it("see a small environment, their own settings and their own folder, and no secret of the hub's", () =>
    withTestFolder(
      {
        servers: {
          a: scripted("", { env: { OWN: "value" }, inheritEnv: ["WANTED"], cwd: "state" }),
        },
      },
      async (setup) => {
        const env = {
          ...setup.env,
          SECRET_TOKEN: "hidden",
          WANTED: "yes",
          BUN_OPTIONS: "",
          BUN_INSTALL: "/nowhere",
          LC_ALL: "C",
        };
        const client = new RawClient(executable(), ["--config", setup.config], setup.dir, env);
        await client.initializeAndList();
        const text =
          (await client.call("a__surroundings")).message.result?.content?.[0]?.text ?? "{}";
        const seen = JSON.parse(text) as { cwd: string; env: Record<string, string> };
        assert.equal(seen.cwd, `${setup.dir}/state`);
        const { OWN, WANTED, LC_ALL, HOME, SECRET_TOKEN } = seen.env;
        assert.deepEqual(
          [OWN, WANTED, LC_ALL, HOME, SECRET_TOKEN],
          ["value", "yes", "C", setup.dir, undefined],
        );
        const ofBun = Object.keys(seen.env).filter((key) => key.startsWith("BUN_"));
        assert.deepEqual(ofBun, []);
        client.end();
        await client.waitForExit(EXIT_LIMIT);
        assertProtocolOnly(client);
      },
    ));
});
