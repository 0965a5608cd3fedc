import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { it } from "node:test";
import { sleep } from "../../src/base/clock.ts";
import { HubError } from "../../src/base/errors.ts";
import { type ControlledHub, makeControlApi, type ManifestEdit } from "../../src/control/api.ts";
import { type Endpoint, ENDPOINTS } from "../../src/control/endpoints.ts";
import { EventRing } from "../../src/control/event-ring.ts";
import type { HostContext } from "../../src/host/context.ts";
import { makeHubAgents } from "../../src/host/hub-agents.ts";
import { makeHubSetup } from "../../src/host/hub-setup.ts";
import { readServerEntry } from "../../src/manifest/edit/write.ts";
import { type HubSocket, openHubSocket } from "../../src/control/hub-socket.ts";
import { askHub, findRunningHubs, followEvents } from "../../src/control/running-hubs.ts";
import type { EventDocument, FleetDocument } from "../../src/control/schemas.ts";
import {
  initialize,
  listToolNames,
  modeOf,
  ScriptedServer,
  setUpHub,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";

const FLEET: FleetDocument = {
  isConfigured: true,
  url: ["nats://127.0.0.1:4222"],
  connected: "127.0.0.1:4222",
  name: "laptop",
  tenant: "default",
  user: "_",
  maxPayload: 1_048_576,
  authenticated: false,
  denied: [],
  exported: ["git"],
  requests: { total: 3, refused: 1, open: 1 },
  machines: [{ name: "h2", version: "1", servers: ["files"], roundTrip: 1.5, open: 2, silent: 40 }],
  imported: [
    { server: "files", fleet: "files", subject: "mcp.v1.req.default._.files.>", machines: ["h2"] },
  ],
};
/** What the hub says of itself. */
export const IDENTITY = {
  pid: 1,
  version: "0",
  name: "toolmux",
  startedAt: 5,
  cwd: "/",
  manifest: ["/m.toml"],
  endpoints: ["stdio"],
};

const NEVER = new AbortController().signal;

/** An answer of the API: the HTTP status, and the JSON document. */
export interface ApiAnswer {
  readonly status: number;
  // The tests compare documents as they are.
  readonly document: Json;
}

export type Json = { readonly [key: string]: unknown };

/** A hub in memory with servers `a` (tool x) and `b` (tool y), and its API. */
export interface ApiSetup extends ReturnType<typeof setUpHub> {
  readonly a: ScriptedServer;
  readonly b: ScriptedServer;
  readonly edits: ManifestEdit[];
  /** Sends a request; `path` is below /v1. */
  ask(
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
    path: string,
    body?: object,
  ): Promise<ApiAnswer>;
  /** Sends a request with this text as its body to the API itself. */
  fetch(method: string, path: string, body?: string): Promise<ApiAnswer>;
  /** The endpoints, as `GET /v1/hub`. */
  readonly routes: readonly string[];
  /** The folder of its files: HOME and the manifest `toolmux.json`. */
  readonly folder: string;
  /** The events of the hub, or of another path, until `signal` is aborted. */
  follow(
    query: string,
    signal: AbortSignal,
    path?: string,
  ): AsyncIterable<EventDocument | { readonly first: number }>;
  /** How often the hub was told to end. */
  readonly stops: () => number;
}

/** Calls `find` every 10 ms until it returns something that is not undefined or false; at most for 5 s. */
export async function eventually<Found>(
  what: string,
  find: () => Promise<Found> | Found,
): Promise<Exclude<Found, undefined | false>> {
  const deadline = performance.now() + 5000;
  for (;;) {
    const found = await find();
    if (found !== undefined && found !== false) return found as Exclude<Found, undefined | false>;
    if (performance.now() > deadline) throw new Error(`waited for ${what}`);
    await sleep(10);
  }
}

/** Runs a test with a hub whose API is reached over its socket. */
export async function withApi(run: (setup: ApiSetup) => Promise<void>): Promise<void> {
  const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
  const modes = [
    modeOf("only-a", { or: [{ servers: ["a"] }, { tools: ["none"] }] }, { title: "A", icon: "1" }),
  ];
  const servers = { a: {}, b: {} };
  const made = setUpHub({ a, b, added: new ScriptedServer("z") }, { servers, modes });
  const { hub } = made;
  // It is there to be added while the hub runs.
  hub.remove("added");
  const edits: ManifestEdit[] = [];
  let stopCount = 0;
  const redact = (text: string): string => text.replaceAll("hunter2", "[redacted]");
  const events = new EventRing(hub, redact);
  const readServer: ControlledHub["readServer"] = (name, entry) =>
    "command" in entry
      ? Promise.resolve(stdioSpecOf(name, { args: [JSON.stringify(entry)] }))
      : Promise.reject(new HubError("manifestInvalid", "servers: no command"));
  const folder = mkdtempSync(join(tmpdir(), "tmx-"));
  const manifest = join(folder, "toolmux.json");
  writeFileSync(manifest, '{"servers":{"a":{"command":"no-such-program"}}}');
  const env = { HOME: folder, TOOLMUX_RUN_DIR: folder, PATH: "/usr/bin:/bin" };
  const choice = { config: [manifest] };
  const context: HostContext = {
    env,
    cwd: folder,
    platform: process.platform,
    signal: NEVER,
    uncaughtErrorHandlers: new Set(),
    hangupHandlers: new Set(),
  };
  const controlled: ControlledHub = {
    ...makeHubSetup({ choice, context, log: () => {}, readServer }),
    agents: makeHubAgents({ hub, choice, context, log: () => {}, redact }),
    hub,
    events,
    redact,
    identity: () => IDENTITY,
    describe: (spec) => `start ${spec.name} hunter2`,
    remedies: ({ code }) => [`Mend ${code}.`],
    fleet: async () => FLEET,
    readServer,
    readEntry: async (name) => ({
      file: manifest,
      entry: await readServerEntry(manifest, name),
    }),
    edit: (change) => Promise.resolve(void edits.push(change)),
    reload: () => Promise.resolve(),
    rejection: () => undefined,
    logFault: () => {},
    stop: () => stopCount++,
  };
  const app = makeControlApi(controlled);
  const environment = { env, platform: process.platform };
  let socket: HubSocket | undefined;
  // Timers of the hub do not keep the process alive, and without a socket nothing else does.
  const alive = setInterval(() => {}, 1000);
  try {
    socket = await openHubSocket({
      ...environment,
      file: () => ({ ...IDENTITY, manifestId: "id" }),
      fetch: async (request) => app.fetch(request),
      warn: (text) => {
        throw new Error(text);
      },
    });
    const fetch = async (method: string, path: string, body?: string): Promise<ApiAnswer> => {
      const url = `http://localhost/v1${path}`;
      const response = await app.fetch(
        new Request(url, { method, ...(body !== undefined && { body }) }),
      );
      const text = await response.text();
      return { status: response.status, document: text === "" ? {} : (JSON.parse(text) as Json) };
    };
    const find = async () => {
      const [running] = await findRunningHubs(environment);
      return running ?? assert.fail("the hub was not found");
    };
    const ask = async (method: string, path: string, body?: object): Promise<ApiAnswer> => {
      const running = await find();
      try {
        const request = { method: method as "GET", path, signal: NEVER };
        const answer = await askHub(running, body === undefined ? request : { ...request, body });
        assertDeclared(method, path, answer.status);
        return { status: answer.status, document: (answer.document ?? {}) as Json };
      } catch (error) {
        if (!(error instanceof HubError)) throw error;
        const { code, message } = error;
        return { status: 400, document: { error: { code, message } } };
      }
    };
    const follow = async function* (query: string, signal: AbortSignal, path = "/events") {
      const running = await find();
      for await (const item of followEvents(running, query, signal, path)) {
        yield item.kind === "gap" ? { first: item.first } : item.event;
      }
    };
    const routes = app.routes
      .filter(({ path }) => path.startsWith("/v1/"))
      .map(({ method, path }) => `${method} ${path.replace(/\{.*\}/, "")}`);
    const stops = (): number => stopCount;
    await run({ ...made, a, b, edits, ask, fetch, routes, folder, follow, stops });
  } finally {
    clearInterval(alive);
    events.close();
    await socket?.close();
    await hub.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Declares a test of a hub with its control API; see `withApi`. */
export function test(name: string, run: (setup: ApiSetup) => Promise<void>): void {
  it(name, () => withApi(run));
}

/** Connects the client: initializes it, and lists its tools. */
export async function connect({ client }: ApiSetup): Promise<void> {
  await initialize(client);
  await listToolNames(client);
}

export function errorOf(document: Json): { readonly code: string; readonly message: string } {
  return document["error"] as never;
}

/** Checks that the endpoint which answers a request declares the status of the answer. */
function assertDeclared(method: string, path: string, status: number): void {
  const [pathname = ""] = path.split("?");
  const found = Object.entries<Endpoint>(ENDPOINTS).find(([route, { hasSlashes }]) => {
    const pattern = route.replaceAll(/:\w+/g, hasSlashes === true ? ".+" : "[^/]+");
    return new RegExp(`^${pattern}$`).test(`${method} ${pathname}`);
  });
  assert.ok(found !== undefined, `${method} ${path} is in no row`);
  const [route, { answer, events, statuses }] = found;
  const declared = statuses ?? [answer === undefined && events === undefined ? 204 : 200];
  assert.ok(
    declared.some((one) => one === status),
    `${route} answered with ${status}`,
  );
}
