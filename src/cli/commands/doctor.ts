import { systemClock } from "../../base/clock.ts";
import { count } from "../../base/format.ts";
import type { EventBus } from "../../base/hub-events.ts";
import { collectFindings, repair } from "../../host/doctor/examination.ts";
import {
  type Finding,
  type FindingSeverity,
  severityOf,
  sortFindings,
} from "../../host/doctor/findings.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { wrapText } from "../../terminal/columns.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { TerminalStyle } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLogBeside } from "../command-log.ts";
import { readHttpAddress } from "../http-options.ts";
import { openStartProgress, startedServersOf } from "../start-progress.ts";

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
    const said = (finding.stderr ?? []).map((one) =>
      wrapText(sanitizeLine(one), width, `${indent}| `),
    );
    return [`${label}  ${shownText}`, ...said, ...(more === undefined ? [] : [more])];
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
      ...((finding.stderr ?? []).length > 0 && { stderr: finding.stderr }),
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
 * The checks are in src/host/doctor/; start with `collectFindings`.
 */
export async function doctor(
  invocation: Invocation<DoctorOptions>,
  context: CommandContext,
): Promise<number> {
  const { fix, all, json } = invocation.options;
  let findings = await examine(invocation, context);
  const fixed = fix ? await repair(findings) : [];
  if (fixed.length > 0) findings = await examine(invocation, context);
  if (json) context.terminal.printJson(findingsToJson(findings, fixed));
  else {
    for (const line of fixed) context.terminal.printWrapped(`fixed: ${sanitizeLine(line)}`);
    if (fix && fixed.length === 0)
      context.terminal.printWrapped(
        "Nothing was fixed: none of these findings can be corrected automatically.",
      );
    context.terminal.print(describeFindings(findings, all, context.terminal.stdout));
  }
  if (findings.some(({ code }) => code === "TM101" || code === "TM104")) return 2;
  return findings.some((finding) => severityOf(finding) === "error") ? 1 : 0;
}

/** Runs all checks, with a line that shows how far the starts of servers are. @throws {HubError} usage */
export async function examine(
  invocation: Invocation<DoctorOptions>,
  context: CommandContext,
): Promise<readonly Finding[]> {
  const { config, options } = invocation;
  const line = options.json ? undefined : context.terminal.openStatusLine();
  const examination = {
    config,
    connect: options.connect,
    address: readHttpAddress(options, context),
    showStarts:
      line &&
      ((manifest: Manifest, bus: EventBus) =>
        openStartProgress(startedServersOf(manifest), bus, line, systemClock)),
  };
  return collectFindings(examination, context, openLogBeside(line, invocation));
}
