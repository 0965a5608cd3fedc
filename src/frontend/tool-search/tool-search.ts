/**
 * frontend/tool-search/: how clients get the tools of the servers: all in one list, or by the hub's own tools for
 * searching and calling them. Main types: `ToolSearch`, the settings, lists and indexes of a hub; `ClientExposure`
 * (`client-exposure.ts`), how one client gets its tools. `call-tool.ts` turns a call of `call_tool` into the call of the
 * tool that it names; `catalog/search/answers.ts` answers the other tools of the hub, and `catalog/search/hub-tools.ts` has
 * what clients see of them. Start here, then read `client-exposure.ts`.
 */
import { setImmediate } from "node:timers";
import type { Clock } from "../../base/clock.ts";
import { compileFilter, type Matcher } from "../../catalog/filter.ts";
import type { CacheHint } from "../../catalog/listing.ts";
import { estimateTokens } from "../../catalog/search/signature.ts";
import type { SearchOptions, SearchResult, ToolIndex } from "../../catalog/search/tool-index.ts";
import { Section, type SectionEntry } from "../../catalog/section.ts";
import { visibilityOf } from "../../catalog/tool-visibility.ts";
import { UnroutedTool } from "../../catalog/unrouted-tool.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import type { HubSettings, ToolSearchSettings } from "../../manifest/manifest.ts";
import type { ClientView, SeenServer } from "../../views/client-view.ts";
import { hubToolItem, type HubToolName, hubToolsOf } from "../../catalog/search/hub-tools.ts";

/** The content of a client's list of tools: all tools, or the hub's own tools for searching, or for selecting them. */
export type ListForm = "direct" | "search" | "select";

/** Limits of the tools that stay in a list because of their `anthropic/alwaysLoad`. */
const ALWAYS_LOADED = { perServer: 10, tokens: 2000 } as const;
/** Time for which clients may cache a list that has only the hub's own tools, in ms. */
const HUB_LIST_TTL = 3_600_000;
/** The same under `auto`, where the list may change its form. */
const AUTO_LIST_TTL = 60_000;
/** Part of the budget below which a list under `auto` becomes `direct` again. */
const RETURN_SHARE = 0.8;
/** Maximum numbers of decisions and of indexes that are kept; the oldest are dropped. */
const MAX_DECISIONS = 1024;
const MAX_INDEXES = 16;
/** Time for which a search waits for its index, in ms. */
const INDEX_WAIT = 2000;
/** Time for which searches and preparations for them run before other work of the process goes on, in ms. */
const TURN_MS = 4;
/** Time from the last change of a client's tools until its index is made before the first search, in ms. */
const PREPARE_DELAY = 1000;

/** The size of a list of tools, in tokens: a quarter of its bytes as JSON. */
export function listTokens(tools: Section): number {
  return estimateTokens(tools.byteLength);
}

export interface ToolSearchOptions {
  /** The exposure of `serve --expose`; undefined: `hub.expose` counts. */
  readonly commandLine: Exposure | undefined;
  readonly clock: Clock;
  /** Called with the servers whose tools a client searches for. */
  readonly onSearchable: (servers: readonly SeenServer[]) => void;
}

/** The options on which the list of a client depends, apart from the catalog. */
export interface ListOptions {
  readonly form: "search" | "select";
  /** Whether the exposure of the client is `auto`. */
  readonly isAuto: boolean;
  /** Whether the client shows the apps of tools. */
  readonly showsApps: boolean;
}

/** Whose tools are searched. The functions return them as they are when the search begins. */
export interface SearchedTools {
  /** `ClientView.wholeCatalogKey` */
  readonly key: string;
  /** All tools of the catalog. */
  readonly whole: () => Section;
  /** Those that can be found. */
  readonly visible: () => Section;
}

/** The index of the tools of a catalog that clients share. */
interface SharedIndex {
  readonly index: Promise<ToolIndex>;
  /** The tools that the index was last updated with. */
  tools: Section | undefined;
}

/** The settings for the exposures of a hub's clients, and what clients share: lists, decisions and indexes. */
export class ToolSearch {
  /** Incremented when the settings have changed. */
  version = 0;
  readonly #options: ToolSearchOptions;
  #hub: Pick<HubSettings, "expose" | "exposeBudget">;
  #settings: ToolSearchSettings;
  #isAlways: Matcher | undefined;
  /** Cache of lists without selected tools, by the tools of the catalog and then by `ListOptions`. */
  #lists = new WeakMap<Section, Map<string, Section>>();
  /** The forms of lists under `auto` of clients without sessions, by `ClientView.catalogKey`. */
  readonly #decisions = new Map<string, "direct" | "search">();
  /** The indexes, by `ClientView.wholeCatalogKey`; the last one that was used comes last. */
  readonly #indexes = new Map<string, SharedIndex>();

