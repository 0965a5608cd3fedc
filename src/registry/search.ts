import { HubError, toHubError } from "../base/errors.ts";
import type { Directory, Listing } from "./registry.ts";

/** Time limit per registry, in ms. */
const TIME_LIMIT = 15_000;

/** Results from several registries. */
export interface Findings {
  /** Best first, without duplicates. */
  readonly listings: readonly Listing[];
  /** The registries that failed. */
  readonly failures: readonly Failure[];
}

export interface Failure {
  readonly directory: string;
  readonly cause: HubError;
}

/** Searches all registries in parallel; a failing one does not affect the others. @throws the signal's reason */
export async function searchAll(
  directories: readonly Directory[],
  words: readonly string[],
  limit: number,
  signal: AbortSignal,
  timeLimit = TIME_LIMIT,
): Promise<Findings> {
  const { found, failures } = await askAll(directories, signal, timeLimit, (directory, until) =>
    directory.search(words, limit, until),
  );
  return { listings: merge(found).slice(0, limit), failures };
}

/** The first entry with that name, in the order of the registries. @throws the signal's reason */
export async function findIn(
  directories: readonly Directory[],
  name: string,
  signal: AbortSignal,
  timeLimit = TIME_LIMIT,
): Promise<{ readonly listing: Listing | undefined; readonly failures: readonly Failure[] }> {
  const { found, failures } = await askAll(directories, signal, timeLimit, (directory, until) =>
    directory.find(name, until),
  );
  return { listing: found.find((one) => one !== undefined), failures };
}

async function askAll<T>(
  directories: readonly Directory[],
  signal: AbortSignal,
  timeLimit: number,
  ask: (directory: Directory, until: AbortSignal) => Promise<T>,
): Promise<{ readonly found: readonly T[]; readonly failures: readonly Failure[] }> {
  const found: T[] = [];
  const failures: Failure[] = [];
  const answers = await Promise.all(
    directories.map(async (directory) => {
      const over = new AbortController();
      const late = new HubError(
        "unreachable",
        `${directory.name} has not answered within ${timeLimit / 1000} s.`,
      );
      const timer = setTimeout(() => over.abort(late), timeLimit);
      try {
        return { value: await ask(directory, AbortSignal.any([signal, over.signal])) };
      } catch (error) {
        return { cause: toHubError(error) };
      } finally {
        clearTimeout(timer);
      }
    }),
  );
  signal.throwIfAborted();
  for (const [i, answer] of answers.entries()) {
    if ("value" in answer) found.push(answer.value);
    else failures.push({ directory: directories[i]?.name ?? "", cause: answer.cause });
  }
  return { found, failures };
}

/**
 * Interleaves the results, because each registry lists its best first. Two entries are the same server if they have the
 * same name, or the same repository in different registries.
 */
function merge(found: readonly (readonly Listing[])[]): readonly Listing[] {
  const merged: Listing[] = [];
  const names = new Set<string>();
  const repositories = new Map<string, string>();
  const longest = Math.max(0, ...found.map(({ length }) => length));
  for (let at = 0; at < longest; at++) {
    for (const listing of found.flatMap((some) => some[at] ?? [])) {
      const { name, directory } = listing;
      const repository = normalize(listing.repository ?? listing.homepage);
      const owner = repository === undefined ? undefined : repositories.get(repository);
      // One repository may hold several servers, which one registry lists separately.
      const isOther = owner === undefined || owner === directory;
      if (names.has(name.toLowerCase()) || !isOther) continue;
      names.add(name.toLowerCase());
      if (repository !== undefined && owner === undefined) repositories.set(repository, directory);
      merged.push(listing);
    }
  }
  return merged;
}

function normalize(url: string | undefined): string | undefined {
  return url?.toLowerCase().replace(/^https?:\/\/(?:www\.)?|(?:\.git)?\/*$/g, "") || undefined;
}
