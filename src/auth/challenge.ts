import type { AuthChallenge } from "../transport/http/target.ts";

/** The Bearer challenge in a `WWW-Authenticate` header. */
export interface BearerChallenge {
  readonly status: AuthChallenge["status"];
  /** Whether the server may accept a Bearer token: it sent a Bearer challenge, or no challenge at all. */
  readonly acceptsBearer: boolean;
  /** URL of the protected resource metadata (RFC 9728). */
  readonly resourceMetadata?: string | undefined;
  readonly scopes: readonly string[];
  readonly error?: string | undefined;
}

/** Maximum number of characters that are read of a header. */
const MAX_HEADER_LENGTH = 16 * 1024;

const SEPARATORS = /[\s,]*/y;
const PARAMETER = /([!#$%&'*+.^_`|~\w-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/y;
const SCHEME = /([!#$%&'*+.^_`|~\w-]+)(?=[\s,]|$)/y;
/** The token68 syntax (RFC 9110), which schemes such as `Negotiate` use instead of parameters. */
const TOKEN68 = /[\w~+/.-]+=*(?=\s*(?:,|$))/y;

/** Finds the Bearer challenge in a header with any number of challenges. Parts that cannot be parsed are ignored. */
export function parseChallenge({ status, header }: AuthChallenge): BearerChallenge {
  const schemes = parseSchemes((header ?? "").slice(0, MAX_HEADER_LENGTH));
  const bearer = schemes.find(({ scheme }) => scheme === "bearer");
  const parameters = bearer?.parameters ?? new Map<string, string>();
  return {
    status,
    acceptsBearer: bearer !== undefined || schemes.length === 0,
    resourceMetadata: parameters.get("resource_metadata"),
    scopes: splitScopes(parameters.get("scope")),
    error: parameters.get("error"),
  };
}

/** Splits a space-separated list of scopes, without duplicates. */
export function splitScopes(text: string | undefined): readonly string[] {
  return [...new Set((text ?? "").split(/\s+/).filter((scope) => scope !== ""))];
}

export interface Scheme {
  /** In lower case, like the names of the parameters. */
  readonly scheme: string;
  readonly parameters: Map<string, string>;
}

/** Parses the challenges of a header into their schemes and parameters. */
export function parseSchemes(text: string): readonly Scheme[] {
  const schemes: Scheme[] = [];
  let position = 0;
  const consume = (pattern: RegExp): RegExpExecArray | undefined => {
    pattern.lastIndex = position;
    const match = pattern.exec(text);
    if (match !== null) position = pattern.lastIndex;
    return match ?? undefined;
  };
  for (;;) {
    consume(SEPARATORS);
    if (position >= text.length) return schemes;
    const parameter = consume(PARAMETER);
    if (parameter !== undefined) {
      const [, name = "", quoted, unquoted] = parameter;
      const value = quoted?.replace(/\\(.)/g, "$1") ?? unquoted ?? "";
      const parameters = schemes.at(-1)?.parameters;
      // If a parameter is repeated, which is not allowed, the first one counts.
      if (parameters?.has(name.toLowerCase()) === false) parameters.set(name.toLowerCase(), value);
      continue;
    }
    const [, scheme] = consume(SCHEME) ?? [];
    if (scheme === undefined) {
      if (consume(TOKEN68) === undefined) return schemes;
      continue;
    }
    schemes.push({ scheme: scheme.toLowerCase(), parameters: new Map() });
  }
}
