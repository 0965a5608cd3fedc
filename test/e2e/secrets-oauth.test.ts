import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";

const SECRET = "canary-client-secret";
const TOKEN = "canary-access-token";
const SPELLINGS = [SECRET, TOKEN].flatMap((value) => [
  value,
  Buffer.from(value).toString("base64").slice(0, -4),
  Buffer.from(`client:${value}`).toString("base64").slice(12, -4),
]);

/** An authorization server and what it protects; either tells all that it was given when it refuses, as `who` is to. */
async function withServers(who: "issuer" | "resource", use: (url: string) => Promise<void>) {
  const server = createServer((request, response) => void answer(who, request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function answer(who: string, request: IncomingMessage, response: ServerResponse) {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks).toString();
  const { authorization = "", host } = request.headers;
  const coded = Buffer.from(authorization.split(" ")[1] ?? "", "base64").toString("latin1");
  const reported = `${authorization} ${coded} ${body} ${Buffer.from(authorization).toString("base64")}`;
  const origin = `http://${host}`;
  const send = (status: number, value: object, headers: Record<string, string> = {}): void => {
    const fields = { "content-type": "application/json", ...headers };
    response.writeHead(status, fields).end(JSON.stringify(value));
  };
  const { url = "" } = request;
  if (url.startsWith("/.well-known/oauth-protected-resource")) {
    send(200, { resource: `${origin}/mcp`, authorization_servers: [origin] });
  } else if (url.startsWith("/.well-known/oauth-authorization-server")) {
    send(200, {
      issuer: origin,
      authorization_endpoint: `${origin}/authorize`,
      token_endpoint: `${origin}/token`,
      response_types_supported: ["code"],
      grant_types_supported: ["client_credentials"],
      token_endpoint_auth_methods_supported: ["client_secret_basic", "client_secret_post"],
      code_challenge_methods_supported: ["S256"],
    });
  } else if (url === "/token" && who === "issuer") {
    send(400, { error: "invalid_client", error_description: reported });
  } else if (url === "/token") {
    send(200, { access_token: TOKEN, token_type: "Bearer", expires_in: 3600 });
  } else if (!authorization.includes(TOKEN)) {
    const metadata = `${origin}/.well-known/oauth-protected-resource/mcp`;
    send(
      401,
      { error: reported },
      { "www-authenticate": `Bearer resource_metadata="${metadata}"` },
    );
  } else {
    const { id } = JSON.parse(body || "{}") as { id?: number };
    send(200, { jsonrpc: "2.0", id, error: { code: -32000, message: reported } });
  }
}

function readFolders(setup: TestFolder): string {
  return ["config", "cache", "state", "data", "runtime", "tmp"]
    .flatMap((name) => {
      const files = readdirSync(join(setup.dir, name), { recursive: true, encoding: "utf8" });
      return files.map((file) => join(setup.dir, name, file));
    })
    .map((file) => `${file}\n${statSync(file).isFile() ? readFileSync(file, "latin1") : ""}`)
    .join("\n");
}

describe("what gets the hub into a server", () => {
  for (const who of ["issuer", "resource"] as const) {
    it(`is in nothing that the hub says, nor on disk, though the ${who} tells it`, () =>
      withServers(who, (origin) =>
        withTestFolder({ servers: {} }, async (setup) => {
          const manifest = [
            "[servers.a]",
            `url = "${origin}/mcp"`,
            `reconnect.policy = "none"`,
            `oauth = { grant = "clientCredentials", clientId = "client", clientSecret = "\${secret:client}" }`,
          ];
          writeFileSync(setup.config, manifest.join("\n"));
          const env = { ...setup.env, TOOLMUX_SECRET_CLIENT: SECRET, TOOLMUX_KEYCHAIN: "off" };
          const common = ["--config", setup.config, "--log-level", "debug"];
          let said = "";
          for (const args of [
            ["status"],
            ["status", "--json"],
            ["auth", "login", "a"],
            ["auth", "status"],
          ]) {
            const command = new RawClient(executable(), [...args, ...common], setup.dir, env);
            command.end();
            await command.waitForExit(EXIT_LIMIT);
            said += `\n== ${args.join(" ")}\n${command.lines.map(({ text }) => text).join("\n")}${command.unterminatedOutput}${command.stderr}`;
          }
          const client = new RawClient(executable(), common, setup.dir, env);
          await client.initializeAndList();
          said += (await client.call("a__x")).text;
          client.end();
          await client.waitForExit(EXIT_LIMIT);
          said += client.stderr;
          assert.match(said, who === "issuer" ? /invalid_client/ : /\[redacted\]/);
          assert.deepEqual(
            SPELLINGS.filter((spelling) => said.includes(spelling)),
            [],
            said,
          );
          const disk = readFolders(setup);
          assert.deepEqual(
            SPELLINGS.filter((spelling) => disk.includes(spelling)),
            [],
          );
        }),
      ));
  }
});
