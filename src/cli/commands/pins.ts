import { escapeDeceptive } from "../../base/escape.ts";
import { count, formatAge } from "../../base/format.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { abortable } from "../../base/clock.ts";
import { checkServerNames } from "../../manifest/problems.ts";
import { pinsDocument } from "../../control/pins-api.ts";
import type { PinAcceptance, PinsDocument } from "../../control/schemas.ts";
import { openTrialHub } from "../../host/open-hub.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { exportPins } from "../../host/pin-export.ts";
import { openStoredBaselines } from "../../operations/pins.ts";
import { nameOf, PENDING_REASONS } from "../../pins/level.ts";
import { linesOf } from "../../pins/pins.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import {
  askFor,
  chosenHubs,
  type HubOptions,
  refuseInsideHub,
  servingHubs,
} from "../running-hub.ts";

interface PinsOptions extends HubOptions {
  readonly all: boolean;
}

type Pending = PinsDocument["pending"][number];

/** `toolmux pins`: shows what servers list that is not accepted, and accepts or forgets it. */
export async function pins(
  invocation: Invocation<PinsOptions>,
  context: CommandContext,
): Promise<number> {
  const [verb, ...words] = invocation.args;
  if (invocation.options.all && verb !== "accept")
    throw usageError("--all works only with accept: toolmux pins accept SERVER --all");
  switch (verb) {
    case "accept":
      return accept(words, invocation, context);
    case "forget":
      return forget(words, invocation, context);
    case "export":
      return exportFile(words, invocation, context);
    default:
      if (words.length > 0)
        throw usageError("One server at a time: toolmux pins [SERVER]. See toolmux help pins.");
      return show(verb, invocation, context);
  }
}

/** A hub of which a command sees and changes what is accepted: a running one, or one of the command's own process. */
interface PinnedHub {
  /** The process id of the hub; undefined: it is the command's own. */
  readonly pid: number | undefined;
  list(server: string | undefined): Promise<readonly PinsDocument[]>;
  accept(
    body: PinAcceptance,
  ): Promise<readonly { readonly kind: Pending["kind"]; readonly name: string }[]>;
}

/** Runs `work` with the hubs that serve the manifest; if none runs, with a hub that starts the server, or all. */
async function withHubs<T>(
  server: string | undefined,
  invocation: Invocation<PinsOptions>,
  context: CommandContext,
  work: (hubs: readonly PinnedHub[]) => Promise<T>,
): Promise<T> {
  const { hub: wanted } = invocation.options;
  const running =
    wanted === undefined
      ? await servingHubs(invocation, context)
      : await chosenHubs(invocation, context);
  if (running.length > 0) {
    return work(
      running.map((hub) => ({
        pid: hub.pid,
        list: async (name) =>
          (await askFor(hub, "GET /pins", context, { query: { server: name } })).servers,
        accept: async (body) =>
          (await askFor(hub, "POST /pins/accept", context, { body })).accepted,
      })),
    );
  }
  const log = openLog(invocation);
  const manifest = await loadManifestOnly(invocation, context, log);
  const names = manifest.servers.map(({ name }) => name);
  if (server !== undefined) checkServerNames([server], names);
  const servers = manifest.servers.filter(({ name }) => server === undefined || name === server);
  const opened = await openTrialHub({ ...manifest, servers }, context, log);
  try {
    const { hub } = opened;
    await abortable(hub.startAllAndSettle(), context.signal);
    const own: PinnedHub = {
      pid: undefined,
      list: async (name) => (await hub.pinned.list(name)).map(pinsDocument),
      accept: ({ server: name, definitions }) => hub.pinned.accept(name, definitions ?? "all"),
    };
    return await work([own]);
  } finally {
    await opened.close();
  }
}

function show(
  server: string | undefined,
  invocation: Invocation<PinsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  return withHubs(server, invocation, context, async (hubs) => {
    const lists = await Promise.all(hubs.map((hub) => hub.list(server)));
    const servers = mergeServers(lists.flat());
    const isFailed =
      server !== undefined &&
      servers.every(({ compared, fault }) => !compared || fault !== undefined);
    if (invocation.options.json) {
      terminal.printJson({ servers });
      return isFailed ? 3 : 0;
    }
    for (const each of servers) printServer(each, context, server !== undefined);
    const pending = servers.reduce((sum, each) => sum + each.pending.length, 0);
    const faults = servers.filter(({ fault }) => fault !== undefined).length;
    if (pending + faults === 0) {
      terminal.printWrapped(
        isFailed ? `${sanitizeLine(server)} could not be compared` : "nothing waits to be accepted",
      );
    }
    return isFailed ? 3 : 0;
  });
}

