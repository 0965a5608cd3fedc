import { openLogBeside } from "../command-log.ts";
import { checkServerNames, suggestName } from "../../manifest/problems.ts";
import { count, formatAge } from "../../base/format.ts";
import { textOf } from "../../base/bytes.ts";
import type { Kind, ListedItem } from "../../catalog/listing.ts";
import type { ExposureNote } from "../../catalog/exposure.ts";
import { availabilityOf, errorOf, type HubReader } from "../../control/hub-reader.ts";
import { runningHubReader } from "../../control/running-hub-reader.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type {
  CatalogDocument,
  PinsDocument,
  ServerDocument,
  ServerFindingsDocument,
} from "../../control/schemas.ts";
import { type Manifest, tableNameOf } from "../../manifest/manifest.ts";
import { systemClock, abortable } from "../../base/clock.ts";
import { type CommandContext, type Invocation, LISTS } from "../command.ts";
import { openStartProgress, startedServersOf } from "../start-progress.ts";
import { type HubError, usageError } from "../../base/errors.ts";
import { sanitizeLine, stderrLines } from "../../terminal/log.ts";
import {
  type Cell,
  columnsOf,
  formatJson,
  formatStartingTime,
  type TerminalStyle,
  truncateAtWord,
  wrapText,
} from "../../terminal/terminal.ts";
import { adviceOnWithheld, describeWithheld, PENDING_REASONS } from "../../pins/level.ts";
import { wordOfState } from "../../control/state-text.ts";
import { describeHub, type HubOptions, hubToUse } from "../running-hub.ts";

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
  readonly tokens: boolean;
}

/** The list to print, and the servers to include; an empty `servers` means all. */
interface Request {
  readonly what: List;
  readonly servers: readonly string[];
}

/** What the servers of a hub offer, as one command prints it. */
interface Listing {
  readonly reader: HubReader;
  readonly request: Request;
  /** The servers that are shown. */
  readonly servers: readonly ServerDocument[];
  /** The running hub that was read; undefined: a hub of this process. */
  readonly running: RunningHub | undefined;
  readonly options: ListOptions;
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
  const running = await hubToUse(invocation, context);
  // A hub lists no skills for clients of its socket.
  return running === undefined || invocation.args[0] === "skills"
    ? listHere(invocation, context)
    : listOf(running, invocation, context);
}

/** Prints what a running hub offers. */
async function listOf(
  running: RunningHub,
  { args, options }: Invocation<ListOptions>,
  context: CommandContext,
): Promise<number> {
  const { mode } = options;
  const reader = runningHubReader(running, { mode, signal: context.signal });
  try {
    const all = await reader.servers();
    const names = all.map(({ name }) => name);
    const request = readListRequest(args, names);
    checkServerNames(request.servers, names);
    const servers = all.filter(
      ({ name }) => request.servers.length === 0 || request.servers.includes(name),
    );
    return await print({ reader, request, servers, running, options }, context);
  } finally {
    await reader.close();
  }
}

