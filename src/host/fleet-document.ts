import { sleep } from "../base/clock.ts";
import type { FleetDocument } from "../control/schemas.ts";
import { requestHead } from "../fleet/subjects.ts";
import type { Hub } from "../hub/hub.ts";
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
      const { name: server, fleet: remote, machine } = spec;
      const replicas = peers
        .replicasOf(remote)
        .map((peer) => peer.name)
        .filter((one) => machine === undefined || one === machine);
      const subject = `${requestHead(tenant, user, machine)}${remote}.>`;
      return [{ server, fleet: remote, subject, machines: replicas }];
    }),
  };
}
