import { access } from "node:fs/promises";
import { plaintextSecretsOf, checkManifest } from "./manifest.ts";
import { type Finding, severityOf } from "./findings.ts";
import { checkListing } from "./listing-part.ts";
import { loadManifest } from "../../manifest/load.ts";
import { runtimeName } from "../../base/runtime.ts";
import { openSecrets } from "../../secrets/secrets.ts";
import { VERSION } from "../../base/version.ts";
import { Redactor } from "../../transport/redact.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { ownConsole } from "../../terminal/console.ts";
import { loadOptions, openLog } from "../load-manifest.ts";
import { terminalStyleOf, formatJson } from "../../terminal/terminal.ts";
import { sanitizeLine } from "../../terminal/report.ts";
import { manifestToEdit } from "../manifest-file.ts";
import { checkClients } from "./clients.ts";
import { checkDisk } from "./disk.ts";
import { checkSecrets } from "./keeping.ts";
import { readListing, savedListing } from "./listing.ts";
import { checkPorts } from "./ports.ts";
import { repair } from "./repair.ts";
import { checkTokens } from "./credentials.ts";
import { describeFindings, findingsToJson } from "./report.ts";
import { checkServers } from "./servers.ts";

/** Says what is wrong, or may become so, and what to do about it; puts right what is safe if that is wanted. */
export async function doctor(invocation: Invocation, world: CommandContext): Promise<number> {
  const { switches, json } = invocation;
  let findings = await examine(invocation, world);
  const fixed = switches.has("fix") ? await repair(findings) : [];
  if (fixed.length > 0) findings = await examine(invocation, world);
  if (json !== false) ownConsole.log(formatJson(findingsToJson(findings, fixed)));
  else {
    for (const line of fixed) ownConsole.log(`fixed: ${sanitizeLine(line)}`);
    ownConsole.log(describeFindings(findings, switches.has("all"), terminalStyleOf(world.env)));
  }
  if (findings.some(({ code }) => code === "TM101" || code === "TM104")) return 2;
  return findings.some((finding) => severityOf(finding) === "error") ? 1 : 0;
}

/** Everything that is found; nothing is changed by it, but that what toolmux keeps becomes private when it is read. */
export async function examine(
  invocation: Invocation,
  world: CommandContext,
): Promise<readonly Finding[]> {
  const now = Date.now();
  const loaded = await loadManifest(loadOptions(invocation, world));
  const manifest = loaded.ok ? loaded.manifest : undefined;
  const servers = manifest?.servers ?? [];
  const secrets = openSecrets(world);
  // Reading what toolmux keeps makes it private: how it was is looked at first.
  const disk = await checkDisk(manifest, world, now);
  const isThere = await exists(await manifestToEdit(invocation, world));
  const log = openLog(invocation);
  /** What stands in a manifest as it is may come back in what servers say, and in what to type; what is filled in, too. */
  const hidden = new Set(servers.flatMap(plaintextSecretsOf).map(({ value }) => value));
  const [started, kept, tokens, ports, clients] = await Promise.all([
    checkServers(servers, secrets, world, hidden),
    checkSecrets(secrets, manifest),
    checkTokens(servers, secrets, world),
    checkPorts(invocation, servers, world),
    checkClients(manifest, world, now),
  ]);
  const recalled = await savedListing(manifest, world, now);
  const isLive = manifest !== undefined && invocation.switches.has("connect");
  const seen = isLive ? await readListing(manifest, world, log) : recalled;
  const stored = recalled.findings.filter(({ code }) => !isLive || code !== "TM803");
  const isRepaired = manifest?.plugins.some(({ use }) => use === "schema-repair") ?? false;
  const findings: readonly Finding[] = [
    { code: "TM001", subject: "", text: `This is toolmux ${VERSION} on ${runtimeName}.` },
    ...checkManifest(loaded, isThere || invocation.config.length > 0),
    ...started,
    ...kept,
    ...(isLive ? tokens.filter(({ code }) => code !== "TM401") : tokens),
    ...ports,
    ...disk,
    ...stored,
    // What cannot be started was said to be so already.
    ...(isLive ? seen.findings : []).filter(
      ({ subject }) => !started.some((it) => it.subject === subject && severityOf(it) === "error"),
    ),
    ...(seen.catalog === undefined ? [] : checkListing(seen.catalog, isRepaired)),
    ...clients,
  ];
  const redactor = new Redactor([...hidden]);
  const hide = (text: string): string => redactor.apply(seen.redact?.(text) ?? text);
  return findings.map((finding) => hideIn(finding, hide));
}

/** All that is printed of a finding passes through this. */
function hideIn(finding: Finding, hide: (text: string) => string): Finding {
  const { subject, text, advice } = finding;
  return { ...finding, subject: hide(subject), text: hide(text), advice: advice && hide(advice) };
}

function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
