/** Severity of a finding. */
export type FindingSeverity = "error" | "warning" | "info" | "ok";

interface Meaning {
  readonly severity: FindingSeverity;
  /** The description in the table of README.md. */
  readonly title: string;
}

const means = (severity: FindingSeverity, title: string): Meaning => ({ severity, title });

/** All finding codes of `toolmux doctor`. A code never changes its meaning; retired codes are not reused. */
export const FINDING_CODES = {
  TM001: means("ok", "which toolmux this is, and what it runs on"),
  TM002: means("ok", "which manifest is in use"),
  TM101: means("error", "the manifest has a problem"),
  TM102: means("warning", "a file of the working directory was passed over, as it is not trusted"),
  TM103: means("info", "something in the manifest was ignored or changed"),
  TM104: means("error", "there is no manifest"),
  TM105: means("warning", "a server cannot be used at all"),
  TM106: means("warning", "two entries are the same server"),
  TM107: means("warning", "what looks like a secret stands in the manifest as it is"),
  TM201: means("error", "a server's command was not found"),
  TM202: means("error", "a server's command may not be executed"),
  TM203: means("warning", "what runs a server is older than most servers want"),
  TM204: means("error", "a server's working directory is not there"),
  TM205: means("error", "a server's entry cannot be filled in"),
  TM301: means("error", "a value that a server needs is missing"),
  TM302: means("info", "a secret is kept that nothing in the manifest uses"),
  TM303: means("warning", "the secret store's key is not in a keychain"),
  TM304: means("error", "the secret store cannot be read"),
  TM401: means("warning", "a server wants somebody to log in"),
  TM402: means("warning", "a token has expired, and there is nothing to renew it with"),
  TM403: means("info", "a token has expired and is renewed when it is needed"),
  TM501: means("error", "the port to serve on is taken"),
  TM502: means("warning", "the port for an authorization's answer is taken"),
  TM601: means("warning", "processes of a hub that was killed still run"),
  TM602: means("warning", "half-written files were left behind"),
  TM603: means("warning", "a lock of a process that is dead was left behind"),
  TM701: means("error", "others can read a manifest with secrets in it"),
  TM702: means("warning", "others can read what toolmux keeps for itself"),
  TM801: means("warning", "a snapshot cannot be read"),
  TM802: means("info", "a snapshot is too old to be used"),
  TM803: means("info", "nothing is known yet of what a server lists"),
  TM901: means("info", "tools have shortened names"),
  TM902: means("warning", "tools are hidden, as others have their names"),
  TM903: means("warning", "a server lists several tools of one name"),
  TM904: means("warning", "entries are changed, as clients could not read them"),
  TM905: means("warning", "entries are hidden, as clients could not read them"),
  TM906: means("warning", "the manifest sets something of tools that are not listed"),
  TM907: means("info", "the manifest and a server differ on annotations or _meta of tools"),
  TM911: means("info", "schemas with keywords of older drafts"),
  TM912: means("warning", "schemas without a type where clients want one"),
  TM913: means("warning", "schemas with references in a circle"),
  TM914: means("warning", "schemas with references that lead nowhere, or outside"),
  TM915: means("warning", "schemas with anyOf, oneOf, allOf, … at the top"),
  TM916: means("warning", "arguments with names that providers refuse"),
  TM917: means("info", "descriptions that some clients cut or refuse"),
  TM918: means("warning", "tools without a schema of their arguments"),
  TM921: means("warning", "more tools than a client takes"),
  TM951: means("warning", "a client also starts a server that toolmux has"),
  TM952: means("info", "a client's file cannot be read"),
  TM953: means("warning", "a client starts a toolmux that is not there"),
  TM961: means("error", "a server could not be reached"),
  TM964: means("warning", "a server writes to stdout what is not MCP"),
} as const satisfies Readonly<Record<string, Meaning>>;

export type FindingCode = keyof typeof FINDING_CODES;

/** A repair that is possible without asking the user. */
export type Fix =
  | { readonly kind: "permit"; readonly path: string; readonly mode: number }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "sweep" };

/** One problem, note or confirmation. Its texts contain no secret. */
export interface Finding {
  readonly code: FindingCode;
  /** The server, file or other thing that it is about; empty: toolmux itself. */
  readonly subject: string;
  /** A full sentence. */
  readonly text: string;
  /** What to do, as a full sentence; undefined: nothing. */
  readonly advice?: string | undefined;
  /** Safe repairs; empty: only the user can fix it. */
  readonly fixes?: readonly Fix[];
}

const ORDER: readonly FindingSeverity[] = ["error", "warning", "info", "ok"];

export function severityOf({ code }: Pick<Finding, "code">): FindingSeverity {
  return FINDING_CODES[code].severity;
}

/** Sorted by severity, then by code and subject. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  const rank = (finding: Finding): number => ORDER.indexOf(severityOf(finding));
  return findings.toSorted(
    (a, b) =>
      rank(a) - rank(b) || a.code.localeCompare(b.code) || a.subject.localeCompare(b.subject),
  );
}
