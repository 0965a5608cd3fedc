import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import {
  formatAttachRequest,
  formatVariables,
  HANDSHAKE_LIMITS,
} from "../../src/attach/handshake.ts";
import type { ClientOrigin } from "../../src/manifest/client-values.ts";
import { parseAttachName } from "../../src/attach/attach-name.ts";
import type { HubError } from "../../src/base/errors.ts";
import { untilNoSharedHub } from "../../src/host/daemon.ts";
import { openSharedHub, type SharedHub, type SharedHubOptions } from "../../src/host/shared-hub.ts";
import { manifestIdentity } from "../../src/manifest/identity.ts";
import { attachRequest, SocketClient } from "../fixtures/attached-client.ts";
import {
  type HubSetupOptions,
  type Json,
  manifestFor,
  modeOf,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { poll, waitUntil } from "../harness/wait.ts";

const MINUTE = 60_000;

interface Setup {
  readonly root: string;
  readonly env: Readonly<Record<string, string>>;
  readonly a: ScriptedServer;
  readonly b: ScriptedServer;
  readonly hub: ReturnType<typeof setUpHub>["hub"];
  readonly events: ReturnType<typeof setUpHub>["events"];
  readonly clock: VirtualClock;
  readonly logged: string[];
  open(more?: Partial<SharedHubOptions>): Promise<SharedHub>;
  connect(shared: SharedHub): SocketClient;
  /** A client of another kind, in memory. */
  readonly peer: ReturnType<typeof setUpHub>["connect"];
}

/** A hub in memory with servers `a` (tool x) and `b` (tool y), and what is needed to share it. */
async function withHub(
  run: (setup: Setup) => Promise<void>,
  settings: Pick<HubSetupOptions, "modes" | "hub" | "servers"> = {},
): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), "tmx-"));
  const env = { TOOLMUX_RUN_DIR: join(root, "run"), XDG_STATE_HOME: join(root, "state") };
  const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
  const manifest = { ...manifestFor({ a, b }, settings), sources: [join(root, "toolmux.toml")] };
  const { hub, events, connect: peer } = setUpHub({ a, b }, { ...settings, manifest });
  const clock = new VirtualClock();
  const logged: string[] = [];
  const ending = new AbortController();
  const shared: SharedHub[] = [];
  const clients: SocketClient[] = [];
  try {
    await run({
      root,
      env,
      a,
      b,
      hub,
      events,
      peer,
      clock,
      logged,
      open: async (more = {}) => {
        const opened = await openSharedHub({
          hub,
          manifest,
          context: { env, cwd: root, platform: "linux" },
          log: (_, what) => void logged.push(typeof what === "string" ? what : what.message),
          signal: ending.signal,
          maxMessage: 1024 * 1024,
          endsWithoutClients: true,
          clock,
          ...more,
        });
        shared.push(opened);
        return opened;
      },
      connect: ({ path }) => {
        const client = new SocketClient(path);
        clients.push(client);
        return client;
      },
    });
  } finally {
    await Promise.all(clients.map((client) => client.close()));
    await Promise.all(shared.map((one) => one.close()));
    await hub.close();
    rmSync(root, { recursive: true, force: true });
  }
}

/** What a promise has settled with so far; undefined if it is pending. */
async function settledValue<T>(promise: Promise<T>): Promise<T | undefined> {
  return Promise.race([promise, new Promise<undefined>((resolve) => setTimeout(resolve, 0))]);
}

const attachedOf = ({ hub }: Pick<Setup, "hub">) =>
  hub.snapshot().clients.filter(({ transport }) => transport === "shared");

const untilCount = (setup: Setup, count: number): Promise<true> =>
  poll(
    5000,
    () => `${count} clients`,
    () => (attachedOf(setup).length === count ? true : undefined),
  );

const codeOf = (answer: Readonly<Record<string, unknown>>): unknown =>
  (answer["error"] as { readonly code?: unknown } | undefined)?.code;