/** Equal for the same version of the same definition. */
function versionOf({ kind, name, digest }: Pending): string {
  return `${kind} ${name} ${digest}`;
}

/** One document for each server, with what is pending in any of the hubs. */
function mergeServers(documents: readonly PinsDocument[]): readonly PinsDocument[] {
  return [...Map.groupBy(documents, ({ server }) => server).values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined) return [];
    const pending = new Map(
      same.flatMap((each) => each.pending.map((one) => [versionOf(one), one])),
    );
    const fault = same.find((each) => each.fault !== undefined)?.fault;
    return [
      {
        ...first,
        compared: same.some(({ compared }) => compared),
        ...(fault !== undefined && { fault }),
        pending: [...pending.values()],
      },
    ];
  });
}

function printServer(
  { server, pin, fault, pending }: PinsDocument,
  { terminal }: CommandContext,
  isChosen: boolean,
): void {
  const { colors } = terminal.stdout;
  if (fault !== undefined) terminal.printWrapped(`${sanitizeLine(server)}: ${sanitizeLine(fault)}`);
  if (pending.length === 0) return;
  const effect = pin === "block" ? ", neither shown nor called" : "";
  terminal.print(
    `${colors.bold(sanitizeLine(server))}: ${count(pending.length, "definition")} not accepted (pin = "${pin}"${effect})`,
  );
  for (const each of pending) printPending(each, terminal);
  if (pending.some(({ reason }) => reason !== "pinFile")) {
    const how = isChosen ? "To accept" : "To see or accept";
    terminal.printWrapped(
      `${how}: toolmux pins accept ${sanitizeLine(server)} NAME …, or --all for all of them`,
    );
  } else terminal.printWrapped("All is accepted. To write the pin file anew: toolmux pins export");
}

function printPending(pending: Pending, terminal: CommandContext["terminal"]): void {
  const { colors } = terminal.stdout;
  const { reason, digest, acceptedAt, peerThen, peerNow, machines } = pending;
  const versions =
    peerThen !== undefined && peerNow !== undefined && peerThen !== peerNow
      ? `, ${sanitizeLine(peerThen)} → ${sanitizeLine(peerNow)}`
      : "";
  const since = acceptedAt === undefined ? "" : `, accepted ${formatAge(Date.now() - acceptedAt)}`;
  const where = machines === undefined ? "" : ` on ${machines.map(sanitizeLine).join(", ")}`;
  const id = `@${digest.slice(0, SHOWN_DIGEST)}`;
  terminal.print(
    `  ${sanitizeLine(nameOf(pending))} ${colors.dim(id)}: ${PENDING_REASONS[reason]}${where}${since}${versions}`,
  );
  for (const line of linesOf({ ...pending, parts: pending.parts.map(withAllMembers) })) {
    const text = `      ${sanitizeLine(line)}`;
    terminal.print(
      line.startsWith("+") ? colors.green(text) : line.startsWith("-") ? colors.red(text) : text,
    );
  }
}

function withAllMembers({ part, changes, omitted }: Pending["parts"][number]) {
  return {
    part,
    omitted,
    changes: changes.map(({ path, before, after }) => ({ path, before, after })),
  };
}