  /** The end of the last search that was asked for. */
  #lastSearch: Promise<unknown> = Promise.resolve();
  /** When searches last let other work of the process go on, in ms of `performance.now`. */
  #turnBegan = 0;
  /** By `ClientView.wholeCatalogKey`: functions that cancel the timers of `prepareIndex`. */
  readonly #preparing = new Map<string, () => void>();

  constructor(options: ToolSearchOptions, hub: HubSettings, settings: ToolSearchSettings) {
    this.#options = options;
    this.#hub = hub;
    this.#settings = settings;
    this.configure(hub, settings);
  }

  get settings(): ToolSearchSettings {
    return this.#settings;
  }

  /** The size in tokens up to which lists under `auto` have all tools. */
  get budget(): number {
    return this.#hub.exposeBudget;
  }

  /** Adopts the settings of a manifest. */
  configure(hub: HubSettings, settings: ToolSearchSettings): void {
    if (JSON.stringify(settings.synonyms) !== JSON.stringify(this.#settings.synonyms))
      this.#indexes.clear();
    this.#hub = hub;
    this.#settings = settings;
    this.#isAlways = settings.always === undefined ? undefined : compileFilter(settings.always);
    this.#lists = new WeakMap();
    this.version++;
  }

  /** The exposure of a client. @param requested what its URL or its table in the manifest says */
  exposureFor(requested: Exposure | undefined): Exposure {
    return requested ?? this.#options.commandLine ?? this.#hub.expose;
  }

  /** Whether a list with these tools is above the budget. */
  isAboveBudget(tools: Section): boolean {
    return listTokens(tools) > this.budget;
  }

  /**
   * The form of a list under `auto` for clients without sessions. Once it is `search`, it becomes `direct` only if the
   * tools need much less than the budget, so that it does not change often.
   * @param key equal for clients that see the same catalog
   */
  decide(key: string, tools: Section): "direct" | "search" {
    const before = this.#decisions.get(key);
    const limit = before === "search" ? this.budget * RETURN_SHARE : this.budget + 1;
    const form = listTokens(tools) >= limit ? "search" : "direct";
    if (before !== form) setBounded(this.#decisions, key, form, MAX_DECISIONS);
    return form;
  }

  /** The list of tools with the hub's own tools and those that are always listed, as a section. */
  list(tools: Section, options: ListOptions): Section {
    const { form, isAuto, showsApps } = options;
    const key = `${form} ${isAuto} ${showsApps}`;
    return this.#cached(tools, key, () => this.#makeList(tools, options));
  }

  /** A list under `auto` that has all tools. Clients may not cache it for long, because its form may change. */
  directListUnderAuto(tools: Section): Section {
    const { cacheHint } = tools.info;
    return cacheHint.ttlMs <= AUTO_LIST_TTL
      ? tools
      : this.#cached(tools, "direct", () =>
          tools.withCacheHint({ ttlMs: AUTO_LIST_TTL, cacheScope: "private" }),
        );
  }

  /**
   * Makes the index for a client that does not get all tools, when its catalog has not changed for a second. Stores
   * which of these tools say that they only read.
   */
  prepareIndex(view: ClientView): void {
    const { clock, onSearchable } = this.#options;
    const key = view.wholeCatalogKey;
    this.#preparing.get(key)?.();
    const cancel = clock.after(PREPARE_DELAY, () => {
      this.#preparing.delete(key);
      if (view.isClosed) return;
      onSearchable(view.servers);
      void this.#index(key, () => view.wholeCatalog.tools);
    });
    this.#preparing.set(key, cancel);
  }

  /**
   * Searches tools. Searches at the same time take turns with the other work of the process.
   * @param options as for `ToolIndex.search`
   */
  async search(
    { key, whole, visible }: SearchedTools,
    query: string,
    options: Omit<SearchOptions, "visible">,
  ): Promise<SearchResult> {
    const index = await this.#index(key, whole);
    const result = this.#lastSearch.then(async () => {
      const shown = visible();
      for (const _ of index.prepare(shown)) await this.#pauseIfDue();
      return index.search(query, { ...options, visible: shown });
    });
    this.#lastSearch = result.catch(() => {});
    return await result;
  }