describe("the attach socket of a shared hub", () => {
  it("is named after key, handshake and version, only its user can open it, and it goes with the hub", () =>
    withHub(async ({ open }) => {
      const shared = await open({ version: "1.2.3" });
      const name = parseAttachName(basename(shared.path));
      assert.deepEqual([name?.protocol, name?.version], [1, "1.2.3"]);
      const folder = dirname(shared.path);
      const modes = [folder, shared.path].map((path) => lstatSync(path).mode & 0o777);
      assert.deepEqual(modes, [0o700, 0o600]);
      await shared.close();
      assert.deepEqual(readdirSync(folder), []);
    }));

  it("is waited for by a hub that takes its place, until it is closed or the waiting is ended", () =>
    withHub(async ({ open, root, env }) => {
      const ending = new AbortController();
      const waiting: string[] = [];
      const wait = (name: string, signal = new AbortController().signal): Promise<string> => {
        const context = { env, platform: "linux", signal } as const;
        return untilNoSharedHub([join(root, "toolmux.toml")], context, () => waiting.push(name))
          .then(() => "free")
          .catch(() => "ended");
      };
      assert.equal(await wait("nobody"), "free");
      const shared = await open();
      const [taken, ended] = [wait("taken"), wait("ended", ending.signal)];
      await waitUntil("both wait", () => Promise.resolve(waiting.length === 2 || undefined));
      assert.equal(await settledValue(taken), undefined);
      ending.abort();
      assert.equal(await ended, "ended");
      await shared.close();
      assert.equal(await taken, "free");
      assert.deepEqual(waiting.toSorted(), ["ended", "taken"]);
    }));

  it("keeps the umask of the process as it was", () =>
    withHub(async ({ open }) => {
      const before = process.umask(0o022);
      await open();
      assert.equal(process.umask(before), 0o022);
    }));

  it("takes the place of one that a killed hub has left, and of none that a hub listens on", () =>
    withHub(async ({ open, connect, env }) => {
      const first = await open();
      await assert.rejects(open(), (error: HubError) => error.code === "conflict");
      const folder = dirname(first.path);
      assert.deepEqual(readdirSync(folder), [basename(first.path)], "nothing else is left");
      await first.close();
      await leaveDeadSocket(first.path);
      assert.ok(existsSync(first.path));
      const second = await open();
      assert.equal(second.path, first.path);
      assert.equal((await connect(second).attach())["ok"], true);
      assert.equal(folder, env["TOOLMUX_RUN_DIR"]);
    }));

  it("is the only one of its manifest that is left: those of killed hubs of other versions go", () =>
    withHub(async ({ open, clock }) => {
      const [old, other] = [await open({ version: "1.0.0" }), await open({ version: "1.1.0" })];
      await old.close();
      await leaveDeadSocket(old.path);
      await leaveDeadSocket(join(dirname(old.path), "01234567.attach.tmp"));
      const next = await open({ version: "1.2.0" });
      const left = readdirSync(dirname(old.path));
      assert.deepEqual(
        left.toSorted(compareTexts),
        [other.path, next.path].map((path) => basename(path)),
      );
      assert.equal(clock.now(), 0);
    }));

  for (const [what, prepare] of [
    ["a link", (folder: string) => symlinkSync(join(folder, ".."), folder)],
    ["a file", (folder: string) => writeFileSync(folder, "")],
    [
      "a folder that others can write into",
      (folder: string) => {
        mkdirSync(folder);
        chmodSync(folder, 0o777);
      },
    ],
  ] as const) {
    it(`is not opened in ${what}`, () =>
      withHub(async ({ open, env }) => {
        prepare(env["TOOLMUX_RUN_DIR"] ?? "");
        await assert.rejects(open(), (error: HubError) => error.code === "usage");
      }));
  }

  it("is made again when a program has removed it, and not removed when it is another's", () =>
    withHub(async ({ open, connect, clock }) => {
      const shared = await open();
      rmSync(shared.path);
      clock.advanceTo(MINUTE);
      await poll(
        5000,
        () => "the socket",
        () => existsSync(shared.path) || undefined,
      );
      assert.equal((await connect(shared).attach())["ok"], true);
      const elsewhere = `${shared.path}.old`;
      renameSync(shared.path, elsewhere);
      writeFileSync(shared.path, "another's");
      await shared.close();
      assert.ok(existsSync(shared.path));
    }));
});

const compareTexts = (a: string, b: string): number => (a < b ? -1 : Number(a > b));

/** Leaves a socket on which nobody listens. */
async function leaveDeadSocket(path: string): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(`${path}.old`, resolve));
  renameSync(`${path}.old`, path);
  await new Promise((resolve) => server.close(resolve));
}

