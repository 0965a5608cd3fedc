import type { Kind } from "../catalog/listing.ts";
import type { ServerCapabilities } from "../catalog/offer.ts";
import { declaresSkills } from "../catalog/skills.ts";
import { readSettings } from "../protocol/capabilities.ts";
import { declaresTasks } from "../protocol/extension.ts";
import { isLegacyVersion, type LegacyVersion } from "../protocol/legacy.ts";
import { MetaKey, MODERN_VERSIONS, type ModernVersion } from "../protocol/modern.ts";
import type { PeerInfo } from "./status.ts";

/** Optional capabilities of a server, beside its lists. */
export type Feature = "completions" | "subscriptions" | "logging" | "tasks";

/** What `initialize` or `server/discover` says of a server. */
export interface Handshake {
  /** The negotiated protocol version. */
  readonly spoken:
    | { readonly era: "legacy"; readonly version: LegacyVersion }
    | { readonly era: "modern"; readonly version: ModernVersion };
  readonly peer: PeerInfo;
  /** The kinds of items that it lists. */
  readonly offers: ReadonlySet<Kind>;
  /** Whether `kinds` has "resources". */
  readonly hasResources: boolean;
  /** The kinds for which it sends `list_changed`. */
  readonly announces: ReadonlySet<Kind>;
  readonly features: ReadonlySet<Feature>;
  /** Capabilities beside its lists, in the form in which they are saved and shown to clients. */
  readonly declared: ServerCapabilities;
  /** The `instructions` for models. */
  readonly instructions: string | undefined;
}

/** To how many UTF-16 units an unknown version is cut in messages. */
export const LONGEST_VERSION = 100;

/** Reads the result of `initialize` (lifecycle, initialization). @returns the version as JSON text if it is unknown */
export function readHandshake(result: unknown): Handshake | string {
  const { protocolVersion, capabilities, serverInfo, instructions } = membersOf(result);
  if (!isLegacyVersion(protocolVersion)) {
    return JSON.stringify(protocolVersion)?.slice(0, LONGEST_VERSION) ?? "none";
  }
  const spoken = { era: "legacy", version: protocolVersion } as const;
  return makeHandshake(spoken, serverInfo, capabilities, instructions);
}

/** The answer to `server/discover` of a modern server. */
export type Discovery =
  | { readonly kind: "modern"; readonly handshake: Handshake }
  /** It supports no modern version that the hub knows; `versions`: what it does support. */
  | { readonly kind: "stranger"; readonly versions: readonly unknown[] };

/** Reads the result of `server/discover`. @returns undefined if it is not a modern server's */
export function readDiscovery(result: unknown): Discovery | undefined {
  const { supportedVersions, capabilities, instructions, _meta } = membersOf(result);
  if (!Array.isArray(supportedVersions) || !isTable(capabilities)) return undefined;
  const version = findMutual(supportedVersions);
  if (version === undefined) return { kind: "stranger", versions: supportedVersions };
  const info = membersOf(_meta)[MetaKey.server];
  const spoken = { era: "modern", version } as const;
  return { kind: "modern", handshake: makeHandshake(spoken, info, capabilities, instructions) };
}

/** The newest modern version that both sides know; undefined if there is none. */
export function findMutual(versions: readonly unknown[]): ModernVersion | undefined {
  return MODERN_VERSIONS.find((known) => versions.includes(known));
}

function makeHandshake(
  spoken: Handshake["spoken"],
  info: unknown,
  capabilities: unknown,
  instructions: unknown,
): Handshake {
  const { name, version } = membersOf(info);
  const offered = membersOf(capabilities);
  const offers = new Set<Kind>();
  const announces = new Set<Kind>();
  const features = new Set<Feature>();
  for (const [key, kinds] of OFFERS) {
    if (typeof offered[key] !== "object") continue;
    const isAnnounced = membersOf(offered[key])["listChanged"] === true;
    for (const kind of kinds) {
      offers.add(kind);
      if (isAnnounced) announces.add(kind);
    }
  }
  const extensions = readSettings(capabilities, "extensions");
  if (declaresSkills(extensions)) {
    offers.add("skills");
    if (announces.has("resources")) announces.add("skills");
  }
  if (typeof offered["completions"] === "object") features.add("completions");
  if (typeof offered["logging"] === "object") features.add("logging");
  if (membersOf(offered["resources"])["subscribe"] === true) features.add("subscriptions");
  if (spoken.era === "modern" && declaresTasks(offered)) features.add("tasks");
  const canSubscribe = features.has("subscriptions");
  const { call } = membersOf(membersOf(membersOf(offered["tasks"])["requests"])["tools"]);
  const makesTasks = spoken.era === "modern" ? features.has("tasks") : isTable(call);
  return {
    declared: {
      canSubscribe,
      ...(makesTasks && { tasks: spoken.era }),
      extensions,
      experimental: readSettings(capabilities, "experimental"),
    },
    spoken,
    peer: {
      era: spoken.era,
      protocolVersion: spoken.version,
      name: typeof name === "string" ? name : undefined,
      version: typeof version === "string" ? version : undefined,
    },
    offers,
    hasResources: offers.has("resources"),
    announces,
    features,
    instructions: typeof instructions === "string" ? instructions : undefined,
  };
}

/** The kinds of items that each capability stands for. */
const OFFERS: readonly (readonly [string, readonly Kind[]])[] = [
  ["tools", ["tools"]],
  ["prompts", ["prompts"]],
  ["resources", ["resources", "resourceTemplates"]],
];

function isTable(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

/** The members of an object; empty for anything else. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
