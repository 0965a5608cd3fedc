import type { Locate } from "./document.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { detectFormat, parseText } from "./parse.ts";
import { printPath, type Complaint, type Problem } from "./problems.ts";
import { MAX_MANIFEST } from "./trust.ts";

/** Adds positions to the problems of a file. Returns each with its positioned form, in the order of the text. */
export async function place<T extends Complaint>(
  file: string,
  locate: () => Promise<Locate>,
  complaints: readonly T[],
): Promise<readonly { readonly fault: T; readonly problem: Problem }[]> {
  if (complaints.length === 0) return [];
  const find = await locate().catch((): Locate => () => undefined);
  const placed = complaints.map((fault) => {
    const { path, at, message, position = find(path, at) } = fault;
    const problem: Problem = { file, position, path: printPath(path), message };
    return { fault, problem };
  });
  return placed.toSorted(
    ({ problem: { position: a } }, { problem: { position: b } }) =>
      (a?.line ?? 0) - (b?.line ?? 0) || (a?.column ?? 0) - (b?.column ?? 0),
  );
}

/**
 * Adds positions to problems found after the file was loaded, by reading it again. What is not found any more gets no
 * position.
 */
export async function placeProblems(
  file: string,
  complaints: readonly Complaint[],
): Promise<readonly Problem[]> {
  const placed = await place(file, () => readPlaces(file), complaints);
  return placed.map(({ problem }) => problem);
}

async function readPlaces(file: string): Promise<Locate> {
  const read = await readFileLimited(file, MAX_MANIFEST);
  const text = read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
  const parsed = text === undefined ? undefined : await parseText(text, detectFormat(file, text));
  return parsed?.ok === true ? parsed.locate() : () => undefined;
}
