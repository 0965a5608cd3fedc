import type { AuthorizationStatus } from "../../auth/oauth-authorizer.ts";
import { quoteArgument } from "../../auth/errors.ts";
import type { RemoteServer } from "../../manifest/schema.ts";

/** How it stands with a server's authorization, in half a sentence. `now` in ms since the epoch. */
export function describeAuthStatus(
  { name, auth }: Pick<RemoteServer, "name" | "auth">,
  standing: AuthorizationStatus,
  now: number,
): string {
  switch (standing.kind) {
    case "fixed":
      return standing.by === "header" ? "an Authorization header" : "a key file";
    case "none":
      if (auth === "none") return "none";
      if (auth === "auto") return "none yet; got when the server asks for it";
      return `login needed: toolmux auth login ${quoteArgument(name)}`;
    case "authorized": {
      const { expires, isRefreshable } = standing;
      if (isRefreshable) return "authorized, renewed by itself";
      return expires === undefined ? "authorized" : `authorized for ${describeSpan(expires - now)}`;
    }
    case "expired":
      if (standing.isRefreshable) return "expired, renewed when it is needed";
      return `expired; login needed: toolmux auth login ${quoteArgument(name)}`;
  }
}

/** The same for programs: `{server, state, by?, issuer?, expires?: ISO, refreshable?, scopes?}`. */
export function authStatusToJson(
  { name }: Pick<RemoteServer, "name">,
  standing: AuthorizationStatus,
): object {
  const { kind: state } = standing;
  if (standing.kind === "none") return { server: name, state };
  if (standing.kind === "fixed") return { server: name, state, by: standing.by };
  const { issuer, expires, isRefreshable, scopes } = standing;
  return {
    server: name,
    state,
    issuer,
    ...(expires !== undefined && { expires: new Date(expires).toISOString() }),
    refreshable: isRefreshable,
    scopes,
  };
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

function describeSpan(ms: number): string {
  if (ms < 2 * MINUTE) return `${Math.max(0, Math.round(ms / 1000))} s`;
  if (ms < 2 * HOUR) return `${Math.round(ms / MINUTE)} min`;
  return ms < 2 * DAY ? `${Math.round(ms / HOUR)} h` : `${Math.round(ms / DAY)} days`;
}
