import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { skipWithoutChromium, type BrowserPage, withBrowserPage } from "../harness/chromium.ts";
import { finishCommand, run, runJson, startOn } from "../harness/command.ts";
import type { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import { type TestFolder, closeClient, it, itWith, withTestFolder } from "../harness/hub.ts";
import { listToolNames } from "../harness/controlled-servers.ts";
import { type RemoteProcess, startRemote } from "../harness/remote-process.ts";

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
/** Authorization servers, each with a guard in front of a server. */
const MEMBERS = file("../fixtures/servers/sdk-oauth.mjs");
const PROVIDER = file("../fixtures/servers/oidc-provider.mjs");
const MESSENGER = file("../fixtures/servers/note-url.sh");
const ECHO = "club__echo";

interface Counts {
  readonly logins: number;
  readonly exchanges: number;
  readonly refreshes: number;
}

/** The server of everything over HTTP behind an authorization server that lets in who has logged in. */
interface Club {
  readonly url: string;
  counts(): Promise<Counts>;
  /** No access token that it has given is good any more. */
  expire(): Promise<void>;
}

let inner: Promise<RemoteProcess> | undefined;
after(async () => (await inner)?.stop());

/** One club with this guard for all tests of a suite; all clubs have one server. */
function openClub(guard: string): () => Club {
  let outer: ChildProcess | undefined;
  let club: Club | undefined;
  before(async () => {
    const { url: guarded } = await (inner ??= startRemote("http"));
    const child = spawn("node", [guard, guarded], { stdio: ["ignore", "pipe", "ignore"] });
    outer = child;
    const [line] = (await once(createInterface(child.stdout), "line")) as [string];
    const { url } = JSON.parse(line) as { url: string };
    const control = (path: string, method: string): Promise<Response> =>
      fetch(new URL(`/control/${path}`, url), { method });
    club = {
      url,
      counts: async () => (await (await control("counts", "GET")).json()) as Counts,
      expire: async () => void (await control("expire", "POST")),
    };
  });
  after(() => void outer?.kill("SIGKILL"));
  return () => {
    assert.ok(club, "the club is open");
    return club;
  };
}

interface BrowserSetup extends TestFolder {
  /** What has happened at the club since the test began. */
  counts(): Promise<Counts>;
  /** The pages that a browser was sent to. */
  pages(): readonly string[];
  /** Waits for the next of them. */
  page(count: number): Promise<string>;
}

/** A stage whose manifest has the club, and whose browser only notes where it is sent. */
async function withBrowserSetup(
  club: Club,
  use: (browserSetup: BrowserSetup) => Promise<void>,
): Promise<void> {
  const start = await club.counts();
  const counts = async (): Promise<Counts> => {
    const { logins, exchanges, refreshes } = await club.counts();
    return {
      logins: logins - start.logins,
      exchanges: exchanges - start.exchanges,
      refreshes: refreshes - start.refreshes,
    };
  };
  const manifest = `[hub]\nlistWait = "500ms"\n[servers.club]\nurl = "${club.url}"\n`;
  await withTestFolder(manifest, (setup) => {
    const notes = join(setup.dir, "pages");
    const env = {
      ...setup.env,
      TOOLMUX_KEYCHAIN: "off",
      BROWSER: `sh ${MESSENGER} ${notes}`,
    };
    const pages = (): readonly string[] =>
      existsSync(notes) ? readFileSync(notes, "utf8").split("\n").slice(0, -1) : [];
    const page = (count: number): Promise<string> =>
      poll(
        15_000,
        () => `page ${count}`,
        () => pages()[count - 1],
      );
    return use({ ...setup, env, counts, pages, page });
  });
}

/** Serves a client until `use` is done. */
async function serve(
  browserSetup: BrowserSetup,
  use: (client: RawClient) => Promise<void>,
): Promise<void> {
  const client = startOn(browserSetup);
  await client.initializeAndList();
  await use(client);
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

/** Logs in with the form of the SDK's authorization server. @returns the page that this leads to */
async function logIn(url: string, password = "lovelace"): Promise<string> {
  const form = await (await fetch(url)).text();
  const [, login = ""] = /name="login" value="([^"]+)"/.exec(form) ?? [];
  const body = new URLSearchParams({ login, name: "ada", password });
  return await (await fetch(new URL("/login", url), { method: "POST", body })).text();
}

