import { HubError, toHubError } from "../errors.ts";
import type { Directory, Listing } from "./listing.ts";

/** How long a directory may take, in ms, whatever it sends meanwhile. */
const TIME_LIMIT = 15_000;

/** What was found in several directories. */
export interface Findings {
  /** Best first; what several list is there once. */
  readonly listings: readonly Listing[];
  /** Those that could not be asked. */
  readonly failures: readonly Failure[];
}

export interface Failure {
  readonly directory: string;
  readonly cause: HubError;
}

/** Asks all of them at once; one that fails costs only itself. @throws the signal's reason */
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

/** The first that has something under that name, in the order of the directories. @throws the signal's reason */
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

/** By turns, as each has its best first. The same name, or the same repository in another directory, is the same server. */
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
      // One repository may hold many servers, and one directory knows them apart.
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
