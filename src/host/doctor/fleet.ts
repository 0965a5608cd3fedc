import { formatSize } from "../../base/format.ts";
import type { FleetDocument } from "../../control/schemas.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { HostContext } from "../context.ts";
import type { Finding } from "./findings.ts";

/** The least `max_payload` that is not reported, in bytes: the default of NATS is a little more. */
const MIN_PAYLOAD = 1_000_000;

/** What a fleet is like, as far as it can have something wrong. */
export type FleetState = Pick<
  FleetDocument,
  "isConfigured" | "connected" | "error" | "denied" | "maxPayload" | "name" | "wanted"
>;

/** Finds what is wrong with a hub as a member of its fleet. @param subject the hub, or the manifest */
export function findingsOfFleet(subject: string, state: FleetState): readonly Finding[] {
  const { isConfigured, connected, error, denied, maxPayload, name = "", wanted } = state;
  if (!isConfigured) return [];
  const findings: Finding[] = [];
  if (connected === undefined && error !== undefined) {
    const advice = "Start the NATS server, or correct the table fleet of your manifest.";
    findings.push({ code: "TM611", subject, text: error, advice });
  }
  for (const denial of denied) {
    const text = `NATS does not permit the subject "${denial}".`;
    const advice = "docs/fleet.md has the permissions that hubs and users need.";
    findings.push({ code: "TM612", subject, text, advice });
  }
  if (maxPayload !== undefined && maxPayload < MIN_PAYLOAD) {
    const text = `NATS takes messages of at most ${formatSize(maxPayload)}, and larger requests are refused.`;
    const advice = "Set max_payload: 8MB in the configuration of the NATS server.";
    findings.push({ code: "TM613", subject, text, advice });
  }
  if (wanted !== undefined) {
    const text = `Another hub of the fleet is named "${wanted}", so this one is "${name}".`;
    const advice = "Set another name in the table fleet of one of them.";
    findings.push({ code: "TM614", subject, text, advice });
  }
  return findings;
}

/** Connects to the NATS of a manifest's fleet, and says what is wrong with it. */
export async function checkFleet(
  manifest: Manifest | undefined,
  context: HostContext,
): Promise<readonly Finding[]> {
  if (manifest?.fleet === undefined) return [];
  const { Fleet } = await import("../fleet.ts");
  const fleet = new Fleet({ context, manifest, log() {}, emit() {}, addSecrets() {} });
  try {
    return findingsOfFleet("fleet", { isConfigured: true, ...(await fleet.probe()) });
  } finally {
    await fleet.close();
  }
}
