import { openLogBeside } from "../command-log.ts";
import { suggestName } from "../../manifest/problems.ts";
import { count, formatAge } from "../../base/format.ts";
import { textOf } from "../../base/bytes.ts";
import { type Kind, type ListedItem, readItem } from "../../catalog/listing.ts";
import type { ExposureNote } from "../../catalog/exposure.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type { CatalogDocument, ServerDocument, ToolsDocument } from "../../control/schemas.ts";
import type { Hub } from "../../hub/hub.ts";
import { FULL_MODE, type Manifest, presentationOf, tableNameOf } from "../../manifest/manifest.ts";
import { describeModeFault } from "../../manifest/modes.ts";
import { systemClock, abortable } from "../../base/clock.ts";
import { type ClientAcceptor, HubClient } from "../../frontend/hub-client.ts";
import { describeUrl } from "../../operations/server-description.ts";
import { type CommandContext, type Invocation, LISTS } from "../command.ts";
import { openStartProgress, startedServersOf } from "./status.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { openHub, openSnapshots, withoutEarlyStarts } from "../../host/open-hub.ts";
import { usageError } from "../../base/errors.ts";
import { formatFailureLine, sanitizeLine } from "../../terminal/log.ts";
import { formatJson, formatStartingTime } from "../../terminal/terminal.ts";
import { ask, describeHub, type HubOptions, hubToUse, withHubClient } from "../running-hub.ts";
import { serverStatesOf, type ServerState } from "../../hub/server-state.ts";

type List = (typeof LISTS)[number];
type EntryList = Exclude<List, "servers">;

/** The kinds of catalog entries that each list shows, and the noun for one entry. */
const LIST_KINDS: Readonly<Record<EntryList, { kinds: readonly Kind[]; noun: string }>> = {
  tools: { kinds: ["tools"], noun: "tool" },
  prompts: { kinds: ["prompts"], noun: "prompt" },
  resources: { kinds: ["resources", "resourceTemplates"], noun: "resource" },
  skills: { kinds: ["skills"], noun: "skill" },
};

interface ListOptions extends HubOptions {
  readonly all: boolean;
  readonly fresh: boolean;
  readonly mode: string | undefined;
}

/** The list to print, and the servers to include; an empty `servers` means all. */
interface Request {
  readonly what: List;
  readonly servers: readonly string[];
}

/**
 * `toolmux list`: prints what a running hub offers, or else the saved listings of servers (what they listed in earlier
 * runs). Servers without a saved listing are started; with `--fresh`, all servers are. The command waits until each of
 * them is connected, has failed or exceeds its `connectTimeout`.
 */
export async function list(
  invocation: Invocation<ListOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const running = await hubToUse(invocation, context);
  if (running !== undefined) {
    const code = await listInHub(running, invocation, context);
    if (code !== undefined) return code;
  }
  const line = options.json ? undefined : context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  const { mode = FULL_MODE } = options;
  const fault = describeModeFault(mode, loaded.modes ?? []);
  if (fault !== undefined) throw usageError(fault);
  let request: Request = { what: "tools", servers: [] };
  const { hub, bus, manifest, close } = await openHub(loaded, context, log, {
    authorizes: false,
    snapshots: openSnapshots(context, log, options.fresh ? "nothing" : "newest"),
    choose(all) {
      request = readListRequest(
        args,
        all.servers.map(({ name }) => name),
      );
      const chosen = { ...all, servers: pickServers(all, request.servers) };
      return options.fresh ? chosen : withoutEarlyStarts(chosen);
    },
  });
  const { what } = request;
  const started = options.fresh ? startedServersOf(manifest) : undefined;
  const endProgress = line && openStartProgress(started, bus, line, systemClock);
  try {
    const limits = { modes: () => [mode], hasOperatorMode: false };
    const { serverInfo } = hub;
    const accept: ClientAcceptor["accept"] = (transport, signal) =>
      hub.accept(transport, signal, undefined, undefined, limits);
    const client = await HubClient.connect({ serverInfo, accept }, context.signal);
    await abortable(hub.settled(), context.signal);
    endProgress?.();
    const statuses = serverStatesOf(manifest, hub);
    const code = exitCode(statuses);
    if (what === "servers") printServers(manifest, statuses, options, context);
    else {
      const entries = await readEntries(what, { client, hub, statuses, mode });
      printEntries(what, entries, options, context);
    }
    if (what !== "servers") printFailures(statuses, context);
    if (code === 0 && !options.json) {
      context.terminal.print(
        what === "servers" ? countServers(statuses) : countEntries(what, statuses, hub, mode),
      );
      printAge(statuses, context);
    }
    return code;
  } finally {
    endProgress?.();
    await close();
  }
}

