import { HubError } from "../../base/errors.ts";
import { Face, type FaceHub, type FaceSettings } from "./server.ts";
import { listen, MAX_RECEIVING } from "./http1/server.ts";

/** How long connections may take to send the last answers when the server closes, in ms. */
const FLUSH = 250;

export interface HttpSettings extends FaceSettings {
  /** 0: any free port. */
  readonly port: number;
  /** Memory for all messages being received together, in bytes; at least `maxMessage`. */
  readonly maxReceiving?: number;
}

/** A hub's running HTTP server. */
export interface OpenFace {
  /** The URL of the MCP endpoint. */
  readonly url: string;
  /** Waits a short time for requests in flight, and ends the rest. */
  close(): Promise<void>;
}

/**
 * Serves a hub over HTTP.
 * @throws {HubError} usage if the address cannot be listened on
 */
export async function openFace(hub: FaceHub, settings: HttpSettings): Promise<OpenFace> {
  const face = new Face(hub, settings);
  const { hostname, port, maxMessage } = settings;
  // A single message of permitted length is never refused.
  const maxReceiving = Math.max(settings.maxReceiving ?? MAX_RECEIVING, maxMessage);
  const place = { hostname: hostname.replace(/^\[|\]$/g, ""), port, maxReceiving };
  const listener = await listen({ ...place, answer: face.answer }).catch((error: unknown) => {
    void face.close();
    const why = error instanceof Error ? error.message : String(error);
    throw new HubError("usage", `Nothing can listen on ${hostname}:${port}: ${why}`);
  });
  return {
    url: `http://${hostname}:${listener.port}/mcp`,
    async close() {
      await face.close();
      await listener.close(FLUSH);
    },
  };
}
