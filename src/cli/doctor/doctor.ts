import { openLogBeside } from "../command-log.ts";
import { count } from "../../base/format.ts";
import { access, chmod, rm } from "node:fs/promises";
import { runtimeName } from "../../base/runtime.ts";
import { VERSION } from "../../base/version.ts";
import { loadManifest } from "../../manifest/load.ts";
import { removeHubSocket } from "../../control/socket-files.ts";
import { sweepOrphans } from "../../process/orphans.ts";
import { openSecrets } from "../../secrets/secrets.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { Problem } from "../../manifest/problems.ts";
import { wrapText } from "../../terminal/columns.ts";
import type { TerminalStyle } from "../../terminal/terminal.ts";
import { Redactor } from "../../transport/redact.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { loadOptions } from "../../operations/load-manifest.ts";
import { manifestToEdit } from "../../operations/manifest-file.ts";
import { checkClients } from "./clients.ts";
import { checkSecrets, checkTokens } from "./credentials.ts";
import { checkDisk } from "./disk.ts";
import {
  type FindingSeverity,
  type Finding,
  type Fix,
  severityOf,
  sortFindings,
} from "./findings.ts";
import { checkListing, connectAndList, savedListing } from "./listing.ts";
import { checkManifest, plaintextSecretsOf } from "./manifest.ts";
import { checkPorts } from "./ports.ts";
import { checkServers } from "./servers.ts";

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

const COLORS = {
  error: "red",
  warning: "yellow",
  info: "cyan",
  ok: "green",
} as const satisfies Record<FindingSeverity, string>;
const NOUNS = { error: "error", warning: "warning", info: "note" } as const;

/** The column in which the text of a finding begins, after its severity and its code. */
const FINDING_INDENT = 15;

/**
 * The findings for people: sorted by severity, with code and advice, then a summary.
 * @param all whether confirmations (severity "ok") are shown, too
 */
export function describeFindings(
  findings: readonly Finding[],
  all: boolean,
  style: TerminalStyle,
): string {
  const { colors, width } = style;
  const indent = " ".repeat(FINDING_INDENT);
  const shown = sortFindings(findings).filter((it) => all || severityOf(it) !== "ok");
  const lines = shown.flatMap((finding) => {
    const { code, subject, text, advice } = finding;
    const severity = severityOf(finding);
    const label = colors[COLORS[severity]](`${severity.padEnd(7)} ${code}`);
    const name = subject === "" ? "" : `${sanitizeLine(subject)}:`;
    const fix = (finding.fixes ?? []).length > 0 ? " (fixable)" : "";
    const line = `${name} ${sanitizeLine(text)}${fix}`.trimStart();
    const wrapped = wrapText(line, width, indent, indent).slice(FINDING_INDENT);
    // Made bold only after wrapping, because `wrapText` would count the escape codes as columns.
    const shownText = colors.bold(name) + wrapped.slice(name.length);
    const more = advice && colors.dim(wrapText(sanitizeLine(advice), width, indent));
    return [`${label}  ${shownText}`, ...(more === undefined ? [] : [more])];
  });
  return [...lines, summarizeFindings(findings)].join("\n");
}

function summarizeFindings(findings: readonly Finding[]): string {
  const counts = Object.entries(NOUNS).flatMap(([severity, noun]) => {
    const number = findings.filter((it) => severityOf(it) === severity).length;
    return number === 0 ? [] : [count(number, noun)];
  });
  return counts.length === 0 ? "no problems found" : counts.join(", ");
}

/** The findings for programs: `{ok, findings: [{code, severity, subject, text, advice?, fixable}], fixed: […]}`. */
export function findingsToJson(findings: readonly Finding[], fixed: readonly string[]): object {
  return {
    ok: !findings.some((it) => severityOf(it) === "error"),
    findings: sortFindings(findings).map((finding) => ({
      code: finding.code,
      severity: severityOf(finding),
      subject: finding.subject,
      text: finding.text,
      advice: finding.advice,
      fixable: (finding.fixes ?? []).length > 0,
    })),
    fixed,
  };
}