/** Reads the request from the command line: a list, a list and servers, or only servers. @throws {HubError} usage */
function readListRequest(words: readonly string[], names: readonly string[]): Request {
  const [first = "tools", ...rest] = words;
  const what = LISTS.find((one) => one === first);
  if (what !== undefined) return { what, servers: rest };
  if (names.includes(first)) return { what: "tools", servers: words };
  const known = `${LISTS.slice(0, -1).join(", ")} and ${LISTS.at(-1)}`;
  const near = suggestName(first, [...LISTS, ...names]);
  throw usageError(`"${first}" is neither a server nor a list. The lists are ${known}.${near}`);
}

/**
 * Prints what a running hub offers.
 * @returns the exit code; undefined for skills, which a hub does not list for clients of its control socket
 */
async function listInHub(
  hub: RunningHub,
  { args, options }: Invocation<ListOptions>,
  context: CommandContext,
): Promise<number | undefined> {
  const { servers } = await ask<{ servers: ServerDocument[] }>(hub, { path: "/servers" }, context);
  const names = servers.map(({ name }) => name);
  const { what, servers: wanted } = readListRequest(args, names);
  if (what === "skills") return undefined;
  checkNames({ what, servers: wanted }, names);
  if (what === "servers") {
    const chosen = servers.filter(({ name }) => wanted.length === 0 || wanted.includes(name));
    printServersOfHub(chosen, hub, options, context);
    return codeOf(chosen);
  }
  const { mode } = options;
  const hidden =
    mode === undefined
      ? []
      : (
          await ask<ToolsDocument>(
            hub,
            { path: `/tools?mode=${encodeURIComponent(mode)}` },
            context,
          )
        ).notes;
  const catalog = await ask<CatalogDocument>(hub, { path: "/catalog" }, context);
  const isShown = (server: string): boolean => wanted.length === 0 || wanted.includes(server);
  const { kinds, noun } = LIST_KINDS[what];
  const serverByName = new Map(
    kinds.flatMap((kind) => catalog[kind].map(({ name, server }) => [name, server] as const)),
  );
  const lists = await withHubClient(
    hub,
    context,
    (client) => Promise.all(kinds.map((kind: Kind) => client.list(kind))),
    { mode },
  );
  const shown = lists.map((items) =>
    items.filter(({ key }) => isShown(serverByName.get(key) ?? "")),
  );
  const hiddenByMode = hidden.flatMap(({ server, tool, kind, text }) =>
    kind === "mode" && what === "tools"
      ? [{ server, remoteName: tool, kind: "filtered" as const, text }]
      : [],
  );
  const notes = [...notesInHub(what, catalog), ...hiddenByMode].filter(({ server }) =>
    isShown(server),
  );
  const entries = {
    lists: shown,
    serverOf: (name: string) => serverByName.get(name) ?? "",
    notes,
    ages: undefined,
  };
  printEntries(what, entries, options, context);
  const number = shown.flat().length;
  const code = number > 0 ? 0 : codeOf(servers.filter(({ name }) => isShown(name)));
  if (options.json) return code;
  const { terminal } = context;
  const others = servers.filter(
    (server) => isShown(server.name) && server.goal !== "down" && !isUsable(server),
  );
  for (const { name, statusText } of others) terminal.note(sanitizeLine(`${name}: ${statusText}`));
  if (others.length > 0) terminal.note("What to do: toolmux status");
  const usable = servers.filter(({ name }) => isShown(name)).length - others.length;
  terminal.print(`${count(number, noun)} of ${count(usable, "server")}`);
  printHub(hub, context);
  return code;
}

/** The exit code: 3 if none of the servers is available, though one is wanted. */
function codeOf(servers: readonly ServerDocument[]): number {
  return servers.some(isUsable) || servers.every(({ goal }) => goal === "down") ? 0 : 3;
}

function isUsable({ state }: ServerDocument): boolean {
  return state === "connected" || state === "idle";
}

function printHub(hub: RunningHub, { terminal }: CommandContext): void {
  const text = `in ${describeHub(hub)}; to start the servers here: toolmux list --fresh`;
  terminal.print(terminal.stdout.colors.dim(sanitizeLine(text)));
}

