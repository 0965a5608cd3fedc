/**
 * control/: the HTTP API through which other programs see and control a running hub. `endpoints.ts` is the
 * table of its endpoints, `schemas.ts` has their documents, `api.ts` and the files `*-api.ts` answer requests;
 * `hub-socket.ts` is the Unix socket on which a hub serves them; `running-hubs.ts` finds hubs and sends requests to
 * them. Main type: `ControlledHub`. Start here; `event-ring.ts` has the events.
 */
import { Hono } from "hono";
import { abortable, settlesWithin } from "../base/clock.ts";
import { textOf, utf8 } from "../base/bytes.ts";
import { HubError, toHubError, describeFault } from "../base/errors.ts";
import { enterStage } from "../base/fault-injection.ts";
import { JsonObject } from "../base/json.ts";
import { EVENT_KINDS, type StateName } from "../base/hub-events.ts";
import type { SectionEntry } from "../catalog/section.ts";
import { HubClient } from "../frontend/hub-client.ts";
import { ARGUMENT_LIMITS } from "../catalog/search/hub-tools.ts";
import type { Hub } from "../hub/hub.ts";
import { formatEntry, previewEntry } from "../manifest/edit/entry-text.ts";
import { maskEntry, unmaskEntry } from "../manifest/mask-entry.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { ModeSpec } from "../manifest/modes.ts";
import { isLevelEnabled } from "../terminal/log.ts";
import type { ServerStatus } from "../upstream/status.ts";
import type { Transport } from "../transport/transport.ts";
import {
  catalogDocument,
  catalogDocumentOfMode,
  describeServer as serverDocumentOf,
  checkQuery,
  foundToolsDocument,
  type HubIdentity,
  hiddenTools,
  hubDocument,
  modeDocument,
  modesDocument,
  redactTexts,
  type ServerTexts,
  toolsDocument,
} from "./documents.ts";
import type { EventRing } from "./event-ring.ts";
import { approvalHandlers, startWatch } from "./approvals-api.ts";
import { pinHandlers } from "./pins-api.ts";
import { agentHandlers, type HubAgents } from "./agents-api.ts";
import type { Query, Route, RoutesBelow } from "./endpoints.ts";
import { errorBody, notFound, readBodyFirst } from "./requests.ts";
import { addRoutes, type Handlers, Reply, type Unsent } from "./routes.ts";
import {
  API_PATH,
  type ClientDocument,
  type FleetDocument,
  type LogDocument,
  type ServerDocument,
} from "./schemas.ts";
import { type HubSetup, setupHandlers, type SetupRoute } from "./setup-api.ts";

/** What the API needs: the hub, and functions of the program that runs the hub. */
export interface ControlledHub extends HubSetup, ServerTexts {
  readonly hub: Hub;
  readonly agents: HubAgents;
  readonly events: EventRing;
  readonly identity: () => HubIdentity;
  /** Removes secrets from a text. */
  redact(text: string): string;
  /** Logs the cause of an answer with status 500. */
  logFault(fault: string): void;
  /**
   * Reads a server's entry as if it were in the manifest.
   * @throws {HubError} manifestInvalid; usage if the manifest has a server of that name
   */
  readServer(name: string, entry: Readonly<Record<string, unknown>>): Promise<RunnableServer>;
  /** The file of the manifest that `edit` changes, and a server's entry as it stands there. @throws {HubError} */
  readEntry(name: string): Promise<{
    readonly file: string;
    readonly entry: Readonly<Record<string, unknown>> | undefined;
  }>;
  /** Writes a change into the manifest. @throws {HubError} */
  edit(change: ManifestEdit): Promise<void>;
  /** Reads the manifest again. Settles when that is done. */
  reload(): Promise<void>;
  /** The hub as a member of its fleet. @param pings whether all machines are pinged first */
  fleet(pings: boolean): Promise<FleetDocument>;
  /** The problems of the manifest if the hub has rejected its last change. */
  rejection(): string | undefined;
  /** Ends the hub. @param drain for how long it may wait for open requests of attached clients, in ms */
  stop(drain?: number): void;
}

export type ManifestEdit =
  | {
      readonly kind: "add";
      readonly name: string;
      readonly entry: Readonly<Record<string, unknown>>;
    }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "enable"; readonly name: string; readonly enabled: boolean };

