/**
 * host/doctor/: the checks of `toolmux doctor`, each of which returns findings. `findings.ts` has the codes of all
 * findings; the other files have one subject each: the manifest, servers, what servers list, secrets and tokens,
 * clients, ports, running hubs, the service, permissions, and leftovers of killed processes. Main type: `Finding` (`findings.ts`).
 * Start here with `collectFindings`, which runs all checks; `repair` applies the fixes.
 */
import { chmod, rm } from "node:fs/promises";
import { count } from "../../base/format.ts";
import { exists } from "../../base/paths.ts";
import { runtimeName } from "../../base/runtime.ts";
import { VERSION } from "../../base/version.ts";
import { removeHubSocket } from "../../control/socket-files.ts";
import { loadManifest } from "../../manifest/load.ts";
import type { Problem } from "../../manifest/problems.ts";
import { findTokenFaults } from "../../operations/check.ts";
import type { ManifestChoice } from "../../operations/context.ts";
import { type CommandLog, loadOptions } from "../../operations/load-manifest.ts";
import { manifestToEdit } from "../../operations/manifest-file.ts";
import { sweepOrphans } from "../../process/orphans.ts";
import { openSecrets } from "../../secrets/secrets.ts";
import { Redactor } from "../../transport/redact.ts";
import type { HostContext } from "../context.ts";
import type { HttpAddress } from "../http-address.ts";
import { checkClients } from "./clients.ts";
import { checkConversations } from "./conversations.ts";
import { checkSecrets, checkTokens } from "./credentials.ts";
import { checkFleet } from "./fleet.ts";
import { checkHubs } from "./hubs.ts";
import { findLeftovers } from "./leftovers.ts";
import { type Finding, type Fix, severityOf } from "./findings.ts";
import {
  checkListing,
  checkPins,
  checkScannedListings,
  connectAndList,
  savedListing,
  type ShowStarts,
} from "./listing.ts";
import { checkManifest, plaintextSecretsOf } from "./manifest.ts";
import { listOwnFiles } from "./own-files.ts";
import { checkPermissions } from "./permissions.ts";
import { checkPorts } from "./ports.ts";
import { checkServers, toSentence } from "./servers.ts";
import { checkInstalledService } from "./service.ts";

/** The scope of an examination by `collectFindings`. */
export interface Examination extends ManifestChoice {
  /** Whether the servers are started, to check what they list at present. */
  readonly connect: boolean;
  /** The address for HTTP whose port is checked; undefined: none. */
  readonly address: HttpAddress | undefined;
  readonly showStarts: ShowStarts | undefined;
}

/**
 * Applies the fixes of these findings. A fix that fails is skipped; its finding is then reported again.
 * @returns what was done, as sentences
 */
export async function repair(findings: readonly Finding[]): Promise<readonly string[]> {
  const fixes = findings.flatMap((finding) => finding.fixes ?? []);
  const done: string[] = [];
  for (const fix of fixes) {
    const text = await applyFix(fix).catch(() => undefined);
    if (text !== undefined) done.push(text);
  }
  return done;
}

async function applyFix(fix: Fix): Promise<string | undefined> {
  switch (fix.kind) {
    case "permit":
      await chmod(fix.path, fix.mode);
      return `Only you can access ${fix.path} now.`;
    case "remove":
      await rm(fix.path);
      return `Removed ${fix.path}.`;
    case "removeSocket":
      await removeHubSocket(fix.path);
      return `Removed ${fix.path}.`;
    case "sweep": {
      const ended = await sweepOrphans();
      return ended === 0
        ? undefined
        : `Ended ${count(ended, "leftover process", "leftover processes")}.`;
    }
  }
}

