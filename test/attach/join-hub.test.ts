import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  chmodSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { ownAttachName } from "../../src/attach/attach-name.ts";
import { HANDSHAKE_LIMITS, parseVariables } from "../../src/attach/handshake.ts";
import { joinHub, type JoinOptions, type JoinResult } from "../../src/attach/join-hub.ts";
import { HubError } from "../../src/base/errors.ts";
import {
  listenOnUnixSocket,
  type SocketConnection,
  type SocketListener,
} from "../../src/base/unix-socket.ts";
import { attachRequest } from "../fixtures/attached-client.ts";
import { waitFor } from "../harness/wait.ts";

const KEY = "0123456789ab";
const busy = { ok: false, error: { code: "hubBusy", message: "It ends." } };

interface Setup {
  readonly root: string;
  readonly run: string;
  /** Listens as a hub of this version that gives this answer to first lines, in the folder of sockets by default. */
  listen(version: string, answer?: object, folder?: string): Promise<void>;
  /** What has arrived at all hubs. */
  received(): string;
  /** Joins; by default a hub cannot be started. */
  join(more?: Partial<JoinOptions>): Promise<JoinResult>;
}

async function withSockets(run: (setup: Setup) => Promise<void>): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), "tmx-"));
  const folder = join(root, "run");
  mkdirSync(folder, { mode: 0o700 });
  const env = { TOOLMUX_RUN_DIR: folder, XDG_STATE_HOME: join(root, "state") };
  const listeners: SocketListener[] = [];
  const connections: SocketConnection[] = [];
  let text = "";
  const listen: Setup["listen"] = async (version, answer, inFolder = folder) => {
    const accepted = answer ?? { ok: true, hub: { pid: 1, version } };
    const onConnection = (connection: SocketConnection): void => {
      connections.push(connection);
      const reply = (): void =>
        void connection.output.write(Buffer.from(`${JSON.stringify(accepted)}\n`));
      let hasReplied = false;
      const onChunk = (chunk: Buffer): void => {
        text += chunk.toString();
        if (!hasReplied) reply();
        hasReplied = true;
      };
      connection.input.read(onChunk, () => connection.destroy());
    };
    const path = join(inFolder, ownAttachName(KEY, version));
    listeners.push(await listenOnUnixSocket(path, onConnection));
  };
  try {
    await run({
      root,
      run: folder,
      listen,
      received: () => text,
      async join(more = {}) {
        const result = await joinHub({
          platform: process.platform,
          key: KEY,
          request: attachRequest(),
          signal: new AbortController().signal,
          version: "1.1.0",
          start: () => Promise.reject(new HubError("spawnFailed", "It cannot be started.")),
          ...more,
          env: { ...env, ...more.env },
        });
        if (result.kind === "joined") connections.push(result.connection);
        return result;
      },
    });
  } finally {
    for (const connection of connections) connection.destroy();
    for (const listener of listeners) listener.close();
    rmSync(root, { recursive: true, force: true });
  }
}

/** The version of the hub that was joined, or the code of the error. */
function outcomeOf(result: JoinResult): string {
  return result.kind === "joined" ? result.version : `${result.kind}: ${result.error.code}`;
}

