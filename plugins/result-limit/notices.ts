/* Notices for models: single lines that are inserted between other content and say how to read the rest. */

export const SERVER = "results";
export const TOOL = "read_more";

const SCHEME = "toolmux-result://";

/** Maximum size of each notice, in bytes, whatever the names and numbers in it. */
export const NOTICE_SIZE = 512;
/** Maximum length of a tool's name or a media type in a notice; no client accepts longer tool names. */
const MAX_NAME_LENGTH = 128;

export function uriOf(id: string, page?: number): string {
  return page === undefined ? SCHEME + id : `${SCHEME}${id}/${page}`;
}

/** The id and page in a URI that `uriOf` made; undefined for any other URI. */
export function readUri(uri: string): { readonly id: string; readonly page?: number } | undefined {
  const match = /^toolmux-result:\/\/([0-9a-f]{32})(?:\/([1-9]\d{0,8}))?$/.exec(uri);
  const [, id, page] = match ?? [];
  if (id === undefined) return undefined;
  return page === undefined ? { id } : { id, page: Number(page) };
}

export interface Position {
  readonly page: number;
  readonly pages: number;
}

/** The notice below a result that was cut: how many bytes are shown, and how to read the rest. */
export function describeCut(
  { shown, whole, pages }: { shown: number; whole: number; pages: number },
  more: { readonly id: string; readonly tool: string } | undefined,
): string {
  const part = `The result is too long: only the first ${printSize(shown)} of ${printSize(whole)} are shown`;
  if (more === undefined) return `[${part}. The rest was not kept: ask for less.]`;
  return `[${part}, page 1 of ${pages}. ${describeNext(more, 2)}, or ask for less.]`;
}

/** The notice below a page. */
export function describePage(
  { page, pages }: Position,
  more: { readonly id: string; readonly tool: string },
): string {
  if (page === pages) return `[Page ${page} of ${pages}: the end.]`;
  return `[Page ${page} of ${pages}. ${describeNext(more, page + 1)}.]`;
}

function describeNext({ id, tool }: { id: string; tool: string }, page: number): string {
  const name = tool.length > MAX_NAME_LENGTH ? TOOL : tool;
  return `For page ${page} call the tool ${name} with ${JSON.stringify({ id, page })}`;
}

/** The notice in place of an image or sound that is too large. `id` is undefined if the content was not stored. */
export function describeMedia(
  { label, mimeType, size }: { label: string; mimeType: string; size: number },
  limit: number,
  id: string | undefined,
): string {
  const where =
    id === undefined ? "It was not kept" : `It can be read as the resource ${uriOf(id)}`;
  const type = mimeType.slice(0, MAX_NAME_LENGTH);
  return `[${label} (${type}, ${printSize(size)} in base64) was left out, as it is over the limit of ${printSize(limit)}. ${where}.]`;
}

/** 63488 → "63.5 KB"; rounded to tenths. */
export function printSize(bytes: number): string {
  if (bytes < 1000) return bytes === 1 ? "1 byte" : `${bytes} bytes`;
  const [unit, size] = bytes < 999_950 ? ["KB", 1000] : ["MB", 1_000_000];
  return `${Math.round((bytes / size) * 10) / 10} ${unit}`;
}