function printServersOfHub(
  servers: readonly ServerDocument[],
  hub: RunningHub,
  { json }: ListOptions,
  context: CommandContext,
): void {
  const { terminal } = context;
  if (json) {
    terminal.printJson({ source: "hub", servers });
    return;
  }
  const rows = servers.map((server) => [
    tableNameOf(server),
    server.state === "disconnected" ? "stopped" : server.state,
    String(server.tools ?? ""),
    server.transport ?? "",
    server.endpoint ?? "",
    isUsable(server) ? "" : (server.lastError?.message ?? ""),
  ]);
  terminal.printTable(["SERVER", "STATE", "TOOLS", "TRANSPORT", "ENDPOINT", "ERROR"], rows);
  printHub(hub, context);
}

/** The hub's notes about one list: which entries it hides, renames or changes, and why. */
function notesInHub(what: EntryList, { notes }: CatalogDocument): readonly EntryNote[] {
  const kinds: readonly string[] = LIST_KINDS[what].kinds;
  return notes
    .filter((note) => kinds.includes(note.list))
    .map(({ server, own, kind, text }) => ({
      server,
      remoteName: own,
      kind: kind as EntryNote["kind"],
      text,
    }));
}

/** Checks that the hub has all named servers. @throws {HubError} usage */
function checkNames({ servers }: Request, known: readonly string[]): void {
  const unknown = servers.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw usageError(`There is no server "${unknown}".${suggestName(unknown, known)}`);
}

/** The named servers, or all. @throws {HubError} usage */
function pickServers({ servers }: Manifest, names: readonly string[]): Manifest["servers"] {
  const known = servers.map(({ name }) => name);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw usageError(`There is no server "${unknown}".${suggestName(unknown, known)}`);
  return names.length === 0 ? servers : servers.filter(({ name }) => names.includes(name));
}

/** Prints the age of the oldest saved listing that is shown; prints nothing if no saved listing is shown. */
function printAge(states: readonly ServerState[], { terminal }: CommandContext): void {
  const oldest = oldestListing(states);
  if (oldest === undefined) return;
  const age = formatAge(Date.now() - oldest);
  terminal.print(
    terminal.stdout.colors.dim(`listed ${age}; to ask the servers now: toolmux list --fresh`),
  );
}

function oldestListing(states: readonly ServerState[]): number | undefined {
  const times = states.flatMap((state) => (state.at === "idle" ? (state.listedAt ?? []) : []));
  return times.length === 0 ? undefined : Math.min(...times);
}

/** The hub, a client of it, and the states of its servers. */
interface Listed {
  readonly client: HubClient;
  readonly hub: Hub;
  readonly statuses: readonly ServerState[];
  readonly mode: string;
}

async function readEntries(
  what: EntryList,
  { client, hub, statuses, mode }: Listed,
): Promise<Entries> {
  const { kinds } = LIST_KINDS[what];
  // The in-process client speaks a protocol version before 2026-07-28 (legacy), which has no list of skills. Skills are
  // read from the hub's catalog instead.
  const lists = await Promise.all(
    kinds.map((kind) =>
      kind === "skills" ? Promise.resolve(skillsOf(hub.catalogOfMode(mode))) : client.list(kind),
    ),
  );
  const findRoute = (name: string) =>
    kinds.map((kind) => hub.catalog[kind].find(name)).find((it) => it !== undefined);
  return {
    lists,
    serverOf: (name) => findRoute(name)?.server ?? "",
    notes: [...notesOf(what, hub), ...hiddenBy(mode, what, hub)],
    ages: agesToJson(statuses),
  };
}

/** The entries to print, and what is known about them. */
interface Entries {
  /** One list for each kind of `LIST_KINDS`. */
  readonly lists: readonly (readonly ListedItem[])[];
  /** The server of an entry, by the name that clients see (with the server's prefix). */
  readonly serverOf: (name: string) => string;
  readonly notes: readonly EntryNote[];
  /** The times of the shown saved listings, as JSON; undefined if none is shown. */
  readonly ages: object | undefined;
}

type EntryNote = Pick<ExposureNote, "server" | "remoteName" | "kind" | "text">;

