import { type ClientApp, clientFoldersOf } from "../../client-configs/client.ts";
import { replacePlaintextSecrets } from "../../client-configs/clear.ts";
import type { ServerEntry } from "../../client-configs/entry.ts";
import { CLIENT_NAMES } from "../../client-configs/client-names.ts";
import {
  type PlannedServer,
  type SkippedServer,
  planImport,
} from "../../client-configs/import-plan.ts";
import { type ClientFile, readClientFiles } from "../../client-configs/read.ts";
import { CLIENTS, findClientApp } from "../../client-configs/clients.ts";
import type { SecretStore } from "../../secrets/store.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { suggestName, usageError } from "../args.ts";
import { manifestToEdit } from "../manifest-file.ts";
import { addServers, readTakenNames } from "./manifest.ts";

/** What the files of clients come to. */
export interface ImportSources {
  readonly files: readonly ClientFile[];
  readonly planned: readonly PlannedServer[];
  readonly skipped: readonly SkippedServer[];
  /** The manifest that they would be added to. */
  readonly manifest: string;
}

/** The clients that are named; all if none is. @throws {HubError} usage */
export function pickClients(names: readonly string[]): readonly ClientApp[] {
  if (names.length === 0) return CLIENTS;
  return names.map((name) => {
    const client = findClientApp(name);
    if (client !== undefined) return client;
    const near = suggestName(name, CLIENT_NAMES) || ` There are ${CLIENT_NAMES.join(", ")}.`;
    throw usageError(`There is no client "${name}".${near}`);
  });
}

/** Reads the files of those clients, and says what would become of their servers. @throws {HubError} manifestInvalid */
export async function readImportSources(
  clients: readonly ClientApp[],
  invocation: Invocation,
  world: CommandContext,
): Promise<ImportSources> {
  const { env, cwd, platform } = world;
  const home = clientFoldersOf(env, platform);
  const project = invocation.switches.has("project") ? cwd : undefined;
  const read = await Promise.all(clients.map((client) => readClientFiles(client, home, project)));
  const files = read.flat();
  const plan = await planImport(files, await readTakenNames(invocation, world), home);
  return { files, ...plan, manifest: await manifestToEdit(invocation, world) };
}

/**
 * Adds servers to the manifest. Secrets are kept first, so that the manifest never names one that there is not.
 * @param store where values that look like secrets go; undefined: they stay where they are
 */
export async function applyImport(
  { planned: additions, manifest }: Pick<ImportSources, "planned" | "manifest">,
  store: SecretStore | undefined,
  world: CommandContext,
): Promise<void> {
  if (additions.length === 0) return;
  const servers = new Map(
    additions.map(({ name, entry, plaintextSecrets: clear }): [string, ServerEntry] => [
      name,
      store === undefined ? entry : replacePlaintextSecrets(entry, clear),
    ]),
  );
  const keep = async (): Promise<void> => {
    for (const { secretName: secret, value } of additions.flatMap(
      ({ plaintextSecrets: clear }) => clear,
    )) {
      await store?.set(secret, value);
    }
  };
  await addServers(manifest, servers, keep, world);
}
