/** How bad something is. */
export type FindingSeverity = "error" | "warning" | "info" | "ok";

interface Meaning {
  readonly severity: FindingSeverity;
  /** What it says, for the table in README.md. */
  readonly title: string;
}

const means = (severity: FindingSeverity, title: string): Meaning => ({ severity, title });

/** What the doctor can find. A code keeps its meaning for ever; those that are out of use are not used again. */
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

/** What can be done about a finding without asking anybody. */
export type Fix =
  | { readonly kind: "permit"; readonly path: string; readonly mode: number }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "sweep" };

/** Something that was found. Its texts hold no secret. */
export interface Finding {
  readonly code: FindingCode;
  /** The server, file or whatever else it is about; empty: toolmux itself. */
  readonly subject: string;
  /** A whole sentence. */
  readonly text: string;
  /** What to do: a whole sentence; undefined: nothing. */
  readonly advice?: string | undefined;
  /** Empty: only a person can put it right. */
  readonly fixes?: readonly Fix[];
}

const ORDER: readonly FindingSeverity[] = ["error", "warning", "info", "ok"];

export function severityOf({ code }: Pick<Finding, "code">): FindingSeverity {
  return FINDING_CODES[code].severity;
}

/** The worst first; what is as bad as another in the order of the codes. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  const rank = (finding: Finding): number => ORDER.indexOf(severityOf(finding));
  return findings.toSorted(
    (a, b) =>
      rank(a) - rank(b) || a.code.localeCompare(b.code) || a.subject.localeCompare(b.subject),
  );
}
