import type { TextRedactor } from "../base/quote.ts";
import { openLogBeside } from "./command-log.ts";
import { abortable, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { availabilityOf, errorOf, type HubReader } from "../control/hub-reader.ts";
import { runningHubReader } from "../control/running-hub-reader.ts";
import { findHubAbove, type RunningHub } from "../control/running-hubs.ts";
import type { ServerDocument } from "../control/schemas.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { Kind } from "../catalog/listing.ts";
import type { AnswerElicitation } from "../frontend/hub-client.ts";
import { invalidError, suggestName } from "../manifest/problems.ts";
import { type HubSettings, isRunnable, type Manifest } from "../manifest/manifest.ts";
import type { StatusLine } from "../terminal/terminal.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { openStartProgress } from "./start-progress.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import { describeHub, hubToUse } from "./running-hub.ts";

/** Words and error codes for messages about each kind of item. */
const NOUNS = {
  tools: { noun: "tool", listing: "toolmux list", code: "unknownTool" },
  prompts: { noun: "prompt", listing: "toolmux list prompts", code: "unknownPrompt" },
  resources: { noun: "resource", listing: "toolmux list resources", code: "unknownResource" },
} as const;

type ItemKind = keyof typeof NOUNS;

/** An item that was looked up, and its hub: a running one, or one of this process. */
export interface FoundItem {
  readonly reader: HubReader;
  /** The running hub that has the item; undefined if the item is in a hub of this process. */
  readonly running: RunningHub | undefined;
  /** The item's server; undefined if no listing has the item, but the hub may know it. */
  readonly server: string | undefined;
  /** Time of the server's last listing, in ms since the epoch; undefined if the server was started and asked now. */
  readonly listedAt: number | undefined;
  readonly line: StatusLine | undefined;
  /** Removes the secrets of the servers; absent if the hub has removed them. */
  readonly redactor?: TextRedactor;
}

/** The options of a command that looks up an item. */
export interface LookupChoice {
  readonly fresh: boolean;
  readonly hub: string | undefined;
}

interface LookupOptions<T> {
  readonly kind: ItemKind;
  /** The name that clients see (with the server's prefix), or the URI of a resource. */
  readonly name: string;
  /** Whether to start the item's server, so that its current listing is known. A running hub starts it itself. */
  readonly startsServer: boolean;
  /** Whether `use` is also called if a running hub does not list the item. Its answer then says why. */
  readonly asksForUnlisted?: boolean;
  /** Makes the function that answers elicitations; absent: nobody answers them. @param clear clears the status line */
  readonly elicit?: (clear: () => void) => AnswerElicitation | undefined;
  readonly use: (item: FoundItem) => Promise<T>;
}

/**
 * Finds an item by the name that clients see (with the server's prefix) and passes it to `use`. It is looked up in the
 * running hub that `--hub` names or that serves the manifest. Without one, or with `--fresh`, servers are started here:
 * only the item's server if a saved listing (what a server listed in an earlier run) has the item, else the servers that
 * may have it.
 * @throws {HubError} unknownTool, unknownPrompt or unknownResource if there is no such item; the cause if its server
 * cannot be started
 */
export async function withItem<T>(
  lookup: LookupOptions<T>,
  invocation: Invocation<LookupChoice>,
  context: CommandContext,
): Promise<T> {
  const running = await hubToUse(invocation, context);
  return running === undefined
    ? withItemHere(lookup, invocation, context)
    : withItemOf(running, lookup, context);
}

/** Finds an item of a running hub. */
async function withItemOf<T>(
  running: RunningHub,
  { kind, name, elicit, use, asksForUnlisted = false }: LookupOptions<T>,
  { terminal, signal, env }: CommandContext,
): Promise<T> {
  const line = terminal.openStatusLine();
  if (line !== undefined) terminal.note(`in ${describeHub(running)}`);
  // A tool of the hub that runs this command does not approve its calls.
  const isInside = elicit !== undefined && (await findHubAbove([running], env)) !== undefined;
  const answer = isInside ? undefined : elicit?.(() => line?.clear());
  const reader = runningHubReader(running, { signal, elicit: answer });
  try {
    // The hub itself says why it cannot call a tool, so that the call waits for no list.
    const server = asksForUnlisted ? undefined : await findServer(reader, kind, name);
    return await use({ reader, running, server, listedAt: undefined, line });
  } finally {
    line?.clear();
    await reader.close();
  }
}

/**
 * The server of an item in a running hub; undefined for a URI that no listing has but that may match a template.
 * @throws {HubError} as `withItem`
 */
async function findServer(
  reader: HubReader,
  kind: ItemKind,
  name: string,
): Promise<string | undefined> {
  const catalog = await reader.catalog();
  const server = catalog[kind].find((entry) => entry.name === name)?.server;
  if (server !== undefined) return server;
  if (kind === "resources" && catalog.resourceTemplates.length > 0) return undefined;
  // A resource may belong to any server. By default, the prefix of a server's tools and prompts is its name.
  const mayHaveIt = (one: ServerDocument): boolean =>
    kind === "resources" || name.startsWith(one.name);
  const servers = (await reader.servers()).filter(mayHaveIt);
  throw unavailableError(servers) ?? unknownItemError(kind, name, catalog[kind]);
}

/** Finds an item in a hub of this process, which starts as few servers as possible. The code of a hub is loaded here. */
async function withItemHere<T>(
  { kind, name, startsServer, elicit, use }: LookupOptions<T>,
  invocation: Invocation,
  context: CommandContext,
): Promise<T> {
  const { signal } = context;
  const line = context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const { loadManifestOnly } = await import("../operations/load-manifest.ts");
  const { IN_A_TERMINAL, openHub, openSnapshots, withoutEarlyStarts } =
    await import("../host/open-hub.ts");
  const { readOpenedHub } = await import("../host/opened-hub-reader.ts");
  const loaded = await loadManifestOnly(invocation, context, log);
  throwIfNoneUsable(loaded);
  const opened = await openHub(loaded, context, log, {
    kinds: ["log", "alert"],
    logsNotes: false,
    telemetry: "ofCommand",
    howToBeAsked: IN_A_TERMINAL,
    snapshots: openSnapshots(context, log, "newest"),
    choose(all) {
      const servers = all.servers.filter(({ prefix }) => mayHave(kind, prefix, name, all.hub));
      // If the item may be an agent, all servers are kept, because agents use the tools of all servers.
      const isAgent = servers.some((spec) => spec.kind === "plugin" && spec.plugin === "agents");
      return withoutEarlyStarts(isAgent ? all : { ...all, servers });
    },
    openAgents: async (options) => {
      const { openClientAgents } = await import("../host/client-agents.ts");
      return openClientAgents(options);
    },
  });
  const { hub, bus, redact } = opened;
  const endProgress = line && openStartProgress(undefined, bus, line, systemClock);
  try {
    const reader = readOpenedHub(opened, context, { elicit: elicit?.(() => line?.clear()) });
    await reader.client();
    await abortable(hub.settled(), signal);
    const findHere = () => hub.catalog[kind].find(name)?.server;
    const known = findHere();
    // If no server is known to have the item, all are started. Slow servers are waited for, too (`allStarted`), because
    // this process makes only this one request.
    if (known === undefined) hub.startAll();
    else if (startsServer) hub.start(known);
    if (known === undefined || startsServer) await abortable(hub.settled("allStarted"), signal);
    endProgress?.();
    const server = findHere();
    const isTemplated = kind === "resources" && hub.catalog.resourceTemplates.routes.length > 0;
    if (server === undefined && !isTemplated) {
      const unavailable = unavailableError(await reader.servers());
      if (unavailable !== undefined) throw unavailable;
      const withheld = hub.withheldError(kind, name);
      if (withheld !== undefined) throw withheld;
      const { readSavedCatalog } = await import("../operations/saved-catalog.ts");
      const { catalog } = await readSavedCatalog(loaded, context);
      const entries = catalog[kind].entries.map((one) => ({ name: one.name, own: one.remoteName }));
      throw unknownItemError(kind, name, entries);
    }
    await logNotesOf(hub.catalog, kind, name, log);
    const listedAt = startsServer ? undefined : await listingTimeOf(reader, server);
    return await use({
      reader,
      running: undefined,
      server,
      listedAt,
      line,
      redactor: { apply: redact },
    });
  } finally {
    endProgress?.();
    line?.clear();
    await opened.close();
  }
}

/** When the listing of a server was saved, in ms since the epoch; undefined if the server has listed during this run. */
async function listingTimeOf(
  reader: HubReader,
  name: string | undefined,
): Promise<number | undefined> {
  const server = (await reader.servers()).find((one) => one.name === name);
  return server !== undefined && availabilityOf(server) === "idle" ? server.listedAt : undefined;
}

/** Logs the notes on one item, which say how it is shown to clients; those on other items are of no interest. */
async function logNotesOf(
  catalog: Catalog,
  kind: ItemKind,
  name: string,
  log: CommandLog,
): Promise<void> {
  const { describeItemNote } = await import("../views/catalogs.ts");
  const route = catalog[kind].find(name);
  for (const note of catalog.notes) {
    const isOwn = note.server === route?.server && note.remoteName === route.remoteName;
    const text = isOwn && note.list === kind ? describeItemNote(note) : undefined;
    if (text !== undefined) log(note.kind === "shortened" ? "info" : "warn", text);
  }
}

/**
 * Checks that at least one server can be used.
 * @throws {HubError} serverInvalid if no server can be used and one has an invalid entry
 */
function throwIfNoneUsable({ servers, plugins }: Manifest): void {
  const invalid = servers.find((spec) => spec.enabled && spec.kind === "invalid");
  const hasUsable = plugins.length > 0 || servers.some((spec) => spec.enabled && isRunnable(spec));
  if (invalid?.kind === "invalid" && !hasUsable) throw invalidError(invalid);
}

/** A shortened name ends with this many characters of a hash. */
const HASH_LENGTH = 7;

/**
 * Whether a tool or prompt may belong to the server with this prefix: its name starts with the prefix, or, if the name
 * was shortened, with the beginning of the prefix. A resource may belong to any server.
 */
function mayHave(kind: Kind, prefix: string, name: string, hub: HubSettings): boolean {
  if (kind === "resources") return true;
  const maxPrefixLength = hub.nameLimit - hub.clientPrefix.length - HASH_LENGTH;
  return prefix === "" || name.startsWith((prefix + hub.separator).slice(0, maxPrefixLength));
}

/** Why none of the servers that may have an item can be asked for it; undefined if that is not why it is unknown. */
function unavailableError(servers: readonly ServerDocument[]): HubError | undefined {
  const failed = servers.find((server) => availabilityOf(server) === "failed");
  if (failed !== undefined) {
    const { code, message, step, stderr } = errorOf(failed);
    const hint = `What to do: toolmux status ${failed.name}`;
    return new HubError(code, message, { server: failed.name, step, stderr, hint });
  }
  const disabled = servers.find((server) => availabilityOf(server) === "disabled");
  const isAnyUsable = servers.some((server) =>
    ["connected", "idle"].includes(availabilityOf(server)),
  );
  if (disabled === undefined || isAnyUsable) return undefined;
  const { name: server } = disabled;
  const text = `Server "${server}" is switched off in the manifest (enabled = false).`;
  return new HubError("serverStopped", text, { server });
}

/** The error for an item that no server has. @param entries the names that clients see and those at the servers */
export function unknownItemError(
  kind: ItemKind,
  name: string,
  entries: readonly { readonly name: string; readonly own: string }[],
): HubError {
  const { noun, listing, code } = NOUNS[kind];
  const own = entries.find((entry) => isOwnName(entry.own, name));
  const names = entries.map((entry) => entry.name);
  const near =
    own === undefined
      ? suggestName(name, names) || suggestLonger(name, names)
      : ` Did you mean "${own.name}"?`;
  return new HubError(code, `There is no ${noun} "${name}".${near || ` To see all: ${listing}`}`);
}

/** Maximum number of names that are suggested if the user gives only a part of a name. */
const MAX_SUGGESTIONS = 3;

/** A "did you mean" sentence with the names that contain the word; empty if there is none. */
function suggestLonger(word: string, names: readonly string[]): string {
  const found = names.filter((name) => name.includes(word)).slice(0, MAX_SUGGESTIONS);
  if (found.length === 0) return "";
  return ` Did you mean ${found.map((name) => `"${name}"`).join(" or ")}?`;
}

/** Whether a word is the tool's name at its server, alone or after any prefix: `get-sum`, `ev_get-sum`. */
function isOwnName(remoteName: string, word: string): boolean {
  return (
    word === remoteName ||
    (word.endsWith(remoteName) && /[_.:/-]$/.test(word.slice(0, -remoteName.length)))
  );
}
