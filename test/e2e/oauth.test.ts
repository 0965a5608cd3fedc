import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { skipWithoutChromium, type BrowserPage, withBrowserPage } from "../harness/chromium.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import {
  type TestFolder,
  closeClient,
  executable,
  it,
  itWith,
  withTestFolder,
} from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";
import { listToolNames } from "../harness/controlled-servers.ts";

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
/** Authorization servers, each with a guard in front of a server. */
const MEMBERS = file("../fixtures/servers/sdk-oauth.mjs");
const PROVIDER = file("../fixtures/servers/oidc-provider.mjs");
const MESSENGER = file("../fixtures/servers/note-url.mjs");
const ECHO = "club__echo";

interface Club {
  readonly url: string;
  counts(): Promise<{ logins: number; exchanges: number; refreshes: number }>;
  /** No access token that it has given is good any more. */
  expire(): Promise<void>;
}

async function findPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The server of everything over HTTP, and in front of it an authorization server that lets in who has logged in. */
async function withClub<Value>(guard: string, run: (club: Club) => Promise<Value>): Promise<Value> {
  const port = await findPort();
  const { command, args = [] } = publishedServer("everything", ["streamableHttp"]);
  const env = { PATH: process.env["PATH"], PORT: String(port) };
  const inner = spawn(command, args, { env, stdio: ["ignore", "ignore", "pipe"] });
  const outer = spawn("node", [guard, `http://127.0.0.1:${port}/mcp`], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const ended = Promise.all([once(inner, "exit"), once(outer, "exit")]);
  try {
    await once(inner.stderr, "data");
    const [line] = (await once(createInterface(outer.stdout), "line")) as [string];
    const { url } = JSON.parse(line) as { url: string };
    const control = (path: string, method: string): Promise<Response> =>
      fetch(new URL(`/control/${path}`, url), { method });
    return await run({
      url,
      counts: async () => (await control("counts", "GET")).json() as ReturnType<Club["counts"]>,
      expire: async () => void (await control("expire", "POST")),
    });
  } finally {
    inner.kill("SIGKILL");
    outer.kill("SIGKILL");
    await ended;
  }
}

interface BrowserSetup {
  readonly club: Club;
  readonly setup: TestFolder;
  readonly env: Readonly<Record<string, string>>;
  /** The pages that a browser was sent to. */
  pages(): readonly string[];
  /** Waits for the next of them. */
  page(count: number): Promise<string>;
}

/** A stage whose manifest has the club, and whose browser only notes where it is sent. */
function withBrowserSetup<Value>(
  run: (browserSetup: BrowserSetup) => Promise<Value>,
  guard = MEMBERS,
): Promise<Value> {
  return withClub(guard, (club) =>
    withTestFolder(`[hub]\nlistWait = "500ms"\n[servers.club]\nurl = "${club.url}"\n`, (setup) => {
      const notes = join(setup.dir, "pages");
      const env = {
        ...setup.env,
        TOOLMUX_KEYCHAIN: "off",
        BROWSER: `node ${MESSENGER} ${notes}`,
      };
      const pages = (): readonly string[] =>
        existsSync(notes) ? readFileSync(notes, "utf8").split("\n").slice(0, -1) : [];
      const page = (count: number): Promise<string> =>
        poll(
          15_000,
          () => `page ${count}`,
          () => pages()[count - 1],
        );
      return run({ club, setup, env, pages, page });
    }),
  );
}

/** Serves a client until `run` is done. */
async function serve(
  { setup, env }: BrowserSetup,
  run: (client: RawClient) => Promise<void>,
): Promise<void> {
  const client = new RawClient(executable(), ["--config", setup.config], setup.dir, env);
  await client.initializeAndList();
  await run(client);
  await closeClient(client);
  assert.doesNotMatch(client.stderr, /access-|refresh-|code-/);
}

/** Calls a tool of the club, as soon as it is there. */
async function echo(client: RawClient): Promise<void> {
  if (!(await listToolNames(client)).includes(ECHO)) {
    await client.until(15_000, "its tools", () =>
      client.filter(isChanged).length > 0 ? true : undefined,
    );
  }
  const { message } = await client.call(ECHO, { message: "hello" }, 15_000);
  assert.match(message.result?.content?.[0]?.text ?? "", /hello/);
}

function isChanged({ method }: { readonly method?: string | undefined }): boolean {
  return method === "notifications/tools/list_changed";
}

/** Runs a command of the executable. @returns its exit code and what it says */
async function say(
  { setup, env }: BrowserSetup,
  ...args: readonly string[]
): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(executable(), [...args, "--config", setup.config], { cwd: setup.dir, env });
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  return { code, out, err };
}