export interface DoctorOptions {
  readonly connect: boolean;
  readonly fix: boolean;
  readonly http: string | undefined;
  readonly all: boolean;
  readonly json: boolean;
}

/**
 * `toolmux doctor`: looks for problems with the manifest, servers, credentials, ports, files and clients, and says what
 * to do; with `--fix` it repairs what is safe to repair.
 * Start with `collectFindings`. The other files of this folder have the checks, which return `Finding`s, and
 * findings.ts has the codes of the findings.
 */
export async function doctor(
  invocation: Invocation<DoctorOptions>,
  context: CommandContext,
): Promise<number> {
  const { fix, all, json } = invocation.options;
  let findings = await collectFindings(invocation, context);
  const fixed = fix ? await repair(findings) : [];
  if (fixed.length > 0) findings = await collectFindings(invocation, context);
  if (json) context.terminal.printJson(findingsToJson(findings, fixed));
  else {
    for (const line of fixed) context.terminal.print(`fixed: ${sanitizeLine(line)}`);
    if (fix && fixed.length === 0)
      context.terminal.print(
        "Nothing was fixed: none of these findings can be corrected automatically.",
      );
    context.terminal.print(describeFindings(findings, all, context.terminal.stdout));
  }
  if (findings.some(({ code }) => code === "TM101" || code === "TM104")) return 2;
  return findings.some((finding) => severityOf(finding) === "error") ? 1 : 0;
}

/** Runs all checks. Changes nothing, except that reading toolmux's own files restricts their permissions. */
export async function collectFindings(
  invocation: Invocation<DoctorOptions>,
  context: CommandContext,
): Promise<readonly Finding[]> {
  const now = Date.now();
  const loaded = await loadManifest(loadOptions(invocation, context));
  const manifest = loaded.ok ? loaded.manifest : undefined;
  const servers = manifest?.servers ?? [];
  const secrets = openSecrets(context);
  // This check comes first, because it reports the permissions of toolmux's own files. The other checks read these
  // files, which restricts their permissions.
  const disk = await checkDisk(manifest, context, now);
  const isNamed = invocation.config.length > 0;
  const missing = await findMissingFiles(loaded.problems, isNamed, context);
  const line = invocation.options.json ? undefined : context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  /**
   * Values that are redacted in all findings: secrets in plain text in the manifest, and resolved values of
   * placeholders. Texts of servers and advice may contain them.
   */
  const hidden = new Set(servers.flatMap(plaintextSecretsOf).map(({ value }) => value));
  const [started, secretFindings, tokens, ports, clients] = await Promise.all([
    checkServers(servers, secrets, context, hidden),
    checkSecrets(secrets, manifest),
    checkTokens(servers, secrets, context),
    checkPorts(invocation.options, servers, context),
    checkClients(manifest, context, now),
  ]);
  const saved = await savedListing(manifest, context, now);
  const isLive = manifest !== undefined && invocation.options.connect;
  const listing = isLive ? await connectAndList(manifest, context, log, line) : saved;
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
    ...disk,
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
    ...clients,
  ];
  const redactor = new Redactor([...hidden]);
  const redact = (text: string): string => redactor.apply(listing.redact?.(text) ?? text);
  return findings.map((finding) => redactFinding(finding, redact));
}

/** Removes secrets from a finding. Everything that is printed passes through here. */
function redactFinding(finding: Finding, redact: (text: string) => string): Finding {
  const { subject, text, advice } = finding;
  return {
    ...finding,
    subject: redact(subject),
    text: redact(text),
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
  context: CommandContext,
): Promise<ReadonlySet<string>> {
  const files = [...new Set(problems.map(({ file }) => file))];
  if (!isNamed)
    return new Set((await exists(await manifestToEdit(undefined, context))) ? [] : files);
  const existing = await Promise.all(files.map(exists));
  return new Set(files.filter((_, at) => existing[at] !== true));
}

function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
