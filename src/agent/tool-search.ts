import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import { joinPieces, textOf, utf8 } from "../base/bytes.ts";
import { abortable } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { JsonObject } from "../base/json.ts";
import { compileFilter, type Matcher } from "../catalog/filter.ts";
import { answerHubTool } from "../catalog/search/answers.ts";
import { type GivenCall, readGivenCall, unknownToolError } from "../catalog/search/given-call.ts";
import { HOW_TO, hubToolItem, hubToolsOf } from "../catalog/search/hub-tools.ts";
import { estimateTokens } from "../catalog/search/signature.ts";
import type { ToolIndex } from "../catalog/search/tool-index.ts";
import { ToolNames } from "../catalog/search/tool-names.ts";
import { Section } from "../catalog/section.ts";
import { toolsForModels } from "../catalog/tool-visibility.ts";
import { toolItemOf, UnroutedTool } from "../catalog/unrouted-tool.ts";
import type { AgentSpec } from "../manifest/agents.ts";
import {
  type Manifest,
  TOOL_SEARCH_DEFAULTS,
  type ToolSearchSettings,
} from "../manifest/manifest.ts";
import { BUILT_IN } from "./agent-file-toolbox.ts";
import type { ModelTool } from "./model.ts";
import { type AgentTool, errorResult, readResult, type ToolResult } from "./toolbox.ts";

/** The form in which the model of an agent gets its tools: all definitions, or tools for searching and calling them. */
export type ToolForm = "direct" | "search";

/** The tools by which a model finds and calls the agent's tools. */
const SEARCH_TOOL_NAMES = hubToolsOf("search", false);

/** Their definitions. */
export const SEARCH_TOOLS: readonly ModelTool[] = SEARCH_TOOL_NAMES.map((name) => {
  const { description, inputSchema } = JSON.parse(textOf(hubToolItem(name).bytes)) as ModelTool;
  return { name, description, inputSchema };
});

export function isSearchTool(name: string): boolean {
  return SEARCH_TOOLS.some((tool) => tool.name === name);
}

/** Whether the program itself answers the calls of a tool (`think`, `todo`). It is always listed, and never searched. */
export function isBuiltIn({ server }: AgentTool): boolean {
  return server === BUILT_IN;
}

/** The settings of a manifest that say how agents get their tools. */
export interface AgentToolSettings {
  /** The size of the definitions, in tokens, up to which a model gets all of them under `auto`. */
  readonly budget: number;
  readonly search: ToolSearchSettings;
}

export function agentToolSettings({
  hub: { exposeBudget: budget },
  toolSearch: search = TOOL_SEARCH_DEFAULTS,
}: Pick<Manifest, "hub" | "toolSearch">): AgentToolSettings {
  return { budget, search };
}

/** The definition of a tool as a model gets it. */
export function modelToolOf({ name, description, inputSchema }: AgentTool): ModelTool {
  return { name, description, inputSchema };
}

const sizes = new WeakMap<AgentTool, number>();

/** The size of the definitions of tools as a model gets them, in tokens: a quarter of their bytes as JSON. */
export function definitionTokens(tools: readonly AgentTool[]): number {
  let bytes = 0;
  for (const tool of tools) {
    let size = sizes.get(tool);
    if (size === undefined) {
      size = Buffer.byteLength(JSON.stringify(modelToolOf(tool)));
      sizes.set(tool, size);
    }
    bytes += size;
  }
  return estimateTokens(bytes);
}

/** Returns the form in which the model of an agent with these tools gets them. */
export function formOf(
  { expose }: Pick<AgentSpec, "expose">,
  tools: readonly AgentTool[],
  budget: number,
): ToolForm {
  if (expose !== "auto") return expose;
  return definitionTokens(tools) > budget ? "search" : "direct";
}

/** The form in which the model of an agent gets these tools, and the size of their definitions in tokens. */
export function exposureOf(
  spec: Pick<AgentSpec, "expose">,
  tools: readonly AgentTool[],
  budget: number,
): { readonly form: ToolForm; readonly tokens: number } {
  return { form: formOf(spec, tools, budget), tokens: definitionTokens(tools) };
}

/** The meaning of a call of `call_tool`: the call of a tool of the agent, or the reason why no tool is called. */
export type CalledTool =
  | { readonly kind: "call"; readonly name: string; readonly argumentsJson: string }
  | { readonly kind: "refused"; readonly name?: string; readonly error: HubError };

/** Maximum number of listings whose indexes are kept; the oldest are dropped. */
const MAX_LISTINGS = 16;
/** Maximum length of the names of servers in an instruction, in UTF-16 units. */
const MAX_SERVERS = 1000;

/** The tools that an agent had at one time, with their index. */
interface IndexedListing {
  readonly tools: readonly AgentTool[];
  readonly section: Section;
  /** The names of the servers that have these tools. */
  readonly servers: readonly string[];
  index: Promise<ToolIndex> | undefined;
}

/**
 * The search of agents for their tools: an index of exactly the tools that an agent has. Tools that its filter, its mode
 * or the caller's mode hides are unknown to it. Agents and runs with equal tools share an index.
 */
export class AgentToolSearch {
  readonly settings: AgentToolSettings;
  readonly #isAlways: Matcher | undefined;
  /** The last one that was used comes last. */
  readonly #listings: IndexedListing[] = [];

  constructor(settings: AgentToolSettings) {
    const { always } = settings.search;
    this.settings = settings;
    this.#isAlways = always === undefined ? undefined : compileFilter(always);
  }

