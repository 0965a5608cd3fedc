import { type HubError, toHubError } from "../../base/errors.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import { Section, type SectionEntry } from "../../catalog/section.ts";
import { toolsForModels } from "../../catalog/tool-visibility.ts";
import type { AnswerContext } from "../../catalog/search/answers.ts";
import {
  type AnsweringToolName,
  type HubToolName,
  hubToolsOf,
} from "../../catalog/search/hub-tools.ts";
import { paramsOf, type Request } from "../../jsonrpc/message.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import { refuseLookalikes } from "../../router/params.ts";
import type { Era } from "../../protocol/modern.ts";
import type { ClientView } from "../../views/client-view.ts";
import { searchInstructions } from "./instructions.ts";
import { type ListForm, listTokens, type SearchedTools, type ToolSearch } from "./tool-search.ts";

/**
 * Names of clients (`clientInfo.name`) that search for tools by themselves when a list is long. Under `auto` they get
 * all tools.
 */
const SEARCHING_CLIENTS: ReadonlySet<string> = new Set(["claude-code"]);

/** Whether a client searches for tools by itself. @param name the name that it gave itself; undefined: none */
function searchesByItself(name: string | undefined): boolean {
  return name !== undefined && SEARCHING_CLIENTS.has(name);
}

export interface ClientExposureOptions {
  readonly toolSearch: ToolSearch;
  readonly view: ClientView;
  readonly era: Era;
  /** The exposure that the client's URL or its table in the manifest names; it may change with the manifest. */
  readonly requested: () => Exposure | undefined;
}

/** The form in which a client gets its tools, as its status says it. */
export interface ExposureStatus {
  /** The setting that counts for the client. */
  readonly expose: Exposure;
  /** The form that the client's list of tools has because of it. */
  readonly form: ListForm;
  /** The size of the list, in tokens (bytes / 4). */
  readonly tokens: number;
  /** Present if the list has all tools and is above the budget, and the client does not search for tools by itself. */
  readonly isLong?: true;
}

/** Functions of the frontend that the answers of the hub's tools need. */
export interface AnswerNeeds {
  /** The definition of a tool, byte for byte as a list with all tools has it for the client. */
  readonly definitionOf: (entry: SectionEntry) => Uint8Array;
  /** Called when the selected tools have changed, before the answer. */
  readonly onSelected: () => void;
}

/** Receives the end of a call of one of the hub's tools; one of the functions is called once. */
export interface AnswerEvents {
  /** @param result of `tools/call`, as JSON; undefined: the call was cancelled */
  respond(result: Uint8Array | undefined): void;
  fail(error: HubError): void;
}

/** The form in which one client gets its tools: which of them are listed, and which of the hub's own tools it has. */
export class ClientExposure {
  readonly toolSearch: ToolSearch;
  readonly view: ClientView;
  readonly era: Era;
  readonly #requested: () => Exposure | undefined;
  /** The version of the settings from which the next three members were computed. */
  #version = -1;
  #exposure: Exposure = "direct";
  #offersTools = false;
  #hubTools: readonly HubToolName[] = [];
  /** The form of the list under `auto`, which a session keeps; undefined before it is decided. */
  #decided: "direct" | "search" | undefined;
  /** Whether the client shows the apps of tools. */
  showsApps = false;
  /** The name that the client gave itself; undefined: none. */
  clientName: string | undefined;
  /** The exposed names of the selected tools, in the order of their selection. */
  #selected: readonly string[] = [];
  /** Cache: the list with the selected tools. */
  #selectedList:
    | { readonly tools: Section; readonly selected: readonly string[]; readonly list: Section }
    | undefined;

  constructor({ toolSearch, view, era, requested }: ClientExposureOptions) {
    this.toolSearch = toolSearch;
    this.view = view;
    this.era = era;
    this.#requested = requested;
  }

  /** The setting that counts for the client. */
  get exposure(): Exposure {
    this.#update();
    return this.#exposure;
  }

  /** The form of the client's list of tools. */
  get form(): ListForm {
    const { exposure } = this;
    if (exposure !== "auto") {
      // A modern client has no session that could keep a selection.
      return exposure === "select" && this.era === "modern" ? "search" : exposure;
    }
    const { view, toolSearch } = this;
    if (this.era === "modern") return toolSearch.decide(view.catalogKey, view.catalog.tools);
    this.#decided ??= this.#decide(view.catalog.tools);
    return this.#decided;
  }

  /** The tools that the client's models may call. Nothing else is known to the hub's own tools. */
  get tools(): Section {
    return toolsForModels(this.view.catalog.tools);
  }

  /** Returns the catalog as it is shown to the client: the same, apart from the list of tools. */
  shown(catalog: Catalog): Catalog {
    if (this.exposure === "direct") return catalog;
    const tools = this.#listOf(catalog.tools);
    return tools === catalog.tools ? catalog : { ...catalog, tools };
  }

  /** Called when the client's tools may have changed: prepares the search for them, if the client searches. */
  prepareSearch(): void {
    if (this.exposure !== "direct" && this.form !== "direct")
      this.toolSearch.prepareIndex(this.view);
  }