/** Runs all checks. Changes nothing, except that reading toolmux's own files restricts their permissions. */
export async function collectFindings(
  { config, connect, address, showStarts }: Examination,
  context: HostContext,
  log: CommandLog,
): Promise<readonly Finding[]> {
  const now = Date.now();
  const loaded = await loadManifest(loadOptions({ config }, context));
  const manifest = loaded.ok ? loaded.manifest : undefined;
  const servers = manifest?.servers ?? [];
  const secrets = openSecrets(context);
  // These checks come first, because they report the permissions of toolmux's own files. The other checks read these
  // files, which restricts their permissions.
  const ownFiles = await listOwnFiles(context);
  const permissions = await checkPermissions(manifest, ownFiles);
  const leftovers = await findLeftovers(ownFiles, context, now);
  const conversations = await checkConversations(manifest, context, now);
  const isNamed = config.length > 0;
  const missing = await findMissingFiles(loaded.problems, isNamed, context);
  /**
   * Values that are redacted in all findings: secrets in plain text in the manifest, and resolved values of
   * placeholders. Texts of servers and advice may contain them.
   */
  const hidden = new Set(servers.flatMap(plaintextSecretsOf).map(({ value }) => value));
  const [started, secretFindings, tokens, ports, clients, hubs, refused, service, fleet] =
    await Promise.all([
      checkServers(servers, secrets, context, hidden),
      checkSecrets(secrets, manifest),
      checkTokens(servers, secrets, context),
      checkPorts(address, servers, context),
      checkClients(manifest, context, now),
      checkHubs(context),
      manifest === undefined ? [] : findTokenFaults(manifest, context),
      checkInstalledService(context),
      connect ? checkFleet(manifest, context) : [],
    ]);
  const saved = await savedListing(manifest, context, now);
  const isLive = manifest !== undefined && connect;
  const listing = isLive ? await connectAndList(manifest, context, log, showStarts) : saved;
  const snapshotFindings = saved.findings.filter(({ code }) => !isLive || code !== "TM803");
  const findings: readonly Finding[] = [
    { code: "TM001", subject: "", text: `This is toolmux ${VERSION} on ${runtimeName}.` },
    ...checkManifest(loaded, isNamed, missing),
    ...started,
    ...secretFindings.filter(
      ({ code }) => !started.some((it) => it.code === "TM304" && code === "TM304"),
    ),
    ...(isLive ? tokens.filter(({ code }) => code !== "TM401") : tokens),
    ...ports,
    ...permissions,
    ...leftovers,
    ...conversations,
    ...snapshotFindings,
    // If `checkServers` has reported why a server cannot be started, its failed start is not reported again.
    ...(isLive ? listing.findings : []).filter(
      ({ subject }) =>
        !started.some(
          (it) => (it.servers ?? [it.subject]).includes(subject) && severityOf(it) === "error",
        ),
    ),
    ...(listing.catalog === undefined || manifest === undefined
      ? []
      : checkListing(listing.catalog, manifest)),
    ...checkScannedListings(listing.scanned),
    ...checkPins(listing.pins),
    ...clients,
    ...refused.map((text): Finding => ({
      code: "TM108",
      subject: "manifest",
      text: toSentence(text),
    })),
    ...hubs,
    ...service,
    ...fleet.filter(({ code }) => !hubs.some((found) => found.code === code)),
  ];
  const redactor = new Redactor([...hidden]);
  const redact = (text: string): string => redactor.apply(listing.redact?.(text) ?? text);
  return findings.map((finding) => redactFinding(finding, redact));
}

/** Removes secrets from a finding. Everything that is printed passes through here. */
function redactFinding(finding: Finding, redact: (text: string) => string): Finding {
  const { subject, text, stderr, advice } = finding;
  return {
    ...finding,
    subject: redact(subject),
    text: redact(text),
    ...(stderr !== undefined && { stderr: stderr.map(redact) }),
    advice: advice && redact(advice),
  };
}

/**
 * The files that are named in problems and do not exist. If the command line names no file and none was found, this is
 * the file that `toolmux add` would create.
 */
async function findMissingFiles(
  problems: readonly Problem[],
  isNamed: boolean,
  context: HostContext,
): Promise<ReadonlySet<string>> {
  const files = [...new Set(problems.map(({ file }) => file))];
  if (!isNamed)
    return new Set((await exists(await manifestToEdit(undefined, context))) ? [] : files);
  const existing = await Promise.all(files.map(exists));
  return new Set(files.filter((_, at) => existing[at] !== true));
}
