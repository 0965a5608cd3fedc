import type { Locate } from "./document.ts";
import { decode, readSmall } from "./file.ts";
import { detectFormat, parseText } from "./parse.ts";
import { printPath, type Complaint, type Problem } from "./problem.ts";
import { MAX_MANIFEST } from "./trust.ts";

/** Complaints about a file with their positions, in the order of the text. */
export async function place(
  file: string,
  locate: () => Promise<Locate>,
  complaints: readonly Complaint[],
): Promise<Problem[]> {
  if (complaints.length === 0) return [];
  const find = await locate().catch((): Locate => () => undefined);
  const problems = complaints.map(({ path, at, message, position = find(path, at) }): Problem => ({
    file,
    position,
    path: printPath(path),
    message,
  }));
  return problems.toSorted(
    ({ position: a }, { position: b }) =>
      (a?.line ?? 0) - (b?.line ?? 0) || (a?.column ?? 0) - (b?.column ?? 0),
  );
}

/**
 * The same for complaints that came up after the file was loaded: it is read once more. What cannot be found in it any more
 * has no position.
 */
export async function placeProblems(
  file: string,
  complaints: readonly Complaint[],
): Promise<readonly Problem[]> {
  return place(file, () => readPlaces(file), complaints);
}

async function readPlaces(file: string): Promise<Locate> {
  const read = await readSmall(file, MAX_MANIFEST);
  const text = read.kind === "read" ? decode(read.bytes) : undefined;
  const parsed = text === undefined ? undefined : await parseText(text, detectFormat(file, text));
  return parsed?.ok === true ? parsed.locate() : () => undefined;
}
