import { count, formatSize } from "../base/format.ts";
import { isSharedHub, STDIO_ENDPOINT } from "../base/hub-endpoints.ts";
import { clientStateOf } from "../manifest/client-state.ts";
import { valueNamesOf } from "../manifest/client-values.ts";
import { readHubKey } from "../manifest/edit/write.ts";
import { loadManifest } from "../manifest/load.ts";
import { isRunnable, type Manifest, type ServerSpec } from "../manifest/manifest.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import type { SharingDocument, SharingSettingDocument } from "./documents.ts";
import { loadOptions } from "./load-manifest.ts";
import { editManifestFile, manifestToEdit } from "./manifest-file.ts";

/** A running hub, as the figures of sharing need it. */
export interface HubUse {
  readonly pid: number;
  /** The working directory. */
  readonly cwd: string;
  /** The addresses at which it serves clients: `stdio`, `shared`, URLs. */
  readonly endpoints: readonly string[];
  /** For each server, the number of its processes that a client of stdio has started, and their memory in bytes. */
  readonly servers: readonly {
    readonly name: string;
    readonly processes: number;
    readonly memory: number;
  }[];
}

/** Variables that are equal for all clients of one user in practice. */
const PERSONAL_VARIABLES: readonly string[] = ["HOME", "LOGNAME", "USER"];

/**
 * What one shared hub would save: compares the private hubs of one manifest with the processes that a shared hub would
 * run for the same clients.
 * @param uses all running hubs of the manifest
 * @param manifest undefined if it cannot be read; then each server counts as one that is shared
 */
export function sharingOf(
  uses: readonly HubUse[],
  manifest: Pick<Manifest, "servers" | "hub"> | undefined,
): SharingDocument {
  const privates = uses.filter(({ endpoints }) => endpoints.includes(STDIO_ENDPOINT));
  const specs = new Map(manifest?.servers.map((spec) => [spec.name, spec]));
  const copies = new Map<string, { processes: number; memory: number; cwd: string }[]>();
  for (const { servers, cwd } of privates) {
    for (const { name, processes, memory } of servers) {
      if (processes === 0) continue;
      copies.set(name, [...(copies.get(name) ?? []), { processes, memory, cwd }]);
    }
  }
  const now = { hubs: privates.length, processes: 0, memory: 0 };
  const shared = { processes: 0, memory: 0 };
  const perClient: string[] = [];
  const perValue: { server: string; names: readonly string[] }[] = [];
  for (const [name, all] of copies) {
    const spec = specs.get(name);
    const sumOf = (key: "processes" | "memory"): number =>
      all.reduce((total, each) => total + each[key], 0);
    const mostOf = (key: "processes" | "memory"): number =>
      Math.max(...all.map((each) => each[key]));
    now.processes += sumOf("processes");
    now.memory += sumOf("memory");
    if (spec !== undefined && isPerClient(spec)) {
      perClient.push(name);
      shared.processes += sumOf("processes");
      shared.memory += sumOf("memory");
      continue;
    }
    const names = spec === undefined ? [] : valueNamesOf(spec);
    const different = names.filter((each) => !PERSONAL_VARIABLES.includes(each));
    if (different.length > 0) perValue.push({ server: name, names: different });
    const folders = new Set(all.map(({ cwd }) => cwd)).size;
    const times = names.includes("${workspaceFolder}") ? folders : 1;
    shared.processes += Math.min(sumOf("processes"), mostOf("processes") * times);
    shared.memory += Math.min(sumOf("memory"), mostOf("memory") * times);
  }
  return {
    enabled: manifest?.hub.shared ?? false,
    now,
    shared,
    perClient: perClient.toSorted(),
    perValue: perValue.toSorted((a, b) => (a.server < b.server ? -1 : 1)),
    privateHubs: privates.map(({ pid }) => pid),
    sharedHubs: uses.filter(isSharedHub).map(({ pid }) => pid),
  };
}

