import { Buffer } from "node:buffer";
import type { ApprovalSource, PersonalSource } from "../base/hub-events.ts";
import { isJsonObject } from "../base/json.ts";
import type { Hmac } from "../snapshot/hmac.ts";

/**
 * A person's permanent permission to call a tool. It is valid while the tool's server and definition stay the same.
 */
export interface RememberedApproval {
  readonly id: string;
  /** The server's name in the manifest when the tool was allowed. */
  readonly server: string;
  /** The tool's name at its server. */
  readonly tool: string;
  /** The name of the client that made the call; "" if it gave none. */
  readonly clientName: string;
  /** Where the person has decided; undefined if that was not stored. */
  readonly by?: PersonalSource | undefined;
  /** When the tool was allowed, in ms since the epoch. */
  readonly at: number;
}

interface StoredApproval extends RememberedApproval {
  /** HMAC of the server's identity, the tool's name and the digest of its definition, as hex digits. */
  readonly key: string;
}

/** The stored state: approvals, and for each known tool whether its annotations said at first that it only reads. */
interface StoredState {
  readonly allowed: readonly StoredApproval[];
  /** The known tools of each server, by the HMAC of the server's identity. */
  readonly known: Readonly<Record<string, KnownTools>>;
  /**
   * Whether hints were lost because the text was damaged. If so, the hints that a server gives now may not be its first
   * ones, and count only for the servers, by name, whose hints a person has accepted since.
   */
  readonly lost?: { readonly accepted: readonly string[] } | undefined;
}

interface KnownTools {
  /** The server's name in the manifest. */
  readonly server: string;
  /** For each tool: its name at the server, and whether its annotations said at first that it only reads. */
  readonly tools: readonly (readonly [name: string, readOnly: boolean])[];
}

/** The present hints of a server about its tools: for each, whether its annotations say that it only reads. */
export interface ServerHints {
  /** The key of the server's identity. `server`: its name in the manifest. */
  readonly serverKey: string;
  readonly server: string;
  readonly tools: ReadonlyMap<string, boolean>;
}

/** Storage that keeps the state as text. */
export interface ApprovalStorage {
  /** @returns the stored text; undefined if there is none. Never rejects. */
  read(): Promise<string | undefined>;
  /**
   * Keeps the damaged content under another name, if it is still there, and stores `text` in its place.
   * @returns the path of the damaged content; undefined if another process has replaced it before, or it could not be
   * kept. Never rejects.
   */
  setAside(damaged: string, text: string): Promise<string | undefined>;
  /** Replaces the text while other processes are locked out. @throws {HubError} storeBroken or storeBusy */
  update(change: (text: string | undefined) => string): Promise<void>;
  /** The HMAC with the key of this installation. @throws {Error} if there is no key and none can be made */
  hmac(): Promise<Hmac>;
}

/**
 * Maximum numbers of approvals, of servers, and of tools of one server. The oldest approvals and servers are dropped.
 */
const MAX_ALLOWED = 5000;
const MAX_SERVERS = 2000;
const MAX_TOOLS = 5000;
/** Maximum size of the stored text, in bytes. */
export const MAX_STORED = 16 * 1024 * 1024;

const EMPTY: StoredState = { allowed: [], known: {} };
const LOST: StoredState = { ...EMPTY, lost: { accepted: [] } };

/** Permanent approvals. All hubs and commands of a user share them. */
export class RememberedApprovals {
  readonly #storage: ApprovalStorage;
  #hmac: Promise<Hmac> | undefined;
  #parsed: { readonly text: string | undefined; readonly read: ReadState } | undefined;
  /** The damaged text that was told of last. */
  #toldOf: string | undefined;
  /** Called with a sentence for people when the stored text is found to be damaged. */
  onDamage: (text: string) => void = () => {};

  constructor(storage: ApprovalStorage) {
    this.#storage = storage;
  }

