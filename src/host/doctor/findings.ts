export type FindingSeverity = "error" | "warning" | "info" | "ok";

interface CodeInfo {
  readonly severity: FindingSeverity;
  /** The description in docs/doctor-codes.md, which `npm run docs` writes. */
  readonly title: string;
}

const codeInfo = (severity: FindingSeverity, title: string): CodeInfo => ({ severity, title });

/** All finding codes of `toolmux doctor`. A code never changes its meaning; retired codes are not reused. */
export const FINDING_CODES = {
  TM001: codeInfo("ok", "the version of toolmux and its runtime"),
  TM002: codeInfo("ok", "the manifest files in use"),
  TM101: codeInfo("error", "the manifest has an error"),
  TM102: codeInfo(
    "warning",
    "a manifest in the working directory is ignored, because it is not trusted",
  ),
  TM103: codeInfo("info", "something in the manifest is ignored or changed"),
  TM104: codeInfo("error", "there is no manifest"),
  TM105: codeInfo("warning", "a server cannot be used at all"),
  TM106: codeInfo("warning", "two entries are the same server"),
  TM107: codeInfo("warning", "the manifest contains a secret in plain text"),
  TM108: codeInfo("warning", "the token of a client over HTTP is refused"),
  TM201: codeInfo("error", "a server's command was not found"),
  TM202: codeInfo("error", "a server's command is not executable"),
  TM203: codeInfo("warning", "a server's runtime is older than most servers need"),
  TM204: codeInfo("error", "a server's working directory does not exist"),
  TM205: codeInfo("error", "a placeholder in a server's config cannot be resolved"),
  TM206: codeInfo("error", "the script that a server's command runs does not exist"),
  TM301: codeInfo("error", "a value that a server needs is missing"),
  TM302: codeInfo("info", "nothing in the manifest uses a stored secret"),
  TM303: codeInfo("warning", "the secret store's key is not in a keychain"),
  TM304: codeInfo("error", "the secret store cannot be read"),
  TM401: codeInfo("warning", "a server needs a login"),
  TM402: codeInfo("warning", "a token has expired and cannot be renewed"),
  TM403: codeInfo("info", "a token has expired and is renewed automatically"),
  TM501: codeInfo("error", "the port for --http cannot be used"),
  TM502: codeInfo("warning", "the port for an OAuth callback cannot be used"),
  TM601: codeInfo("warning", "processes of a killed toolmux still run"),
  TM602: codeInfo("warning", "there are leftover temporary files"),
  TM603: codeInfo("warning", "there is a leftover lock of a process that has ended"),
  TM604: codeInfo("warning", "there is a socket of a toolmux that was killed"),
  TM605: codeInfo("info", "one hub for all clients would save processes, or could not be started"),
  TM606: codeInfo("warning", "the service starts a toolmux that is gone or older"),
  TM607: codeInfo("info", "conversations with agents are kept"),
  TM611: codeInfo("error", "the NATS of the fleet cannot be used"),
  TM612: codeInfo("warning", "NATS does not permit something that a hub of the fleet needs"),
  TM613: codeInfo("warning", "NATS takes only small messages"),
  TM614: codeInfo("warning", "two hubs of the fleet have the same name"),
  TM701: codeInfo("error", "other users can read a manifest that contains secrets"),
  TM702: codeInfo("warning", "other users can read private files of toolmux"),
  TM703: codeInfo("warning", "other users can change a manifest"),
  TM801: codeInfo("warning", "a snapshot cannot be read"),
  TM802: codeInfo("info", "a snapshot is too old to be used"),
  TM803: codeInfo("info", "the tools of a server are not known yet"),
  TM901: codeInfo("info", "tools have shortened names"),
  TM902: codeInfo("warning", "tools are hidden, because other tools have the same names"),
  TM903: codeInfo("warning", "a server lists several tools with the same name"),
  TM904: codeInfo("warning", "entries are changed, because clients cannot read them as they are"),
  TM905: codeInfo("warning", "entries are hidden, because clients cannot read them"),
  TM906: codeInfo("warning", "the manifest has settings for tools that do not exist"),
  TM907: codeInfo("info", "the manifest and the server differ on annotations or _meta of tools"),
  TM908: codeInfo("warning", "allow or deny matches nothing that a server lists"),
  TM909: codeInfo("warning", "a mode shows no tools, or a part of its filter matches nothing"),
  TM911: codeInfo("info", "schemas use keywords of older drafts"),
  TM912: codeInfo("warning", "schemas lack a type that clients need"),
  TM913: codeInfo("warning", "schemas contain circular references"),
  TM914: codeInfo("warning", "schemas contain references to nothing, or to other documents"),
  TM915: codeInfo("warning", "schemas have anyOf, oneOf, allOf, … at the top level"),
  TM916: codeInfo("warning", "arguments have names that model providers reject"),
  TM917: codeInfo("info", "descriptions are so long that some clients cut or reject them"),
  TM918: codeInfo("warning", "tools have no schema for their arguments"),
  TM921: codeInfo("warning", "there are more tools than a client accepts"),
  TM922: codeInfo("info", "a client's list of tools takes more tokens than the budget"),
  TM923: codeInfo("info", "clients without a session cannot select tools"),
  TM931: codeInfo(
    "warning",
    "definitions of a server have text that no harmless server is known to have",
  ),
  TM932: codeInfo("info", "definitions of a server have text that may be meant to mislead a model"),
  TM933: codeInfo("warning", "what a server lists is hidden, because it is not accepted"),
  TM951: codeInfo("warning", "a client also starts a server that toolmux starts"),
  TM952: codeInfo("info", "a client's config cannot be read"),
  TM953: codeInfo("warning", "a client starts a toolmux that does not exist"),
  TM961: codeInfo("error", "a server cannot be started or reached"),
  TM971: codeInfo("error", "a server of a running hub has failed"),
  TM972: codeInfo("warning", "a running hub has an alert"),
  TM973: codeInfo("warning", "a running hub refuses the token of a client"),
  TM974: codeInfo("warning", "a running hub has rejected its manifest"),
  TM964: codeInfo("warning", "a server writes lines to stdout that are not MCP"),
  TM965: codeInfo("warning", "a server does not declare its capabilities as MCP requires"),
} as const satisfies Readonly<Record<string, CodeInfo>>;

