/** Severity of a finding. */
export type FindingSeverity = "error" | "warning" | "info" | "ok";

interface CodeInfo {
  readonly severity: FindingSeverity;
  /** The description in docs/doctor-codes.md, which `npm run docs` writes. */
  readonly title: string;
}

const codeInfo = (severity: FindingSeverity, title: string): CodeInfo => ({ severity, title });

/** All finding codes of `toolmux doctor`. A code never changes its meaning; retired codes are not reused. */
export const FINDING_CODES = {
  TM001: codeInfo("ok", "which toolmux this is, and what it runs on"),
  TM002: codeInfo("ok", "which manifest is in use"),
  TM101: codeInfo("error", "the manifest has a problem"),
  TM102: codeInfo(
    "warning",
    "a file of the working directory is ignored, because it is not trusted",
  ),
  TM103: codeInfo("info", "something in the manifest was ignored or changed"),
  TM104: codeInfo("error", "there is no manifest"),
  TM105: codeInfo("warning", "a server cannot be used at all"),
  TM106: codeInfo("warning", "two entries are the same server"),
  TM107: codeInfo("warning", "what looks like a secret stands in the manifest as it is"),
  TM201: codeInfo("error", "a server's command was not found"),
  TM202: codeInfo("error", "a server's command may not be executed"),
  TM203: codeInfo("warning", "what runs a server is older than most servers want"),
  TM204: codeInfo("error", "a server's working directory is not there"),
  TM205: codeInfo("error", "a server's entry cannot be filled in"),
  TM301: codeInfo("error", "a value that a server needs is missing"),
  TM302: codeInfo("info", "a secret is kept that nothing in the manifest uses"),
  TM303: codeInfo("warning", "the secret store's key is not in a keychain"),
  TM304: codeInfo("error", "the secret store cannot be read"),
  TM401: codeInfo("warning", "a server wants somebody to log in"),
  TM402: codeInfo("warning", "a token has expired, and there is nothing to renew it with"),
  TM403: codeInfo("info", "a token has expired and is renewed when it is needed"),
  TM501: codeInfo("error", "the port to serve on is taken"),
  TM502: codeInfo("warning", "the port for an authorization's answer is taken"),
  TM601: codeInfo("warning", "processes of a hub that was killed still run"),
  TM602: codeInfo("warning", "half-written files were left behind"),
  TM603: codeInfo("warning", "a lock of a process that is dead was left behind"),
  TM701: codeInfo("error", "others can read a manifest with secrets in it"),
  TM702: codeInfo("warning", "others can read what toolmux keeps for itself"),
  TM801: codeInfo("warning", "a snapshot cannot be read"),
  TM802: codeInfo("info", "a snapshot is too old to be used"),
  TM803: codeInfo("info", "nothing is known yet of what a server lists"),
  TM901: codeInfo("info", "tools have shortened names"),
  TM902: codeInfo("warning", "tools are hidden, as others have their names"),
  TM903: codeInfo("warning", "a server lists several tools of one name"),
  TM904: codeInfo("warning", "entries are changed, as clients could not read them"),
  TM905: codeInfo("warning", "entries are hidden, as clients could not read them"),
  TM906: codeInfo("warning", "the manifest has settings for tools that are not listed"),
  TM907: codeInfo("info", "the manifest and a server differ on annotations or _meta of tools"),
  TM908: codeInfo("warning", "allow or deny matches nothing that a server lists"),
  TM911: codeInfo("info", "schemas with keywords of older drafts"),
  TM912: codeInfo("warning", "schemas without a type where clients want one"),
  TM913: codeInfo("warning", "schemas with references in a circle"),
  TM914: codeInfo("warning", "schemas with references that lead nowhere, or outside"),
  TM915: codeInfo("warning", "schemas with anyOf, oneOf, allOf, … at the top"),
  TM916: codeInfo("warning", "arguments with names that providers refuse"),
  TM917: codeInfo("info", "descriptions that some clients cut or refuse"),
  TM918: codeInfo("warning", "tools without a schema of their arguments"),
  TM921: codeInfo("warning", "more tools than a client takes"),
  TM951: codeInfo("warning", "a client also starts a server that toolmux has"),
  TM952: codeInfo("info", "a client's file cannot be read"),
  TM953: codeInfo("warning", "a client starts a toolmux that is not there"),
  TM961: codeInfo("error", "a server could not be reached"),
  TM964: codeInfo("warning", "a server writes to stdout what is not MCP"),
} as const satisfies Readonly<Record<string, CodeInfo>>;

export type FindingCode = keyof typeof FINDING_CODES;

/** A repair that is possible without asking the user. */
export type Fix =
  | { readonly kind: "permit"; readonly path: string; readonly mode: number }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "sweep" };

/** One problem, note or confirmation. Its texts contain no secret. */
export interface Finding {
  readonly code: FindingCode;
  /** The server, file or other thing that the finding is about; empty if it is about toolmux itself. */
  readonly subject: string;
  /** A full sentence. */
  readonly text: string;
  /** What the user can do, as a full sentence; undefined if there is nothing to do. */
  readonly advice?: string | undefined;
  /** Safe repairs; empty: only the user can fix it. */
  readonly fixes?: readonly Fix[];
}

const SEVERITY_ORDER: readonly FindingSeverity[] = ["error", "warning", "info", "ok"];

export function severityOf({ code }: Pick<Finding, "code">): FindingSeverity {
  return FINDING_CODES[code].severity;
}

/** Sorted by severity, then by code and subject. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  const rank = (finding: Finding): number => SEVERITY_ORDER.indexOf(severityOf(finding));
  return findings.toSorted(
    (a, b) =>
      rank(a) - rank(b) || a.code.localeCompare(b.code) || a.subject.localeCompare(b.subject),
  );
}