describe("the first line of an attached client", () => {
  it("is answered with the hub, and all that follows is MCP", () =>
    withHub(async (setup) => {
      const client = setup.connect(await setup.open());
      const answer = await client.attach({ pid: 4711 });
      assert.deepEqual(Object.keys(answer), ["ok", "hub"]);
      assert.equal((answer["hub"] as { pid: number }).pid, process.pid);
      const id = client.begin("initialize", {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "editor", version: "1" },
      });
      assert.ok((await client.answerTo(id)).result);
      const [status] = attachedOf(setup);
      assert.deepEqual([status?.name, status?.pid], ["editor", 4711]);
      const { result } = await client.call("a__x", { n: 1 });
      assert.ok(result);
    }));

  it("may come in pieces, and together with the messages that follow", () =>
    withHub(async ({ open, connect }) => {
      const client = connect(await open());
      const ping = `{"jsonrpc":"2.0","id":9,"method":"ping"}`;
      const text = `${formatAttachRequest(attachRequest())}\n${ping}\n${ping.slice(0, 20)}`;
      client.write(text.slice(0, 10));
      await new Promise((resolve) => setImmediate(resolve));
      client.write(text.slice(10));
      await client.find("the answer", ({ id }) => id === 9);
      client.write(`${ping.slice(20).replace("9", "10")}\n`);
      await client.until("both answers", () => client.lines.length === 3);
    }));

  const long = "x".repeat(HANDSHAKE_LIMITS.maxBytes);
  for (const [what, line, code] of [
    ["no JSON", "hello", "invalidRequest"],
    ["JSON-RPC", '{"jsonrpc":"2.0","id":1,"method":"initialize"}', "invalidRequest"],
    ["another handshake", '{"toolmux":"attach/2"}', "invalidRequest"],
    ["a line without a folder", '{"toolmux":"attach/1","version":"1","pid":1}', "invalidRequest"],
    ["a line that is too long", `{"toolmux":"${long}"}`, "messageTooLarge"],
    ["an unknown mode", formatAttachRequest(attachRequest({ mode: "none" })), "usage"],
    ["an unknown server", formatAttachRequest(attachRequest({ servers: ["c"] })), "usage"],
    ["an unknown exposure", formatAttachRequest(attachRequest({ expose: "all" })), "usage"],
  ] as const) {
    it(`is refused with its reason, and the connection ends: ${what}`, () =>
      withHub(async (setup) => {
        const client = setup.connect(await setup.open());
        client.write(`${line}\n`);
        await client.until("the end", () => client.hasEnded);
        const answer = JSON.parse(client.lines[0] ?? "") as Record<string, unknown>;
        assert.deepEqual([answer["ok"], codeOf(answer)], [false, code]);
        assert.deepEqual(attachedOf(setup), []);
      }));
  }

  it("must come within its time, and one that comes slowly delays nobody", () =>
    withHub(async ({ open, connect, clock }) => {
      const shared = await open();
      const [slow, other] = [connect(shared), connect(shared)];
      slow.write('{"toolmux"');
      assert.equal((await other.attach())["ok"], true);
      await poll(
        5000,
        () => "both connections",
        () => (clock.timerCount >= 4 ? true : undefined),
      );
      clock.advanceTo(HANDSHAKE_LIMITS.timeout);
      await slow.until("the end", () => slow.hasEnded);
      assert.equal(codeOf(JSON.parse(slow.lines[0] ?? "") as object as never), "invalidRequest");
      await other.request("ping");
    }));

  it("can be missing: who only looks whether somebody listens is no client", () =>
    withHub(async (setup) => {
      const shared = await setup.open();
      const probe = setup.connect(shared);
      await new Promise((resolve) => probe.socket.once("connect", resolve));
      await probe.close();
      await setup.connect(shared).open();
      assert.equal(attachedOf(setup).length, 1);
      assert.deepEqual(setup.logged, []);
    }));

  it("is not awaited of more than 256 connections at a time", () =>
    withHub(async ({ open, connect }) => {
      const shared = await open();
      const silent = Array.from({ length: 256 }, () => connect(shared));
      await Promise.all(
        silent.map(({ socket }) => new Promise((resolve) => socket.once("connect", resolve))),
      );
      const more = connect(shared);
      await more.until("the end", () => more.hasEnded || more.isClosed);
      assert.deepEqual(more.lines, []);
      await silent[0]?.close();
      // The hub sees the end of a connection only after some turns.
      await waitUntil("a free place", async () => {
        const next = connect(shared);
        next.write(`${formatAttachRequest(attachRequest())}\n`);
        await next.until("an answer, or the end", () => next.lines.length > 0 || next.isClosed);
        return next.lines.length > 0 || undefined;
      });
    }));

  it("may have no variables: the answer names those of the manifest in force, and a second line has them", () =>
    withHub(
      async ({ hub, open, connect }) => {
        const origins: ClientOrigin[] = [];
        const accept: typeof hub.accept = (transport, signal, options) => {
          if (options?.origin) origins.push(options.origin);
          return hub.accept(transport, signal, options);
        };
        const shared = await open({
          hub: {
            accept,
            modeFault: (mode) => hub.modeFault(mode),
            status: () => hub.status(),
            snapshot: () => hub.snapshot(),
          },
        });
        const [first, late] = [connect(shared), connect(shared)];
        for (const client of [first, late]) {
          const answer = await client.attach({ env: undefined });
          assert.deepEqual(answer["variables"], ["TOKEN"]);
          assert.equal(answer["maxMessage"], 1024 * 1024);
        }
        assert.equal(origins.length, 0);
        first.write(`${formatVariables({ TOKEN: "t" })}\n`);
        await first.request("ping");
        assert.deepEqual(origins[0]?.env, { TOKEN: "t" });
        late.write('{"env":{"TOKEN":1}}\n');
        await late.until("the end", () => late.hasEnded);
        // The client would take a line for a message.
        assert.deepEqual(late.lines, []);

        shared.setManifest(manifestFor({}, {}));
        const other = connect(shared);
        assert.deepEqual((await other.attach({ env: undefined }))["variables"], []);
        await other.request("ping");
        assert.deepEqual(origins[1]?.env, {});
      },
      { servers: { a: { inheritEnv: ["TOKEN"] } } },
    ));

  it("is refused if a server of this hub would be the client, by the manifest and by the process", () =>
    withHub(async (setup) => {
      const { open, connect, env, root } = setup;
      const shared = await open();
      const sources = [join(root, "toolmux.toml")];
      const id = await manifestIdentity({ sources, servers: [] }, env);
      for (const hubs of [`1:${id}`, `1:abc,${process.pid}:`, `1:abc,2:${id},3:def`])
        assert.equal(codeOf(await connect(shared).attach({ hubs })), "hubLoop", hubs);
      assert.equal((await connect(shared).attach({ hubs: "1:abc" }))["ok"], true);
      assert.deepEqual(shared.outerHubs, [{ pid: 1, manifest: "abc" }]);
    }));
});

