import type { PositionFinder } from "./document.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { detectFormat, parseText } from "./parse.ts";
import { formatPath, type UnplacedProblem, type Problem } from "./problems.ts";
import { MAX_MANIFEST_SIZE } from "./trust.ts";

/** Adds positions to the problems of a file. Returns each with its positioned form, in the order of the text. */
export async function addPositions<T extends UnplacedProblem>(
  file: string,
  preparePositions: () => Promise<PositionFinder>,
  problems: readonly T[],
): Promise<readonly { readonly source: T; readonly problem: Problem }[]> {
  if (problems.length === 0) return [];
  const positionOf = await preparePositions().catch((): PositionFinder => () => undefined);
  const placed = problems.map((source) => {
    const { path, at, message, position = positionOf(path, at) } = source;
    const problem: Problem = { file, position, path: formatPath(path), message };
    return { source, problem };
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
export async function addPositionsLater(
  file: string,
  problems: readonly UnplacedProblem[],
): Promise<readonly Problem[]> {
  const placed = await addPositions(file, () => readPositions(file), problems);
  return placed.map(({ problem }) => problem);
}

async function readPositions(file: string): Promise<PositionFinder> {
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  const text = read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
  const parsed = text === undefined ? undefined : await parseText(text, detectFormat(file, text));
  return parsed?.ok === true ? parsed.preparePositions() : () => undefined;
}