/** Whether each client of a shared hub has its own process of a server. */
function isPerClient(spec: ServerSpec): boolean {
  if (!isRunnable(spec)) return false;
  const { isolation } = spec;
  return isolation === "perClient" || (isolation === "auto" && clientStateOf(spec) !== undefined);
}

/**
 * The figures in one line: `3 hubs, 27 processes, 1.9 GB; shared: 11 processes, about 800 MB; "browser" would stay one
 * per client`.
 */
export function describeFigures({ now, shared, perClient }: SharingDocument): string {
  const hubs = count(now.hubs, "hub");
  if (now.processes === 0) return `${hubs}, no process of a server; shared: 1 hub`;
  const names = perClient.map((name) => `"${name}"`).join(", ");
  const sizes =
    now.memory > 0 ? [`, ${formatSize(now.memory)}`, `, about ${formatSize(shared.memory)}`] : [];
  return [
    `${hubs}, ${count(now.processes, "process", "processes")}${sizes[0] ?? ""}`,
    `shared: ${count(shared.processes, "process", "processes")}${sizes[1] ?? ""}`,
    ...(names === "" ? [] : [`${names} would stay one per client`]),
  ].join("; ");
}

/** The command that shares the hub of a manifest. @param config the `--config` files by which it is chosen */
export function shareCommand(config: readonly string[]): string {
  return ["toolmux", ...config.flatMap((file) => ["--config", file]), "share on"].join(" ");
}

/** An offer to share the hub of a manifest. `text` is the whole of it in one line. */
export interface SharingOffer {
  /** The figures, as `describeFigures` has them. */
  readonly figures: string;
  /** What to run. */
  readonly command: string;
  /** The same as a sentence, without its full stop, so that the command can be copied. */
  readonly advice: string;
  readonly text: string;
}

/**
 * Offers to share the hub of a manifest. There is nothing to offer if fewer than two private hubs run, the manifest is
 * shared already, or each client would keep all of its processes.
 * @param config the `--config` files by which the manifest is chosen
 */
export function sharingOffer(
  sharing: SharingDocument,
  config: readonly string[] = [],
): SharingOffer | undefined {
  const { enabled, now, shared } = sharing;
  if (enabled || now.hubs < 2) return undefined;
  if (now.processes > 0 && shared.processes >= now.processes) return undefined;
  const figures = describeFigures(sharing);
  const advice = adviceFor(config);
  return { figures, command: shareCommand(config), advice, text: `${figures}. ${advice}` };
}

function adviceFor(config: readonly string[]): string {
  return `To let all clients share one hub: ${shareCommand(config)}`;
}

/**
 * The offer after an installation, in one line: that of `sharingOffer` or, if there are no figures yet, one without.
 * @param clients the number of installed clients that start toolmux
 * @returns undefined if there are fewer than two, or nothing to offer
 */
export function offerToClients(
  clients: number,
  sharing: SharingDocument,
  config: readonly string[],
): string | undefined {
  if (clients < 2 || sharing.enabled) return undefined;
  if (sharing.now.hubs >= 2) return sharingOffer(sharing, config)?.text;
  return `${clients} clients start toolmux, each with its own servers. ${adviceFor(config)}`;
}

/**
 * Sets `hub.shared` in the user's own manifest: the last one that was chosen, or that of the config folder, which is
 * created if need be.
 * @throws {HubError} what `editManifestFile` throws
 */
export async function setSharing(
  shared: boolean,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<SharingSettingDocument> {
  const file = await manifestToEdit(choice.config.at(-1), context);
  const loaded = await loadManifest(loadOptions(choice, context));
  const inForce = loaded.ok && loaded.manifest.hub.shared;
  const isChanged = ((await readHubKey(file, "shared")) ?? inForce) !== shared;
  if (isChanged)
    await editManifestFile(file, { kind: "setHub", key: "shared", value: shared }, context);
  return { file, shared, changed: isChanged };
}
