import { HubError } from "../base/errors.ts";
import { lastMember, type JsonMember, scanObject, readString, parseRange } from "../base/json.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import {
  readAllExtensionSettings,
  readCapabilities,
  type ExtensionSettings,
  capabilityClassOf,
} from "../protocol/capabilities.ts";
import { type LegacyVersion, negotiateVersion } from "../protocol/legacy.ts";
import { isSeverity, type LogSeverity } from "../protocol/log-level.ts";
import type { Request } from "../jsonrpc/message.ts";

/** What a client declares in `initialize`. */
export interface InitializeParams {
  /** The negotiated protocol version. */
  readonly version: LegacyVersion;
  /** The capability class: which requests of servers the client accepts. */
  readonly capabilityClass: string;
  readonly settings: ExtensionSettings;
  readonly info: Pick<ClientInfo, "name" | "version">;
}

/** In UTF-16 units; longer names and versions are truncated. */
const MAX_NAME_LENGTH = 200;

/**
 * Reads the params of `initialize`.
 * @throws {HubError} invalidParams without a protocolVersion
 */
export function readInitialize({ bytes, params }: Request): InitializeParams {
  const members = membersOf(bytes, params);
  const requested = readString(bytes, lastMember(members, "protocolVersion"));
  if (requested === undefined) {
    throw new HubError("invalidParams", "initialize needs a protocolVersion.");
  }
  const capabilitiesMember = lastMember(members, "capabilities");
  const info = membersOf(bytes, lastMember(members, "clientInfo"));
  // A member that is not a string is left out.
  const readName = (key: string): string | undefined =>
    readString(bytes, lastMember(info, key))?.slice(0, MAX_NAME_LENGTH);
  const declared = capabilitiesMember && parseRange(bytes, capabilitiesMember);
  const settings = readAllExtensionSettings(declared);
  return {
    version: negotiateVersion(requested),
    capabilityClass: capabilityClassOf(
      readCapabilities(declared),
      Object.keys(settings.extensions),
    ),
    settings,
    info: { name: readName("name"), version: readName("version") },
  };
}

/**
 * Reads the params of `logging/setLevel`.
 * @throws {HubError} invalidParams if the level is not one of the protocol's
 */
export function readSetLevel({ bytes, params }: Request): LogSeverity {
  const level = readString(bytes, lastMember(membersOf(bytes, params), "level"));
  if (isSeverity(level)) return level;
  throw new HubError("invalidParams", "logging/setLevel needs one of the protocol's levels.");
}

function membersOf(bytes: Uint8Array, range: { start: number } | undefined): readonly JsonMember[] {
  return (range && scanObject(bytes, range.start)?.items) ?? [];
}
