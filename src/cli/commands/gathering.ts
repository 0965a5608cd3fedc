import { type Client, findHome } from "../../client-configs/client.ts";
import { hideClear } from "../../client-configs/clear.ts";
import type { OwnEntry } from "../../client-configs/entry.ts";
import { CLIENT_NAMES } from "../../client-configs/client-names.ts";
import { type Addition, type Omission, planImport } from "../../client-configs/import-plan.ts";
import { type ClientFile, readClient } from "../../client-configs/read.ts";
import { CLIENTS, findClient } from "../../client-configs/clients.ts";
import type { SecretStore } from "../../secrets/store.ts";
import type { Invocation, World } from "../command.ts";
import { suggest, usage } from "../args.ts";
import { findFile } from "../manifest-file.ts";
import { addServers, readTaken } from "./manifest.ts";

/** What the files of clients come to. */
export interface Gathered {
  readonly files: readonly ClientFile[];
  readonly additions: readonly Addition[];
  readonly omissions: readonly Omission[];
  /** The manifest that they would be added to. */
  readonly manifest: string;
}

/** The clients that are named; all if none is. @throws {HubError} usage */
export function pickClients(names: readonly string[]): readonly Client[] {
  if (names.length === 0) return CLIENTS;
  return names.map((name) => {
    const client = findClient(name);
    if (client !== undefined) return client;
    const near = suggest(name, CLIENT_NAMES) || ` There are ${CLIENT_NAMES.join(", ")}.`;
    throw usage(`There is no client "${name}".${near}`);
  });
}

/** Reads the files of those clients, and says what would become of their servers. @throws {HubError} manifestInvalid */
export async function gather(
  clients: readonly Client[],
  invocation: Invocation,
  world: World,
): Promise<Gathered> {
  const { env, cwd, platform } = world;
  const home = findHome(env, platform);
  const project = invocation.switches.has("project") ? cwd : undefined;
  const read = await Promise.all(clients.map((client) => readClient(client, home, project)));
  const files = read.flat();
  const plan = await planImport(files, await readTaken(invocation, world), home);
  return { files, ...plan, manifest: await findFile(invocation, world) };
}

/**
 * Adds servers to the manifest. Secrets are kept first, so that the manifest never names one that there is not.
 * @param store where values that look like secrets go; undefined: they stay where they are
 */
export async function carryOut(
  { additions, manifest }: Pick<Gathered, "additions" | "manifest">,
  store: SecretStore | undefined,
  world: World,
): Promise<void> {
  if (additions.length === 0) return;
  const servers = new Map(
    additions.map(({ name, entry, clear }): [string, OwnEntry] => [
      name,
      store === undefined ? entry : hideClear(entry, clear),
    ]),
  );
  const keep = async (): Promise<void> => {
    for (const { secret, value } of additions.flatMap(({ clear }) => clear)) {
      await store?.set(secret, value);
    }
  };
  await addServers(manifest, servers, keep, world);
}