describe("the limits of an attached client", () => {
  it("are those of its own command line: mode, servers, exposure", () =>
    withHub(
      async ({ open, connect }) => {
        const shared = await open();
        const toolsOf = async (more: object): Promise<readonly string[]> => {
          const client = await connect(shared).open(more);
          const { result } = await client.request("tools/list");
          return (result?.["tools"] as { name: string }[]).map(({ name }) => name);
        };
        assert.deepEqual(await toolsOf({}), ["a__x", "b__y"]);
        assert.deepEqual(await toolsOf({ mode: "only-b" }), ["b__y"]);
        assert.deepEqual(await toolsOf({ servers: ["a"] }), ["x"]);
        assert.deepEqual(await toolsOf({ servers: ["a", "b"], mode: "only-b" }), ["b__y"]);
        assert.ok((await toolsOf({ expose: "search" })).includes("search_tools"));
      },
      { modes: [modeOf("only-b", { servers: ["b"] })] },
    ));

  it("are shown in its status", () =>
    withHub(
      async (setup) => {
        const shared = await setup.open();
        const more = { mode: "only-b", servers: ["b"], approval: "all" } as const;
        await setup.connect(shared).open(more);
        const [client] = attachedOf(setup);
        assert.deepEqual(client?.limits, {
          modes: ["only-b"],
          servers: ["b"],
          approval: "always",
        });
      },
      { modes: [modeOf("only-b", { servers: ["b"] })] },
    ));

  it("raise the approval of its own calls, and of no other client's", () =>
    withHub(async ({ open, connect }) => {
      const shared = await open();
      const [careful, other] = [
        await connect(shared).open({ approval: "always" }),
        await connect(shared).open(),
      ];
      // Nobody can be asked: the call is refused.
      const { result } = await careful.call("a__x");
      assert.equal(result?.["isError"], true);
      const code = (result?.["_meta"] as Record<string, unknown>)["toolmux/error"];
      assert.equal(code, "notApproved");
      assert.equal((await other.call("a__x")).result?.["isError"], undefined);
    }));

  it("never lower the approval that the manifest demands", () =>
    withHub(
      async ({ open, connect }) => {
        const client = await connect(await open()).open({ approval: "auto" });
        const { result } = await client.call("a__x");
        assert.equal(result?.["isError"], true);
      },
      { servers: { a: { approval: "always" }, b: {} } },
    ));

  it("can be changed by the operator for one client", () =>
    withHub(
      async (setup) => {
        const shared = await setup.open();
        const [one, other] = [
          await setup.connect(shared).open(),
          await setup.connect(shared).open(),
        ];
        const [first] = attachedOf(setup);
        setup.hub.setClientMode(first?.id ?? "", "only-b");
        const toolsOf = async (client: SocketClient): Promise<number> =>
          ((await client.request("tools/list")).result?.["tools"] as object[]).length;
        assert.deepEqual([await toolsOf(one), await toolsOf(other)], [1, 2]);
      },
      { modes: [modeOf("only-b", { servers: ["b"] })] },
    ));
});

