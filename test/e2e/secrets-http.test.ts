import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe } from "node:test";
import { runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";

const CANARIES = {
  bearer: "canary-of-the-store",
  password: "canary-password",
  header: "canary-of-the-environment",
  query: "canary/in the+URL",
  key: "canary-of-a-key-file",
} as const;

type Mode = "error page" | "refusal" | "redirect" | "tools";

/** A server over HTTP that tells whoever asks all that it was given: as it came, decoded, and in other spellings. */
async function withTelltale(mode: Mode, use: (port: number) => Promise<void>): Promise<void> {
  const server = createServer((request, response) => void answer(mode, request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use((server.address() as AddressInfo).port);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function answer(mode: Mode, request: IncomingMessage, response: ServerResponse) {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const { authorization = "" } = request.headers;
  const [, credentials = ""] = authorization.split(" ");
  const reported = [
    request.url,
    decodeURIComponent(request.url ?? ""),
    JSON.stringify(request.headers),
    credentials,
    Buffer.from(credentials, "base64").toString("latin1"),
    Buffer.from(`user:${credentials}`).toString("base64"),
  ].join(" ");
  if (mode === "error page") {
    response.writeHead(400, { "content-type": "text/plain" }).end(reported);
    return;
  }
  if (mode === "redirect") {
    response
      .writeHead(307, { location: `http://localhost:1/?told=${encodeURIComponent(reported)}` })
      .end();
    return;
  }
  const text = Buffer.concat(chunks).toString();
  if (text === "") {
    response.writeHead(405).end();
    return;
  }
  const { id, method } = JSON.parse(text) as { id?: number; method: string };
  if (id === undefined) {
    response.writeHead(202).end();
    return;
  }
  const initialize = {
    protocolVersion: "2025-11-25",
    capabilities: { tools: {}, logging: {} },
    serverInfo: { name: "telltale", version: "1" },
  };
  const tool = {
    name: "tell",
    description: `${reported} ${Date.now()}`,
    inputSchema: { type: "object" },
  };
  const result = { initialize, "tools/list": { tools: [tool] } }[method];
  const isRefused = mode === "refusal" || result === undefined;
  const log = {
    jsonrpc: "2.0",
    method: "notifications/message",
    params: { level: "error", data: reported },
  };
  const reply = isRefused ? { error: { code: -32000, message: reported } } : { result };
  response.writeHead(200, { "content-type": "text/event-stream" });
  if (method !== "initialize") response.write(`data: ${JSON.stringify(log)}\n\n`);
  response.end(`data: ${JSON.stringify({ jsonrpc: "2.0", id, ...reply })}\n\n`);
}

function findCanaries(text: string): string[] {
  return Object.values(CANARIES)
    .flatMap((value) => [
      value,
      encodeURIComponent(value),
      Buffer.from(value).toString("base64").slice(0, -4),
      Buffer.from(`user:${value}`).toString("base64").slice(8, -4),
    ])
    .filter((spelling) => text.includes(spelling));
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

async function run(setup: TestFolder, args: readonly string[], env: Record<string, string>) {
  const { stdout, stderr } = await runCommand(setup, args, { env });
  return stdout + stderr;
}

const ENV = {
  TOOLMUX_SECRET_BEARER: CANARIES.bearer,
  CANARY_HEADER: CANARIES.header,
  QUERY: encodeURIComponent(CANARIES.query),
};
const BASIC = Buffer.from(`user:${CANARIES.password}`).toString("base64");

describe("what a server over HTTP is given that must not be shown", () => {
  for (const mode of ["error page", "refusal", "redirect", "tools"] as const) {
    it(`is in nothing that the hub says of it, nor on disk (${mode})`, () =>
      withTelltale(mode, (port) =>
        withTestFolder({ servers: {} }, async (setup) => {
          const url = `http://127.0.0.1:${port}/mcp?key=\${env:QUERY}`;
          const manifest = [
            [
              "a",
              `headers = { Authorization = "Bearer \${secret:bearer}", X-Other = "\${env:CANARY_HEADER}" }`,
            ],
            ["b", `headers = { Authorization = "Basic ${BASIC}" }`],
            ["c", `keyFile = "key"`],
          ].map(
            ([name, line]) =>
              `[servers.${name}]\nurl = "${url}"\nauth = "none"\nreconnect.policy = "none"\n${line}\n`,
          );
          writeFileSync(setup.config, manifest.join("\n"));
          writeFileSync(join(setup.dir, "key"), `${CANARIES.key}\n`);
          const common = ["--config", setup.config, "--log-level", "debug"];
          let said = "";
          const lines = ["status", "status --json", "list servers"];
          // Asks no server, so that their modes make no difference.
          if (mode === "error page") lines.push("check", "check --json");
          for (const line of lines) said += await run(setup, [...line.split(" "), ...common], ENV);
          // The second one finds that the tools are described otherwise, if there are any.
          for (const _ of mode === "tools" ? [1, 2] : [1]) {
            const client = new RawClient(executable(), common, setup.dir, { ...setup.env, ...ENV });
            await client.initializeAndList();
            if (mode !== "tools") {
              for (const name of ["a", "b", "c"]) said += (await client.call(`${name}__tell`)).text;
            }
            client.end();
            await client.waitForExit(EXIT_LIMIT);
            said += client.stderr;
          }
          assert.match(said, /\[redacted\]/);
          assert.deepEqual(findCanaries(said), []);
          // What a server lists is its own word, and kept.
          if (mode !== "tools") assert.deepEqual(findCanaries(readFolders(setup)), []);
        }),
      ));
  }
});
