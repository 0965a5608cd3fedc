import type { TextRedactor } from "../base/quote.ts";
import { openLogBeside } from "./command-log.ts";
import { abortable, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { Kind } from "../catalog/listing.ts";
import { type AnswerElicitation, HubClient } from "../frontend/hub-client.ts";
import type { Hub } from "../hub/hub.ts";
import { invalidError, suggestName } from "../manifest/problems.ts";
import { type HubSettings, isRunnable, type Manifest } from "../manifest/manifest.ts";
import type { StatusLine } from "../terminal/terminal.ts";
import { describeItemNote } from "../views/catalogs.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { openStartProgress } from "./commands/status.ts";
import { type CommandLog, loadManifestOnly } from "../operations/load-manifest.ts";
import { IN_A_TERMINAL, openHub, openSnapshots, withoutEarlyStarts } from "../host/open-hub.ts";
import { readSavedCatalog } from "../hub/saved-catalog.ts";
import { serverStatesOf, type ServerState } from "../hub/server-state.ts";

/** Words and error codes for messages about each kind of item. */
const NOUNS = {
  tools: { noun: "tool", listing: "toolmux list", code: "unknownTool" },
  prompts: { noun: "prompt", listing: "toolmux list prompts", code: "unknownPrompt" },
  resources: { noun: "resource", listing: "toolmux list resources", code: "unknownResource" },
} as const;

/** An item that was looked up, and the hub. The hub has started as few servers as possible for the lookup. */
export interface FoundItem {
  readonly hub: Hub;
  readonly client: HubClient;
  /** The item's server; undefined for a URI that no listing has but that may match a server's resource template. */
  readonly server: string | undefined;
  /** Time of the server's last listing, in ms since the epoch; undefined if the server was started and asked now. */
  readonly listedAt: number | undefined;
  readonly line: StatusLine | undefined;
  /** Removes the secrets of the servers. */
  readonly redactor: TextRedactor;
}

interface LookupOptions<T> {
  readonly kind: keyof typeof NOUNS;
  /** The name that clients see (with the server's prefix), or the URI of a resource. */
  readonly name: string;
  /** Whether to start the item's server, so that its current listing is known. */
  readonly startsServer: boolean;
  /** Makes the function that answers elicitations; absent: nobody answers them. @param clear clears the status line */
  readonly elicit?: (clear: () => void) => AnswerElicitation | undefined;
  readonly use: (item: FoundItem) => Promise<T>;
}

/**
 * Finds an item by the name that clients see (with the server's prefix) and passes it to `use`. If a saved listing
 * (what a server listed in an earlier run) has the item, only its server is started; otherwise the servers that may
 * have it are started.
 * @throws {HubError} unknownTool, unknownPrompt or unknownResource if there is no such item; the cause if its server
 * cannot be started
 */
export async function withItem<T>(
  { kind, name, startsServer, elicit, use }: LookupOptions<T>,
  invocation: Invocation,
  context: CommandContext,
): Promise<T> {
  const { signal } = context;
  const line = context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  throwIfNoneUsable(loaded);
  const { hub, bus, manifest, redact, close } = await openHub(loaded, context, log, {
    kinds: ["log", "alert"],
    logsNotes: false,
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
  const endProgress = line && openStartProgress(undefined, bus, line, systemClock);
  try {
    const client = await HubClient.connect(hub, signal, { elicit: elicit?.(() => line?.clear()) });
    await abortable(hub.settled(), signal);
    const findServer = () => hub.catalog[kind].find(name)?.server;
    const known = findServer();
    // If no server is known to have the item, all are started. Slow servers are waited for, too (`allStarted`), because
    // this process makes only this one request.
    if (known === undefined) hub.startAll();
    else if (startsServer) hub.start(known);
    if (known === undefined || startsServer) await abortable(hub.settled("allStarted"), signal);
    endProgress?.();
    const server = findServer();
    const states = serverStatesOf(manifest, hub);
    const isTemplated = kind === "resources" && hub.catalog.resourceTemplates.routes.length > 0;
    if (server === undefined && !isTemplated)
      throw await unknownItemError(kind, name, states, loaded, context);
    logNotesOf(hub.catalog, kind, name, log);
    const state = states.find((one) => one.server === server);
    const listedAt = state?.at === "idle" ? state.listedAt : undefined;
    return await use({ hub, client, server, listedAt, line, redactor: { apply: redact } });
  } finally {
    endProgress?.();
    line?.clear();
    await close();
  }
}

/** Logs the notes on one item, which say how it is shown to clients; those on other items are of no interest. */
function logNotesOf(
  catalog: Catalog,
  kind: keyof typeof NOUNS,
  name: string,
  log: CommandLog,
): void {
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

/** The error for an item that was not found. It says why a server is unavailable, or that no server has the item. */
async function unknownItemError(
  kind: keyof typeof NOUNS,
  name: string,
  states: readonly ServerState[],
  manifest: Manifest,
  context: CommandContext,
): Promise<HubError> {
  const failed = states.find((state) => state.at === "failed");
  if (failed !== undefined) {
    const { server, cause } = failed;
    const { step, stderr, data, hint = `What to do: toolmux status ${server}` } = cause;
    return new HubError(cause.code, cause.message, { server, step, stderr, data, hint, cause });
  }
  const disabled = states.find((state) => state.at === "disabled");
  if (disabled !== undefined && !states.some((state) => "tools" in state)) {
    const text = `Server "${disabled.server}" is switched off in the manifest (enabled = false).`;
    return new HubError("serverStopped", text, { server: disabled.server });
  }
  const { noun, listing, code } = NOUNS[kind];
  const { catalog } = await readSavedCatalog(manifest, context);
  const { entries } = catalog[kind];
  const own = entries.find((entry) => isOwnName(entry.remoteName, name));
  const names = entries.map((entry) => entry.name);
  const near =
    own === undefined
      ? suggestName(name, names) || suggestLonger(name, names)
      : ` Did you mean "${own.name}"?`;
  const text = `There is no ${noun} "${name}".${near || ` To see all: ${listing}`}`;
  return new HubError(code, text);
}

/** Maximum number of names that are suggested if the user gives only a part of a name. */
const MAX_SUGGESTIONS = 3;

/** A "did you mean" sentence with the names that contain the word; empty if there is none. */
export function suggestLonger(word: string, names: readonly string[]): string {
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