  /**
   * The index of the tools of a catalog, brought up to date in slices, so that other work goes on. After 2 s the index
   * is returned as far as it is.
   * @param key `ClientView.wholeCatalogKey`
   * @param tools returns the tools of the catalog, which may change meanwhile
   */
  async #index(key: string, tools: () => Section): Promise<ToolIndex> {
    const { clock } = this.#options;
    const end = clock.now() + INDEX_WAIT;
    const shared = this.#indexes.get(key) ?? { index: this.#makeIndex(), tools: undefined };
    setBounded(this.#indexes, key, shared, MAX_INDEXES);
    const index = await shared.index;
    for (;;) {
      const current = tools();
      if (shared.tools !== current) {
        shared.tools = current;
        index.update(current);
      }
      const left = end - clock.now();
      if (index.isComplete || left <= 0) return index;
      const completed = index.complete(nextTurn);
      await new Promise<void>((resolve) => {
        const cancel = clock.after(left, resolve);
        void completed.then(() => {
          cancel();
          resolve();
        });
      });
    }
  }

  /** Lets other work of the process go on, if searches have run for `TURN_MS`. */
  async #pauseIfDue(): Promise<void> {
    if (performance.now() - this.#turnBegan < TURN_MS) return;
    await nextTurn();
    this.#turnBegan = performance.now();
  }

  async #makeIndex(): Promise<ToolIndex> {
    const { ToolIndex } = await import("../../catalog/search/tool-index.ts");
    return new ToolIndex({ synonyms: this.#settings.synonyms });
  }

  #cached(tools: Section, key: string, make: () => Section): Section {
    let lists = this.#lists.get(tools);
    if (lists === undefined) this.#lists.set(tools, (lists = new Map<string, Section>()));
    let list = lists.get(key);
    if (list === undefined) lists.set(key, (list = make()));
    return list;
  }

  #makeList(tools: Section, { form, isAuto, showsApps }: ListOptions): Section {
    const names = hubToolsOf(form, this.#settings.readOnlyCall);
    const entries = new Map<string, SectionEntry>(names.map((name) => [name, hubToolEntry(name)]));
    for (const entry of this.#alwaysListed(tools, showsApps))
      if (!entries.has(entry.name)) entries.set(entry.name, entry);
    const ttlMs = isAuto ? AUTO_LIST_TTL : HUB_LIST_TTL;
    const hasOthers = entries.size > names.length;
    const cacheHint: CacheHint = {
      ttlMs: hasOthers ? Math.min(ttlMs, tools.info.cacheHint.ttlMs) : ttlMs,
      cacheScope: "private",
    };
    const { modernServers } = tools.info;
    return new Section("tools", entries, { cacheHint, modernServers }, [...entries.keys()]);
  }

  /** The tools that stay in each list: of the setting `always`, those that ask for it, and those with apps. */
  #alwaysListed(tools: Section, showsApps: boolean): readonly SectionEntry[] {
    const counts = new Map<string, number>();
    let tokens = 0;
    return tools.entries.filter((entry) => {
      const { isAlwaysLoaded, hasApp, isForAppsOnly } = visibilityOf(entry.item);
      if (hasApp || isForAppsOnly) {
        if (showsApps) return true;
        if (isForAppsOnly) return false;
      }
      if (this.#isAlways?.(entry) === true) return true;
      if (!isAlwaysLoaded) return false;
      const count = counts.get(entry.server) ?? 0;
      const size = estimateTokens(entry.item.bytes.length);
      if (count >= ALWAYS_LOADED.perServer || tokens + size > ALWAYS_LOADED.tokens) return false;
      counts.set(entry.server, count + 1);
      tokens += size;
      return true;
    });
  }
}

/** An entry of a list for one of the hub's own tools. The hub itself handles calls of them. */
function hubToolEntry(name: HubToolName): SectionEntry {
  const isReadOnly = name !== "call_tool";
  return new UnroutedTool({
    name,
    server: "",
    remoteName: name,
    isReadOnly,
    item: hubToolItem(name),
  });
}

/** Sets a value as the last one. If there are more than `max`, the first one is dropped. */
function setBounded<Value>(
  values: Map<string, Value>,
  key: string,
  value: Value,
  max: number,
): void {
  values.delete(key);
  values.set(key, value);
  const [first] = values.keys();
  if (values.size > max && first !== undefined) values.delete(first);
}

/** Settles after the I/O that is due. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
