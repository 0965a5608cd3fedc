import { textOf, utf8 } from "../base/bytes.ts";
import { isToken } from "./subjects.ts";

/** A server that a hub exports. */
export interface ExportedServer {
  readonly name: string;
  /**
   * A digest of what the server lists. Replicas of a server with equal digests offer the same; undefined: the server is
   * not listed yet.
   */
  readonly digest: string | undefined;
}

/** What a hub says of itself: when it starts, when something changes, when it ends, and to whoever asks. */
export interface Announcement {
  readonly hub: string;
  /** Random for each start of a hub: another instance of the same name knows nothing of earlier calls. */
  readonly instance: string;
  /** The version of toolmux. */
  readonly version: string;
  readonly servers: readonly ExportedServer[];
}

/** Limits of what is believed of a peer's announcement: number of servers, and length of each text in UTF-16 units. */
const LIMITS = { servers: 1000, text: 256, bytes: 512 * 1024 };

export function encodeAnnouncement(announcement: Announcement): Uint8Array {
  return utf8(JSON.stringify(announcement));
}

/** Reads an announcement. @returns undefined if it is none: then the peer is no hub that can be used */
export function readAnnouncement(bytes: Uint8Array): Announcement | undefined {
  if (bytes.length > LIMITS.bytes) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(textOf(bytes));
  } catch {
    return undefined;
  }
  if (!isRecord(value)) return undefined;
  const { hub, instance, version, servers } = value;
  if (!isText(hub) || !isText(instance) || !isText(version) || !Array.isArray(servers)) return;
  if (!isToken(instance) || servers.length > LIMITS.servers) return undefined;
  const names = new Set<string>();
  const exported = servers.flatMap((server): readonly ExportedServer[] => {
    const { name, digest } = isRecord(server) ? server : {};
    if (!isText(name) || names.has(name)) return [];
    names.add(name);
    return [{ name, digest: isText(digest) ? digest : undefined }];
  });
  return { hub, instance, version, servers: exported };
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= LIMITS.text;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
