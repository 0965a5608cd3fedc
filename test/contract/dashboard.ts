import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { it } from "node:test";
import {
  EXIT_LIMIT,
  executable,
  TEST_OPTIONS,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { waitUntil } from "../harness/wait.ts";

const MANIFEST = { servers: { a: scripted("") } };
const LIMIT = 30_000;

interface Hub {
  readonly id: string;
  readonly pid: number;
}

/** Sends a request to the host of a URL at 127.0.0.1: not every resolver knows names below localhost. */
export function fetchAt(url: string | URL, init: RequestInit = {}): Promise<Response> {
  const { host, port, pathname, search } = new URL(url);
  const headers = { ...(init.headers as Record<string, string> | undefined), Host: host };
  return fetch(`http://127.0.0.1:${port}${pathname}${search}`, { ...init, headers });
}

/** A page of a dashboard: what a browser would send. */
export class DashboardPage {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  private constructor(url: string, bearer: string) {
    this.#url = url;
    this.#headers = { Authorization: `Bearer ${bearer}`, Origin: new URL(url).origin };
  }

  /** @param link with its token */
  static async open(link: string): Promise<DashboardPage> {
    const { origin, href, hash } = new URL(link);
    const url = href.slice(0, -hash.length);
    assert.match(await (await fetchAt(url)).text(), /<script type="module" src="\.\/page\.js">/);
    const read = async (name: string): Promise<string> => {
      const response = await fetchAt(new URL(name, url));
      assert.equal(response.status, 200, name);
      return response.text();
    };
    assert.notEqual(await read("page.css"), "");
    const modules = new Set((await read("page.js")).match(/(?<=")\.\/[\w-]+\.js(?=")/g));
    assert.ok(modules.size > 10);
    for (const name of modules) assert.notEqual(await read(name), "");
    const response = await fetchAt(new URL("api/session", url), {
      method: "POST",
      headers: { Origin: origin, "Content-Type": "application/json" },
      body: JSON.stringify({ token: new URLSearchParams(hash.slice(1)).get("token") }),
    });
    const { bearer } = (await response.json()) as { bearer: string };
    return new DashboardPage(url, bearer);
  }

  ask(path: string, init: RequestInit = {}): Promise<Response> {
    return fetchAt(new URL(`api/${path}`, this.#url), { ...init, headers: this.#headers });
  }

  async hubs(): Promise<readonly Hub[]> {
    return ((await (await this.ask("hubs")).json()) as { hubs: readonly Hub[] }).hubs;
  }
}

/**
 * Runs the tests of a dashboard that a command line starts.
 * @param command toolmux, with the program that runs it
 * @param part "served": only what depends on the HTTP server of the runtime
 */
export function testDashboard(
  command: () => readonly [string, ...string[]],
  part: "all" | "served" = "all",
): void {
  const test = (name: string, run: (folder: TestFolder) => Promise<void>): void => {
    it(name, TEST_OPTIONS, () => withTestFolder(MANIFEST, run));
  };
  const start = ({ dir, env }: TestFolder, ...args: readonly string[]): RawClient => {
    const [program, ...first] = command();
    return new RawClient(program, [...first, ...args], dir, env);
  };
  const end = async (program: RawClient): Promise<void> => {
    program.signal("SIGTERM");
    assert.equal((await program.waitForExit(EXIT_LIMIT)).code, 143, program.stderr);
  };
  const linkIn = (program: RawClient): Promise<string> =>
    program.until(LIMIT, "the link", () =>
      program.lines.map(({ text }) => /http:\S+#token=[\w-]+/.exec(text)?.[0]).find(Boolean),
    );
  const startHub = async ({ dir, env, config }: TestFolder): Promise<RawClient> => {
    const client = new RawClient(executable(), ["--config", config], dir, env);
    await client.initializeAndList();
    return client;
  };
  const until = (what: string, find: () => Promise<boolean>): Promise<boolean> =>
    waitUntil(what, async () => (await find()) || undefined);

  test("shows all hubs, passes requests and events of each on, and notices that one has died", async (folder) => {
    const [one, other] = [await startHub(folder), await startHub(folder)];
    const dashboard = start(folder, "dashboard", "--port", "0", "--json");
    const page = await DashboardPage.open(await linkIn(dashboard));
    await until("two hubs", async () => (await page.hubs()).length === 2);
    const find = async ({ pid }: RawClient): Promise<string> =>
      (await page.hubs()).find((hub) => hub.pid === pid)?.id ?? "";
    const [first, second] = [await find(one), await find(other)];
    const left = new AbortController();
    const { signal } = left;
    const events = await page.ask(`hubs/${first}/v1/events?kinds=state`, { signal });
    const reader = events.body?.pipeThrough(new TextDecoderStream()).getReader();
    const stopped = await page.ask(`hubs/${first}/v1/servers/a/stop?wait=5s`, { method: "POST" });
    assert.equal(((await stopped.json()) as { state: string }).state, "stopped");
    let text = "";
    while (!text.includes('"disconnected"')) text += (await reader?.read())?.value ?? assert.fail();
    const readServer = async (id: string): Promise<unknown> =>
      ((await (await page.ask(`hubs/${id}/v1/servers/a`)).json()) as { state: unknown }).state;
    assert.equal(await readServer(first), "stopped");
    await until("the other hub's server", async () => (await readServer(second)) === "connected");
    assert.equal(await readServer(first), "stopped");
    left.abort();
    await assert.rejects(Promise.resolve(reader?.read()));
    one.signal("SIGKILL");
    await until("the hub to be gone", async () => {
      const response = await page.ask(`hubs/${first}/v1/hub`);
      const { error } = (await response.json()) as { error?: { code: string } };
      return response.status === 404 && error?.code === "hubNotRunning";
    });
    await until("the other hub alone", async () => {
      const ids = (await page.hubs()).map(({ id }) => id);
      return ids.length === 1 && ids[0] === second;
    });
    const state = join(folder.env["XDG_STATE_HOME"] ?? "", "toolmux/dashboard");
    assert.equal(readdirSync(state).length, 1);
    await end(dashboard);
    assert.deepEqual(readdirSync(state), []);
    other.end();
    await other.waitForExit(EXIT_LIMIT);
  });

  test("starts a hub where none runs, with a manifest if there is none, and ends the hub with itself", async (folder) => {
    const dashboard = start(folder, "dashboard", "--port", "0", "--json");
    const page = await DashboardPage.open(await linkIn(dashboard));
    assert.deepEqual(await page.hubs(), []);
    const known = (await (await page.ask("machine")).json()) as {
      clients: unknown[];
      canStart: boolean;
    };
    assert.ok(known.canStart && known.clients.length > 5);
    // Two requests at the same time start one hub.
    const started = await Promise.all([1, 2].map(() => page.ask("hubs", { method: "POST" })));
    assert.deepEqual(
      started.map(({ status }) => status),
      [200, 200],
    );
    const [hub, ...others] = await page.hubs();
    assert.deepEqual(others, []);
    const response = await page.ask(`hubs/${hub?.id}/v1/hub`);
    const { manifest } = (await response.json()) as { manifest: readonly string[] };
    assert.equal(manifest.length, 1);
    await end(dashboard);
    const { pid } = hub ?? assert.fail();
    await until("the end of the hub", () => Promise.resolve(!isRunning(pid)));
  });

  test("is served by a hub at /ui for itself alone, beside MCP and not below it", async (folder) => {
    const other = await startHub(folder);
    const args = ["serve", "--http", "127.0.0.1:0", "--dashboard", "--config", folder.config];
    const hub = start(folder, ...args, "--log-level", "debug");
    const url = await hub.until(LIMIT, "the address", () => /http:\S+\/ui\//.exec(hub.stderr)?.[0]);
    const { port } = new URL(url);
    const link = await linkIn(start(folder, "dashboard", "--port", port, "--json"));
    assert.match(link, new RegExp(`^http://[0-9a-f]{32}\\.localhost:${port}/ui/#token=`));
    assert.match(await (await fetch(url)).text(), /toolmux dashboard/);
    const root = await fetch(new URL("/", url), { redirect: "manual" });
    assert.deepEqual([root.status, root.headers.get("Location")], [302, "/ui/"]);
    const page = await DashboardPage.open(link);
    const hubs = await page.hubs();
    assert.deepEqual(
      hubs.map(({ pid }) => pid),
      [hub.pid],
    );
    const started = await page.ask(`hubs/${hubs[0]?.id}/v1/servers/a/start?wait=9s`, {
      method: "POST",
    });
    assert.equal(((await started.json()) as { state: string }).state, "connected");
    for (const path of ["/mcp/v1/hub", "/mcp/ui/", "/v1/hub", "/api/hubs"])
      for (const base of [url, link])
        assert.equal((await fetchAt(new URL(path, base))).status, 404, `${base} ${path}`);
    const events = await page.ask(`hubs/${hubs[0]?.id}/v1/events`);
    assert.doesNotMatch(hub.stderr, /token=/);
    await end(hub);
    await events.body?.cancel().catch(() => {});
    other.end();
    await other.waitForExit(EXIT_LIMIT);
  });

  if (part === "served") return;

  test("is found by a second command, which gets a new link, until it ends", async (folder) => {
    const dashboard = start(folder, "dashboard", "--port", "0", "--json");
    const link = await linkIn(dashboard);
    const { port } = new URL(link);
    const state = join(folder.env["XDG_STATE_HOME"] ?? "", "toolmux/dashboard");
    const file = join(state, `${port}.json`);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const again = start(folder, "dashboard", "--port", port, "--json");
    const other = await linkIn(again);
    assert.equal((await again.waitForExit(EXIT_LIMIT)).code, 0);
    assert.notEqual(other, link);
    assert.equal(new URL(other).host, new URL(link).host);
    assert.deepEqual(await (await DashboardPage.open(other)).hubs(), []);
    const plain = start(folder, "dashboard", "--port", port);
    assert.equal((await plain.waitForExit(EXIT_LIMIT)).code, 0);
    assert.doesNotMatch(plain.lines.map((line) => line.text).join("\n") + plain.stderr, /token=/);
    dashboard.signal("SIGKILL");
    await dashboard.waitForExit(EXIT_LIMIT);
    assert.deepEqual(readdirSync(state), [`${port}.json`]);
    const next = start(folder, "dashboard", "--port", "0", "--json");
    const nextLink = new URL(await linkIn(next));
    const nextPort = nextLink.port;
    assert.match(nextLink.hostname, /^[0-9a-f]{32}\.localhost$/);
    assert.notEqual(nextLink.hostname, new URL(link).hostname);
    assert.deepEqual(readdirSync(state), [`${nextPort}.json`]);
    await end(next);
    assert.deepEqual(readdirSync(state), []);
  });

  test("is not served where other machines can connect, without HTTP, or by a hub that may not be steered", async (folder) => {
    const closed = join(folder.dir, "closed.toml");
    writeFileSync(closed, `[hub]\ncontrol = false\n${readFileSync(folder.config, "utf8")}`);
    for (const args of [
      ["--config", folder.config, "--http", "0.0.0.0:0", "--token", "auto"],
      ["--config", folder.config],
      ["--config", closed, "--http", "127.0.0.1:0"],
    ]) {
      const hub = start(folder, "serve", "--dashboard", ...args);
      assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 2, args.join(" "));
      assert.match(hub.stderr, /--dashboard/);
      assert.ok(!existsSync(join(folder.env["XDG_STATE_HOME"] ?? "", "toolmux/dashboard")));
    }
  });
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
