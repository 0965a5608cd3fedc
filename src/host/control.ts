import process from "node:process";
import { isDemo } from "../base/paths.ts";
import { HubError } from "../base/errors.ts";
import type { DeliveredEvent } from "../base/hub-events.ts";
import { VERSION } from "../base/version.ts";
import type { ControlledHub, ManifestEdit } from "../control/api.ts";
import type { HubIdentity } from "../control/documents.ts";
import { EventRing } from "../control/event-ring.ts";
import { openHubSocket } from "../control/hub-socket.ts";
import { MCP_PATH } from "../control/schemas.ts";
import type { HttpServer } from "../frontend/http/server.ts";
import type { Hub } from "../hub/hub.ts";
import type { ManifestChange } from "../manifest/edit/edit.ts";
import type { FleetServer, Manifest } from "../manifest/manifest.ts";
import type { ManifestChoice } from "../operations/context.ts";
import type { HostContext } from "./context.ts";
import { manifestIdentity } from "../manifest/identity.ts";
import type { CommandLog } from "../operations/load-manifest.ts";

export interface ControlOptions {
  readonly hub: Hub;
  readonly manifest: Manifest;
  /** The manifests of the hub. */
  readonly choice: ManifestChoice;
  readonly context: HostContext;
  readonly log: CommandLog;
  /** Time at which the hub started, in ms since the epoch. */
  readonly startedAt: number;
  readonly redact: (text: string) => string;
  /** Takes the events since the start of the hub. */
  readonly takeEvents: () => readonly DeliveredEvent[];
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
  /** The endpoints of the hub for clients: `stdio`, and the URL of its HTTP server. */
  readonly endpoints: () => readonly string[];
  /** Reads the manifest again. Settles when that is done. */
  readonly reload: () => Promise<void>;
  /** See `ControlledHub`. */
  readonly fleet: ControlledHub["fleet"];
  /** Describes a server of the fleet in one line, with the machines that export it. */
  readonly describeFleetServer: (spec: FleetServer) => Promise<string>;
  /** Ends the hub. @param drain for how long it may wait for open requests of attached clients, in ms */
  readonly stop: (drain?: number) => void;
}

/** The control API of a hub in this process. */
export interface Control {
  identity(): HubIdentity;
  /** Answers a request to the API. */
  fetch(request: Request): Promise<Response>;
  close(): Promise<void>;
}

/**
 * Opens the control API of a running hub, and serves it on a Unix socket. Never rejects: if the socket cannot be
 * opened, logs a warning, and the hub runs without the socket.
 */
export async function openControl(options: ControlOptions): Promise<Control> {
  const { hub, context, log, redact } = options;
  const { env, platform } = context;
  const events = new EventRing(hub, redact, options.takeEvents);
  let problems: string | undefined;
  const unsubscribe = hub.subscribe(
    (event) => {
      if (event.kind !== "manifest") return;
      problems = event.outcome === "refused" ? event.problems : undefined;
    },
    ["manifest"],
  );
  const manifestId = await manifestIdentity(options.manifest, env);
  // The code of the API is loaded with the first request, because most hubs get none.
  let api: Promise<{ fetch(request: Request): Response | Promise<Response> }> | undefined;
  let controlled: Promise<ControlledHub> | undefined;
  const loadApi = async () => {
    const { makeControlApi } = await import("../control/api.ts");
    return makeControlApi(await (controlled = controlledHub(options, events, () => problems)));
  };
  const fetchApi = async (request: Request): Promise<Response> =>
    (await (api ??= loadApi())).fetch(request);
  // The socket also serves MCP over HTTP. No token is required there, because only this user can open the socket.
  let mcp: Promise<HttpServer> | undefined;
  const loadMcp = async (): Promise<HttpServer> => {
    const { HttpServer: Server } = await import("../frontend/http/server.ts");
    const { maxMessage } = options;
    return new Server(hub, {
      hostname: "localhost",
      token: undefined,
      maxMessage,
      clientTransport: "control",
      logFault: (text) => log("error", redact(text)),
    });
  };
  const close = async (): Promise<void> => {
    unsubscribe();
    events.close();
    const ending = controlled?.then(({ agents }) => agents.close()).catch(() => {});
    await Promise.all([mcp?.then((server) => server.close()), ending]);
  };
  const control = { identity: () => identityOf(options), fetch: fetchApi };
  try {
    const socket = await openHubSocket({
      env,
      platform,
      file: () => ({ ...identityOf(options), manifestId }),
      fetch: async (request, info) => {
        if (isMcp(request)) {
          // `isPathAsSent` matters only if a reverse proxy in front of the hub allows only some paths. There is no
          // proxy in front of the socket.
          const { fetch } = await (mcp ??= loadMcp());
          return fetch(request, { isPathAsSent: true, keepOpen: (it) => info.keepOpen(it) });
        }
        const response = fetchApi(request);
        info.keepOpen(response);
        return response;
      },
      warn: (text) => log("warn", redact(text)),
    });
    return {
      ...control,
      async close() {
        await close();
        await socket.close();
      },
    };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    log("warn", `toolmux ps, status and logs will not find this hub: ${reason}`);
    return { ...control, close };
  }
}