describe("a client that shares a hub", () => {
  it("is asked by requests whose ids begin at a random number of 48 bits", () =>
    withHub(async ({ open, connect, a }) => {
      const shared = await open();
      const ids: number[] = [];
      for (const _ of [1, 2, 3]) {
        const client = await connect(shared).open({}, { roots: {} });
        await client.call("a__x");
        a.newestPeer?.send({ jsonrpc: "2.0", id: "r", method: "roots/list" });
        const { id } = await client.find("a request", ({ method }) => method === "roots/list");
        ids.push(Number(String(id).replace(/^\D*/, "")));
        await client.close();
        a.newestPeer?.received.splice(0);
      }
      assert.equal(new Set(ids).size, 3);
      assert.ok(
        ids.every((id) => Number.isSafeInteger(id) && id > 0 && id <= 2 ** 48),
        String(ids),
      );
      assert.ok(ids.some((id) => id > 2 ** 40));
    }));

  it("is asked what a server wants to know during its own call, and no other client is", () =>
    withHub(async ({ open, connect, a }) => {
      let finish = (): void => {};
      a.onCall = ({ id }) => {
        finish = () => a.newestPeer?.send({ jsonrpc: "2.0", id, result: { done: true } });
        const params = { message: "?", requestedSchema: { type: "object", properties: {} } };
        a.newestPeer?.send({ jsonrpc: "2.0", id: "e", method: "elicitation/create", params });
        return undefined;
      };
      const shared = await open();
      const [asked, other] = [
        await connect(shared).open({}, { elicitation: {} }),
        await connect(shared).open({}, { elicitation: {} }),
      ];
      await other.request("tools/list");
      const call = asked.begin("tools/call", { name: "a__x", arguments: {} });
      const isForm = ({ method }: Json): boolean => method === "elicitation/create";
      const { id } = await asked.find("the form", isForm);
      asked.send({ jsonrpc: "2.0", id, result: { action: "accept", content: { yes: 1 } } });
      const answer = await a.newestPeer?.find((one) => one.id === "e" && one.method === undefined);
      assert.deepEqual(answer?.result, { action: "accept", content: { yes: 1 } });
      finish();
      assert.deepEqual((await asked.answerTo(call)).result, { done: true });
      assert.ok(!other.messages.some(isForm));
    }));

  it("takes no late answer to a request of another hub for one to its own", () =>
    withHub(async ({ open, connect, a }) => {
      const client = await connect(await open()).open({}, { roots: {} });
      await client.call("a__x");
      a.newestPeer?.send({ jsonrpc: "2.0", id: "r", method: "roots/list" });
      const { id } = await client.find("a request", ({ method }) => method === "roots/list");
      client.send({ jsonrpc: "2.0", id: "toolmux-1", result: { roots: [{ uri: "file:///old" }] } });
      client.send({ jsonrpc: "2.0", id, result: { roots: [{ uri: "file:///new" }] } });
      const answer = await a.newestPeer?.find((one) => one.id === "r" && one.method === undefined);
      assert.deepEqual(answer?.result, { roots: [{ uri: "file:///new" }] });
    }));

  it("has a log level of its own", () =>
    withHub(
      async ({ open, connect, a }) => {
        a.capabilities = { logging: {} };
        a.handlers = { "logging/setLevel": () => '"result":{}' };
        const shared = await open();
        const [quiet, loud] = [await connect(shared).open(), await connect(shared).open()];
        await Promise.all([quiet.call("a__x"), loud.call("a__x")]);
        await quiet.request("logging/setLevel", { level: "error" });
        await loud.request("logging/setLevel", { level: "debug" });
        // Each client has a connection of its own, so that all messages can be attributed.
        assert.equal(a.peers.length, 2);
        for (const peer of a.peers)
          for (const level of ["info", "error"])
            peer.send({
              jsonrpc: "2.0",
              method: "notifications/message",
              params: { level, data: level },
            });
        const levelsOf = ({ messages }: SocketClient): readonly unknown[] =>
          messages.flatMap(({ method, params }) =>
            method === "notifications/message" ? [params?.["level"]] : [],
          );
        await loud.until("both messages", () => levelsOf(loud).length === 2);
        await quiet.until("one message", () => levelsOf(quiet).length === 1);
        assert.deepEqual([levelsOf(loud), levelsOf(quiet)], [["info", "error"], ["error"]]);
      },
      { servers: { a: { isolation: "perClient" }, b: {} } },
    ));

  it("ends its own calls alone when it is killed", () =>
    withHub(async (setup) => {
      const { a, hub } = setup;
      a.onCall = ({ params }) =>
        (params?.["arguments"] as { hangs?: boolean }).hangs === true ? undefined : '"result":{}';
      const shared = await setup.open();
      const [victim, other] = [
        await setup.connect(shared).open(),
        await setup.connect(shared).open(),
      ];
      victim.begin("tools/call", { name: "a__x", arguments: { hangs: true } });
      const open = other.begin("tools/call", { name: "a__x", arguments: { hangs: true } });
      await poll(
        5000,
        () => "both calls",
        () => (hub.snapshot().calls.length === 2 ? true : undefined),
      );
      await victim.close();
      await untilCount(setup, 1);
      await a.newestPeer?.find(({ method }) => method === "notifications/cancelled");
      assert.equal(hub.snapshot().calls.length, 1);
      assert.equal(a.messagesOf("notifications/cancelled").length, 1);
      assert.deepEqual((await other.call("a__x")).result, {});
      assert.ok(!other.messages.some(({ id }) => id === open));
      assert.equal(a.openCount, 1, "the server goes on");
    }));

  it("that ends its input gets the answers to what it has sent, and then the connection ends", () =>
    withHub(async (setup) => {
      const { a } = setup;
      const shared = await setup.open();
      const [client, other] = [
        await setup.connect(shared).open(),
        await setup.connect(shared).open(),
      ];
      await client.call("a__x");
      let answer = (): void => {};
      a.onCall = ({ id }) => {
        answer = () => a.newestPeer?.send({ jsonrpc: "2.0", id, result: { late: true } });
        return undefined;
      };
      const id = client.begin("tools/call", { name: "a__x", arguments: {} });
      client.socket.end();
      await poll(
        5000,
        () => "the call",
        () => (a.messagesOf("tools/call").length === 2 ? true : undefined),
      );
      answer();
      assert.deepEqual((await client.answerTo(id)).result, { late: true });
      await client.until("the end", () => client.hasEnded);
      await untilCount(setup, 1);
      assert.deepEqual([a.openCount, setup.b.openCount], [1, 1], "servers go on for the other");
      await other.request("ping");
    }));

  it("that ends its input gets an error for what is not answered within a second", () =>
    withHub(async ({ open, connect, a }) => {
      a.onCall = () => undefined;
      const client = await connect(await open()).open();
      const id = client.begin("tools/call", { name: "a__x", arguments: {} });
      await poll(
        5000,
        () => "the call",
        () => (a.messagesOf("tools/call").length === 1 ? true : undefined),
      );
      client.socket.end();
      const { error } = await client.answerTo(id);
      assert.equal(error?.data?.["code"], "cancelled");
      await client.until("the end", () => client.hasEnded);
      await a.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    }));

  it("that does not read delays no other, and is disconnected when too much waits for it", () =>
    withHub(async (setup) => {
      const { a, hub } = setup;
      const shared = await setup.open({ maxUnread: 4 * 1024 * 1024 });
      const [deaf, other] = [
        await setup.connect(shared).open(),
        await setup.connect(shared).open(),
      ];
      await other.call("a__x");
      const text = "x".repeat(512 * 1024);
      a.onCall = () => `"result":{"content":[{"type":"text","text":"${text}"}]}`;
      deaf.socket.pause();
      for (let at = 0; at < 24; at++) deaf.begin("tools/call", { name: "a__x", arguments: {} });
      await poll(
        10_000,
        () => "the end of its connection",
        () => (attachedOf(setup).length === 1 ? true : undefined),
      );
      assert.equal(setup.logged.filter((line) => line.includes("has not read")).length, 1);
      a.onCall = () => '"result":{}';
      assert.deepEqual((await other.call("a__x")).result, {});
      assert.equal(hub.snapshot().calls.length, 0);
    }));

  it("gets its own answers alone, however many call at the same time", () =>
    withHub(async ({ open, connect }) => {
      const shared = await open();
      const clients = await Promise.all(Array.from({ length: 40 }, () => connect(shared).open()));
      await Promise.all(
        clients.map(async (client, at) => {
          const texts = [`${at}`, `${at}`.repeat(3000), `${at}`.repeat(40_000)];
          const ids = texts.map((text) =>
            client.begin("tools/call", { name: "a__x", arguments: { text } }),
          );
          const answers = await Promise.all(ids.map((id) => client.answerTo(id)));
          const echoed = answers.map(
            ({ result }) => (result?.["echo"] as { arguments: { text: string } }).arguments.text,
          );
          assert.deepEqual(echoed, texts);
        }),
      );
    }));

  it("that sends what is no JSON-RPC costs nobody anything", () =>
    withHub(async ({ open, connect }) => {
      const shared = await open();
      const [bad, other] = [await connect(shared).open(), await connect(shared).open()];
      bad.write(`{"jsonrpc"\n[[[[\n${"y".repeat(2 * 1024 * 1024)}\n`);
      await bad.until("three errors", () => bad.messages.filter(({ error }) => error).length === 3);
      assert.ok((await bad.call("a__x")).result);
      assert.ok((await other.call("a__x")).result);
    }));

  it("may speak the era of 2026-07-28", () =>
    withHub(async (setup) => {
      const client = setup.connect(await setup.open());
      await client.attach();
      const meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "m", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      };
      const { result } = await client.request("tools/list", { _meta: meta });
      assert.equal((result?.["tools"] as object[]).length, 2);
      await client.request("tools/call", { name: "a__x", arguments: {}, _meta: meta });
      const [status] = attachedOf(setup);
      assert.deepEqual([status?.era, status?.name], ["modern", "m"]);
    }));
});

