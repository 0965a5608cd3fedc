import { count, formatAge } from "../../base/format.ts";
import { textOf } from "../../base/bytes.ts";
import { type Kind, type ListedItem, readItem } from "../../catalog/listing.ts";
import type { ExposureNote } from "../../catalog/catalog.ts";
import type { Hub } from "../../hub/hub.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { systemClock, abortable } from "../../base/clock.ts";
import { HubClient } from "../../frontend/hub-client.ts";
import { describeUrl } from "../server-description.ts";
import { type CommandContext, type Invocation, LISTS } from "../command.ts";
import { openStartProgress, startedServersOf } from "./status.ts";
import { loadManifestOnly, openLogBeside } from "../load-manifest.ts";
import { openHub, openSnapshots, withoutEarlyStarts } from "../open-hub.ts";
import { suggestName, usageError } from "../args.ts";
import { formatFailureLine } from "../../terminal/log.ts";
import { formatJson, formatStartingTime } from "../../terminal/terminal.ts";
import { serverStatesOf, type ServerState } from "../server-state.ts";

type List = (typeof LISTS)[number];
type EntryList = Exclude<List, "servers">;

/** The catalog kinds of each list, and the noun for one entry. */
const LIST_KINDS: Readonly<Record<EntryList, { kinds: readonly Kind[]; noun: string }>> = {
  tools: { kinds: ["tools"], noun: "tool" },
  prompts: { kinds: ["prompts"], noun: "prompt" },
  resources: { kinds: ["resources", "resourceTemplates"], noun: "resource" },
  skills: { kinds: ["skills"], noun: "skill" },
};

interface ListOptions {
  readonly all: boolean;
  readonly fresh: boolean;
  readonly json: boolean;
}

/** What to list, and of which servers; an empty `servers` means all. */
interface Request {
  readonly what: List;
  readonly servers: readonly string[];
}

/**
 * `toolmux list`: prints the saved listings of servers. Servers without one, or all with `--fresh`, are started; it
 * waits until each of them is connected, has failed or exceeds its `connectTimeout`.
 */
export async function list(
  invocation: Invocation<ListOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const line = options.json ? undefined : context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  let request: Request = { what: "tools", servers: [] };
  const { hub, bus, manifest, close } = await openHub(loaded, context, log, {
    authorizes: false,
    snapshots: openSnapshots(context, log, options.fresh ? "nothing" : "newest"),
    choose(all) {
      request = readRequest(args, all);
      const chosen = { ...all, servers: pickServers(all, request.servers) };
      return options.fresh ? chosen : withoutEarlyStarts(chosen);
    },
  });
  const { what } = request;
  const started = options.fresh ? startedServersOf(manifest) : undefined;
  const endProgress = line && openStartProgress(started, bus, line, systemClock);
  try {
    const client = await HubClient.connect(hub, context.signal);
    await abortable(hub.settled(), context.signal);
    endProgress?.();
    const statuses = serverStatesOf(manifest, hub);
    const code = exitCode(statuses);
    if (what === "servers") printServers(manifest, statuses, options, context);
    else await printEntries(what, { client, hub, statuses }, options, context);
    if (what !== "servers") printFailures(statuses, context);
    if (code === 0 && !options.json) {
      context.terminal.print(
        what === "servers" ? countServers(statuses) : countEntries(what, statuses, hub),
      );
      printAge(statuses, context);
    }
    return code;
  } finally {
    endProgress?.();
    await close();
  }
}

/** @throws {HubError} usage */
function readRequest(words: readonly string[], { servers }: Manifest): Request {
  const [first = "tools", ...rest] = words;
  const what = LISTS.find((one) => one === first);
  if (what !== undefined) return { what, servers: rest };
  const names = servers.map(({ name }) => name);
  if (names.includes(first)) return { what: "tools", servers: words };
  const known = `${LISTS.slice(0, -1).join(", ")} and ${LISTS.at(-1)}`;
  const near = suggestName(first, [...LISTS, ...names]);
  throw usageError(`"${first}" is neither a server nor a list. The lists are ${known}.${near}`);
}

/** The named servers, or all. @throws {HubError} usage */
function pickServers({ servers }: Manifest, names: readonly string[]): Manifest["servers"] {
  const known = servers.map(({ name }) => name);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw usageError(`There is no server "${unknown}".${suggestName(unknown, known)}`);
  return names.length === 0 ? servers : servers.filter(({ name }) => names.includes(name));
}

/** Prints the age of the oldest saved listing, if one is shown. */
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
}