/** Logs in as a person does. */
async function logIn(page: BrowserPage, url: string, password = "lovelace"): Promise<string> {
  await page.navigate(url);
  await page.evaluate(`document.querySelector("[name=name]").value = "ada"`);
  await page.evaluate(`document.querySelector("[name=password]").value = "${password}"`);
  await page.evaluateAndNavigate(`document.querySelector("button").click()`);
  return String(await page.evaluate("document.body.innerText"));
}

/** Of each test that needs it: nothing would be reported of a suite that is skipped as a whole. */
const test = itWith({ skip: skipWithoutChromium });

describe("a server that wants a login", () => {
  test("is there when a person has logged in, also for the next hub, and when the token has expired", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { club, page, pages, setup } = browserSetup;
      await withBrowserPage(async (browser) => {
        await serve(browserSetup, async (client) => {
          const said = await logIn(browser, await page(1));
          assert.match(said, /Thank you/);
          await echo(client);
        });
      });
      await serve(browserSetup, echo);
      await club.expire();
      await serve(browserSetup, echo);
      assert.deepEqual(await club.counts(), { logins: 1, exchanges: 1, refreshes: 1 });
      assert.equal(pages().length, 1);
      for (const path of readdirSync(join(setup.dir, "config"), {
        recursive: true,
        encoding: "utf8",
      })) {
        const { mode } = statSync(join(setup.dir, "config", path));
        assert.equal(mode & 0o077, 0, path);
      }
    });
  });

  test("keeps its token while it serves: one that expires meanwhile is exchanged under a call", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { club, page } = browserSetup;
      await withBrowserPage(async (browser) => {
        await serve(browserSetup, async (client) => {
          await logIn(browser, await page(1));
          for (let round = 0; round < 3; round++) {
            await echo(client);
            await club.expire();
          }
          await echo(client);
        });
      });
      assert.deepEqual(await club.counts(), { logins: 1, exchanges: 1, refreshes: 3 });
    });
  });

  test("is logged in to once for two hubs that want it at the same time", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { page, pages, club } = browserSetup;
      await withBrowserPage(async (browser) => {
        const both = [serve(browserSetup, echo), serve(browserSetup, echo)];
        assert.match(await logIn(browser, await page(1)), /Thank you/);
        await Promise.all(both);
      });
      assert.equal(pages().length, 1);
      assert.deepEqual(await club.counts(), { logins: 1, exchanges: 1, refreshes: 0 });
    });
  });

  test("is taken over by another hub when the one that waits for a login is killed", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { setup, env, page } = browserSetup;
      const victim = new RawClient(executable(), ["--config", setup.config], setup.dir, env);
      await victim.initializeAndList();
      await page(1);
      await withBrowserPage(async (browser) => {
        const next = serve(browserSetup, echo);
        victim.signal("SIGKILL");
        await victim.waitForExit(10_000);
        await logIn(browser, await page(2));
        await next;
      });
    });
  });

  it("is not waited for by a hub whose client has left: the browser finds nobody", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { page } = browserSetup;
      await serve(browserSetup, async () => void (await page(1)));
      const back = new URL(await page(1)).searchParams.get("redirect_uri") ?? "";
      await assert.rejects(fetch(back));
    });
  });

  test("is logged in to and out of by hand", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { club, page, pages } = browserSetup;
      const before = await say(browserSetup, "auth", "status");
      assert.match(before.out, /club +none yet/);
      await withBrowserPage(async (browser) => {
        const login = say(browserSetup, "auth", "login", "club");
        const url = await page(1);
        // A password that is wrong ends nothing.
        assert.equal(await logIn(browser, url, "wrong"), "No.");
        assert.match(await logIn(browser, url), /Thank you/);
        const { code, out, err } = await login;
        assert.equal(code, 0);
        assert.match(out, /^logged in to club: authorized, renewed.*\n$/);
        assert.ok(err.includes(url));
      });
      const { servers } = JSON.parse((await say(browserSetup, "auth", "status", "--json")).out) as {
        servers: readonly Record<string, unknown>[];
      };
      assert.equal(servers[0]?.["state"], "authorized");
      assert.equal(servers[0]?.["refreshable"], true);
      await serve(browserSetup, echo);
      const logout = await say(browserSetup, "auth", "logout", "club");
      assert.deepEqual([logout.code, logout.out], [0, "logged out of club\n"]);
      assert.equal(
        (await say(browserSetup, "auth", "logout", "club")).out,
        "not logged in to club\n",
      );
      const after = await say(browserSetup, "auth", "status", "club");
      assert.match(after.out, /club +none yet/);
      assert.equal(pages().length, 1);
      assert.equal((await club.counts()).logins, 1);
      await serve(browserSetup, async () => void (await page(2)));
    });
  });

  test("is there at once for a hub that was refused, when somebody has logged in by hand", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { page, club } = browserSetup;
      await serve(browserSetup, async (client) => {
        const refused = new URL(await page(1)).searchParams;
        const back = new URL(refused.get("redirect_uri") ?? "");
        back.search = `?error=access_denied&state=${refused.get("state")}`;
        assert.match(await (await fetch(back)).text(), /Not authorized/);
        await withBrowserPage(async (browser) => {
          const login = say(browserSetup, "auth", "login", "club");
          assert.match(await logIn(browser, await page(2)), /Thank you/);
          assert.equal((await login).code, 0);
        });
        const { message } = await client.call(ECHO, { message: "hello" }, 15_000);
        assert.match(message.result?.content?.[0]?.text ?? "", /hello/);
      });
      assert.equal((await club.counts()).logins, 1);
    });
  });

  it("says what to run where a login by hand is needed, and what is wrong with names", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const strange = await say(browserSetup, "auth", "login", "clob");
      assert.equal(strange.code, 2);
      assert.match(strange.err, /no server "clob".*Did you mean "club"/);
      assert.equal((await say(browserSetup, "auth", "login")).code, 2);
      assert.equal((await say(browserSetup, "auth", "frobnicate", "club")).code, 2);
    });
  });
});