function printEntries(
  what: EntryList,
  { lists, serverOf, notes, ages }: Entries,
  { json, all }: Pick<ListOptions, "json" | "all">,
  { terminal }: CommandContext,
): void {
  const { kinds, noun } = LIST_KINDS[what];
  const exposureNotes = all ? notes : [];
  if (json) {
    // Prints the entries' bytes as clients get them, because parsing would change the spelling of numbers.
    const members = kinds.map((kind, i) => {
      const items = lists[i] ?? [];
      return `"${kind}":[${items.map(({ bytes }) => `\n${textOf(bytes)}`).join(",")}\n]`;
    });
    const notesJson = exposureNotes.map((note) => noteToJson(noun, note));
    const more = all ? `,\n"remarks":${formatJson(notesJson)}` : "";
    const listedAt = ages === undefined ? "" : `,\n"listedAt":${formatJson(ages)}`;
    terminal.printJsonText(`{${members.join(",\n")}${more}${listedAt}}`);
    return;
  }
  const rows = lists
    .flat()
    .map(({ key: name, bytes }) => [
      name,
      serverOf(name),
      firstLine(JSON.parse(textOf(bytes)) as DescribedEntry),
    ]);
  const head = [noun.toUpperCase(), "SERVER", "DESCRIPTION"];
  terminal.printTable(head, rows);
  const noteRows = exposureNotes.map(({ remoteName, server, kind, text }) => {
    const state = STATES[kind];
    return [remoteName, server, state, text];
  });
  if (rows.length > 0 && noteRows.length > 0) terminal.print();
  terminal.printTable(["OWN NAME", "SERVER", "STATE", "WHY"], noteRows);
}

/** The time of each saved listing, by server name; undefined if all servers were asked now. */
function agesToJson(states: readonly ServerState[]): object | undefined {
  const ages = states.flatMap((state) =>
    state.at === "idle" && state.listedAt !== undefined
      ? [[state.server, new Date(state.listedAt).toISOString()] as const]
      : [],
  );
  return ages.length === 0 ? undefined : Object.fromEntries(ages);
}

/** The skills that clients of protocol 2026-07-28 (modern) see. */
function skillsOf({ skills }: Catalog): readonly ListedItem[] {
  return skills.entries.flatMap(({ bytes }) => readItem(bytes, "skills") ?? []);
}

/** The entries that a mode hides. */
function hiddenBy(mode: string, what: EntryList, hub: Hub): readonly EntryNote[] {
  const shown = hub.catalogOfMode(mode);
  return LIST_KINDS[what].kinds.flatMap((kind) =>
    hub.catalog[kind].entries.flatMap(({ name, server, remoteName }) =>
      shown[kind].entry(name) === undefined
        ? [{ server, remoteName, kind: "filtered" as const, text: `Mode "${mode}" hides it.` }]
        : [],
    ),
  );
}

function notesOf(what: EntryList, hub: Hub): readonly ExposureNote[] {
  return hub.catalog.notes.filter((note) => LIST_KINDS[what].kinds.includes(note.list));
}

/**
 * A note about an entry as `{server, tool, kind, text}`. If the entry is not a tool, the key `prompt`, `resource` or
 * `skill` replaces `tool`. The value of this key is the entry's name at its server, without the prefix.
 */
function noteToJson(noun: string, { server, remoteName, kind, text }: EntryNote): object {
  return { server, [noun]: remoteName, kind, text };
}

/** How `list --all` describes what happened to an entry, by the kind of the hub's note about it. */
const STATES: Readonly<
  Record<ExposureNote["kind"], "renamed" | "hidden" | "changed" | "not used">
> = {
  filtered: "hidden",
  hidden: "hidden",
  duplicate: "hidden",
  clash: "hidden",
  unreadable: "hidden",
  shortened: "renamed",
  conformed: "changed",
  conflict: "changed",
  idleFilter: "not used",
  idleOverride: "not used",
};

function countEntries(
  what: EntryList,
  statuses: readonly ServerState[],
  hub: Hub,
  mode: string,
): string {
  const { kinds, noun } = LIST_KINDS[what];
  const known = statuses.filter((state) => "tools" in state);
  const catalog = hub.catalogOfMode(mode);
  const shown = kinds.reduce((sum, kind) => sum + catalog[kind].size, 0);
  const notes = [...notesOf(what, hub), ...hiddenBy(mode, what, hub)];
  const hidden = notes.filter(({ kind }) => STATES[kind] === "hidden").length;
  const more = hidden === 0 ? "" : `; ${hidden} hidden`;
  return `${count(shown, noun)} of ${count(known.length, "server")}${more}`;
}

const STATE_COLORS = {
  connected: "green",
  idle: "dim",
  starting: "yellow",
  failed: "red",
  disabled: "dim",
} as const satisfies Record<ServerState["at"], string>;

