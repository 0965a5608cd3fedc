import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { array, assert as check, property, string } from "fast-check";
import { openBrowser } from "../../src/auth/browser.ts";
import { parseChallenge } from "../../src/auth/challenge.ts";
import { checkUrl, makeSafeFetch } from "../../src/auth/safe-fetch.ts";
import { HubError } from "../../src/base/errors.ts";
import { makeFetch } from "../../src/transport/http-client/fetch.ts";
import { TestAuthorizationServer } from "../fixtures/authorization-server.ts";

describe("what a server says that it wants", () => {
  const read = (header: string | undefined): object => parseChallenge({ status: 401, header });
  const unsaid = { resourceMetadata: undefined, scopes: [], error: undefined };
  const nothing = { status: 401, acceptsBearer: true, ...unsaid };
  const rows: readonly [header: string | undefined, what: object][] = [
    [undefined, {}],
    ["", {}],
    ["Bearer", {}],
    ["bearer", {}],
    [`Bearer realm="a"`, {}],
    [`Bearer scope="a  b a"`, { scopes: ["a", "b"] }],
    [`Bearer scope=a, error=invalid_token`, { scopes: ["a"], error: "invalid_token" }],
    [`BEARER SCOPE="a"`, { scopes: ["a"] }],
    [`Bearer realm="a \\"b\\", scope=c", scope="d"`, { scopes: ["d"] }],
    [`Bearer scope="a", scope="b"`, { scopes: ["a"] }],
    [`Bearer resource_metadata="https://x/y?a=b"`, { resourceMetadata: "https://x/y?a=b" }],
    [
      `Bearer resource_metadata = https://x/y , scope = "z"`,
      { resourceMetadata: "https://x/y", scopes: ["z"] },
    ],
    [`Basic realm="x", Bearer scope="a"`, { scopes: ["a"] }],
    [`Bearer scope="a", Basic realm="x", scope="b"`, { scopes: ["a"] }],
    [`Negotiate YWJj==, Bearer scope="a"`, { scopes: ["a"] }],
    [`Basic realm="x"`, { acceptsBearer: false }],
    [`Basic realm="Bearer scope=a"`, { acceptsBearer: false }],
    [`Negotiate`, { acceptsBearer: false }],
    [`,,, Bearer ,, scope="a"`, { scopes: ["a"] }],
    [`Bearer scope="a`, {}],
  ];
  for (const [header, what] of rows) {
    it(`is read out of ${JSON.stringify(header)}`, () => {
      assert.deepEqual(read(header), { ...nothing, ...what });
    });
  }

  it("is read to its end whatever it is", () => {
    const pieces = array(string(), { maxLength: 20 });
    check(property(pieces, (parts) => void read(parts.join(`, Bearer a="b" `))));
  });
});

describe("where requests for an authorization may go", () => {
  const HOME = "https://mcp.example/mcp";
  for (const [target, home] of [
    ["https://auth.example/x", HOME],
    ["https://172.32.0.1/", HOME],
    ["https://[2001:db8::1]/", HOME],
    ["https://[64:ff9b::808:808]/", HOME],
    ["https://169.254.169.254/latest", "https://169.254.0.1/mcp"],
    ["https://10.1.2.3/", "https://10.0.0.1/mcp"],
    ["http://[::1]:8080/", "http://127.0.0.1:1/mcp"],
    ["http://127.0.0.2:8080/", "http://localhost:1/mcp"],
  ] as const) {
    it(`is ${target} for ${home}`, () => {
      assert.equal(checkUrl(target, "s", [new URL(home)]).href, new URL(target).href);
    });
  }

  const METADATA = "https://169.254.169.254/latest https://[::ffff:169.254.169.254]/";
  const PRIVATE = "https://10.1.2.3/ https://192.168.1.1/ https://172.20.0.1/ https://100.64.0.1/";
  const LOCAL = "http://127.0.0.1:8080/ http://localhost:8080/ http://2130706433/ http://0x7f.1/";
  const NAMES = "https://localhost./ https://auth.localhost./ https://0.0.0.0/ https://[fd00::1]/";
  const OTHERS = "https://[64:ff9b::a9fe:a9fe]/ javascript:alert(1) file:///etc/passwd nonsense";
  const refused = `http://auth.example/x ${METADATA} ${PRIVATE} ${LOCAL} ${NAMES} ${OTHERS}`;
  for (const [target, home] of [
    ...refused.split(" ").map((url) => [url, HOME] as const),
    ["http://mcp.example/x", "http://mcp.example/mcp"],
    ["http://169.254.169.254/latest", "http://127.0.0.1/mcp"],
    ["https://[fe80::1]/", "https://10.0.0.1/mcp"],
  ] as const) {
    it(`is not ${target} for ${home}`, () => {
      assert.throws(() => checkUrl(target, "s", [new URL(home)]), HubError);
    });
  }

  it("is where they were sent, however they are sent on", async () => {
    const other = await TestAuthorizationServer.open();
    const authority = await TestAuthorizationServer.open({ redirectTo: `${other.url}/x` });
    after(() => Promise.all([authority.close(), other.close()]));
    const { signal } = new AbortController();
    const dial = makeFetch({ ca: undefined, env: {} });
    const trustedUrls = [new URL(authority.url)];
    const fetch = makeSafeFetch({ server: "s", trustedUrls, fetch: dial, signal });
    const place = `${authority.url}/.well-known/oauth-authorization-server`;
    assert.equal((await fetch(place)).status, 302);
    assert.deepEqual(other.requests, []);
  });
});