async function printEntries(
  what: EntryList,
  { client, hub, statuses }: Listed,
  { json, all }: ListOptions,
  { terminal }: CommandContext,
): Promise<void> {
  const { kinds, noun } = LIST_KINDS[what];
  // The in-process client speaks the legacy era, which has no list of skills: those are read from the hub's catalog.
  const lists = await Promise.all(
    kinds.map((kind) => (kind === "skills" ? Promise.resolve(skillsOf(hub)) : client.list(kind))),
  );
  const exposureNotes = all ? notesOf(what, hub) : [];
  if (json) {
    // Prints the entries' bytes as clients get them, because parsing would change the spelling of numbers.
    const members = kinds.map((kind, i) => {
      const items = lists[i] ?? [];
      return `"${kind}":[${items.map(({ bytes }) => `\n${textOf(bytes)}`).join(",")}\n]`;
    });
    const notesJson = exposureNotes.map((note) => noteToJson(noun, note));
    const more = all ? `,\n"remarks":${formatJson(notesJson)}` : "";
    const ages = agesToJson(statuses);
    const listedAt = ages === undefined ? "" : `,\n"listedAt":${formatJson(ages)}`;
    terminal.print(`{${members.join(",\n")}${more}${listedAt}}`);
    return;
  }
  const rows = lists.flat().map(({ key: name, bytes }) => {
    const route = kinds.map((kind) => hub.catalog[kind].find(name)).find((it) => it !== undefined);
    return [name, route?.server ?? "", firstLine(JSON.parse(textOf(bytes)) as DescribedEntry)];
  });
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

/** The skills that modern clients see. */
function skillsOf({ catalog }: Hub): readonly ListedItem[] {
  return catalog.skills.entries.flatMap(({ bytes }) => readItem(bytes, "skills") ?? []);
}

function notesOf(what: EntryList, hub: Hub): readonly ExposureNote[] {
  return hub.catalog.notes.filter((note) => LIST_KINDS[what].kinds.includes(note.list));
}

/**
 * `{server, tool, kind, text}`, with `prompt` or `resource` in place of `tool`; the entry's name is the
 * server's own.
 */
function noteToJson(noun: string, { server, remoteName, kind, text }: ExposureNote): object {
  return { server, [noun]: remoteName, kind, text };
}

/** How `list --all` describes what happened to an entry. */
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

function countEntries(what: EntryList, statuses: readonly ServerState[], hub: Hub): string {
  const { kinds, noun } = LIST_KINDS[what];
  const known = statuses.filter((state) => "tools" in state);
  const shown = kinds.reduce((sum, kind) => sum + hub.catalog[kind].routes.length, 0);
  const hidden = notesOf(what, hub).filter(({ kind }) => STATES[kind] === "hidden").length;
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
  if (json) {
    terminal.printJson({ servers: statuses.map((it) => toJson(it, urls)) });
    return;
  }
  // Transport and URL columns are only shown if there is an HTTP server.
  const transportCells = (state: ServerState): readonly string[] => {
    const transport = state.at === "connected" ? state.connection.way : undefined;
    return urls.size === 0 ? [] : [transport ?? "", urls.get(state.server) ?? ""];
  };
  const rows = statuses.map((state) => [
    state.server,
    {
      text: state.at === "starting" ? formatStartingTime(state.elapsed) : state.at,
      color: terminal.stdout.colors[STATE_COLORS[state.at]],
    },
    "tools" in state ? String(state.tools) : "",
    ...transportCells(state),
    state.at === "failed" ? formatFailureLine(state.cause) : "",
  ]);
  const titles = ["SERVER", "STATE", "TOOLS", ...(urls.size === 0 ? [] : ["WAY", "URL"]), "ERROR"];
  terminal.printTable(titles, rows);
}

/**
 * `{name, state, url?, tools?, way?, era?, protocolVersion?, elapsed?, error?: {code, message, step?,
 * stderr?}}`; `url` and `way` for HTTP servers.
 */
function toJson(serverState: ServerState, urls: ReadonlyMap<string, string>): object {
  const { server: name, at } = serverState;
  const url = urls.get(name);
  const state = { state: at, ...(url !== undefined && { url }) };
  if (serverState.at === "connected") {
    const { peer, way } = serverState.connection;
    const { era, protocolVersion } = peer ?? {};
    return { name, ...state, tools: serverState.tools, way, era, protocolVersion };
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

/** Exit code 3 if servers are enabled and none is available. */
function exitCode(statuses: readonly ServerState[]): number {
  const enabled = statuses.filter(({ at }) => at !== "disabled");
  return enabled.length === 0 || enabled.some((state) => "tools" in state) ? 0 : 3;
}