  /** Whether a model gets the tool's definition although it searches for other tools. */
  isListed(tool: AgentTool): boolean {
    return isBuiltIn(tool) || this.#isAlways?.(tool) === true;
  }

  /** Returns the text about searching that a model that searches gets after the agent's instruction. */
  instruction(tools: readonly AgentTool[]): string {
    const { servers } = this.#listing(tools);
    let line = "Servers:";
    for (const [at, server] of servers.toSorted().entries()) {
      if (line.length + server.length > MAX_SERVERS) {
        line += ` and ${servers.length - at} more`;
        break;
      }
      line += `${at === 0 ? "" : ","} ${server}`;
    }
    return [...HOW_TO.search, line].join("\n");
  }

  /**
   * Answers a call of `search_tools` or `describe_tools`. Errors are results.
   * @param args the JSON text of an object
   * @throws the signal's reason
   */
  async answer(
    name: "search_tools" | "describe_tools",
    args: string,
    tools: readonly AgentTool[],
    signal: AbortSignal,
  ): Promise<ToolResult> {
    const listing = this.#listing(tools);
    const { section, servers } = listing;
    try {
      const answer = answerHubTool(name, JsonObject.of(utf8(args)), {
        tools: section,
        servers: servers.map((server) => ({
          name: server,
          instructions: undefined,
          isListed: true,
        })),
        limit: this.settings.search.limit,
        search: async (query, options) => {
          const index = await (listing.index ??= this.#makeIndex(section));
          return index.search(query, { ...options, visible: section });
        },
        definitionOf: ({ bytes }) => bytes,
        selected: () => [],
        select: () => {},
      });
      const bytes = await abortable(answer, signal);
      return readResult(bytes, { start: 0, end: bytes.length });
    } catch (error) {
      signal.throwIfAborted();
      const { message, code } = toHubError(error);
      return errorResult(message, code);
    }
  }

  /**
   * The call that a call of `call_tool` asks for, in all forms in which models write it.
   * @param args the JSON text of an object
   * @param ownNames the tools of the model that are called by their own names only
   */
  resolve(args: string, tools: readonly AgentTool[], ownNames: ReadonlySet<string>): CalledTool {
    const { section } = this.#listing(tools);
    const callable = { tools: section, hubTools: SEARCH_TOOL_NAMES };
    let given: GivenCall;
    try {
      given = readGivenCall("call_tool", JsonObject.of(utf8(args)), callable);
    } catch (error) {
      return { kind: "refused", error: toHubError(error) };
    }
    const resolution = ToolNames.of(section).resolve(given.name);
    if (resolution.kind !== "found") {
      const error = ownNames.has(given.name)
        ? new HubError(
            "unknownTool",
            `"${given.name}" is called by its own name, not by call_tool.`,
          )
        : unknownToolError(given.name, callable);
      return { kind: "refused", error };
    }
    const { name } = resolution.entry;
    if (given.refusal !== undefined) return { kind: "refused", name, error: given.refusal };
    return { kind: "call", name, argumentsJson: textOf(joinPieces([given.args])) };
  }

  async #makeIndex(section: Section): Promise<ToolIndex> {
    const { ToolIndex } = await import("../catalog/search/tool-index.ts");
    const index = new ToolIndex({ synonyms: this.settings.search.synonyms });
    index.update(section);
    await index.complete(() => setImmediate());
    return index;
  }

  /** The tools that can be searched, without those of the program itself. */
  #listing(tools: readonly AgentTool[]): IndexedListing {
    const found = this.#listings.findIndex(({ tools: known }) => areSame(known, tools));
    const [known] = found < 0 ? [] : this.#listings.splice(found, 1);
    const listing = known ?? listingOf(tools);
    this.#listings.push(listing);
    if (this.#listings.length > MAX_LISTINGS) this.#listings.shift();
    return listing;
  }
}

/** Whether two listings have the same tools. An unchanged tool is the same object in each listing of a toolbox. */
function areSame(a: readonly AgentTool[], b: readonly AgentTool[]): boolean {
  return a === b || (a.length === b.length && a.every((tool, at) => tool === b[at]));
}

function listingOf(tools: readonly AgentTool[]): IndexedListing {
  const section = sectionOf(tools);
  const servers = [...new Set(section.entries.map(({ server }) => server))];
  return { tools, section, servers, index: undefined };
}

function sectionOf(tools: readonly AgentTool[]): Section {
  const searched = tools.filter((tool) => !isBuiltIn(tool));
  const entries = searched.map((tool) => [tool.name, entryOf(tool)] as const);
  return toolsForModels(new Section("tools", new Map(entries)));
}

const entriesByTool = new WeakMap<AgentTool, UnroutedTool>();

/** A tool of an agent, as it is indexed; always the same object. The agent's toolbox makes the calls. */
function entryOf(tool: AgentTool): UnroutedTool {
  let entry = entriesByTool.get(tool);
  if (entry === undefined) {
    entry = new UnroutedTool({ ...tool, item: toolItemOf(tool.name, definitionOf(tool)) });
    entriesByTool.set(tool, entry);
  }
  return entry;
}

/** The definition of a tool under the name that the agent's model uses, as JSON. */
function definitionOf(tool: AgentTool): Uint8Array {
  const { name, definition } = tool;
  if (definition === undefined) return utf8(JSON.stringify(modelToolOf(tool)));
  if (JsonObject.of(definition).string("name") === name) return definition;
  const listed = JSON.parse(textOf(definition)) as object;
  return utf8(JSON.stringify({ ...listed, name }));
}
