import assert from "node:assert/strict";
import { once } from "node:events";
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { SocketClient } from "../fixtures/attached-client.ts";
import { run, runJson, start } from "../harness/command.ts";
import { EXIT_LIMIT, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { isAlive, waitForTrees, waitUntilExited, withProcessTree } from "../harness/processes.ts";
import { poll, waitUntil } from "../harness/wait.ts";

/** How long after the start of the next hub anything of a killed one may still run, in ms. */
const SWEEP_LIMIT = 3000;

interface Status {
  readonly hubs: readonly {
    readonly pid: number;
    readonly endpoints: readonly string[];
    readonly clients: readonly { readonly pid?: number; readonly transport: string }[];
  }[];
}

/** The path of the attach socket. */
function attachSocketOf(folder: TestFolder): string {
  return socketOf(folder, (name) => name.endsWith(".attach.sock"));
}

/** The path of a hub's control socket. */
function controlSocketOf(folder: TestFolder, pid: number): string {
  return socketOf(folder, (name) => name.startsWith(`${pid}-`) && name.endsWith(".sock"));
}

function socketOf({ env }: TestFolder, matches: (name: string) => boolean): string {
  const folders = [env["TOOLMUX_RUN_DIR"], join(env["XDG_RUNTIME_DIR"] ?? "", "toolmux")];
  for (const folder of folders) {
    if (folder === undefined) continue;
    const name = readdirSync(folder).find(matches);
    if (name !== undefined) return join(folder, name);
  }
  throw new Error("There is no such socket.");
}

async function attach(folder: TestFolder): Promise<SocketClient> {
  return new SocketClient(attachSocketOf(folder)).open();
}

async function listTools(client: SocketClient): Promise<readonly unknown[]> {
  const { result } = await client.request("tools/list");
  return result?.["tools"] as readonly unknown[];
}

describe("toolmux daemon", () => {
  it("starts one shared hub, shows it, starts it anew without losing a client's call, and ends it", () =>
    withTestFolder({ servers: { a: scripted() } }, async (folder) => {
      const started = await runJson<{ pid: number; wasRunning: boolean }>(
        folder,
        "daemon",
        "start",
      );
      assert.deepEqual([started.code, started.wasRunning], [0, false]);
      const again = await runJson<{ pid: number; wasRunning: boolean }>(folder, "daemon", "start");
      assert.deepEqual([again.code, again.pid, again.wasRunning], [0, started.pid, true]);

      const client = await attach(folder);
      assert.ok((await listTools(client)).length > 0);
      const status = await runJson<Status>(folder, "daemon", "status");
      const [hub, ...others] = status.hubs;
      assert.deepEqual([status.code, hub?.pid, others.length], [0, started.pid, 0]);
      assert.deepEqual(hub?.endpoints, ["shared"]);
      assert.deepEqual(
        hub.clients.map(({ pid, transport }) => [pid, transport]),
        [[process.pid, "shared"]],
      );

      const open = client.begin("tools/call", { name: "a__sleep", arguments: { ms: 1500 } });
      await folder.waitForEvent("a", ({ event }) => event === "call");
      const restarted = await runJson<{ pid: number; stopped: readonly number[] }>(
        folder,
        "daemon",
        "restart",
      );
      assert.deepEqual([restarted.code, restarted.stopped], [0, [started.pid]]);
      assert.notEqual(restarted.pid, started.pid);
      const { result } = await client.answerTo(open);
      assert.deepEqual(result?.["structuredContent"], { ms: 1500 });
      await client.until("the end", () => client.hasEnded);
      await client.close();

      const next = await attach(folder);
      assert.ok((await listTools(next)).length > 0);
      const stopped = await runJson<{ stopped: readonly number[] }>(folder, "daemon", "stop");
      assert.deepEqual([stopped.code, stopped.stopped], [0, [restarted.pid]]);
      await next.until("the end", () => next.hasEnded || next.isClosed);
      await next.close();
      assert.equal((await run(folder, "daemon", "status")).code, 3);
    }));

  it("runs the hub in the foreground: SIGHUP reloads the manifest, SIGTERM ends it", () =>
    withTestFolder({ servers: { a: scripted() } }, async (folder) => {
      const hub = start(folder, ["daemon", "run", "--config", folder.config, "--no-linger"]);
      await poll(
        EXIT_LIMIT,
        () => hub.stderr,
        () => (hub.stderr.includes(".attach.sock") ? true : undefined),
      );
      const client = await attach(folder);
      const before = (await listTools(client)).length;
      appendFileSync(folder.config, '\n[servers.b]\ncommand = "false"\nlazy = true\n');
      hub.signal("SIGHUP");
      const status = async (): Promise<number> =>
        (await runJson<{ servers: readonly object[] }>(folder, "status")).servers.length;
      await waitUntil("the second server", async () => ((await status()) === 2 ? true : undefined));
      assert.equal((await listTools(client)).length, before);
      hub.signal("SIGTERM");
      assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
      await client.until("the end", () => client.hasEnded || client.isClosed);
      await client.close();
    }));

  it("does not take a hub for a running one that ends without an answer, and starts another", () =>
    withTestFolder({ servers: { a: scripted("", { lazy: true }) } }, async (folder) => {
      const ended = await runJson<{ pid: number }>(folder, "daemon", "start");
      const file = controlSocketOf(folder, ended.pid).replace(/sock$/, "json");
      const description = readFileSync(file);
      await run(folder, "daemon", "stop");
      // The system accepts connections for a killed process until its last thread has ended.
      const openSockets = async (): Promise<void> => {
        writeFileSync(file, description, { mode: 0o600 });
        const killed = createServer((socket) =>
          socket.once("data", () => {
            socket.destroy();
            killed.close();
          }),
        );
        killed.listen(file.replace(/json$/, "sock"));
        await once(killed, "listening");
      };
      await openSockets();
      const status = await runJson<Status>(folder, "daemon", "status");
      assert.deepEqual([status.code, status.hubs], [3, []]);
      await openSockets();
      const started = await runJson<{ pid: number; wasRunning: boolean }>(
        folder,
        "daemon",
        "start",
      );
      assert.deepEqual([started.code, started.wasRunning], [0, false]);
      assert.notEqual(started.pid, ended.pid);
      await run(folder, "daemon", "stop");
    }));

  it("finds a hub that clients can attach to, and whose control socket is not open yet", () =>
    withTestFolder({ servers: { a: scripted("", { lazy: true }) } }, async (folder) => {
      const { pid } = await runJson<{ pid: number }>(folder, "daemon", "start");
      const socket = controlSocketOf(folder, pid);
      const control = [socket, socket.replace(/sock$/, "json")];
      const attachSocket = attachSocketOf(folder);
      for (const path of [...control, attachSocket]) renameSync(path, `${path}.away`);
      const open = createServer((connection) => {
        connection.resume();
        for (const path of control) if (!existsSync(path)) renameSync(`${path}.away`, path);
      });
      open.listen(attachSocket);
      await once(open, "listening");
      const { hubs } = await runJson<Status>(folder, "daemon", "status");
      assert.deepEqual(
        hubs.map((hub) => hub.pid),
        [pid],
      );
      open.close();
      await once(open, "close");
      renameSync(`${attachSocket}.away`, attachSocket);
      await run(folder, "daemon", "stop");
    }));

  it("starts no server before the processes of a killed hub have ended", () =>
    withTestFolder(
      { servers: { a: withProcessTree(scripted("--ignore-term")) } },
      async (folder) => {
        const started = await runJson<{ pid: number }>(folder, "daemon", "start");
        assert.equal(started.code, 0, JSON.stringify(started));
        const { pid } = started;
        const client = await attach(folder);
        await listTools(client);
        const before = await waitForTrees(folder.dir, 1);
        process.kill(pid, "SIGKILL");
        await waitUntilExited([pid], EXIT_LIMIT);
        const left = before.filter(isAlive);
        assert.ok(left.length > 1, "its server's family outlives it");
        await client.close();

        const since = performance.now();
        assert.equal((await run(folder, "daemon", "start")).code, 0);
        const next = await attach(folder);
        const answered = listTools(next);
        // When the server has started again, nothing of the one before is left.
        await poll(
          EXIT_LIMIT,
          () => "the second start",
          () =>
            folder.log("a").filter(({ event }) => event === "start").length >= 2 ? true : undefined,
        );
        assert.deepEqual(left.filter(isAlive), []);
        assert.ok(performance.now() - since < 4 * SWEEP_LIMIT);
        assert.ok((await answered).length > 0);
        await next.close();
        await run(folder, "daemon", "stop");
      },
    ));
});
