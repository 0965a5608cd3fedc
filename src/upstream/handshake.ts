import type { Kind } from "../catalog/item.ts";
import type { Declared } from "../catalog/offer.ts";
import { declaresSkills } from "../catalog/skills.ts";
import { readSettings } from "../protocol/capabilities.ts";
import { declaresTasks } from "../protocol/extension.ts";
import { isLegacyVersion, type LegacyVersion } from "../protocol/legacy.ts";
import { MetaKey, MODERN_VERSIONS, type ModernVersion } from "../protocol/modern.ts";
import type { PeerInfo } from "./status.ts";

/** What a server can do beside listing and doing what it lists. */
export type Feature = "completions" | "subscriptions" | "logging" | "tasks";

/** What a server says of itself when it is met. */
export interface Handshake {
  /** The revision that is spoken from then on. */
  readonly spoken:
    | { readonly era: "legacy"; readonly version: LegacyVersion }
    | { readonly era: "modern"; readonly version: ModernVersion };
  readonly peer: PeerInfo;
  /** What it has lists of. */
  readonly offers: ReadonlySet<Kind>;
  /** The same of resources, at hand. */
  readonly hasResources: boolean;
  /** Of which kinds it tells when the list is another. */
  readonly announces: ReadonlySet<Kind>;
  readonly features: ReadonlySet<Feature>;
  /** The same beside its lists, as it is kept and told. */
  readonly declared: Declared;
  /** What it wants models to know. */
  readonly instructions: string | undefined;
}

/** So much is told of a version that is none, in UTF-16 units. */
export const LONGEST_VERSION = 100;

/** Reads the result of `initialize` (lifecycle, initialization). @returns the version alone, as text, if it is none that is known. */
export function readHandshake(result: unknown): Handshake | string {
  const { protocolVersion, capabilities, serverInfo, instructions } = membersOf(result);
  if (!isLegacyVersion(protocolVersion)) {
    return JSON.stringify(protocolVersion)?.slice(0, LONGEST_VERSION) ?? "none";
  }
  const spoken = { era: "legacy", version: protocolVersion } as const;
  return makeHandshake(spoken, serverInfo, capabilities, instructions);
}

/** What came back on `server/discover`, where it is none of what legacy servers say of a method that they do not know. */
export type Discovery =
  | { readonly kind: "modern"; readonly handshake: Handshake }
  /** It speaks no revision of the modern era that the hub knows; those that it does speak. */
  | { readonly kind: "stranger"; readonly versions: readonly unknown[] };

/** Reads the result of `server/discover`. @returns undefined if it is none. */
export function readDiscovery(result: unknown): Discovery | undefined {
  const { supportedVersions, capabilities, instructions, _meta } = membersOf(result);
  if (!Array.isArray(supportedVersions) || !isTable(capabilities)) return undefined;
  const version = findMutual(supportedVersions);
  if (version === undefined) return { kind: "stranger", versions: supportedVersions };
  const info = membersOf(_meta)[MetaKey.server];
  const spoken = { era: "modern", version } as const;
  return { kind: "modern", handshake: makeHandshake(spoken, info, capabilities, instructions) };
}

/** The newest revision of the modern era that both sides know. */
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

/** What each capability is a list of. */
const OFFERS: readonly (readonly [string, readonly Kind[]])[] = [
  ["tools", ["tools"]],
  ["prompts", ["prompts"]],
  ["resources", ["resources", "resourceTemplates"]],
];

function isTable(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

/** The members of an object; none of anything else. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
