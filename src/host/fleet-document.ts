import { sleep } from "../base/clock.ts";
import type { FleetDocument } from "../control/schemas.ts";
import { encodeToken, requestHead } from "../fleet/subjects.ts";
import type { Hub } from "../hub/hub.ts";
import type { FleetServer } from "../manifest/manifest.ts";
import { describeServer } from "../operations/server-description.ts";
import type { FleetPeers } from "../transport/nats/peers.ts";
import type { Fleet } from "./fleet.ts";

/** Time that machines have to answer, in ms. */
const PING_WAIT = 300;

/** Describes a hub as a member of its fleet. @param pings whether all machines are pinged first */
export async function describeFleet(
  fleet: Fleet,
  hub: Hub,
  pings: boolean,
): Promise<FleetDocument> {
  const { settings, fault, denied } = fleet;
  const membership = fleet.membership;
  const url = [settings?.url ?? []].flat();
  const common = { isConfigured: settings !== undefined, url, denied };
  if (membership === undefined) {
    return {
      ...common,
      ...(fault !== undefined && { error: fault.message }),
      exported: [],
      requests: { total: 0, refused: 0, open: 0 },
      machines: [],
      imported: [],
    };
  }
  const { bus, peers, name, wanted, exporter } = membership;
  if (pings) {
    peers.askAll();
    await sleep(PING_WAIT);
    peers.pingAll();
    await sleep(PING_WAIT);
  }
  const { tenant, user, clock } = peers;
  const { requests = 0, refused = 0, inFlight = 0 } = exporter?.stats ?? {};
  return {
    ...common,
    ...(bus.isConnected && peers.isUsable && { connected: bus.server }),
    ...(!(bus.isConnected && peers.isUsable) && {
      error: `NATS at ${bus.server} does not answer.`,
    }),
    name,
    ...(name !== wanted && { wanted }),
    tenant,
    user,
    maxPayload: bus.maxPayload,
    authenticated: bus.isAuthenticated,
    exported: (exporter?.servers ?? []).map((server) => server.name),
    requests: { total: requests, refused, open: inFlight },
    machines: peers.all.map((peer) => ({
      name: peer.name,
      version: peer.version,
      servers: [...peer.servers.keys()].sort(),
      ...(peer.roundTrip !== undefined && { roundTrip: peer.roundTrip }),
      open: peer.open,
      silent: Math.round(clock.now() - peer.lastSeen),
      ...(peer.isLeaving && { leaving: true as const }),
    })),
    imported: hub.specs.flatMap((spec) => {
      if (spec.kind !== "fleet") return [];
      return [{ server: spec.name, fleet: spec.fleet, ...placeOf(peers, spec) }];
    }),
  };
}

/** Where a server of the fleet is: the subjects of its requests, and the machines that export it. */
function placeOf(
  peers: FleetPeers,
  { fleet, machine }: FleetServer,
): Pick<FleetDocument["imported"][number], "subject" | "machines"> {
  const machines = peers
    .replicasOf(fleet)
    .map(({ name }) => name)
    .filter((name) => machine === undefined || name === machine);
  const subject = `${requestHead(peers.tenant, peers.user, machine)}${encodeToken(fleet)}.>`;
  return { subject, machines };
}

/** Describes a server of the fleet in one line, with the machines that export it. */
export function describeFleetServer(fleet: Fleet, spec: FleetServer): string {
  const peers = fleet.membership?.peers;
  const text = describeServer(spec);
  if (peers === undefined) return text;
  const { subject, machines } = placeOf(peers, spec);
  const where = machines.length === 0 ? "no machine now" : machines.join(", ");
  return `${text}, on ${where} (${subject})`;
}
