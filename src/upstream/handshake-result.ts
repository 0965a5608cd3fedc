import { type ConnectPhase, HubError } from "../base/errors.ts";
import { isJsonObject, parseRange } from "../base/json.ts";
import { saidByPeer, type TextRedactor } from "../base/quote.ts";
import type { Kind, ServerCapabilities } from "../catalog/listing.ts";
import { declaresSkills } from "../catalog/skills.ts";
import type { Response } from "../jsonrpc/message.ts";
import { NO_ERROR_MESSAGE } from "../jsonrpc/parse.ts";
import { readExtensionSettings } from "../protocol/capabilities.ts";
import { isLegacyVersion, type LegacyVersion, Method } from "../protocol/legacy.ts";
import { MetaKey, MODERN_VERSIONS, type ModernVersion } from "../protocol/modern.ts";
import { declaresTasks } from "../protocol/tasks.ts";
import type { PeerInfo } from "./status.ts";

/** Optional features of a server, besides tools, prompts and resources. */
export type ServerFeature = "completions" | "subscriptions" | "logging" | "tasks";

/** The content of a server's answer to `initialize` or `server/discover`. */
export interface ServerHandshake {
  readonly protocol:
    | { readonly era: "legacy"; readonly version: LegacyVersion }
    | { readonly era: "modern"; readonly version: ModernVersion };
  readonly peer: PeerInfo;
  /** The kinds of items that the server lists. */
  readonly kinds: ReadonlySet<Kind>;
  readonly hasResources: boolean;
  /** The kinds for which the server sends `list_changed`. */
  readonly announcedKinds: ReadonlySet<Kind>;
  readonly features: ReadonlySet<ServerFeature>;
  /** The part of the declared capabilities that is saved with the server's listing and shown to clients. */
  readonly declared: ServerCapabilities;
  readonly instructions: string | undefined;
  /** What is wrong with the form of the capabilities: texts that begin with a verb. */
  readonly capabilityFaults: readonly string[];
}

/** Maximum length of an unknown protocol version in error messages, in UTF-16 units. */
export const MAX_VERSION_LENGTH = 100;

/**
 * Reads the result of `initialize`.
 * @returns the handshake; or a string if the protocol version is unknown: that version, as JSON
 */
export function readHandshake(result: unknown): ServerHandshake | string {
  const { protocolVersion, capabilities, serverInfo, instructions } = membersOf(result);
  if (!isLegacyVersion(protocolVersion)) {
    return JSON.stringify(protocolVersion)?.slice(0, MAX_VERSION_LENGTH) ?? "none";
  }
  const protocol = { era: "legacy", version: protocolVersion } as const;
  return makeHandshake(protocol, serverInfo, capabilities, instructions);
}

export type DiscoveryResult =
  | { readonly kind: "modern"; readonly handshake: ServerHandshake }
  /** There is no modern version that both sides support. `versions`: the versions that the server supports. */
  | { readonly kind: "unsupported"; readonly versions: readonly unknown[] };

/**
 * Reads the result of `server/discover`.
 * @returns undefined if a modern server would not send such a result
 */
export function readDiscovery(result: unknown): DiscoveryResult | undefined {
  const { supportedVersions, capabilities, instructions, _meta } = membersOf(result);
  if (!Array.isArray(supportedVersions) || !isObject(capabilities)) return undefined;
  const version = findMutualVersion(supportedVersions);
  if (version === undefined) return { kind: "unsupported", versions: supportedVersions };
  const info = membersOf(_meta)[MetaKey.server];
  const protocol = { era: "modern", version } as const;
  return { kind: "modern", handshake: makeHandshake(protocol, info, capabilities, instructions) };
}

/** Returns the newest modern version that both sides support; undefined if there is none. */
export function findMutualVersion(versions: readonly unknown[]): ModernVersion | undefined {
  return MODERN_VERSIONS.find((known) => versions.includes(known));
}

