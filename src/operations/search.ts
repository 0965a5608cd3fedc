import type { Registry, RegistryEntry } from "../registry/registry.ts";
import { type RegistryFailure, searchRegistries } from "../registry/search.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { type RegistryDocument, withoutUndefined } from "./documents.ts";
import { openRegistries } from "./registries.ts";

/** What to search for in registries of MCP servers. */
export interface SearchRequest {
  /** Not empty. */
  readonly words: readonly string[];
  /** The registries to search; if there are none, those of the environment or the manifest. */
  readonly from: readonly string[];
  /** Maximum number of results, within `SEARCH_LIMITS`. */
  readonly limit: number;
}

/** The outcome of a search. */
export interface SearchResult {
  readonly document: RegistryDocument;
  readonly entries: readonly RegistryEntry[];
  readonly failures: readonly RegistryFailure[];
  /** Whether at least one registry has answered. */
  readonly hasAnswer: boolean;
}

/**
 * Searches registries of MCP servers. A registry that fails does not affect the others.
 * @param onStart receives the registries before they are searched
 * @throws {HubError} usage; the signal's reason
 */
export async function searchServers(
  { words, from, limit }: SearchRequest,
  choice: ManifestChoice,
  context: OperationContext,
  onStart: (registries: readonly Registry[]) => void = () => {},
): Promise<SearchResult> {
  const registries = await openRegistries(from, choice, context);
  onStart(registries);
  const { entries, failures } = await searchRegistries(registries, words, limit, context.signal);
  const failed = failures.map(({ directory, cause: { code, message } }) => ({
    directory,
    code,
    message,
  }));
  return {
    document: { servers: entries.map(toJson), failures: failed },
    entries,
    failures,
    hasAnswer: failures.length < registries.length,
  };
}

function toJson({ options, ...entry }: RegistryEntry): RegistryDocument["servers"][number] {
  return withoutUndefined<RegistryDocument["servers"][number]>({
    ...entry,
    offers: options.map((option) =>
      option.kind === "package"
        ? { package: option.name, env: option.env.map(({ name }) => name) }
        : {
            url: option.url,
            transport: option.transport,
            headers: option.headers.map(({ name }) => name),
          },
    ),
  });
}