describe("a browser", { timeout: 20_000 }, () => {
  const URL_OF_LOGIN = "https://auth.example/authorize?a=b&c=$(touch%20x);d='e'";

  async function withProgram(
    run: (program: string, seen: () => Promise<string>) => Promise<void>,
  ): Promise<void> {
    const folder = await mkdtemp(join(tmpdir(), "toolmux-browser-"));
    const [program, notes] = [join(folder, "browser"), join(folder, "seen")];
    const note = `printf '%s\\n' "$@" >${notes}.part && mv ${notes}.part ${notes}`;
    await writeFile(program, `#!/bin/sh\n${note}\n`);
    await chmod(program, 0o700);
    try {
      await run(program, async () => (await readFile(notes, "utf8")).trimEnd());
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  const open = (env: Readonly<Record<string, string>>, platform = "linux"): Promise<boolean> =>
    openBrowser(URL_OF_LOGIN, { env: { PATH: "/usr/bin:/bin", ...env }, platform });

  it("is given the environment, without what is for toolmux alone", async () => {
    await withProgram(async (program) => {
      const [teller, notes] = [`${program}-env`, `${program}-told`];
      await writeFile(teller, `#!/bin/sh\nenv >${notes}\n`, { mode: 0o700 });
      const own = { TOOLMUX_SECRET_A: "canary", TOOLMUX_OWNER: "1/2/3", DISPLAY: ":7" };
      assert.equal(await open({ ...own, BROWSER: teller }), true);
      const reported = await readFile(notes, "utf8");
      assert.match(reported, /^DISPLAY=:7$/m);
      assert.doesNotMatch(reported, /canary|TOOLMUX/);
    });
  });

  for (const [what, browser, words] of [
    ["is the program of BROWSER, which gets the page as it is, and no shell", "PROGRAM", "PAGE"],
    ["is given the page where BROWSER says", "PROGRAM --new %s --end", "--new\nPAGE\n--end"],
    ["is the next of BROWSER if one fails", "/nowhere/browser:/bin/false:PROGRAM", "PAGE"],
  ] as const) {
    it(what, () =>
      withProgram(async (program, seen) => {
        assert.equal(await open({ BROWSER: browser.replace("PROGRAM", program) }), true);
        assert.equal(
          await seen(),
          words.replace("PAGE", () => URL_OF_LOGIN),
        );
      }),
    );
  }

  it("is not opened where there is no screen, nor where none is installed", async () => {
    assert.equal(await open({}), false);
    assert.equal(await open({ DISPLAY: ":0", PATH: "/nowhere" }), false);
    assert.equal(await open({ BROWSER: "/nowhere/browser" }), false);
  });

  it("is what the system has", async () => {
    await withProgram(async (program) => {
      const folder = join(program, "..");
      for (const [platform, name] of [
        ["darwin", "open"],
        ["win32", "rundll32"],
        ["linux", "xdg-open"],
      ] as const) {
        const notes = join(folder, name);
        await writeFile(notes, `#!/bin/sh\nprintf '%s' "$*" >"${notes}.seen"\n`, { mode: 0o700 });
        const env = { PATH: `${folder}:/usr/bin:/bin`, DISPLAY: ":0" };
        assert.equal(await open(env, platform), true);
        const seen = await readFile(`${notes}.seen`, "utf8");
        assert.ok(seen.endsWith(URL_OF_LOGIN), seen);
      }
    });
  });

  it("that goes on and on is not waited for", async () => {
    await withProgram(async (program) => {
      const lasting = join(program, "..", "lasting");
      const script = `#!/bin/sh\necho $$ >${lasting}.pid\nexec sleep 60\n`;
      await writeFile(lasting, script, { mode: 0o700 });
      assert.equal(await open({ BROWSER: lasting }), true);
      process.kill(Number(await readFile(`${lasting}.pid`, "utf8")), "SIGKILL");
    });
  });
});
