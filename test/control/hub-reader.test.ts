import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import type { HubError } from "../../src/base/errors.ts";
import { type ControlledHub, makeControlApi } from "../../src/control/api.ts";
import type { ServerTexts } from "../../src/control/documents.ts";
import { EventRing } from "../../src/control/event-ring.ts";
import { availabilityOf, errorOf, type HubReader } from "../../src/control/hub-reader.ts";
import { openHubSocket } from "../../src/control/hub-socket.ts";
import { localHubReader } from "../../src/control/local-hub-reader.ts";
import { runningHubReader } from "../../src/control/running-hub-reader.ts";
import { findRunningHubs } from "../../src/control/running-hubs.ts";
import { HttpServer } from "../../src/frontend/http/server.ts";
import type { Hub } from "../../src/hub/hub.ts";
import type {
  InvalidServer,
  RunnableServer,
  UnsupportedServer,
} from "../../src/manifest/manifest.ts";
import { hubReaderContract, type WithReadHub } from "../contract/hub-reader.ts";
import { manifestFor, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";
import { IDENTITY } from "./controlled-hub.ts";

const NEVER = new AbortController().signal;

const redact = (text: string): string => text.replaceAll("hunter2", "[redacted]");

const texts: ServerTexts = {
  describe: (spec: RunnableServer) => `start ${spec.kind === "stdio" ? spec.command : ""}`,
  remedies: ({ code }: HubError) => [`Mend ${code}.`],
};

const withLocalHub: WithReadHub = async (servers, settings, run) => {
  const manifest = manifestFor(servers, settings);
  const { hub } = setUpHub(servers, settings);
  const readers: HubReader[] = [];
  // Timers of the hub do not keep the process alive.
  const alive = setInterval(() => {}, 1000);
  try {
    await run(({ signal = NEVER, ...options } = {}) => {
      const reader = localHubReader({ hub, manifest, redact, texts }, { signal, ...options });
      readers.push(reader);
      return reader;
    }, hub);
  } finally {
    clearInterval(alive);
    await Promise.all(readers.map((reader) => reader.close()));
    await hub.close();
  }
};

/** What serves a hub on its socket: the control API, and MCP. */
function socketOf(hub: Hub, events: EventRing): (request: Request) => Promise<Response> {
  // The reader uses nothing else of the program that runs the hub.
  const controlled = {
    ...texts,
    hub,
    events,
    redact,
    identity: () => IDENTITY,
    rejection: () => undefined,
    logFault: assert.fail,
  } as unknown as ControlledHub;
  const api = makeControlApi(controlled);
  const mcp = new HttpServer(hub, {
    hostname: "localhost",
    token: undefined,
    maxMessage: 1e6,
    clientTransport: "control",
    logFault: assert.fail,
  });
  return async (request) =>
    new URL(request.url).pathname.startsWith("/mcp")
      ? mcp.fetch(request, { isPathAsSent: true, keepOpen: () => {} })
      : api.fetch(request);
}

const withRunningHub: WithReadHub = async (servers, settings, run) => {
  const { hub } = setUpHub(servers, settings);
  const events = new EventRing(hub, redact);
  const folder = mkdtempSync(join(tmpdir(), "tmx-"));
  const environment = { env: { TOOLMUX_RUN_DIR: folder }, platform: process.platform };
  const readers: HubReader[] = [];
  const socket = await openHubSocket({
    ...environment,
    file: () => ({ ...IDENTITY, manifestId: "id" }),
    fetch: socketOf(hub, events),
    warn: assert.fail,
  });
  try {
    const [running = assert.fail("the hub was not found")] = await findRunningHubs(environment);
    await run(({ signal = NEVER, ...options } = {}) => {
      const reader = runningHubReader(running, { signal, ...options });
      readers.push(reader);
      return reader;
    }, hub);
  } finally {
    await Promise.all(readers.map((reader) => reader.close()));
    events.close();
    await socket.close();
    await hub.close();
    rmSync(folder, { recursive: true, force: true });
  }
};

hubReaderContract("of this process", withLocalHub);
hubReaderContract("that runs, over its socket", withRunningHub);

describe("a reader of a hub of this process", () => {
  const common = { prefix: "web", name: "web" };
  const unsupported: UnsupportedServer = {
    ...common,
    kind: "unsupported",
    enabled: true,
    reason: "it is odd",
  };
  const invalid = {
    ...common,
    kind: "invalid",
    enabled: true,
    problems: [],
    secrets: [],
  } as const satisfies InvalidServer;
  for (const [spec, availability, code] of [
    [unsupported, "failed", "notSupported"],
    [{ ...unsupported, enabled: false }, "disabled", "serverStopped"],
    [invalid, "failed", "serverInvalid"],
    [{ ...invalid, enabled: false }, "disabled", "serverStopped"],
  ] as const) {
    it(`has a server that is ${spec.kind} as ${availability}`, async () => {
      const { hub } = setUpHub({ a: new ScriptedServer() });
      const manifest = { ...manifestFor({}, {}), servers: [spec] };
      const local = { hub, manifest, redact, texts };
      const [server = assert.fail()] = await localHubReader(local, { signal: NEVER }).servers();
      assert.equal(availabilityOf(server), availability);
      assert.equal(errorOf(server).code, code);
      await hub.close();
    });
  }
});

describe("a reader of a hub that runs", () => {
  it("throws hubNotRunning when the hub has ended, and lists no skills", async () => {
    let reader: HubReader | undefined;
    await withRunningHub({}, {}, async (open) => {
      reader = open();
      await assert.rejects(reader.list("skills"), { code: "notSupported" });
    });
    await assert.rejects(reader?.servers() ?? Promise.resolve(), { code: "hubNotRunning" });
  });
});
