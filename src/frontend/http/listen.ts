import { HubError } from "../../errors.ts";
import { Face, type FaceHub, type FaceSettings } from "./face.ts";
import { listen, MAX_RECEIVING } from "./listener.ts";

/** What connections get to give out what was answered, in ms, when the face closes. */
const FLUSH = 250;

export interface HttpSettings extends FaceSettings {
  /** 0: any that is free. */
  readonly port: number;
  /** What all messages that are being received may take of memory together, in bytes; at least `maxMessage`. */
  readonly maxReceiving?: number;
}

/** A hub's HTTP face, and where it is. */
export interface OpenFace {
  /** Where MCP is spoken. */
  readonly url: string;
  /** Lets what runs finish, if it does so soon, and ends the rest. */
  close(): Promise<void>;
}

/** Serves a hub over HTTP. @throws {HubError} usage if nothing can listen there */
export async function openFace(hub: FaceHub, settings: HttpSettings): Promise<OpenFace> {
  const face = new Face(hub, settings);
  const { hostname, port, maxMessage } = settings;
  // One message alone is never too much.
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
