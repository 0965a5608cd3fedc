import { basename } from "node:path";
import { HubError } from "../base/errors.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { findRunningHubs, forwardToHub, type RunningHub } from "../control/running-hubs.ts";
import type { HubFile } from "../control/schemas.ts";
import { socketNameOf } from "../control/socket-files.ts";

type HubFacts = Omit<HubFile, "manifestId">;

/** A hub as the page lists it. A hub that is started again gets another `id`. */
export interface HubEntry extends HubFacts {
  readonly id: string;
}

/** A request for the control API of a hub. */
export interface ForwardedRequest {
  readonly method: string;
  /** The path from `/v1/` on, with its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array<ArrayBuffer> | undefined;
  readonly signal: AbortSignal;
}

/** The hubs that a dashboard shows. */
export interface DashboardHubs {
  list(): Promise<readonly HubEntry[]>;
  /** Passes a request on to a hub. @throws {HubError} hubNotRunning if there is no hub of that id, or it has ended */
  forward(id: string, request: ForwardedRequest): Promise<Response>;
}

/** Lets a dashboard use all hubs of this user, through their control sockets. */
export function allHubs(environment: Pick<SystemEnvironment, "env" | "platform">): DashboardHubs {
  let known = new Map<string, RunningHub>();
  let search: Promise<void> | undefined;
  const refresh = (): Promise<void> => {
    search ??= (async () => {
      const hubs = await findRunningHubs(environment);
      known = new Map(hubs.map((hub) => [basename(hub.socket, ".sock"), hub]));
    })().finally(() => {
      search = undefined;
    });
    return search;
  };
  return {
    async list() {
      await refresh();
      return [...known].map(([id, hub]) => entryOf(id, hub));
    },
    async forward(id, request) {
      if (!known.has(id)) await refresh();
      const hub = known.get(id);
      if (hub === undefined) throw notRunning(id);
      try {
        return await forwardToHub(hub, request);
      } catch (error) {
        if (error instanceof HubError && error.code === "hubNotRunning") known.delete(id);
        throw error;
      }
    },
  };
}

/** The control API of a hub in this process. */
export interface OwnHub {
  identity(): HubFacts;
  fetch(request: Request): Promise<Response>;
}

/** Lets a dashboard use the hub in this process, and no other. @param open opens the control API of the hub */
export function ownHub(open: () => Promise<OwnHub>): DashboardHubs {
  const find = async (): Promise<{ readonly hub: OwnHub; readonly entry: HubEntry }> => {
    const hub = await open();
    const { pid, startedAt } = hub.identity();
    return { hub, entry: entryOf(socketNameOf(pid, startedAt), hub.identity()) };
  };
  return {
    list: async () => [(await find()).entry],
    async forward(id, { method, path, headers, body, signal }) {
      const { hub, entry } = await find();
      if (id !== entry.id) throw notRunning(id);
      const init = { method, headers, signal, ...(body !== undefined && { body }) };
      return hub.fetch(new Request(`http://localhost${path}`, init));
    },
  };
}

function entryOf(
  id: string,
  { pid, name, version, cwd, manifest, endpoints, startedAt }: HubFacts,
): HubEntry {
  return { id, pid, name, version, cwd, manifest, endpoints, startedAt };
}

function notRunning(id: string): HubError {
  return new HubError("hubNotRunning", `The hub "${id}" is not running.`);
}
