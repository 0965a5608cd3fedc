import type { AuthChallenge } from "../transport/http/target.ts";

/** The Bearer challenge in a `WWW-Authenticate` header. */
export interface BearerChallenge {
  readonly status: AuthChallenge["status"];
  /** Whether a Bearer token may be accepted: there is such a challenge, or none at all. */
  readonly takesBearer: boolean;
  /** URL of the protected resource metadata (RFC 9728). */
  readonly resourceMetadata?: string | undefined;
  readonly scopes: readonly string[];
  readonly error?: string | undefined;
}

/** How much of a header is read, in characters. */
const MAX_LENGTH = 16 * 1024;

const SEPARATORS = /[\s,]*/y;
const PARAMETER = /([!#$%&'*+.^_`|~\w-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/y;
const SCHEME = /([!#$%&'*+.^_`|~\w-]+)(?=[\s,]|$)/y;
/** The token68 form, which `Negotiate` and others have instead of parameters. */
const TOKEN68 = /[\w~+/.-]+=*(?=\s*(?:,|$))/y;

/** Finds the Bearer challenge in a header with any number of challenges. What cannot be parsed is ignored. */
export function parseChallenge({ status, header }: AuthChallenge): BearerChallenge {
  const schemes = parse((header ?? "").slice(0, MAX_LENGTH));
  const bearer = schemes.find(({ scheme }) => scheme === "bearer");
  const said = bearer?.parameters ?? new Map<string, string>();
  return {
    status,
    takesBearer: bearer !== undefined || schemes.length === 0,
    resourceMetadata: said.get("resource_metadata"),
    scopes: splitScopes(said.get("scope")),
    error: said.get("error"),
  };
}

/** Splits a space-separated list of scopes, without duplicates. */
export function splitScopes(text: string | undefined): readonly string[] {
  return [...new Set((text ?? "").split(/\s+/).filter((scope) => scope !== ""))];
}

interface Scheme {
  /** In lower case, as are the names of its parameters. */
  readonly scheme: string;
  readonly parameters: Map<string, string>;
}

function parse(text: string): readonly Scheme[] {
  const schemes: Scheme[] = [];
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | undefined => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match !== null) at = pattern.lastIndex;
    return match ?? undefined;
  };
  for (;;) {
    take(SEPARATORS);
    if (at >= text.length) return schemes;
    const parameter = take(PARAMETER);
    if (parameter !== undefined) {
      const [, name = "", quoted, bare] = parameter;
      const value = quoted?.replace(/\\(.)/g, "$1") ?? bare ?? "";
      const known = schemes.at(-1)?.parameters;
      // The first of several parameters of one name counts: the others are not allowed.
      if (known?.has(name.toLowerCase()) === false) known.set(name.toLowerCase(), value);
      continue;
    }
    const [, scheme] = take(SCHEME) ?? [];
    if (scheme === undefined) {
      if (take(TOKEN68) === undefined) return schemes;
      continue;
    }
    schemes.push({ scheme: scheme.toLowerCase(), parameters: new Map() });
  }
}