function makeHandshake(
  protocol: ServerHandshake["protocol"],
  serverInfo: unknown,
  capabilities: unknown,
  instructions: unknown,
): ServerHandshake {
  const { name, version } = membersOf(serverInfo);
  const capabilityMembers = membersOf(capabilities);
  const listedKinds = new Set<Kind>();
  const announcedKinds = new Set<Kind>();
  const features = new Set<ServerFeature>();
  for (const [key, kinds] of KINDS_BY_CAPABILITY) {
    if (!isObject(capabilityMembers[key])) continue;
    const isAnnounced = membersOf(capabilityMembers[key])["listChanged"] === true;
    for (const kind of kinds) {
      listedKinds.add(kind);
      if (isAnnounced) announcedKinds.add(kind);
    }
  }
  const extensions = readExtensionSettings(capabilities, "extensions");
  if (declaresSkills(extensions)) {
    listedKinds.add("skills");
    if (announcedKinds.has("resources")) announcedKinds.add("skills");
  }
  if (isObject(capabilityMembers["completions"])) features.add("completions");
  if (isObject(capabilityMembers["logging"])) features.add("logging");
  if (membersOf(capabilityMembers["resources"])["subscribe"] === true)
    features.add("subscriptions");
  if (protocol.era === "modern" && declaresTasks(capabilityMembers)) features.add("tasks");
  const canSubscribe = features.has("subscriptions");
  const { call } = membersOf(membersOf(membersOf(capabilityMembers["tasks"])["requests"])["tools"]);
  const supportsTasks = protocol.era === "modern" ? features.has("tasks") : isObject(call);
  // A server that a plugin implements may support tasks of both eras: the hub itself can turn calls of its tools into
  // modern tasks.
  const hasBoth = protocol.era === "legacy" && supportsTasks && declaresTasks(capabilityMembers);
  return {
    declared: {
      canSubscribe,
      ...(supportsTasks && { tasks: hasBoth ? "both" : protocol.era }),
      extensions,
      experimental: readExtensionSettings(capabilities, "experimental"),
    },
    protocol,
    peer: {
      era: protocol.era,
      protocolVersion: protocol.version,
      name: typeof name === "string" ? name : undefined,
      version: typeof version === "string" ? version : undefined,
    },
    kinds: listedKinds,
    hasResources: listedKinds.has("resources"),
    announcedKinds,
    features,
    instructions: typeof instructions === "string" ? instructions : undefined,
    capabilityFaults: findCapabilityFaults(capabilities),
  };
}

/** Finds capabilities that are not objects, as the schema requires. A capability that is null is absent. */
function findCapabilityFaults(capabilities: unknown): readonly string[] {
  if (capabilities === undefined || capabilities === null)
    return [
      `declares no capabilities (${capabilities === null ? "they are null" : "the member is missing"})`,
    ];
  if (!isJsonObject(capabilities))
    return [`declares its capabilities as ${nameShape(capabilities)}, not as an object`];
  return OBJECT_CAPABILITIES.flatMap((key) => {
    const value = capabilities[key];
    return value === undefined || isObject(value) || value === null
      ? []
      : [
          `declares its capability "${key}" as ${nameShape(value)}, not as an object, so the capability is not used`,
        ];
  });
}

const OBJECT_CAPABILITIES = [
  "tools",
  "prompts",
  "resources",
  "completions",
  "logging",
  "tasks",
  "extensions",
  "experimental",
] as const;

function nameShape(value: unknown): string {
  if (Array.isArray(value)) return "an array";
  return typeof value === "boolean" ? String(value) : `a ${typeof value}`;
}

/** The capabilities that have lists, each with the kinds of items in its lists. */
const KINDS_BY_CAPABILITY: readonly (readonly [string, readonly Kind[]])[] = [
  ["tools", ["tools"]],
  ["prompts", ["prompts"]],
  ["resources", ["resources", "resourceTemplates"]],
];

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

/** Returns the members of an object; none if the value is not an object. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

/**
 * Parses the result of one of the hub's own requests. Recognizes a program that echoes its input, such as `cat`: it
 * sends the hub's `initialize` request back, and then the hub's error response to that request.
 * @throws {HubError} handshakeFailed, hubLoop
 */
export function parseOwnResult(
  server: string,
  response: Response,
  step: ConnectPhase,
  redactor?: TextRedactor,
): unknown {
  let value: unknown;
  try {
    value = parseRange(response.bytes, response.body);
  } catch {
    throw unexpectedAnswerError(server, step, "sent an answer that is malformed");
  }
  if (response.outcome === "result") return value;
  const { message, data } = membersOf(value);
  if (message === unknownMethodText(Method.initialize)) {
    throw unexpectedAnswerError(server, step, "echoes what it is sent: it is not an MCP server");
  }
  const hasText = typeof message === "string" && message !== NO_ERROR_MESSAGE;
  const answerText = `an error${saidByPeer(hasText ? message : undefined, redactor)}`;
  // The server is a toolmux, too, and has detected a loop of hubs: another attempt would fail in the same way.
  if (membersOf(data)["code"] === "hubLoop") {
    throw new HubError("hubLoop", `Server "${server}" answered with ${answerText}`, {
      server,
      step,
    });
  }
  throw unexpectedAnswerError(server, step, `answered with ${answerText}`);
}

export function unexpectedAnswerError(
  server: string,
  step: ConnectPhase,
  predicate: string,
): HubError {
  const text = `Server "${server}" ${predicate.replace(/(?<!\.)\.+$/, "")}.`;
  return new HubError("handshakeFailed", text, { server, step });
}

/** The error message with which the hub rejects a server's request that has an unknown method. */
export function unknownMethodText(method: string): string {
  return `toolmux cannot answer "${method}".`;
}
