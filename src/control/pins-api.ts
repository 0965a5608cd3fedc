import type { Hub } from "../hub/hub.ts";
import type { ServerPins } from "../hub/pinned-servers.ts";
import type { RoutesBelow } from "./endpoints.ts";
import { notFound } from "./requests.ts";
import type { Handlers } from "./routes.ts";
import type { PinsDocument } from "./schemas.ts";

/**
 * The endpoints with which a person sees and accepts what servers list.
 * @param check throws notFound if there is no such server
 */
export function pinHandlers(
  { pinned }: Hub,
  check: (server: string) => void,
): Pick<Handlers, RoutesBelow<"/pins">> {
  return {
    "GET /pins": async ({ query: { server } }) => {
      if (server !== undefined) check(server);
      return { servers: (await pinned.list(server)).map(pinsDocument) };
    },
    "POST /pins/accept": async ({ body: { server, definitions } }) => {
      check(server);
      return { accepted: await pinned.accept(server, definitions ?? "all") };
    },
    "DELETE /pins/:server": async ({ params: { server } }) => {
      check(server);
      if (!(await pinned.forget(server))) throw notFound(`baseline of server "${server}"`);
    },
  };
}

export function pinsDocument({
  server,
  level,
  isCompared,
  fault,
  pending,
}: ServerPins): PinsDocument {
  return {
    server,
    pin: level,
    compared: isCompared,
    ...(fault !== undefined && { fault }),
    pending: pending.map(({ acceptedAt, peerThen, peerNow, parts, machines, ...rest }) => ({
      ...rest,
      ...(machines !== undefined && { machines }),
      ...(acceptedAt !== undefined && { acceptedAt }),
      ...(peerThen !== undefined && { peerThen }),
      ...(peerNow !== undefined && { peerNow }),
      parts: parts.map(({ part, changes, omitted }) => ({
        part,
        omitted,
        changes: changes.map(({ path, before, after }) => ({
          path,
          ...(before !== undefined && { before }),
          ...(after !== undefined && { after }),
        })),
      })),
    })),
  };
}