export type FindingCode = keyof typeof FINDING_CODES;

/** A repair that `toolmux doctor --fix` makes without asking the user. */
export type Fix =
  | { readonly kind: "permit"; readonly path: string; readonly mode: number }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "removeSocket"; readonly path: string }
  | { readonly kind: "sweep" };

/** One problem, note or confirmation that `toolmux doctor` reports. Its texts contain no secret. */
export interface Finding {
  readonly code: FindingCode;
  /** The server, file or other thing that the finding is about; empty if it is about toolmux itself. */
  readonly subject: string;
  /** All servers that the finding is about, if they are several. */
  readonly servers?: readonly string[];
  /** A full sentence. */
  readonly text: string;
  /** The last lines of a server's stderr. */
  readonly stderr?: readonly string[];
  /** What the user can do, as a full sentence; undefined if there is nothing to do. */
  readonly advice?: string | undefined;
  /** What `--fix` repairs; absent or empty if only the user can solve the problem. */
  readonly fixes?: readonly Fix[];
}

const SEVERITY_ORDER: readonly FindingSeverity[] = ["error", "warning", "info", "ok"];

export function severityOf({ code }: Pick<Finding, "code">): FindingSeverity {
  return FINDING_CODES[code].severity;
}

/** Sorts by severity, then by code and subject. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  const rank = (finding: Finding): number => SEVERITY_ORDER.indexOf(severityOf(finding));
  return findings.toSorted(
    (a, b) =>
      rank(a) - rank(b) || a.code.localeCompare(b.code) || a.subject.localeCompare(b.subject),
  );
}
