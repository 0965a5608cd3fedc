import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { type HubSocket, openHubSocket } from "../../src/control/hub-socket.ts";
import {
  findIgnoredFolders,
  askHub,
  connectToHub,
  findRunningHubs,
} from "../../src/control/running-hubs.ts";
import { findDeadHubs, MAX_SOCKET_PATH, runFolders } from "../../src/control/socket-files.ts";
import { HttpServer } from "../../src/frontend/http/server.ts";
import { ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { eventually, IDENTITY } from "./controlled-hub.ts";

interface Environment {
  readonly env: Readonly<Record<string, string>>;
  readonly platform: string;
}

interface Setup {
  readonly root: string;
  /** An environment in which the state folder is below `root`. */
  readonly environment: Environment;
  open(more?: Partial<Parameters<typeof openHubSocket>[0]>): Promise<HubSocket>;
}

let count = 0;

async function withFolder(run: (setup: Setup) => Promise<void>): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), "tmx-"));
  const environment = { env: { TOOLMUX_RUN_DIR: join(root, "run") }, platform: "linux" };
  const open: HubSocket[] = [];
  try {
    await run({
      root,
      environment,
      open: async (more = {}) => {
        const startedAt = ++count;
        const socket = await openHubSocket({
          ...environment,
          file: () => ({ ...IDENTITY, startedAt, manifestId: "id" }),
          fetch: async () => Response.json({ startedAt }),
          warn: () => {},
          ...more,
        });
        open.push(socket);
        return socket;
      },
    });
  } finally {
    await Promise.all(open.map((socket) => socket.close()));
    rmSync(root, { recursive: true, force: true });
  }
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;
const NEVER = new AbortController().signal;

