import assert from "node:assert/strict";
import { VERSION } from "../../src/base/version.ts";
import { makeDashboard } from "../../src/dashboard/dashboard.ts";
import type { DashboardHubs, HubEntry } from "../../src/dashboard/hubs.ts";
import { loadPage } from "../../src/dashboard/page-files.ts";
import type { FleetDocument, ServerDocument } from "../../src/dashboard/page/documents.ts";
import { listenOnLoopback, openPageOrigin } from "../../src/dashboard/page-origin.ts";
import {
  type Browser,
  type BrowserPage,
  skipWithoutChromium,
  withBrowser,
  withPageOf,
} from "../harness/chromium.ts";
import { shareInSuite } from "../harness/hub.ts";

const NOT_FOUND = { error: { code: "methodNotFound", message: "There is no such endpoint." } };
const MANIFEST = "/home/me/.config/toolmux/toolmux.toml";

/** A server as the control API describes it; `about` changes that. */
export function serverDocument(name: string, about: Partial<ServerDocument> = {}): ServerDocument {
  return {
    name,
    state: "connected",
    since: Date.now() - 60_000,
    goal: "up",
    origin: "manifest",
    transport: "stdio",
    endpoint: `start ${name}`,
    statusText: "",
    tools: 5,
    shown: 3,
    tokens: 1200,
    calls: 0,
    inFlight: 0,
    connections: [],
    ...about,
  };
}

/** A hub that uses server `a` of two other machines; names of machines and servers, and what NATS says, have `text`. */
export function fleetDocument(text: string): FleetDocument {
  const machine = { version: text, servers: [text, "a"], open: 3, silent: 40 };
  return {
    isConfigured: true,
    url: [text],
    connected: text,
    name: text,
    wanted: text,
    denied: [text],
    exported: [text],
    requests: { total: 2, refused: 1, open: 0 },
    machines: [
      { ...machine, name: text, roundTrip: 0.4 },
      { ...machine, name: "h2", leaving: true },
    ],
    imported: [
      { server: "a", fleet: text, subject: text, machines: [text, "h2"] },
      { server: "b", fleet: "b", subject: text, machines: [] },
    ],
  };
}

/** The control API of a hub whose documents and events a test writes. */
export class PageHub {
  /**
   * By method and path below /v1, without the query. An endpoint that is not here is answered as by an older hub; a
   * promise keeps its requests waiting.
   */
  readonly documents: Record<string, unknown>;
  servers: readonly ServerDocument[] = [];
  /** The approvals of further hubs, by their ids. */
  otherApprovals: Readonly<Record<string, readonly object[]>> = {};
  /** Further hubs that the dashboard lists. They answer no request but those for their approvals. */
  others: readonly (Partial<HubEntry> & Pick<HubEntry, "id">)[] = [];
  /** All requests: method, path and query, and the body. */
  readonly requests: { readonly line: string; readonly body: string }[] = [];
  /** The requests that the page has given up, by method and path. */
  readonly aborted: string[] = [];
  /** The events of conversations with agents, by their ids. */
  readonly runEvents: Record<string, object[]> = {};
  readonly #runStreams = new Map<ReadableStreamDefaultController<Uint8Array>, string>();
  readonly #streams = new Set<ReadableStreamDefaultController<Uint8Array>>();
  #seq = 10;
  #id = 1;
  #isRunning = true;

  constructor(documents: Readonly<Record<string, unknown>> = {}) {
    this.documents = {
      "GET /calls": { calls: [] },
      "GET /clients": { clients: [] },
      "GET /alerts": { alerts: [] },
      "GET /tools": { tools: [], notes: [] },
      "GET /activity": { since: 0, calls: [] },
      "GET /limits": { limits: [] },
      "GET /usage": { since: 0, until: Date.now(), step: 120_000, tools: [] },
      "GET /log": { entries: [], next: 10 },
      "GET /secrets": { secrets: [] },
      "GET /client-apps": { clients: [] },
      "POST /check": { ok: true, problems: [] },
      ...documents,
    };
  }

