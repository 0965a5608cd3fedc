import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { HOST, versionFlags } from "../../scripts/target.ts";
import { run as runCommand, runJson } from "../harness/command.ts";
import { GO_CLIENT, SKIP_WITHOUT_GO } from "../harness/go.ts";
import {
  assertProtocolOnly,
  executable,
  it,
  itWith,
  TEST_OPTIONS,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { type Manifest, scripted } from "../harness/manifest.ts";
import type { RpcMessage } from "../harness/message.ts";
import { waitUntilExited } from "../harness/processes.ts";
import { RawClient } from "../harness/raw-client.ts";
import { waitFor, waitUntil } from "../harness/wait.ts";

/** Within which each open call must have ended after the hub was killed, in ms. */
const ERROR_LIMIT = 1000;
/** Within which nothing of the killed hub may run, in ms. */
const SWEEP_LIMIT = 3000;
const EXIT_LIMIT = 5000;
const ANSWER_LOST = -31002;

const MANIFEST: Manifest = { hub: { shared: true }, servers: { a: scripted() } };

/** A folder whose manifest is the user's own, so that `hub.shared` counts. */
function withShared(
  run: (folder: SharedFolder) => Promise<void>,
  manifest = MANIFEST,
): Promise<void> {
  return withTestFolder(manifest, async (folder) => {
    const clients: RawClient[] = [];
    const open: SharedFolder["open"] = (args = ["attach"], env = {}, program = executable()) => {
      const all = [...args, "--config", folder.config];
      const client = new RawClient(program, all, folder.dir, { ...folder.env, ...env });
      clients.push(client);
      return client;
    };
    try {
      await run({ ...folder, open });
      for (const client of clients) client.end();
      await Promise.all(clients.map((client) => client.waitForExit(EXIT_LIMIT)));
      for (const client of clients) assertProtocolOnly(client);
    } finally {
      for (const client of clients) client.end();
      await runCommand(folder, "daemon", "stop");
    }
  });
}

interface SharedFolder extends TestFolder {
  /** Starts a client: by default `toolmux attach`. */
  open(
    args?: readonly string[],
    env?: Readonly<Record<string, string>>,
    program?: string,
  ): RawClient;
}

interface Status {
  readonly hubs: readonly {
    readonly pid: number;
    readonly version: string;
    readonly clients: readonly { readonly pid?: number }[];
    readonly olderThan?: string;
  }[];
}

/** The one shared hub, as soon as there is exactly one. */
async function findHub(folder: TestFolder): Promise<number> {
  return waitUntil("exactly one shared hub", async () => {
    const { hubs } = await runJson<Status>(folder, "daemon", "status");
    return hubs.length === 1 ? hubs[0]?.pid : undefined;
  });
}

function signal(pid: number, name: NodeJS.Signals): void {
  // The ids 0 and below stand for groups of processes.
  assert.ok(pid > 1, `${pid} is the id of one process`);
  process.kill(pid, name);
}

/** Builds the executable as another version. @returns its path */
async function buildVersion(version: string, folder: string): Promise<string> {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const args = ["build", ...HOST.args(folder), ...versionFlags(version)];
  await promisify(execFile)(process.execPath, args, { cwd: root });
  return join(folder, HOST.output);
}

function eventsOf(folder: TestFolder, name: string): ReturnType<TestFolder["log"]> {
  return folder.log("a").filter(({ event }) => event === name);
}

const codeOf = ({ error }: RpcMessage): unknown => error?.code;

describe("toolmux attach", () => {
  it("gives twelve clients one hub and one server process, and ends each of 96 calls when the hub is killed", () =>
    withShared(async (folder) => {
      const clients = Array.from({ length: 12 }, () => folder.open());
      await Promise.all(clients.map((client) => client.initializeAndList()));
      const first = await findHub(folder);
      const [server, ...others] = eventsOf(folder, "start");
      assert.equal(others.length, 0);
      assert.ok(server !== undefined);
      const calls = clients.flatMap((client) =>
        Array.from({ length: 8 }, () => ({
          client,
          id: client.sendCall("a__sleep", { ms: 60_000 }),
        })),
      );
      await waitFor("96 calls at the server", () =>
        eventsOf(folder, "call").length === calls.length ? true : undefined,
      );
      signal(first, "SIGKILL");
      const ended = await Promise.all(
        calls.map(({ client, id }) => client.response(id, ERROR_LIMIT)),
      );
      assert.equal(ended.filter(({ message }) => codeOf(message) === ANSWER_LOST).length, 96);

      const next = await Promise.all(clients.map((client) => client.call("a__echo", { n: 1 })));
      assert.deepEqual([...new Set(next.map(({ message }) => codeOf(message)))], [undefined]);
      await waitUntilExited([first, server.pid], SWEEP_LIMIT);
      assert.notEqual(await findHub(folder), first);
      assert.equal(eventsOf(folder, "start").length, 2);
      for (const client of clients) {
        const changed = "notifications/tools/list_changed";
        assert.equal(client.filter(({ method }) => method === changed).length, 1);
        const answers = client.filter(({ method }) => method === undefined);
        const ids = answers.map(({ message }) => message.id);
        assert.equal(new Set(ids).size, ids.length, "no request has two answers");
      }
    }));

  it("sends an initialize that a killed hub has left open to the next hub", () =>
    withShared(async (folder) => {
      const client = folder.open();
      const hub = await waitUntil("the attached client", async () => {
        const { hubs } = await runJson<Status>(folder, "daemon", "status");
        return hubs[0]?.clients.length === 1 ? hubs[0].pid : undefined;
      });
      signal(hub, "SIGSTOP");
      const opened = client.initializeAndList();
      signal(hub, "SIGKILL");
      await opened;
      assert.notEqual(await findHub(folder), hub);
    }));

  it("ends a call of a 50 MB result with an error, and nothing but whole lines, when the hub is killed", () =>
    withShared(async (folder) => {
      const client = folder.open();
      await client.initializeAndList();
      const hub = await findHub(folder);
      client.pause();
      const big = client.sendCall("a__big", { bytes: 50_000_000 });
      await folder.waitForEvent("a", ({ event }) => event === "call");
      signal(hub, "SIGKILL");
      await waitUntilExited([hub], SWEEP_LIMIT);
      client.resume();
      assert.equal(codeOf((await client.response(big, 5000)).message), ANSWER_LOST);
      assert.equal(codeOf((await client.call("a__echo")).message), undefined);
    }));

  it("answers after a pause of the hub, and serves others while a client is suspended or killed", () =>
    withShared(async (folder) => {
      const [one, other] = [folder.open(), folder.open()];
      await Promise.all([one, other].map((client) => client.initializeAndList()));
      const hub = await findHub(folder);
      signal(hub, "SIGSTOP");
      const waiting = one.sendCall("a__echo", { n: 1 });
      signal(hub, "SIGCONT");
      assert.equal(codeOf((await one.response(waiting)).message), undefined);

      signal(one.pid, "SIGSTOP");
      assert.equal(codeOf((await other.call("a__echo")).message), undefined);
      signal(one.pid, "SIGCONT");

      const open = [one, other].map((client) => client.sendCall("a__sleep", { ms: 2000 }));
      await waitFor("both calls at the server", () =>
        eventsOf(folder, "call").filter(({ tool }) => tool === "sleep").length === 2
          ? true
          : undefined,
      );
      signal(one.pid, "SIGKILL");
      await folder.waitForEvent("a", ({ event }) => event === "cancelled");
      assert.equal(codeOf((await other.response(open[1])).message), undefined);
      assert.equal(eventsOf(folder, "cancelled").length, 1);
    }));

  it("answers what stdin has brought before its end", () =>
    withShared(async (folder) => {
      const client = folder.open();
      await client.initializeAndList();
      const [quick, slow] = [
        client.sendCall("a__sleep", { ms: 200 }),
        client.sendCall("a__sleep", { ms: 60_000 }),
      ];
      client.end();
      assert.equal(codeOf((await client.response(quick)).message), undefined);
      assert.equal(typeof codeOf((await client.response(slow)).message), "number");
      await client.waitForExit(EXIT_LIMIT);
    }));

  it("starts the hub although the process that was starting it was killed", () =>
    withShared(async (folder) => {
      const first = folder.open();
      const state = join(folder.dir, "state", "toolmux");
      await waitFor("the lock", () =>
        existsSync(state) && readdirSync(state).some((name) => /^attach-.*\.lock$/.test(name))
          ? true
          : undefined,
      );
      signal(first.pid, "SIGKILL");
      await folder.open().initializeAndList();
      await findHub(folder);
    }));

  it("refuses a client with an unknown mode as the answer to its requests, and exits with 2", () =>
    withShared(async (folder) => {
      const client = folder.open(["attach", "--mode", "none"]);
      const { message } = await client.request("initialize", {});
      assert.equal((message.error?.data as { code?: string }).code, "usage");
      client.end();
      assert.equal((await client.waitForExit(EXIT_LIMIT)).code, 2);
    }));

  it("starts a private hub, and says so in one line, without a state folder or with options of one hub", () =>
    withShared(async (folder) => {
      const file = join(folder.dir, "file");
      writeFileSync(file, "");
      const noState = folder.open(["attach"], { XDG_STATE_HOME: file });
      const recording = folder.open([
        "serve",
        "--shared",
        "--record",
        join(folder.dir, "recording.jsonl"),
      ]);
      for (const client of [noState, recording]) {
        await client.initializeAndList();
        assert.equal(codeOf((await client.call("a__echo")).message), undefined);
        const lines = client.stderr.split("\n").filter((line) => line.includes("hub of its own"));
        assert.equal(lines.length, 1);
      }
      assert.equal((await runJson<Status>(folder, "daemon", "status")).hubs.length, 0);
    }));

  it("is what hub.shared of the user's own manifest makes of serve, but not with --private", () =>
    withShared(async (folder) => {
      const own = join(folder.dir, "config", "toolmux");
      mkdirSync(own, { recursive: true });
      copyFileSync(folder.config, join(own, "toolmux.toml"));
      const start = (...args: readonly string[]): RawClient =>
        new RawClient(executable(), args, own, folder.env);
      const hubs = async (): Promise<number> => {
        const { stdout } = await runCommand(
          { ...folder, config: join(own, "toolmux.toml") },
          "daemon",
          "status",
          "--json",
        );
        return (JSON.parse(stdout) as Status).hubs.length;
      };
      for (const [args, count] of [
        [["serve", "--private"], 0],
        [[], 1],
      ] as const) {
        const client = start(...args);
        await client.initializeAndList();
        assert.equal(await hubs(), count);
        client.end();
        await client.waitForExit(EXIT_LIMIT);
      }
      assert.equal((await runCommand(folder, "serve", "--shared", "--private")).code, 2);
      await runCommand({ ...folder, config: join(own, "toolmux.toml") }, "daemon", "stop");
    }));

  it("refuses a client that a server of the hub has started", () =>
    withShared(async (folder) => {
      await folder.open().initializeAndList();
      const hub = await findHub(folder);
      const inner = folder.open(["attach"], { TOOLMUX_HUBS: `${hub}:x` });
      const { message } = await inner.request("initialize", {});
      assert.equal((message.error?.data as { code?: string }).code, "hubLoop");
    }));

  itWith({ timeout: 3 * TEST_OPTIONS.timeout })(
    "serves each client by the newest version that runs, and never by an older one than its own if that can be started",
    () =>
      withShared(async (folder) => {
        const NEWER = "99.0.0";
        const program = await buildVersion(NEWER, folder.dir);
        const openNewer = (env = {}): RawClient => folder.open(["attach"], env, program);
        /** The versions of the hubs, and of each which of these clients it has. */
        const hubsOf = async (...clients: readonly RawClient[]): Promise<readonly unknown[]> => {
          const args = ["daemon", "status", "--json", "--config", folder.config];
          const { stdout } = await promisify(execFile)(program, args, { env: folder.env });
          const { hubs } = JSON.parse(stdout) as Status;
          return hubs.map((hub) => {
            const pids = new Set(hub.clients.map(({ pid }) => pid));
            const has = clients.flatMap((client, at) => (pids.has(client.pid) ? [at] : []));
            return [hub.version, hub.olderThan, has];
          });
        };
        const echo = async (client: RawClient): Promise<void> =>
          assert.equal(codeOf((await client.call("a__echo")).message), undefined);

        const old = folder.open();
        await old.initializeAndList();
        const first = await findHub(folder);
        const { version } = (await runJson<Status>(folder, "daemon", "status")).hubs[0] ?? {};
        assert.ok(version !== undefined);
        // Without a state folder no hub of its own version can be started.
        const file = join(folder.dir, "file");
        writeFileSync(file, "");
        const bound = openNewer({ XDG_STATE_HOME: file });
        await bound.initializeAndList();
        assert.deepEqual(await hubsOf(old, bound), [[version, NEWER, [0, 1]]]);

        const newer = openNewer();
        await newer.initializeAndList();
        const later = folder.open();
        await later.initializeAndList();
        assert.deepEqual(await hubsOf(old, bound, newer, later), [
          [version, NEWER, [0, 1]],
          [NEWER, undefined, [2, 3]],
        ]);

        // The hub of the newer version dies: its clients are served as if they came only now.
        const { hubs } = await runJson<Status>(folder, "daemon", "status");
        const second = hubs.find((hub) => hub.version === NEWER)?.pid ?? -1;
        const open = [newer, later].map((client) => client.sendCall("a__hang"));
        await waitFor("both calls at the server", () =>
          eventsOf(folder, "call").filter(({ tool }) => tool === "hang").length === 2
            ? true
            : undefined,
        );
        signal(second, "SIGKILL");
        for (const [at, client] of [newer, later].entries())
          assert.equal(codeOf((await client.response(open[at], 5000)).message), ANSWER_LOST);
        await echo(later);
        await echo(newer);
        assert.deepEqual(await hubsOf(old, bound, newer, later), [
          [version, NEWER, [0, 1, 3]],
          [NEWER, undefined, [2]],
        ]);

        // As after an upgrade: all go to the newer one.
        const args = ["daemon", "restart", "--config", folder.config];
        await promisify(execFile)(program, args, { env: folder.env });
        for (const client of [old, bound, newer, later]) await echo(client);
        assert.deepEqual(await hubsOf(old, bound, newer, later), [
          [NEWER, undefined, [0, 1, 2, 3]],
        ]);
        await waitUntilExited([first, second], SWEEP_LIMIT);
      }),
  );

  itWith({ skip: SKIP_WITHOUT_GO, timeout: 2 * TEST_OPTIONS.timeout })(
    "serves clients made with the Go SDK in both eras, also after the hub was killed with their calls open",
    () =>
      withShared(async (folder) => {
        const args = [executable(), "attach", "--config", folder.config];
        const ended = promisify(execFile)(GO_CLIENT, args, { env: folder.env, cwd: folder.dir });
        await waitFor("the open calls of both", () =>
          eventsOf(folder, "call").filter(({ tool }) => tool === "hang").length === 2
            ? true
            : undefined,
        );
        signal(await findHub(folder), "SIGKILL");
        const told = JSON.parse((await ended).stdout) as readonly Record<string, unknown>[];
        assert.deepEqual(
          told.map(({ version, lost }) => [version, lost]),
          ["2025-11-25", "2026-07-28"].map((version) => [version, ANSWER_LOST]),
        );
        for (const { tools, echo, again } of told) {
          assert.ok(Number(tools) > 10);
          assert.match(String(echo), /one/);
          assert.match(String(again), /two/);
        }
      }),
  );
});