describe("the socket of a hub", () => {
  it("can be opened by its user alone, and is gone with the file beside it when the hub ends", () =>
    withFolder(async ({ open, environment }) => {
      const socket = await open();
      const folder = dirname(socket.path);
      assert.deepEqual([modeOf(folder), modeOf(socket.path)], [0o700, 0o600]);
      assert.deepEqual(
        readdirSync(folder).map((name) => modeOf(join(folder, name))),
        [0o600, 0o600],
      );
      const [found, ...others] = await findRunningHubs(environment);
      assert.equal(others.length, 0);
      assert.deepEqual([found?.manifest, found?.socket], [IDENTITY.manifest, socket.path]);
      await socket.close();
      assert.deepEqual(readdirSync(folder), []);
      assert.deepEqual(await findRunningHubs(environment), []);
    }));

  it("serves MCP to a client of the operator", () =>
    withFolder(async ({ open, environment }) => {
      const { hub } = setUpHub({ a: new ScriptedServer("x") });
      const server = new HttpServer(hub, {
        hostname: "localhost",
        token: undefined,
        maxMessage: 1_000_000,
        clientTransport: "control",
      });
      await open({
        fetch: (request, info) =>
          server.fetch(request, { isPathAsSent: true, keepOpen: (work) => info.keepOpen(work) }),
      });
      const [running] = await findRunningHubs(environment);
      assert.ok(running !== undefined);
      const client = await connectToHub(running, { name: "c", version: "1" }, NEVER);
      assert.deepEqual(
        (await client.listTools()).map(({ key }) => key),
        ["a__x"],
      );
      await client.close();
      await server.close();
      await hub.close();
    }));

  it("takes other users' permissions from a folder of toolmux", () =>
    withFolder(async ({ root, open }) => {
      const folder = join(root, "toolmux");
      mkdirSync(folder);
      chmodSync(folder, 0o755);
      await open({ env: { XDG_RUNTIME_DIR: root } });
      assert.equal(modeOf(folder), 0o700);
    }));

  it("leaves the mode of a folder that the user has named as it is, and is in none that others may write into", () =>
    withFolder(async ({ root, open, environment }) => {
      const folder = environment.env["TOOLMUX_RUN_DIR"] ?? "";
      mkdirSync(folder);
      chmodSync(folder, 0o755);
      assert.equal(dirname((await open()).path), folder);
      assert.equal(modeOf(folder), 0o755);
      const shared = join(root, "shared");
      mkdirSync(shared);
      chmodSync(shared, 0o1777);
      await assert.rejects(
        open({ env: { TOOLMUX_RUN_DIR: shared } }),
        /other users can write into/,
      );
      assert.equal(statSync(shared).mode & 0o7777, 0o1777);
    }));

  it("is not looked for in a folder that others may write into", () =>
    withFolder(async ({ open, environment }) => {
      const { path } = await open();
      assert.deepEqual(findIgnoredFolders(environment), []);
      chmodSync(dirname(path), 0o777);
      assert.deepEqual(await findRunningHubs(environment), []);
      const ignored = findIgnoredFolders(environment);
      assert.deepEqual(
        ignored.map((folder) => folder.path),
        [dirname(path)],
      );
    }));

  it("is in no folder that is a symbolic link or a file, and the error says so", () =>
    withFolder(async ({ root, open, environment }) => {
      const real = join(root, "real");
      mkdirSync(real);
      const env = { TOOLMUX_RUN_DIR: join(root, "link") };
      symlinkSync(real, env.TOOLMUX_RUN_DIR);
      const isRefused = (error: unknown): boolean =>
        error instanceof HubError && error.code === "usage" && error.message.includes("link");
      await assert.rejects(open({ env }), isRefused);
      assert.deepEqual(readdirSync(real), []);
      await open({ env: { TOOLMUX_RUN_DIR: real } });
      assert.deepEqual(await findRunningHubs({ ...environment, env }), []);
    }));

  it("is in the next folder if its path would be too long for a socket", () =>
    withFolder(async ({ root, open }) => {
      const long = join(root, "x".repeat(MAX_SOCKET_PATH));
      mkdirSync(long);
      const env = { XDG_RUNTIME_DIR: long, XDG_STATE_HOME: root };
      const socket = await open({ env });
      assert.equal(dirname(socket.path), join(root, "toolmux", "run"));
    }));

  it("is in no folder of the system that is not there", () =>
    withFolder(async ({ root, open }) => {
      const missing = join(root, "missing");
      const env = { XDG_RUNTIME_DIR: missing, XDG_STATE_HOME: root };
      const socket = await open({ env });
      assert.ok(socket.path.startsWith(join(root, "toolmux")));
      assert.equal(existsSync(missing), false);
    }));

  it("is looked for in all folders in which a hub may have put it", () => {
    const env = { XDG_RUNTIME_DIR: "/r", XDG_STATE_HOME: "/s" };
    assert.deepEqual(
      runFolders({ env, platform: "linux" }, 7).map(({ path }) => path),
      ["/r/toolmux", "/run/user/7/toolmux", "/s/toolmux/run", "/tmp/toolmux-7"],
    );
    const chosen = { ...env, TOOLMUX_RUN_DIR: "/c" };
    assert.deepEqual(
      runFolders({ env: chosen, platform: "linux" }, 7).map(({ path }) => path),
      ["/c"],
    );
  });

  it("of a hub that was killed is found dead, and removed by the next hub", () =>
    withFolder(async ({ open, environment }) => {
      const { path } = await open();
      const folder = dirname(path);
      const dead = join(folder, "1-dead.sock");
      const script = `require("node:net").createServer().listen(${JSON.stringify(dead)}, () => console.log("up"))`;
      const child = spawn("node", ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
      await once(child.stdout, "data");
      assert.deepEqual(await findDeadHubs(environment), []);
      child.kill("SIGKILL");
      await once(child, "exit");
      assert.deepEqual(await findDeadHubs(environment), [dead]);
      assert.equal((await findRunningHubs(environment)).length, 1);
      await open();
      assert.equal(existsSync(dead), false);
      assert.equal((await findRunningHubs(environment)).length, 2);
    }));

  it("is told apart from that of another hub", () =>
    withFolder(async ({ open, environment }) => {
      await open();
      await open();
      const hubs = await findRunningHubs(environment);
      const answers = await Promise.all(
        hubs.map((hub) => askHub(hub, { path: "/hub", signal: NEVER })),
      );
      assert.deepEqual(
        answers.map(({ document }) => (document as { startedAt: number }).startedAt),
        hubs.map(({ startedAt }) => startedAt),
      );
      assert.equal(hubs.length, 2);
    }));

  it("is made anew within a minute after something has removed it", () =>
    withFolder(async ({ open, environment }) => {
      const clock = new VirtualClock();
      const { path } = await open({ clock });
      rmSync(dirname(path), { recursive: true });
      assert.deepEqual(await findRunningHubs(environment), []);
      clock.advanceTo(clock.now() + 60_000);
      await eventually("the socket", async () => (await findRunningHubs(environment)).length === 1);
      assert.equal(modeOf(path), 0o600);
    }));

  it("says that the hub does not run if it has ended meanwhile", () =>
    withFolder(async ({ open, environment }) => {
      const socket = await open();
      const [hub] = await findRunningHubs(environment);
      assert.ok(hub !== undefined);
      await socket.close();
      await assert.rejects(
        askHub(hub, { path: "/hub", signal: NEVER }),
        (error: unknown) => error instanceof HubError && error.code === "hubNotRunning",
      );
    }));
});
