/** The severities of log messages, least severe first (RFC 5424; MCP, logging). */
const SEVERITIES = [
  "debug",
  "info",
  "notice",
  "warning",
  "error",
  "critical",
  "alert",
  "emergency",
] as const;

export type LogSeverity = (typeof SEVERITIES)[number];

export function isSeverity(value: unknown): value is LogSeverity {
  return SEVERITIES.some((known) => known === value);
}

/** Whether `severity` is at least as severe as `wanted`. */
export function isAtLeast(severity: LogSeverity, wanted: LogSeverity): boolean {
  return SEVERITIES.indexOf(severity) >= SEVERITIES.indexOf(wanted);
}

/** The least severe level of the list; undefined if the list is empty. */
export function lowestSeverityOf(severities: readonly LogSeverity[]): LogSeverity | undefined {
  return SEVERITIES.find((each) => severities.includes(each));
}
