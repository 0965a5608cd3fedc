/**
 * control/: the HTTP API through which other programs see and control a running hub. `api.ts` has the endpoints,
 * `hub-socket.ts` the Unix socket on which a hub serves them; `running-hubs.ts` finds hubs and sends requests to them.
 * Main type: `ControlledHub`. Start here; `schemas.ts` has the documents, `event-ring.ts` the events.
 */
import type { WithUndefined } from "../operations/documents.ts";
import { type Context, Hono } from "hono";
import { abortable, settlesWithin } from "../base/clock.ts";
import { textOf, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { describeFault, enterStage } from "../base/fault-injection.ts";
import { JsonObject } from "../base/json.ts";
import type { StateName } from "../base/events.ts";
import type { SectionEntry } from "../catalog/section.ts";
import { HubClient } from "../frontend/hub-client.ts";
import type { Hub } from "../hub/hub.ts";
import { maskEntry, unmaskEntry } from "../manifest/mask-entry.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { ModeSpec } from "../manifest/modes.ts";
import { isLevelEnabled } from "../terminal/log.ts";
import type { Transport } from "../transport/transport.ts";
import {
  catalogDocument,
  catalogDocumentOfMode,
  describeServer as serverDocumentOf,
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
import {
  parseDurationParam,
  errorBody,
  parseCallDetail,
  parseKinds,
  parseLogLevel,
  notFound,
  parseNumberParam,
  readBody,
  readBodyFirst,
  statusCodeOf,
  parseWait,
} from "./requests.ts";
import {
  API_PATH,
  addServerSchema,
  type AlertDocument,
  type CallDocument,
  type ClientDocument,
  type LogDocument,
  type EndedCallDocument,
  modeChoiceSchema,
  patchServerSchema,
  type ServerDocument,
  toolCallSchema,
} from "./schemas.ts";
import { addAgentRoutes, type HubAgents } from "./agents-api.ts";
import { addApprovalRoutes, parseWatch } from "./approvals-api.ts";
import { addSetupRoutes, type HubSetup } from "./setup-api.ts";

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
  /** The problems of the manifest if the hub has rejected its last change. */
  rejection(): string | undefined;
  /** Ends the hub. */
  stop(): void;
}

export type ManifestEdit =
  | {
      readonly kind: "add";
      readonly name: string;
      readonly entry: Readonly<Record<string, unknown>>;
    }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "enable"; readonly name: string; readonly enabled: boolean };

const DEFAULT_LOG_LIMIT = 200;
/**
 * Limits that keep the answer to `GET /usage` below 64 KiB: the number of points for each tool (default and maximum),
 * and the maximum number of tools.
 */
const DEFAULT_POINTS = 30;
const MAX_POINTS = 30;
const MAX_USAGE_TOOLS = 24;
function idsOf(all: readonly { readonly id: string }[]): readonly string[] {
  return all.map(({ id }) => id);
}

/** States in which a server is neither starting nor stopping. */
const SETTLED_STATES: readonly StateName[] = [
  "connected",
  "failed",
  "disconnected",
  "idle",
  "reconnecting",
];