describe("a server that wants a login", () => {
  const club = openClub(MEMBERS);

  it("is there when a person has logged in, also for the next hub, and when the token expires meanwhile or between", () =>
    withBrowserSetup(club(), async (browserSetup) => {
      const { counts, dir, page, pages } = browserSetup;
      await serve(browserSetup, async (client) => {
        assert.match(await logIn(await page(1)), /Thank you/);
        for (let round = 0; round < 2; round++) {
          await echo(client);
          await club().expire();
        }
        await echo(client);
      });
      await serve(browserSetup, echo);
      await club().expire();
      await serve(browserSetup, echo);
      assert.deepEqual(await counts(), { logins: 1, exchanges: 1, refreshes: 3 });
      assert.equal(pages().length, 1);
      const config = join(dir, "config");
      for (const path of readdirSync(config, { recursive: true, encoding: "utf8" }))
        assert.equal(statSync(join(config, path)).mode & 0o077, 0, path);
    }));

  it("is logged in to once for two hubs that want it at the same time", () =>
    withBrowserSetup(club(), async (browserSetup) => {
      const { page, pages, counts } = browserSetup;
      const both = [serve(browserSetup, echo), serve(browserSetup, echo)];
      assert.match(await logIn(await page(1)), /Thank you/);
      await Promise.all(both);
      assert.equal(pages().length, 1);
      assert.deepEqual(await counts(), { logins: 1, exchanges: 1, refreshes: 0 });
    }));

  it("is waited for neither by a hub whose client has left nor by one that was killed, whose place another takes", () =>
    withBrowserSetup(club(), async (browserSetup) => {
      const { page } = browserSetup;
      await serve(browserSetup, async () => void (await page(1)));
      const back = new URL(await page(1)).searchParams.get("redirect_uri") ?? "";
      await assert.rejects(fetch(back));

      const victim = startOn(browserSetup);
      await victim.initializeAndList();
      await page(2);
      const next = serve(browserSetup, echo);
      victim.signal("SIGKILL");
      await victim.waitForExit(10_000);
      await logIn(await page(3));
      await next;
    }));

  it("is logged in to and out of by hand, by its right name", () =>
    withBrowserSetup(club(), async (browserSetup) => {
      const { counts, page, pages } = browserSetup;
      const strange = await run(browserSetup, "auth", "login", "clob");
      assert.equal(strange.code, 2);
      assert.match(strange.stderr, /no server "clob".*Did you mean "club"/);
      assert.equal((await run(browserSetup, "auth", "login")).code, 2);
      assert.equal((await run(browserSetup, "auth", "frobnicate", "club")).code, 2);

      const none = /club +none yet/;
      assert.match((await run(browserSetup, "auth", "status")).stdout, none);
      const login = startOn(browserSetup, "auth", "login", "club");
      const url = await page(1);
      // A password that is wrong ends nothing.
      assert.equal(await logIn(url, "wrong"), "No.");
      assert.match(await logIn(url), /Thank you/);
      const { code, stdout, stderr } = await finishCommand(login);
      assert.equal(code, 0);
      assert.match(stdout, /^logged in to club: authorized, renewed.*\n$/);
      assert.ok(stderr.includes(url));
      const { servers } = await runJson<{ servers: readonly Record<string, unknown>[] }>(
        browserSetup,
        "auth",
        "status",
      );
      const { state, refreshable } = servers[0] ?? {};
      assert.deepEqual([state, refreshable], ["authorized", true]);
      await serve(browserSetup, echo);
      for (const said of ["logged out of club\n", "not logged in to club\n"]) {
        const logout = await run(browserSetup, "auth", "logout", "club");
        assert.deepEqual([logout.code, logout.stdout], [0, said]);
      }
      assert.match((await run(browserSetup, "auth", "status", "club")).stdout, none);
      assert.equal(pages().length, 1);
      assert.equal((await counts()).logins, 1);
      await serve(browserSetup, async () => void (await page(2)));
    }));

  it("is there at once for a hub that was refused, when somebody has logged in by hand", () =>
    withBrowserSetup(club(), async (browserSetup) => {
      const { page, counts } = browserSetup;
      await serve(browserSetup, async (client) => {
        const refused = new URL(await page(1)).searchParams;
        const back = new URL(refused.get("redirect_uri") ?? "");
        back.search = `?error=access_denied&state=${refused.get("state")}`;
        assert.match(await (await fetch(back)).text(), /Not authorized/);
        const login = startOn(browserSetup, "auth", "login", "club");
        assert.match(await logIn(await page(2)), /Thank you/);
        assert.equal((await finishCommand(login)).code, 0);
        const { message } = await client.call(ECHO, { message: "hello" }, 15_000);
        assert.match(message.result?.content?.[0]?.text ?? "", /hello/);
      });
      assert.equal((await counts()).logins, 1);
    }));
});

describe("a server whose tokens oidc-provider gives", () => {
  const club = openClub(PROVIDER);
  const test = itWith({ skip: skipWithoutChromium });

  test("is there from the login in a browser on, also when the token expires", () =>
    withBrowserSetup(club(), async (browserSetup) => {
      const { counts, page, pages } = browserSetup;
      await withBrowserPage((browser) =>
        serve(browserSetup, async (client) => {
          assert.match(await agree(browser, await page(1)), /Thank you/);
          await echo(client);
          await club().expire();
          await echo(client);
        }),
      );
      assert.deepEqual(await counts(), { logins: 1, exchanges: 1, refreshes: 1 });
      assert.equal(pages().length, 1);
    }));
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
