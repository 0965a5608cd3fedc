import { Buffer } from "node:buffer";
import { isJsonObject, parseRange, propertyOf } from "../base/json.ts";
import type { ListedItem } from "./listing.ts";
import type { Section } from "./section.ts";

/** The extension that a client declares if it shows the apps of tools (MCP Apps). */
export const UI_EXTENSION = "io.modelcontextprotocol/ui";

/** The statements in the `_meta` of a tool about where the tool is shown. */
export interface ToolVisibility {
  /** `anthropic/alwaysLoad`: the tool should be listed even if other tools have to be searched. */
  readonly isAlwaysLoaded: boolean;
  /** Whether the tool has an app (MCP Apps: `ui.resourceUri`). */
  readonly hasApp: boolean;
  /** Whether apps, but no models, may call the tool (MCP Apps: `ui.visibility` without `model`). */
  readonly isForAppsOnly: boolean;
}

const PLAIN: ToolVisibility = { isAlwaysLoaded: false, hasApp: false, isForAppsOnly: false };
const ALWAYS_LOAD = "anthropic/alwaysLoad";
/** A part of every key that `readVisibility` reads, including `ui` and the older `ui/resourceUri`. */
const MARKS = ['"anthropic/alwaysLoad"', '"ui"', '"ui/resourceUri"'].map((key) => Buffer.from(key));

const visibilities = new WeakMap<ListedItem, ToolVisibility>();

/** Reads from the `_meta` of a tool where the tool is shown. Cached by item. */
export function visibilityOf(item: ListedItem): ToolVisibility {
  // Most tools have no `_meta`.
  if (item.meta === undefined) return PLAIN;
  let visibility = visibilities.get(item);
  if (visibility === undefined) visibilities.set(item, (visibility = readVisibility(item)));
  return visibility;
}

function readVisibility({ bytes, meta }: ListedItem): ToolVisibility {
  if (meta === undefined) return PLAIN;
  const range = Buffer.from(bytes.buffer, bytes.byteOffset + meta.start, meta.end - meta.start);
  if (!MARKS.some((mark) => range.includes(mark))) return PLAIN;
  const value = parseRange(bytes, meta);
  const ui = propertyOf(value, "ui");
  const uri = propertyOf(ui, "resourceUri") ?? propertyOf(value, "ui/resourceUri");
  const visibility = isJsonObject(ui) ? propertyOf(ui, "visibility") : undefined;
  return {
    isAlwaysLoaded: propertyOf(value, ALWAYS_LOAD) === true,
    hasApp: typeof uri === "string",
    isForAppsOnly: Array.isArray(visibility) && !visibility.includes("model"),
  };
}

const modelTools = new WeakMap<Section, Section>();

/** The tools of a section that models may call: without those that only apps may call. Cached by section. */
export function toolsForModels(tools: Section): Section {
  let section = modelTools.get(tools);
  if (section === undefined) {
    section = tools.filter(({ item }) => !visibilityOf(item).isForAppsOnly);
    modelTools.set(tools, section);
  }
  return section;
}
