import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Era } from "../../src/protocol/modern.ts";
import { listenHttp } from "../../src/frontend/http/http1/server.ts";
import { answerWith } from "../fixtures/web-adapter.ts";
import { RawClient } from "../harness/raw-client.ts";
import { END, executable, withStage } from "../harness/hub.ts";
import { StdioAdapter } from "./stdio-adapter.ts";
import { Everything } from "./everything-http.ts";

/** Time limit until the hub serves, in ms. */
const START = 10_000;
/** Message limit in bytes, above anything that scenarios send. */
const MAX_BODY = 1024 * 1024;

/** What a suite tests. */
export type Subject = <Value>(play: (url: string) => Promise<Value>) => Promise<Value>;

/** The everything server without a hub, as a baseline: what fails here is not a fault of the hub. */
export const withServer: Subject = (play) => listenFor(new Everything().fetch, play);

/** The executable over HTTP with the everything server as its only server, without prefix, in one era. */
export const withHub =
  (era: Era, isolation: "shared" | "perClient"): Subject =>
  (play) =>
    withStage({ servers: { everything: everything(era, isolation) } }, async (stage) => {
      const args = ["serve", "--http", "127.0.0.1:0", "--config", stage.config];
      const hub = new RawClient(executable(), args, stage.dir, stage.env);
      try {
        const look = () => /http:\/\/\S+/.exec(hub.stderr)?.[0];
        return await play(await hub.until(START, "the hub's address", look));
      } finally {
        hub.signal("SIGTERM");
        await hub.ended(END);
      }
    });

/** The executable over stdio behind the HTTP adapter, with the same server. */
export const withPipedHub =
  (era: Era): Subject =>
  (play) =>
    withStage({ servers: { everything: everything(era, "shared") } }, async (stage) => {
      const args = ["serve", "--config", stage.config];
      const command = { command: executable(), args, cwd: stage.dir, env: { ...stage.env } };
      const adapter = new StdioAdapter({ ...command, stderr: "inherit" });
      try {
        return await listenFor(adapter.fetch, play);
      } finally {
        await adapter.close();
      }
    });

/** Serves a fetch handler on 127.0.0.1 and runs `play` with its URL. */
async function listenFor<Value>(
  fetch: (request: Request) => Promise<Response>,
  play: (url: string) => Promise<Value>,
): Promise<Value> {
  const hostname = "127.0.0.1";
  const answer = answerWith(fetch, MAX_BODY);
  const listener = await listenHttp({ hostname, port: 0, handle: answer });
  try {
    return await play(`http://${hostname}:${listener.port}/mcp`);
  } finally {
    await listener.close(0);
  }
}

function everything(era: Era, isolation: string) {
  const args = [fileURLToPath(new URL("everything-stdio.ts", import.meta.url)), era];
  return { command: process.execPath, args, prefix: "", era, isolation };
}
