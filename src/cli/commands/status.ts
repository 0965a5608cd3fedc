import { nameAndIdOfClient } from "../../base/client-name.ts";
import { abortable, systemClock } from "../../base/clock.ts";
import { usageError } from "../../base/errors.ts";
import { isIdleRule } from "../../catalog/idle-rules.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import { findSharingOffers } from "../../control/sharing.ts";
import type { CatalogDocument, ClientDocument } from "../../control/schemas.ts";
import { isRunnable, type Manifest, type ServerSpec } from "../../manifest/manifest.ts";
import { suggestName } from "../../manifest/problems.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { wrapText } from "../../terminal/terminal.ts";
import { type Verdict, verdictOf } from "../../upstream/verdict.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLogBeside } from "../command-log.ts";
import {
  allServers,
  askFor,
  chosenHubs,
  describeHub,
  type HubOptions,
  servingHubs,
  printRejections,
  watchHubs,
} from "../running-hub.ts";
import { openStartProgress, startedServersOf } from "../start-progress.ts";
import {
  describeDiagnoses,
  describeFound,
  diagnose,
  EXIT_CODES,
  foundToJson,
  type ServerDiagnosis,
  statusToJson,
  verdictOfDiagnoses,
} from "../status-report.ts";

interface StatusOptions extends HubOptions {
  readonly fresh: boolean;
  readonly watch: boolean;
}

/** With `--watch`: the time between two requests to the hubs, in ms. */
const WATCH_INTERVAL = 1000;

/**
 * `toolmux status`: prints the states of the servers in the hubs that serve the manifest. If no such hub runs, or
 * with `--fresh`, starts every server, or the named ones, and prints the state of each with hints about failures.
 */
