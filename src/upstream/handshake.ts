import { isLegacyVersion, type LegacyVersion } from "../protocol/legacy.ts";
import type { Kind } from "./pages.ts";
import type { PeerInfo } from "./status.ts";

/** What a server says of itself when it is met. */
export interface Handshake {
  readonly version: LegacyVersion;
  readonly peer: PeerInfo;
  /** What it has lists of. */
  readonly offers: ReadonlySet<Kind>;
}

const KINDS: readonly Kind[] = ["tools", "prompts", "resources"];

/** Reads the result of `initialize` (lifecycle, initialization). @returns the version alone, as text, if it is none that is known. */
export function readHandshake(result: unknown): Handshake | string {
  const { protocolVersion, capabilities, serverInfo } = membersOf(result);
  if (!isLegacyVersion(protocolVersion)) return JSON.stringify(protocolVersion) ?? "none";
  const { name, version } = membersOf(serverInfo);
  const offered = membersOf(capabilities);
  return {
    version: protocolVersion,
    peer: {
      era: "legacy",
      protocolVersion,
      name: typeof name === "string" ? name : undefined,
      version: typeof version === "string" ? version : undefined,
    },
    offers: new Set(KINDS.filter((kind) => typeof offered[kind] === "object")),
  };
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
