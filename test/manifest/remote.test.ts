import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import type { RemoteServer } from "../../src/manifest/manifest.ts";
import {
  type ResolvedRemote,
  resolveRemote,
  type SchemeResolvers,
} from "../../src/manifest/resolve.ts";
import { getRemote, loadText, plainCopy } from "../fixtures/manifest/manifest-folder.ts";
import { itIn } from "../harness/in-folder.ts";

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
  const text = JSON.stringify({ mcpServers: { s: entry } });
  const { manifest, notes } = await loadText(text, "a.json");
  return { spec: manifest.servers[0], notes };
}

describe("a server over HTTP", () => {
  it("may say no more than where it is", async () => {
    const { url, transport, headers, keyFile, ca, auth, oauth } = await makeRemote(URL_LINE);
    assert.deepEqual([url, transport, auth], ["https://example.com/mcp", "auto", "auto"]);
    assert.deepEqual([keyFile, ca], [undefined, undefined]);
    assert.deepEqual(plainCopy([headers, oauth]), [{}, {}]);
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
});

describe("a client's server over HTTP", () => {
  const at = "https://example.com/mcp";

  for (const [entry, transport] of [
    [{ url: at }, "auto"],
    [{ serverUrl: at }, "auto"],
    [{ httpUrl: at }, "auto"],
    [{ type: "http", url: at }, "auto"],
    [{ type: "streamable-http", url: at }, "auto"],
    [{ type: "streamableHttp", url: at }, "auto"],
    [{ transport: "http", url: at }, "auto"],
    [{ type: "sse", url: at }, "sse"],
    [{ transport: "sse", url: at }, "sse"],
    [{ url: at, httpUrl: "https://other" }, "auto"],
    [{ url: at, auth: true, ca: {}, transport: {}, keyFile: 7 }, "auto"],
  ] as const) {
    it(`is understood however it is written: ${JSON.stringify(entry)}`, async () => {
      const { spec } = await readForeign(entry);
      assert.equal(spec?.kind, "remote");
      assert.deepEqual([spec.url, spec.transport, spec.auth], [at, transport, "auto"]);
    });
  }

  it("has its headers and what it says of OAuth, as far as that means the same here", async () => {
    const known = { clientId: "me", callbackPort: 8000 };
    const oauth = { ...known, authServerMetadataUrl: "https://x", enabled: true };
    const { spec, notes } = await readForeign({ url: at, headers: { A: "${T}" }, oauth });
    assert.deepEqual(notes, [
      "a.json: toolmux does not know these keys and ignores them: oauth.authServerMetadataUrl, oauth.enabled",
    ]);
    assert.equal(spec?.kind, "remote");
    assert.deepEqual(plainCopy(spec.oauth), known);
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
      assert.deepEqual(notes, [`a.json:1:16: server "s" is ignored: ${reason}`]);
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
    const { url, headers, oauth, secrets } = await resolveText(
      `url = "https://\${env:HOST}/mcp#part"
headers = { Authorization = "Bearer \${secret:linear}", X-Team = " team " }
oauth = { clientId = "\${env:HOST}", clientSecret = "\${cmd:pass x}", scopes = ["a"] }
[secrets]
commands = true`,
      { HOST: "example.com" },
      schemes,
    );
    assert.equal(url.href, "https://example.com/mcp");
    const [Authorization, clientSecret] = ["Bearer secret-linear", "out-of-pass x"];
    assert.deepEqual(plainCopy(headers), { Authorization, "X-Team": "team" });
    const filled = { clientId: "example.com", clientSecret, scopes: ["a"] };
    assert.deepEqual(plainCopy(oauth), filled);
    assert.deepEqual(secrets, [Authorization, "secret-linear", clientSecret, "example.com"]);
  });

  it("has what its URL holds for secret if its name tells so", async () => {
    const url = "https://example.com/mcp?api_key=literal%2Fkey&page=literal-page";
    const { secrets } = await resolveText(`url = "${url}"`);
    assert.deepEqual(secrets, ["literal/key"]);
  });

  it("has what Basic credentials say for secret, too", async () => {
    const pair = Buffer.from("user:pass-word").toString("base64");
    const { secrets } = await resolveText(`${URL_LINE}\nheaders.Authorization = "Basic ${pair}"`);
    assert.deepEqual(secrets, [`Basic ${pair}`, pair, "user:pass-word", "pass-word"]);
  });

  it("has what headers hold for secret if their names tell so", async () => {
    const headers = `Authorization = "Basic literal", X-Api-Key = "literal-key", X-Team = "literal-team"`;
    const { secrets } = await resolveText(`${URL_LINE}\nheaders = { ${headers} }`);
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

  itIn("reads its files each time, from the manifest's folder", async (folder) => {
    const text = `[servers.s]\n${URL_LINE}\nkeyFile = "keys/\${env:WHO}"\nca = "../ca.pem"`;
    const file = await folder.write("conf/a.toml", text);
    await folder.write("conf/keys/me", "token-one\n");
    await folder.write("ca.pem", "-----BEGIN CERTIFICATE-----\n");
    const { manifest } = await folder.loadValid({ files: [file] });
    const read = () => resolveRemote(getRemote(manifest, "s"), { WHO: "me" });
    const { bearerToken, ca, secrets } = await read();
    assert.deepEqual([bearerToken, ca], ["token-one", "-----BEGIN CERTIFICATE-----"]);
    assert.deepEqual(secrets, ["token-one"]);
    await folder.write("conf/keys/me", "token-two");
    assert.equal((await read()).bearerToken, "token-two");
  });

  it("names everything that is missing at once", async () => {
    const schemes: SchemeResolvers = new Map([
      ["secret", () => Promise.reject(new Error("not set"))],
    ]);
    const lines = `url = "https://\${env:NO}"\nkeyFile = "none"\nca = "/none/ca"\nheaders.A = "\${secret:x}"`;
    await assert.rejects(resolveText(lines, {}, schemes), {
      code: "valueMissing",
      step: "resolve",
      message:
        'server "s" cannot be reached: url needs the environment variable NO, which is not set; headers.A needs ${secret:x}: not set; keyFile needs the file /base/none, which does not exist; ca needs the file /none/ca, which does not exist',
    });
  });
});