/** The HTTP API of a running hub. Every answer is JSON; an error is `{error: {code, message}}`. */
export function makeControlApi(controlled: ControlledHub): Hono {
  const { hub, events } = controlled;
  const app = new Hono();
  app.use((_, next) => {
    enterStage("control");
    return next();
  });
  const api = app.basePath(API_PATH);
  app.use(readBodyFirst());
  /** Answers with a document. Secrets are removed from its texts. */
  const answer = (c: Context, document: object, status: 200 | 201 | 202 | 409 = 200): Response =>
    c.json(redactTexts(document, (text) => controlled.redact(text)) as object, status);

  const describeHub = () => hubDocument(hub, controlled.identity(), controlled.rejection());
  api.get("/hub", (c) => answer(c, describeHub()));

  api.get("/servers", async (c) =>
    answer(c, {
      servers: await Promise.all(hub.status().map(({ server }) => describeServer(server))),
    }),
  );
  api.get("/servers/:name", async (c) => {
    const name = nameOf(c);
    const wait = parseWait(c);
    if (wait !== undefined) await settlesWithin(wait, untilSettled(name));
    return answer(c, await describeServer(name));
  });

  /**
   * Makes the handler for an action on the server that the path names. With `?wait=30s`, the answer waits at most 30 s
   * until the server is neither starting nor stopping any more.
   */
  const handlerFor = (verb: (name: string) => Promise<unknown>) => async (c: Context) => {
    const name = nameOf(c);
    const wait = parseWait(c);
    const done = verb(name);
    // Only a request with `wait` is answered with the error of the action. The server's state and log always show the
    // error.
    done.catch(() => {});
    if (wait === undefined) return answer(c, await describeServer(name), 202);
    const untilDone = done.then(() => untilSettled(name));
    await Promise.race([
      untilDone,
      settlesWithin(
        wait,
        untilDone.catch(() => {}),
      ),
    ]);
    return answer(c, await describeServer(name));
  };
  api.post(
    "/servers/:name/start",
    handlerFor(async (name) => hub.start(name)),
  );
  api.post(
    "/servers/:name/stop",
    handlerFor((name) => hub.stop(name)),
  );
  api.post(
    "/servers/:name/reconnect",
    handlerFor(async (name) => hub.reconnect(name)),
  );
  api.post(
    "/servers/:name/cancel",
    handlerFor(async (name) => hub.cancelAttempt(name)),
  );
  api.post(
    "/servers/:name/refresh",
    handlerFor((name) => hub.refresh(name)),
  );
  api.post("/servers/reconnect-failed", (c) => answer(c, { servers: hub.reconnectFailed() }));

  api.post("/servers", async (c) => {
    const { name, entry, persist } = await readBody(c, addServerSchema);
    const known = hub.status().find(({ server }) => server === name);
    await putServer(name, entry, persist);
    return answer(c, await describeServer(name), known === undefined ? 201 : 200);
  });
  api.delete("/servers/:name", async (c) => {
    const name = nameOf(c);
    const isPersistent = c.req.query("persist") === "true";
    const { origin } = statusOf(name);
    if (origin === "manifest" && !isPersistent) {
      const text = `Server "${name}" is in the manifest, and would be back with the next reload: remove it there (persist=true), or stop it.`;
      throw new HubError("usage", text, { server: name });
    }
    if (origin === "manifest") {
      await controlled.edit({ kind: "remove", name });
      await controlled.reload();
    } else hub.remove(name);
    return c.body(null, 204);
  });
  api.patch("/servers/:name", async (c) => {
    const name = nameOf(c);
    const { enabled, entry, persist } = await readBody(c, patchServerSchema);
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
    return answer(c, await describeServer(name));
  });

  api.get("/servers/:name/entry", async (c) => {
    const name = nameOf(c);
    const { file, entry } = await controlled.readEntry(name);
    if (entry === undefined) throw notFound(`server "${name}" in ${file}`);
    return answer(c, { name, file, entry: maskEntry(entry) });
  });
  api.get("/servers/:name/log", (c) => answer(c, readLog(c, [nameOf(c)])));
  api.get("/log", (c) => {
    const servers = c.req.queries("server");
    for (const server of servers ?? []) statusOf(server);
    return answer(
      c,
      readLog(c, servers ?? [undefined, ...hub.status().map(({ server }) => server)]),
    );
  });

  api.get("/tools", (c) => {
    const { client, mode } = c.req.query();
    if (client === undefined && mode === undefined) return answer(c, toolsDocument(hub.catalog));
    const ofMode = mode === undefined ? hub.catalog : hub.catalogOfMode(modeOf(mode).name);
    if (client === undefined)
      return answer(
        c,
        toolsDocument(ofMode, hiddenTools(hub, ofMode, mode === undefined ? [] : [mode])),
      );
    const whole = hub.catalogOf(client);
    if (whole === undefined)
      throw notFound(`client "${client}"`, client, idsOf(hub.snapshot().clients));
    const inMode = (entry: SectionEntry): boolean =>
      mode === undefined || hub.hidingMode([mode], "tools", entry) === undefined;
    const catalog = { ...whole, tools: whole.tools.filter(inMode) };
    const own = hub.snapshot().clients.find(({ id }) => id === client)?.modes ?? [];
    const modes = mode === undefined ? own : [...own, mode];
    return answer(c, toolsDocument(catalog, hiddenTools(hub, catalog, modes)));
  });

  api.get("/mode", (c) => answer(c, modesDocument(hub)));
  api.put("/mode", async (c) => {
    const { mode } = await readBody(c, modeChoiceSchema);
    hub.setMode(mode === null ? undefined : modeOf(mode).name);
    return answer(c, modesDocument(hub));
  });
  api.get("/mode/:name", (c) => answer(c, modeDocument(hub, modeOf(c.req.param("name")))));
  api.put("/clients/:client/mode", async (c) => {
    const wanted = c.req.param("client");
    const { mode } = await readBody(c, modeChoiceSchema);
    const find = (): WithUndefined<ClientDocument> => {
      const { clients } = hub.snapshot();
      const client = clients.find(({ id, principal }) => id === wanted || principal === wanted);
      if (client === undefined) throw notFound(`client "${wanted}"`, wanted, idsOf(clients));
      return client;
    };
    find();
    hub.setClientMode(wanted, mode === null ? undefined : modeOf(mode).name);
    return answer(c, find());
  });

  api.get("/tools/:name", (c) => {
    const { name, server, route, bytes } = toolOf(c);
    const definition = JSON.parse(textOf(bytes)) as object;
    return answer(c, { name, server, tool: route.remoteName, definition });
  });
  api.post("/tools/:name/call", async (c) => {
    await readBody(c, toolCallSchema);
    // The arguments are passed on as they were sent: numbers keep their digits.
    const body = utf8(await c.req.text());
    const sent = JsonObject.of(body).member("arguments");
    const args = sent === undefined ? "{}" : textOf(body, sent.start, sent.end);
    const { serverInfo } = hub;
    const accept = (transport: Transport, signal: AbortSignal): Promise<void> =>
      hub.accept(transport, signal, undefined, "control");
    const { signal } = c.req.raw;
    const client = await HubClient.connect({ serverInfo, accept }, signal);
    try {
      // If this is the hub's first client, the servers are only starting now, and the tool may not be listed yet.
      const isListed = hub.catalog.tools.find(c.req.param("name")) !== undefined;
      if (!isListed) await abortable(hub.settled(), signal);
      const { name } = toolOf(c);
      const { outcome, bytes, body: range } = await client.callTool(name, args);
      const text = `{"${outcome}":${textOf(bytes, range.start, range.end)}}`;
      return c.body(text, 200, { "Content-Type": "application/json" });
    } finally {
      await client.close();
    }
  });

  api.get("/activity", (c) => {
    const { server, tool, client, outcome } = c.req.query();
    const limit = parseNumberParam(c.req.query("limit") ?? String(DEFAULT_LOG_LIMIT), "limit");
    const before = parseNumberParam(
      c.req.query("before") ?? String(Number.MAX_SAFE_INTEGER),
      "before",
    );
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
    const rounded = calls.map((call) => ({ ...call, duration: Math.round(call.duration) }));
    return answer(c, {
      since: usage.since,
      calls: rounded satisfies readonly WithUndefined<EndedCallDocument>[],
    });
  });
  api.get("/usage", (c) => {
    const window = parseDurationParam(c.req.query("window") ?? "1h", "window");
    const points = parseNumberParam(c.req.query("points") ?? String(DEFAULT_POINTS), "points");
    if (points < 1 || points > MAX_POINTS)
      throw new HubError("invalidParams", `points must be from 1 to ${MAX_POINTS}.`);
    const all = hub.usage.usage(window, points);
    const document = { ...all, tools: all.tools.slice(0, MAX_USAGE_TOOLS) };
    return answer(c, document);
  });

  api.get("/catalog", (c) => {
    const mode = c.req.query("mode");
    return answer(
      c,
      mode === undefined
        ? catalogDocument(hub.catalog)
        : catalogDocumentOfMode(hub, modeOf(mode).name),
    );
  });

  api.get("/calls", (c) => {
    const calls = hub.snapshot().calls.map((call) => ({
      ...call,
      duration: Math.round(call.duration),
    }));
    return answer(c, { calls: calls satisfies readonly WithUndefined<CallDocument>[] });
  });
  api.post("/calls/:call/cancel", (c) => {
    const call = Number(c.req.param("call"));
    if (!hub.cancelCall(call)) throw notFound(`running call ${c.req.param("call")}`);
    return c.body(null, 204);
  });

  api.get("/clients", (c) => {
    const { clients } = hub.snapshot();
    return answer(c, { clients: clients satisfies readonly WithUndefined<ClientDocument>[] });
  });

  api.get("/alerts", (c) => {
    const { alerts } = hub.snapshot();
    return answer(c, { alerts: alerts satisfies readonly AlertDocument[] });
  });
  api.post("/alerts/dismiss", (c) => {
    for (const { id } of hub.snapshot().alerts) hub.dismissAlert(id);
    return c.body(null, 204);
  });
  api.post("/alerts/:id/dismiss", (c) => {
    const id = c.req.param("id");
    if (!hub.dismissAlert(id)) throw notFound(`alert ${id}`, id, idsOf(hub.snapshot().alerts));
    return c.body(null, 204);
  });

  api.get("/events", (c) => {
    const after = c.req.query("after") ?? c.req.header("Last-Event-ID");
    const request = {
      kinds: parseKinds(c.req.query("kinds")),
      calls: parseCallDetail(c.req.query("calls")),
      after: after === undefined ? undefined : parseNumberParam(after, "after"),
      signal: c.req.raw.signal,
    };
    const stream = events.open({ ...request, onEnd: parseWatch(c, hub) });
    return c.body(stream, 200, {
      "Content-Type": "text/event-stream",
      "Cache-Control": "no-cache, no-transform",
    });
  });

  api.post("/reload", async (c) => {
    await controlled.reload();
    return answer(c, describeHub());
  });
  api.post("/stop", (c) => {
    controlled.stop();
    return answer(c, {}, 202);
  });
  api.get("/schema", async (c) => c.json((await import("./json-schema.ts")).makeControlSchema()));

  addSetupRoutes(api, hub, controlled, { nameOf, answer });
  addAgentRoutes(api, controlled.agents, answer);
  addApprovalRoutes(api, hub, (server) => void statusOf(server));

  app.notFound((c) =>
    c.json(errorBody("methodNotFound", `There is no ${c.req.method} ${c.req.path}.`), 404),
  );
  app.onError((error, c) => {
    const { code, message } = toHubError(error);
    if (code === "internal") controlled.logFault(describeFault(error));
    return c.json(errorBody(code, controlled.redact(message)), statusCodeOf(error));
  });
  return app;

  /** The server's name in the path. @throws {HubError} 404 with the nearest name if there is no such server */
  function nameOf(c: Context): string {
    const name = c.req.param("name") ?? "";
    statusOf(name);
    return name;
  }

  function statusOf(name: string) {
    const all = hub.status();
    const status = all.find(({ server }) => server === name);
    if (status !== undefined) return status;
    const names = all.map(({ server }) => server);
    throw notFound(`server "${name}"`, name, names);
  }

  /** @throws {HubError} 404 with the nearest name if there is no such mode; usage if its table is wrong */
  function modeOf(name: string): ModeSpec {
    const mode = hub.modes.find((one) => one.name === name);
    if (mode !== undefined) return mode;
    const names = hub.modes.map((one) => one.name);
    throw notFound(`mode "${name}"`, name, names);
  }

  /** @throws {HubError} 404 with the nearest name if clients see no such tool */
  function toolOf(c: Context): SectionEntry {
    const name = c.req.param("name") ?? "";
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
    return serverDocumentOf(hub, () => statusOf(name), spec, controlled);
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
  function readLog(c: Context, servers: readonly (string | undefined)[]): LogDocument {
    const after = parseNumberParam(c.req.query("after") ?? "0", "after");
    const limit = parseNumberParam(c.req.query("limit") ?? String(DEFAULT_LOG_LIMIT), "limit");
    const level = parseLogLevel(c.req.query("level"));
    const next = hub.lastSeq;
    const entries = servers
      .flatMap((server) => hub.log(server))
      .filter((entry) => entry.seq > after && isLevelEnabled(entry.level, level))
      .toSorted((a, b) => a.seq - b.seq);
    return { entries: entries.slice(Math.max(0, entries.length - limit)), next };
  }
}
