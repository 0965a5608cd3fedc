import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";

export const REMOTE_TRANSPORTS = ["http", "sse"] as const;
export type RemoteTransport = (typeof REMOTE_TRANSPORTS)[number];

const EVERYTHING = fileURLToPath(
  new URL(
    "../../node_modules/@modelcontextprotocol/server-everything/dist/index.js",
    import.meta.url,
  ),
);

/** `@modelcontextprotocol/server-everything` over HTTP, in a process of its own. */
export interface RemoteProcess {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts the server; resolves when it listens. */
export async function startRemote(transport: RemoteTransport): Promise<RemoteProcess> {
  const port = await findPort();
  const mode = transport === "http" ? "streamableHttp" : "sse";
  const child = spawn("node", [EVERYTHING, mode], {
    env: { PATH: process.env["PATH"] ?? "", PORT: String(port) },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const { stderr } = child;
  let output = "";
  await new Promise<void>((resolve, reject) => {
    stderr.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (output.includes(String(port))) resolve();
    });
    child.once("exit", () => reject(new Error(`It has ended: ${output}`)));
  });
  return {
    url: `http://127.0.0.1:${port}/${transport === "http" ? "mcp" : "sse"}`,
    stop: async () => {
      child.kill("SIGKILL");
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}

/** A free TCP port on 127.0.0.1. */
export async function findPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}