describe("a server whose tokens oidc-provider gives", () => {
  test("is there from the login to the logout, over restarts and expired tokens", async () => {
    await withBrowserSetup(async (browserSetup) => {
      const { club, page, pages } = browserSetup;
      await withBrowserPage(async (browser) => {
        await serve(browserSetup, async (client) => {
          assert.match(await agree(browser, await page(1)), /Thank you/);
          await echo(client);
          await club.expire();
          await echo(client);
        });
      });
      await serve(browserSetup, echo);
      await club.expire();
      await serve(browserSetup, echo);
      assert.deepEqual(await club.counts(), { logins: 1, exchanges: 1, refreshes: 2 });
      assert.equal((await say(browserSetup, "auth", "logout", "club")).out, "logged out of club\n");
      await serve(browserSetup, async () => void (await page(2)));
      assert.equal(pages().length, 2);
    }, PROVIDER);
  });
});

/** Logs in, and agrees to what is asked for then. */
async function agree(page: BrowserPage, url: string): Promise<string> {
  await page.navigate(url);
  await page.evaluate(`document.querySelector("[name=login]").value = "ada"`);
  await page.evaluate(`document.querySelector("[name=password]").value = "any"`);
  await page.evaluateAndNavigate(`document.querySelector("[type=submit]").click()`);
  await page.evaluateAndNavigate(`document.querySelector("[type=submit]").click()`);
  return String(await page.evaluate("document.body.innerText"));
}