  /** The instructions for the client. */
  instructions(catalog: Catalog): string | undefined {
    const { form, view } = this;
    return form === "direct"
      ? catalog.instructions
      : searchInstructions(form, catalog, view.servers);
  }

  /** The form in which the client gets its tools, and the size of its list in tokens. */
  get status(): ExposureStatus {
    const { exposure, form, view, toolSearch } = this;
    const { tools } = this.shown(view.catalog);
    const isLong =
      form === "direct" && toolSearch.isAboveBudget(tools) && !searchesByItself(this.clientName);
    return {
      expose: exposure,
      form,
      tokens: listTokens(tools),
      ...(isLong && { isLong }),
    };
  }

  /** The hub's own tools that the client can call. */
  get hubTools(): readonly HubToolName[] {
    this.#update();
    return this.#offersTools ? this.#hubTools : [];
  }

  /** The tool of the hub that a request `tools/call` names; undefined: it is for a server. */
  hubToolOf(request: Request): HubToolName | undefined {
    this.#update();
    if (!this.#offersTools) return undefined;
    const name = paramsOf(request).string("name");
    const tool = this.#hubTools.find((each) => each === name);
    // Under `auto` the hub's tools can be called while the list has all tools, because the model may have seen them in
    // an earlier list. There, a server's tool of that name is the one in the list.
    const isServers =
      tool !== undefined &&
      this.#exposure === "auto" &&
      this.form === "direct" &&
      this.view.catalog.tools.entry(tool) !== undefined;
    return isServers ? undefined : tool;
  }

  /** The selected tools that the client sees now, in the order of their selection. */
  get selected(): readonly SectionEntry[] {
    const { tools } = this;
    return this.#selected.flatMap((name) => tools.entry(name) ?? []);
  }

  /**
   * Answers a call of one of the hub's tools, when the client's servers are listed.
   * @returns a function that cancels the call
   */
  answer(
    tool: AnsweringToolName,
    request: Request,
    needs: AnswerNeeds,
    events: AnswerEvents,
  ): () => void {
    let isOver = false;
    const end = (work: () => void): void => {
      if (isOver) return;
      isOver = true;
      work();
    };
    const answerNow = async (): Promise<void> => {
      try {
        const { answerHubTool } = await import("../../catalog/search/answers.ts");
        if (isOver) return;
        const params = paramsOf(request);
        refuseLookalikes(params, request.method);
        const args = params.object("arguments");
        const result = await answerHubTool(tool, args, this.#answerContext(needs));
        end(() => events.respond(result));
      } catch (error) {
        end(() => events.fail(toHubError(error)));
      }
    };
    const cancelWait = this.view.whenListed(() => void answerNow());
    return () => {
      cancelWait();
      end(() => events.respond(undefined));
    };
  }

  #answerContext({ definitionOf, onSelected }: AnswerNeeds): AnswerContext {
    const { view, toolSearch, tools } = this;
    const searched: SearchedTools = {
      key: view.wholeCatalogKey,
      whole: () => view.wholeCatalog.tools,
      visible: () => this.tools,
    };
    return {
      tools,
      servers: view.servers.map(({ spec, listing }) => ({
        name: spec.name,
        instructions: listing?.instructions,
        isListed: listing !== undefined,
      })),
      limit: toolSearch.settings.limit,
      search: (query, options) => toolSearch.search(searched, query, options),
      definitionOf,
      selected: () => this.selected,
      select: (entries) => {
        this.#selected = entries.map(({ name }) => name);
        onSelected();
      },
    };
  }

  #update(): void {
    const { version, settings } = this.toolSearch;
    if (this.#version === version) return;
    this.#version = version;
    this.#exposure = this.toolSearch.exposureFor(this.#requested());
    if (this.#exposure !== "auto") this.#decided = undefined;
    this.#offersTools = this.#exposure !== "direct";
    const isSelect = this.#exposure === "select" && this.era === "legacy";
    this.#hubTools = hubToolsOf(isSelect ? "select" : "search", settings.readOnlyCall);
  }

  #decide(tools: Section): "direct" | "search" {
    if (searchesByItself(this.clientName)) return "direct";
    return this.toolSearch.isAboveBudget(tools) ? "search" : "direct";
  }

  #listOf(tools: Section): Section {
    const { form, toolSearch, showsApps } = this;
    const isAuto = this.#exposure === "auto";
    if (form === "direct") return isAuto ? toolSearch.directListUnderAuto(tools) : tools;
    const list = toolSearch.list(tools, { form, isAuto, showsApps });
    if (form === "search" || this.#selected.length === 0) return list;
    const known = this.#selectedList;
    if (known?.tools === tools && known.selected === this.#selected) return known.list;
    const entries = new Map(list.entries.map((entry) => [entry.name, entry]));
    for (const entry of this.selected) if (!entries.has(entry.name)) entries.set(entry.name, entry);
    const made = new Section("tools", entries, list.info, [...entries.keys()]);
    this.#selectedList = { tools, selected: this.#selected, list: made };
    return made;
  }
}