/** The path of metrics. Scrapers expect it, so it is no endpoint below `API_PATH`. */
const METRICS_PATH = "/metrics";
const DEFAULT_LOG_LIMIT = 200;
/** The default window of `GET /usage`, in ms. */
const DEFAULT_WINDOW = 60 * 60_000;
/**
 * Limits that keep the answer to `GET /usage` below 96 KiB: the number of points for each tool (default and maximum),
 * and the maximum number of tools.
 */
const DEFAULT_POINTS = 30;
const MAX_POINTS = 60;
const MAX_USAGE_TOOLS = 24;
function idsOf(all: readonly { readonly id: string }[]): readonly string[] {
  return all.map(({ id }) => id);
}

/** The JSON Schema of a server's entry, a part of the schema of the manifest. */
async function entrySchema(): Promise<Readonly<Record<string, unknown>>> {
  const { default: schema } = await import("../../toolmux.schema.json", { with: { type: "json" } });
  return { ...schema.properties.servers.additionalProperties, $defs: schema.$defs };
}

/** States in which a server is neither starting nor stopping. */
const SETTLED_STATES: readonly StateName[] = [
  "connected",
  "failed",
  "disconnected",
  "idle",
  "reconnecting",
];

/** The endpoints that are answered here, and in no file of their own. */
type HubRoute = Exclude<
  Route,
  SetupRoute | RoutesBelow<"/approvals" | "/pins" | "/agents" | "/runs" | "/conversations">
>;

/** The HTTP API of a running hub. Every answer is JSON; an error is `{error: {code, message}}`. */
export function makeControlApi(controlled: ControlledHub): Hono {
  const app = new Hono();
  app.use((_, next) => {
    enterStage("control");
    return next();
  });
  app.use(readBodyFirst());
  const { hub } = controlled;
  const requireServer = (name: string): void => void statusOf(hub, name);
  const handlers: Handlers = {
    ...hubHandlers(controlled),
    ...setupHandlers(hub, controlled, requireServer),
    ...agentHandlers(controlled.agents),
    ...approvalHandlers(hub, requireServer),
    ...pinHandlers(hub, requireServer),
  };
  addRoutes(
    app.basePath(API_PATH),
    handlers,
    (document) => redactTexts(document, (text) => controlled.redact(text)) as object,
  );
  app.get(METRICS_PATH, async (c) => {
    const { contentType, text } = await hub.readMetrics(c.req.header("Accept") ?? null);
    return c.body(text, 200, { "Content-Type": contentType });
  });
  app.notFound((c) =>
    c.json(errorBody("methodNotFound", `There is no ${c.req.method} ${c.req.path}.`), 404),
  );
  app.onError((error, c) => {
    const { code, message, httpStatus } = toHubError(error);
    if (code === "internal") controlled.logFault(describeFault(error));
    return c.json(errorBody(code, controlled.redact(message)), httpStatus);
  });
  return app;
}