async function accept(
  words: readonly string[],
  invocation: Invocation<PinsOptions>,
  context: CommandContext,
): Promise<number> {
  const [server, ...names] = words;
  const { all, json } = invocation.options;
  if (server === undefined || all === names.length > 0)
    throw usageError(
      "What? toolmux pins accept SERVER NAME …, or toolmux pins accept SERVER --all",
    );
  const { terminal } = context;
  await refuseInsideHub(context);
  return withHubs(server, invocation, context, async (hubs) => {
    const accepted = new Map<string, { readonly kind: Pending["kind"]; readonly name: string }>();
    const shown: Pending[] = [];
    let isFaulty = false;
    for (const hub of hubs) {
      const own = await hub.list(server).catch((error: unknown) => {
        if (error instanceof HubError && error.code === "notFound") return [];
        throw error;
      });
      const pending = own
        .flatMap((each) => each.pending)
        .filter(({ reason }) => !all || reason !== "pinFile");
      checkUnambiguous(pending, names);
      isFaulty ||= own.some(({ fault }) => fault !== undefined);
      const chosen = all
        ? pending
        : pending.filter((each) => names.some((it) => isNamed(each, it)));
      if (chosen.length === 0 && !(all && isFaulty)) continue;
      shown.push(...chosen);
      // With the digests, what changes after it was listed here is not accepted.
      const definitions = chosen.map(({ kind, name, digest }) => ({ kind, name, digest }));
      const body = definitions.length === 0 ? { server } : { server, definitions };
      for (const each of await hub.accept(body)) accepted.set(`${each.kind} ${each.name}`, each);
    }
    const missing = names.find((name) => !shown.some((each) => isNamed(each, name)));
    if (missing !== undefined) {
      const text = `Nothing of ${JSON.stringify(missing)} of server "${server}" waits to be accepted.`;
      throw new HubError("notFound", text, { server });
    }
    if (json) terminal.printJson({ accepted: [...accepted.values()] });
    else {
      // Another hub may not have heard yet of what was accepted at the one before.
      const versions = new Map(shown.toReversed().map((each) => [versionOf(each), each]));
      for (const each of [...versions.values()].toReversed()) printPending(each, terminal);
      const what = [...accepted.values()].map((each) => nameOf(each)).join(", ");
      terminal.printWrapped(
        accepted.size === 0
          ? `nothing of ${sanitizeLine(server)} waits to be accepted`
          : `accepted: ${sanitizeLine(what)}`,
      );
    }
    return 0;
  });
}

/** The number of characters of a digest that `pins` shows, and that `NAME@DIGEST` has to have at least. */
const SHOWN_DIGEST = 8;

/**
 * Whether a word of the command line names a definition: `NAME`, or `NAME@DIGEST` for one version of it. The name of
 * instructions is `instructions`.
 */
function isNamed({ kind, name, digest }: Pending, word: string): boolean {
  const own = kind === "instructions" ? "instructions" : name;
  if (word === own) return true;
  // With the digest, a name may also stand as `pins` shows it.
  const named = [own, escapeDeceptive(own)].find((each) => word.startsWith(`${each}@`));
  if (named === undefined) return false;
  const start = word.slice(named.length + 1);
  return start.length >= SHOWN_DIGEST && digest.startsWith(start);
}

/** @throws {HubError} usage if a word names definitions of several kinds: a person has looked at one of them */
function checkUnambiguous(pending: readonly Pending[], words: readonly string[]): void {
  for (const word of words) {
    const [first, ...others] = pending.filter((each) => isNamed(each, word));
    const other = others.find(({ kind }) => kind !== first?.kind);
    if (first === undefined || other === undefined) continue;
    const [one, two] = [first, other].map(
      ({ kind, digest }) => `${word}@${digest.slice(0, SHOWN_DIGEST)} (${kind})`,
    );
    throw usageError(`${JSON.stringify(word)} stands for two definitions: ${one} and ${two}.`);
  }
}

async function forget(
  words: readonly string[],
  invocation: Invocation<PinsOptions>,
  context: CommandContext,
): Promise<number> {
  const [server, ...more] = words;
  if (server === undefined || more.length > 0)
    throw usageError("Which server? toolmux pins forget SERVER");
  await refuseInsideHub(context);
  const { terminal } = context;
  let isKnown = await openStoredBaselines(context).forget(server, []);
  for (const hub of await servingHubs(invocation, context)) {
    try {
      await askFor(hub, "DELETE /pins/:server", context, { params: { server } });
      isKnown = true;
    } catch (error) {
      if (!(error instanceof HubError) || error.code !== "notFound") throw error;
    }
  }
  if (!isKnown) throw usageError(`Nothing is known of what server "${server}" has listed.`);
  if (invocation.options.json) terminal.printJson({ forgotten: server });
  else terminal.printWrapped(`forgotten: ${sanitizeLine(server)}; what it lists next is accepted`);
  return 0;
}

async function exportFile(
  words: readonly string[],
  invocation: Invocation<PinsOptions>,
  context: CommandContext,
): Promise<number> {
  if (words.length > 0)
    throw usageError(
      "toolmux pins export writes the file that hub.pinFile names, for all servers.",
    );
  await refuseInsideHub(context);
  const log = openLog(invocation);
  const manifest = await loadManifestOnly(invocation, context, log);
  const written = await exportPins(manifest, context, log);
  const { terminal } = context;
  if (invocation.options.json) terminal.printJson(written);
  else
    terminal.printWrapped(
      `written: ${sanitizeLine(written.file)}, ${count(written.definitions, "definition")} of ${count(written.servers, "server")}`,
    );
  return 0;
}