describe("a shared hub", () => {
  it("ends hub.linger after its last client, and not before", () =>
    withHub(
      async (setup) => {
        const { clock } = setup;
        const shared = await setup.open();
        const [one, two] = [await setup.connect(shared).open(), await setup.connect(shared).open()];
        await clock.advanceAsync(60 * MINUTE);
        await one.close();
        await untilCount(setup, 1);
        await clock.advanceAsync(60 * MINUTE);
        assert.equal(await settledValue(shared.ended), undefined);
        await two.close();
        await untilCount(setup, 0);
        await clock.advanceAsync(5 * MINUTE - 1000);
        assert.equal(await settledValue(shared.ended), undefined);
        const three = await setup.connect(shared).open();
        await clock.advanceAsync(10 * MINUTE);
        assert.equal(await settledValue(shared.ended), undefined);
        await three.close();
        await untilCount(setup, 0);
        await clock.advanceAsync(5 * MINUTE);
        assert.match(String(await settledValue(shared.ended)), /last client/);
      },
      { hub: { linger: 5 * MINUTE } },
    ));

  it("waits half a minute for its first client, even if hub.linger is 0", () =>
    withHub(
      async (setup) => {
        const { clock } = setup;
        const shared = await setup.open();
        await clock.advanceAsync(29_000);
        assert.equal(await settledValue(shared.ended), undefined);
        const client = await setup.connect(shared).open();
        await clock.advanceAsync(MINUTE);
        assert.equal(await settledValue(shared.ended), undefined);
        await client.close();
        await untilCount(setup, 0);
        await clock.advanceAsync(0);
        assert.match(String(await settledValue(shared.ended)), /last client/);
      },
      { hub: { linger: 0 } },
    ));

  it("never ends by itself if it is told so", () =>
    withHub(async (setup) => {
      const shared = await setup.open({ endsWithoutClients: false });
      const client = await setup.connect(shared).open();
      await client.close();
      await untilCount(setup, 0);
      await setup.clock.advanceAsync(24 * 60 * MINUTE);
      assert.equal(await settledValue(shared.ended), undefined);
    }));

  it("does not end while a command uses it", () =>
    withHub(async (setup) => {
      const { clock } = setup;
      const shared = await setup.open();
      const command = setup.peer("control");
      await clock.advanceAsync(60 * MINUTE);
      assert.equal(await settledValue(shared.ended), undefined);
      await command.transport.close();
      await clock.advanceAsync(MINUTE);
      assert.match(String(await settledValue(shared.ended)), /last client/);
    }));

  it("lets clients go that are idle for 10 min, once a newer one of its manifest runs, and then ends", () =>
    withHub(async (setup) => {
      const { clock, a } = setup;
      const old = await setup.open({ version: "1.0.0" });
      const [idle, busy] = [await setup.connect(old).open(), await setup.connect(old).open()];
      let answer = (): void => {};
      a.onCall = ({ id }) => {
        answer = () => a.newestPeer?.send({ jsonrpc: "2.0", id, result: {} });
        return undefined;
      };
      const id = busy.begin("tools/call", { name: "a__x", arguments: {} });
      await pass(clock, 20 * MINUTE, 1);
      assert.equal(attachedOf(setup).length, 2, "there is no newer hub");
      const older = await setup.open({ version: "0.9.0" });
      await pass(clock, 20 * MINUTE, 2);
      assert.equal(attachedOf(setup).length, 2, "an older hub is no reason");
      await older.close();

      await setup.open({ version: "1.1.0" });
      await idle.request("ping");
      await pass(clock, 9 * MINUTE, 2);
      assert.equal(idle.hasEnded, false);
      await pass(clock, 4 * MINUTE, 2);
      await idle.until("the end", () => idle.hasEnded);
      assert.equal(busy.hasEnded, false, "its call is open");
      answer();
      await busy.answerTo(id);
      await pass(clock, 9 * MINUTE, 2);
      assert.equal(busy.hasEnded, false);
      await pass(clock, 4 * MINUTE, 2);
      await busy.until("the end", () => busy.hasEnded);
      await untilCount(setup, 0);
      await clock.advanceAsync(11 * MINUTE);
      assert.match(String(await settledValue(old.ended)), /newer hub/);
    }));

  it("that drains takes no client more, and lets each go when its requests are answered", () =>
    withHub(async (setup) => {
      const { a, clock } = setup;
      const shared = await setup.open();
      const [idle, busy] = [await setup.connect(shared).open(), await setup.connect(shared).open()];
      let answer = (): void => {};
      a.onCall = ({ id }) => {
        answer = () => a.newestPeer?.send({ jsonrpc: "2.0", id, result: {} });
        return undefined;
      };
      const id = busy.begin("tools/call", { name: "a__x", arguments: {} });
      await poll(
        5000,
        () => "the call",
        () => (a.messagesOf("tools/call").length === 1 ? true : undefined),
      );
      const drained = shared.drain(10_000);
      await idle.until("the end", () => idle.hasEnded);
      assert.equal(existsSync(shared.path), false);
      await clock.advanceAsync(1000);
      assert.equal(busy.hasEnded, false);
      answer();
      await busy.answerTo(id);
      await clock.advanceAsync(1000);
      await busy.until("the end", () => busy.hasEnded);
      await drained;
    }));

  it("that drains ends all connections when its time is over", () =>
    withHub(async (setup) => {
      const { a, clock } = setup;
      const shared = await setup.open();
      const client = await setup.connect(shared).open();
      a.onCall = () => undefined;
      client.begin("tools/call", { name: "a__x", arguments: {} });
      await poll(
        5000,
        () => "the call",
        () => (a.messagesOf("tools/call").length === 1 ? true : undefined),
      );
      const drained = shared.drain(10_000);
      await poll(
        5000,
        () => "the timer",
        () => (clock.pendingDelays.includes(50) ? true : undefined),
      );
      await clock.advanceAsync(11_000);
      await client.until("the end", () => client.hasEnded);
      await drained;
    }));
});

/**
 * Lets time pass in steps of one minute, after each of which the hubs look at files.
 * @param hubs number of open hubs: each looks at its socket, and for a newer hub
 */
async function pass(clock: VirtualClock, ms: number, hubs: number): Promise<void> {
  for (let left = ms; left > 0; left -= MINUTE) {
    await clock.advanceAsync(MINUTE);
    await poll(
      5000,
      () => `the next checks after ${clock.pendingDelays.join(", ")}`,
      () =>
        clock.pendingDelays.filter((delay) => delay === MINUTE).length >= 2 * hubs
          ? true
          : undefined,
    );
  }
}
