import { Buffer } from "node:buffer";
import { rewrite } from "../../src/plugin/plugin.ts";
import { paginate } from "./pages.ts";
import {
  type ContentItem,
  type MediaItem,
  readResult,
  repeatsStructured,
  sizeOf,
  type TextItem,
} from "./result.ts";
import type { StoredContent } from "./store.ts";
import { describeCut, describeMedia, NOTICE_SIZE } from "./notices.ts";

export interface ResultLimits {
  /** Maximum size of a result's text, and also of its structured content, in bytes. */
  readonly max: number;
  /** Maximum size of an image or sound, in bytes of its Base64 data. */
  readonly maxMedia: number;
}

/** The store for text that was cut off and media that were omitted. */
export interface OverflowStore {
  /**
   * The exposed name of the tool that reads further pages. Undefined if clients do not see the tool; in this case, no
   * text is stored.
   */
  tool(): string | undefined;
  /** @returns the id for reading the content later; undefined if it was not stored */
  put(kept: StoredContent): string | undefined;
}

/** Separates the texts of a result's entries. */
const SEPARATOR = "\n\n";

/**
 * Cuts a result down to the limits. The remaining parts keep their formatting.
 * @param json the result as JSON text
 * @param mayDrop whether structured content may be omitted: only if the tool has no output schema
 * @returns undefined if no limit is exceeded, or the text is not a result
 */
export function limitResult(
  json: string,
  limits: ResultLimits,
  mayDrop: () => boolean,
  store: OverflowStore,
): string | undefined {
  const result = readResult(json);
  if (result === undefined) return undefined;
  const { part, items, structured } = result;
  const drop = structured !== undefined && sizeOf(structured) > limits.max && mayDrop();
  const isLarge = items.some((item) => isTooLarge(item, limits));
  const small = items.map((item) =>
    isTooLarge(item, limits) ? replaceMedia(item, limits, store) : item,
  );
  const all = drop ? [...small, ...lostStructuredContent(items, structured)] : small;
  const isLong = sizeOfAll(all) > limits.max;
  if (!isLong && !isLarge && !drop) return undefined;
  const shown = isLong ? cutItems(all, limits.max, store) : all;
  const content = `[${shown.map((item) => item.json).join(",")}]`;
  return rewrite(part, drop ? { content, structuredContent: undefined } : { content });
}

function isTooLarge(item: ContentItem, { maxMedia }: ResultLimits): item is MediaItem {
  return item.kind === "media" && item.data.length > maxMedia;
}

/** A text item with the structured content; none if the other items contain the same data. */
function lostStructuredContent(items: readonly ContentItem[], structured: string): TextItem[] {
  if (repeatsStructured(items, structured)) return [];
  // This item is too long to be shown as a whole, so only its `text` is used, never its `json`.
  return [{ kind: "text", json: structured, isText: false, text: structured }];
}

function sizeOfAll(items: readonly ContentItem[]): number {
  const sizes = items.flatMap((item) => (item.kind === "text" ? [sizeOf(item.text)] : []));
  return sizes.reduce((sum, size) => sum + size, SEPARATOR.length * (sizes.length - 1));
}

/**
 * The entries that are shown: those before the cut, the beginning of the entry that is cut, all media, and a notice.
 */
function cutItems(items: readonly ContentItem[], max: number, store: OverflowStore): ContentItem[] {
  const texts = items.flatMap((item) => (item.kind === "text" ? [item.text] : []));
  const bytes = Buffer.from(texts.join(SEPARATOR));
  const ends = paginate(bytes, max - NOTICE_SIZE);
  const shown = ends[0] ?? 0;
  const content: ContentItem[] = [];
  let start = 0;
  for (const item of items) {
    if (item.kind === "media") {
      content.push(item);
      continue;
    }
    const end = start + sizeOf(item.text);
    // A text with unpaired surrogates is re-encoded, which replaces each surrogate by U+FFFD: some clients cannot
    // serialize unpaired surrogates.
    if (end <= shown && item.text.isWellFormed()) content.push(item);
    else if (start < shown) {
      content.push(withText(item, bytes.toString("utf8", start, Math.min(end, shown))));
    }
    start = end + SEPARATOR.length;
  }
  const tool = store.tool();
  const id = tool === undefined ? undefined : store.put({ kind: "text", bytes, ends });
  const more = tool === undefined || id === undefined ? undefined : { id, tool };
  const size = { shown, whole: bytes.length, pages: ends.length };
  return [...content, writeText(describeCut(size, more))];
}

function replaceMedia(
  media: MediaItem,
  { maxMedia }: ResultLimits,
  store: OverflowStore,
): TextItem {
  const { label: what, mimeType, data } = media;
  const id = store.put({ kind: "media", mimeType, bytes: Buffer.from(data) });
  return writeText(describeMedia({ label: what, mimeType, size: data.length }, maxMedia, id));
}

/** The item with another text. An item that is not a text entry, such as a link, becomes a text entry. */
function withText(item: TextItem, text: string): TextItem {
  if (!item.isText) return writeText(text);
  const json = rewrite(item.part ?? item.json, { text: JSON.stringify(text) });
  return { kind: "text", json, isText: true, text };
}

function writeText(text: string): TextItem {
  return { kind: "text", json: JSON.stringify({ type: "text", text }), isText: true, text };
}
