import { decodeUtf8, readFileLimited } from "../../base/read-file.ts";
import { detectFormat, parseText, type PositionFinder } from "./parse.ts";
import type { Problem } from "../problems.ts";
import { MAX_MANIFEST_SIZE } from "../trust.ts";

/** Adds positions to the problems of a file, and sorts them in the order of the text. */
export async function addPositions(
  problems: readonly Problem[],
  preparePositions: () => Promise<PositionFinder>,
): Promise<readonly Problem[]> {
  if (problems.length === 0) return [];
  const positionOf = await preparePositions().catch((): PositionFinder => () => undefined);
  const placed = problems.map((problem): Problem => {
    const { file, path, at, message, position = positionOf(path, at) } = problem;
    return { file, path, at, message, position };
  });
  return placed.toSorted(
    ({ position: a }, { position: b }) =>
      (a?.line ?? 0) - (b?.line ?? 0) || (a?.column ?? 0) - (b?.column ?? 0),
  );
}

/**
 * Adds positions to problems that were found after their files were loaded, by reading the files again. A path that no
 * longer exists gets no position.
 */
export async function addPositionsLater(problems: readonly Problem[]): Promise<readonly Problem[]> {
  const files = [...new Set(problems.map(({ file }) => file))];
  const placed = files.map((file) =>
    addPositions(
      problems.filter((problem) => problem.file === file),
      () => readPositions(file),
    ),
  );
  return (await Promise.all(placed)).flat();
}

async function readPositions(file: string): Promise<PositionFinder> {
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  const text = read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
  const parsed = text === undefined ? undefined : await parseText(text, detectFormat(file, text));
  return parsed?.ok === true ? parsed.preparePositions() : () => undefined;
}