  get seq(): number {
    return this.#seq;
  }

  get openStreams(): number {
    return this.#streams.size;
  }

  /** The ids of the conversations that are followed. */
  get followedRuns(): readonly string[] {
    return [...this.#runStreams.values()];
  }

  /** Sends an event of a conversation. */
  emitRun(id: string, event: object): void {
    const events = (this.runEvents[id] ??= []);
    const block = runBlock({ seq: events.length + 1, at: Date.now(), ...event });
    events.push(event);
    for (const [stream, run] of this.#runStreams) if (run === id) stream.enqueue(block);
  }

  /** Sends an event to all readers. */
  emit(event: object): void {
    this.#send(`data: ${JSON.stringify({ seq: ++this.#seq, at: Date.now(), ...event })}\n\n`);
  }

  emitGap(): void {
    this.#send(`event: gap\ndata: {"first":${this.#seq}}\n\n`);
  }

  #send(text: string): void {
    for (const stream of this.#streams) stream.enqueue(new TextEncoder().encode(text));
  }

  /** Ends all streams of events. */
  breakStreams(): void {
    for (const stream of [...this.#streams, ...this.#runStreams.keys()]) stream.close();
    this.#streams.clear();
    this.#runStreams.clear();
  }

  stop(): void {
    this.#isRunning = false;
    this.breakStreams();
  }

  /** Starts as another process: with another id, and numbers of events from the beginning. */
  start(): void {
    this.#isRunning = true;
    this.#id++;
    this.#seq = 3;
  }

  get hubs(): DashboardHubs {
    const entry = () => ({
      id: `hub-${this.#id}`,
      pid: this.#id,
      name: "toolmux",
      version: VERSION,
      cwd: "/home/me",
      manifest: [MANIFEST],
      endpoints: ["stdio"],
      startedAt: this.#id,
    });
    return {
      list: () => {
        const others = this.others.map((other) => ({ ...entry(), ...other }));
        return Promise.resolve(this.#isRunning ? [entry(), ...others] : []);
      },
      forward: (id, { method, path, body, signal }) => {
        const text = body === undefined ? "" : new TextDecoder().decode(body);
        this.requests.push({ line: `${method} ${path}`, body: text });
        const approvals = this.otherApprovals[id];
        if (approvals !== undefined && path === "/v1/approvals")
          return Promise.resolve(Response.json({ approvals }));
        if (approvals !== undefined && path.startsWith("/v1/events?"))
          return Promise.resolve(this.#openStream(signal));
        if (!this.#isRunning || id !== entry().id) {
          const error = { code: "hubNotRunning", message: "The hub is not running." };
          return Promise.resolve(Response.json({ error }, { status: 404 }));
        }
        signal.addEventListener("abort", () => this.aborted.push(`${method} ${path}`), {
          once: true,
        });
        return this.#answer(method, path, signal);
      },
    };
  }

  async #answer(method: string, path: string, signal: AbortSignal): Promise<Response> {
    const route = path.slice("/v1".length).split("?")[0] ?? "";
    if (route === "/events") return this.#openStream(signal);
    const [, run = ""] = /^\/runs\/([^/]+)\/events$/.exec(route) ?? [];
    if (this.runEvents[run] !== undefined) {
      const after = Number(new URLSearchParams(path.split("?")[1]).get("after"));
      return this.#openRunStream(run, after, signal);
    }
    const document = await this.#documentOf(`${method} ${route}`, route);
    return document === undefined
      ? Response.json(NOT_FOUND, { status: 404 })
      : Response.json(document);
  }

  #documentOf(endpoint: string, route: string): unknown {
    if (endpoint in this.documents) return this.documents[endpoint];
    if (endpoint === "GET /servers") return { servers: this.servers };
    if (endpoint === "GET /hub") {
      const endpoints = ["stdio", "http://127.0.0.1:8700/mcp"];
      const [first] = [this.#id];
      return { pid: first, name: "toolmux", seq: this.#seq, manifest: [MANIFEST], endpoints };
    }
    const [, name] = /^\/servers\/([^/]+)$/.exec(route) ?? [];
    return this.servers.find((server) => server.name === decodeURIComponent(name ?? ""));
  }

  #openRunStream(run: string, after: number, signal: AbortSignal): Response {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(":\n\n"));
        for (const [at, event] of (this.runEvents[run] ?? []).entries())
          if (at >= after) controller.enqueue(runBlock({ seq: at + 1, at: Date.now(), ...event }));
        this.#runStreams.set(controller, run);
        signal.addEventListener("abort", () => this.#runStreams.delete(controller), { once: true });
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  }

  #openStream(signal: AbortSignal): Response {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(":\n\n"));
        this.#streams.add(controller);
        signal.addEventListener("abort", () => this.#streams.delete(controller), { once: true });
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  }
}

function runBlock(event: object): Uint8Array {
  return new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`);
}

/** Noticed in every page: what the browser refused, and errors of scripts. */
const WATCH = `
  window.refused = [];
  addEventListener("securitypolicyviolation", (event) => refused.push(event.violatedDirective + " " + event.sourceFile));
  addEventListener("error", (event) => refused.push(event.message));
  addEventListener("unhandledrejection", (event) => refused.push(String(event.reason)));
`;

/** A browser for all tests of a suite; each of its pages has its own profile. */
export function sharedBrowser(): () => Browser {
  const none: Browser = { address: "" };
  return shareInSuite<Browser>((use) =>
    skipWithoutChromium === false ? withBrowser(use) : use(none),
  );
}

/** Opens the page of a hub in Chromium, and waits until it is connected. */
export async function withPage(
  browser: Browser,
  hub: PageHub,
  run: (page: BrowserPage, openTab: () => Promise<BrowserPage>) => Promise<void>,
): Promise<void> {
  await withPageOf(browser, (page, openTab) =>
    withServedPage(hub, 0, async (url, link) => {
      await page.send("Page.addScriptToEvaluateOnNewDocument", { source: WATCH });
      await page.navigate(link);
      await page.waitFor(IS_LIVE);
      await show(page, "servers");
      await run(page, async () => {
        const tab = await openTab();
        await tab.navigate(`${url}#/servers`);
        return tab;
      });
    }),
  );
}

/** Serves the page of a hub. @param run gets the URL of the page, and a link that opens it */
export async function withServedPage(
  hub: PageHub,
  port: number,
  run: (url: string, link: string) => Promise<void>,
): Promise<void> {
  const origin = await openPageOrigin({ env: {}, platform: "linux" }, () => assert.fail());
  const machine = {
    clients: () =>
      Promise.resolve([
        { name: "cursor", title: "Cursor", exists: true, installed: false, servers: 2 },
      ]),
    startHub: () => Promise.resolve(hub.start()),
    sharingOffers: () => Promise.resolve([]),
  };
  const dashboard = makeDashboard({
    base: "",
    origin,
    hubs: hub.hubs,
    machine,
    page: loadPage,
  });
  const listener = await listenOnLoopback(port, (request, info) => dashboard.fetch(request, info));
  const url = origin.urlOf(listener.port, "/");
  try {
    await run(url, `${url}#token=${dashboard.createToken()}`);
  } finally {
    dashboard.close();
    await listener.close(0);
  }
}

export const IS_LIVE = `document.querySelector(".link").textContent === "live"`;

/** Shows a view, and waits until it has what it reads. */
export async function show(page: BrowserPage, route: string): Promise<void> {
  const [view] = route.split("/");
  await page.evaluate(`location.hash = "#/${route}"`);
  await page.waitFor(
    `document.querySelector("section.view.${view}") && !document.querySelector("[aria-busy]")`,
  );
}
