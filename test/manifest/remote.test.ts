import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import type { RemoteServer } from "../../src/manifest/manifest.ts";
import {
  type ResolvedRemote,
  resolveRemote,
  type SchemeResolvers,
} from "../../src/manifest/resolve.ts";
import {
  findProblems,
  getRemote,
  loadText,
  plainCopy,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";

const URL_LINE = `url = "https://example.com/mcp"`;

async function makeRemote(lines: string): Promise<RemoteServer> {
  const { manifest } = await loadText(`[servers.s]\n${lines}`);
  return getRemote(manifest, "s");
}

async function resolveText(
  lines: string,
  env: Record<string, string> = {},
  schemes?: SchemeResolvers,
): Promise<ResolvedRemote> {
  return resolveRemote({ ...(await makeRemote(lines)), baseDir: "/base" }, env, "/work", schemes);
}

async function readForeign(entry: object) {
  const { manifest, notes } = await loadText(
    JSON.stringify({ mcpServers: { s: entry } }),
    "a.json",
  );
  return { spec: manifest.servers[0], notes };
}

describe("a server over HTTP", () => {
  it("may say no more than where it is", async () => {
    const { url, transport, headers, keyFile, ca, auth, oauth } = await makeRemote(URL_LINE);
    assert.deepEqual(
      [url, transport, plainCopy(headers), keyFile, ca, auth, plainCopy(oauth)],
      ["https://example.com/mcp", "auto", {}, undefined, undefined, "auto", {}],
    );
  });

  it("may say everything, in TOML and in JSON", async () => {
    const said = {
      url: "https://example.com/sse",
      transport: "sse",
      headers: { "X-Team": "a" },
      keyFile: "key",
      ca: "ca.pem",
      auth: "none",
      oauth: { clientId: "me", callbackPort: 8000, scopes: ["a", "b"] },
    };
    const { manifest } = await loadText(JSON.stringify({ servers: { s: said } }), "a.json");
    const fromToml = await makeRemote(
      `url = "https://example.com/sse"\ntransport = "sse"\nheaders.X-Team = "a"\nkeyFile = "key"\nca = "ca.pem"\nauth = "none"\noauth = { clientId = "me", callbackPort = 8000, scopes = ["a", "b"] }`,
    );
    for (const spec of [getRemote(manifest, "s"), fromToml]) {
      const picked = Object.keys(said).map((key) => [key, Reflect.get(spec, key)]);
      assert.deepEqual(plainCopy(Object.fromEntries(picked)), said);
    }
  });

  it("is authorized from the beginning if it says how, unless it says otherwise", async () => {
    const oauth = `oauth.clientId = "me"`;
    assert.equal((await makeRemote(`${URL_LINE}\n${oauth}`)).auth, "oauth");
    assert.equal((await makeRemote(`${URL_LINE}\n${oauth}\nauth = "auto"`)).auth, "auto");
    assert.equal((await makeRemote(`${URL_LINE}\noauth = {}\nauth = "none"`)).auth, "none");
  });

  for (const [lines, ...expected] of [
    [`url = ""`, `t.toml:2:7: servers.s.url: expected a string that is not empty, found a string`],
    [`url = 5`, "t.toml:2:7: servers.s.url: expected a string, found a number"],
    [
      `${URL_LINE}\nargs = []\ncwd = "."`,
      "t.toml:3:1: servers.s.args: cannot be used together with url, because toolmux starts no process for a url",
      "t.toml:4:1: servers.s.cwd: cannot be used together with url, because toolmux starts no process for a url",
    ],
    [
      `command = "x"\nkeyFile = "x"\nheaders = {}`,
      "t.toml:3:1: servers.s.keyFile: cannot be used together with command, because a command runs as a process",
      "t.toml:4:1: servers.s.headers: cannot be used together with command, because a command runs as a process",
    ],
    [
      `${URL_LINE}\ntransport = "websocket"`,
      `t.toml:3:13: servers.s.transport: expected "auto", "http" or "sse", found "websocket"`,
    ],
    [
      `${URL_LINE}\nheaders = { Authorization = 5 }`,
      "t.toml:3:29: servers.s.headers.Authorization: expected a string, found a number",
    ],
    [
      `${URL_LINE}\nheaders = { A = "\${X}" }`,
      "t.toml:3:17: servers.s.headers.A: found ${X}; write ${env:X}, or $${X} for this text itself",
    ],
    [
      `url = "https://\${file:}"\nkeyFile = "\${env:}"`,
      "t.toml:2:7: servers.s.url: found ${file:} without a path",
      "t.toml:3:11: servers.s.keyFile: found a ${…} without a variable name",
    ],
    [
      `${URL_LINE}\noauth = { clientid = "x", callbackPort = 0 }`,
      `t.toml:3:11: servers.s.oauth.clientid: unknown key; did you mean "clientId"?`,
      "t.toml:3:42: servers.s.oauth.callbackPort: expected the number of a port, 1 to 65535, found a number",
    ],
    [`serverUrl = "x"`, `t.toml:2:1: servers.s.serverUrl: unknown key; did you mean "url"?`],
  ] as const) {
    it(`is told what is wrong with it: ${lines.replaceAll("\n", " ")}`, async () => {
      assert.deepEqual(await findProblems(`[servers.s]\n${lines}`), expected);
    });
  }
});

describe("a client's server over HTTP", () => {
  const at = "https://example.com/mcp";

  for (const [entry, url, transport] of [
    [{ url: at }, at, "auto"],
    [{ serverUrl: at }, at, "auto"],
    [{ httpUrl: at }, at, "auto"],
    [{ type: "http", url: at }, at, "auto"],
    [{ type: "streamable-http", url: at }, at, "auto"],
    [{ type: "streamableHttp", url: at }, at, "auto"],
    [{ transport: "http", url: at }, at, "auto"],
    [{ type: "sse", url: at }, at, "sse"],
    [{ transport: "sse", url: at }, at, "sse"],
    [{ url: at, httpUrl: "https://other" }, at, "auto"],
    [{ url: at, auth: true, ca: {}, transport: {}, keyFile: 7 }, at, "auto"],
  ] as const) {
    it(`is understood however it is written: ${JSON.stringify(entry)}`, async () => {
      const { spec } = await readForeign(entry);
      assert.equal(spec?.kind, "remote");
      assert.deepEqual([spec.url, spec.transport, spec.auth], [url, transport, "auto"]);
    });
  }

  it("has its headers and what it says of OAuth, as far as that means the same here", async () => {
    const { spec, notes } = await readForeign({
      url: at,
      headers: { A: "${T}" },
      oauth: {
        clientId: "me",
        callbackPort: 8000,
        authServerMetadataUrl: "https://x",
        enabled: true,
      },
    });
    assert.deepEqual(notes, []);
    assert.equal(spec?.kind, "remote");
    assert.deepEqual(plainCopy(spec.oauth), { clientId: "me", callbackPort: 8000 });
    assert.equal(spec.auth, "auto");
    const { headers } = await resolveRemote(spec, { T: "value-of-t" });
    assert.deepEqual(plainCopy(headers), { A: "value-of-t" });
  });

  for (const entry of [
    { type: "ws", url: "wss://example.com" },
    { transport: "websocket", url: "wss://example.com" },
  ]) {
    it(`over WebSocket costs only itself: ${JSON.stringify(entry)}`, async () => {
      const { spec, notes } = await readForeign(entry);
      assert.equal(spec?.kind, "unsupported");
      const reason = "servers over WebSocket are not supported";
      assert.deepEqual(notes, [`a.json: server "s" is ignored: ${reason}`]);
    });
  }

  it("that is started with a command too is started", async () => {
    const { spec } = await readForeign({ command: "x", serverUrl: at });
    assert.equal(spec?.kind, "stdio");
  });

  it("that holds what it should not is lost without its values being shown", async () => {
    const { spec, notes } = await readForeign({ url: at, headers: { A: ["sk-secret"] } });
    assert.equal(spec?.kind, "unsupported");
    assert.ok(!JSON.stringify(notes).includes("sk-secret"));
  });
});

describe("a server over HTTP, right before it is reached,", () => {
  it("has every form filled in, wherever it stands", async () => {
    const schemes: SchemeResolvers = new Map([
      ["secret", (name) => Promise.resolve(`secret-${name}`)],
      ["cmd", (line) => Promise.resolve(`out-of-${line}`)],
    ]);
    const resolved = await resolveText(
      [
        `url = "https://\${env:HOST}/mcp#part"`,
        `headers = { Authorization = "Bearer \${secret:linear}", X-Team = " team " }`,
        `oauth = { clientId = "\${env:HOST}", clientSecret = "\${cmd:pass x}", scopes = ["a"] }`,
        "[secrets]",
        "commands = true",
      ].join("\n"),
      { HOST: "example.com" },
      schemes,
    );
    assert.equal(resolved.url.href, "https://example.com/mcp");
    assert.deepEqual(plainCopy(resolved.headers), {
      Authorization: "Bearer secret-linear",
      "X-Team": "team",
    });
    assert.deepEqual(plainCopy(resolved.oauth), {
      clientId: "example.com",
      clientSecret: "out-of-pass x",
      scopes: ["a"],
    });
    assert.deepEqual(resolved.secrets, [
      "Bearer secret-linear",
      "secret-linear",
      "out-of-pass x",
      "example.com",
    ]);
  });

  it("has what its URL holds for secret if its name tells so", async () => {
    const { secrets } = await resolveText(
      `url = "https://example.com/mcp?api_key=literal%2Fkey&page=literal-page"`,
    );
    assert.deepEqual(secrets, ["literal/key"]);
  });

  it("has what Basic credentials say for secret, too", async () => {
    const pair = Buffer.from("user:pass-word").toString("base64");
    const { secrets } = await resolveText(`${URL_LINE}\nheaders.Authorization = "Basic ${pair}"`);
    assert.deepEqual(secrets, [`Basic ${pair}`, pair, "user:pass-word", "pass-word"]);
  });

  it("has what headers hold for secret if their names tell so", async () => {
    const { secrets } = await resolveText(
      `${URL_LINE}\nheaders = { Authorization = "Basic literal", X-Api-Key = "literal-key", X-Team = "literal-team" }`,
    );
    assert.deepEqual(secrets, ["Basic literal", "literal-key", "literal"]);
  });

  for (const [lines, message] of [
    [`url = "example.com/mcp"`, "its url is not valid"],
    [`url = "file:///etc/passwd"`, 'its url starts with "file://"'],
    [`url = "wss://example.com"`, 'its url starts with "wss://"'],
    [`url = "https://"`, "its url is not valid"],
    [`url = "https://me:pw-secret@example.com"`, "its url contains a password"],
    [`url = "https://me@example.com"`, "its url contains a password"],
    [`${URL_LINE}\nheaders = { "X: y" = "a" }`, "headers.X: y is not a valid HTTP header"],
    [`${URL_LINE}\nheaders = { A = "\${env:TWO_LINES}" }`, "headers.A is not a valid HTTP header"],
    [`${URL_LINE}\nheaders = { A = "\\u20ac" }`, "headers.A is not a valid HTTP header"],
  ] as const) {
    it(`is refused, and no value shown: ${lines.replaceAll("\n", " ")}`, async () => {
      await assert.rejects(resolveText(lines, { TWO_LINES: "a\r\nX-Other: b" }), {
        code: "notSupported",
        server: "s",
        step: "resolve",
        message: new RegExp(`^server "s" cannot be reached: ${message}[^:@]*(?:https?:[^:@]*)*$`),
      });
    });
  }

  it("reads its files each time, from the manifest's folder", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write(
        "conf/a.toml",
        `[servers.s]\n${URL_LINE}\nkeyFile = "keys/\${env:WHO}"\nca = "../ca.pem"`,
      );
      await folder.write("conf/keys/me", "token-one\n");
      await folder.write("ca.pem", "-----BEGIN CERTIFICATE-----\n");
      const { manifest } = await folder.loadValid({ files: [file] });
      const read = () => resolveRemote(getRemote(manifest, "s"), { WHO: "me" });
      const { bearerToken: key, ca, secrets } = await read();
      assert.deepEqual([key, ca], ["token-one", "-----BEGIN CERTIFICATE-----"]);
      assert.deepEqual(secrets, ["token-one"]);
      await folder.write("conf/keys/me", "token-two");
      assert.equal((await read()).bearerToken, "token-two");
    }));

  it("names everything that is missing at once", async () => {
    const schemes: SchemeResolvers = new Map([
      ["secret", () => Promise.reject(new Error("not set"))],
    ]);
    await assert.rejects(
      resolveText(
        `url = "https://\${env:NO}"\nkeyFile = "none"\nca = "/none/ca"\nheaders.A = "\${secret:x}"`,
        {},
        schemes,
      ),
      {
        code: "valueMissing",
        step: "resolve",
        message:
          `server "s" cannot be reached: url needs the environment variable NO, which is not set; ` +
          "headers.A needs ${secret:x}: not set; " +
          "keyFile needs the file /base/none, which does not exist; ca needs the file /none/ca, which does not exist",
      },
    );
  });
});