function countServers(serverStates: readonly ServerState[]): string {
  const states = (["connected", "idle", "starting", "failed", "disabled"] as const).map((state) => {
    const number = serverStates.filter(({ at }) => at === state).length;
    return number === 0 ? "" : `${number} ${state}`;
  });
  return [count(serverStates.length, "server"), ...states.filter(Boolean)].join(", ");
}

interface DescribedEntry {
  readonly description?: unknown;
  readonly title?: unknown;
  readonly frontmatter?: { readonly description?: unknown } | null;
}

/** The first line of the description, else of the title; a skill's description may be in its frontmatter. */
function firstLine({ description: listed, title, frontmatter }: DescribedEntry): string {
  const description = listed ?? frontmatter?.description;
  const text = typeof description === "string" && description.trim() !== "" ? description : title;
  return typeof text === "string" ? text.trim().replace(/\n[^]*/, "") : "";
}

function printServers(
  { servers }: Manifest,
  statuses: readonly ServerState[],
  { json }: ListOptions,
  { terminal }: CommandContext,
): void {
  const urls = new Map(
    servers.flatMap((spec) =>
      spec.kind === "remote" ? [[spec.name, describeUrl(spec.url)] as const] : [],
    ),
  );
  const shownAs = new Map(servers.map((spec) => [spec.name, presentationOf(spec)]));
  if (json) {
    const entries = statuses.map((it) => ({ ...toJson(it, urls), ...shownAs.get(it.server) }));
    terminal.printJson({ servers: entries });
    return;
  }
  // Transport and URL columns are only shown if there is an HTTP server.
  const transportCells = (state: ServerState): readonly string[] => {
    const transport = state.at === "connected" ? state.connection.httpTransport : undefined;
    return urls.size === 0 ? [] : [transport ?? "", urls.get(state.server) ?? ""];
  };
  const rows = statuses.map((state) => [
    tableNameOf({ name: state.server, ...shownAs.get(state.server) }),
    {
      text: state.at === "starting" ? formatStartingTime(state.elapsed) : state.at,
      color: terminal.stdout.colors[STATE_COLORS[state.at]],
    },
    "tools" in state ? String(state.tools) : "",
    ...transportCells(state),
    state.at === "failed" ? formatFailureLine(state.cause) : "",
  ]);
  const titles = [
    "SERVER",
    "STATE",
    "TOOLS",
    ...(urls.size === 0 ? [] : ["TRANSPORT", "URL"]),
    "ERROR",
  ];
  terminal.printTable(titles, rows);
}

/**
 * A server's state as `{name, state, url?, tools?, way?, era?, protocolVersion?, elapsed?, error?: {code, message,
 * step?, stderr?}}`; `url` and `way` only for HTTP servers.
 */
function toJson(serverState: ServerState, urls: ReadonlyMap<string, string>): object {
  const { server: name, at } = serverState;
  const url = urls.get(name);
  const state = { state: at, ...(url !== undefined && { url }) };
  if (serverState.at === "connected") {
    const { peer, httpTransport } = serverState.connection;
    const { era, protocolVersion } = peer ?? {};
    return { name, ...state, tools: serverState.tools, way: httpTransport, era, protocolVersion };
  }
  if (serverState.at === "idle") {
    const { tools, listedAt } = serverState;
    const listed = listedAt === undefined ? {} : { listedAt: new Date(listedAt).toISOString() };
    return { name, ...state, tools, ...listed };
  }
  if (serverState.at === "disabled") return { name, ...state };
  if (serverState.at === "starting")
    return { name, ...state, elapsed: Math.round(serverState.elapsed) };
  const { message, code, step, stderr } = serverState.cause;
  const stderrLines = stderr.length > 0 ? { stderr } : {};
  return {
    name,
    ...state,
    error: { code, message, ...(step !== undefined && { step }), ...stderrLines },
  };
}

function printFailures(standings: readonly ServerState[], { terminal }: CommandContext): void {
  for (const state of standings) {
    if (state.at === "starting") {
      terminal.note(`${state.server}: ${formatStartingTime(state.elapsed)}`);
    }
    if (state.at === "failed") {
      terminal.note(`${state.server}: ${formatFailureLine(state.cause)}`);
    }
  }
  if (standings.some(({ at }) => at === "failed")) terminal.note("What to do: toolmux status");
}

/** The exit code is 3 if servers are enabled and none of them is available, else 0. */
function exitCode(statuses: readonly ServerState[]): number {
  const enabled = statuses.filter(({ at }) => at !== "disabled");
  return enabled.length === 0 || enabled.some((state) => "tools" in state) ? 0 : 3;
}
