import { HubError } from "../../base/errors.ts";
import { HttpServer, type ServedHub, type HttpServerSettings } from "./server.ts";
import { listenHttp, MAX_RECEIVING } from "./http1/server.ts";

/** How long connections may take to send the last answers when the server closes, in ms. */
const FLUSH_TIME = 250;

export interface HttpSettings extends HttpServerSettings {
  /** 0: any free port. */
  readonly port: number;
  /** Memory for all messages being received together, in bytes; at least `maxMessage`. */
  readonly maxReceiving?: number;
}

/** A hub's running HTTP server. */
export interface RunningHttpServer {
  /** The URL of the MCP endpoint. */
  readonly url: string;
  /** Waits a short time for requests in flight, and ends the rest. */
  close(): Promise<void>;
}

/**
 * Serves a hub over HTTP.
 * @throws {HubError} usage if the address cannot be listened on
 */
export async function startHttpServer(
  hub: ServedHub,
  settings: HttpSettings,
): Promise<RunningHttpServer> {
  const server = new HttpServer(hub, settings);
  const { hostname, port, maxMessage } = settings;
  // A single message of permitted length is never refused.
  const maxReceiving = Math.max(settings.maxReceiving ?? MAX_RECEIVING, maxMessage);
  const address = { hostname: hostname.replace(/^\[|\]$/g, ""), port, maxReceiving };
  const listener = await listenHttp({ ...address, handle: server.handle }).catch(
    (error: unknown) => {
      void server.close();
      const reason = error instanceof Error ? error.message : String(error);
      throw new HubError("usage", `Nothing can listen on ${hostname}:${port}: ${reason}`);
    },
  );
  return {
    url: `http://${hostname}:${listener.port}/mcp`,
    async close() {
      await server.close();
      await listener.close(FLUSH_TIME);
    },
  };
}
