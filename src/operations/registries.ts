import { HubError } from "../base/errors.ts";
import {
  DEFAULT_REGISTRIES,
  openRegistry,
  parseRegistryChoice,
  type RegistryFailure,
} from "../registry/search.ts";
import type { RegistryFetch, Registry } from "../registry/registry.ts";
import { loadManifest } from "../manifest/load.ts";
import { openSecrets } from "../secrets/secrets.ts";
import { makeFetch } from "../transport/http-client/fetch.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { type CommandLog, loadOptions } from "./load-manifest.ts";

/** Name of the secret that contains the Smithery API key. */
const API_KEY_SECRET = "smithery";

/**
 * Opens the registries to search: those of `from`, or else of TOOLMUX_DIRECTORIES, or else of the manifest, or else
 * the default ones.
 * @throws {HubError} usage
 */
export async function openRegistries(
  from: readonly string[],
  choice: ManifestChoice,
  context: OperationContext,
): Promise<readonly Registry[]> {
  const { env } = context;
  const words = env["TOOLMUX_DIRECTORIES"]?.split(/\s+/).filter((word) => word !== "") ?? [];
  const named = from.length > 0 ? from : words;
  const choices = (
    named.length > 0 ? named : ((await readManifestSetting(choice, context)) ?? DEFAULT_REGISTRIES)
  ).map(parseRegistryChoice);
  const fetch = makeFetch({ ca: undefined, env });
  const registryFetch: RegistryFetch = (url, init) => fetch(url, init);
  const wantsKey = choices.some(({ kind }) => kind === "smithery");
  const key = wantsKey ? await findApiKey(context) : undefined;
  return choices.map((registry) => openRegistry(registry, registryFetch, key));
}

/**
 * The registries that the manifest sets; undefined if it sets none, is missing or is invalid. None of these is an
 * error, because a search needs no manifest.
 */
async function readManifestSetting(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<readonly string[] | undefined> {
  const loaded = await loadManifest(loadOptions(choice, context));
  return loaded.ok ? loaded.manifest.registries : undefined;
}

async function findApiKey(context: OperationContext): Promise<string | undefined> {
  const { SMITHERY_API_KEY: variable } = context.env;
  if (variable !== undefined && variable !== "") return variable;
  // A secret store that cannot be opened does not prevent a search.
  const secret = await openSecrets(context)
    .find(API_KEY_SECRET)
    .catch(() => undefined);
  return secret?.value;
}

/**
 * The error if no registry answered. If a registry failed for another reason than being unreachable, its own error is
 * used.
 * @param advice what to do without registries
 */
export function unreachableRegistriesError(
  failures: readonly RegistryFailure[],
  advice: string,
): HubError {
  const other = failures.find(({ cause }) => cause.code !== "unreachable");
  if (other !== undefined) return other.cause;
  const names = failures.map(({ directory }) => directory).join(" and ");
  const text = `Could not reach the directories of MCP servers (${names}). Is this machine online? ${advice}`;
  return new HubError("unreachable", text);
}

export function logRegistryFailures(failures: readonly RegistryFailure[], log: CommandLog): void {
  for (const { directory, cause } of failures) {
    const help =
      cause.code === "unauthorized" && directory === "smithery"
        ? " Set one: toolmux secret set smithery"
        : "";
    log("warn", `The directory "${directory}" was not searched: ${cause.message}${help}`);
  }
}