describe("joining a shared hub", () => {
  it("takes the newest version that accepts", () =>
    withSockets(async ({ listen, join: joinIt }) => {
      for (const version of ["1.1.0", "1.9.0", "1.10.0"]) await listen(version);
      await listen("1.11.0", busy);
      assert.equal(outcomeOf(await joinIt()), "1.10.0");
    }));

  it("gives the hub the variables that it asks for and the environment has, and no others", () =>
    withSockets(async ({ listen, received, join: joinIt }) => {
      const hub = { pid: 1, version: "1.1.0" };
      await listen("1.1.0", { ok: true, hub, variables: ["TOKEN", "NONE"], maxMessage: 4096 });
      const env = { TOKEN: "t", OTHER: "o" };
      const result = await joinIt({ request: attachRequest({ env: undefined }), env });
      assert.equal(result.kind === "joined" && result.maxMessage, 4096);
      await waitFor("the second line", () => received().split("\n").length > 2 || undefined);
      const [first = "", second = ""] = received().split("\n");
      assert.ok(!first.includes("TOKEN"));
      assert.deepEqual(parseVariables(second), { TOKEN: "t" });
    }));

  it("is refused if its variables are longer than a hub takes, and sends none of what the hub does not wait for", () =>
    withSockets(async ({ listen, received, join: joinIt }) => {
      await listen("1.1.0", { ok: true, hub: { pid: 1, version: "1.1.0" }, variables: ["BIG"] });
      const request = attachRequest({ env: undefined });
      const tooLong = await joinIt({
        request,
        env: { BIG: "x".repeat(HANDSHAKE_LIMITS.maxBytes) },
      });
      assert.equal(outcomeOf(tooLong), "refused: messageTooLarge");
      assert.ok(!received().includes("xxx"));
    }));

  it("takes an older version only if no hub of its own can be started", () =>
    withSockets(async ({ listen, join: joinIt }) => {
      await listen("1.0.0");
      assert.equal(outcomeOf(await joinIt()), "1.0.0");
      const start = async (): ReturnType<JoinOptions["start"]> => {
        await listen("1.1.0");
        return { hasEnded: () => false, readLog: () => Promise.resolve("") };
      };
      assert.equal(outcomeOf(await joinIt({ start })), "1.1.0");
    }));

  it("starts one hub for clients that come at once", () =>
    withSockets(async ({ listen, join: joinIt }) => {
      let starts = 0;
      const start = async (): ReturnType<JoinOptions["start"]> => {
        starts++;
        await listen("1.1.0");
        return { hasEnded: () => false, readLog: () => Promise.resolve("") };
      };
      const results = await Promise.all(Array.from({ length: 8 }, () => joinIt({ start })));
      assert.deepEqual([...new Set(results.map(outcomeOf))], ["1.1.0"]);
      assert.equal(starts, 1);
    }));

  it("is told why a hub refuses, and tries no other", () =>
    withSockets(async ({ listen, join: joinIt }) => {
      await listen("1.1.0", { ok: false, error: { code: "hubLoop", message: "A loop." } });
      await listen("1.0.0");
      assert.equal(outcomeOf(await joinIt()), "refused: hubLoop");
    }));

  it("says why no hub can be used: one that ends while it starts, with its log", () =>
    withSockets(async ({ join: joinIt }) => {
      const start = (): ReturnType<JoinOptions["start"]> =>
        Promise.resolve({ hasEnded: () => true, readLog: () => Promise.resolve("No such thing.") });
      const result = await joinIt({ start });
      assert.equal(outcomeOf(result), "unavailable: spawnFailed");
      assert.ok(result.kind === "unavailable" && result.error.message.includes("No such thing."));
    }));

  it("needs a state folder to start a hub, but none to join one", () =>
    withSockets(async ({ root, run: folder, listen, join: joinIt }) => {
      const file = join(root, "file");
      writeFileSync(file, "");
      const env = { TOOLMUX_RUN_DIR: folder, XDG_STATE_HOME: file };
      assert.equal(outcomeOf(await joinIt({ env })), "unavailable: storeBroken");
      await listen("1.1.0");
      assert.equal(outcomeOf(await joinIt({ env })), "1.1.0");
    }));

  it("trusts no socket in a folder that is a link, or that others may write into", () =>
    withSockets(async ({ root, run: folder, listen, join: joinIt }) => {
      await listen("1.1.0");
      const link = join(root, "link");
      symlinkSync(folder, link);
      const env = { TOOLMUX_RUN_DIR: link, XDG_STATE_HOME: join(root, "state") };
      assert.equal(outcomeOf(await joinIt({ env })), "unavailable: spawnFailed");
      chmodSync(folder, 0o777);
      assert.equal(outcomeOf(await joinIt()), "unavailable: spawnFailed");
      chmodSync(folder, 0o700);
      assert.equal(outcomeOf(await joinIt()), "1.1.0");
    }));

  it(
    "trusts no socket of another user",
    { skip: process.getuid?.() === 0 ? false : "only root can give a file to another user" },
    () =>
      withSockets(async ({ run: folder, listen, join: joinIt }) => {
        await listen("1.1.0");
        const socket = join(folder, ownAttachName(KEY, "1.1.0"));
        lchownSync(socket, 12_345, 12_345);
        assert.equal(outcomeOf(await joinIt()), "unavailable: spawnFailed");
        lchownSync(socket, 0, 0);
        lchownSync(folder, 12_345, 12_345);
        assert.equal(outcomeOf(await joinIt()), "unavailable: spawnFailed");
      }),
  );
});