  /**
   * The key of a server, or of one definition of a tool.
   * @param parts the server's identity; for a tool, also its name and the digest of its definition
   */
  async keyOf(parts: readonly string[]): Promise<string> {
    this.#hmac ??= this.#storage.hmac();
    const hmac = await this.#hmac.catch((error: unknown) => {
      this.#hmac = undefined;
      throw error;
    });
    return hmac(Buffer.from(JSON.stringify(parts)));
  }

  async allows(key: string): Promise<boolean> {
    return (await this.#state()).allowed.some((entry) => entry.key === key);
  }

  /** Stores an approval. @throws {HubError} storeBroken or storeBusy */
  async allow(key: string, entry: Omit<RememberedApproval, "id">): Promise<void> {
    await this.#update((state) => {
      const others = state.allowed.filter((other) => other.key !== key);
      const added = { id: key.slice(0, 8), ...entry, key };
      return { ...state, allowed: [...others, added].slice(-MAX_ALLOWED) };
    });
  }

  /** All approvals, the oldest first. */
  async list(): Promise<readonly RememberedApproval[]> {
    const { allowed } = await this.#state();
    return allowed.map(({ id, server, tool, clientName, by, at }) => ({
      id,
      server,
      tool,
      clientName,
      ...(by !== undefined && { by }),
      at,
    }));
  }

  /**
   * Forgets approvals. @param ids the ids of those to forget; undefined: all
   * @returns the ids of those that were forgotten
   * @throws {HubError} storeBroken or storeBusy
   */
  async forget(ids: readonly string[] | undefined): Promise<readonly string[]> {
    const isSelected = ({ id }: RememberedApproval): boolean => ids?.includes(id) ?? true;
    const forgotten = (await this.#state()).allowed.filter(isSelected).map(({ id }) => id);
    if (forgotten.length === 0) return [];
    await this.#update((state) => ({
      ...state,
      allowed: state.allowed.filter((entry) => !isSelected(entry)),
    }));
    return forgotten;
  }

  /**
   * Records, for the tools of a server that are not known yet, whether their annotations say that they only read.
   * @param serverKey the key of the server's identity
   * @returns the names of all tools whose annotations said so when they were first recorded
   * @throws {HubError} storeBroken or storeBusy
   */
  async recordFirstHints(
    serverKey: string,
    server: string,
    tools: ReadonlyMap<string, boolean>,
  ): Promise<ReadonlySet<string>> {
    await this.recordAllFirstHints([{ serverKey, server, tools }]);
    const all = (await this.#state()).known[serverKey]?.tools ?? [];
    return new Set(all.flatMap(([name, readOnly]) => (readOnly ? [name] : [])));
  }

  /**
   * Does the same for several servers with at most one change of the store.
   * @throws {HubError} storeBroken or storeBusy
   */
  async recordAllFirstHints(servers: readonly ServerHints[]): Promise<void> {
    const { known } = await this.#state();
    const changed = servers.filter(({ serverKey, tools }) => {
      const names = new Set(known[serverKey]?.tools.map(([name]) => name));
      return [...tools.keys()].some((name) => !names.has(name));
    });
    if (changed.length > 0) await this.#update((state) => changed.reduce(withFirstHints, state));
  }

  /**
   * Forgets the hints of a server's tools that `recordFirstHints` has recorded. The next call of `recordFirstHints`
   * records the current hints.
   * @param server its name in the manifest
   * @returns whether something was known
   * @throws {HubError} storeBroken or storeBusy
   */
  async forgetFirstHints(server: string): Promise<boolean> {
    const isSelected = (tools: KnownTools): boolean => tools.server === server;
    if (!Object.values((await this.#state()).known).some(isSelected)) return false;
    await this.#update((state) => {
      const kept = Object.entries(state.known).filter(([, tools]) => !isSelected(tools));
      const accepted = [...new Set([...(state.lost?.accepted ?? []), server])].slice(-MAX_SERVERS);
      return {
        ...state,
        known: Object.fromEntries(kept),
        ...(state.lost !== undefined && { lost: { accepted } }),
      };
    });
    return true;
  }

  async #state(): Promise<StoredState> {
    const text = await this.#storage.read();
    const { state, isDamaged } = this.#parse(text);
    if (isDamaged && text !== undefined && text !== this.#toldOf) {
      this.#toldOf = text;
      const kept = await this.#storage.setAside(text, formatState(state));
      const where =
        kept === undefined ? "the damaged file could not be kept" : `the damaged file is ${kept}`;
      this.onDamage(
        `The file of remembered approvals was damaged: ${where}. What could not be read counts as not allowed, and what tools say of themselves counts as unknown, so tools that only read are asked for, too. To accept what the tools of a server say now: toolmux approvals accept SERVER`,
      );
    }
    return state;
  }

  #parse(text: string | undefined): ReadState {
    if (this.#parsed === undefined || this.#parsed.text !== text) {
      const read = text === undefined ? { state: EMPTY, isDamaged: false } : parseState(text);
      this.#parsed = { text, read };
    }
    return this.#parsed.read;
  }

  async #update(change: (state: StoredState) => StoredState): Promise<void> {
    // A damaged text is set aside first, because the update replaces it.
    await this.#state();
    await this.#storage.update((text) => formatState(change(this.#parse(text).state)));
  }
}

