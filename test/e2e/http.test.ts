import assert from "node:assert/strict";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  executable,
  it,
  withTestFolder,
} from "../harness/hub.ts";
import { run } from "../harness/command.ts";
import { SDKS } from "../harness/http-sdk-client.ts";
import { scripted } from "../harness/manifest.ts";

const MANIFEST = { servers: { a: scripted() } };
const ANYWHERE = ["--http", "127.0.0.1:0"];

/** Starts the executable; `url` is where it says that it serves. */
async function serve(
  setup: TestFolder,
  args: readonly string[] = ANYWHERE,
  env: Readonly<Record<string, string>> = {},
): Promise<{ hub: RawClient; url: string }> {
  const all = ["serve", ...args, "--config", setup.config];
  const hub = new RawClient(executable(), all, setup.dir, { ...setup.env, ...env });
  const url = await hub.until(10_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
  return { hub, url };
}

/** Ends the hub by a signal, and checks that it wrote nothing to stdout. */
async function stop(hub: RawClient): Promise<void> {
  hub.signal("SIGTERM");
  assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
  assert.deepEqual(hub.lines, []);
}

describe("serve --http", () => {
  it("serves clients of all SDKs at once, each with its own session, and leaves nothing", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub, url } = await serve(setup);
      const clients = await Promise.all(SDKS.map((sdk) => sdk.connect(url)));
      const sessions = clients.flatMap((client) => client.sessionId() ?? []);
      assert.equal(new Set(sessions).size, sessions.length);
      const work = clients.flatMap((client, of) =>
        Array.from({ length: 20 }, async (_, at) => {
          const name = ["a__echo", "a__sleep", "a__parsed"][at % 3] ?? "";
          const result = (await client.call(name, { of, at, ms: at })) as {
            structuredContent: { of: number; at: number };
          };
          assert.deepEqual([result.structuredContent.of, result.structuredContent.at], [of, at]);
        }),
      );
      await Promise.all(work);
      for (const client of clients) {
        assert.ok((await client.list()).includes("a__echo"));
        await client.endSession();
        await client.close();
      }
      // One for the clients of old, and one for those of the modern era.
      assert.equal(setup.log("a").filter(({ event }) => event === "start").length, 2);
      await stop(hub);
    }));

  it("goes on when stdin ends and when it is hung up on, which makes it read its manifest", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub, url } = await serve(setup);
      hub.end();
      const [sdk] = SDKS;
      const client = await sdk?.connect(url);
      assert.ok(client);
      assert.ok((await client.list()).includes("a__echo"));
      const changed = new Promise<void>((resolve) => client.onListChanged(resolve));
      appendFileSync(setup.config, '\n[servers.a.tools]\ndeny = ["echo"]\n');
      hub.signal("SIGHUP");
      await changed;
      assert.ok(!(await client.list()).includes("a__echo"));
      await client.close();
      await stop(hub);
    }));

  it("lets a call finish that runs when it is told to end", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub, url } = await serve(setup);
      const [sdk] = SDKS;
      const client = await sdk?.connect(url);
      const result = client?.call("a__sleep", { ms: 700, x: 1 });
      await setup.waitForEvent("a", ({ event }) => event === "call");
      hub.signal("SIGTERM");
      const { structuredContent } = (await result) as { structuredContent: object };
      assert.deepEqual(structuredContent, { ms: 700, x: 1 });
      assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
      await client?.close();
    }));

  it("with --stdio serves both ways, and ends with its stdin", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub, url } = await serve(setup, [...ANYWHERE, "--stdio"]);
      const tools = await hub.initializeAndList();
      assert.ok(tools.some(({ name }) => name === "a__echo"));
      const [sdk] = SDKS;
      const client = await sdk?.connect(url);
      assert.ok((await client?.list())?.includes("a__echo"));
      await closeClient(hub);
      assert.equal((await hub.exit).code, 0);
      await client?.close().catch(() => {});
    }));

  it("tells within 5 s, before a client is there, that its only command does not exist", () =>
    withTestFolder({ servers: { gone: { command: "./gone" } } }, async (setup) => {
      const { hub, url } = await serve(setup);
      const deadline = performance.now() + 5000;
      const readiness = async (): Promise<string> =>
        ((await (await fetch(url.replace(/mcp$/, "readyz"))).json()) as { verdict: string })
          .verdict;
      let verdict = await readiness();
      while (verdict !== "failed" && performance.now() < deadline) verdict = await readiness();
      assert.equal(verdict, "failed");
      // The control socket of a hub without clients opens after a second. Until then, status starts the server itself.
      let status = await run(setup, "status");
      for (; !status.stdout.includes(url) && performance.now() < deadline;)
        status = await run(setup, "status");
      assert.equal(status.code, 3);
      assert.match(status.stdout, /^gone +failed/m);
      assert.ok(status.stdout.includes(url));
      await stop(hub);
    }));

  it("says how it is, and wants a token where one is named", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const args = ["--http", "0.0.0.0:0", "--http-token-env", "HUB_TOKEN"];
      const { hub, url } = await serve(setup, args, { HUB_TOKEN: "right" });
      const here = url.replace("0.0.0.0", "127.0.0.1");
      const root = here.replace(/mcp$/, "");
      assert.deepEqual(await (await fetch(`${root}healthz`)).json(), { alive: true });
      assert.deepEqual(await (await fetch(`${root}readyz`)).json(), { ready: true });
      assert.equal((await fetch(here, { method: "POST" })).status, 401);
      const headers = { Authorization: "Bearer right" };
      for (const sdk of SDKS) {
        const client = await sdk.connect(here, headers);
        assert.ok((await client.list()).includes("a__echo"));
        await client.endSession();
        await client.close();
      }
      // The list of the last client may have come from a snapshot, before its server was up.
      const readiness = async () =>
        (await (await fetch(`${root}readyz`, { headers })).json()) as {
          servers: { connected: string[] };
        };
      const deadline = performance.now() + 10_000;
      let ready = await readiness();
      while (ready.servers.connected.length === 0 && performance.now() < deadline)
        ready = await readiness();
      assert.deepEqual(ready, {
        ready: true,
        verdict: "healthy",
        servers: { connected: ["a"], waiting: [], failed: [], resting: [] },
      });
      await stop(hub);
    }));

  it("wants the token that the manifest names, shows it nowhere, and says when it is another", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const set = (text: string): void => {
        appendFileSync(setup.config, `\n[hub]\nhttpToken = "${text}"\n`);
      };
      const before = readFileSync(setup.config);
      set("${env:HUB_TOKEN}");
      const env = { HUB_TOKEN: "right-token" };
      const { hub, url } = await serve(setup, ["--http", "0.0.0.0:0", "--log-level", "debug"], env);
      const here = url.replace("0.0.0.0", "127.0.0.1");
      assert.equal((await fetch(here, { method: "POST" })).status, 401);
      const [sdk] = SDKS;
      const client = await sdk?.connect(here, { Authorization: "Bearer right-token" });
      assert.ok((await client?.list())?.includes("a__echo"));
      await client?.close();
      writeFileSync(setup.config, before);
      set("${env:OTHER_TOKEN}");
      await hub.until(10_000, "a word on the token", () => /httpToken is another/.exec(hub.stderr));
      await stop(hub);
      assert.ok(!hub.stderr.includes("right-token"));
    }));

  it("refuses what would be open to others, and what is taken, with exit code 2", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub, url } = await serve(setup);
      for (const [address, why] of [
        ["0.0.0.0:0", /token/],
        [new URL(url).host, /Port \d+ is taken by /],
        ["nonsense", /HOST:PORT/],
      ] as const) {
        const args = ["serve", "--http", address, "--config", setup.config];
        const other = new RawClient(executable(), args, setup.dir, setup.env);
        assert.equal((await other.waitForExit(EXIT_LIMIT)).code, 2, address);
        assert.match(other.stderr, why);
      }
      await stop(hub);
    }));
});
