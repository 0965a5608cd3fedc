/** How much a log message matters, least first (RFC 5424, as MCP's logging has it). */
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

export type Severity = (typeof SEVERITIES)[number];

export function isSeverity(value: unknown): value is Severity {
  return SEVERITIES.some((known) => known === value);
}

/** Whether a message of the first matters to who wants the second and more. */
export function isAtLeast(severity: Severity, wanted: Severity): boolean {
  return SEVERITIES.indexOf(severity) >= SEVERITIES.indexOf(wanted);
}

/** Undefined if there is none. */
export function lowestOf(severities: readonly Severity[]): Severity | undefined {
  return SEVERITIES.find((each) => severities.includes(each));
}
