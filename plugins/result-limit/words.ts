/*
 * What models are told. They read it in the middle of something else, so it is one line that says what to do.
 */

export const SERVER = "results";
export const TOOL = "read_more";

const SCHEME = "toolmux-result://";

/** Enough for each of the lines below, in bytes, whatever the names and numbers in it. */
export const NOTICE_SIZE = 512;
/** A name of a tool that is longer would not have room in a line; no client takes one. */
const MOST_NAME = 128;

export function uriOf(id: string, page?: number): string {
  return page === undefined ? SCHEME + id : `${SCHEME}${id}/${page}`;
}

/** The inverse of `uriOf`; undefined if it is none. */
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

/** Under what is shown of a result: how much that is, in bytes, and how to read on. */
export function describeCut(
  { shown, whole, pages }: { shown: number; whole: number; pages: number },
  more: { readonly id: string; readonly tool: string } | undefined,
): string {
  const part = `The result is too long: only the first ${printSize(shown)} of ${printSize(whole)} are shown`;
  if (more === undefined) return `[${part}. The rest was not kept: ask for less.]`;
  return `[${part}, page 1 of ${pages}. ${describeNext(more, 2)}, or ask for less.]`;
}

/** Under a page. */
export function describePage(
  { page, pages }: Position,
  more: { readonly id: string; readonly tool: string },
): string {
  if (page === pages) return `[Page ${page} of ${pages}: the end.]`;
  return `[Page ${page} of ${pages}. ${describeNext(more, page + 1)}.]`;
}

function describeNext({ id, tool }: { id: string; tool: string }, page: number): string {
  const name = tool.length > MOST_NAME ? TOOL : tool;
  return `For page ${page} call the tool ${name} with ${JSON.stringify({ id, page })}`;
}

/** Instead of a picture or sound that is too big. `id` is undefined if it was not kept. */
export function describeMedia(
  { what, mimeType, size }: { what: string; mimeType: string; size: number },
  most: number,
  id: string | undefined,
): string {
  const where =
    id === undefined ? "It was not kept" : `It can be read as the resource ${uriOf(id)}`;
  const type = mimeType.slice(0, MOST_NAME);
  return `[${what} (${type}, ${printSize(size)} in base64) was left out, as it is over the limit of ${printSize(most)}. ${where}.]`;
}

/** 63488 → "63.5 KB": whole and tenths, as nobody counts with it. */
export function printSize(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  const [unit, size] = bytes < 999_950 ? ["KB", 1000] : ["MB", 1_000_000];
  return `${Math.round((bytes / size) * 10) / 10} ${unit}`;
}