/** The state with the hints of a server's tools that are not known yet. */
function withFirstHints(
  state: StoredState,
  { serverKey, server, tools }: ServerHints,
): StoredState {
  const before = new Map(state.known[serverKey]?.tools);
  // After a loss, what the server says now may not be what it said first.
  const isFirst = state.lost?.accepted.includes(server) ?? true;
  for (const [name, readOnly] of tools) {
    if (before.size < MAX_TOOLS && !before.has(name)) before.set(name, readOnly && isFirst);
  }
  const { [serverKey]: _, ...others } = state.known;
  const kept = Object.entries(others).slice(-(MAX_SERVERS - 1));
  return {
    ...state,
    known: { ...Object.fromEntries(kept), [serverKey]: { server, tools: [...before] } },
  };
}

function formatState(state: StoredState): string {
  return `${JSON.stringify({ version: 1, ...state })}\n`;
}

interface ReadState {
  readonly state: StoredState;
  /** Whether a part of the text could not be read. */
  readonly isDamaged: boolean;
}

/** Reads the stored text. Damaged entries are dropped, so that a person is asked again. */
function parseState(text: string): ReadState {
  const nothing = { state: LOST, isDamaged: true };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return nothing;
  }
  if (!isJsonObject(value) || value["version"] !== 1) return nothing;
  const { allowed, known, lost } = value;
  if (!Array.isArray(allowed) || !isJsonObject(known)) return nothing;
  const readAllowed = allowed.filter(isStoredApproval);
  const readKnown = Object.entries(known).filter((entry): entry is [string, KnownTools] =>
    isKnownTools(entry[1]),
  );
  const isDamaged =
    readAllowed.length < allowed.length ||
    readKnown.length < Object.keys(known).length ||
    (lost !== undefined && !isLost(lost));
  const readLost = isDamaged ? LOST.lost : isLost(lost) ? lost : undefined;
  return {
    state: {
      allowed: readAllowed,
      known: Object.fromEntries(readKnown),
      ...(readLost !== undefined && { lost: readLost }),
    },
    isDamaged,
  };
}

function isLost(value: unknown): value is NonNullable<StoredState["lost"]> {
  return (
    isJsonObject(value) &&
    Array.isArray(value["accepted"]) &&
    value["accepted"].every((name) => typeof name === "string")
  );
}

/** The places at which a person can allow a tool permanently; a client cannot. */
const SOURCES: ReadonlySet<unknown> = new Set<ApprovalSource>(["terminal", "dashboard"]);

function isStoredApproval(value: unknown): value is StoredApproval {
  return (
    isJsonObject(value) &&
    ["id", "key", "server", "tool", "clientName"].every(
      (name) => typeof value[name] === "string",
    ) &&
    typeof value["at"] === "number" &&
    (value["by"] === undefined || SOURCES.has(value["by"]))
  );
}

function isKnownTools(value: unknown): value is KnownTools {
  return (
    isJsonObject(value) &&
    typeof value["server"] === "string" &&
    Array.isArray(value["tools"]) &&
    value["tools"].every(
      (pair: unknown) =>
        Array.isArray(pair) && typeof pair[0] === "string" && typeof pair[1] === "boolean",
    )
  );
}

/** A store that keeps approvals in memory only. */
export function memoryApprovals(): RememberedApprovals {
  let text: string | undefined;
  return new RememberedApprovals({
    read: () => Promise.resolve(text),
    setAside: () => Promise.resolve(undefined),
    update: (change) => Promise.resolve(void (text = change(text))),
    hmac: () => Promise.resolve(sha256Hex),
  });
}

/** SHA-256 as hex digits. */
export async function sha256Hex(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
}