/** Prints what the servers of the manifest list, or listed in earlier runs. The code of a hub is loaded here. */
async function listHere(
  invocation: Invocation<ListOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const line = options.json ? undefined : context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const { loadManifestOnly } = await import("../../operations/load-manifest.ts");
  const { openHub, openSnapshots, withoutEarlyStarts } = await import("../../host/open-hub.ts");
  const { readOpenedHub } = await import("../../host/opened-hub-reader.ts");
  const { describeModeFault } = await import("../../manifest/modes.ts");
  const loaded = await loadManifestOnly(invocation, context, log);
  const { mode } = options;
  const fault = mode === undefined ? undefined : describeModeFault(mode, loaded.modes ?? []);
  if (fault !== undefined) throw usageError(fault);
  let request: Request = { what: "tools", servers: [] };
  const opened = await openHub(loaded, context, log, {
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
  const started = options.fresh ? startedServersOf(opened.manifest) : undefined;
  const endProgress = line && openStartProgress(started, opened.bus, line, systemClock);
  try {
    const reader = readOpenedHub(opened, context, { mode });
    await reader.client();
    await abortable(opened.hub.settled(), context.signal);
    endProgress?.();
    const servers = await reader.servers();
    return await print({ reader, request, servers, running: undefined, options }, context);
  } finally {
    endProgress?.();
    await opened.close();
  }
}

/** Prints a listing. @returns the exit code: 3 if none of the servers is available, though one is wanted */
async function print(listing: Listing, context: CommandContext): Promise<number> {
  const { request, servers, running, options } = listing;
  const { terminal } = context;
  const { what } = request;
  const isWanted = servers.some(({ goal }) => goal !== "down");
  const isAvailable = servers.some((server) => isUsable(server, running));
  const failed = isWanted && !isAvailable ? 3 : 0;
  if (options.tokens) {
    if (what !== "tools") throw usageError("--tokens is about tools: toolmux list --tokens");
    await printTokens(listing, context);
    if (running === undefined && !options.json) printAge(servers, context);
    return failed;
  }
  if (what === "servers") {
    printServers(listing, context);
    if (running === undefined && failed === 0 && !options.json) {
      terminal.printWrapped(countServers(servers));
      printAge(servers, context);
    }
    return failed;
  }
  const read = await readEntries(what, listing);
  const scanned = options.all
    ? (await listing.reader.findings()).filter(({ server }) =>
        servers.some(({ name }) => name === server),
      )
    : [];
  const withheld = (options.all ? await listing.reader.pins() : []).filter(
    ({ server, pin }) => pin === "block" && servers.some(({ name }) => name === server),
  );
  const notes = [...read.notes, ...scanNotesOf(what, scanned), ...pinNotesOf(what, withheld)];
  const entries = { ...read, notes };
  printEntries(what, entries, options, context);
  const code = running !== undefined && entries.lists.flat().length > 0 ? 0 : failed;
  const isForPeople = !options.json;
  for (const each of withheld) {
    const own = describeWithheld(each);
    if (own !== undefined) terminal.note(sanitizeLine(`${each.server}: ${own.text} ${own.advice}`));
  }
  if (running === undefined || isForPeople) printFailures(listing, context);
  if (!isForPeople) return code;
  if (running !== undefined) {
    terminal.printWrapped(countEntries(what, entries, listing));
    printHub(running, context);
  } else if (code === 0) {
    terminal.printWrapped(countEntries(what, entries, listing));
    printAge(servers, context);
  }
  return code;
}

/** Prints the tokens of the servers' tools, and of what clients get with each exposure. */
async function printTokens(
  { reader, request, options }: Listing,
  { terminal }: CommandContext,
): Promise<void> {
  const { servers, exposures } = await reader.exposureCosts();
  // The cost of an exposure for clients cannot be told for some servers alone.
  const isWhole = request.servers.length === 0;
  const shown = servers.filter(({ server }) => isWhole || request.servers.includes(server));
  if (options.json) {
    terminal.printJson({ servers: shown, ...(isWhole && { exposures }) });
    return;
  }
  const sum = (of: (server: (typeof shown)[number]) => number): number =>
    shown.reduce((total, server) => total + of(server), 0);
  const rows = shown.map(({ server, tools, tokens }) => [
    server,
    formatCount(tools),
    formatCount(tokens),
  ]);
  const total = [
    "in all",
    formatCount(sum(({ tools }) => tools)),
    formatCount(sum(({ tokens }) => tokens)),
  ];
  terminal.printTable(["SERVER", "TOOLS", "TOKENS"], [...rows, total]);
  if (!isWhole) return;
  terminal.print();
  const costs = Object.entries(exposures).map(([exposure, { tools, instructions }]) => [
    exposure,
    formatCount(tools),
    formatCount(instructions),
    formatCount(tools + instructions),
  ]);
  terminal.printTable(["EXPOSURE", "LIST", "INSTRUCTIONS", "TOKENS"], costs);
}

/** A whole number with thousands separators. */
function formatCount(value: number): string {
  return value.toLocaleString("en");
}

/**
 * Whether the items of a server can be used. A running hub starts a server again that has failed earlier, so there it is
 * enough that the server waits for calls.
 */
function isUsable(server: ServerDocument, running: RunningHub | undefined): boolean {
  if (running !== undefined) return server.state === "connected" || server.state === "idle";
  const availability = availabilityOf(server);
  return availability === "connected" || availability === "idle";
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

function printHub(hub: RunningHub, { terminal }: CommandContext): void {
  const text = `in ${describeHub(hub)}; to start the servers here: toolmux list --fresh`;
  terminal.printWrapped(terminal.stdout.colors.dim(sanitizeLine(text)));
}

/** The named servers, or all. @throws {HubError} usage */
function pickServers({ servers }: Manifest, names: readonly string[]): Manifest["servers"] {
  checkServerNames(
    names,
    servers.map(({ name }) => name),
  );
  return names.length === 0 ? servers : servers.filter(({ name }) => names.includes(name));
}

/** The saved listings that are shown: the servers that wait for a call, and when each was listed. */
function savedListings(
  servers: readonly ServerDocument[],
): readonly { readonly name: string; readonly listedAt: number }[] {
  return servers.flatMap((server) => {
    const { name, listedAt } = server;
    return listedAt !== undefined && availabilityOf(server) === "idle" ? [{ name, listedAt }] : [];
  });
}

/** Prints the age of the oldest saved listing that is shown; prints nothing if no saved listing is shown. */
function printAge(servers: readonly ServerDocument[], { terminal }: CommandContext): void {
  const times = savedListings(servers).map(({ listedAt }) => listedAt);
  if (times.length === 0) return;
  const age = formatAge(Date.now() - Math.min(...times));
  terminal.printWrapped(
    terminal.stdout.colors.dim(`listed ${age}; to ask the servers now: toolmux list --fresh`),
  );
}

/** The entries to print, and what is known about them. */
interface Entries {
  /** One list for each kind of `LIST_KINDS`. */
  readonly lists: readonly (readonly ListedItem[])[];
  /** The server of an entry, by the name that clients see (with the server's prefix). */
  readonly serverOf: (name: string) => string;
  /** The name that an entry has at its server; empty if it is not known. */
  readonly ownNameOf: (name: string) => string;
  readonly notes: readonly EntryNote[];
  /** The times of the shown saved listings, as JSON; undefined if none is shown. */
  readonly ages: object | undefined;
}

async function readEntries(
  what: EntryList,
  { reader, request, servers, running }: Listing,
): Promise<Entries> {
  const { kinds } = LIST_KINDS[what];
  // The catalog is read last: entries that come meanwhile are not listed, and so need no server.
  const lists = await Promise.all(kinds.map((kind) => reader.list(kind)));
  const catalog = await reader.catalog();
  const entries = new Map(
    kinds.flatMap((kind) => catalog[kind].map((entry) => [entry.name, entry] as const)),
  );
  const isShown = (server = ""): boolean =>
    request.servers.length === 0 || request.servers.includes(server);
  return {
    lists: lists.map((items) => items.filter(({ key }) => isShown(entries.get(key)?.server))),
    serverOf: (name) => entries.get(name)?.server ?? "",
    ownNameOf: (name) => entries.get(name)?.own ?? "",
    notes: notesOf(what, catalog).filter(({ server }) => isShown(server)),
    ages: running === undefined ? agesToJson(servers) : undefined,
  };
}

/** A note on an entry: how the hub shows it, or what the scan has found in it. */
interface EntryNote extends Pick<ExposureNote, "server" | "remoteName" | "text"> {
  readonly kind: ExposureNote["kind"] | "suspicious" | "notAccepted";
}

/** What is hidden of one list because it is not accepted. */
function pinNotesOf(what: EntryList, servers: readonly PinsDocument[]): readonly EntryNote[] {
  const { noun } = LIST_KINDS[what];
  return servers.flatMap(({ server, pending }) =>
    pending
      .filter(({ kind }) => kind === noun)
      .map(({ name: remoteName, reason }) => {
        const text = `not accepted: ${PENDING_REASONS[reason]}. ${adviceOnWithheld(server)}`;
        return { server, remoteName, kind: "notAccepted", text };
      }),
  );
}

/** What the scan has found in the entries of one list. */
function scanNotesOf(
  what: EntryList,
  servers: readonly ServerFindingsDocument[],
): readonly EntryNote[] {
  const { noun } = LIST_KINDS[what];
  return servers.flatMap(({ server, findings }) =>
    findings
      .filter(({ kind }) => kind === noun)
      .map(({ name: remoteName, check, hard, where, excerpt }) => ({
        server,
        remoteName,
        kind: "suspicious",
        text: `${check} (${hard ? "hard" : "soft"}), ${where}: ${excerpt}`,
      })),
  );
}

/** The hub's notes about one list: which entries it hides, renames or changes, and why. */
function notesOf(what: EntryList, { notes }: CatalogDocument): readonly EntryNote[] {
  const kinds: readonly string[] = LIST_KINDS[what].kinds;
  return notes
    .filter((note) => kinds.includes(note.list))
    .map(({ server, own: remoteName, kind, text }) => ({
      server,
      remoteName,
      kind: kind === "mode" ? "filtered" : (kind as EntryNote["kind"]),
      text,
    }));
}

function printEntries(
  what: EntryList,
  { lists, serverOf, ownNameOf, notes, ages }: Entries,
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
  const rows = lists.flat().map(({ key: name, bytes }) => ({
    name,
    server: serverOf(name),
    own: ownNameOf(name),
    text: firstLine(JSON.parse(textOf(bytes)) as DescribedEntry),
  }));
  if (terminal.stdout.isTerminal) {
    const servers = [...new Set(rows.map(({ server }) => server))];
    const groups = servers.map((server) =>
      formatGroup(
        noun,
        server,
        rows.filter((row) => row.server === server),
        terminal.stdout,
      ),
    );
    if (groups.length > 0) terminal.print(groups.join("\n\n"));
  } else {
    // A program that reads the lines finds a whole name in each.
    const head = [noun.toUpperCase(), "SERVER", "DESCRIPTION"];
    terminal.printTable(
      head,
      rows.map(({ name, server, text }) => [name, server, text]),
    );
  }
  const noteRows = exposureNotes.map(({ remoteName, server, kind, text }) => {
    const state = STATES[kind];
    return [remoteName, server, state, text];
  });
  if (rows.length > 0 && noteRows.length > 0) terminal.print();
  terminal.printTable(["OWN NAME", "SERVER", "STATE", "WHY"], noteRows);
}

interface EntryRow {
  readonly name: string;
  readonly server: string;
  /** Its name at the server; empty if not known. */
  readonly own: string;
  /** The first line of its description. */
  readonly text: string;
}

/** Minimum width of a description beside a name. */
const MIN_DESCRIPTION = 20;

/**
 * The entries of one server: a head with the server and, if all names begin with it, their prefix (`files__…`); then the
 * names without it. Descriptions are cut after a word.
 */
function formatGroup(
  noun: string,
  server: string,
  rows: readonly EntryRow[],
  { colors, width }: TerminalStyle,
): string {
  const prefix = prefixOf(rows);
  const names = rows.map(({ name }) => sanitizeLine(name.slice(prefix.length)));
  const longest = Math.max(...names.map(columnsOf));
  const start = 2 + longest + 2;
  const isBeside = width - start >= MIN_DESCRIPTION;
  const lines = rows.map(({ text }, at) => {
    const name = names[at] ?? "";
    if (text === "") return `  ${name}`;
    const description = sanitizeLine(text);
    return isBeside
      ? `  ${name}${" ".repeat(longest - columnsOf(name) + 2)}${truncateAtWord(description, width - start)}`
      : `  ${name}\n      ${truncateAtWord(description, width - 6)}`;
  });
  const named = prefix === "" ? "" : `, named ${prefix}…`;
  const head = `${server === "" ? "toolmux" : server}: ${count(rows.length, noun)}${named}`;
  return [colors.bold(wrapText(sanitizeLine(head), width, "  ", "")), ...lines].join("\n");
}

/**
 * What the names of a server begin with: what the hub put before the name that an entry has at its server. Empty if an
 * entry has another beginning.
 */
function prefixOf(rows: readonly EntryRow[]): string {
  const known = rows.find(({ name, own }) => own !== "" && name !== own && name.endsWith(own));
  const prefix = known === undefined ? "" : known.name.slice(0, -known.own.length);
  return rows.every(({ name }) => name.startsWith(prefix)) ? prefix : "";
}

/** The time of each saved listing, by server name; undefined if all servers were asked now. */
function agesToJson(servers: readonly ServerDocument[]): object | undefined {
  const ages = savedListings(servers).map(
    ({ name, listedAt }) => [name, new Date(listedAt).toISOString()] as const,
  );
  return ages.length === 0 ? undefined : Object.fromEntries(ages);
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
  Record<EntryNote["kind"], "renamed" | "hidden" | "changed" | "not used" | "suspicious">
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
  suspicious: "suspicious",
  notAccepted: "hidden",
};

function countEntries(
  what: EntryList,
  { lists, notes }: Entries,
  { servers, running }: Listing,
): string {
  const { noun } = LIST_KINDS[what];
  const shown = count(lists.flat().length, noun);
  if (running !== undefined) {
    const usable = servers.filter((one) => one.goal === "down" || isUsable(one, running));
    return `${shown} of ${count(usable.length, "server")}`;
  }
  const known = servers.filter((server) => isUsable(server, running));
  const hidden = notes.filter(({ kind }) => STATES[kind] === "hidden").length;
  const more = hidden === 0 ? "" : `; ${hidden} hidden`;
  return `${shown} of ${count(known.length, "server")}${more}`;
}

const STATE_COLORS = {
  connected: "green",
  idle: "dim",
  starting: "yellow",
  failed: "red",
  disabled: "dim",
} as const satisfies Record<ReturnType<typeof availabilityOf>, string>;

function countServers(servers: readonly ServerDocument[]): string {
  const states = (["connected", "idle", "starting", "failed", "disabled"] as const).map((state) => {
    const number = servers.filter((server) => availabilityOf(server) === state).length;
    return number === 0 ? "" : `${number} ${state}`;
  });
  return [count(servers.length, "server"), ...states.filter(Boolean)].join(", ");
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

/** Prints the servers: those of a running hub with their states there, or those of the manifest with how they started. */
function printServers(
  { servers, running, options: { json } }: Listing,
  context: CommandContext,
): void {
  const { terminal } = context;
  if (json) {
    terminal.printJson(
      running === undefined
        ? { servers: servers.map(toJson) }
        : { source: "hub", hub: running.pid, servers },
    );
    return;
  }
  if (running !== undefined) {
    const rows = servers.map((server) => [
      tableNameOf(server),
      wordOfState(server),
      String(server.tools ?? ""),
      server.transport ?? "",
      { text: server.endpoint ?? "", isWhole: true },
      isUsable(server, running) ? "" : (server.lastError?.message ?? ""),
    ]);
    terminal.printTable(["SERVER", "STATE", "TOOLS", "TRANSPORT", "ENDPOINT", "ERROR"], rows);
    printHub(running, context);
    return;
  }
  // Transport and URL columns are only shown if there is an HTTP server.
  const hasUrls = servers.some((server) => urlOf(server) !== undefined);
  const rows = servers.map((server): readonly Cell[] => {
    const availability = availabilityOf(server);
    const color = terminal.stdout.colors[STATE_COLORS[availability]];
    const { late = 0, shown } = server;
    return [
      tableNameOf(server),
      { text: availability === "starting" ? formatStartingTime(late) : availability, color },
      isUsable(server, running) ? String(shown) : "",
      ...(hasUrls ? [wayOf(server) ?? "", { text: urlOf(server) ?? "", isWhole: true }] : []),
      availability === "failed" ? describeFailure(errorOf(server)) : "",
    ];
  });
  const titles = ["SERVER", "STATE", "TOOLS", ...(hasUrls ? ["TRANSPORT", "URL"] : []), "ERROR"];
  terminal.printTable(titles, rows);
}

/** The failure of a server for a cell of a table, with the last line of its stderr. */
function describeFailure({ message, stderr }: HubError): string {
  const last = stderr.at(-1);
  return last === undefined ? message : `${message} The last line of its stderr: ${last}`;
}

/** The URL of an HTTP server; undefined for other servers. */
function urlOf({ transport, endpoint }: ServerDocument): string | undefined {
  return transport === undefined || ["stdio", "plugin"].includes(transport) ? undefined : endpoint;
}

/** The HTTP transport through which a server is connected; undefined for other servers. */
function wayOf(server: ServerDocument): string | undefined {
  return server.state === "connected" && urlOf(server) !== undefined ? server.transport : undefined;
}

/**
 * A server's state as `{name, state, url?, tools?, way?, era?, protocolVersion?, elapsed?, error?: {code, message,
 * step?, stderr?}}`; `url` and `way` only for HTTP servers.
 */
function toJson(server: ServerDocument): object {
  const { name, shown: tools, era, protocolVersion, listedAt, late: elapsed } = server;
  const { title, description, icon } = server;
  const state = availabilityOf(server);
  const head = { name, state, url: urlOf(server) };
  const shownAs = { title, description, icon };
  switch (state) {
    case "connected":
      return { ...head, tools, way: wayOf(server), era, protocolVersion, ...shownAs };
    case "idle": {
      const listed = listedAt === undefined ? {} : { listedAt: new Date(listedAt).toISOString() };
      return { ...head, tools, ...listed, ...shownAs };
    }
    case "disabled":
      return { ...head, ...shownAs };
    case "starting":
      return { ...head, elapsed, ...shownAs };
    case "failed": {
      const { code, message, step, stderr } = errorOf(server);
      const error = { code, message, step, ...(stderr.length > 0 && { stderr }) };
      return { ...head, error, ...shownAs };
    }
  }
}

/** Prints why servers are not available. */
function printFailures({ servers, running }: Listing, { terminal }: CommandContext): void {
  const others = servers.filter((server) => server.goal !== "down" && !isUsable(server, running));
  for (const server of others) {
    terminal.note(`${server.name}: ${reasonOf(server, running)}`);
    const { stderr = [] } = server.lastError ?? {};
    if (running === undefined && availabilityOf(server) === "failed")
      for (const line of stderrLines(stderr)) terminal.printStderr(line);
  }
  const isToBeMended =
    running !== undefined || others.some((it) => availabilityOf(it) === "failed");
  if (others.length > 0 && isToBeMended) terminal.note("What to do: toolmux status");
}

function reasonOf(server: ServerDocument, running: RunningHub | undefined): string {
  if (running !== undefined) return sanitizeLine(server.statusText);
  return availabilityOf(server) === "starting"
    ? formatStartingTime(server.late ?? 0)
    : errorOf(server).message;
}
