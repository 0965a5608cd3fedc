import { type Finding, type FindingSeverity, severityOf, sortFindings } from "./findings.ts";
import { countNoun, type TerminalStyle } from "../../terminal/terminal.ts";
import { sanitizeLine } from "../../terminal/report.ts";

const COLORS = {
  error: "red",
  warning: "yellow",
  info: "cyan",
  ok: "green",
} as const satisfies Record<FindingSeverity, string>;
const NOUNS = { error: "error", warning: "warning", info: "note" } as const;

/** For people: the worst first, each with its code and what to do, and what it comes to. @param all also what is fine */
export function describeFindings(
  findings: readonly Finding[],
  all: boolean,
  paper: TerminalStyle,
): string {
  const { colors } = paper;
  const shown = sortFindings(findings).filter((it) => all || severityOf(it) !== "ok");
  const lines = shown.flatMap((finding) => {
    const { code, subject, text, advice } = finding;
    const severity = severityOf(finding);
    const mark = colors[COLORS[severity]](`${severity.padEnd(7)} ${code}`);
    const about = subject === "" ? "" : `${colors.bold(sanitizeLine(subject))}: `;
    const fix = (finding.fixes ?? []).length > 0 ? " (fixable)" : "";
    return [
      `${mark}  ${about}${sanitizeLine(text)}${fix}`,
      ...(advice === undefined ? [] : [`               ${colors.dim(sanitizeLine(advice))}`]),
    ];
  });
  return [...lines, summarize(findings)].join("\n");
}

function summarize(findings: readonly Finding[]): string {
  const counts = Object.entries(NOUNS).flatMap(([severity, noun]) => {
    const some = findings.filter((it) => severityOf(it) === severity).length;
    return some === 0 ? [] : [countNoun(some, noun)];
  });
  return counts.length === 0 ? "nothing is wrong" : counts.join(", ");
}

/** For programs: `{ok, findings: [{code, severity, subject, text, advice?, fixable}], fixed: […]}`. */
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