function isMcp({ url }: Request): boolean {
  const { pathname } = new URL(url);
  return pathname === MCP_PATH || pathname.startsWith(`${MCP_PATH}/`);
}

function identityOf({ manifest, context, startedAt, endpoints }: ControlOptions): HubIdentity {
  return {
    pid: process.pid,
    version: VERSION,
    name: manifest.hub.name,
    startedAt,
    cwd: context.cwd,
    manifest: [...manifest.sources],
    endpoints: [...endpoints()],
    ...(isDemo(context.env) && { demo: true }),
  };
}

/**
 * Makes the view of the hub that the control API needs.
 * @param rejection returns the manifest's problems if the hub has rejected its last change, else undefined
 */
async function controlledHub(
  options: ControlOptions,
  events: EventRing,
  rejection: () => string | undefined,
): Promise<ControlledHub> {
  const { hub, choice, context, redact, reload, stop } = options;
  const [{ describeServer }, { hintsFor }, { makeHubSetup }, { makeHubAgents }] = await Promise.all(
    [
      import("../operations/server-description.ts"),
      import("../operations/hints.ts"),
      import("./hub-setup.ts"),
      import("./hub-agents.ts"),
    ],
  );
  const readServer: ControlledHub["readServer"] = async (name, entry) => {
    const { readUnsavedServer } = await import("../operations/add.ts");
    return readUnsavedServer(name, entry, choice, context, () => hub.prefixes);
  };
  const setup = makeHubSetup({
    choice,
    context,
    log: options.log,
    readServer,
  });
  return {
    ...setup,
    hub,
    agents: makeHubAgents({ hub, choice, context, log: options.log, redact }),
    events,
    redact,
    logFault: (fault) => options.log("error", redact(`A request could not be handled: ${fault}`)),
    identity: () => identityOf(options),
    describe: (spec) =>
      spec.kind === "fleet" ? options.describeFleetServer(spec) : describeServer(spec),
    remedies: (error, spec) => hintsFor(error, spec, context.env),
    readServer,
    async readEntry(name) {
      const { readManifestEntry } = await import("../operations/manifest-file.ts");
      return readManifestEntry(name, choice, context);
    },
    async edit(change) {
      const { changeManifest } = await import("../operations/manifest-file.ts");
      const note = (text: string): void => options.log("warn", text);
      await changeManifest(manifestChangeOf(change), choice, { ...context, note });
    },
    async reload() {
      await reload();
      const problems = rejection();
      if (problems !== undefined) throw new HubError("manifestInvalid", problems);
    },
    rejection,
    fleet: options.fleet,
    stop,
  };
}

function manifestChangeOf(change: ManifestEdit): ManifestChange {
  if (change.kind !== "enable") return change;
  const { name, enabled } = change;
  return { kind: "set", name, key: "enabled", value: enabled };
}