function hubHandlers(controlled: ControlledHub): Pick<Handlers, HubRoute> {
  const { hub, events } = controlled;
  const describeHub = () => hubDocument(hub, controlled.identity(), controlled.rejection());

  /**
   * Makes the handler for an action on the server that the path names. With `?wait=30s`, the answer waits at most 30 s
   * until the server is neither starting nor stopping any more.
   */
  const handlerFor =
    (verb: (name: string) => Promise<unknown>): Handlers["POST /servers/:name/start"] =>
    async ({ params: { name }, query: { wait } }) => {
      statusOf(hub, name);
      const done = verb(name);
      // Only a request with `wait` is answered with the error of the action. The server's state and log always show the
      // error.
      done.catch(() => {});
      if (wait === undefined) return new Reply(202, await describeServer(name));
      const untilDone = done.then(() => untilSettled(name));
      await Promise.race([
        untilDone,
        settlesWithin(
          wait,
          untilDone.catch(() => {}),
        ),
      ]);
      return describeServer(name);
    };

  return {
    "GET /hub": describeHub,
    "GET /servers": async () => ({
      servers: await Promise.all(hub.status().map(({ server }) => describeServer(server))),
    }),
    "GET /servers/:name": async ({ params: { name }, query: { wait } }) => {
      statusOf(hub, name);
      if (wait !== undefined) await settlesWithin(wait, untilSettled(name));
      return describeServer(name);
    },
    "POST /servers/:name/start": handlerFor(async (name) => hub.start(name)),
    "POST /servers/:name/stop": handlerFor((name) => hub.stop(name)),
    "POST /servers/:name/reconnect": handlerFor(async (name) => hub.reconnect(name)),
    "POST /servers/:name/cancel": handlerFor(async (name) => hub.cancelAttempt(name)),
    "POST /servers/:name/refresh": handlerFor((name) => hub.refresh(name)),
    "POST /servers/reconnect-failed": () => ({ servers: hub.reconnectFailed() }),

    "POST /servers": async ({ body: { name, entry, persist } }) => {
      const known = hub.status().find(({ server }) => server === name);
      await putServer(name, entry, persist);
      return new Reply(known === undefined ? 201 : 200, await describeServer(name));
    },
    "DELETE /servers/:name": async ({ params: { name }, query: { persist = false } }) => {
      const { origin } = statusOf(hub, name);
      if (origin === "manifest" && !persist) {
        const text = `Server "${name}" is in the manifest, and would be back with the next reload: remove it there (persist=true), or stop it.`;
        throw new HubError("usage", text, { server: name });
      }
      if (origin === "manifest") {
        await controlled.edit({ kind: "remove", name });
        await controlled.reload();
      } else hub.remove(name);
    },
    "PATCH /servers/:name": async ({ params: { name }, body: { enabled, entry, persist } }) => {
      statusOf(hub, name);
      if (entry !== undefined && enabled !== undefined)
        throw new HubError("invalidParams", "Either enabled or entry is changed, not both.");
      if (entry !== undefined) {
        const present = persist === true ? (await controlled.readEntry(name)).entry : undefined;
        await putServer(name, unmaskEntry(entry, present ?? {}), persist);
      } else if (enabled === undefined) {
        throw new HubError("invalidParams", "Nothing is to be changed: set enabled or entry.");
      } else if (persist === true) {
        await controlled.edit({ kind: "enable", name, enabled });
        await controlled.reload();
      } else if (enabled) hub.start(name);
      else void hub.stop(name);
      return describeServer(name);
    },
    "GET /servers/:name/entry": async ({ params: { name } }) => {
      statusOf(hub, name);
      const { file, entry } = await controlled.readEntry(name);
      if (entry === undefined) throw notFound(`server "${name}" in ${file}`);
      const masked = maskEntry(entry);
      return { name, file, entry: masked, toml: formatEntry(masked), schema: await entrySchema() };
    },
    "POST /servers/:name/preview": async ({ params: { name }, body }) => {
      statusOf(hub, name);
      const { entry: present = {} } = await controlled.readEntry(name);
      const { entry, toml, problems } = await previewEntry(body, present);
      return {
        before: formatEntry(maskEntry(present)),
        ...(toml !== undefined && { toml }),
        ...(entry !== undefined && { entry }),
        problems: problems.map(({ path, message, position }) => ({ path, message, ...position })),
      };
    },
    "GET /servers/:name/log": ({ params: { name }, query }) => {
      statusOf(hub, name);
      return readLog([name], query);
    },
    "GET /log": ({ query: { server: servers, ...query } }) => {
      for (const server of servers ?? []) statusOf(hub, server);
      return readLog(servers ?? [undefined, ...hub.status().map(({ server }) => server)], query);
    },

    "GET /tools": ({ query: { client, mode } }) => {
      if (client === undefined && mode === undefined) return toolsDocument(hub.catalog);
      const ofMode = mode === undefined ? hub.catalog : hub.catalogOfMode(modeOf(mode).name);
      if (client === undefined)
        return toolsDocument(ofMode, hiddenTools(hub, ofMode, mode === undefined ? [] : [mode]));
      const whole = hub.catalogOf(client);
      if (whole === undefined)
        throw notFound(`client "${client}"`, client, idsOf(hub.snapshot().clients));
      const inMode = (entry: SectionEntry): boolean =>
        mode === undefined || hub.hidingMode([mode], "tools", entry) === undefined;
      const catalog = { ...whole, tools: whole.tools.filter(inMode) };
      const own = hub.snapshot().clients.find(({ id }) => id === client)?.modes ?? [];
      const modes = mode === undefined ? own : [...own, mode];
      return toolsDocument(catalog, hiddenTools(hub, catalog, modes));
    },
    "GET /find": async ({ query: { query, server, limit, mode, explain } }) => {
      const { hits: maxHits } = ARGUMENT_LIMITS;
      checkQuery(query);
      if (server !== undefined) statusOf(hub, server);
      const most = limit === undefined ? undefined : Math.min(Math.max(1, limit), maxHits);
      if (mode !== undefined) modeOf(mode);
      const options = { server, limit: most, mode, explain };
      return foundToolsDocument(await hub.findTools(query, options));
    },
    "GET /exposures": ({ query: { mode } }) =>
      hub.exposureCosts(mode === undefined ? undefined : modeOf(mode).name),
    "GET /tools/:name": ({ params }) => {
      const { name, server, route, bytes } = toolOf(params.name);
      const definition = JSON.parse(textOf(bytes)) as Readonly<Record<string, unknown>>;
      return { name, server, tool: route.remoteName, definition };
    },
    "POST /tools/:name/call": async ({ params, body: { client: caller }, text, signal }) => {
      // The arguments are passed on as they were sent: numbers keep their digits.
      const body = utf8(text);
      const sent = JsonObject.of(body).member("arguments");
      const args = sent === undefined ? "{}" : textOf(body, sent.start, sent.end);
      const serverInfo = { ...hub.serverInfo, ...(caller !== undefined && { name: caller }) };
      const accept = (transport: Transport, ended: AbortSignal): Promise<void> =>
        hub.accept(transport, ended, { kind: "control" });
      const client = await HubClient.connect({ serverInfo, accept }, signal);
      try {
        // If this is the hub's first client, the servers are only starting now, and the tool may not be listed yet.
        const isListed = hub.catalog.tools.find(params.name) !== undefined;
        if (!isListed) await abortable(hub.settled(), signal);
        const { name } = toolOf(params.name);
        const { outcome, bytes, body: range } = await client.callTool(name, args);
        return `{"${outcome}":${textOf(bytes, range.start, range.end)}}`;
      } finally {
        await client.close();
      }
    },
    "GET /catalog": ({ query: { mode } }) =>
      mode === undefined
        ? catalogDocument(hub.catalog)
        : catalogDocumentOfMode(hub, modeOf(mode).name),

    "GET /mode": () => modesDocument(hub),
    "PUT /mode": ({ body: { mode } }) => {
      hub.setMode(mode === null ? undefined : modeOf(mode).name);
      return modesDocument(hub);
    },
    "GET /mode/:name": ({ params: { name } }) => modeDocument(hub, modeOf(name)),
    "PUT /clients/:client/mode": ({ params: { client: wanted }, body: { mode } }) => {
      const find = (): Unsent<ClientDocument> => {
        const { clients } = hub.snapshot();
        const client = clients.find(({ id, principal }) => id === wanted || principal === wanted);
        if (client === undefined) throw notFound(`client "${wanted}"`, wanted, idsOf(clients));
        return client;
      };
      find();
      hub.setClientMode(wanted, mode === null ? undefined : modeOf(mode).name);
      return find();
    },

    "GET /activity": ({ query }) => {
      const { server, tool, client, outcome } = query;
      const { limit = DEFAULT_LOG_LIMIT, before = Number.MAX_SAFE_INTEGER } = query;
      const { usage } = hub;
      const calls = usage.ended
        .filter(
          (call) =>
            call.call < before &&
            (server === undefined || call.server === server) &&
            (tool === undefined || call.tool === tool || call.name === tool) &&
            (client === undefined ||
              [call.client, call.clientName, call.principal].includes(client)) &&
            (outcome === undefined || call.outcome === outcome),
        )
        .slice(0, limit);
      const rounded = calls.map((call) => ({
        ...call,
        duration: Math.round(call.duration),
        personWait: Math.round(call.personWait),
        queueWait: Math.round(call.queueWait),
      }));
      return { since: usage.since, calls: rounded };
    },
    "GET /activity/:call": async ({ params: { call } }) => {
      const number = Number(call);
      if (!Number.isSafeInteger(number) || number < 0) throw notFound(`call ${call}`);
      const kept = await hub.activePlugins.set?.findKept(number);
      if (kept === undefined) return { call: number };
      const { by, arguments: args, argumentsSize, result, resultSize } = kept;
      return { call: number, by, arguments: args, argumentsSize, result, resultSize };
    },
    "GET /usage": ({ query: { window = DEFAULT_WINDOW, points = DEFAULT_POINTS } }) => {
      if (points < 1 || points > MAX_POINTS)
        throw new HubError("invalidParams", `points must be from 1 to ${MAX_POINTS}.`);
      return hub.usage.usage(window, points, MAX_USAGE_TOOLS);
    },

    "GET /calls": () => ({
      calls: hub.snapshot().calls.map((call) => ({ ...call, duration: Math.round(call.duration) })),
    }),
    "POST /calls/:call/cancel": ({ params: { call } }) => {
      if (!hub.cancelCall(Number(call))) throw notFound(`running call ${call}`);
    },
    "GET /fleet": () => controlled.fleet(false),
    "POST /fleet/ping": () => controlled.fleet(true),
    "GET /clients": () => ({ clients: hub.snapshot().clients }),
    "GET /limits": () => ({ limits: hub.limits.status }),
    "POST /limits/:client/reset": async ({ params: { client } }) => {
      const names = await hub.limits.reset(client);
      if (names !== undefined) throw notFound(`client "${client}" with limits`, client, names);
    },
    "GET /scan": async ({ query: { server } }) => {
      if (server !== undefined) statusOf(hub, server);
      await hub.scanned.settled();
      return { servers: hub.scanned.list(server) };
    },
    "GET /alerts": () => ({ alerts: hub.snapshot().alerts }),
    "POST /alerts/dismiss": () => {
      for (const { id } of hub.snapshot().alerts) hub.dismissAlert(id);
    },
    "POST /alerts/:id/dismiss": ({ params: { id } }) => {
      if (!hub.dismissAlert(id)) throw notFound(`alert ${id}`, id, idsOf(hub.snapshot().alerts));
    },

    "GET /events": ({ query, signal }) => {
      const { kinds = EVENT_KINDS, calls = "counted", after, watch } = query;
      return events.open({ kinds, calls, after, signal, onEnd: startWatch(watch, hub) });
    },
    "POST /reload": async () => {
      await controlled.reload();
      return describeHub();
    },
    "POST /stop": ({ query: { drain } }) => controlled.stop(drain),
    "GET /schema": async () =>
      JSON.stringify((await import("./json-schema.ts")).makeControlSchema()),
  };

  /** @throws {HubError} notFound with the nearest name if there is no such mode; usage if its table is wrong */
  function modeOf(name: string): ModeSpec {
    const mode = hub.modes.find((one) => one.name === name);
    if (mode !== undefined) return mode;
    const names = hub.modes.map((one) => one.name);
    throw notFound(`mode "${name}"`, name, names);
  }

  /** @throws {HubError} notFound with the nearest name if clients see no such tool */
  function toolOf(name: string): SectionEntry {
    const { entries } = hub.catalog.tools;
    const entry = entries.find((one) => one.name === name);
    if (entry !== undefined) return entry;
    const names = entries.map((one) => one.name);
    throw notFound(`tool "${name}"`, name, names);
  }

  /** Adds a server, or replaces its entry. */
  async function putServer(
    name: string,
    entry: Readonly<Record<string, unknown>>,
    persist = false,
  ): Promise<void> {
    if (!persist) {
      hub.add(await controlled.readServer(name, entry));
      return;
    }
    await controlled.edit({ kind: "add", name, entry });
    await controlled.reload();
  }

  function describeServer(name: string): Promise<ServerDocument> {
    const spec = hub.specs.find((one) => one.name === name);
    return serverDocumentOf(hub, () => statusOf(hub, name), spec, controlled);
  }

  /** Settles when no connection of the server is starting or stopping. */
  function untilSettled(name: string): Promise<void> {
    const isSettled = (): boolean => {
      const status = hub.status().find(({ server }) => server === name);
      return (status?.connections ?? []).every(({ state }) => SETTLED_STATES.includes(state));
    };
    const settled = Promise.withResolvers<void>();
    const check = (): void => {
      if (!isSettled()) return;
      unsubscribe();
      settled.resolve();
    };
    const unsubscribe = hub.subscribe(check, ["state", "server"]);
    check();
    return settled.promise;
  }

  /**
   * Reads the log entries that the query selects.
   * @param servers the names of the servers whose logs are read; undefined stands for the hub's own log
   */
  function readLog(
    servers: readonly (string | undefined)[],
    { after = 0, limit = DEFAULT_LOG_LIMIT, level = "debug" }: Query<"GET /servers/:name/log">,
  ): LogDocument {
    const next = hub.lastSeq;
    const entries = servers
      .flatMap((server) => hub.log(server))
      .filter((entry) => entry.seq > after && isLevelEnabled(entry.level, level))
      .toSorted((a, b) => a.seq - b.seq);
    return { entries: entries.slice(Math.max(0, entries.length - limit)), next };
  }
}

/** @throws {HubError} notFound with the nearest name if the hub has no such server */
function statusOf(hub: Hub, name: string): ServerStatus {
  const all = hub.status();
  const status = all.find(({ server }) => server === name);
  if (status !== undefined) return status;
  const names = all.map(({ server }) => server);
  throw notFound(`server "${name}"`, name, names);
}
