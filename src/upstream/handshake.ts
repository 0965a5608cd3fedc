import type { Kind } from "../catalog/item.ts";
import { isLegacyVersion, type LegacyVersion } from "../protocol/legacy.ts";
import type { PeerInfo } from "./status.ts";

/** What a server can do beside listing and doing what it lists. */
export type Feature = "completions" | "subscriptions" | "logging";

/** What a server says of itself when it is met. */
export interface Handshake {
  readonly version: LegacyVersion;
  readonly peer: PeerInfo;
  /** What it has lists of. */
  readonly offers: ReadonlySet<Kind>;
  /** The same of resources, at hand. */
  readonly hasResources: boolean;
  readonly features: ReadonlySet<Feature>;
  /** What it wants models to know. */
  readonly instructions: string | undefined;
}

/** So much is told of a version that is none, in UTF-16 units. */
const LONGEST_VERSION = 100;

/** Reads the result of `initialize` (lifecycle, initialization). @returns the version alone, as text, if it is none that is known. */
export function readHandshake(result: unknown): Handshake | string {
  const { protocolVersion, capabilities, serverInfo, instructions } = membersOf(result);
  if (!isLegacyVersion(protocolVersion)) {
    return JSON.stringify(protocolVersion)?.slice(0, LONGEST_VERSION) ?? "none";
  }
  const { name, version } = membersOf(serverInfo);
  const offered = membersOf(capabilities);
  const offers = new Set<Kind>();
  const features = new Set<Feature>();
  if (isObject(offered["tools"])) offers.add("tools");
  if (isObject(offered["prompts"])) offers.add("prompts");
  if (isObject(offered["resources"])) offers.add("resources").add("resourceTemplates");
  if (isObject(offered["completions"])) features.add("completions");
  if (isObject(offered["logging"])) features.add("logging");
  if (membersOf(offered["resources"])["subscribe"] === true) features.add("subscriptions");
  return {
    version: protocolVersion,
    peer: {
      era: "legacy",
      protocolVersion,
      name: typeof name === "string" ? name : undefined,
      version: typeof version === "string" ? version : undefined,
    },
    offers,
    hasResources: offers.has("resources"),
    features,
    instructions: typeof instructions === "string" ? instructions : undefined,
  };
}

function isObject(value: unknown): boolean {
  return typeof value === "object";
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
