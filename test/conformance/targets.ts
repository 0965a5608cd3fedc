import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import type { Era } from "../../src/protocol/modern.ts";
import { listen } from "../../src/frontend/http/listener.ts";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, executable, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { createServer as createEverything } from "./everything.ts";
import { StdioAdapter } from "./stdio-adapter.ts";
import { EverythingHttpServer } from "./everything-http.ts";

/** Time limit until the hub serves, in ms. */
const START_LIMIT = 10_000;

/** What a suite tests. */
export type ConformanceTarget = <Value>(play: (url: string) => Promise<Value>) => Promise<Value>;

/** The everything server without a hub, as a baseline: what fails here is not a fault of the hub. */
export const withServerDirect: ConformanceTarget = (run) =>
  serveDuring(new EverythingHttpServer().fetch, run);

/** The executable over HTTP with the everything server as its only server, without prefix, in one era. */
export const withHttpHub =
  (era: Era, isolation: "shared" | "perClient"): ConformanceTarget =>
  (run) =>
    withEverythingHub(era, isolation, async (testFolder) => {
      const args = ["serve", "--http", "127.0.0.1:0", "--config", testFolder.config];
      const hub = new RawClient(executable(), args, testFolder.dir, testFolder.env);
      try {
        const findUrl = () => /http:\/\/\S+/.exec(hub.stderr)?.[0];
        return await run(await hub.until(START_LIMIT, "the hub's address", findUrl));
      } finally {
        hub.signal("SIGTERM");
        await hub.waitForExit(EXIT_LIMIT);
      }
    });

/** The executable over stdio behind the HTTP adapter, with the same server. */
export const withStdioHub =
  (era: Era): ConformanceTarget =>
  (run) =>
    withEverythingHub(era, "shared", async (testFolder) => {
      const args = ["serve", "--config", testFolder.config];
      const command = {
        command: executable(),
        args,
        cwd: testFolder.dir,
        env: { ...testFolder.env },
      };
      const adapter = new StdioAdapter({ ...command, stderr: "inherit" });
      try {
        return await serveDuring(adapter.fetch, run);
      } finally {
        await adapter.close();
      }
    });

/** Serves a fetch handler on 127.0.0.1 and runs `play` with its URL. */
async function serveDuring<Value>(
  fetch: (request: Request) => Promise<Response>,
  run: (url: string) => Promise<Value>,
): Promise<Value> {
  const hostname = "127.0.0.1";
  const listener = await listen({ address: { hostname, port: 0 }, fetch });
  try {
    return await run(`http://${hostname}:${listener.port}/mcp`);
  } finally {
    await listener.close(0);
  }
}

const PROGRAM = fileURLToPath(new URL("everything-stdio.ts", import.meta.url));

/** A folder with a manifest whose only server is the everything server, over stdio and in one era. */
async function withEverythingHub<Value>(
  era: Era,
  isolation: "shared" | "perClient",
  run: (testFolder: TestFolder) => Promise<Value>,
): Promise<Value> {
  const open = new Set<Socket>();
  const listener = createServer((socket) => {
    open.add(socket);
    socket.on("error", () => {}).on("close", () => open.delete(socket));
    void serveOver(socket, era);
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  const args = [PROGRAM, String(port)];
  const everything = { command: process.execPath, args, prefix: "", era, isolation };
  try {
    return await withTestFolder({ servers: { everything } }, run);
  } finally {
    listener.close();
    for (const socket of open) socket.destroy();
  }
}

async function serveOver(socket: Socket, era: Era): Promise<void> {
  const transport = new StdioServerTransport(socket, socket);
  if (era === "legacy") await createEverything({ era }).connect(transport);
  else serveStdio(createEverything, { legacy: "reject", transport });
}