export async function status(
  invocation: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<number> {
  if (invocation.options.watch) {
    if (invocation.options.fresh)
      throw usageError("--watch shows the servers of a running hub: leave out --fresh.");
    const show = (hubs: readonly RunningHub[]) => showRunning(hubs, invocation, context);
    return watchHubs(invocation, context, WATCH_INTERVAL, show);
  }
  const hubs = await hubsToShow(invocation, context);
  const verdict = await (hubs.length > 0
    ? showRunning(hubs, invocation, context)
    : showFresh(invocation, context));
  return EXIT_CODES[verdict];
}

/** The running hubs whose servers are shown; none if the servers are to be started here. */
async function hubsToShow(
  invocation: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<readonly RunningHub[]> {
  if (invocation.options.fresh) return [];
  if (invocation.options.hub !== undefined) return chosenHubs(invocation, context);
  return servingHubs(invocation, context);
}

/** Starts the servers of the manifest, and prints how that went. The code of a hub is loaded here. */
async function showFresh(
  invocation: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<Verdict> {
  const { terminal, env, signal } = context;
  const isForPeople = !invocation.options.json;
  const line = isForPeople ? terminal.openStatusLine() : undefined;
  const log = openLogBeside(line, invocation);
  const { loadManifestOnly } = await import("../../operations/load-manifest.ts");
  const { openHub, openSnapshots } = await import("../../host/open-hub.ts");
  const { readOpenedHub } = await import("../../host/opened-hub-reader.ts");
  const loaded = await loadManifestOnly(invocation, context, log);
  const opened = await openHub(loaded, context, log, {
    choose: (all) => pickServers(all, invocation.args),
    // Checking the status must not open login pages.
    authorizes: false,
    snapshots: openSnapshots(context, log, "nothing"),
  });
  const { hub, bus, manifest } = opened;
  const endProgress = line && openStartProgress(startedServersOf(manifest), bus, line, systemClock);
  try {
    await abortable(hub.startAllAndSettle(), signal);
    const reader = readOpenedHub(opened, context);
    const servers = new Map((await reader.servers()).map((server) => [server.name, server]));
    const { notes } = await reader.catalog();
    endProgress?.();
    const diagnoses = manifest.servers.flatMap((spec): readonly ServerDiagnosis[] => {
      const document = servers.get(spec.name);
      if (document === undefined) return [];
      const diagnosis = diagnose(document, spec, env);
      if (diagnosis.state !== "connected") return [diagnosis];
      return [{ ...diagnosis, unusedRules: unusedRulesOf(spec, notes) }];
    });
    if (isForPeople) terminal.print(describeDiagnoses(diagnoses, terminal.stdout));
    else terminal.printJson({ source: "fresh", ...statusToJson(diagnoses) });
    return verdictOfDiagnoses(diagnoses);
  } finally {
    endProgress?.();
    await opened.close();
  }
}

function unusedRulesOf({ name }: ServerSpec, notes: CatalogDocument["notes"]): readonly string[] {
  return notes.flatMap((note) => (note.server === name && isIdleRule(note) ? [note.text] : []));
}

/** Prints the states of the servers in running hubs. */
async function showRunning(
  hubs: readonly RunningHub[],
  { args, options }: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<Verdict> {
  const { terminal } = context;
  const all = await allServers(hubs, context);
  const known = all.map(({ server }) => server.name);
  const unknown = args.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const more = suggestName(unknown, known) || ` It has ${known.join(", ") || "none"}.`;
    throw usageError(`The running toolmux has no server "${unknown}".${more}`);
  }
  const found = all.filter(({ server }) => args.length === 0 || args.includes(server.name));
  const longLists = await findLongLists(hubs, context);
  const offers = options.watch ? [] : await findSharingOffers(hubs, context);
  if (options.json) {
    const lists = longLists.map(({ hub, client: { id, name }, ...list }) => ({
      hub: hub.pid,
      client: id,
      ...(name !== undefined && { name }),
      ...list,
    }));
    terminal.printJson({
      source: "hub",
      ...foundToJson(found, hubs),
      ...(lists.length > 0 && { longLists: lists }),
      ...(offers.length > 0 && { offers }),
    });
  } else {
    const { colors, width } = terminal.stdout;
    const heads = hubs.map((hub) =>
      wrapText(sanitizeLine(`in ${describeHub(hub)}`), width, "  ", ""),
    );
    terminal.print(colors.dim(heads.join("\n")));
    await printRejections(hubs, context);
    for (const list of longLists)
      terminal.print(wrapText(sanitizeLine(describeLongList(list)), width, "  ", ""));
    terminal.print(describeFound(found, hubs.length, terminal.stdout));
    for (const { text } of offers) terminal.printWrapped(sanitizeLine(text));
  }
  return verdictOf(found.map(({ server }) => server));
}

/** A client that gets all tools in a list that is above the budget of its hub. */
interface LongList {
  readonly hub: RunningHub;
  readonly client: ClientDocument;
  /** The size of the list, and the budget, in tokens. */
  readonly tokens: number;
  readonly budget: number;
}

async function findLongLists(
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<readonly LongList[]> {
  const lists = await Promise.all(
    hubs.map(async (hub): Promise<readonly LongList[]> => {
      const [{ exposeBudget: budget }, { clients }] = await Promise.all([
        askFor(hub, "GET /hub", context),
        askFor(hub, "GET /clients", context),
      ]);
      return clients.flatMap((client) => {
        // A hub of an older version says nothing of it.
        const { isLong, tokens = 0 } = client.exposure ?? {};
        return isLong === true ? [{ hub, client, tokens, budget }] : [];
      });
    }),
  );
  return lists.flat();
}

function describeLongList({ client, tokens, budget }: LongList): string {
  return `${nameAndIdOfClient(client)}: its list of tools takes about ${tokens} tokens, more than exposeBudget (${budget}). To let models search for tools instead, add to [hub], or to its table in [[clients]]: expose = "auto"`;
}

/** The manifest with only the named servers, or with all. @throws {HubError} usage */
function pickServers(manifest: Manifest, names: readonly string[]): Manifest {
  const known = manifest.servers.map(({ name }) => name);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const available = known.length === 0 ? "It has no servers." : `It has ${known.join(", ")}.`;
    const near = suggestName(unknown, known) || ` ${available}`;
    throw usageError(`There is no server "${unknown}" in the manifest.${near}`);
  }
  const servers = manifest.servers.filter(({ name }) => names.length === 0 || names.includes(name));
  return { ...manifest, servers: servers.map(withoutRetries) };
}

/**
 * Changes a server's settings so that it is started once, without retries, and is not stopped as idle while other
 * servers start.
 */
function withoutRetries(spec: ServerSpec): ServerSpec {
  if (!isRunnable(spec)) return spec;
  return { ...spec, idleStop: 0, reconnect: { ...spec.reconnect, policy: "none" } };
}
